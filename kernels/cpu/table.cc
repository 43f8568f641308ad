// table.cc — the operation tables of the CPU backend, one per instruction set (kernels/ops.h).
//
//   table         generic kernels   linear by class of the weight
//   avx2          avx2              F32 avx2     INT8 avx2
//   avx512        avx512            F32 avx512   INT8 avx2
//   avx512-vnni   avx512            F32 avx512   INT8 vnni
//   amx           avx512            F32 avx512   INT8 amx    BF16 amx; bf16 attention on tiles
// Compiled for the baseline instruction set: nothing here runs an instruction the machine may lack.
#include "isa.h"
#include "kernels_amx.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

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

sie_status linear_amx(const sie_linear_args *a, const sie_share *share) {
  if (a->w->compute == SIE_COMPUTE_BF16) {
    const sie_status status = check(a);
    return status == SIE_OK ? linear_bf16_amx(a, share) : status;
  }
  return linear<avx512::linear_f32, linear_int8_amx>(a, share);
}

// The 16-bit and 8-bit classes have panels of 32 columns.
constexpr int64_t narrow_panel = 32;

template <bool Wide, LinearFn F32, LinearFn Int8>
sie_status splade(const sie_splade_args *a, const sie_share *share) {
  const bool f32 = a->w->compute == SIE_COMPUTE_F32;
  const int64_t panel = !f32 ? narrow_panel : (Wide ? avx512::linear_f32_panel() : avx2::linear_f32_panel());
  return (Wide ? avx512::splade : avx2::splade)(a, share, linear<F32, Int8>, panel);
}

sie_status splade_amx(const sie_splade_args *a, const sie_share *share) {
  const int64_t panel = a->w->compute == SIE_COMPUTE_F32 ? avx512::linear_f32_panel() : narrow_panel;
  return avx512::splade(a, share, linear_amx, panel);
}

// Room for the logits of a group, and for the last steps of a slab's rows where K does not fill
// them; f32 rows need no last steps.
template <bool Wide>
int64_t splade_scratch(const sie_op_bounds *bounds) {
  const bool f32 = bounds->compute == SIE_COMPUTE_F32;
  const int64_t panel = !f32 ? narrow_panel : (Wide ? avx512::linear_f32_panel() : avx2::linear_f32_panel());
  const int64_t logits = (Wide ? avx512::splade_logits_bytes : avx2::splade_logits_bytes)(bounds->n, panel);
  return f32 ? logits : logits + splade_slab_rows * 64;
}

template <bool Wide, LinearFn F32, LinearFn Int8>
sie_status pairs(const sie_pairs_args *a, const sie_share *share) {
  return (Wide ? avx512::pairs : avx2::pairs)(a, share, linear<F32, Int8>);
}

sie_status pairs_amx(const sie_pairs_args *a, const sie_share *share) {
  return avx512::pairs(a, share, linear_amx);
}

template <bool Wide>
int64_t pairs_scratch(const sie_op_bounds *bounds) {
  sie_op_bounds product = *bounds;
  product.rows = pairs_tile;
  const int64_t bytes = Wide ? avx512::pairs_scratch(bounds) : avx2::pairs_scratch(bounds);
  if (bounds->compute == SIE_COMPUTE_BF16) return bytes + linear_bf16_amx_scratch(&product);
  return bytes + (Wide ? avx512::linear_f32_scratch(&product) : avx2::linear_f32_scratch(&product));
}

// Head dimensions that the tiles lack fall to the generic kernel; the arguments alone decide.
sie_status attention_amx(const sie_attention_args *a, const sie_share *share) {
  const sie_status status = attention_bf16_amx(a, share);
  return status == SIE_UNSUPPORTED ? avx512::attention(a, share) : status;
}

// Packed layouts depend on the class and the vector length, so a table reads only weights that it
// packed.
template <bool Wide>
int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return Wide ? avx512::linear_f32_packed_bytes(n, k) : avx2::linear_f32_packed_bytes(n, k);
    case SIE_COMPUTE_BF16:
      return amx_bf16_packed_bytes(n, k);
    case SIE_COMPUTE_INT8:
      return int8_packed_bytes(n, k);
    default:
      return -1;
  }
}

template <bool Wide>
void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      if (Wide) {
        avx512::linear_f32_pack(n, k, n0, rows, src, ld, dst);
      } else {
        avx2::linear_f32_pack(n, k, n0, rows, src, ld, dst);
      }
      break;
    case SIE_COMPUTE_BF16:
      amx_bf16_pack(n, k, n0, rows, src, ld, dst);
      break;
    case SIE_COMPUTE_INT8:
      int8_pack(n, k, n0, rows, src, ld, dst);
      break;
    default:
      break;
  }
}

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

template <bool Wide, bool Tiles>
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
      return Wide ? avx512::muvera_scratch(bounds) : avx2::muvera_scratch(bounds);
    case SIE_OP_LORA:
      return Wide ? avx512::lora_scratch(bounds) : avx2::lora_scratch(bounds);
    case SIE_OP_MAXSIM:
      return Wide ? avx512::maxsim_scratch(bounds) : avx2::maxsim_scratch(bounds);
    case SIE_OP_LSTM:
      return Wide ? avx512::lstm_scratch(bounds) : avx2::lstm_scratch(bounds);
    case SIE_OP_LINEAR:
      if (bounds->compute == SIE_COMPUTE_INT8) return linear_int8_scratch(bounds);
      if (bounds->compute == SIE_COMPUTE_BF16) return linear_bf16_amx_scratch(bounds);
      return Wide ? avx512::linear_f32_scratch(bounds) : avx2::linear_f32_scratch(bounds);
    case SIE_OP_SMVE:
      return Wide ? avx512::smve_scratch(bounds) : avx2::smve_scratch(bounds);
    case SIE_OP_SPLADE:
      return splade_scratch<Wide>(bounds);
    case SIE_OP_SPANS:
      return Wide ? avx512::spans_scratch(bounds) : avx2::spans_scratch(bounds);
    case SIE_OP_PAIRS:
      return pairs_scratch<Wide>(bounds);
    case SIE_OP_ATTENTION: {
      const int64_t bytes = Wide ? avx512::attention_scratch(bounds) : avx2::attention_scratch(bounds);
      return Tiles ? larger(bytes, attention_bf16_amx_scratch(bounds)) : bytes;
    }
    default:
      return 0;
  }
}

constexpr uint32_t class_f32 = 1u << SIE_COMPUTE_F32, class_bf16 = 1u << SIE_COMPUTE_BF16,
                   class_int8 = 1u << SIE_COMPUTE_INT8;

const sie_ops avx2_ops = {
    "avx2",
    SIE_ISA_AVX2,
    class_f32 | class_int8,
    1,
    SIE_F32,
    packed_bytes<false>,
    pack<false>,
    scratch_bytes<false, false>,
    avx2::embed_layernorm,
    avx2::layernorm,
    linear<avx2::linear_f32, linear_int8_avx2>,
    avx2::quantise_rows,
    avx2::attention,
    avx2::gather_rows,
    avx2::pool,
    avx2::output_rows,
    avx2::qk_norm_rope,
    avx2::pool_output,
    avx2::muvera,
    avx2::keep_rows,
    splade<false, avx2::linear_f32, linear_int8_avx2>,
    avx2::output_sparse,
    avx2::maxsim,
    avx2::lora,
    avx2::smve,
    avx2::mark_nonfinite,
    avx2::join_columns,
    avx2::take_rows,
    avx2::product,
    avx2::dots,
    avx2::lstm,
    avx2::spans,
    pairs<false, avx2::linear_f32, linear_int8_avx2>,
    avx2::softmax,
    nullptr,
    nullptr,
};

const sie_ops avx512_ops = {
    "avx512",
    SIE_ISA_AVX512,
    class_f32 | class_int8,
    1,
    SIE_F32,
    packed_bytes<true>,
    pack<true>,
    scratch_bytes<true, false>,
    avx512::embed_layernorm,
    avx512::layernorm,
    linear<avx512::linear_f32, linear_int8_avx2>,
    avx512::quantise_rows,
    avx512::attention,
    avx512::gather_rows,
    avx512::pool,
    avx512::output_rows,
    avx512::qk_norm_rope,
    avx512::pool_output,
    avx512::muvera,
    avx512::keep_rows,
    splade<true, avx512::linear_f32, linear_int8_avx2>,
    avx512::output_sparse,
    avx512::maxsim,
    avx512::lora,
    avx512::smve,
    avx512::mark_nonfinite,
    avx512::join_columns,
    avx512::take_rows,
    avx512::product,
    avx512::dots,
    avx512::lstm,
    avx512::spans,
    pairs<true, avx512::linear_f32, linear_int8_avx2>,
    avx512::softmax,
    nullptr,
    nullptr,
};

const sie_ops vnni_ops = {
    "avx512-vnni",
    SIE_ISA_AVX512_VNNI,
    class_f32 | class_int8,
    1,
    SIE_F32,
    packed_bytes<true>,
    pack<true>,
    scratch_bytes<true, false>,
    avx512::embed_layernorm,
    avx512::layernorm,
    linear<avx512::linear_f32, linear_int8_vnni>,
    avx512::quantise_rows,
    avx512::attention,
    avx512::gather_rows,
    avx512::pool,
    avx512::output_rows,
    avx512::qk_norm_rope,
    avx512::pool_output,
    avx512::muvera,
    avx512::keep_rows,
    splade<true, avx512::linear_f32, linear_int8_vnni>,
    avx512::output_sparse,
    avx512::maxsim,
    avx512::lora,
    avx512::smve,
    avx512::mark_nonfinite,
    avx512::join_columns,
    avx512::take_rows,
    avx512::product,
    avx512::dots,
    avx512::lstm,
    avx512::spans,
    pairs<true, avx512::linear_f32, linear_int8_vnni>,
    avx512::softmax,
    nullptr,
    nullptr,
};

const sie_ops amx_ops = {
    "amx",
    SIE_ISA_AMX,
    class_f32 | class_bf16 | class_int8,
    1,
    SIE_BF16,
    packed_bytes<true>,
    pack<true>,
    scratch_bytes<true, true>,
    avx512::embed_layernorm,
    avx512::layernorm,
    linear_amx,
    avx512::quantise_rows,
    attention_amx,
    avx512::gather_rows,
    avx512::pool,
    avx512::output_rows,
    avx512::qk_norm_rope,
    avx512::pool_output,
    avx512::muvera,
    avx512::keep_rows,
    splade_amx,
    avx512::output_sparse,
    avx512::maxsim,
    avx512::lora,
    avx512::smve,
    avx512::mark_nonfinite,
    avx512::join_columns,
    avx512::take_rows,
    avx512::product,
    avx512::dots,
    avx512::lstm,
    avx512::spans,
    pairs_amx,
    avx512::softmax,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace sie_cpu

const sie_ops *sie_cpu_ops(uint32_t isa) {
  // The best instruction set of a machine never changes, and asking twice does no harm.
  const uint32_t best = sie_cpu_detect();
  if (isa == SIE_ISA_BEST) isa = best;
  if (isa > best) return nullptr;
  switch (isa) {
    case SIE_ISA_AVX2:
      return &sie_cpu::avx2_ops;
    case SIE_ISA_AVX512:
      return &sie_cpu::avx512_ops;
    case SIE_ISA_AVX512_VNNI:
      return &sie_cpu::vnni_ops;
    case SIE_ISA_AMX:
      return &sie_cpu::amx_ops;
    default:
      return nullptr;
  }
}
