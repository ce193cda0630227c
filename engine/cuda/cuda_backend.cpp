#include "engine/cuda/cuda_backend.h"

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

cuda::Queue CudaBackend::queue() {
  cuda::use_device(index_);
  return {stream_.get(), multiprocessors_};
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
