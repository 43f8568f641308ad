// tma.h — the tensor memory accelerator (sm_90): boxes of a tensor between global and shared
// memory, by one thread.
//
// A load writes its box into shared memory, row by row in the tensor map's swizzle, and reports the
// box's bytes to an mbarrier; elements outside the tensor come as zeros and count. A store writes
// what lies inside. Swizzles permute the 16-byte chunks of rows of 128, 64 or 32 bytes by the row:
//   b128: chunk ^= row % 8   b64: chunk ^= row/2 % 4   b32: chunk ^= row/4 % 2
// where row counts from an address that is a multiple of 1024, 512 or 256 bytes, which the box is
// aligned to (none: 128). wgmma reads the same layouts (wgmma.h). Between issue and the barrier's
// phase the destination is undefined: the emulator poisons it and writes at a random moment.
// Source: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 9.0, cp.async.bulk.tensor.
#ifndef SIE_KERNELS_CUDA_PTX_TMA_H
#define SIE_KERNELS_CUDA_PTX_TMA_H

#include "cuda/ptx/device.h"
#include "ops.h"

#ifdef __CUDACC__
#include <cuda.h>
#endif

namespace ptx {

enum class Swizzle : int32_t { none = 0, b32 = 1, b64 = 2, b128 = 3 };

// Bytes of a row of the swizzle's atom of eight rows; without a swizzle, of a core matrix of wgmma.
__host__ __device__ constexpr int32_t swizzle_row_bytes(Swizzle swizzle) {
  return 16 << static_cast<int32_t>(swizzle);
}

// 128 bytes, 64-byte aligned; a kernel takes it as `const __grid_constant__ ptx::TensorMap map`.
#ifdef __CUDACC__
using TensorMap = CUtensorMap;
#else
using TensorMap = simt::TensorMap;
#endif

// ---- host side: describing a tensor

// A matrix [rows, columns] of row stride ld elements, and boxes of [box_rows, box_columns] of it.
//   dtype     SIE_F32, SIE_F16, SIE_BF16, SIE_F8E4M3 or SIE_U8
//   p         16-byte aligned, kept: valid while kernels use the map; ld·element a multiple of
//             16 bytes
//   box       each extent 1 … 256; a box row has the bytes of the swizzle (128, 64, 32; none: a
//             multiple of 16)
// SIE_INVALID_ARGUMENT where a rule is broken; SIE_UNSUPPORTED: the driver cannot (a device before
// sm_90).
inline sie_status tensor_map_2d(TensorMap *map, int32_t dtype, const void *p, int64_t rows, int64_t columns,
                                int64_t ld, int32_t box_rows, int32_t box_columns, Swizzle swizzle);

// The same with three dimensions, innermost first; stride[0] (elements) belongs to extent[1],
// stride[1] to extent[2].
inline sie_status tensor_map_3d(TensorMap *map, int32_t dtype, const void *p, const int64_t (&extent)[3],
                                const int64_t (&stride)[2], const int32_t (&box)[3], Swizzle swizzle);

// ---- device side; one thread issues

// Brings the map to where TMA reads it; a hint. The map is a kernel's parameter: no wait goes before it.
SIE_DEVICE void tma_prefetch(const TensorMap *map) {
#ifdef __CUDACC__
#if SIE_PTX_SM90
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
#else
  simt::require(90, "prefetch.tensormap");
  if (map->magic == 0) simt::fail("prefetch of a tensor map that was never encoded");
#endif
}

// The box whose first element is (row, column); both may be negative or beyond the tensor.
SIE_DEVICE void tma_load_2d(void *shared, const TensorMap *map, int32_t row, int32_t column,
                            uint64_t *barrier) {
#ifndef __CUDACC__
  const int32_t at[3] = {column, row, 0};
  simt::tma_load(shared, map, 2, at, barrier, 0);
#elif SIE_PTX_SM90
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
#else
  unsupported();
#endif
}

// Coordinates innermost first: c0 belongs to extent[0].
SIE_DEVICE void tma_load_3d(void *shared, const TensorMap *map, int32_t c0, int32_t c1, int32_t c2,
                            uint64_t *barrier) {
#ifndef __CUDACC__
  const int32_t at[3] = {c0, c1, c2};
  simt::tma_load(shared, map, 3, at, barrier, 0);
#elif SIE_PTX_SM90
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
#else
  unsupported();
#endif
}

// Loads the box to the same place in each CTA of the cluster whose bit is set; each CTA's own
// barrier (at the same place as `barrier`) counts the box's bytes.
SIE_DEVICE void tma_load_2d_multicast(void *shared, const TensorMap *map, int32_t row, int32_t column,
                                      uint64_t *barrier, uint16_t ctas) {
#ifndef __CUDACC__
  const int32_t at[3] = {column, row, 0};
  simt::tma_load(shared, map, 2, at, barrier, ctas);
#elif SIE_PTX_SM90
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, "
      "%4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(ctas)
      : "memory");
#else
  unsupported();
#endif
}

// `bytes` contiguous bytes, a multiple of 16, both addresses 16-byte aligned; no tensor map.
SIE_DEVICE void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier) {
#ifndef __CUDACC__
  simt::bulk_load(shared, global, bytes, barrier);
#elif SIE_PTX_SM90
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#else
  unsupported();
#endif
}

// Stores the box from shared memory; elements outside the tensor are left out. Before it every
// thread that wrote the box calls fence_proxy_async, and a barrier follows. The issuing thread
// commits and waits.
SIE_DEVICE void tma_store_2d(const TensorMap *map, const void *shared, int32_t row, int32_t column) {
#ifndef __CUDACC__
  const int32_t at[3] = {column, row, 0};
  simt::tma_store(map, 2, at, shared);
#elif SIE_PTX_SM90
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(shared)), "r"(column), "r"(row)
               : "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void tma_store_commit() {
#ifndef __CUDACC__
  simt::tma_store_commit();
#elif SIE_PTX_SM90
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  unsupported();
#endif
}

// Returns when at most the N youngest groups still read their shared memory; the memory of the
// others may then be overwritten.
template <int N>
SIE_DEVICE void tma_store_wait_read() {
#ifndef __CUDACC__
  simt::tma_store_wait(N, true);
#elif SIE_PTX_SM90
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
#else
  unsupported();
#endif
}

// Returns when at most the N youngest groups are not yet written; <0> before the issuing thread
// exits.
template <int N>
SIE_DEVICE void tma_store_wait() {
#ifndef __CUDACC__
  simt::tma_store_wait(N, false);
#elif SIE_PTX_SM90
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
#else
  unsupported();
#endif
}

// ---- host side, implementation

#ifdef __CUDACC__

// The driver's encoder, found through the runtime so that libcuda is not linked.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  void *entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
#else
  cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

inline sie_status encode_tensor_map(TensorMap *map, int32_t dtype, const void *p, int32_t rank,
                                    const int64_t *extent, const int64_t *stride, const int32_t *box,
                                    Swizzle swizzle) {
  CUtensorMapDataType type;
  uint64_t element;
  switch (dtype) {
    case SIE_F32:
      type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, element = 4;
      break;
    case SIE_F16:
      type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16, element = 2;
      break;
    case SIE_BF16:
      type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, element = 2;
      break;
    case SIE_F8E4M3:
    case SIE_U8:
      type = CU_TENSOR_MAP_DATA_TYPE_UINT8, element = 1;
      break;
    default:
      return SIE_INVALID_ARGUMENT;
  }
  uint64_t row = static_cast<uint64_t>(box[0]) * element;
  if (swizzle == Swizzle::none ? row % 16 != 0 : row != static_cast<uint64_t>(swizzle_row_bytes(swizzle)))
    return SIE_INVALID_ARGUMENT;
  auto encode = tensor_map_encoder();
  if (encode == nullptr) return SIE_UNSUPPORTED;
  cuuint64_t extents[3], strides[2];
  cuuint32_t boxes[3], steps[3];
  for (int32_t i = 0; i < rank; i++) {
    if (extent[i] < 1 || box[i] < 1) return SIE_INVALID_ARGUMENT;
    extents[i] = static_cast<cuuint64_t>(extent[i]);
    boxes[i] = static_cast<cuuint32_t>(box[i]);
    steps[i] = 1;
    if (i + 1 < rank) strides[i] = static_cast<cuuint64_t>(stride[i]) * element;
  }
  CUresult result =
      encode(map, type, static_cast<cuuint32_t>(rank), const_cast<void *>(p), extents, strides, boxes, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return SIE_OK;
  return result == CUDA_ERROR_INVALID_VALUE ? SIE_INVALID_ARGUMENT : SIE_UNSUPPORTED;
}

#else

inline sie_status encode_tensor_map(TensorMap *map, int32_t dtype, const void *p, int32_t rank,
                                    const int64_t *extent, const int64_t *stride, const int32_t *box,
                                    Swizzle swizzle) {
  return simt::encode_tensor_map(map, dtype, p, rank, extent, stride, box, static_cast<int32_t>(swizzle));
}

#endif

inline sie_status tensor_map_2d(TensorMap *map, int32_t dtype, const void *p, int64_t rows, int64_t columns,
                                int64_t ld, int32_t box_rows, int32_t box_columns, Swizzle swizzle) {
  const int64_t extent[2] = {columns, rows}, stride[1] = {ld};
  const int32_t box[2] = {box_columns, box_rows};
  return encode_tensor_map(map, dtype, p, 2, extent, stride, box, swizzle);
}

inline sie_status tensor_map_3d(TensorMap *map, int32_t dtype, const void *p, const int64_t (&extent)[3],
                                const int64_t (&stride)[2], const int32_t (&box)[3], Swizzle swizzle) {
  return encode_tensor_map(map, dtype, p, 3, extent, stride, box, swizzle);
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_TMA_H
