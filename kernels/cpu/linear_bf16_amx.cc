// linear_bf16_amx — y = act(x·Wᵀ + bias) + residual, bf16 operands, f32 sums, on AMX tiles.
// Shapes   x [R, K], W packed [N, K], residual, y [R, N], row-major, strides ≥ columns.   R ≥ 0 any; N, K ≥ 1 any.
// Types    x bf16; bias f32; residual f32 | bf16; y f32 | bf16 (nearest even).  Alias: residual may be y.
// Align    packed data 64 B; rows any (64 B rows load fastest).
// Cost     2·R·N·K flop; a pair of 16 × 16 × 32 tile products is 1,024 flop a cycle. W is read once for R ≤ 512.
// Plan     panels of 32 columns (64·K bytes, kept in the cache) outside, blocks of 32 rows inside, 2 × 2
//          accumulator tiles, K innermost in steps of 32. A block's epilogue runs between the tile
//          instructions of the next block. Row tails use tiles of fewer rows; the K tail of x is copied to scratch
//          with zeros, so nothing beyond a row enters a sum.
// Numeric  one chain over K per output element, in steps of 32 and in the unit's order inside a step: rows,
//          blocks, panels and shares do not change it. The unit treats denormals as zero.
// Error    one f32 chain of K products, exact products; then as fast_math_avx512.h; then rounding to y's type.
// Source   Intel AMX, 64-ia-32 optimisation reference manual, chapter "Intel AMX".
#include "amx_tile.h"
#include "epilogue_avx512.h"
#include "kernels_amx.h"

namespace sie_cpu {
namespace {

enum { kStepK = 32, kStepBytes = 2048 }; /* one K step of a panel: two tiles */

/* Rows of x that pass over a panel while they stay in the second-level cache: half of 2 MB. */
int64_t slab_rows(int64_t k) {
  const int64_t rows = (1 << 20) / (2 * k) / kBlockRows * kBlockRows;
  return rows < 2 * kBlockRows ? 2 * kBlockRows : rows;
}

int64_t round_up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

uint16_t bf16_from_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* A finished product that still waits for its epilogue. */
struct Pending {
  const float *sums; /* [32][32] */
  int rows, next;    /* rows [next, rows) are to do */
  ColumnMask mask;
  __m512 bias0, bias1;
  const char *residual; /* of row 0, first column of the panel */
  char *y;
  int64_t residual_ld, y_ld; /* bytes */
  int32_t act;
};

template <int Act, int Residual, int Out> inline void finish_rows(Pending *p, int to) {
  for (int r = p->next; r < to; r++) {
    const __m512 x0 = _mm512_add_ps(_mm512_load_ps(p->sums + 32 * r), p->bias0);
    const __m512 x1 = _mm512_add_ps(_mm512_load_ps(p->sums + 32 * r + 16), p->bias1);
    epilogue_row<Act, Residual, Out>(x0, x1, p->act, p->mask, p->residual + r * p->residual_ld, p->y + r * p->y_ld);
  }
  if (to > p->next) p->next = to;
}

/* What one block needs of the weight and of x. */
struct Block {
  const char *a;      /* row 0 of x */
  int64_t a_ld;       /* bytes */
  const char *a_tail; /* [rows][32] bf16, the padded last K step, or NULL */
  const char *b;      /* the panel */
  int64_t steps;      /* K steps */
  const char *prefetch;
  int prefetch_lines; /* a step */
};

/* The tiles of one block, with the pending epilogue spread over the steps. */
template <int RowTiles, int Act, int Residual, int Out> inline void block_product(const Block &k, Pending *p, float *sums) {
  amx_zero<0>();
  amx_zero<1>();
  if (RowTiles == 2) {
    amx_zero<2>();
    amx_zero<3>();
  }
  const char *b = k.b, *a = k.a, *pf = k.prefetch;
  int64_t a_ld = k.a_ld;
  const int64_t per_step = ((int64_t)(p->rows - p->next) << 16) / k.steps + 1;
  int64_t due = (int64_t)p->next << 16;
  for (int64_t s = 0; s < k.steps; s++) {
    if (s == k.steps - 1 && k.a_tail) {
      a = k.a_tail;
      a_ld = 2 * kStepK;
    }
    amx_load<6>(b, 64);
    amx_load<4>(a, a_ld);
    amx_dp_bf16<0, 4, 6>();
    amx_load<7>(b + 1024, 64);
    amx_dp_bf16<1, 4, 7>();
    if (RowTiles == 2) {
      amx_load<5>(a + 16 * a_ld, a_ld);
      amx_dp_bf16<2, 5, 6>();
      amx_dp_bf16<3, 5, 7>();
    }
    for (int l = 0; l < k.prefetch_lines; l++) _mm_prefetch(pf + 64 * l, _MM_HINT_T1);
    pf += 64 * k.prefetch_lines;
    b += kStepBytes;
    a += 2 * kStepK;
    due += per_step;
    const int to = (int)(due >> 16);
    finish_rows<Act, Residual, Out>(p, to < p->rows ? to : p->rows);
  }
  finish_rows<Act, Residual, Out>(p, p->rows);
  amx_store<0>(sums, 128);
  amx_store<1>(sums + 16, 128);
  if (RowTiles == 2) {
    amx_store<2>(sums + 16 * 32, 128);
    amx_store<3>(sums + 16 * 32 + 16, 128);
  }
}

struct Run {
  const sie_linear_args *a;
  int64_t rows, panel_begin, panel_end;
  const char *a_tail; /* [rows][32] bf16 or NULL */

  template <int Act, int Residual, int Out> void run() const {
    Pending pending = {};
    alignas(64) float sums[2][kBlockRows * kPanelColumns];
    const int64_t slab = slab_rows(a->k);
    for (int64_t row = 0; row < rows; row += slab)
      run_slab<Act, Residual, Out>(row, rows - row < slab ? rows - row : slab, sums, &pending);
    finish_rows<Act, Residual, Out>(&pending, pending.rows);
    amx_release();
  }

  /* Rows [row0, row0 + count) times the share's panels; the last block's epilogue is left in *pending. */
  template <int Act, int Residual, int Out>
  void run_slab(int64_t row0, int64_t count, float (*sums)[kBlockRows * kPanelColumns], Pending *pending) const {
    const int64_t full = count / kBlockRows, tail = count % kBlockRows, blocks = full + (tail != 0);
    const int64_t steps = (a->k + kStepK - 1) / kStepK, panel_bytes = steps * kStepBytes;
    const int64_t out_size = Out == kOutF32 ? 4 : 2, residual_size = Residual == kResidualF32 ? 4 : 2;
    AmxTileConfig full_config, tail_config;
    amx_config(&full_config, 16, 16);
    amx_config(&tail_config, tail > 16 || tail == 0 ? 16 : (int)tail, tail > 16 ? (int)tail - 16 : 16);
    amx_load_config(full ? &full_config : &tail_config);

    Block k = {};
    k.a_ld = 2 * a->x.ld;
    k.steps = steps;
    for (int64_t panel = panel_begin; panel < panel_end; panel++) {
      const int64_t column = panel * kPanelColumns;
      const ColumnMask mask = column_mask(column, a->n);
      const __m512 bias0 = a->bias ? _mm512_maskz_loadu_ps(mask.lo, a->bias + column) : _mm512_setzero_ps();
      const __m512 bias1 = a->bias ? _mm512_maskz_loadu_ps(mask.hi, a->bias + column + 16) : _mm512_setzero_ps();
      k.b = (const char *)a->w->data + panel * panel_bytes;
      /* One block: run ahead in this stream. More: fetch the next panel, a share of it in each block. */
      k.prefetch = blocks == 1 ? k.b + 16 * kStepBytes : k.b + panel_bytes;
      k.prefetch_lines = (int)((kStepBytes / 64 + blocks - 1) / blocks);
      for (int64_t i = 0; i < blocks; i++) {
        const int64_t row = row0 + i * kBlockRows;
        k.a = (const char *)a->x.p + row * k.a_ld;
        k.a_tail = a_tail ? a_tail + row * 2 * kStepK : nullptr;
        float *const s = pending->sums == sums[0] ? sums[1] : sums[0];
        if (i < full) {
          block_product<2, Act, Residual, Out>(k, pending, s);
        } else {
          if (full) amx_load_config(&tail_config);
          if (tail > 16)
            block_product<2, Act, Residual, Out>(k, pending, s);
          else
            block_product<1, Act, Residual, Out>(k, pending, s);
          if (full) amx_load_config(&full_config);
        }
        k.prefetch += steps * 64 * k.prefetch_lines;
        *pending = {s,
                   i < full ? (int)kBlockRows : (int)tail,
                   0,
                   mask,
                   bias0,
                   bias1,
                   (const char *)a->residual.p + (row * a->residual.ld + column) * residual_size,
                   (char *)a->y.p + (row * a->y.ld + column) * out_size,
                   a->residual.ld * residual_size,
                   a->y.ld * out_size,
                   a->act};
      }
    }
  }
};

} // namespace

int64_t amx_bf16_packed_bytes(int64_t n, int64_t k) { return round_up(n, kPanelColumns) * round_up(k, kStepK) * 2; }

/* Panel p, step s, tile t: 16 rows of (16 columns × 2 consecutive k). */
void amx_bf16_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  (void)n;
  const int64_t panel_elements = round_up(k, kStepK) * kPanelColumns;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t column = n0 + i;
    uint16_t *const base =
        (uint16_t *)dst + column / 32 * panel_elements + column % 32 / 16 * (kStepBytes / 4) + column % 16 * 2;
    const float *const w = src + i * ld;
    for (int64_t j = 0; j < k; j++) base[j / kStepK * (kStepBytes / 2) + j % kStepK / 2 * 32 + j % 2] = bf16_from_f32(w[j]);
  }
}

int64_t linear_bf16_amx_scratch(const sie_op_bounds *bounds) {
  return bounds->k % kStepK ? bounds->rows * 2 * kStepK : 0;
}

sie_status linear_bf16_amx(const sie_linear_args *a, const sie_share *share) {
  if (a->w->compute != SIE_COMPUTE_BF16 || a->x.dtype != SIE_BF16) return SIE_UNSUPPORTED;
  if (a->y.dtype != SIE_F32 && a->y.dtype != SIE_BF16) return SIE_UNSUPPORTED;
  const int64_t rows = *a->rows.n, panels = (a->n + kPanelColumns - 1) / kPanelColumns;
  const int64_t begin = panels * share->part / share->parts, end = panels * (share->part + 1) / share->parts;
  if (rows == 0 || begin == end) return SIE_OK;

  Run run = {a, rows, begin, end, nullptr};
  const int64_t tail = a->k % kStepK;
  if (tail) {
    uint16_t *const t = (uint16_t *)share->scratch;
    memset(t, 0, (size_t)(rows * 2 * kStepK));
    for (int64_t r = 0; r < rows; r++)
      memcpy(t + r * kStepK, (const uint16_t *)a->x.p + r * a->x.ld + a->k - tail, (size_t)(2 * tail));
    run.a_tail = (const char *)t;
  }
  dispatch_epilogue(a, a->y.dtype, run);
  return SIE_OK;
}

} // namespace sie_cpu
