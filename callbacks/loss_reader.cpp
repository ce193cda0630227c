#include "callbacks/loss_reader.h"

namespace halfgrad {

void LossReader::add(const Tensor& loss, int epoch, std::int64_t num_batch) {
  check(loss.numel() == 1 && is_floating(loss.dtype()), "Learner: the loss is {}; expected one number of a float dtype",
        loss);
  coming_.push_back({backend_for(loss.device()).download(loss.raw_data(), size_of(loss.dtype())),
                     loss.dtype(),
                     {.loss = 0, .epoch = epoch, .num_batch = num_batch}});
}

std::optional<KnownLoss> LossReader::next(bool wait) {
  if (coming_.empty() || !(wait || coming_.front().number->is_there())) return std::nullopt;
  const Coming come = std::move(coming_.front());
  coming_.pop_front();
  KnownLoss known = come.of;
  visit_dtype(come.dtype, [&]<class T>(T) {
    const T number = *static_cast<const T*>(come.number->wait());
    known.loss = static_cast<double>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(number));
  });
  return known;
}

}  // namespace halfgrad
