// tables.cc — the list of tables, the groups of cases, and the words in the names of forms.
#include <stdarg.h>
#include <stdio.h>

#include "harness.h"

namespace harness {

std::string text(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

const char *dtype_text(int32_t dtype) {
  switch (dtype) {
    case SIE_F32:
      return "f32";
    case SIE_F16:
      return "f16";
    case SIE_BF16:
      return "bf16";
    case SIE_I8:
      return "i8";
    case SIE_U8:
      return "u8";
    case SIE_BINARY:
      return "binary";
    case SIE_F8E4M3:
      return "f8";
    default:
      return "none";
  }
}

const char *pooling_text(int32_t pooling) {
  static const char *const names[] = {"",          "cls",           "mean", "last",
                                      "attention", "weighted mean", "max",  "mean sqrt"};
  return names[pooling];
}

std::vector<Gpu> &gpus() {
  static std::vector<Gpu> list;
  return list;
}

std::vector<const sie_ops *> &emulated_cpus() {
  static std::vector<const sie_ops *> list;
  return list;
}

const sie_stream *stream_of(const sie_ops *ops) {
  for (const Gpu &gpu : gpus()) {
    if (gpu.ops == ops) return &gpu.on;
  }
  return nullptr;
}

namespace {

Tables selected = Tables::all;

}  // namespace

void select(Tables tables) { selected = tables; }

const std::vector<const sie_ops *> &backends() {
  static const std::vector<const sie_ops *> list = [] {
    std::vector<const sie_ops *> tables;
    const bool all = selected == Tables::all, host = all || selected == Tables::host;
    if (host || selected == Tables::machine) tables.push_back(sie_ref_ops());
    if (host || selected == Tables::machine) {
      const uint32_t best = sie_cpu_detect();
      for (uint32_t isa = SIE_ISA_FAMILY(best) << 16 | 1; isa <= best; isa++) {
        if (const sie_ops *ops = sie_cpu_ops(isa)) tables.push_back(ops);
      }
    }
    if (host || selected == Tables::emulated)
      tables.insert(tables.end(), emulated_cpus().begin(), emulated_cpus().end());
    for (const Gpu &gpu : gpus()) {
      if (all || selected == Tables::gpu) tables.push_back(gpu.ops);
    }
    return tables;
  }();
  return list;
}

const std::vector<Group> &groups() {
  static const std::vector<Group> list = {
      {"embed_layernorm", make_embed},
      {"layernorm", make_layernorm},
      {"linear", make_linear},
      {"quantise_rows", make_quantise},
      {"attention", make_attention},
      {"gather_rows", make_gather},
      {"pool", make_pool},
      {"output_rows", make_output},
      {"qk_norm_rope", make_rope},
      {"pool_output", make_pool_output},
      {"muvera", make_muvera},
      {"keep_rows", make_keep},
      {"output_sparse", make_sparse},
      {"splade", make_splade},
      {"smve", make_smve},
      {"maxsim", make_maxsim},
      {"lora", make_lora},
      {"mark_nonfinite", make_mark},
      {"join_columns", make_join},
      {"spans", make_spans},
      {"pairs", make_pairs},
      {"take_rows", make_take},
      {"product", make_product},
      {"dots", make_dots},
      {"lstm", make_lstm},
      {"linear_norm", make_linear_norm},
  };
  return list;
}

}  // namespace harness
