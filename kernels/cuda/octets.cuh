// octets.cuh — octets of a row in memory and in registers.
//
// An octet is eight neighbouring columns: 16 bytes of bf16 or f16, and the unit in which a row is
// dealt out.
//
//   Storage::bf16, f16  all tensors of the call have this type, c is a multiple of 8, every row and
//                       vector starts at a multiple of 16 bytes: one 128-bit access an octet
//   Storage::any        each tensor has its own type; 128-bit accesses where it allows them, else
//                       element by element
#ifndef SIE_KERNELS_CUDA_OCTETS_CUH
#define SIE_KERNELS_CUDA_OCTETS_CUH

#include "cuda/e4m3_scale.cuh"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/device.h"
#include "cuda/ptx/vector.h"
#include "ops.h"

namespace sie_cuda {

enum class Storage { bf16, f16, any };

SIE_DEVICE void unpack_octet(Storage s, const uint4 &bits, float (&v)[8]) {
  const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 two = s == Storage::bf16 ? ptx::unpack_bf16x2(pairs[i]) : ptx::unpack_f16x2(pairs[i]);
    v[2 * i] = two.x;
    v[2 * i + 1] = two.y;
  }
}

SIE_DEVICE uint4 pack_octet(Storage s, const float (&v)[8]) {
  uint4 bits;
  bits.x = s == Storage::bf16 ? ptx::pack_bf16x2(v[0], v[1]) : ptx::pack_f16x2(v[0], v[1]);
  bits.y = s == Storage::bf16 ? ptx::pack_bf16x2(v[2], v[3]) : ptx::pack_f16x2(v[2], v[3]);
  bits.z = s == Storage::bf16 ? ptx::pack_bf16x2(v[4], v[5]) : ptx::pack_f16x2(v[4], v[5]);
  bits.w = s == Storage::bf16 ? ptx::pack_bf16x2(v[6], v[7]) : ptx::pack_f16x2(v[6], v[7]);
  return bits;
}

SIE_DEVICE float load_element(const void *p, int32_t dtype, int64_t at) {
  if (dtype == SIE_F32) return static_cast<const float *>(p)[at];
  const uint16_t bits = static_cast<const uint16_t *>(p)[at];
  return dtype == SIE_BF16 ? ptx::from_bf16(bits) : ptx::from_f16(bits);
}

SIE_DEVICE void store_element(void *p, int32_t dtype, int64_t at, float x) {
  if (dtype == SIE_F32) {
    static_cast<float *>(p)[at] = x;
  } else {
    static_cast<uint16_t *>(p)[at] = dtype == SIE_BF16 ? ptx::to_bf16(x) : ptx::to_f16(x);
  }
}

SIE_DEVICE int64_t element_bytes(int32_t dtype) { return dtype == SIE_F32 ? 4 : 2; }

SIE_DEVICE char *element_at(const sie_tensor &t, int64_t row, int32_t column) {
  return static_cast<char *>(t.p) + (row * t.ld + column) * element_bytes(t.dtype);
}

// Columns [column, column + 8) of a row of any type into v; those from c on are 0.
SIE_DEVICE void load_octet_any(const sie_tensor &t, int64_t row, int32_t column, int32_t c, float (&v)[8]) {
  const char *from = element_at(t, row, column);
  if (column + 8 <= c && ptx::aligned_for<uint4>(from)) {
    if (t.dtype == SIE_F32) {
      const uint4 low = ptx::load_global<uint4>(from), high = ptx::load_global<uint4>(from + 16);
      const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = __uint_as_float(words[j]);
    } else {
      unpack_octet(t.dtype == SIE_BF16 ? Storage::bf16 : Storage::f16, ptx::load_global<uint4>(from), v);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) v[j] = column + j < c ? load_element(from, t.dtype, j) : 0.0f;
}

SIE_DEVICE void store_octet_any(const sie_tensor &t, int64_t row, int32_t column, int32_t c,
                                const float (&v)[8]) {
  char *to = element_at(t, row, column);
  if (column + 8 <= c && ptx::aligned_for<uint4>(to)) {
    if (t.dtype == SIE_F32) {
      ptx::store_global(to, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                       __float_as_uint(v[3])));
      ptx::store_global(to + 16, make_uint4(__float_as_uint(v[4]), __float_as_uint(v[5]),
                                            __float_as_uint(v[6]), __float_as_uint(v[7])));
    } else {
      ptx::store_global(to, pack_octet(t.dtype == SIE_BF16 ? Storage::bf16 : Storage::f16, v));
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (column + j < c) store_element(to, t.dtype, j, v[j]);
  }
}

// An octet between its load and its use: the bits, so that several loads are in flight before the
// first is converted; for Storage::any the values themselves.
template <Storage S>
struct Loaded {
  uint4 bits;
  SIE_DEVICE void load(const sie_tensor &t, int64_t row, int32_t column, int32_t c) {
    bits =
        ptx::load_global_or_zero<uint4>(static_cast<const uint16_t *>(t.p) + row * t.ld + column, column < c);
  }
  SIE_DEVICE void get(float (&v)[8]) const { unpack_octet(S, bits, v); }
};

template <>
struct Loaded<Storage::any> {
  float values[8];
  SIE_DEVICE void load(const sie_tensor &t, int64_t row, int32_t column, int32_t c) {
    load_octet_any(t, row, column, c, values);
  }
  SIE_DEVICE void get(float (&v)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = values[j];
  }
};

template <Storage S>
SIE_DEVICE void store_octet(const sie_tensor &t, int64_t row, int32_t column, int32_t c,
                            const float (&v)[8]) {
  if (S == Storage::any) {
    store_octet_any(t, row, column, c, v);
  } else if (column < c) {
    ptx::store_global(static_cast<uint16_t *>(t.p) + row * t.ld + column, pack_octet(S, v));
  }
}

// Columns of a parameter vector (f32, written before any kernel started); 0 from c on.
template <Storage S>
SIE_DEVICE void load_vector(const float *p, int32_t column, int32_t c, float (&v)[8]) {
  if (S != Storage::any) {
    // Octets beyond the row read the first: their results are not stored.
    const float *from = p + (column < c ? column : 0);
    const uint4 low = ptx::load_global_nc<uint4>(from), high = ptx::load_global_nc<uint4>(from + 4);
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __uint_as_float(words[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = column + j < c ? p[column + j] : 0.0f;
  }
}

// Whether column j of the octet at `column` is one of the row's.
template <Storage S>
SIE_DEVICE bool in_row(int32_t column, int j, int32_t c) {
  return S == Storage::any ? column + j < c : column < c;
}

// ---- fp8 rows

// max|v| over the octet's columns of the row; NaNs do not count.
template <Storage S>
SIE_DEVICE float octet_max(float most, const float (&v)[8], int32_t column, int32_t c) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (in_row<S>(column, j, c)) most = fmaxf(most, fabsf(v[j]));
  }
  return most;
}

template <Storage S>
SIE_DEVICE void store_octet_f8(const sie_tensor &t, int64_t row, int32_t column, int32_t c,
                               const float (&v)[8], float inverse) {
  float q[8];
#pragma unroll
  for (int j = 0; j < 8; j++) q[j] = __fmul_rn(v[j], inverse);
  uint8_t *to = static_cast<uint8_t *>(t.p) + row * t.ld + column;
  uint2 bytes;
  bytes.x = ptx::pack_e4m3x4(q[0], q[1], q[2], q[3]);
  bytes.y = ptx::pack_e4m3x4(q[4], q[5], q[6], q[7]);
  if (S != Storage::any) {
    if (column < c) ptx::store_global(to, bytes);
    return;
  }
  if (column + 8 <= c && ptx::aligned_for<uint2>(to)) {
    ptx::store_global(to, bytes);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (column + j < c) to[j] = static_cast<uint8_t>((j < 4 ? bytes.x : bytes.y) >> (8 * (j % 4)));
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_OCTETS_CUH
