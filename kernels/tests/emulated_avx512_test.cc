// emulated_avx512_test.cc — the emulated AVX-512 instructions against results worked out from the
// software developer's manual, and, where the machine has the instructions, against these. Compiled
// with emulated_avx512.h, on every machine.
#include "tests/check.h"

#if defined(__x86_64__)

#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>

#include "ops.h"
#include "tests/emulated/operations.h"
#include "tests/random.h"

namespace {

constexpr float infinity = __builtin_inff();
const float not_a_number = __builtin_nanf("");

uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
bool same(float x, float y) { return (x != x && y != y) || bits_of(x) == bits_of(y); }

// Lane `lane` of a vector.
template <typename T, typename V>
T lane(V v, int i) {
  T all[sizeof(V) / sizeof(T)];
  memcpy(all, &v, sizeof v);
  return all[i];
}
// x in lane i, `other` elsewhere.
__m512 one(int i, float x, float other = 0) {
  float all[16];
  for (float &v : all) v = other;
  all[i] = x;
  return _mm512_loadu_ps(all);
}
// f of x, in a lane of the lower half and in one of the upper, whose neighbours have other values.
template <typename F>
bool gives(float want, const F &f, float x) {
  return same(lane<float>(f(one(3, x, 0.25f)), 3), want) && same(lane<float>(f(one(14, x, 0.25f)), 14), want);
}
template <typename F>
bool gives(float want, const F &f, float x, float y) {
  return same(lane<float>(f(one(3, x, 0.25f), one(3, y)), 3), want) &&
         same(lane<float>(f(one(14, x, 0.25f), one(14, y)), 14), want);
}
__m512i counted(int first) {
  int32_t all[16];
  for (int i = 0; i < 16; i++) all[i] = first + i;
  return _mm512_loadu_si512(all);
}
template <typename T, typename V>
bool lanes_are(V v, std::initializer_list<T> want) {
  int i = 0;
  for (T w : want) {
    if (lane<T>(v, i++) != w) return false;
  }
  return true;
}

// Whether `body` ends its process by abort.
template <typename F>
bool aborts(F body) {
  const pid_t child = fork();
  if (child == 0) {
    fclose(stderr);
    body();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

TEST(emulated_avx512_reduces_to_a_fraction) {
  auto fraction = [](__m512 x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); };
  CHECK(gives(0.75f, fraction, 2.75f) && gives(0.75f, fraction, -0.25f), "the rest above the floor");
  CHECK(gives(-0.0f, fraction, 3.0f) && gives(-0.0f, fraction, 0.0f), "downwards a zero is −0");
  CHECK(gives(0x1.fffffep-1f, fraction, -1e-10f), "1 − 10⁻¹⁰ is rounded down");
  CHECK(gives(0x1p-149f, fraction, 0x1p-149f), "a denormal stays");
  CHECK(gives(0, fraction, infinity) && gives(0, fraction, -infinity), "infinities leave +0");
  CHECK(gives(not_a_number, fraction, not_a_number), "a NaN stays");
}

TEST(emulated_avx512_scales) {
  auto scale = [](__m512 x, __m512 n) { return _mm512_scalef_ps(x, n); };
  CHECK(gives(12, scale, 1.5f, 3.75f) && gives(0.5f, scale, 1, -0.5f), "2 to the floor");
  CHECK(gives(0x1p-148f, scale, 1.5f, -149) && gives(0x1p-149f, scale, 1.25f, -149),
        "not rounded to even, once");
  CHECK(gives(0x1p-149f, scale, 1, -149) && gives(0, scale, 1, -150) && gives(-0.0f, scale, -1, -1e30f),
        "denormals, then 0");
  CHECK(
      gives(2, scale, 0x1p-149f, 150) && gives(infinity, scale, 1, 128) && gives(-infinity, scale, -1, 1e30f),
      "from a denormal, and out of range");
  CHECK(gives(infinity, scale, 2, infinity) && gives(-infinity, scale, -2, infinity) &&
            gives(not_a_number, scale, 0, infinity),
        "by +∞");
  CHECK(gives(0, scale, 2, -infinity) && gives(-0.0f, scale, -2, -infinity) &&
            gives(not_a_number, scale, infinity, -infinity),
        "by −∞");
  CHECK(gives(infinity, scale, not_a_number, infinity) && gives(0, scale, not_a_number, -infinity),
        "a NaN by an infinity");
  CHECK(gives(not_a_number, scale, not_a_number, 1) && gives(not_a_number, scale, 1, not_a_number) &&
            gives(not_a_number, scale, 0, not_a_number),
        "NaNs");
  CHECK(gives(-infinity, scale, -infinity, -5) && gives(-0.0f, scale, -0.0f, 7), "infinities and zeros stay");
}

TEST(emulated_avx512_rounds_to_bf16) {
  const struct {
    uint32_t from;
    uint16_t to;
    const char *what;
  } cases[] = {{0x3f808000, 0x3f80, "a tie down to even"},
               {0x3f818000, 0x3f82, "a tie up to even"},
               {0x3f808001, 0x3f81, "above a tie"},
               {0x3f80ffff, 0x3f81, "up"},
               {0x7f7fffff, 0x7f80, "the largest becomes infinity"},
               {0xff800000, 0xff80, "−∞"},
               {0x007fffff, 0x0000, "a denormal is 0"},
               {0x80400000, 0x8000, "a negative denormal is −0"},
               {0x00800000, 0x0080, "the least normal number stays"},
               {0x7f800001, 0x7fc0, "a signalling NaN is made quiet"},
               {0xffc12345, 0xffc1, "a NaN is cut off"}};
  for (const auto &[from, to, what] : cases) {
    for (int i : {2, 13}) {
      const __m512 x = one(i, float_of(from), 1), y = _mm512_set1_ps(2);
      CHECK(lane<uint16_t>(_mm512_cvtneps_pbh(x), i) == to, "%s: %04x", what,
            lane<uint16_t>(_mm512_cvtneps_pbh(x), i));
      CHECK(lane<uint16_t>(_mm512_cvtne2ps_pbh(x, y), 16 + i) == to, "%s: the first operand's are above",
            what);
      CHECK(lane<uint16_t>(_mm512_cvtne2ps_pbh(y, x), i) == to, "%s: the second operand's are below", what);
    }
  }
}

namespace {

// c + odd·odd + even·even of lane i.
float dot(float c, float x_odd, float y_odd, float x_even, float y_even, int i) {
  uint32_t x[16] = {}, y[16] = {};
  x[i] = (bits_of(x_odd) & 0xffff0000u) | bits_of(x_even) >> 16;
  y[i] = (bits_of(y_odd) & 0xffff0000u) | bits_of(y_even) >> 16;
  __m512bh a, b;
  memcpy(&a, x, 64);
  memcpy(&b, y, 64);
  return lane<float>(_mm512_dpbf16_ps(one(i, c), a, b), i);
}

}  // namespace

TEST(emulated_avx512_sums_products_of_bf16) {
  for (int i : {1, 12}) {
    CHECK(dot(3, 2, 7, -5, 0.5f, i) == 14.5f, "3 + 2·7 − 5·0.5");
    // 2²⁴ + 1 is a tie, which rounds to 2²⁴.
    CHECK(dot(1, 0x1p24f, 1, -0x1p24f, 1, i) == 0, "the odd product is added first");
    CHECK(dot(0x1p24f, 1, 1, 1, 1, i) == 0x1p24f, "products are added one by one");
    CHECK(dot(-0x1p30f, 0x1.02p15f, 0x1.02p15f, 0, 0, i) == 0x1p24f + 0x1p16f, "a product has sixteen bits");
    CHECK(dot(0x1p-130f, 0, 0, 0, 0, i) == 0 && dot(0, 0x1p-130f, 0x1p100f, 0, 0, i) == 0,
          "a denormal operand is 0");
    CHECK(dot(0, 0, 0, 0x1p-70f, 0x1p-70f, i) == 0, "a denormal result is 0");
    CHECK(dot(0, 0x1p-70f, 0x1p-70f, 0x1p-60f, 0x1p-60f, i) == 0x1p-120f, "a denormal sum on the way is 0");
    CHECK(dot(0x1p-126f, 0x1p-126f, 1, 0, 0, i) == 0x1p-125f, "the least normal numbers stay");
    CHECK(same(dot(1, 0, infinity, 0, 0, i), not_a_number) &&
              same(dot(1, 1, 1, not_a_number, 0, i), not_a_number),
          "NaNs");
    CHECK(dot(0, -1, infinity, 1, 1, i) == -infinity, "infinities");
  }
  const uint32_t control = _mm_getcsr();
  _mm_setcsr(control | 0x6000);  // towards 0
  const float up = dot(0x1p24f, 1, 3, 0, 0, 5);
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(control);
  CHECK(up == 0x1p24f + 4, "the rounding of the program counts");
  CHECK((after & 0xffc0) == ((control | 0x6000) & 0xffc0), "the rounding of the program is lost");
}

TEST(emulated_avx512_sums_products_of_integers) {
  auto four = [](uint32_t byte) { return _mm512_set1_epi32(static_cast<int>(byte * 0x01010101u)); };
  auto bytes = [&](uint8_t x, int8_t w, int32_t c) {
    return lane<int32_t>(_mm512_dpbusd_epi32(_mm512_set1_epi32(c), four(x), four(static_cast<uint8_t>(w))),
                         11);
  };
  CHECK(bytes(255, 127, 1) == 4 * 255 * 127 + 1, "%d: pairs are not saturated", bytes(255, 127, 1));
  CHECK(bytes(255, -128, 0) == -4 * 255 * 128 && bytes(128, -1, 0) == -4 * 128, "unsigned by signed");
  CHECK(bytes(255, -128, INT32_MIN) == static_cast<int32_t>(0x80000000u - 4u * 255u * 128u),
        "no wrap around");
  const __m512i x = _mm512_set1_epi32(0x04030201), w = _mm512_set1_epi32(0x281e140a);  // 1 2 3 4, 10 20 30 40
  CHECK(lane<int32_t>(_mm512_dpbusd_epi32(_mm512_setzero_si512(), x, w), 0) == 300, "bytes by their places");
  auto two = [](int low, int high) {
    return _mm512_set1_epi32(
        static_cast<int>(static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xffff)));
  };
  auto halves = [&](int low, int high, int v_low, int v_high, int c) {
    return lane<int32_t>(_mm512_dpwssd_epi32(_mm512_set1_epi32(c), two(low, high), two(v_low, v_high)), 9);
  };
  CHECK(halves(3, -5, 7, 11, 100) == 100 + 21 - 55, "%d", halves(3, -5, 7, 11, 100));
  CHECK(halves(-32768, -32768, -32768, -32768, 1) == INT32_MIN + 1, "no wrap around");
}

TEST(emulated_avx512_compares) {
  auto least = [](__m512 x, __m512 y) { return _mm512_min_ps(x, y); };
  auto most = [](__m512 x, __m512 y) { return _mm512_max_ps(x, y); };
  CHECK(gives(2, least, not_a_number, 2) && gives(not_a_number, least, 2, not_a_number) &&
            gives(2, most, not_a_number, 2) && gives(not_a_number, most, 2, not_a_number),
        "the second operand where one is a NaN");
  CHECK(gives(-0.0f, least, 0, -0.0f) && gives(0, least, -0.0f, 0) && gives(0, most, -0.0f, 0) &&
            gives(-0.0f, most, 0, -0.0f),
        "the second operand of zeros");
  CHECK(lane<float>(_mm512_mask_max_ps(_mm512_set1_ps(9), 0x0800, _mm512_set1_ps(1), _mm512_set1_ps(2)),
                    11) == 2 &&
            lane<float>(_mm512_mask_max_ps(_mm512_set1_ps(9), 0x0800, _mm512_set1_ps(1), _mm512_set1_ps(2)),
                        10) == 9,
        "under a mask");
  const __m512 values = one(9, not_a_number, 2);
  CHECK(_mm512_cmp_ps_mask(values, _mm512_set1_ps(2), _CMP_EQ_OQ) == 0xfdff, "equal");
  CHECK(_mm512_cmp_ps_mask(values, _mm512_set1_ps(1), _CMP_GT_OQ) == 0xfdff, "greater");
  CHECK(_mm512_cmp_ps_mask(values, _mm512_set1_ps(2), _CMP_NLE_UQ) == 0x0200, "neither less nor equal");
  CHECK(_mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q) == 0x0200, "unordered");
  CHECK(_mm512_fpclass_ps_mask(one(12, -infinity, infinity), 0x10) == 0x1000, "−∞ alone");
  CHECK(_mm512_fpclass_ps_mask(one(12, -0x1p-130f, 1), 0x20) == 0x1000, "denormals alone");
  CHECK(_mm512_cmpeq_epi16_mask(_mm512_set1_epi32(0x00050007), _mm512_set1_epi16(5)) == 0xaaaaaaaau,
        "16-bit lanes");
}

TEST(emulated_avx512_converts) {
  auto whole = [](__m512 x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  CHECK(gives(2, whole, 2.5f) && gives(4, whole, 3.5f) && gives(-0.0f, whole, -0.5f), "ties to even");
  const __m512i n = _mm512_cvtps_epi32(one(10, 0x1p31f, 2.5f));
  CHECK(lane<int32_t>(n, 10) == INT32_MIN && lane<int32_t>(n, 0) == 2, "to integers");
  CHECK(lane<int32_t>(_mm512_cvtps_epi32(one(10, not_a_number)), 10) == INT32_MIN, "a NaN to an integer");
  CHECK(lane<float>(_mm512_cvtepi32_ps(_mm512_set1_epi32(0x1000001)), 15) == 0x1p24f, "from integers");
  CHECK(lane<uint8_t>(_mm512_cvtepi32_epi8(_mm512_set1_epi32(0x12345)), 15) == 0x45, "the low byte");
  CHECK(lane<uint16_t>(_mm512_cvtepi32_epi16(_mm512_set1_epi32(0x12345)), 15) == 0x2345, "the low half");
  const __m256i half = _mm512_cvtps_ph(one(10, 65520.0f, 1 + 0x1p-11f), _MM_FROUND_TO_NEAREST_INT);
  CHECK(lane<uint16_t>(half, 10) == 0x7c00 && lane<uint16_t>(half, 9) == 0x3c00, "to half");
  CHECK(lane<double>(_mm512_cvtps_pd(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)), 5) == 5, "to double");
  for (float x : {1.0f, 3.0f, -7.5f, 1e-30f, 1e30f}) {
    const double product =
        static_cast<double>(lane<float>(_mm512_rcp14_ps(one(9, x, 1)), 9)) * static_cast<double>(x);
    CHECK(fabs(product - 1) < 0x1p-14, "1/%g is off by %g", static_cast<double>(x), product - 1);
  }
}

TEST(emulated_avx512_adds_up_in_a_tree) {
  auto sum = [](std::initializer_list<std::pair<int, float>> values) {
    float all[16] = {};
    for (const auto &[at, x] : values) all[at] = x;
    return _mm512_reduce_add_ps(_mm512_loadu_ps(all));
  };
  // A 1 alone is lost beside 2²⁴; two that meet before are not.
  CHECK(sum({{0, 0x1p24f}, {8, 1}, {1, 1}}) == 0x1p24f, "the halves first");
  CHECK(sum({{0, 0x1p24f}, {4, 1}, {12, 1}}) == 0x1p24f + 2, "halves, then quarters");
  CHECK(sum({{0, 0x1p24f}, {2, 1}, {6, 1}}) == 0x1p24f + 2, "quarters, then pairs");
  CHECK(sum({{0, 0x1p24f}, {1, 1}, {3, 1}}) == 0x1p24f + 2, "pairs, then neighbours");
  float ascending[16];
  for (int i = 0; i < 16; i++) ascending[i] = static_cast<float>((i * 7 + 3) % 16);
  CHECK(_mm512_reduce_max_ps(_mm512_loadu_ps(ascending)) == 15, "the largest");
  CHECK(_mm512_reduce_min_ps(_mm512_loadu_ps(ascending)) == 0, "the smallest");
  double squares[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  __m512d d;
  memcpy(&d, squares, sizeof d);
  CHECK(_mm512_reduce_add_pd(d) == 255, "doubles");
}

TEST(emulated_avx512_moves_lanes) {
  const __m512i a = counted(0), b = counted(100);
  CHECK(lanes_are<int32_t>(_mm512_shuffle_i32x4(a, b, 0x8d),
                           {4, 5, 6, 7, 12, 13, 14, 15, 100, 101, 102, 103, 108}),
        "quarters");
  CHECK(lanes_are<int32_t>(_mm512_unpacklo_epi32(a, b), {0, 100, 1, 101, 4, 104, 5, 105, 8, 108}),
        "the lower pairs");
  CHECK(lanes_are<int32_t>(_mm512_unpackhi_epi32(a, b), {2, 102, 3, 103, 6, 106, 7, 107, 10, 110}),
        "the upper pairs");
  CHECK(lanes_are<int64_t>(_mm512_unpackhi_epi64(a, b), {0x300000002, 0x6700000066}), "upper quads");
  CHECK(lanes_are<int64_t>(_mm512_unpacklo_epi64(a, b), {0x100000000, 0x6500000064}), "lower quads");
  const __m512i at = _mm512_set_epi32(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 16, 15, 0, 1);
  CHECK(lanes_are<int32_t>(
            _mm512_castps_si512(_mm512_permutex2var_ps(_mm512_castsi512_ps(a), at, _mm512_castsi512_ps(b))),
            {1, 0, 15, 100, 115, 0}),
        "by number, of two");
  CHECK(lane<int32_t>(
            _mm512_castps_si512(_mm512_permutex2var_ps(_mm512_castsi512_ps(a), at, _mm512_castsi512_ps(b))),
            15) == 115,
        "the lowest five bits of a number");
  CHECK(lanes_are<int32_t>(_mm512_castps_si512(_mm512_permutexvar_ps(at, _mm512_castsi512_ps(a))),
                           {1, 0, 15, 0, 15}),
        "by number, of one");
  CHECK(lane<uint16_t>(_mm512_permutex2var_epi16(a, _mm512_set1_epi16(30), b), 5) == 15 &&
            lane<uint16_t>(_mm512_permutex2var_epi16(a, _mm512_set1_epi16(34), b), 5) == 101,
        "16-bit lanes of both");
  float table[5] = {10, 11, 12, 13, 14};
  CHECK(lane<float>(_mm512_i32gather_ps(_mm512_set1_epi32(-2), table + 3, 4), 13) == 11,
        "gathered from before");
  CHECK(lane<int32_t>(_mm512_inserti64x4(a, _mm256_set1_epi32(7), 1), 8) == 7 &&
            lane<int32_t>(_mm512_inserti64x4(a, _mm256_set1_epi32(7), 1), 7) == 7 &&
            lane<int32_t>(_mm512_inserti64x4(a, _mm256_set1_epi32(7), 1), 6) == 6,
        "a half put in");
  CHECK(lane<int32_t>(_mm512_extracti64x4_epi64(a, 1), 0) == 8, "a half taken out");
}

TEST(emulated_avx512_shifts) {
  const __m512i x = _mm512_set1_epi32(static_cast<int>(0x80000003u));
  CHECK(lane<uint32_t>(_mm512_srai_epi32(x, 1), 9) == 0xc0000001u &&
            lane<uint32_t>(_mm512_srai_epi32(x, 40), 9) == ~0u,
        "with the sign");
  CHECK(lane<uint32_t>(_mm512_srli_epi32(x, 1), 9) == 0x40000001u &&
            lane<uint32_t>(_mm512_srli_epi32(x, 32), 9) == 0,
        "without it");
  CHECK(lane<uint32_t>(_mm512_slli_epi32(x, 1), 9) == 6 && lane<uint32_t>(_mm512_slli_epi32(x, 32), 9) == 0,
        "left");
  CHECK(lane<uint32_t>(_mm512_sll_epi32(x, _mm_set_epi32(5, 5, 0, 4)), 9) == 0x30,
        "by the low half of a vector");
  CHECK(lane<uint32_t>(_mm512_sll_epi32(x, _mm_set_epi32(0, 0, 1, 4)), 9) == 0, "by more than there are");
}

TEST(emulated_avx512_keeps_to_its_mask) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char *const memory = static_cast<char *>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0, "no memory");
  char *const end = memory + page;
  memset(end - 64, 3, 64);
  const __m512i sevens = _mm512_set1_epi32(0x07070707);
  CHECK(lane<uint32_t>(_mm512_castps_si512(_mm512_maskz_loadu_ps(0x1ff, end - 36)), 9) == 0 &&
            lane<uint32_t>(_mm512_castps_si512(_mm512_maskz_loadu_ps(0x1ff, end - 36)), 8) == 0x03030303,
        "floats");
  CHECK(lane<float>(_mm512_mask_loadu_ps(_mm512_set1_ps(5), 1, end - 4), 1) == 5, "floats, or others");
  CHECK(lane<uint16_t>(_mm512_maskz_loadu_epi16(0x1ffff, end - 34), 16) == 0x0303 &&
            lane<uint16_t>(_mm512_maskz_loadu_epi16(0x1ffff, end - 34), 17) == 0,
        "halves");
  CHECK(lane<uint16_t>(_mm256_maskz_loadu_epi16(0x1ff, end - 18), 8) == 0x0303, "half of them");
  _mm512_mask_storeu_ps(end - 36, 0x100, _mm512_castsi512_ps(sevens));
  CHECK(end[-5] == 3 && end[-4] == 7 && end[-1] == 7, "floats are written by their mask");
  _mm512_mask_storeu_epi16(end - 34, 0x10000, sevens);
  CHECK(end[-5] == 3 && end[-2] == 7, "halves are written by their mask");
  _mm256_mask_storeu_epi16(end - 18, 1, _mm256_set1_epi8(9));
  CHECK(end[-18] == 9 && end[-17] == 9 && end[-16] == 3, "half of them, too");
  _mm_mask_storeu_epi8(end - 9, 0x101, _mm_set1_epi8(11));
  CHECK(end[-9] == 11 && end[-8] == 3 && end[-1] == 11, "bytes are written by their mask");
  (void)_mm512_maskz_loadu_ps(0, end + 5);
  _mm512_mask_storeu_ps(end + 5, 0, _mm512_setzero_ps());
  _mm512_mask_storeu_epi16(end + 5, 0, sevens);
  CHECK(aborts([&] { _mm512_store_ps(end - 68, _mm512_setzero_ps()); }), "a store beside its alignment");
  CHECK(aborts([&] { _mm512_store_si512(end - 96, sevens); }), "a store of integers beside its alignment");
  CHECK(aborts([&] { _mm512_storeu_ps(end - 64, _mm512_load_ps(end - 68)); }), "a load beside its alignment");
  CHECK(aborts([&] { _mm512_storeu_si512(end - 64, _mm512_load_si512(end - 96)); }),
        "a load of integers beside it");
  CHECK(!aborts([&] { _mm512_store_ps(end - 64, _mm512_load_ps(end - 64)); }), "an aligned one is refused");
  munmap(memory, 2 * page);
}

namespace {

// Random bits; numbers of all sizes; and those at which rules change.
void fill(harness::Random *random, uint8_t (&to)[64], int kind) {
  static const float special[] = {0.0f,
                                  -0.0f,
                                  1.0f,
                                  -1.0f,
                                  0.5f,
                                  -0.5f,
                                  1.5f,
                                  2.5f,
                                  -2.5f,
                                  infinity,
                                  -infinity,
                                  not_a_number,
                                  0x1p-149f,
                                  -0x1p-149f,
                                  0x1.fffffcp-127f,
                                  0x1p-126f,
                                  0x1p-127f,
                                  0x1p24f,
                                  0x1.fffffep23f,
                                  0x1p31f,
                                  -0x1p31f,
                                  65520.0f,
                                  0x1.fffffep127f,
                                  -1e-10f,
                                  126.5f,
                                  -126.5f,
                                  -149.0f,
                                  127.0f,
                                  128.0f,
                                  3.0f,
                                  1e-20f,
                                  -1e20f};
  for (int i = 0; i < 16; i++) {
    uint32_t u = random->next() << 24 | random->next();
    float x = float_of(u);
    if (kind == 1) x = special[random->below(static_cast<int32_t>(sizeof special / sizeof *special))];
    if (kind == 2) x = ldexpf(random->real(), random->below(24) - 12);
    if (kind == 3) x = static_cast<float>(random->below(41) - 20);
    memcpy(to + 4 * i, &x, 4);
  }
}

// Whether lane i of two results is alike; of sums, where the inputs are given.
bool alike(const Operation &op, const uint8_t *x, const uint8_t *y, const OperationInput &in, int i,
           bool small) {
  if (op.result == OperationResult::doubles) {
    double p, q;
    memcpy(&p, x + 8 * (i / 2), 8);
    memcpy(&q, y + 8 * (i / 2), 8);
    return (p != p && q != q) || memcmp(&p, &q, 8) == 0;
  }
  float p, q;
  memcpy(&p, x + 4 * i, 4);
  memcpy(&q, y + 4 * i, 4);
  if (bits_of(p) == bits_of(q)) return true;
  if (op.result == OperationResult::integers) return false;
  if (p != p || q != q) return p != p && q != q;
  if (op.result == OperationResult::reciprocals) {
    float a;
    memcpy(&a, in.a + 4 * i, 4);
    const bool ordinary = fabsf(a) >= 0x1p-125f && fabsf(a) <= 0x1p125f;
    return !ordinary || fabsf(p - q) <= 0x1p-13f * fabsf(q);
  }
  if (op.result != OperationResult::sums || small) return false;
  float terms = 0, c;
  memcpy(&c, in.c + 4 * i, 4);
  for (int h = 0; h < 2; h++) {
    uint16_t a, b;
    memcpy(&a, in.a + 4 * i + 2 * h, 2);
    memcpy(&b, in.b + 4 * i + 2 * h, 2);
    terms += fabsf(float_of(static_cast<uint32_t>(a) << 16) * float_of(static_cast<uint32_t>(b) << 16));
  }
  terms += fabsf(c);
  return terms >= 0x1p127f || fabsf(p - q) <= 0x1p-22f * terms + 0x1p-124f;
}

}  // namespace

// Runs where the machine has the instructions, each table's by itself.
TEST(emulated_avx512_does_what_the_machine_does) {
  const Operations emulated = operations_emulated(), machine = operations_of_machine();
  const uint32_t best = sie_cpu_detect();
  CHECK(emulated.count == machine.count && emulated.count > 100, "%d operations", emulated.count);
  int compared = 0, orders = 0;
  harness::Random random(91);
  for (int n = 0; n < emulated.count; n++) {
    const Operation &one_of = emulated.first[n], &other = machine.first[n];
    CHECK(strcmp(one_of.name, other.name) == 0, "%s and %s", one_of.name, other.name);
    if (one_of.isa > best) continue;
    compared++;
    for (int round = 0; round < 400; round++) {
      OperationInput in;
      const int kind = round % 4, others = round / 4 % 4;
      fill(&random, in.a, kind);
      fill(&random, in.b, round % 3 == 0 ? others : kind);
      fill(&random, in.c, round % 5 == 0 ? others : kind);
      in.mask = round % 7 == 0 ? 0xffffffffu : random.next() << 24 | random.next();
      alignas(64) uint8_t x[64], y[64];
      memcpy(x, in.c, 64);
      memcpy(y, in.c, 64);
      one_of.run(&in, x);
      other.run(&in, y);
      orders += one_of.result == OperationResult::sums && memcmp(x, y, 64) != 0;
      for (int i = 0; i < 16; i++) {
        if (alike(one_of, x, y, in, i, kind == 3 && round % 3 != 0 && round % 5 != 0)) continue;
        uint32_t p, q, a, b, c;
        memcpy(&p, x + 4 * i, 4), memcpy(&q, y + 4 * i, 4);
        memcpy(&a, in.a + 4 * i, 4), memcpy(&b, in.b + 4 * i, 4), memcpy(&c, in.c + 4 * i, 4);
        CHECK(false, "%s: lane %d is %08x, the machine has %08x (a %08x, b %08x, c %08x)", one_of.name, i, p,
              q, a, b, c);
        break;
      }
    }
  }
  printf("     %d of %d operations compared with the machine's%s; %d sums of bf16 had other bits\n", compared,
         emulated.count, compared < emulated.count ? ", the others left out: it lacks them" : "", orders);
}

#endif
