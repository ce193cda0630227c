#pragma once
// The loss scale as a state machine, without a tensor in it.

#include <cstdint>

namespace halfgrad {

/// Grows after `max_noskip` good steps in a row, halves at each overflow. Micikevicius et al., section 3.2;
/// the numbers are fastai's.
struct LossScaler {
  double scale = 65536;
  bool dynamic = true;  ///< false: the scale never moves
  double min_scale = 1;
  double max_scale = 16777216;  // 2^24
  std::int64_t max_noskip = 1000;

  std::int64_t noskip = 0;    ///< good steps since the scale last moved
  std::int64_t skipped = 0;   ///< skipped steps, all together
  std::int64_t at_floor = 0;  ///< skipped steps in a row during which the scale could not fall

  void step_taken();
  void step_skipped();

  bool operator==(const LossScaler&) const = default;
};

}  // namespace halfgrad
