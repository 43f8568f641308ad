// wgmma against a plain product: every N, type and swizzle, A in shared memory and in registers,
// steps along K.
#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

// Byte of an 8-row atom where 16-byte chunk `chunk` of row `row` lies (PTX ISA, "Strides" and
// swizzle figures), by the number of the 128-byte line it falls into.
int chunk_place(Swizzle swizzle, int row, int chunk) {
  int row_bytes = swizzle_row_bytes(swizzle);
  int line = row * row_bytes / 128;
  int chunks = row_bytes / 16;
  return row * row_bytes + (chunk ^ line % chunks) * 16;
}

struct Shape {
  int n, steps;  // K = steps instructions
  Swizzle swizzle;
  bool a_in_registers;
};

template <Operand T, int N>
__global__ void wgmma_kernel(const uint8_t *a, const uint8_t *b, const uint32_t *fragments, float *out,
                             Shape shape, uint32_t a_bytes, uint32_t b_bytes) {
  SIE_DYNAMIC_SHARED(shared);
  uint8_t *tile_a = shared, *tile_b = shared + a_bytes;
  for (uint32_t i = threadIdx.x; i < a_bytes; i += blockDim.x) tile_a[i] = a[i];
  for (uint32_t i = threadIdx.x; i < b_bytes; i += blockDim.x) tile_b[i] = b[i];
  fence_proxy_async();
  __syncthreads();
  float d[N / 2];
  for (float &x : d) x = 100.0f;
  uint32_t row = static_cast<uint32_t>(swizzle_row_bytes(shape.swizzle));
  bool swizzled = shape.swizzle != Swizzle::none;
  // Without swizzle: 16-byte columns of K, one after another, 8 rows each; row groups behind all
  // columns.
  uint32_t groups = swizzled ? 8 * row : 128u * 2 * static_cast<uint32_t>(shape.steps);
  uint64_t da = wgmma_descriptor(tile_a, shape.swizzle, groups, 128);
  uint64_t db = wgmma_descriptor(tile_b, shape.swizzle, groups, 128);
  wgmma_fence();
  for (int step = 0; step < shape.steps; step++) {
    uint32_t along = static_cast<uint32_t>(step) * (swizzled ? 32 : 256);
    if (shape.a_in_registers) {
      const uint32_t *f = fragments + (static_cast<uint32_t>(step) * 128 + threadIdx.x) * 4;
      const uint32_t fragment[4] = {f[0], f[1], f[2], f[3]};
      wgmma<T, N>(d, fragment, wgmma_advance(db, along), step != 0);
    } else {
      wgmma<T, N>(d, wgmma_advance(da, along), wgmma_advance(db, along), step != 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
  for (int i = 0; i < N / 2; i++) out[threadIdx.x * (N / 2) + static_cast<uint32_t>(i)] = d[i];
}

template <Operand T, int N>
void check_wgmma(Swizzle swizzle, bool a_in_registers) {
  const int bytes = bytes_of(T), k_of_step = 32 / bytes;
  const int steps = swizzle == Swizzle::none ? 3 : swizzle_row_bytes(swizzle) / 32;
  const int k = steps * k_of_step;
  Random random(static_cast<uint32_t>(N + k));
  std::vector<int32_t> a(static_cast<size_t>(64 * k)), b(static_cast<size_t>(N * k));
  for (auto *m : {&a, &b}) {
    for (int32_t &x : *m) x = random.below(9) - 4;
  }
  auto place = [&](int row, int byte) {
    if (swizzle == Swizzle::none) return row / 8 * 256 * steps + byte / 16 * 128 + row % 8 * 16 + byte % 16;
    return row / 8 * 8 * swizzle_row_bytes(swizzle) + chunk_place(swizzle, row % 8, byte / 16) + byte % 16;
  };
  std::vector<uint8_t> pa(static_cast<size_t>((64 * k * bytes + 1023) / 1024 * 1024)),
      pb(static_cast<size_t>(N * k * bytes));
  for (int row = 0; row < 64; row++) {
    for (int i = 0; i < k; i++)
      put(&pa[static_cast<size_t>(place(row, i * bytes))], bytes,
          element_of(T, a[static_cast<size_t>(row * k + i)]));
  }
  for (int row = 0; row < N; row++) {
    for (int i = 0; i < k; i++)
      put(&pb[static_cast<size_t>(place(row, i * bytes))], bytes,
          element_of(T, b[static_cast<size_t>(row * k + i)]));
  }
  // PTX ISA, wgmma register fragment of A: four registers; rows 16·warp + lane/4 and + 8, K in two
  // halves.
  std::vector<uint32_t> fragments(static_cast<size_t>(steps * 128 * 4));
  for (int step = 0; step < steps; step++) {
    for (int t = 0; t < 128; t++) {
      for (int r = 0; r < 4; r++) {
        for (int e = 0; e < 4 / bytes; e++) {
          int row = t / 32 * 16 + t % 32 / 4 + (r == 1 || r == 3 ? 8 : 0);
          int column = step * k_of_step + (r >= 2 ? k_of_step / 2 : 0) + t % 4 * (4 / bytes) + e;
          put(reinterpret_cast<uint8_t *>(&fragments[static_cast<size_t>((step * 128 + t) * 4 + r)]) +
                  e * bytes,
              bytes, element_of(T, a[static_cast<size_t>(row * k + column)]));
        }
      }
    }
  }
  std::vector<float> out(static_cast<size_t>(128 * N / 2), NAN);
  Shape shape = {N, steps, swizzle, a_in_registers};
  sie_status status = SIE_LAUNCH((wgmma_kernel<T, N>), 1, 128, pa.size() + pb.size(), &on_sm90, pa.data(),
                                 pb.data(), fragments.data(), out.data(), shape,
                                 static_cast<uint32_t>(pa.size()), static_cast<uint32_t>(pb.size()));
  CHECK(status == SIE_OK, "status %d", status);
  for (int t = 0; t < 128; t++) {
    for (int i = 0; i < N / 2; i++) {
      int row = t / 32 * 16 + t % 32 / 4 + (i % 4 >= 2 ? 8 : 0), column = i / 4 * 8 + t % 4 * 2 + i % 2;
      int32_t want = 0;
      for (int l = 0; l < k; l++)
        want += a[static_cast<size_t>(row * k + l)] * b[static_cast<size_t>(column * k + l)];
      float got = out[static_cast<size_t>(t * (N / 2) + i)];
      CHECK(got == static_cast<float>(want),
            "type %d n %d swizzle %d registers %d: row %d column %d is %g, not %d", static_cast<int>(T), N,
            static_cast<int>(swizzle), a_in_registers, row, column, static_cast<double>(got), want);
    }
  }
}

template <Operand T>
void check_all() {
  for (Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (bool a_in_registers : {false, true}) {
      check_wgmma<T, 8>(swizzle, a_in_registers);
      check_wgmma<T, 64>(swizzle, a_in_registers);
    }
  }
  check_wgmma<T, 16>(Swizzle::b128, false);
  check_wgmma<T, 24>(Swizzle::b128, false);
  check_wgmma<T, 32>(Swizzle::b128, true);
  check_wgmma<T, 96>(Swizzle::b128, false);
  check_wgmma<T, 128>(Swizzle::b128, false);
  check_wgmma<T, 192>(Swizzle::b128, true);
  check_wgmma<T, 256>(Swizzle::b128, false);
}

TEST(wgmma_bf16) { check_all<Operand::bf16>(); }
TEST(wgmma_f16) { check_all<Operand::f16>(); }
TEST(wgmma_e4m3) { check_all<Operand::e4m3>(); }

// B by rows: boxes of one swizzle's row by 16·steps rows, next to each other with a gap between them.
template <Operand T, int N>
__global__ void by_rows_kernel(const uint8_t *b, uint32_t b_bytes, const uint32_t *fragments, float *out,
                               int steps, Swizzle swizzle, uint32_t column_group) {
  SIE_DYNAMIC_SHARED(shared);
  for (uint32_t i = threadIdx.x; i < b_bytes; i += blockDim.x) shared[i] = b[i];
  fence_proxy_async();
  __syncthreads();
  float d[N / 2];
  for (float &x : d) x = 100.0f;
  const uint32_t row_group = 8 * static_cast<uint32_t>(swizzle_row_bytes(swizzle));
  const uint64_t descriptor =
      wgmma_descriptor_by_rows(shared_address(shared), swizzle, row_group, column_group);
  wgmma_fence();
  for (int step = 0; step < steps; step++) {
    const uint32_t *f = fragments + (static_cast<uint32_t>(step) * 128 + threadIdx.x) * 4;
    const uint32_t fragment[4] = {f[0], f[1], f[2], f[3]};
    wgmma_by_rows<T, N>(d, fragment, wgmma_advance(descriptor, static_cast<uint32_t>(step) * 2 * row_group),
                        step != 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
  for (int i = 0; i < N / 2; i++) out[threadIdx.x * (N / 2) + static_cast<uint32_t>(i)] = d[i];
}

// Against the plain product Σ_k a[row, k]·b[k, column].
template <Operand T, int N>
void check_by_rows(Swizzle swizzle) {
  constexpr int steps = 3, k = 16 * steps;
  const int row_bytes = swizzle_row_bytes(swizzle), columns = row_bytes / 2;
  const int box = k * row_bytes, gap = 8 * row_bytes, column_group = box + gap;
  Random random(static_cast<uint32_t>(N + row_bytes));
  std::vector<int32_t> a(64 * k), b(static_cast<size_t>(k * N));
  for (auto *m : {&a, &b}) {
    for (int32_t &x : *m) x = random.below(9) - 4;
  }
  // What lies between the boxes is NaN in both types.
  std::vector<uint8_t> packed(static_cast<size_t>(N / columns * column_group), 0xff);
  for (int row = 0; row < k; row++) {
    for (int i = 0; i < N; i++) {
      const int byte = i % columns * 2;
      const int at = i / columns * column_group + row / 8 * 8 * row_bytes +
                     chunk_place(swizzle, row % 8, byte / 16) + byte % 16;
      put(&packed[static_cast<size_t>(at)], 2, element_of(T, b[static_cast<size_t>(row * N + i)]));
    }
  }
  std::vector<uint32_t> fragments(steps * 128 * 4);
  for (int step = 0; step < steps; step++) {
    for (int t = 0; t < 128; t++) {
      for (int r = 0; r < 4; r++) {
        for (int e = 0; e < 2; e++) {
          const int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8;
          const int column = step * 16 + r / 2 * 8 + t % 4 * 2 + e;
          put(reinterpret_cast<uint8_t *>(&fragments[static_cast<size_t>((step * 128 + t) * 4 + r)]) + e * 2,
              2, element_of(T, a[static_cast<size_t>(row * k + column)]));
        }
      }
    }
  }
  std::vector<float> out(128 * N / 2, NAN);
  const sie_status status = SIE_LAUNCH((by_rows_kernel<T, N>), 1, 128, packed.size(), &on_sm90, packed.data(),
                                       static_cast<uint32_t>(packed.size()), fragments.data(), out.data(),
                                       steps, swizzle, static_cast<uint32_t>(column_group));
  CHECK(status == SIE_OK, "status %d", status);
  for (int t = 0; t < 128; t++) {
    for (int i = 0; i < N / 2; i++) {
      const int row = t / 32 * 16 + t % 32 / 4 + (i % 4 >= 2 ? 8 : 0), column = i / 4 * 8 + t % 4 * 2 + i % 2;
      int32_t want = 0;
      for (int l = 0; l < k; l++)
        want += a[static_cast<size_t>(row * k + l)] * b[static_cast<size_t>(l * N + column)];
      const float got = out[static_cast<size_t>(t * (N / 2) + i)];
      CHECK(got == static_cast<float>(want),
            "by rows, type %d n %d swizzle %d: row %d column %d is %g, not %d", static_cast<int>(T), N,
            static_cast<int>(swizzle), row, column, static_cast<double>(got), want);
    }
  }
}

TEST(wgmma_with_b_by_rows) {
  for (Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    check_by_rows<Operand::bf16, 64>(swizzle);
    check_by_rows<Operand::f16, 128>(swizzle);
  }
  check_by_rows<Operand::f16, 64>(Swizzle::b128);
  check_by_rows<Operand::bf16, 128>(Swizzle::b128);
}

// mma and wgmma of any width give the same bits for the same K order: what the numeric class relies
// on here.
template <int N>
__global__ void one_class_kernel(const uint16_t *a, const uint16_t *b, float *out_wide, float *out_mma) {
  SIE_DYNAMIC_SHARED(shared);
  uint16_t *tile_a = reinterpret_cast<uint16_t *>(shared), *tile_b = tile_a + 64 * 16;
  for (uint32_t i = threadIdx.x; i < 64 * 16; i += 128)
    tile_a[i / 128 * 128 + i % 16 / 8 * 64 + i % 128 / 16 * 8 + i % 8] = a[i];
  for (uint32_t i = threadIdx.x; i < N * 16; i += 128)
    tile_b[i / 128 * 128 + i % 16 / 8 * 64 + i % 128 / 16 * 8 + i % 8] = b[i];
  __syncthreads();
  float d[N / 2] = {};
  wgmma_fence();
  wgmma<Operand::bf16, N>(d, wgmma_descriptor(tile_a, Swizzle::none, 256, 128),
                          wgmma_descriptor(tile_b, Swizzle::none, 256, 128), 0);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
  uint32_t t = threadIdx.x, g = t % 32 / 4, c = t % 4 * 2;
  for (uint32_t i = 0; i < N / 2; i++)
    out_wide[(t / 32 * 16 + g + i / 2 % 2 * 8) * N + i / 4 * 8 + c + i % 2] = d[i];
  auto pair = [](const uint16_t *p) { return p[0] | static_cast<uint32_t>(p[1]) << 16; };
  const uint16_t *rows = a + (t / 32 * 16 + g) * 16;
  const uint32_t fragment[4] = {pair(rows + c), pair(rows + 128 + c), pair(rows + c + 8),
                                pair(rows + 128 + c + 8)};
  for (uint32_t j = 0; j < N / 8; j++) {
    float e[4] = {};
    mma_m16n8<Operand::bf16>(e, fragment, pair(b + (j * 8 + g) * 16 + c), pair(b + (j * 8 + g) * 16 + c + 8));
    for (uint32_t i = 0; i < 4; i++) out_mma[(t / 32 * 16 + g + i / 2 * 8) * N + j * 8 + c + i % 2] = e[i];
  }
}

template <int N>
void check_one_class(std::vector<uint16_t> &a, std::vector<uint16_t> &b, std::vector<float> &first) {
  std::vector<float> wide(64 * N), narrow(64 * N);
  CHECK(SIE_LAUNCH(one_class_kernel<N>, 1, 128, 64 * 32 + N * 32, &on_sm90, a.data(), b.data(), wide.data(),
                   narrow.data()) == SIE_OK,
        "launch");
  CHECK(memcmp(wide.data(), narrow.data(), wide.size() * 4) == 0, "wgmma and mma differ at N = %d", N);
  if (first.empty()) first = wide;
  for (size_t row = 0; row < 64; row++) {
    CHECK(memcmp(&wide[row * N], &first[row * 256], 8 * 4) == 0, "N = %d differs from N = 256 in row %zu", N,
          row);
  }
}

TEST(mma_and_every_wgmma_are_one_class) {
  Random random(3);
  std::vector<uint16_t> a(64 * 16), b(256 * 16);
  for (auto *m : {&a, &b}) {
    for (uint16_t &x : *m) x = to_bf16(static_cast<float>(random.bits()) / 8388608.0f - 1.0f);
  }
  std::vector<float> first;
  check_one_class<256>(a, b, first);
  check_one_class<64>(a, b, first);
  check_one_class<8>(a, b, first);
}

}  // namespace
}  // namespace simt_test
