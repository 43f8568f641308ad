// gemm_sm90_choose.cc — the variants of gemm_sm90.h and the choice among them; it calls no kernel, so that
// the cost model's program has it without them.
#include "cuda/gemm_call.h"
#include "cuda/gemm_sm90_variants.h"
#include "cuda/gemm_tiles.h"

namespace sie_cuda {

namespace {

// An estimate of a variant's time, in clocks of one SM, not measured; only its order counts. Per SM
// and clock the tensor cores do 2048 16-bit multiply-adds (4096 in e4m3) at about 85 %, and L2
// brings about 40 bytes. Ping-pong hides the store of all tiles except the last; a tile that both
// warpgroups share does not.
int64_t estimate(const GemmSm90Variant &v, const sie_linear_args &a, const sie_stream &on) {
  const bool fp8 = a.w->compute == SIE_COMPUTE_FP8;
  const int64_t element = fp8 ? 1 : 2, k = (a.k + 63) / 64 * 64;
  const int64_t multiply = v.rows * v.columns * k / (fp8 ? 3480 : 1740);
  const int64_t load = (v.rows + v.columns / v.cluster) * k * element / 40;
  const int64_t store = v.rows * v.columns / 16, fill = 1500;
  const int64_t tiles = divide_up(a.rows.cap, v.rows * v.cluster) * divide_up(a.n, v.columns);
  const int64_t ctas = on.multiprocessors / v.cluster > 1 ? on.multiprocessors / v.cluster : 1;
  const int64_t turns = divide_up(tiles, ctas), main = multiply > load ? multiply : load;
  return fill + turns * main + (v.warpgroup_rows == v.rows ? 1 : turns) * store;
}

// The Family of gemm_choose (gemm_tiles.h). The skinny form wins where it can run: it reads W
// through more SMs at once.
struct Family {
  static constexpr int32_t count = GEMM_SM90_COUNT;
  const sie_linear_args &args;
  const sie_stream &on;
  const char *name(int32_t i) const { return gemm_sm90_variants[i].name; }
  bool takes(int32_t i) const { return gemm_sm90_takes(i, &args); }
  int64_t clocks(int32_t i) const {
    return i == GEMM_SM90_SKINNY ? 0 : estimate(gemm_sm90_variants[i], args, on);
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
  return gemm_choose(Family{a, on}, gemm_tiles, a, on);
}

}  // namespace sie_cuda
