#pragma once

#include "nn/module.h"

namespace halfgrad::nn {

struct EmbeddingOptions {
  std::int64_t padding_idx = -1;  ///< this row starts as zeros and gets no gradient; -1: there is none
};

/// A table of vectors: integer indices [...] -> [..., dim].
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& indices) override;
  void visit(Visitor& v) override { v.parameter("weight", weight); }
  std::string extra_repr() const override;

  EmbeddingOptions options;
  Tensor weight;  ///< [count, dim], at first standard normal
};

}  // namespace halfgrad::nn
