#include "engine/cuda/allocator.h"
#include "planted_faults.h"

namespace cuda_emulation::testing {

namespace {

// What `work` puts into the stream, as a graph.
template <class Work>
cudaGraphExec_t captured(const Stream& stream, cudaStreamCaptureMode mode, Work work) {
  HALFGRAD_CUDA(cudaStreamBeginCapture(stream.get(), mode));
  work();
  cudaGraph_t graph = nullptr;
  HALFGRAD_CUDA(cudaStreamEndCapture(stream.get(), &graph));
  cudaGraphExec_t exec = nullptr;
  HALFGRAD_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  HALFGRAD_CUDA(cudaGraphDestroy(graph));
  return exec;
}

}  // namespace

void use_graphs_correctly() {
  const Stream stream;
  const DeviceArray<float> x(std::vector<float>(64, 0.0F), stream), y(std::vector<float>(64, 1.0F), stream);
  cudaGraphExec_t graph = captured(stream, cudaStreamCaptureModeRelaxed,
                                   [&] { launch("add", add, 1, 64, stream.get(), x.data(), y.data(), 64); });
  expect(x.values(stream)[0] == 0);  // recorded, not done
  for (int i = 0; i < 3; ++i) HALFGRAD_CUDA(cudaGraphLaunch(graph, stream.get()));
  HALFGRAD_CUDA(cudaGraphExecDestroy(graph));
  expect(x.values(stream)[0] == 3);
}

std::vector<Fault> faults_of_graphs() {
  return {
      {"a captured stream is waited for",
       [] {
         const Stream stream;
         captured(stream, cudaStreamCaptureModeRelaxed, [&] { stream.synchronize(); });
       },
       "operation not permitted when stream is capturing"},
      {"what could not be captured was overlooked, and the rest is used",
       [] {
         const Stream stream;
         captured(stream, cudaStreamCaptureModeRelaxed, [&] { cudaStreamSynchronize(stream.get()); });
       },
       "operation failed due to a previous error during capture"},
      {"memory is asked for while a stream is captured",
       [] {
         const Stream stream;
         captured(stream, cudaStreamCaptureModeGlobal, [&] { const DeviceArray<float> x(64); });
       },
       "operation not permitted when stream is capturing"},
      {"a number on the host is frozen into a graph",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         float value = 1;
         cudaGraphExec_t graph = captured(stream, cudaStreamCaptureModeRelaxed,
                                          [&] { launch("fill", fill, 1, 64, stream.get(), x.data(), 64, value); });
         value = 2;
         HALFGRAD_CUDA(cudaGraphLaunch(graph, stream.get()));
         expect(x.values(stream)[0] == 2);
       },
       kWrongResult},
      {"the memory of a graph is given to somebody else",
       [] {
         const Stream stream;
         halfgrad::cuda::CachingAllocator allocator(0, stream.get());
         auto* x = static_cast<float*>(allocator.allocate(256));  // outside of a pool
         const DeviceArray<float> sum(std::vector<float>(64, 0.0F), stream);
         cudaGraphExec_t graph = captured(stream, cudaStreamCaptureModeRelaxed,
                                          [&] { launch("add", add, 1, 64, stream.get(), sum.data(), x, 64); });
         launch("fill", fill, 1, 64, stream.get(), x, 64, 1.0F);
         allocator.deallocate(x, 256);
         auto* other = static_cast<float*>(allocator.allocate(256));
         launch("fill", fill, 1, 64, stream.get(), other, 64, 7.0F);
         HALFGRAD_CUDA(cudaGraphLaunch(graph, stream.get()));
         expect(sum.values(stream)[0] == 1);
       },
       kWrongResult},
      {"a graph is launched after its memory was freed",
       [] {
         const Stream stream;
         const DeviceArray<float> sum(std::vector<float>(64, 0.0F), stream);
         cudaGraphExec_t graph = nullptr;
         {
           const DeviceArray<float> x(std::vector<float>(64, 1.0F), stream);
           graph = captured(stream, cudaStreamCaptureModeRelaxed,
                            [&] { launch("add", add, 1, 64, stream.get(), sum.data(), x.data(), 64); });
         }
         HALFGRAD_CUDA(cudaGraphLaunch(graph, stream.get()));
         expect(sum.values(stream)[0] == 1);
       },
       ""},
  };
}

}  // namespace cuda_emulation::testing
