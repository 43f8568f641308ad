// row_launch.cuh — the host code that the row kernels' launchers share: checks, and the choice of
// form and grid.
#ifndef SIE_KERNELS_CUDA_ROW_LAUNCH_CUH
#define SIE_KERNELS_CUDA_ROW_LAUNCH_CUH

#include "cuda/octets.cuh"
#include "cuda/ptx/launch.h"
#include "cuda/row_threads.cuh"
#include "ops.h"

namespace sie_cuda {

constexpr int64_t row_columns_max = 8192;  // of a row in registers
constexpr int oldest_sm = 80;              // bf16 conversions and cp.async arrived with it (arch.h)
constexpr int64_t max_columns = 1 << 20;   // of any row: columns are counted in int32

inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16 || dtype == SIE_F16; }

inline bool aligned_vector(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether every octet of t's rows is one aligned access of `octet` bytes; true for absent tensors.
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

// The first check of a launcher: SIE_OK, and *empty where there is nothing to do.
inline sie_status check_launch(const sie_share *share, const sie_rows &rows, bool *empty) {
  if (share->on == nullptr || share->part != 0 || share->parts != 1 || rows.cap < 0)
    return SIE_INVALID_ARGUMENT;
  if (rows.cap > INT32_MAX || share->on->sm < oldest_sm) return SIE_UNSUPPORTED;
  *empty = rows.cap == 0;
  return SIE_OK;
}

// Whether t is a tensor of c columns; only in an empty call may it be absent.
inline bool valid_rows(const sie_tensor &t, int64_t c, bool empty) {
  return t.ld >= c && (empty || t.p != nullptr);
}

// Whether any required pointer is NULL; in an empty call they may be.
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

// Calls launch(RowShape<V, W>()) with the shape for rows of c ≤ row_columns_max columns: by c
// alone.
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

// The CTAs of row_threads that an SM shall hold, by the octets of a thread: this bounds the
// registers. 16 to 40 warps with 2·V loads of 512 bytes in flight each keep some 80 KiB in flight,
// four times what the memory's latency needs.
constexpr int row_min_blocks(Storage s, int v) {
  if (s == Storage::any) return v > 4 ? 1 : 2;
  // The same code needs some more registers on Blackwell and with older compilers: with 80 it
  // spills.
#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000) || (defined(__CUDACC__) && __CUDACC_VER_MAJOR__ < 13)
  if (v > 2) return 2;
#endif
  return v > 4 ? 2 : (v > 2 ? 3 : 5);
}

inline uint32_t row_grid(int64_t rows, int warps_per_row) {
  const int64_t per_block = row_warps / warps_per_row;
  return static_cast<uint32_t>((rows + per_block - 1) / per_block);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ROW_LAUNCH_CUH
