// The Recorder's pictures, their numbers, the chart in a terminal, and what the Recorder keeps in a checkpoint.

#include <iostream>
#include <sstream>

#include "callbacks/lr_finder.h"
#include "callbacks/show_graph.h"
#include "gnuplot.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

const Metric constant{"half, always", [](const Tensor&, const Tensor&) { return 0.5; }};

struct Run {
  nn::Sequential model = small_mlp();
  Learner learn{small_data(), model, nn::cross_entropy, {.metrics = {accuracy, constant}, .silent = true}};
  const Recorder& recorder = learn.recorder();
};

/// The columns of a file of numbers, and as many lines of each curve as there are points.
std::size_t lines_with(const std::string& csv, const std::string& start) {
  CHECK(csv.starts_with("curve,x,y\n"));
  std::istringstream in(csv);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);) count += line.starts_with(start);
  return count;
}

}  // namespace

TEST_CASE("losses, rates and metrics are drawn as PNG or SVG, with their numbers beside them") {
  const Folder folder;
  Run run;
  run.learn.fit_one_cycle(2, 1e-2);
  if (has_gnuplot()) {
    run.recorder.plot_losses(folder.path / "losses.png");
    run.recorder.plot_lr(folder.path / "lr.svg");
    run.recorder.plot_metrics(folder.path / "metrics.svg");
    CHECK(contents(folder.path / "losses.png").starts_with("\x89PNG"));
    for (const char* name : {"lr.svg", "metrics.svg"}) {
      const std::string svg = contents(folder.path / name);
      CHECK(contains(svg, "<svg"));
      CHECK(contains(svg, "height=\"800\""));  // two charts
    }
    CHECK(contains(contents(folder.path / "lr.svg"), "Momentum"));
    CHECK(contains(contents(folder.path / "metrics.svg"), "half, always"));
  } else {
    CHECK_THROWS_AS(run.recorder.plot_losses(folder.path / "losses.png"), Error);
    CHECK_THROWS_AS(run.recorder.plot_lr(folder.path / "lr.svg"), Error);
    CHECK_THROWS_AS(run.recorder.plot_metrics(folder.path / "metrics.svg"), Error);
  }
  const std::string losses = contents(folder.path / "losses.csv");
  CHECK(lines_with(losses, "train,") == 6);
  CHECK(lines_with(losses, "valid,") == 2);
  CHECK(contains(losses, fmt::format("train,6,{}\n", run.learn.state.smooth_loss)));
  CHECK(contains(losses, fmt::format("valid,3,{}\n", run.recorder.epochs[0].metrics[0])));
  const std::string rates = contents(folder.path / "lr.csv");
  CHECK(contains(rates, fmt::format("learning rate,1,{}\n", run.recorder.lrs[0])));
  CHECK(contains(rates, "momentum,1,0.95\n"));
  CHECK(lines_with(rates, "momentum,") == 6);
  const std::string metrics = contents(folder.path / "metrics.csv");
  CHECK(contains(metrics, fmt::format("accuracy,6,{}\n", run.recorder.epochs[1].metrics[1])));
  CHECK(contains(metrics, "\"half, always\",6,0.5\n"));
}

TEST_CASE("the curve of lr_find is drawn over a logarithmic axis, without the explosion at its end") {
  const Folder folder;
  LrFindResult result;
  for (int i = 0; i < 40; ++i) {
    result.lrs.push_back(1e-4 * std::pow(1.25, i));
    result.losses.push_back(i < 36 ? 2 - 0.04 * i : 50);
  }
  if (has_gnuplot())
    result.plot(folder.path / "lr.svg");
  else
    CHECK_THROWS_AS(result.plot(folder.path / "lr.svg"), Error);
  const std::string csv = contents(folder.path / "lr.csv");
  CHECK(lines_with(csv, "loss,") == 25);  // without the first ten and the last five
  CHECK(contains(csv, fmt::format("loss,{},1.6\n", result.lrs[10])));
  CHECK_FALSE(contains(csv, ",50\n"));
}

TEST_CASE("without gnuplot the numbers are written, and an error says what is missing") {
  const Folder folder;
  Run run;
  run.learn.fit(1);
  const WithoutGnuplot guard;
  const std::string message = message_of([&] { run.recorder.plot_losses(folder.path / "a.b.png"); });
  CHECK(message == fmt::format("plot: '{0}/a.b.png' was not drawn, since gnuplot is not installed (Debian: "
                               "gnuplot-nox); its numbers are in '{0}/a.b.csv'",
                               folder.path.string()));
  CHECK(lines_with(contents(folder.path / "a.b.csv"), "train,") == 3);
  CHECK_FALSE(std::filesystem::exists(folder.path / "a.b.png"));
}

TEST_CASE("a chart that cannot be drawn or saved is an error that names the file") {
  const Folder folder;
  const Chart chart{.title = "t", .curves = {{"c", {0, 1}, {1, 2}}}};
  for (const char* name : {"x.pdf", "x", "x.PNG", ".png", "png"}) {
    CHECK_THROWS_WITH_AS(save_chart(chart, folder.path / name), doctest::Contains("expected .png or .svg"), Error);
    CHECK(std::filesystem::is_empty(folder.path));
  }
  CHECK_THROWS_WITH_AS(save_chart(chart, "/nowhere/x.png"), doctest::Contains("'/nowhere/x.csv' was not written"),
                       Error);
  CHECK_THROWS_WITH_AS(save_chart({.curves = {{"bad", {0, 1}, {1}}}}, folder.path / "x.png"),
                       doctest::Contains("'bad' has"), Error);
  CHECK(std::filesystem::is_empty(folder.path));
  CHECK_THROWS_WITH_AS(save_chart({.curves = {{"none", {0, 1}, {NAN, inf}}}}, folder.path / "x.png"),
                       doctest::Contains("no point is finite"), Error);
  CHECK(contents(folder.path / "x.csv") == "curve,x,y\nnone,0,nan\nnone,1,inf\n");
  CHECK_FALSE(draw_svg({.curves = {{"none", {}, {}}}}).has_value());
}

TEST_CASE("gnuplot's own words are in the error when it fails") {
  const Folder folder;
  std::ofstream(folder.path / "gnuplot") << "#!/bin/sh\necho 'no such terminal' >&2\nexit 3\n";
  std::filesystem::permissions(folder.path / "gnuplot", std::filesystem::perms::owner_all);
  const WithoutGnuplot guard;  // restores PATH
  setenv("PATH", folder.path.c_str(), 1);
  CHECK_THROWS_WITH_AS(save_chart({.curves = {{"c", {0, 1}, {1, 2}}}}, folder.path / "x.svg"),
                       doctest::Contains("gnuplot failed: no such terminal"), Error);
}

TEST_CASE("charts with gaps, one point, logarithmic axes, and one that is empty") {
  if (!has_gnuplot()) {
    MESSAGE("gnuplot is not installed: nothing to test");
    return;
  }
  const Folder folder;
  save_charts({{.title = "gaps", .curves = {{"a", {1, 2, 3, 4}, {1, NAN, 100, 1000}}}, .log_x = true, .log_y = true},
               {.title = "no points", .curves = {{"b", {1}, {NAN}}}},
               {.title = "one point", .curves = {{"c", {1}, {1}}}}},
              folder.path / "x.svg");
  const std::string svg = contents(folder.path / "x.svg");
  CHECK(contains(svg, "gaps"));
  CHECK(contains(svg, "one point"));
  CHECK_FALSE(contains(svg, "no points"));
}

TEST_CASE("where there is nothing to plot, the Recorder says so") {
  const Folder folder;
  Run run;
  CHECK_THROWS_WITH_AS(run.recorder.plot_losses(folder.path / "x.png"), doctest::Contains("no training yet"), Error);
  CHECK_THROWS_WITH_AS(run.recorder.plot_lr(folder.path / "x.png"), doctest::Contains("no training yet"), Error);
  CHECK_THROWS_WITH_AS(run.recorder.plot_metrics(folder.path / "x.png"), doctest::Contains("had no metrics"), Error);
  nn::Sequential model = small_mlp();
  Learner no_validation({small_data().train, {}}, model, nn::cross_entropy, {.metrics = {accuracy}, .silent = true});
  no_validation.fit(1);
  CHECK_THROWS_WITH_AS(no_validation.recorder().plot_metrics(folder.path / "x.png"),
                       doctest::Contains("no epoch of the run has been validated"), Error);
  CHECK(no_validation.recorder().loss_chart().curves[1].x.empty());
  CHECK(std::filesystem::is_empty(folder.path));
  if (has_gnuplot()) {
    no_validation.recorder().plot_losses(folder.path / "x.png");  // of one curve
    CHECK(contents(folder.path / "x.png").starts_with("\x89PNG"));
  }
}

TEST_CASE("a chart in plain text") {
  const Chart chart{.x_label = "batches", .curves = {{"down", {0, 1, 2, 3}, {3, 2, 1, 0}}, {"up", {0, 3}, {0, 3}}}};
  CHECK(text_chart(chart, 7, 4) ==
        "         3 |**   oo\n"
        "           |  *oo\n"
        "           | oo **\n"
        "         0 |o     *\n"
        "           +-------\n"
        "            0     3\n"
        "            * down   o up   (batches)\n");
  CHECK(text_chart({.curves = {{"none", {0, 1}, {NAN, NAN}}, {"empty", {}, {}}}}).empty());
  // One point, and a gap.
  CHECK(text_chart({.x_label = "x", .curves = {{"a", {5}, {2}}}}, 3, 3) ==
        "         2 |\n           | *\n         2 |\n           +---\n            5 5\n            * a   (x)\n");
  CHECK(contains(text_chart({.x_label = "x", .curves = {{"a", {0, 1, 2}, {1, NAN, 1}}}}, 5, 3), "|*   *\n"));
  CHECK_THROWS_AS(text_chart(chart, 1, 4), Error);
  CHECK_THROWS_AS(text_chart({.curves = {{"bad", {0, 1}, {1}}}}), Error);
}

TEST_CASE("ShowGraph draws the losses after each epoch, without a code that only a terminal understands") {
  for (const bool fp16 : {false, true}) {
    Run run;
    std::ostringstream out;
    run.learn.add(std::make_shared<ShowGraph>(out));
    if (fp16) run.learn.to_fp16();
    run.learn.fit(3, 1e-2);
    const std::string text = out.str();
    CHECK(text.ends_with(text_chart(run.recorder.loss_chart())));
    std::size_t charts = 0;
    for (std::size_t at = 0; (at = text.find("* train   o valid   (batches processed)", at)) != std::string::npos; ++at)
      ++charts;
    CHECK(charts == 3);
    for (const char c : text) CHECK((c == '\n' || (c >= ' ' && c <= '~')));
  }
  std::ostringstream captured;
  std::streambuf* before = std::cout.rdbuf(captured.rdbuf());
  Run run;
  run.learn.add(std::make_shared<ShowGraph>());
  run.learn.fit(1);
  std::cout.rdbuf(before);
  CHECK(contains(captured.str(), "* train   o valid"));
}

TEST_CASE("the curves of a resumed run are whole") {
  for (const bool fp16 : {false, true}) {
    Run run;
    if (fp16) run.learn.to_fp16();
    struct SkipFirst : Callback {
      void on_epoch_begin(Learner& learn) override { learn.state.skip_validate = learn.state.epoch == 0; }
    };
    run.learn.add(std::make_shared<SkipFirst>());
    run.learn.fit_one_cycle(3, 1e-2);
    const Recorder& before = run.recorder;
    CHECK(before.epochs[0].metrics.empty());
    Recorder after;
    after.on_train_begin(run.learn);
    after.load_state(before.save_state());
    CHECK(after.losses == before.losses);
    CHECK(after.lrs == before.lrs);
    CHECK(after.moms == before.moms);
    CHECK(after.metric_names == std::vector<std::string>{"accuracy", "half, always"});
    REQUIRE(after.epochs.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(after.row(i) == before.row(i));
      CHECK(after.epochs[i].metrics == before.epochs[i].metrics);
      CHECK(after.epochs[i].batches == static_cast<std::int64_t>(3 * (i + 1)));
    }
    SavedState broken = before.save_state();
    broken.tensors["epoch.metrics"] = zeros({2}, f64);
    CHECK_THROWS_WITH_AS(after.load_state(broken), doctest::Contains("2 of 6 values"), Error);
    CHECK_THROWS_WITH_AS(after.load_state({}), doctest::Contains("no tensor 'losses'"), Error);
  }
  Recorder fresh, loaded;
  loaded.load_state(fresh.save_state());
  CHECK(loaded.losses.empty());
}
