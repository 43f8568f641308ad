// found_items.h — the headers of the items that spans and pairs write (kernels/ops.h).
#ifndef SIE_KERNELS_CUDA_FOUND_ITEMS_H
#define SIE_KERNELS_CUDA_FOUND_ITEMS_H

#include "ops.h"

namespace sie_cuda {

// What the second pass of spans and pairs gives to the kernel that writes headers.
struct FoundItems {
  sie_rows seqs;
  const int32_t *cu_words;  // [B+1]
  const int32_t *found;     // [R, found_ld]
  int64_t found_ld;
  const sie_out_item *items;
  void *out;
};

// Writes the header of every item: the sum of its words' counts, and three zeros. Asynchronous.
sie_status write_found_headers(const FoundItems &items, const sie_stream *on);

// The checks that spans and pairs share, after check_launch. Host function.
sie_status check_found(const sie_rows &seqs, const int32_t *cu_words, const int32_t *cu_labels,
                       const int32_t *found, int64_t found_ld, const sie_out_item *items, const void *out,
                       int32_t write, bool empty);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_FOUND_ITEMS_H
