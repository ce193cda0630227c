#include "engine/cuda/cuda_backend.h"

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
    : index_(index), multiprocessors_(multiprocessors_of(index)), allocator_(index, stream_.get(), mode) {}

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

void CudaBackend::copy_from_host(void* to, const void* from, std::size_t bytes) {
  HALFGRAD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue().stream));
  stream_.synchronize();
}

void CudaBackend::copy_to_host(void* to, const void* from, std::size_t bytes) {
  HALFGRAD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue().stream));
  stream_.synchronize();
}

void CudaBackend::synchronize() {
  queue();
  stream_.synchronize();
}

}  // namespace halfgrad
