// GANs in mixed precision: masters, loss scales and clamped weights of two optimizers that take turns; and runs that are
// saved, resumed and converted in the middle.

#include "callbacks/report.h"
#include "engine/ops/reduce.h"
#include "gan.h"
#include "tests/files.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

bool finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

std::vector<TensorImpl*> identities(const optim::Optimizer& optimizer) {
  std::vector<TensorImpl*> all;
  for (const optim::Entry& entry : optimizer.groups()[0].entries) {
    all.push_back(entry.master.impl());
    for (const auto& [name, tensor] : entry.state) all.push_back(tensor.impl());
  }
  return all;
}

/// Weights with a master are the rounded master.
void check_rounded(const optim::Optimizer& optimizer) {
  for (const optim::Entry& entry : optimizer.groups()[0].entries)
    CHECK(entry.param.to_vector<float>() == entry.master.to(entry.param.dtype()).to_vector<float>());
}

double mean_image(GANLearner& learn) { return mean(learn.generate(gan_dataset(64, 9).inputs()[0])).item(); }

}  // namespace

TEST_CASE("GANs learn, in every precision, adversarial and Wasserstein") {
  for (const Precision precision : precisions)
    for (const bool wasserstein : {false, true}) {
      CAPTURE(static_cast<int>(precision));
      CAPTURE(wasserstein);
      nn::Sequential generator = small_generator(),
                     critic{nn::Linear(image_sz, 16), nn::LeakyReLU(0.2), nn::Linear(16, 1), nn::Flatten(0)};
      GANLearnerOptions options = gan_options();
      options.gen_opt = options.critic_opt = optim::adam({.lr = 5e-3, .beta1 = 0.5});
      if (wasserstein) options.clip = 0.1;
      GANLearner learn(gan_data(), generator, critic, wasserstein ? wasserstein_losses() : bce_gan_losses(), options);
      if (precision != Precision::f32) learn.to_fp16({.flat_master = precision == Precision::f16_flat});
      CHECK(std::abs(mean_image(learn)) < 0.2);
      learn.fit(30);
      CHECK(mean_image(learn) == doctest::Approx(0.6).epsilon(0.3));  // as the images of the data
      CHECK(finite(learn.recorder().losses));
      CHECK(generator.dtype() == (precision == Precision::f32 ? f32 : f16));
    }
}

TEST_CASE("masters and moments are the same tensors through all turns and runs, counted by each network's own steps") {
  for (const Precision precision : {Precision::f16, Precision::f16_flat}) {
    GANLearnerOptions options = gan_options();
    options.switcher = fixed_switcher(2, 1);
    SmallGAN gan(precision, options);
    for (optim::Optimizer* optimizer : {&gan.gen_opt(), &gan.critic_opt()})
      for (const optim::Entry& entry : optimizer->groups()[0].entries)
        CHECK(entry.has_master() == (entry.param.dtype() == f16));
    gan.learn.fit(2);
    const auto gen = identities(gan.gen_opt()), critic = identities(gan.critic_opt());
    CHECK(gen.size() == 3 * gan.generator.parameters().size());
    gan.learn.fit(2);
    CHECK(identities(gan.gen_opt()) == gen);
    CHECK(identities(gan.critic_opt()) == critic);
    check_rounded(gan.gen_opt());
    check_rounded(gan.critic_opt());
    const std::int64_t gen_steps = gan.gen_opt().groups()[0].entries[0].steps(),
                       critic_steps = gan.critic_opt().groups()[0].entries[0].steps();
    CHECK(gen_steps + gan.gen_scaler().skipped == 8);
    CHECK(critic_steps + gan.critic_scaler().skipped == 16);
  }
}

TEST_CASE("flat and single masters give the same bits") {
  GANLearnerOptions options = gan_options();
  options.clip = 0.1;
  SmallGAN single(Precision::f16, options), flat(Precision::f16_flat, options);
  for (SmallGAN* gan : {&single, &flat}) {
    manual_seed(8);  // of dropout
    gan->learn.fit(3);
  }
  CHECK(masters_of(single.gen_opt()) == masters_of(flat.gen_opt()));
  CHECK(masters_of(single.critic_opt()) == masters_of(flat.critic_opt()));
}

TEST_CASE("an overflow in one network's step halves its loss scale and touches nothing else") {
  for (const Precision precision : {Precision::f16, Precision::f16_flat})
    for (const bool in_gen : {false, true}) {
      CAPTURE(in_gen);
      SmallGAN gan(precision);
      gan.learn.to_fp16({.loss_scale = 64, .flat_master = precision == Precision::f16_flat});
      gan.learn.fit(1);
      REQUIRE(gan.gen_scaler() == LossScaler{.scale = 64, .noskip = 3});
      REQUIRE(gan.critic_scaler() == LossScaler{.scale = 64, .noskip = 3});

      // The critic is first, so that the generator has the odd batches.
      const std::int64_t iteration = in_gen ? 3 : 2;
      gan.learn.add(std::make_shared<Overflow>(std::set<std::int64_t>{iteration}));
      Outcome gen_before, critic_before;
      const auto at = std::make_shared<AtBatch>();
      at->begin = [&](Learner&) {
        gen_before = state_of(gan.gen_opt());
        critic_before = state_of(gan.critic_opt());
      };
      at->end = [&](Learner& learn) {
        if (learn.state.iteration != iteration) return;
        CHECK(learn.state.skip_step);
        CHECK(state_of(gan.gen_opt()) == gen_before);
        CHECK(state_of(gan.critic_opt()) == critic_before);
      };
      gan.learn.add(at);
      gan.learn.fit(1);
      // Of each, three batches before and three now; after an overflow as many good steps as were left.
      const LossScaler untouched{.scale = 64, .noskip = 6}, halved{.scale = 32, .noskip = 1, .skipped = 1};
      CHECK(gan.gen_scaler() == (in_gen ? halved : untouched));
      CHECK(gan.critic_scaler() == (in_gen ? untouched : halved));
      CHECK(contains(html_report(gan.learn), fmt::format("dynamic loss scale {} and {}, 1 of 6 steps skipped",
                                                         gan.gen_scaler().scale, gan.critic_scaler().scale)));
      CHECK(gan.gen_opt().groups()[0].entries[0].steps() == (in_gen ? 5 : 6));
      CHECK(gan.critic_opt().groups()[0].entries[0].steps() == (in_gen ? 6 : 5));
    }
}

TEST_CASE("clip bounds the critic's masters exactly, right after its step, and rounds them into the weights") {
  constexpr double clip = 0.15;
  const auto bounded = [](std::vector<double> values) {
    for (double& value : values) value = std::clamp<double>(value, -static_cast<float>(clip), static_cast<float>(clip));
    return values;
  };
  for (const Precision precision : precisions) {
    CAPTURE(static_cast<int>(precision));
    GANLearnerOptions options = gan_options();
    options.critic_opt = optim::sgd({.lr = 0.5});
    SmallGAN free(precision, options);
    options.clip = clip;
    SmallGAN clipped(precision, options);
    REQUIRE(masters_of(clipped.critic_opt()) == masters_of(free.critic_opt()));
    {  // what is out of bounds at first: the run begins with clamping it
      const NoGrad guard;
      for (const optim::Entry& entry : free.critic_opt().groups()[0].entries) {
        Tensor master = entry.master;
        master.clamp_(-clip, clip);
      }
      free.critic_opt().sync_params_from_masters();
    }

    // One batch for the critic, then one for the generator.
    std::vector<double> after_critic;
    const auto stop = std::make_shared<AtBatch>();
    stop->end = [](Learner& learn) { learn.state.stop_epoch = learn.state.iteration == 0; };
    const auto look = std::make_shared<AtBatch>();
    look->end = [&](Learner& learn) {
      if (learn.state.iteration == 0) after_critic = masters_of(clipped.critic_opt());
      learn.state.stop_epoch = learn.state.iteration == 1;
    };
    free.learn.add(stop);
    clipped.learn.add(look);
    manual_seed(8);
    free.learn.fit(1);
    manual_seed(8);
    const std::vector<double> gen_before = masters_of(clipped.gen_opt());
    clipped.learn.fit(1);

    const std::vector<double> unbounded = masters_of(free.critic_opt());
    CHECK(after_critic == bounded(unbounded));
    CHECK(unbounded != bounded(unbounded));
    check_rounded(clipped.critic_opt());
    CHECK(masters_of(clipped.critic_opt()) == after_critic);
    CHECK(masters_of(clipped.gen_opt()) != gen_before);
    CHECK(masters_of(clipped.gen_opt()) != bounded(masters_of(clipped.gen_opt())));  // not for the generator
    clipped.learn.fit(3);
    CHECK(masters_of(clipped.critic_opt()) == bounded(masters_of(clipped.critic_opt())));
  }
}

TEST_CASE("weights that are loaded between runs are clamped as well, not lost") {
  for (const Precision precision : precisions) {
    GANLearnerOptions options = gan_options();
    options.clip = 0.5;
    options.critic_opt = optim::sgd({.lr = 0});
    SmallGAN gan(precision, options);
    gan.learn.fit(1);
    nn::StateDict state;
    for (const auto& [name, tensor] : gan.critic.state_dict()) state.emplace_back(name, full_like(tensor, 0.25));
    state.front().second.fill_(3);
    gan.critic.load_state_dict(state);
    gan.learn.fit(1);
    const std::vector<double> values = masters_of(gan.critic_opt());
    CHECK(values.front() == 0.5);
    CHECK(values.back() == 0.25);
  }
}

TEST_CASE("wgan(): five turns of the critic, RMSprop, weights within 0.01") {
  for (const Precision precision : precisions) {
    nn::Sequential generator = small_generator(), critic = small_critic();
    GANLearner learn = GANLearner::wgan(gan_data(), generator, critic, {.silent = true});
    if (precision != Precision::f32) learn.to_fp16({.flat_master = precision == Precision::f16_flat});
    const std::vector<double> before = weights(generator);
    learn.fit(2);
    CHECK(weights(generator) != before);
    CHECK(finite(learn.recorder().losses));
    CHECK(learn.gan_trainer().gen_losses.size() == 2);
    CHECK(learn.gan_trainer().critic_losses.size() == 10);
    for (const auto& optimizer : learn.optimizers()) {
      CHECK(optimizer->name() == "RMSprop");
      CHECK(optimizer->groups()[0].lr == 5e-5);
    }
    for (const double value : masters_of(*learn.optimizers()[GANTrainer::critic_optimizer]))
      CHECK(std::abs(value) <= 0.01f);
  }
  nn::Sequential generator = small_generator(), critic = small_critic();
  GANLearner learn = GANLearner::wgan(gan_data(), generator, critic,
                                      {.critic_opt = optim::sgd(), .switcher = fixed_switcher(1, 1), .clip = 0.3});
  CHECK(learn.optimizers()[GANTrainer::gen_optimizer]->name() == "RMSprop");
  CHECK(learn.optimizers()[GANTrainer::critic_optimizer]->name() == "SGD");
}

TEST_CASE("to_fp32() in the middle keeps the masters' full precision and both optimizers' state") {
  for (const Precision precision : {Precision::f16, Precision::f16_flat}) {
    SmallGAN gan(precision);
    gan.learn.fit(3);
    const std::vector<double> gen = masters_of(gan.gen_opt()), critic = masters_of(gan.critic_opt());
    gan.learn.to_fp32();
    CHECK(gan.generator.dtype() == f32);
    CHECK(gan.critic.dtype() == f32);
    CHECK(masters_of(gan.gen_opt()) == gen);
    CHECK(masters_of(gan.critic_opt()) == critic);
    const std::int64_t steps = gan.gen_opt().groups()[0].entries[0].steps();
    gan.learn.fit(1);
    CHECK(gan.gen_opt().groups()[0].entries[0].steps() == steps + 3);
    CHECK(masters_of(gan.gen_opt()) != gen);
    CHECK(masters_of(gan.critic_opt()) != critic);
    // And back: a critic whose turn it is not has a master all the same.
    const std::vector<double> exact = masters_of(gan.critic_opt());
    gan.learn.to_fp16();
    CHECK(masters_of(gan.critic_opt()) == exact);
    for (const optim::Entry& entry : gan.critic_opt().groups()[0].entries)
      CHECK(entry.has_master() == (entry.param.dtype() == f16));
  }
}

// --- checkpoints -----------------------------------------------------------------------------------------------------

namespace {

struct Kind {
  const char* name;
  GANLearnerOptions options;
  GANLosses losses;
};

std::vector<Kind> kinds() {
  GANLearnerOptions fixed = gan_options(), adaptive = gan_options(), wasserstein = gan_options();
  fixed.switcher = nullptr;  // each Learner's own
  fixed.switch_eval = true;
  adaptive.switcher =
      std::make_shared<AdaptiveGANSwitcher>(AdaptiveGANSwitcherOptions{.gen_thresh = 0.737, .critic_thresh = 0.72});
  adaptive.switch_eval = false;
  adaptive.gen_first = true;
  wasserstein.switcher = nullptr;
  wasserstein.clip = 0.05;
  return {{"fixed", fixed, bce_gan_losses()},
          {"adaptive", adaptive, bce_gan_losses()},
          {"wasserstein", wasserstein, wasserstein_losses()}};
}

Outcome outcome_of(SmallGAN& gan) {
  Outcome all = outcome(gan.learn);
  all["gen_losses"] = gan.learn.gan_trainer().gen_losses;
  all["critic_losses"] = gan.learn.gan_trainer().critic_losses;
  return all;
}

}  // namespace

TEST_CASE("a GAN's run that is resumed anywhere ends with the bits of one that was never interrupted") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  const std::vector<std::pair<std::string, std::int64_t>> moments = {
      {"train_begin", 0}, {"epoch_begin", 0}, {"batch_end", 0},        {"batch_end", 1}, {"batch_end", 2},
      {"batch_end", 4},   {"batch_end", 5},   {"valid batch_end", 6},  {"epoch_end", 6}, {"epoch_begin", 6},
      {"batch_end", 9},   {"batch_end", 10},  {"valid batch_end", 12}, {"epoch_end", 18}};
  for (const Kind& kind : kinds())
    for (const Precision precision : precisions) {
      const auto make = [&](std::uint64_t seed = 3) {
        GANLearnerOptions options = kind.options;
        if (!options.switcher) options.switcher = fixed_switcher(2, 1);
        return std::make_unique<SmallGAN>(precision, options, kind.losses, true, seed);
      };
      const auto plain = make();
      plain->learn.fit(3);
      const Outcome expected = outcome_of(*plain);
      CHECK(expected.at("gen_losses").size() > 3);
      CHECK(expected.at("critic_losses").size() > 3);
      for (const auto& moment : moments) {
        CAPTURE(kind.name);
        CAPTURE(static_cast<int>(precision));
        CAPTURE(moment.first);
        CAPTURE(moment.second);
        std::filesystem::remove(path);
        const auto saved = make();
        saved->learn.add(std::make_shared<SaveAt>(path, moment.first, moment.second));
        saved->learn.fit(3);
        check_same(expected, outcome_of(*saved));  // saving changes nothing
        REQUIRE(std::filesystem::exists(path));

        const auto resumed = make(77);  // other weights, other random numbers
        resumed->learn.resume(path);
        resumed->learn.fit(3);
        check_same(expected, outcome_of(*resumed));
        CHECK(resumed->learn.gan_trainer().gen_mode());
      }
    }
}

TEST_CASE("a GAN's checkpoint of either precision loads into the other") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const bool from_fp16 : {false, true}) {
    SmallGAN saved(from_fp16 ? Precision::f16 : Precision::f32);
    saved.learn.add(std::make_shared<SaveAt>(path, "batch_end", 8));
    saved.learn.fit(3);
    SmallGAN resumed(from_fp16 ? Precision::f32 : Precision::f16, gan_options(), bce_gan_losses(), false, 77);
    resumed.learn.resume(path);
    CHECK(masters_of(resumed.gen_opt()) != masters_of(saved.gen_opt()));
    resumed.learn.fit(3);
    CHECK(resumed.learn.state.iteration == 18);
    CHECK(resumed.learn.gan_trainer().gen_losses.size() == 9);
    CHECK(finite(masters_of(resumed.gen_opt())));
    CHECK(finite(masters_of(resumed.critic_opt())));

    saved.learn.save(path);
    resumed.learn.load(path);
    CHECK(masters_of(resumed.gen_opt()) == masters_of(saved.gen_opt()));
    CHECK(masters_of(resumed.critic_opt()) == masters_of(saved.critic_opt()));
  }
}

TEST_CASE("lr_find leaves a GAN as it was, bit for bit") {
  const Folder folder;
  const std::string a = folder.path / "a", b = folder.path / "b";
  for (const Precision precision : precisions)
    for (const bool trained : {false, true}) {
      SmallGAN gan(precision);
      if (trained) gan.learn.fit(2);
      gan.learn.save(a);
      CHECK(gan.learn.lr_find({.num_it = 20}).lrs.size() > 5);
      gan.learn.save(b);
      CHECK(contents(a) == contents(b));
      CHECK(gan.learn.gan_trainer().gen_mode());
      CHECK(gan.generator.num_parameters(true) == gan.generator.num_parameters());
      CHECK(gan.critic.num_parameters(true) == gan.critic.num_parameters());
    }
}
