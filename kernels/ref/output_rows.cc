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
// Shapes   x [B, C], row stride ≥ C; items [B].
// Types    x f32.
// Alias    none.
// Share    sequences.
// Scratch  C floats.
#include "rows.h"

namespace sie_ref {

namespace {

void write_i8(const float *x, int64_t dims, void *out) {
  float s = 0;
  for (int64_t i = 0; i < dims; i++) s = fabsf(x[i]) > s ? fabsf(x[i]) : s;
  if (s == 0) s = 1;
  for (int64_t i = 0; i < dims; i++) {
    float q = rintf(x[i] / s * 127.0f);
    static_cast<int8_t *>(out)[i] = static_cast<int8_t>(isnan(q) ? 0 : q);
  }
}

void write_u8(const float *x, int64_t dims, void *out) {
  float lo = x[0], hi = x[0];
  for (int64_t i = 1; i < dims; i++) {
    if (x[i] < lo) lo = x[i];
    if (x[i] > hi) hi = x[i];
  }
  float r = hi - lo;
  if (r == 0) r = 1;
  for (int64_t i = 0; i < dims; i++)
    static_cast<uint8_t *>(out)[i] = clamp_u8(rintf((x[i] - lo) / r * 255.0f));
}

void write_binary(const float *x, int64_t dims, void *out) {
  for (int64_t first = 0; first < dims; first += 8) {
    uint32_t byte = 0;
    for (int64_t i = first; i < dims && i < first + 8; i++) byte |= x[i] > 0 ? 0x80u >> (i - first) : 0;
    static_cast<uint8_t *>(out)[first / 8] = static_cast<uint8_t>(byte);
  }
}

}  // namespace

sie_status write_item(const sie_out_item &item, int64_t c, float *x, void *base) {
  int64_t dims = item.dims != 0 ? item.dims : c;
  if (item.normalize != 0) {
    double sum = 0;
    for (int64_t i = 0; i < dims; i++) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    float norm = static_cast<float>(sqrt(sum));
    if (norm < 1e-12f) norm = 1e-12f;
    for (int64_t i = 0; i < dims; i++) x[i] /= norm;
  }
  void *out = static_cast<char *>(base) + item.offset;
  switch (item.dtype) {
    case SIE_F32:
      memcpy(out, x, static_cast<size_t>(dims) * sizeof(float));
      return SIE_OK;
    case SIE_F16:
      for (int64_t i = 0; i < dims; i++) static_cast<uint16_t *>(out)[i] = sie_f16_from_f32(x[i]);
      return SIE_OK;
    case SIE_I8:
      write_i8(x, dims, out);
      return SIE_OK;
    case SIE_U8:
      write_u8(x, dims, out);
      return SIE_OK;
    case SIE_BINARY:
      write_binary(x, dims, out);
      return SIE_OK;
    default:
      return SIE_UNSUPPORTED;
  }
}

sie_status output_rows(const sie_output_rows_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    memcpy(row, static_cast<const float *>(a->x.p) + b * a->x.ld, static_cast<size_t>(a->c) * sizeof(float));
    sie_status status = write_item(a->items[b], a->c, row, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace sie_ref
