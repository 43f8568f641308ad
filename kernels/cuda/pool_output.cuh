// pool_output — pools the tokens of each sequence to one row, then does what output_rows does with
// it, in one pass.
//   mean Σ x_i/L   mean sqrt Σ x_i/√L   max max x_i
//   weighted mean Σ (p_i+1)·x_i / Σ (p_i+1), p_i the row's place: i, or index − cu_whole
//   attention Σ p_i·x_i, p = softmax over i of x_i·w
//   (cls and last: output_rows.cuh.) An empty sequence gives zeros. Without items the row is
//   written to y as f32 (pool).
// Shapes   x [T, C], row stride ≥ C; w [C]; cu_seqlens [B+1]; index [T] and cu_whole [B], or both
//          null; items [B] or y [B, C]. B ≥ 0, 1 ≤ C ≤ 8192.
// Types    x bf16 | f16 | f32; y f32; outputs as output_rows.cuh.
// Alias    none.
// Cost     T·C elements read once (attention: twice, the second time from cache) → memory bound.
//          T = 16,384, C = 768, bf16: 25.2 MB at 3.0 TB/s, 8.4 µs.
// Plan     a CTA of 16 warps a sequence. W warps hold a token's row, octet by octet (rows.cuh); the
//          16/W groups take the tokens in turn, several 128-bit loads in flight each. Then the
//          groups' sums are added in shared memory in the order of the groups, and the row is
//          converted to its output without touching global memory. max: maxima in place of sums.
//          attention: 64 tokens at a time, scores by one warp a token, then the sums, rescaled by
//          the running maximum. A sequence's bits depend on its own rows and C alone.
// Error    sie_tol_mean (common/tol.h), of mean sqrt √L times that, of max none; attention as the
//          softmax of that many keys. A NaN is lost to max.
// Source   Muennighoff 2022 §3, arXiv:2202.08904; Lin 2017 §2, arXiv:1703.03130; Milakov 2018,
//          arXiv:1805.02867
#ifndef SIE_KERNELS_CUDA_POOL_OUTPUT_CUH
#define SIE_KERNELS_CUDA_POOL_OUTPUT_CUH

#include "cuda/output_rows.cuh"

namespace sie_cuda {

// What a CTA makes of the tokens: their sum, one weighted by their places or by the softmax of their
// scores, or the largest.
enum class PoolBy { sum, place, score, size };

constexpr int pool_warps = 16;
constexpr int pool_threads = 32 * pool_warps;
constexpr int output_warps = 4;   // that write the row: more would wait for each other longer than they work
constexpr int score_tokens = 64;  // attention: tokens whose scores are known before they are summed

// Tokens a group reads at once: some eight octets a thread.
__host__ __device__ constexpr int tokens_under_way(int v) { return v == 1 ? 8 : (v == 2 ? 4 : 2); }

// Floats of a group's sum in shared memory.
__host__ __device__ constexpr int32_t padded_columns(int32_t c) { return (c + 7) / 8 * 8; }

constexpr size_t pool_shared_bytes(int32_t c, int32_t warps_per_row) {
  return sizeof(double) * output_warps * output_reductions + sizeof(float) * 2 * score_tokens +
         sizeof(float) * static_cast<size_t>(pool_warps / warps_per_row) *
             static_cast<size_t>(padded_columns(c));
}

// One thread's part of a sequence's sum, or of its maxima.
template <Storage S, int V>
class TokenSum {
 public:
  // The thread's octets of a row of W warps: first, first + 32·W, …; `from` is what every column
  // begins with.
  SIE_DEVICE TokenSum(const sie_tensor &x, int64_t row, int32_t c, int32_t warps_per_row, float from)
      : x_(x),
        row_(row),
        c_(c),
        first_(8 * static_cast<int32_t>(threadIdx.x % (32 * static_cast<uint32_t>(warps_per_row)))),
        stride_(256 * warps_per_row) {
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) sum_[i][j] = from;
    }
  }

  SIE_DEVICE void scale(float by) {
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) sum_[i][j] = __fmul_rn(sum_[i][j], by);
    }
  }

  // Adds weight(t)·x[t] for t = begin, begin + step, … below end; with Largest, takes the largest
  // x[t].
  template <bool Largest, class Weight>
  SIE_DEVICE void add(int32_t begin, int32_t end, int32_t step, const Weight &weight) {
    constexpr int U = tokens_under_way(V);
    for (int32_t t = begin; t < end; t += U * step) {
      Loaded<S> x[U][V];
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int32_t columns = t + u * step < end ? c_ : 0;  // beyond the end: zeros, and nothing is read
#pragma unroll
        for (int i = 0; i < V; i++) x[u][i].load(x_, row_ + t + u * step, first_ + i * stride_, columns);
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (Largest && t + u * step >= end) continue;  // the zeros are no tokens
        const float by = weight(t + u * step);
#pragma unroll
        for (int i = 0; i < V; i++) {
          float v[8];
          x[u][i].get(v);
#pragma unroll
          for (int j = 0; j < 8; j++)
            sum_[i][j] = Largest ? fmaxf(sum_[i][j], v[j]) : __fmaf_rn(by, v[j], sum_[i][j]);
        }
      }
    }
  }

  SIE_DEVICE void store(float *shared_row) const {
#pragma unroll
    for (int i = 0; i < V; i++) {
      const int32_t column = first_ + i * stride_;
      if (column >= c_) continue;
      ptx::store_shared(shared_row + column, make_float4(sum_[i][0], sum_[i][1], sum_[i][2], sum_[i][3]));
      ptx::store_shared(shared_row + column + 4, make_float4(sum_[i][4], sum_[i][5], sum_[i][6], sum_[i][7]));
    }
  }

 private:
  const sie_tensor &x_;
  int64_t row_;
  int32_t c_, first_, stride_;
  float sum_[V][8];
};

// x[row]·w, by one warp.
SIE_DEVICE float token_score(const sie_tensor &x, int64_t row, int32_t c, const float *w) {
  float dot = 0;
  for (int32_t column = 8 * static_cast<int32_t>(ptx::lane_id()); column < c; column += 256) {
    float v[8];
    load_octet_any(x, row, column, c, v);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      if (column + j < c) dot = __fmaf_rn(v[j], w[column + j], dot);
    }
  }
  return ptx::warp_sum(dot);
}

// The softmax-weighted sum; returns what to divide it by. scores: 2·score_tokens floats of shared
// memory.
template <Storage S, int V>
SIE_DEVICE float add_by_attention(const OutputJob &job, int64_t first, int32_t rows, int32_t group,
                                  int32_t groups, float *scores, TokenSum<S, V> *sum) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(ptx::lane_id());
  float most = -INFINITY, total = 0;
  for (int32_t begin = 0; begin < rows; begin += score_tokens) {
    const int32_t count = rows - begin < score_tokens ? rows - begin : score_tokens;
    for (int32_t k = warp; k < count; k += pool_warps) {
      const float score = token_score(job.x, first + begin + k, job.c, job.w);
      if (lane == 0) scores[k] = score;
    }
    // One barrier a round. The next round's scores use the other half; a warp that writes the round
    // after next has passed a barrier that all warps reached after reading this round.
    __syncthreads();
    const float s0 = lane < count ? scores[lane] : -INFINITY;
    const float s1 = lane + 32 < count ? scores[lane + 32] : -INFINITY;
    const float now = fmaxf(most, ptx::warp_max(fmaxf(s0, s1)));
    const float e0 = lane < count ? expf(s0 - now) : 0.0f, e1 = lane + 32 < count ? expf(s1 - now) : 0.0f;
    const float keep = expf(most - now);
    total = __fmaf_rn(total, keep, ptx::warp_sum(e0 + e1));
    sum->scale(keep);
    sum->template add<false>(begin + group, begin + count, groups, [&](int32_t t) {
      const int32_t k = t - begin;
      const float low = ptx::shuffle_from(e0, k % 32), high = ptx::shuffle_from(e1, k % 32);
      return k < 32 ? low : high;
    });
    most = now;
    scores += (begin / score_tokens) % 2 == 0 ? score_tokens : -score_tokens;
  }
  return total;
}

// Adds the tokens by their places, which index and whole give unless index is null; returns what to
// divide the sum by. A sum of places is exact in double. A single row is itself: its weight is not
// multiplied in and divided out again.
template <Storage S, int V>
SIE_DEVICE float add_by_place(const int32_t *index, int32_t whole, int32_t rows, int32_t group,
                              int32_t groups, TokenSum<S, V> *sum) {
  auto weight = [=](int32_t t) { return rows > 1 ? (index != nullptr ? index[t] - whole : t) + 1 : 1; };
  sum->template add<false>(group, rows, groups,
                           [&](int32_t t) { return t < rows ? static_cast<float>(weight(t)) : 0.0f; });
  double all = 0;
  for (int32_t t = static_cast<int32_t>(ptx::lane_id()); t < rows; t += 32) all += weight(t);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) all += ptx::shuffle_xor(all, step);
  return static_cast<float>(all);
}

// CTAs an SM: two where 64 registers suffice. Several octets a thread need more registers on cards
// other than A100 and H100, and from compilers before 13.0.
constexpr int pool_min_blocks(Storage s, [[maybe_unused]] int v, PoolBy by) {
#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900) || \
    (defined(__CUDACC__) && __CUDACC_VER_MAJOR__ < 13)
  if (v > 1) return 1;
#endif
  return s == Storage::any || by == PoolBy::place || by == PoolBy::score ? 1 : 2;
}

template <Storage S, int V, PoolBy By>
__global__ void __launch_bounds__(pool_threads, pool_min_blocks(S, V, By))
    pool_output_kernel(const OutputJob job, const int32_t warps_per_row) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const int64_t b = blockIdx.x;
  if (b >= *job.seqs.n) return;
  double *const slots = reinterpret_cast<double *>(shared);
  float *const scores = reinterpret_cast<float *>(slots + output_warps * output_reductions);
  float *const sums = scores + 2 * score_tokens;
  const int64_t first = job.cu_seqlens[b];
  const int32_t rows = job.cu_seqlens[b + 1] - static_cast<int32_t>(first);
  const int32_t group = static_cast<int32_t>(threadIdx.x / 32) / warps_per_row,
                groups = pool_warps / warps_per_row;

  TokenSum<S, V> sum(job.x, first, job.c, warps_per_row, By == PoolBy::size ? -INFINITY : 0.0f);
  float total = 1;
  if (By == PoolBy::score) {
    if (rows > 0) total = add_by_attention(job, first, rows, group, groups, scores, &sum);
  } else if (By == PoolBy::place) {
    const bool kept = job.index != nullptr;
    total = add_by_place(kept ? job.index + first : nullptr, kept ? job.cu_whole[b] : 0, rows, group, groups,
                         &sum);
  } else {
    sum.template add<By == PoolBy::size>(group, rows, groups, [](int32_t) { return 1.0f; });
    const float n = static_cast<float>(rows);
    if (By == PoolBy::sum) total = job.mode == SIE_POOL_MEAN_SQRT ? sqrtf(n) : n;
  }
  ptx::grid_dependency_launch();
  const int32_t padded = padded_columns(job.c);
  sum.store(sums + group * padded);
  __syncthreads();

  for (int32_t octet = static_cast<int32_t>(threadIdx.x); 8 * octet < job.c; octet += pool_threads) {
    float v[8];
    SharedRow{sums}.read(octet, v);
    for (int32_t g = 1; g < groups; g++) {
      float more[8];
      SharedRow{sums + g * padded}.read(octet, more);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = By == PoolBy::size ? fmaxf(v[j], more[j]) : v[j] + more[j];
    }
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = rows > 0 ? __fdiv_rn(v[j], total) : 0.0f;
    ptx::store_shared(sums + 8 * octet, make_float4(v[0], v[1], v[2], v[3]));
    ptx::store_shared(sums + 8 * octet + 4, make_float4(v[4], v[5], v[6], v[7]));
  }
  __syncthreads();
  if (threadIdx.x >= 32 * output_warps) return;
  RowThreads<output_warps> threads(0, slots);
  write_output(SharedRow{sums}, job.c, output_item(job, b), output_base(job), &threads);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_POOL_OUTPUT_CUH
