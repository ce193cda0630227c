#include "callbacks/activation_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "callbacks/learner.h"

namespace halfgrad {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool has_own_parameters(nn::Module& module) {
  struct Own : nn::Visitor {
    bool found = false;
    void parameter(const std::string&, Tensor& x) override { found = found || x.defined(); }
  } own;
  module.visit(own);
  return own.found;
}

}  // namespace

ActivationStats::ActivationStats(ActivationStatsOptions options) : options_(std::move(options)) {
  check(options_.every >= 1, "ActivationStats: every {} batches; expected at least 1", options_.every);
  check(options_.near_zero >= 0, "ActivationStats: near_zero {} must not be negative", options_.near_zero);
  check(options_.bins >= 0, "ActivationStats: {} bins; expected 0 or more", options_.bins);
  check(options_.range.first < options_.range.second && std::isfinite(options_.range.second - options_.range.first),
        "ActivationStats: the range from {} to {} is empty or infinite", options_.range.first, options_.range.second);
}

// --- during a run ------------------------------------------------------------------------------------------

void ActivationStats::on_train_begin(Learner& learn) {
  unhook();
  layers_.clear();
  iterations_.clear();
  std::vector<std::string> wanted = options_.modules;
  std::vector<nn::Module*> watched;
  for (const auto& [path, module] : learn.model().named_modules()) {
    const bool listed = std::erase(wanted, path) > 0;
    if (options_.modules.empty() ? !has_own_parameters(*module) : !listed) continue;
    if (options_.filter && !options_.filter(path, *module)) continue;
    watched.push_back(module);
    layers_.push_back({.path = path, .layer = module->describe()});
  }
  check(wanted.empty(), "ActivationStats: the model has no module '{}'", wanted.empty() ? "" : wanted.front());
  check(!watched.empty(), "ActivationStats: no module of the model is left to watch");
  // Now that layers_ is complete, its elements stay where they are.
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const auto look = [this, &layer = layers_[i]](nn::Module&, const Tensors&, const Tensor& output) {
      if (looking_) look_at(layer, output);
      return Tensor();
    };
    hooks_.emplace_back(watched[i], watched[i]->register_forward_hook(look));
  }
}

void ActivationStats::on_batch_begin(Learner& learn) {
  looking_ = learn.state.train && learn.state.iteration % options_.every == 0;
  if (!looking_) return;
  iterations_.push_back(learn.state.iteration);
  for (LayerActivations& layer : layers_) {
    for (std::vector<double>* series : {&layer.mean, &layer.std, &layer.near_zero}) series->push_back(kNaN);
    layer.histogram.emplace_back(static_cast<std::size_t>(options_.bins));
  }
}

// Only this one forward pass of the batch: others may follow, to find a NaN or to save memory.
void ActivationStats::on_loss_begin(Learner&) { looking_ = false; }

void ActivationStats::on_train_end(Learner&, std::exception_ptr) { unhook(); }

void ActivationStats::unhook() {
  for (const auto& [module, id] : hooks_) module->remove_hook(id);
  hooks_.clear();
  looking_ = false;
}

void ActivationStats::look_at(LayerActivations& layer, const Tensor& output) const {
  const std::vector<double> values = output.to_vector<double>();
  const auto n = static_cast<double>(values.size());
  const auto [low, high] = options_.range;
  double sum = 0, near = 0;
  std::vector<std::int64_t> histogram(static_cast<std::size_t>(options_.bins));
  for (const double x : values) {
    sum += x;
    near += std::abs(x) <= options_.near_zero;
    if (histogram.empty() || !(x >= low && x <= high)) continue;
    const auto bin = static_cast<std::size_t>((x - low) / (high - low) * static_cast<double>(options_.bins));
    ++histogram[std::min(bin, histogram.size() - 1)];  // `high` itself belongs to the last bin
  }
  const double mean = sum / n;
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  layer.mean.back() = mean;
  layer.std.back() = std::sqrt(squares / (n - 1));
  layer.near_zero.back() = near / n;
  layer.histogram.back() = std::move(histogram);
}

// --- afterwards --------------------------------------------------------------------------------------------

const LayerActivations& ActivationStats::layer(const std::string& path) const {
  const auto found =
      std::find_if(layers_.begin(), layers_.end(), [&](const LayerActivations& layer) { return layer.path == path; });
  check(found != layers_.end(), "ActivationStats: '{}' is not one of the {} modules that were watched", path,
        layers_.size());
  return *found;
}

std::string ActivationStats::table() const {
  const auto name_of_layer = [](const LayerActivations& layer) {
    return layer.path.empty() ? layer.layer : layer.path + " " + layer.layer;
  };
  std::size_t width = 5;
  for (const LayerActivations& layer : layers_) width = std::max(width, name_of_layer(layer).size());
  std::string text = fmt::format("{:<{}}  {:>10}  {:>10}  {:>9}\n", "layer", width, "mean", "std", "near zero");
  if (iterations_.empty()) return text;
  for (const LayerActivations& layer : layers_)
    text += fmt::format("{:<{}}  {:>10.4g}  {:>10.4g}  {:>8.1f}%\n", name_of_layer(layer), width, layer.mean.back(),
                        layer.std.back(), 100 * layer.near_zero.back());
  return text;
}

Chart ActivationStats::chart(ActivationStatistic statistic) const {
  const auto made_of = [&](const char* title, const char* y_label, std::vector<double> LayerActivations::*series) {
    Chart chart{.title = title, .x_label = "iteration", .y_label = y_label};
    for (const LayerActivations& layer : layers_)
      chart.curves.push_back({.label = layer.path.empty() ? layer.layer : layer.path,
                              .x = std::vector<double>(iterations_.begin(), iterations_.end()),
                              .y = layer.*series});
    return chart;
  };
  switch (statistic) {
    case ActivationStatistic::mean:
      return made_of("Mean of the activations", "mean", &LayerActivations::mean);
    case ActivationStatistic::std:
      return made_of("Standard deviation of the activations", "std", &LayerActivations::std);
    case ActivationStatistic::near_zero:
      return made_of("Share of activations near zero", "share", &LayerActivations::near_zero);
  }
  fail("ActivationStats::chart: statistic {} is none of mean, std and near_zero", static_cast<int>(statistic));
}

}  // namespace halfgrad
