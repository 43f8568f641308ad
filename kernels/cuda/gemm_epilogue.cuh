// gemm_epilogue.cuh — what happens to a GEMM's f32 accumulators before they are stored; the order
// is the same in all kernels.
//
//   z = acc + bias[c]                        bf16, f16; an absent bias counts as 0
//   z = ((total·s_x[r])·s_w[c]) + bias[c]    e4m3: total as below, s_x = 1 with scales per block
//   z = z + addend[r, c]                     where there is one
//   v = act(z), or v = gate(z[2c])·z[2c + 1] a gate halves the columns
//   y = round(v + residual[r, c])            rounded once, here, to y's type
//
// Every + and · above is rounded to f32 and never fused, so kernels that compute the same acc store
// the same bytes, whatever their tiles and the order in which they visit elements.
//
// e4m3 operands: total is the f32 sum, over blocks of 128 in k, ascending, of the tensor cores' own
// sums:
//   total = fma(s_x[r, block], inner, total) gemm_promote; with one scale a row: total + inner
// y in e4m3: scales of 1×128 blocks of y's columns, from y in f32 (e4m3_scale, e4m3_inverse as
// ops.h defines them). The maximum of a block is a step of its own: over the lanes that hold it
// (gemm_store_run), or through shared memory by the caller.
//
// Two ways to use it
//   by element  a lane with columns c and c + 1 of a row (mma and wgmma fragments): gemm_z,
//               gemm_add_addend, activate<> or gated<> (a lane's pair is one gated output),
//               gemm_add_residual, ptx::pack…; with_activation turns the run-time act into a
//               template argument, once around the loop.
//   by run      a lane with 8 neighbouring columns of y (after a pass through shared memory):
//               gemm_add_bias, gemm_add_addend_run, gemm_activate_run or gemm_gate_run,
//               gemm_add_residual_run, gemm_store_run. 16-byte accesses where pointers and strides
//               allow, element by element otherwise: the same result.
// Cost     by run, per 8 outputs: 2 bias loads, 2 of the addend (4 behind a gate), 1 residual load,
//          1 store (bf16, f16); 8 activations.
#ifndef SIE_KERNELS_CUDA_GEMM_EPILOGUE_CUH
#define SIE_KERNELS_CUDA_GEMM_EPILOGUE_CUH

#include "cuda/activation.cuh"
#include "cuda/e4m3_scale.cuh"
#include "cuda/gemm_epilogue.h"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

// ---- by element

SIE_DEVICE float gemm_z(float acc, float bias) { return __fadd_rn(acc, bias); }

SIE_DEVICE float gemm_z_scaled(float total, float row_scale, float column_scale, float bias) {
  return __fadd_rn(__fmul_rn(__fmul_rn(total, row_scale), column_scale), bias);
}

SIE_DEVICE float gemm_promote(float block_scale, float inner, float total) {
  return __fmaf_rn(block_scale, inner, total);
}

SIE_DEVICE float gemm_add_addend(float z, float addend) { return __fadd_rn(z, addend); }

SIE_DEVICE float gemm_add_residual(float v, float residual) { return __fadd_rn(v, residual); }

template <int32_t Value>
struct Constant {
  static constexpr int32_t value = Value;
};

// Calls f(Constant<A>) for A = act. The branch is uniform: act comes from the kernel's parameters.
template <class F>
SIE_DEVICE void with_activation(int32_t act, const F &f) {
  switch (act) {
    case SIE_ACT_GELU_ERF:
      return f(Constant<SIE_ACT_GELU_ERF>());
    case SIE_ACT_TANH:
      return f(Constant<SIE_ACT_TANH>());
    case SIE_ACT_GELU_TANH:
      return f(Constant<SIE_ACT_GELU_TANH>());
    case SIE_ACT_RELU:
      return f(Constant<SIE_ACT_RELU>());
    case SIE_ACT_SILU:
      return f(Constant<SIE_ACT_SILU>());
    default:
      return f(Constant<SIE_ACT_NONE>());
  }
}

template <class F>
SIE_DEVICE void with_gate(int32_t gate, const F &f) {
  switch (gate) {
    case SIE_GATE_SWIGLU:
      return f(Constant<SIE_GATE_SWIGLU>());
    case SIE_GATE_GEGLU:
      return f(Constant<SIE_GATE_GEGLU>());
    default:
      return f(Constant<SIE_GATE_GEGLU_TANH>());
  }
}

// ---- by run of columns of one row

// Count f32 from p[0 … bound), zeros behind; 16-byte loads where `aligned` says that p is. Only for
// data that the launch does not write: bias and weight scales.
template <int Count>
SIE_DEVICE void gemm_load_f32(const float *p, int32_t bound, bool aligned, float (&v)[Count]) {
  if (aligned && bound >= Count) {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      uint4 q = ptx::load_global_nc<uint4>(p + i);
      v[i] = __uint_as_float(q.x);
      v[i + 1] = __uint_as_float(q.y);
      v[i + 2] = __uint_as_float(q.z);
      v[i + 3] = __uint_as_float(q.w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; i++) v[i] = i < bound ? p[i] : 0.0f;
  }
}

// acc → z for Count columns of W from `column` on; the results of columns ≥ n are never stored.
template <int Count>
SIE_DEVICE void gemm_add_bias(const GemmEpilogue &e, int32_t column, float (&v)[Count]) {
  float bias[Count] = {};
  if (e.bias != nullptr) {
    gemm_load_f32(e.bias + column, e.n - column, (e.wide & GEMM_WIDE_BIAS) != 0, bias);
  }
#pragma unroll
  for (int i = 0; i < Count; i++) v[i] = gemm_z(v[i], bias[i]);
}

// The same for e4m3 operands, total → z. scales: those of all columns, readable up to a multiple of
// 128.
template <int Count>
SIE_DEVICE void gemm_scale_add_bias(const GemmEpilogue &e, float row_scale, const float *scales,
                                    int32_t column, float (&v)[Count]) {
  float scale[Count], bias[Count] = {};
  gemm_load_f32(scales + column, Count, true, scale);
  if (e.bias != nullptr) {
    gemm_load_f32(e.bias + column, e.n - column, (e.wide & GEMM_WIDE_BIAS) != 0, bias);
  }
#pragma unroll
  for (int i = 0; i < Count; i++) v[i] = gemm_z_scaled(v[i], row_scale, scale[i], bias[i]);
}

// z + addend for Count columns of W from `column` on of row `row`. Reads nothing at columns ≥ e.n.
template <int Count>
SIE_DEVICE void gemm_add_addend_run(const GemmEpilogue &e, int64_t row, int32_t column, float (&z)[Count]) {
  if (e.addend == nullptr) return;
  const float *p = e.addend + row * e.addend_ld + column;
  const int32_t bound = e.n - column;
  if ((e.wide & GEMM_WIDE_ADDEND) != 0 && bound >= Count) {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      const float4 q = ptx::load_global<float4>(p + i);
      z[i] = gemm_add_addend(z[i], q.x);
      z[i + 1] = gemm_add_addend(z[i + 1], q.y);
      z[i + 2] = gemm_add_addend(z[i + 2], q.z);
      z[i + 3] = gemm_add_addend(z[i + 3], q.w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; i++) {
      if (i < bound) z[i] = gemm_add_addend(z[i], p[i]);
    }
  }
}

// z → v in place, without a gate.
SIE_DEVICE void gemm_activate_run(const GemmEpilogue &e, float (&v)[8]) {
  with_activation(e.act, [&](auto act) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = activate<decltype(act)::value>(v[i]);
  });
}

// z of gate and up columns in turn → v.
SIE_DEVICE void gemm_gate_run(const GemmEpilogue &e, const float (&z)[16], float (&v)[8]) {
  with_gate(e.gate, [&](auto gate) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = gated<decltype(gate)::value>(z[2 * i], z[2 * i + 1]);
  });
}

// v + residual for the columns `column` … + 7 of y's row `row`. Reads nothing at columns ≥
// e.columns.
SIE_DEVICE void gemm_add_residual_run(const GemmEpilogue &e, int64_t row, int32_t column, float (&v)[8]) {
  if (e.residual == nullptr) return;
  int64_t at = row * e.residual_ld + column;
  int32_t bound = e.columns - column;
  bool wide = (e.wide & GEMM_WIDE_RESIDUAL) != 0 && bound >= 8;
  float r[8];
  if (e.residual_type == SIE_F32) {
    const float *p = static_cast<const float *>(e.residual) + at;
    if (wide) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        float4 q = ptx::load_global<float4>(p + i);
        r[i] = q.x;
        r[i + 1] = q.y;
        r[i + 2] = q.z;
        r[i + 3] = q.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) r[i] = i < bound ? p[i] : 0.0f;
    }
  } else {
    const uint16_t *p = static_cast<const uint16_t *>(e.residual) + at;
    uint32_t q[4];
    if (wide) {
      uint4 bits = ptx::load_global<uint4>(p);
      q[0] = bits.x;
      q[1] = bits.y;
      q[2] = bits.z;
      q[3] = bits.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t low = 2 * i < bound ? p[2 * i] : 0u, high = 2 * i + 1 < bound ? p[2 * i + 1] : 0u;
        q[i] = low | high << 16;
      }
    }
    bool bf16 = e.residual_type == SIE_BF16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 pair = bf16 ? ptx::unpack_bf16x2(q[i]) : ptx::unpack_f16x2(q[i]);
      r[2 * i] = pair.x;
      r[2 * i + 1] = pair.y;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = gemm_add_residual(v[i], r[i]);
}

// Rounds and stores v to the columns `column` … + 7 of y's row `row`, where `stored`;
// columns ≥ e.columns are left alone. Whole warps call it. y in e4m3: lanes 16i … 16i + 15 hold one
// block of 128 columns of a row, in order.
SIE_DEVICE void gemm_store_run(const GemmEpilogue &e, int64_t row, int32_t column, bool stored,
                               float (&v)[8]) {
  int32_t bound = stored ? e.columns - column : 0;
  bool wide = (e.wide & GEMM_WIDE_Y) != 0 && bound >= 8;
  int64_t at = row * e.y_ld + column;
  if (e.y_type == SIE_F8E4M3) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (i < bound) largest = fmaxf(largest, fabsf(v[i]));
    }
#pragma unroll
    for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, ptx::shuffle_xor(largest, step));
    float scale = e4m3_scale(largest), inverse = e4m3_inverse(scale);
    if (bound > 0 && column % 128 == 0) e.y_scale[row * e.y_scale_ld + column / 128] = scale;
    uint2 q;
    q.x = ptx::pack_e4m3x4(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse), __fmul_rn(v[2], inverse),
                           __fmul_rn(v[3], inverse));
    q.y = ptx::pack_e4m3x4(__fmul_rn(v[4], inverse), __fmul_rn(v[5], inverse), __fmul_rn(v[6], inverse),
                           __fmul_rn(v[7], inverse));
    uint8_t *p = static_cast<uint8_t *>(e.y) + at;
    if (wide) {
      ptx::store_global(p, q);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (i < bound) p[i] = static_cast<uint8_t>((i < 4 ? q.x : q.y) >> (8 * (i % 4)));
      }
    }
  } else if (e.y_type == SIE_F32) {
    float *p = static_cast<float *>(e.y) + at;
    if (wide) {
      ptx::store_global(p, make_float4(v[0], v[1], v[2], v[3]));
      ptx::store_global(p + 4, make_float4(v[4], v[5], v[6], v[7]));
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (i < bound) p[i] = v[i];
      }
    }
  } else {
    bool bf16 = e.y_type == SIE_BF16;
    uint32_t q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      q[i] = bf16 ? ptx::pack_bf16x2(v[2 * i], v[2 * i + 1]) : ptx::pack_f16x2(v[2 * i], v[2 * i + 1]);
    }
    uint16_t *p = static_cast<uint16_t *>(e.y) + at;
    if (wide) {
      ptx::store_global(p, make_uint4(q[0], q[1], q[2], q[3]));
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (i < bound) p[i] = static_cast<uint16_t>(q[i / 2] >> (16 * (i % 2)));
      }
    }
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_EPILOGUE_CUH
