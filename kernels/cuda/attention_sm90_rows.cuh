// attention_sm90_rows.cuh — what a thread of a warpgroup does with its two query rows between the
// products of attention_sm90.cuh: slopes or biases, mask, online softmax, fragments, the store.
//
// The accumulators of wgmma lie as those of mma: lane l of warp w holds rows 16w + l/4 and 8
// further, columns 8j + 2(l%4), +1 of each j. The steps and their rounding are those of
// attention_block.cuh, over blocks of 128 keys (64 at D = 256): one
// class, other bits.
#ifndef SIE_KERNELS_CUDA_ATTENTION_SM90_ROWS_CUH
#define SIE_KERNELS_CUDA_ATTENTION_SM90_ROWS_CUH

#include "cuda/attention_block.cuh"
#include "cuda/attention_sm90.h"
#include "cuda/ptx/vector.h"

namespace sie_cuda {
namespace {

// A block's scores are as many registers as half of its keys: 64, or 32 at D = 256.

// The online softmax of this thread's rows g and g + 8; l is its share of the sum until the end.
struct WideRows {
  float shift[2], l[2];
  SIE_DEVICE void clear() {
#pragma unroll
    for (int r = 0; r < 2; r++) shift[r] = -INFINITY, l[r] = 0.0f;
  }
};

// What an instance adds to the scores before the mask.
enum class Beside { nothing, slopes, bias };

template <Beside kBeside>
struct WideTerm;  // of one head

template <>
struct WideTerm<Beside::nothing> {
  SIE_DEVICE WideTerm(const AttentionParams &, unsigned) {}
  template <int N>
  SIE_DEVICE void add(float (&)[N], const Sight &, int, int) const {}
};

// −slope·|i − j|, with exact distances in f32: the step of subtract_distance.
template <>
struct WideTerm<Beside::slopes> {
  float slope;  // of scores before they are scaled
  SIE_DEVICE WideTerm(const AttentionParams &p, unsigned head)
      : slope(ptx::load_global<float>(p.slopes + head) * p.inverse_scale) {}
  // `sight` is of the warp's sixteen rows.
  template <int N>
  SIE_DEVICE void add(float (&s)[N], const Sight &sight, int key, int lane) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float distance = static_cast<float>(sight.position + (lane >> 2) + 8 * r - key - 2 * (lane & 3));
#pragma unroll
      for (int i = 0; i < N / 4; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float &score = s[4 * i + 2 * r + e];
          score = __fmaf_rn(-slope, fabsf(distance - static_cast<float>(8 * i + e)), score);
        }
      }
    }
  }
};

// bias[j − i]/scale, as add_relative_bias adds it.
template <>
struct WideTerm<Beside::bias> {
  const float *middle;  // the head's bias of distance 0
  int reach;
  float inverse;  // 1/scale
  SIE_DEVICE WideTerm(const AttentionParams &p, unsigned head)
      : middle(p.bias + int64_t{head} * (2 * int64_t{p.bias_reach} + 1) + p.bias_reach),
        reach(p.bias_reach),
        inverse(p.inverse_scale) {}
  template <int N>
  SIE_DEVICE void add(float (&s)[N], const Sight &sight, int key, int lane) const {
    // Of the nearest and the farthest pair of the block and the warp's rows.
    const int least = key - sight.position - (kWarpRows - 1), most = key + 2 * N - 1 - sight.position;
    if (least >= reach || most <= -reach) {
      const float bias = ptx::load_global<float>(middle + (least >= reach ? reach : -reach));
#pragma unroll
      for (int i = 0; i < N; i++) s[i] = __fmaf_rn(bias, inverse, s[i]);
      return;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int distance = key + 2 * (lane & 3) - (sight.position + (lane >> 2) + 8 * r);
#pragma unroll
      for (int i = 0; i < N / 4; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int held = max(-reach, min(reach, distance + 8 * i + e));
          float &score = s[4 * i + 2 * r + e];
          score = __fmaf_rn(ptx::load_global<float>(middle + held), inverse, score);
        }
      }
    }
  }
};

// Sets scores of keys that a row does not see to −∞. `sight` is of the warp's sixteen rows.
template <int N>
SIE_DEVICE void wide_mask(float (&s)[N], const Sight &sight, int key, int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int position = sight.position + (lane >> 2) + 8 * r;
    const int first = max(0, position - sight.left), last = min(sight.keys, position + sight.right + 1);
    const unsigned count = static_cast<unsigned>(max(0, last - first));
    const int from_first = key + 2 * (lane & 3) - first;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        if (static_cast<unsigned>(from_first + 8 * i + e) >= count) s[4 * i + 2 * r + e] = -INFINITY;
      }
    }
  }
}

// Turns scores into probabilities up to a factor and moves `rows` on; factor is what o is then
// multiplied by.
template <int N>
SIE_DEVICE void wide_exponentiate(float (&s)[N], WideRows *rows, float (&factor)[2], float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < N / 4; i++) largest = fmaxf(largest, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 1));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 2));
    // The rounded product is the shift itself, so that equal maxima in two blocks give a factor of
    // exactly 1.
    const float shift = fmaxf(rows->shift[r], __fmul_rn(largest, scale_log2));
    const float finite = shift == -INFINITY ? 0.0f : shift;
    factor[r] = ptx::exp2_approx(rows->shift[r] - finite);
    rows->shift[r] = shift;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float p = ptx::exp2_approx(__fmaf_rn(s[4 * i + 2 * r + e], scale_log2, -finite));
        s[4 * i + 2 * r + e] = p;
        sum += p;
      }
    }
    rows->l[r] = __fmaf_rn(rows->l[r], factor[r], sum);
  }
}

// The scores' registers are the fragments of operand A, two by two.
template <ptx::Operand T, int Steps>
SIE_DEVICE void wide_fragments(uint32_t (&p)[Steps][4], const float (&s)[8 * Steps]) {
#pragma unroll
  for (int step = 0; step < Steps; step++) {
#pragma unroll
    for (int e = 0; e < 4; e++) p[step][e] = ptx::pack2<T>(s[8 * step + 2 * e], s[8 * step + 2 * e + 1]);
  }
}

template <int D>
SIE_DEVICE void wide_rescale(float (&o)[D / 2], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < D / 2; i++) o[i] *= factor[i / 2 % 2];
}

// Divides, rounds and stores the first `valid` of the warp's sixteen rows from y on.
template <ptx::Operand T, int D>
SIE_DEVICE void wide_store(const float (&o)[D / 2], const WideRows &rows, uint16_t *y, int64_t ld, int valid,
                           int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const auto at = [&](int j, int e) { return o[4 * j + 2 * r + e]; };
    store_row<T, D>(rows.l[r], at, y, ld, (lane >> 2) + 8 * r, valid, lane);
  }
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_SM90_ROWS_CUH
