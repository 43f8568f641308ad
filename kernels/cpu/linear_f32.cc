// linear_f32 — y = act(x·Wᵀ + addend + bias) + residual in class F32, or g(even columns)·(odd
// columns) + residual.
//   z = Σ x[r,k]·W[n,k], one FMA chain a result, k ascending; then addend, bias, act or gate,
//   residual, one conversion
// Shapes   x [R, K], W [N, K] packed, bias [N], addend [R, N], residual, y [R, N], with a gate
//          [R, N/2]; row strides ≥ columns. R ≥ 0, N, K ≥ 1.
// Types    x, addend f32; residual f32 | bf16; y f32 | bf16 | u8 (rows quantised after act and
//          residual).
// Alias    residual may be y when the types agree.
// Align    element; the packed weight 64 B.
// Share    a grid of columns, then rows; rows alone when y is u8.
// Scratch  kRows·N floats when y is u8.
// Packed   panels of kPanel columns as [K][kPanel]; the last panel is as many vectors wide as it
//          needs.
// Cost     2·R·N·K flop. The FMA ports bound many rows; streaming W once from L3 or memory bounds
//          few rows.
// Plan     blocks of kBlockTiles tiles; in each, panel by panel, all its rows in tiles of kRows: x
//          and the panel stay in L2, the tile's rows in L1. The tile adds bias and residual itself
//          where nothing else is asked for; otherwise the epilogue works on the tile while it is in
//          L1.
// Error    |z − ref| ≤ K·2⁻²⁴·Σ|x·w| at worst, ~√K of it in practice; act as math.h says.
#include "gemm_tile.h"
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kBlockTiles = 144 / kRows;
constexpr int64_t kSharers = 6;  // tiles that can bring a panel, at a line for two of its rows

// A range of columns inside one panel: vectors [first, first + vecs) of the panel that starts at
// column n0.
struct Columns {
  const float *b;
  int64_t ldb, n, vecs;
};

int64_t vectors_of(int64_t n) { return (n + kLanes - 1) / kLanes; }

// The columns of vectors [v, end) that lie in v's panel.
Columns columns_at(const sie_packed *w, int64_t v, int64_t end) {
  const int64_t panel = v / kVecs, in_panel = v % kVecs, all = vectors_of(w->n);
  const int64_t width = all - panel * kVecs < kVecs ? all - panel * kVecs : kVecs;
  const int64_t last = end - panel * kVecs < width ? end - panel * kVecs : width;
  const float *b = static_cast<const float *>(w->data) + panel * kPanel * w->k + in_panel * kLanes;
  return {b, width * kLanes, v * kLanes, last - in_panel};
}

// y = act(z + bias) + residual over columns [n, end) of `rows` rows; z starts at column n, its rows
// are kPanel apart. Act and the residual's type are template parameters, so that the loop over a
// panel's vectors has no branches.
template <int32_t Act, typename R, typename Y>
void finish_rows(const sie_linear_args *a, const float *z, int64_t row, int64_t rows, int64_t n, int64_t end,
                 Y *y, int64_t ldy) {
  const Vec none = vset(0.0f);
  Vec bias[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; v++) {
    const int64_t i = n + v * kLanes;
    bias[v] = a->bias != nullptr && i < end ? vload_row(a->bias, i, end) : none;
  }
  const bool whole = end - n == kPanel;
  for (int64_t m = 0; m < rows; m++, z += kPanel, y += ldy) {
    const R *residual = a->residual.p != nullptr ? row_of<const R>(a->residual, row + m) : nullptr;
    if (whole) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; v++) {
        Vec x = activate<Act>(vload(z + v * kLanes) + bias[v]);
        if (residual != nullptr) x = x + vload(residual + n + v * kLanes);
        vstore(y + n + v * kLanes, x);
      }
      continue;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; v++) {
      const int64_t i = n + v * kLanes;
      if (i >= end) break;
      Vec x = activate<Act>(vload(z + v * kLanes) + bias[v]);
      if (residual != nullptr) x = x + vload_row(residual, i, end);
      vstore_row(y, i, end, x);
    }
  }
}

template <int32_t Act, typename R, typename Y>
void finish_gated(const sie_linear_args *a, const float *z, int64_t row, int64_t rows, int64_t n, int64_t end,
                  Y *y, int64_t ldy) {
  for (int64_t m = 0; m < rows; m++, z += kPanel, y += ldy) {
    const R *residual = a->residual.p != nullptr ? row_of<const R>(a->residual, row + m) : nullptr;
    for (int64_t i = n; i < end; i += 2 * kLanes) {
      // Two vectors, or the last one; columns beyond `end` are not stored.
      const int64_t two = i + 2 * kLanes, last = two < end ? two : end;
      Vec in[2] = {vset(0.0f), vset(0.0f)}, gate, up;
      for (int v = 0; v < 2 && i + v * kLanes < last; v++) {
        in[v] = vload(z + (i - n) + v * kLanes);
        if (a->bias != nullptr) in[v] = in[v] + vload_row(a->bias, i + v * kLanes, last);
      }
      vsplit_pairs(in[0], in[1], &gate, &up);
      Vec x = activate<Act>(gate) * up;
      if (residual != nullptr) x = x + vload_row(residual, i / 2, last / 2);
      vstore_row(y, i / 2, last / 2, x);
    }
  }
}

template <typename R, typename Y>
void finish(const sie_linear_args *a, const float *z, int64_t row, int64_t rows, int64_t n, int64_t end, Y *y,
            int64_t ldy) {
  switch (a->gate) {
    case SIE_GATE_SWIGLU:
      return finish_gated<SIE_ACT_SILU, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_GATE_GEGLU:
      return finish_gated<SIE_ACT_GELU_ERF, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_GATE_GEGLU_TANH:
      return finish_gated<SIE_ACT_GELU_TANH, R>(a, z, row, rows, n, end, y, ldy);
    default:
      break;
  }
  switch (a->act) {
    case SIE_ACT_GELU_ERF:
      return finish_rows<SIE_ACT_GELU_ERF, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_ACT_TANH:
      return finish_rows<SIE_ACT_TANH, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_ACT_GELU_TANH:
      return finish_rows<SIE_ACT_GELU_TANH, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_ACT_RELU:
      return finish_rows<SIE_ACT_RELU, R>(a, z, row, rows, n, end, y, ldy);
    case SIE_ACT_SILU:
      return finish_rows<SIE_ACT_SILU, R>(a, z, row, rows, n, end, y, ldy);
    default:
      return finish_rows<SIE_ACT_NONE, R>(a, z, row, rows, n, end, y, ldy);
  }
}

// z += addend over columns [n, end) of `rows` rows of a finished tile.
void add_addend(const sie_linear_args *a, int64_t row, int64_t rows, int64_t n, int64_t end, float *z) {
  for (int64_t m = 0; m < rows; m++, z += kPanel) {
    const float *addend = row_of<const float>(a->addend, row + m) + n;
    for (int64_t i = 0; i < end - n; i += kLanes) {
      vstore(z + i, vload(z + i) + vload_row(addend, i, end - n));  // z has room for whole vectors
    }
  }
}

struct Fetch {
  Reach reach;
  int64_t ahead;
  const float *next;
  int64_t step;
};

// What tile i of a panel's `tiles` fetches. With few tiles the panel has to come from L3 or memory,
// so the first tile reaches far ahead. With many tiles the panel is in L2 already, and each tile
// brings a part of the next panel there, so that the stream from memory never pauses.
Fetch fetch_of(const Columns &columns, int64_t k, int64_t i, int64_t tiles) {
  if (tiles < kSharers) return {i == 0 ? kStream : kHere, 24 * columns.ldb, nullptr, 0};
  const int64_t step = (2 * columns.ldb + tiles - 1) / tiles;
  return {kShare, 0, columns.b + k * columns.ldb + k / 2 * i * step, step};
}

// Prefetches the lines of y into L2 while the product runs; otherwise its stores would wait for
// them. Not into L1: that many lines at once would hold up the loads of the product.
template <typename Y>
void fetch_result(const Y *y, int64_t ldy, int64_t rows, int64_t columns) {
  constexpr int64_t line = 64 / sizeof(Y);
  for (int64_t m = 0; m < rows; m++, y += ldy) {
    for (int64_t i = 0; i < columns; i += line) {
      fetch_far(y + i);
    }
  }
}

// Whether y is the product plus bias and residual only; the tile then adds them itself, with the
// same bits.
template <typename Y>
bool is_plain(const sie_linear_args *a) {
  return sizeof(Y) == sizeof(float) && a->bias != nullptr && a->act == SIE_ACT_NONE &&
         a->gate == SIE_GATE_NONE && a->addend.p == nullptr &&
         (a->residual.p == nullptr || a->residual.dtype == SIE_F32);
}

// One tile of the product and its epilogue into y, whose row 0 is row `row` of the operation.
template <typename Y>
void finish_tile(const sie_linear_args *a, const Columns &columns, const Fetch &fetch, int64_t row,
                 int64_t rows, Y *y, int64_t ldy) {
  alignas(64) float z[kRows * kPanel];
  const int64_t n = columns.n, whole = n + columns.vecs * kLanes, end = whole < a->n ? whole : a->n;
  const int64_t each = a->gate != SIE_GATE_NONE ? 2 : 1;  // columns of z for one of y
  fetch_result(y + n / each, ldy, rows, (end - n) / each);
  TileArgs tile = {row_of<const float>(a->x, row),
                   a->x.ld,
                   columns.b,
                   columns.ldb,
                   a->k,
                   z,
                   kPanel,
                   nullptr,
                   nullptr,
                   0,
                   fetch.ahead,
                   fetch.next,
                   fetch.step};
  if (is_plain<Y>(a) && end == whole) {
    tile.c = reinterpret_cast<float *>(y) + n;
    tile.ldc = ldy;
    tile.bias = a->bias + n;
    if (a->residual.p != nullptr) {
      tile.residual = row_of<const float>(a->residual, row) + n;
      tile.ldr = a->residual.ld;
    }
    return multiply_tile(fetch.reach, rows, columns.vecs, tile);
  }
  multiply_tile(fetch.reach, rows, columns.vecs, tile);
  if (a->addend.p != nullptr) add_addend(a, row, rows, n, end, z);
  if (a->residual.dtype == SIE_BF16) {
    finish<Bf16>(a, z, row, rows, n, end, y, ldy);
  } else {
    finish<float>(a, z, row, rows, n, end, y, ldy);
  }
}

// Multiplies rows × vectors of columns in blocks of tiles, all panels of the range for each block;
// a block's x and y and the panel share L2 with room to spare. Each block streams the weights once
// more. Rows are dealt out to tiles first, so that all but a few tiles are full: a tile of fewer
// rows reads as much of the panel.
template <typename Y>
void multiply(const sie_linear_args *a, Range rows, Range vectors) {
  const int64_t count = rows.last - rows.first, tiles = tile_count(count),
                blocks = (tiles + kBlockTiles - 1) / kBlockTiles;
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t first = tiles * block / blocks, end = tiles * (block + 1) / blocks;
    for (int64_t v = vectors.first; v < vectors.last;) {
      const Columns columns = columns_at(a->w, v, vectors.last);
      for (int64_t i = first; i < end; i++) {
        const int64_t row = rows.first + tile_start(count, tiles, i),
                      next = rows.first + tile_start(count, tiles, i + 1);
        finish_tile(a, columns, fetch_of(columns, a->k, i - first, end - first), row, next - row,
                    row_of<Y>(a->y, row), a->y.ld);
      }
      v += columns.vecs;
    }
  }
}

// Whole rows, one tile of them at a time; each row is quantised when it is complete.
void multiply_quantised(const sie_linear_args *a, Range rows, float *scratch) {
  const int64_t count = rows.last - rows.first, tiles = tile_count(count), vectors = vectors_of(a->n),
                width = result_columns(a);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t row = rows.first + tile_start(count, tiles, i),
                  next = rows.first + tile_start(count, tiles, i + 1);
    for (int64_t v = 0; v < vectors;) {
      const Columns columns = columns_at(a->w, v, vectors);
      finish_tile(a, columns, fetch_of(columns, a->k, 0, 1), row, next - row, scratch, width);
      v += columns.vecs;
    }
    for (int64_t r = row; r < next; r++) {
      quantise_row(scratch + (r - row) * width, width, a->y, r);
    }
  }
}

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

sie_status linear_f32(const sie_linear_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32 || (!is_float(a->y.dtype) && a->y.dtype != SIE_U8)) return SIE_UNSUPPORTED;
  if (a->residual.p != nullptr && !is_float(a->residual.dtype)) return SIE_UNSUPPORTED;
  const int64_t rows = *a->rows.n;
  if (a->y.dtype == SIE_U8) {
    multiply_quantised(a, share_of(rows, share), static_cast<float *>(share->scratch));
    return SIE_OK;
  }
  // Whole panels when they divide well among the parts, single vectors otherwise; rows when columns
  // run out.
  const int64_t vectors = vectors_of(a->n), panels = (vectors + kVecs - 1) / kVecs;
  const bool by_panel = panels % share->parts == 0 || panels >= panels_of_share * share->parts;
  const int64_t units = by_panel ? panels : vectors, step = by_panel ? kVecs : 1;
  const int64_t across = smaller(share->parts, units), down = share->parts / across;
  const int64_t column = share->part % across, line = share->part / across;
  if (line >= down) return SIE_OK;
  const Range lines = {rows * line / down, rows * (line + 1) / down};
  const Range part = {units * column / across * step, smaller(units * (column + 1) / across * step, vectors)};
  if (a->y.dtype == SIE_F32) {
    multiply<float>(a, lines, part);
  } else {
    multiply<Bf16>(a, lines, part);
  }
  return SIE_OK;
}

int64_t linear_f32_scratch(const sie_op_bounds *bounds) {
  return kRows * bounds->n * static_cast<int64_t>(sizeof(float));
}

int64_t linear_f32_panel() { return kPanel; }

int64_t linear_f32_packed_bytes(int64_t n, int64_t k) {
  return vectors_of(n) * kLanes * k * static_cast<int64_t>(sizeof(float));
}

void linear_f32_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
                     void *dst) {
  const sie_packed packed = {SIE_COMPUTE_F32, 0, n, k, dst};
  // A vector of columns at a time, so that each line of dst is written whole.
  for (int64_t row = n0; row < n0 + rows;) {
    const int64_t v = row / kLanes, end = smaller((v + 1) * kLanes, n0 + rows);
    const Columns columns = columns_at(&packed, v, v + 1);
    float *out = static_cast<float *>(dst) + (columns.b - static_cast<const float *>(packed.data));
    for (int64_t i = 0; i < k; i++) {
      for (int64_t r = row; r < end; r++) out[i * columns.ldb + r % kLanes] = src[(r - n0) * ld + i];
    }
    row = end;
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
