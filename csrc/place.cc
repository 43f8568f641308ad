// place.cc — where a planned program's buffers lie in a lane.
//
//   1 share   an output takes over the memory of an input that dies with the operation, where kernels allow it
//   2 place   largest first, each at the lowest offset free during its life
#include <algorithm>

#include "program.h"
#include "status.h"

namespace sie {

namespace {

// The input whose memory the output may take over: all of its buffer, and read by nobody later.
const Operand *replaceable(const PlannedOp &planned) {
  if (!planned.out.present) return nullptr;
  if (planned.op.kind == SIE_OP_LAYERNORM) return &planned.in[0];
  bool residual = planned.op.kind == SIE_OP_LINEAR && planned.residual.present;
  return residual && planned.residual.buffer != planned.in[0].buffer ? &planned.residual : nullptr;
}

int32_t owner(const sie_program *p, int32_t buffer) {
  while (p->buffers[buffer].shares >= 0) buffer = p->buffers[buffer].shares;
  return buffer;
}

void share_memory(sie_program *p) {
  for (int64_t i = 0; i < p->plan.size(); i++) {
    const PlannedOp &planned = p->plan[i];
    const Operand *input = replaceable(planned);
    if (input == nullptr) continue;
    Buffer &from = p->buffers[input->buffer], &to = p->buffers[planned.out.buffer];
    if (from.last != i || from.rows != to.rows || from.dtype != to.dtype || from.columns != to.columns) {
      continue;
    }
    to.shares = input->buffer;
    Buffer &root = p->buffers[owner(p, input->buffer)];
    root.last = std::max(root.last, to.last);
  }
}

bool meet(const Buffer &a, const Buffer &b) { return a.first <= b.last && b.first <= a.last; }

sie_status place(sie_program *p, sie_error *err) {
  List<int32_t> order;
  for (int32_t i = 0; i < p->buffers.size(); i++) {
    if (p->buffers[i].shares >= 0) continue;
    SIE_FAIL_IF(!order.push(i), SIE_OUT_OF_MEMORY, err, "no memory to plan a program");
  }
  const List<Buffer> &buffers = p->buffers;
  std::sort(order.begin(), order.end(), [&buffers](int32_t a, int32_t b) {
    return buffers[a].bytes != buffers[b].bytes ? buffers[a].bytes > buffers[b].bytes : a < b;
  });
  for (int64_t i = 0; i < order.size(); i++) {
    Buffer &buffer = p->buffers[order[i]];
    int64_t offset = 0, size = buffer.bytes + redzone_bytes;
    for (int64_t j = 0; j < i; j++) {
      const Buffer &other = p->buffers[order[j]];
      int64_t other_end = other.offset + other.bytes + redzone_bytes;
      if (!meet(buffer, other) || other_end <= offset || offset + size <= other.offset) continue;
      offset = other_end;
      j = -1;  // what was passed before may be in the way now
    }
    buffer.offset = offset;
    p->values_bytes = std::max(p->values_bytes, offset + size);
  }
  for (Buffer &buffer : p->buffers) {
    int32_t self = static_cast<int32_t>(&buffer - p->buffers.begin());
    buffer.offset = p->buffers[owner(p, self)].offset;
  }
  for (PlannedOp &planned : p->plan) {
    for (Operand *o : {&planned.in[0], &planned.in[1], &planned.in[2], &planned.addend, &planned.residual,
                       &planned.out, &planned.quantised}) {
      if (!o->present) continue;
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
  return place(program, err);
}

}  // namespace sie
