// weight.h — a packed matrix, a lookup table or a vector.
#ifndef SIE_CSRC_WEIGHT_H
#define SIE_CSRC_WEIGHT_H

#include "memory.h"
#include "ops.h"

struct sie_weight {
  sie_device *device = nullptr;
  uint32_t kind = 0;     // sie_weight_kind
  uint32_t compute = 0;  // as the caller asked
  int64_t n = 0, k = 0;
  int64_t bytes = 0;       // packed
  int64_t denormals = 0;   // of the source, flushed to zero
  sie::Block data = {};    // host memory; on a GPU until placed
  sie_packed packed = {};  // LINEAR
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

  const float *vector() const { return static_cast<const float *>(table.p); }
};

#endif  // SIE_CSRC_WEIGHT_H
