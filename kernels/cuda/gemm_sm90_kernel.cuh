// gemm_sm90_kernel — the wide form as a kernel: the roles of the three warpgroups. Math and plan
// are in gemm_sm90.cuh.
//
// Who waits on which barrier. s is a stage of the ring, A and B are the consumer warpgroups:
//   producer      wait empty[s] · announce the bytes at full[s] · TMA of x and W into s · next s
//   A, ping-pong  wait turn[A] · for each s of its tile (wait full[s] · wgmma · when the products of
//                 the stage before are done, arrive at its empty) · arrive at turn[B] · epilogue
//   B, ping-pong  the same with turn[B] and turn[A]; A does not wait before its first tile
//   cooperative   A and B wait for each full[s] and arrive at each empty[s]; there are no turns
// Each consumer warp arrives once at empty[s], of a pair at both CTAs': each writes into the other.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_any.cuh"
#include "cuda/gemm_sm90_store.cuh"

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

// The place of a consumer warp's part of a tile: its first row, and the tile's first column of W.
struct Sm90Place {
  int32_t row, column;
};

// The place in the CTA's tile number `count`; false past its last tile.
template <class Tile>
SIE_DEVICE bool sm90_place(int32_t count, const Sm90Gemm &g, Sm90Place *place) {
  const Sm90Order order = sm90_order<Tile>(*g.rows, g);
  const int32_t index = sm90_tile<Tile>(count);
  if (index >= order.total) return false;
  const int32_t rank = Tile::cluster == 1 ? 0 : static_cast<int32_t>(ptx::cluster_rank());
  const int32_t warp = ptx::thread_index() / 32, group = Tile::cooperative ? warp / 4 : 0;
  int32_t m, n;
  order.at(index, &m, &n);
  place->row = (m * Tile::cluster + rank) * Tile::rows + group * Tile::warpgroup_rows + warp % 4 * 16;
  place->column = n * Tile::columns;
  return true;
}

// A consumer warpgroup: computes its tiles one after the other; finish(z, place) takes the sums of
// each. The sums need the registers: only `count` and the place in the ring are kept, all else is
// computed anew, and the number of rows is read again.
template <class Tile, class Finish>
SIE_DEVICE void sm90_consume(const Sm90Shared<Tile> &shared, const Sm90Gemm &g, const Finish &finish) {
  // Shuffled, it is the same in the whole warp for the compiler too: descriptors stay in uniform
  // registers, where each wgmma had four moves to them.
  const int32_t group = ptx::shuffle_from(static_cast<int32_t>(threadIdx.x) / sm90_warpgroup, 0);
  const int32_t x_offset = Tile::cooperative ? group * Tile::warpgroup_rows * sm90_line : 0;
  uint64_t *turn_of_other = Tile::cooperative ? nullptr : shared.turn + (group ^ 1);
  Sm90Ring<Tile::stages> ring;
  if (!Tile::cooperative && group == 1) ring.skip(g.steps);
  Sm90Place place;
  for (int32_t count = 0;; count++) {
    const int32_t of_cta = Tile::cooperative ? count : 2 * count + group;
    if (!sm90_place<Tile>(of_cta, g, &place)) break;
    // Group 0 begins, then each lets the other proceed.
    const int32_t turns = count - (group == 0 ? 1 : 0);
    if (!Tile::cooperative && turns >= 0)
      ptx::mbarrier_wait(shared.turn + group, static_cast<uint32_t>(turns) & 1u);
    float z[Tile::blocks][Tile::sums];
    if constexpr (Tile::promoted) {
      const int32_t row = place.row + static_cast<int32_t>(ptx::lane_id()) / 4;
      sm90_sum_promoted<Tile>(z, shared, &ring, x_offset, g, row, *g.rows, turn_of_other);
    } else {
      sm90_sum<Tile>(z, shared, &ring, x_offset, g.steps, turn_of_other);
    }
    if (!Tile::cooperative) ring.skip(g.steps);  // the other's tile
    sm90_place<Tile>(of_cta, g, &place);
    finish(z, place);
  }
}

// The work of a CTA's three warpgroups from start to end. No load goes ahead of the wait: the place
// of a tile, of W too, depends on *g.rows, which a kernel before may write.
template <class Tile, class Consume>
SIE_DEVICE void sm90_roles(const Sm90Shared<Tile> &shared, const ptx::TensorMap *x_map,
                           const ptx::TensorMap *w_map, const Sm90Gemm &g, const Consume &consume) {
  if (threadIdx.x == 2 * sm90_warpgroup) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  sm90_start(shared);
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  if (threadIdx.x >= 2 * sm90_warpgroup) {
    ptx::registers_decrease<Tile::producer_registers>();
    if (threadIdx.x == 2 * sm90_warpgroup) {
      sm90_produce(shared, x_map, w_map, g);
    }
    ptx::sync_warp();
  } else {
    ptx::registers_increase<Tile::consumer_registers>();
    consume();
  }
  // A neighbour may still signal barriers here.
  if (Tile::cluster > 1) ptx::cluster_sync();
}

template <class Tile, Sm90Form Form>
__global__ void __launch_bounds__(sm90_threads, 1)
    gemm_sm90_kernel(const __grid_constant__ ptx::TensorMap x_map,
                     const __grid_constant__ ptx::TensorMap w_map,
                     const __grid_constant__ ptx::TensorMap y_map, const __grid_constant__ Sm90Gemm g) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(base);
  const Sm90Shared<Tile> shared(base);
  if constexpr (Form != Sm90Form::any) {
    if (threadIdx.x == 0) ptx::tma_prefetch(&y_map);
  }
  sm90_roles(shared, &x_map, &w_map, g, [&] {
    sm90_consume(shared, g, [&](float (&z)[Tile::blocks][Tile::sums], const Sm90Place &place) {
      if constexpr (Form == Sm90Form::any) {
        sm90_store_any<Tile>(z, g, shared.staging, place.row, *g.rows, place.column);
      } else {
        unsigned char *staging = shared.staging + ptx::thread_index() / 32 * 2 * sm90_staging;
        sm90_store<Tile, Sm90Ending<Tile, Form>>(z, g, staging, &y_map, place.row, *g.rows, place.column);
      }
    });
    if constexpr (Form != Sm90Form::any) {
      if (ptx::lane_id() == 0) ptx::tma_store_wait<0>();
    }
  });
#endif
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
