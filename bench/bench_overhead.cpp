// What an op costs beyond its kernel: chains of ops on tiny tensors, in nanoseconds per op.
//
//   bench_overhead [--threads N] [--only TEXT] [--csv FILE]
//
//   kernel     the seam alone, on views that exist already
//   NoGrad     the op while nothing is recorded: checks, a tensor for the result, the kernel
//   forward    the same while a graph is recorded, which is dropped at the end of the chain
//   kernels    those of forward and backward
//   backward   forward and then backward through the chain
//
// "blocks" are the tensors' pieces of memory that an op takes from the caching allocator, "new" its calls of operator
// new; both per op, forward without a graph and with backward.

#include <cstdlib>
#include <new>

#include "bench/table.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/elementwise_ops.h"
#include "engine/ops/matmul.h"

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

std::vector<Chain> chains(const Shape& shape, const std::string& shape_name) {
  Backend& backend = backend_for(Device::cpu());
  const Tensor x = randn(shape), b = randn(shape), y = randn(shape);
  // The views outlive x, b and y in the candidates; `kept` keeps their memory.
  const View vx = x.view_of_data(), vb = b.view_of_data(), vy = y.view_of_data();
  const Tensors kept = {x, b, y};
  using elementwise::BinaryOps, elementwise::UnaryOps;

  std::vector<Chain> result = {
      {"add", x, [b](const Tensor& t) { return add(t, b); },
       [=, &backend] { backend.binary(BinaryOps::position<elementwise::Add>(), f32, vy, vx, vb); }},
      {"mul", x, [b](const Tensor& t) { return mul(t, b); },
       [=, &backend] { backend.binary(BinaryOps::position<elementwise::Mul>(), f32, vy, vx, vb); },
       [=, &backend] { backend.binary_backward(BinaryOps::position<elementwise::Mul>(), vy, {}, vx, vx, vb, {}); }},
      {"relu", x, [](const Tensor& t) { return relu(t); },
       [=, &backend] { backend.unary(UnaryOps::position<elementwise::Relu>(), nullptr, f32, vy, vx); },
       [=, &backend] { backend.unary_backward(UnaryOps::position<elementwise::Relu>(), nullptr, vy, vb, {}, vx); }},
  };
  if (shape.size() == 2) {
    const auto batch_of_one = [](const Tensor& t) { return t.unsqueeze(0).view_of_data(); };
    const View mx = batch_of_one(x), mb = batch_of_one(b), my = batch_of_one(y), mt = batch_of_one(b.t());
    result.push_back({"matmul", x, [b](const Tensor& t) { return matmul(t, b); },
                      [=, &backend] { backend.gemm(my, mx, mb, {}, Activation::none); },
                      [=, &backend] { backend.gemm(my, mx, mt, {}, Activation::none); }});
  }
  for (Chain& chain : result) {
    chain.name += " " + shape_name;
    for (bench::Candidate* kernel : {&chain.forward_kernel, &chain.backward_kernel})
      *kernel = [kept, call = *kernel] {
        for (int i = 0; call && i < kLength; ++i) call();
      };
  }
  return result;
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
  bench::Table table({"chain, f32", "kernel ns", "NoGrad ns", "forward ns", "kernels ns", "backward ns", "blocks",
                      "new", "blocks backward", "new backward"},
                     options, 16);
  for (const auto& [shape, name] :
       std::vector<std::pair<Shape, std::string>>{{{1}, "1"}, {{16}, "16"}, {{4, 4}, "4x4"}})
    for (const Chain& chain : chains(shape, name)) {
      if (!options.wants(chain.name)) continue;
      const Tensor leaf = chain.x.clone().requires_grad_(), dy = randn(shape);
      const bench::Candidate without_graph = [&] { run(chain, chain.x); }, forward = [&] { run(chain, leaf); },
                             backward = [&] { grad(run(chain, leaf), {leaf}, dy); };
      const std::vector<double> seconds =
          bench::median_seconds({chain.forward_kernel, without_graph, forward, chain.backward_kernel, backward});
      const auto per_op = [](double time) { return number(1e9 * time / kLength, 0); };
      const Allocations few(without_graph), many(backward);
      table.add({chain.name, per_op(seconds[0]), per_op(seconds[1]), per_op(seconds[2]),
                 per_op(seconds[0] + seconds[3]), per_op(seconds[4]), number(few.blocks), number(few.calls),
                 number(many.blocks), number(many.calls)});
    }
}
