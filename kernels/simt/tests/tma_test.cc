// TMA: boxes, swizzles, edges, stores, multicast, bulk copies.
#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

__global__ void load_kernel(const __grid_constant__ TensorMap map, uint8_t *out, int rank, int c0, int c1,
                            int c2, uint32_t bytes) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    tma_prefetch(&map);
    mbarrier_arrive_expect(barrier, bytes);
    if (rank == 2) {
      tma_load_2d(shared + 1024, &map, c1, c0, barrier);
    } else {
      tma_load_3d(shared + 1024, &map, c0, c1, c2, barrier);
    }
  }
  __syncthreads();
  mbarrier_wait(barrier, 0);
  for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = shared[1024 + i];
}

// CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*: chunks of 16 bytes are exchanged inside spans of 128,
// 64 or 32 bytes, the pattern repeating after 1024, 512 or 256 bytes.
uint32_t chunk_exchanged(Swizzle swizzle, uint32_t row, uint32_t chunk) {
  switch (swizzle) {
    case Swizzle::b128:
      return chunk ^ row % 8;
    case Swizzle::b64:
      return chunk ^ row / 2 % 4;
    case Swizzle::b32:
      return chunk ^ row / 4 % 2;
    default:
      return chunk;
  }
}

TEST(tma_load_2d_swizzles_and_fills) {
  const int rows = 40, columns = 150, ld = 160;  // u8
  Aligned<uint8_t> tensor(rows * ld);
  for (int i = 0; i < rows * ld; i++)
    tensor[static_cast<size_t>(i)] = static_cast<uint8_t>(i % ld < columns ? 1 + i % 251 : 0xee);
  for (Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    const uint32_t width = swizzle == Swizzle::none ? 48 : static_cast<uint32_t>(swizzle_row_bytes(swizzle)),
                   height = 24;
    TensorMap map;
    CHECK(tensor_map_2d(&map, SIE_U8, tensor.data(), rows, columns, ld, static_cast<int>(height),
                        static_cast<int>(width), swizzle) == SIE_OK,
          "map");
    const int places[][2] = {{0, 0}, {3, 16}, {30, 0}, {-5, -16}, {20, 140}, {100, 0}, {0, 1000}, {-24, 0}};
    for (const auto &at : places) {
      std::vector<uint8_t> out(width * height);
      CHECK(SIE_LAUNCH(load_kernel, 1, 32, 1024 + 128 * 24, &on_sm90, map, out.data(), 2, at[1], at[0], 0,
                       width * height) == SIE_OK,
            "launch");
      for (uint32_t r = 0; r < height; r++) {
        for (uint32_t c = 0; c < width; c++) {
          int row = at[0] + static_cast<int>(r), column = at[1] + static_cast<int>(c);
          uint8_t want = 0;
          if (row >= 0 && row < rows && column >= 0 && column < columns)
            want = tensor[static_cast<size_t>(row * ld + column)];
          uint8_t got = out[r * width + chunk_exchanged(swizzle, r, c / 16) * 16 + c % 16];
          CHECK(got == want, "swizzle %d at (%d, %d): (%u, %u) is %u, not %u", static_cast<int>(swizzle),
                at[0], at[1], r, c, got, want);
        }
      }
    }
  }
}

TEST(tma_load_3d) {
  const int64_t extent[3] = {20, 7, 3}, stride[2] = {24, 24 * 9};  // bf16, rows and planes with gaps
  const int32_t box[3] = {16, 4, 2};
  Aligned<uint16_t> tensor(24 * 9 * 3);
  for (size_t i = 0; i < tensor.size(); i++) tensor[i] = static_cast<uint16_t>(i + 1);
  TensorMap map;
  CHECK(tensor_map_3d(&map, SIE_BF16, tensor.data(), extent, stride, box, Swizzle::b32) == SIE_OK, "map");
  const int places[][3] = {{0, 0, 0}, {16, 2, 1}, {-8, 5, 2}, {4, -1, -1}};
  for (const auto &at : places) {
    std::vector<uint8_t> out(16 * 4 * 2 * 2);
    CHECK(SIE_LAUNCH(load_kernel, 1, 64, 4096, &on_sm90, map, out.data(), 3, at[0], at[1], at[2], 256u) ==
              SIE_OK,
          "launch");
    for (int z = 0; z < 2; z++) {
      for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 16; x++) {
          int gx = at[0] + x, gy = at[1] + y, gz = at[2] + z;
          bool inside = gx >= 0 && gx < 20 && gy >= 0 && gy < 7 && gz >= 0 && gz < 3;
          uint16_t want = inside ? static_cast<uint16_t>(gz * 216 + gy * 24 + gx + 1) : uint16_t{0};
          uint32_t row = static_cast<uint32_t>(z * 4 + y);
          uint16_t got;
          memcpy(&got,
                 &out[row * 32 + chunk_exchanged(Swizzle::b32, row, static_cast<uint32_t>(x) / 8) * 16 +
                      static_cast<uint32_t>(x) % 8 * 2],
                 2);
          CHECK(got == want, "(%d, %d, %d): %u, not %u", gx, gy, gz, got, want);
        }
      }
    }
  }
}

__global__ void store_kernel(const __grid_constant__ TensorMap map, int row, int column, bool read_first) {
  SIE_DYNAMIC_SHARED(shared);
  uint16_t *tile = reinterpret_cast<uint16_t *>(shared);
  // Twice from one buffer: the second must wait until the first was read.
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = threadIdx.x; i < 16 * 64; i += blockDim.x) {
      uint32_t r = i / 64, c = i % 64;
      tile[r * 64 + ((c / 8) ^ r % 8) * 8 + c % 8] =
          static_cast<uint16_t>(1000 * (round + 1) + static_cast<int>(i));
    }
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      tma_store_2d(&map, shared, row + 16 * round, column);
      tma_store_commit();
      if (read_first) {
        tma_store_wait_read<0>();
      } else {
        tma_store_wait<0>();
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) tma_store_wait<0>();
}

TEST(tma_store_2d_writes_what_lies_inside) {
  const int rows = 29, columns = 90, ld = 96;
  for (bool read_first : {false, true}) {
    for (int column : {0, 64, -8}) {
      for (int row : {0, -3, 10}) {
        Aligned<uint16_t> tensor(rows * ld);
        for (uint16_t &x : tensor) x = 7;
        TensorMap map;
        CHECK(
            tensor_map_2d(&map, SIE_BF16, tensor.data(), rows, columns, ld, 16, 64, Swizzle::b128) == SIE_OK,
            "map");
        CHECK(SIE_LAUNCH(store_kernel, 1, 128, 2048, &on_sm90, map, row, column, read_first) == SIE_OK,
              "launch");
        for (int r = 0; r < rows; r++) {
          for (int c = 0; c < ld; c++) {
            int y = r - row, x = c - column;
            int want = 7;
            if (c < columns && x >= 0 && x < 64 && y >= 0 && y < 32)
              want = 1000 * (y / 16 + 1) + y % 16 * 64 + x;
            int got = tensor[static_cast<size_t>(r * ld + c)];
            CHECK(got == want, "box at (%d, %d): (%d, %d) is %d, not %d", row, column, r, c, got, want);
          }
        }
      }
    }
  }
}

__global__ void bulk_kernel(const uint8_t *in, uint8_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect(barrier, 160);
    bulk_load(shared + 16, in, 96, barrier);
    bulk_load(shared + 112, in + 112, 64, barrier);
  }
  __syncthreads();
  mbarrier_wait(barrier, 0);
  for (uint32_t i = threadIdx.x; i < 160; i += 32) out[i] = shared[16 + i];
}

TEST(bulk_load_copies_bytes) {
  Aligned<uint8_t> in(256);
  for (size_t i = 0; i < 256; i++) in[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> out(160);
  for (int i = 0; i < 10; i++) {
    CHECK(SIE_LAUNCH(bulk_kernel, 1, 32, 256, &on_sm90, in.data(), out.data()) == SIE_OK, "launch");
    for (size_t b = 0; b < 160; b++) CHECK(out[b] == (b < 96 ? b : b + 16), "byte %zu is %u", b, out[b]);
  }
}

// Each block of a pair loads one half of the rows for both.
__global__ void multicast_kernel(const __grid_constant__ TensorMap map, uint16_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init(barrier + 1, 2);
    fence_mbarrier_init();
  }
  cluster_sync();
  for (uint32_t round = 0; round < 3; round++) {
    if (threadIdx.x == 0) {
      if (round > 0) mbarrier_wait(barrier + 1, (round - 1) & 1u);  // both blocks have read the last round
      mbarrier_arrive_expect(barrier, 2 * 8 * 128);
      tma_load_2d_multicast(shared + 1024 + rank * 1024, &map, static_cast<int>(round * 16 + rank * 8), 0,
                            barrier, 3);
    }
    mbarrier_wait(barrier, round & 1u);
    for (uint32_t i = threadIdx.x; i < 16 * 64; i += 64) {
      out[((blockIdx.x * 3) + round) * 1024 + i] = reinterpret_cast<uint16_t *>(shared + 1024)[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      mbarrier_arrive(barrier + 1);
      mbarrier_arrive_cluster(barrier + 1, rank ^ 1u);
    }
  }
  cluster_sync();
}

TEST(tma_multicast_in_a_cluster) {
  Aligned<uint16_t> tensor(48 * 64);
  for (size_t i = 0; i < tensor.size(); i++) tensor[i] = static_cast<uint16_t>(i);
  TensorMap map;
  CHECK(tensor_map_2d(&map, SIE_F16, tensor.data(), 48, 64, 64, 8, 64, Swizzle::none) == SIE_OK, "map");
  for (int run = 0; run < 20; run++) {
    std::vector<uint16_t> out(4 * 3 * 1024, 9);
    CHECK(SIE_LAUNCH_CLUSTER(multicast_kernel, 2, 4, 64, 3072, &on_sm90, map, out.data()) == SIE_OK,
          "launch");
    for (size_t i = 0; i < out.size(); i++)
      CHECK(out[i] == i % 3072, "block %zu: element %zu is %u", i / 3072, i % 3072, out[i]);
  }
}

TEST(tensor_maps_are_refused_as_the_driver_does) {
  Aligned<uint16_t> t(64 * 64);
  TensorMap map;
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data() + 1, 64, 64, 64, 8, 64, Swizzle::b128) == SIE_INVALID_ARGUMENT,
        "address");
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data(), 64, 60, 60, 8, 64, Swizzle::b128) == SIE_INVALID_ARGUMENT,
        "stride");
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data(), 0, 64, 64, 8, 64, Swizzle::b128) == SIE_INVALID_ARGUMENT,
        "no rows");
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data(), 64, 64, 64, 257, 64, Swizzle::b128) == SIE_INVALID_ARGUMENT,
        "box");
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data(), 64, 64, 64, 8, 128, Swizzle::b128) == SIE_INVALID_ARGUMENT,
        "box wider than the swizzle");
  CHECK(tensor_map_2d(&map, SIE_BF16, t.data(), 64, 64, 64, 8, 4, Swizzle::none) == SIE_INVALID_ARGUMENT,
        "box row of 8 bytes");
  CHECK(tensor_map_2d(&map, SIE_I32, t.data(), 64, 64, 64, 8, 32, Swizzle::none) == SIE_INVALID_ARGUMENT,
        "type");
  CHECK(tensor_map_2d(&map, SIE_F32, t.data(), 16, 64, 64, 8, 32, Swizzle::b128) == SIE_OK, "f32");
}

}  // namespace
}  // namespace simt_test
