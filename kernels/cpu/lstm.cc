// lstm — the recurrence of an LSTM over each sequence's rows, in one direction or both.
//   z = W_hh·h, one FMA chain an element, k ascending; z + gates[t]; c = σ(z_f)·c + σ(z_i)·tanh(z_g),
//   h = σ(z_o)·tanh(c), y[t] = h. h and c are f32 and begin at zero.
// Shapes   gates [R, 4H·D], W_hh [4H, H] packed as in linear_f32, y [R, H·D], D directions, row
//          strides ≥ columns; cu_seqlens [B+1]. H ≥ 1.
// Types    gates, y f32 | bf16, each its own; W_hh of class F32.
// Alias    none.
// Align    element; the packed weight 64 B.
// Share    sequences of each direction: two parts have a direction each.
// Scratch  2·H floats for each of kGroup sequences, 4H for each of kRows.
// Cost     8·R·H² flop a direction. A step reads W_hh once for each kRows sequences: 1 MB at H 256,
//          which stays in L2 and bounds a sequence alone.
// Plan     up to kGroup sequences of one direction take each step together, in tiles of kRows; a
//          sequence that ends gives its place to the last one. A sequence's bits do not depend on
//          its place, nor on those beside it.
// Error    a step adds sie_tol_dot of z and the rounding of math.h; the recurrence keeps the sum of
//          those below a small multiple of the largest one.
// Source   torch.nn.LSTM
#include "gemm_tile.h"
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kGroup = 64;

SIE_INLINE Vec sigmoid(Vec x) { return vset(1.0f) / (vset(1.0f) + vexp(vset(0.0f) - x)); }

SIE_INLINE Vec load_at(const sie_tensor &t, int64_t r, int64_t i, int64_t end) {
  return t.dtype == SIE_F32 ? vload_row(row_of<const float>(t, r), i, end)
                            : vload_row(row_of<const Bf16>(t, r), i, end);
}

// The sequences that are at work, and their states.
struct Group {
  int64_t count;
  int64_t row[kGroup], left[kGroup];  // the row of the next step, and the steps that are left
  float *h, *c;                       // [kGroup, H]
  float *z;                           // [kRows, 4H]
};

struct Direction {
  const sie_packed *w;
  int64_t gates, y;  // its first columns
  int64_t step;      // from a row to the next: 1 or −1
};

// z = h·W_hhᵀ for `rows` sequences.
void multiply(const sie_packed *w, const float *h, int64_t rows, float *z) {
  const int64_t vectors = (w->n + kLanes - 1) / kLanes;
  const float *b = static_cast<const float *>(w->data);
  alignas(64) float last[kRows * kPanel];
  for (int64_t v = 0; v < vectors; v += kVecs, b += kPanel * w->k) {
    const int64_t width = vectors - v < kVecs ? vectors - v : kVecs, n = v * kLanes;
    if (n + width * kLanes <= w->n) {
      multiply_tile(rows, width, h, w->k, b, width * kLanes, w->k, z + n, w->n);
      continue;
    }
    multiply_tile(rows, width, h, w->k, b, width * kLanes, w->k, last, kPanel);
    for (int64_t m = 0; m < rows; m++) {
      memcpy(z + m * w->n + n, last + m * kPanel, static_cast<size_t>(w->n - n) * sizeof(float));
    }
  }
}

// Takes the step of one sequence, whose product is z[4H].
template <typename Y>
void step(const sie_lstm_args *a, const Direction &d, int64_t row, const float *z, float *h, float *c) {
  const int64_t n = a->h;
  sie_tensor gates = a->gates;
  const int64_t size = gates.dtype == SIE_F32 ? 4 : 2;
  Y *const y = row_of<Y>(a->y, row) + d.y;
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec x[4];
    for (int64_t g = 0; g < 4; g++) {
      gates.p = static_cast<char *>(a->gates.p) + (d.gates + g * n) * size;
      x[g] = vload_row(z + g * n, i, n) + load_at(gates, row, i, n);
    }
    const Vec cell = vfma(sigmoid(x[1]), vload_row(c, i, n), sigmoid(x[0]) * vtanh(x[2]));
    const Vec state = sigmoid(x[3]) * vtanh(cell);
    vstore_row(c, i, n, cell);
    vstore_row(h, i, n, state);
    vstore_row(y, i, n, state);
  }
}

// Takes a step of every sequence; those that end leave the group.
void advance(const sie_lstm_args *a, const Direction &d, Group *g) {
  const int64_t n = a->h, tiles = tile_count(g->count);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t from = tile_start(g->count, tiles, i), end = tile_start(g->count, tiles, i + 1);
    multiply(d.w, g->h + from * n, end - from, g->z);
    for (int64_t s = from; s < end; s++) {
      const float *z = g->z + (s - from) * 4 * n;
      if (a->y.dtype == SIE_F32) {
        step<float>(a, d, g->row[s], z, g->h + s * n, g->c + s * n);
      } else {
        step<Bf16>(a, d, g->row[s], z, g->h + s * n, g->c + s * n);
      }
      g->row[s] += d.step;
      g->left[s]--;
    }
  }
  for (int64_t s = g->count - 1; s >= 0; s--) {
    if (g->left[s] > 0) continue;
    const int64_t last = --g->count;
    if (s == last) continue;
    g->row[s] = g->row[last];
    g->left[s] = g->left[last];
    memcpy(g->h + s * n, g->h + last * n, static_cast<size_t>(n) * sizeof(float));
    memcpy(g->c + s * n, g->c + last * n, static_cast<size_t>(n) * sizeof(float));
  }
}

// Runs sequences [first, end) in one direction, as many at once as a group has room for.
void run(const sie_lstm_args *a, const Direction &d, int64_t first, int64_t end, Group *g) {
  for (int64_t b = first; b < end;) {
    for (g->count = 0; b < end && g->count < kGroup; b++) {
      const int64_t length = a->cu_seqlens[b + 1] - a->cu_seqlens[b];
      if (length == 0) continue;
      g->row[g->count] = d.step > 0 ? a->cu_seqlens[b] : a->cu_seqlens[b + 1] - 1;
      g->left[g->count++] = length;
    }
    memset(g->h, 0, static_cast<size_t>(g->count * a->h) * sizeof(float));
    memset(g->c, 0, static_cast<size_t>(g->count * a->h) * sizeof(float));
    while (g->count > 0) advance(a, d, g);
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
  Group group;
  group.h = static_cast<float *>(share->scratch);
  group.c = group.h + kGroup * a->h;
  group.z = group.c + kGroup * a->h;
  const int64_t seqs = *a->seqs.n, ahead = a->w != nullptr ? 1 : 0, back = a->w_reverse != nullptr ? 1 : 0;
  const Range units = share_of(seqs * (ahead + back), share);
  for (int64_t place = 0; place < ahead + back; place++) {
    const bool reverse = ahead == 0 || place > 0;
    const Direction d = {reverse ? a->w_reverse : a->w, place * 4 * a->h, place * a->h, reverse ? -1 : 1};
    const int64_t first = units.first - place * seqs, end = units.last - place * seqs;
    run(a, d, first > 0 ? first : 0, end < seqs ? end : seqs, &group);
  }
  return SIE_OK;
}

int64_t lstm_scratch(const sie_op_bounds *bounds) {
  return float_bytes((2 * kGroup + 4 * kRows) * bounds->k);
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
