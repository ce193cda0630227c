// The turns of a GAN: which network trains on what, when the other one is next, and what is left of it outside of a run.

#include "gan.h"

#include <sstream>

#include "callbacks/progress.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Whose batch each one is: 'G' or 'C'.
struct Turns : AtBatch {
  std::string turns;
  Turns() {
    begin = [this](Learner& learn) {
      const bool gen_mode = learn.find<GANTrainer>()->gen_mode();
      CHECK(learn.active_optimizer() == (gen_mode ? GANTrainer::gen_optimizer : GANTrainer::critic_optimizer));
      turns += gen_mode ? 'G' : 'C';
    };
  }
};

std::string turns_of(SmallGAN& gan, int epochs) {
  const auto turns = std::make_shared<Turns>();
  gan.learn.add(turns);
  gan.learn.fit(epochs);
  gan.learn.remove(turns);
  return turns->turns;
}

GANLearnerOptions with_switcher(const CallbackPtr& switcher, bool gen_first = false) {
  GANLearnerOptions options = gan_options();
  options.switcher = switcher;
  options.gen_first = gen_first;
  return options;
}

/// How many of the parameters require a gradient, and how many there are.
std::pair<std::int64_t, std::int64_t> trainable(const nn::Module& network) {
  return {network.num_parameters(true), network.num_parameters()};
}

/// Losses of which one after the other is what the list says; they still have gradients.
GANLosses scripted(const std::vector<double>& gen, const std::vector<double>& critic) {
  const auto next = [](const std::vector<double>& values) {
    return [values, i = std::make_shared<std::size_t>(0)](const Tensor& prediction) {
      return mean(prediction) * 0 + values.at((*i)++);
    };
  };
  return {.gen = [loss = next(gen)](const Tensor& fake, const Tensor&, const Tensor&) { return loss(fake); },
          .critic = [loss = next(critic)](const Tensor& real, const Tensor&) { return loss(real); }};
}

}  // namespace

// --- whose turn it is ------------------------------------------------------------------------------------------------

TEST_CASE("the switcher's turns: batches for the critic, then for the generator; each run begins anew") {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    const auto turns = [&](const CallbackPtr& switcher, bool gen_first = false) {
      SmallGAN gan(precision, with_switcher(switcher, gen_first));
      const std::string first = turns_of(gan, 2);
      CHECK(gan.learn.gan_trainer().gen_mode());
      CHECK(gan.learn.active_optimizer() == GANTrainer::gen_optimizer);
      CHECK(turns_of(gan, 2) == first);
      return first;
    };
    CHECK(turns(fixed_switcher(1, 1)) == "CGCGCGCGCGCG");
    CHECK(turns(fixed_switcher(1, 1), true) == "GCGCGCGCGCGC");
    CHECK(turns(fixed_switcher(2, 3)) == "CCGGGCCGGGCC");
    CHECK(turns(fixed_switcher(1, 4), true) == "GGGGCGGGGCGG");
    CHECK(turns(std::make_shared<FixedGANSwitcher>()) == "CGCGCGCGCGCG");
    CHECK(turns(nullptr) == "CCCCCGCCCCCG");  // five to one
    CHECK(turns(std::make_shared<AdaptiveGANSwitcher>()) == "CGCGCGCGCGCG");
  }
}

TEST_CASE("an adaptive switcher lets a network train until its loss is below the threshold") {
  const auto turns = [](const AdaptiveGANSwitcherOptions& options, const std::vector<double>& gen,
                        const std::vector<double>& critic) {
    SmallGAN gan(Precision::f32, with_switcher(std::make_shared<AdaptiveGANSwitcher>(options)), scripted(gen, critic));
    return turns_of(gan, 1);
  };
  const std::vector<double> critic = {0.9, 0.5, 0.499, 0.1, 0.7}, gen = {1.0, 0.99, 2, 2, 2};
  CHECK(turns({.gen_thresh = 1, .critic_thresh = 0.5}, gen, critic) == "CCCGGC");
  CHECK(turns({.gen_thresh = 1}, gen, critic) == "CGGCGG");
  CHECK(turns({.critic_thresh = 0.5}, gen, critic) == "CCCGCG");
  CHECK(turns({.critic_thresh = 0}, gen, {1, 1, 1, 1, 1, 1}) == "CCCCCC");
}

TEST_CASE("in its turn a network trains, on its own input, and the other one stays as it is") {
  for (const Precision precision : precisions)
    for (const bool switch_eval : {false, true}) {
      CAPTURE(static_cast<int>(precision));
      CAPTURE(switch_eval);
      GANLearnerOptions options = with_switcher(fixed_switcher(2, 1));
      options.switch_eval = switch_eval;
      SmallGAN gan(precision, options);
      Outcome gen_before, critic_before;
      std::vector<double> gen_weights, critic_weights;
      const auto at = std::make_shared<AtBatch>();
      at->begin = [&](Learner& learn) {
        const bool gen_mode = gan.learn.gan_trainer().gen_mode();
        const auto [gen_on, gen_all] = trainable(gan.generator);
        const auto [critic_on, critic_all] = trainable(gan.critic);
        CHECK(gen_on == (gen_mode ? gen_all : 0));
        CHECK(critic_on == (gen_mode ? 0 : critic_all));
        for (const auto& [path, module] : gan.generator.named_modules())
          CHECK(module->is_training() == (gen_mode || !switch_eval));
        for (const auto& [path, module] : gan.critic.named_modules())
          CHECK(module->is_training() == (!gen_mode || !switch_eval));
        const TrainingState& s = learn.state;
        CHECK(s.last_input.front().size(1) == (gen_mode ? noise_sz : image_sz));
        CHECK(s.last_target.front().size(1) == (gen_mode ? image_sz : noise_sz));
        CHECK(s.last_output.shape() == (gen_mode ? Shape{8, image_sz} : Shape{8}));
        gen_before = state_of(gan.gen_opt());
        critic_before = state_of(gan.critic_opt());
        gen_weights = weights(gan.generator);
        critic_weights = weights(gan.critic);
      };
      int gen_steps = 0, critic_steps = 0;
      at->end = [&](Learner& learn) {
        const bool gen_mode = gan.learn.gan_trainer().gen_mode(), stepped = !learn.state.skip_step;
        CHECK((state_of(gan.gen_opt()) != gen_before) == (gen_mode && stepped));
        CHECK((state_of(gan.critic_opt()) != critic_before) == (!gen_mode && stepped));
        // With the buffers: in eval mode not even the running statistics move.
        if (gen_mode && switch_eval) CHECK(weights(gan.critic) == critic_weights);
        if (!gen_mode && switch_eval) CHECK(weights(gan.generator) == gen_weights);
        if (stepped) ++(gen_mode ? gen_steps : critic_steps);
      };
      gan.learn.add(at);
      gan.learn.fit(2);
      CHECK(gen_steps > 2);  // of 4, but for the few that overflow
      CHECK(critic_steps > 6);
      for (const optim::Entry& entry : gan.gen_opt().groups()[0].entries) CHECK(entry.steps() == gen_steps);
      for (const optim::Entry& entry : gan.critic_opt().groups()[0].entries) CHECK(entry.steps() == critic_steps);
    }
}

TEST_CASE("what the user has frozen stays frozen, and after a run everything is as before it, also after an error") {
  struct Thrower : AtBatch {
    explicit Thrower(bool gen_mode) {
      begin = [gen_mode](Learner& learn) {
        if (learn.find<GANTrainer>()->gen_mode() == gen_mode) fail("stop");
      };
    }
  };
  for (const Precision precision : {Precision::f32, Precision::f16})
    for (const int thrown : {0, 1, 2}) {
      GANLearnerOptions options = gan_options();
      options.switch_eval = true;
      SmallGAN gan(precision, options);
      gan.generator[0].requires_grad_(false);
      gan.critic[4].requires_grad_(false);
      const auto gen_before = trainable(gan.generator), critic_before = trainable(gan.critic);
      const std::vector<double> frozen = weights(gan.generator[0]), also_frozen = weights(gan.critic[4]);
      const auto at = std::make_shared<AtBatch>();
      at->begin = [&](Learner&) {
        const bool gen_mode = gan.learn.gan_trainer().gen_mode();
        CHECK(trainable(gan.generator).first == (gen_mode ? gen_before.first : 0));
        CHECK(trainable(gan.critic).first == (gen_mode ? 0 : critic_before.first));
      };
      gan.learn.add(at);
      if (thrown > 0) gan.learn.add(std::make_shared<Thrower>(thrown == 1));
      CHECK(message_of([&] { gan.learn.fit(1); }) == (thrown > 0 ? "stop" : ""));
      CHECK(trainable(gan.generator) == gen_before);
      CHECK(trainable(gan.critic) == critic_before);
      CHECK(weights(gan.generator[0]) == frozen);
      CHECK(weights(gan.critic[4]) == also_frozen);
      for (const auto& [path, module] : gan.learn.model().named_modules()) CHECK(module->is_training());
      CHECK(gan.learn.gan_trainer().gen_mode());
    }
}

TEST_CASE("validation and generated images in the middle of a run change nothing") {
  struct Look : Callback {
    explicit Look(GANLearner& gan) : gan(gan) {}
    GANLearner& gan;
    int turns[2] = {0, 0};
    void on_batch_end(Learner& learn) override {
      if (!learn.state.train) return;
      const bool gen_mode = gan.gan_trainer().gen_mode();
      ++turns[gen_mode ? 1 : 0];
      CHECK(std::isfinite(learn.validate()[0]));
      const Tensor images = gan.generate(zeros({3, noise_sz}));
      CHECK(images.dtype() == f32);
      CHECK(!images.requires_grad());
      CHECK(images.shape() == Shape{3, image_sz});
      CHECK(images[0].to_vector<float>() == images[2].to_vector<float>());  // eval mode: of one sample alone
      CHECK(gan.gan_trainer().gen_mode() == gen_mode);
    }
  };
  for (const Precision precision : {Precision::f32, Precision::f16})
    for (const bool switch_eval : {false, true}) {
      GANLearnerOptions options = gan_options();
      options.switch_eval = switch_eval;
      SmallGAN plain(precision, options, bce_gan_losses(), true);
      plain.learn.fit(2);
      const Outcome expected = outcome(plain.learn);
      SmallGAN looked(precision, options, bce_gan_losses(), true);
      const auto look = std::make_shared<Look>(looked.learn);
      looked.learn.add(look);
      looked.learn.fit(2);
      check_same(expected, outcome(looked.learn));
      CHECK(look->turns[0] > 0);
      CHECK(look->turns[1] > 0);
    }
}

TEST_CASE("outside of a run the model is the generator; within the critic's turn predict() says what to use") {
  SmallGAN gan;
  const Tensor noise = gan_dataset(5).inputs()[0];
  CHECK(gan.learn.generate(noise).to_vector<float>() == gan.learn.predict(noise).to_vector<float>());
  gan.learn.fit(1);
  CHECK(gan.learn.predict(noise).shape() == Shape{5, image_sz});
  const auto at = std::make_shared<AtBatch>();
  at->end = [&](Learner& learn) { learn.predict(noise); };
  gan.learn.add(at);
  CHECK(contains(message_of([&] { gan.learn.fit(1); }), "use GANLearner::generate"));
}

// --- losses ----------------------------------------------------------------------------------------------------------

TEST_CASE("the averages of each network's losses, in the epoch table too") {
  for (const bool with_validation : {false, true})
    for (const Precision precision : {Precision::f32, Precision::f16}) {
      GANLearnerOptions options = with_switcher(fixed_switcher(2, 1));
      options.beta = 0.9;
      options.metrics = {{"one", [](const Tensor&, const Tensor&) { return 1.0; }}};
      SmallGAN gan(precision, options, bce_gan_losses(), with_validation);
      std::ostringstream out;
      gan.learn.add(std::make_shared<Progress>(out, false));
      CHECK(std::isnan(gan.learn.gan_trainer().gen_loss()));
      const std::string turns = turns_of(gan, 2);

      const GANTrainer& trainer = gan.learn.gan_trainer();
      Smoother gen(0.9), critic(0.9);
      std::vector<double> gen_losses, critic_losses;
      REQUIRE(gan.learn.recorder().losses.size() == turns.size());
      for (std::size_t i = 0; i < turns.size(); ++i) {
        const double loss = gan.learn.recorder().losses[i];
        if (turns[i] == 'G') gen_losses.push_back(gen.add(loss));
        if (turns[i] == 'C') critic_losses.push_back(critic.add(loss));
      }
      CHECK(trainer.gen_losses == gen_losses);
      CHECK(trainer.critic_losses == critic_losses);
      CHECK(trainer.gen_loss() == gen_losses.back());
      CHECK(trainer.critic_loss() == critic_losses.back());
      CHECK(trainer.last_gen().shape() == Shape{8, image_sz});
      CHECK(!trainer.last_gen().requires_grad());

      REQUIRE(gan.learn.recorder().epochs.size() == 2);
      const std::vector<double>& row = gan.learn.recorder().epochs.back().metrics;
      REQUIRE(row.size() == 4);  // valid_loss, one, gen_loss, critic_loss
      for (const double value : {row[0], row[1]}) CHECK(std::isfinite(value) == with_validation);
      CHECK(row[2] == doctest::Approx(trainer.gen_loss()));
      CHECK(row[3] == doctest::Approx(trainer.critic_loss()));
      CHECK(contains(out.str(), "epoch     train_loss  valid_loss  one       gen_loss  critic_loss  time\n"));
      CHECK(contains(out.str(), fmt::format("{:.6f}  {:.6f}", trainer.gen_loss(), trainer.critic_loss())));
    }
}

TEST_CASE("a fit without a rate leaves each optimizer its own, one with a rate sets both") {
  GANLearnerOptions options = gan_options();
  options.gen_opt = optim::adam({.lr = 1e-3, .weight_decay = 1e-2});
  options.critic_opt = optim::sgd({.lr = 4e-3});
  SmallGAN gan(Precision::f32, options);
  const auto rates = [&] {
    const optim::ParamGroup &gen = gan.gen_opt().groups()[0], &critic = gan.critic_opt().groups()[0];
    return std::vector<double>{gen.lr, critic.lr, gen.weight_decay, critic.weight_decay};
  };
  gan.learn.fit(1);
  CHECK(rates() == std::vector<double>{1e-3, 4e-3, 1e-2, 0});
  gan.learn.fit(1, 2e-3);
  CHECK(rates() == std::vector<double>{2e-3, 2e-3, 1e-2, 0});
  gan.learn.fit(1, 2e-3, 0.5);
  CHECK(rates() == std::vector<double>{2e-3, 2e-3, 0.5, 0.5});
  gan.learn.fit(1);
  CHECK(rates() == std::vector<double>{1e-3, 4e-3, 1e-2, 0});

  SmallGAN by_default;
  CHECK(by_default.gen_opt().name() == "Adam");
  CHECK(by_default.critic_opt().name() == "Adam");
  CHECK(by_default.gen_opt().groups()[0].lr == 2e-4);
  CHECK(by_default.gen_opt().groups()[0].momentum == 0.5);
  CHECK(by_default.gen_opt().groups()[0].beta2 == 0.999);
}

// --- errors ----------------------------------------------------------------------------------------------------------

TEST_CASE("what does not fit is an error that says so") {
  GANLearnerOptions options = gan_options();
  for (const double clip : {0.0, -1.0, static_cast<double>(inf), std::nan("")}) {
    options.clip = clip;
    CHECK(contains(message_of([&] { SmallGAN(Precision::f32, options); }), "GANTrainer: clip is"));
  }
  options = gan_options();
  for (const double beta : {-0.1, 1.0, std::nan("")}) {
    options.beta = beta;
    CHECK(contains(message_of([&] { SmallGAN(Precision::f32, options); }), "GANTrainer: beta is"));
  }
  CHECK(contains(message_of([] { fixed_switcher(0, 1); }), "n_crit is 0 and n_gen 1"));
  CHECK(contains(message_of([] { fixed_switcher(1, 0); }), "n_crit is 1 and n_gen 0"));
  CHECK(contains(message_of([] { SmallGAN(Precision::f32, gan_options(), {}); }), "the loss of the generator is"));
  CHECK(
      contains(message_of([] { SmallGAN(Precision::f32, gan_options(), {.gen = bce_gan_losses().gen, .critic = {}}); }),
               "the loss of the critic is"));

  nn::Sequential generator = small_generator(), critic = small_critic();
  generator.add(nn::Linear(image_sz, image_sz));
  nn::Sequential tied = nn::Sequential{generator.get<nn::Linear>(5), nn::Linear(image_sz, 1), nn::Flatten(0)};
  CHECK(contains(message_of([&] { GANLearner(gan_data(), generator, tied, bce_gan_losses(), gan_options()); }),
                 "is in two optimizers"));

  nn::Sequential mlp = small_mlp();
  Learner plain(small_data(), mlp, nn::cross_entropy, {.callbacks = {fixed_switcher(1, 1)}, .silent = true});
  CHECK(contains(message_of([&] { plain.fit(1); }), "FixedGANSwitcher: the Learner has no GANTrainer"));
  GANModule gan(generator, critic);
  Learner other(small_data(), mlp, nn::cross_entropy,
                {.callbacks = {std::make_shared<GANTrainer>(gan)}, .silent = true});
  CHECK(contains(message_of([&] { other.fit(1); }), "the Learner's model is another one"));
  Learner one(gan_data(), gan, GANLoss(gan, bce_gan_losses()),
              {.callbacks = {std::make_shared<GANTrainer>(gan)}, .silent = true});
  CHECK(contains(message_of([&] { one.fit(1); }), "has 1 optimizers; give it the generator's and the critic's"));
}
