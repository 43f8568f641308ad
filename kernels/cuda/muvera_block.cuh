// muvera_block — sums a repetition's partitions, which the warps share out (muvera.cuh).
//
// A warp finds the tokens of a partition by ballots over their numbers, 32 at a time. It adds them
// up in ascending order, a lane 4 columns of every 128. A projection is linear, so it is applied
// once, to the partition's sum and not to each token: the columns of each ψ column, sorted once per
// repetition, are added in ascending order.
#ifndef SIE_KERNELS_CUDA_MUVERA_BLOCK_CUH
#define SIE_KERNELS_CUDA_MUVERA_BLOCK_CUH

#include "cuda/muvera_partition.cuh"

namespace sie_cuda {

constexpr int block_quads = 4;                            // of a lane
constexpr int32_t block_columns_max = 128 * block_quads;  // summed in one go; wider tokens take several
constexpr int kept_numbers = 8;  // partition numbers a lane keeps: of the first 256 tokens
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

  // Adds every token from base on that `mine` marks; lane l holds the mark of token base + l.
  SIE_DEVICE int32_t add_marked(uint32_t base, bool mine) {
    uint32_t marks = ptx::ballot(mine);
    const int32_t count = __popc(marks);
    while (marks != 0) {
      const uint32_t t = static_cast<uint32_t>(__ffs(static_cast<int>(marks))) - 1;
      marks &= marks - 1;
      const uint32_t u =
          marks != 0 ? base + static_cast<uint32_t>(__ffs(static_cast<int>(marks))) - 1 : no_token;
      marks &= marks - 1;
      add(base + t, u);
    }
    return count;
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

struct BlockForm {
  int32_t projected;  // 0: identity
  bool is_query, fill_empty;
};

// Partitions [from, until) of a repetition, by one warp; block [until − from, P] receives them.
SIE_DEVICE void fill_partitions(const BlockTokens &s, const BlockForm &form, const int32_t *ams,
                                uint32_t from, uint32_t until, const ProjectionSpace &space, float *block) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()),
                width = form.projected != 0 ? form.projected : s.c;
  // 0xffff is no partition: there are at most 2¹⁰.
  uint32_t numbers[kept_numbers];
#pragma unroll
  for (int i = 0; i < kept_numbers; i++) {
    numbers[i] = 32 * i + lane < s.tokens ? s.partitions[32 * i + lane] : 0xffffu;
  }
  for (int32_t begin = 0; begin < s.c; begin += block_columns_max) {
    const int32_t end = s.c - begin < block_columns_max ? s.c : begin + block_columns_max;
    if (form.projected != 0) sort_projection(ams, begin, end, form.projected, space);
    PartitionSum sum(s, begin);
    for (uint32_t g = from; g < until; g++) {
      sum.clear();
      int32_t count = 0;
#pragma unroll
      for (int i = 0; i < kept_numbers; i++) {
        if (32 * i < s.tokens) count += sum.add_marked(32u * i, numbers[i] == g);
      }
      for (int32_t base = 32 * kept_numbers; base < s.tokens; base += 32) {
        const uint32_t number = base + lane < s.tokens ? s.partitions[base + lane] : 0xffffu;
        count += sum.add_marked(static_cast<uint32_t>(base), number == g);
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
