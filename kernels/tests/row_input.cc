// row_input.cc — the values of each kind of input.
#include "tests/row_input.h"

#include <math.h>

namespace harness {

const char *const input_names[] = {"plain", "outliers", "equal",  "denormals",   "positive",
                                   "ties",  "holes",    "offset", "least scale", "negative"};

float input_value(Random *random, Input input, int64_t r) {
  switch (input) {
    case outliers:
      return random->below(40) == 0 ? random->real() * 1e4f : random->real();
    case equal_rows:
      return 0.75f * static_cast<float>(r % 3 - 1);
    case denormals:
      return random->real() * 1e-39f;
    case positive:
      return 2 + random->real();
    case ties:
      return static_cast<float>(random->below(5) - 2) * (random->below(8) == 0 ? 3.0f : 1.0f);
    case holes:  // NaN in most rows, and in some an infinity
      if (r % 4 != 3 && random->below(9) == 0) return NAN;
      return r % 3 != 0 && random->below(90) == 0 ? (r % 3 == 1 ? INFINITY : -INFINITY) : random->real();
    case negative:
      return -2 + random->real();
    case offset:
      return 1000.0f + random->real();  // a two-pass variance keeps what one pass loses
    case least_scale:                   // of e4m3 with a scale: 2⁻¹⁰⁰ and the number before it
      return (r % 2 == 0 ? 448.0f : nextafterf(448.0f, 0.0f)) * 0x1p-100f *
             (random->below(2) == 0 ? 1.0f : -1.0f);
    default:
      return random->real();
  }
}

void fill(Rows *x, Random *random, Input input) {
  for (int64_t r = 0; r < x->rows(); r++) {
    for (int64_t c = 0; c < x->columns(); c++) x->set(r, c, input_value(random, input, r));
  }
}

}  // namespace harness
