// cost_parts.h — what the formulas of cost.cc and cost_heads.cc share.
#ifndef SIE_KERNELS_CUDA_COST_PARTS_H
#define SIE_KERNELS_CUDA_COST_PARTS_H

#include "cuda/cost.h"

namespace sie_cuda {

inline double most(double a, double b) { return a > b ? a : b; }
inline double least(double a, double b) { return a < b ? a : b; }
inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What kernels that only move rows reach of a copy.
constexpr double kRowsShare = 0.88;

// Clocks from an address to its data where L2 has it, and where L1 has it, about what is published
// of Hopper.
constexpr double kL2Trip = 270, kL1Trip = 32;

// Returns the time of a kernel's clocks or of its bytes, whichever is longer; `limit`: of the
// clocks.
inline Prediction finish(const Card &card, double clocks, Limit limit, double dram_bytes, double floor_us) {
  const double compute = clocks / (card.ghz * 1e3), dram = dram_bytes / card.dram_bytes_s * 1e6;
  Prediction p;
  p.us = most(compute, dram) + card.gap_us;
  p.limit = dram > compute ? Limit::dram : limit;
  p.floor_us = floor_us;
  return p;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_COST_PARTS_H
