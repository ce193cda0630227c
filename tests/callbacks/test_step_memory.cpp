// What a training step of a convolutional network keeps in memory, and that no layer brings its tensors into another order.

#include <algorithm>

#include "engine/ops/reduce.h"
#include "examples/models.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

data::Data images(std::int64_t n, std::int64_t batch_size) {
  manual_seed(5);
  const data::TensorDataset dataset(randn({n, 1, 28, 28}), arange(n) - 10 * (arange(n) / 10.0).to(i64));
  const data::LoaderOptions options{.batch_size = batch_size, .prefetch = 0};
  return {data::DataLoader(dataset, options), data::DataLoader(dataset, options)};
}

// Of each batch the bytes that were there at most, from its beginning until its gradients were complete, beyond those that
// had been there before: activations, gradients, and what kernels need meanwhile.
struct MemoryOfStep : Callback {
  int order() const override { return -2000; }
  void on_batch_begin(Learner& learn) override {
    if (!learn.state.train) return;
    reset_peak_memory();
    before = memory_stats().live;
  }
  void on_backward_end(Learner&) override { bytes.push_back(memory_stats().peak - before); }

  std::size_t before = 0;
  std::vector<std::size_t> bytes;
};

std::size_t bytes_of_step(nn::Sequential model, bool fp16) {
  Learner learn(images(64, 32), model, nn::cross_entropy, {.silent = true});
  const auto memory = std::make_shared<MemoryOfStep>();
  learn.add(memory);
  if (fp16) learn.to_fp16();
  learn.fit(2);
  return memory->bytes.back();
}

// How many bytes were there at most during f(), beyond those before.
template <class F>
std::size_t peak_of(F f) {
  reset_peak_memory();
  const std::size_t before = memory_stats().live;
  f();
  return memory_stats().peak - before;
}

std::size_t bytes_of(const Tensor& x) { return static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); }

Tensor channels_last(const Tensor& x) { return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}); }

}  // namespace

TEST_CASE("activations and gradients of the CNN take at most 55 % of the memory in f16") {
  const std::size_t single = bytes_of_step(models::cnn(), false), half = bytes_of_step(models::cnn(), true);
  MESSAGE(fmt::format("{} bytes in f32, {} in f16: {:.1f} %", single, half, 100.0 * half / single));
  CHECK(100 * half <= 55 * single);
}

TEST_CASE("a layer between channels-last images takes memory for its result and for nothing of that size") {
  // Kernels may take some for numbers of each channel; the weights and their gradients are small here, too.
  constexpr std::size_t kSmall = 96 * 1024;
  for (const DType dtype : {f32, f16}) {
    const auto check_layer = [&](nn::Module& layer, const Shape& shape) {
      CAPTURE(layer.describe());
      layer.to(dtype);
      const Tensor x = channels_last(randn(shape).to(dtype)).requires_grad_();
      Tensor y = layer(x);
      sum(y).backward();  // the gradients of the weights are there now
      const Tensor dy = channels_last(randn(y.shape()).to(dtype));
      const auto room_for = [](const Tensor& result) { return size_class(bytes_of(result), 512) + kSmall; };
      // Max pooling keeps where each maximum was, as i32.
      const std::size_t kept = layer.name() == "MaxPool2d" ? static_cast<std::size_t>(y.numel()) * 4 : 0;
      // The gradient in front of a ReLU is there beside the one behind it.
      const std::size_t between = layer.name() == "Sequential" ? size_class(bytes_of(y), 512) : 0;
      y = Tensor();
      CHECK(peak_of([&] { y = layer(x); }) <= room_for(dy) + size_class(kept, 512));
      CHECK((y.is_channels_last() || y.rank() < 4));
      Tensor grad = x;
      grad.set_grad({});
      CHECK(peak_of([&] { y.backward(dy); }) <= room_for(x) + between);
      CHECK(x.grad().is_channels_last());
    };
    nn::Conv2d conv(16, 16, 3, {.padding = 1}), strided(16, 32, 3, {.stride = 2, .padding = 1}), pointwise(16, 16, 1);
    nn::BatchNorm2d norm(16);
    nn::ReLU relu;
    nn::MaxPool2d max_pool(2);
    nn::AvgPool2d avg_pool(2);
    nn::Dropout dropout(0.25);
    nn::Sequential joined(nn::Conv2d(16, 16, 3, {.padding = 1}), nn::ReLU());
    for (nn::Module* layer : std::initializer_list<nn::Module*>{&conv, &strided, &pointwise, &norm, &relu, &max_pool,
                                                                &avg_pool, &dropout, &joined})
      check_layer(*layer, {16, 16, 32, 32});
  }
}

// The exception is what Flatten reads, which becomes rows of numbers in the order of the shape.
TEST_CASE("between the layers of the networks all images and their gradients lie channels-last") {
  for (const bool fp16 : {false, true})
    for (const bool resnet : {false, true}) {
      nn::Sequential model = resnet ? models::resnet18(4) : models::cnn();
      if (fp16) model.to(f16);
      int seen = 0, in_other_order = 0;
      model.apply([&](nn::Module& module) {
        module.register_forward_hook([&](nn::Module& m, const Tensors&, const Tensor& y) {
          if (y.rank() != 4 || y.size(2) == 1) return Tensor();
          CAPTURE(m.describe());
          CHECK(y.is_channels_last());
          Tensor(y).register_hook([&](const Tensor& dy) {
            ++seen;
            in_other_order += !dy.is_channels_last();
            return Tensor();
          });
          return Tensor();
        });
      });
      sum(model(randn({4, 1, 28, 28}).to(fp16 ? f16 : f32))).backward();
      CHECK(seen >= 8);
      CHECK(in_other_order == (resnet ? 0 : 1));  // the ResNet's images are single pixels there
    }
}
