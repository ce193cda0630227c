#pragma once
// What a classifier gets right and wrong on its validation data, as fastai's ClassificationInterpretation.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace halfgrad {

/// Made by Learner::interpret().
class ClassificationInterpretation {
 public:
  /// scores [N, C] as the model gives them, targets i64 [N], one loss per sample; the names of the classes, or none to
  /// call them "0", "1", ... Error when these do not fit together.
  ClassificationInterpretation(const Tensor& scores, const Tensor& targets, std::vector<double> losses,
                               std::vector<std::string> classes = {});

  /// How often each class was predicted as each: i64 [C, C], actual by predicted.
  Tensor confusion_matrix() const;
  /// The same as a table.
  std::string confusion_table() const;

  struct Confusion {
    std::string actual, predicted;
    std::int64_t count;
    bool operator==(const Confusion&) const = default;
  };
  /// Off the diagonal, at least min_count times, the most frequent first.
  std::vector<Confusion> most_confused(std::int64_t min_count = 1) const;

  struct Sample {
    std::int64_t index;  ///< in the validation data
    double loss;
    std::string actual, predicted;
    double probability;  ///< of the actual class
  };
  /// The k samples with the largest losses, or the smallest; all when there are fewer. NaN counts as the largest.
  std::vector<Sample> top_losses(std::int64_t k = 10, bool largest = true) const;

  /// The accuracy, what is confused most and the largest losses, on a page.
  std::string str() const;

 private:
  Sample sample(std::int64_t index) const;

  std::int64_t n_classes_;
  std::vector<std::int64_t> targets_, predicted_;
  std::vector<double> probabilities_, losses_;
  std::vector<std::string> classes_;
};

}  // namespace halfgrad
