// model.h — what kernels/cuda/cost.h says of a point of the bench, and of a whole model.
#ifndef SIE_KERNELS_BENCH_MODEL_H
#define SIE_KERNELS_BENCH_MODEL_H

#include "bench/models.h"
#include "bench/points.h"
#include "cuda/cost.h"

namespace bench {

// A product's prediction by the variant that it finds fastest; *variant receives its name.
sie_cuda::Prediction predict_linear(const sie_cuda::Card &card, const sie_cuda::GemmWork &work,
                                    const char **variant);

// Reports whether a point's prediction is of the bytes that its case moves; those of products and attention
// are of their shapes.
bool predicts_bytes(const Point &point);

// Returns whether the operation of the point has a model, and then its prediction on sm_90. *variant
// receives the tile of a product, else "".
bool predict(const sie_cuda::Card &card, const Point &point, double bytes, sie_cuda::Prediction *prediction,
             const char **variant);

// Returns the microseconds of a whole model on seqs sequences of one length; fp8: in the linears that have
// that class.
double predict_model_us(const sie_cuda::Card &card, const ModelDepth &model, int64_t seqs, int32_t length,
                        bool fp8);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_MODEL_H
