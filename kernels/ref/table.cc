// table.cc — the reference's operation table.
#include "rows.h"

namespace sie_ref {

namespace {

// What the comments on top of the files say, and no byte more.
int64_t scratch_bytes(const sie_op_bounds *bounds) {
  const int64_t floats = sizeof(float), doubles = sizeof(double);
  switch (bounds->kind) {
    case SIE_OP_EMBED_LAYERNORM:
    case SIE_OP_LAYERNORM:
      return 2 * bounds->c * floats;
    case SIE_OP_QUANTISE_ROWS:
    case SIE_OP_OUTPUT_ROWS:
      return bounds->c * floats;
    case SIE_OP_POOL:
      return bounds->max_len * doubles;
    case SIE_OP_POOL_OUTPUT:
      return ((bounds->c + 1) / 2 + bounds->max_len) * doubles;
    case SIE_OP_QK_NORM_ROPE:
      return bounds->head_dim * doubles;
    case SIE_OP_LINEAR:
      return bounds->k * doubles + bounds->n * floats;
    case SIE_OP_LINEAR_NORM:
      return bounds->k * doubles + 2 * bounds->n * floats;
    case SIE_OP_ATTENTION:
      return (bounds->max_len * (2 * bounds->head_dim + 1) + bounds->head_dim) * doubles;
    case SIE_OP_LORA:
      return bounds->max_rank * doubles;
    case SIE_OP_MUVERA:
      return muvera_scratch(bounds);
    case SIE_OP_SMVE:
      return smve_scratch(bounds);
    case SIE_OP_PAIRS:
      return pairs_scratch(bounds);
    case SIE_OP_SPLADE:
      return splade_scratch(bounds);
    case SIE_OP_LSTM:
      return lstm_scratch(bounds);
    default:
      return 0;
  }
}

}  // namespace

}  // namespace sie_ref

const sie_ops *sie_ref_ops(void) {
  static const sie_ops ops = {
      "ref",
      0,
      1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_INT8 | 1u << SIE_COMPUTE_F16 |
          1u << SIE_COMPUTE_FP8,
      SIE_BF16,
      SIE_F32,
      sie_ref::packed_bytes,
      sie_ref::pack,
      sie_ref::scratch_bytes,
      sie_ref::embed_layernorm,
      sie_ref::layernorm,
      sie_ref::linear,
      sie_ref::quantise_rows,
      sie_ref::attention,
      sie_ref::gather_rows,
      sie_ref::pool,
      sie_ref::output_rows,
      sie_ref::qk_norm_rope,
      sie_ref::pool_output,
      sie_ref::muvera,
      sie_ref::keep_rows,
      sie_ref::splade,
      sie_ref::output_sparse,
      sie_ref::maxsim,
      sie_ref::lora,
      sie_ref::smve,
      sie_ref::mark_nonfinite,
      sie_ref::join_columns,
      sie_ref::take_rows,
      sie_ref::product,
      sie_ref::dots,
      sie_ref::lstm,
      sie_ref::spans,
      sie_ref::pairs,
      sie_ref::softmax,
      sie_ref::linear_norm,
      nullptr,
      nullptr,
      nullptr,
  };
  return &ops;
}
