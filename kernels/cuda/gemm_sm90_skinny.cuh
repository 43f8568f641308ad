// gemm_sm90_skinny — the product of gemm_sm90.cuh for few rows, operands swapped: zᵀ = W·xᵀ.
// Shapes   R ≤ Tokens = 8, 16, 24, 32 or 64; everything else as in gemm_sm90.cuh, except that y is
//          not e4m3 (a block of 128 of its columns would span CTAs).
// Cost     W is read once: N·K·element bytes. 768×3072 in bf16 is 4.7 MB; one wide tile a CTA would
//          read it through 3 to 6 SMs, this form through 48.
// Plan     a CTA per `weight_rows` (16, 32 or 64, so that most SMs have one) rows of W, which are M
//          of wgmma m64nTokensk; tokens are N. With less than 64 rows the rest of the W tile is
//          whatever shared memory holds: its products are rows of D that are never stored. One
//          warpgroup multiplies, one more warp loads through a deep ring of 128-byte K steps. W
//          does not depend on the previous kernel, so the ring is filled with it before the grid's
//          wait. Lanes exchange halves so that each holds pairs of neighbouring columns of one
//          token, as in wide tiles.
// Timeline who waits on which barrier; s is a stage of the ring, full[s] one arrival and bytes, empty[s] one
//          of each consumer warp.
//   producer  ahead of the grid's wait, for each s of the first eight steps: announce at full[s] · TMA of
//             W into s; behind the grid's wait TMA of x into each of them
//             then for each step: wait empty[s] · announce at full[s] · TMA of W and x into s
//   consumers behind the grid's wait, for each step: wait full[s] · wgmma · when the products of the step
//             before are done, arrive at its empty; in FP8 those of this step, and promote them first
//   end       the last products, y; nobody frees the last stage of the 16-bit classes
// Class    K order, instruction K, promotion and epilogue are those of gemm_sm90.cuh: the same
//          results bit for bit. (Only a test on a device can show that a tensor core sums a·b and
//          b·a alike.)
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_SKINNY_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_SKINNY_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_pairs.cuh"

namespace sie_cuda {

constexpr int sm90_skinny_threads = sm90_warpgroup + 32;

template <class Class, int Tokens>
struct Sm90Skinny : Class {
  static constexpr int tokens = Tokens, sums = Tokens / 2;
  static constexpr int w_bytes = 64 * sm90_line, x_bytes = Tokens * sm90_line,
                       stage_bytes = w_bytes + x_bytes;
  static constexpr int stages = 8;
  static constexpr int barrier_bytes = 2 * stages * 8;
  static constexpr int shared_bytes = stages * stage_bytes + barrier_bytes;
};

struct Sm90SkinnyGemm {
  Sm90Gemm g;           // tiles_n: not read
  int32_t weight_rows;  // of a CTA
};

template <class Tile>
SIE_DEVICE void sm90_skinny_produce(unsigned char *stages, uint64_t *full, uint64_t *empty,
                                    const ptx::TensorMap *x_map, const ptx::TensorMap *w_map, int32_t steps,
                                    int32_t weight_rows) {
  const int32_t row = static_cast<int32_t>(blockIdx.x) * weight_rows;
  const uint32_t bytes = static_cast<uint32_t>(weight_rows * sm90_line + Tile::x_bytes);
  const int32_t ahead = min(steps, Tile::stages);
  for (int32_t k = 0; k < ahead; k++) {
    ptx::mbarrier_arrive_expect(full + k, bytes);
    ptx::tma_load_2d(stages + k * Tile::stage_bytes, w_map, row, k * Tile::step, full + k);
  }
  ptx::grid_dependency_wait();
  for (int32_t k = 0; k < ahead; k++) {
    ptx::tma_load_2d(stages + k * Tile::stage_bytes + Tile::w_bytes, x_map, 0, k * Tile::step, full + k);
  }
  Sm90Ring<Tile::stages> ring;  // each stage was filled once: its first release is awaited next
  for (int32_t k = ahead; k < steps; k++) {
    unsigned char *w = stages + ring.stage() * Tile::stage_bytes;
    ptx::mbarrier_wait(empty + ring.stage(), ring.parity());
    ptx::mbarrier_arrive_expect(full + ring.stage(), bytes);
    ptx::tma_load_2d(w, w_map, row, k * Tile::step, full + ring.stage());
    ptx::tma_load_2d(w + Tile::w_bytes, x_map, 0, k * Tile::step, full + ring.stage());
    ring.next();
  }
}

// Products of a stage, rows of W by tokens.
template <class Tile>
SIE_DEVICE void sm90_skinny_multiply(float (&d)[Tile::sums], const unsigned char *stage, bool accumulate) {
  uint64_t w = ptx::wgmma_descriptor(stage, ptx::Swizzle::b128, sm90_atom);
  uint64_t x = ptx::wgmma_descriptor(stage + Tile::w_bytes, ptx::Swizzle::b128, sm90_atom);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; k++) {
    ptx::wgmma<Tile::operand, Tile::tokens>(d, ptx::wgmma_advance(w, k * 32u), ptx::wgmma_advance(x, k * 32u),
                                            accumulate || k != 0);
  }
  ptx::wgmma_commit();
}

// 16-bit classes: one group of products is in flight while the next is issued.
template <class Tile>
SIE_DEVICE void sm90_skinny_sum(float (&z)[Tile::sums], const unsigned char *stages, uint64_t *full,
                                uint64_t *empty, int32_t steps) {
  Sm90Ring<Tile::stages> ring;
  uint64_t *previous = nullptr;
  for (int32_t step = 0; step < steps; step++) {
    ptx::mbarrier_wait(full + ring.stage(), ring.parity());
    sm90_skinny_multiply<Tile>(z, stages + ring.stage() * Tile::stage_bytes, step != 0);
    ptx::wgmma_wait<1>();
    if (step != 0 && ptx::lane_id() == 0) ptx::mbarrier_arrive(previous);
    previous = empty + ring.stage();
    ring.next();
  }
  ptx::wgmma_wait<0>();
  ptx::wgmma_keep(z);
}

// The scales of a step of this thread's tokens, of which `token` is the first.
template <class Tile>
SIE_DEVICE void sm90_skinny_scales(float (&scale)[Tile::tokens / 4], const Sm90Gemm &g, int32_t token,
                                   int32_t rows, int32_t step) {
#pragma unroll
  for (int i = 0; i < Tile::tokens / 4; i++) {
    const int32_t r = i / 2 * 8 + token + i % 2;
    scale[i] = 1.0f;
    if (g.block_scale != nullptr && r < rows)
      scale[i] = g.block_scale[static_cast<int64_t>(r) * g.steps + step];
  }
}

// FP8. The products of a step are over before L2 has answered: scales are asked for two steps ahead, in turns into
// one array and the other.
template <class Tile>
SIE_DEVICE void sm90_skinny_sum_promoted(float (&z)[Tile::sums], const unsigned char *stages, uint64_t *full,
                                         uint64_t *empty, const Sm90Gemm &g, int32_t rows) {
  const int token = static_cast<int>(ptx::lane_id()) % 4 * 2;
  const int32_t last = g.steps - 1;
  Sm90Ring<Tile::stages> ring;
  float even[Tile::tokens / 4], odd[Tile::tokens / 4];
  sm90_skinny_scales<Tile>(even, g, token, rows, 0);
  sm90_skinny_scales<Tile>(odd, g, token, rows, min(1, last));
#pragma unroll
  for (int i = 0; i < Tile::sums; i++) z[i] = 0.0f;
  const auto add = [&](float (&scale)[Tile::tokens / 4], int32_t step) {
    float block[Tile::sums];
    ptx::mbarrier_wait(full + ring.stage(), ring.parity());
    sm90_skinny_multiply<Tile>(block, stages + ring.stage() * Tile::stage_bytes, false);
    ptx::wgmma_wait<0>();
    ptx::wgmma_keep(block);
#pragma unroll
    for (int i = 0; i < Tile::sums; i++) z[i] = gemm_promote(scale[i / 4 * 2 + i % 2], block[i], z[i]);
    if (ptx::lane_id() == 0) ptx::mbarrier_arrive(empty + ring.stage());
    ring.next();
    sm90_skinny_scales<Tile>(scale, g, token, rows, min(step + 2, last));
  };
#pragma unroll 1
  for (int32_t step = 0; step <= last; step += 2) {
    add(even, step);
    if (step < last) add(odd, step + 1);
  }
}

// Two neighbouring columns of W (one of y behind a gate) of one token: sums → y.
template <class Tile>
SIE_DEVICE void sm90_skinny_finish(float2 v, const Sm90Gemm &g, int32_t row, int32_t column, float2 bias,
                                   float2 scale) {
  const GemmEpilogue &e = g.epilogue;
  if (Tile::promoted) {
    float row_scale = g.row_scale != nullptr ? g.row_scale[row] : 1.0f;
    v = make_float2(gemm_z_scaled(v.x, row_scale, scale.x, bias.x),
                    gemm_z_scaled(v.y, row_scale, scale.y, bias.y));
  } else {
    v = make_float2(gemm_z(v.x, bias.x), gemm_z(v.y, bias.y));
  }
  if (e.addend != nullptr) {
    const float2 a = sm90_residual<SIE_F32>(e.addend + row * e.addend_ld, column, e.n);
    v = make_float2(gemm_add_addend(v.x, a.x), gemm_add_addend(v.y, a.y));
  }
  if (e.gate != SIE_GATE_NONE) {
    with_gate(e.gate, [&](auto gate) { v.x = gated<decltype(gate)::value>(v.x, v.y); });
    column /= 2;
  } else {
    with_activation(e.act, [&](auto act) {
      v = make_float2(activate<decltype(act)::value>(v.x), activate<decltype(act)::value>(v.y));
    });
  }
  const bool second = e.gate == SIE_GATE_NONE && column + 1 < e.columns;
  if (e.residual != nullptr) {
    float2 r = sm90_residual_any(e, row, column, second);
    v = make_float2(gemm_add_residual(v.x, r.x), gemm_add_residual(v.y, r.y));
  }
  sm90_store_pair(e, row, column, second, v);
}

template <class Tile>
SIE_DEVICE void sm90_skinny_store(const float (&z)[Tile::sums], const Sm90SkinnyGemm &a, int32_t rows) {
  const GemmEpilogue &e = a.g.epilogue;
  const int lane = static_cast<int>(ptx::lane_id()), warp = static_cast<int>(threadIdx.x) / 32,
            odd = lane / 4 % 2;
  if (warp * 16 >= a.weight_rows) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t column =
        static_cast<int32_t>(blockIdx.x) * a.weight_rows + warp * 16 + half * 8 + lane / 8 * 2;
    float2 bias = make_float2(0.0f, 0.0f), scale = bias;
    if (e.bias != nullptr) bias = sm90_pair(e.bias, column, e.n);
    if (Tile::promoted) scale = sm90_pair(a.g.w_scale, column, e.n);
#pragma unroll
    for (int j = 0; j < Tile::tokens / 8; j++) {
      // Rows 2i, 2i + 1 of W are four lanes apart; the even one keeps its first token, the odd one
      // its second.
      float first = z[4 * j + 2 * half], second = z[4 * j + 2 * half + 1];
      float other = ptx::shuffle_xor(odd != 0 ? first : second, 4);
      float2 v = odd != 0 ? make_float2(other, second) : make_float2(first, other);
      int32_t row = j * 8 + lane % 4 * 2 + odd;
      if (row < rows && column < e.n) sm90_skinny_finish<Tile>(v, a.g, row, column, bias, scale);
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(sm90_skinny_threads, 1)
    gemm_sm90_skinny_kernel(const __grid_constant__ ptx::TensorMap x_map,
                            const __grid_constant__ ptx::TensorMap w_map,
                            const __grid_constant__ Sm90SkinnyGemm a) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(stages);
  uint64_t *full = reinterpret_cast<uint64_t *>(stages + Tile::stages * Tile::stage_bytes),
           *empty = full + Tile::stages;
  if (threadIdx.x == sm90_warpgroup) {
    ptx::tma_prefetch(&w_map);
    ptx::tma_prefetch(&x_map);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::stages; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == sm90_warpgroup) {
    sm90_skinny_produce<Tile>(stages, full, empty, &x_map, &w_map, a.g.steps, a.weight_rows);
  }
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  if (threadIdx.x >= sm90_warpgroup) return;
  const int32_t rows = *a.g.rows;
  float z[Tile::sums];
  if constexpr (Tile::promoted) {
    sm90_skinny_sum_promoted<Tile>(z, stages, full, empty, a.g, rows);
  } else {
    sm90_skinny_sum<Tile>(z, stages, full, empty, a.g.steps);
  }
  sm90_skinny_store<Tile>(z, a, rows);
#endif
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_SKINNY_CUH
