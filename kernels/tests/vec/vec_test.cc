// vec_test.cc — the vectors of the lowest table (kernels/cpu/vec.h, vec_neon.h): every function by
// lane against its definition in plain C, bit for bit, on numbers of every kind. Compiled with that
// table's flags.
#include "cpu/vec.h"

#include <math.h>

#include <algorithm>
#include <vector>

#include "tests/check.h"
#include "tests/random.h"

namespace {

using namespace sie_cpu;
using namespace sie_cpu::SIE_ISA_NS;

struct Lanes {
  float x[kLanes];
};

Lanes of(Vec v) {
  Lanes lanes;
  vstore(lanes.x, v);
  return lanes;
}

const float inf = __builtin_inff(), nan_ = __builtin_nanf("");

// Zeros, subnormals, halves, ties of every rounding, the ends of each type, infinities, NaN; then
// random numbers of all sizes.
float number(harness::Random *random, int i) {
  static const float list[] = {
      0.0f,     -0.0f,    1e-45f,  -1e-45f,  0x1p-126f, 0.5f,      -0.5f,    1.5f,     2.5f,     -3.5f,
      1.0f,     -1.0f,    127.5f,  128.5f,   255.0f,    254.5f,    65504.0f, 65519.0f, 65520.0f, 0x1p-14f,
      0x1p-24f, 0x1p-25f, 3.0e38f, -3.0e38f, 0x1.fep0f, 0x1.01p0f, inf,      -inf,     nan_,     8388609.0f};
  constexpr int known = static_cast<int>(sizeof list / sizeof list[0]);
  if (i % 3 == 0) return list[random->below(known)];
  return ldexpf(random->real(), static_cast<int>(random->below(40)) - 20);
}

bool same(float a, float b) { return (a != a && b != b) || memcmp(&a, &b, 4) == 0; }

// Calls f with vectors a, b, c of numbers, many times.
template <typename F>
void each(F f) {
  harness::Random random(11);
  for (int round = 0; round < 400; round++) {
    Lanes in[3];
    for (Lanes &lanes : in) {
      for (float &x : lanes.x) x = number(&random, static_cast<int>(random.below(99)));
    }
    f(in[0], in[1], in[2]);
  }
}

#define BY_LANE(got, want)                                                                                \
  do {                                                                                                    \
    const Lanes g = of(got);                                                                              \
    for (int i = 0; i < kLanes; i++) {                                                                    \
      const float w = want;                                                                               \
      CHECK(same(g.x[i], w), "%s lane %d: %a, not %a, of %a %a %a", #got, i, static_cast<double>(g.x[i]), \
            static_cast<double>(w), static_cast<double>(a.x[i]), static_cast<double>(b.x[i]),             \
            static_cast<double>(c.x[i]));                                                                 \
    }                                                                                                     \
  } while (0)

}  // namespace

TEST(vec_arithmetic) {
  each([](const Lanes &a, const Lanes &b, const Lanes &c) {
    const Vec x = vload(a.x), y = vload(b.x), z = vload(c.x);
    BY_LANE(x + y, a.x[i] + b.x[i]);
    BY_LANE(x - y, a.x[i] - b.x[i]);
    BY_LANE(x * y, a.x[i] * b.x[i]);
    BY_LANE(x / y, a.x[i] / b.x[i]);
    BY_LANE(vset(a.x[0]), a.x[0]);
    BY_LANE(vfma(x, y, z), fmaf(a.x[i], b.x[i], c.x[i]));
    BY_LANE(vfnma(x, y, z), fmaf(-a.x[i], b.x[i], c.x[i]));
    BY_LANE(vmin(x, y), a.x[i] < b.x[i] ? a.x[i] : b.x[i]);
    BY_LANE(vmax(x, y), a.x[i] > b.x[i] ? a.x[i] : b.x[i]);
    BY_LANE(vabs(x), fabsf(a.x[i]));
    BY_LANE(vsqrt(vabs(x)), sqrtf(fabsf(a.x[i])));
    BY_LANE(vrint(x), nearbyintf(a.x[i]));
    BY_LANE(vzero_unless_above(x, y, z), a.x[i] <= b.x[i] ? 0.0f : c.x[i]);
    BY_LANE(vquotient(x, y), a.x[i] / b.x[i]);
    BY_LANE(vreplace(x, y, z), a.x[i] == b.x[i] ? c.x[i] : a.x[i]);
    const float size = fabsf(a.x[0]);
    CHECK(same(square_root(size), sqrtf(size)) && square_root(2.0) == sqrt(2.0), "root of %a",
          static_cast<double>(size));
  });
}

TEST(vec_scales_by_powers) {
  const Lanes b = {}, c = {};
  for (int n = -250; n <= 250 - kLanes; n += 3) {
    for (const float v : {1.0f, -1.75f, 0x1.fffffep0f, inf, nan_, 0.0f}) {
      Lanes a;
      for (int i = 0; i < kLanes; i++) a.x[i] = static_cast<float>(n + i);
      // In two halves; floor of the half, as an arithmetic shift gives it.
      BY_LANE(vscale(vset(v), vload(a.x)),
              v * ldexpf(1.0f, (n + i) >> 1) * ldexpf(1.0f, n + i - ((n + i) >> 1)));
      if (n < -126 || n + kLanes > 127) continue;
      BY_LANE(vscale_normal(vset(v), vload(a.x)), v * ldexpf(1.0f, n + i));
    }
  }
}

TEST(vec_sums_and_extremes) {
  each([](const Lanes &a, const Lanes &b, const Lanes &) {
    const float *x = a.x;
    float four[4], least[4], most[4];
    for (int i = 0; i < 4; i++) {
      four[i] = x[i] + x[i + 4];
      least[i] = x[i] < x[i + 4] ? x[i] : x[i + 4];
      most[i] = x[i] > x[i + 4] ? x[i] : x[i + 4];
    }
    const auto less = [](float p, float q) { return p < q ? p : q; };
    const auto more = [](float p, float q) { return p > q ? p : q; };
    const Vec v = vload(x);
    CHECK(same(vsum(v), (four[0] + four[2]) + (four[1] + four[3])), "sum");
    CHECK(same(vsmallest(v), less(less(least[0], least[2]), less(least[1], least[3]))), "smallest");
    CHECK(same(vlargest(v), more(more(most[0], most[2]), more(most[1], most[3]))), "largest");
    CHECK(same(vfirst(v), x[0]), "first");
    double pair[4];
    for (int i = 0; i < 4; i++) {
      const double lo = static_cast<double>(x[i]), hi = static_cast<double>(x[i + 4]);
      pair[i] = lo * lo + hi * hi;
    }
    const double squares = (pair[0] + pair[2]) + (pair[1] + pair[3]), got = vsum_squares(v);
    CHECK(got == squares || (got != got && squares != squares), "sum of squares %a, not %a", got, squares);
    uint32_t positive = 0, equal = 0, nans = 0;
    for (int i = 0; i < kLanes; i++) {
      positive |= static_cast<uint32_t>(x[i] > 0) << i;
      equal |= static_cast<uint32_t>(x[i] == b.x[i]) << i;
      nans |= static_cast<uint32_t>(x[i] != x[i]) << i;
    }
    CHECK(vpositive(v) == positive && equal_lanes(v, vload(b.x)) == equal && nan_lanes(v) == nans,
          "lanes %x %x %x", vpositive(v), equal_lanes(v, vload(b.x)), nan_lanes(v));
  });
}

TEST(vec_reads_and_writes_parts) {
  each([](const Lanes &a, const Lanes &b, const Lanes &c) {
    for (int n = 1; n < kLanes; n++) {
      // A block of exactly n elements: what is read or written behind it is the sanitizers' to see.
      std::vector<float> some(a.x, a.x + n);
      BY_LANE(vload_part(some.data(), n), i < n ? a.x[i] : 0.0f);
      BY_LANE(vload_part_or(some.data(), n, vload(b.x)), i < n ? a.x[i] : b.x[i]);
      BY_LANE(vkeep(vload(a.x), n), i < n ? a.x[i] : 0.0f);
      Lanes out = b;
      vstore_part(out.x, vload(a.x), n);
      BY_LANE(vload(out.x), i < n ? a.x[i] : b.x[i]);
      BY_LANE(vload_row(a.x, kLanes - n, kLanes), i < n ? a.x[kLanes - n + i] : 0.0f);
    }
  });
}

TEST(vec_narrow_types) {
  each([](const Lanes &a, const Lanes &b, const Lanes &c) {
    const Vec v = vload(a.x);
    Bf16 wide[kLanes + 1] = {};
    vstore(wide, v);
    for (int i = 0; i < kLanes; i++) {
      const uint16_t want = sie_bf16_from_f32(a.x[i]);
      CHECK(same(sie_f32_from_bf16(wide[i].bits), sie_f32_from_bf16(want)), "bf16 of %a: %x, not %x",
            static_cast<double>(a.x[i]), wide[i].bits, want);
    }
    CHECK(wide[kLanes].bits == 0, "bf16 written behind a vector");
    BY_LANE(vload(wide), sie_f32_from_bf16(wide[i].bits));
    uint16_t halves[kLanes + 1] = {};
    vstore_half(halves, v);
    for (int i = 0; i < kLanes; i++) {
      const uint16_t want = sie_f16_from_f32(a.x[i]);
      CHECK(same(sie_f32_from_f16(halves[i]), sie_f32_from_f16(want)), "f16 of %a: %x, not %x",
            static_cast<double>(a.x[i]), halves[i], want);
    }
    Lanes level;
    uint8_t bytes[kLanes + 1] = {};
    for (int i = 0; i < kLanes; i++) level.x[i] = fmodf(a.x[i], 256.0f);
    vstore_bytes(bytes, vload(level.x));
    for (int i = 0; i < kLanes; i++) {
      const float r = nearbyintf(level.x[i]);
      const uint8_t want = r == r ? static_cast<uint8_t>(static_cast<int32_t>(r)) : 0;
      CHECK(bytes[i] == want, "byte of %a: %u", static_cast<double>(level.x[i]), bytes[i]);
    }
    for (int n = 1; n < kLanes; n++) {
      Bf16 part[kLanes] = {};
      uint16_t half[kLanes] = {};
      uint8_t byte[kLanes] = {};
      vstore_part(part, v, n);
      vstore_half_part(half, v, n);
      vstore_bytes_part(byte, vload(level.x), n);
      for (int i = 0; i < kLanes; i++) {
        CHECK(part[i].bits == (i < n ? wide[i].bits : 0) && half[i] == (i < n ? halves[i] : 0) &&
                  byte[i] == (i < n ? bytes[i] : 0),
              "part %d of narrow types, lane %d", n, i);
      }
      BY_LANE(vload_part(wide, n), i < n ? sie_f32_from_bf16(wide[i].bits) : 0.0f);
    }
  });
}

TEST(vec_moves_lanes) {
  each([](const Lanes &a, const Lanes &b, const Lanes &c) {
    Vec even, odd;
    vsplit_pairs(vload(a.x), vload(b.x), &even, &odd);
    BY_LANE(even, 2 * i < kLanes ? a.x[2 * i] : b.x[2 * i - kLanes]);
    BY_LANE(odd, 2 * i < kLanes ? a.x[2 * i + 1] : b.x[2 * i + 1 - kLanes]);
    int32_t at[kLanes];
    for (int i = 0; i < kLanes; i++) at[i] = 100 + (i * 5 + static_cast<int>(a.x[0] > 0)) % kLanes;
    BY_LANE(vpick(vload(a.x), at, 100), a.x[at[i] - 100]);
  });
  Vec r[kLanes];
  for (int m = 0; m < kLanes; m++) {
    Lanes row;
    for (int i = 0; i < kLanes; i++) row.x[i] = static_cast<float>(100 * m + i);
    r[m] = vload(row.x);
  }
  vtranspose(r);
  for (int m = 0; m < kLanes; m++) {
    for (int i = 0; i < kLanes; i++)
      CHECK(of(r[m]).x[i] == static_cast<float>(100 * i + m), "transpose %d %d", m, i);
  }
}

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
