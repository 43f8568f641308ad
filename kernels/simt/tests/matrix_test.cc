// ldmatrix, stmatrix and mma against the fragment layouts of the PTX ISA.
#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

// Rows in a scattered order, so that the addresses of the rows matter.
__global__ void ldmatrix_kernel(const uint16_t *in, uint32_t *out, int count, bool trans) {
  SIE_DYNAMIC_SHARED(shared);
  uint16_t *tile = reinterpret_cast<uint16_t *>(shared);
  for (int i = static_cast<int>(threadIdx.x); i < 32 * 8; i += 32) tile[(i / 8 * 7 % 32) * 8 + i % 8] = in[i];
  __syncthreads();
  int lane = static_cast<int>(threadIdx.x);
  const uint16_t *row = tile + lane * 7 % 32 * 8;
  uint32_t r1[1] = {0}, r2[2] = {0, 0}, r4[4] = {0, 0, 0, 0};
  if (count == 1) trans ? ldmatrix_x1_trans(r1, row) : ldmatrix_x1(r1, row);
  if (count == 2) trans ? ldmatrix_x2_trans(r2, row) : ldmatrix_x2(r2, row);
  if (count == 4) trans ? ldmatrix_x4_trans(r4, row) : ldmatrix_x4(r4, row);
  const uint32_t *r = count == 1 ? r1 : count == 2 ? r2 : r4;
  for (int m = 0; m < count; m++) out[m * 32 + lane] = r[m];
}

// PTX ISA, ldmatrix: "thread T0 … T31 hold row 0 … 7, four threads a row, two elements a thread".
TEST(ldmatrix_gives_the_fragments_of_the_isa) {
  std::vector<uint16_t> in(32 * 8);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<uint16_t>(1000 + i);
  for (int count : {1, 2, 4}) {
    for (bool trans : {false, true}) {
      std::vector<uint32_t> out(static_cast<size_t>(32 * count));
      sie_status status =
          SIE_LAUNCH(ldmatrix_kernel, 1, 32, 512, &on_sm80, in.data(), out.data(), count, trans);
      CHECK(status == SIE_OK, "status %d", status);
      for (int m = 0; m < count; m++) {
        for (int row = 0; row < 8; row++) {
          for (int column = 0; column < 8; column++) {
            uint16_t element =
                in[static_cast<size_t>(trans ? (8 * m + column) * 8 + row : (8 * m + row) * 8 + column)];
            int lane = row * 4 + column / 2;
            uint32_t reg = out[static_cast<size_t>(m * 32 + lane)];
            uint16_t got = static_cast<uint16_t>(column % 2 == 0 ? reg & 0xffff : reg >> 16);
            CHECK(got == element, "x%d trans %d matrix %d (%d, %d): %u, not %u", count, trans, m, row, column,
                  got, element);
          }
        }
      }
    }
  }
}

__global__ void stmatrix_kernel(uint16_t *out, int count, bool trans) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t lane = threadIdx.x;
  const uint32_t r2[2] = {lane * 2 | (lane * 2 + 1) << 16, (64 + lane * 2) | (64 + lane * 2 + 1) << 16};
  const uint32_t r4[4] = {r2[0], r2[1], (128 + lane * 2) | (128 + lane * 2 + 1) << 16,
                          (192 + lane * 2) | (192 + lane * 2 + 1) << 16};
  if (count == 2) stmatrix_x2(shared + 16 * lane, r2);
  if (count == 4 && !trans) stmatrix_x4(shared + 16 * lane, r4);
  if (count == 4 && trans) stmatrix_x4_trans(shared + 16 * lane, r4);
  __syncthreads();
  for (uint32_t i = lane; i < 256; i += 32) out[i] = reinterpret_cast<uint16_t *>(shared)[i];
}

TEST(stmatrix_is_the_way_back) {
  for (int form = 0; form < 3; form++) {
    int count = form == 0 ? 2 : 4;
    bool trans = form == 2;
    std::vector<uint16_t> out(256);
    CHECK(SIE_LAUNCH(stmatrix_kernel, 1, 32, 512, &on_sm90, out.data(), count, trans) == SIE_OK, "launch");
    for (int m = 0; m < count; m++) {
      for (int row = 0; row < 8; row++) {
        for (int column = 0; column < 8; column++) {
          // What lane 4·row + column/2 had in half column%2 of register m.
          int held = 64 * m + 2 * (4 * row + column / 2) + column % 2;
          uint16_t got =
              out[static_cast<size_t>(trans ? 64 * m + column * 8 + row : 64 * m + row * 8 + column)];
          CHECK(got == held, "x%d trans %d matrix %d (%d, %d): %u, not %d", count, trans, m, row, column, got,
                held);
        }
      }
    }
    for (size_t i = static_cast<size_t>(64 * count); i < 256; i++)
      CHECK(out[i] == 0xffff || out[i] == (i % 2 == 0 ? 0 : 0x7f80), "element %zu written",
            i);  // NaN or f32 infinity
  }
}

template <Operand T>
__global__ void mma_kernel(const uint32_t *a, const uint32_t *b, const float *c, float *d) {
  uint32_t lane = threadIdx.x;
  const uint32_t fragment[4] = {a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]};
  float sum[4] = {c[lane * 4], c[lane * 4 + 1], c[lane * 4 + 2], c[lane * 4 + 3]};
  mma_m16n8<T>(sum, fragment, b[lane * 2], b[lane * 2 + 1]);
  for (uint32_t i = 0; i < 4; i++) d[lane * 4 + i] = sum[i];
}

// The (row, column) of element i of a lane's fragment, as the ISA tabulates it.
struct At {
  int row, column;
};
At a_16bit(int group, int t, int i) {
  return {i < 2 || (i >= 4 && i < 6) ? group : group + 8, t * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
At b_16bit(int group, int t, int i) { return {t * 2 + (i & 1) + (i >= 2 ? 8 : 0), group}; }
At a_8bit(int group, int t, int i) {
  return {i < 4 || (i >= 8 && i < 12) ? group : group + 8, t * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
}
At b_8bit(int group, int t, int i) { return {t * 4 + (i & 3) + (i >= 4 ? 16 : 0), group}; }
At c_32bit(int group, int t, int i) { return {i < 2 ? group : group + 8, t * 2 + (i & 1)}; }

template <Operand T>
void check_mma(const sie_stream *on) {
  int bytes = bytes_of(T), k = T == Operand::e4m3 ? 32 : 16;
  Random random(static_cast<uint32_t>(7 + k));
  std::vector<int32_t> a(static_cast<size_t>(16 * k)), b(static_cast<size_t>(k * 8)), c(16 * 8);
  for (auto *m : {&a, &b, &c}) {
    for (int32_t &x : *m) x = random.below(15) - 7;
  }
  std::vector<uint32_t> ra(32 * 4), rb(32 * 2);
  std::vector<float> rc(32 * 4), rd(32 * 4, NAN);
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 16 / bytes; i++) {
      At at = bytes == 2 ? a_16bit(lane / 4, lane % 4, i) : a_8bit(lane / 4, lane % 4, i);
      put(reinterpret_cast<uint8_t *>(&ra[static_cast<size_t>(lane * 4)]) + i * bytes, bytes,
          element_of(T, a[static_cast<size_t>(at.row * k + at.column)]));
    }
    for (int i = 0; i < 8 / bytes; i++) {
      At at = bytes == 2 ? b_16bit(lane / 4, lane % 4, i) : b_8bit(lane / 4, lane % 4, i);
      put(reinterpret_cast<uint8_t *>(&rb[static_cast<size_t>(lane * 2)]) + i * bytes, bytes,
          element_of(T, b[static_cast<size_t>(at.row * 8 + at.column)]));
    }
    for (int i = 0; i < 4; i++) {
      At at = c_32bit(lane / 4, lane % 4, i);
      rc[static_cast<size_t>(lane * 4 + i)] =
          static_cast<float>(c[static_cast<size_t>(at.row * 8 + at.column)]);
    }
  }
  CHECK(SIE_LAUNCH(mma_kernel<T>, 1, 32, 0, on, ra.data(), rb.data(), rc.data(), rd.data()) == SIE_OK,
        "launch");
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 4; i++) {
      At at = c_32bit(lane / 4, lane % 4, i);
      int32_t want = c[static_cast<size_t>(at.row * 8 + at.column)];
      for (int l = 0; l < k; l++)
        want += a[static_cast<size_t>(at.row * k + l)] * b[static_cast<size_t>(l * 8 + at.column)];
      float got = rd[static_cast<size_t>(lane * 4 + i)];
      CHECK(got == static_cast<float>(want), "lane %d register %d: %g, not %d", lane, i,
            static_cast<double>(got), want);
    }
  }
}

TEST(mma_bf16) { check_mma<Operand::bf16>(&on_sm80); }
TEST(mma_f16) { check_mma<Operand::f16>(&on_sm80); }
TEST(mma_e4m3) { check_mma<Operand::e4m3>(&on_sm89); }

}  // namespace
}  // namespace simt_test
