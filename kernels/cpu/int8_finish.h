// int8_finish.h — a linear of class INT8 around the integer products of an instruction set whose
// vectors have eight lanes: AVX2 and NEON. It walks over panels and rows, and turns the sums of a
// block into finished values, eight columns at a time.
//
// Kernel gives what differs:
//   rows         the most rows of a block
//   sums         static void(const Int8Block &, int rows, int32_t *sums): Σ x_q·w_q, or the same
//                less a constant of its own times Σ w_q, of 16 columns into sums [rows][32]
//   difference   static Vec(const Int8Terms &): (Σ x_q·w_q + excess·w_q − zero·Σ w_q) of 8 columns,
//                exact in 32 bits, then rounded once
#ifndef SIE_KERNELS_CPU_INT8_FINISH_H
#define SIE_KERNELS_CPU_INT8_FINISH_H

#include "int8_linear.h"
#include "math.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// Rows of x from `a` on, or their padded last steps, and one tile of a panel.
struct Int8Block {
  const char *a, *a_tail, *b;
  int64_t a_ld, steps;
};

// The terms of eight columns of a row. weights: four bytes for each column, of which `shift` bits
// to the left put the outlier's on top; null where the row has none.
struct Int8Terms {
  const int32_t *sums, *weight_sums;
  int32_t zero;
  const char *weights;
  int shift;
  int32_t excess;
};

namespace {

Vec activate(Vec x, int32_t act) {
  switch (act) {
    case SIE_ACT_GELU_ERF:
      return gelu_erf(x);
    case SIE_ACT_TANH:
      return vtanh(x);
    case SIE_ACT_GELU_TANH:
      return gelu_tanh(x);
    case SIE_ACT_RELU:
      return relu(x);
    case SIE_ACT_SILU:
      return silu(x);
    default:
      return x;
  }
}

/* The terms of the eight columns from `column` on of row r; sums at the first of them. */
Int8Terms terms_of(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r,
                   int64_t column) {
  Int8Terms terms = {sums, w.sum + column, a->x.zero[r], nullptr, 0, 0};
  if (a->x.outlier == nullptr) return terms;
  const sie_outlier x = a->x.outlier[r];
  const Int8OutlierPlace place = int8_outlier_place(x.column);
  terms.weights = w.panels + column / kInt8Panel * w.steps * kInt8StepBytes + place.offset +
                  column % kInt8Panel / 16 * (kInt8StepBytes / 2) + column % 16 * 4;
  terms.shift = place.shift;
  terms.excess = x.excess;
  return terms;
}

/* x·Wᵀ + bias + addend in columns [column, column + count) of row r, 0 < count <= 8; sums at the
 * first of them. */
template <typename Kernel>
Vec biased(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r, int64_t column,
           int64_t count) {
  const Vec difference = Kernel::difference(terms_of(a, w, sums, r, column));
  const Vec bias = a->bias == nullptr ? vset(0.0f) : vload_row(a->bias, column, column + count);
  const Vec z = vfma(difference, vset(a->x.scale[r]) * vload(w.scale + column), bias);
  return a->addend.p == nullptr ? z
                                : z + vload_row(row_of<const float>(a->addend, r), column, column + count);
}

/* Columns [column, column + count) of row r of y, 0 < count <= 8. */
void store(const sie_linear_args *a, Vec y, int64_t r, int64_t column, int64_t count) {
  const int64_t end = column + count;
  if (a->residual.p != nullptr) {
    y = y + (a->residual.dtype == SIE_F32 ? vload_row(row_of<const float>(a->residual, r), column, end)
                                          : vload_row(row_of<const Bf16>(a->residual, r), column, end));
  }
  if (a->y.dtype == SIE_F32) {
    vstore_row(row_of<float>(a->y, r), column, end, y);
  } else {
    vstore_row(row_of<Bf16>(a->y, r), column, end, y);
  }
}

/* Columns [column, column + count) of row r, 0 < count <= 32. */
template <typename Kernel>
void finish(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r, int64_t column,
            int64_t count) {
  for (int64_t c = 0; c < count; c += kLanes) {
    const int64_t here = count - c < kLanes ? count - c : kLanes;
    store(a, activate(biased<Kernel>(a, w, sums + c, r, column + c, here), a->act), r, column + c, here);
  }
}

/* The same with a gate: count is even, and y gets half as many columns. */
template <typename Kernel>
void finish_gated(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r,
                  int64_t column, int64_t count) {
  for (int64_t c = 0; c < count; c += 2 * kLanes) {
    const int64_t left = count - c, here = left < kLanes ? left : kLanes;
    const int64_t there = left - here < kLanes ? left - here : kLanes;
    const Vec x = biased<Kernel>(a, w, sums + c, r, column + c, here);
    const Vec more = there > 0 ? biased<Kernel>(a, w, sums + c + kLanes, r, column + c + kLanes, there) : vset(0.0f);
    Vec gate, up;
    vsplit_pairs(x, more, &gate, &up);
    store(a, activate(gate, act_of_gate(a->gate)) * up, r, (column + c) / 2, (here + there) / 2);
  }
}

template <typename Kernel>
void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[Kernel::rows * kInt8Panel];
  const Int8Weight w = int8_weight(a->w);
  const int64_t rows = *a->rows.n;
  Int8Block block = {};
  block.a_ld = a->x.ld;
  block.steps = w.steps;
  for (int64_t panel = panel_begin; panel < panel_end; panel++) {
    const int64_t column = panel * kInt8Panel, columns = a->n - column < 32 ? a->n - column : 32;
    for (int64_t row = 0; row < rows; row += Kernel::rows) {
      const int count = static_cast<int>(rows - row < Kernel::rows ? rows - row : Kernel::rows);
      block.a = static_cast<const char *>(a->x.p) + row * block.a_ld;
      block.a_tail = tails != nullptr ? tails + row * kInt8Step : nullptr;
      block.b = w.panels + panel * w.steps * kInt8StepBytes;
      Kernel::sums(block, count, sums);
      block.b += kInt8StepBytes / 2;
      Kernel::sums(block, count, sums + 16);
      for (int r = 0; r < count; r++) {
        (a->gate != SIE_GATE_NONE ? finish_gated<Kernel> : finish<Kernel>)(a, w, sums + 32 * r, row + r,
                                                                          column, columns);
      }
    }
  }
}

}  // namespace

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_INT8_FINISH_H
