// table.cc — the operation tables of x86-64, one per instruction set (kernels/ops.h).
//
//   table         generic kernels   linear by class of the weight
//   avx2          avx2              F32 avx2     INT8 avx2
//   avx512        avx512            F32 avx512   INT8 avx2
//   avx512-vnni   avx512            F32 avx512   INT8 vnni
//   avx512-bf16   avx512            F32 avx512   INT8 vnni   BF16 avx512bf16
//   amx           avx512            F32 avx512   INT8 amx    BF16 amx; bf16 attention on tiles
// Compiled for the baseline instruction set: nothing here runs an instruction the machine may lack.
#include "kernels_amx.h"
#include "kernels_bf16.h"
#include "table_parts.h"

namespace sie_cpu {
namespace {

SIE_GENERIC_KERNELS(Avx2, avx2)
SIE_GENERIC_KERNELS(Avx512, avx512)

template <LinearFn Bf16, LinearFn Int8>
sie_status linear_with_bf16(const sie_linear_args *a, const sie_share *share) {
  if (a->w->compute == SIE_COMPUTE_BF16) {
    const sie_status status = check(a);
    return status == SIE_OK ? Bf16(a, share) : status;
  }
  return linear<avx512::linear_f32, Int8>(a, share);
}

// What the tiles lack falls to the generic kernel; the arguments alone decide.
sie_status attention_amx(const sie_attention_args *a, const sie_share *share) {
  const sie_status status =
      a->buckets != nullptr ? attention_disentangled_amx(a, share) : attention_bf16_amx(a, share);
  return status == SIE_UNSUPPORTED ? avx512::attention(a, share) : status;
}

int64_t packed_bytes_with_bf16(uint32_t compute, int64_t n, int64_t k) {
  return compute == SIE_COMPUTE_BF16 ? bf16_packed_bytes(n, k) : packed_bytes<Avx512>(compute, n, k);
}

void pack_with_bf16(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src,
                    int64_t ld, void *dst) {
  if (compute == SIE_COMPUTE_BF16) return bf16_pack(n, k, n0, rows, src, ld, dst);
  pack<Avx512>(compute, n, k, n0, rows, src, ld, dst);
}

int64_t scratch_bytes_with_bf16(const sie_op_bounds *bounds) {
  if (bounds->compute == SIE_COMPUTE_BF16 && bounds->kind == SIE_OP_LINEAR)
    return linear_bf16_scratch(bounds);
  if (bounds->compute == SIE_COMPUTE_BF16 && bounds->kind == SIE_OP_PAIRS) {
    const sie_op_bounds product = product_of_pairs(bounds);
    return avx512::pairs_scratch(bounds) + linear_bf16_scratch(&product);
  }
  return scratch_bytes<Avx512>(bounds);
}

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t scratch_bytes_amx(const sie_op_bounds *bounds) {
  if (bounds->kind == SIE_OP_ATTENTION)
    return larger(avx512::attention_scratch(bounds), bounds->position_rows > 0
                                                         ? attention_disentangled_amx_scratch(bounds)
                                                         : attention_bf16_amx_scratch(bounds));
  return scratch_bytes_with_bf16(bounds);
}

template <LinearFn Bf16, LinearFn Int8>
constexpr sie_ops table_with_bf16(const char *name, uint32_t isa) {
  sie_ops ops = table_of<Avx512, linear_with_bf16<Bf16, Int8>>(name, isa);
  ops.compute_mask |= class_bf16;
  ops.packed_bytes = packed_bytes_with_bf16;
  ops.pack = pack_with_bf16;
  ops.scratch_bytes = scratch_bytes_with_bf16;
  return ops;
}

constexpr sie_ops table_of_amx() {
  sie_ops ops = table_with_bf16<linear_bf16_amx, linear_int8_amx>("amx", SIE_ISA_AMX);
  ops.act_dtype_int8 = SIE_BF16;
  ops.scratch_bytes = scratch_bytes_amx;
  ops.attention = attention_amx;
  return ops;
}

constexpr sie_ops avx2_ops = table_of<Avx2, linear<avx2::linear_f32, linear_int8_avx2>>("avx2", SIE_ISA_AVX2),
                  avx512_ops = table_of<Avx512, linear<avx512::linear_f32, linear_int8_avx2>>("avx512",
                                                                                              SIE_ISA_AVX512),
                  vnni_ops = table_of<Avx512, linear<avx512::linear_f32, linear_int8_vnni>>(
                      "avx512-vnni", SIE_ISA_AVX512_VNNI),
                  bf16_ops = table_with_bf16<linear_bf16_avx512bf16, linear_int8_vnni>("avx512-bf16",
                                                                                       SIE_ISA_AVX512_BF16),
                  amx_ops = table_of_amx();

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
    case SIE_ISA_AVX512_BF16:
      return &sie_cpu::bf16_ops;
    case SIE_ISA_AMX:
      return &sie_cpu::amx_ops;
    default:
      return nullptr;
  }
}
