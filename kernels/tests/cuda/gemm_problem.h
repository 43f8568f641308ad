// gemm_problem.h — a linear for a CUDA GEMM: operands with poisoned surroundings, the sums in
// double.
//
// Every byte outside the elements is 0xff, NaN in each float type: gaps between rows, and rows from
// n to the capacity.
#ifndef SIE_KERNELS_TESTS_CUDA_GEMM_PROBLEM_H
#define SIE_KERNELS_TESTS_CUDA_GEMM_PROBLEM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "ops.h"

namespace gemm_test {

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  float real() { return static_cast<float>(next()) * (2.0f / 16777216.0f) - 1.0f; }

 private:
  uint32_t state_;
};

// Memory that ends, up to the next multiple of 16 bytes, before a page that may not be touched
// (AddressSanitizer sees the very next byte). It starts `shift` bytes off a 16-byte boundary.
class Bytes {
 public:
  explicit Bytes(int64_t size, int64_t shift = 0);
  ~Bytes();
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  uint8_t *p() const { return memory_ + shift_; }
  int64_t size() const { return size_; }

 private:
  uint8_t *memory_;  // 16-byte aligned
  int64_t size_, shift_;
  void *map_;  // what is freed or unmapped
  size_t map_bytes_;
};

int64_t element_bytes(int32_t dtype);
float load(int32_t dtype, const void *row, int64_t column);
void store(int32_t dtype, void *row, int64_t column, float x);

struct Shape {
  uint32_t compute;
  int64_t n_rows, cap, n, k;
  int32_t x_group = -1;  // FP8
  int64_t x_gap = 0;     // elements between the rows of x; keeps them aligned
};

// The gap that fills rows of x up to a multiple of 16 bytes, plus `more` such multiples, in
// elements.
int64_t gap(uint32_t compute, int64_t k, int64_t more);

// The ending of a run: everything after the sums.
struct Ending {
  int32_t act = SIE_ACT_NONE, gate = SIE_GATE_NONE;
  bool bias = true, odd_bias = false;  // odd: 4 bytes past alignment
  int32_t residual = 0;                // dtype
  int32_t y = SIE_F32;                 // dtype
  // Elements between the rows of y and of the residual.
  int64_t gap = 0, residual_gap = 0;
  bool in_place = false;
  bool addend = false;  // its rows lie as far apart as the residual's would
};

// The operands. They depend on the shape alone, not on the ending.
class Problem {
 public:
  explicit Problem(const Shape &shape);

  const Shape &shape() const { return shape_; }
  int64_t columns(const Ending &e) const { return e.gate != SIE_GATE_NONE ? shape_.n / 2 : shape_.n; }
  // Σ x·w + bias in double, and how far the f32 sum may be from it.
  double z(int64_t r, int64_t c) const { return z_[static_cast<size_t>(r * shape_.n + c)]; }
  double z_tolerance(int64_t r, int64_t c) const;
  double bias(int64_t c) const { return static_cast<double>(reinterpret_cast<const float *>(bias_.p())[c]); }
  float residual(int32_t dtype, int64_t r, int64_t c) const;
  double addend(int64_t r, int64_t c) const {
    return static_cast<double>(addend_[static_cast<size_t>(r * shape_.n + c)]);
  }
  void fill_addend(const Ending &e, const Bytes &memory) const;
  uint8_t *x_row(int64_t r) const;

  // The arguments, with y (and the residual and the addend behind y, if any) from the caller.
  sie_linear_args args(const Ending &e, const Bytes &y, const Bytes &residual, float *y_scale,
                       const Bytes *addend = nullptr) const;
  int64_t y_ld(const Ending &e) const { return columns(e) + e.gap; }
  int64_t addend_ld(const Ending &e) const { return shape_.n + e.residual_gap; }
  int64_t addend_bytes(const Ending &e) const {
    return e.addend && shape_.cap > 0 ? ((shape_.cap - 1) * addend_ld(e) + shape_.n) * 4 : 0;
  }
  int64_t residual_ld(const Ending &e) const { return columns(e) + (e.in_place ? e.gap : e.residual_gap); }
  // For capacity rows.
  int64_t bytes(const Ending &e, int64_t ld, int32_t dtype) const {
    return (shape_.cap > 0 ? (shape_.cap - 1) * ld + columns(e) : 0) * element_bytes(dtype);
  }
  // Fills the memory that a run needs for its residual; empty without one.
  void fill_residual(const Ending &e, const Bytes &memory) const;

 private:
  Shape shape_;
  int64_t x_ld_;
  Bytes x_, w_, bias_, odd_bias_, x_scale_;
  std::vector<float> residual_, addend_;
  sie_packed packed_;
  std::vector<double> z_, x_norm_, w_norm_;
};

}  // namespace gemm_test

#endif  // SIE_KERNELS_TESTS_CUDA_GEMM_PROBLEM_H
