// weight.h — a packed matrix, a lookup table or a vector.
#ifndef SIE_CSRC_WEIGHT_H
#define SIE_CSRC_WEIGHT_H

#include "memory.h"
#include "ops.h"

namespace sie {

// A matrix once more, on another node.
struct WeightCopy {
  Block data;
  sie_packed packed;
};

}  // namespace sie

struct sie_weight {
  sie_device *device = nullptr;
  uint32_t kind = 0;     // sie_weight_kind
  uint32_t compute = 0;  // as the caller asked
  int64_t n = 0, k = 0;
  int64_t bytes = 0;       // packed, with the copies
  int64_t denormals = 0;   // of the source, flushed to zero
  sie::Block data = {};    // host memory; on a GPU until placed
  sie_packed packed = {};  // LINEAR
  int32_t n_copies = 0;    // LINEAR, placed as SIE_PLACE_COPIED: on the seats' nodes but the first
  sie::Block copies = {};  // [n_copies] WeightCopy
  // TABLE: rows start on 64 bytes. For any weight, p is where it lies, on a GPU once placed.
  sie_tensor table = {};

  // DATA of i32, whose values are indices that may be complemented (~i counts as i): the least
  // value, and one past the largest index.
  int64_t index_least = 0, index_end = 0;

  // Where these values first fall, from one to the next, and both; at 0: nowhere.
  struct {
    int64_t at;
    int32_t from, to;
  } index_fall = {};

  // The matrix for executors of that node of the device's seats.
  const sie_packed *packed_on(int32_t node) const {
    return node > 0 && n_copies > 0 ? &static_cast<const sie::WeightCopy *>(copies.p)[node - 1].packed
                                    : &packed;
  }
  const float *vector() const { return static_cast<const float *>(table.p); }
};

#endif  // SIE_CSRC_WEIGHT_H
