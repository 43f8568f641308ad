// output_rows — each sequence's row cut, divided by its L2 norm when asked, converted, written at its offset.
//   norm     x / max(√Σx², 1e-12), the sum in double, the quotient in f32, over the dims that are kept
//   F32 F16  the value                               I8   rint(x / s · 127), s = max|x| (0 counts as 1)
//   U8       rint((x − min) / r · 255), r = max − min (0 counts as 1)
//   BINARY   bit = x > 0, most significant first, the last byte's low bits zero
//   All in f32, divide before multiply, ties to even: the bits NumPy gives. A NaN becomes 0 in I8 and U8.
// Shapes   x [B, C], row stride ≥ C; items [B], dims ≤ C.   B ≥ 0, C ≥ 1.
// Types    x f32.                                  Alias    none.
// Align    element.                                Share    sequences.
// Scratch  C floats.                               Cost     4·C bytes read a row → memory bound.
// Plan     the cut, normalised row in scratch (L1), then one loop per type. Divides are true divides.
// Error    none after the norm; the norm's last bit may differ from another order of summation.
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

void divide_by_norm(float *x, int64_t dims) {
  double sum = 0;
  for (int64_t i = 0; i < dims; i += kLanes) sum += vsum_squares(vload_row(x, i, dims));
  const __m128d root = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(sum));
  float norm = static_cast<float>(_mm_cvtsd_f64(root));
  if (norm < 1e-12f) norm = 1e-12f;
  for (int64_t i = 0; i < dims; i += kLanes) vstore_row(x, i, dims, vload_row(x, i, dims) / vset(norm));
}

void store_bytes_row(uint8_t *out, int64_t i, int64_t dims, Vec v) {
  if (i + kLanes <= dims) {
    vstore_bytes(out + i, v);
  } else {
    vstore_bytes_part(out + i, v, dims - i);
  }
}

void write_i8(const float *x, int64_t dims, uint8_t *out) {
  Vec most = vset(0.0f);
  for (int64_t i = 0; i < dims; i += kLanes) most = vmax(vabs(vload_row(x, i, dims)), most);
  float s = vlargest(most);
  if (s == 0.0f) s = 1.0f;
  for (int64_t i = 0; i < dims; i += kLanes) {
    store_bytes_row(out, i, dims, vload_row(x, i, dims) / vset(s) * vset(127.0f));
  }
}

void write_u8(const float *x, int64_t dims, uint8_t *out) {
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

void write_half(const float *x, int64_t dims, uint16_t *out) {
  for (int64_t i = 0; i < dims; i += kLanes) {
    if (i + kLanes <= dims) {
      vstore_half(out + i, vload(x + i));
    } else {
      vstore_half_part(out + i, vload_part(x + i, dims - i), dims - i);
    }
  }
}

void write_binary(const float *x, int64_t dims, uint8_t *out) {
  for (int64_t i = 0; i < dims; i += kLanes) {
    uint32_t bits = vpositive(vload_row(x, i, dims));
    for (int64_t j = i; j < i + kLanes && j < dims; j += 8, bits >>= 8) {
      // Reverses the byte: lane 0 is its least significant bit, NumPy wants it the most.
      uint32_t byte = bits & 0xffu;
      byte = (byte & 0xf0u) >> 4 | (byte & 0x0fu) << 4;
      byte = (byte & 0xccu) >> 2 | (byte & 0x33u) << 2;
      byte = (byte & 0xaau) >> 1 | (byte & 0x55u) << 1;
      out[j / 8] = static_cast<uint8_t>(byte);
    }
  }
}

}  // namespace

sie_status output_rows(const sie_output_rows_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    const sie_out_item &item = a->items[b];
    const int64_t dims = item.dims != 0 ? item.dims : a->c;
    copy_row(row_of<const float>(a->x, b), dims, row);
    if (item.normalize != 0) divide_by_norm(row, dims);
    uint8_t *out = static_cast<uint8_t *>(a->out) + item.offset;
    switch (item.dtype) {
      case SIE_F32:
        copy_row(row, dims, reinterpret_cast<float *>(out));
        break;
      case SIE_F16:
        write_half(row, dims, reinterpret_cast<uint16_t *>(out));
        break;
      case SIE_I8:
        write_i8(row, dims, out);
        break;
      case SIE_U8:
        write_u8(row, dims, out);
        break;
      case SIE_BINARY:
        write_binary(row, dims, out);
        break;
      default:
        return SIE_UNSUPPORTED;
    }
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
