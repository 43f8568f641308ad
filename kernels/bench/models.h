// models.h — the shapes that are timed and predicted for, and how deep their models are.
#ifndef SIE_KERNELS_BENCH_MODELS_H
#define SIE_KERNELS_BENCH_MODELS_H

#include <vector>

#include "tests/model_cases.h"

namespace bench {

struct ModelDepth {
  harness::ModelShape shape;
  int32_t blocks;
  int32_t global_every;  // of models with a window: each so many-th block sees all, from the first on
};

const std::vector<ModelDepth> &model_depths();

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_MODELS_H
