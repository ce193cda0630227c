#include <sstream>

#include "callbacks/csv.h"
#include "callbacks/csv_logger.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  CHECK((text.empty() || text.back() == '\n'));
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

const Metric with_comma{"top \"1\", or so", [](const Tensor&, const Tensor&) { return 0.25; }};

struct Run {
  nn::Sequential model = small_mlp();
  std::shared_ptr<CSVLogger> logger;
  Learner learn;
  explicit Run(const std::string& path, bool append = false, std::vector<Metric> metrics = {accuracy})
      : logger(std::make_shared<CSVLogger>(path, append)),
        learn(small_data(), model, nn::cross_entropy,
              {.metrics = std::move(metrics), .callbacks = {logger}, .silent = true}) {}
};

}  // namespace

TEST_CASE("cells of a CSV line are quoted where they must be") {
  CHECK(csv_line({"a", "", "b c"}) == "a,,b c\n");
  CHECK(csv_line({"a,b", "say \"x\"", "two\nlines"}) == "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\"\n");
  CHECK(csv_line({}) == "\n");
}

TEST_CASE("CSVLogger writes a line per epoch, in full precision") {
  for (const bool fp16 : {false, true}) {
    const Folder folder;
    Run run(folder.path / "log.csv", false, {accuracy, with_comma});
    if (fp16) run.learn.to_fp16();
    run.learn.fit(2);
    const std::vector<std::string> lines = lines_of(contents(folder.path / "log.csv"));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0] == "epoch,train_loss,valid_loss,accuracy,\"top \"\"1\"\", or so\",time");
    for (std::size_t i = 0; i < 2; ++i) {
      const Recorder::Epoch& epoch = run.learn.recorder().epochs[i];
      const std::string expected = fmt::format("{},{},{},{},0.25,{:.3f}", i, epoch.train_loss, epoch.metrics[0],
                                               epoch.metrics[1], epoch.seconds);
      CHECK(lines[i + 1] == expected);
      CHECK(std::stod(lines[i + 1].substr(2)) == epoch.train_loss);
    }
    run.learn.fit(1);  // a new run, a new file
    CHECK(lines_of(contents(folder.path / "log.csv")).size() == 2);
  }
}

TEST_CASE("whole lines are there while the run goes on, and after it has died") {
  struct Dies : Callback {
    std::string path;
    std::vector<std::size_t> lines;
    void on_batch_begin(Learner& learn) override {
      if (learn.state.num_batch == 0 && learn.state.train) lines.push_back(lines_of(contents(path)).size());
      check(learn.state.iteration < 7, "the plug is pulled");
    }
  };
  const Folder folder;
  Run run(folder.path / "log.csv");
  const auto dies = std::make_shared<Dies>();
  dies->path = folder.path / "log.csv";
  run.learn.add(dies);
  CHECK(message_of([&] { run.learn.fit(9); }) == "the plug is pulled");
  CHECK(dies->lines == std::vector<std::size_t>{1, 2, 3});
  CHECK(lines_of(contents(folder.path / "log.csv")).size() == 3);
}

TEST_CASE("append keeps what is there, unless it has other columns") {
  const Folder folder;
  const std::string path = folder.path / "log.csv";
  Run(path, true).learn.fit(1);
  const std::string first = contents(path);
  CHECK(lines_of(first).size() == 2);
  Run(path, true).learn.fit(2);
  const std::string both = contents(path);
  CHECK(both.starts_with(first));
  CHECK(lines_of(both).size() == 4);
  CHECK(lines_of(both)[2].starts_with("0,"));
  std::ofstream(path) << first.substr(0, first.size() - 1);  // the newline is missing
  Run(path, true).learn.fit(1);
  CHECK(lines_of(contents(path)).size() == 3);

  CHECK_THROWS_WITH_AS(Run(path, true, {accuracy, mse}).learn.fit(1), doctest::Contains("log.csv' begins with other"),
                       Error);
  CHECK(contents(path).starts_with(first));
}

TEST_CASE("what was not validated is empty, and what is not finite is written as such") {
  const Folder folder;
  nn::Sequential model = small_mlp();
  Learner learn(
      {small_data().train, {}}, model, nn::cross_entropy,
      {.metrics = {accuracy}, .callbacks = {std::make_shared<CSVLogger>(folder.path / "a.csv")}, .silent = true});
  learn.fit(1);
  CHECK(contains(lines_of(contents(folder.path / "a.csv"))[1], ",,,0."));
  Run run(folder.path / "b.csv", false, {{"nothing", [](const Tensor&, const Tensor&) { return std::nan(""); }}});
  run.learn.fit(1);
  CHECK(contains(lines_of(contents(folder.path / "b.csv"))[1], ",nan,0."));
}

TEST_CASE("a file that cannot be written is an error before the first batch, and names the file") {
  Run run("/nowhere/log.csv");
  CHECK_THROWS_WITH_AS(run.learn.fit(1), doctest::Contains("'/nowhere/log.csv' was not written"), Error);
  CHECK(run.learn.recorder().losses.empty());
}

TEST_CASE("a resumed run goes on below the lines of the epochs before its checkpoint") {
  struct SaveAt : Callback {
    std::string path;
    std::int64_t iteration;
    int order() const override { return 1000; }
    void on_batch_end(Learner& learn) override {
      if (learn.state.train && learn.state.iteration == iteration) learn.save(path);
    }
  };
  const auto without_times = [](const std::string& text) {
    std::string lines;
    for (const std::string& line : lines_of(text)) lines += line.substr(0, line.rfind(',')) + '\n';
    return lines;
  };
  const Folder folder;
  const std::string log = folder.path / "log.csv", checkpoint = folder.path / "run.safetensors";
  for (const bool append : {false, true})
    for (const std::int64_t iteration : {2, 4, 5, 7}) {  // three batches per epoch
      CAPTURE(append);
      CAPTURE(iteration);
      Run(log).learn.fit(1);
      const std::string before = append ? contents(log) : "";
      Run run(log, append);
      const auto saver = std::make_shared<SaveAt>();
      saver->path = checkpoint;
      saver->iteration = iteration;
      run.learn.add(saver);
      run.learn.fit(3);
      const std::string whole = contents(log);
      CHECK(whole.starts_with(before));
      // What was logged after the checkpoint is done again, and logged once.
      Run resumed(log, append);
      resumed.learn.resume(checkpoint);
      resumed.learn.fit(3);
      CHECK(without_times(contents(log)) == without_times(whole));
    }
}
