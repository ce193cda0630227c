#include "engine/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>

#include "engine/cuda/blas.h"
#include "engine/cuda/dnn.h"

namespace halfgrad {

namespace {

int multiprocessors_of(int index) {
  cuda::use_device(index);  // before anything is made that belongs to it
  int count = 0;
  HALFGRAD_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index));
  return count;
}

}  // namespace

CudaBackend::CudaBackend(int index, cuda::CachingAllocator::Mode mode)
    : index_(index),
      multiprocessors_(multiprocessors_of(index)),
      allocator_(index, stream_.get(), mode),
      upload_allocator_(allocator_, upload_stream_.get()) {}

CudaBackend::~CudaBackend() = default;

cuda::Queue CudaBackend::queue() {
  cuda::use_device(index_);
  return {stream_.get(), multiprocessors_};
}

cuda::Blas& CudaBackend::blas() {
  std::call_once(blas_once_, [&] { blas_ = std::make_unique<cuda::Blas>(queue().stream, allocator_); });
  return *blas_;
}

cuda::Dnn& CudaBackend::dnn() {
  std::call_once(dnn_once_, [&] { dnn_ = std::make_unique<cuda::Dnn>(queue().stream); });
  return *dnn_;
}

// By way of pinned memory, from which the GPU copies when it comes to it. Into memory of the upload stream it does so beside
// the work that was asked for before, which cannot know that memory.
void CudaBackend::copy_from_host(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;  // so that a data set does not take pinned memory of its size
  const cudaStream_t work = queue().stream;
  const bool beside = allocator_.stream_of(to) == upload_stream_.get();
  const cudaStream_t stream = beside ? upload_stream_.get() : work;
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - done);
    void* const staging = pinned_.take(n);
    std::memcpy(staging, static_cast<const char*>(from) + done, n);
    const cudaError_t status =
        cudaMemcpyAsync(static_cast<char*>(to) + done, staging, n, cudaMemcpyHostToDevice, stream);
    pinned_.give_back(staging, n, stream);
    cuda::check_call(status, "cudaMemcpyAsync(to, staging, n, cudaMemcpyHostToDevice, stream)");
  }
  if (!beside) return;
  stream_.wait_for(upload_stream_);
  allocator_.used_on(to, work);
}

void CudaBackend::copy_to_host(void* to, const void* from, std::size_t bytes) {
  HALFGRAD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue().stream));
  stream_.synchronize();
}

namespace {

class PinnedDownload final : public Download {
 public:
  PinnedDownload(cuda::PinnedPool& pool, const void* from, std::size_t bytes, cudaStream_t stream)
      : pool_(pool), block_(pool.take(bytes)), bytes_(bytes), stream_(stream) {
    const cudaError_t status = cudaMemcpyAsync(block_, from, bytes, cudaMemcpyDeviceToHost, stream);
    if (status != cudaSuccess) pool_.give_back(block_, bytes_, stream_);
    cuda::check_call(status, "cudaMemcpyAsync(block, from, bytes, cudaMemcpyDeviceToHost, stream)");
    arrived_.record(stream);
  }
  ~PinnedDownload() override { pool_.give_back(block_, bytes_, stream_); }
  bool is_there() override { return arrived_.passed(); }
  const void* wait() override {
    arrived_.wait();
    return block_;
  }

 private:
  cuda::PinnedPool& pool_;
  void* block_;
  std::size_t bytes_;
  cudaStream_t stream_;
  cuda::Event arrived_;
};

}  // namespace

std::unique_ptr<Download> CudaBackend::download(const void* from, std::size_t bytes) {
  return std::make_unique<PinnedDownload>(pinned_, from, bytes, queue().stream);
}

void CudaBackend::synchronize() {
  queue();
  stream_.synchronize();
}

}  // namespace halfgrad
