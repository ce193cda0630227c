#include "block.h"

#include <cstring>
#include <memory>
#include <vector>

#include "fiber.h"
#include "memory.h"
#include "report.h"

namespace cuda_emulation {

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned char kUnwritten = 0xFF;  // NaN as a half, a float and a double
constexpr unsigned char kMargin = 0xA5;     // behind shared memory
constexpr std::size_t kMarginBytes = 64;
constexpr std::size_t kSharedLimit = 48 * 1024;  // what a kernel gets without asking

struct Thread {
  enum class State { fresh, ready, at_block_barrier, at_warp_barrier, done };
  State state = State::fresh;
  Fiber* fiber = nullptr;  // on which it was begun
  unsigned mask = 0;       // of the warp barrier
  Line line{"", 0};        // of the barrier
  unsigned exchanges = 0;
};

// What the lanes give each other. One exchange reads what was given while the next is being given: two places in turn.
struct Warp {
  alignas(16) unsigned char given[2][kWarp][16];
};

struct SharedArray {
  Line line;
  const std::type_info* type;
  std::size_t bytes;
  std::unique_ptr<unsigned char[]> memory;
};

class Block {
 public:
  Block(const Kernel& kernel, uint3 index);
  ~Block() { current = nullptr; }
  void run();

  void wait(Thread::State state, unsigned mask, Line line);
  unsigned char* given_by(unsigned lane) { return warps_[now_ / kWarp].given[threads_[now_].exchanges % 2][lane]; }
  void end_exchange() { ++threads_[now_].exchanges; }
  void* shared_memory(const std::type_info& type, std::size_t bytes, Line line);
  const char* name() const { return kernel_.name; }

  static thread_local Block* current;

 private:
  static void fiber_body();
  void run_fresh_threads();
  void set_position(unsigned thread);
  bool release_warps();
  bool release_block();
  void check_shared_memory() const;
  /// The order in which threads have their turn.
  unsigned in_order(unsigned i) const { return options().reverse ? count_ - 1 - i : i; }

  const Kernel& kernel_;
  const unsigned count_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<SharedArray> shared_;
  unsigned begun_ = 0;  // so many threads, in order
  unsigned now_ = 0;    // the thread that runs
  Fiber* fiber_ = nullptr;
};

thread_local Block* Block::current = nullptr;

// Fibers that have no thread, for the next block.
thread_local std::vector<std::unique_ptr<Fiber>> all_fibers;
thread_local std::vector<Fiber*> idle_fibers;

Block::Block(const Kernel& kernel, uint3 index)
    : kernel_(kernel),
      count_(kernel.block.x * kernel.block.y * kernel.block.z),
      threads_(count_),
      warps_((count_ + kWarp - 1) / kWarp) {
  current = this;
  position.block = index;
  position.block_size = kernel.block;
  position.grid_size = kernel.grid;
}

void Block::set_position(unsigned thread) {
  now_ = thread;
  const dim3 size = kernel_.block;
  position.thread = {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
  position.lane = thread % kWarp;
}

// Begins threads one after the other until one waits at a barrier, in which case its stack, this one, must stay.
void Block::run_fresh_threads() {
  while (begun_ < count_) {
    Thread& thread = threads_[in_order(begun_)];
    set_position(in_order(begun_++));
    thread.fiber = fiber_;
    kernel_.thread();
    threads_[now_].state = Thread::State::done;
  }
  idle_fibers.push_back(fiber_);
}

void Block::fiber_body() {
  for (;;) {
    current->run_fresh_threads();
    Fiber::suspend();
  }
}

void Block::run() {
  for (;;) {
    while (begun_ < count_) {
      if (idle_fibers.empty()) {
        all_fibers.push_back(std::make_unique<Fiber>(&Block::fiber_body));
        idle_fibers.push_back(all_fibers.back().get());
      }
      fiber_ = idle_fibers.back();
      idle_fibers.pop_back();
      fiber_->resume();
    }
    for (unsigned i = 0; i < count_; ++i) {
      const unsigned t = in_order(i);
      if (threads_[t].state != Thread::State::ready) continue;
      set_position(t);
      fiber_ = threads_[t].fiber;
      fiber_->resume();
    }
    if (release_warps() || release_block()) continue;
    const Thread* waiting = nullptr;
    for (const Thread& thread : threads_)
      if (thread.state != Thread::State::done) waiting = &thread;
    if (!waiting) return check_shared_memory();
    fault("deadlock: not all threads come to the barrier in " + std::string(waiting->line.file) + ":" +
          std::to_string(waiting->line.number));
  }
}

void Block::wait(Thread::State state, unsigned mask, Line line) {
  Thread& thread = threads_[now_];
  thread.state = state;
  thread.mask = mask;
  thread.line = line;
  Fiber::suspend();
}

// Lets the lanes go whose warp barrier is complete. True: there were some.
bool Block::release_warps() {
  bool any = false;
  for (unsigned first = 0; first < count_; first += kWarp)
    for (unsigned lane = 0; lane < kWarp && first + lane < count_; ++lane) {
      const Thread& one = threads_[first + lane];
      if (one.state != Thread::State::at_warp_barrier) continue;
      bool complete = true;
      for (unsigned other = 0; other < kWarp; ++other) {
        if (!(one.mask >> other & 1U)) continue;
        if (first + other >= count_ || threads_[first + other].state == Thread::State::done)
          fault("a warp waits for lane " + std::to_string(other) + ", which has ended or does not exist, in " +
                one.line.file + ":" + std::to_string(one.line.number));
        const Thread& its = threads_[first + other];
        complete =
            complete && its.state == Thread::State::at_warp_barrier && its.mask == one.mask && its.line == one.line;
      }
      if (!complete) continue;
      const unsigned mask = one.mask;
      for (unsigned other = 0; other < kWarp; ++other)
        if (mask >> other & 1U) threads_[first + other].state = Thread::State::ready;
      any = true;
    }
  return any;
}

// Lets all go when all that have not ended wait at the block's barrier.
bool Block::release_block() {
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state == Thread::State::done) continue;
    if (thread.state != Thread::State::at_block_barrier) return false;
    if (!first) first = &thread;
    if (!(thread.line == first->line))
      fault("divergent barrier: some threads of the block wait in line " + std::to_string(first->line.number) +
            ", others in line " + std::to_string(thread.line.number) + " of " + thread.line.file);
  }
  for (Thread& thread : threads_)
    if (thread.state == Thread::State::at_block_barrier) thread.state = Thread::State::ready;
  return first != nullptr;
}

void* Block::shared_memory(const std::type_info& type, std::size_t bytes, Line line) {
  std::size_t total = bytes;
  for (const SharedArray& array : shared_) {
    if (array.line == line && *array.type == type && array.bytes == bytes) return array.memory.get();
    total += array.bytes;
  }
  if (total > kSharedLimit)
    fault("the block shares " + std::to_string(total) + " bytes, expected at most " + std::to_string(kSharedLimit));
  auto memory = std::make_unique<unsigned char[]>(bytes + kMarginBytes);
  std::memset(memory.get(), kUnwritten, bytes);
  std::memset(memory.get() + bytes, kMargin, kMarginBytes);
  shared_.push_back({line, &type, bytes, std::move(memory)});
  return shared_.back().memory.get();
}

void Block::check_shared_memory() const {
  for (const SharedArray& array : shared_)
    for (std::size_t i = 0; i < kMarginBytes; ++i)
      if (array.memory[array.bytes + i] != kMargin)
        fault("out of bounds: behind the shared array of " + std::to_string(array.bytes) + " bytes in " +
              array.line.file + ":" + std::to_string(array.line.number));
}

}  // namespace

void run_kernel(const Kernel& kernel) {
  const DeviceAccess access;
  const dim3 grid = kernel.grid;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = options().reverse ? blocks - 1 - i : i;
    Block block(kernel, {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                         static_cast<unsigned>(b / grid.x / grid.y)});
    block.run();
  }
  check_margins(std::string("kernel ") + kernel.name);
}

bool kernel_is_running() { return Block::current != nullptr; }

std::string current_position() {
  if (!Block::current) return "no kernel is running";
  const auto text = [](uint3 v) {
    return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
  };
  return std::string("kernel ") + Block::current->name() + ", block " + text(position.block) + ", thread " +
         text(position.thread);
}

void block_barrier(Line line) { Block::current->wait(Thread::State::at_block_barrier, 0, line); }

void warp_barrier(unsigned mask, Line line) {
  if (!(mask >> position.lane & 1U))
    fault("a lane calls a warp function whose mask does not name it, in " + std::string(line.file) + ":" +
          std::to_string(line.number));
  Block::current->wait(Thread::State::at_warp_barrier, mask, line);
}

void exchange(unsigned mask, unsigned source, const void* given, void* taken, std::size_t bytes, Line line) {
  Block& block = *Block::current;
  std::memcpy(block.given_by(position.lane), given, bytes);
  warp_barrier(mask, line);
  if (mask >> source & 1U)
    std::memcpy(taken, block.given_by(source), bytes);
  else
    std::memset(taken, kUnwritten, bytes);  // undefined on a GPU
  block.end_exchange();
}

void* shared_memory(const std::type_info& type, std::size_t bytes, Line line) {
  return Block::current->shared_memory(type, bytes, line);
}

}  // namespace cuda_emulation
