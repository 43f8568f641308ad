// norm_order.cuh — the order of a norm's sums over a row, for rows of 257 … 1,024 columns.
//
// A linear that normalises its rows itself (docs/adr/0046) has them spread as wgmma leaves sums: thread t of
// four holds the pair (2t, 2t + 1) of each octet, and a CTA some of the columns. This order is the same there
// and where a warp holds a row in octets. Columns beyond the row are −0, which changes no sum.
//   pair    x[2t] + x[2t + 1]; of squares x[2t]² + x[2t + 1]², the second by FMA
//   group   192 neighbouring columns are 24 octets, of 769 and more columns 128 are 16. Of each t octets
//           o, 16 + o and 8 + o in this order (of 16: o and 8 + o); then those eight, neighbours first.
//           Behind two groups of 192 columns, octet 48 + 8·g + o is added to 8 + o of group g first.
//   quad    neighbouring t, then the two halves
//   row     the groups, neighbours first
#ifndef SIE_KERNELS_CUDA_NORM_ORDER_CUH
#define SIE_KERNELS_CUDA_NORM_ORDER_CUH

#include "cuda/ptx/warp.h"

namespace sie_cuda {

SIE_DEVICE float norm_pair(float x, float y) { return __fadd_rn(x, y); }
SIE_DEVICE float norm_pair_of_squares(float x, float y) { return __fmaf_rn(y, y, __fmul_rn(x, x)); }

// Whether rows of so many octets a thread and warps have this order.
template <int V, int W>
constexpr bool norm_ordered = W == 1 && V >= 2 && V <= 4;

// The first column of a lane's octet i of V, in a row of that order: lanes that are neighbours in eight have
// neighbouring octets, and each lane has those of one group, of 128 columns of two.
template <int V>
SIE_DEVICE int32_t norm_column(int32_t lane, int i) {
  if constexpr (V > 2) return 64 * (V * (lane / 8) + i) + 8 * (lane % 8);
  if (i == 0) return 192 * (lane / 16) + 8 * (lane % 16);
  return (lane / 8 % 2 == 0 ? 192 * (lane / 16) + 128 : 384 + 64 * (lane / 16)) + 8 * (lane % 8);
}

// One of two sums over this lane and the one whose number differs in bit `Bit`: the first where the lane's bit
// is 0, else the second.
template <int Bit>
SIE_DEVICE float norm_share(float first, float second) {
  const bool upper = (ptx::lane_id() & Bit) != 0;
  const float other = ptx::shuffle_xor(upper ? first : second, Bit);
  return __fadd_rn(upper ? second : first, other);
}

template <int Bit>
SIE_DEVICE float norm_both(float x) {
  return __fadd_rn(x, ptx::shuffle_xor(x, Bit));
}

// The sum over a row, the same in all lanes. pair: of this lane's octet i the pair t.
SIE_DEVICE float norm_row(const float (&pair)[2][4]) {
  float a[4];
#pragma unroll
  for (int t = 0; t < 4; t++) a[t] = __fadd_rn(pair[0][t], pair[1][t]);
  float x = norm_share<1>(norm_share<8>(a[0], a[2]), norm_share<8>(a[1], a[3]));
  x = norm_both<4>(norm_both<2>(x));
  return norm_both<16>(norm_both<8>(norm_both<1>(x)));
}

SIE_DEVICE float norm_row(const float (&pair)[3][4]) {
  float a[4];
#pragma unroll
  for (int t = 0; t < 4; t++) a[t] = __fadd_rn(__fadd_rn(pair[0][t], pair[2][t]), pair[1][t]);
  float x = norm_share<2>(norm_share<1>(a[0], a[2]), norm_share<1>(a[1], a[3]));
  x = norm_both<1>(norm_both<2>(norm_both<4>(x)));
  return norm_both<16>(norm_both<8>(x));
}

SIE_DEVICE float norm_row(const float (&pair)[4][4]) {
  float a[4];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    a[t] = norm_share<1>(__fadd_rn(pair[0][t], pair[1][t]), __fadd_rn(pair[2][t], pair[3][t]));
  }
  float x = norm_share<4>(norm_share<2>(a[0], a[2]), norm_share<2>(a[1], a[3]));
  x = norm_both<2>(norm_both<4>(x));
  return norm_both<16>(norm_both<8>(norm_both<1>(x)));
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_NORM_ORDER_CUH
