// norm_case.cc — the comparison of a normalised row and of its quantised twin.
#include "tests/norm_case.h"

#include <math.h>

#include "common/tol.h"

namespace harness {

const char *const twin_names[] = {"", " yq", " yq outlier", " yq=f8"};

void NormCase::make_outputs(Random *random, Layout layout, int64_t rows, int64_t c, int32_t y, Twin twin,
                            bool beta, int32_t norm, float weight_offset) {
  y_.reset(new Rows(random, layout, rows, c, y));
  outputs = {y_.get()};
  if (twin != no_twin) {
    yq_.reset(new Rows(random, layout, rows, c, twin == twin_f8 ? SIE_F8E4M3 : SIE_U8,
                       {twin == twin_u8_outlier, -1}));
    outputs.push_back(yq_.get());
  }
  for (int64_t i = 0; i < c; i++) {
    gamma_.push_back(1 + 0.5f * random->real() - weight_offset);
    beta_.push_back(random->real());
  }
  has_beta_ = beta;
  norm_ = norm;
  weight_offset_ = weight_offset;
}

void NormCase::verify_row(const char *backend, int64_t r, const std::vector<double> &x, double magnitude) {
  double mean = 0, variance = 0, n = static_cast<double>(x.size());
  for (double v : x) mean += v;
  mean = norm_ == SIE_NORM_LAYER ? mean / n : 0;
  for (double v : x) variance += (v - mean) * (v - mean);
  double factor = 1 / sqrt(variance / n + static_cast<double>(eps_));
  std::vector<double> want(x.size()), tolerance(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    double g = static_cast<double>(gamma_[i]) + static_cast<double>(weight_offset_);
    double b = has_beta_ ? static_cast<double>(beta_[i]) : 0;
    want[i] = (x[i] - mean) * factor * g + b;
    tolerance[i] = sie_tol_norm(magnitude, factor, g, b, want[i] - b);
    if (norm_ == SIE_NORM_NONE) want[i] = x[i], tolerance[i] = 3 * SIE_TOL_U * magnitude;
    double got = y_->get(r, static_cast<int64_t>(i)), t = tolerance[i] + sie_tol_store(y_->dtype(), want[i]);
    CHECK(fabs(got - want[i]) <= t, "%s %s %s: y[%lld,%zu] = %.9g, %.9g expected, ±%.2g", backend,
          form.c_str(), shape.c_str(), static_cast<long long>(r), i, got, want[i], t);
  }
  if (yq_ == nullptr) return;
  if (yq_->dtype() == SIE_U8) verify_u8(backend, r, want, tolerance);
  if (yq_->dtype() == SIE_F8E4M3) verify_f8(backend, r, want, tolerance);
  if (y_->dtype() == SIE_F32) verify_bits(backend, r);
}

void NormCase::verify_u8(const char *backend, int64_t r, const std::vector<double> &want,
                         const std::vector<double> &tolerance) {
  double lo = 0, hi = 0;
  for (double w : want) lo = fmin(lo, w), hi = fmax(hi, w);
  if (yq_->outlier(r) >= 0) {
    // The step is that of the other elements' range; the outlier is a multiple of it too.
    size_t outlier = static_cast<size_t>(yq_->outlier(r));
    double whole = hi - lo;
    lo = hi = 0;
    for (size_t i = 0; i < want.size(); i++) {
      if (i != outlier) lo = fmin(lo, want[i]), hi = fmax(hi, want[i]);
      CHECK(fabs(want[i]) <= fabs(want[outlier]) + tolerance[i] + tolerance[outlier],
            "%s %s %s: row %lld: column %zu is larger than the outlier", backend, form.c_str(), shape.c_str(),
            static_cast<long long>(r), i);
    }
    if (hi - lo < whole / 32) hi = lo + whole / 32;
  }
  for (size_t i = 0; i < want.size(); i++) {
    double got = yq_->get(r, static_cast<int64_t>(i)),
           t = tolerance[i] + 1.01 * (hi - lo + tolerance[i]) / 255;
    CHECK(fabs(got - want[i]) <= t, "%s %s %s: yq[%lld,%zu] = %.9g, %.9g expected, ±%.2g", backend,
          form.c_str(), shape.c_str(), static_cast<long long>(r), i, got, want[i], t);
  }
}

void NormCase::verify_f8(const char *backend, int64_t r, const std::vector<double> &want,
                         const std::vector<double> &tolerance) {
  for (size_t i = 0; i < want.size(); i++) {
    double got = yq_->get(r, static_cast<int64_t>(i));
    double t =
        tolerance[i] + e4m3_half_step * fabs(want[i]) + static_cast<double>(yq_->scale(r)) * 0x1p-10 * 1.01;
    CHECK(fabs(got - want[i]) <= t, "%s %s %s: yq[%lld,%zu] = %.9g, %.9g expected, ±%.2g", backend,
          form.c_str(), shape.c_str(), static_cast<long long>(r), i, got, want[i], t);
  }
}

// The twin is the quantised f32 result, to the bit; where y holds that result, quantise_rows gives
// the expected bits.
void NormCase::verify_bits(const char *backend, int64_t r) {
  Rows twin(1, yq_->columns(), yq_->dtype(), {yq_->outlier(r) >= 0, -1});
  sie_quantise_rows_args a = {};
  a.rows = row_count(0, 1, 1);
  a.c = y_->columns();
  a.x = y_->tensor(r);
  a.y = twin.tensor();
  sie_op_bounds b = {};
  b.kind = SIE_OP_QUANTISE_ROWS;
  b.rows = 1;
  b.c = a.c;
  Scratch scratch(sie_ref_ops(), b);
  sie_share share = scratch.share(0, 1);
  sie_ref_ops()->quantise_rows(&a, &share);
  CHECK(yq_->bytes(r, r + 1) == twin.bytes(0, 1), "%s %s %s: row %lld of yq is not that of y quantised",
        backend, form.c_str(), shape.c_str(), static_cast<long long>(r));
}

}  // namespace harness
