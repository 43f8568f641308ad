// table_parts.h — what the operation tables of all CPUs are made of (kernels/ops.h): the generic
// kernels of an instruction set, with the linears of classes F32 and INT8 that a table has.
#ifndef SIE_KERNELS_CPU_TABLE_PARTS_H
#define SIE_KERNELS_CPU_TABLE_PARTS_H

#include "isa.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

// The generic kernels compiled in namespace ns (isa.h), as a type that templates take.
#define SIE_GENERIC_KERNELS(name, ns)                                            \
  struct name {                                                                  \
    static constexpr auto embed_layernorm = ns::embed_layernorm;                 \
    static constexpr auto layernorm = ns::layernorm;                             \
    static constexpr auto quantise_rows = ns::quantise_rows;                     \
    static constexpr auto attention = ns::attention;                             \
    static constexpr auto gather_rows = ns::gather_rows;                         \
    static constexpr auto pool = ns::pool;                                       \
    static constexpr auto output_rows = ns::output_rows;                         \
    static constexpr auto qk_norm_rope = ns::qk_norm_rope;                       \
    static constexpr auto pool_output = ns::pool_output;                         \
    static constexpr auto muvera = ns::muvera;                                   \
    static constexpr auto keep_rows = ns::keep_rows;                             \
    static constexpr auto output_sparse = ns::output_sparse;                     \
    static constexpr auto maxsim = ns::maxsim;                                   \
    static constexpr auto lora = ns::lora;                                       \
    static constexpr auto smve = ns::smve;                                       \
    static constexpr auto mark_nonfinite = ns::mark_nonfinite;                   \
    static constexpr auto join_columns = ns::join_columns;                       \
    static constexpr auto take_rows = ns::take_rows;                             \
    static constexpr auto product = ns::product;                                 \
    static constexpr auto dots = ns::dots;                                       \
    static constexpr auto lstm = ns::lstm;                                       \
    static constexpr auto spans = ns::spans;                                     \
    static constexpr auto softmax = ns::softmax;                                 \
    static constexpr auto linear_f32 = ns::linear_f32;                           \
    static constexpr auto linear_f32_packed_bytes = ns::linear_f32_packed_bytes; \
    static constexpr auto linear_f32_pack = ns::linear_f32_pack;                 \
    static constexpr auto linear_f32_scratch = ns::linear_f32_scratch;           \
    static constexpr auto linear_f32_panel = ns::linear_f32_panel;               \
    static constexpr auto attention_scratch = ns::attention_scratch;             \
    static constexpr auto muvera_scratch = ns::muvera_scratch;                   \
    static constexpr auto splade = ns::splade;                                   \
    static constexpr auto splade_logits_bytes = ns::splade_logits_bytes;         \
    static constexpr auto lstm_scratch = ns::lstm_scratch;                       \
    static constexpr auto pairs = ns::pairs;                                     \
    static constexpr auto spans_scratch = ns::spans_scratch;                     \
    static constexpr auto pairs_scratch = ns::pairs_scratch;                     \
    static constexpr auto smve_scratch = ns::smve_scratch;                       \
    static constexpr auto maxsim_scratch = ns::maxsim_scratch;                   \
    static constexpr auto lora_scratch = ns::lora_scratch;                       \
  };

sie_status check(const sie_linear_args *a) {
  if (!is_float_or_absent(a->residual)) return SIE_UNSUPPORTED;
  if (a->addend.p != nullptr && a->addend.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->gate < SIE_GATE_NONE || a->gate > SIE_GATE_GEGLU_TANH) return SIE_UNSUPPORTED;
  if (a->gate != SIE_GATE_NONE && (a->act != SIE_ACT_NONE || a->n % 2 != 0)) return SIE_INVALID_ARGUMENT;
  return SIE_OK;
}

template <LinearFn F32, LinearFn Int8>
sie_status linear(const sie_linear_args *a, const sie_share *share) {
  const sie_status status = check(a);
  if (status != SIE_OK) return status;
  switch (a->w->compute) {
    case SIE_COMPUTE_F32:
      return F32(a, share);
    case SIE_COMPUTE_INT8:
      return Int8(a, share);
    default:
      return SIE_UNSUPPORTED;
  }
}

// The columns of a panel: the 16-bit and 8-bit classes have 32.
template <typename Generic>
int64_t panel_of(uint32_t compute) {
  return compute == SIE_COMPUTE_F32 ? Generic::linear_f32_panel() : 32;
}

template <typename Generic, LinearFn Linear>
sie_status splade(const sie_splade_args *a, const sie_share *share) {
  return Generic::splade(a, share, Linear, panel_of<Generic>(a->w->compute));
}

// Room for the logits of a group, and for the last steps of a slab's rows where K does not fill
// them; f32 rows need no last steps.
template <typename Generic>
int64_t splade_scratch(const sie_op_bounds *bounds) {
  const int64_t logits = Generic::splade_logits_bytes(bounds->n, panel_of<Generic>(bounds->compute));
  return bounds->compute == SIE_COMPUTE_F32 ? logits : logits + splade_slab_rows * 64;
}

template <typename Generic, LinearFn Linear>
sie_status pairs(const sie_pairs_args *a, const sie_share *share) {
  return Generic::pairs(a, share, Linear);
}

// The bounds of the products inside pairs.
sie_op_bounds product_of_pairs(const sie_op_bounds *bounds) {
  sie_op_bounds product = *bounds;
  product.rows = pairs_tile;
  return product;
}

// Packed layouts depend on the class and the vector length, so a table reads only weights that it
// packed.
template <typename Generic>
int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return Generic::linear_f32_packed_bytes(n, k);
    case SIE_COMPUTE_INT8:
      return int8_packed_bytes(n, k);
    default:
      return -1;
  }
}

template <typename Generic>
void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst) {
  if (compute == SIE_COMPUTE_F32) Generic::linear_f32_pack(n, k, n0, rows, src, ld, dst);
  if (compute == SIE_COMPUTE_INT8) int8_pack(n, k, n0, rows, src, ld, dst);
}

template <typename Generic>
int64_t scratch_bytes(const sie_op_bounds *bounds) {
  switch (bounds->kind) {
    case SIE_OP_EMBED_LAYERNORM:
    case SIE_OP_LAYERNORM:
    case SIE_OP_OUTPUT_ROWS:
      return float_bytes(bounds->c);
    case SIE_OP_QK_NORM_ROPE:
      return float_bytes(2 * bounds->head_dim);
    case SIE_OP_POOL:
      return float_bytes(bounds->max_len);
    case SIE_OP_POOL_OUTPUT:
      return float_bytes(bounds->c) + float_bytes(bounds->max_len);
    case SIE_OP_MUVERA:
      return Generic::muvera_scratch(bounds);
    case SIE_OP_LORA:
      return Generic::lora_scratch(bounds);
    case SIE_OP_MAXSIM:
      return Generic::maxsim_scratch(bounds);
    case SIE_OP_LSTM:
      return Generic::lstm_scratch(bounds);
    case SIE_OP_LINEAR:
      if (bounds->compute == SIE_COMPUTE_INT8) return linear_int8_scratch(bounds);
      return Generic::linear_f32_scratch(bounds);
    case SIE_OP_SMVE:
      return Generic::smve_scratch(bounds);
    case SIE_OP_SPLADE:
      return splade_scratch<Generic>(bounds);
    case SIE_OP_SPANS:
      return Generic::spans_scratch(bounds);
    case SIE_OP_PAIRS: {
      const sie_op_bounds product = product_of_pairs(bounds);
      return Generic::pairs_scratch(bounds) + Generic::linear_f32_scratch(&product);
    }
    case SIE_OP_ATTENTION:
      return Generic::attention_scratch(bounds);
    default:
      return 0;
  }
}

constexpr uint32_t class_f32 = 1u << SIE_COMPUTE_F32, class_bf16 = 1u << SIE_COMPUTE_BF16,
                   class_int8 = 1u << SIE_COMPUTE_INT8;

// A table of the classes F32 and INT8 over generic kernels.
template <typename Generic, LinearFn Linear>
constexpr sie_ops table_of(const char *name, uint32_t isa) {
  return {
      name,
      isa,
      class_f32 | class_int8,
      SIE_BF16,
      SIE_F32,
      packed_bytes<Generic>,
      pack<Generic>,
      scratch_bytes<Generic>,
      Generic::embed_layernorm,
      Generic::layernorm,
      Linear,
      Generic::quantise_rows,
      Generic::attention,
      Generic::gather_rows,
      Generic::pool,
      Generic::output_rows,
      Generic::qk_norm_rope,
      Generic::pool_output,
      Generic::muvera,
      Generic::keep_rows,
      splade<Generic, Linear>,
      Generic::output_sparse,
      Generic::maxsim,
      Generic::lora,
      Generic::smve,
      Generic::mark_nonfinite,
      Generic::join_columns,
      Generic::take_rows,
      Generic::product,
      Generic::dots,
      Generic::lstm,
      Generic::spans,
      pairs<Generic, Linear>,
      Generic::softmax,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
  };
}

}  // namespace
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_TABLE_PARTS_H
