// places.h — the launchers of the operations on words, markers and spans, for the tables
// (kernels/ops.h says what each computes).
//
// They refuse before they launch, as those of rows.h do.
#ifndef SIE_KERNELS_CUDA_PLACES_H
#define SIE_KERNELS_CUDA_PLACES_H

#include "ops.h"

namespace sie_cuda {

sie_status take_rows(const sie_take_rows_args *, const sie_share *);
sie_status product(const sie_product_args *, const sie_share *);
sie_status dots(const sie_dots_args *, const sie_share *);
sie_status lstm(const sie_lstm_args *, const sie_share *);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_PLACES_H
