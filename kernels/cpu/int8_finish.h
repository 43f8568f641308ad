// int8_finish.h — a linear of class INT8 around the integer products of an instruction set whose
// vectors have eight lanes: AVX2 and NEON. It walks over panels and rows, and turns the sums of a
// block into finished values, eight columns at a time.
//
// Kernel gives what differs:
//   rows, panels the most rows and panels of a block
//   sums         static void(const Int8Block &, int32_t *sums): Σ x_q·w_q, or the same less a
//                constant of its own times Σ w_q, into sums [rows][panels·32], aligned to 64 bytes
//   difference   static Vec(const Int8Terms &): (Σ x_q·w_q + excess·w_q − zero·Σ w_q) of 8 columns,
//                exact in 32 bits, then rounded once
#ifndef SIE_KERNELS_CPU_INT8_FINISH_H
#define SIE_KERNELS_CPU_INT8_FINISH_H

#include "int8_linear.h"
#include "math.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// Rows of x from `a` on, their padded last steps where K does not fill its steps, and panels, each
// of `steps` steps.
struct Int8Block {
  const char *a, *a_tail, *b;
  int64_t a_ld, steps;
  int rows, panels;

  const char *panel(int i) const { return b + i * steps * kInt8StepBytes; }
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

/* Where the weights of an outlier are, from a block's first panel on: null where a row has none. */
const char *outlier_weights(const Int8Block &block, const sie_outlier &x, int *shift) {
  if (x.excess == 0) return nullptr;
  const Int8OutlierPlace place = int8_outlier_place(x.column);
  *shift = place.shift;
  return block.b + place.offset;
}

/* z = s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend of row r, in columns [column, column + count) of
 * the block, whose sums begin at `column`. */
template <typename Kernel>
void scale_sums(const sie_linear_args *a, const Int8Weight &w, const Int8Block &block, const int32_t *sums,
                int64_t r, int64_t column, int64_t count, float *z) {
  Int8Terms terms = {};
  terms.zero = a->x.zero[r];
  const sie_outlier outlier = a->x.outlier != nullptr ? a->x.outlier[r] : sie_outlier{};
  const char *const weights = outlier_weights(block, outlier, &terms.shift);
  terms.excess = outlier.excess;
  const float *const addend = a->addend.p != nullptr ? row_of<const float>(a->addend, r) + column : nullptr;
  const float *const bias = a->bias != nullptr ? a->bias + column : nullptr;
  const Vec scale = vset(a->x.scale[r]);
  for (int64_t c = 0; c < count; c += kLanes) {
    terms.sums = sums + c;
    terms.weight_sums = w.sum + column + c;
    if (weights != nullptr) {
      terms.weights = weights + c / kInt8Panel * block.steps * kInt8StepBytes +
                      c % kInt8Panel / 16 * (kInt8StepBytes / 2) + c % 16 * 4;
    }
    const Vec offset = bias != nullptr ? vload_row(bias, c, count) : vset(0.0f);
    Vec x = vfma(Kernel::difference(terms), scale * vload(w.scale + column + c), offset);
    if (addend != nullptr) x = x + vload_row(addend, c, count);
    vstore(z + c, x);
  }
}

/* y = x + residual in columns [column, column + count) of row r, 0 < count <= 8. */
SIE_INLINE void store(const sie_linear_args *a, Vec y, int64_t r, int64_t column, int64_t count) {
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

/* Columns [column, column + count) of row r. z has room for whole vectors. */
template <int32_t Act>
void finish(const sie_linear_args *a, const float *z, int64_t r, int64_t column, int64_t count) {
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) store(a, activate<Act>(vload(z + c)), r, column + c, kLanes);
  if (c < count) store(a, activate<Act>(vload(z + c)), r, column + c, count - c);
}

/* The same with a gate: count is even, and y gets half as many columns. */
template <int32_t Act>
void finish_gated(const sie_linear_args *a, const float *z, int64_t r, int64_t column, int64_t count) {
  for (int64_t c = 0; c < count; c += 2 * kLanes) {
    const int64_t left = count - c < 2 * kLanes ? count - c : 2 * kLanes;
    Vec gate, up;
    vsplit_pairs(vload(z + c), left > kLanes ? vload(z + c + kLanes) : vset(0.0f), &gate, &up);
    store(a, activate<Act>(gate) * up, r, (column + c) / 2, left / 2);
  }
}

typedef void (*Int8Finish)(const sie_linear_args *, const float *, int64_t r, int64_t column, int64_t count);

Int8Finish finish_of(const sie_linear_args *a) {
  switch (a->gate) {
    case SIE_GATE_SWIGLU:
      return finish_gated<SIE_ACT_SILU>;
    case SIE_GATE_GEGLU:
      return finish_gated<SIE_ACT_GELU_ERF>;
    case SIE_GATE_GEGLU_TANH:
      return finish_gated<SIE_ACT_GELU_TANH>;
    default:
      break;
  }
  switch (a->act) {
    case SIE_ACT_GELU_ERF:
      return finish<SIE_ACT_GELU_ERF>;
    case SIE_ACT_TANH:
      return finish<SIE_ACT_TANH>;
    case SIE_ACT_GELU_TANH:
      return finish<SIE_ACT_GELU_TANH>;
    case SIE_ACT_RELU:
      return finish<SIE_ACT_RELU>;
    case SIE_ACT_SILU:
      return finish<SIE_ACT_SILU>;
    default:
      return finish<SIE_ACT_NONE>;
  }
}

template <typename Kernel>
void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  constexpr int64_t ld = Kernel::panels * kInt8Panel;
  alignas(64) int32_t sums[Kernel::rows * ld];
  alignas(64) float z[ld];
  const Int8Weight w = int8_weight(a->w);
  const Int8Finish finished = finish_of(a);
  const int64_t rows = *a->rows.n;
  Int8Block block = {};
  block.a_ld = a->x.ld;
  block.steps = w.steps;
  for (int64_t panel = panel_begin; panel < panel_end; panel += Kernel::panels) {
    block.panels = static_cast<int>(panel_end - panel < Kernel::panels ? panel_end - panel : Kernel::panels);
    block.b = w.panels + panel * w.steps * kInt8StepBytes;
    const int64_t column = panel * kInt8Panel, end = column + block.panels * kInt8Panel,
                  columns = (end < a->n ? end : a->n) - column;
    for (int64_t row = 0; row < rows; row += Kernel::rows) {
      block.rows = static_cast<int>(rows - row < Kernel::rows ? rows - row : Kernel::rows);
      block.a = static_cast<const char *>(a->x.p) + row * block.a_ld;
      block.a_tail = tails != nullptr ? tails + row * kInt8Step : nullptr;
      Kernel::sums(block, sums);
      for (int r = 0; r < block.rows; r++) {
        scale_sums<Kernel>(a, w, block, sums + r * ld, row + r, column, columns, z);
        finished(a, z, row + r, column, columns);
      }
    }
  }
}

}  // namespace

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_INT8_FINISH_H
