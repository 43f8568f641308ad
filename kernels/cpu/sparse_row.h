// sparse_row.h — writes a sparse output row (sie_output_sparse_args), for output_sparse and smve.
#ifndef SIE_KERNELS_CPU_SPARSE_ROW_H
#define SIE_KERNELS_CPU_SPARSE_ROW_H

#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

static inline bool is_sparse_item(const sie_out_item &item) {
  return (item.dtype == SIE_F32 || item.dtype == SIE_F16) && item.dims > 0 && item.normalize == 0;
}

struct SparseRow {
  int32_t *header, *columns;
  void *values;
  int32_t room, count;
  bool half;
};

static inline SparseRow sparse_row(const sie_out_item &item, void *base) {
  int32_t *const header = reinterpret_cast<int32_t *>(static_cast<char *>(base) + item.offset);
  return {header, header + 4, header + 4 + item.dims, item.dims, 0, item.dtype == SIE_F16};
}

// Columns ascend; those without room are only counted.
static inline void add_column(SparseRow *row, int64_t column, float value) {
  const int32_t at = row->count++;
  if (at >= row->room) return;
  row->columns[at] = static_cast<int32_t>(column);
  if (row->half) {
    vstore_half_part(static_cast<uint16_t *>(row->values) + at, vset(value), 1);
  } else {
    static_cast<float *>(row->values)[at] = value;
  }
}

static inline void finish_row(const SparseRow &row) {
  row.header[0] = row.count;
  row.header[1] = row.header[2] = row.header[3] = 0;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_SPARSE_ROW_H
