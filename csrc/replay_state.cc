// replay_state.cc — copies the rows of a slab to their places in the state.
#include <string.h>

#include "replay_parts.h"

namespace sie {

namespace {

// On a GPU a batch is one slab in the batch's order.
sie_status write_on_gpu(const Replay &r, const PlannedOp &planned) {
  sie_join_columns_args a = {};
  a.rows = rows(r, planned.op.in[0]);
  a.c[0] = columns(r, planned.op.in[0]);
  a.x[0] = tensor(r, planned.in[0]);
  a.y = segment_rows(r, planned.op.segment, 0);
  return r.program->device->ops->join_columns(&a, &r.share);
}

}  // namespace

// Members of a team each copy some rows of every sequence.
sie_status write_state(const Replay &r, const PlannedOp &planned) {
  if (r.program->device->is_gpu()) return write_on_gpu(r, planned);
  const sie_value v = planned.op.in[0];
  const sie_tensor x = tensor(r, planned.in[0]), to = segment_rows(r, planned.op.segment, 0);
  const int64_t element = dtype_bytes(x.dtype), bytes = columns(r, v) * element;
  const int32_t *cu = offsets(r, v), *places = r.slab->spaces[space_of(r, v)].first;
  const int64_t n = r.slab->spaces[r.program->seqs].n, part = r.share.part, parts = r.share.parts;
  for (int64_t b = 0; b < n; b++) {
    const int64_t length = cu[b + 1] - cu[b];
    for (int64_t i = length * part / parts; i < length * (part + 1) / parts; i++) {
      memcpy(static_cast<char *>(to.p) + (places[b] + i) * to.ld * element,
             static_cast<const char *>(x.p) + (cu[b] + i) * x.ld * element, static_cast<size_t>(bytes));
    }
  }
  return SIE_OK;
}

}  // namespace sie
