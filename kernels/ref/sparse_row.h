// sparse_row.h — writes a sparse output row (sie_output_sparse_args) column by column.
#ifndef SIE_KERNELS_REF_SPARSE_ROW_H
#define SIE_KERNELS_REF_SPARSE_ROW_H

#include "rows.h"

namespace sie_ref {

inline bool is_sparse_item(const sie_out_item &item) {
  return (item.dtype == SIE_F32 || item.dtype == SIE_F16) && item.dims > 0 && item.normalize == 0;
}

class SparseRow {
 public:
  SparseRow(const sie_out_item &item, void *base)
      : item_(item),
        header_(reinterpret_cast<int32_t *>(static_cast<char *>(base) + item.offset)),
        columns_(header_ + 4),
        values_(columns_ + item.dims) {}

  // Columns ascend.
  void add(int64_t column, double value) {
    const float rounded = static_cast<float>(value);
    if (count_ < item_.dims) {
      columns_[count_] = static_cast<int32_t>(column);
      if (item_.dtype == SIE_F16) {
        static_cast<uint16_t *>(values_)[count_] = sie_f16_from_f32(rounded);
      } else {
        static_cast<float *>(values_)[count_] = rounded;
      }
    }
    count_++;
  }
  void finish() {
    header_[0] = count_;
    for (int i = 1; i < 4; i++) header_[i] = 0;
  }

 private:
  const sie_out_item &item_;
  int32_t *header_, *columns_;
  void *values_;
  int32_t count_ = 0;
};

}  // namespace sie_ref

#endif  // SIE_KERNELS_REF_SPARSE_ROW_H
