// Every callback of the library, in both precisions, with one thread and with two, and resumed. A new callback is one
// more line of the table; a test says when it is missing.

#include <regex>
#include <sstream>

#include "callbacks/activation_stats.h"
#include "callbacks/bn_freeze.h"
#include "callbacks/csv_logger.h"
#include "callbacks/gradients.h"
#include "callbacks/lr_finder.h"
#include "callbacks/mixup.h"
#include "callbacks/progress.h"
#include "callbacks/save_model.h"
#include "callbacks/show_graph.h"
#include "callbacks/stop_after.h"
#include "callbacks/trackers.h"
#include "engine/cpu/parallel.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

constexpr int kEpochs = 6, kBatches = 3 * kEpochs;
constexpr double kRate = 1e-2;

using Action = std::function<void(Learner&)>;

void nothing(Learner&) {}
void fit(Learner& learn) { learn.fit(kEpochs, kRate); }

/// Adds one of these.
template <class C, class... Arguments>
Action with(Arguments... arguments) {
  return [=](Learner& learn) { learn.add(std::make_shared<C>(arguments...)); };
}

void with_csv_logger(Learner& learn) {
  static const Folder folder;
  learn.add(std::make_shared<CSVLogger>(folder.path / "log.csv"));
}

void with_save_model(Learner& learn) {
  static const Folder folder;
  learn.add(std::make_shared<SaveModel>(SaveModelOptions{.path = folder.path / "best", .load_best = false}));
}

std::ostringstream printed;
void with_progress(Learner& learn) { learn.add(std::make_shared<Progress>(printed, true)); }
void with_graph(Learner& learn) { learn.add(std::make_shared<ShowGraph>(printed)); }

/// Does it leave the training itself as it would be without it, so that the weights are the same bits?
enum class Effect { none, on_training };

struct Case {
  std::string callback;
  Effect effect;
  Action prepare;
  Action train = fit;
};

const std::vector<Case> cases = {
    {"AccumulateScheduler", Effect::on_training, with<AccumulateScheduler>(2)},
    {"ActivationStats", Effect::none, with<ActivationStats>(ActivationStatsOptions{.bins = 5})},
    {"BnFreeze", Effect::none, with<BnFreeze>()},  // nothing is frozen
    {"CSVLogger", Effect::none, with_csv_logger},
    {"EarlyStopping", Effect::none, with<EarlyStopping>(EarlyStoppingOptions{.patience = 99})},
    {"FiniteLoss", Effect::none, nothing},  // every Learner has one
    {"FlatCos", Effect::on_training, nothing, [](Learner& learn) { learn.fit_flat_cos(kEpochs, kRate); }},
    {"GradientClipping", Effect::on_training, with<GradientClipping>(0.25)},
    {"LRFinder", Effect::none, nothing, [](Learner& learn) { learn.lr_find({.num_it = 5}), fit(learn); }},
    {"MixUp", Effect::on_training, with<MixUp>()},
    {"MixedPrecision", Effect::on_training, [](Learner& learn) { learn.to_fp16({.max_noskip = 3, .clip = 0.25}); }},
    {"OneCycle", Effect::on_training, nothing, [](Learner& learn) { learn.fit_one_cycle(kEpochs, kRate); }},
    {"PhaseScheduler", Effect::on_training,
     with<PhaseScheduler>(std::vector<TrainingPhase>{{.lr = {{.start = kRate, .end = kRate / 2}}}})},
    {"Progress", Effect::none, with_progress},
    {"Recorder", Effect::none, nothing},  // every Learner has one
    {"ReduceLROnPlateau", Effect::none, with<ReduceLROnPlateau>(ReduceLROnPlateauOptions{.patience = 99})},
    {"SaveModel", Effect::none, with_save_model},
    {"ShowGraph", Effect::none, with_graph},
    {"StopAfterNBatches", Effect::none, with<StopAfterNBatches>(kBatches)},
    {"TerminateOnNaN", Effect::none, with<TerminateOnNaN>()},
};

/// Everything that a run leaves: weights, masters, and the curves of the Recorder.
using Outcome = std::map<std::string, std::vector<double>>;

/// Trains a small network, whose dropout notices a callback that draws random numbers. `before_fit` comes last.
Outcome train(const Case& c, bool fp16, const Action& before_fit = nothing) {
  manual_seed(3);
  nn::Sequential model{nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3)};
  Learner learn(small_data(), model, nn::cross_entropy, {.metrics = {accuracy}, .silent = true});
  if (fp16) learn.to_fp16();
  c.prepare(learn);
  before_fit(learn);
  c.train(learn);

  CHECK(learn.state.iteration == kBatches);
  const Recorder& r = learn.recorder();
  REQUIRE(r.losses.size() == kBatches);
  for (const double loss : r.losses) CHECK(std::isfinite(loss));
  const auto mean_loss = [&](std::size_t first) {
    return (r.losses[first] + r.losses[first + 1] + r.losses[first + 2]) / 3;
  };
  CHECK(mean_loss(kBatches - 3) < 0.9 * mean_loss(0));
  CHECK(learn.optimizer().groups()[0].momentum == 0.9);
  Outcome outcome = {
      {"weights", weights(model)}, {"masters", masters(learn)}, {"losses", r.losses}, {"lrs", r.lrs}, {"moms", r.moms},
      {"valid_loss", {}}};
  for (const double weight : outcome["weights"]) CHECK(std::isfinite(weight));
  for (const Recorder::Epoch& epoch : r.epochs)
    if (!epoch.metrics.empty()) outcome["valid_loss"].push_back(epoch.metrics[0]);
  return outcome;
}

/// Saves the run in the middle of an epoch.
struct SaveAt : Callback {
  SaveAt(std::string path, std::int64_t iteration) : path(std::move(path)), iteration(iteration) {}
  std::string path;
  std::int64_t iteration;
  int order() const override { return 1000; }
  bool in_lr_find() const override { return false; }
  void on_batch_end(Learner& learn) override {
    if (learn.state.train && learn.state.iteration == iteration) learn.save(path);
  }
};

std::string read_all_headers() {
  std::string text;
  for (const auto& file : std::filesystem::directory_iterator(HALFGRAD_SOURCE_ROOT "/callbacks"))
    if (file.path().extension() == ".h") text += contents(file.path().string());
  return text;
}

/// The classes of these headers that derive from Callback; those that others derive from only if they are in `known`,
/// since most of them are bases and no more.
std::set<std::string> callbacks_in(const std::string& headers, const std::set<std::string>& known) {
  std::multimap<std::string, std::string> derived;  // by base
  const std::regex declaration(R"(class (\w+)(?: final)? : public (\w+))");
  for (std::sregex_iterator at(headers.begin(), headers.end(), declaration), end; at != end; ++at)
    derived.emplace((*at)[2], (*at)[1]);
  std::set<std::string> found;
  std::vector<std::string> bases = {"Callback"};
  while (!bases.empty()) {
    const std::string base = bases.back();
    bases.pop_back();
    const auto range = derived.equal_range(base);
    for (auto at = range.first; at != range.second; ++at) bases.push_back(at->second);
    if (base != "Callback" && (range.first == range.second || known.contains(base))) found.insert(base);
  }
  return found;
}

}  // namespace

TEST_CASE("each callback trains in f32 and f16, with one thread and two, and changes training only where it should") {
  const int threads_before = cpu::num_threads();
  for (const bool fp16 : {false, true}) {
    CAPTURE(fp16);
    const Outcome plain = train({"", Effect::none, nothing}, fp16);
    for (const Case& c : cases) {
      CAPTURE(c.callback);
      cpu::set_num_threads(1);
      const Outcome one = train(c, fp16);
      cpu::set_num_threads(2);
      CHECK(one == train(c, fp16));
      CHECK((one.at("weights") == plain.at("weights")) == (c.effect == Effect::none));
    }
  }
  cpu::set_num_threads(threads_before);
}

TEST_CASE("a run with each callback that is resumed ends as if it had not been interrupted, curves included") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const bool fp16 : {false, true})
    for (const Case& c : cases) {
      if (c.callback == "LRFinder") continue;  // no run of its own
      CAPTURE(fp16);
      CAPTURE(c.callback);
      const Outcome whole = train(c, fp16, with<SaveAt>(path, 10));
      CHECK(train(c, fp16, [&](Learner& learn) { learn.resume(path); }) == whole);
    }
}

TEST_CASE("what watches a run, writes files or stops it takes no part in lr_find") {
  const Folder folder;
  std::ostringstream out;
  const auto stats = std::make_shared<ActivationStats>();
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  for (const CallbackPtr& callback : std::vector<CallbackPtr>{
           stats, std::make_shared<CSVLogger>(folder.path / "log.csv"), std::make_shared<EarlyStopping>(),
           std::make_shared<ReduceLROnPlateau>(), std::make_shared<ShowGraph>(out),
           std::make_shared<StopAfterNBatches>(1), std::make_shared<TerminateOnNaN>()})
    learn.add(callback);
  CHECK(learn.lr_find({.num_it = 5}).lrs.size() == 5);
  CHECK(stats->layers().empty());
  CHECK(folder.files() == 0);
  CHECK(out.str().empty());
  CHECK_FALSE(PhaseScheduler({TrainingPhase{}}).in_lr_find());
}

TEST_CASE("every callback that the headers declare is in the table") {
  std::set<std::string> listed;
  for (const Case& c : cases) CHECK_MESSAGE(listed.insert(c.callback).second, c.callback << " is in the table twice");
  const std::set<std::string> declared = callbacks_in(read_all_headers(), listed);
  for (const std::string& name : declared)
    CHECK_MESSAGE(listed.contains(name), name << " has no line in tests/callbacks/test_each_callback.cpp");
  for (const std::string& name : listed) CHECK_MESSAGE(declared.contains(name), name << " is no callback");
}

TEST_CASE("a class is found wherever it would add a callback") {
  const std::string headers =
      "class Callback {\nclass A : public Callback {\nclass B final : public A {\nclass C : public Other {\n"
      "class D : public Callback {};";
  CHECK(callbacks_in(headers, {}) == std::set<std::string>{"B", "D"});
  CHECK(callbacks_in(headers, {"A"}) == std::set<std::string>{"A", "B", "D"});
}
