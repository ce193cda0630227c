// Softmax and log_softmax on the GPU.

#include "engine/cuda/softmax.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/line_plan.h"

namespace halfgrad {

void CudaBackend::softmax(const View& y, const View& x, int dim, bool log) {
  for (const cuda::Lines& lines : cuda::LinePlan({&x, &y}, std::uint64_t{1} << dim).whole_lines("softmax"))
    cuda::softmax(compute_dtype(x.dtype), log, lines, queue());
}

void CudaBackend::softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) {
  for (const cuda::Lines& lines : cuda::LinePlan({&y, &dy, &dx}, std::uint64_t{1} << dim).whole_lines("softmax"))
    cuda::softmax_backward(compute_dtype(y.dtype), log, lines, queue());
}

}  // namespace halfgrad
