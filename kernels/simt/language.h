// language.h — the parts of the CUDA language that a source needs, for g++: qualifiers, vector
// types, indices, intrinsics.
//
// It has only what kernels of this project use. Names and meanings are CUDA's (CUDA C++ Programming
// Guide, Mathematical and Integer Intrinsics). Everything rounds as the device's correctly rounded
// forms do; build with -ffp-contract=off.
#ifndef SIE_KERNELS_SIMT_LANGUAGE_H
#define SIE_KERNELS_SIMT_LANGUAGE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint3 {
  unsigned x, y, z;
};
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct int2 {
  int x, y;
} __attribute__((aligned(8)));
struct int4 {
  int x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
  float x, y;
} __attribute__((aligned(8)));
struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct dim3 {
  unsigned x, y, z;
  // Extents may be any integer type, as in CUDA.
  template <class X = unsigned, class Y = unsigned, class Z = unsigned>
  constexpr dim3(X x_ = 1, Y y_ = 1, Z z_ = 1)
      : x(static_cast<unsigned>(x_)), y(static_cast<unsigned>(y_)), z(static_cast<unsigned>(z_)) {}
};

namespace simt {

// The indices of the running thread.
struct Indices {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
extern Indices *self;

void sync_threads();
int sync_threads_count(int predicate);
void sync_warp(uint32_t mask);

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline float divide(float x, float y) __attribute__((no_sanitize("float-divide-by-zero")));
inline float divide(float x, float y) { return x / y; }

// Subnormals to zero of the same sign, as .ftz does.
inline float flush(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }

}  // namespace simt

#define threadIdx (::simt::self->thread)
#define blockIdx (::simt::self->block)
#define blockDim (::simt::self->block_dim)
#define gridDim (::simt::self->grid_dim)
constexpr int warpSize = 32;

inline void __syncthreads() { ::simt::sync_threads(); }
inline int __syncthreads_count(int predicate) { return ::simt::sync_threads_count(predicate); }
inline int __syncthreads_or(int predicate) { return ::simt::sync_threads_count(predicate) != 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { ::simt::sync_warp(mask); }
inline void __threadfence_block() {}
inline void __threadfence() {}

template <class T>
inline T __ldg(const T *p) {
  return *p;
}

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }

inline unsigned __float_as_uint(float x) { return ::simt::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return ::simt::bits_as<int>(x); }
inline float __uint_as_float(unsigned bits) { return ::simt::bits_as<float>(bits); }
inline float __int_as_float(int bits) { return ::simt::bits_as<float>(bits); }

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return ::simt::divide(x, y); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return ::simt::divide(1.0f, x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float rsqrtf(float x) { return ::simt::divide(1.0f, sqrtf(x)); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// To an integer, ties to even; out of range saturates, NaN gives 0.
inline int __float2int_rn(float x) {
  if (!(x == x)) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  if (x < -2147483648.0f) return -2147483647 - 1;
  return static_cast<int>(rintf(x));
}
inline int __float2int_rd(float x) { return __float2int_rn(floorf(x)); }
inline unsigned __float2uint_rn(float x) {
  if (!(x > 0.0f)) return 0;
  if (x >= 4294967296.0f) return 4294967295u;
  return static_cast<unsigned>(rintf(x));
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
// Byte i of the result is byte (selector >> 4i) & 7 of y:x; no sign replication.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; i++) {
    result |= static_cast<unsigned>(both >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
  }
  return result;
}

#endif  // SIE_KERNELS_SIMT_LANGUAGE_H
