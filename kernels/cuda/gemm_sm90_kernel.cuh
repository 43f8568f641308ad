// gemm_sm90_kernel — the wide form as a kernel: roles of the three warpgroups. Math and plan: gemm_sm90.cuh.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_store.cuh"
#include "cuda/ptx/special.h"

namespace sie_cuda {

template <class Tile>
SIE_DEVICE void sm90_start(const Sm90Shared<Tile> &shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::stages; i++) {
      ptx::mbarrier_init(shared.full + i, 1);
      ptx::mbarrier_init(shared.empty + i, Tile::releases);
    }
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(shared.turn + i, 4);
    ptx::fence_mbarrier_init();
  }
  if (Tile::cluster > 1) {
    ptx::sync_warp();
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
}

// The tiles of a CTA (of a cluster): one in `stride`, from `first` on.
template <class Tile>
SIE_DEVICE int32_t sm90_tile(int32_t count) {
  const int32_t first = ptx::block_index() / Tile::cluster;
  const int32_t stride = static_cast<int32_t>(gridDim.x) / Tile::cluster;
  return first + count * stride;
}

// A consumer warpgroup: its tiles, one after the other. Sums need the registers: only `count` and the place
// in the ring are kept, all else is computed anew, and the number of rows read again.
template <class Tile, Sm90Form Form>
SIE_DEVICE void sm90_consume(const Sm90Shared<Tile> &shared, const ptx::TensorMap *y_map, const Sm90Gemm &g) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, group = warp / 4;
  const int32_t rank = Tile::cluster == 1 ? 0 : static_cast<int32_t>(ptx::cluster_rank());
  const int32_t x_offset = Tile::cooperative ? group * Tile::warpgroup_rows * sm90_line : 0;
  unsigned char *staging = shared.staging + warp * 2 * sm90_staging;
  uint64_t *turn_of_other = Tile::cooperative ? nullptr : shared.turn + (group ^ 1);
  Sm90Ring<Tile::stages> ring;
  if (!Tile::cooperative && group == 1) ring.skip(g.steps);
  for (int32_t count = 0;; count++) {
    const Sm90Order order = sm90_order<Tile>(*g.rows, g);
    const int32_t index = sm90_tile<Tile>(Tile::cooperative ? count : 2 * count + group);
    if (index >= order.total) break;
    int32_t m, n;
    order.at(index, &m, &n);
    const int32_t row = (m * Tile::cluster + rank) * Tile::rows + x_offset / sm90_line + warp % 4 * 16;
    // Group 0 begins, then each lets the other go on.
    const int32_t turns = count - (group == 0 ? 1 : 0);
    if (!Tile::cooperative && turns >= 0)
      ptx::mbarrier_wait(shared.turn + group, static_cast<uint32_t>(turns) & 1u);
    float z[Tile::blocks][Tile::sums];
    if constexpr (Tile::promoted) {
      sm90_sum_promoted<Tile>(z, shared, &ring, x_offset, g, row + static_cast<int32_t>(ptx::lane_id()) / 4,
                              *g.rows, turn_of_other);
    } else {
      sm90_sum<Tile>(z, shared, &ring, x_offset, g.steps, turn_of_other);
    }
    if (!Tile::cooperative) ring.skip(g.steps);  // the other's tile
    sm90_store<Tile, Form>(z, g, staging, y_map, row, *g.rows, n * Tile::columns);
  }
  if (ptx::lane_id() == 0) ptx::tma_store_wait<0>();
}

template <class Tile, Sm90Form Form>
__global__ void __launch_bounds__(sm90_threads, 1)
    gemm_sm90_kernel(const __grid_constant__ ptx::TensorMap x_map,
                     const __grid_constant__ ptx::TensorMap w_map,
                     const __grid_constant__ ptx::TensorMap y_map, const __grid_constant__ Sm90Gemm g) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(base);
  const Sm90Shared<Tile> shared(base);
  sm90_start(shared);
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  if (threadIdx.x >= 2 * sm90_warpgroup) {
    ptx::registers_decrease<Tile::producer_registers>();
    if (threadIdx.x == 2 * sm90_warpgroup) {
      sm90_produce<Tile>(shared, &x_map, &w_map, g, sm90_order<Tile>(*g.rows, g), sm90_tile<Tile>(0),
                         sm90_tile<Tile>(1) - sm90_tile<Tile>(0));
    }
    ptx::sync_warp();
  } else {
    ptx::registers_increase<Tile::consumer_registers>();
    sm90_consume<Tile, Form>(shared, &y_map, g);
  }
  // A neighbour may still signal barriers here.
  if (Tile::cluster > 1) ptx::cluster_sync();
#endif
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
