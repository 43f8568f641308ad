// peak.cu — kernels that each use one resource alone.
#include "bench/peak.h"

#include "cuda/ptx/fence.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/wgmma.h"

namespace peak {

namespace {

using namespace ptx;

// Long enough that the start does not count: about a millisecond.
constexpr int wgmma_rounds = 600, wgmma_steps = 16;  // of 64 × 256 × 16 (32 in e4m3) a warpgroup
constexpr int mma_rounds = 2000, mma_tiles = 16;     // of 16 × 8 × 16 (32) a warp

// Random operands: zeros would draw less power and run faster than anything real. Every byte
// pattern here is a number near one of either sign: bf16 and f16 with exponents around their bias,
// e4m3 never NaN.
SIE_DEVICE uint32_t random_word(uint32_t i, bool bytes) {
  i = (i ^ 61u ^ (i >> 16)) * 9u;
  i = (i ^ (i >> 4)) * 0x27d4eb2du;
  i ^= i >> 15;
  return bytes ? (i & 0xbfbfbfbfu) : ((i & 0x807f807fu) | 0x3f003f00u);
}

// Two warpgroups of an SM, each with its own A [64, 128 bytes]; B [256, 128 bytes] is common.
template <Operand T>
__global__ void __launch_bounds__(256, 1) wgmma_kernel(float *sink) {
  grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  constexpr uint32_t a_bytes = 64 * 128, b_bytes = 256 * 128;
  for (uint32_t i = threadIdx.x; i < (2 * a_bytes + b_bytes) / 4; i += blockDim.x)
    reinterpret_cast<uint32_t *>(shared)[i] = random_word(i + blockIdx.x * 65536u, T == Operand::e4m3);
  fence_proxy_async();
  __syncthreads();
  const uint32_t group = threadIdx.x / 128;
  const uint64_t a = wgmma_descriptor(shared + group * a_bytes, Swizzle::b128, 1024);
  const uint64_t b = wgmma_descriptor(shared + 2 * a_bytes, Swizzle::b128, 1024);
  float d[128];
#pragma unroll
  for (int i = 0; i < 128; i++) d[i] = 0.0f;
  for (int round = 0; round < wgmma_rounds; round++) {
    wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < wgmma_steps; step++)
      wgmma<T, 256>(d, wgmma_advance(a, step % 4 * 32), wgmma_advance(b, step % 4 * 32), 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(d);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; i++) sum += d[i];
  // No sum of finite numbers has this value; the compiler does not know.
  if (sum == -1.2345e38f) *sink = sum;
}

template <Operand T>
__global__ void __launch_bounds__(256, 2) mma_kernel(float *sink) {
  grid_dependency_wait();
  uint32_t a[4], b[2];
  const uint32_t seed = (blockIdx.x * blockDim.x + threadIdx.x) * 8u;
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) a[i] = random_word(seed + i, T == Operand::e4m3);
  b[0] = random_word(seed + 4, T == Operand::e4m3);
  b[1] = random_word(seed + 5, T == Operand::e4m3);
  float d[mma_tiles][4] = {};
  for (int round = 0; round < mma_rounds; round++) {
#pragma unroll
    for (int tile = 0; tile < mma_tiles; tile++) mma_m16n8<T>(d[tile], a, b[tile % 2], b[(tile + 1) % 2]);
  }
  float sum = 0;
#pragma unroll
  for (int tile = 0; tile < mma_tiles; tile++) sum += d[tile][0] + d[tile][1] + d[tile][2] + d[tile][3];
  if (sum == -1.2345e38f) *sink = sum;
}

__global__ void __launch_bounds__(128, 1) nothing_kernel() { grid_dependency_wait(); }

__global__ void __launch_bounds__(256, 4) read_kernel(const uint4 *from, int64_t count, float *sink) {
  grid_dependency_wait();
  uint32_t sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const uint4 v = load_global<uint4>(from + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  // The buffer is zeroed: this never is.
  if (sum == 0x9e3779b9u) *sink = 0;
}

template <Operand T>
sie_status launch_products(const sie_stream *on, float *sink, double *flops) {
  const double k = T == Operand::e4m3 ? 32 : 16;
  if (on->sm / 10 == 9) {
    *flops = 2.0 * on->multiprocessors * 2 * wgmma_rounds * wgmma_steps * 64 * 256 * k;
    return SIE_LAUNCH((wgmma_kernel<T>), on->multiprocessors, 256, (2 * 64 + 256) * 128, on, sink);
  }
  *flops = 2.0 * on->multiprocessors * 2 * 8 * mma_rounds * mma_tiles * 16 * 8 * k;
  return SIE_LAUNCH((mma_kernel<T>), 2 * on->multiprocessors, 256, 0, on, sink);
}

}  // namespace

sie_status products(const sie_stream *on, uint32_t compute, float *sink, double *flops) {
  if (compute == SIE_COMPUTE_BF16) return launch_products<Operand::bf16>(on, sink, flops);
  if (compute == SIE_COMPUTE_F16) return launch_products<Operand::f16>(on, sink, flops);
  if (compute != SIE_COMPUTE_FP8 || on->sm < 89) return SIE_UNSUPPORTED;
  return launch_products<Operand::e4m3>(on, sink, flops);
}

sie_status nothing(const sie_stream *on) { return SIE_LAUNCH(nothing_kernel, 1, 128, 0, on); }

sie_status read(const sie_stream *on, const void *from, int64_t bytes, float *sink) {
  return SIE_LAUNCH(read_kernel, 4 * on->multiprocessors, 256, 0, on, static_cast<const uint4 *>(from),
                    bytes / 16, sink);
}

}  // namespace peak
