/* sie.h — the device boundary of SIE: record a model once, replay it per batch.
 *
 * How to use it (csrc/examples/embed.c does all of it in one page)
 *   1. sie_device_open           one handle per CPU or GPU
 *   2. sie_weight_create         pack each matrix, table and vector of a checkpoint
 *   3. sie_program_begin, sie_program_add, sie_program_end
 *                                record the forward pass as a list of operations; rows are symbolic
 *   4. sie_arena_create          scratch memory for intermediates, sized by the largest program
 *   5. sie_slot_create           one or two I/O slots: inputs in, results out
 *   6. per batch: sie_slot_load, sie_program_submit, sie_slot_wait, sie_slot_output
 * On a GPU the caller also owns context, memory and copies: section 7.
 *
 * Rules that hold everywhere
 *   - Memory is allocated only by *_open, *_create, *_begin, *_add and *_end. submit and wait never allocate,
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
 *
 * Structs that grow
 *   A struct that begins with struct_size may get fields at its end. The caller sets struct_size to the
 *   size it was compiled with and clears the rest; a field that is 0 has its default. A library that knows
 *   more fields takes those that are missing as 0. One that knows fewer accepts the struct as long as the
 *   bytes it does not know are 0, and names them in SIE_UNSUPPORTED otherwise. What begins without
 *   struct_size (sie_op, sie_out_item, sie_rows_of, sie_weight_part, sie_workspace, sie_error) never grows.
 * Letters: T rows of a batch's tokens, B its sequences, R rows of any space, C columns of a value,
 * H heads, D head dimension. */
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

/* "ok", "invalid_argument", …; "unknown" for a number that is none of sie_status. Never NULL. */
SIE_API const char *sie_status_name(sie_status status);

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

/* Compute class of a weight: operand type, accumulation is always f32 (s32 for INT8). Each class
 * has one numeric class per instruction set: one order of additions over K, one rounding point. */
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

/* A CPU instruction set: a family in the upper half, a level of it in the lower. Levels of one
 * family ascend: opening with a lower one than the machine's limits every path. Those of two
 * families have no order. */
#define SIE_ISA_FAMILY(isa) ((uint32_t)(isa) >> 16)
#define SIE_ISA_LEVEL(isa) ((uint32_t)(isa) & 0xffffu)
typedef enum sie_isa_family {
  SIE_FAMILY_X86_64 = 1,
  SIE_FAMILY_ARM64 = 2 /* no kernels yet: SIE_UNSUPPORTED */
} sie_isa_family;
typedef enum sie_isa {
  SIE_ISA_BEST = 0,
  SIE_ISA_AVX2 = 0x10001,   /* AVX2 + FMA + F16C */
  SIE_ISA_AVX512 = 0x10002, /* F, BW, DQ, VL */
  SIE_ISA_AVX512_VNNI = 0x10003,
  SIE_ISA_AMX = 0x10004 /* AMX tile, bf16 and int8 */
} sie_isa;

typedef struct sie_device sie_device;
typedef struct sie_weight sie_weight;
typedef struct sie_program sie_program;
typedef struct sie_arena sie_arena;
typedef struct sie_slot sie_slot;
typedef struct sie_state sie_state;

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
  int32_t threads;      /* CPU: executors; 0 = the cores this process may use (affinity and cgroup quota) */
  uint32_t isa;         /* CPU: upper bound, sie_isa */
  const sie_gpu *gpu;   /* CUDA only, borrowed; NULL elsewhere */
} sie_device_options;

/* Opens a device and starts its executors, which compute in the default floating-point state
 * whatever the caller's is. AMX permission, which Linux gives the whole process, is asked for
 * first. */
SIE_API sie_status sie_device_open(const sie_device_options *options, sie_device **device, sie_error *err);
/* Waits for submitted runs, stops the executors. All other handles of the device must be freed
 * before. */
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

/* Packs a weight; the source may be unmapped afterwards. N and K are padded inside. Non-finite
 * source values are SIE_CORRUPT, denormal ones of f32 become 0 of their sign (not in DATA), and a
 * matrix of class INT8 has at most 65,536 columns: SIE_UNSUPPORTED. The weight must outlive the
 * programs recorded with it. */
SIE_API sie_status sie_weight_create(sie_device *device, const sie_weight_desc *desc, sie_weight **weight,
                                     sie_error *err);
SIE_API void sie_weight_free(sie_weight *weight);
SIE_API int64_t sie_weight_bytes(const sie_weight *weight);
/* How many of the source's values were denormal and became 0. */
SIE_API int64_t sie_weight_denormals(const sie_weight *weight);

/* ---- 5 Programs: record ------------------------------------------------------------------------------ */

/* Bounds of a program's own numbers. */
#define SIE_MAX_SPACES 8
#define SIE_MAX_INPUTS 12
#define SIE_MAX_OUTPUTS 8
#define SIE_MAX_VALUES 8192
#define SIE_MAX_NAME 31 /* bytes of a name, without its end */

/* Numbers by which a program's entries name what earlier ones made. The caller chooses them, from 1
 * up to the bound; 0 stands for none. */
typedef int32_t sie_space; /* 1 … SIE_MAX_SPACES */
typedef int32_t sie_input; /* 1 … SIE_MAX_INPUTS */
/* 1 … SIE_MAX_VALUES: an intermediate. Its rows are those of a space, its columns fixed; its storage
 * type follows the compute class of the weights and is never seen here. */
typedef int32_t sie_value;
#define SIE_NO_VALUE 0

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
  SIE_POOL_ATTENTION = 4,    /* a learned vector scores the rows; their softmax weighs them */
  SIE_POOL_WEIGHTED_MEAN = 5 /* by position: 1, 2, … n */
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

/* The entries of a program, each with its struct: two declarations, then operations. Numbers are
 * append-only. */
typedef enum sie_kind {
  SIE_SPACE = 1,
  SIE_INPUT = 2,
  SIE_EMBED = 3,
  SIE_NORM = 4,
  SIE_LINEAR = 5,
  SIE_COLUMNS = 6,
  SIE_ATTENTION = 7,
  SIE_ROPE = 8,
  SIE_GATHER_ROWS = 9,
  SIE_POOL = 10,
  SIE_KEEP_ROWS = 11,
  SIE_SPLADE = 12,
  SIE_MAXSIM = 13,
  SIE_OUTPUT_ROWS = 14,
  SIE_OUTPUT_VALUES = 15,
  SIE_OUTPUT_TOKEN_ROWS = 16,
  SIE_OUTPUT_SPARSE = 17,
  SIE_OUTPUT_MUVERA = 18,
  SIE_OUTPUT_SMVE = 19
} sie_kind;

typedef struct sie_op {
  uint32_t kind;      /* sie_kind */
  uint32_t reserved;  /* 0 */
  const void *params; /* the kind's struct below: SIE_LINEAR: sie_linear_params */
} sie_op;

/* An empty program. */
SIE_API sie_status sie_program_begin(sie_device *device, sie_program **program, sie_error *err);

/* Appends entries in order; what an entry names must come before it. An entry that is refused is
 * left out with all behind it; those before it are recorded, and the message names it by its number
 * in the program, from 0, and its kind. */
SIE_API sie_status sie_program_add(sie_program *program, const sie_op *ops, int64_t n_ops, sie_error *err);

/* How a batch says which rows a space has. */
typedef enum sie_space_kind {
  SIE_SPACE_SEQS = 1,   /* one row a sequence; each program has one */
  SIE_SPACE_ROWS = 2,   /* each sequence's own rows, as many as offsets say: tokens. Each program has one */
  SIE_SPACE_SUBSET = 3, /* the rows of another space that a u8 input marks with 1, in order */
  SIE_SPACE_SHARED = 4  /* rows of the batch that no sequence owns, in groups as offsets say: queries */
} sie_space_kind;

/* SIE_SPACE: declares a space. */
typedef struct sie_space_params {
  uint32_t struct_size;
  uint32_t kind; /* sie_space_kind */
  sie_space space;
  sie_input marks;  /* SUBSET: u8 of the ROWS space it chooses from, declared before */
  int64_t max_rows; /* of a batch; SUBSET: 0, it has as many as the space it chooses from */
  int64_t max_each; /* ROWS: of one sequence */
  const char *name; /* 1 to SIE_MAX_NAME of a to z, 0 to 9, '_'; of its own among spaces */
} sie_space_params;

/* SIE_INPUT: declares what a batch brings for the rows of a space. Operations that read it bound
 * its values. */
typedef struct sie_input_params {
  uint32_t struct_size;
  sie_input input;
  sie_space space; /* SEQS, ROWS or SHARED */
  uint32_t dtype;  /* SIE_I32; SIE_U8 for marks of a ROWS space; SIE_F32 in a SHARED space */
  /* Of a row; 0 = 1, of SIE_F32 those of what reads it first; more than one for SIE_F32 alone. */
  int32_t columns;
  int32_t optional; /* 1: a batch may leave it out, which means `otherwise` in every row */
  int32_t otherwise;
  int32_t reserved; /* 0 */
  const char *name; /* as of spaces, of its own among inputs */
} sie_input_params;

/* SIE_EMBED: y[T,C] = norm(word_scale·word[ids] + position[…] + type[type_ids]), added in that
 * order. Indices outside a table are refused by sie_slot_load. */
typedef struct sie_embed_params {
  uint32_t struct_size;
  sie_value y;
  sie_input ids;      /* of a ROWS space */
  sie_input type_ids; /* of the same; 0: row 0 of type for all */
  /* Of the same: rows of position; 0: i + position_offset, i from 0 in each sequence. A type table
   * without type_ids is unsupported beside it. */
  sie_input positions;
  int32_t position_offset;                  /* without positions */
  const sie_weight *word, *position, *type; /* tables [·, C] of one class; position and type may be NULL */
  const sie_weight *gamma, *beta;           /* [C]; beta may be NULL, with SIE_NORM_NONE both are */
  uint32_t norm;                            /* sie_norm */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
  float word_scale;    /* 0 = 1 */
} sie_embed_params;

/* SIE_NORM: with s = (x + bias) + residual in f32, y = norm(s):
 *   SIE_NORM_LAYER  (s − μ)/√(σ² + eps)·(weight_offset + gamma) + beta
 *   SIE_NORM_RMS    s/√(mean s² + eps)·(weight_offset + gamma) + beta
 * and, where it has a number, sum = s: the next residual of nets that normalise first. All [R, C].
 * */
typedef struct sie_norm_params {
  uint32_t struct_size;
  uint32_t norm; /* sie_norm; not NONE */
  sie_value x, residual;
  sie_value y, sum;
  const sie_weight *gamma, *beta, *bias; /* [C]; beta and bias may be NULL */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
} sie_norm_params;

/* SIE_LINEAR: z = x·Wᵀ + bias + s, y = act(z) + residual. x [R, K], y [R, N]. With a gate, act is
 * NONE, W's rows alternate (SIE_LAYOUT_INTERLEAVE_GATE_UP; bias and adapters likewise) and y[j] =
 * g(z[2j])·z[2j + 1] + residual[j], N/2 columns. s is the LoRA term of each row's sequence: B·(A·x)
 * of the adapter that the input `adapter` names, 0 for −1. Adapter i is (a[i], b[i]):
 * SIE_WEIGHT_DATA of one dtype (f32 on a CPU; on a GPU f16 for the class F16, else bf16), [rank, K]
 * and [N, rank], the scale folded into b; both NULL where it has none for this linear. */
typedef struct sie_linear_params {
  uint32_t struct_size;
  uint32_t act;  /* sie_act */
  uint32_t gate; /* sie_gate */
  sie_value x, residual;
  sie_value y;
  const sie_weight *w;
  const sie_weight *bias; /* [N] or NULL */
  sie_input adapter;      /* i32 of the SEQS space */
  int32_t n_adapters;     /* 0: none; else 1 … 64, the same in all linears of a program that have any */
  const sie_weight *const *a;
  const sie_weight *const *b;
} sie_linear_params;

/* SIE_COLUMNS: y is a view of columns [column, column + width) of x; nothing moves. */
typedef struct sie_columns_params {
  uint32_t struct_size;
  sie_value x, y;
  int32_t reserved; /* 0 */
  int64_t column, width;
} sie_columns_params;

/* SIE_ATTENTION: y = softmax(scale·q·kᵀ − slope·distance)·v per sequence and head, over the keys
 * that the mask lets through. q has rows of the ROWS or, without a mask, of the SEQS space; k and v
 * have rows of the ROWS space or, without a mask, of a subset of it: keys that nobody sees are left
 * out. q, y [R, H·D], k, v [R, kv_heads·D]. */
typedef struct sie_attention_params {
  uint32_t struct_size;
  uint32_t mask; /* sie_mask */
  sie_value q, k, v;
  sie_value y;
  int32_t heads;           /* of q */
  int32_t kv_heads;        /* of k and v; heads is a multiple; 0 = heads */
  int32_t head_dim;        /* 1 to 256 on a CPU; a GPU has the forms it was built with */
  int32_t window;          /* SIE_MASK_WINDOW: keys within ±window */
  float scale;             /* multiplies q·k; 0 = 1/√head_dim */
  int32_t reserved;        /* 0 */
  const sie_weight *alibi; /* a vector of slopes [H], distance = |query's place − key's|; NULL: none */
} sie_attention_params;

/* SIE_ROPE: updates q [T, H·D] and k [T, kv_heads·D], each head's D columns: normalised by RMS
 * where a weight is given, then the first rot of them rotated, i < rot/2:
 *   y[i] = x[i]·cos[p,i] − x[i + rot/2]·sin[p,i],  y[i + rot/2] = x[i + rot/2]·cos[p,i] + x[i]·sin[p,i]
 * p = the row's place in its sequence + position_offset. Operations recorded later read what it
 * made of them. */
typedef struct sie_rope_params {
  uint32_t struct_size;
  sie_value q, k;                    /* of the ROWS space; k may be 0; views that share no column */
  int32_t heads, kv_heads, head_dim; /* kv_heads 0 = heads */
  int32_t rot;                       /* even, 0 … head_dim */
  int32_t position_offset;
  const sie_weight *cos, *sin;         /* SIE_WEIGHT_DATA f32 [positions, rot/2]; NULL for rot 0 */
  const sie_weight *q_gamma, *k_gamma; /* vectors [D], or NULL: no norm */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
} sie_rope_params;

/* SIE_GATHER_ROWS: y[B,C] = the first (SIE_POOL_CLS) or last (SIE_POOL_LAST) row of each sequence.
 * */
typedef struct sie_gather_rows_params {
  uint32_t struct_size;
  uint32_t which; /* sie_pooling */
  sie_value x, y;
} sie_gather_rows_params;

/* SIE_POOL: y[B,C] f32 of each sequence's rows. x may have one row a sequence already, which is
 * only widened. A sequence without rows gives zeros. */
typedef struct sie_pool_params {
  uint32_t struct_size;
  uint32_t mode; /* sie_pooling */
  sie_value x, y;
  const sie_weight *w; /* SIE_POOL_ATTENTION: a vector [C]; else NULL */
} sie_pool_params;

/* SIE_KEEP_ROWS: y[R, C] = the rows of x, of the ROWS space, that belong to a subset of it. */
typedef struct sie_keep_rows_params {
  uint32_t struct_size;
  sie_space to; /* of kind SUBSET */
  sie_value x, y;
} sie_keep_rows_params;

/* SIE_SPLADE: y[B, V] f32 = max(0, the largest logit of the sequence's rows, x·Wᵀ + bias) per
 * column of the vocabulary. x has rows of the ROWS space. Their logits are never stored. Only
 * SIE_OUTPUT_SPARSE and SIE_OUTPUT_VALUES read y. */
typedef struct sie_splade_params {
  uint32_t struct_size;
  sie_value x, y;
  int32_t reserved; /* 0 */
  const sie_weight *w;
  const sie_weight *bias; /* [V] or NULL */
} sie_splade_params;

/* SIE_MAXSIM: y[B, 1] f32 = Σ over the rows i of the sequence's query of max over its own rows j of
 * q_i·x_j (ColBERT); rows of x are divided by their L2 norm when normalize is 1. Queries are taken
 * as they are. A sequence without partner gives 0. */
typedef struct sie_maxsim_params {
  uint32_t struct_size;
  int32_t normalize;
  sie_value x, y;
  sie_input queries; /* f32 of a SHARED space, with x's columns; the same in all of a program */
  sie_input partner; /* i32 of the SEQS space: a group of that space, or −1 */
} sie_maxsim_params;

/* What all outputs have in common. They are numbered from 0 in the order in which they are
 * recorded; a name is of its own among them. Each writes sequence rows as its item says
 * (sie_out_item), but VALUES.
 *
 * SIE_OUTPUT_ROWS        each sequence's row of x [B, C]: cut, normalised, converted, at the item's offset
 * SIE_OUTPUT_VALUES      all rows of x as f32 [R, C], densely, in the batch's order; no items
 * SIE_OUTPUT_TOKEN_ROWS the rows of x [R, C], each as OUTPUT_ROWS writes one; a sequence's lie one
 * after another from the item's
 *                        offset, without gaps */
typedef struct sie_output_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
} sie_output_params;

/* SIE_OUTPUT_SPARSE: the columns of each sequence's row of x [B, V] that are above 0, after
 * `transform`. The item's dims is room for that many columns, its dtype F32 or F16 that of the
 * values; at its offset, a multiple of 16, are
 *   int32 count, three int32 of 0, int32 column[dims], value[dims]
 * count is the true number, which may exceed dims; columns ascend; places beyond are left as they
 * were. */
typedef struct sie_output_sparse_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
  uint32_t transform; /* sie_sparse */
  int32_t reserved;   /* 0 */
} sie_output_sparse_params;

/* SIE_OUTPUT_MUVERA: the fixed dimensional encoding of each sequence's rows of x (arXiv:2405.19504;
 * the formula is at sie_muvera_args in kernels/ops.h). Tables are SIE_WEIGHT_DATA: simhash f32
 * [R·C, bits] or NULL for 0 bits, ams i32 [R, C] or NULL for identity (P = C), sketch i32
 * [R·2^bits·P, 1]. Without a sketch (final_dims 0) all three of its tables are NULL; with one, a
 * CPU takes `sketch` and a GPU the other two, which sie_muvera_group makes of it. */
typedef struct sie_muvera_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
  int32_t repetitions, simhash_bits, projected, final_dims;
  int32_t is_query, fill_empty, center_tokens;
  int32_t normalize; /* 1: rows are divided by their L2 norm first */
  const sie_weight *simhash, *ams;
  const sie_weight *sketch;        /* a CPU's */
  const sie_weight *sketch_first;  /* a GPU's: i32 [R, final_dims + 1] */
  const sie_weight *sketch_source; /* a GPU's: i32 [R·2^bits·P, 1] */
} sie_muvera_params;

/* Groups the sketch [R, block], block = 2^bits·P, by output, as GPUs read it: first [R, final_dims
 * + 1], source [R, block]. SIE_CORRUPT: an index outside the result. Any build. */
SIE_API sie_status sie_muvera_group(const int32_t *sketch, int64_t repetitions, int64_t block,
                                    int64_t final_dims, int32_t *first, int32_t *source, sie_error *err);

/* SIE_OUTPUT_SMVE: the sparse multi-vector encoding of each sequence's rows of x (sie_smve_args in
 * kernels/ops.h), written as SIE_OUTPUT_SPARSE does. anchors: SIE_WEIGHT_DATA f32
 * [repetitions·width, C]. */
typedef struct sie_smve_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
  int32_t repetitions, width, top, max_nonzeros;
  int32_t is_query;
  int32_t normalize;
  const sie_weight *anchors;
} sie_smve_params;

/* Bytes of an arena. Texts of up to 512 tokens are worked on in lanes, one for each executor; the
 * intermediates of longer ones lie in a region that all share, 16,384 tokens of them at once. On a
 * GPU all is one lane. */
typedef struct sie_workspace {
  int64_t lane;   /* of each of sie_device_info.threads executors */
  int64_t region; /* 0 where no sequence has more than 512 tokens */
} sie_workspace;

/* Plans the intermediates by liveness. *workspace receives what an arena needs for this program. */
SIE_API sie_status sie_program_end(sie_program *program, sie_workspace *workspace, sie_error *err);
SIE_API void sie_program_free(sie_program *program);

/* Of an ended program: bytes of the largest batch's inputs in a slot, and on a GPU of the largest
 * sie_slot_input. */
SIE_API int64_t sie_program_input_bytes(const sie_program *program);

/* The number of what has the name; 0, of outputs −1, where nothing has. */
SIE_API sie_space sie_program_find_space(const sie_program *program, const char *name);
SIE_API sie_input sie_program_find_input(const sie_program *program, const char *name);
SIE_API int32_t sie_program_find_output(const sie_program *program, const char *name);

typedef struct sie_input_info {
  uint32_t struct_size; /* in */
  sie_space space;
  uint32_t dtype;
  int32_t columns;
  int32_t optional; /* as declared, or 1: no operation reads it */
  /* Of SIE_I32: the values that operations take; most of a group's number is not known here. */
  int32_t least, most;
  char name[SIE_MAX_NAME + 1];
} sie_input_info;
/* Of an ended program. */
SIE_API sie_status sie_program_input(const sie_program *program, sie_input input, sie_input_info *info,
                                     sie_error *err);

/* How an output is written. */
typedef enum sie_output_form {
  SIE_FORM_VALUES = 1,     /* all rows, densely, f32 */
  SIE_FORM_ROWS = 2,       /* a row a sequence, as items say */
  SIE_FORM_TOKEN_ROWS = 3, /* the rows of each sequence, as items say */
  SIE_FORM_SPARSE = 4      /* columns with their values, as items say */
} sie_output_form;
typedef struct sie_output_info {
  uint32_t struct_size; /* in */
  uint32_t form;        /* sie_output_form */
  sie_space space;      /* of the rows that are written */
  int32_t columns;      /* of a row before its item cuts it */
  char name[SIE_MAX_NAME + 1];
} sie_output_info;
SIE_API int32_t sie_program_n_outputs(const sie_program *program);
SIE_API sie_status sie_program_output(const sie_program *program, int32_t index, sie_output_info *info,
                                      sie_error *err);

/* Writes a readable listing (spaces, inputs and outputs by name, then an operation a line: shapes,
 * types, bytes) to text[cap], NUL-terminated; returns the length it needs. */
SIE_API size_t sie_program_describe(const sie_program *program, char *text, size_t cap);

/* ---- 6 Arena, slots, runs ------------------------------------------------------------------------------ */

/* Scratch memory of a device, shared by all its programs. A program that needs
 * more gets a larger one; runs in flight keep theirs. */
SIE_API sie_status sie_arena_create(sie_device *device, const sie_workspace *workspace, sie_arena **arena,
                                    sie_error *err);
SIE_API void sie_arena_free(sie_arena *arena);
SIE_API int64_t sie_arena_bytes(const sie_arena *arena);

/* What one sequence's rows become in outputs that take items.
 *   SIE_F32, SIE_F16  the value (f16: round to nearest even, overflow to infinity)
 *   SIE_I8            rint(x / s * 127), s = max|x| (0 counts as 1)
 *   SIE_U8            rint((x - min) / r * 255), r = max - min (0 counts as 1)
 *   SIE_BINARY        ceil(dims / 8) bytes, last byte's low bits zero
 * All in f32, divide before multiply, ties to even: bit-equal to NumPy. */
typedef struct sie_out_item {
  int32_t dtype;      /* sie_dtype */
  int32_t dims;       /* 1 … C, 0 = C */
  uint32_t normalize; /* 0 or 1: divided by its L2 norm (eps 1e-12) */
  uint32_t reserved;
  int64_t offset; /* bytes from the start of the output, aligned to the element */
} sie_out_item;

/* Bytes that an item writes to output `index`, of a sequence with so many rows in the output's
 * space (1 of SEQS and SPARSE); for SIE_FORM_VALUES, which has no items, of so many rows. −1 for an
 * index, rows or an item that cannot be. */
SIE_API int64_t sie_program_output_bytes(const sie_program *program, int32_t index, const sie_out_item *item,
                                         int64_t rows);

typedef struct sie_slot_caps {
  uint32_t struct_size;
  uint32_t n_outputs; /* 1 … SIE_MAX_OUTPUTS */
  int64_t max_tokens; /* rows of the ROWS space */
  int64_t max_seqs;
  int64_t input_bytes;         /* the largest sie_program_input_bytes */
  const int64_t *output_bytes; /* [n_outputs] capacity of each output */
} sie_slot_caps;

SIE_API sie_status sie_slot_create(sie_device *device, const sie_slot_caps *caps, sie_slot **slot,
                                   sie_error *err);
SIE_API void sie_slot_free(sie_slot *slot);

/* The rows that a batch has of a space. Of a ROWS space offsets has n_seqs + 1 entries, of a SHARED
 * one groups + 1: from 0, ascending. The others need none. */
typedef struct sie_rows_of {
  int64_t groups; /* SHARED */
  const int32_t *offsets;
} sie_rows_of;

/* A batch of B sequences, packed: what it brings by the numbers of the program, entry 0 for number
 * 1 (of outputs, 0). A list may be shorter, and entries for numbers that the program has not are
 * not looked at. */
typedef struct sie_batch {
  uint32_t struct_size;
  uint32_t n_spaces, n_inputs, n_outputs; /* entries of the lists */
  int64_t n_seqs;
  const sie_rows_of *spaces;
  const void *const *inputs;        /* [rows of its space, columns], densely; NULL: left out */
  const sie_out_item *const *items; /* [B] of each output that takes them; NULL for the others */
} sie_batch;

/* Fills a free slot with a batch for `program`, copying it, and builds the work lists. Checks every
 * index, length, offset and bound; on error the slot stays free. */
SIE_API sie_status sie_slot_load(sie_slot *slot, const sie_program *program, const sie_batch *batch,
                                 sie_error *err);

/* What outlives a batch: where the paged keys and values of sequences will live. Empty so far: no
 * operation keeps any. It must outlive the runs that were submitted with it. */
typedef struct sie_state_desc {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
} sie_state_desc;
SIE_API sie_status sie_state_create(sie_device *device, const sie_state_desc *desc, sie_state **state,
                                    sie_error *err);
SIE_API void sie_state_free(sie_state *state);

/* Starts the loaded batch and returns at once. At most two runs of a device may be in flight; the
 * later may finish first. A batch with a sequence of more than 512 tokens steps back for the other
 * run, between blocks of tens of milliseconds. state may be NULL. program, arena, slot and state
 * are kept until sie_slot_wait returns. */
SIE_API sie_status sie_program_submit(sie_program *program, sie_arena *arena, sie_slot *slot,
                                      sie_state *state, sie_error *err);

/* Blocks until the slot's run is done; returns the run's status. The slot is then free and its
 * outputs are valid until it is loaded again. Any thread. */
SIE_API sie_status sie_slot_wait(sie_slot *slot, sie_error *err);

/* The bytes of output `index` after sie_slot_wait, *bytes of them (may be NULL); NULL for an output
 * it has not. On a GPU: pinned memory, to which the caller copies. */
SIE_API const void *sie_slot_output(const sie_slot *slot, int32_t index, int64_t *bytes);

/* After sie_slot_wait, int32 flags [B] in the batch's order: 1 for a sequence whose outputs were
 * made of a row with an element that is NaN or infinite, whatever they became (in I8, U8, BINARY
 * and sparse rows nothing shows it); else 0. Valid as outputs are. On a GPU: pinned memory, to
 * which the caller copies 4·B bytes from *offset bytes into the arena's memory; offset may be NULL.
 * */
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

/* Whether this build runs on a card of compute capability major.minor, with a driver for CUDA
 * `driver` (13000 for 13.0; 0: not asked). SIE_UNSUPPORTED: the message says what was found, what
 * is needed and what to do. */
SIE_API sie_status sie_gpu_check(int32_t major, int32_t minor, int32_t driver, sie_error *err);

/* What a code of the driver (CUresult) means: SIE_OUT_OF_MEMORY, SIE_UNSUPPORTED, SIE_INTERNAL for
 * a misuse, else SIE_DEVICE_LOST. Any build. */
SIE_API sie_status sie_gpu_status(int32_t code);

/* The packed bytes in host memory, NULL once placed or on a CPU. */
SIE_API const void *sie_weight_staged(const sie_weight *weight);
/* Gives up the host copy; from now on the weight lies at `memory` on the device. Once. */
SIE_API sie_status sie_weight_place(sie_weight *weight, void *memory, sie_error *err);

/* memory has the arena's lane, outputs[i] output_bytes[i] bytes (NULL and 0 where none is used), i
 * below n_outputs; all aligned to 256 bytes. Again after the outputs have moved. */
SIE_API sie_status sie_arena_place(sie_arena *arena, void *memory, uint32_t n_outputs, void *const *outputs,
                                   const int64_t *output_bytes, sie_error *err);

/* What the loaded batch needs on the device: pinned memory, valid until the slot is loaded again.
 * */
SIE_API sie_status sie_slot_input(const sie_slot *slot, const void **host, int64_t *bytes, sie_error *err);

#ifdef __cplusplus
}
#endif
#endif /* SIE_H */
