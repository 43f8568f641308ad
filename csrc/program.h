// program.h — a recorded forward pass: its values and operations, and the plan made from them.
//
// Recording (record.cc) checks shapes and classes and appends. sie_program_end makes the plan
// (plan.cc): it decides each value's storage type from the operations that read it, inserts the
// quantisations that INT8 and FP8 need, and places the buffers of one arena lane by liveness.
// Replaying (replay.cc) only adds a lane's base address to the plan's offsets. A GPU has one lane,
// for whole batches.
//
// A value is assigned once, but operations may update it in place. Operations recorded later read
// the new rows. The plan keeps the recorded order, so it needs no versions of a value.
#ifndef SIE_CSRC_PROGRAM_H
#define SIE_CSRC_PROGRAM_H

#include "device.h"
#include "memory.h"
#include "ops.h"
#include "weight.h"

namespace sie {

constexpr int64_t max_batch_tokens = int64_t{1} << 24;
constexpr int64_t max_batch_seqs = int64_t{1} << 22;
constexpr int64_t max_columns = int64_t{1} << 20;
constexpr int64_t max_operations = 4096;
constexpr int32_t max_spaces = SIE_MAX_SPACES, max_inputs = SIE_MAX_INPUTS, max_outputs = SIE_MAX_OUTPUTS;
// A slab has at most this many tokens (rows of a ROWS space), unless one sequence alone is longer,
// and at most this many sequences.
constexpr int64_t slab_tokens_max = 512;
constexpr int64_t slab_seqs_max = 512;
// A longer sequence is a long slab. The long slabs that run at once share a region of this many
// tokens, or of the longest sequence if that is more. Each takes room for its own tokens, rounded
// up to a multiple of region_step.
constexpr int64_t region_tokens_max = 16384;
constexpr int64_t region_step = 64;
// The most work of a block, after which an executor looks for other tickets: 10 to 20 ms on a core
// with AVX-512, about 50 ms on a slow one with AVX2.
constexpr double max_block_flops = 2e9;
// The most bytes of f32 rows that a team keeps until they are quantised, but at least one row.
constexpr int64_t max_late_bytes = 512 << 10;
// The rows of a long slab that go through a stage before the next ones (PlannedOp::stage_end). A
// multiple of cut.h's row_block_step, and of 16: the parts of a buffer fill whole cache lines.
constexpr int64_t max_stage_rows = 288;

constexpr int32_t max_adapters = 64;
constexpr int64_t max_lora_rank = 1024;

struct Name {
  char text[SIE_MAX_NAME + 1];
};

// A set of rows (sie_space_params), at its number in the program's list. kind 0: not declared.
struct Space {
  uint32_t kind;  // sie_space_kind
  sie_input marks;
  int64_t max_rows, max_each, min_each;
  Name name;
  int64_t positions;  // ROWS: the position tables' bound on a sequence's rows; 0: no table
  bool first_rows;    // SUBSET: of each sequence the first rows, as an operation needs them
};

// Data that a batch brings (sie_input_params), at its number in the program's list. space 0: not
// declared. The operations that read it bound its values; the bounds are kept here.
struct Input {
  sie_space space;
  int32_t dtype, columns;
  bool optional;
  int32_t otherwise;
  Name name;
  bool read;             // by an operation, or as marks
  int64_t least, bound;  // i32: least ≤ value < bound
  sie_space groups_of;   // i32 that are group numbers of this SHARED space: each batch bounds them too
  sie_space places_of;   // i32 that are places in a sequence of this ROWS space: each sequence bounds them
  sie_input from;        // of places: none is before that of this input in its row; 0: no such bound
};

// How an output is written (sie_output_form).
using OutputForm = sie_output_form;
struct Output {
  uint32_t form;    // sie_output_form
  sie_space space;  // of the rows that are written; sparse, found: SEQS
  int64_t columns;  // of a row before its item cuts it; found: words of a record
  Name name;
};

// Operations that csrc does itself, besides those of ops.h.
constexpr uint32_t op_output_values = 64;
constexpr uint32_t op_state_rows = 65;
// A pooling besides those of sie_pooling: each row is only widened.
constexpr int32_t each_row = 0;
const char *op_name(uint32_t kind);
const char *dtype_name(int32_t dtype);
int64_t dtype_bytes(int32_t dtype);
const char *compute_name(uint32_t compute);

// A segment of a state: [rows, columns]. All segments of a state have as many rows.
struct Segment {
  int64_t columns;  // 0: no operation uses it
  int32_t dtype;
  int64_t ld;      // columns between rows
  int64_t before;  // bytes of a row of all segments before it
};

// What a program does with a state (sie_state_params).
struct StateUse {
  bool declared;
  int64_t max_rows;                        // of the state
  sie_input first, rows;                   // 0: it writes
  Segment segments[SIE_MAX_SEGMENTS + 1];  // at their numbers; entry 0 is unused
  int64_t row_bytes;                       // of all segments
  bool writes() const { return declared && rows == 0; }
  bool reads() const { return rows != 0; }
};
// The rows for which a state gets room: every segment begins at a multiple of 256 bytes, because
// rows are multiples of 64.
inline int64_t state_cap(int64_t rows) { return round_up(rows, 4); }

struct Value {
  sie_space space;   // 0: no operation has made it
  uint32_t compute;  // the class of the weights that made it; its storage follows from that
  int32_t base;      // the value that it is a view of, or itself
  int64_t column;    // where the view starts in the base
  int64_t columns;
  bool outputs_only;  // of SIE_SPLADE: only outputs may read it, because it is too wide
  bool stream;        // of a base: its rows are f32, whatever its class
  // Plan:
  int32_t buffer;     // of the base: float rows, or -1 when only a quantised form exists
  int32_t quantised;  // u8 or f8e4m3 rows, or -1
  int32_t rounded;    // of a stream: rows of the class's type, or -1
  sie_input given;    // of a base: the input whose rows it is, which has no buffer; 0: none
};

constexpr int max_operands = 4;  // that an operation reads, besides a residual

struct Op {
  uint32_t kind;  // sie_op_kind or op_output_values
  sie_value in[max_operands];
  sie_value residual;
  sie_value out, sum;            // results; sum: of a norm
  bool updates;                  // writes in[0] and in[1] in place
  const sie_weight *weights[3];  // linear: w; embed: word, position, type; lstm: w, w_reverse
  // embed: ids, type_ids; lora: adapter; maxsim: queries, partner; take_rows: first, last; spans,
  // pairs: partner
  sie_input inputs[3];
  const float *bias;          // linear, norms; linear_norm: its linear's
  const float *gamma, *beta;  // norms
  const float *vector;        // attention: ALiBi's slopes; pool: the vector that scores the rows
  float eps;                  // norms; softmax: the scale
  float weight_offset, word_scale;
  int32_t norm;  // sie_norm
  int32_t gate;  // sie_gate
  int32_t position_offset;
  int32_t act;
  int32_t pooling;
  int32_t output;
  sie_attention_params attention;
  sie_rope_params rope;
  int32_t lora;       // linear: its first pair in the program's lora_pairs; -1: none
  int32_t max_rank;   // of those pairs
  int32_t normalize;  // maxsim
  int32_t transform;  // output_sparse
  int32_t segment;    // state_rows
  int32_t widest;     // spans
  int32_t n_logits;   // pairs; vector: the head
  sie_muvera_params muvera;
  sie_smve_params smve;
};

// Where an operand lies in an arena lane. In the region its place follows from its buffer's.
struct Operand {
  bool present;
  int32_t buffer;
  int32_t dtype;
  int64_t column;  // bytes from the start of a row
  int64_t offset, ld;
  int32_t scale_group;  // of u8 and f8e4m3 (sie_tensor)
  int64_t scale, zero;  // offsets; zero: u8 only
  bool outliers;
  int64_t outlier;  // offset, where outliers
  sie_input given;  // the input whose rows it is; 0: it has a buffer
};

struct Buffer {
  bool of_seqs;  // one row for each sequence; else at most as many as any ROWS space has
  int32_t dtype;
  int64_t columns, ld;
  int32_t scale_group;  // u8, f8e4m3: as in sie_tensor; else 0
  bool outliers;        // u8: each row has one
  int64_t bytes;        // rows at their cap, then scales, zero points and outliers
  int32_t first, last;  // the planned operations between which it is live, both included
  int32_t shares;       // the buffer whose memory it reuses, or -1
  int64_t offset;       // in a lane
  // For a long slab: the bytes of a row with its scale, zero point and outlier, and where the
  // buffer starts. row_offset times the rows that the slab has room for is that start. A buffer of
  // sequence rows has one row, which lies row_offset bytes behind all other buffers.
  int64_t row_bytes, row_offset;
  // In a long slab it has only the rows that are in the stage: no other operation uses it.
  bool inner;
};

// Where the parts of a buffer with room for `cap` rows begin, in bytes from its start.
struct BufferParts {
  int64_t scale, zero, outlier, end;
};
inline BufferParts parts_of(const Buffer &b, int64_t cap) {
  int64_t groups =
      b.scale_group > 0 ? (b.columns + b.scale_group - 1) / b.scale_group : (b.scale_group < 0 ? 1 : 0);
  BufferParts p = {};
  p.scale = round_up(cap * b.ld * dtype_bytes(b.dtype), 64);
  p.zero = p.scale + round_up(cap * groups * 4, 64);
  p.outlier = p.zero + (b.dtype == SIE_U8 ? round_up(cap * 4, 64) : 0);
  p.end = p.outlier + (b.outliers ? round_up(cap * static_cast<int64_t>(sizeof(sie_outlier)), 64) : 0);
  return p;
}

// How an operation of a long slab is cut into blocks, between which an executor looks for other
// work.
enum class Cut : uint8_t {
  none,     // never cut: it is short at any length
  rows,     // blocks of rows: each row of the result depends on the same rows of the operands only
  queries,  // attention: a block is one head and some of its queries
  shares    // as if more executors shared the operation
};

// Bytes behind every buffer that no operation may write. replay.cc checks them after each operation
// that one executor computes alone, in builds with asserts and in builds with a sanitizer, which
// sees no boundary between the buffers of one arena.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SIE_CHECK_ZONES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SIE_CHECK_ZONES 1
#endif
#endif
#ifdef SIE_CHECK_ZONES
constexpr int64_t redzone_bytes = 64;
#else
constexpr int64_t redzone_bytes = 0;
#endif

struct PlannedOp {
  Op op;
  Operand in[max_operands], addend, residual, out, sum, quantised;  // quantised: the u8 or f8e4m3 twin of out
  Operand found;  // spans, pairs: what the first pass finds of each word
  bool writes;    // spans, pairs: the second pass
  int32_t work;   // attention on a GPU: which of the batch's work lists; else -1
  Cut cut;
  // Neighbours that are cut into rows of one space are a stage. A long slab runs stage_rows rows
  // through the whole stage, then the next ones. The operation behind its stage:
  int32_t stage_end;
  // Of a row; in attention, of one query and one key of one head; of spans and pairs, of one word and
  // one label.
  double row_flops;
};

// A work list that attention reads on a GPU. Operations with equal heads, mask, window, dtype and
// spaces share one.
struct WorkList {
  sie_attention_params attention;
  int32_t dtype;
  sie_space queries, keys;
};
constexpr int32_t max_work_lists = 8;

// The bounds of a batch, from the declared spaces. The extent of a sequence is the largest number
// of rows that it has in a ROWS space; with one such space, its length.
struct Caps {
  int64_t max_rows = 0;     // of any ROWS space
  int64_t max_extents = 0;  // of the extents' sum
  int64_t max_len = 0;      // of an extent
  int64_t min_len = 0;      // of an extent: the least
  int64_t max_seqs = 0;
};

struct GpuProgram;  // csrc/cuda

}  // namespace sie

struct sie_program {
  sie_device *device = nullptr;
  uint64_t serial = 0;  // unique among all programs ever begun on the device
  sie::Caps caps;
  bool ended = false;
  // At their numbers; entry 0 is unused.
  sie::Space spaces[sie::max_spaces + 1] = {};
  sie::Input inputs[sie::max_inputs + 1] = {};
  sie_space seqs = 0;  // the SEQS space; 0: not declared yet
  sie_space rows = 0;  // the ROWS space declared last; 0: none yet
  bool many = false;   // it declares several ROWS spaces
  sie::List<sie::Value> values;
  sie::List<sie::Op> ops;
  int64_t entries = 0;  // added by sie_program_add so far
  int32_t n_outputs = 0;
  sie::Output outputs[sie::max_outputs] = {};
  // Bounds of a batch that operations set.
  int32_t n_adapters = 0;               // 0: no linear has LoRA adapters
  sie::List<sie_lora_pair> lora_pairs;  // n_adapters pairs for each linear with adapters
  sie_input queries = 0;                // of maxsim; 0: none
  sie::StateUse state = {};
  // Plan:
  int64_t slab_tokens = 0, slab_seqs = 0;  // caps of one slab: rows of any ROWS space, sequences
  int64_t balance = 0;                     // as in SlabLimits
  double token_flops = 0;                  // of its products with matrices, for each token
  sie::List<sie::PlannedOp> plan;
  sie::List<sie::Buffer> buffers;
  int64_t scratch_bytes = 0;  // of one executor
  int64_t values_bytes = 0;   // of one lane
  int64_t late_bytes = 0;     // of one lane: rows of a team that are to be quantised (replay_late.cc)
  // Of long slabs; region_tokens 0: the program has none.
  int64_t region_tokens = 0;
  // Values: for each token, for each row of a stage, for each slab.
  int64_t long_row_bytes = 0, long_stage_bytes = 0, long_fixed_bytes = 0;
  int64_t stage_rows = sie::max_stage_rows;   // another multiple of 16 in tests
  int64_t long_scratch_bytes = 0;             // of one executor, in its lane
  double block_flops = sie::max_block_flops;  // less in tests
  int64_t late_limit = sie::max_late_bytes;   // of late_bytes, less in tests
  sie::Block one_row_each;                    // int32 0, 1, 2 …: cumulative lengths of one row a sequence
  // Plan of a GPU:
  sie::WorkList work_lists[sie::max_work_lists] = {};
  int32_t n_work_lists = 0;
  sie::GpuProgram *gpu = nullptr;
};

namespace sie {

// Whether every sequence is a long slab.
inline bool only_long(const sie_program *p) {
  return p->region_tokens > 0 && p->caps.min_len > slab_tokens_max;
}

// Bytes of an arena lane. An executor that computes a long slab uses its whole lane as scratch: the
// slab's values lie in the region.
inline int64_t lane_bytes(const sie_program *p) {
  int64_t short_bytes = only_long(p) ? 64 : p->scratch_bytes + p->values_bytes + p->late_bytes;
  return short_bytes > p->long_scratch_bytes ? short_bytes : p->long_scratch_bytes;
}

// The tokens that a long slab of `tokens` gets room for, the rows that a stage has room for, and the
// bytes of the slab's values.
inline int64_t long_cap(int64_t tokens) { return round_up(tokens, region_step); }
inline int64_t stage_cap(const sie_program *p, int64_t tokens) {
  int64_t cap = long_cap(tokens);
  return cap < p->stage_rows ? cap : p->stage_rows;
}
inline int64_t long_bytes(const sie_program *p, int64_t tokens) {
  return long_cap(tokens) * p->long_row_bytes + stage_cap(p, tokens) * p->long_stage_bytes +
         p->long_fixed_bytes;
}
// The region holds its tokens however they are spread over long slabs, and the stages of as many
// slabs as can be at work at once, but at least two.
inline int64_t region_bytes(const sie_program *p) {
  if (p->region_tokens == 0) return 0;
  int64_t shortest = p->caps.min_len > slab_tokens_max ? p->caps.min_len : slab_tokens_max + 1;
  int64_t most = p->region_tokens / long_cap(shortest);  // long slabs at once
  if (most < 1) most = 1;
  int64_t at_work = p->device->threads > 2 ? p->device->threads : 2;
  int64_t stages = (most < at_work ? most : at_work) * p->stage_rows;
  if (stages > p->region_tokens) stages = p->region_tokens;
  return p->region_tokens * p->long_row_bytes + stages * p->long_stage_bytes + most * p->long_fixed_bytes;
}

// The class in which values are stored: the reference device stores everything in f32.
inline uint32_t storage_class(const sie_device *device, uint32_t compute) {
  return device->kind == SIE_DEVICE_REF ? static_cast<uint32_t>(SIE_COMPUTE_F32) : compute;
}

inline bool is_quantised(uint32_t compute) {
  return compute == SIE_COMPUTE_INT8 || compute == SIE_COMPUTE_FP8;
}

// Whether the operation finds scores above thresholds, in two passes.
inline bool finds(uint32_t kind) { return kind == SIE_OP_SPANS || kind == SIE_OP_PAIRS; }

// Whether the operation multiplies by a matrix, whose shape then describes the operation.
inline bool has_matrix(uint32_t kind) {
  return kind == SIE_OP_LINEAR || kind == SIE_OP_SPLADE || kind == SIE_OP_LINEAR_NORM;
}

// Whether the operation is a linear of class INT8 whose result exists as quantised rows only, and the
// bytes that a team needs for its late rows (replay_late.cc).
bool writes_levels_only(const PlannedOp &planned);
int64_t late_bytes_of(const sie_program *program, const PlannedOp &planned);

// Decides how each planned operation of a long slab is cut, and finds the stages.
void cut_plan(sie_program *program);

// Gives the plan's buffers and operands their offsets; sets values_bytes and the bytes of long
// slabs.
sie_status place_buffers(sie_program *program, sie_error *err);

// Fills plan, buffers and sizes from values and ops.
sie_status plan_program(sie_program *program, sie_error *err);

// For a planned program: plan_scratch finds the scratch that an executor needs. rehearse runs each
// operation once without rows, so that a form that the device lacks is refused when the program
// ends, not in a run.
sie_status plan_scratch(sie_program *program, sie_error *err);
sie_status rehearse(const sie_program *program, sie_error *err);

inline uint32_t kind_of(const sie_program *p, sie_space space) { return p->spaces[space].kind; }
// Whether a value has one row for each sequence.
inline bool of_seqs(const sie_program *p, sie_value v) { return p->values[v].space == p->seqs; }

// Whether attention's queries stand at the first keys, not at the last ones.
inline bool stands_first(const sie_attention_params &a) {
  return a.which == SIE_POOL_CLS || a.first_keys != 0;
}

// The ROWS space of which a SUBSET is; any other space itself.
inline sie_space whole_of(const sie_program *p, sie_space space) {
  return kind_of(p, space) == SIE_SPACE_SUBSET ? p->inputs[p->spaces[space].marks].space : space;
}

// Whether a value, or what it is a view of, is stored in f32 whatever its class.
inline bool is_stream(const sie_program *p, sie_value v) { return p->values[p->values[v].base].stream; }

// The most labels of one sequence, whose rows are of this space.
inline int64_t most_labels(const sie_program *p, sie_space space) {
  const Space &whole = p->spaces[whole_of(p, space)];
  return whole.kind == SIE_SPACE_SHARED ? whole.max_rows : whole.max_each;
}

// The most rows that a batch may have of a space.
inline int64_t rows_cap(const sie_program *p, sie_space space) {
  return p->spaces[whole_of(p, space)].max_rows;
}

// The rows of the tables of disentangled attention, which has buckets; else 0.
inline int64_t position_rows(const sie_attention_params &a) {
  if (a.buckets == nullptr) return 0;
  return a.pos_key != nullptr ? a.pos_key->n : a.pos_query->n;
}

// What attention of one query and one key costs in one head. Each table of disentangled attention
// costs as much as the product of the two.
inline double pair_flops(const sie_attention_params &a) {
  return 2.0 * a.head_dim * (2 + (a.pos_key != nullptr) + (a.pos_query != nullptr));
}

// Whether attention's first keys are rows of the state.
inline bool has_prefix(const Op &op) { return op.kind == SIE_OP_ATTENTION && op.attention.segment != 0; }

// The longest keys of a sequence in a run whose longest sequence has `longest` rows of its own.
inline int64_t longest_keys(const sie_program *p, int64_t longest) {
  int64_t most = longest + (p->state.reads() ? p->state.max_rows : 0);
  return most < p->caps.max_len ? most : p->caps.max_len;
}

// Tightens the bound that position tables set on a sequence's rows.
inline void bound_positions(Space *space, int64_t positions) {
  if (space->positions == 0 || positions < space->positions) space->positions = positions;
}

}  // namespace sie

#endif  // SIE_CSRC_PROGRAM_H
