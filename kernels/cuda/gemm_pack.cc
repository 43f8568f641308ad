// gemm_pack.cc — the layout of gemm_pack.h, and packing. Host code, no CUDA.
#include "cuda/gemm_pack.h"

#include <math.h>
#include <string.h>

#include "common/dtype.h"
#include "sie.h"

namespace sie_cuda {

namespace {

constexpr int64_t line_bytes = 128;
constexpr int64_t row_multiple = 128;

int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

void pack_16(uint32_t compute, const float *row, int64_t k, uint16_t *dst) {
  if (compute == SIE_COMPUTE_BF16) {
    for (int64_t i = 0; i < k; i++) dst[i] = sie_bf16_from_f32(row[i]);
  } else {
    for (int64_t i = 0; i < k; i++) dst[i] = sie_f16_from_f32(row[i]);
  }
}

float pack_e4m3(const float *row, int64_t k, uint8_t *dst) {
  float most = 0;
  for (int64_t i = 0; i < k; i++) most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
  float scale = sie_f8_scale(most), inverse = 1.0f / scale;
  for (int64_t i = 0; i < k; i++) dst[i] = sie_f8e4m3_from_f32(row[i] * inverse);
  return scale;
}

}  // namespace

bool gemm_layout(uint32_t compute, int64_t n, int64_t k, GemmLayout *layout) {
  const bool f32 = compute == SIE_COMPUTE_F32, fp8 = compute == SIE_COMPUTE_FP8;
  if (!f32 && !fp8 && compute != SIE_COMPUTE_BF16 && compute != SIE_COMPUTE_F16) return false;
  layout->element = f32 ? 4 : (fp8 ? 1 : 2);
  layout->n_padded = round_up(n, row_multiple);
  layout->k_padded = round_up(k, line_bytes / layout->element);
  int64_t rows = layout->n_padded * layout->k_padded * layout->element;
  layout->scale_offset = fp8 ? rows : -1;
  layout->bytes = rows + (fp8 ? layout->n_padded * static_cast<int64_t>(sizeof(float)) : 0);
  return true;
}

int64_t gemm_packed_bytes(uint32_t compute, int64_t n, int64_t k) {
  GemmLayout layout;
  return gemm_layout(compute, n, k, &layout) ? layout.bytes : -1;
}

void gemm_pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
               void *dst) {
  GemmLayout layout;
  if (!gemm_layout(compute, n, k, &layout)) return;
  uint8_t *bytes = static_cast<uint8_t *>(dst);
  for (int64_t i = 0; i < rows; i++) {
    uint8_t *row = bytes + (n0 + i) * layout.k_padded * layout.element;
    if (compute == SIE_COMPUTE_FP8) {
      reinterpret_cast<float *>(bytes + layout.scale_offset)[n0 + i] = pack_e4m3(src + i * ld, k, row);
    } else if (compute == SIE_COMPUTE_F32) {
      memcpy(row, src + i * ld, static_cast<size_t>(k) * sizeof(float));
    } else {
      pack_16(compute, src + i * ld, k, reinterpret_cast<uint16_t *>(row));
    }
  }
}

}  // namespace sie_cuda
