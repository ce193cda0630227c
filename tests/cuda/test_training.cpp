// A Learner on a GPU: the whole scheme of mixed precision without the host waiting, and the same as a CUDA graph.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include "callbacks/gradients.h"
#include "engine/autograd.h"
#include "engine/ops/dropout.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "optim/rmsprop.h"
#include "tests/callbacks/training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

const Device gpu = Device::cuda();

// In the emulation a stream does nothing until somebody waits for it, so it shows whether somebody does. Without the
// allocator's cache every tensor that goes away does.
bool shows_waiting() {
  const char *const module = std::getenv("HALFGRAD_CUDA_MODULE"), *const cache = std::getenv("HALFGRAD_CUDA_CACHE");
  return module && std::string_view(module).find("emulated") != std::string_view::npos &&
         !(cache && std::string_view(cache) == "off");
}

nn::Sequential network(std::uint64_t seed = 3) {
  manual_seed(seed);
  return nn::Sequential{nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.25), nn::Linear(16, 3)};
}

nn::Sequential convolutions() {
  manual_seed(4);
  return nn::Sequential{nn::Conv2d(1, 4, 3, {.padding = 1}),
                        nn::BatchNorm2d(4),
                        nn::ReLU(),
                        nn::MaxPool2d(2),
                        nn::Flatten(),
                        nn::Linear(4 * 2 * 2, 3)};
}

data::Data images() {
  const data::TensorDataset rows = classes_dataset(40, 16);
  std::vector<std::int64_t> all(40);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  data::TensorDataset rows_copy = rows;
  const data::Batch batch = rows_copy.get(all);
  const data::TensorDataset dataset(batch.inputs[0].reshape({40, 1, 4, 4}), batch.targets[0]);
  const data::LoaderOptions options{.batch_size = 16, .prefetch = 0};  // the last batch is a short one
  return {data::DataLoader(dataset, options), {}};
}

struct Setting {
  const char* name;
  bool fp16 = true;
  MixedPrecisionOptions precision = {};
  optim::OptimizerFactory opt = optim::adamw();
  bool with_images = false;
  std::vector<CallbackPtr> callbacks = {};
};

std::vector<Setting> settings() {
  return {{.name = "f32", .fp16 = false},
          {.name = "f32, clipped", .fp16 = false, .callbacks = {std::make_shared<GradientClipping>(0.1)}},
          {.name = "fp16", .precision = {.clip = 0.5}},
          {.name = "fp16, flat, from a scale that overflows",
           .precision = {.loss_scale = 16777216, .max_noskip = 3, .flat_master = true},
           .opt = momentum_sgd()},
          {.name = "fp16, images", .precision = {.clip = 1}, .opt = optim::rmsprop({.lr = 1e-3}), .with_images = true}};
}

// What is left of a run of three epochs of one-cycle training.
struct Result {
  std::vector<double> weights, state, losses;
  LossScaler scaler;
  GeneratorState random;
};

Result train(const Setting& setting, Device device, bool captured) {
  nn::Sequential model = setting.with_images ? convolutions() : network();
  model.to(device);
  Learner learn(setting.with_images ? images() : small_data(), model, nn::cross_entropy,
                {.opt = setting.opt, .callbacks = setting.callbacks, .silent = true});
  if (setting.fp16) learn.to_fp16(setting.precision);
  if (captured) learn.capture_step();
  manual_seed(5);
  learn.fit_one_cycle(3, 0.01);
  return {weights(model), state_values(learn), learn.recorder().losses,
          setting.fp16 ? learn.mixed_precision()->scaler() : LossScaler(), default_generator().state()};
}

// Saves in the middle of the second epoch.
struct SaveInTheMiddle : Callback {
  explicit SaveInTheMiddle(std::string path) : path(std::move(path)) {}
  void on_batch_end(Learner& learn) override {
    if (!path.empty() && learn.state.train && learn.state.iteration == 4) learn.save(path);
  }
  std::string path;
};

Tensor uniform_on_gpu(const Shape& shape, std::uint64_t seed) {
  manual_seed(seed);
  return rand(shape, f32, gpu);
}

// The largest difference of two vectors, in units of the largest magnitude of the first.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("a captured step gives the bits of an eager one: weights, moments, counts, scale, losses, random numbers") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.name);
    const Result eager = train(setting, gpu, false), captured = train(setting, gpu, true);
    CHECK(captured.weights == eager.weights);
    CHECK(captured.state == eager.state);
    CHECK(captured.losses == eager.losses);
    CHECK(captured.scaler == eager.scaler);
    CHECK(captured.random == eager.random);
    if (setting.precision.loss_scale == 16777216) CHECK(eager.scaler.skipped > 0);
  }
}

// The two differ by roundings of sums and functions: 2^-11 each in f16 and 2^-24 in f32, relative to the largest number.
// Nine steps at a rate of at most 0.01 multiply such a difference, in the weights, by no more than (1 + 0.01 L)^9 with the
// loss's curvature L, below 100 for this network: a factor of 512. Adam turns a difference in a gradient that is nearly
// zero into one of the rate, so that single weights may differ by as much as the rates add up to; the norm over all of them
// stays small.
TEST_CASE("training on a GPU is training on a CPU") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.name);
    const Result cpu = train(setting, Device::cpu(), false), found = train(setting, gpu, false);
    const double bound = setting.fp16 ? 512 * 0x1p-11 : 512 * 0x1p-24 * 64;
    CHECK(distance(cpu.losses, found.losses) < bound);
    CHECK(found.scaler == cpu.scaler);
    CHECK(found.random == cpu.random);
    CHECK(found.state.size() == cpu.state.size());
  }
}

TEST_CASE("nothing waits for the GPU within an epoch") {
  if (!shows_waiting()) return;
  for (const bool captured : {false, true}) {
    nn::Sequential model = network();
    model.to(gpu);
    struct Watch : Callback {
      std::vector<std::size_t> known;
      std::size_t arrived = 0;
      void on_loss_known(Learner&, const KnownLoss&) override { ++arrived; }
      void on_batch_end(Learner& learn) override {
        if (learn.state.train) known.push_back(arrived);
      }
      InGraph in_graph() const override { return InGraph::watches; }
    };
    const auto watch = std::make_shared<Watch>();
    Learner learn({small_data(4).train, {}}, model, nn::cross_entropy, {.callbacks = {watch}, .silent = true});
    learn.to_fp16({.clip = 1});
    learn.fit(1);  // makes state, for which it may look
    if (captured) learn.capture_step();
    watch->known.clear();
    watch->arrived = 0;
    learn.fit(1);
    CHECK(watch->known == std::vector<std::size_t>(12, 0));
    CHECK(watch->arrived == 12);
    CHECK(learn.recorder().losses.size() == 12);
  }
}

TEST_CASE("a loss that is not finite stops training, and no weight has seen it") {
  nn::Sequential model = network();
  model.to(gpu);
  struct Spoil : Callback {
    void on_batch_begin(Learner& learn) override {
      if (learn.state.train && learn.state.iteration == 1)
        learn.state.last_input[0] = learn.state.last_input[0] * std::numeric_limits<double>::quiet_NaN();
    }
  };
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {std::make_shared<Spoil>()}, .silent = true});
  CHECK(message_of([&] { learn.fit(1); }) ==
        "training: the loss is nan in batch 1 of epoch 0; try a smaller learning rate, and look at the data");
  for (const optim::Entry& entry : learn.optimizer().groups()[0].entries) {
    for (const double w : entry.param.to_vector<double>()) CHECK(std::isfinite(w));
    CHECK(entry.steps() == 2);  // of three batches
  }
}

TEST_CASE("skipped steps in a row at the smallest scale end training with the layer that is to blame") {
  nn::Sequential model = network();
  model.to(gpu);
  Learner learn({small_data(4).train, {}}, model, nn::cross_entropy, {.silent = true});
  learn.to_fp16({.loss_scale = 1});
  {
    NoGrad guard;
    learn.optimizer().groups()[0].entries[0].master.fill_(inf);
    learn.optimizer().sync_params_from_masters();
  }
  const std::string message = message_of([&] { learn.fit(6); });
  CHECK(contains(message, "50 steps in a row were skipped"));
  CHECK(contains(message, "'weight' of layer '0' (Linear)"));
}

TEST_CASE("an index that is out of range is reported when the results are read, and reads nothing") {
  const Tensor x = arange(12.0, 24.0, 1.0, f32, gpu).reshape({4, 3});
  const Tensor index = from_vector(std::vector<std::int64_t>{1, 7, -1}).to(gpu);
  const Tensor y = index_select(x, 0, index);  // nobody waits
  CHECK_THROWS_WITH_AS(y.to_vector<float>(), doctest::Contains("index_select: index "), Error);
  CHECK(y.to_vector<float>()[0] == 15);  // told once, the work goes on
  CHECK_THROWS_WITH_AS((gather(x, 1, full({4, 1}, 3, i64, gpu)), backend_for(gpu).synchronize()),
                       doctest::Contains("gather: index 3 (element "), Error);

  nn::Sequential model = network();
  model.to(gpu);
  const data::TensorDataset dataset(ones({8, 8}), full({8}, 5, i64));
  Learner learn({data::DataLoader(dataset, {.batch_size = 4, .prefetch = 0}), {}}, model, nn::cross_entropy,
                {.silent = true});
  CHECK(contains(message_of([&] { learn.fit(1); }), "cross_entropy: index 5"));
}

TEST_CASE("a graph draws the numbers of dropout anew, the same ones forward and backward") {
  const Shape shape = {5, 7};
  const Tensor x = uniform_on_gpu(shape, 1), leaf = Tensor(uniform_on_gpu(shape, 2)).requires_grad_();
  manual_seed(9);
  const Tensor before = dropout(leaf, 0.5);  // drawn before the capture begins: its gradient does not change
  const Tensor gradient_before = grad(before, {leaf}, x, true)[0];
  const std::uint64_t offset = default_generator().state().offset;
  Tensor y = zeros(shape, f32, gpu), dx = y.clone(), dx_before = y.clone();
  const std::unique_ptr<CapturedWork> graph = backend_for(gpu).capture(
      [&] {
        const Tensor drop = dropout(leaf, 0.5);
        const Tensor gradient = grad(drop, {leaf}, x)[0], old_gradient = grad(before, {leaf}, x, true)[0];
        NoGrad guard;
        y.copy_(drop);
        dx.copy_(gradient);
        dx_before.copy_(old_gradient);
      },
      offset);
  for (const std::uint64_t at : {offset, offset + 1000}) {
    graph->replay(17, at);
    default_generator().set_state({.seed = 17, .offset = at});
    const Tensor expected = dropout(leaf, 0.5);
    CHECK(y.to_vector<float>() == expected.to_vector<float>());
    CHECK(dx.to_vector<float>() == grad(expected, {leaf}, x)[0].to_vector<float>());
    CHECK(dx_before.to_vector<float>() == gradient_before.to_vector<float>());
  }
}

TEST_CASE("capture_step says what it cannot do") {
  nn::Sequential model = network();
  {
    Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
    CHECK_THROWS_WITH_AS(learn.capture_step(), doctest::Contains("capture_step: the model is on cpu"), Error);
    CHECK_NOTHROW(learn.capture_step(false));
  }
  model.to(gpu);
  Learner learn(small_data(), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<AccumulateScheduler>(2)}, .silent = true});
  learn.capture_step();
  CHECK(contains(message_of([&] { learn.fit(1); }),
                 "capture_step: the callback AccumulateScheduler cannot take part in a captured step"));

  // A loss that looks at its own value.
  Learner looks(small_data(4), model,
                [](const Tensor& output, const Tensor& target) {
                  const Tensor loss = nn::cross_entropy(output, target);
                  return loss.item() > 0 ? loss : -loss;
                },
                {.silent = true});
  looks.capture_step();
  CHECK(contains(message_of([&] { looks.fit(1); }), "capture: the work reads a result on the host"));
  looks.capture_step(false);
  CHECK_NOTHROW(looks.fit(1));
}

TEST_CASE("a run on a GPU goes on from a checkpoint, and on the CPU") {
  const auto path = std::string("cuda_training_checkpoint.safetensors");
  nn::Sequential whole = network(), part = network(), elsewhere = network();
  whole.to(gpu);
  part.to(gpu);
  const auto learner = [](nn::Sequential& model) {
    auto learn = std::make_unique<Learner>(small_data(), model, nn::cross_entropy, LearnerOptions{.silent = true});
    learn->to_fp16();
    return learn;
  };
  manual_seed(6);
  const auto a = learner(whole);
  a->add(std::make_shared<SaveInTheMiddle>(path));
  a->fit(2);
  const auto b = learner(part);
  b->add(std::make_shared<SaveInTheMiddle>(""));
  b->resume(path);
  b->fit(2);
  CHECK(weights(part) == weights(whole));
  CHECK(state_values(*b) == state_values(*a));

  const auto c = learner(elsewhere);
  c->load(path);
  CHECK_NOTHROW(c->fit(1));
  std::remove(path.c_str());
}
