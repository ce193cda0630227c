#pragma once
// The seam: what a device must be able to do. One abstract class; engine/cpu/ and engine/cuda/ implement it.
//
// Nothing below this line knows autograd, allocates result tensors or infers shapes: the op above has checked shapes,
// dtypes and devices, has allocated the outputs, and hands over views. A kernel never fails except for lack of
// scratch memory.
//
// Arithmetic: f16 operands are widened to f32, computed, and rounded once on the way out; sums of f16 and f32 are
// accumulated in f32 (or better), sums of integers in i64.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/activation.h"
#include "engine/device.h"
#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/step_control.h"
#include "engine/storage.h"

namespace halfgrad {

/// Raw strided memory: element (i, j, ...) is at data + (i*strides[0] + j*strides[1] + ...) elements. Strides may be 0.
/// `data == nullptr` marks an operand that is absent. `device` is where the memory is. It is that of the backend, except
/// that a literal (a number that was written where a tensor is expected) stays in host memory: one element, read through
/// strides of 0.
struct View {
  void* data = nullptr;
  DType dtype = f32;
  Shape shape;
  Strides strides;
  Device device = Device::cpu();

  explicit operator bool() const { return data != nullptr; }
  std::int64_t numel() const { return shape.numel(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  /// The element `offset` elements from the first.
  void* at(std::int64_t offset) const {
    return static_cast<char*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
  }
};

enum class ReduceOp : int { sum, prod, max, min, any, all };
enum class Extremum : int { max, min };
enum class Distribution : int { uniform, normal, bernoulli };

/// Geometry of a 2-d convolution, as in torch.nn.Conv2d; [0] is for rows (height), [1] for columns (width).
struct Conv2dGeometry {
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {0, 0};
  std::int64_t dilation[2] = {1, 1};
  std::int64_t groups = 1;
};

/// Geometry of a pooling window. For average pooling count_include_pad says whether padding counts in the divisor.
struct PoolGeometry {
  std::int64_t kernel[2] = {1, 1};
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {0, 0};
  std::int64_t dilation[2] = {1, 1};
  bool count_include_pad = true;
  bool adaptive = false;  ///< average windows [floor(i*in/out), ceil((i+1)*in/out)); kernel, stride and padding unused
};

/// How cross entropy weighs the classes, as in torch.nn.CrossEntropyLoss.
struct CrossEntropyTerms {
  View weight;                       ///< [C], dense, of compute_dtype(x.dtype); or absent
  double label_smoothing = 0;        ///< in [0, 1]
  std::int64_t ignore_index = -100;  ///< the target of positions that count for nothing
};

/// One optimizer update of one parameter. All views are dense and of equal numel, in the same element order.
/// The gradient is read in its own dtype and multiplied by its group's grad_scale in f32; the update is applied to `master`
/// and the rounded result written to `param`. When the parameter is its own master (f32, f64, or an f16 parameter that is
/// trained without one), `master` and `param` are the same memory. State is f64 for an f64 master, else f32.
struct OptimizerStep {
  View param;   ///< the model's parameter, f16, f32 or f64
  View master;  ///< f32, or param itself
  View grad;    ///< any float dtype
  View state[2];
  int group = 0;                    ///< which GroupControl holds its hyperparameters
  const std::int64_t* steps = {};   ///< in this device's memory: the number of this step, from 1; decide_step counts
  std::int64_t state_made_at = -1;  ///< the steps before there was state: the next one finds zeros in it
};

/// A gradient and its parameter's group.
struct GroupedGrad {
  View grad;  ///< dense, any float dtype
  int group = 0;
};

/// Work that a GPU was told once and does again and again, as one CUDA graph: see Backend::capture.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Puts all of it into the queue. Random numbers are those of this seed, from this counter on.
  virtual void replay(std::uint64_t seed, std::uint64_t offset) = 0;
};

/// A copy on its way from a device to the host.
class Download {
 public:
  virtual ~Download() = default;
  virtual bool is_there() = 0;
  /// The bytes; waits until they are there.
  virtual const void* wait() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual Allocator& allocator() = 0;

  // --- transfers of `bytes` bytes between this device's memory and the host's ------------------------------------------
  /// When the call returns `from` may change, and whatever is asked for later sees the bytes.
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  /// The bytes have arrived when the call returns.
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  /// The same without waiting. `from` may change as soon as the call returns.
  virtual std::unique_ptr<Download> download(const void* from, std::size_t bytes) = 0;
  /// For tensors that copy_from_host() fills: on a GPU the copy runs beside the work that was asked for before.
  virtual Allocator& upload_allocator() { return allocator(); }

  // --- elementwise: every view already has the output's shape (stride 0 where broadcast) -----------------------------
  // `op` is a position in UnaryOps / BinaryOps of engine/ops/elementwise_ops.h, `params` the op's constants; arithmetic
  // is done in `compute` (f32, f64 or i64).
  virtual void unary(int op, const double* params, DType compute, const View& y, const View& x) = 0;
  /// dx = gradient of unary; x or y is absent when the op does not need it.
  virtual void unary_backward(int op, const double* params, const View& dx, const View& dy, const View& x,
                              const View& y) = 0;
  virtual void binary(int op, DType compute, const View& y, const View& a, const View& b) = 0;
  /// da and db (either may be absent) in the output's shape; a, b, y are absent when the op does not need them.
  virtual void binary_backward(int op, const View& da, const View& db, const View& dy, const View& a, const View& b,
                               const View& y) = 0;
  /// y = condition ? a : b
  virtual void select(const View& y, const View& condition, const View& a, const View& b) = 0;
  /// Copies with conversion: one rounding, from src's dtype to dst's. Floats become integers by truncation, saturating
  /// (NaN becomes 0); anything becomes bool as `!= 0`.
  virtual void copy(const View& dst, const View& src) = 0;

  // --- reductions: y has x's rank, with size 1 where reduced --------------------------------------------------------
  /// y = scale * reduce(x). NaN wins max and min. `any` and `all` write bool.
  virtual void reduce(ReduceOp op, const View& y, const View& x, double scale = 1) = 0;
  /// y (i64, size 1 along dim) = position of the first extremum of x along dim; a NaN counts as the extremum.
  virtual void arg_reduce(Extremum op, const View& y, const View& x, int dim) = 0;
  virtual void cumsum(const View& y, const View& x, int dim, bool reverse) = 0;

  // --- linear algebra ------------------------------------------------------------------------------------------------
  /// c[b] = activation(a[b] x b[b] + bias): a [B, M, K], b [B, K, N], c [B, M, N], bias [N] or absent; any strides.
  /// a, b, c and bias share a float dtype.
  virtual void gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation) = 0;
  /// y = activation(convolution + bias): x [N, C, H, W], w [O, C/groups, R, S], y [N, O, OH, OW], bias [O] or absent; any
  /// strides.
  virtual void conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry&,
                      Activation activation) = 0;
  /// Adds bias [C], or nothing when absent, before dx is rounded: this is the transposed convolution, too.
  virtual void conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias,
                                     const Conv2dGeometry&) = 0;
  virtual void conv2d_backward_weight(const View& dw, const View& x, const View& dy, const Conv2dGeometry&) = 0;

  // --- pooling: x [N, C, H, W], y [N, C, OH, OW] ---------------------------------------------------------------------
  /// index (i32, y's shape): position h*W + w of each maximum in its plane, the first on a tie; a NaN wins.
  /// May be absent.
  virtual void max_pool2d(const View& y, const View& index, const View& x, const PoolGeometry&) = 0;
  virtual void max_pool2d_backward(const View& dx, const View& dy, const View& index) = 0;
  virtual void avg_pool2d(const View& y, const View& x, const PoolGeometry&) = 0;
  virtual void avg_pool2d_backward(const View& dx, const View& dy, const PoolGeometry&) = 0;

  // --- normalisation -------------------------------------------------------------------------------------------------
  /// x, y [N, C, S] (S: all other positions); mean, rstd [C] f32 (f64 for f64 x); weight, bias [C] or absent.
  /// Writes mean and rstd = 1/sqrt(biased variance + eps) of the batch, and y.
  virtual void batch_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                          const View& bias, double eps, Activation activation) = 0;
  /// y = activation((x - mean) * rstd * weight + bias) with given statistics (evaluation).
  virtual void normalize_channels(const View& y, const View& x, const View& mean, const View& rstd, const View& weight,
                                  const View& bias, Activation activation) = 0;
  /// dx, dweight [C], dbias [C] (each may be absent). `training`: mean and rstd depended on x. With relu, dy counts as 0
  /// where the result was not positive: that is computed once more, so that nobody has to keep it. bias: only for that.
  virtual void batch_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                   const View& x, const View& mean, const View& rstd, const View& weight,
                                   const View& bias, bool training, Activation activation) = 0;
  /// x, y [R, C] normalised along C; mean, rstd [R] f32 (f64 for f64 x); weight, bias [C] or absent.
  virtual void layer_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                          const View& bias, double eps) = 0;
  virtual void layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                   const View& x, const View& mean, const View& rstd, const View& weight) = 0;

  // --- softmax along dim; log: log_softmax ---------------------------------------------------------------------------
  virtual void softmax(const View& y, const View& x, int dim, bool log) = 0;
  virtual void softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) = 0;

  // --- cross entropy along dimension 1 of x [N, C, *], C > 0, with class indices: target (i64) is ignore_index or in [0, C);
  // a GPU reports others as check_index does. Numbers of positions are [N, *], in compute_dtype(x.dtype), and share their
  // strides ---------------------------------------------------------------------------------------------------------------
  /// With log_p = x - most - log_sum, the log_softmax of x, and weight 1 where it is absent:
  /// loss = -(1 - smoothing) * weight[target] * log_p[target] - smoothing/C * sum of weight * log_p over all classes,
  /// share = weight[target]; both 0 where the target is ignored. share, most and log_sum may be absent, the last two together.
  virtual void cross_entropy(const View& loss, const View& share, const View& most, const View& log_sum, const View& x,
                             const View& target, const CrossEntropyTerms&) = 0;
  /// dx = the gradient of the sum of loss * dy / divisor: dy [N, *] of x's dtype, any strides; divisor: one number of
  /// compute_dtype(x.dtype), or absent. dx = 0 where the target is ignored.
  virtual void cross_entropy_backward(const View& dx, const View& dy, const View& divisor, const View& most,
                                      const View& log_sum, const View& x, const View& target,
                                      const CrossEntropyTerms&) = 0;

  // --- indexing: index is i64 and within range; sums are never f16 (the op makes them in f32 and rounds once) --------
  /// y[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on; y and index share a shape.
  virtual void gather(const View& y, const View& x, const View& index, int dim) = 0;
  /// y[index[i][j][k]][j][k] += src[i][j][k] for dim 0, in a fixed order.
  virtual void scatter_add(const View& y, const View& index, const View& src, int dim) = 0;
  /// y[..., i, ...] = x[..., index[i], ...]; index is 1-d.
  virtual void index_select(const View& y, const View& x, const View& index, int dim) = 0;
  /// y[..., index[i], ...] += src[..., i, ...], in a fixed order.
  virtual void index_add(const View& y, const View& index, const View& src, int dim) = 0;

  // --- random numbers: element i (row-major) uses Philox counter offset + i/4, lane i%4 ------------------------------
  /// uniform in [a, b), normal with mean a and deviation b, bernoulli: 1 with probability a.
  virtual void random(Distribution kind, const View& y, double a, double b, std::uint64_t seed,
                      std::uint64_t offset) = 0;
  /// y = x / (1 - p) where the bernoulli number of probability 1 - p is 1, else x * 0. Rounded once; y may be x.
  virtual void dropout(const View& y, const View& x, double p, std::uint64_t seed, std::uint64_t offset) = 0;

  // --- optimizers: see step_control.h. GroupControl, GradStats, LossScaler, the loss and the step counts are in this
  // device's memory -----------------------------------------------------------------------------------------------------
  /// Writes the statistics of all groups; zeros for a group that has no gradient.
  virtual void grad_stats(GradStats* stats, std::int64_t groups, std::span<const GroupedGrad> grads) = 0;
  /// decide(), and then counts the step for the parameters whose counts are given, unless it is skipped.
  virtual void decide_step(GroupControl* control, std::int64_t groups, const GradStats* stats, LossScaler* scaler,
                           const StepRule& rule, const double* loss, std::span<std::int64_t* const> steps) = 0;
  // One pass over the parameters whose group takes the step. The first state is absent when no group has momentum (SGD),
  // the second likewise (RMSprop).
  virtual void sgd_step(std::span<const OptimizerStep> steps, const GroupControl* control, double dampening,
                        bool nesterov) = 0;
  /// decoupled: AdamW.
  virtual void adam_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps,
                         bool decoupled) = 0;
  virtual void rmsprop_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps) = 0;

  /// Records what `work` asks of this device, without doing it. `work` must not wait for the device, nor bring host memory
  /// to it; tensors that it makes keep their memory for the replays. It may read tensors from outside, which must live as
  /// long as the result. `offset` is where the generator of random numbers stands: what is drawn from there on is drawn anew
  /// by each replay, so a gradient that needs it is part of `work`, too. Error on a device that has no graphs.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work, std::uint64_t offset) = 0;

  /// out = index (i32 or i64) as i64, dense and row-major, every number in [0, size). Error for one that is not, with the
  /// name of the op; a GPU reports it when somebody waits for its results, and writes 0 in its place.
  virtual void check_index(const char* op, const View& out, const View& index, std::int64_t size) = 0;

  /// Waits until everything asked for so far is done (a no-op on a CPU).
  virtual void synchronize() = 0;
};

/// The backend of a device; throws Error when the device is not there.
Backend& backend_for(Device device);

}  // namespace halfgrad
