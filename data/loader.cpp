#include "data/loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <stop_token>
#include <system_error>
#include <thread>

#include "engine/error.h"
#include "engine/philox.h"

namespace halfgrad::data {

namespace {

// The random numbers of one epoch's shuffle (batch -1) or of one batch's transforms. Each epoch has keys of
// its own, and each batch 2^32 counters, more than any batch can use up.
Generator random_stream(std::uint64_t seed, std::int64_t epoch, std::int64_t batch) {
  const std::uint64_t purpose = batch < 0 ? 0 : 1;
  const PhiloxBlock block = random_block(seed, static_cast<std::uint64_t>(epoch), purpose);
  Generator generator;
  generator.set_state({.seed = std::uint64_t{block.lane[0]} << 32 | block.lane[1],
                       .offset = batch < 0 ? 0 : static_cast<std::uint64_t>(batch) << 32});
  return generator;
}

std::int64_t first_not_finite(const Tensor& x) {
  if (!is_floating(x.dtype())) return -1;
  return visit_dtype(x.dtype(), [&]<class T>(T) -> std::int64_t {
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T* values = x.data<T>();
    const auto not_finite = [](T value) { return !std::isfinite(static_cast<Real>(value)); };
    const std::int64_t n = x.numel();
    int any = 0;  // an int, and no way out of the loop: so compilers make it run on vectors
    for (std::int64_t i = 0; i < n; ++i) any |= static_cast<int>(not_finite(values[i]));
    return any != 0 ? std::find_if(values, values + n, not_finite) - values : -1;
  });
}

// What the dataset gave must have one row per index and, when asked for, only finite numbers.
void check_tensors(const Tensors& tensors, const char* kind, const std::vector<std::int64_t>& indices,
                   bool check_finite) {
  const auto n = static_cast<std::int64_t>(indices.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& x = tensors[t];
    check(x.defined() && x.rank() > 0 && x.size(0) == n,
          "DataLoader: asked for {} items, the dataset returned as {} {} {}; expected a tensor with one row "
          "per item",
          n, kind, t, x);
    if (!check_finite || !x.device().is_cpu()) continue;
    const Tensor rows = x.contiguous();
    const std::int64_t at = first_not_finite(rows);
    if (at < 0) continue;
    const std::int64_t row = rows.numel() / n;
    fail(
        "DataLoader: item {} of the dataset has a value that is not finite ({}) in {} {}, element {} of {}; "
        "mend the "
        "data, or set .check_finite = false",
        indices[at / row], rows.flatten()[at].item(), kind, t, at % row, row);
  }
}

// What an epoch consists of; it makes any of its batches, in any thread.
struct EpochPlan {
  DatasetPtr dataset;
  LoaderOptions options;
  std::int64_t epoch = 0;
  std::int64_t first = 0, last = 0;  // batches to make: [first, last)
  std::vector<std::int64_t> order;   // of all items

  Batch make(std::int64_t batch) const;
};

Batch EpochPlan::make(std::int64_t number) const {
  const auto begin = order.begin() + number * options.batch_size;
  const std::int64_t left = order.end() - begin;
  const std::vector<std::int64_t> indices(begin, begin + std::min(options.batch_size, left));
  Batch batch = dataset->get(indices);
  check_tensors(batch.inputs, "input", indices, options.check_finite);
  check_tensors(batch.targets, "target", indices, options.check_finite);
  Generator generator = random_stream(options.seed, epoch, number);
  for (const Transform& transform : options.transforms) transform(batch, generator);
  return batch;
}

}  // namespace

class BatchSource {
 public:
  explicit BatchSource(EpochPlan plan) : plan_(std::move(plan)), next_(plan_.first) {
    if (plan_.options.prefetch == 0 || next_ == plan_.last) return;
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error& error) {
      fail("DataLoader: no thread to prefetch with ({}); set .prefetch = 0 to do without", error.what());
    }
  }

  // The batches in order, then nothing. Throws what making the batch threw.
  std::optional<Batch> next() {
    if (next_ == plan_.last) return std::nullopt;
    const std::int64_t number = std::exchange(next_, plan_.last);  // an error ends the epoch
    Batch batch = thread_.joinable() ? take() : plan_.make(number);
    next_ = number + 1;
    return batch;
  }

 private:
  struct Made {
    Batch batch;
    std::exception_ptr error;  // instead of the batch
  };

  // The thread: makes batches while there is room for them, and ends after the last one, an error or a stop.
  void run(const std::stop_token& stop) {
    for (std::int64_t number = plan_.first; number < plan_.last && !stop.stop_requested(); ++number) {
      Made made;
      try {
        made.batch = plan_.make(number);
      } catch (...) {
        made.error = std::current_exception();
      }
      const bool failed = made.error != nullptr;
      std::unique_lock lock(mutex_);
      const auto room = [&] { return std::ssize(queue_) < plan_.options.prefetch; };
      if (!changed_.wait(lock, stop, room)) return;
      queue_.push_back(std::move(made));
      changed_.notify_all();
      if (failed) return;
    }
  }

  Batch take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    Made made = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    if (made.error) std::rethrow_exception(made.error);
    return std::move(made.batch);
  }

  const EpochPlan plan_;
  std::int64_t next_;  // of the consumer
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Made> queue_;
  std::jthread thread_;  // last, so that it has stopped before anything that it uses goes away
};

BatchIterator::BatchIterator(std::unique_ptr<BatchSource> source) : source_(std::move(source)) { ++*this; }
BatchIterator::BatchIterator(BatchIterator&&) noexcept = default;
BatchIterator& BatchIterator::operator=(BatchIterator&&) noexcept = default;
BatchIterator::~BatchIterator() = default;

BatchIterator& BatchIterator::operator++() {
  batch_.reset();  // its memory is free for the next one
  if (source_) batch_ = source_->next();
  return *this;
}

DataLoader::DataLoader(DatasetPtr dataset, LoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  check(dataset_ != nullptr, "DataLoader: there is no dataset; give one to load from");
  check(options_.batch_size > 0, "DataLoader: batch_size is {}; expected 1 or more", options_.batch_size);
  check(options_.prefetch >= 0, "DataLoader: prefetch is {}; expected 0 or more batches", options_.prefetch);
  for (const Transform& transform : options_.transforms) {
    check(transform != nullptr, "DataLoader: one of the transforms is empty; give a function");
  }
  check(size() > 0 || dataset_->size() == 0,
        "DataLoader: {} items do not fill one batch of {}, so that drop_last leaves nothing; use a smaller "
        "batch_size",
        dataset_->size(), options_.batch_size);
}

std::int64_t DataLoader::size() const {
  if (!dataset_) return 0;
  const std::int64_t whole = dataset_->size() / options_.batch_size;
  const bool short_one = dataset_->size() % options_.batch_size != 0;
  return whole + (short_one && !options_.drop_last ? 1 : 0);
}

std::int64_t DataLoader::samples_in(std::int64_t batch) const {
  check(batch >= 0 && batch < size(), "DataLoader: batch {} was asked for; an epoch has {}, counted from 0", batch,
        size());
  return std::min(options_.batch_size, dataset_->size() - batch * options_.batch_size);
}

void DataLoader::set_epoch(std::int64_t epoch, std::int64_t first_batch) {
  check(epoch >= 0, "DataLoader: epoch {} was asked for; epochs are counted from 0", epoch);
  check(first_batch >= 0 && first_batch <= size(),
        "DataLoader: batch {} was asked for; an epoch has {}, counted from 0", first_batch, size());
  epoch_ = epoch;
  first_batch_ = first_batch;
}

BatchIterator DataLoader::begin() {
  EpochPlan plan{
      .dataset = dataset_, .options = options_, .epoch = epoch_, .first = first_batch_, .last = size(), .order = {}};
  ++epoch_;
  first_batch_ = 0;
  const std::int64_t items = dataset_ ? dataset_->size() : 0;
  if (options_.shuffle) {
    Generator generator = random_stream(options_.seed, plan.epoch, -1);
    plan.order = random_permutation(items, generator);
  } else {
    plan.order.resize(static_cast<std::size_t>(items));
    std::iota(plan.order.begin(), plan.order.end(), std::int64_t{0});
  }
  return BatchIterator(std::make_unique<BatchSource>(std::move(plan)));
}

}  // namespace halfgrad::data
