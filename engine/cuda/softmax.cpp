// Softmax, log_softmax and cross entropy on the GPU.

#include "engine/cuda/softmax.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/line_plan.h"

namespace halfgrad {

namespace {

constexpr std::uint64_t kAlongClasses = 0b10;

// [N, *] as [N, 1, *]
View with_one_class(View x) {
  x.shape.insert(1, 1);
  x.strides.insert(1, 0);
  return x;
}

// What lies in x where `part` lies in `whole`; null when x is absent.
void* in_place_of(const void* part, const View& whole, const View& x) {
  return x ? x.as<char>() + (static_cast<const char*>(part) - whole.as<char>()) : nullptr;
}

cuda::CrossEntropy cross_entropy_with(const CrossEntropyTerms& terms) {
  cuda::CrossEntropy o;
  o.weight = cuda::vector_of(terms.weight);
  o.smoothing = terms.label_smoothing;
  o.ignore_index = terms.ignore_index;
  return o;
}

}  // namespace

void CudaBackend::softmax(const View& y, const View& x, int dim, bool log) {
  for (const cuda::Lines& lines : cuda::LinePlan({&x, &y}, std::uint64_t{1} << dim).whole_lines("softmax"))
    cuda::softmax(compute_dtype(x.dtype), log, lines, queue());
}

void CudaBackend::softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) {
  for (const cuda::Lines& lines : cuda::LinePlan({&y, &dy, &dx}, std::uint64_t{1} << dim).whole_lines("softmax"))
    cuda::softmax_backward(compute_dtype(y.dtype), log, lines, queue());
}

void CudaBackend::cross_entropy(const View& loss, const View& share, const View& most, const View& log_sum,
                                const View& x, const View& target, const CrossEntropyTerms& terms) {
  const View t = with_one_class(target), l = with_one_class(loss);
  cuda::CrossEntropy o = cross_entropy_with(terms);
  o.bad = static_cast<cuda::BadIndex*>(bad_index_.data());
  o.note.op = reinterpret_cast<std::uint64_t>("cross_entropy");
  for (const cuda::Lines& lines : cuda::LinePlan({&x, &t, &l}, kAlongClasses).whole_lines("cross_entropy")) {
    const void* const part = lines.at[2].data;
    o.share = in_place_of(part, loss, share);
    o.most = in_place_of(part, loss, most);
    o.log_sum = in_place_of(part, loss, log_sum);
    o.note.element =
        (static_cast<const char*>(part) - loss.as<char>()) / static_cast<std::int64_t>(size_of(loss.dtype));
    cuda::cross_entropy(loss.dtype, lines, o, queue());
  }
}

void CudaBackend::cross_entropy_backward(const View& dx, const View& dy, const View& divisor, const View& most,
                                         const View& log_sum, const View& x, const View& target,
                                         const CrossEntropyTerms& terms) {
  const View t = with_one_class(target), d = with_one_class(dy), m = with_one_class(most);
  cuda::CrossEntropy o = cross_entropy_with(terms);
  o.divisor = divisor.data;
  for (const cuda::Lines& lines : cuda::LinePlan({&x, &t, &dx, &d, &m}, kAlongClasses).whole_lines("cross_entropy")) {
    o.log_sum = in_place_of(lines.at[4].data, most, log_sum);
    cuda::cross_entropy_backward(most.dtype, lines, o, queue());
  }
}

}  // namespace halfgrad
