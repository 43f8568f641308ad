// models.cc — sizes as the models' own configurations have them.
#include "bench/models.h"

namespace bench {

const std::vector<ModelDepth> &model_depths() {
  static const std::vector<ModelDepth> all = {
      {{"MiniLM-L6", 384, 12, 12, 32, 1536, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false, false,
        SIE_POOL_MEAN},
       6,
       1},
      {{"bge-base", 768, 12, 12, 64, 3072, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false, false,
        SIE_POOL_CLS},
       12,
       1},
      {{"e5-large", 1024, 16, 16, 64, 4096, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false, false,
        SIE_POOL_MEAN},
       24,
       1},
      {{"ModernBERT-base", 768, 12, 12, 64, 1152, SIE_GATE_GEGLU, SIE_NORM_LAYER, SIE_MASK_WINDOW, 64, true,
        false, SIE_POOL_CLS},
       22,
       3},
      {{"Qwen3-0.6B", 1024, 16, 8, 128, 3072, SIE_GATE_SWIGLU, SIE_NORM_RMS, SIE_MASK_CAUSAL, 0, true, true,
        SIE_POOL_LAST},
       28,
       1},
  };
  return all;
}

}  // namespace bench
