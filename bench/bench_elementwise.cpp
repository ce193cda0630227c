// Memory-bound ops in microseconds and GB/s, in f32 and f16, with their share of the speed of a plain copy that moves
// as many bytes; and Eigen in f32, on one thread, where it has the op.
//
//   bench_elementwise [--threads N] [--only TEXT] [--csv FILE]
//
// Bytes are those that an op cannot do without: each operand read once, each result written once. Results are new
// tensors each time, as in training, and a backward op is called through the graph.

#include <Eigen/Core>
#include <map>

#include "bench/peers.h"
#include "bench/table.h"
#include "engine/ops/dropout.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "engine/ops/reduce.h"
#include "engine/ops/softmax.h"

using namespace halfgrad;
using bench::number;

namespace {

/// What is worked on: a matrix [rows, columns], and images [N, C, H, W] with as many elements.
struct Size {
  const char* name;
  std::int64_t rows, columns;
  Shape images;
};
const std::vector<Size> kSizes = {{"32 K", 64, 512, {8, 64, 8, 8}}, {"1 M", 1024, 1024, {64, 64, 16, 16}}};

struct Op {
  std::string name;
  double bytes;
  bench::Candidate run;
};

double bytes(const Tensors& tensors) {
  double total = 0;
  for (const Tensor& x : tensors) total += static_cast<double>(x.numel()) * static_cast<double>(size_of(x.dtype()));
  return total;
}

/// Computes the gradients of `inputs` from that of y.
bench::Candidate backward(const Tensor& y, const Tensors& inputs) {
  return [y, inputs, dy = randn_like(y.detach())] { grad(y, inputs, dy, /*retain_graph=*/true); };
}

std::vector<Op> ops(const Size& size, DType dtype) {
  const DType other = dtype == f32 ? f16 : f32;
  const auto parameter = [](std::int64_t n) { return rand({n}).requires_grad_(); };
  const Tensor a = randn({size.rows, size.columns}, dtype), b = randn_like(a), leaf = randn_like(a).requires_grad_();
  const Tensor row = randn({size.columns}, dtype), column = randn({size.rows, 1}, dtype);
  const Tensor target = randint(0, size.columns, {size.rows});
  const Tensor of_ten = randn({size.rows, 10}, dtype).requires_grad_(), digit = randint(0, 10, {size.rows});
  const Tensor gamma = parameter(size.columns), beta = parameter(size.columns);

  const std::int64_t channels = size.images[1];
  const Shape all_but_channels = {0, 2, 3};
  const Tensor images = randn(size.images, dtype).channels_last();
  const Tensor image_leaf = images.clone().requires_grad_();
  const Tensor of_channel = randn({1, channels, 1, 1}, dtype);
  const Tensor weight = parameter(channels), bias = parameter(channels);
  const Tensor mean = zeros({channels}), variance = ones({channels});
  const auto normalize = [=](const Tensor& x, const Tensor& w, const Tensor& b, Activation activation) {
    return batch_norm(x, w, b, mean, variance, true, 0.1, 1e-5, activation);
  };
  const Tensor normalized = normalize(image_leaf, weight, bias, Activation::none);
  const Tensor activated = normalize(image_leaf, weight, bias, Activation::relu);
  const Tensor pooled = max_pool2d(image_leaf, 2);

  return {
      {"add", bytes({a, b, a}), [=] { add(a, b); }},
      {"multiply by a number", bytes({a, a}), [=] { mul(a, 0.5); }},
      {"add to each row", bytes({a, a}), [=] { add(a, row); }},
      {"add to each column", bytes({a, a}), [=] { add(a, column); }},
      {"add to each channel", bytes({images, images}), [=] { add(images, of_channel); }},
      {"convert to other", bytes({a}) + bytes({a.to(other)}), [=] { cast(a, other); }},
      {"relu", bytes({a, a}), [=] { relu(a); }},
      {"relu backward", bytes({a, a, a}), backward(relu(leaf), {leaf})},
      {"gelu", bytes({a, a}), [=] { gelu(a); }},
      {"gelu backward", bytes({a, a, a}), backward(gelu(leaf), {leaf})},
      {"exp", bytes({a, a}), [=] { exp(a); }},
      {"tanh", bytes({a, a}), [=] { tanh(a); }},
      {"sigmoid", bytes({a, a}), [=] { sigmoid(a); }},
      {"sum of all", bytes({a}), [=] { sum(a); }},
      {"sum of each row", bytes({a}), [=] { sum(a, {1}); }},
      {"sum of each column", bytes({a}), [=] { sum(a, {0}); }},
      {"sum of each channel", bytes({images}), [=] { sum(images, all_but_channels); }},
      {"softmax", bytes({a, a}), [=] { softmax(a, 1); }},
      {"softmax backward", bytes({a, a, a}), backward(softmax(leaf, 1), {leaf})},
      {"cross_entropy and backward", bytes({a, a, a}), [=] { grad(cross_entropy(leaf, target), {leaf}); }},
      {fmt::format("cross_entropy {} and backward", of_ten.shape()), bytes({of_ten, of_ten, of_ten}),
       [=] { grad(cross_entropy(of_ten, digit), {of_ten}); }},
      {"layer_norm", bytes({a, a}), [=] { layer_norm(a, {size.columns}, gamma.detach(), beta.detach()); }},
      {"layer_norm backward", bytes({a, a, a}),
       backward(layer_norm(leaf, {size.columns}, gamma, beta), {leaf, gamma, beta})},
      {"batch_norm", bytes({images, images}),
       [=] { normalize(images, weight.detach(), bias.detach(), Activation::none); }},
      {"batch_norm backward", bytes({images, images, images}), backward(normalized, {image_leaf, weight, bias})},
      {"batch_norm, relu", bytes({images, images}),
       [=] { normalize(images, weight.detach(), bias.detach(), Activation::relu); }},
      {"batch_norm, relu backward", bytes({images, images, images}), backward(activated, {image_leaf, weight, bias})},
      {"dropout", bytes({a, a}), [=] { dropout(a); }},
      {"dropout and backward", bytes({a, a, a, a}), [=] { grad(dropout(leaf), {leaf}, b); }},
      {"max_pool 2x2", bytes({images, pooled}), [=] { max_pool2d(images, 2); }},
      {"max_pool 2x2 backward", bytes({images, pooled}), backward(pooled, {image_leaf})},
  };
}

/// What of the above Eigen has, by name.
std::map<std::string, bench::Candidate> eigen_ops(const Size& size) {
  using Array = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Halves = Eigen::Array<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  struct Memory {
    Array a, b, y, images, pixels;  // a pixel in each row of the last two
    Eigen::ArrayXf row, column, channel, sum_of_row, sum_of_column, sum_of_channel;
    float sum;
    Halves halves;
  };
  const auto m = std::make_shared<Memory>();
  m->a = m->b = m->y = Array::Random(size.rows, size.columns);
  m->images = Array::Random(size.images.numel() / size.images[1], size.images[1]);
  m->row = Eigen::ArrayXf::Random(size.columns);
  m->column = Eigen::ArrayXf::Random(size.rows);
  m->channel = Eigen::ArrayXf::Random(size.images[1]);
  return {
      {"add", [=] { m->y = m->a + m->b; }},
      {"multiply by a number", [=] { m->y = m->a * 0.5F; }},
      {"add to each row", [=] { m->y = m->a.rowwise() + m->row.transpose(); }},
      {"add to each column", [=] { m->y = m->a.colwise() + m->column; }},
      {"add to each channel", [=] { m->pixels = m->images.rowwise() + m->channel.transpose(); }},
      {"convert to other", [=] { m->halves = m->a.cast<Eigen::half>(); }},
      {"relu", [=] { m->y = m->a.max(0.0F); }},
      {"relu backward", [=] { m->y = (m->a > 0.0F).select(m->b, 0.0F); }},
      {"exp", [=] { m->y = m->a.exp(); }},
      {"tanh", [=] { m->y = m->a.tanh(); }},
      {"sigmoid", [=] { m->y = m->a.logistic(); }},
      {"sum of all", [=] { m->sum = m->a.sum(); }},
      {"sum of each row", [=] { m->sum_of_row = m->a.rowwise().sum(); }},
      {"sum of each column", [=] { m->sum_of_column = m->a.colwise().sum().transpose(); }},
      {"sum of each channel", [=] { m->sum_of_channel = m->images.colwise().sum().transpose(); }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "Memory-bound ops.");
  bench::print_machine();
  bench::Table table({"op", "numbers", "f32 us", "f32 GB/s", "f32/copy", "Eigen us", "f32/Eigen", "f16 us", "f16 GB/s",
                      "f16/copy", "f16/f32"},
                     options, 28);
  for (const Size& size : kSizes) {
    const std::vector<Op> singles = ops(size, f32), halves = ops(size, f16);
    const std::map<std::string, bench::Candidate> eigen = eigen_ops(size);
    for (std::size_t i = 0; i < singles.size(); ++i) {
      const Op &single = singles[i], &half = halves[i];
      if (!options.wants(single.name)) continue;
      const auto peer = eigen.find(single.name);
      const std::vector<double> seconds = bench::median_seconds(
          {single.run, bench::peers::copy(single.bytes), peer == eigen.end() ? bench::Candidate() : peer->second,
           half.run, bench::peers::copy(half.bytes)});
      table.add({single.name, size.name, number(1e6 * seconds[0]), number(1e-9 * single.bytes / seconds[0]),
                 bench::percent(seconds[1] / seconds[0]), number(1e6 * seconds[2]), number(seconds[2] / seconds[0], 2),
                 number(1e6 * seconds[3]), number(1e-9 * half.bytes / seconds[3]),
                 bench::percent(seconds[4] / seconds[3]), number(seconds[0] / seconds[3], 2)});
    }
  }
}
