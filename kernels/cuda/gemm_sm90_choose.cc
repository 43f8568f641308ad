// gemm_sm90_choose.cc — the variants of gemm_sm90.h and the choice among them by the cost model; it calls
// no kernel, so that the model's program has it without them.
#include "cuda/gemm_call.h"
#include "cuda/gemm_sm90_code.h"
#include "cuda/gemm_sm90_variants.h"
#include "cuda/gemm_tiles.h"

namespace sie_cuda {

namespace {

int32_t bytes_of(int32_t dtype) { return dtype == SIE_F32 ? 4 : (dtype == SIE_F8E4M3 ? 1 : 2); }

// The call as the cost model knows it.
GemmWork work_of(const sie_linear_args &a) {
  GemmWork w;
  w.rows = a.rows.cap;
  w.n = a.n;
  w.k = a.k;
  w.fp8 = a.w->compute == SIE_COMPUTE_FP8;
  w.blocks = a.x.scale_group == 128;
  w.gated = a.gate != SIE_GATE_NONE;
  w.activated = w.gated || a.act != SIE_ACT_NONE;
  if (a.residual.p != nullptr) w.residual_bytes += bytes_of(a.residual.dtype);
  if (a.addend.p != nullptr) w.residual_bytes += bytes_of(a.addend.dtype);
  w.y_bytes = bytes_of(a.y.dtype);
  return w;
}

// The Family of gemm_choose (gemm_tiles.h).
struct Family {
  static constexpr int32_t count = GEMM_SM90_COUNT;
  const sie_linear_args &args;
  int32_t multiprocessors;
  GemmWork work;
  const char *name(int32_t i) const { return gemm_sm90_variants[i].name; }
  bool takes(int32_t i) const { return gemm_sm90_takes(i, &args); }
  double clocks(int32_t i) const {
    if (i == GEMM_SM90_SKINNY) return skinny_clocks(card_h100, work, multiprocessors);
    const GemmTileShape tile = gemm_sm90_shape(gemm_sm90_variants[i], work);
    // Of two that take the same time, the one that asks less of L2: it leaves more to others.
    const double tie = 1e-9 * gemm_main_loop(card_h100, work, tile).l2;
    return gemm_clocks(card_h100, work, tile, multiprocessors) + tie;
  }
};

}  // namespace

const GemmSm90Variant *gemm_sm90_variant(int32_t index) {
  return index >= 0 && index < GEMM_SM90_COUNT ? &gemm_sm90_variants[index] : nullptr;
}

bool gemm_sm90_takes(int32_t index, const sie_linear_args *a) {
  const GemmSm90Variant *v = gemm_sm90_variant(index);
  if (v == nullptr || a->w == nullptr || (v->classes >> a->w->compute & 1u) == 0) return false;
  const bool gate = a->gate != SIE_GATE_NONE, blocks = a->y.dtype == SIE_F8E4M3;
  if (index == GEMM_SM90_SKINNY) return a->rows.cap <= v->rows && !blocks;
  return v->columns % ((gate ? 2 : 1) * (blocks ? 128 : 64)) == 0;
}

int32_t gemm_sm90_pick(const sie_linear_args &a, const sie_stream &on) {
  return gemm_choose(Family{a, on.multiprocessors, work_of(a)}, gemm_tiles, a, on);
}

}  // namespace sie_cuda
