// experiments.cu — the kernels of experiments.h. Inputs are raw bytes that are copied unchanged to
// shared memory or registers, outputs are whole register or memory images: nothing here knows a
// layout.
#include "simt/experiments.h"

#include "cuda/ptx/convert.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fast_math.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"

namespace simt_record {
namespace {

using namespace ptx;

SIE_DEVICE const uint32_t *words(const void *p) { return static_cast<const uint32_t *>(p); }
SIE_DEVICE uint32_t *words(void *p) { return static_cast<uint32_t *>(p); }

// Copies the input to shared memory, for instructions that read it there.
SIE_DEVICE void take_in(uint8_t *shared, const void *in, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) words(shared)[i] = words(in)[i];
}
SIE_DEVICE void take_out(void *out, const uint8_t *shared, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) words(out)[i] = words(shared)[i];
}

// Lane l points at row l·5 % 32 of 32 rows of 16 bytes.
__global__ void __launch_bounds__(32, 1) ldmatrix_kernel(const void *in, void *out) {
  SIE_DYNAMIC_SHARED(shared);
  take_in(shared, in, 512);
  __syncthreads();
  uint32_t lane = threadIdx.x;
  const uint8_t *row = shared + lane * 5 % 32 * 16;
  uint32_t r1[1], r2[2], r4[4];
  uint32_t *to = words(out) + lane * 14;
  ldmatrix_x1(r1, row);
  to[0] = r1[0];
  ldmatrix_x1_trans(r1, row);
  to[1] = r1[0];
  ldmatrix_x2(r2, row);
  to[2] = r2[0], to[3] = r2[1];
  ldmatrix_x2_trans(r2, row);
  to[4] = r2[0], to[5] = r2[1];
  ldmatrix_x4(r4, row);
  for (int i = 0; i < 4; i++) to[6 + i] = r4[i];
  ldmatrix_x4_trans(r4, row);
  for (int i = 0; i < 4; i++) to[10 + i] = r4[i];
}

__global__ void __launch_bounds__(32, 1) stmatrix_kernel(const void *in, void *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t lane = threadIdx.x;
  for (uint32_t i = lane; i < 384; i += 32) words(shared)[i] = 0xffffffffu;
  __syncthreads();
  const uint32_t *from = words(in) + lane * 4;
  const uint32_t r4[4] = {from[0], from[1], from[2], from[3]}, r2[2] = {from[1], from[3]};
  uint32_t row = lane * 5 % 32 * 16;
  stmatrix_x4(shared + row, r4);
  stmatrix_x4_trans(shared + 512 + row, r4);
  stmatrix_x2(shared + 1024 + row, r2);
  __syncthreads();
  take_out(out, shared, 1536);
}

// Input: A, B and D fragments of 32 lanes.
template <Operand T>
__global__ void __launch_bounds__(32, 1) mma_kernel(const void *in, void *out) {
  uint32_t lane = threadIdx.x;
  const uint32_t *from = words(in);
  const uint32_t a[4] = {from[lane * 4], from[lane * 4 + 1], from[lane * 4 + 2], from[lane * 4 + 3]};
  const uint32_t *b = from + 128 + lane * 2;
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  mma_m16n8<T>(d, a, b[0], b[1]);
  mma_m16n8<T>(d, a, b[1], b[0]);  // accumulates on the first
  for (uint32_t i = 0; i < 4; i++) words(out)[lane * 4 + i] = __float_as_uint(d[i]);
}

// Input: 8 KiB of A, 32 KiB of B, 2 KiB of fragments. K in the steps of one swizzle row.
template <Operand T, int N, int S, bool RegisterA>
__global__ void __launch_bounds__(128, 1) wgmma_kernel(const void *in, void *out) {
  constexpr Swizzle swizzle = static_cast<Swizzle>(S);
  constexpr uint32_t row = static_cast<uint32_t>(swizzle_row_bytes(swizzle));
  constexpr uint32_t steps = S == 0 ? 2 : row / 32;
  SIE_DYNAMIC_SHARED(shared);
  take_in(shared, in, 40960);
  fence_proxy_async();
  __syncthreads();
  const uint32_t *from = words(in) + 10240 + threadIdx.x * 4;
  const uint32_t fragment[4] = {from[0], from[1], from[2], from[3]};
  float d[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
  // Without swizzle: K in columns of 16 bytes; four of them, and then the next eight rows.
  uint64_t a = wgmma_descriptor(shared, swizzle, S == 0 ? 512 : 8 * row, 128);
  uint64_t b = wgmma_descriptor(shared + 8192, swizzle, S == 0 ? 512 : 8 * row, 128);
  wgmma_keep(d);
  wgmma_fence();
#pragma unroll
  for (uint32_t step = 0; step < steps; step++) {
    uint32_t along = step * (S == 0 ? 256 : 32);
    if (RegisterA) {
      wgmma<T, N>(d, fragment, wgmma_advance(b, along), step != 0);
    } else {
      wgmma<T, N>(d, wgmma_advance(a, along), wgmma_advance(b, along), step != 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
#pragma unroll
  for (uint32_t i = 0; i < N / 2; i++) words(out)[threadIdx.x * (N / 2) + i] = __float_as_uint(d[i]);
}

// Input: two boxes of 128 rows of 128 bytes of B, 32 KiB, and 2 KiB of fragments 8 KiB behind them.
template <Operand T, int N>
__global__ void __launch_bounds__(128, 1) wgmma_by_rows_kernel(const void *in, void *out) {
  SIE_DYNAMIC_SHARED(shared);
  take_in(shared, in, 40960);
  fence_proxy_async();
  __syncthreads();
  const uint32_t *from = words(in) + 10240 + threadIdx.x * 4;
  const uint32_t fragment[4] = {from[0], from[1], from[2], from[3]};
  float d[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
  const uint64_t b = wgmma_descriptor_by_rows(shared_address(shared), Swizzle::b128, 1024, 16384);
  wgmma_keep(d);
  wgmma_fence();
#pragma unroll
  for (uint32_t step = 0; step < 8; step++)
    wgmma_by_rows<T, N>(d, fragment, wgmma_advance(b, step * 2048), step != 0);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(d);
#pragma unroll
  for (uint32_t i = 0; i < N / 2; i++) words(out)[threadIdx.x * (N / 2) + i] = __float_as_uint(d[i]);
}

// Boxes of one shape from several places, inside and over the edges; the whole of shared memory
// comes back.
constexpr int box_places = 4;
__global__ void __launch_bounds__(128, 1)
    tma_load_kernel(const __grid_constant__ TensorMap map, void *out, uint32_t bytes) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int rows[box_places] = {0, 5, -3, 30}, columns[box_places] = {0, 16, -16, 112};
  for (int i = 0; i < box_places; i++) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(barrier, bytes);
      tma_load_2d(shared + 1024, &map, rows[i], columns[i], barrier);
    }
    mbarrier_wait(barrier, static_cast<uint32_t>(i) & 1u);
    take_out(static_cast<uint8_t *>(out) + static_cast<uint32_t>(i) * bytes, shared + 1024, bytes);
    fence_proxy_async();
    __syncthreads();
  }
}

// A tensor of 40 rows of 120 bytes, stride 128.
template <int S>
sie_status tma_load(const sie_stream *on, const void *in, void *out) {
  constexpr Swizzle swizzle = static_cast<Swizzle>(S);
  int32_t width = S == 0 ? 48 : swizzle_row_bytes(swizzle);
  TensorMap map;
  sie_status status = tensor_map_2d(&map, SIE_U8, in, 40, 120, 128, 16, width, swizzle);
  if (status != SIE_OK) return status;
  return SIE_LAUNCH(tma_load_kernel, 1, 128, 1024 + 16 * 128, on, map, out,
                    static_cast<uint32_t>(16 * width));
}

__global__ void __launch_bounds__(32, 1)
    tma_load_3d_kernel(const __grid_constant__ TensorMap map, void *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect(barrier, 2 * 4 * 32);
    tma_load_3d(shared + 1024, &map, -8, 2, 1, barrier);
  }
  __syncthreads();
  mbarrier_wait(barrier, 0);
  take_out(out, shared + 1024, 256);
}

sie_status tma_load_of_3d(const sie_stream *on, const void *in, void *out) {
  const int64_t extent[3] = {20, 5, 2}, stride[2] = {24, 144};
  const int32_t box[3] = {16, 4, 2};
  TensorMap map;
  sie_status status = tensor_map_3d(&map, SIE_BF16, in, extent, stride, box, Swizzle::b32);
  return status != SIE_OK ? status : SIE_LAUNCH(tma_load_3d_kernel, 1, 32, 2048, on, map, out);
}

__global__ void __launch_bounds__(128, 1)
    tma_store_kernel(const __grid_constant__ TensorMap map, const void *in) {
  SIE_DYNAMIC_SHARED(shared);
  take_in(shared, in, 2048);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  tma_store_2d(&map, shared, 1, 16);
  tma_store_2d(&map, shared, 30, -16);
  tma_store_commit();
  tma_store_wait<0>();
}

template <int S>
sie_status tma_store(const sie_stream *on, const void *in, void *out) {
  constexpr Swizzle swizzle = static_cast<Swizzle>(S);
  TensorMap map;
  sie_status status =
      tensor_map_2d(&map, SIE_U8, out, 40, 120, 128, 16, S == 0 ? 48 : swizzle_row_bytes(swizzle), swizzle);
  return status != SIE_OK ? status : SIE_LAUNCH(tma_store_kernel, 1, 128, 2048, on, map, in);
}

__global__ void __launch_bounds__(32, 1) copies_kernel(const void *in, void *out) {
  SIE_DYNAMIC_SHARED(shared);
  const uint8_t *from = static_cast<const uint8_t *>(in);
  uint32_t lane = threadIdx.x;
  cp_async_16(shared + 16 * lane, from + 16 * (lane ^ 1u), lane % 3 != 0);
  cp_async_8(shared + 512 + 8 * lane, from + 8 * (lane ^ 2u), lane % 3 != 1);
  cp_async_4(shared + 768 + 4 * lane, from + 4 * (lane ^ 4u), lane % 3 != 2);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  take_out(out, shared, 896);
}

__global__ void __launch_bounds__(32, 1) exchange_kernel(const void *in, void *out) {
  uint32_t lane = threadIdx.x, x = words(in)[lane];
  uint32_t *to = words(out) + lane * 10;
  to[0] = shuffle_xor(x, 9);
  to[1] = shuffle_from(x, static_cast<int>(lane * 3 % 32));
  to[2] = shuffle_up(x, 5);
  to[3] = shuffle_down(x, 5);
  to[4] = ptx::ballot((x & 1u) != 0);
  to[5] = reduce_add(x);
  to[6] = reduce_min(x);
  to[7] = reduce_max(x);
  to[8] = reduce_or(x);
  to[9] = shuffle_xor(x, 3, lane < 16 ? 0xffffu : 0xffff0000u);
}

// 1024 words as floats of any bits. The bits of a NaN are not compared: it becomes 0.
__global__ void __launch_bounds__(128, 1) convert_kernel(const void *in, void *out) {
  for (uint32_t i = threadIdx.x; i < 1024; i += blockDim.x) {
    uint32_t bits = words(in)[i];
    float x = __uint_as_float(bits), next = __uint_as_float(words(in)[i ^ 1u]);
    uint32_t *to = words(out) + 6 * i;
    to[0] = to_bf16(x) | static_cast<uint32_t>(to_f16(x)) << 16;
    to[1] = pack_bf16x2(x, next);
    to[2] = pack_f16x2(x, next);
    to[3] = pack_e4m3x4(x, next, 0.25f * x, 16.0f * next);
    float back = from_f16(static_cast<uint16_t>(bits));
    to[4] = back == back ? __float_as_uint(back) : 0u;
    float2 two = unpack_e4m3x2(static_cast<uint16_t>(bits));
    to[5] = two.x == two.x && two.y == two.y ? __float_as_uint(two.x) ^ __float_as_uint(two.y) << 1 : 0u;
  }
}

// 1024 reals in −1 … 1.
__global__ void __launch_bounds__(128, 1) approximations_kernel(const void *in, void *out) {
  for (uint32_t i = threadIdx.x; i < 1024; i += blockDim.x) {
    float x = __uint_as_float(words(in)[i]);
    float positive = fabsf(x) + 0.01f;
    uint32_t *to = words(out) + 4 * i;
    to[0] = __float_as_uint(exp2_approx(20.0f * x));
    to[1] = __float_as_uint(reciprocal_approx(positive));
    to[2] = __float_as_uint(rsqrt_approx(positive));
    to[3] = __float_as_uint(tanh_approx(4.0f * x));
  }
}

template <void (*Kernel)(const void *, void *), int Threads, int Shared>
sie_status run(const sie_stream *on, const void *in, void *out) {
  return SIE_LAUNCH(Kernel, 1, Threads, Shared, on, in, out);
}

using E = Experiment;

#define WGMMA(NAME, T, N, S, A, INPUT, TOLERANCE) \
  {"wgmma_" NAME, 90,         true,               \
   43008,         N * 64 * 4, E::INPUT,           \
   E::T,          TOLERANCE,  run<wgmma_kernel<Operand::T, N, S, A>, 128, 40960>}
// All swizzles on integers (exact: layout alone), the widest and the narrowest on reals
// (arithmetic).
#define WGMMA_TYPE(TYPE, T, TOLERANCE)                                 \
  WGMMA(TYPE "_n64_none", T, 64, 0, false, small_integers, 0),         \
      WGMMA(TYPE "_n64_b32", T, 64, 1, false, small_integers, 0),      \
      WGMMA(TYPE "_n64_b64", T, 64, 2, false, small_integers, 0),      \
      WGMMA(TYPE "_n64_b128", T, 64, 3, false, small_integers, 0),     \
      WGMMA(TYPE "_n8_b128", T, 8, 3, false, small_integers, 0),       \
      WGMMA(TYPE "_n96_b128", T, 96, 3, false, small_integers, 0),     \
      WGMMA(TYPE "_n256_b128", T, 256, 3, false, small_integers, 0),   \
      WGMMA(TYPE "_n32_registers", T, 32, 3, true, small_integers, 0), \
      WGMMA(TYPE "_n8_reals", T, 8, 3, false, reals, TOLERANCE),       \
      WGMMA(TYPE "_n256_reals", T, 256, 3, false, reals, TOLERANCE)
#define BY_ROWS(NAME, T, N)                      \
  {"wgmma_" NAME, 90,         true,              \
   43008,         N * 64 * 4, E::small_integers, \
   E::T,          0,          run<wgmma_by_rows_kernel<Operand::T, N>, 128, 40960>}
#define MMA(NAME, SM, T, INPUT, TOLERANCE) \
  {"mma_" NAME, SM, false, 768, 512, E::INPUT, E::T, TOLERANCE, run<mma_kernel<Operand::T>, 32, 0>}

const Experiment list[] = {
    {"ldmatrix", 80, false, 512, 32 * 14 * 4, E::bytes, E::u8, 0, run<ldmatrix_kernel, 32, 512>},
    {"stmatrix", 90, false, 512, 1536, E::bytes, E::u8, 0, run<stmatrix_kernel, 32, 1536>},
    MMA("bf16", 80, bf16, small_integers, 0),
    MMA("bf16_reals", 80, bf16, reals, 2e-6f),
    MMA("f16", 80, f16, small_integers, 0),
    MMA("f16_reals", 80, f16, reals, 2e-6f),
    MMA("e4m3", 89, e4m3, small_integers, 0),
    MMA("e4m3_reals", 89, e4m3, reals, 2e-3f),
    WGMMA_TYPE("bf16", bf16, 4e-6f),
    WGMMA_TYPE("f16", f16, 4e-6f),
    // Sums of e4m3 products keep about 13 bits.
    WGMMA_TYPE("e4m3", e4m3, 4e-3f),
    BY_ROWS("bf16_by_rows_n64", bf16, 64),
    BY_ROWS("bf16_by_rows_n128", bf16, 128),
    BY_ROWS("f16_by_rows_n128", f16, 128),
    {"tma_load_none", 90, false, 40 * 128, box_places * 16 * 48, E::bytes, E::u8, 0, tma_load<0>},
    {"tma_load_b32", 90, false, 40 * 128, box_places * 16 * 32, E::bytes, E::u8, 0, tma_load<1>},
    {"tma_load_b64", 90, false, 40 * 128, box_places * 16 * 64, E::bytes, E::u8, 0, tma_load<2>},
    {"tma_load_b128", 90, false, 40 * 128, box_places * 16 * 128, E::bytes, E::u8, 0, tma_load<3>},
    {"tma_load_3d", 90, false, 576, 256, E::bytes, E::u8, 0, tma_load_of_3d},
    {"tma_store_none", 90, false, 2048, 40 * 128, E::bytes, E::u8, 0, tma_store<0>},
    {"tma_store_b64", 90, false, 2048, 40 * 128, E::bytes, E::u8, 0, tma_store<2>},
    {"tma_store_b128", 90, false, 2048, 40 * 128, E::bytes, E::u8, 0, tma_store<3>},
    {"cp_async", 80, false, 512, 896, E::bytes, E::u8, 0, run<copies_kernel, 32, 896>},
    {"exchange", 80, false, 128, 32 * 10 * 4, E::bytes, E::u8, 0, run<exchange_kernel, 32, 0>},
    {"convert", 80, false, 4096, 1024 * 6 * 4, E::bytes, E::u8, 0, run<convert_kernel, 128, 0>},
    {"approximations", 80, false, 4096, 1024 * 4 * 4, E::reals, E::f32, 1e-3f,
     run<approximations_kernel, 128, 0>},
};

#undef WGMMA
#undef WGMMA_TYPE
#undef BY_ROWS
#undef MMA

uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Exact for what fill_input needs: integers to ±3 and 24-bit fractions, rounded down in magnitude.
uint32_t element_bits(Experiment::Element element, float x) {
  uint32_t bits = bits_of(x), sign = bits >> 31, magnitude = bits & 0x7fffffffu;
  switch (element) {
    case Experiment::bf16:
      return bits >> 16;
    case Experiment::f16:
      return magnitude < 0x38800000u ? sign << 15 : sign << 15 | (magnitude - 0x38000000u) >> 13;
    case Experiment::e4m3:
      return magnitude < 0x3c800000u ? sign << 7 : sign << 7 | (magnitude - 0x3c000000u) >> 20;
    default:
      return bits;
  }
}

}  // namespace

const Experiment *experiments(size_t *count) {
  *count = sizeof list / sizeof list[0];
  return list;
}

void fill_input(const Experiment &experiment, uint32_t seed, uint8_t *input) {
  static const size_t sizes[] = {1, 4, 2, 2, 1};
  size_t size = sizes[experiment.element];
  uint32_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < experiment.input_bytes; i += size) {
    state = state * 1664525u + 1013904223u;
    uint32_t random = state >> 8;
    uint32_t bits = random;
    if (experiment.input == Experiment::small_integers) {
      bits = element_bits(experiment.element, static_cast<float>(static_cast<int32_t>(random % 7) - 3));
    } else if (experiment.input == Experiment::reals) {
      bits = element_bits(experiment.element, static_cast<float>(random) / 8388608.0f - 1.0f);
    }
    memcpy(input + i, &bits, size);
  }
}

}  // namespace simt_record
