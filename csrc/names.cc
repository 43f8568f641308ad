// names.cc — the names of operations, types and classes in messages and listings.
#include "program.h"

namespace sie {

const char *op_name(uint32_t kind) {
  static const char *const names[] = {"embed_layernorm",
                                      "layernorm",
                                      "linear",
                                      "quantise_rows",
                                      "attention",
                                      "gather_rows",
                                      "pool",
                                      "output_rows",
                                      "qk_norm_rope",
                                      "pool_output",
                                      "muvera",
                                      "keep_rows",
                                      "splade",
                                      "output_sparse",
                                      "maxsim",
                                      "lora",
                                      "smve",
                                      "mark_nonfinite",
                                      "join_columns",
                                      "take_rows",
                                      "product",
                                      "dots",
                                      "lstm",
                                      "spans",
                                      "pairs",
                                      "softmax",
                                      "linear_norm"};
  if (kind == op_output_values) return "output_values";
  if (kind == op_state_rows) return "state_rows";
  return kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

const char *dtype_name(int32_t dtype) {
  static const char *const names[] = {"?", "f32", "f16", "bf16", "i8", "u8", "i32", "f8e4m3", "binary"};
  return dtype >= SIE_F32 && dtype <= SIE_BINARY ? names[dtype] : names[0];
}

int64_t dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case SIE_F32:
    case SIE_I32:
      return 4;
    case SIE_F16:
    case SIE_BF16:
      return 2;
    default:
      return 1;
  }
}

const char *compute_name(uint32_t compute) {
  static const char *const names[] = {"?", "f32", "bf16", "int8", "f16", "fp8"};
  return compute >= SIE_COMPUTE_F32 && compute <= SIE_COMPUTE_FP8 ? names[compute] : names[0];
}

}  // namespace sie
