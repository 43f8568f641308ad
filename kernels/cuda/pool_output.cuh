// pool_output — pools the tokens of each sequence to one row, then does what output_rows does with
// it, in one pass.
//   mean Σ x_i/L   mean sqrt Σ x_i/√L   max max x_i
//   weighted mean Σ (p_i+1)·x_i / Σ (p_i+1), p_i the row's place: i, or index − cu_whole
//   attention Σ p_i·x_i, p = softmax over i of x_i·w
//   (cls and last: output_rows.cuh.) An empty sequence gives zeros. Without items the row is
//   written to y as f32 (pool).
//   A sequence of L rows has ⌈L/128⌉ parts of 128 rows, and from 8193 rows on at most 64 of a larger
//   multiple: the sum is that of its parts in order.
// Shapes   x [T, C], row stride ≥ C; w [C]; cu_seqlens [B+1]; index [T] and cu_whole [B], or both
//          null; items [B] or y [B, C]. B ≥ 0, 1 ≤ C ≤ 8192.
// Types    x bf16 | f16 | f32; y f32; outputs as output_rows.cuh.
// Alias    none.
// Cost     T·C elements read once (attention: twice, the second time from cache) → memory bound.
//          T = 16,384, C = 768, bf16: 25.2 MB at 3.0 TB/s, 8.4 µs.
// Plan     where no sequence has more than 128 rows, and for attention: a CTA of 16 warps a
//          sequence. W warps hold a token's row, octet by octet (rows.cuh); the 16/W groups take
//          the tokens in turn, several 128-bit loads in flight each. Then the groups' sums are
//          added in shared memory in the order of the groups, and the row is converted to its
//          output without touching global memory. max: maxima in place of sums. attention: 64
//          tokens at a time, scores by one warp a token, then the sums, rescaled by the running
//          maximum.
//          Else a CTA a sequence would leave most multiprocessors idle: one reads 77 GB/s, 164 µs
//          for 8192 rows of 768. pool_part_kernel sums parts, an octet of each thread's in the form
//          above, so that a part of V octets a thread is the work of V CTAs; two CTAs a
//          multiprocessor take parts in turn. pool_join_kernel adds a sequence's parts in order and
//          writes the output. Both forms have the same bits for a sequence of one part, and which
//          CTA has a part changes nothing: a sequence's bits depend on its own rows and C alone.
// Scratch  with parts: ⌊T/128⌋ + B rows of C f32, and as many doubles. Part j of sequence b has
//          place ⌊cu_seqlens[b]/128⌋ + b + j, which no other part has.
// Error    sie_tol_mean (common/tol.h), of mean sqrt √L times that, of max none; attention as the
//          softmax of that many keys. A NaN is lost to max.
// Source   Muennighoff 2022 §3, arXiv:2202.08904; Lin 2017 §2, arXiv:1703.03130; Milakov 2018,
//          arXiv:1805.02867
#ifndef SIE_KERNELS_CUDA_POOL_OUTPUT_CUH
#define SIE_KERNELS_CUDA_POOL_OUTPUT_CUH

#include "cuda/output_rows.cuh"
#include "cuda/pool_parts.h"
#include "cuda/ptx/signed_max.h"

namespace sie_cuda {

// What a CTA makes of the tokens: their sum, one weighted by their places or by the softmax of their
// scores, or the largest.
enum class PoolBy { sum, place, score, size };

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
  // The thread's octets of a row of W warps: first, first + 32·W, …, of which the one with number
  // `octet` comes first here; `from` is what every column begins with.
  SIE_DEVICE TokenSum(const sie_tensor &x, int64_t row, int32_t c, int32_t warps_per_row, int32_t octet,
                      float from)
      : x_(x),
        row_(row),
        c_(c),
        first_(8 * static_cast<int32_t>(threadIdx.x % (32 * static_cast<uint32_t>(warps_per_row))) +
               256 * warps_per_row * octet),
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
            sum_[i][j] = Largest ? ptx::signed_max(sum_[i][j], v[j]) : __fmaf_rn(by, v[j], sum_[i][j]);
        }
      }
    }
  }

  // Stores the sums of columns from `begin` on to shared_row.
  SIE_DEVICE void store(float *shared_row, int32_t begin) const {
#pragma unroll
    for (int i = 0; i < V; i++) {
      const int32_t column = first_ + i * stride_;
      if (column >= c_) continue;
      float *const to = shared_row + column - begin;
      ptx::store_shared(to, make_float4(sum_[i][0], sum_[i][1], sum_[i][2], sum_[i][3]));
      ptx::store_shared(to + 4, make_float4(sum_[i][4], sum_[i][5], sum_[i][6], sum_[i][7]));
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

// The weights of a sequence's rows by their places, which index and whole give unless index is null.
// A single row is itself: its weight is not multiplied in and divided out again.
struct PlaceWeight {
  const int32_t *index;
  int32_t whole, rows;

  SIE_DEVICE int32_t of(int32_t t) const {
    return rows > 1 ? (index != nullptr ? index[t] - whole : t) + 1 : 1;
  }

  // Their sum over rows [begin, end), by a warp: exact in double.
  SIE_DEVICE double sum(int32_t begin, int32_t end) const {
    double all = 0;
    for (int32_t t = begin + static_cast<int32_t>(ptx::lane_id()); t < end; t += 32) all += of(t);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) all += ptx::shuffle_xor(all, step);
    return all;
  }
};

SIE_DEVICE PlaceWeight place_weight(const OutputJob &job, int64_t b, int64_t first, int32_t rows) {
  if (job.index == nullptr) return {nullptr, 0, rows};
  return {job.index + first, job.cu_whole[b], rows};
}

// Adds the group's rows of [begin, end); a sum by places as `places` weighs them.
template <PoolBy By, Storage S, int V>
SIE_DEVICE void add_rows(const PlaceWeight &places, int32_t begin, int32_t end, int32_t group, int32_t groups,
                         TokenSum<S, V> *sum) {
  sum->template add<By == PoolBy::size>(begin + group, end, groups, [&](int32_t t) {
    if (By != PoolBy::place) return 1.0f;
    return t < end ? static_cast<float>(places.of(t)) : 0.0f;
  });
}

// What a sum of `rows` rows is divided by; weights: the sum of their places'.
template <PoolBy By>
SIE_DEVICE float divisor(const OutputJob &job, int32_t rows, double weights) {
  if (By == PoolBy::size) return 1.0f;
  if (By == PoolBy::place) return static_cast<float>(weights);
  const float n = static_cast<float>(rows);
  return job.mode == SIE_POOL_MEAN_SQRT ? sqrtf(n) : n;
}

template <PoolBy By>
SIE_DEVICE float fold(float a, float b) {
  return By == PoolBy::size ? ptx::signed_max(a, b) : a + b;
}

// Writes what is in `row`, a row of shared memory, as the item of sequence b says.
SIE_DEVICE void write_pooled(const OutputJob &job, int64_t b, const float *row, double *slots) {
  if (threadIdx.x >= 32 * output_warps) return;
  RowThreads<output_warps> threads(0, slots);
  write_output(SharedRow{row}, job.c, output_item(job, b), output_base(job), &threads);
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

  TokenSum<S, V> sum(job.x, first, job.c, warps_per_row, 0, By == PoolBy::size ? -INFINITY : 0.0f);
  float total = 1;
  if (By == PoolBy::score) {
    if (rows > 0) total = add_by_attention(job, first, rows, group, groups, scores, &sum);
  } else {
    const PlaceWeight places = By == PoolBy::place ? place_weight(job, b, first, rows) : PlaceWeight{};
    add_rows<By>(places, 0, rows, group, groups, &sum);
    total = divisor<By>(job, rows, By == PoolBy::place ? places.sum(0, rows) : 0);
  }
  ptx::grid_dependency_launch();
  const int32_t padded = padded_columns(job.c);
  sum.store(sums + group * padded, 0);
  __syncthreads();

  for (int32_t octet = static_cast<int32_t>(threadIdx.x); 8 * octet < job.c; octet += pool_threads) {
    float v[8];
    SharedRow{sums}.read(octet, v);
    for (int32_t g = 1; g < groups; g++) {
      float more[8];
      SharedRow{sums + g * padded}.read(octet, more);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = fold<By>(v[j], more[j]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = rows > 0 ? __fdiv_rn(v[j], total) : 0.0f;
    ptx::store_shared(sums + 8 * octet, make_float4(v[0], v[1], v[2], v[3]));
    ptx::store_shared(sums + 8 * octet + 4, make_float4(v[4], v[5], v[6], v[7]));
  }
  __syncthreads();
  write_pooled(job, b, sums, slots);
}

// ---- parts

// Where the sums of parts lie: row p of [⌊T/128⌋ + B, padded_columns(C)], and for a weighted mean
// the sum of the part's weights.
struct PoolParts {
  float *sums;
  double *weights;
};

// The rows of each part of a sequence but the last, and the number of parts.
SIE_DEVICE int32_t rows_of_part(int32_t rows) {
  return part_rows * ((rows + part_rows * parts_max - 1) / (part_rows * parts_max));
}
SIE_DEVICE int32_t parts_of(int32_t rows) {
  return rows > 0 ? (rows + rows_of_part(rows) - 1) / rows_of_part(rows) : 0;
}

constexpr size_t part_shared_bytes = sizeof(float) * 256 * pool_warps;

// Grid [CTAs that take places in turn, octets a thread has of a row].
template <Storage S, PoolBy By>
__global__ void __launch_bounds__(pool_threads, pool_min_blocks(S, 1, By))
    pool_part_kernel(const OutputJob job, const PoolParts parts, const int32_t warps_per_row) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  SIE_DYNAMIC_SHARED(shared);
  float *const sums = reinterpret_cast<float *>(shared);
  const int32_t n = *job.seqs.n, thread = static_cast<int32_t>(threadIdx.x);
  const int32_t group = thread / 32 / warps_per_row, groups = pool_warps / warps_per_row;
  const int32_t columns = 256 * warps_per_row, octet = static_cast<int32_t>(blockIdx.y),
                begin = octet * columns, padded = padded_columns(job.c);
  if (n < 1) return;
  const int32_t places_end = job.cu_seqlens[n] / part_rows + n;
  for (int32_t place = static_cast<int32_t>(blockIdx.x); place < places_end;
       place += static_cast<int32_t>(gridDim.x)) {
    const Sequence of = last_at_most(n, place, [&](int32_t b) { return job.cu_seqlens[b] / part_rows + b; });
    const int32_t first = job.cu_seqlens[of.index], rows = job.cu_seqlens[of.index + 1] - first;
    const int32_t size = rows_of_part(rows), from = (place - of.start) * size;
    if (from >= rows) continue;  // a place without a part
    const int32_t end = min(from + size, rows);
    TokenSum<S, 1> sum(job.x, first, job.c, warps_per_row, octet, By == PoolBy::size ? -INFINITY : 0.0f);
    const PlaceWeight weights =
        By == PoolBy::place ? place_weight(job, of.index, first, rows) : PlaceWeight{};
    add_rows<By>(weights, from, end, group, groups, &sum);
    if (By == PoolBy::place && octet == 0 && thread < 32) {
      const double all = weights.sum(from, end);
      if (thread == 0) parts.weights[place] = all;
    }
    sum.store(sums + group * columns, begin);
    __syncthreads();
    float *const to = parts.sums + static_cast<int64_t>(place) * padded + begin;
    for (int32_t i = thread; i < columns && begin + i < padded; i += pool_threads) {
      float v = sums[i];
      for (int32_t g = 1; g < groups; g++) v = fold<By>(v, sums[g * columns + i]);
      to[i] = v;
    }
    __syncthreads();  // the sums may be overwritten
  }
}

constexpr int join_threads = 256;

constexpr size_t join_shared_bytes(int32_t c) {
  return sizeof(double) * output_warps * output_reductions +
         sizeof(float) * static_cast<size_t>(padded_columns(c));
}

template <PoolBy By>
__global__ void __launch_bounds__(join_threads, 2)
    pool_join_kernel(const OutputJob job, const PoolParts parts) {
  // The batch's own numbers are there before the parts: pool_part_kernel has waited for them when it
  // lets this kernel start.
  const int64_t b = blockIdx.x;
  const bool present = b < *job.seqs.n;
  const int32_t first = present ? job.cu_seqlens[b] : 0, rows = present ? job.cu_seqlens[b + 1] - first : 0;
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  if (!present) return;
  double *const slots = reinterpret_cast<double *>(shared);
  float *const row = reinterpret_cast<float *>(slots + output_warps * output_reductions);
  const int32_t count = parts_of(rows), padded = padded_columns(job.c);
  const int64_t place = first / part_rows + b;
  double weights = 0;
  for (int32_t p = 0; By == PoolBy::place && p < count; p++) weights += parts.weights[place + p];
  const float total = divisor<By>(job, rows, weights);
  for (int32_t column = 4 * static_cast<int32_t>(threadIdx.x); column < padded; column += 4 * join_threads) {
    const float *const from = parts.sums + place * padded + column;
    float v[4] = {};
    for (int32_t begin = 0; begin < count; begin += join_under_way) {
      uint4 more[join_under_way];
#pragma unroll
      for (int u = 0; u < join_under_way; u++) {
        more[u] = ptx::load_global_or_zero<uint4>(from + static_cast<int64_t>(begin + u) * padded,
                                                  begin + u < count);
      }
#pragma unroll
      for (int u = 0; u < join_under_way; u++) {
        if (begin + u >= count) break;
        const float next[4] = {__uint_as_float(more[u].x), __uint_as_float(more[u].y),
                               __uint_as_float(more[u].z), __uint_as_float(more[u].w)};
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = begin + u == 0 ? next[j] : fold<By>(v[j], next[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = rows > 0 ? __fdiv_rn(v[j], total) : 0.0f;
    ptx::store_shared(row + column, make_float4(v[0], v[1], v[2], v[3]));
  }
  ptx::grid_dependency_launch();
  __syncthreads();
  write_pooled(job, b, row, slots);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_POOL_OUTPUT_CUH
