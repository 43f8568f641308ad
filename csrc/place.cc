// place.cc — decides where a planned program's buffers lie in an arena lane, and in a long slab's
// values.
//
//   1 share   an output reuses the memory of an input that no later operation reads, where kernels
//             allow it
//   2 place   buffers are placed largest first, each at the lowest offset that is free during its
//             life: once for arena lanes, once for long slabs
#include <algorithm>

#include "program.h"
#include "status.h"

namespace sie {

namespace {

// The input whose memory the operation's kernel allows the result to reuse, or null.
const Operand *replaceable(const PlannedOp &planned, const Operand &result) {
  if (!result.present) return nullptr;
  bool norm = planned.op.kind == SIE_OP_LAYERNORM;
  if (norm && &result == &planned.out) return &planned.in[0];
  bool linear = planned.op.kind == SIE_OP_LINEAR || planned.op.kind == SIE_OP_LINEAR_NORM;
  bool residual = (norm || linear) && planned.residual.present;
  return residual && planned.residual.buffer != planned.in[0].buffer ? &planned.residual : nullptr;
}

int32_t owner(const sie_program *p, int32_t buffer) {
  while (p->buffers[buffer].shares >= 0) buffer = p->buffers[buffer].shares;
  return buffer;
}

void share_memory(sie_program *p) {
  for (int64_t i = 0; i < p->plan.size(); i++) {
    const PlannedOp &planned = p->plan[i];
    for (const Operand *result : {&planned.out, &planned.sum}) {
      const Operand *input = replaceable(planned, *result);
      if (input == nullptr) continue;
      Buffer &from = p->buffers[input->buffer], &to = p->buffers[result->buffer];
      bool alike = from.of_seqs == to.of_seqs && from.dtype == to.dtype && from.columns == to.columns;
      if (from.last != i || !alike) continue;
      to.shares = input->buffer;
      Buffer &root = p->buffers[owner(p, input->buffer)];
      root.last = std::max(root.last, to.last);
    }
  }
}

// The groups of buffers that are placed together. A lane holds all buffers. A long slab keeps
// buffers of all its rows, buffers of a stage's rows and buffers of sequence rows apart.
enum class Group { lane, long_rows, long_stage, long_fixed };

Group long_group(const Buffer &b) {
  if (b.of_seqs) return Group::long_fixed;
  return b.inner ? Group::long_stage : Group::long_rows;
}

struct Sizing {
  Group group;
  bool holds(const Buffer &b) const { return group == Group::lane || long_group(b) == group; }
  int64_t size(const Buffer &b) const {
    if (group == Group::lane) return b.bytes + redzone_bytes;
    return group == Group::long_fixed ? parts_of(b, 1).end + redzone_bytes : b.row_bytes;
  }
  int64_t &offset(Buffer *b) const { return group == Group::lane ? b->offset : b->row_offset; }
};

// Whether both buffers are in use at once. In a stage of a long slab each operation is done for some
// rows while all of them are still to be done for others, so buffers of all rows live as long as the
// stages that use them.
bool meet(const sie_program *p, const Buffer &a, const Buffer &b, Group group) {
  if (group != Group::long_rows) return a.first <= b.last && b.first <= a.last;
  return a.first < p->plan[b.last].stage_end && b.first < p->plan[a.last].stage_end;
}

// Places the group's buffers, largest first, each at the lowest offset that is free during its
// life. *end receives the largest end.
sie_status place(sie_program *p, const Sizing &sizing, int64_t *end, sie_error *err) {
  List<int32_t> order;
  for (int32_t i = 0; i < p->buffers.size(); i++) {
    if (p->buffers[i].shares >= 0 || !sizing.holds(p->buffers[i])) continue;
    SIE_FAIL_IF(!order.push(i), SIE_OUT_OF_MEMORY, err, "no memory to plan a program");
  }
  const List<Buffer> &buffers = p->buffers;
  std::sort(order.begin(), order.end(), [&buffers, &sizing](int32_t a, int32_t b) {
    int64_t first = sizing.size(buffers[a]), second = sizing.size(buffers[b]);
    return first != second ? first > second : a < b;
  });
  *end = 0;
  for (int64_t i = 0; i < order.size(); i++) {
    Buffer &buffer = p->buffers[order[i]];
    int64_t offset = 0, size = sizing.size(buffer);
    for (int64_t j = 0; j < i; j++) {
      Buffer &other = p->buffers[order[j]];
      int64_t other_offset = sizing.offset(&other), other_end = other_offset + sizing.size(other);
      if (!meet(p, buffer, other, sizing.group) || other_end <= offset || offset + size <= other_offset)
        continue;
      offset = other_end;
      j = -1;  // start again: an earlier buffer may overlap now
    }
    sizing.offset(&buffer) = offset;
    *end = std::max(*end, offset + size);
  }
  for (Buffer &buffer : p->buffers) {
    int32_t self = static_cast<int32_t>(&buffer - p->buffers.begin());
    if (sizing.holds(buffer)) sizing.offset(&buffer) = sizing.offset(&p->buffers[owner(p, self)]);
  }
  return SIE_OK;
}

// Places the values of a long slab. Offsets of token rows are in bytes per token, so that one plan
// fits every length. Buffers that one stage alone uses have the rows that are in it.
sie_status place_long(sie_program *p, sie_error *err) {
  for (Buffer &b : p->buffers) {
    if (b.of_seqs) continue;
    const Buffer &root = p->buffers[owner(p, static_cast<int32_t>(&b - p->buffers.begin()))];
    b.inner = p->plan[root.first].cut == Cut::rows && root.last < p->plan[root.first].stage_end;
    // Exact for multiples of 16 rows: all their parts fill whole cache lines.
    b.row_bytes = parts_of(b, region_step).end / region_step + (redzone_bytes > 0 ? 1 : 0);
  }
  SIE_TRY(place(p, {Group::long_rows}, &p->long_row_bytes, err));
  SIE_TRY(place(p, {Group::long_stage}, &p->long_stage_bytes, err));
  SIE_TRY(place(p, {Group::long_fixed}, &p->long_fixed_bytes, err));
  p->long_fixed_bytes = round_up(p->long_fixed_bytes, 64);
  return SIE_OK;
}

sie_status place_lane(sie_program *p, sie_error *err) {
  SIE_TRY(place(p, {Group::lane}, &p->values_bytes, err));
  for (PlannedOp &planned : p->plan) {
    for (Operand *o : {&planned.in[0], &planned.in[1], &planned.in[2], &planned.in[3], &planned.addend,
                       &planned.residual, &planned.out, &planned.sum, &planned.quantised, &planned.found}) {
      if (!o->present || o->given != 0) continue;
      int64_t base = p->buffers[o->buffer].offset;
      o->offset += base;
      o->scale += base;
      o->zero += base;
      o->outlier += base;
    }
  }
  return SIE_OK;
}

}  // namespace

sie_status place_buffers(sie_program *program, sie_error *err) {
  share_memory(program);
  SIE_TRY(place_lane(program, err));
  return program->region_tokens > 0 ? place_long(program, err) : SIE_OK;
}

}  // namespace sie
