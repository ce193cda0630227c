#include "nn/embedding.h"

#include "engine/ops/index.h"
#include "nn/init.h"

namespace halfgrad::nn {

Embedding::Embedding(std::int64_t count, std::int64_t dim, const EmbeddingOptions& options) : options(options) {
  check(count > 0 && dim > 0, "Embedding: {} vectors of {} numbers, expected at least one of each", count, dim);
  check(options.padding_idx >= -1 && options.padding_idx < count,
        "Embedding: padding_idx is {}, expected a row from 0 to {}, or -1 for none", options.padding_idx, count - 1);
  weight = randn({count, dim});
  if (options.padding_idx >= 0) weight[options.padding_idx].zero_();
  weight.requires_grad_();
}

Tensor Embedding::forward(const Tensor& indices) { return embedding(indices, weight, options.padding_idx); }

std::string Embedding::extra_repr() const {
  return fmt::format("{}, {}{}", weight.size(0), weight.size(1),
                     options.padding_idx < 0 ? "" : fmt::format(", padding_idx={}", options.padding_idx));
}

}  // namespace halfgrad::nn
