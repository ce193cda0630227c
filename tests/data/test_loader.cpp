#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "data/loader.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::data;

namespace {

using Values = std::vector<std::vector<float>>;  // of one epoch, batch by batch

// The numbers 0 ... n - 1, each as input and, negated, as target; what it is asked for is counted.
class Counting : public Dataset {
 public:
  explicit Counting(std::int64_t n, std::int64_t bad = -1) : n_(n), bad_(bad) {}
  std::int64_t size() const override { return n_; }
  Batch get(const std::vector<std::int64_t>& indices) const override {
    ++calls;
    {
      const std::lock_guard lock(mutex_);
      threads.insert(std::this_thread::get_id());
    }
    std::vector<float> x, y;
    for (const std::int64_t index : indices) {
      if (index == bad_) throw std::out_of_range("the bad item");
      x.push_back(static_cast<float>(index));
      y.push_back(static_cast<float>(-index));
    }
    return {.inputs = {from_vector(x)}, .targets = {from_vector(y)}};
  }

  mutable std::atomic<int> calls = 0;
  mutable std::set<std::thread::id> threads;

 private:
  std::int64_t n_, bad_;
  mutable std::mutex mutex_;
};

Values epoch_of(DataLoader& loader) {
  Values values;
  for (const Batch& batch : loader) values.push_back(batch.inputs[0].to_vector<float>());
  return values;
}

DataLoader counting(std::int64_t n, LoaderOptions options) {
  return DataLoader(std::make_shared<Counting>(n), std::move(options));
}

// Adds a random number to every input.
void add_noise(Batch& batch, Generator& generator) {
  std::vector<float> x = batch.inputs[0].to_vector<float>();
  for (float& value : x) value += static_cast<float>(generator.next_uniform());
  batch.inputs[0] = from_vector(x);
}

}  // namespace

TEST_CASE("a loader gives all items in order, the last batch short or dropped") {
  for (const int prefetch : {0, 1, 2, 100}) {
    CAPTURE(prefetch);
    DataLoader loader = counting(7, {.batch_size = 3, .prefetch = prefetch});
    CHECK(loader.size() == 3);
    CHECK(epoch_of(loader) == Values{{0, 1, 2}, {3, 4, 5}, {6}});
    DataLoader dropping = counting(7, {.batch_size = 3, .drop_last = true, .prefetch = prefetch});
    CHECK(dropping.size() == 2);
    CHECK(epoch_of(dropping) == Values{{0, 1, 2}, {3, 4, 5}});
    DataLoader even = counting(6, {.batch_size = 3, .drop_last = true, .prefetch = prefetch});
    CHECK(epoch_of(even).size() == 2);
  }
}

TEST_CASE("a loader keeps several inputs and targets together") {
  const Tensor a = arange(10, i64), b = arange(20, f32).view({10, 2}), c = arange(10, u8), d = arange(10, f32);
  DataLoader loader(TensorDataset({a, b}, {c, d}), {.batch_size = 4, .shuffle = true});
  std::int64_t items = 0;
  for (const auto& [inputs, targets] : loader) {
    REQUIRE(inputs.size() == 2);
    REQUIRE(targets.size() == 2);
    for (std::int64_t i = 0; i < inputs[0].size(0); ++i, ++items) {
      const auto item = inputs[0][i].item<int>();
      CHECK(inputs[1][i][0].item<int>() == 2 * item);
      CHECK(targets[0][i].item<int>() == item);
      CHECK(targets[1][i].item<int>() == item);
    }
  }
  CHECK(items == 10);
}

TEST_CASE("shuffling gives every item once, in another order each epoch") {
  DataLoader loader = counting(100, {.batch_size = 7, .shuffle = true});
  std::vector<std::vector<float>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<float> order;
    for (const std::vector<float>& batch : epoch_of(loader)) order.insert(order.end(), batch.begin(), batch.end());
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    REQUIRE(order.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(order[i] == static_cast<float>(i));
    CHECK(orders.back() != order);
  }
  CHECK(orders[0] != orders[1]);
  CHECK(orders[1] != orders[2]);
}

TEST_CASE("an epoch depends on seed and number alone, not on prefetching or on other loops") {
  LoaderOptions options{.batch_size = 7, .shuffle = true, .seed = 3, .prefetch = 0, .transforms = {add_noise}};
  DataLoader plain = counting(100, options);
  const Values first = epoch_of(plain), second = epoch_of(plain);

  options.prefetch = 3;
  DataLoader prefetching = counting(100, options);
  CHECK(epoch_of(prefetching) == first);
  CHECK(epoch_of(prefetching) == second);

  DataLoader copy = prefetching;  // counts its epochs itself
  copy.set_epoch(0);
  CHECK(epoch_of(copy) == first);
  CHECK(copy.epoch() == 1);
  CHECK(prefetching.epoch() == 2);

  options.seed = 4;
  DataLoader other = counting(100, options);
  CHECK(epoch_of(other) != first);
}

TEST_CASE("a run resumes in the middle of an epoch, random transforms included") {
  for (const int prefetch : {0, 2}) {
    DataLoader loader =
        counting(50, {.batch_size = 8, .shuffle = true, .prefetch = prefetch, .transforms = {add_noise}});
    loader.set_epoch(5);
    const Values whole = epoch_of(loader), next = epoch_of(loader);
    loader.set_epoch(5, 3);
    CHECK(epoch_of(loader) == Values(whole.begin() + 3, whole.end()));
    CHECK(loader.epoch() == 6);
    CHECK(epoch_of(loader) == next);  // a whole one again
    loader.set_epoch(5, loader.size());
    CHECK(epoch_of(loader).empty());
  }
}

TEST_CASE("two loops over one loader do not disturb each other") {
  DataLoader loader = counting(12, {.batch_size = 3, .shuffle = true}), again = loader;
  const Values first = epoch_of(again), second = epoch_of(again);
  BatchIterator a = loader.begin(), b = loader.begin();
  for (std::size_t i = 0; i < 4; ++i, ++a, ++b) {
    CHECK(a->inputs[0].to_vector<float>() == first[i]);
    CHECK(b->inputs[0].to_vector<float>() == second[i]);
  }
  CHECK(a == loader.end());
  CHECK(b == loader.end());
}

TEST_CASE("prefetching happens in another thread and never runs further ahead than it is told") {
  constexpr int ahead = 2;
  const auto dataset = std::make_shared<Counting>(500);
  DataLoader loader(dataset, {.batch_size = 1, .prefetch = ahead});
  int taken = 0;
  for (const Batch& batch : loader) {
    CHECK(batch.inputs[0].item<int>() == taken);
    ++taken;
    std::this_thread::yield();
    CHECK(dataset->calls <= taken + ahead + 1);  // those in the queue, and one in the making
  }
  CHECK(dataset->calls == 500);
  CHECK(dataset->threads.size() == 1);
  CHECK_FALSE(dataset->threads.contains(std::this_thread::get_id()));
}

TEST_CASE("leaving a loop early ends its thread") {
  auto dataset = std::make_shared<Counting>(1000);
  const std::weak_ptr<Counting> watch = dataset;
  {
    DataLoader loader(dataset, {.batch_size = 1, .prefetch = 3});
    dataset.reset();
    for (int loops = 0; loops < 50; ++loops) {
      int taken = 0;
      for ([[maybe_unused]] const Batch& batch : loader) {
        if (taken++ == loops % 5) break;
      }
    }
    BatchIterator unused = loader.begin();
    BatchIterator moved = std::move(unused);
    moved = loader.begin();
  }
  CHECK(watch.expired());  // a thread would still hold it
}

TEST_CASE("an exception of the dataset reaches the loop at its batch, and ends it") {
  for (const int prefetch : {0, 1, 5}) {
    CAPTURE(prefetch);
    DataLoader loader(std::make_shared<Counting>(20, 11), {.batch_size = 3, .prefetch = prefetch});
    for (int loops = 0; loops < 2; ++loops) {
      BatchIterator it = loader.begin();
      int taken = 1;
      const auto run = [&] {
        for (; it != loader.end(); ++taken) ++it;
      };
      CHECK_THROWS_WITH_AS(run(), "the bad item", std::out_of_range);
      CHECK(taken == 3);  // items 0 ... 8 came
      CHECK(it == loader.end());
      CHECK_NOTHROW(++it);
      CHECK(it == loader.end());
    }
    DataLoader at_once(std::make_shared<Counting>(20, 0), {.batch_size = 3, .prefetch = prefetch});
    CHECK_THROWS_AS(at_once.begin(), std::out_of_range);
  }
}

TEST_CASE("an exception of a transform reaches the loop") {
  const auto broken = [](Batch&, Generator&) { fail("broken transform"); };
  DataLoader loader = counting(5, {.transforms = {broken}});
  CHECK_THROWS_WITH_AS(loader.begin(), "broken transform", Error);
}

TEST_CASE("transforms run in order on what the one before has made") {
  const auto plus_one = [](Batch& batch, Generator&) { batch.inputs[0] = batch.inputs[0].clone().add_(1); };
  const auto twice = [](Batch& batch, Generator&) { batch.inputs[0] = batch.inputs[0].clone().mul_(2); };
  DataLoader loader = counting(3, {.transforms = {plus_one, twice}});
  CHECK(epoch_of(loader) == Values{{2, 4, 6}});
}

TEST_CASE("a value that is not finite is an error that names the item, unless it is allowed") {
  for (const DType dtype : {f16, f32, f64}) {
    Tensor x = zeros({10, 2, 2}, dtype), y = zeros({10}, i64);
    x[7].fill_(INFINITY);
    DataLoader loader(TensorDataset(x, y), {.batch_size = 4, .shuffle = true, .seed = 1});
    CHECK_THROWS_WITH_AS(epoch_of(loader), doctest::Contains("item 7 of the dataset"), Error);
    CHECK_THROWS_WITH_AS(epoch_of(loader), doctest::Contains("(inf) in input 0, element 0 of 4"), Error);
    DataLoader allowed(TensorDataset(x, y), {.batch_size = 4, .check_finite = false});
    CHECK(epoch_of(allowed).size() == 3);
  }
  Tensor target = zeros({5, 3});
  target.view({15}).slice(0, 14).fill_(NAN);
  DataLoader loader(TensorDataset(zeros({5}), target));
  CHECK_THROWS_WITH_AS(epoch_of(loader),
                       doctest::Contains("item 4 of the dataset has a value that is not finite (nan) "
                                         "in target 0, element 2 of 3"),
                       Error);
}

TEST_CASE("a dataset that returns the wrong number of rows is found out") {
  struct Wrong : Dataset {
    std::int64_t size() const override { return 10; }
    Batch get(const std::vector<std::int64_t>&) const override { return {.inputs = {zeros({2, 3})}, .targets = {}}; }
  };
  DataLoader loader(Wrong(), {.batch_size = 4});
  CHECK_THROWS_WITH_AS(loader.begin(),
                       doctest::Contains("asked for 4 items, the dataset returned as input 0 f32 [2, 3]"), Error);
}

TEST_CASE("loaders without data have no batches") {
  DataLoader none;
  CHECK(none.size() == 0);
  CHECK(epoch_of(none).empty());
  DataLoader no_items = counting(0, {.shuffle = true, .drop_last = true});
  CHECK(no_items.size() == 0);
  CHECK(epoch_of(no_items).empty());
}

TEST_CASE("a loader refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(counting(5, {.batch_size = 0}), doctest::Contains("batch_size is 0"), Error);
  CHECK_THROWS_WITH_AS(counting(5, {.prefetch = -1}), doctest::Contains("prefetch is -1"), Error);
  CHECK_THROWS_WITH_AS(counting(5, {.batch_size = 6, .drop_last = true}), doctest::Contains("drop_last leaves nothing"),
                       Error);
  CHECK_THROWS_WITH_AS(counting(5, {.transforms = {Transform()}}), doctest::Contains("transforms is empty"), Error);
  CHECK_THROWS_AS(DataLoader{DatasetPtr()}, Error);
  DataLoader loader = counting(5, {.batch_size = 2});
  CHECK_THROWS_AS(loader.set_epoch(-1), Error);
  CHECK_THROWS_WITH_AS(loader.set_epoch(0, 4), doctest::Contains("an epoch has 3"), Error);
}
