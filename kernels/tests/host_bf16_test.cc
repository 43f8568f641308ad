// host_bf16_test.cc — what class BF16 does beside its products, on every x86-64 machine: the packed layout
// and its padding, the last steps of rows, and who multiplies what.
#if defined(__x86_64__)
#include "cpu/bf16_linear.h"

#include <vector>

#include "at_end.h"
#include "common/dtype.h"
#include "cpu/kernels_bf16.h"

using namespace at_end;

namespace {

// An element of W or x, exact in bf16, and never 0.
float element(int64_t row, int64_t column) { return static_cast<float>((row * 131 + column * 7) % 251 + 1); }

// The layout as bf16_linear.h has it: panel, step, tile, [16][16][2].
void check_layout(const uint16_t *packed, int64_t n, int64_t k) {
  const int64_t panels = (n + 31) / 32, steps = (k + 31) / 32;
  int wrong = 0;
  for (int64_t at = 0; at < panels * steps * 1024; at++) {
    const int64_t panel = at / (steps * 1024), step = at / 1024 % steps, tile = at / 512 % 2;
    const int64_t i = at / 32 % 16, j = at / 2 % 16, l = at % 2;
    const int64_t column = panel * 32 + tile * 16 + j, depth = step * 32 + 2 * i + l;
    const uint16_t want = column < n && depth < k ? sie_bf16_from_f32(element(column, depth)) : 0;
    wrong += packed[at] != want;
  }
  CHECK(wrong == 0, "%d elements of W [%lld, %lld] lie elsewhere", wrong, static_cast<long long>(n),
        static_cast<long long>(k));
}

// Not inlined: the compiler would ask what a negative number of rows does.
[[gnu::noinline]] const char *copy_tails(const sie_linear_args *a, char *tails) {
  return sie_cpu::bf16_copy_tails(a, tails);
}

struct Call {
  int64_t row, rows;
  sie_cpu::Range panels;
  const char *tails;
};
std::vector<Call> calls;
const sie_linear_args *whole_linear;

void note(const sie_linear_args *a, const char *tails, int64_t begin, int64_t end) {
  const int64_t bytes = static_cast<const char *>(a->x.p) - static_cast<const char *>(whole_linear->x.p);
  calls.push_back({bytes / (2 * a->x.ld), *a->rows.n, {begin, end}, tails});
}

}  // namespace

TEST(host_bf16_weights_lie_where_the_layout_says) {
  for (int64_t n : {1, 15, 31, 32, 33, 64, 70}) {
    for (int64_t k : {1, 2, 31, 32, 33, 64, 75}) {
      const int64_t bytes = (n + 31) / 32 * ((k + 31) / 32) * 2048, ld = k + 3;
      const int64_t got = sie_cpu::bf16_packed_bytes(n, k);
      CHECK(got == bytes, "W [%lld, %lld] has %lld bytes", static_cast<long long>(n),
            static_cast<long long>(k), static_cast<long long>(got));
      AtEnd<uint16_t> packed(bytes / 2);
      AtEnd<float> w((n - 1) * ld + k, NAN);
      for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < k; c++) w.data()[r * ld + c] = element(r, c);
      }
      for (int64_t n0 = 0; n0 < n; n0 += 13) {
        const int64_t rows = n - n0 < 13 ? n - n0 : 13;
        sie_cpu::bf16_pack(n, k, n0, rows, w.data() + n0 * ld, ld, packed.data());
      }
      check_layout(packed.data(), n, k);
    }
  }
}

TEST(host_bf16_rows_end_in_zeros) {
  for (int64_t k : {1, 5, 31, 32, 33, 64, 75}) {
    for (int32_t rows : {1, 4, 9}) {
      const int64_t ld = k + 2, tail = k % 32;
      sie_op_bounds bounds = {};
      bounds.rows = rows, bounds.k = k;
      const int64_t scratch = sie_cpu::linear_bf16_scratch(&bounds);
      CHECK(scratch == (tail != 0 ? rows * 64 : 0), "K %lld, %d rows: %lld bytes of scratch",
            static_cast<long long>(k), rows, static_cast<long long>(scratch));
      AtEnd<uint16_t> x((rows - 1) * ld + k, 0xffff), tails(rows * 32, 0xaaaa);
      for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < k; c++) x.data()[r * ld + c] = sie_bf16_from_f32(element(r, c));
      }
      sie_linear_args a = {};
      a.rows = {rows, &rows}, a.k = k;
      a.x = of(x.data(), ld, SIE_BF16);
      char *const to = reinterpret_cast<char *>(tails.data());
      const char *const got = copy_tails(&a, to);
      CHECK(got == (tail != 0 ? to : nullptr), "K %lld: last steps of rows, or none",
            static_cast<long long>(k));
      int wrong = 0;
      for (int64_t i = 0; tail != 0 && i < rows * 32; i++) {
        const int64_t column = k - tail + i % 32;
        wrong += tails.data()[i] != (column < k ? x.data()[i / 32 * ld + column] : 0);
      }
      CHECK(wrong == 0, "K %lld, %d rows: %d elements of the last steps", static_cast<long long>(k), rows,
            wrong);
    }
  }
}

// Every row meets every panel in one call, with the last steps of its own rows.
TEST(host_bf16_parts_multiply_everything_once) {
  for (int32_t rows : {0, 1, 12, 13, 50}) {
    for (int64_t n : {1, 32, 33, 100, 640}) {
      for (int64_t k : {32, 40}) {
        for (int32_t parts : {1, 2, 5, 16}) {
          const int64_t panels = (n + 31) / 32, ld = k + 1;
          std::vector<uint16_t> x(static_cast<size_t>(rows * ld + 1), 0x3f80);
          std::vector<int> done(static_cast<size_t>(rows * panels));
          std::vector<char> scratch(static_cast<size_t>(rows * 64 + 1));
          const sie_packed w = {SIE_COMPUTE_BF16, 0, n, k, nullptr};
          sie_linear_args a = {};
          a.rows = {rows, &rows}, a.n = n, a.k = k, a.w = &w;
          a.x = of(x.data(), ld, SIE_BF16), a.y = of(x.data(), n, SIE_F32);
          whole_linear = &a;
          for (int32_t part = 0; part < parts; part++) {
            calls.clear();
            const sie_share share = {part, parts, scratch.data(), static_cast<int64_t>(scratch.size()),
                                     nullptr};
            CHECK(sie_cpu::bf16_linear(&a, &share, note, 12) == SIE_OK, "part %d of %d", part, parts);
            CHECK(calls.size() <= 1, "part %d of %d multiplies %zu times", part, parts, calls.size());
            for (const Call &c : calls) {
              CHECK(c.rows > 0 && c.row + c.rows <= rows && c.panels.first >= 0 && c.panels.last <= panels,
                    "part %d of %d leaves the whole", part, parts);
              CHECK((c.tails != nullptr) == (k % 32 != 0), "K %lld: last steps, or none",
                    static_cast<long long>(k));
              for (int64_t r = c.row; r < c.row + c.rows && r < rows; r++) {
                for (int64_t p = c.panels.first; p < c.panels.last && p < panels; p++)
                  done[static_cast<size_t>(r * panels + p)]++;
              }
            }
          }
          int wrong = 0;
          for (int times : done) wrong += times != 1;
          CHECK(wrong == 0, "%d rows, N %lld, %d parts: %d times not once", rows, static_cast<long long>(n),
                parts, wrong);
        }
      }
    }
  }
}

TEST(host_bf16_refuses_other_types) {
  const int32_t rows = 1;
  uint16_t x[32] = {};
  const struct {
    uint32_t compute;
    int32_t of_x, of_y;
    sie_status status;
  } list[] = {
      {SIE_COMPUTE_BF16, SIE_BF16, SIE_F32, SIE_OK},
      {SIE_COMPUTE_BF16, SIE_BF16, SIE_BF16, SIE_OK},
      {SIE_COMPUTE_F32, SIE_BF16, SIE_F32, SIE_UNSUPPORTED},
      {SIE_COMPUTE_INT8, SIE_BF16, SIE_F32, SIE_UNSUPPORTED},
      {SIE_COMPUTE_BF16, SIE_F32, SIE_F32, SIE_UNSUPPORTED},
      {SIE_COMPUTE_BF16, SIE_F16, SIE_F32, SIE_UNSUPPORTED},
      {SIE_COMPUTE_BF16, SIE_BF16, SIE_F16, SIE_UNSUPPORTED},
      {SIE_COMPUTE_BF16, SIE_BF16, SIE_U8, SIE_UNSUPPORTED},
  };
  for (const auto &l : list) {
    const sie_packed w = {l.compute, 0, 32, 32, nullptr};
    sie_linear_args a = {};
    a.rows = {rows, &rows}, a.n = a.k = 32, a.w = &w;
    a.x = of(x, 32, l.of_x), a.y = of(x, 32, l.of_y);
    whole_linear = &a;
    calls.clear();
    const sie_share share = {0, 1, nullptr, 0, nullptr};
    const sie_status status = sie_cpu::bf16_linear(&a, &share, note, 12);
    CHECK(status == l.status && calls.size() == (l.status == SIE_OK ? 1 : 0),
          "class %u, x %s, y %s: %d, multiplied %zu times", l.compute, dtype_text(l.of_x), dtype_text(l.of_y),
          status, calls.size());
  }
}
#endif
