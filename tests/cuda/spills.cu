// A kernel that needs more registers than a block of 1024 threads leaves it, so that some spill to memory. For spills.sh.

namespace {

constexpr int kNumbers = 64;

__global__ void __launch_bounds__(1024, 2) products(const float* x, float* y) {
  float v[kNumbers];
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) v[i] = x[kNumbers * threadIdx.x + i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) y[kNumbers * threadIdx.x + i] = v[i] * v[(7 * i + 3) % kNumbers];
}

}  // namespace

void run_products(const float* x, float* y) { products<<<1, 1024>>>(x, y); }
