// isa.h — the generic entry points of the CPU backend, once per instruction set, and how they share work.
//
// Every X.cc of this directory without an instruction-set suffix is compiled twice, in namespace
// sie_cpu::avx2 and in sie_cpu::avx512 (SIE_ISA_NS). Nothing here is an inline function with external
// linkage, and no C++ library header is included: the linker could keep an AVX-512 copy for baseline code.
// All functions are pure: no state, no allocation, any number of threads at once.
#ifndef SIE_KERNELS_CPU_ISA_H
#define SIE_KERNELS_CPU_ISA_H

#include "ops.h"

namespace sie_cpu {

// Shapes, types and errors of each are at the top of its source file. The *_scratch functions give the bytes
// a share's scratch must have; linear_f32_pack follows sie_ops.pack.
#define SIE_CPU_DECLARE(ns)                                                                          \
  namespace ns {                                                                                     \
  sie_status embed_layernorm(const sie_embed_layernorm_args *, const sie_share *);                   \
  sie_status layernorm(const sie_layernorm_args *, const sie_share *);                               \
  sie_status quantise_rows(const sie_quantise_rows_args *, const sie_share *);                       \
  sie_status attention(const sie_attention_args *, const sie_share *);                               \
  sie_status gather_rows(const sie_gather_rows_args *, const sie_share *);                           \
  sie_status pool(const sie_pool_args *, const sie_share *);                                         \
  sie_status output_rows(const sie_output_rows_args *, const sie_share *);                           \
  sie_status qk_norm_rope(const sie_qk_norm_rope_args *, const sie_share *);                         \
  sie_status linear_f32(const sie_linear_args *, const sie_share *);                                 \
  int64_t linear_f32_packed_bytes(int64_t n, int64_t k);                                             \
  void linear_f32_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, \
                       void *dst);                                                                   \
  int64_t linear_f32_scratch(const sie_op_bounds *bounds);                                           \
  int64_t attention_scratch(const sie_op_bounds *bounds);                                            \
  }
SIE_CPU_DECLARE(avx2)
SIE_CPU_DECLARE(avx512)
#undef SIE_CPU_DECLARE

// Items [first, last) of `count` that belong to this call.
struct Range {
  int64_t first, last;
};

static inline Range share_of(int64_t count, const sie_share *share) {
  return {count * share->part / share->parts, count * (share->part + 1) / share->parts};
}

// Types that CPU kernels store. f16 and e4m3 they do not: no instruction set here computes faster in them than
// in bf16 or u8, and both can hold less.
static inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16; }
static inline bool is_float_or_absent(const sie_tensor &t) { return t.p == nullptr || is_float(t.dtype); }
static inline bool is_u8_or_absent(const sie_tensor &t) { return t.p == nullptr || t.dtype == SIE_U8; }

// Scratch of `count` floats, to whole lines.
static inline int64_t float_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_ISA_H
