// rows.cuh — what the row kernels share: a row spread over the registers of one or several warps.
//
// An octet is eight neighbouring columns: 16 bytes of bf16 or f16, and the unit in which a row is dealt out.
// Thread t of the 32·W threads of a row holds the octets t, t + 32·W, …, at most V of them, as f32. So every sum
// has one order, whatever the storage type and however the row is aligned: the forms below differ in speed and
// in nothing else.
//
//   Storage::bf16, f16  all tensors of the call have this type, c is a multiple of 8, every row and vector starts
//                       at a multiple of 16 bytes: one 128-bit access an octet
//   Storage::any        each tensor has its own type; 128-bit accesses where it allows them, else one by one
#ifndef SIE_KERNELS_CUDA_ROWS_CUH
#define SIE_KERNELS_CUDA_ROWS_CUH

#include "cuda/ptx/convert.h"
#include "cuda/ptx/device.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/named_barrier.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/warp.h"
#include "ops.h"

namespace sie_cuda {

constexpr int row_threads = 256;  // of a CTA of the row kernels: 8/W rows
constexpr int row_warps = row_threads / 32;
constexpr int64_t row_columns_max = 8192;    // of a row in registers
constexpr int64_t max_columns = 1 << 20;     // of any row: columns are counted in int32

enum class Storage { bf16, f16, any };

// ---- Threads of a row ----------------------------------------------------------------------------------------

// The W warps that hold a row together. slots: shared memory of those W warps, W doubles for each reduction of a
// kernel; W = 1 needs none. Every thread of the row calls each reduction, in the same order, and gets the same bits.
template <int W>
class RowThreads {
 public:
  SIE_DEVICE RowThreads(uint32_t row, double *slots)
      : thread_(threadIdx.x % (32 * W)), barrier_(1 + row), slots_(slots) {}

  static constexpr int count = 32 * W;
  SIE_DEVICE uint32_t thread() const { return thread_; }

  SIE_DEVICE float sum(float x) {
    x = ptx::warp_sum(x);
    if (W == 1) return x;
    const float *of = meet(x);
    float all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all += of[w];
    return all;
  }
  SIE_DEVICE double sum(double x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += ptx::shuffle_xor(x, step);
    if (W == 1) return x;
    const double *of = meet(x);
    double all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all += of[w];
    return all;
  }
  SIE_DEVICE float max(float x) {
    x = ptx::warp_max(x);
    if (W == 1) return x;
    const float *of = meet(x);
    float all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all = fmaxf(all, of[w]);
    return all;
  }
  SIE_DEVICE float min(float x) { return -max(-x); }

  // Orders the row's accesses to shared memory.
  SIE_DEVICE void sync() {
    if (W == 1) {
      ptx::sync_warp();
    } else {
      ptx::named_barrier_sync(barrier_, 32 * W);
    }
  }

 private:
  // The values of the W warps. Each meeting has its own slots, so one barrier suffices.
  template <class T>
  SIE_DEVICE const T *meet(T x) {
    T *const of = reinterpret_cast<T *>(slots_);
    slots_ += W;
    if (thread_ % 32 == 0) of[thread_ / 32] = x;
    sync();
    return of;
  }

  uint32_t thread_, barrier_;
  double *slots_;
};

// Doubles of slots a CTA of row_threads needs for `reductions` of each row.
template <int W>
constexpr size_t slot_bytes(int reductions) {
  return W == 1 ? 0 : static_cast<size_t>(row_warps) * static_cast<size_t>(reductions) * sizeof(double);
}

// ---- Octets in memory ----------------------------------------------------------------------------------------

SIE_DEVICE void unpack_octet(Storage s, const uint4 &bits, float (&v)[8]) {
  const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 two = s == Storage::bf16 ? ptx::unpack_bf16x2(pairs[i]) : ptx::unpack_f16x2(pairs[i]);
    v[2 * i] = two.x;
    v[2 * i + 1] = two.y;
  }
}

SIE_DEVICE uint4 pack_octet(Storage s, const float (&v)[8]) {
  uint4 bits;
  bits.x = s == Storage::bf16 ? ptx::pack_bf16x2(v[0], v[1]) : ptx::pack_f16x2(v[0], v[1]);
  bits.y = s == Storage::bf16 ? ptx::pack_bf16x2(v[2], v[3]) : ptx::pack_f16x2(v[2], v[3]);
  bits.z = s == Storage::bf16 ? ptx::pack_bf16x2(v[4], v[5]) : ptx::pack_f16x2(v[4], v[5]);
  bits.w = s == Storage::bf16 ? ptx::pack_bf16x2(v[6], v[7]) : ptx::pack_f16x2(v[6], v[7]);
  return bits;
}

SIE_DEVICE float load_element(const void *p, int32_t dtype, int64_t at) {
  if (dtype == SIE_F32) return static_cast<const float *>(p)[at];
  const uint16_t bits = static_cast<const uint16_t *>(p)[at];
  return dtype == SIE_BF16 ? ptx::from_bf16(bits) : ptx::from_f16(bits);
}

SIE_DEVICE void store_element(void *p, int32_t dtype, int64_t at, float x) {
  if (dtype == SIE_F32) {
    static_cast<float *>(p)[at] = x;
  } else {
    static_cast<uint16_t *>(p)[at] = dtype == SIE_BF16 ? ptx::to_bf16(x) : ptx::to_f16(x);
  }
}

SIE_DEVICE int64_t element_bytes(int32_t dtype) { return dtype == SIE_F32 ? 4 : 2; }

SIE_DEVICE char *element_at(const sie_tensor &t, int64_t row, int32_t column) {
  return static_cast<char *>(t.p) + (row * t.ld + column) * element_bytes(t.dtype);
}

// Columns [column, column + 8) of a row of any type into v; those from c on are 0.
SIE_DEVICE void load_octet_any(const sie_tensor &t, int64_t row, int32_t column, int32_t c, float (&v)[8]) {
  const char *from = element_at(t, row, column);
  if (column + 8 <= c && ptx::aligned_for<uint4>(from)) {
    if (t.dtype == SIE_F32) {
      const uint4 low = ptx::load_global<uint4>(from), high = ptx::load_global<uint4>(from + 16);
      const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = __uint_as_float(words[j]);
    } else {
      unpack_octet(t.dtype == SIE_BF16 ? Storage::bf16 : Storage::f16, ptx::load_global<uint4>(from), v);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) v[j] = column + j < c ? load_element(from, t.dtype, j) : 0.0f;
}

SIE_DEVICE void store_octet_any(const sie_tensor &t, int64_t row, int32_t column, int32_t c, const float (&v)[8]) {
  char *to = element_at(t, row, column);
  if (column + 8 <= c && ptx::aligned_for<uint4>(to)) {
    if (t.dtype == SIE_F32) {
      ptx::store_global(to, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                       __float_as_uint(v[3])));
      ptx::store_global(to + 16, make_uint4(__float_as_uint(v[4]), __float_as_uint(v[5]), __float_as_uint(v[6]),
                                            __float_as_uint(v[7])));
    } else {
      ptx::store_global(to, pack_octet(t.dtype == SIE_BF16 ? Storage::bf16 : Storage::f16, v));
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (column + j < c) store_element(to, t.dtype, j, v[j]);
  }
}

// An octet between its load and its use: the bits, so that several loads are under way before the first is
// converted; for Storage::any the values themselves.
template <Storage S>
struct Loaded {
  uint4 bits;
  SIE_DEVICE void load(const sie_tensor &t, int64_t row, int32_t column, int32_t c) {
    bits = ptx::load_global_or_zero<uint4>(static_cast<const uint16_t *>(t.p) + row * t.ld + column, column < c);
  }
  SIE_DEVICE void get(float (&v)[8]) const { unpack_octet(S, bits, v); }
};

template <>
struct Loaded<Storage::any> {
  float values[8];
  SIE_DEVICE void load(const sie_tensor &t, int64_t row, int32_t column, int32_t c) {
    load_octet_any(t, row, column, c, values);
  }
  SIE_DEVICE void get(float (&v)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = values[j];
  }
};

template <Storage S>
SIE_DEVICE void store_octet(const sie_tensor &t, int64_t row, int32_t column, int32_t c, const float (&v)[8]) {
  if (S == Storage::any) {
    store_octet_any(t, row, column, c, v);
  } else if (column < c) {
    ptx::store_global(static_cast<uint16_t *>(t.p) + row * t.ld + column, pack_octet(S, v));
  }
}

// Columns of a parameter vector (f32, written before any kernel started): 0 from c on.
template <Storage S>
SIE_DEVICE void load_vector(const float *p, int32_t column, int32_t c, float (&v)[8]) {
  if (S != Storage::any) {
    // Octets beyond the row read the first: their results are not stored.
    const float *from = p + (column < c ? column : 0);
    const uint4 low = ptx::load_global_nc<uint4>(from), high = ptx::load_global_nc<uint4>(from + 4);
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __uint_as_float(words[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = column + j < c ? p[column + j] : 0.0f;
  }
}

// Whether column j of the octet at `column` is one of the row's.
template <Storage S>
SIE_DEVICE bool in_row(int32_t column, int j, int32_t c) {
  return S == Storage::any ? column + j < c : column < c;
}

// ---- fp8 rows ------------------------------------------------------------------------------------------------

// The scale of elements of which the largest is `most`: max|x|/448, less than 2⁻¹⁰⁰ counts as 1 (sie_tensor).
SIE_DEVICE float f8_scale(float most) {
  const float scale = __fdiv_rn(most, 448.0f);
  return scale < 7.888609052210118e-31f ? 1.0f : scale;
}

// max|v| over the octet's columns of the row; a NaN is none.
template <Storage S>
SIE_DEVICE float octet_max(float most, const float (&v)[8], int32_t column, int32_t c) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (in_row<S>(column, j, c)) most = fmaxf(most, fabsf(v[j]));
  }
  return most;
}

template <Storage S>
SIE_DEVICE void store_octet_f8(const sie_tensor &t, int64_t row, int32_t column, int32_t c, const float (&v)[8],
                               float inverse) {
  float q[8];
#pragma unroll
  for (int j = 0; j < 8; j++) q[j] = __fmul_rn(v[j], inverse);
  uint8_t *to = static_cast<uint8_t *>(t.p) + row * t.ld + column;
  uint2 bytes;
  bytes.x = ptx::pack_e4m3x4(q[0], q[1], q[2], q[3]);
  bytes.y = ptx::pack_e4m3x4(q[4], q[5], q[6], q[7]);
  if (S != Storage::any) {
    if (column < c) ptx::store_global(to, bytes);
    return;
  }
  if (column + 8 <= c && ptx::aligned_for<uint2>(to)) {
    ptx::store_global(to, bytes);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (column + j < c) to[j] = static_cast<uint8_t>((j < 4 ? bytes.x : bytes.y) >> (8 * (j % 4)));
  }
}

// ---- Sequences -----------------------------------------------------------------------------------------------

// The sequence that holds token t: the last of cu_seqlens[0 … n] that is ≤ t. A search with 32 probes a step, by a
// whole warp.
struct Sequence {
  int32_t index, start;
};

SIE_DEVICE Sequence sequence_of(const int32_t *cu_seqlens, int32_t n, int32_t t) {
  int32_t first = 0, count = n + 1;  // the entry is among `count` from `first` on
  while (true) {
    const int32_t step = (count + 31) / 32;
    const int32_t at = static_cast<int32_t>(ptx::lane_id()) * step;
    const int32_t entry = at < count ? cu_seqlens[first + at] : INT32_MAX;
    const int32_t last = __popc(ptx::ballot(entry <= t)) - 1;  // cu_seqlens[0] = 0 ≤ t
    first += last * step;
    if (step == 1) return {first, ptx::shuffle_from(entry, last)};
    count = count - last * step < step ? count - last * step : step;
  }
}

// ---- Launchers -----------------------------------------------------------------------------------------------

inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16 || dtype == SIE_F16; }

inline bool aligned_vector(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether every octet of t's rows is one aligned access of `octet` bytes. Absent tensors are.
inline bool aligned_rows(const sie_tensor &t, int64_t element) {
  const int64_t octet = 8 * element;
  return t.p == nullptr ||
         (reinterpret_cast<uintptr_t>(t.p) % static_cast<uintptr_t>(octet < 16 ? octet : 16) == 0 &&
          t.ld * element % (octet < 16 ? octet : 16) == 0);
}

// The fast form for tensors that are all of x's 16-bit type (absent ones are), or Storage::any.
template <class... Tensors>
inline Storage storage_of(int64_t c, const sie_tensor &x, const Tensors &...others) {
  const sie_tensor *all[] = {&x, &others...};
  for (const sie_tensor *t : all) {
    if (t->p != nullptr && (t->dtype != x.dtype || !aligned_rows(*t, 2))) return Storage::any;
  }
  if (c % 8 != 0 || x.dtype == SIE_F32) return Storage::any;
  return x.dtype == SIE_BF16 ? Storage::bf16 : Storage::f16;
}

// What a launcher is asked for first: SIE_OK, and *empty where there is nothing to do.
inline sie_status check_launch(const sie_share *share, const sie_rows &rows, bool *empty) {
  if (share->on == nullptr || share->part != 0 || share->parts != 1 || rows.cap < 0) return SIE_INVALID_ARGUMENT;
  if (rows.cap > INT32_MAX) return SIE_UNSUPPORTED;
  *empty = rows.cap == 0;
  return SIE_OK;
}

// A tensor of c columns that is there, as it must be unless the call is empty.
inline bool valid_rows(const sie_tensor &t, int64_t c, bool empty) { return t.ld >= c && (empty || t.p != nullptr); }

// Whether any pointer is NULL that must not be: an empty call's may.
template <class... Pointers>
inline bool missing(bool empty, const Pointers *...pointers) {
  const void *const all[] = {pointers...};
  for (const void *p : all) {
    if (!empty && p == nullptr) return true;
  }
  return false;
}

// Whether the tensors, where present, are float rows of c columns.
template <class... Tensors>
inline sie_status check_float_rows(int64_t c, const Tensors &...tensors) {
  const sie_tensor *const all[] = {&tensors...};
  for (const sie_tensor *t : all) {
    if (t->p == nullptr) continue;
    if (t->ld < c) return SIE_INVALID_ARGUMENT;
    if (!is_float(t->dtype)) return SIE_UNSUPPORTED;
  }
  return SIE_OK;
}

// Whether t, where present, is e4m3 rows of c columns with scales in groups of `group`.
inline sie_status check_f8_rows(const sie_tensor &t, int64_t c, int32_t group) {
  if (t.p == nullptr) return SIE_OK;
  if (t.dtype != SIE_F8E4M3) return SIE_UNSUPPORTED;
  if (t.ld < c || t.scale == nullptr) return SIE_INVALID_ARGUMENT;
  return t.scale_group == group ? SIE_OK : SIE_UNSUPPORTED;
}

template <int V_, int W_>
struct RowShape {
  static constexpr int V = V_, W = W_;
};

// Calls launch(RowShape<V, W>()) with the shape for rows of c ≤ row_columns_max columns: by c alone.
template <class Launch>
inline sie_status with_row_shape(int64_t c, const Launch &launch) {
  const int64_t octets = (c + 7) / 8;
  if (octets <= 32) return launch(RowShape<1, 1>());
  if (octets <= 64) return launch(RowShape<2, 1>());
  if (octets <= 96) return launch(RowShape<3, 1>());
  if (octets <= 128) return launch(RowShape<4, 1>());
  if (octets <= 192) return launch(RowShape<6, 1>());
  if (octets <= 256) return launch(RowShape<4, 2>());
  if (octets <= 384) return launch(RowShape<6, 2>());
  if (octets <= 512) return launch(RowShape<4, 4>());
  if (octets <= 768) return launch(RowShape<6, 4>());
  return launch(RowShape<4, 8>());
}

// CTAs of row_threads an SM shall hold, by the octets of a thread: what bounds the registers. 16 to 40 warps with
// 2·V loads of 512 bytes under way each keep some 80 KiB in flight, four times what the memory's latency asks for.
constexpr int row_min_blocks(Storage s, int v) {
  if (s == Storage::any) return v > 4 ? 1 : 2;
  return v > 4 ? 2 : (v > 2 ? 3 : 5);
}

inline uint32_t row_grid(int64_t rows, int warps_per_row) {
  const int64_t per_block = row_warps / warps_per_row;
  return static_cast<uint32_t>((rows + per_block - 1) / per_block);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ROWS_CUH
