// norm_case.h — the parameters and outputs that the cases of embed_layernorm and layernorm share,
// and the comparison with the exact norm of given rows.
#ifndef SIE_KERNELS_TESTS_NORM_CASE_H
#define SIE_KERNELS_TESTS_NORM_CASE_H

#include "harness.h"
#include "tests/row_input.h"

namespace harness {

// The quantised twin of an output.
enum Twin { no_twin, twin_u8, twin_u8_outlier, twin_f8 };
extern const char *const twin_names[];

class NormCase : public Case {
 protected:
  // norm: sie_norm; weight_offset: 0 or 1, which is subtracted from gamma.
  void make_outputs(Random *random, Layout layout, int64_t rows, int64_t c, int32_t y, Twin twin, bool beta,
                    int32_t norm, float weight_offset);

  const float *beta() const { return has_beta_ ? beta_.data() : nullptr; }

  // Compares row r of the outputs with the norm of x[c] in double; magnitude: the largest |term| in
  // the sum that gave x.
  void verify_row(const char *backend, int64_t r, const std::vector<double> &x, double magnitude);

  float eps_ = 1e-12f, weight_offset_ = 0;
  int32_t norm_ = SIE_NORM_LAYER;
  bool has_beta_ = true;
  std::unique_ptr<Rows> y_, yq_;
  Array<float> gamma_, beta_;

 private:
  void verify_u8(const char *backend, int64_t r, const std::vector<double> &want,
                 const std::vector<double> &tolerance);
  void verify_f8(const char *backend, int64_t r, const std::vector<double> &want,
                 const std::vector<double> &tolerance);
  void verify_bits(const char *backend, int64_t r);
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_NORM_CASE_H
