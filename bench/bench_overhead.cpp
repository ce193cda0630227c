// What an op costs beyond its kernel: chains of ops on tiny tensors, in nanoseconds per op.
//
//   bench_overhead [--threads N] [--only TEXT] [--csv FILE]
//
//   kernel     the seam alone, on views that exist already
//   NoGrad     the op while nothing is recorded: checks, a tensor for the result, the kernel
//   forward    the same while a graph is recorded, which is dropped at the end of the chain
//   kernels    those of forward and backward
//   backward   forward and then backward through the chain
//   beyond     backward - kernels: what the op itself costs, forward and its share of backward
//
// Layers (linear, conv2d, batch_norm) make the gradients of their parameters, too.
//
// "blocks" are the tensors' pieces of memory that an op takes from the caching allocator, "new" its calls of operator
// new; both per op, forward without a graph and with backward.

#include <cstdlib>
#include <new>

#include "bench/table.h"
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/elementwise_ops.h"
#include "engine/ops/matmul.h"
#include "engine/ops/norm.h"

using namespace halfgrad;
using bench::number;

namespace {
thread_local std::uint64_t calls_of_new = 0;
}

// Not inlined, since gcc warns of a new from here that meets a delete from there.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++calls_of_new;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace {

constexpr int kLength = 100;  // ops of a chain

struct Chain {
  std::string name;
  Tensor x;  // what the chain begins with
  std::function<Tensor(const Tensor&)> op;
  bench::Candidate forward_kernel;        // one call
  bench::Candidate backward_kernel = {};  // one call; empty: the gradient needs none
};

/// The result of the whole chain.
Tensor run(const Chain& chain, Tensor y) {
  for (int i = 0; i < kLength; ++i) y = chain.op(y);
  return y;
}

// `once` calls the seam once; a candidate calls it for a whole chain. `kept` keeps the memory of its views.
bench::Candidate for_chain(Tensors kept, std::function<void()> once) {
  return [kept = std::move(kept), once = std::move(once)] {
    for (int i = 0; i < kLength; ++i) once();
  };
}

void add_elementwise(std::vector<Chain>& chains, const Shape& shape) {
  using elementwise::BinaryOps, elementwise::UnaryOps, elementwise::Add, elementwise::Mul, elementwise::Relu;
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn(shape), b = randn(shape), y = randn(shape);
  const View vx = x.view_of_data(), vb = b.view_of_data(), vy = y.view_of_data();
  const Tensors kept = {x, b, y};
  std::string name = shape.empty() ? "" : std::to_string(shape[0]);
  for (std::size_t d = 1; d < shape.size(); ++d) name += "x" + std::to_string(shape[d]);

  chains.push_back({"add " + name, x, [b](const Tensor& t) { return add(t, b); },
                    for_chain(kept, [=, &backend] { backend.binary(BinaryOps::position<Add>(), f32, vy, vx, vb); })});
  chains.push_back({"mul " + name, x, [b](const Tensor& t) { return mul(t, b); },
                    for_chain(kept, [=, &backend] { backend.binary(BinaryOps::position<Mul>(), f32, vy, vx, vb); }),
                    for_chain(kept, [=, &backend] {
                      backend.binary_backward(BinaryOps::position<Mul>(), vy, {}, vx, vx, vb, {});
                    })});
  chains.push_back({"relu " + name, x, [](const Tensor& t) { return relu(t); },
                    for_chain(kept, [=, &backend] { backend.unary(UnaryOps::position<Relu>(), nullptr, f32, vy, vx); }),
                    for_chain(kept, [=, &backend] {
                      backend.unary_backward(UnaryOps::position<Relu>(), nullptr, vy, vb, {}, vx);
                    })});
}

View batch_of_one(const Tensor& matrix) { return matrix.unsqueeze(0).view_of_data(); }

void add_matmul(std::vector<Chain>& chains) {
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn({4, 4}), b = randn({4, 4}), y = randn({4, 4});
  const View vx = batch_of_one(x), vb = batch_of_one(b), vy = batch_of_one(y), transposed = batch_of_one(b.t());
  chains.push_back({"matmul 4x4", x, [b](const Tensor& t) { return matmul(t, b); },
                    for_chain({x, b, y}, [=, &backend] { backend.gemm(vy, vx, vb, {}, Activation::none); }),
                    for_chain({x, b, y}, [=, &backend] { backend.gemm(vy, vx, transposed, {}, Activation::none); })});
}

void add_linear(std::vector<Chain>& chains) {
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn({4, 4}), y = randn({4, 4}), weight = randn({4, 4}).requires_grad_(),
               bias = randn({4}).requires_grad_(), dweight = randn({4, 4}), dbias = randn({1, 4});
  const View vx = batch_of_one(x), vy = batch_of_one(y), w = batch_of_one(weight), wt = batch_of_one(weight.t()),
             dy = batch_of_one(y.t()), dw = batch_of_one(dweight);
  const Tensors kept = {x, y, weight, bias, dweight, dbias};
  chains.push_back({"linear 4x4", x, [=](const Tensor& t) { return linear(t, weight, bias); },
                    for_chain(kept, [=, &backend] { backend.gemm(vy, vx, wt, bias.view_of_data(), Activation::none); }),
                    for_chain(kept, [=, &backend] {
                      backend.gemm(vy, vx, w, {}, Activation::none);
                      backend.gemm(dw, dy, vx, {}, Activation::none);
                      backend.reduce(ReduceOp::sum, dbias.view_of_data(), y.view_of_data());
                    })});
}

void add_conv2d(std::vector<Chain>& chains) {
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn({2, 4, 4, 4}).channels_last(), y = x.clone(), weight = randn({4, 4, 3, 3}).requires_grad_(),
               dweight = randn({4, 4, 3, 3});
  const View vx = x.view_of_data(), vy = y.view_of_data(), w = weight.view_of_data(), dw = dweight.view_of_data();
  const Tensors kept = {x, y, weight, dweight};
  const Conv2dGeometry geometry = {.padding = {1, 1}};
  chains.push_back({"conv2d 2x4x4x4", x, [=](const Tensor& t) { return conv2d(t, weight, {}, {.padding = 1}); },
                    for_chain(kept, [=, &backend] { backend.conv2d(vy, vx, w, {}, geometry, Activation::none); }),
                    for_chain(kept, [=, &backend] {
                      backend.conv2d_backward_input(vy, vx, w, {}, geometry);
                      backend.conv2d_backward_weight(dw, vx, vy, geometry);
                    })});
}

// `running`: the statistics are averaged over the batches, which is a dozen ops on them without a graph.
void add_batch_norm(std::vector<Chain>& chains, bool running) {
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn({4, 4, 8}), y = randn({4, 4, 8}), weight = randn({4}).requires_grad_(),
               bias = randn({4}).requires_grad_(), mean = zeros({4}), rstd = ones({4});
  const Tensor running_mean = running ? zeros({4}) : Tensor(), running_var = running ? ones({4}) : Tensor();
  const View vx = x.view_of_data(), vy = y.view_of_data(), w = weight.view_of_data(), b = bias.view_of_data(),
             m = mean.view_of_data(), r = rstd.view_of_data();
  const Tensors kept = {x, y, weight, bias, mean, rstd};
  constexpr double eps = 1e-5;
  chains.push_back(
      {running ? "batch_norm running" : "batch_norm 4x4x8", x,
       [=](const Tensor& t) { return batch_norm(t, weight, bias, running_mean, running_var, true, 0.1, eps); },
       for_chain(kept, [=, &backend] { backend.batch_norm(vy, m, r, vx, w, b, eps, Activation::none); }),
       for_chain(kept, [=, &backend] {
         backend.batch_norm_backward(vy, m, r, vx, vx, m, r, w, b, true, Activation::none);
       })});
}

std::vector<Chain> all_chains() {
  std::vector<Chain> chains;
  for (const Shape& shape : {Shape{1}, Shape{16}, Shape{4, 4}}) add_elementwise(chains, shape);
  add_matmul(chains);
  add_linear(chains);
  add_conv2d(chains);
  add_batch_norm(chains, false);
  add_batch_norm(chains, true);
  return chains;
}

/// How often one op of the chain `f` asks for memory.
struct Allocations {
  double blocks, calls;

  explicit Allocations(const bench::Candidate& f) {
    f();  // what is allocated once only
    const std::uint64_t blocks_before = memory_stats().requests, calls_before = calls_of_new;
    f();
    calls = static_cast<double>(calls_of_new - calls_before) / kLength;
    blocks = static_cast<double>(memory_stats().requests - blocks_before) / kLength;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "What an op costs beyond its kernel.");
  bench::print_machine();
  bench::Table table({"chain, f32", "kernel ns", "NoGrad ns", "forward ns", "kernels ns", "backward ns", "beyond ns",
                      "blocks", "new", "blocks backward", "new backward"},
                     options, 18);
  for (const Chain& chain : all_chains()) {
    if (!options.wants(chain.name)) continue;
    const Tensor leaf = chain.x.clone().requires_grad_(), dy = randn_like(chain.x);
    const bench::Candidate without_graph = [&] {
      const NoGrad guard;
      run(chain, chain.x);
    };
    const bench::Candidate forward = [&] { run(chain, leaf); }, backward = [&] { grad(run(chain, leaf), {leaf}, dy); };
    std::vector<double> seconds =
        bench::median_seconds({chain.forward_kernel, without_graph, forward, chain.backward_kernel, backward});
    if (!chain.backward_kernel) seconds[3] = 0;
    const auto per_op = [](double time) { return number(1e9 * time / kLength, 0); };
    const double kernels = seconds[0] + seconds[3];
    const Allocations few(without_graph), many(backward);
    table.add({chain.name, per_op(seconds[0]), per_op(seconds[1]), per_op(seconds[2]), per_op(kernels),
               per_op(seconds[4]), per_op(seconds[4] - kernels), number(few.blocks), number(few.calls),
               number(many.blocks), number(many.calls)});
  }
}
