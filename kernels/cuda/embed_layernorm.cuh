// embed_layernorm — y = norm(word_scale·word[id] + position[i + offset] + type[type_id]), i from 0
// in each sequence.
//   s in f32, added in that order; the norms of layernorm.cuh, or none; yq as there.
// Shapes   ids, type_ids [T]; cu_seqlens [B+1]; tables [vocab, C], row stride ≥ C; γ, β [C]; y, yq
//          [T, C]. T ≥ 0, B ≥ 0, 1 ≤ C ≤ 8192; every id and position is in its table (the caller's
//          check).
// Types    tables bf16 | f16 | f32, all one; y bf16 | f16 | f32; yq e4m3, one scale a row.
// Alias    none.
// Cost     T·C elements of word rows read and of y written (position and type rows stay in L2) →
//          memory bound. T = 16,384, C = 768, bf16: 50.3 MB at 3.0 TB/s, 16.8 µs.
// Plan     one warp a token to C = 1536, then 2, 4, 8 (rows.cuh): the three rows by 128-bit loads,
//          sum, norm and store in registers. The token's place in its sequence by a search with 32
//          probes a step in cu_seqlens.
// Error    sie_tol_norm (common/tol.h).
// Source   Devlin 2018 §3, arXiv:1810.04805
#ifndef SIE_KERNELS_CUDA_EMBED_LAYERNORM_CUH
#define SIE_KERNELS_CUDA_EMBED_LAYERNORM_CUH

#include "cuda/layernorm.cuh"

namespace sie_cuda {

// v += row `row` of the table.
template <Storage S, int V>
SIE_DEVICE void add_row(const sie_tensor &table, int64_t row, int32_t first, int32_t stride, int32_t c,
                        float (&v)[V][8]) {
  Loaded<S> more[V];
#pragma unroll
  for (int i = 0; i < V; i++) more[i].load(table, row, first + i * stride, c);
#pragma unroll
  for (int i = 0; i < V; i++) {
    float r[8];
    more[i].get(r);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = __fadd_rn(v[i][j], r[j]);
  }
}

// A row of the next table is being loaded while the sum is in registers, so it needs more registers
// than layernorm.cuh.
constexpr int embed_min_blocks(Storage s, int v, [[maybe_unused]] int w) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  if (v == 6 && w == 4) return 1;  // with two it spills
#endif
  return s != Storage::any && v == 4 ? 2 : row_min_blocks(s, v);
}

template <Storage S, int V, int W>
__global__ void __launch_bounds__(row_threads, embed_min_blocks(S, V, W))
    embed_layernorm_kernel(const sie_embed_layernorm_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t row_of_block = threadIdx.x / (32 * W);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_warps / W) + row_of_block;
  if (row >= a.tokens.cap) return;
  RowThreads<W, row_warps / W> threads(
      row_of_block, reinterpret_cast<double *>(shared) + row_of_block * W * norm_reductions);
  const int32_t c = static_cast<int32_t>(a.c), first = 8 * static_cast<int32_t>(threads.thread());
  constexpr int32_t stride = 8 * RowThreads<W>::count;

  // Ids to `cap` have memory and are asked for beside the count; those beyond it name no row.
  const int32_t its_id = a.ids[row], its_type = a.type_ids != nullptr ? a.type_ids[row] : 0;
  const bool present = row < ptx::load_count(a.tokens.n);
  const int64_t id = present ? its_id : 0, type = its_type;
  Loaded<S> word[V];
#pragma unroll
  for (int i = 0; i < V; i++) word[i].load(a.word, id, first + i * stride, c);
  if (!present) return;
  int64_t position = 0;
  if (a.position.p != nullptr) {
    const int32_t start = sequence_of(a.cu_seqlens, *a.seqs.n, static_cast<int32_t>(row)).start;
    position = row - start + a.position_offset;
  }
  const float scale = a.word_scale != 0.0f ? a.word_scale : 1.0f;
  float v[V][8];
#pragma unroll
  for (int i = 0; i < V; i++) {
    word[i].get(v[i]);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = __fmul_rn(v[i][j], scale);
  }
  ptx::grid_dependency_launch();
  if (a.position.p != nullptr) add_row<S>(a.position, position, first, stride, c, v);
  if (a.type.p != nullptr) add_row<S>(a.type, type, first, stride, c, v);
  norm_and_store<S, NormOrder::butterfly>(v, row, c, {a.gamma, a.beta, a.eps, a.weight_offset, a.norm}, a.y,
                                          a.yq, &threads);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_EMBED_LAYERNORM_CUH
