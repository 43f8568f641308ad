// table_arm64.cc — the operation tables of arm64, one per instruction set (kernels/ops.h).
//
//   table      generic kernels   linear by class of the weight
//   neon       neon              F32 neon   INT8 neon
//   neon-dot   neon              F32 neon   INT8 dot
// Compiled for the baseline instruction set: nothing here runs an instruction the machine may lack.
#include "table_parts.h"

namespace sie_cpu {
namespace {

SIE_GENERIC_KERNELS(Neon, neon)

constexpr sie_ops neon_ops = table_of<Neon, linear<neon::linear_f32, linear_int8_neon>>("neon", SIE_ISA_NEON),
                  dot_ops =
                      table_of<Neon, linear<neon::linear_f32, linear_int8_dot>>("neon-dot", SIE_ISA_NEON_DOT);

}  // namespace
}  // namespace sie_cpu

const sie_ops *sie_cpu_ops(uint32_t isa) {
  // The best instruction set of a machine never changes, and asking twice does no harm.
  const uint32_t best = sie_cpu_detect();
  if (isa == SIE_ISA_BEST) isa = best;
  if (isa > best) return nullptr;
  switch (isa) {
    case SIE_ISA_NEON:
      return &sie_cpu::neon_ops;
    case SIE_ISA_NEON_DOT:
      return &sie_cpu::dot_ops;
    default:
      return nullptr;
  }
}
