// gemm_sm90.cc — the host side of gemm_sm90.h: checks, the list of variants, the choice among them.
#include "cuda/gemm_sm90.h"

#include <string.h>

#include "cuda/gemm_sm90_launch.h"
#include "cuda/gemm_tiles.h"

namespace sie_cuda {

namespace {

constexpr uint32_t all_classes = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16 | 1u << SIE_COMPUTE_FP8;
constexpr uint32_t classes_16 = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16;

const GemmSm90Variant variants[GEMM_SM90_COUNT] = {
    {"skinny", 64, 0, 0, 1, all_classes},
    {"pingpong-64x128", 64, 128, 64, 1, all_classes},
    {"pingpong-128x128", 128, 128, 128, 1, all_classes},
    {"pingpong-128x128-pair", 128, 128, 128, 2, all_classes},
    {"pingpong-128x192", 128, 192, 128, 1, classes_16},
    {"cooperative-128x256", 128, 256, 64, 1, all_classes},
    {"cooperative-128x256-pair", 128, 256, 64, 2, all_classes},
};

bool aligned(const void *p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uint64_t>(bytes) == 0;
}

sie_status check(const sie_linear_args *a, const sie_stream *on, GemmSm90Call *call) {
  if (on == nullptr || a->w == nullptr) return SIE_INVALID_ARGUMENT;
  if (on->sm / 10 != 9) return SIE_UNSUPPORTED;
  const uint32_t compute = a->w->compute;
  const bool fp8 = compute == SIE_COMPUTE_FP8;
  const int32_t type =
      compute == SIE_COMPUTE_BF16 ? SIE_BF16 : (compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_F8E4M3);
  if ((all_classes >> compute & 1u) == 0 || a->x.dtype != type) return SIE_UNSUPPORTED;
  if (fp8 && a->x.scale_group != -1 && a->x.scale_group != 128) return SIE_UNSUPPORTED;
  const int64_t element = fp8 ? 1 : 2;
  if (a->rows.cap < 0 || a->rows.cap > int64_t{1} << 30) return SIE_INVALID_ARGUMENT;
  if (a->w->n != a->n || a->w->k != a->k || a->k < 1 || a->k > int64_t{1} << 28) return SIE_INVALID_ARGUMENT;
  if (a->x.ld < a->k || a->x.ld * element % 16 != 0 || !aligned(a->x.p, 16)) return SIE_INVALID_ARGUMENT;
  if (a->w->data == nullptr || !aligned(a->w->data, 16)) return SIE_INVALID_ARGUMENT;
  if (fp8 && (a->x.scale == nullptr || !aligned(a->x.scale, 4))) return SIE_INVALID_ARGUMENT;
  if (a->rows.cap > 0 && (a->rows.n == nullptr || a->x.p == nullptr || a->y.p == nullptr))
    return SIE_INVALID_ARGUMENT;
  sie_status status = gemm_epilogue(a, &call->epilogue);
  if (status != SIE_OK) return status;
  if (!gemm_layout(compute, a->n, a->k, &call->layout)) return SIE_UNSUPPORTED;
  call->args = a;
  call->on = on;
  return SIE_OK;
}

sie_status run(int32_t variant, const GemmSm90Call &call) {
  if (call.args->rows.cap == 0) return SIE_OK;
  if (variant == GEMM_SM90_SKINNY) return gemm_sm90_skinny(call);
  switch (call.args->w->compute) {
    case SIE_COMPUTE_BF16:
      return gemm_sm90_bf16(variant, call);
    case SIE_COMPUTE_F16:
      return gemm_sm90_f16(variant, call);
    default:
      return gemm_sm90_e4m3(variant, call);
  }
}

// Time of a variant in clocks of one SM, on paper; only its order counts. Per SM and clock the tensor cores
// do 2048 16-bit multiply-adds (4096 in e4m3) at about 85 %, and L2 brings about 40 bytes. Ping-pong hides
// the store of all tiles but the last; a tile that both warpgroups share does not.
int64_t estimate(const GemmSm90Variant &v, const sie_linear_args *a, const sie_stream *on) {
  const bool fp8 = a->w->compute == SIE_COMPUTE_FP8;
  const int64_t element = fp8 ? 1 : 2, k = (a->k + 63) / 64 * 64;
  auto divide_up = [](int64_t x, int64_t y) { return (x + y - 1) / y; };
  const int64_t multiply = v.rows * v.columns * k / (fp8 ? 3480 : 1740);
  const int64_t load = (v.rows + v.columns / v.cluster) * k * element / 40;
  const int64_t store = v.rows * v.columns / 16, fill = 1500;
  const int64_t tiles = divide_up(a->rows.cap, v.rows * v.cluster) * divide_up(a->n, v.columns);
  const int64_t ctas = on->multiprocessors / v.cluster > 1 ? on->multiprocessors / v.cluster : 1;
  const int64_t turns = divide_up(tiles, ctas), main = multiply > load ? multiply : load;
  return fill + turns * main + (v.warpgroup_rows == v.rows ? 1 : turns) * store;
}

}  // namespace

const GemmSm90Variant *gemm_sm90_variant(int32_t index) {
  return index >= 0 && index < GEMM_SM90_COUNT ? &variants[index] : nullptr;
}

bool gemm_sm90_takes(int32_t index, const sie_linear_args *a) {
  const GemmSm90Variant *v = gemm_sm90_variant(index);
  if (v == nullptr || a->w == nullptr || (v->classes >> a->w->compute & 1u) == 0) return false;
  const bool gate = a->gate != SIE_GATE_NONE, blocks = a->y.dtype == SIE_F8E4M3;
  if (index == GEMM_SM90_SKINNY) return a->rows.cap <= v->rows && !blocks;
  return v->columns % ((gate ? 2 : 1) * (blocks ? 128 : 64)) == 0;
}

int32_t gemm_sm90_choose(const sie_linear_args *a, const sie_stream *on) {
  GemmSm90Call call = {};
  if (check(a, on, &call) != SIE_OK) return -1;
  if (gemm_sm90_takes(GEMM_SM90_SKINNY, a)) return GEMM_SM90_SKINNY;
  for (const GemmTile *t = gemm_tiles; t->sm != 0; t++) {
    if (t->sm / 10 != 9 || t->compute != a->w->compute || t->n != a->n || t->k != a->k) continue;
    if (a->rows.cap <= t->rows_from || a->rows.cap > t->rows_to) continue;
    for (int32_t i = 0; i < GEMM_SM90_COUNT; i++) {
      if (strcmp(variants[i].name, t->variant) == 0 && gemm_sm90_takes(i, a)) return i;
    }
  }
  int32_t best = -1;
  int64_t least = 0;
  for (int32_t i = GEMM_SM90_SKINNY + 1; i < GEMM_SM90_COUNT; i++) {
    if (!gemm_sm90_takes(i, a)) continue;
    int64_t clocks = estimate(variants[i], a, on);
    if (best >= 0 && clocks >= least) continue;
    best = i;
    least = clocks;
  }
  return best;
}

sie_status gemm_sm90_run(int32_t variant, const sie_linear_args *a, const sie_stream *on) {
  GemmSm90Call call = {};
  sie_status status = check(a, on, &call);
  if (status != SIE_OK) return status;
  return gemm_sm90_takes(variant, a) ? run(variant, call) : SIE_UNSUPPORTED;
}

sie_status gemm_sm90_linear(const sie_linear_args *a, const sie_share *share) {
  GemmSm90Call call = {};
  sie_status status = check(a, share->on, &call);
  return status == SIE_OK ? run(gemm_sm90_choose(a, share->on), call) : status;
}

}  // namespace sie_cuda
