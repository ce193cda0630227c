#include "engine/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>

#include "engine/cuda/blas.h"
#include "engine/cuda/dnn.h"
#include "engine/cuda/index.h"
#include "engine/cuda/random.h"
#include "engine/error.h"

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
      upload_allocator_(allocator_, upload_stream_.get()),
      bad_index_(allocator_, Device::cuda(index), sizeof(cuda::BadIndex)),
      random_base_(allocator_, Device::cuda(index), sizeof(cuda::RandomBase)) {
  HALFGRAD_CUDA(cudaMemsetAsync(bad_index_.data(), 0, bad_index_.bytes(), stream_.get()));
}

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
  check_not_capturing("brings host memory to the GPU");
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
  check_not_capturing("reads a result on the host");
  cuda::BadIndex bad;
  const cudaStream_t stream = queue().stream;
  HALFGRAD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  HALFGRAD_CUDA(cudaMemcpyAsync(&bad, bad_index_.data(), sizeof(bad), cudaMemcpyDeviceToHost, stream));
  stream_.synchronize();
  throw_for(bad);
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

// With the news whether an index was out of range.
class CheckedDownload final : public Download {
 public:
  using Check = std::function<void(const cuda::BadIndex&)>;
  CheckedDownload(std::unique_ptr<Download> data, std::unique_ptr<Download> bad_index, Check check)
      : data_(std::move(data)), bad_index_(std::move(bad_index)), check_(std::move(check)) {}
  bool is_there() override { return bad_index_->is_there(); }
  const void* wait() override {
    check_(*static_cast<const cuda::BadIndex*>(bad_index_->wait()));
    return data_->wait();
  }

 private:
  std::unique_ptr<Download> data_, bad_index_;
  Check check_;
};

}  // namespace

std::unique_ptr<Download> CudaBackend::download(const void* from, std::size_t bytes) {
  check_not_capturing("reads a result on the host");
  const cudaStream_t stream = queue().stream;
  const auto start = [&](const void* source, std::size_t n) {
    return std::make_unique<PinnedDownload>(pinned_, source, n, stream);
  };
  return std::make_unique<CheckedDownload>(start(from, bytes), start(bad_index_.data(), sizeof(cuda::BadIndex)),
                                           [this](const cuda::BadIndex& bad) { throw_for(bad); });
}

void CudaBackend::check_not_capturing(const char* what) const {
  check(!capturing_,
        "capture: the work {}, which a CUDA graph cannot hold; do that outside of the captured step, or do not capture",
        what);
}

void CudaBackend::synchronize() {
  cuda::BadIndex bad;
  copy_to_host(&bad, bad_index_.data(), sizeof(bad));
}

}  // namespace halfgrad
