// gemm_sm90_kernel — the wide form as a kernel: the roles of the three warpgroups. Math and plan
// are in gemm_sm90.cuh.
//
// Who waits on which barrier. s is a stage of the ring, A and B are the consumer warpgroups:
//   producer      ahead of the grid's wait, for each s of its first tile: announce · TMA of W into s
//                 wait empty[s] · announce the bytes at full[s] · TMA of W and x into s · next s
//   A, ping-pong  wait turn[A] · for each s of its tile (wait full[s] · wgmma · when the products of
//                 the stage before are done, arrive at its empty) · arrive at turn[B] · epilogue
//   B, ping-pong  the same with turn[B] and turn[A]; A does not wait before its first tile
//   cooperative   A and B wait for each full[s] and arrive at each empty[s]; there are no turns
// Each consumer warp arrives once at empty[s], of a cluster at all CTAs': each writes into the others.
// Hot forms, v are the tile's bias and scales, p a warp's piece of staging:
//   producer      behind the tile's last s: wait vectors_empty[v] · announce at vectors_full[v] · copy
//   epilogue      wait vectors_full[v] · all pieces · arrive at vectors_empty[v], each warp once
//   with residual before the main loop, for its first two p, and for each next one when the store before
//                 it has read p: announce at residual[p] · TMA of the residual into p
//                 a piece: wait residual[p] · y over it, in place · TMA store from p
//   without       a piece: when the store before has read p · y into p · TMA store from p
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_any.cuh"
#include "cuda/gemm_sm90_store.cuh"

namespace sie_cuda {

template <class Tile, bool Hot>
SIE_DEVICE void sm90_start(const Sm90Shared<Tile> &shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::stages; i++) {
      ptx::mbarrier_init(shared.full + i, 1);
      ptx::mbarrier_init(shared.empty + i, Tile::releases);
    }
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(shared.turn + i, 4);
    if constexpr (Hot) {
      for (int i = 0; i < Tile::vectors; i++) {
        ptx::mbarrier_init(shared.vectors_full + i, 1);
        ptx::mbarrier_init(shared.vectors_empty + i, Tile::warps);
      }
      for (int i = 0; i < 16; i++) ptx::mbarrier_init(shared.residual + i, 1);
      if constexpr (Tile::whole_rows) {
        for (int i = 0; i < 16; i++) ptx::mbarrier_init(shared.counted + i, 1);
      }
    }
    ptx::fence_mbarrier_init();
  }
  if (Tile::cluster > 1) {
    ptx::sync_warp();
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
}

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
  place->row = (Tile::whole_rows ? m : m * Tile::cluster + rank) * Tile::rows + group * Tile::warpgroup_rows +
               warp % 4 * 16;
  place->column = (Tile::whole_rows ? rank : n) * Tile::columns;
  return true;
}

// A consumer warpgroup: computes its tiles one after the other. finish.begin(place) comes before the main
// loop of each, and finish(z, place, number of the CTA's tile) takes its sums. The sums need the registers:
// only `count`, the place in the ring and what `finish` has are kept, all else is computed anew, and the
// number of rows is read again.
template <class Tile, class Finish>
SIE_DEVICE void sm90_consume(const Sm90Shared<Tile> &shared, const Sm90Gemm &g, Finish &finish) {
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
    finish.begin(place);
    // Group 0 begins, then each lets the other proceed.
    const int32_t turns = count - (group == 0 ? 1 : 0);
    if (!Tile::cooperative && turns >= 0)
      ptx::mbarrier_wait(shared.turn + group, static_cast<uint32_t>(turns) & 1u);
    float z[Tile::blocks][Tile::sums];
    if constexpr (Tile::whole_rows) {
      // The first products overwrite them. Without it ptxas puts the products in series.
#pragma unroll
      for (int b = 0; b < Tile::blocks; b++) {
#pragma unroll
        for (int i = 0; i < Tile::sums; i++) z[b][i] = 0.0f;
      }
    }
    if constexpr (Tile::promoted) {
      const int32_t row = place.row + static_cast<int32_t>(ptx::lane_id()) / 4;
      sm90_sum_promoted<Tile>(z, shared, &ring, x_offset, g, row, *g.rows, turn_of_other);
    } else {
      sm90_sum<Tile>(z, shared, &ring, x_offset, g.steps, turn_of_other);
    }
    if (!Tile::cooperative) ring.skip(g.steps);  // the other's tile
    sm90_place<Tile>(of_cta, g, &place);
    finish(z, place, of_cta);
  }
}

// The work of a CTA's three warpgroups from start to end.
template <class Tile, bool Hot, class Consume>
SIE_DEVICE void sm90_roles(const Sm90Shared<Tile> &shared, const ptx::TensorMap *x_map,
                           const ptx::TensorMap *w_map, const Sm90Gemm &g, const Consume &consume) {
  if (threadIdx.x == 2 * sm90_warpgroup) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  sm90_start<Tile, Hot>(shared);
  int32_t ahead = 0;
  if (threadIdx.x == 2 * sm90_warpgroup) ahead = sm90_produce_ahead(shared, w_map, g);
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  if (threadIdx.x >= 2 * sm90_warpgroup) {
    ptx::registers_decrease<Tile::producer_registers>();
    if (threadIdx.x == 2 * sm90_warpgroup) {
      sm90_produce<Tile, Hot>(shared, x_map, w_map, g, ahead);
    }
    ptx::sync_warp();
  } else {
    ptx::registers_increase<Tile::consumer_registers>();
    consume();
  }
  // A neighbour may still signal barriers here.
  if (Tile::cluster > 1) ptx::cluster_sync();
}

// Finishes the tiles of form `any`.
template <class Tile>
struct Sm90FinishAny {
  const Sm90Shared<Tile> &shared;
  const Sm90Gemm &g;
  SIE_DEVICE void begin(const Sm90Place &) const {}
  SIE_DEVICE void operator()(float (&z)[Tile::blocks][Tile::sums], const Sm90Place &place, int32_t) const {
    sm90_store_any<Tile>(z, g, shared.staging, place.row, *g.rows, place.column);
  }
};

// r_map: of the residual, in forms that have one.
template <class Tile, Sm90Form Form>
__global__ void __launch_bounds__(sm90_threads, 1)
    gemm_sm90_kernel(const __grid_constant__ ptx::TensorMap x_map,
                     const __grid_constant__ ptx::TensorMap w_map,
                     const __grid_constant__ ptx::TensorMap y_map,
                     const __grid_constant__ ptx::TensorMap r_map, const __grid_constant__ Sm90Gemm g) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(base);
  const Sm90Shared<Tile> shared(base);
  if constexpr (Form == Sm90Form::any) {
    sm90_roles<Tile, false>(shared, &x_map, &w_map, g, [&] {
      Sm90FinishAny<Tile> finish = {shared, g};
      sm90_consume(shared, g, finish);
    });
  } else {
    using Ending = Sm90Ending<Tile, Form>;
    if (threadIdx.x == 0) {
      ptx::tma_prefetch(&y_map);
      if constexpr (Ending::residual != 0) ptx::tma_prefetch(&r_map);
    }
    sm90_roles<Tile, true>(shared, &x_map, &w_map, g, [&] {
      Sm90Writer<Tile, Ending> finish(shared, g, &y_map, &r_map);
      sm90_consume(shared, g, finish);
      if (ptx::lane_id() == 0) ptx::tma_store_wait<0>();
    });
  }
#endif
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_KERNEL_CUH
