// pool_parts.h — how pool_output.cuh divides a text's rows: what fixes the order of its sums.
#ifndef SIE_KERNELS_CUDA_POOL_PARTS_H
#define SIE_KERNELS_CUDA_POOL_PARTS_H

#include <stdint.h>

namespace sie_cuda {

constexpr int pool_warps = 16;
constexpr int32_t part_rows = 128;  // of a part, or a multiple
constexpr int32_t parts_max = 64;   // of a sequence: so many are joined in the time that others are summed
constexpr int32_t join_under_way = 16;  // parts that a thread of the join reads at once

// V octets a thread and W warps a row of c columns, 256·V·W ≥ c; V is 0 where there are none. c alone
// decides.
struct PoolShape {
  int32_t octets, warps;
};

constexpr PoolShape pool_shape(int32_t c) {
  if (c <= 256) return {1, 1};
  for (int32_t warps = 1; warps <= pool_warps; warps *= 2) {
    if (c <= 512 * warps) return {2, warps};
    if (c <= 768 * warps) return {3, warps};
  }
  return {0, 0};
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_POOL_PARTS_H
