// table.cc — the reference's operation table.
#include "rows.h"

namespace sie_ref {

namespace {

int64_t scratch_bytes(const sie_op_bounds *bounds) {
  int64_t columns = bounds->c > bounds->n ? bounds->c : bounds->n;
  int64_t row = columns * static_cast<int64_t>(sizeof(double) + sizeof(float));
  int64_t keys = bounds->max_len * static_cast<int64_t>(sizeof(double));
  return row > keys ? row : keys;
}

}  // namespace

}  // namespace sie_ref

const sie_ops *sie_ref_ops(void) {
  static const sie_ops ops = {
      "ref",
      0,
      1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_INT8,
      1,
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
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
  };
  return &ops;
}
