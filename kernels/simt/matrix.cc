#include "simt/matrix.h"

#include "simt/numbers.h"

namespace simt {

namespace {

struct Tables {
  float f16[65536];
  float e4m3[256];
  Tables() {
    for (uint32_t i = 0; i < 65536; i++) f16[i] = f32_from_f16(static_cast<uint16_t>(i));
    for (uint32_t i = 0; i < 256; i++) e4m3[i] = f32_from_e4m3(static_cast<uint8_t>(i));
  }
};

const Tables tables;

}  // namespace

void unpack(Element type, uint32_t bits, float *out, int32_t step) {
  switch (type) {
    case Element::bf16:
      out[0] = sie_f32_from_bits(bits << 16);
      out[step] = sie_f32_from_bits(bits & 0xffff0000u);
      break;
    case Element::f16:
      out[0] = tables.f16[bits & 0xffffu];
      out[step] = tables.f16[bits >> 16];
      break;
    case Element::e4m3:
      for (int32_t i = 0; i < 4; i++) out[i * step] = tables.e4m3[bits >> (8 * i) & 0xffu];
      break;
  }
}

void multiply(int32_t m, int32_t n, int32_t k, const float *__restrict a, const float *__restrict b,
              float *__restrict d) {
  // n is a multiple of 8: eight sums stay in registers along k.
  for (int32_t i = 0; i < m; i++) {
    for (int32_t j = 0; j < n; j += 8) {
      float sum[8];
      for (int32_t c = 0; c < 8; c++) sum[c] = d[i * n + j + c];
      for (int32_t l = 0; l < k; l++) {
        float x = a[i * k + l];
        for (int32_t c = 0; c < 8; c++) sum[c] += x * b[l * n + j + c];
      }
      for (int32_t c = 0; c < 8; c++) d[i * n + j + c] = sum[c];
    }
  }
}

}  // namespace simt
