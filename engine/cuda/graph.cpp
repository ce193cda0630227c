// Work that is captured as a CUDA graph: a training step of a hundred kernels becomes one launch.
//
// Whatever is put into the stream while it is captured is recorded and not done. All its arguments are frozen: so what
// changes from step to step (hyperparameters, step counts, loss scale, where the random numbers begin) is in memory of the
// GPU. And all its memory must stay where it is: so the allocator takes it from a pool of the graph's own.

#include <utility>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/random.h"

namespace halfgrad {

class CapturedCudaWork final : public CapturedWork {
 public:
  explicit CapturedCudaWork(CudaBackend& backend) : backend_(backend), pool_(backend.allocator_.begin_pool()) {}
  ~CapturedCudaWork() override {
    if (graph_) cudaGraphExecDestroy(graph_);
    backend_.allocator_.release_pool(pool_);
  }
  CapturedCudaWork(const CapturedCudaWork&) = delete;
  CapturedCudaWork& operator=(const CapturedCudaWork&) = delete;

  void record(const std::function<void()>& work) {
    const cudaStream_t stream = backend_.queue().stream;
    // Relaxed: the allocator may need new memory for its pool meanwhile.
    HALFGRAD_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    cudaGraph_t recorded = nullptr;
    try {
      work();
    } catch (...) {
      if (cudaStreamEndCapture(stream, &recorded) == cudaSuccess && recorded) cudaGraphDestroy(recorded);
      cudaGetLastError();
      throw;
    }
    HALFGRAD_CUDA(cudaStreamEndCapture(stream, &recorded));
    const cudaError_t status = cudaGraphInstantiate(&graph_, recorded, 0);
    cudaGraphDestroy(recorded);
    cuda::check_call(status, "cudaGraphInstantiate(&graph, recorded, 0)");
  }

  void replay(std::uint64_t seed, std::uint64_t offset) override {
    const cuda::RandomBase base{seed, offset};
    backend_.copy_from_host(backend_.random_base_.data(), &base, sizeof(base));
    HALFGRAD_CUDA(cudaGraphLaunch(graph_, backend_.queue().stream));
  }

 private:
  CudaBackend& backend_;
  int pool_;
  cudaGraphExec_t graph_ = nullptr;
};

std::unique_ptr<CapturedWork> CudaBackend::capture(const std::function<void()>& work, std::uint64_t offset) {
  check_not_capturing("captures other work");
  struct Capturing {
    explicit Capturing(CudaBackend& backend) : backend(backend) { backend.capturing_ = true; }
    ~Capturing() {
      backend.capturing_ = false;
      backend.allocator_.end_pool();
    }
    CudaBackend& backend;
  };
  captured_offset_ = offset;
  auto captured = std::make_unique<CapturedCudaWork>(*this);
  const Capturing capturing(*this);
  captured->record(work);
  return captured;
}

}  // namespace halfgrad
