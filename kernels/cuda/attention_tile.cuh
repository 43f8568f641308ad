// attention_tile.cuh — rows of queries, keys and values in shared memory, and their copies into it.
//
// A tile holds rows of D elements. Their 16-byte chunks are permuted within the row so that the
// eight rows that ldmatrix reads at one column lie in eight different bank groups.
#ifndef SIE_KERNELS_CUDA_ATTENTION_TILE_CUH
#define SIE_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "cuda/attention_work.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/device.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {
namespace {

constexpr int kWarpRows = 16;
template <int D>
constexpr int kBlockKeys = attention_block_keys(D);

// The xor of a chunk's index in its row.
template <int D>
SIE_DEVICE int chunk_key(int row) {
  return D == 32 ? (row >> 1) & 3 : row & 7;  // two rows of 64 bytes share the banks of one of 128
}

// Copies kRows rows, kThreads threads together; rows from `valid` on become zeros and are not read.
template <int D, int kRows, int kThreads>
SIE_DEVICE void copy_rows(uint32_t tile, const uint16_t *from, int64_t ld, int valid, int thread) {
  constexpr int kChunks = D / 8, kStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0, "every thread copies as much");
  thread = ptx::opaque(thread);
  int first = thread / kChunks, chunk = thread % kChunks;
  const uint16_t *at = from + first * ld + chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows / kStep; i++) {
    int row = first + i * kStep;
    ptx::cp_async_16(tile + static_cast<uint32_t>((row * kChunks + (chunk ^ chunk_key<D>(row))) * 16), at,
                     row < valid);
    at += kStep * ld;
  }
}

// The same of rows in two places: those before `split`, where there are any, from `first`, the others
// from `second` on.
template <int D, int kRows, int kThreads>
SIE_DEVICE void copy_split_rows(uint32_t tile, const uint16_t *first, int64_t first_ld, int split,
                                const uint16_t *second, int64_t second_ld, int valid, int thread) {
  constexpr int kChunks = D / 8, kStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0, "every thread copies as much");
  thread = ptx::opaque(thread);
  int start = thread / kChunks, chunk = thread % kChunks;
#pragma unroll
  for (int i = 0; i < kRows / kStep; i++) {
    int row = start + i * kStep;
    const uint16_t *at = row < split ? first + row * first_ld : second + (row - split) * second_ld;
    ptx::cp_async_16(tile + static_cast<uint32_t>((row * kChunks + (chunk ^ chunk_key<D>(row))) * 16),
                     at + chunk * 8, row < valid);
  }
}

// Sixteen query rows as A operands. Up to D = 128 they stay in registers; above, the accumulators
// need those registers.
template <int D>
struct Queries {
  static constexpr bool kKept = D <= 128;
  uint32_t kept[kKept ? D / 16 : 1][4];
  uint32_t row;  // address of this lane's row of the tile
  int key, half;

  SIE_DEVICE void read(uint32_t (&a)[4], int step) const {
    ptx::ldmatrix_x4(a, row + static_cast<uint32_t>(((2 * step) ^ half ^ key) * 16));
  }
  // Columns 16·step … 16·step + 15.
  SIE_DEVICE void operand(uint32_t (&a)[4], int step) const {
    if constexpr (kKept) {
#pragma unroll
      for (int e = 0; e < 4; e++) a[e] = kept[step][e];
    } else {
      read(a, step);
    }
  }

  // Takes the warp's own tile, which its lanes have filled and then synchronised.
  SIE_DEVICE void take(uint32_t tile, int lane) {
    int r = lane & 15;
    row = tile + static_cast<uint32_t>(r * D * 2);
    key = chunk_key<D>(r);
    half = lane >> 4;
    if constexpr (kKept) {
#pragma unroll
      for (int step = 0; step < D / 16; step++) read(kept[step], step);
    }
  }
};

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_TILE_CUH
