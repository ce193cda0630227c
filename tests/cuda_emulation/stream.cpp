#include "stream.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <set>

#include "report.h"

namespace cuda_emulation {

namespace {

// The work of a stream. It outlives the stream's handle, because events point to it.
struct Work {
  std::deque<std::function<void()>> waiting;
  std::uint64_t put = 0, done = 0;

  void finish(std::uint64_t until) {
    while (done < until && !waiting.empty()) {
      const std::function<void()> next = std::move(waiting.front());
      waiting.pop_front();
      next();
      ++done;
    }
  }
};

}  // namespace

}  // namespace cuda_emulation

struct CUstream_st {
  std::shared_ptr<cuda_emulation::Work> work = std::make_shared<cuda_emulation::Work>();
};
struct CUevent_st {
  std::shared_ptr<cuda_emulation::Work> work;  // null: never recorded
  std::uint64_t position = 0;
  bool passed() const { return !work || work->done >= position; }
};

namespace cuda_emulation {

thread_local cudaError_t last_error = cudaSuccess;

std::recursive_mutex& everything() {
  static auto* const mutex = new std::recursive_mutex;  // statics of the program may use it until the very end
  return *mutex;
}

namespace {

std::set<cudaStream_t>& streams() {
  static auto* const all = new std::set<cudaStream_t>;
  return *all;
}
std::set<cudaEvent_t>& events() {
  static auto* const all = new std::set<cudaEvent_t>;
  return *all;
}

Work& work_of(cudaStream_t stream) {
  if (!stream) fault("work is put into the default stream, which makes all others wait; give it a stream of its own");
  if (!streams().contains(stream)) fault("a stream is used that was destroyed");
  return *stream->work;
}

CUevent_st& checked(cudaEvent_t event) {
  if (!events().contains(event)) fault("an event is used that was destroyed");
  return *event;
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(everything());
  Work& queue = work_of(stream);
  queue.waiting.push_back(std::move(work));
  ++queue.put;
}

void finish_all_streams() {
  for (cudaStream_t stream : streams()) stream->work->finish(stream->work->put);
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(everything());
  *stream = new CUstream_st;
  streams().insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(everything());
  Work& work = work_of(stream);
  work.finish(work.put);
  streams().erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(everything());
  Work& work = work_of(stream);
  work.finish(work.put);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(everything());
  return work_of(stream).waiting.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(everything());
  finish_all_streams();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(everything());
  *event = new CUevent_st;
  events().insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(everything());
  checked(event);
  events().erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  checked(event).position = work_of(stream).put;
  event->work = stream->work;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(everything());
  return checked(event).passed() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(everything());
  if (checked(event).work) event->work->finish(event->position);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(everything());
  // What the event stands for now; it may be recorded anew or destroyed before the stream comes to it.
  if (const CUevent_st now = checked(event); now.work) enqueue(stream, [now] { now.work->finish(now.position); });
  return cudaSuccess;
}

}  // extern "C"
