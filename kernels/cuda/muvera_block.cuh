// muvera_block — sums a repetition's partitions, which the warps share out (muvera.cuh).
//
// A warp finds the tokens of a partition by ballots: over those of its partitions, which its lanes keep
// in order where they are at most 32 of the first 256, else over the numbers of all tokens, 32 at a
// time. It adds them up in ascending order, a lane 4 columns of every 128. A projection is linear, so it is applied
// once, to the partition's sum and not to each token: the columns of each ψ column, sorted once per
// repetition, are added in ascending order.
#ifndef SIE_KERNELS_CUDA_MUVERA_BLOCK_CUH
#define SIE_KERNELS_CUDA_MUVERA_BLOCK_CUH

#include "cuda/muvera_partition.cuh"

namespace sie_cuda {

constexpr int block_quads = 4;                            // of a lane
constexpr int32_t block_columns_max = 128 * block_quads;  // summed in one go; wider tokens take several
constexpr int kept_numbers = 8;  // of a lane, where a warp keeps the tokens of its partitions
constexpr uint32_t no_token = 0xffffffffu;

// One sequence of a batch, as one repetition sees it.
struct BlockTokens {
  const sie_tensor &x;
  const float *norm;   // [T] or NULL: the divisors of the rows of x
  const float *shift;  // [C] or NULL
  int64_t first;       // row of x
  int32_t tokens, c;
  const uint16_t *partitions;  // [tokens], of this repetition
};

// The shared memory of a warp for projections: a partition's sum, then the columns, sorted by the ψ
// column that they belong to.
struct ProjectionSpace {
  float *sum;        // [min(C, block_columns_max)]
  uint16_t *begin;   // [P + 1]
  uint16_t *column;  // [min(C, block_columns_max)], sign in the top bit
};

__host__ __device__ constexpr int32_t projection_floats(int32_t c, int32_t projected) {
  // Columns and begins are 16 bits each; rounded up to whole float4s.
  const int32_t columns = c < block_columns_max ? c : block_columns_max;
  return projected == 0 ? 0 : ((columns + 3) / 4 + (columns + projected + 1 + 7) / 8) * 4;
}

SIE_DEVICE ProjectionSpace projection_space(float *memory, int32_t c, int32_t projected) {
  const int32_t columns = c < block_columns_max ? c : block_columns_max;
  uint16_t *const begin = reinterpret_cast<uint16_t *>(memory + (columns + 3) / 4 * 4);
  return {memory, begin, begin + projected + 1};
}

// Four columns of a token, divided by its norm, less the shift; 0 from c on.
SIE_DEVICE void load_quad(const BlockTokens &s, int64_t row, int32_t column, const float (&shift)[4],
                          float (&v)[4]) {
  const char *from = element_at(s.x, row, column);
  if (column + 4 <= s.c && s.x.dtype == SIE_F32 && ptx::aligned_for<uint4>(from)) {
    const float4 four = ptx::load_global<float4>(from);
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else if (column + 4 <= s.c && s.x.dtype != SIE_F32 && ptx::aligned_for<uint2>(from)) {
    const uint2 bits = ptx::load_global<uint2>(from);
    const bool bf16 = s.x.dtype == SIE_BF16;
    const float2 low = bf16 ? ptx::unpack_bf16x2(bits.x) : ptx::unpack_f16x2(bits.x);
    const float2 high = bf16 ? ptx::unpack_bf16x2(bits.y) : ptx::unpack_f16x2(bits.y);
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = column + j < s.c ? load_element(from, s.x.dtype, j) : 0.0f;
  }
  if (s.norm != nullptr) {
    const float norm = s.norm[row];
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = __fdiv_rn(v[j], norm);
  }
#pragma unroll
  for (int j = 0; j < 4; j++) v[j] -= shift[j];
}

// A lane's part of a partition's sum: columns begin + 4·lane, + 128, … of one stretch of
// block_columns_max.
class PartitionSum {
 public:
  SIE_DEVICE PartitionSum(const BlockTokens &s, int32_t begin) : s_(s) {
#pragma unroll
    for (int i = 0; i < block_quads; i++) {
      column_[i] = begin + 128 * i + 4 * static_cast<int32_t>(ptx::lane_id());
#pragma unroll
      for (int j = 0; j < 4; j++) {
        shift_[i][j] = s.shift != nullptr && column_[i] + j < s.c ? s.shift[column_[i] + j] : 0.0f;
      }
    }
  }

  SIE_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < block_quads; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) sum_[i][j] = 0.0f;
    }
  }

  // Adds tokens t and, where there is one, u, in this order.
  SIE_DEVICE void add(uint32_t t, uint32_t u) {
#pragma unroll
    for (int i = 0; i < block_quads; i++) {
      if (column_[i] >= s_.c) continue;
      float x[4], y[4] = {};
      load_quad(s_, s_.first + t, column_[i], shift_[i], x);
      if (u != no_token) load_quad(s_, s_.first + u, column_[i], shift_[i], y);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        sum_[i][j] += x[j];
        if (u != no_token) sum_[i][j] += y[j];
      }
    }
  }

  // Writes sum/count to the places in `to` of the token's columns from `begin` on; begin is the
  // constructor's.
  SIE_DEVICE void store(float *to, int32_t begin, float count) const {
#pragma unroll
    for (int i = 0; i < block_quads; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (column_[i] + j < s_.c) to[column_[i] + j - begin] = __fdiv_rn(sum_[i][j], count);
      }
    }
  }

 private:
  const BlockTokens &s_;
  int32_t column_[block_quads];
  float shift_[block_quads][4], sum_[block_quads][4] = {};
};

// The same for rows of at most 128 columns, a multiple of 4, in bf16 at multiples of 8 bytes, from which nothing is
// subtracted: a lane has 4 columns, or none.
class QuadSum {
 public:
  SIE_DEVICE QuadSum(const BlockTokens &s, int32_t)
      : column_(4 * static_cast<int32_t>(ptx::lane_id())),
        mine_(column_ < s.c),
        row_bytes_(2 * s.x.ld),
        rows_(element_at(s.x, s.first, mine_ ? column_ : 0)),  // who has none adds the first ones for nothing
        norm_(s.norm != nullptr ? s.norm + s.first : nullptr) {}

  SIE_DEVICE void clear() { sum_ = make_float4(0, 0, 0, 0); }

  SIE_DEVICE void add(uint32_t t, uint32_t u) {
    const bool two = u != no_token;
    const uint2 x = load(t), y = two ? load(u) : make_uint2(0, 0);
    add(t, x);
    if (two) add(u, y);
  }

  SIE_DEVICE void store(float *to, int32_t, float count) const {
    if (!mine_) return;
    float4 v = sum_;
    if (count > 1.0f) {
      v = make_float4(__fdiv_rn(v.x, count), __fdiv_rn(v.y, count), __fdiv_rn(v.z, count),
                      __fdiv_rn(v.w, count));
    }
    ptx::store_anywhere(to + column_, v);
  }

 private:
  SIE_DEVICE uint2 load(uint32_t t) const {
    return ptx::load_global<uint2>(rows_ + static_cast<int64_t>(t) * row_bytes_);
  }

  SIE_DEVICE void add(uint32_t t, const uint2 &bits) {
    float2 low = ptx::unpack_bf16x2(bits.x), high = ptx::unpack_bf16x2(bits.y);
    if (norm_ != nullptr) {
      const float norm = norm_[t];
      low = make_float2(__fdiv_rn(low.x, norm), __fdiv_rn(low.y, norm));
      high = make_float2(__fdiv_rn(high.x, norm), __fdiv_rn(high.y, norm));
    }
    sum_.x += low.x, sum_.y += low.y, sum_.z += high.x, sum_.w += high.y;
  }

  int32_t column_;
  bool mine_;
  int64_t row_bytes_;
  const char *rows_;
  const float *norm_;
  float4 sum_;
};

// Adds every token from base on that `mine` marks, ascending; lane l holds the mark of token base + l. Returns their
// number.
template <class Sum>
SIE_DEVICE int32_t add_marked(Sum &sum, uint32_t base, bool mine) {
  uint32_t marks = ptx::ballot(mine);
  const int32_t count = __popc(marks);
  while (marks != 0) {
    const uint32_t t = static_cast<uint32_t>(__ffs(static_cast<int>(marks))) - 1;
    marks &= marks - 1;
    const uint32_t u =
        marks != 0 ? base + static_cast<uint32_t>(__ffs(static_cast<int>(marks))) - 1 : no_token;
    marks &= marks - 1;
    sum.add(base + t, u);
  }
  return count;
}

// The token whose sign bits differ least from those of partition g, the first of equals. Tokens
// below 2²⁶.
SIE_DEVICE uint32_t nearest_token(const BlockTokens &s, uint32_t g) {
  uint32_t best = no_token;
  for (int32_t t = static_cast<int32_t>(ptx::lane_id()); t < s.tokens; t += 32) {
    const uint32_t other = s.partitions[t];
    const uint32_t distance = static_cast<uint32_t>(__popc((g ^ (g >> 1)) ^ (other ^ (other >> 1))));
    best = min(best, distance << 26 | static_cast<uint32_t>(t));
  }
  return ptx::reduce_min(best) & 0x3ffffffu;
}

// Sorts columns [begin, end) of a token by the ψ column that ams[column] sends them to, each
// ascending.
SIE_DEVICE void sort_projection(const int32_t *ams, int32_t begin, int32_t end, int32_t projected,
                                const ProjectionSpace &space) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  int32_t at = 0;
  for (int32_t j = 0; j < projected; j++) {
    if (lane == 0) space.begin[j] = static_cast<uint16_t>(at);
    for (int32_t base = begin; base < end; base += 32) {
      const int32_t column = base + lane;
      const int32_t to = column < end ? ams[column] : -projected - 1;  // goes nowhere
      const bool mine = (to < 0 ? ~to : to) == j;
      const uint32_t all = ptx::ballot(mine), before = all & ((1u << lane) - 1u);
      if (mine) {
        space.column[at + __popc(before)] = static_cast<uint16_t>((column - begin) | (to < 0 ? 0x8000 : 0));
      }
      at += __popc(all);
    }
  }
  if (lane == 0) space.begin[projected] = static_cast<uint16_t>(at);
  ptx::sync_warp();
}

// to[j] (+)= Σ ±sum[column] over the columns of ψ column j. Fewer than 32 ψ columns: `shares` lanes
// each, whose sums meet by butterfly.
SIE_DEVICE void project(const ProjectionSpace &space, int32_t projected, bool add, float *to) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  int32_t wide = 32;  // ψ columns of a round, a power of two
  while (wide / 2 >= projected) wide /= 2;
  const int32_t shares = 32 / wide;
  for (int32_t base = 0; base < projected; base += wide) {
    const int32_t j = base + lane % wide;
    float sum = 0;
    if (j < projected) {
      for (int32_t e = space.begin[j] + lane / wide; e < space.begin[j + 1]; e += shares) {
        const uint32_t column = space.column[e];
        const float v = space.sum[column & 0x7fffu];
        sum += (column & 0x8000u) != 0 ? -v : v;
      }
    }
    for (int32_t step = wide; step < 32; step *= 2) sum += ptx::shuffle_xor(sum, step);
    if (j < projected && lane < wide) to[j] = add ? to[j] + sum : sum;
  }
}

// A warp's tokens, where 32 lanes hold them: lane l the l-th, ascending, as partition << 8 | token, partitions counted
// from the warp's first one; no_token behind the last.
struct KeptTokens {
  bool all;  // there are no others
  uint32_t own;
};

// Those in partitions [from, from + partitions) of at most 256 tokens. They change lanes in `memory`, 64 bytes of the
// warp's own.
SIE_DEVICE KeptTokens keep_tokens(const BlockTokens &s, uint32_t from, uint32_t partitions, void *memory) {
  uint16_t *const list = static_cast<uint16_t *>(memory);
  const uint32_t lane = ptx::lane_id();
  uint32_t count = 0;
#pragma unroll
  for (int i = 0; i < kept_numbers; i++) {
    if (32 * i >= s.tokens) break;
    const int32_t token = 32 * i + static_cast<int32_t>(lane);
    const uint32_t partition = token < s.tokens ? s.partitions[token] - from : partitions;
    const bool mine = partition < partitions;
    const uint32_t marks = ptx::ballot(mine);
    const uint32_t at = count + static_cast<uint32_t>(__popc(marks & ((1u << lane) - 1u)));
    if (mine && at < 32) list[at] = static_cast<uint16_t>(partition << 8 | static_cast<uint32_t>(token));
    count += static_cast<uint32_t>(__popc(marks));
  }
  ptx::sync_warp();
  const uint32_t own = lane < count ? list[lane] : no_token;
  ptx::sync_warp();  // the memory may be overwritten
  return {count <= 32, own};
}

// Adds the kept tokens of a partition, ascending. Returns their number.
template <class Sum>
SIE_DEVICE int32_t add_kept(Sum &sum, uint32_t own, uint32_t partition) {
  uint32_t marks = ptx::ballot(own >> 8 == partition);
  const int32_t count = __popc(marks);
  while (marks != 0) {
    const uint32_t t = ptx::shuffle_from(own, __ffs(static_cast<int>(marks)) - 1) & 255u;
    marks &= marks - 1;
    const uint32_t u =
        marks != 0 ? ptx::shuffle_from(own, __ffs(static_cast<int>(marks)) - 1) & 255u : no_token;
    marks &= marks - 1;
    sum.add(t, u);
  }
  return count;
}

struct BlockForm {
  int32_t projected;  // 0: identity
  bool is_query, fill_empty;
};

// Partitions [from, until) of a repetition, by one warp; block [until − from, P] receives them.
template <class Sum>
SIE_DEVICE void fill_partitions(const BlockTokens &s, const BlockForm &form, const int32_t *ams,
                                uint32_t from, uint32_t until, const ProjectionSpace &space, float *block) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()),
                width = form.projected != 0 ? form.projected : s.c;
  // 0xffff is no partition: there are at most 2¹⁰.
  KeptTokens kept = {};
  if (s.tokens <= 32 * kept_numbers && static_cast<int64_t>(until - from) * width >= 16)
    kept = keep_tokens(s, from, until - from, block);
  for (int32_t begin = 0; begin < s.c; begin += block_columns_max) {
    const int32_t end = s.c - begin < block_columns_max ? s.c : begin + block_columns_max;
    if (form.projected != 0) sort_projection(ams, begin, end, form.projected, space);
    Sum sum(s, begin);
    for (uint32_t g = from; g < until; g++) {
      sum.clear();
      int32_t count = 0;
      if (kept.all) {
        count = add_kept(sum, kept.own, g - from);
      } else {
        for (int32_t base = 0; base < s.tokens; base += 32) {
          const uint32_t number = base + lane < s.tokens ? s.partitions[base + lane] : 0xffffu;
          count += add_marked(sum, static_cast<uint32_t>(base), number == g);
        }
      }
      if (count == 0 && form.fill_empty && !form.is_query && s.tokens > 0)
        sum.add(nearest_token(s, g), no_token);
      const float by = count > 0 && !form.is_query ? static_cast<float>(count) : 1.0f;
      float *const to = block + static_cast<int64_t>(g - from) * width;
      if (form.projected == 0) {
        sum.store(to + begin, begin, by);
        continue;
      }
      ptx::sync_warp();  // the previous sum has been read
      sum.store(space.sum, begin, by);
      ptx::sync_warp();
      project(space, form.projected, begin > 0, to);
    }
    ptx::sync_warp();
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MUVERA_BLOCK_CUH
