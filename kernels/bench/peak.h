// peak.h — the ceilings of a device that a copy does not show: the speed of its tensor cores when
// the chip does nothing else, and the cost of starting a kernel. Also the reader that empties the
// L2 cache.
#ifndef SIE_KERNELS_BENCH_PEAK_H
#define SIE_KERNELS_BENCH_PEAK_H

#include "ops.h"

namespace peak {

// Launches products of random operands that stay in shared memory or registers: wgmma on sm_90 …
// 99, mma.sync elsewhere, in class compute (SIE_COMPUTE_BF16, F16 or FP8). *flops receives the flop
// of one launch. sink: 4 bytes of device memory, never written in practice. SIE_UNSUPPORTED: the
// device has no such product.
sie_status products(const sie_stream *on, uint32_t compute, float *sink, double *flops);

// Launches a kernel that does nothing: one block of 128 threads.
sie_status nothing(const sie_stream *on);

// Reads all bytes (a multiple of 16), so that they, and no written data, fill the L2 cache.
sie_status read(const sie_stream *on, const void *from, int64_t bytes, float *sink);

}  // namespace peak

#endif  // SIE_KERNELS_BENCH_PEAK_H
