// gemm_sm90_norm_choose.cc — the forms of gemm_sm90_norm.h, what they take, and the choice among them by the cost
// model; it calls no kernel, so that the model's program has it without them.
#include "cuda/gemm_sm90_norm.h"

#include "cuda/gemm_sm90_code.h"
#include "cuda/gemm_sm90_norm_tiles.h"
#include "cuda/gemm_sm90_variants.h"
#include "cuda/linear_norm.h"

namespace sie_cuda {

namespace {

template <class Shape>
constexpr GemmSm90NormForm line(const char *name, int32_t code) {
  return {name, Shape::rows, Shape::columns, sm90_warpgroup_rows<Shape>, Shape::cluster, code};
}

constexpr GemmSm90NormForm forms[GEMM_SM90_NORM_COUNT] = {
    line<Sm90Norm64x192>("64x192-pair", 58752),
    line<Sm90Norm64x192Four>("64x192-four", 59008),
    line<Sm90Norm128x192>("128x192-pair", 96128),
    line<Sm90Norm128x192Four>("128x192-four", 96640),
    line<Sm90Norm128x128Eight>("128x128-eight", 75904),
    line<Sm90NormCooperative128x256Four>("cooperative-128x256-four", 70784),
};

bool by_16(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool rows_by_16(const sie_tensor &t) { return t.p != nullptr && by_16(t.p) && t.ld * 2 % 16 == 0; }

// The type of a class's operands; 0: no class of these kernels.
int32_t type_of(uint32_t compute) {
  return compute == SIE_COMPUTE_BF16 ? SIE_BF16 : (compute == SIE_COMPUTE_F16 ? SIE_F16 : 0);
}

double microseconds(double clocks) { return clocks / (card_h100.ghz * 1e3) + card_h100.gap_us; }

// The time of linear, as it chooses its variant, and of layernorm.
double microseconds_of_two(uint32_t compute, const GemmWork &w, const sie_stream &on) {
  sie_packed packed = {};
  packed.compute = compute;
  sie_linear_args a = {};
  a.rows.cap = w.rows;
  a.n = w.n;
  a.k = w.k;
  a.w = &packed;
  a.residual.p = &packed;  // there is one; nobody reads it
  a.y.dtype = a.residual.dtype = type_of(compute);
  const int32_t variant = gemm_sm90_pick(a, on);
  const double clocks =
      variant == GEMM_SM90_SKINNY
          ? skinny_clocks(card_h100, w, on.multiprocessors)
          : gemm_clocks(card_h100, w, gemm_sm90_shape(gemm_sm90_variants[variant], w), on.multiprocessors);
  return microseconds(clocks) + predict_rows(card_h100, 4.0 * static_cast<double>(w.rows * w.n), 1).us;
}

}  // namespace

const GemmSm90NormForm *gemm_sm90_norm_form(int32_t index) {
  return index >= 0 && index < GEMM_SM90_NORM_COUNT ? &forms[index] : nullptr;
}

bool gemm_sm90_norm_takes(int32_t form, const sie_linear_norm_args *args, const sie_stream *on) {
  const GemmSm90NormForm *f = gemm_sm90_norm_form(form);
  const sie_linear_args &a = args->linear;
  const sie_layernorm_args &norm = args->norm;
  if (f == nullptr || on->sm / 10 != 9 || a.w == nullptr) return false;
  const int32_t type = type_of(a.w->compute);
  if (type == 0 || a.n != f->columns * f->cluster || norm.norm != SIE_NORM_LAYER) return false;
  if (a.act != SIE_ACT_NONE || a.gate != SIE_GATE_NONE || a.addend.p != nullptr) return false;
  if (a.y.dtype != type || a.residual.dtype != type || !rows_by_16(a.y) || !rows_by_16(a.residual))
    return false;
  return by_16(a.bias) && by_16(norm.gamma) && by_16(norm.beta);
}

int32_t gemm_sm90_norm_pick(uint32_t compute, int64_t rows, int64_t n, int64_t k, const sie_stream &on) {
  if (type_of(compute) == 0 || on.sm / 10 != 9) return -1;
  GemmWork w;
  w.rows = rows;
  w.n = n;
  w.k = k;
  w.residual_bytes = 2;
  int32_t best = -1;
  double least = microseconds_of_two(compute, w, on);
  for (int32_t i = 0; i < GEMM_SM90_NORM_COUNT; i++) {
    const GemmSm90NormForm &f = forms[i];
    if (f.columns * f.cluster != n) continue;
    const double time = microseconds(gemm_norm_clocks(
        card_h100, w, {f.rows, f.columns, f.warpgroup_rows, f.cluster, f.code}, on.multiprocessors));
    if (time >= least) continue;
    best = i;
    least = time;
  }
  return best;
}

// By batches of many rows. One more tile than whole turns of the clusters makes two kernels faster, so no single
// number of rows decides.
int32_t linear_norm_pays(const sie_packed *w, const sie_stream *on) {
  for (int64_t rows = 1024; rows <= 16384; rows *= 2) {
    if (gemm_sm90_norm_pick(w->compute, rows, w->n, w->k, *on) >= 0) return 1;
  }
  return 0;
}

}  // namespace sie_cuda
