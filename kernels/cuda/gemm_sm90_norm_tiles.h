// gemm_sm90_norm_tiles.h — the tiles of linears whose cluster holds whole rows of y and normalises them
// (gemm_sm90_norm_kernel.cuh).
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_NORM_TILES_H
#define SIE_KERNELS_CUDA_GEMM_SM90_NORM_TILES_H

#include "cuda/gemm_sm90_tiles.h"

namespace sie_cuda {

// The members are those of gemm_sm90_tiles.h, but for
//   cluster    the CTAs that are neighbours along N: cluster · columns is the width of a row

// 384 and 768 columns.
struct Sm90Norm64x192 {
  static constexpr Sm90Schedule schedule = Sm90Schedule::pingpong;
  static constexpr int rows = 64, columns = 192, width = 192, cluster = 2;
};

struct Sm90Norm64x192Four : Sm90Norm64x192 {
  static constexpr int cluster = 4;
};

struct Sm90Norm128x192 : Sm90Norm64x192 {
  static constexpr int rows = 128;
};

struct Sm90Norm128x192Four : Sm90Norm128x192 {
  static constexpr int cluster = 4;
};

// 1,024 columns.
struct Sm90Norm128x128Eight {
  static constexpr Sm90Schedule schedule = Sm90Schedule::pingpong;
  static constexpr int rows = 128, columns = 128, width = 128, cluster = 8;
};

// Less of a row's x from L2 for each product, and no epilogue beside a main loop: for many steps of K.
struct Sm90NormCooperative128x256Four {
  static constexpr Sm90Schedule schedule = Sm90Schedule::cooperative;
  static constexpr int rows = 128, columns = 256, width = 256, cluster = 4;
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_NORM_TILES_H
