// model.h — what kernels/cuda/cost.h says of a point of the bench, and of a whole model.
#ifndef SIE_KERNELS_BENCH_MODEL_H
#define SIE_KERNELS_BENCH_MODEL_H

#include "bench/models.h"
#include "bench/points.h"
#include "cuda/cost.h"

namespace bench {

// The product of a model's linear on so many rows.
sie_cuda::GemmWork linear_work(const harness::ModelShape &model, int64_t rows, harness::ModelLinear part,
                               bool fp8);

// What is predicted of a point or a product.
struct Predicted {
  sie_cuda::Prediction by;       // of a product by the variant that linear chooses (gemm_sm90.h)
  const char *variant = "";      // its name; "" where there is no choice
  sie_cuda::Prediction fastest;  // by the variant that the model finds fastest: the same one, or another
  const char *fastest_variant = "";
};
Predicted predict_linear(const sie_cuda::Card &card, const sie_cuda::GemmWork &work);

// The same of linear_norm in bf16, by one kernel or two, of which by.us is the sum. There is no other that is faster.
Predicted predict_linear_norm(const sie_cuda::Card &card, const sie_cuda::GemmWork &work);

// Reports whether a program on the card has linear_norm for such a product (ops.h's linear_norm_pays).
bool has_linear_norm(const sie_cuda::Card &card, const sie_cuda::GemmWork &work);

// Reports whether a point's prediction is of the bytes that its case moves; those of products, attention
// and pooling are of their shapes.
bool predicts_bytes(const Point &point);

// Returns whether the operation of the point has a model, and then its prediction on sm_90.
bool predict(const sie_cuda::Card &card, const Point &point, double bytes, Predicted *prediction);

// Returns the kernels that a whole model on few short sequences starts.
int32_t model_launches(const ModelDepth &model);

// Returns the microseconds of a whole model on seqs sequences of one length; fp8: in the linears that have
// that class.
double predict_model_us(const sie_cuda::Card &card, const ModelDepth &model, int64_t seqs, int32_t length,
                        bool fp8);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_MODEL_H
