/* ops.h — the operation table: one typed entry per fused operation, filled by every backend.
 *
 * kernels/ref fills it with plain loops that accumulate in double (the judge), kernels/cpu once per
 * instruction set, kernels/cuda with launchers. A backend leaves NULL what it lacks; the support list in
 * kernels/tests/support.txt notices a lost entry. Kernels see pointers, strides and shapes, and nothing else: no
 * allocation, no policy, no ABI types.
 *
 * Letters: R rows (tokens or sequences), T token rows, B sequences, N output columns, K input columns,
 * C columns, H heads, D head dimension.  All sizes int64_t, all strides in elements. */
#ifndef SIE_KERNELS_OPS_H
#define SIE_KERNELS_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "sie.h" /* enumerations and sie_out_item only */

#ifdef __cplusplus
extern "C" {
#endif

/* A row count: cap sizes grids and buffers, *n is what this run has (device memory on a GPU). */
typedef struct sie_rows {
  int64_t cap;
  const int32_t *n;
} sie_rows;

/* The element of a quantised row that one byte does not hold: x[column] ≈ scale·(q + excess − zero). */
typedef struct sie_outlier {
  int32_t column;
  int32_t excess; /* −32768 … 32767; 0 where the byte suffices */
} sie_outlier;

/* A matrix of rows. Quantised rows (SIE_U8) carry one scale and one zero point a row:
 *   x ≈ scale·(q − zero),  lo = min(0, min x), hi = max(0, max x), scale = (hi − lo)/255 (0 counts as 1),
 *   zero = rint(−lo/scale), q = clamp(rint(x/scale) + zero, 0, 255).   All f32, ties to even.
 * Where outlier is present, lo and hi leave out the element of largest |x| (of equals a positive one, then the
 * first), which would else coarsen all others; what its byte clamps away is its excess. With H − L the range
 * that includes it, scale = max((hi − lo)/255, (H − L)/8160). A row without an element > 0 in |x| has column 0. */
typedef struct sie_tensor {
  void *p;             /* NULL: absent */
  int64_t ld;          /* elements between rows, ≥ columns */
  int32_t dtype;       /* sie_dtype */
  int32_t scale_group; /* 0 none, -1 one per row, 128 per 1x128 block */
  float *scale;
  int32_t *zero;
  sie_outlier *outlier; /* one a row; NULL: the bytes hold everything */
} sie_tensor;

/* A packed linear weight: data is the backend's own layout for its compute class. */
typedef struct sie_packed {
  uint32_t compute; /* sie_compute */
  uint32_t reserved;
  int64_t n, k;     /* as the checkpoint has them */
  const void *data; /* packed_bytes(compute, n, k), 64-byte aligned */
} sie_packed;

/* Which share of an operation this call does: the calls part = 0 … parts-1 together do the whole, from
 * several threads at once, and write disjoint bytes. The split never changes a result's bits. */
typedef struct sie_share {
  int32_t part, parts;
  void *scratch;         /* this caller's own, 64-byte aligned, contents undefined */
  int64_t scratch_bytes; /* ≥ the table's scratch_bytes for the operation */
} sie_share;

typedef struct sie_embed_layernorm_args { /* y = LN(word[id] + position[i + offset] + type[type_id]) */
  sie_rows tokens, seqs;
  const int32_t *ids;        /* [T] */
  const int32_t *type_ids;   /* [T] or NULL (all 0) */
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of ids, y */
  sie_tensor word, position, type; /* tables, f32 or bf16, [vocab, C]; position, type may be absent */
  int32_t position_offset;
  int32_t reserved;
  const float *gamma, *beta; /* [C]; beta may be NULL */
  float eps;
  int64_t c;
  sie_tensor y;  /* f32 or bf16 [T, C] */
  sie_tensor yq; /* optional u8 twin of y, quantised from the f32 result */
} sie_embed_layernorm_args;

typedef struct sie_layernorm_args { /* y = LN(x)·gamma + beta, two-pass variance */
  sie_rows rows;
  int64_t c;
  sie_tensor x; /* f32 or bf16 */
  const float *gamma, *beta;
  float eps;
  sie_tensor y;  /* f32 or bf16; may be x */
  sie_tensor yq; /* optional u8 twin */
} sie_layernorm_args;

typedef struct sie_linear_args { /* y = act(x·Wᵀ + bias) + residual */
  sie_rows rows;
  int64_t n, k;
  sie_tensor x;      /* class F32: f32; BF16: bf16; INT8: u8 with scale and zero per row, outliers or none */
  const sie_packed *w;
  const float *bias; /* [N] or NULL */
  int32_t act;       /* sie_act */
  int32_t reserved;
  sie_tensor residual; /* optional, f32 or bf16 [R, N]; may be y when the dtypes agree */
  sie_tensor y;        /* f32, bf16, or u8 with scale and zero (rows quantised after act and residual) */
} sie_linear_args;

typedef struct sie_quantise_rows_args {
  sie_rows rows;
  int64_t c;
  sie_tensor x; /* f32 or bf16 */
  sie_tensor y; /* u8 */
} sie_quantise_rows_args;

typedef struct sie_attention_args { /* y = softmax(scale·q·kᵀ)·v, per sequence and head */
  sie_rows q_rows, seqs;
  const int32_t *cu_q;  /* [B+1] rows of q and y */
  const int32_t *cu_kv; /* [B+1] rows of k and v */
  int64_t max_kv;       /* longest key sequence of this run; sizes nothing the scratch bound does not cover */
  sie_tensor q, k, v;   /* f32 or bf16, all one dtype; q [Rq, H·D], k, v [Rkv, Hkv·D] */
  int32_t heads, kv_heads, head_dim, mask, window;
  float scale;
  sie_tensor y; /* dtype of q */
} sie_attention_args;

typedef struct sie_gather_rows_args { /* y[b] = x[first or last row of sequence b]; an empty sequence gives zeros */
  sie_rows seqs;
  const int32_t *cu_seqlens;
  int32_t which; /* SIE_POOL_CLS or SIE_POOL_LAST */
  int32_t reserved;
  int64_t c;
  sie_tensor x, y; /* one dtype */
} sie_gather_rows_args;

typedef struct sie_pool_args { /* y[B, C] f32 */
  sie_rows seqs;
  const int32_t *cu_seqlens; /* NULL: x has sequence rows already, only widen */
  int32_t mode;              /* sie_pooling */
  int32_t reserved;
  int64_t c;
  sie_tensor x, y;
} sie_pool_args;

typedef struct sie_output_rows_args { /* cut, normalise, convert; rounding as sie_out_item says */
  sie_rows seqs;
  int64_t c;
  sie_tensor x;              /* f32 [B, C] */
  const sie_out_item *items; /* [B] */
  void *out;                 /* base of the items' offsets */
} sie_output_rows_args;

typedef enum sie_op_kind {
  SIE_OP_EMBED_LAYERNORM = 0,
  SIE_OP_LAYERNORM = 1,
  SIE_OP_LINEAR = 2,
  SIE_OP_QUANTISE_ROWS = 3,
  SIE_OP_ATTENTION = 4,
  SIE_OP_GATHER_ROWS = 5,
  SIE_OP_POOL = 6,
  SIE_OP_OUTPUT_ROWS = 7
} sie_op_kind;

/* Bounds from which scratch is planned: what one call may be given. */
typedef struct sie_op_bounds {
  uint32_t kind;    /* sie_op_kind */
  uint32_t compute; /* linear: class of the weight */
  int64_t rows, n, k, c, max_len;
  int32_t head_dim, heads;
} sie_op_bounds;

typedef struct sie_ops {
  const char *name; /* "ref", "avx2", "avx512", "avx512-vnni", "amx" */
  uint32_t isa;     /* sie_isa; 0 for ref */
  uint32_t compute_mask;  /* bit (1 << sie_compute) for each class linear implements */
  int32_t act_dtype_bf16; /* storage type of activations in class BF16 (always bf16 = 1) */
  int32_t act_dtype_int8; /* storage of float activations in class INT8: SIE_F32 or SIE_BF16 */

  int64_t (*packed_bytes)(uint32_t compute, int64_t n, int64_t k);
  /* Packs rows [n0, n0+rows) of W from f32 (row-major, stride ld); called part by part, n0 ascending,
   * each part once; the caller zeroed dst. */
  void (*pack)(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
               void *dst);
  int64_t (*scratch_bytes)(const sie_op_bounds *bounds);

  sie_status (*embed_layernorm)(const sie_embed_layernorm_args *, const sie_share *);
  sie_status (*layernorm)(const sie_layernorm_args *, const sie_share *);
  sie_status (*linear)(const sie_linear_args *, const sie_share *);
  sie_status (*quantise_rows)(const sie_quantise_rows_args *, const sie_share *);
  sie_status (*attention)(const sie_attention_args *, const sie_share *);
  sie_status (*gather_rows)(const sie_gather_rows_args *, const sie_share *);
  sie_status (*pool)(const sie_pool_args *, const sie_share *);
  sie_status (*output_rows)(const sie_output_rows_args *, const sie_share *);
} sie_ops;

/* The tables of this build. sie_cpu_ops(isa) returns NULL when the build or the machine lacks it. */
const sie_ops *sie_ref_ops(void);
const sie_ops *sie_cpu_ops(uint32_t isa);
/* The best sie_isa of this machine (cpuid, OS state, and for AMX the kernel's permission, which this asks for). */
uint32_t sie_cpu_detect(void);

#ifdef __cplusplus
}
#endif
#endif /* SIE_KERNELS_OPS_H */
