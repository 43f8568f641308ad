// attention_block.cuh — one warp, sixteen query rows, one block of keys: the step that all forms
// share.
//
//   s = q·kᵀ − slope'·|i − j|, masked to −∞     mma, f32; slope' = slope/scale
//   s = … + bias[j − i]/scale                   in the instances with a relative bias
//   t' = max(t, c·max s),  p = 2^(c·s − t')     c = scale·log₂e; t shifts the exponent, −∞ at first
//   l' = l·2^(t − t') + Σ p
//   o' = o·2^(t − t') + p·v                     p rounded to the operands' type
// and in the end y = o/l, or zero where no key was visible.
//
// A row's bits depend on its own scores, block by block in ascending order. A block without a
// visible key would change nothing (2⁰ = 1, p = 0), so skipping blocks changes speed alone. Keys
// past the end are zeros in shared memory and masked as well: what lies behind a sequence never
// enters.
#ifndef SIE_KERNELS_CUDA_ATTENTION_BLOCK_CUH
#define SIE_KERNELS_CUDA_ATTENTION_BLOCK_CUH

#include "cuda/attention_tile.cuh"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/fast_math.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/opaque.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {
namespace {

// The keys that the sixteen rows of a warp see. Row g stands at position + g and sees the keys
// [position + g − left, position + g + right] of [0, keys).
struct Sight {
  int position, rows, keys, left, right;

  // Some of the existing rows see keys in [first, last); no row sees another key.
  SIE_DEVICE int first() const { return max(0, position - left); }
  SIE_DEVICE int last() const { return rows > 0 ? min(keys, position + rows + right) : 0; }
  SIE_DEVICE bool sees(int key, int count) const {
    Sight now = *this;
    now.position = ptx::opaque(position);
    return key < now.last() && key + count > now.first();
  }
  SIE_DEVICE bool sees_all(int key, int count) const {
    int at = ptx::opaque(position);
    return key >= at + kWarpRows - 1 - left && key + count <= min(keys, at + 1 + right);
  }
};

// The running state of sixteen rows; this lane's are g = lane/4 and g + 8, its columns 8i +
// 2(lane%4), +1.
template <int D>
struct Rows {
  float o[D / 8][4];
  float shift[2], l[2];  // l is this lane's share of the sum until the end

  SIE_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) o[i][e] = 0.0f;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) shift[r] = -INFINITY, l[r] = 0.0f;
  }
};

// s += q·kᵀ of kKeys keys.
template <ptx::Operand T, int D, int kKeys>
SIE_DEVICE void add_products(float (&s)[kKeys / 8][4], const Queries<D> &q, uint32_t k_tile, int lane) {
  // Matrices 0 … 3 of ldmatrix: keys 0-7 and columns 0-7, keys 0-7 and columns 8-15, the same of
  // keys 8-15.
  int key_row = (lane & 7) + ((lane >> 4) << 3), half = ((lane >> 3) & 1) ^ chunk_key<D>(key_row);
  uint32_t row = k_tile + static_cast<uint32_t>(key_row * D * 2);
#pragma unroll(Queries<D>::kKept ? D / 16 : 4)
  for (int step = 0; step < D / 16; step++) {
    uint32_t a[4];
    q.operand(a, step);
    uint32_t at = row + static_cast<uint32_t>(((2 * step) ^ half) * 16);
#pragma unroll
    for (int i = 0; i < kKeys / 16; i++) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, at + static_cast<uint32_t>(i * 16 * D * 2));
      ptx::mma_m16n8<T>(s[2 * i], a, b[0], b[1]);
      ptx::mma_m16n8<T>(s[2 * i + 1], a, b[2], b[3]);
    }
  }
}

// s = q·kᵀ of kKeys keys.
template <ptx::Operand T, int D, int kKeys>
SIE_DEVICE void score(float (&s)[kKeys / 8][4], const Queries<D> &q, uint32_t k_tile, int lane) {
#pragma unroll
  for (int i = 0; i < kKeys / 8; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) s[i][e] = 0.0f;
  }
  add_products<T, D, kKeys>(s, q, k_tile, lane);
}

// Subtracts slope·|i − j|; exact distances in f32.
template <int kKeys>
SIE_DEVICE void subtract_distance(float (&s)[kKeys / 8][4], float slope, int position, int key, int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float distance = static_cast<float>(position + (lane >> 2) + 8 * r - key - 2 * (lane & 3));
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        s[i][2 * r + e] = __fmaf_rn(-slope, fabsf(distance - static_cast<float>(8 * i + e)), s[i][2 * r + e]);
      }
    }
  }
}

// Adds bias[j − i]/scale. `middle` is the head's bias of distance 0; farther than `reach` it is that
// of ±reach.
template <int kKeys>
SIE_DEVICE void add_relative_bias(float (&s)[kKeys / 8][4], const float *middle, int reach, float inverse,
                                  int position, int key, int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int distance = key + 2 * (lane & 3) - (position + (lane >> 2) + 8 * r);
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int held = max(-reach, min(reach, distance + 8 * i + e));
        s[i][2 * r + e] = __fmaf_rn(ptx::load_global<float>(middle + held), inverse, s[i][2 * r + e]);
      }
    }
  }
}

template <int kKeys>
SIE_DEVICE void mask(float (&s)[kKeys / 8][4], const Sight &sight, int key, int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int position = sight.position + (lane >> 2) + 8 * r;
    int first = max(0, position - sight.left), last = min(sight.keys, position + sight.right + 1);
    unsigned count = static_cast<unsigned>(max(0, last - first));
    int from_first = key + 2 * (lane & 3) - first;
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        if (static_cast<unsigned>(from_first + 8 * i + e) >= count) s[i][2 * r + e] = -INFINITY;
      }
    }
  }
}

// Turns scores into probabilities up to a factor, and brings the state to the new shift.
template <int D, int kKeys>
SIE_DEVICE void exponentiate(float (&s)[kKeys / 8][4], Rows<D> &rows, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) largest = fmaxf(largest, fmaxf(s[i][2 * r], s[i][2 * r + 1]));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 1));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 2));
    // The rounded product is the shift itself, so that equal maxima in two blocks give a factor of
    // exactly 1.
    float shift = fmaxf(rows.shift[r], __fmul_rn(largest, scale_log2));
    float finite = shift == -INFINITY ? 0.0f : shift;
    float factor = ptx::exp2_approx(rows.shift[r] - finite);
    rows.shift[r] = shift;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float p = ptx::exp2_approx(__fmaf_rn(s[i][2 * r + e], scale_log2, -finite));
        s[i][2 * r + e] = p;
        sum += p;
      }
    }
    rows.l[r] = __fmaf_rn(rows.l[r], factor, sum);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) rows.o[i][2 * r + e] *= factor;
    }
  }
}

// o += p·v. The accumulators of the scores already lie in the registers as the A operand needs
// them.
template <ptx::Operand T, int D, int kKeys>
SIE_DEVICE void weigh(Rows<D> &rows, const float (&p)[kKeys / 8][4], uint32_t v_tile, int lane) {
  int key_row = lane & 15, half = (lane >> 4) ^ chunk_key<D>(key_row);
  uint32_t row = v_tile + static_cast<uint32_t>(key_row * D * 2);
#pragma unroll
  for (int step = 0; step < kKeys / 16; step++) {
    const uint32_t a[4] = {ptx::pack2<T>(p[2 * step][0], p[2 * step][1]),
                           ptx::pack2<T>(p[2 * step][2], p[2 * step][3]),
                           ptx::pack2<T>(p[2 * step + 1][0], p[2 * step + 1][1]),
                           ptx::pack2<T>(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, row + static_cast<uint32_t>(step * 16 * D * 2 + ((2 * i) ^ half) * 16));
      ptx::mma_m16n8<T>(rows.o[2 * i], a, b[0], b[1]);
      ptx::mma_m16n8<T>(rows.o[2 * i + 1], a, b[2], b[3]);
    }
  }
}

// The factor of a head's scores, its ALiBi slope if there is one, and its relative bias in the
// instances that have one.
struct Scale {
  float scale_log2, inverse;  // scale·log₂e, 1/scale
  const float *slopes;        // [heads] or NULL
  unsigned head;
  const float *bias;  // [heads, 2·reach + 1]
  int reach;

  SIE_DEVICE float slope_of_scores() const { return slopes[head] * inverse; }
  SIE_DEVICE const float *middle() const { return bias + int64_t{head} * (2 * int64_t{reach} + 1) + reach; }
};

// The whole step for the keys [key, key + kKeys) of the sequence.
template <ptx::Operand T, int D, int kKeys, bool kBias>
SIE_DEVICE void attend(Rows<D> &rows, const Queries<D> &q, const Sight &sight, const Scale &scale, int key,
                       uint32_t k_tile, uint32_t v_tile, int lane) {
  float s[kKeys / 8][4];
  score<T, D, kKeys>(s, q, k_tile, lane);
  if (scale.slopes != nullptr)
    subtract_distance<kKeys>(s, scale.slope_of_scores(), sight.position, key, lane);
  if constexpr (kBias)
    add_relative_bias<kKeys>(s, scale.middle(), scale.reach, scale.inverse, sight.position, key, lane);
  if (!sight.sees_all(key, kKeys)) mask<kKeys>(s, sight, key, lane);
  exponentiate<D, kKeys>(s, rows, scale.scale_log2);
  weigh<T, D, kKeys>(rows, s, v_tile, lane);
}

// Divides row `row` of accumulators by l, rounds and stores it, if it is one of the first `valid` from y
// on. l and at(j, e), column 8j + 2(l%4) + e, are lane l's. The four lanes of a row exchange their words
// so that each holds 16 neighbouring bytes: full-width stores without shared memory.
template <ptx::Operand T, int D, class At>
SIE_DEVICE void store_row(float l, const At &at, uint16_t *y, int64_t ld, int row, int valid, int lane) {
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
  l += ptx::shuffle_xor(l, 1);
  l += ptx::shuffle_xor(l, 2);
  const float inverse = l == 0.0f ? 0.0f : __fdiv_rn(1.0f, l);
#pragma unroll
  for (int i = 0; i < D / 8; i += 4) {
    // Word u of lane t: columns 8(i + u) + 2t, +1. Wanted: word u of lane t = columns 8(i + t) +
    // 2u, +1.
    uint32_t word[4];
#pragma unroll
    for (int u = 0; u < 4; u++) word[u] = ptx::pack2<T>(at(i + u, 0) * inverse, at(i + u, 1) * inverse);
#pragma unroll
    for (int u = 0; u < 4; u += 2) {
      const uint32_t received = ptx::shuffle_xor(odd ? word[u] : word[u + 1], 1);
      word[u] = odd ? received : word[u];
      word[u + 1] = odd ? word[u + 1] : received;
    }
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const uint32_t received = ptx::shuffle_xor(upper ? word[u] : word[u + 2], 2);
      word[u] = upper ? received : word[u];
      word[u + 2] = upper ? word[u + 2] : received;
    }
    if (row < valid) {
      ptx::store_global_whole(y + row * ld + (i + (lane & 3)) * 8,
                              make_uint4(word[0], word[1], word[2], word[3]));
    }
  }
}

// The first `valid` of the warp's sixteen rows.
template <ptx::Operand T, int D>
SIE_DEVICE void store_rows(const Rows<D> &rows, uint16_t *y, int64_t ld, int valid, int lane) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const auto at = [&](int j, int e) { return rows.o[j][2 * r + e]; };
    store_row<T, D>(rows.l[r], at, y, ld, (lane >> 2) + 8 * r, valid, lane);
  }
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_BLOCK_CUH
