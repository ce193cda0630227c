#include "engine/random_fill.h"

#include <cmath>

#include "engine/dtype.h"

namespace halfgrad {

namespace {

// The next number of type T above or below x.
double neighbour(double x, double towards) { return std::nextafter(x, towards); }
float neighbour(float x, double towards) { return std::nextafter(x, static_cast<float>(towards)); }
half neighbour(half x, double towards) {
  if (static_cast<float>(x) == 0) return half::from_bits(towards > 0 ? 0x0001 : 0x8001);
  const bool grows = signbit(x) == (towards < 0);  // away from zero
  return half::from_bits(static_cast<std::uint16_t>(x.bits() + (grows ? 1 : -1)));
}

template <class T>
void set_limits(RandomFill& fill) {
  T low(fill.a), high(fill.b);
  if (static_cast<double>(low) < fill.a) low = neighbour(low, INFINITY);
  if (static_cast<double>(high) >= fill.b) high = neighbour(high, -INFINITY);
  fill.low = static_cast<double>(low);
  fill.high = static_cast<double>(high);
  if (fill.low > fill.high) fill.low = fill.high = static_cast<double>(T(fill.a));  // there is no T in the range
}

}  // namespace

RandomFill random_fill(DType dtype, double a, double b, std::uint64_t seed, std::uint64_t offset) {
  RandomFill fill{.seed = seed, .offset = offset, .a = a, .b = b, .low = 0, .high = 0};
  if (dtype == f16)
    set_limits<half>(fill);
  else if (dtype == f32)
    set_limits<float>(fill);
  else
    set_limits<double>(fill);
  return fill;
}

RandomFill dropout_fill(double p, std::uint64_t seed, std::uint64_t offset) {
  return {.seed = seed, .offset = offset, .a = 1 - p, .b = p < 1 ? 1 / (1 - p) : 0, .low = 0, .high = 0};
}

}  // namespace halfgrad
