// lstm — the recurrence of an LSTM over each sequence's rows, in one direction or both.
//   z = gates[t] + W_hh·h, c = σ(z_f)·c + σ(z_i)·tanh(z_g), h = σ(z_o)·tanh(c), y[t] = h; h and c
//   begin at zero. All in double; y is rounded once to f32, then to its type.
// Shapes   gates [R, 4H·D], W_hh [4H, H] packed as in linear, y [R, H·D], D directions; cu_seqlens
//          [B+1].
// Types    gates, y f32 | bf16 | f16, each its own; W_hh of class F32.
// Alias    none.
// Share    sequences of each direction.
// Scratch  6·H doubles.
// Source   torch.nn.LSTM
#include "rows.h"

namespace sie_ref {

namespace {

double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// One sequence in one direction, which is number `place` of those that are there.
void run(const sie_lstm_args *a, const sie_packed *w, int64_t place, bool reverse, int64_t b,
         double *scratch) {
  const int64_t h = a->h, first = a->cu_seqlens[b], end = a->cu_seqlens[b + 1];
  const float *weight = static_cast<const float *>(w->data);
  double *state = scratch, *cell = scratch + h, *z = scratch + 2 * h;
  for (int64_t j = 0; j < h; j++) state[j] = cell[j] = 0;
  for (int64_t i = 0; i < end - first; i++) {
    const int64_t t = reverse ? end - 1 - i : first + i;
    for (int64_t n = 0; n < 4 * h; n++) {
      z[n] = load(a->gates, t, place * 4 * h + n);
      for (int64_t k = 0; k < h; k++) z[n] += static_cast<double>(weight[n * h + k]) * state[k];
    }
    for (int64_t j = 0; j < h; j++) {
      cell[j] = sigmoid(z[h + j]) * cell[j] + sigmoid(z[j]) * tanh(z[2 * h + j]);
      state[j] = sigmoid(z[3 * h + j]) * tanh(cell[j]);
      store(a->y, t, place * h + j, static_cast<float>(state[j]));
    }
  }
}

bool fits(const sie_lstm_args *a, const sie_packed *w) {
  return w == nullptr || (w->compute == SIE_COMPUTE_F32 && w->n == 4 * a->h && w->k == a->h);
}

}  // namespace

sie_status lstm(const sie_lstm_args *a, const sie_share *share) {
  if (!is_float(a->gates.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  if (!fits(a, a->w) || !fits(a, a->w_reverse) || (a->w == nullptr && a->w_reverse == nullptr)) {
    return SIE_INVALID_ARGUMENT;
  }
  const int64_t seqs = *a->seqs.n, ahead = a->w != nullptr ? 1 : 0, back = a->w_reverse != nullptr ? 1 : 0;
  const Range units = share_of(seqs * (ahead + back), share);
  for (int64_t u = units.first; u < units.last; u++) {
    const bool reverse = ahead == 0 || u >= seqs;
    run(a, reverse ? a->w_reverse : a->w, u / seqs, reverse, u % seqs, static_cast<double *>(share->scratch));
  }
  return SIE_OK;
}

int64_t lstm_scratch(const sie_op_bounds *bounds) { return bounds->k * 6 * 8; }

}  // namespace sie_ref
