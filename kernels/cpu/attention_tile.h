// attention_tile.h — what the forms of attention do with a tile of scores: softmax in place, and the
// product with the values.
#ifndef SIE_KERNELS_CPU_ATTENTION_TILE_H
#define SIE_KERNELS_CPU_ATTENTION_TILE_H

#include "gemm_tile.h"
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// In each of R rows s[j] becomes 2^(s[j] − largest) for j below keys; `most` has the largest score
// before these and takes the largest so far; sums takes the rows' sums. A row's bits are the same
// for any R: further rows only fill the time in which each row waits for its own maximum and sum.
template <int R>
SIE_INLINE void softmax_rows(float *s, int64_t ld, int64_t keys, float *most, float *sums) {
  const Vec none = vset(-__builtin_inff());
  Vec top[R], largest[R], sum[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    top[r] = none;
    sum[r] = vset(0.0f);
  }
  int64_t j = 0;
  for (; j + kLanes <= keys; j += kLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) top[r] = vmax(vload(s + r * ld + j), top[r]);
  }
  if (j < keys) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) top[r] = vmax(vload_part_or(s + r * ld + j, keys - j, none), top[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    const float here = vlargest(top[r]);
    if (here > most[r]) most[r] = here;
    largest[r] = vset(most[r]);
  }
  for (j = 0; j + kLanes <= keys; j += kLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const Vec p = vpow2_weight(vload(s + r * ld + j) - largest[r]);
      vstore(s + r * ld + j, p);
      sum[r] = sum[r] + p;
    }
  }
  if (j < keys) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const Vec p = vkeep(vpow2_weight(vload_part(s + r * ld + j, keys - j) - largest[r]), keys - j);
      vstore(s + r * ld + j, p);  // the row's padding takes the zeros
      sum[r] = sum[r] + p;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) sums[r] = vsum(sum[r]);
}

// out[rows, d] = p[rows, span]·v[·, d] + residual, which may be out or null; d is whole vectors.
SIE_INLINE void value_tile(int64_t rows, const float *p, int64_t ldp, const float *v, int64_t d, Range span,
                           const float *residual, float *out) {
  // Two vectors at a time where no single vector would be left over: D = 64 as 2 + 2, not 3 + 1.
  for (int64_t i = 0, vecs; i < d; i += vecs * kLanes) {
    const int64_t left = (d - i) / kLanes;
    vecs = left == 4 || left < kVecs ? (left < 2 ? left : 2) : kVecs;
    const float *add = residual != nullptr ? residual + i : nullptr;
    multiply_tile(kHere, rows, vecs,
                  {p + span.first, ldp, v + span.first * d + i, d, span.last - span.first, out + i, d,
                   nullptr, add, d, 0, nullptr, 0});
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_ATTENTION_TILE_H
