// What a GAN is made of: GANModule, the losses, the basic networks.

#include "gan.h"

#include "callbacks/gan/models.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/loss.h"
#include "engine/ops/reduce.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Notes the dtype that reaches it.
struct Watch : nn::Module {
  explicit Watch(DType& seen) : seen(seen) {}
  DType& seen;
  Tensor forward(const Tensor& x) override {
    seen = x.dtype();
    return x;
  }
};

/// x * weight, with one number as weight.
struct Scale : nn::Module {
  explicit Scale(double value) : weight(full({1}, value).requires_grad_()) {}
  Tensor weight;
  Tensor forward(const Tensor& x) override { return x * weight; }
  void visit(nn::Visitor& v) override { v.parameter("weight", weight); }
};

/// [N, C] -> [N], the sum times weight.
struct SumScale : Scale {
  using Scale::Scale;
  Tensor forward(const Tensor& x) override { return sum(Scale::forward(x), {1}); }
};

}  // namespace

TEST_CASE("GANModule runs the network of its mode, and names the parameters of both") {
  nn::Sequential generator = small_generator(), critic = small_critic();
  GANModule gan(generator, critic);
  gan.eval();
  const Tensor noise = gan_dataset(5).inputs()[0], images = gan_dataset(5).targets()[0];
  CHECK_FALSE(gan.gen_mode);
  CHECK(gan(images).to_vector<float>() == critic(images).to_vector<float>());
  CHECK(gan.generate(noise).to_vector<float>() == generator(noise).to_vector<float>());
  gan.gen_mode = true;
  CHECK(gan(noise).to_vector<float>() == generator(noise).to_vector<float>());
  CHECK(gan.criticize(images).to_vector<float>() == critic(images).to_vector<float>());

  std::vector<std::string> names;
  for (const auto& [name, parameter] : gan.named_parameters()) names.push_back(name);
  REQUIRE(names.size() == generator.parameters().size() + critic.parameters().size());
  CHECK(names.front() == "generator.0.weight");
  CHECK(names.back() == "critic.4.bias");
}

TEST_CASE("a floating input is cast where it enters a network, and its gradient back; others stay") {
  DType gen_saw = f64, critic_saw = f64;
  nn::Sequential generator{Watch(gen_saw), Scale(2)}, critic{Watch(critic_saw), SumScale(3)};
  GANModule gan(generator, critic);
  gan.to(f16);
  CHECK(gan.generate(ones({2, 3})).dtype() == f16);
  CHECK(gen_saw == f16);
  Tensor images = ones({2, 3}).requires_grad_();
  const Tensor prediction = gan.criticize(images);
  CHECK(critic_saw == f16);
  CHECK(prediction.dtype() == f16);
  sum(prediction).backward();
  CHECK(images.grad().dtype() == f32);
  CHECK(images.grad().to_vector<float>() == std::vector<float>(6, 3));
  // Each has its own dtype.
  critic.to(f32);
  gan.criticize(gan.generate(ones({2, 3}, f64)));
  CHECK(gen_saw == f16);
  CHECK(critic_saw == f32);
  gan.generate(ones({2, 3}, i64));
  CHECK(gen_saw == i64);
}

TEST_CASE("GANLoss gives each loss what it is a function of, in f32, and the critic's no way to the generator") {
  for (const DType dtype : {f32, f16}) {
    Scale generator(2);
    SumScale critic(3);
    GANModule gan(generator, critic);
    gan.to(dtype);
    Tensor seen_target, seen_output;
    const GANLoss loss(gan, {.gen =
                                 [&](const Tensor& fake_pred, const Tensor& target, const Tensor& output) {
                                   CHECK(fake_pred.dtype() == f32);
                                   seen_target = target;
                                   seen_output = output;
                                   return mean(fake_pred);
                                 },
                             .critic =
                                 [&](const Tensor& real_pred, const Tensor& fake_pred) {
                                   CHECK(real_pred.dtype() == f32);
                                   CHECK(fake_pred.dtype() == f32);
                                   return 10 * mean(real_pred) + mean(fake_pred);
                                 }});
    const Tensor noise = ones({2, 4}), images = full({2, 4}, 0.5);
    gan.gen_mode = true;
    const Tensor output = cast(gan(noise), f32);
    const Tensor gen_loss = loss(output, images);
    CHECK(gen_loss.item() == 24);  // 4 * 1 * 2 * 3
    CHECK(seen_target.is_same(images));
    CHECK(seen_output.is_same(output));
    gen_loss.backward();
    CHECK(generator.weight.grad().item() == 12);
    CHECK(critic.weight.grad().item() == 8);
    gan.zero_grad();

    gan.gen_mode = false;
    const Tensor critic_loss = loss(gan(images), noise);
    CHECK(critic_loss.item() == 10 * 6 + 24);  // 4 * 0.5 * 3 = 6
    critic_loss.backward();
    CHECK_FALSE(generator.weight.grad().defined());
    CHECK(critic.weight.grad().item() == 10 * 2 + 8);
  }
}

TEST_CASE("the ready-made losses") {
  const Tensor real = tensor({2, -1, 0.5}), fake = tensor({-3, 1, 0.25});
  const auto bce = [](const Tensor& x, double target) {
    return binary_cross_entropy_with_logits(x, full_like(x, target)).item();
  };
  const GANLosses adversarial = bce_gan_losses();
  CHECK(adversarial.gen(fake, {}, {}).item() == doctest::Approx(bce(fake, 1)));
  CHECK(adversarial.critic(real, fake).item() == doctest::Approx((bce(real, 1) + bce(fake, 0)) / 2));

  // What the output should be like: not symmetric, so that their order matters.
  const LossFn above = [](const Tensor& output, const Tensor& target) { return mean(output - target); };
  const Tensor output = tensor({5, 6}), target = tensor({1, 1});
  const GANLosses both = gan_loss_from_func(above, nn::mse_loss, {.critic = 0.5, .gen = 10});
  CHECK(both.gen(fake, target, output).item() == doctest::Approx(0.5 * (16 + 0 + 0.5625) / 3 + 10 * 4.5));
  CHECK(both.critic(real, fake).item() == doctest::Approx(((1 + 4 + 0.25) / 3 + (9 + 1 + 0.0625) / 3) / 2));
  CHECK(contains(message_of([] { gan_loss_from_func(nullptr, nullptr); }), "loss_crit is an empty function"));

  // The critic learns to give real images less than fakes, the generator to make images that get little.
  const GANLosses wasserstein = wasserstein_losses();
  CHECK(wasserstein.critic(real, fake).item() == doctest::Approx(0.5 - (-1.75 / 3)));
  CHECK(wasserstein.gen(fake, {}, {}).item() == doctest::Approx(-1.75 / 3));
}

TEST_CASE("basic_generator and basic_critic: shapes, layers, and DCGAN's initialisation") {
  manual_seed(1);
  nn::Sequential generator = basic_generator(32, 3, {.noise_sz = 7, .n_features = 4});
  nn::Sequential critic = basic_critic(32, 3, {.n_features = 4});
  const Tensor images = generator(randn({2, 7, 1, 1}));
  CHECK(images.shape() == Shape{2, 3, 32, 32});
  CHECK(max(abs(images)).item() < 1);
  CHECK(critic(images).shape() == Shape{2});
  CHECK(critic(images.slice(0, 0, 1)).shape() == Shape{1});
  // 16, 8, 4 channels at 4x4, 8x8, 16x16.
  CHECK(generator.get<nn::ConvTranspose2d>(0).weight.shape() == Shape{7, 16, 4, 4});
  CHECK(generator.get<nn::ConvTranspose2d>(3).weight.shape() == Shape{16, 8, 4, 4});
  CHECK(generator.get<nn::ConvTranspose2d>(6).weight.shape() == Shape{8, 4, 4, 4});
  CHECK(generator.get<nn::ConvTranspose2d>(9).weight.shape() == Shape{4, 3, 4, 4});
  CHECK(generator.size() == 11);
  CHECK(critic.get<nn::Conv2d>(0).weight.shape() == Shape{4, 3, 4, 4});
  CHECK(critic.get<nn::Conv2d>(2).weight.shape() == Shape{8, 4, 4, 4});
  CHECK(critic.get<nn::Conv2d>(5).weight.shape() == Shape{16, 8, 4, 4});
  CHECK(critic.get<nn::Conv2d>(8).weight.shape() == Shape{1, 16, 4, 4});
  CHECK(critic.size() == 10);

  for (const std::int64_t size : {8, 64})
    for (const std::int64_t extra : {0, 2}) {
      nn::Sequential g = basic_generator(size, 1, {.noise_sz = 3, .n_features = 2, .n_extra_layers = extra});
      nn::Sequential c = basic_critic(size, 1, {.n_features = 2, .n_extra_layers = extra});
      CHECK(static_cast<std::int64_t>(g.size()) == (size == 8 ? 5 : 14) + 3 * extra);
      g.to(f16);
      c.to(f16);
      const Tensor y = g(randn({1, 3, 1, 1}, f16));
      CHECK(y.shape() == Shape{1, 1, size, size});
      CHECK(c(y).shape() == Shape{1});
      CHECK(c(y).dtype() == f16);
    }

  // 16 * 256 * 16 weights: their deviation is 0.02 within 1 %, which is four times its own deviation.
  nn::Sequential wide = basic_generator(8, 1, {.noise_sz = 256, .n_features = 16});
  const Tensor weight = wide.get<nn::ConvTranspose2d>(0).weight;
  CHECK(std::sqrt(mean(square(weight)).item()) == doctest::Approx(0.02).epsilon(0.01));
  const Tensor scale = wide.get<nn::BatchNorm2d>(1).weight;
  CHECK(max(abs(scale - 1)).item() < 0.1);
  CHECK(max(abs(scale - 1)).item() > 0);

  for (const std::int64_t size : {0, 4, 12, 28, -8}) {
    CHECK(contains(message_of([&] { basic_generator(size, 1); }), "basic_generator: in_size is"));
    CHECK(contains(message_of([&] { basic_critic(size, 1); }), "basic_critic: in_size is"));
  }
  CHECK(contains(message_of([] { basic_generator(8, 0); }), "n_channels is 0"));
  CHECK(contains(message_of([] { basic_generator(8, 1, {.noise_sz = 0}); }), "noise_sz is 0"));
  CHECK(contains(message_of([] { basic_critic(8, 1, {.n_features = 0}); }), "n_features 0"));
  CHECK(contains(message_of([] { basic_critic(8, 1, {.n_extra_layers = -1}); }), "n_extra_layers -1"));
}
