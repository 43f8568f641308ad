// gemm_sm90_tiles.h — the tiles of gemm_sm90's wide form: what a CTA computes at once, and how its
// two consumer warpgroups share it.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_TILES_H
#define SIE_KERNELS_CUDA_GEMM_SM90_TILES_H

namespace sie_cuda {

enum class Sm90Schedule {
  pingpong,    // the warpgroups take tiles in turn: one stores while the other multiplies
  cooperative  // both on one tile, each on one half of its rows: for sums that do not fit one
};

// The members of a tile:
//   schedule   of its warpgroups
//   rows       of x, of the whole tile
//   columns    rows of W: columns of the product
//   width      columns of one wgmma; columns is a multiple. Class FP8 takes 128 (Sm90Tile)
//   cluster    1, or 2: CTAs of neighbouring row tiles share each tile of W, half of it brought by each

struct Sm90Pingpong64x128 {
  static constexpr Sm90Schedule schedule = Sm90Schedule::pingpong;
  static constexpr int rows = 64, columns = 128, width = 128, cluster = 1;
};

struct Sm90Pingpong128x128 {
  static constexpr Sm90Schedule schedule = Sm90Schedule::pingpong;
  static constexpr int rows = 128, columns = 128, width = 128, cluster = 1;
};

struct Sm90Pingpong128x128Pair : Sm90Pingpong128x128 {
  static constexpr int cluster = 2;
};

// 192 registers of sums a thread: classes of 16 bits only. At the tensor cores' full rate it asks shared
// memory for 139 bytes a clock, 128 × 128 for 160; its port has 128.
struct Sm90Pingpong128x192 {
  static constexpr Sm90Schedule schedule = Sm90Schedule::pingpong;
  static constexpr int rows = 128, columns = 192, width = 192, cluster = 1;
};

// 37 bytes a clock from L2 where one CTA alone asks for 53, of the 47 that there are.
struct Sm90Pingpong128x192Pair : Sm90Pingpong128x192 {
  static constexpr int cluster = 2;
};

struct Sm90Cooperative128x256 {
  static constexpr Sm90Schedule schedule = Sm90Schedule::cooperative;
  static constexpr int rows = 128, columns = 256, width = 256, cluster = 1;
};

struct Sm90Cooperative128x256Pair : Sm90Cooperative128x256 {
  static constexpr int cluster = 2;
};

// Rows of the tile that one warpgroup computes.
template <class Shape>
constexpr int sm90_warpgroup_rows =
    Shape::schedule == Sm90Schedule::cooperative ? Shape::rows / 2 : Shape::rows;

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_TILES_H
