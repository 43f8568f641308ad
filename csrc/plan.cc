// plan.cc — makes the plan of a recorded program, which replaying follows.
//
//   1 uses      counts how each value is read: as float rows, as float rows of the class's own
//               type, or as quantised rows
//   2 emit      makes a planned operation of each, plus the quantisations, roundings and widenings
//               that types need, and a buffer where it is first written; on a GPU, pooling runs in
//               the kernel that writes the output
//   3 cut       cut.cc decides where long slabs may pause, and which operations make a stage
//   4 place     place.cc gives every buffer its memory
//   5 rehearse  rehearse.cc finds the scratch that kernels need, and checks that the device has
//               every form
#include <algorithm>

#include "gpu.h"
#include "program.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

struct Uses {
  int32_t floats = 0;     // of a base: how many operations read its float rows
  int32_t outputs = 0;    // of a base: how many of these write output rows of all its columns
  int32_t quantised = 0;  // of any value: how many INT8 and FP8 linears read it
  int32_t adapted = 0;    // of a base: how many of these have adapters, which read its float rows
  bool updated = false;   // of a base: an operation updates it
  bool strict = false;    // of a base: a reader needs the class's activation type
  bool exact = false;     // of a linear's result: its float rows are f32, to be quantised and rounded
};

// How rows are stored.
struct Form {
  int32_t dtype;
  int32_t scale_group = 0;
  bool outliers = false;
};

class Planner {
 public:
  Planner(sie_program *program, sie_error *err) : p_(program), err_(err), gpu_(program->device->is_gpu()) {}

  sie_status run() {
    choose_caps();
    weigh();
    SIE_TRY(count_uses());
    SIE_TRY(emit_all());
    lay_out_state();
    cut_plan(p_);
    SIE_TRY(place_buffers(p_, err_));
    SIE_TRY(plan_scratch(p_, err_));
    SIE_TRY(make_row_offsets());
    return rehearse(p_, err_);
  }

 private:
  void choose_caps() {
    if (gpu_) {
      p_->slab_tokens = p_->caps.max_rows;
      p_->slab_seqs = p_->caps.max_seqs;
      return;
    }
    p_->slab_tokens = std::min(p_->caps.max_extents, slab_tokens_max);
    p_->region_tokens = 0;
    if (p_->caps.max_len > slab_tokens_max) {
      int64_t tokens = std::min(p_->caps.max_extents, region_tokens_max);
      p_->region_tokens = round_up(std::max(tokens, p_->caps.max_len), region_step);
    }
    // Rows as wide as a vocabulary must be few: at most 8 MiB of them in a lane, but at least 16
    // rows.
    int64_t widest = 1;
    for (const Op &op : p_->ops) {
      if (op.kind == SIE_OP_SPLADE) widest = std::max(widest, op.weights[0]->n);
    }
    int64_t seqs = std::max<int64_t>(16, (int64_t{8} << 20) / (widest * 4));
    p_->slab_seqs = std::min({p_->caps.max_seqs, slab_seqs_max, seqs});
  }

  // Counts a token's multiplications with matrices, and with one key in attention, over the
  // operations whose rows are tokens. Their ratio is the balance of slabs.
  void weigh() {
    double linear = 0, attention = 0;
    for (const Op &op : p_->ops) {
      if (of_seqs(p_, op.in[0] != SIE_NO_VALUE ? op.in[0] : op.out)) continue;
      if (has_matrix(op.kind))
        linear += static_cast<double>(op.weights[0]->n) * static_cast<double>(op.weights[0]->k);
      if (op.kind == SIE_OP_ATTENTION) attention += 0.5 * op.attention.heads * pair_flops(op.attention);
    }
    p_->balance = attention > 0
                      ? std::clamp<int64_t>(static_cast<int64_t>(linear / attention), 1, max_batch_tokens)
                      : 0;
  }

  int64_t slab_rows(bool of_seqs) const { return of_seqs ? p_->slab_seqs : p_->slab_tokens; }

  int32_t activation_dtype(uint32_t compute) const {
    switch (storage_class(p_->device, compute)) {
      case SIE_COMPUTE_BF16:
      case SIE_COMPUTE_FP8:
        return SIE_BF16;
      case SIE_COMPUTE_F16:
        return SIE_F16;
      case SIE_COMPUTE_INT8:
        return p_->device->ops->act_dtype_int8;
      default:
        return SIE_F32;
    }
  }

  bool reads_quantised(const Op &op) const {
    return has_matrix(op.kind) && is_quantised(op.weights[0]->packed.compute);
  }

  // Whether the operation's result has the type of its operand.
  static bool moves_rows(const Op &op) {
    return op.kind == SIE_OP_GATHER_ROWS || op.kind == SIE_OP_KEEP_ROWS || op.kind == SIE_OP_TAKE_ROWS;
  }

  // Whether the operation takes this operand only in the activation type of its class, unless it is
  // quantised.
  static bool takes_class_type(const Op &op, int operand) {
    bool typed = op.kind == SIE_OP_ATTENTION || op.kind == op_state_rows || op.updates;
    return typed || (has_matrix(op.kind) && operand == 0);
  }

  // How the value's quantised rows are stored, by the operation that writes them. FP8: a norm has a
  // scale for its whole row; a linear's tile sees only a part of the row.
  Form quantised_form(const Value &value, uint32_t producer) const {
    if (value.compute == SIE_COMPUTE_FP8) return {SIE_F8E4M3, producer == SIE_OP_LINEAR ? 128 : -1};
    // After a norm, some hidden dimensions are many times larger than the others. Short texts lose
    // accuracy without outliers: docs/adr/0002.
    bool norm = producer == SIE_OP_EMBED_LAYERNORM || producer == SIE_OP_LAYERNORM;
    return {SIE_U8, -1, norm};
  }

  sie_status count_uses() {
    for (int64_t i = 0; i < p_->values.size(); i++) {
      SIE_FAIL_IF(!uses_.push(Uses{}), SIE_OUT_OF_MEMORY, err_, "no memory to plan a program");
    }
    // Backwards, because the needs of a gathered row apply to the value that it is gathered from.
    for (int64_t i = p_->ops.size() - 1; i >= 0; i--) {
      const Op &op = p_->ops[i];
      for (int operand = 0; operand <= max_operands; operand++) {
        sie_value v = operand < max_operands ? op.in[operand] : op.residual;
        if (v == SIE_NO_VALUE) continue;
        int32_t base = p_->values[v].base;
        if (operand == 0 && reads_quantised(op)) {
          uses_[v].quantised++;
          if (v != base) uses_[base].floats++;  // for quantising
          if (op.lora >= 0) uses_[base].adapted++;
          continue;
        }
        uses_[base].floats++;
        uses_[base].outputs += op.kind == SIE_OP_OUTPUT_ROWS && v == base ? 1 : 0;
        uses_[base].updated = uses_[base].updated || op.updates;
        bool typed = takes_class_type(op, operand) || (moves_rows(op) && uses_[op.out].strict);
        uses_[base].strict = uses_[base].strict || typed;
      }
    }
    return SIE_OK;
  }

  // The bytes from one row to the next. Rows that are a multiple of 2 KiB apart share few sets of a
  // CPU's cache; one more line a row spreads them.
  int64_t row_bytes(int64_t columns, int64_t element) const {
    int64_t row = round_up(columns * element, 64);
    return !gpu_ && row % 2048 == 0 ? row + 64 : row;
  }

  // Adds a buffer, alive from the operation that is about to be emitted; -1 if there is no memory.
  int32_t add_buffer(sie_space space, int64_t columns, const Form &form) {
    int64_t element = dtype_bytes(form.dtype), row = row_bytes(columns, element);
    int32_t now = static_cast<int32_t>(p_->plan.size());
    Buffer buffer = {space == p_->seqs,
                     form.dtype,
                     columns,
                     row / element,
                     form.scale_group,
                     form.outliers,
                     0,
                     now,
                     now,
                     -1,
                     0,
                     0,
                     0,
                     false};
    buffer.bytes = round_up(parts_of(buffer, slab_rows(buffer.of_seqs)).end, gpu_ ? 256 : 64);
    return p_->buffers.push(buffer) ? static_cast<int32_t>(p_->buffers.size() - 1) : -1;
  }

  // Offsets are relative to the buffer until it is placed.
  Operand operand(int32_t buffer, int64_t column) {
    Buffer &b = p_->buffers[buffer];
    b.last = static_cast<int32_t>(p_->plan.size());
    BufferParts parts = parts_of(b, slab_rows(b.of_seqs));
    int64_t bytes = column * dtype_bytes(b.dtype);
    return {true,          buffer,      b.dtype,    bytes,      bytes,         b.ld,
            b.scale_group, parts.scale, parts.zero, b.outliers, parts.outlier, 0};
  }

  Operand float_operand(sie_value v) {
    const Value &value = p_->values[v];
    if (value.given != 0) {
      const int64_t bytes = value.column * dtype_bytes(SIE_F32);
      Operand rows = {};
      rows.present = true;
      rows.buffer = -1;
      rows.dtype = SIE_F32;
      rows.column = rows.offset = bytes;
      rows.ld = p_->inputs[value.given].columns;
      rows.given = value.given;
      return rows;
    }
    return operand(p_->values[value.base].buffer, value.column);
  }

  sie_status push(PlannedOp planned) {
    planned.work = -1;
    if (gpu_ && planned.op.kind == SIE_OP_ATTENTION) SIE_TRY(find_work_list(planned, &planned.work));
    SIE_FAIL_IF(!p_->plan.push(planned), SIE_OUT_OF_MEMORY, err_, "no memory to plan a program");
    return SIE_OK;
  }

  // The number of the work list that the attention reads; adds one if none fits.
  sie_status find_work_list(const PlannedOp &planned, int32_t *number) {
    const sie_attention_params &a = planned.op.attention;
    sie_space queries = p_->values[planned.op.in[0]].space, keys = p_->values[planned.op.in[1]].space;
    for (int32_t i = 0; i < p_->n_work_lists; i++) {
      const WorkList &list = p_->work_lists[i];
      const sie_attention_params &b = list.attention;
      if (list.queries == queries && list.keys == keys && list.dtype == planned.in[0].dtype &&
          a.heads == b.heads && a.head_dim == b.head_dim && a.kv_heads == b.kv_heads && a.mask == b.mask &&
          a.window == b.window && a.which == b.which && a.first_keys == b.first_keys &&
          (a.segment != 0) == (b.segment != 0)) {
        *number = i;
        return SIE_OK;
      }
    }
    SIE_FAIL_IF(p_->n_work_lists == max_work_lists, SIE_UNSUPPORTED, err_,
                "the program has attention of more than %d different shapes", max_work_lists);
    p_->work_lists[p_->n_work_lists] = {a, planned.in[0].dtype, queries, keys};
    *number = p_->n_work_lists++;
    return SIE_OK;
  }

  sie_status need(int32_t buffer) {
    SIE_FAIL_IF(buffer < 0, SIE_OUT_OF_MEMORY, err_, "no memory to plan a program");
    return SIE_OK;
  }

  // Emits an operation that quantises v, unless its quantised rows exist already. The f32 rows of a
  // linear become the bytes that the linear itself would write.
  sie_status quantise(sie_value v) {
    Value &value = p_->values[v];
    if (value.quantised >= 0) return SIE_OK;
    PlannedOp planned = {};
    planned.op.kind = SIE_OP_QUANTISE_ROWS;
    planned.op.in[0] = v;
    planned.op.out = v;
    uint32_t producer = uses_[v].exact ? SIE_OP_LINEAR : SIE_OP_QUANTISE_ROWS;
    value.quantised = add_buffer(value.space, value.columns, quantised_form(value, producer));
    SIE_TRY(need(value.quantised));
    planned.in[0] = float_operand(v);
    planned.quantised = operand(value.quantised, 0);
    return push(planned);
  }

  // Emits an operation that rounds a stream, or the f32 rows of a linear, to its class's type,
  // unless that is f32 or the rounded rows exist already. All columns are rounded, so that views
  // share them.
  sie_status round(sie_value v) {
    sie_value base = p_->values[v].base;
    if (!is_stream(p_, v) && !uses_[base].exact) return SIE_OK;
    Value &value = p_->values[base];
    int32_t dtype = activation_dtype(value.compute);
    if (value.rounded >= 0 || dtype == SIE_F32) return SIE_OK;
    PlannedOp planned = {};
    planned.op.kind = SIE_OP_JOIN_COLUMNS;
    planned.op.in[0] = planned.op.out = base;
    value.rounded = add_buffer(value.space, value.columns, {dtype});
    SIE_TRY(need(value.rounded));
    planned.in[0] = float_operand(base);
    planned.out = operand(value.rounded, 0);
    return push(planned);
  }

  // The rows of v in its class's type. Rows of another type have been rounded before.
  Operand class_operand(sie_value v) {
    const Value &value = p_->values[v];
    int32_t rounded = p_->values[value.base].rounded;
    return rounded >= 0 ? operand(rounded, value.column) : float_operand(v);
  }

  // Outputs take f32; a value of another type is widened first, row by row.
  sie_status widen(const Op &output, Operand *operand_out) {
    const Value &value = p_->values[output.in[0]];
    if (p_->buffers[p_->values[value.base].buffer].dtype == SIE_F32) return SIE_OK;
    PlannedOp planned = {};
    planned.op.kind = SIE_OP_POOL;
    planned.op.in[0] = planned.op.out = output.in[0];
    planned.op.pooling = each_row;
    int32_t buffer = add_buffer(value.space, value.columns, {SIE_F32});
    SIE_TRY(need(buffer));
    planned.in[0] = float_operand(output.in[0]);
    planned.out = operand(buffer, 0);
    SIE_TRY(push(planned));
    *operand_out = operand(buffer, 0);
    return SIE_OK;
  }

  // Chooses type and buffers of the value that an operation makes.
  sie_status emit_result(const Op &op, PlannedOp *planned) {
    Value &out = p_->values[op.out];
    Uses &uses = uses_[op.out];
    bool norm = op.kind == SIE_OP_EMBED_LAYERNORM || op.kind == SIE_OP_LAYERNORM;
    // Adapters read the float rows of a value that without them has none. The quantised rows must
    // not change by that: a sequence without an adapter has the same bits in both programs.
    uses.exact = op.kind == SIE_OP_LINEAR && uses.floats == 0 && uses.adapted > 0;
    bool only_quantised =
        op.kind == SIE_OP_LINEAR && uses.floats == 0 && uses.quantised > 0 && uses.adapted == 0;
    if (only_quantised || (norm && uses.quantised > 0)) {
      out.quantised = add_buffer(out.space, out.columns, quantised_form(out, op.kind));
      SIE_TRY(need(out.quantised));
      planned->quantised = operand(out.quantised, 0);
    }
    if (only_quantised) return SIE_OK;
    int32_t dtype = activation_dtype(out.compute);
    if (op.kind == SIE_OP_LINEAR && op.residual != SIE_NO_VALUE) dtype = sum_dtype(op.out);
    if (moves_rows(op)) dtype = planned->in[0].dtype;
    if (out.stream || uses.exact) dtype = SIE_F32;
    out.buffer = add_buffer(out.space, out.columns, {dtype});
    SIE_TRY(need(out.buffer));
    planned->out = operand(out.buffer, 0);
    return SIE_OK;
  }

  // A sum that feeds a norm stays f32, which saves one rounding. On a GPU that would cost
  // bandwidth, so that only streams do.
  int32_t sum_dtype(sie_value v) const {
    if (p_->values[v].stream) return SIE_F32;
    return gpu_ || uses_[v].strict ? activation_dtype(p_->values[v].compute) : SIE_F32;
  }

  // The second result of a norm. An operation that needs it quantised emits the quantisation.
  sie_status emit_sum(const Op &op, PlannedOp *planned) {
    Value &sum = p_->values[op.sum];
    sum.buffer = add_buffer(sum.space, sum.columns, {sum_dtype(op.sum)});
    SIE_TRY(need(sum.buffer));
    planned->sum = operand(sum.buffer, 0);
    return SIE_OK;
  }

  // Quantised rows made before an update are no longer valid.
  void forget_quantised(int32_t base) {
    for (Value &value : p_->values) {
      if (value.base == base) value.quantised = -1;
    }
  }

  // Whether only outputs read a pooled value; their kernel then does the pooling.
  bool pooled_by_outputs(const Op &pool) const {
    const Uses &uses = uses_[pool.out];
    bool alone = gpu_ && pool.kind == SIE_OP_POOL && uses.outputs > 0 && uses.outputs == uses.floats;
    // An update may have changed the rows by the time an output reads them.
    return alone && !uses_[p_->values[pool.in[0]].base].updated;
  }

  // An output of rows on a GPU: pool_output reads the rows to be pooled, or the rows unchanged.
  sie_status emit_pool_output(const Op &output) {
    PlannedOp planned = {};
    planned.op = output;
    planned.op.kind = SIE_OP_POOL_OUTPUT;
    planned.op.pooling = each_row;
    for (const Op &op : p_->ops) {
      if (op.out != output.in[0] || !pooled_by_outputs(op)) continue;
      planned.op.in[0] = op.in[0];
      planned.op.pooling = op.pooling;
      planned.op.vector = op.vector;
    }
    planned.in[0] = float_operand(planned.op.in[0]);
    return push(planned);
  }

  // Emits the LoRA term of a linear. It reads the float rows of x, even if the linear reads
  // quantised ones.
  sie_status emit_lora(const Op &linear, Operand *addend) {
    SIE_TRY(round(linear.in[0]));
    const Value &value = p_->values[linear.in[0]];
    PlannedOp planned = {};
    planned.op = linear;
    planned.op.kind = SIE_OP_LORA;
    planned.op.residual = SIE_NO_VALUE;
    int32_t buffer = add_buffer(value.space, linear.weights[0]->n, {SIE_F32});
    SIE_TRY(need(buffer));
    planned.in[0] = class_operand(linear.in[0]);
    planned.out = operand(buffer, 0);
    SIE_TRY(push(planned));
    *addend = operand(buffer, 0);
    return SIE_OK;
  }

  // The type of the segment that the operation writes or reads.
  void type_segment(const PlannedOp &planned) {
    if (planned.op.kind == op_state_rows) p_->state.segments[planned.op.segment].dtype = planned.in[0].dtype;
    if (has_prefix(planned.op)) p_->state.segments[planned.op.attention.segment].dtype = planned.in[1].dtype;
  }

  void lay_out_state() {
    p_->state.row_bytes = 0;
    for (Segment &segment : p_->state.segments) {
      segment.before = p_->state.row_bytes;
      if (segment.columns == 0) continue;
      int64_t element = dtype_bytes(segment.dtype), row = row_bytes(segment.columns, element);
      segment.ld = row / element;
      p_->state.row_bytes += row;
    }
  }

  // An operation that finds scores above thresholds runs twice: what the first pass finds of the
  // words lies in a buffer of theirs.
  sie_status emit_found(const Op &op) {
    const Value &words = p_->values[op.in[0]];
    int32_t buffer = add_buffer(words.space, SIE_FOUND_WORDS, {SIE_I32});
    SIE_TRY(need(buffer));
    for (bool writes : {false, true}) {
      PlannedOp planned = {};
      planned.op = op;
      planned.writes = writes;
      for (int i = 0; i < max_operands; i++) {
        if (op.in[i] != SIE_NO_VALUE) planned.in[i] = float_operand(op.in[i]);
      }
      planned.found = operand(buffer, 0);
      SIE_TRY(push(planned));
    }
    return SIE_OK;
  }

  sie_status emit(const Op &op) {
    Operand widened = {};
    if (pooled_by_outputs(op)) return SIE_OK;
    if (finds(op.kind)) return emit_found(op);
    if (gpu_ && op.kind == SIE_OP_OUTPUT_ROWS) return emit_pool_output(op);
    if (reads_quantised(op)) SIE_TRY(quantise(op.in[0]));
    if (op.kind == SIE_OP_OUTPUT_ROWS || op.kind == SIE_OP_OUTPUT_SPARSE) SIE_TRY(widen(op, &widened));
    // Operands live to the operation that is emitted next, so these come before all others.
    for (int i = reads_quantised(op) ? 1 : 0; i < max_operands; i++) {
      if (op.in[i] != SIE_NO_VALUE && takes_class_type(op, i)) SIE_TRY(round(op.in[i]));
    }
    PlannedOp planned = {};
    planned.op = op;
    if (op.lora >= 0) SIE_TRY(emit_lora(op, &planned.addend));
    for (int i = 0; i < max_operands; i++) {
      if (op.in[i] == SIE_NO_VALUE) continue;
      if (reads_quantised(op)) {  // has one operand
        planned.in[i] = operand(p_->values[op.in[i]].quantised, 0);
      } else {
        planned.in[i] = takes_class_type(op, i) ? class_operand(op.in[i]) : float_operand(op.in[i]);
      }
    }
    if (widened.present) planned.in[0] = operand(widened.buffer, 0);
    if (op.residual != SIE_NO_VALUE) planned.residual = float_operand(op.residual);
    type_segment(planned);
    if (op.out != SIE_NO_VALUE) SIE_TRY(emit_result(op, &planned));
    if (op.sum != SIE_NO_VALUE) SIE_TRY(emit_sum(op, &planned));
    for (sie_value v : {op.in[0], op.in[1]}) {
      if (op.updates) forget_quantised(p_->values[v].base);
    }
    return push(planned);
  }

  // The type of the float rows of a value that an operation has made.
  int32_t float_type(sie_value v) const { return p_->buffers[p_->values[p_->values[v].base].buffer].dtype; }

  // Whether the norm alone reads what the linear makes, and their rows are of one 16-bit type, so that
  // linear_norm can make the norm's rows in place: docs/adr/0046.
  bool can_join_norm(const Op &linear, const Op &norm) const {
    if (norm.kind != SIE_OP_LAYERNORM || norm.in[0] != linear.out) return false;
    const Uses &between = uses_[linear.out];
    if (between.floats != 1 || between.quantised > 0 || uses_[norm.out].quantised > 0) return false;
    if (linear.gate != SIE_GATE_NONE || linear.act != SIE_ACT_NONE || linear.lora >= 0) return false;
    if (norm.norm != SIE_NORM_LAYER || norm.bias != nullptr) return false;
    if (norm.residual != SIE_NO_VALUE || norm.sum != SIE_NO_VALUE) return false;
    const int32_t type = activation_dtype(p_->values[linear.out].compute);
    const bool stored = !is_stream(p_, linear.out) && !is_stream(p_, norm.out);
    if (!stored || is_quantised(linear.weights[0]->packed.compute) || dtype_bytes(type) != 2) return false;
    return linear.residual != SIE_NO_VALUE && float_type(linear.residual) == type;
  }

  // Whether the two become one operation: where they can, and the table has it pay for this weight on
  // this card. That never depends on a batch, nor do the bits.
  bool joins_norm(const Op &linear, const Op &norm) const {
    const sie_ops *ops = p_->device->ops;
    return ops->linear_norm_pays != nullptr && can_join_norm(linear, norm) &&
           ops->linear_norm_pays(&linear.weights[0]->packed, &p_->device->on) != 0;
  }

  static Op with_norm(const Op &linear, const Op &norm) {
    Op op = linear;
    op.kind = SIE_OP_LINEAR_NORM;
    op.out = norm.out;
    op.gamma = norm.gamma;
    op.beta = norm.beta;
    op.eps = norm.eps;
    op.weight_offset = norm.weight_offset;
    op.norm = norm.norm;
    return op;
  }

  // Emits every operation; a linear when the one behind it is known, which may be its norm.
  sie_status emit_all() {
    const Op *linear = nullptr;  // the operation before, not emitted yet
    for (const Op &op : p_->ops) {
      const bool joined = linear != nullptr && joins_norm(*linear, op);
      if (linear != nullptr) SIE_TRY(emit(joined ? with_norm(*linear, op) : *linear));
      linear = op.kind == SIE_OP_LINEAR ? &op : nullptr;
      if (!joined && linear == nullptr) SIE_TRY(emit(op));
    }
    return linear != nullptr ? emit(*linear) : SIE_OK;
  }

  sie_status make_row_offsets() {
    int32_t *offsets = array_of<int32_t>(&p_->one_row_each, p_->slab_seqs + 1);
    SIE_FAIL_IF(offsets == nullptr, SIE_OUT_OF_MEMORY, err_, "no memory to plan a program");
    for (int32_t i = 0; i <= p_->slab_seqs; i++) offsets[i] = i;
    return SIE_OK;
  }

  sie_program *p_;
  sie_error *err_;
  bool gpu_;
  List<Uses> uses_;
};

}  // namespace

sie_status plan_program(sie_program *program, sie_error *err) { return Planner(program, err).run(); }

}  // namespace sie

sie_status sie_program_end(sie_program *program, sie_workspace *workspace, sie_error *err) {
  using namespace sie;
  SIE_FAIL_IF(program == nullptr || workspace == nullptr, SIE_INVALID_ARGUMENT, err,
              "program or workspace is NULL");
  SIE_FAIL_IF(program->ended, SIE_INVALID_ARGUMENT, err, "the program is ended already");
  SIE_FAIL_IF(program->rows == 0 || program->seqs == 0, SIE_INVALID_ARGUMENT, err,
              "the program declares no space of the kind %s", program->seqs == 0 ? "SEQS" : "ROWS");
  SIE_FAIL_IF(program->n_outputs == 0 && !program->state.writes(), SIE_INVALID_ARGUMENT, err,
              "the program declares no output");
  program->plan.clear();
  program->buffers.clear();
  release(&program->one_row_each);
  program->scratch_bytes = program->values_bytes = program->late_bytes = program->long_scratch_bytes = 0;
  program->long_row_bytes = program->long_stage_bytes = program->long_fixed_bytes = 0;
  program->n_work_lists = 0;
  for (Value &value : program->values) value.buffer = value.quantised = value.rounded = -1;
  SIE_TRY(plan_program(program, err));
  bool gpu = program->device->is_gpu();
  if (gpu) SIE_TRY(gpu_program_end(program, err));
  program->ended = true;
  *workspace = {lane_bytes(program) + (gpu ? sie_program_input_bytes(program) : 0), region_bytes(program)};
  return SIE_OK;
}
