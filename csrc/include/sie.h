/* sie.h — the device boundary of SIE: record a model once, replay it per batch.
 *
 * How to use it
 *   1. sie_device_open           one handle per CPU or GPU
 *   2. sie_weight_create         pack each matrix, table and vector of a checkpoint
 *   3. sie_program_begin … sie_op_* … sie_program_end
 *                                record the forward pass; shapes are symbolic in rows and sequences
 *   4. sie_arena_create          scratch memory for intermediates, sized by the largest program
 *   5. sie_slot_create           one or two I/O slots: token ids in, results out
 *   6. per batch: sie_slot_load, sie_program_submit, sie_slot_wait, sie_slot_output
 * On a GPU the caller also owns context, memory and copies: section 7.
 *
 * Rules that hold everywhere
 *   - Memory is allocated only by *_open, *_create, *_begin and *_end. submit and wait never allocate,
 *     print, or block on anything but their device.
 *   - Every pointer parameter is borrowed for the call unless its comment says kept or given.
 *   - Functions return a status and, when it is not SIE_OK, fill the caller-owned error passed last
 *     (which may be NULL). No state survives in a thread or in the process: no globals, no callbacks, no
 *     signals, no output, no exit.
 *   - Free functions accept NULL.
 *   - Handles of one device may be used from one thread at a time, except sie_slot_wait, which another
 *     thread may call. Devices are independent of each other.
 *   - Results do not depend on what shares a batch: a sequence's output is the same bits whether it runs
 *     alone or in company, for one binary, device model, instruction set and compute class.
 * Letters: T tokens of a batch, B its sequences, C columns of a value, H heads, D head dimension. */
#ifndef SIE_H
#define SIE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SIE_API __attribute__((visibility("default")))
#else
#define SIE_API
#endif

/* ---- 1 Versions and errors ------------------------------------------------------------------------- */

#define SIE_ABI_VERSION 4u
SIE_API uint32_t sie_abi_version(void);

/* Append-only numbers: they are logged, compared by Go sentinels and mapped to HTTP. */
typedef enum sie_status {
  SIE_OK = 0,
  SIE_INVALID_ARGUMENT = 1, /* a rule of this header is broken; nothing was changed */
  SIE_UNSUPPORTED = 2,      /* this device or build has no such path; the message says which it has */
  SIE_CORRUPT = 3,          /* data contradicts itself (a tensor of another shape than promised) */
  SIE_OUT_OF_MEMORY = 4,    /* nothing was started; free something and retry */
  SIE_DEVICE_LOST = 5,      /* this process must drain and exit */
  SIE_INTERNAL = 6          /* a bug of ours */
} sie_status;

typedef struct sie_error {
  int32_t status;
  char message[252]; /* NUL-terminated, ASCII, no file paths */
} sie_error;

/* ---- 2 Types ----------------------------------------------------------------------------------------*/

typedef enum sie_dtype {
  SIE_F32 = 1,
  SIE_F16 = 2,
  SIE_BF16 = 3,
  SIE_I8 = 4,
  SIE_U8 = 5,
  SIE_I32 = 6,
  SIE_F8E4M3 = 7,
  SIE_BINARY = 8 /* outputs only: bit = x > 0, eight to a byte, most significant bit first */
} sie_dtype;

/* Compute class of a weight: operand type, accumulation is always f32 (s32 for INT8). Each class has one
 * numeric class per instruction set: one order of additions over K, one rounding point. */
typedef enum sie_compute {
  SIE_COMPUTE_F32 = 1,
  SIE_COMPUTE_BF16 = 2,
  SIE_COMPUTE_INT8 = 3, /* weights s8 per output channel; activations u8 per row, quantised at run time */
  SIE_COMPUTE_F16 = 4,
  SIE_COMPUTE_FP8 = 5
} sie_compute;

typedef enum sie_device_kind {
  SIE_DEVICE_CPU = 1,
  SIE_DEVICE_CUDA = 2,
  SIE_DEVICE_REF = 3 /* plain double accumulation, one thread: the judge in tests */
} sie_device_kind;

/* CPU instruction sets, in ascending order: opening with a lower one than the machine's limits every path. */
typedef enum sie_isa {
  SIE_ISA_BEST = 0,
  SIE_ISA_AVX2 = 1,   /* AVX2 + FMA + F16C */
  SIE_ISA_AVX512 = 2, /* F, BW, DQ, VL */
  SIE_ISA_AVX512_VNNI = 3,
  SIE_ISA_AMX = 4 /* AMX tile, bf16 and int8 */
} sie_isa;

typedef struct sie_device sie_device;
typedef struct sie_weight sie_weight;
typedef struct sie_program sie_program;
typedef struct sie_arena sie_arena;
typedef struct sie_slot sie_slot;

/* ---- 3 Device -------------------------------------------------------------------------------------- */

/* A GPU that the caller has opened. */
typedef struct sie_gpu {
  uint32_t struct_size; /* sizeof(sie_gpu) */
  int32_t major, minor; /* compute capability */
  int32_t multiprocessors;
  int32_t graphs; /* 1: small batches are captured as CUDA graphs and replayed; 0: never */
  int32_t reserved;
  int64_t memory_total; /* bytes */
  void *stream;         /* CUstream of the primary context, kept: where kernels run */
  char name[96];        /* model, NUL-terminated */
} sie_gpu;

typedef struct sie_device_options {
  uint32_t struct_size; /* sizeof(sie_device_options) */
  uint32_t kind;        /* sie_device_kind */
  int32_t ordinal;      /* CUDA: device index */
  int32_t threads;      /* CPU: executors; 0 = the cores this process may use (affinity and cgroup quota) */
  uint32_t isa;         /* CPU: upper bound, sie_isa */
  uint32_t reserved;
  const sie_gpu *gpu; /* CUDA only, borrowed; NULL elsewhere */
} sie_device_options;

/* Opens a device and starts its executors, which compute in the default floating-point state whatever the caller's is.
 * AMX permission, which Linux gives the whole process, is asked for first. */
SIE_API sie_status sie_device_open(const sie_device_options *options, sie_device **device, sie_error *err);
/* Waits for submitted runs, stops the executors. All other handles of the device must be freed before. */
SIE_API void sie_device_close(sie_device *device);

typedef struct sie_device_info {
  uint32_t struct_size; /* in: sizeof(sie_device_info) */
  uint32_t kind;
  int32_t threads;        /* executors */
  int32_t cpus_affinity;  /* CPUs in the affinity mask */
  double cpus_quota;      /* cgroup v1/v2 quota in CPUs; 0 = none */
  uint32_t isa;           /* chosen */
  uint32_t isa_detected;  /* best this machine has */
  uint32_t compute_mask;  /* bit (1 << sie_compute) for each class that passed its self-test */
  int64_t memory_total;   /* bytes; CPU: min(physical, cgroup limit) */
  int64_t memory_weights; /* bytes now held by weights of this device */
  char name[96];          /* CPU or GPU model */
  char why[512];          /* one clause per path: what was found, what was chosen, what was ruled out */
} sie_device_info;
SIE_API sie_status sie_device_query(const sie_device *device, sie_device_info *info, sie_error *err);

/* ---- 4 Weights -------------------------------------------------------------------------------------- */

typedef enum sie_weight_kind {
  SIE_WEIGHT_LINEAR = 1, /* [N, K] row-major as checkpoints store nn.Linear; packed for the compute class */
  SIE_WEIGHT_TABLE = 2,  /* [N, C] rows looked up by index; kept as f32 (F32) or bf16 (other classes) */
  SIE_WEIGHT_VECTOR = 3, /* [N] bias, gamma, beta; kept as f32 */
  SIE_WEIGHT_DATA = 4 /* [N, K] kept as it is, dense; compute is ignored: LoRA, tables of MUVERA and SMVE */
} sie_weight_kind;

typedef enum sie_weight_layout {
  SIE_LAYOUT_CONCAT = 0,            /* parts one after another along N (q, k, v → one matrix) */
  SIE_LAYOUT_INTERLEAVE_GATE_UP = 1 /* rows of gate and up alternate, for gated activations */
} sie_weight_layout;

typedef struct sie_weight_part {
  const void *data; /* borrowed during the call, any alignment */
  int64_t rows;     /* rows of this part; a VECTOR part has rows = its length */
  int64_t ld;       /* elements between rows; 0 = K */
} sie_weight_part;

typedef struct sie_weight_desc {
  uint32_t struct_size;
  uint32_t kind;    /* sie_weight_kind */
  uint32_t compute; /* sie_compute */
  uint32_t dtype;   /* of the source: SIE_F32, SIE_F16 or SIE_BF16; DATA: also SIE_I32 */
  uint32_t layout;  /* sie_weight_layout */
  int32_t n_parts;  /* 1 … 8 */
  int64_t n;        /* sum of the parts' rows */
  int64_t k;        /* columns; 1 for VECTOR */
  sie_weight_part parts[8];
} sie_weight_desc;

/* Packs a weight; the source may be unmapped afterwards. N and K are padded inside. Non-finite source
 * values are SIE_CORRUPT, denormal ones of f32 become 0 of their sign (not in DATA), and a matrix of class INT8 has
 * at most 65,536 columns: SIE_UNSUPPORTED. The weight must outlive the programs recorded with it. */
SIE_API sie_status sie_weight_create(sie_device *device, const sie_weight_desc *desc, sie_weight **weight,
                                     sie_error *err);
SIE_API void sie_weight_free(sie_weight *weight);
SIE_API int64_t sie_weight_bytes(const sie_weight *weight);
/* How many of the source's values were denormal and became 0. */
SIE_API int64_t sie_weight_denormals(const sie_weight *weight);

/* ---- 5 Programs: record ------------------------------------------------------------------------------ */

typedef struct sie_caps {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t max_tokens;     /* of a batch */
  int64_t max_seqs;       /* of a batch */
  int64_t max_len;        /* of one sequence */
  int64_t max_query_rows; /* of a batch's queries together (sie_op_maxsim); 0 without */
} sie_caps;

/* An intermediate of a program: rows are the batch's tokens, those of them it keeps, or its sequences; columns are fixed.
 * Its storage type follows the compute class of the weights and is never seen here. */
typedef int32_t sie_value;
#define SIE_NO_VALUE (-1)

typedef enum sie_act {
  SIE_ACT_NONE = 0,
  SIE_ACT_GELU_ERF = 1, /* x·Φ(x), exact erf */
  SIE_ACT_TANH = 2,
  SIE_ACT_GELU_TANH = 3,
  SIE_ACT_RELU = 4,
  SIE_ACT_SILU = 5
} sie_act;

typedef enum sie_pooling {
  SIE_POOL_CLS = 1,
  SIE_POOL_MEAN = 2,
  SIE_POOL_LAST = 3,
  SIE_POOL_ATTENTION = 4,    /* kernels only: a learned vector scores the tokens; their softmax weighs them */
  SIE_POOL_WEIGHTED_MEAN = 5 /* kernels only: by position: 1, 2, … n */
} sie_pooling;
typedef enum sie_norm { SIE_NORM_LAYER = 0, SIE_NORM_RMS = 1, SIE_NORM_NONE = 2 } sie_norm;
typedef enum sie_gate {
  SIE_GATE_NONE = 0,
  SIE_GATE_SWIGLU = 1,    /* silu(gate)·up */
  SIE_GATE_GEGLU = 2,     /* gelu(gate)·up, exact erf */
  SIE_GATE_GEGLU_TANH = 3 /* gelu(gate)·up, tanh form */
} sie_gate;
/* What becomes of the values of a sparse output row. */
typedef enum sie_sparse {
  SIE_SPARSE_AS_IS = 0,
  SIE_SPARSE_LOG = 1,    /* log(1 + x) */
  SIE_SPARSE_LOG_LOG = 2 /* log(1 + log(1 + x)) */
} sie_sparse;
typedef enum sie_mask { SIE_MASK_FULL = 0, SIE_MASK_CAUSAL = 1, SIE_MASK_WINDOW = 2 } sie_mask;

SIE_API sie_status sie_program_begin(sie_device *device, const sie_caps *caps, sie_program **program,
                                     sie_error *err);

/* y[T,C] = LN(word[ids] + position[i + position_offset] + type[type_ids]); i counts from 0 in each sequence.
 * position and type may be NULL. Ids and positions outside a table are refused by sie_slot_load. */
SIE_API sie_status sie_op_embed_layernorm(sie_program *program, const sie_weight *word,
                                          const sie_weight *position, const sie_weight *type,
                                          const sie_weight *gamma, const sie_weight *beta, float eps,
                                          int32_t position_offset, sie_value *y, sie_error *err);

/* y = act(x·Wᵀ + bias) + residual. bias and residual are optional (NULL, SIE_NO_VALUE). x [R, K], y [R, N]. */
SIE_API sie_status sie_op_linear(sie_program *program, sie_value x, const sie_weight *w,
                                 const sie_weight *bias, sie_act act, sie_value residual, sie_value *y,
                                 sie_error *err);

/* y = LN(x)·gamma + beta; beta may be NULL. x [R, C]. */
SIE_API sie_status sie_op_layernorm(sie_program *program, sie_value x, const sie_weight *gamma,
                                    const sie_weight *beta, float eps, sie_value *y, sie_error *err);

/* A view of columns [column, column + width) of x; moves nothing. */
SIE_API sie_status sie_op_columns(sie_program *program, sie_value x, int64_t column, int64_t width,
                                  sie_value *y, sie_error *err);

typedef struct sie_attention_params {
  uint32_t struct_size;
  uint32_t mask;    /* sie_mask */
  int32_t heads;    /* of q */
  int32_t kv_heads; /* of k and v; heads is a multiple */
  int32_t head_dim; /* 1 to 256 on a CPU; a GPU has the forms it was built with */
  int32_t window;   /* SIE_MASK_WINDOW: keys within ±window */
  float scale;      /* multiplies q·k; usually 1/sqrt(head_dim) */
  uint32_t reserved;
} sie_attention_params;

/* y = softmax(scale·q·kᵀ)·v per sequence and head. q has the batch's token rows, or one row per sequence
 * (after sie_op_gather_rows: last-layer pruning); k and v have token rows or, without a mask, kept rows: keys that nobody
 * sees are left out. q [R, H·D], y [R, H·D]. */
SIE_API sie_status sie_op_attention(sie_program *program, sie_value q, sie_value k, sie_value v,
                                    const sie_attention_params *params, sie_value *y, sie_error *err);

/* y[B,C] = the first (SIE_POOL_CLS) or last (SIE_POOL_LAST) token row of each sequence. */
SIE_API sie_status sie_op_gather_rows(sie_program *program, sie_value x, sie_pooling which, sie_value *y,
                                      sie_error *err);

/* y[B,C] f32: cls, mean over the sequence's tokens, or last. x may have sequence rows already (then it is
 * only widened). An empty sequence gives zeros. */
SIE_API sie_status sie_op_pool(sie_program *program, sie_value x, sie_pooling mode, sie_value *y,
                               sie_error *err);

/* y[K, C] = the token rows the batch keeps (sie_batch.keep), in order. Operations on rows take kept rows as they take token
 * rows; attention takes them for k and v. */
SIE_API sie_status sie_op_keep_rows(sie_program *program, sie_value x, sie_value *y, sie_error *err);

/* y = act(x·Wᵀ + bias + s) + residual, s the LoRA term of each row's sequence: B·(A·x) of the adapter that sie_batch.adapter
 * names, 0 for −1. Adapter i is (a[i], b[i]): SIE_WEIGHT_DATA of one dtype, [rank, K] and [N, rank], the scale folded into
 * b; both NULL where it has none for this linear. n_adapters 1 … 64, the same in all calls of a program. */
typedef struct sie_lora {
  uint32_t struct_size;
  int32_t n_adapters;
  const sie_weight *const *a;
  const sie_weight *const *b;
} sie_lora;
SIE_API sie_status sie_op_linear_lora(sie_program *program, sie_value x, const sie_weight *w,
                                      const sie_weight *bias, sie_act act, sie_value residual,
                                      const sie_lora *lora, sie_value *y, sie_error *err);

/* y[B, V] f32 = max(0, the largest logit of the sequence's tokens, x·Wᵀ + bias) per column of the vocabulary. x has token
 * rows. The logits of tokens are never stored. Only sie_op_output_sparse and sie_op_output_values read y. */
SIE_API sie_status sie_op_splade(sie_program *program, sie_value x, const sie_weight *w,
                                 const sie_weight *bias, sie_value *y, sie_error *err);

/* y[B, 1] f32 = Σ over the rows i of the sequence's query of max over its own rows j of q_i·x_j (ColBERT's MaxSim); the
 * sequence's rows are divided by their L2 norm when normalize is 1. Queries come with the batch (sie_batch.queries), have
 * x's columns and are taken as they are. A sequence without partner gives 0. x has token or kept rows. */
SIE_API sie_status sie_op_maxsim(sie_program *program, sie_value x, int32_t normalize, sie_value *y,
                                 sie_error *err);

/* Declares output `index` (0, 1, … in order): each sequence's row of x [B, C], cut to the item's dims,
 * divided by its L2 norm (eps 1e-12) when the item says so, converted to the item's dtype and written at
 * the item's offset. Rounding as documented at sie_out_item. */
SIE_API sie_status sie_op_output_rows(sie_program *program, sie_value x, int32_t index, sie_error *err);

/* Declares output `index`: all rows of x as f32, [R, C], densely, in batch order. For tests and per-token
 * models. */
SIE_API sie_status sie_op_output_values(sie_program *program, sie_value x, int32_t index, sie_error *err);

/* Declares output `index`: the rows of x [R, C] (token or kept rows), each as sie_op_output_rows writes one; a sequence's
 * rows lie one after another from the item's offset, without gaps. */
SIE_API sie_status sie_op_output_token_rows(sie_program *program, sie_value x, int32_t index, sie_error *err);

/* Declares output `index`: the columns of each sequence's row of x [B, V] that are above 0, after `transform`. The item's
 * dims is room for that many columns, its dtype F32 or F16 that of the values; at its offset, a multiple of 16, are
 *   int32 count, three int32 of 0, int32 column[dims], value[dims]
 * count is the true number, which may exceed dims; columns ascend; places beyond are left as they were. */
SIE_API sie_status sie_op_output_sparse(sie_program *program, sie_value x, sie_sparse transform,
                                        int32_t index, sie_error *err);

/* Declares output `index`: the fixed dimensional encoding of each sequence's rows of x (MUVERA, arXiv:2405.19504; the
 * formula is at sie_muvera_args in kernels/ops.h), a row shaped by its item. Tables are SIE_WEIGHT_DATA: simhash f32
 * [R·C, bits] or NULL for 0 bits, ams i32 [R, C] or NULL for identity (P = C), sketch i32 [R·2^bits·P, 1]. Without a
 * sketch (final_dims 0) all three of its tables are NULL; with one, a CPU takes `sketch` and a GPU the other two, which
 * sie_muvera_group makes of it. Indices outside their range are refused here. */
typedef struct sie_muvera {
  uint32_t struct_size;
  int32_t repetitions, simhash_bits, projected, final_dims;
  int32_t is_query, fill_empty, center_tokens;
  int32_t normalize; /* 1: rows are divided by their L2 norm first */
  const sie_weight *simhash, *ams;
  const sie_weight *sketch;        /* a CPU's */
  const sie_weight *sketch_first;  /* a GPU's: i32 [R, final_dims + 1] */
  const sie_weight *sketch_source; /* a GPU's: i32 [R·2^bits·P, 1] */
} sie_muvera;
SIE_API sie_status sie_op_output_muvera(sie_program *program, sie_value x, const sie_muvera *params,
                                        int32_t index, sie_error *err);

/* Groups the sketch [R, block], block = 2^bits·P, by output, as GPUs read it: first [R, final_dims + 1], source [R, block].
 * SIE_CORRUPT: an index outside the result. Any build. */
SIE_API sie_status sie_muvera_group(const int32_t *sketch, int64_t repetitions, int64_t block,
                                    int64_t final_dims, int32_t *first, int32_t *source, sie_error *err);

/* Declares output `index`: the sparse multi-vector encoding of each sequence's rows of x (sie_smve_args in
 * kernels/ops.h), written as sie_op_output_sparse does. anchors: SIE_WEIGHT_DATA f32 [repetitions·width, C]. */
typedef struct sie_smve {
  uint32_t struct_size;
  int32_t repetitions, width, top, max_nonzeros;
  int32_t is_query;
  int32_t normalize;
  const sie_weight *anchors;
} sie_smve;
SIE_API sie_status sie_op_output_smve(sie_program *program, sie_value x, const sie_smve *params,
                                      int32_t index, sie_error *err);

/* Bytes of an arena. Texts of up to 512 tokens are worked on in lanes, one for each executor; the intermediates of longer ones
 * lie in a region that all share, 16,384 tokens of them at once. On a GPU all is one lane. */
typedef struct sie_workspace {
  int64_t lane;   /* of each of sie_device_info.threads executors */
  int64_t region; /* 0 where no sequence has more than 512 tokens */
} sie_workspace;

/* Plans the intermediates by liveness. *workspace receives what an arena needs for this program. */
SIE_API sie_status sie_program_end(sie_program *program, sie_workspace *workspace, sie_error *err);
SIE_API void sie_program_free(sie_program *program);

/* Bytes of the most queries a batch of the program can bring, max_query_rows · C · 4; 0 where it has no sie_op_maxsim. */
SIE_API int64_t sie_program_query_bytes(const sie_program *program);

/* Writes a readable listing (one operation a line: shapes, types, bytes) to text[cap], NUL-terminated; returns
 * the length it needs. */
SIE_API size_t sie_program_describe(const sie_program *program, char *text, size_t cap);

/* ---- 6 Arena, slots, runs ------------------------------------------------------------------------------ */

/* Scratch memory of a device, shared by all its programs. A program that needs
 * more gets a larger one; runs in flight keep theirs. */
SIE_API sie_status sie_arena_create(sie_device *device, const sie_workspace *workspace, sie_arena **arena,
                                    sie_error *err);
SIE_API void sie_arena_free(sie_arena *arena);
SIE_API int64_t sie_arena_bytes(const sie_arena *arena);

/* What one sequence's row becomes in outputs declared with sie_op_output_rows.
 *   SIE_F32, SIE_F16  the value (f16: round to nearest even, overflow to infinity)
 *   SIE_I8            rint(x / s * 127), s = max|x| (0 counts as 1)
 *   SIE_U8            rint((x - min) / r * 255), r = max - min (0 counts as 1)
 *   SIE_BINARY        ceil(dims / 8) bytes, last byte's low bits zero
 * All in f32, divide before multiply, ties to even: bit-equal to NumPy. */
typedef struct sie_out_item {
  int32_t dtype;      /* sie_dtype */
  int32_t dims;       /* 1 … C, 0 = C */
  uint32_t normalize; /* 0 or 1 */
  uint32_t reserved;
  int64_t offset; /* bytes from the start of the output, aligned to the element */
} sie_out_item;

typedef struct sie_slot_caps {
  uint32_t struct_size;
  uint32_t n_outputs; /* 1 … 4 */
  int64_t max_tokens;
  int64_t max_seqs;
  int64_t output_bytes[4]; /* capacity of each output */
  int64_t input_bytes;     /* GPU: the largest sie_program_input_bytes; else 0 */
  int64_t query_bytes;     /* CPU: the largest sie_program_query_bytes */
} sie_slot_caps;

SIE_API sie_status sie_slot_create(sie_device *device, const sie_slot_caps *caps, sie_slot **slot,
                                   sie_error *err);
SIE_API void sie_slot_free(sie_slot *slot);

/* A batch. T tokens of B sequences, packed. */
typedef struct sie_batch {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t n_tokens, n_seqs;
  const int32_t *ids;           /* [T] */
  const int32_t *type_ids;      /* [T], or NULL: all 0 */
  const int32_t *cu_seqlens;    /* [B+1], from 0, ascending, T = cu_seqlens[B] */
  const uint8_t *keep;          /* [T] 1 where sie_op_keep_rows keeps the row, else 0; NULL: all */
  const int32_t *adapter;       /* [B] for sie_op_linear_lora, −1: none; NULL: none anywhere */
  int64_t n_queries;            /* for sie_op_maxsim; at most max_seqs */
  const float *queries;         /* [cu_queries[n_queries], C]; max_query_rows at most */
  const int32_t *cu_queries;    /* [n_queries + 1], from 0, ascending; NULL without queries */
  const int32_t *partner;       /* [B] the query of each sequence, −1: none; NULL: none anywhere */
  const sie_out_item *items[4]; /* [B] of each output that takes them; NULL for the others */
} sie_batch;

/* Fills a free slot with a batch for `program`, copying it, and builds the work lists. Checks every id, length, index,
 * offset and cap; on error the slot stays free. What the program has no operation for is not looked at. */
SIE_API sie_status sie_slot_load(sie_slot *slot, const sie_program *program, const sie_batch *batch,
                                 sie_error *err);

/* Starts the loaded batch and returns at once. At most two runs of a device may be in flight; the later may finish first. A
 * batch with a sequence of more than 512 tokens steps back for the other run, between blocks of tens of milliseconds. program, arena and slot are kept until sie_slot_wait returns. */
SIE_API sie_status sie_program_submit(sie_program *program, sie_arena *arena, sie_slot *slot, sie_error *err);

/* Blocks until the slot's run is done; returns the run's status. The slot is then free and its outputs are
 * valid until it is loaded again. Any thread. */
SIE_API sie_status sie_slot_wait(sie_slot *slot, sie_error *err);

/* The bytes of output `index` after sie_slot_wait. On a GPU: pinned memory, to which the caller copies. */
SIE_API const void *sie_slot_output(const sie_slot *slot, int32_t index);

/* After sie_slot_wait, int32 flags [B] in the batch's order: 1 for a sequence whose outputs were made of a row with an element
 * that is NaN or infinite, whatever they became (in I8, U8, BINARY and sparse rows nothing shows it); else 0. Valid as
 * outputs are. On a GPU: pinned memory, to which the caller copies 4·B bytes from *offset bytes into the arena's memory;
 * offset may be NULL. */
SIE_API const int32_t *sie_slot_nonfinite(const sie_slot *slot, int64_t *offset);

/* ---- 7 GPUs --------------------------------------------------------------------------------------------
 * The caller makes context, streams, events and device memory with the driver's API, and copies; this library packs,
 * plans, launches and captures, and owns what lies in pinned host memory. The device's context is current in every
 * thread that calls a function with a handle of a GPU. What the calls above leave to the caller:
 *   weight  sie_weight_create packs into host memory. Copy sie_weight_staged to device memory of
 *           sie_weight_bytes, aligned to 256 bytes, and hand that to sie_weight_place before recording with it.
 *   arena   give the lane of sie_arena_create's workspace as device memory to sie_arena_place, with memory for the outputs.
 *   batch   sie_slot_load; copy sie_slot_input to the start of the arena's memory, on the stream of sie_gpu;
 *           sie_program_submit (enqueues on that stream and returns); copy the arena's outputs to
 *           sie_slot_output, and what sie_slot_nonfinite says; wait for all of it; sie_slot_wait (which does not wait)
 *           frees the slot.
 * Device memory is the caller's to free, after the handle that was placed in it. */

/* Whether this build runs on a card of compute capability major.minor, with a driver for CUDA `driver` (13000 for 13.0;
 * 0: not asked). SIE_UNSUPPORTED: the message says what was found, what is needed and what to do. */
SIE_API sie_status sie_gpu_check(int32_t major, int32_t minor, int32_t driver, sie_error *err);

/* What a code of the driver (CUresult) means: SIE_OUT_OF_MEMORY, SIE_UNSUPPORTED, SIE_INTERNAL for a misuse, else
 * SIE_DEVICE_LOST. Any build. */
SIE_API sie_status sie_gpu_status(int32_t code);

/* The packed bytes in host memory, NULL once placed or on a CPU. */
SIE_API const void *sie_weight_staged(const sie_weight *weight);
/* Gives up the host copy; from now on the weight lies at `memory` on the device. Once. */
SIE_API sie_status sie_weight_place(sie_weight *weight, void *memory, sie_error *err);

/* memory has the arena's lane, outputs[i] output_bytes[i] bytes (NULL and 0 where none is used); all aligned to
 * 256 bytes. Again after the outputs have moved. */
SIE_API sie_status sie_arena_place(sie_arena *arena, void *memory, void *const outputs[4],
                                   const int64_t output_bytes[4], sie_error *err);

/* Bytes of the largest sie_slot_input of a batch of the program; 0 on a CPU. */
SIE_API int64_t sie_program_input_bytes(const sie_program *program);

/* What the loaded batch needs on the device: pinned memory, valid until the slot is loaded again. */
SIE_API sie_status sie_slot_input(const sie_slot *slot, const void **host, int64_t *bytes, sie_error *err);

#ifdef __cplusplus
}
#endif
#endif /* SIE_H */
