// output_rows — each sequence's row is cut, optionally divided by its L2 norm, converted and
// written at its offset.
//   norm     x / max(√Σx², 1e-12), the sum in double, the quotient in f32, over the dims that are
//            kept
//   F32 F16  the value
//   I8       rint(x / s · 127), s = max|x| (0 counts as 1)
//   U8       rint((x − min) / r · 255), r = max − min (0 counts as 1)
//   BINARY   bit = x > 0, most significant first, the last byte's low bits zero
//   All in f32, divide before multiply, ties to even: the bits NumPy gives. A NaN becomes 0 in I8
//   and U8.
// It also does cls and last pooling, where the row is a token's, and rows that are pooled already
// (pool_output.cu).
// Shapes   x [B, C] or [T, C], row stride ≥ C; items [B], dims ≤ C. B ≥ 0, 1 ≤ C ≤ 2²⁰.
// Types    x f32, or bf16 | f16 | f32 when pooled. An item of an unknown type is not written.
// Alias    none.
// Cost     B·C elements read, the output written → memory bound; 1024 rows of 1024 to I8 5.2 MB,
//          the time of a launch.
// Plan     two passes over the row, the second from L1: sums and extremes, then conversion.
//          Rounding a quotient is monotone, so extremes of x / norm are the quotients of the
//          extremes of x. Each thread keeps to octets of its own. One warp a row to C = 2048, else
//          the 8 of a CTA. 128-bit loads and, where aligned, stores.
// Error    none after the norm; the norm's last bit may differ from another order of summation in
//          double.
#ifndef SIE_KERNELS_CUDA_OUTPUT_ROWS_CUH
#define SIE_KERNELS_CUDA_OUTPUT_ROWS_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

// The source and the destination of a row. Without items it is written to row b of y as f32.
struct OutputJob {
  sie_rows seqs;
  const int32_t *cu_seqlens;  // NULL: x has a row a sequence
  int32_t mode;               // sie_pooling
  int32_t c;
  sie_tensor x;
  const float *w;                   // SIE_POOL_ATTENTION
  const int32_t *index, *cu_whole;  // SIE_POOL_WEIGHTED_MEAN; NULL: a row's place is its number
  const sie_out_item *items;
  void *out;
  sie_tensor y;
};

// A row of a tensor; without one (p NULL), zeros.
struct TensorRow {
  const sie_tensor &x;
  int64_t row;
  int32_t c;
  bool present;
  SIE_DEVICE void read(int32_t octet, float (&v)[8]) const {
    load_octet_any(x, row, 8 * octet, present ? c : 0, v);
  }
};

// A row of f32 in shared memory, 16-byte aligned, with room for whole octets.
struct SharedRow {
  const float *row;
  SIE_DEVICE void read(int32_t octet, float (&v)[8]) const {
    const float4 low = ptx::load_shared<float4>(row + 8 * octet),
                 high = ptx::load_shared<float4>(row + 8 * octet + 4);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
};

// Elements [at, at + 8) of the output, the first `count` of them valid; wide stores of Bytes where
// all are valid and aligned.
template <class Bytes, class E>
SIE_DEVICE void store_output(char *out, int32_t at, int32_t count, const E (&e)[8]) {
  E *to = reinterpret_cast<E *>(out) + at;
  if (count >= 8 && ptx::aligned_for<Bytes>(to)) {
    Bytes bytes[8 * sizeof(E) / sizeof(Bytes)];
    memcpy(bytes, e, sizeof bytes);
#pragma unroll
    for (unsigned i = 0; i < sizeof bytes / sizeof(Bytes); i++) {
      ptx::store_global(reinterpret_cast<Bytes *>(to) + i, bytes[i]);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (j < count) to[j] = e[j];
  }
}

SIE_DEVICE uint8_t level_i8(float x, float s) {
  const float q = rintf(__fmul_rn(__fdiv_rn(x, s), 127.0f));
  return static_cast<uint8_t>(q >= -127.0f && q <= 127.0f ? static_cast<int>(q) : 0);
}

SIE_DEVICE uint8_t level_u8(float x, float lo, float r) {
  const float q = rintf(__fmul_rn(__fdiv_rn(__fsub_rn(x, lo), r), 255.0f));
  return static_cast<uint8_t>(q > 0.0f ? (q < 255.0f ? static_cast<int>(q) : 255) : 0);
}

constexpr int output_reductions = 3;

// The values of the whole row that the conversion needs.
struct OutputScale {
  float norm;    // 1: leave as it is
  float lo, by;  // I8: by = s; U8: lo and by = r
};

template <class Row, class Threads>
SIE_DEVICE OutputScale output_scale(const Row &row, int32_t dims, int32_t dtype, bool normalize,
                                    Threads *threads) {
  OutputScale scale = {1.0f, 0.0f, 1.0f};
  const bool extremes = dtype == SIE_I8 || dtype == SIE_U8;
  if (!extremes && !normalize) return scale;
  double squares = 0;
  float lo = INFINITY, hi = -INFINITY;
#pragma unroll 4
  for (int32_t octet = static_cast<int32_t>(threads->thread()); 8 * octet < dims; octet += Threads::count) {
    float v[8];
    row.read(octet, v);
    // The reference starts from the first element: where that is NaN, the whole U8 row is 0.
    if (octet == 0 && dtype == SIE_U8 && v[0] != v[0]) lo = -INFINITY, hi = INFINITY;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      if (8 * octet + j >= dims) continue;
      // The product of two floats is exact in double.
      squares += static_cast<double>(v[j]) * static_cast<double>(v[j]);
      lo = fminf(lo, v[j]);
      hi = fmaxf(hi, v[j]);
    }
  }
  if (normalize) {
    scale.norm = static_cast<float>(sqrt(threads->sum(squares)));
    if (scale.norm < 1e-12f) scale.norm = 1e-12f;
  }
  if (!extremes) return scale;
  lo = __fdiv_rn(threads->min(lo), scale.norm);
  hi = __fdiv_rn(threads->max(hi), scale.norm);
  if (dtype == SIE_I8) {
    scale.by = fmaxf(fabsf(lo), fabsf(hi));
  } else {
    scale.lo = lo;
    scale.by = __fsub_rn(hi, lo);
  }
  if (scale.by == 0.0f) scale.by = 1.0f;
  return scale;
}

// Writes the row as its item says, from `base` on. Every thread of the row calls; a thread reads
// the octets thread, thread + count, … only.
template <class Row, class Threads>
SIE_DEVICE void write_output(const Row &row, int32_t c, const sie_out_item &item, void *base,
                             Threads *threads) {
  const int32_t dims = item.dims != 0 ? item.dims : c, dtype = item.dtype;
  const bool normalize = item.normalize != 0;
  char *out = static_cast<char *>(base) + item.offset;
  const OutputScale scale = output_scale(row, dims, dtype, normalize, threads);
#pragma unroll 2
  for (int32_t octet = static_cast<int32_t>(threads->thread()); 8 * octet < dims; octet += Threads::count) {
    float v[8];
    row.read(octet, v);
    if (normalize) {
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = __fdiv_rn(v[j], scale.norm);
    }
    const int32_t at = 8 * octet, count = dims - at;
    if (dtype == SIE_F32) {
      store_output<uint4>(out, at, count, v);
    } else if (dtype == SIE_F16) {
      uint16_t halves[8];
#pragma unroll
      for (int j = 0; j < 8; j++) halves[j] = ptx::to_f16(v[j]);
      store_output<uint4>(out, at, count, halves);
    } else if (dtype == SIE_I8 || dtype == SIE_U8) {
      uint8_t bytes[8];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        bytes[j] = dtype == SIE_I8 ? level_i8(v[j], scale.by) : level_u8(v[j], scale.lo, scale.by);
      }
      store_output<uint2>(out, at, count, bytes);
    } else if (dtype == SIE_BINARY) {
      uint32_t byte = 0;
#pragma unroll
      for (int j = 0; j < 8; j++) byte |= j < count && v[j] > 0.0f ? 0x80u >> j : 0u;
      out[octet] = static_cast<char>(byte);
    }
  }
}

// The destination of sequence b's row: its item, or row b of y without conversion.
SIE_DEVICE sie_out_item output_item(const OutputJob &job, int64_t b) {
  if (job.items != nullptr) return job.items[b];
  return {SIE_F32, 0, 0, 0, b * job.y.ld * static_cast<int64_t>(sizeof(float))};
}
SIE_DEVICE void *output_base(const OutputJob &job) { return job.items != nullptr ? job.out : job.y.p; }

// Rows that are one row of x: cls, last, or all of them.
template <int W>
__global__ void __launch_bounds__(row_threads, 3) output_rows_kernel(const OutputJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t row_of_block = threadIdx.x / (32 * W);
  const int64_t b = static_cast<int64_t>(blockIdx.x) * (row_warps / W) + row_of_block;
  if (b >= *job.seqs.n) return;
  RowThreads<W, row_warps / W> threads(
      row_of_block, reinterpret_cast<double *>(shared) + row_of_block * W * output_reductions);
  int64_t row = b;
  bool present = true;
  if (job.cu_seqlens != nullptr) {
    const int32_t first = job.cu_seqlens[b], end = job.cu_seqlens[b + 1];
    present = first < end;
    row = job.mode == SIE_POOL_LAST ? end - 1 : first;
  }
  write_output(TensorRow{job.x, row, job.c, present}, job.c, output_item(job, b), output_base(job), &threads);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_OUTPUT_ROWS_CUH
