/* ops.h — the operation table: one typed entry per fused operation. Every backend fills it.
 *
 * kernels/ref fills it with plain loops that accumulate in double; they judge the others.
 * kernels/cpu fills it once per instruction set, kernels/cuda with launchers. A backend leaves NULL
 * where it lacks an operation; kernels/tests/support.txt lists what each has, so a test notices a
 * lost entry. Kernels see pointers, strides and shapes only: they allocate nothing, hold no policy
 * and use no ABI types.
 *
 * An entry checks types, head dimensions, lengths and alignment before it does anything. It returns
 * SIE_UNSUPPORTED for arguments that this backend lacks and SIE_INVALID_ARGUMENT for arguments that
 * contradict each other; outputs are then untouched. No rows or no sequences are valid and do
 * nothing. A field of zero selects the plain form: fields named optional may be NULL or 0. Sums,
 * norms and softmax are f32 or better. Each result depends, bit for bit, on its own row or sequence
 * alone.
 *
 * CPU tables lack f16 tensors, the classes F16 and FP8, and two results of linear: e4m3, and u8 in
 * class BF16. Their kernels multiply in neither f16 nor e4m3; tensors that a GPU stores in these
 * types are f32, bf16 or u8 there.
 *
 * Letters: R rows (tokens or sequences), T token rows, B sequences, N output columns, K input
 * columns, C columns, H heads, D head dimension. All sizes are int64_t, all strides are in
 * elements. */
#ifndef SIE_KERNELS_OPS_H
#define SIE_KERNELS_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "sie.h" /* enumerations, sie_out_item, SIE_MAX_JOINED and SIE_MAX_SPAN_WIDTH only */

#ifdef __cplusplus
extern "C" {
#endif

/* A row count: cap sizes grids and buffers, *n is the count of this run (device memory on a
 * GPU, which no kernel writes: it is read ahead of what the kernel before makes). */
typedef struct sie_rows {
  int64_t cap;
  const int32_t *n;
} sie_rows;

/* The element of a quantised row that does not fit in one byte:
 * x[column] ≈ scale·(q + excess − zero). */
typedef struct sie_outlier {
  int32_t column;
  int32_t excess; /* −32768 … 32767; 0 where the byte suffices */
} sie_outlier;

/* A matrix of rows; fX means f32, bf16 or f16 in the comments below. Quantised rows (SIE_U8) carry
 * one scale and one zero point a row, all in f32, ties to even:
 *   lo = min(0, min x),  hi = max(0, max x),  scale = (hi − lo)/255 (0 counts as 1),
 *   zero = rint(−lo/scale),  q = clamp(rint(x/scale) + zero, 0, 255),  x ≈ scale·(q − zero).
 * Where outlier is present, lo and hi leave out the element of largest |x| (of equals a positive
 * one, then the first), which would coarsen all others. Its excess is what the clamp to a byte
 * takes away. With H − L the range that includes it, scale = max((hi − lo)/255, (H − L)/8160). A
 * row in which no |x| is above 0 has column 0. A NaN does not count in lo, hi, H and L, becomes 0,
 * and makes its row's scale NaN.
 *
 * SIE_F8E4M3 rows carry one scale a row (scale_group −1) or one for each block of 128 columns
 * (scale_group 128; scale [R, G], G = ⌈columns/128⌉, dense; the last block may be short), and no
 * zero point:
 *   scale = max|x|/448 (less than 2⁻¹⁰⁰ counts as 1),  q = e4m3(x·(1/scale)),  x ≈ scale·q.
 * The division by 448, the reciprocal and the product are each rounded once in f32. e4m3 rounds to
 * nearest, ties to even, and saturates at ±448. A NaN does not count in the maximum and becomes NaN
 * (0x7f). A row with an infinity has scale infinity. */
typedef struct sie_tensor {
  void *p;             /* NULL: absent */
  int64_t ld;          /* elements between rows, ≥ columns */
  int32_t dtype;       /* sie_dtype */
  int32_t scale_group; /* 0 none, -1 one per row, 128 per 1x128 block (f8e4m3 only) */
  float *scale;
  int32_t *zero;
  sie_outlier *outlier; /* one a row; NULL: the bytes hold everything */
} sie_tensor;

/* A packed linear weight; data is in the backend's own layout for the compute class. F32, BF16 and
 * F16 hold W rounded to that type. INT8 and FP8 hold quantised rows: s8 with scale max|W[n,:]|/127
 * (0 counts as 1), or e4m3 as in sie_tensor with scale_group −1. */
typedef struct sie_packed {
  uint32_t compute; /* sie_compute */
  uint32_t reserved;
  int64_t n, k;     /* as the checkpoint has them */
  const void *data; /* packed_bytes(compute, n, k), 64-byte aligned */
} sie_packed;

/* Where a GPU entry launches its kernels, and for which device. An entry never waits for them. */
typedef struct sie_stream {
  void *stream;            /* cudaStream_t */
  int32_t sm;              /* compute capability: 80, 86, 89, 90, … */
  int32_t multiprocessors; /* of the device */
  int32_t pdl;             /* 1: launch with programmatic stream serialization (sm ≥ 90) */
  int32_t reserved;
} sie_stream;

/* Which share of an operation this call does. The calls part = 0 … parts-1 together do the whole
 * operation; they may run on several threads at once and write disjoint bytes. The split never
 * changes a result's bits. A GPU entry does everything in one call, part 0 of 1. */
typedef struct sie_share {
  int32_t part, parts;
  void *scratch;         /* this caller's own, 64-byte aligned, contents undefined; on a GPU, device memory */
  int64_t scratch_bytes; /* ≥ the table's scratch_bytes for the operation */
  const sie_stream *on;  /* GPU; NULL on a CPU */
} sie_share;

/* y = norm(s), s = word_scale·word[id] + position[i + offset] + type[type_id], added in that order
 * in f32. Norms are those of sie_layernorm_args; with SIE_NORM_NONE y = s, and gamma is not
 * read. */
typedef struct sie_embed_layernorm_args {
  sie_rows tokens, seqs;
  const int32_t *ids;              /* [T] */
  const int32_t *type_ids;         /* [T] or NULL (all 0) */
  const int32_t *cu_seqlens;       /* [B+1] relative to the first row of ids, y */
  sie_tensor word, position, type; /* tables, fX, all one type, [vocab, C]; position, type may be absent */
  int32_t position_offset;
  int32_t norm;              /* sie_norm */
  const float *gamma, *beta; /* [C]; beta may be NULL */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
  float word_scale;    /* 0 counts as 1 */
  int64_t c;
  sie_tensor y;  /* fX [T, C] */
  sie_tensor yq; /* optional quantised twin of y, from the f32 result: u8, or f8e4m3 with scale_group −1 */
} sie_embed_layernorm_args;

/* s = (x + bias) + residual in f32, then by norm:
 *   SIE_NORM_LAYER  μ = Σ s/C, σ² = Σ (s − μ)²/C (two passes),
 *                   y = (s − μ)/√(σ² + ε)·(offset + gamma) + beta
 *   SIE_NORM_RMS    y = s/√(Σ s²/C + ε)·(offset + gamma) + beta
 * y is computed from s in f32, before sum is rounded to its type. In pre-norm models sum is the
 * next residual. */
typedef struct sie_layernorm_args {
  sie_rows rows;
  int64_t c;
  sie_tensor x;              /* fX [R, C] */
  const float *gamma, *beta; /* [C]; beta may be NULL */
  float eps;
  sie_tensor y;        /* fX; may be x or residual when the dtypes agree */
  sie_tensor yq;       /* optional quantised twin, from the f32 result: u8, or f8e4m3 with scale_group −1 */
  int32_t norm;        /* sie_norm; not SIE_NORM_NONE */
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
  const float *bias;   /* optional [C] */
  sie_tensor residual; /* optional, fX [R, C] */
  sie_tensor sum;      /* optional output s, fX [R, C]; may be x or residual when the dtypes agree, not y */
} sie_layernorm_args;

/* z = x·Wᵀ + bias + addend, then y = act(z) + residual. With a gate, act is SIE_ACT_NONE, N is
 * even, and the rows of W and bias alternate: gate 0, up 0, gate 1, up 1, …; then
 * y[j] = g(z[2j])·z[2j + 1] + residual[j], N/2 columns.
 *   F32, BF16, F16  x·Wᵀ = Σ x[r,k]·W[n,k], f32 sums in ascending K
 *   INT8            x·Wᵀ = s_x[r]·s_w[n]·Σ (q[r,k] − zero[r])·w[n,k], exact in s32
 *   FP8             x·Wᵀ = s_w[n]·Σ_g s_x[r,g]·(Σ_k∈g x[r,k]·w[n,k]), g the blocks of 128 columns.
 *                   The inner sums may be those of the tensor cores, the outer one is f32 in
 *                   ascending g. With one scale a row, s_x is taken out of the sum. */
typedef struct sie_linear_args {
  sie_rows rows;
  int64_t n, k;
  sie_tensor x; /* F32: f32; BF16: bf16; F16: f16; INT8: u8 with scale and zero per row, outliers or none;
                        FP8: f8e4m3 with scale_group −1 or 128 */
  const sie_packed *w;
  const float *bias;   /* [N] or NULL */
  int32_t act;         /* sie_act */
  int32_t gate;        /* sie_gate */
  sie_tensor addend;   /* optional, f32 [R, N]: joins z beside the bias, before act and gate (LoRA) */
  sie_tensor residual; /* optional, fX [R, columns of y]; may be y when the dtypes agree */
  sie_tensor y; /* fX; u8 with scale and zero, or f8e4m3 with scale_group 128 (of y's own columns), both
                          quantised from the f32 result after act, gate and residual */
} sie_linear_args;

/* A linear and the norm behind it, in place: the rows that linear stores, rounded to y's type, are x
 * and y of the norm, bit for bit as by the two operations. Nobody else sees them between. */
typedef struct sie_linear_norm_args {
  sie_linear_args linear; /* class BF16 or F16; y bf16 or f16 */
  sie_layernorm_args
      norm; /* of linear's rows and y's columns: x and y are its y; no yq, bias, residual, sum */
} sie_linear_norm_args;

typedef struct sie_quantise_rows_args {
  sie_rows rows;
  int64_t c;
  sie_tensor x; /* fX */
  sie_tensor y; /* u8, or f8e4m3 with scale_group −1 or 128 */
} sie_quantise_rows_args;

/* The largest bias_reach: distances up to it are exact in f32, and tables stay small. */
#define SIE_MAX_BIAS_REACH (1 << 20)

/* The most rows of the tables of disentangled attention, which lie in the scratch. */
#define SIE_MAX_POSITION_ROWS 8192

/* y = softmax(scale·q·kᵀ − slope·distance + bias)·v, per sequence and head, over the keys the mask
 * lets through. The keys of a sequence are those of its prefix, if it has one, then its own: Lkv
 * together. Key j stands at position j. Query i of Lq stands at i + Lkv − Lq, or at i where
 * queries_first is 1; distance = |position − j| (ALiBi). The relative bias of key j is
 * bias[h, clamp(j − position, −reach, reach) + reach] (T5's buckets, spread over distances). Without
 * keys, y is zero. A query's bits do not depend on which other queries of its sequence are there,
 * nor on where its keys lie: a prefix gives the bits that the same keys give as own rows. */
typedef struct sie_attention_args {
  sie_rows q_rows, seqs;
  const int32_t *cu_q;  /* [B+1] rows of q and y */
  const int32_t *cu_kv; /* [B+1] rows of k and v: a sequence's own keys */
  int64_t max_kv;       /* largest Lkv of this run; sizes nothing the scratch bound does not cover */
  sie_tensor q, k, v;   /* fX, all one dtype; q [Rq, H·D], k, v [Rkv, Hkv·D]; query head h reads h·Hkv/H */
  int32_t heads, kv_heads, head_dim, mask, window;
  float scale;
  sie_tensor y;              /* dtype of q */
  const float *alibi_slopes; /* [H] or NULL */
  const void *work; /* what attention_work wrote, on the device; NULL where the table has no such entry */
  /* On a CPU: only queries [q_first, q_last) of each sequence; q_last 0 means all. The bits are
   * those of a call for all queries. */
  int32_t q_first, q_last;
  int32_t queries_first; /* 1: the queries stand at the first positions; 0: at the last ones */
  int32_t bias_reach;    /* 0 … SIE_MAX_BIAS_REACH: keys farther away have the bias of this distance */
  const float *bias;     /* [H, 2·bias_reach + 1], dense, or NULL */
  /* Optional: keys that stand before a sequence's own, in rows of their own. The first keys of
   * sequence b are rows prefix_first[b] … prefix_first[b] + prefix_keys[b] − 1 of prefix_k and
   * prefix_v; prefix_keys[b] may be 0, and sequences may share rows. Where prefix_keys is NULL no
   * sequence has a prefix and the other three are not read; else all four are there. */
  sie_tensor prefix_k, prefix_v; /* dtype of q, [Rp, Hkv·D] */
  const int32_t *prefix_first;   /* [B] */
  const int32_t *prefix_keys;    /* [B] or NULL */
  /* Optional: disentangled attention (DeBERTa), whose scores depend on distances by content:
   *   s_j = scale·(q·k_j + q·K_b + k_j·Q_b),  b = buckets[clamp(position − j, −reach, reach) + reach]
   * with head h's D columns of row b of pos_key (K) and pos_query (Q), of which one may be absent.
   * buckets never falls from one distance to the next; every entry is a row of the tables. Then the
   * mask is SIE_MASK_FULL, kv_heads = heads, and there is no slope, bias or prefix. Where buckets is
   * NULL there are no such terms and the others are not read. */
  sie_tensor pos_key, pos_query; /* f32 on a CPU, dtype of q on a GPU; [position_rows, H·D] */
  const int32_t *buckets;        /* [2·bucket_reach + 1] or NULL */
  int32_t bucket_reach;          /* 0 … SIE_MAX_BIAS_REACH */
  int32_t position_rows;         /* 1 … SIE_MAX_POSITION_ROWS */
} sie_attention_args;

/* q and k in place: each head's D columns are normalised (where a weight is given), then rotated,
 * and rounded once.
 *   x' = x/√(Σ x²/D + ε)·(offset + gamma)
 *   y[i]   = x'[i]·cos[p,i] − x'[i+h]·sin[p,i]
 *   y[i+h] = x'[i+h]·cos[p,i] + x'[i]·sin[p,i]       i < h = rot/2
 * p is the token's index in its own sequence b + position_offset + first_position[b], where that is
 * given. Columns from rot on are only normalised.
 * With turns, a sequence of L > positions rows has angles of its own, by row L - positions - 1:
 * cos and sin of 2π·p·t_i, where entries i and i + h of the row, h = rot/2, are the upper and the
 * lower half of t_i·2^64. Any L up to positions + the rows of turns is possible. */
typedef struct sie_qk_norm_rope_args {
  sie_rows tokens, seqs;
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of q, k */
  int32_t heads, kv_heads, head_dim;
  int32_t rot;                    /* rotated columns of a head: even, 0 … D; 0: cos and sin are not read */
  const float *q_gamma, *k_gamma; /* [D] or NULL: no norm */
  float eps;
  float weight_offset;
  const float *cos, *sin; /* [positions, rot/2], row stride rot/2 */
  int64_t positions;      /* rows of cos and sin: more than any p that reads them */
  int32_t position_offset;
  int32_t whole_rows;            /* L of the only sequence, where these are but some of its rows; 0: all */
  sie_tensor q;                  /* fX [T, H·D] */
  sie_tensor k;                  /* dtype of q, [T, Hkv·D]; may be absent (kv_heads 0) */
  const int32_t *first_position; /* optional [B]: where each sequence begins, behind its prefix */
  const int32_t *turns;          /* optional [lengths, rot], without first_position */
} sie_qk_norm_rope_args;

typedef struct
    sie_gather_rows_args { /* y[b] = x[first or last row of sequence b]; an empty sequence gives zeros */
  sie_rows seqs;
  const int32_t *cu_seqlens;
  int32_t which; /* SIE_POOL_CLS or SIE_POOL_LAST */
  int32_t reserved;
  int64_t c;
  sie_tensor x, y; /* one dtype */
} sie_gather_rows_args;

/* y[B, C] f32 from the L rows x_0 … x_(L−1) of a sequence; an empty sequence gives zeros.
 *   SIE_POOL_CLS, SIE_POOL_LAST   x_0, x_(L−1)
 *   SIE_POOL_MEAN                 Σ x_i/L
 *   SIE_POOL_MEAN_SQRT            Σ x_i/√L
 *   SIE_POOL_MAX                  max x_i, column by column; a NaN may be lost
 *   SIE_POOL_SUM                  Σ x_i
 *   SIE_POOL_RMS                  √(Σ x_i²/L)
 *   SIE_POOL_ABS_MAX              max |x_i|; a NaN may be lost
 *   SIE_POOL_ABS_MEAN             Σ |x_i|/L; this one and the three before it not on GPUs
 *   SIE_POOL_WEIGHTED_MEAN        Σ (p_i + 1)·x_i / Σ (p_i + 1),  p_i = i, or where x has rows that
 *                                 were kept of another space, the place there (index, cu_whole)
 *   SIE_POOL_ATTENTION            Σ p_i·x_i,  p = softmax over i of x_i·w  (a bias would cancel) */
typedef struct sie_pool_args {
  sie_rows seqs;
  const int32_t *cu_seqlens; /* NULL: x has sequence rows already, only widen */
  int32_t mode;              /* sie_pooling */
  int32_t longest;           /* GPU: no sequence has more rows; 0: nobody knows. Changes no bit of a result */
  int64_t c;
  sie_tensor x;   /* fX [T, C] */
  sie_tensor y;   /* f32 [B, C] */
  const float *w; /* SIE_POOL_ATTENTION: [C] */
  /* Optional, both or neither; SIE_POOL_WEIGHTED_MEAN alone reads them. Row r of x is row index[r]
   * of a space in which sequence b begins at cu_whole[b]: p_i = index[r] − cu_whole[b]. */
  const int32_t *index;    /* [T] */
  const int32_t *cu_whole; /* [B] */
} sie_pool_args;

typedef struct sie_output_rows_args { /* cut, normalise, convert; rounding as sie_out_item says */
  sie_rows seqs;
  int64_t c;
  sie_tensor x;              /* f32 [B, C] */
  const sie_out_item *items; /* [B] */
  void *out;                 /* base of the items' offsets */
} sie_output_rows_args;

typedef struct sie_pool_output_args { /* output_rows(pool(x)) without the rows in between */
  sie_rows seqs;
  const int32_t *cu_seqlens; /* as sie_pool_args */
  int32_t mode;
  int32_t longest;
  int64_t c;
  sie_tensor x;
  const float *w;
  const int32_t *index, *cu_whole; /* as sie_pool_args */
  const sie_out_item *items;       /* as sie_output_rows_args */
  void *out;
} sie_pool_output_args;

/* The fixed dimensional encoding of each sequence's token vectors (MUVERA, arXiv:2405.19504), as an
 * output row. First `center` is subtracted from the tokens x_0 … x_(L−1) of a sequence, then, with
 * center_tokens, the mean of what that leaves (Σ x/L).
 *   bits      b[r,i] = Σ_c x[c]·simhash[r,c,i] > 0, i < k, sums f32 or better in ascending c
 *   partition g = 0, then for i = 0 … k−1: g = 2g + (b[r,i] xor (g mod 2));
 *             so the bits of g are g xor (g >> 1)
 *   ψ         identity (P = C), or ψ(x)[j] = Σ ±x[c] over the c that ams[r,c] sends to column j,
 *             ascending c
 *   block     v[r,g,·] = Σ ψ(x_i) over the tokens in g, ascending i; for documents divided by their
 *             number. An empty partition is zero; for documents with fill_empty it is ψ of the
 *             token whose bits differ least from those of g, the first of equals.
 *   sketch    where final_dims is not 0: out[j] = Σ ±v[l] over the l that sketch[l] sends to j,
 *             ascending l
 * The result has F = final_dims or R·2ᵏ·P columns in f32; it is cut, normalised, converted and
 * written as its item says. No tokens give zeros. The tables encode a sign with an index: index for
 * +1, ~index (negative) for −1. */
typedef struct sie_muvera_args {
  sie_rows tokens, seqs;
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of x */
  int64_t c;
  sie_tensor x;         /* fX [T, C] */
  int32_t repetitions;  /* R ≥ 1 */
  int32_t simhash_bits; /* k, 0 … 10 */
  int32_t projected;    /* P; 0: identity */
  int32_t final_dims;   /* 0: no sketch */
  int32_t is_query;     /* 1: sums, 0: means */
  int32_t fill_empty;
  int32_t center_tokens; /* 1: subtract the mean of the item's own tokens */
  int32_t normalize;     /* 1: each row of x is divided by its L2 norm (eps 1e-12) before anything else */
  const float *center;   /* optional [C] */
  const float *simhash;  /* [R, C, k] */
  const int32_t *ams;    /* [R, C], columns 0 … P−1; NULL for identity */
  const int32_t *sketch; /* [R·2ᵏ·P], columns 0 … final_dims−1; NULL without a sketch */
  /* The same sketch as rounds of additions to different outputs, for backends that add in parallel;
   * NULL on a CPU. Entry e of a repetition adds sketch_source[e], a place in its block (g·P + column)
   * with its sign, to output sketch_output[e]/1024, in round sketch_output[e]%1024 (modulo 1024).
   * Rounds ascend, and with them the places of an output. sie_order_sketch (common/muvera.h) fills
   * both. */
  const int32_t *sketch_output; /* [R·2ᵏ·P] */
  const int32_t *sketch_source; /* [R·2ᵏ·P] */
  const sie_out_item *items;    /* [B] */
  void *out;
} sie_muvera_args;

/* y[i] = x[index[i]]: copies the token rows that the batch keeps, in order. */
typedef struct sie_keep_rows_args {
  sie_rows kept;
  const int32_t *index; /* [K] rows of x, ascending */
  int64_t c;
  sie_tensor x, y; /* one dtype, fX */
} sie_keep_rows_args;

/* y[r] = [x[0][r], x[1][r], x[2][r]]: the columns of several tensors next to each other, each
 * element converted to y's type. */
typedef struct sie_join_columns_args {
  sie_rows rows;
  int64_t c[SIE_MAX_JOINED];    /* columns of each; 0: absent, except the first */
  sie_tensor x[SIE_MAX_JOINED]; /* fX [R, c[i]] */
  sie_tensor y;                 /* fX [R, Σ c] */
} sie_join_columns_args;

/* y[r], r a row of sequence b of y's space, from the rows of x that belong to the same sequence:
 *   SIE_POOL_CLS   row first[r] of them
 *   SIE_POOL_LAST  row last[r]
 *   SIE_POOL_MEAN  Σ x/n over the n rows first[r] … last[r], f32 sums in ascending order, then one
 *                  rounding to y's type
 * Places count from 0 in each sequence; −1, then in both, makes a row of 0. Where cu_x is NULL, x has
 * one row a sequence, which every row of y gets, and which, first and last are not read. */
typedef struct sie_take_rows_args {
  sie_rows rows, seqs;       /* rows of y */
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of y */
  const int32_t *cu_x;       /* [B+1] relative to the first row of x, or NULL */
  int32_t which;             /* SIE_POOL_CLS, SIE_POOL_LAST or SIE_POOL_MEAN */
  int32_t reserved;
  const int32_t *first, *last; /* [R]; first ≤ last; LAST reads no first, CLS no last */
  int64_t c;
  sie_tensor x, y; /* one dtype, fX */
} sie_take_rows_args;

/* y[r, c] = a[r, c]·b[r, c], one rounding to f32, then one to y's type. */
typedef struct sie_product_args {
  sie_rows rows;
  int64_t c;
  sie_tensor a, b; /* fX [R, C], each its own */
  sie_tensor y;    /* fX; may be a or b when the dtypes agree */
} sie_product_args;

/* y[r] = Σ_c a[r, c]·b[r, c] in f32: one FMA chain a row, c ascending. */
typedef struct sie_dots_args {
  sie_rows rows;
  int64_t c;
  sie_tensor a, b; /* fX [R, C], each its own */
  sie_tensor y;    /* f32 [R, 1] */
} sie_dots_args;

/* y[r] = e^(scale·x[r] − m) / Σ e^(scale·x − m), m the largest scale·x, over the rows of r's sequence:
 * of cu_seqlens [B+1]. scale is above 0. */
typedef struct sie_softmax_args {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens;
  float scale;
  int32_t reserved;
  sie_tensor x, y; /* f32 [R, 1] */
} sie_softmax_args;

/* The largest H of an LSTM on a GPU: the states of four sequences lie in shared memory. */
#define SIE_MAX_GPU_LSTM 768

/* The recurrence of an LSTM (PyTorch's nn.LSTM) over the rows x_0 … x_(L−1) of each sequence. gates
 * are the products of all rows with W_ih, both biases added: 4H columns of the forward direction, if
 * it is there, then 4H of the reverse one, in the order i, f, g, o. With h and c zero before the
 * first step, in each direction:
 *   z = gates[t] + W_hh·h    one FMA chain an element, ascending k, then one addition
 *   c = σ(z_f)·c + σ(z_i)·tanh(z_g),  h = σ(z_o)·tanh(c)
 *   y[t] = h                 H columns of the forward direction, then H of the reverse one
 * t ascends, or in the reverse direction descends from the sequence's own last row. h and c stay f32
 * whatever the type of y is. */
typedef struct sie_lstm_args {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens;       /* [B+1] relative to the first row of gates, y */
  int64_t h;                       /* H */
  const sie_packed *w, *w_reverse; /* W_hh [4H, H] of class F32; one may be NULL: no such direction */
  sie_tensor gates;                /* fX [R, 4H·directions] */
  sie_tensor y;                    /* fX [R, H·directions] */
} sie_lstm_args;

/* The SPLADE maximum: y[b, v] = max(0, max over the tokens i of sequence b of (x_i·Wᵀ + bias)[v]);
 * no tokens give 0. The logits [T, N] never exist: each tile's rows are reduced in its epilogue.
 * Classes and x are those of sie_linear_args. */
typedef struct sie_splade_args {
  sie_rows tokens, seqs;
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of x */
  int64_t n, k;
  sie_tensor x; /* as sie_linear_args.x */
  const sie_packed *w;
  const float *bias; /* [N] or NULL */
  sie_tensor y;      /* f32 [B, N] */
} sie_splade_args;

/* The columns of each row with x > 0, and t(x), as sparse output rows. A sparse output row starts
 * at its item's offset (a multiple of 16):
 *   int32 count, three int32 of 0, int32 column[dims], value[dims]
 * count is the number of columns that the row has. The first min(count, dims) of them are written,
 * ascending; the other bytes of the item stay as they were. item.dims is the room in columns, at
 * least 1; dtype is SIE_F32 or SIE_F16; normalize is 0. */
typedef struct sie_output_sparse_args {
  sie_rows seqs;
  int64_t c;
  sie_tensor x;      /* f32 [B, C], values ≥ 0 */
  int32_t transform; /* sie_sparse */
  int32_t reserved;
  const sie_out_item *items; /* [B] */
  void *out;
} sie_output_sparse_args;

/* What spans and pairs find of one word: 32 words of four bytes.
 *   int32 count, then entries of {int32 code, f32 logits[1 … 3]} by ascending code
 * count is the true number. The first min(count, room) entries are there, room = 31/(1 + logits);
 * the other bytes stay as they were. */
#define SIE_FOUND_WORDS 32

/* The scores of spans: row i and width w of a sequence name the words i … i + w. For every word i,
 * every w below widest with word i + w in the sequence, and every label c of the sequence:
 *   y[i,w,c] = relu(A_i + B_(i+w))·M_c + m_c,   kept where y > the item's threshold.
 * f32 sums in one chain a logit, k ascending, then m; a NaN is not above a threshold.
 *
 * That is GLiNER's span layer, out(relu([s_i ; e_j]))·p_c with out = Linear(2D → 4D), ReLU,
 * Linear(4D → D), folded twice. (1) out's first matrix acts on the two halves apart:
 * W·relu([s ; e]) + b = W_s·relu(s) + b + W_e·relu(e) = A_i + B_j, both products of one word.
 * (2) Its second one meets p_c alone: (W₃·h + b₃)·p_c = h·(W₃ᵀ·p_c) + b₃·p_c = h·M_c + m_c, both
 * products of one label. What is left is K = 4D multiplications a span and label: for N labels
 * 4D·N a span, where the layer as published takes 8D² + 4D² for every span and D·N. Only the ReLU
 * between the two, which sees the sum of two words, keeps A and B from being folded further.
 *
 * Two calls make the output: spans of one pass must all have ended before the next pass begins.
 *   write 0  fills found, a row a word; shares are words
 *   write 1  writes the items from found; shares are sequences. Words of which found has no room
 *            for all are computed again.
 * An item is written at its offset, a multiple of 16:
 *   int32 count, three int32 of 0, then records {int32 row, int32 width, int32 label, f32 y} by
 *   ascending row, width, label
 * count is the true number; the first min(count, dims) records are written, the other bytes of the
 * item stay as they were. item.dims is the room in records, at least 1; dtype is SIE_F32; normalize
 * is 0; threshold is no NaN. */
typedef struct sie_spans_args {
  sie_rows words, seqs;
  const int32_t *cu_words;  /* [B+1] relative to the first row of starts, ends */
  const int32_t *cu_labels; /* [B+1] relative to the first row of labels, bias; by groups: [groups+1] */
  /* [B] the group of labels that a sequence has, or −1 for none; NULL: each has its own, by its number */
  const int32_t *label_group;
  int64_t k;
  sie_tensor starts, ends; /* A, B: fX [R, K] */
  sie_tensor labels;       /* M: fX [labels, K] */
  sie_tensor bias;         /* m: fX [labels, 1], or absent: 0 */
  int32_t widest;          /* W, 1 … SIE_MAX_SPAN_WIDTH */
  int32_t write;
  int32_t *found;            /* [R, found_ld] */
  int64_t found_ld;          /* ≥ SIE_FOUND_WORDS */
  const sie_out_item *items; /* [B]; write 0 reads the thresholds only */
  void *out;
} sie_spans_args;

/* The scores of words and labels, n_logits each: with h_ic = W·(t_i∘l_c) + U_i + V_c,
 *   y[i,c,o] = H_o·relu(h_ic) + b_o,   the pair is kept where any y[i,c,o] > the item's threshold.
 *
 * That is the scorer of GLiNER's token models, mlp([t⁰_i ; l⁰_c ; t¹_i∘l¹_c]) with mlp =
 * Linear(3D → 4D), ReLU, Linear(4D → 3), and GLiClass's weighted dot with one output. The first
 * matrix acts on the three thirds apart: the parts of t⁰ and l⁰ are U_i (with the layer's bias) and
 * V_c, products of one word and of one label. The third part cannot be folded: W·(t_i∘l_c) =
 * W·diag(l_c)·t_i mixes word and label in every column and its sum passes a ReLU, so it costs
 * N·K = 4D² multiplications a pair, a third of what the layer as published takes. It is a product
 * of matrices whose rows are pairs: tiles of a bounded number of pairs are multiplied out in scratch
 * and reduced to their logits at once. t∘l is rounded to the type of the weight's class, as any
 * operand of a linear. Sums over N are f32.
 *
 * Passes, found and items are those of spans; records are {int32 row, int32 label, f32
 * y[n_logits]}, by ascending row, label. */
typedef struct sie_pairs_args {
  sie_rows words, seqs;
  const int32_t *cu_words, *cu_labels, *label_group; /* as in sie_spans_args */
  int64_t n, k;
  sie_tensor words_x, words_u;   /* t, U: fX [R, K], [R, N] */
  sie_tensor labels_x, labels_u; /* l, V: fX [labels, K], [labels, N] */
  const sie_packed *w;           /* [N, K] of class F32, BF16 or F16 */
  const float *head;             /* H [n_logits, N] */
  const float *head_bias;        /* b [n_logits] or NULL: 0 */
  int32_t n_logits;              /* 1 … 3 */
  int32_t write;
  int32_t *found;
  int64_t found_ld;
  const sie_out_item *items;
  void *out;
} sie_pairs_args;

/* Late interaction: y[b] = Σ_i max_j q_i·d_j, q the query's rows, d the rows of sequence b of x,
 * each divided by its L2 norm (eps 1e-12) with normalize. Sums are f32, over columns and i
 * ascending. Without a partner (−1), query rows or rows d the result is 0. */
typedef struct sie_maxsim_args {
  sie_rows rows, seqs;       /* of x: token rows or kept ones */
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of x */
  int64_t c;
  sie_tensor x;              /* fX [R, C] */
  const float *queries;      /* [Q, C], dense, as they are */
  const int32_t *cu_queries; /* [queries + 1] */
  const int32_t *partner;    /* [B] the query of a sequence, or −1 */
  int32_t normalize;
  int32_t reserved;
  sie_tensor y; /* f32 [B, 1] */
} sie_maxsim_args;

/* One adapter of one linear (LoRA, arXiv:2106.09685). Rows are dense and as checkpoints store them,
 * both of dtype fX; the scale is folded into b. rank 0: the adapter does not change this linear. */
typedef struct sie_lora_pair {
  const void *a; /* [rank, K] */
  const void *b; /* [N, rank] */
  int32_t rank;
  int32_t dtype; /* sie_dtype of a and b: f32 on a CPU; bf16 or f16 as x on a GPU */
} sie_lora_pair;

/* y = (x·Aᵀ)·Bᵀ with the adapter of each row's sequence; rows of sequences without one become 0.
 * Both sums are f32. The inner sum is not rounded before the outer one, except on a GPU, where it
 * may be rounded to x's dtype; the kernel's Error then says so. */
typedef struct sie_lora_args {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of x; NULL: x has one row a sequence */
  const int32_t *adapter;    /* [B] index into adapters, or −1 */
  int32_t n_adapters;
  int32_t max_rank;
  const sie_lora_pair *adapters; /* [n_adapters]; device memory on a GPU */
  int64_t n, k;
  sie_tensor x; /* fX [R, K] */
  sie_tensor y; /* f32 [R, N] */
} sie_lora_args;

/* Sparse multi-vector encoding, written as sparse output rows. Each row keeps its `top` largest
 * projections x·anchor per repetition (of equals the lower column). A column's value is their sum
 * (queries), or that divided by the number of its non-zero contributions (documents). Zeros are
 * dropped; with max_nonzeros > 0 only that many of largest |value| stay (of equals the lower
 * column). Columns are r·width + anchor, ascending. Values may be negative. */
typedef struct sie_smve_args {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens;
  int64_t c;
  sie_tensor x; /* fX [R, C] */
  int32_t repetitions, width, top, max_nonzeros;
  int32_t is_query;
  int32_t normalize;    /* 1: rows of x are divided by their L2 norm first */
  const float *anchors; /* [repetitions, width, C], unit length */
  const sie_out_item *items;
  void *out;
} sie_smve_args;

/* flags[place[b]] = 1 for each sequence b in which one of the rows that `which` selects has an
 * element that is NaN or infinite; other flags stay as they are. A quantised row is judged by its
 * scales, an e4m3 row also by its elements. */
typedef struct sie_mark_nonfinite_args {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens; /* [B+1] relative to the first row of x; NULL: x has one row a sequence */
  int32_t which;             /* SIE_POOL_CLS: the first row of each, SIE_POOL_LAST: the last; 0: all */
  int32_t reserved;
  int64_t c;
  sie_tensor x;         /* fX, u8 or f8e4m3 [R, C] */
  const int32_t *place; /* [B], all different; NULL: b */
  int32_t *flags;
} sie_mark_nonfinite_args;

typedef enum sie_op_kind {
  SIE_OP_EMBED_LAYERNORM = 0,
  SIE_OP_LAYERNORM = 1,
  SIE_OP_LINEAR = 2,
  SIE_OP_QUANTISE_ROWS = 3,
  SIE_OP_ATTENTION = 4,
  SIE_OP_GATHER_ROWS = 5,
  SIE_OP_POOL = 6,
  SIE_OP_OUTPUT_ROWS = 7,
  SIE_OP_QK_NORM_ROPE = 8,
  SIE_OP_POOL_OUTPUT = 9,
  SIE_OP_MUVERA = 10,
  SIE_OP_KEEP_ROWS = 11,
  SIE_OP_SPLADE = 12,
  SIE_OP_OUTPUT_SPARSE = 13,
  SIE_OP_MAXSIM = 14,
  SIE_OP_LORA = 15,
  SIE_OP_SMVE = 16,
  SIE_OP_MARK_NONFINITE = 17,
  SIE_OP_JOIN_COLUMNS = 18,
  SIE_OP_TAKE_ROWS = 19,
  SIE_OP_PRODUCT = 20,
  SIE_OP_DOTS = 21,
  SIE_OP_LSTM = 22,
  SIE_OP_SPANS = 23,
  SIE_OP_PAIRS = 24,
  SIE_OP_SOFTMAX = 25,
  SIE_OP_LINEAR_NORM = 26
} sie_op_kind;

/* The bounds from which scratch is planned: no call may exceed them. */
typedef struct sie_op_bounds {
  uint32_t kind;    /* sie_op_kind */
  uint32_t compute; /* linear: class of the weight */
  int64_t rows, n, k, c;
  int64_t max_len; /* rows of a sequence; attention: its keys, those of its prefix included */
  int32_t head_dim, heads;
  int64_t seqs;
  int32_t kv_heads;
  int32_t projected;    /* muvera: columns of a partition (P, or C for identity) */
  int32_t repetitions;  /* muvera, smve */
  int32_t simhash_bits; /* muvera */
  int64_t final_dims;   /* muvera: F, columns of the result */
  int64_t query_rows;   /* maxsim: Q */
  int32_t max_rank;     /* lora */
  int32_t top;          /* smve */
  /* attention: of its arguments; 0 without buckets */
  int32_t position_rows, bucket_reach;
  int64_t labels; /* spans, pairs: rows of a sequence's labels */
} sie_op_bounds;

typedef struct sie_ops {
  const char *name; /* "ref", "avx2", "avx512", "avx512-vnni", "amx", "neon", "neon-dot", "cuda-sm80", … */
  uint32_t isa;     /* sie_isa; 0 for ref and GPUs */
  uint32_t compute_mask;  /* bit (1 << sie_compute) for each class linear implements */
  int32_t act_dtype_bf16; /* storage type of activations in class BF16: always SIE_BF16 */
  int32_t act_dtype_int8; /* storage of float activations in class INT8: SIE_F32 or SIE_BF16 */

  int64_t (*packed_bytes)(uint32_t compute, int64_t n, int64_t k);
  /* Packs rows [n0, n0+rows) of W from f32 (row-major, stride ld). It is called part by part, n0
   * ascending, each part once; the caller has zeroed dst. */
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
  sie_status (*qk_norm_rope)(const sie_qk_norm_rope_args *, const sie_share *);
  sie_status (*pool_output)(const sie_pool_output_args *, const sie_share *);
  sie_status (*muvera)(const sie_muvera_args *, const sie_share *);
  sie_status (*keep_rows)(const sie_keep_rows_args *, const sie_share *);
  sie_status (*splade)(const sie_splade_args *, const sie_share *);
  sie_status (*output_sparse)(const sie_output_sparse_args *, const sie_share *);
  sie_status (*maxsim)(const sie_maxsim_args *, const sie_share *);
  sie_status (*lora)(const sie_lora_args *, const sie_share *);
  sie_status (*smve)(const sie_smve_args *, const sie_share *);
  sie_status (*mark_nonfinite)(const sie_mark_nonfinite_args *, const sie_share *);
  sie_status (*join_columns)(const sie_join_columns_args *, const sie_share *);
  sie_status (*take_rows)(const sie_take_rows_args *, const sie_share *);
  sie_status (*product)(const sie_product_args *, const sie_share *);
  sie_status (*dots)(const sie_dots_args *, const sie_share *);
  sie_status (*lstm)(const sie_lstm_args *, const sie_share *);
  sie_status (*spans)(const sie_spans_args *, const sie_share *);
  sie_status (*pairs)(const sie_pairs_args *, const sie_share *);
  sie_status (*softmax)(const sie_softmax_args *, const sie_share *);
  sie_status (*linear_norm)(const sie_linear_norm_args *, const sie_share *);

  /* GPUs only, NULL elsewhere. The host lists the tiles of an attention run for
   * sie_attention_args.work. attention_work_bytes is what any run within the bounds needs.
   * attention_work reads the host's copies of seqs.n, q_rows.n, cu_q, cu_kv, prefix_first and
   * prefix_keys from host_view (not the tensors' p) and writes at most that many bytes to dst, which
   * the caller copies to the device. It returns the errors that attention would return. */
  int64_t (*attention_work_bytes)(const sie_op_bounds *bounds);
  sie_status (*attention_work)(const sie_attention_args *host_view, void *dst);
  /* Whether a program for this card should have linear_norm for a linear by w and a norm behind it:
   * 1 or 0, the same for any number of rows. Reads no weights. NULL: no. */
  int32_t (*linear_norm_pays)(const sie_packed *w, const sie_stream *on);
} sie_ops;

/* The tables of this build. sie_cpu_ops returns NULL when the build or the machine lacks isa. */
const sie_ops *sie_ref_ops(void);
const sie_ops *sie_cpu_ops(uint32_t isa);
/* Returns the best sie_isa of this machine. On x86-64 it looks at cpuid and the OS state; for AMX it
 * asks the kernel (Linux) for permission. On arm64 it looks at what the kernel lists. */
uint32_t sie_cpu_detect(void);

#ifdef __cplusplus
}
#endif
#endif /* SIE_KERNELS_OPS_H */
