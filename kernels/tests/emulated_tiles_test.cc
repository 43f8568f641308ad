// emulated_tiles_test.cc — the emulated tile instructions against results that only the manual's
// order and rounding give, and the faults that they must report.
#include "tests/check.h"

#if defined(__x86_64__)

#include <sys/wait.h>
#include <unistd.h>

#include "common/dtype.h"
#include "cpu/amx_tile.h"

namespace {

using namespace sie_cpu;

AmxTileConfig whole_tiles() {
  AmxTileConfig config;
  amx_config(&config, 16, 16);
  return config;
}

// One element of C += A·B: pairs of A's first row, and of B's first column.
float dot(float c, const float (&a)[32], const float (&b)[32]) {
  static uint16_t left[16][32], right[16][32];
  static float sums[16][16];
  memset(left, 0, sizeof left);
  memset(right, 0, sizeof right);
  for (int k = 0; k < 32; k++) {
    left[0][k] = sie_bf16_from_f32(a[k]);
    right[k / 2][k % 2] = sie_bf16_from_f32(b[k]);
  }
  sums[0][0] = c;
  const AmxTileConfig config = whole_tiles();
  amx_load_config(&config);
  amx_load<0>(sums, 64);
  amx_load<4>(left, 64);
  amx_load<6>(right, 64);
  amx_dp_bf16<0, 4, 6>();
  amx_store<0>(sums, 64);
  amx_release();
  return sums[0][0];
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

TEST(emulated_tiles_sum_in_order) {
  const float ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  // 2²⁴ + 1 is a tie, which rounds to 2²⁴. So each case has another result in another order.
  CHECK(dot(0, {0x1p24f, 0, 1, 0, 1}, ones) == 0x1p24f, "the even products are not one chain");
  CHECK(dot(0, {0x1p24f, 1, 0, 1}, ones) == 0x1p24f + 2, "the odd products are not a chain of their own");
  CHECK(dot(0x1p24f, {1, 0, 1}, ones) == 0x1p24f + 2, "the old value does not come last");
  CHECK(dot(0x1p24f, {1, 1}, ones) == 0x1p24f + 2, "the chains are not joined before the old value");
  CHECK(dot(0, {0, 0, 1, 0, 1, 0, 0x1p24f}, ones) == 0x1p24f + 2, "k does not ascend");
  CHECK(dot(3, {2, -5}, {7, 0.5f}) == 14.5f, "2·7 − 5·0.5 + 3 is %g", dot(3, {2, -5}, {7, 0.5f}));
}

TEST(emulated_tiles_flush_denormals) {
  const float least = 0x1p-126f;
  CHECK(dot(0, {0x1p-130f}, {0x1p100f}) == 0, "a denormal operand is not 0");
  CHECK(dot(0, {0x1p-70f}, {0x1p-70f}) == 0, "a denormal product is not 0");
  CHECK(dot(0x1p-130f, {0}, {0}) == 0, "a denormal old value is not 0");
  CHECK(dot(-1.5f * least, {1}, {least}) == 0, "a denormal sum is not 0");
  CHECK(dot(least, {1}, {least}) == 2 * least, "normal numbers are lost");
  const float lost = dot(1, {0}, {__builtin_nanf("")});
  CHECK(lost != lost, "0·NaN is %g", static_cast<double>(lost));
}

TEST(emulated_tiles_multiply_bytes) {
  uint8_t left[16][64];
  int8_t right[16][64];
  int32_t sums[16][16];
  memset(left, 255, sizeof left);
  memset(right, -128, sizeof right);
  memset(sums, 0, sizeof sums);
  left[3][5] = 128;  // as a signed byte it would be −128
  right[1][1] = 2;   // k = 5 of column 0
  sums[2][1] = INT32_MIN;
  const AmxTileConfig config = whole_tiles();
  amx_load_config(&config);
  amx_load<0>(sums, 64);
  amx_load<4>(left, 64);
  amx_load<6>(right, 64);
  amx_dp_u8s8<0, 4, 6>();
  amx_store<0>(sums, 64);
  amx_release();
  const int32_t full = 64 * 255 * -128;
  CHECK(sums[0][1] == full, "%d, %d expected", sums[0][1], full);
  CHECK(sums[3][0] == full + 255 * 128 + 128 * 2, "%d in row 3", sums[3][0]);
  CHECK(sums[3][1] == full + 127 * 128, "%d in row 3, column 1", sums[3][1]);
  CHECK(sums[2][1] == static_cast<int32_t>(0x80000000u + static_cast<uint32_t>(full)), "%d: no wrap around",
        sums[2][1]);
}

TEST(emulated_tiles_keep_to_their_size) {
  AmxTileConfig config;
  amx_config(&config, 5, 16);
  amx_load_config(&config);
  uint8_t from[16][64], to[16][64];
  memset(from, 7, sizeof from);
  memset(to, 9, sizeof to);
  amx_load<4>(from, 64);
  amx_store<4>(to, 64);
  CHECK(to[4][63] == 7 && to[5][0] == 9, "five rows are not five");
  amx_zero<4>();
  amx_store<4>(to, 64);
  CHECK(to[0][0] == 0 && to[4][63] == 0, "not zero");
  amx_release();
}

TEST(emulated_tiles_report_faults) {
  auto with = [](void (*change)(AmxTileConfig *)) {
    AmxTileConfig config = whole_tiles();
    change(&config);
    amx_load_config(&config);
  };
  CHECK(!aborts([&] { with([](AmxTileConfig *) {}); }), "a good configuration is refused");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->palette = 2; }); }), "palette 2");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->start_row = 1; }); }), "a start row");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->reserved[13] = 1; }); }), "a reserved byte");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->rows[7] = 17; }); }), "17 rows");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->row_bytes[7] = 65; }); }), "65 bytes");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->rows[2] = 0; }); }), "bytes without rows");
  CHECK(aborts([&] { with([](AmxTileConfig *c) { c->rows[8] = 1; }); }), "a ninth tile");
  CHECK(aborts([] { amx_zero<0>(); }), "a tile before any configuration");
  CHECK(aborts([&] {
          with([](AmxTileConfig *) {});
          amx_release();
          amx_dp_bf16<0, 4, 6>();
        }),
        "a tile after its release");
  CHECK(aborts([&] {
          with([](AmxTileConfig *) {});
          amx_dp_bf16<0, 4, 4>();
        }),
        "a tile twice");
  CHECK(aborts([&] {
          with([](AmxTileConfig *c) { c->rows[4] = 15; });
          amx_dp_bf16<0, 4, 6>();
        }),
        "rows of C and A that differ");
  CHECK(aborts([&] {
          with([](AmxTileConfig *c) { c->row_bytes[4] = 60; });
          amx_dp_u8s8<0, 4, 6>();
        }),
        "columns of A that are not the rows of B");
}

#endif
