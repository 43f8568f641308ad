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
 * On a GPU the caller also owns the context, the memory and the copies: see section 7.
 *
 * Rules that hold everywhere
 *   - Memory is allocated only by *_open, *_create, *_begin, *_add and *_end. submit and wait never
 *     allocate, print, or block on anything but their device.
 *   - Every pointer parameter is borrowed for the call unless its comment says kept or given.
 *   - Functions return a status. When it is not SIE_OK, they fill the caller's sie_error, which is
 *     the last parameter and may be NULL. No state survives in a thread or in the process: no
 *     globals, no callbacks, no signals, no output, no exit.
 *   - Free functions accept NULL.
 *   - The handles of one device may be used from one thread at a time, except that another thread
 *     may call sie_slot_wait. Devices are independent of each other.
 *   - Results do not depend on the rest of the batch. A sequence's output has the same bits whether
 *     it runs alone or with others, for one binary, device model, instruction set and compute
 *     class.
 *
 * Structs that grow
 *   A struct that begins with struct_size may get new fields at its end. The caller sets
 *   struct_size to the size it was compiled with and clears the rest. A field that is 0 has its
 *   default. A library that knows more fields reads the missing ones as 0. A library that knows
 *   fewer accepts the struct if all bytes it does not know are 0; otherwise it returns
 *   SIE_UNSUPPORTED and names them. A struct without struct_size (sie_op, sie_out_item,
 *   sie_rows_of, sie_weight_part, sie_workspace, sie_error) never grows.
 * Letters: T tokens of a batch, B its sequences, R rows of any space, C columns of a value, H
 * heads, D head dimension. */
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

/* ---- 1 Versions and errors ------------------------------------------------------------------- */

#define SIE_ABI_VERSION 5u
/* The SIE_ABI_VERSION with which the library was built. */
SIE_API uint32_t sie_abi_version(void);

/* Numbers are append-only: they are logged, compared by Go sentinels and mapped to HTTP. */
typedef enum sie_status {
  SIE_OK = 0,
  SIE_INVALID_ARGUMENT = 1, /* a rule of this header is broken; nothing was changed */
  SIE_UNSUPPORTED = 2,      /* this device or build cannot do it; the message says what it can */
  SIE_CORRUPT = 3,          /* data contradicts itself (a tensor of another shape than promised) */
  SIE_OUT_OF_MEMORY = 4,    /* nothing was started; free something and retry */
  SIE_DEVICE_LOST = 5,      /* this process must drain and exit */
  SIE_INTERNAL = 6          /* a bug of ours */
} sie_status;

/* "ok", "invalid_argument", …; "unknown" for a number that sie_status lacks. Never NULL. */
SIE_API const char *sie_status_name(sie_status status);

typedef struct sie_error {
  int32_t status;
  char message[252]; /* NUL-terminated, ASCII, no file paths */
} sie_error;

/* ---- 2 Types --------------------------------------------------------------------------------- */

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

/* Compute class of a weight: the type of the operands. Accumulation is always f32 (s32 for INT8).
 * Each class has one numeric class per instruction set: one order of additions over K, one rounding
 * point. */
typedef enum sie_compute {
  SIE_COMPUTE_F32 = 1,
  SIE_COMPUTE_BF16 = 2,
  SIE_COMPUTE_INT8 = 3, /* weights s8 per output channel; activations u8 per row, at run time */
  SIE_COMPUTE_F16 = 4,
  SIE_COMPUTE_FP8 = 5
} sie_compute;

typedef enum sie_device_kind {
  SIE_DEVICE_CPU = 1,
  SIE_DEVICE_CUDA = 2,
  SIE_DEVICE_REF = 3 /* plain double accumulation, one thread: the judge in tests */
} sie_device_kind;

/* A CPU instruction set: its family in the upper half, its level within the family in the lower.
 * Levels of one family ascend: a device opened with a lower level than the machine has uses no
 * kernel above that level. Levels of two families have no order; a build has the kernels of one
 * family, and refuses the other's levels with SIE_UNSUPPORTED. */
#define SIE_ISA_FAMILY(isa) ((uint32_t)(isa) >> 16)
#define SIE_ISA_LEVEL(isa) ((uint32_t)(isa) & 0xffffu)
typedef enum sie_isa_family { SIE_FAMILY_X86_64 = 1, SIE_FAMILY_ARM64 = 2 } sie_isa_family;
typedef enum sie_isa {
  SIE_ISA_BEST = 0,
  SIE_ISA_AVX2 = 0x10001,   /* AVX2 + FMA + F16C */
  SIE_ISA_AVX512 = 0x10002, /* F, BW, DQ, VL */
  SIE_ISA_AVX512_VNNI = 0x10003,
  SIE_ISA_AVX512_BF16 = 0x10004, /* with VNNI and AVX512_BF16 */
  SIE_ISA_AMX = 0x10005,         /* AMX tile, bf16 and int8 */
  SIE_ISA_NEON = 0x20001,        /* ASIMD, which every arm64 has */
  SIE_ISA_NEON_DOT = 0x20002     /* with SDOT: ASIMDDP, ARMv8.2 */
} sie_isa;

typedef struct sie_device sie_device;
typedef struct sie_weight sie_weight;
typedef struct sie_program sie_program;
typedef struct sie_arena sie_arena;
typedef struct sie_slot sie_slot;
typedef struct sie_state sie_state;

/* ---- 3 Device -------------------------------------------------------------------------------- */

/* Where a kernel may start under the end of the one before (programmatic dependent launch, from compute
 * capability 9.0 on). The results are the same bits; it is for finding faults. */
typedef enum sie_overlap {
  SIE_OVERLAP_ALWAYS = 0,
  SIE_OVERLAP_LAUNCHES = 1, /* between launches, never inside a graph */
  SIE_OVERLAP_NEVER = 2
} sie_overlap;

/* A GPU that the caller has opened. */
typedef struct sie_gpu {
  uint32_t struct_size; /* sizeof(sie_gpu) */
  int32_t major, minor; /* compute capability */
  int32_t multiprocessors;
  int32_t graphs;       /* 1: capture small batches as CUDA graphs and replay them; 0: never */
  uint32_t overlap;     /* sie_overlap */
  int64_t memory_total; /* bytes */
  void *stream;         /* CUstream of the primary context, kept: where kernels run */
  char name[96];        /* model, NUL-terminated */
} sie_gpu;

typedef struct sie_device_options {
  uint32_t struct_size; /* sizeof(sie_device_options) */
  uint32_t kind;        /* sie_device_kind */
  int32_t threads;      /* CPU: executors; 0 = the cores allowed by affinity and cgroup quota */
  uint32_t isa;         /* CPU: upper bound, sie_isa */
  const sie_gpu *gpu;   /* CUDA only, borrowed; NULL elsewhere */
  uint32_t one_node;    /* CPU: 1 = as if all memory were one node's */
  uint32_t reserved;
} sie_device_options;

/* Opens a device and starts its executors. They compute in the default floating-point state,
 * whatever the caller's state is. Opening a CPU asks Linux for permission to use AMX; Linux grants
 * it to the whole process. */
SIE_API sie_status sie_device_open(const sie_device_options *options, sie_device **device, sie_error *err);
/* Waits for submitted runs, then stops the executors. The caller frees all other handles of the
 * device first. */
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
  char why[512];          /* one clause per path: found, chosen, ruled out */
  int32_t cores;          /* physical cores of the affinity mask */
  int32_t caches;         /* L3 caches of those cores; 0 = not known */
  int32_t nodes;          /* parts of the machine with memory of their own that have such cores */
  int32_t nodes_used;     /* nodes of the executors, which linears may be copied to */
  int64_t graphs_refused; /* GPU: captures that the driver refused; those batches run kernel by kernel */
} sie_device_info;
SIE_API sie_status sie_device_query(const sie_device *device, sie_device_info *info, sie_error *err);

/* ---- 4 Weights ------------------------------------------------------------------------------- */

typedef enum sie_weight_kind {
  SIE_WEIGHT_LINEAR = 1, /* [N, K] row-major like nn.Linear; packed for the compute class */
  SIE_WEIGHT_TABLE = 2,  /* [N, C] looked up by index; class F32: f32, F16: f16, else bf16 */
  SIE_WEIGHT_VECTOR = 3, /* [N] bias, gamma, beta; kept as f32 */
  SIE_WEIGHT_DATA = 4    /* [N, K] unchanged, dense; compute is ignored: LoRA, MUVERA, SMVE */
} sie_weight_kind;

typedef enum sie_weight_layout {
  SIE_LAYOUT_CONCAT = 0,            /* parts one after another along N (q, k, v → one matrix) */
  SIE_LAYOUT_INTERLEAVE_GATE_UP = 1 /* rows of gate and up alternate, for gated activations */
} sie_weight_layout;

/* Where a weight lies on a CPU whose executors are on several nodes. */
typedef enum sie_placement {
  SIE_PLACE_INTERLEAVED = 0, /* its pages in turn on each node */
  SIE_PLACE_COPIED = 1       /* LINEAR: a copy on each node, which its executors read; else as above */
} sie_placement;

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
  uint32_t placement; /* sie_placement */
  uint32_t group;     /* weights of a group, those of a model, share huge pages on a CPU; 0: none */
} sie_weight_desc;

/* Packs a weight; the source may be unmapped afterwards. N and K are padded inside. A value that is
 * not finite is SIE_CORRUPT. A denormal f32 value becomes 0 of the same sign, except in DATA. A
 * matrix of class INT8 with more than 65,536 columns is SIE_UNSUPPORTED. The weight must outlive
 * the programs recorded with it. */
SIE_API sie_status sie_weight_create(sie_device *device, const sie_weight_desc *desc, sie_weight **weight,
                                     sie_error *err);
SIE_API void sie_weight_free(sie_weight *weight);
/* Bytes of the packed weight, of all its copies. */
SIE_API int64_t sie_weight_bytes(const sie_weight *weight);
/* The number of source values that were denormal and became 0. */
SIE_API int64_t sie_weight_denormals(const sie_weight *weight);

/* ---- 5 Programs: record ---------------------------------------------------------------------- */

/* The largest number of each kind in a program, and the longest name. */
#define SIE_MAX_SPACES 8
#define SIE_MAX_INPUTS 20
#define SIE_MAX_OUTPUTS 8
#define SIE_MAX_VALUES 8192
#define SIE_MAX_JOINED 3 /* values whose columns are joined */
#define SIE_MAX_SEGMENTS 256
#define SIE_MAX_SPAN_WIDTH 256 /* words of a span */
#define SIE_MAX_NAME 31        /* bytes of a name, without the NUL */

/* Numbers by which the entries of a program refer to spaces, inputs and values that earlier entries
 * made. The caller chooses them, from 1 up to the bound; 0 means none. */
typedef int32_t sie_space; /* 1 … SIE_MAX_SPACES */
typedef int32_t sie_input; /* 1 … SIE_MAX_INPUTS */
/* 1 … SIE_MAX_VALUES: an intermediate result. It has the rows of a space and a fixed number of
 * columns. Its storage type follows from the compute class of the weights, unless it is a stream
 * (SIE_STREAM); callers never see it. */
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
  SIE_POOL_ATTENTION = 4,     /* rows weighed by the softmax of their product with a vector */
  SIE_POOL_WEIGHTED_MEAN = 5, /* by place in the sequence: 1, 2, … n */
  SIE_POOL_MAX = 6,           /* the largest of each column */
  SIE_POOL_MEAN_SQRT = 7,     /* the sum divided by √n */
  SIE_POOL_SUM = 8,           /* this one and those below not on GPUs */
  SIE_POOL_RMS = 9,           /* √ of the mean of the squares */
  SIE_POOL_ABS_MAX = 10,      /* the largest size of each column */
  SIE_POOL_ABS_MEAN = 11      /* the mean of the sizes */
} sie_pooling;
typedef enum sie_norm { SIE_NORM_LAYER = 0, SIE_NORM_RMS = 1, SIE_NORM_NONE = 2 } sie_norm;
typedef enum sie_gate {
  SIE_GATE_NONE = 0,
  SIE_GATE_SWIGLU = 1,    /* silu(gate)·up */
  SIE_GATE_GEGLU = 2,     /* gelu(gate)·up, exact erf */
  SIE_GATE_GEGLU_TANH = 3 /* gelu(gate)·up, tanh form */
} sie_gate;
/* How the values of a sparse output row are transformed. */
typedef enum sie_sparse {
  SIE_SPARSE_AS_IS = 0,
  SIE_SPARSE_LOG = 1,    /* log(1 + x) */
  SIE_SPARSE_LOG_LOG = 2 /* log(1 + log(1 + x)) */
} sie_sparse;
typedef enum sie_mask { SIE_MASK_FULL = 0, SIE_MASK_CAUSAL = 1, SIE_MASK_WINDOW = 2 } sie_mask;

/* The kinds of a program's entries. The first two and SIE_STATE declare, and SIE_STREAM says how a
 * result is stored; the others are operations. Each kind has its own params struct. Numbers are
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
  SIE_OUTPUT_SMVE = 19,
  SIE_JOIN = 20,
  SIE_STREAM = 21,
  SIE_STATE = 22,
  SIE_STATE_ROWS = 23,
  SIE_TAKE_ROWS = 24,
  SIE_PRODUCT = 25,
  SIE_DOTS = 26,
  SIE_LSTM = 27,
  SIE_OUTPUT_SPANS = 28,
  SIE_OUTPUT_PAIRS = 29,
  SIE_GIVEN_ROWS = 30,
  SIE_SOFTMAX = 31
} sie_kind;

typedef struct sie_op {
  uint32_t kind;      /* sie_kind */
  uint32_t reserved;  /* 0 */
  const void *params; /* the kind's struct below, such as sie_linear_params for SIE_LINEAR */
} sie_op;

/* Makes an empty program. */
SIE_API sie_status sie_program_begin(sie_device *device, sie_program **program, sie_error *err);

/* Appends entries in order; an entry may refer only to earlier ones. If an entry is refused, it and
 * all entries after it are left out; those before it stay recorded. The message names the refused
 * entry by its kind and by its number in the program, from 0. */
SIE_API sie_status sie_program_add(sie_program *program, const sie_op *ops, int64_t n_ops, sie_error *err);

/* How a batch gives the rows of a space. */
typedef enum sie_space_kind {
  SIE_SPACE_SEQS = 1,   /* one row for each sequence; exactly one a program */
  SIE_SPACE_ROWS = 2,   /* each sequence's own rows (tokens, labels), by offsets; at least one */
  SIE_SPACE_SUBSET = 3, /* those rows of a ROWS space that a u8 input of it marks with 1, in order */
  SIE_SPACE_SHARED = 4  /* rows of no sequence (queries), in groups by offsets */
} sie_space_kind;

/* SIE_SPACE: declares a space. */
typedef struct sie_space_params {
  uint32_t struct_size;
  uint32_t kind; /* sie_space_kind */
  sie_space space;
  sie_input marks;  /* SUBSET: a u8 input of a ROWS space, declared before */
  int64_t max_rows; /* the most of a batch; SUBSET: 0, its bound is that of the ROWS space */
  int64_t max_each; /* ROWS: the most of one sequence; other kinds: 0 */
  const char *name; /* 1 to SIE_MAX_NAME of a to z, 0 to 9, '_'; unique among spaces */
  int64_t min_each; /* ROWS: the least of one sequence; 0: it may have no rows */
} sie_space_params;

/* SIE_INPUT: declares data that a batch brings for the rows of a space. The operations that read it
 * bound its values. */
typedef struct sie_input_params {
  uint32_t struct_size;
  sie_input input;
  sie_space space; /* SEQS, ROWS or SHARED */
  uint32_t dtype;  /* SIE_I32; SIE_U8 for marks of a ROWS space; SIE_F32 in a SHARED space */
  /* Values of a row: 1, or for SIE_F32 any number. 0 means 1, or for SIE_F32 the number that the
   * first operation to read it needs. */
  int32_t columns;
  int32_t optional; /* 1: a batch may leave it out; every row then has the value `otherwise` */
  int32_t otherwise;
  int32_t reserved; /* 0 */
  const char *name; /* as for spaces; unique among inputs */
} sie_input_params;

/* SIE_EMBED: y[T,C] = norm(word_scale·word[ids] + position[…] + type[type_ids]), added in that
 * order. sie_slot_load refuses indices outside a table. */
typedef struct sie_embed_params {
  uint32_t struct_size;
  sie_value y;
  sie_input ids;      /* of a ROWS space */
  sie_input type_ids; /* of the same space; 0: row 0 of the type table for all */
  /* Of the same space: each token's row of the position table. 0: token i of a sequence, from 0,
   * takes row i + position_offset. Positions together with a type table are unsupported. */
  sie_input positions;
  int32_t position_offset;                  /* without positions */
  const sie_weight *word, *position, *type; /* tables [·, C] of one class; all but word may be NULL */
  const sie_weight *gamma, *beta;           /* [C]; beta may be NULL; SIE_NORM_NONE: both NULL */
  uint32_t norm;                            /* sie_norm */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
  float word_scale;    /* 0 = 1 */
} sie_embed_params;

/* SIE_NORM: with s = (x + bias) + residual in f32, y = norm(s):
 *   SIE_NORM_LAYER  (s − μ)/√(σ² + eps)·(weight_offset + gamma) + beta
 *   SIE_NORM_RMS    s/√(mean s² + eps)·(weight_offset + gamma) + beta
 * If sum has a number, sum = s: the next residual in networks that normalise first. All are [R,
 * C]. */
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
 * g(z[2j])·z[2j + 1] + residual[j] has N/2 columns. s is the LoRA term of each row's sequence:
 * B·(A·x) of the LoRA adapter that the input `adapter` names, or 0 for −1. Adapter i is the pair
 * a[i] [rank, K] and b[i] [N, rank], with the scale folded into b. Both are SIE_WEIGHT_DATA of one
 * dtype: f32 on a CPU; on a GPU f16 for the class F16, else bf16. Both are NULL if the adapter does
 * not change this linear. */
typedef struct sie_linear_params {
  uint32_t struct_size;
  uint32_t act;  /* sie_act */
  uint32_t gate; /* sie_gate */
  sie_value x, residual;
  sie_value y;
  const sie_weight *w;
  const sie_weight *bias; /* [N] or NULL */
  sie_input adapter;      /* i32 of the SEQS space */
  int32_t n_adapters;     /* 0 or 1 … 64; the same in all linears that have any */
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

/* SIE_JOIN: y[R, Σ C] = the columns of two or three values next to each other. All have rows of one
 * space and are of one class. */
typedef struct sie_join_params {
  uint32_t struct_size;
  sie_value y;
  sie_value x[SIE_MAX_JOINED]; /* in order; the last may be 0 */
  int32_t reserved;            /* 0 */
} sie_join_params;

/* SIE_STREAM: x is a stream: stored in f32 whatever its class, as the residual stream of a network
 * that normalises first should be, to which every block adds. x is a result of the operation before
 * this entry, which is SIE_EMBED, SIE_NORM (y or sum) or SIE_LINEAR. Norms, residuals, poolings and
 * outputs read the f32 rows; operations that take only the class's type read one copy that is
 * rounded to it. Rows that SIE_GATHER_ROWS and SIE_KEEP_ROWS take from a stream are one too. Nothing
 * updates a stream in place. */
typedef struct sie_stream_params {
  uint32_t struct_size;
  sie_value x;
} sie_stream_params;

/* SIE_ATTENTION: y = softmax(scale·q·kᵀ − slope·distance + bias)·v per sequence and head, over the
 * keys that the mask lets through. q has rows of a ROWS space or of the SEQS space. k and v have
 * rows of the same ROWS space; with SIE_MASK_FULL and without alibi, bias and buckets of any ROWS
 * space or subset, so that unused keys are left out; with first_keys of a subset of q's. Places among
 * rows of a ROWS space count from 0 in each sequence. A q of the SEQS space is one of its sequence's
 * rows (SIE_GATHER_ROWS); with a mask, alibi, bias or buckets, `which` says which one. Its result has
 * the bits that it has among all rows. A row that sees no key gets zeros. q, y [R, H·D], k, v
 * [R, kv_heads·D]. */
typedef struct sie_attention_params {
  uint32_t struct_size;
  uint32_t mask; /* sie_mask */
  sie_value q, k, v;
  sie_value y;
  int32_t heads;           /* of q */
  int32_t kv_heads;        /* of k and v; divides heads; 0 = heads */
  int32_t head_dim;        /* 1 to 256 on a CPU; on a GPU, those that the build has kernels for */
  int32_t window;          /* SIE_MASK_WINDOW: keys within ±window */
  float scale;             /* multiplies q·k; 0 = 1/√head_dim */
  uint32_t which;          /* q of the SEQS space: SIE_POOL_CLS or SIE_POOL_LAST; else 0 */
  const sie_weight *alibi; /* slopes [H]; distance = |query's place − key's|; NULL: none */
  /* Relative bias: DATA f32 [H, 2·R + 1], R at most 2^20; NULL: none. A head's row has the biases
   * by key's place − query's place from −R to R; farther keys have those of ±R. scale does not
   * multiply it. On a GPU head_dim is then at most 128. */
  const sie_weight *bias;
  /* 1: k and v have rows of a SUBSET of q's ROWS space that keeps the first rows of each sequence, so
   * that a key's place is its number; sie_slot_load refuses a batch that keeps others. */
  int32_t first_keys;
  /* A segment of the state (SIE_STATE), [rows, 2·kv_heads·D]: k, then v. The rows of a sequence's
   * prefix are its first keys, before those of k and v, and count as places. 0: none. Then q has
   * rows of the ROWS space or the last ones (SIE_GATHER_ROWS), k and v those of the ROWS space, and
   * there is neither alibi nor bias. */
  int32_t segment;
  /* Disentangled attention (DeBERTa): the scores are
   *   scale·(q_i·k_j + q_i·K_b + k_j·Q_b),  b = buckets[i − j] of the places i of the query, j of the key
   * with K pos_key and Q pos_query, DATA [P, H·D], P at most 8192, of which one may be NULL: f32 on a
   * CPU; on a GPU f16 for the class F16, else bf16. buckets: DATA i32 [1, 2·R + 1], R at most 2^20,
   * rows of the tables by distance from −R to R, never falling; farther distances have those of ±R.
   * All three NULL: none. Then the mask is SIE_MASK_FULL, kv_heads = heads, there is no alibi, bias,
   * first_keys or segment, keys need places as behind a mask, and a GPU takes head_dim to 128. */
  const sie_weight *pos_key, *pos_query, *buckets;
} sie_attention_params;

/* SIE_ROPE: updates q [T, H·D] and k [T, kv_heads·D] in place. In each head, the D columns are
 * normalised by RMS if a weight is given; then the first rot of them are rotated, i < rot/2:
 *   y[i]         = x[i]·cos[p,i] − x[i + rot/2]·sin[p,i]
 *   y[i + rot/2] = x[i + rot/2]·cos[p,i] + x[i]·sin[p,i]
 * p = the row's place in its sequence + position_offset; behind 1: + the rows of the sequence's
 * prefix in the state (SIE_STATE). Operations recorded later read the updated rows.
 * turns gives longer sequences than cos has rows, P, angles by their own length: one of P + 1 + n
 * rows takes cos and sin of 2π·p·t_i, where entries i and i + rot/2 of row n are the upper and the
 * lower 32 bits of t_i·2^64, the part of a turn from one row to the next. position_offset and behind
 * are then 0. */
typedef struct sie_rope_params {
  uint32_t struct_size;
  sie_value q, k;                    /* of a ROWS space; k may be 0; views that share no column */
  int32_t heads, kv_heads, head_dim; /* kv_heads 0 = heads */
  int32_t rot;                       /* even, 0 … head_dim */
  int32_t position_offset;
  const sie_weight *cos, *sin;         /* SIE_WEIGHT_DATA f32 [positions, rot/2]; NULL for rot 0 */
  const sie_weight *q_gamma, *k_gamma; /* vectors [D], or NULL: no norm */
  float eps;
  float weight_offset; /* 0, or 1 where a checkpoint stores gamma − 1 */
  int32_t behind;
  int32_t reserved;        /* 0 */
  const sie_weight *turns; /* DATA i32 [lengths, rot], or NULL */
} sie_rope_params;

/* SIE_STATE: declares that the program writes a state (sie_state_create) or reads one. One program
 * writes the keys and values of prefixes (SIE_STATE_ROWS); another one's sequences then begin with
 * them (sie_attention_params.segment), so that sequences share what they have in common. Both
 * declare the same max_rows. A program that reads names inputs, i32 of the SEQS space: a sequence's
 * prefix is the `rows` rows of the state from `first` on; 0 rows: it has none. The prefix and the
 * sequence's own rows are together at most max_each. Once a program, which has one ROWS space,
 * declared before. */
typedef struct sie_state_params {
  uint32_t struct_size;
  int32_t reserved;      /* 0 */
  int64_t max_rows;      /* of the state */
  sie_input first, rows; /* both 0: the program writes */
} sie_state_params;

/* SIE_STATE_ROWS: the rows of x [R, C], of the ROWS space, become those of a segment: row r of the
 * batch is row r of the state. Each segment is written once. */
typedef struct sie_state_rows_params {
  uint32_t struct_size;
  sie_value x;
  int32_t segment;  /* 1 … SIE_MAX_SEGMENTS */
  int32_t reserved; /* 0 */
} sie_state_rows_params;

/* SIE_GATHER_ROWS: y[B,C] = each sequence's first (SIE_POOL_CLS) or last (SIE_POOL_LAST) row. */
typedef struct sie_gather_rows_params {
  uint32_t struct_size;
  uint32_t which; /* sie_pooling */
  sie_value x, y;
} sie_gather_rows_params;

/* SIE_POOL: y[B,C] f32 of each sequence's rows. If x already has one row a sequence, the row is
 * only widened. A sequence without rows gives zeros. WEIGHTED_MEAN weighs the rows of a SUBSET
 * space by their places in its ROWS space. MAX may lose a NaN or an infinity, whose sequence is
 * flagged all the same (sie_slot_nonfinite). */
typedef struct sie_pool_params {
  uint32_t struct_size;
  uint32_t mode; /* sie_pooling */
  sie_value x, y;
  const sie_weight *w; /* SIE_POOL_ATTENTION: a vector [C]; else NULL */
} sie_pool_params;

/* SIE_KEEP_ROWS: y[R, C] = the rows of x, of a ROWS space, that belong to a subset of it. */
typedef struct sie_keep_rows_params {
  uint32_t struct_size;
  sie_space to; /* of kind SUBSET */
  sie_value x, y;
} sie_keep_rows_params;

/* SIE_TAKE_ROWS: y[R, C], the rows of the ROWS space `to` (words, markers, spans), each made of rows of
 * x of the same sequence, which first and last name:
 *   SIE_POOL_CLS   row first
 *   SIE_POOL_LAST  row last
 *   SIE_POOL_MEAN  the mean of the rows from first to last
 * first and last are i32 inputs of `to` that no batch leaves out; CLS takes no last, LAST no first.
 * x has rows of another ROWS space (tokens, words), in which places count from 0 in each sequence;
 * sie_slot_load refuses places that a sequence does not have, and a last before its first. A row made
 * of nothing, such as a word whose characters a tokenizer drops, has -1 for each: it is 0. An input
 * names places of one space. Or x has one row a sequence, which all its rows of `to` get: then which,
 * first and last are 0. */
typedef struct sie_take_rows_params {
  uint32_t struct_size;
  uint32_t which; /* sie_pooling */
  sie_space to;
  sie_value x, y;
  sie_input first, last;
  int32_t reserved; /* 0 */
} sie_take_rows_params;

/* SIE_PRODUCT: y[R, C] = a·b, element by element. Both have rows of one space and are of one class. */
typedef struct sie_product_params {
  uint32_t struct_size;
  sie_value a, b, y;
} sie_product_params;

/* SIE_DOTS: y[R, 1] f32 = Σ a·b over the columns of a row. Both have rows of one space. */
typedef struct sie_dots_params {
  uint32_t struct_size;
  sie_value a, b, y;
} sie_dots_params;

/* SIE_SOFTMAX: y[R, 1] f32 = e^(s·x) / Σ e^(s·x), the sum over the rows of the sequence. x[R, 1] has
 * rows of a ROWS space; s is a finite number above 0. */
typedef struct sie_softmax_params {
  uint32_t struct_size;
  sie_value x, y;
  float scale;
} sie_softmax_params;

/* SIE_LSTM: y[R, H·D] = the states of an LSTM (torch.nn.LSTM) over each sequence's rows, in D
 * directions: forward, reverse, or both, with the columns of the forward one first. A direction
 * begins with zeros at the sequence's own first row, the reverse one at its last. gates [R, 4H·D] are
 * the products with W_ih, both biases added, in the order i, f, g, o (SIE_LINEAR with the parts of the
 * checkpoint one after another, forward first); they have rows of a ROWS space. w and w_reverse are
 * W_hh [4H, H], linear weights of class F32; NULL: there is no such direction. The state stays f32. */
typedef struct sie_lstm_params {
  uint32_t struct_size;
  sie_value gates, y;
  int32_t reserved; /* 0 */
  const sie_weight *w, *w_reverse;
} sie_lstm_params;

/* SIE_SPLADE: y[B, V] f32 = max(0, the largest logit of the sequence's rows, x·Wᵀ + bias) per
 * column of the vocabulary. x has rows of a ROWS space. The logits are never stored. Only
 * SIE_OUTPUT_SPARSE and SIE_OUTPUT_VALUES read y. */
typedef struct sie_splade_params {
  uint32_t struct_size;
  sie_value x, y;
  int32_t reserved; /* 0 */
  const sie_weight *w;
  const sie_weight *bias; /* [V] or NULL */
} sie_splade_params;

/* SIE_MAXSIM: y[B, 1] f32 = Σ over the rows i of the sequence's query of max over its own rows j of
 * q_i·x_j (ColBERT); rows of x are divided by their L2 norm when normalize is 1. Queries are not
 * normalised. A sequence whose partner is −1 gives 0. */
typedef struct sie_maxsim_params {
  uint32_t struct_size;
  int32_t normalize;
  sie_value x, y;
  sie_input queries; /* f32 of a SHARED space, with x's columns; one a program */
  sie_input partner; /* i32 of the SEQS space: a group of that space, or −1 */
} sie_maxsim_params;

/* SIE_GIVEN_ROWS: y[R, C] f32, the rows of an f32 input of a SHARED space as the batch brings them. C is
 * the input's own number of columns, or sets it where the input has none yet. Nothing is computed or
 * copied: SIE_COLUMNS makes views of y, and SIE_OUTPUT_SPANS and SIE_OUTPUT_PAIRS read them as labels
 * that sequences share; no other operation reads them. */
typedef struct sie_given_rows_params {
  uint32_t struct_size;
  sie_value y;
  sie_input input;
  int32_t columns; /* C */
} sie_given_rows_params;

/* The fields that all outputs share. Outputs are numbered from 0 in the order in which they are
 * recorded. An output's name is unique among outputs. All except VALUES write a sequence's rows as
 * its item says (sie_out_item).
 *
 *   SIE_OUTPUT_ROWS        each sequence's row of x [B, C]: cut, normalised, converted, at the
 *                          item's offset
 *   SIE_OUTPUT_VALUES      all rows of x as f32 [R, C], dense, in the batch's order; no items
 *   SIE_OUTPUT_TOKEN_ROWS  the rows of x [R, C], each written as SIE_OUTPUT_ROWS does; those of a
 *                          sequence are adjacent, from the item's offset */
typedef struct sie_output_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
} sie_output_params;

/* SIE_OUTPUT_SPARSE: the columns of each sequence's row of x [B, V] that are above 0, after
 * `transform`. The item's dims is the number of columns that there is room for; its dtype, F32 or
 * F16, is that of the values. At its offset, a multiple of 16, are
 *   int32 count, three int32 of 0, int32 column[dims], value[dims]
 * count is the true number of columns and may exceed dims. Columns ascend. Unused places are left
 * unchanged. */
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
 * [R·2^bits·P, 1]. Without a sketch (final_dims 0) all three sketch tables are NULL. With one, a
 * CPU takes `sketch`; a GPU takes the other two, which sie_muvera_order makes from it. */
typedef struct sie_muvera_params {
  uint32_t struct_size;
  sie_value x;
  const char *name;
  int32_t repetitions, simhash_bits, projected, final_dims;
  int32_t is_query, fill_empty, center_tokens;
  int32_t normalize; /* 1: rows are divided by their L2 norm first */
  const sie_weight *simhash, *ams;
  const sie_weight *sketch;        /* CPU only */
  const sie_weight *sketch_output; /* GPU only: i32 [R·2^bits·P, 1] */
  const sie_weight *sketch_source; /* GPU only: i32 [R·2^bits·P, 1] */
} sie_muvera_params;

/* Orders the additions of the sketch [R, block], block = 2^bits·P, as a GPU makes them: output and
 * source [R, block] (sie_muvera_args in kernels/ops.h). An index outside the result is SIE_CORRUPT.
 * Every build has this function. */
SIE_API sie_status sie_muvera_order(const int32_t *sketch, int64_t repetitions, int64_t block,
                                    int64_t final_dims, int32_t *output, int32_t *source, sie_error *err);

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

/* SIE_OUTPUT_SPANS: the spans of words whose score for a label is above their item's threshold. For
 * every word i of a sequence, every width w below widest with word i + w in the sequence, and every
 * label c of it:
 *   y = relu(starts_i + ends_(i+w))·labels_c + bias_c
 * (the fold of GLiNER's span layer: sie_spans_args in kernels/ops.h). A sequence's labels are its own
 * rows of a ROWS space; or, given rows (SIE_GIVEN_ROWS), those of the group that its partner names, and
 * none for −1. At an item's offset, a multiple
 * of 16, are
 *   int32 count, three int32 of 0, then dims records {int32 i, int32 w, int32 c, f32 y}
 * count is the true number and may exceed dims: then a run with more room gives all. Records ascend
 * by i, w, c, which count from 0 in each sequence. Unused places are left unchanged. Sums are f32,
 * whatever the values' types. */
typedef struct sie_output_spans_params {
  uint32_t struct_size;
  int32_t widest; /* 1 … SIE_MAX_SPAN_WIDTH */
  const char *name;
  sie_value starts, ends; /* [words, K], of one ROWS space */
  sie_value labels;       /* [labels, K], of another ROWS space, or given rows */
  sie_value bias;         /* [labels, 1] or SIE_NO_VALUE: 0 */
  sie_input partner;      /* of given rows: i32 of the SEQS space, a group of theirs or −1; else 0 */
  int32_t reserved;       /* 0 */
} sie_output_spans_params;

/* SIE_OUTPUT_PAIRS: the words and labels of which one of n_logits scores is above the item's
 * threshold. For every word i of a sequence and every label c of it:
 *   y_o = head_o·relu(w·(words_i∘labels_c) + word_terms_i + label_terms_c) + bias_o
 * (the scorer of GLiNER's token models: sie_pairs_args in kernels/ops.h). Items are as for spans,
 * with records {int32 i, int32 c, f32 y[n_logits]}, by i, c. w is of class F32, BF16 or F16. */
typedef struct sie_output_pairs_params {
  uint32_t struct_size;
  sie_input partner; /* as for spans */
  const char *name;
  sie_value words, word_terms;   /* [words, K], [words, N]; words: a ROWS space or SEQS */
  sie_value labels, label_terms; /* [labels, K], [labels, N], of another ROWS space, or given rows */
  const sie_weight *w;           /* SIE_WEIGHT_LINEAR [N, K] */
  const sie_weight *head;        /* SIE_WEIGHT_DATA f32 [n_logits, N], n_logits 1 … 3 */
  const sie_weight *bias;        /* SIE_WEIGHT_VECTOR [n_logits] or NULL: 0 */
} sie_output_pairs_params;

/* Bytes of an arena. The arena has a lane for each executor: sequences of up to 512 tokens are
 * computed there. The intermediates of longer sequences lie in a region that all executors share,
 * which holds 16,384 tokens at once, or the longest sequence if that is more. A GPU's arena is one
 * lane. */
typedef struct sie_workspace {
  int64_t lane;   /* of each of the sie_device_info.threads executors */
  int64_t region; /* 0 if no sequence has more than 512 tokens */
} sie_workspace;

/* Ends recording and plans the memory of the intermediates by liveness. *workspace receives the
 * arena sizes that this program needs. */
SIE_API sie_status sie_program_end(sie_program *program, sie_workspace *workspace, sie_error *err);
SIE_API void sie_program_free(sie_program *program);

/* For an ended program: the bytes that the inputs of its largest batch take in a slot. On a GPU:
 * the bytes of the largest sie_slot_input. */
SIE_API int64_t sie_program_input_bytes(const sie_program *program);

/* The number of the space, input or output with this name. 0 if there is none; for outputs −1. */
SIE_API sie_space sie_program_find_space(const sie_program *program, const char *name);
SIE_API sie_input sie_program_find_input(const sie_program *program, const char *name);
SIE_API int32_t sie_program_find_output(const sie_program *program, const char *name);

typedef struct sie_input_info {
  uint32_t struct_size; /* in */
  sie_space space;
  uint32_t dtype;
  int32_t columns;
  int32_t optional; /* as declared; 1 if no operation reads it */
  /* SIE_I32: the least and the largest value that operations accept. For group numbers, most is not
   * a bound: each batch has its own number of groups. */
  int32_t least, most;
  char name[SIE_MAX_NAME + 1];
} sie_input_info;
/* For an ended program. */
SIE_API sie_status sie_program_input(const sie_program *program, sie_input input, sie_input_info *info,
                                     sie_error *err);

/* How an output is written. */
typedef enum sie_output_form {
  SIE_FORM_VALUES = 1,     /* all rows, densely, f32 */
  SIE_FORM_ROWS = 2,       /* a row for each sequence, as items say */
  SIE_FORM_TOKEN_ROWS = 3, /* the rows of each sequence, as items say */
  SIE_FORM_SPARSE = 4,     /* columns with their values, as items say */
  SIE_FORM_FOUND = 5       /* records of the scores above items' thresholds */
} sie_output_form;
typedef struct sie_output_info {
  uint32_t struct_size; /* in */
  uint32_t form;        /* sie_output_form */
  sie_space space;      /* of the rows that are written; FOUND: SEQS */
  int32_t columns;      /* of a row before its item cuts it; FOUND: words of four bytes of a record */
  char name[SIE_MAX_NAME + 1];
} sie_output_info;
/* The number of outputs, and a description of output `index`. */
SIE_API int32_t sie_program_n_outputs(const sie_program *program);
SIE_API sie_status sie_program_output(const sie_program *program, int32_t index, sie_output_info *info,
                                      sie_error *err);

/* Writes a readable listing (spaces, inputs and outputs by name, then one operation a line with
 * shapes, types and bytes) to text[cap], NUL-terminated. Returns the length that the whole listing
 * needs. */
SIE_API size_t sie_program_describe(const sie_program *program, char *text, size_t cap);

/* ---- 6 Arena, slots, runs -------------------------------------------------------------------- */

/* Scratch memory of a device, shared by all its programs. For a program that needs more, the caller
 * creates a larger arena; runs in flight keep the one they were submitted with. */
SIE_API sie_status sie_arena_create(sie_device *device, const sie_workspace *workspace, sie_arena **arena,
                                    sie_error *err);
SIE_API void sie_arena_free(sie_arena *arena);
SIE_API int64_t sie_arena_bytes(const sie_arena *arena);

/* How one sequence's rows are written to outputs that take items.
 *   SIE_F32, SIE_F16  the value (f16: round to nearest even, overflow to infinity)
 *   SIE_I8            rint(x / s * 127), s = max|x| (0 counts as 1)
 *   SIE_U8            rint((x - min) / r * 255), r = max - min (0 counts as 1)
 *   SIE_BINARY        ceil(dims / 8) bytes, last byte's low bits zero
 * Computed in f32, division before multiplication, ties to even: bit-equal to NumPy. */
typedef struct sie_out_item {
  int32_t dtype;      /* sie_dtype */
  int32_t dims;       /* 1 … C, 0 = C */
  uint32_t normalize; /* 0 or 1: divided by its L2 norm (eps 1e-12) */
  float threshold;    /* FOUND: logits above it are written; else 0 */
  int64_t offset;     /* bytes from the start of the output, aligned to the element */
} sie_out_item;

/* The bytes that an item writes to output `index` for a sequence with `rows` rows in the output's
 * space (1 for SEQS spaces, SPARSE and FOUND). SIE_FORM_VALUES has no items: the bytes of `rows` rows. −1
 * if the index, the rows or the item is impossible. */
SIE_API int64_t sie_program_output_bytes(const sie_program *program, int32_t index, const sie_out_item *item,
                                         int64_t rows);

typedef struct sie_slot_caps {
  uint32_t struct_size;
  uint32_t n_outputs; /* 1 … SIE_MAX_OUTPUTS */
  /* Rows of a ROWS space. A program may have several: then also the sum over a batch's sequences of
   * the largest number of rows that each has in one of them. */
  int64_t max_tokens;
  int64_t max_seqs;
  int64_t input_bytes;         /* the largest sie_program_input_bytes */
  const int64_t *output_bytes; /* [n_outputs] capacity of each output */
  /* CPU: an eventfd, kept, to which 1 is added when a run of the slot is done, so that a caller may
   * wait for it without a thread that blocks; sie_slot_wait then returns at once. Nothing is written
   * after that: close it once the last run has been read from it. 0: none. */
  int32_t done_fd;
  uint32_t reserved; /* 0 */
} sie_slot_caps;

SIE_API sie_status sie_slot_create(sie_device *device, const sie_slot_caps *caps, sie_slot **slot,
                                   sie_error *err);
SIE_API void sie_slot_free(sie_slot *slot);

/* The rows that a batch has of a space. For a ROWS space, offsets has n_seqs + 1 entries; for a
 * SHARED space, groups + 1. Offsets begin at 0 and ascend. Other spaces need none. */
typedef struct sie_rows_of {
  int64_t groups; /* SHARED */
  const int32_t *offsets;
} sie_rows_of;

/* A packed batch of B sequences. The lists are indexed by the program's numbers: entry 0 is number
 * 1, and for outputs number 0. A list may be shorter. Entries whose numbers the program lacks are
 * ignored. */
typedef struct sie_batch {
  uint32_t struct_size;
  uint32_t n_spaces, n_inputs, n_outputs; /* entries of the lists */
  int64_t n_seqs;
  const sie_rows_of *spaces;
  const void *const *inputs;        /* [rows of its space, columns], dense; NULL: left out */
  const sie_out_item *const *items; /* [B] of each output that takes them; NULL for the others */
} sie_batch;

/* Copies a batch for `program` into a free slot and builds the work lists. Checks every index,
 * length, offset and bound; on error the slot stays free. */
SIE_API sie_status sie_slot_load(sie_slot *slot, const sie_program *program, const sie_batch *batch,
                                 sie_error *err);

/* State that outlives a batch: memory for the rows that one program writes and others read
 * (SIE_STATE). A run that writes takes the state's rows away when it is submitted. When it has ended
 * well, that is after sie_slot_wait, on a GPU after sie_program_submit, the state has its rows and
 * segments. A run that fails leaves no rows; one that is refused leaves the state as it was. Runs
 * that read come after the writing run has ended, on a GPU after it was submitted. The state must
 * outlive the runs that were submitted with it. */
typedef struct sie_state_desc {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  int64_t bytes;     /* at least sie_program_state_bytes of the programs that use it; 0: it is empty */
} sie_state_desc;
SIE_API sie_status sie_state_create(sie_device *device, const sie_state_desc *desc, sie_state **state,
                                    sie_error *err);
SIE_API void sie_state_free(sie_state *state);
SIE_API int64_t sie_state_bytes(const sie_state *state);
/* For an ended program: the bytes that its state needs; 0 if it declares none. */
SIE_API int64_t sie_program_state_bytes(const sie_program *program);

/* Starts the loaded batch and returns at once. At most two runs of a device may be in flight, and
 * the later one may finish first. A batch with a sequence of more than 512 tokens yields to the
 * other run between blocks of tens of milliseconds. state may be NULL, unless the program writes one
 * or the batch names rows of one: then they must have been written by a program with segments of
 * the same columns and types. program, arena, slot and state are kept until sie_slot_wait
 * returns. */
SIE_API sie_status sie_program_submit(sie_program *program, sie_arena *arena, sie_slot *slot,
                                      sie_state *state, sie_error *err);

/* Blocks until the slot's run is done and returns the run's status. The slot is then free; its
 * outputs are valid until it is loaded again. May be called from any thread. */
SIE_API sie_status sie_slot_wait(sie_slot *slot, sie_error *err);

/* Output `index` after sie_slot_wait; NULL if the slot has no such output. *bytes (bytes may be
 * NULL) receives its size. On a GPU: pinned memory, to which the caller copies. */
SIE_API const void *sie_slot_output(const sie_slot *slot, int32_t index, int64_t *bytes);

/* After sie_slot_wait: int32 flags [B] in the batch's order. A flag is 1 if the sequence's outputs
 * were computed from a row with a NaN or an infinity, even where the output does not show it (I8,
 * U8, BINARY and sparse rows never do); else 0. Valid as long as the outputs are. On a GPU: pinned
 * memory, to which the caller copies 4·B bytes from *offset bytes into the arena's memory; offset
 * may be NULL. */
SIE_API const int32_t *sie_slot_nonfinite(const sie_slot *slot, int64_t *offset);

/* ---- 7 GPUs -------------------------------------------------------------------------------------
 * The caller makes the context, the streams, the events and the device memory with the driver's
 * API, and copies. This library packs, plans, launches and captures, and owns the pinned host
 * memory. The device's context must be current in every thread that calls a function with a handle
 * of a GPU. The calls above leave this to the caller:
 *   weight  sie_weight_create packs into host memory. Copy sie_weight_staged to device memory of
 *           sie_weight_bytes, aligned to 256 bytes, and hand that memory to sie_weight_place before
 *           recording with the weight.
 *   arena   allocate device memory of the lane's size in sie_arena_create's workspace, and memory
 *           for the outputs; hand both to sie_arena_place.
 *   state   allocate device memory of sie_state_bytes and hand it to sie_state_place.
 *   batch   sie_slot_load; copy sie_slot_input to the start of the arena's memory, on the stream of
 *           sie_gpu; sie_program_submit (enqueues on that stream and returns); copy the arena's
 *           outputs to sie_slot_output, and the flags as sie_slot_nonfinite says; wait for all of
 *           it; sie_slot_wait frees the slot (on a GPU it does not wait).
 * The caller frees device memory, after the handle that was placed in it. */

/* Whether this build runs on a card of compute capability major.minor, with a driver for CUDA
 * `driver` (13000 for 13.0; 0: not checked). If not: SIE_UNSUPPORTED, and the message says what was
 * found, what is needed and what to do. */
SIE_API sie_status sie_gpu_check(int32_t major, int32_t minor, int32_t driver, sie_error *err);

/* The sie_status of a driver's code (CUresult): SIE_OUT_OF_MEMORY, SIE_UNSUPPORTED, SIE_INTERNAL
 * for a misuse, else SIE_DEVICE_LOST. Every build has this function. */
SIE_API sie_status sie_gpu_status(int32_t code);

/* The packed bytes in host memory; NULL on a CPU or once placed. */
SIE_API const void *sie_weight_staged(const sie_weight *weight);
/* Frees the host copy; from now on the weight lies at `memory` on the device. May be called
 * once. */
SIE_API sie_status sie_weight_place(sie_weight *weight, void *memory, sie_error *err);

/* Places the arena in device memory: memory has the bytes of its lane, and outputs[i] has
 * output_bytes[i] bytes (NULL and 0 if unused) for i below n_outputs. All are aligned to 256 bytes.
 * Call it again after the outputs have moved. */
SIE_API sie_status sie_arena_place(sie_arena *arena, void *memory, uint32_t n_outputs, void *const *outputs,
                                   const int64_t *output_bytes, sie_error *err);

/* Places a state in device memory of sie_state_bytes, aligned to 256 bytes. It then holds no rows. */
SIE_API sie_status sie_state_place(sie_state *state, void *memory, sie_error *err);

/* The input of the loaded batch, to be copied to the device: pinned memory, valid until the slot is
 * loaded again. */
SIE_API sie_status sie_slot_input(const sie_slot *slot, const void **host, int64_t *bytes, sie_error *err);

#ifdef __cplusplus
}
#endif
#endif /* SIE_H */
