// isa.h — the generic entry points of the CPU backend, declared once per instruction set, and how
// their calls share work.
//
// Every X.cc of this directory without an instruction-set suffix is compiled for x86-64 twice, in
// namespace sie_cpu::avx2 and in sie_cpu::avx512 (SIE_ISA_NS), and for arm64 once, in
// sie_cpu::neon. This header has no inline function with external linkage and includes no C++
// library header: the linker could keep an AVX-512 copy for baseline code. All functions are pure: no state, no allocation, any number of threads at once.
#ifndef SIE_KERNELS_CPU_ISA_H
#define SIE_KERNELS_CPU_ISA_H

#include "ops.h"

namespace sie_cpu {

// The linear of a class, for operations that contain one.
typedef sie_status (*LinearFn)(const sie_linear_args *, const sie_share *);

// The top of each source file states its shapes, types and errors. The *_scratch functions give the
// bytes that a share's scratch must have; linear_f32_pack follows sie_ops.pack.
#define SIE_CPU_DECLARE(ns)                                                                          \
  namespace ns {                                                                                     \
  sie_status embed_layernorm(const sie_embed_layernorm_args *, const sie_share *);                   \
  sie_status layernorm(const sie_layernorm_args *, const sie_share *);                               \
  sie_status quantise_rows(const sie_quantise_rows_args *, const sie_share *);                       \
  sie_status attention(const sie_attention_args *, const sie_share *);                               \
  sie_status attention_disentangled(const sie_attention_args *, const sie_share *);                  \
  sie_status gather_rows(const sie_gather_rows_args *, const sie_share *);                           \
  sie_status pool(const sie_pool_args *, const sie_share *);                                         \
  sie_status output_rows(const sie_output_rows_args *, const sie_share *);                           \
  sie_status qk_norm_rope(const sie_qk_norm_rope_args *, const sie_share *);                         \
  sie_status pool_output(const sie_pool_output_args *, const sie_share *);                           \
  sie_status muvera(const sie_muvera_args *, const sie_share *);                                     \
  sie_status keep_rows(const sie_keep_rows_args *, const sie_share *);                               \
  sie_status output_sparse(const sie_output_sparse_args *, const sie_share *);                       \
  sie_status maxsim(const sie_maxsim_args *, const sie_share *);                                     \
  sie_status lora(const sie_lora_args *, const sie_share *);                                         \
  sie_status linear_f32(const sie_linear_args *, const sie_share *);                                 \
  int64_t linear_f32_packed_bytes(int64_t n, int64_t k);                                             \
  void linear_f32_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, \
                       void *dst);                                                                   \
  int64_t linear_f32_scratch(const sie_op_bounds *bounds);                                           \
  int64_t attention_scratch(const sie_op_bounds *bounds);                                            \
  int64_t attention_disentangled_scratch(const sie_op_bounds *bounds);                               \
  int64_t muvera_scratch(const sie_op_bounds *bounds);                                               \
  sie_status splade(const sie_splade_args *, const sie_share *, LinearFn linear, int64_t panel);     \
  int64_t splade_logits_bytes(int64_t n, int64_t panel);                                             \
  int64_t linear_f32_panel();                                                                        \
  sie_status smve(const sie_smve_args *, const sie_share *);                                         \
  sie_status mark_nonfinite(const sie_mark_nonfinite_args *, const sie_share *);                     \
  sie_status join_columns(const sie_join_columns_args *, const sie_share *);                         \
  sie_status take_rows(const sie_take_rows_args *, const sie_share *);                               \
  sie_status product(const sie_product_args *, const sie_share *);                                   \
  sie_status dots(const sie_dots_args *, const sie_share *);                                         \
  sie_status lstm(const sie_lstm_args *, const sie_share *);                                         \
  sie_status softmax(const sie_softmax_args *, const sie_share *);                                   \
  int64_t lstm_scratch(const sie_op_bounds *bounds);                                                 \
  sie_status spans(const sie_spans_args *, const sie_share *);                                       \
  sie_status pairs(const sie_pairs_args *, const sie_share *, LinearFn linear);                      \
  int64_t spans_scratch(const sie_op_bounds *bounds);                                                \
  int64_t pairs_scratch(const sie_op_bounds *bounds);                                                \
  int64_t smve_scratch(const sie_op_bounds *bounds);                                                 \
  int64_t maxsim_scratch(const sie_op_bounds *bounds);                                               \
  int64_t lora_scratch(const sie_op_bounds *bounds);                                                 \
  }
#if defined(__aarch64__)
SIE_CPU_DECLARE(neon)
#else
SIE_CPU_DECLARE(avx2)
SIE_CPU_DECLARE(avx512)
#endif
#undef SIE_CPU_DECLARE

// With at least so many panels for each share, every linear shares out whole panels as share_of does:
// splade asks for groups of panels as shares, and puts them side by side.
constexpr int64_t panels_of_share = 4;

// The most rows of a linear inside splade. Its scratch has splade_logits_bytes, then the scratch of
// a linear of that many rows.
constexpr int64_t splade_slab_rows = 288;

// The most pairs that pairs multiplies out at once. Its scratch has pairs_scratch, then the scratch
// of a linear of that many rows.
constexpr int64_t pairs_tile = 96;

// The items [first, last) of `count` that belong to this call.
struct Range {
  int64_t first, last;
};

static inline Range share_of(int64_t count, const sie_share *share) {
  return {count * share->part / share->parts, count * (share->part + 1) / share->parts};
}

// Float types that CPU kernels read and store. f16 and the classes F16 and FP8 are not among them:
// no instruction set that has a table multiplies in either, so f16 would be a slower bf16 of less
// range, and e4m3 a coarser u8. A checkpoint in f16 is packed as f32 or bf16. e4m3 rows are still
// quantised here, for other backends to read.
static inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16; }
static inline bool is_float_or_absent(const sie_tensor &t) { return t.p == nullptr || is_float(t.dtype); }

// The types of a quantised row and of the quantised twin of y, and whether that twin is absent.
static inline bool is_quantised(const sie_tensor &t) {
  return t.dtype == SIE_U8 || (t.dtype == SIE_F8E4M3 && (t.scale_group == -1 || t.scale_group == 128));
}
static inline bool is_twin_or_absent(const sie_tensor &t) {
  return t.p == nullptr || (is_quantised(t) && t.scale_group != 128);
}

// The queries that an attention computes of a sequence of `count`.
static inline Range queries_of(const sie_attention_args *a, int64_t count) {
  if (a->q_last == 0) return {0, count};
  const int64_t last = a->q_last < count ? a->q_last : count;
  return {a->q_first < last ? a->q_first : last, last};
}

// The activation of a gate.
static inline int32_t act_of_gate(int32_t gate) {
  if (gate == SIE_GATE_SWIGLU) return SIE_ACT_SILU;
  return gate == SIE_GATE_GEGLU ? SIE_ACT_GELU_ERF : SIE_ACT_GELU_TANH;
}

// The number of columns of a linear's result.
static inline int64_t result_columns(const sie_linear_args *a) {
  return a->gate != SIE_GATE_NONE ? a->n / 2 : a->n;
}

// The bytes of `count` floats, rounded up to whole lines.
static inline int64_t float_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_ISA_H
