// output_row.h — normalises and converts one row of floats and writes it as its item says, for
// output_rows, pool_output and muvera. The formulas are at output_rows.cc.
#ifndef SIE_KERNELS_CPU_OUTPUT_ROW_H
#define SIE_KERNELS_CPU_OUTPUT_ROW_H

#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

static inline void divide_by_norm(float *x, int64_t dims) {
  double sum = 0;
  for (int64_t i = 0; i < dims; i += kLanes) sum += vsum_squares(vload_row(x, i, dims));
  float norm = static_cast<float>(square_root(sum));
  if (norm < 1e-12f) norm = 1e-12f;
  for (int64_t i = 0; i < dims; i += kLanes) vstore_row(x, i, dims, vload_row(x, i, dims) / vset(norm));
}

static inline void store_bytes_row(uint8_t *out, int64_t i, int64_t dims, Vec v) {
  if (i + kLanes <= dims) {
    vstore_bytes(out + i, v);
  } else {
    vstore_bytes_part(out + i, v, dims - i);
  }
}

static inline void write_i8(const float *x, int64_t dims, uint8_t *out) {
  Vec most = vset(0.0f);
  for (int64_t i = 0; i < dims; i += kLanes) most = vmax(vabs(vload_row(x, i, dims)), most);
  float s = vlargest(most);
  if (s == 0.0f) s = 1.0f;
  for (int64_t i = 0; i < dims; i += kLanes) {
    store_bytes_row(out, i, dims, vload_row(x, i, dims) / vset(s) * vset(127.0f));
  }
}

static inline void write_u8(const float *x, int64_t dims, uint8_t *out) {
  Vec lo = vset(x[0]), hi = vset(x[0]);
  for (int64_t i = 0; i < dims; i += kLanes) {
    // Lanes beyond the row take part as its first element.
    Vec v = i + kLanes <= dims ? vload(x + i) : vload_part_or(x + i, dims - i, vset(x[0]));
    lo = vmin(v, lo);
    hi = vmax(v, hi);
  }
  const Vec least = vset(vsmallest(lo));
  float r = vlargest(hi) - vsmallest(lo);
  if (r == 0.0f) r = 1.0f;
  for (int64_t i = 0; i < dims; i += kLanes) {
    store_bytes_row(out, i, dims, (vload_row(x, i, dims) - least) / vset(r) * vset(255.0f));
  }
}

static inline void write_half(const float *x, int64_t dims, uint16_t *out) {
  for (int64_t i = 0; i < dims; i += kLanes) {
    if (i + kLanes <= dims) {
      vstore_half(out + i, vload(x + i));
    } else {
      vstore_half_part(out + i, vload_part(x + i, dims - i), dims - i);
    }
  }
}

static inline void write_binary(const float *x, int64_t dims, uint8_t *out) {
  for (int64_t i = 0; i < dims; i += kLanes) {
    uint32_t bits = vpositive(vload_row(x, i, dims));
    for (int64_t j = i; j < i + kLanes && j < dims; j += 8, bits >>= 8) {
      // Reverses the byte: lane 0 is its least significant bit, but NumPy expects it in the most
      // significant one.
      uint32_t byte = bits & 0xffu;
      byte = (byte & 0xf0u) >> 4 | (byte & 0x0fu) << 4;
      byte = (byte & 0xccu) >> 2 | (byte & 0x33u) << 2;
      byte = (byte & 0xaau) >> 1 | (byte & 0x55u) << 1;
      out[j / 8] = static_cast<uint8_t>(byte);
    }
  }
}

// Writes the first dims (0: all c) of x, which it changes, to base + item.offset. Returns
// SIE_UNSUPPORTED for an unknown type.
static inline sie_status write_item(const sie_out_item &item, int64_t c, float *x, void *base) {
  const int64_t dims = item.dims != 0 ? item.dims : c;
  if (item.normalize != 0) divide_by_norm(x, dims);
  uint8_t *out = static_cast<uint8_t *>(base) + item.offset;
  switch (item.dtype) {
    case SIE_F32:
      copy_row(x, dims, reinterpret_cast<float *>(out));
      break;
    case SIE_F16:
      write_half(x, dims, reinterpret_cast<uint16_t *>(out));
      break;
    case SIE_I8:
      write_i8(x, dims, out);
      break;
    case SIE_U8:
      write_u8(x, dims, out);
      break;
    case SIE_BINARY:
      write_binary(x, dims, out);
      break;
    default:
      return SIE_UNSUPPORTED;
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_OUTPUT_ROW_H
