// Conversions against definitions: the nearest number of the format, ties to the even code.
#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

// The value of a code of a binary format with the given fraction bits and bias; no infinity or NaN
// codes.
double value_of(uint32_t code, int fraction_bits, int bias) {
  uint32_t fraction = code & ((1u << fraction_bits) - 1), exponent = code >> fraction_bits;
  if (exponent == 0) return ldexp(fraction, 1 - bias - fraction_bits);
  return ldexp((1u << fraction_bits) + fraction, static_cast<int>(exponent) - bias - fraction_bits);
}

// Nearest code for x ≥ 0 among 0 … last by bisection; ties to the even code.
uint32_t nearest(double x, int fraction_bits, int bias, uint32_t last) {
  uint32_t low = 0, high = last;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (value_of(middle, fraction_bits, bias) <= x ? low : high) = middle;
  }
  double below = x - value_of(low, fraction_bits, bias), above = value_of(high, fraction_bits, bias) - x;
  if (x >= value_of(last, fraction_bits, bias)) return last;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

// Floats around every code and every midpoint of the format, and random ones.
template <class Check>
void for_interesting(int fraction_bits, int bias, uint32_t last, uint32_t step, Check check_one) {
  for (uint32_t code = 0; code < last; code += step) {
    float x = static_cast<float>(value_of(code, fraction_bits, bias));
    float middle = static_cast<float>(
        (value_of(code, fraction_bits, bias) + value_of(code + 1, fraction_bits, bias)) / 2);
    for (float y : {x, middle, nextafterf(middle, 0.0f), nextafterf(middle, INFINITY)}) {
      check_one(y);
      check_one(-y);
    }
  }
  Random random(11);
  for (int i = 0; i < 100000; i++) {
    float x;
    uint32_t bits = random.bits() << 8 ^ random.bits();
    memcpy(&x, &bits, 4);
    if (x == x) check_one(x);
  }
}

TEST(f16_rounds_to_nearest_even) {
  for_interesting(10, 15, 0x7bff, 1, [](float x) {
    double magnitude = fabs(static_cast<double>(x));
    // 65504 + 16 is the tie to 2^16, which is infinity.
    uint32_t want =
        (signbit(x) ? 0x8000u : 0u) | (magnitude >= 65520.0 ? 0x7c00u : nearest(magnitude, 10, 15, 0x7bff));
    CHECK(to_f16(x) == want, "%a: %04x, not %04x", static_cast<double>(x), to_f16(x), want);
    CHECK(pack_f16x2(x, 1.0f) == (want | 0x3c000000u), "%a packed", static_cast<double>(x));
    if ((want & 0x7fff) != 0x7c00) {
      CHECK(static_cast<double>(from_f16(static_cast<uint16_t>(want))) ==
                value_of(want & 0x7fffu, 10, 15) * (signbit(x) ? -1 : 1),
            "%04x back", want);
    }
  });
  CHECK(to_f16(NAN) == 0x7fff, "NaN is %04x", to_f16(NAN));
  CHECK(from_f16(0x7c00) == INFINITY && from_f16(0xfc00) == -INFINITY, "infinities");
}

TEST(bf16_rounds_to_nearest_even) {
  for_interesting(7, 127, 0x7f7f, 5, [](float x) {
    double magnitude = fabs(static_cast<double>(x));
    double limit = value_of(0x7f7f, 7, 127) + ldexp(1, 119);
    uint32_t want =
        (signbit(x) ? 0x8000u : 0u) | (magnitude >= limit ? 0x7f80u : nearest(magnitude, 7, 127, 0x7f7f));
    CHECK(to_bf16(x) == want, "%a: %04x, not %04x", static_cast<double>(x), to_bf16(x), want);
    CHECK(pack_bf16x2(1.0f, x) == (want << 16 | 0x3f80u), "%a packed", static_cast<double>(x));
  });
  CHECK(to_bf16(NAN) == 0x7fff, "NaN is %04x", to_bf16(NAN));
}

TEST(e4m3_saturates_and_rounds_to_nearest_even) {
  for_interesting(3, 7, 0x7e, 1, [](float x) {
    uint32_t want = (signbit(x) ? 0x80u : 0u) | nearest(fabs(static_cast<double>(x)), 3, 7, 0x7e);
    CHECK(to_e4m3(x) == want, "%a: %02x, not %02x", static_cast<double>(x), to_e4m3(x), want);
  });
  CHECK(value_of(0x7e, 3, 7) == 448.0, "largest");
  CHECK(to_e4m3(INFINITY) == 0x7e && to_e4m3(-INFINITY) == 0xfe, "infinities saturate");
  CHECK(to_e4m3(NAN) == 0x7f, "NaN is %02x", to_e4m3(NAN));
  for (uint32_t code = 0; code < 256; code++) {
    float x = from_e4m3(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      CHECK(x != x, "%02x is a NaN", code);
      continue;
    }
    CHECK(static_cast<double>(x) == value_of(code & 0x7f, 3, 7) * (code > 127 ? -1 : 1), "%02x is %g", code,
          static_cast<double>(x));
    CHECK(to_e4m3(x) == code, "%02x comes back as %02x", code, to_e4m3(x));
    CHECK(pack_e4m3x4(x, 1.0f, -2.0f, 0.0f) == (code | 0x38u << 8 | 0xc0u << 16), "%02x packed", code);
    float2 two = unpack_e4m3x2(static_cast<uint16_t>(code | 0x38u << 8));
    CHECK(two.x == x && two.y == 1.0f, "%02x unpacked", code);
  }
}

TEST(approximations_flush_subnormals) {
  CHECK(exp2_approx(-INFINITY) == 0.0f && exp2_approx(3.0f) == 8.0f && exp2_approx(-130.0f) == 0.0f, "exp2");
  CHECK(reciprocal_approx(4.0f) == 0.25f && reciprocal_approx(0.0f) == INFINITY, "reciprocal");
  CHECK(rsqrt_approx(4.0f) == 0.5f, "rsqrt");
}

}  // namespace
}  // namespace simt_test
