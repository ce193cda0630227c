#include "stream.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

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

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  std::shared_ptr<cuda_emulation::Work> work = std::make_shared<cuda_emulation::Work>();
  std::unique_ptr<CUgraph_st> captured;  // what is put into the stream is recorded here, and not done
  bool relaxed = false;                  // of the capture: other streams may be waited for, memory be asked for
  bool invalid = false;                  // it came to something that cannot be captured
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

namespace {

// What a captured stream cannot do: it has no work that could be waited for.
cudaError_t not_while_captured(cudaStream_t stream) {
  stream->invalid = true;
  return result(cudaErrorStreamCaptureUnsupported);
}

}  // namespace

bool anything_is_captured() {
  return std::any_of(streams().begin(), streams().end(),
                     [](cudaStream_t stream) { return stream->captured && !stream->relaxed; });
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(everything());
  Work& queue = work_of(stream);
  if (stream->captured) return stream->captured->work.push_back(std::move(work));
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
  if (stream->captured) return not_while_captured(stream);
  work.finish(work.put);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(everything());
  if (work_of(stream); stream->captured) return not_while_captured(stream);
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
  if (work_of(stream); stream->captured) return not_while_captured(stream);  // forks are not emulated
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
  if (work_of(stream); stream->captured) return not_while_captured(stream);
  // What the event stands for now; it may be recorded anew or destroyed before the stream comes to it.
  if (const CUevent_st now = checked(event); now.work) enqueue(stream, [now] { now.work->finish(now.position); });
  return cudaSuccess;
}

// --- graphs ----------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(everything());
  if (work_of(stream); stream->captured) return result(cudaErrorIllegalState);
  stream->captured = std::make_unique<CUgraph_st>();
  stream->relaxed = mode == cudaStreamCaptureModeRelaxed;
  stream->invalid = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(everything());
  *graph = nullptr;
  if (work_of(stream); !stream->captured) return result(cudaErrorIllegalState);
  const std::unique_ptr<CUgraph_st> captured = std::move(stream->captured);
  if (stream->invalid) return result(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st(*captured);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(everything());
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::lock_guard lock(everything());
  delete exec;  // what was launched has been copied into the stream
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  for (const std::function<void()>& work : exec->work) enqueue(stream, work);
  return cudaSuccess;
}

}  // extern "C"
