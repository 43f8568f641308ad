// host_linear_test.cc — on every CPU table: linears of small integers, to the bit, with operands that end
// where their memory does, and rows that are quantised to the reference's bytes.
#include "at_end.h"
#include "common/dtype.h"

using namespace at_end;

namespace {

// Σ x·w and what is added to it, as f32 has them exactly.
double exact(const std::vector<float> &w, int64_t k, int64_t n, int64_t r) {
  double sum = 0;
  for (int64_t i = 0; i < k; i++)
    sum += static_cast<double>(w[static_cast<size_t>(n * k + i)]) * static_cast<double>((r * 13 + i * 5) % 7);
  return sum;
}

sie_op_bounds linear_bounds(uint32_t compute, int64_t rows, int64_t n, int64_t k) {
  sie_op_bounds b = {};
  b.kind = SIE_OP_LINEAR, b.compute = compute;
  b.rows = rows, b.n = n, b.k = k;
  return b;
}

}  // namespace

// K on both sides of what is widened at once, and steps that it does not fill. Weights are integers of
// which the largest is 127, so that they are packed as they are.
TEST(host_bytes_end_with_their_rows) {
  for (int64_t k : {1, 63, 64, 65, 1000, 1024, 1030, 1100, 2048, 2050}) {
    const int64_t n = 51;
    std::vector<float> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = i % k == 0 ? 127 : small(i);
    Weight weight(SIE_COMPUTE_INT8, n, k, w);
    for (int32_t rows : {1, 5, 6, 13, 16, 33}) {
      AtEnd<uint8_t> x(rows * k);
      AtEnd<float> addend(rows * n, 2.0f), bias(n);
      AtEnd<sie_outlier> outlier(rows);
      for (int64_t i = 0; i < n; i++) bias.data()[i] = small(i + 5);
      for (int32_t r = 0; r < rows; r++)
        outlier.data()[r] = {static_cast<int32_t>(r / 2 % k), r % 2 == 0 ? 700 : -900};
      std::vector<float> scale(static_cast<size_t>(rows), 1.0f);
      std::vector<int32_t> zero(static_cast<size_t>(rows), 0);
      for (int64_t i = 0; i < rows * k; i++) x.data()[i] = static_cast<uint8_t>((i / k * 13 + i % k * 5) % 7);
      for (const sie_ops *ops : tables()) {
        std::vector<float> y(static_cast<size_t>(rows * n), -1.0f);
        sie_linear_args a = {};
        a.rows = {rows, &rows};
        a.n = n, a.k = k;
        a.x = of(x.data(), k, SIE_U8);
        a.x.scale = scale.data(), a.x.zero = zero.data(), a.x.scale_group = -1;
        a.w = weight.packed(ops);
        a.x.outlier = outlier.data();
        a.bias = bias.data();
        a.addend = of(addend.data(), n, SIE_F32);
        a.y = of(y.data(), n, SIE_F32);
        Scratch scratch(ops, linear_bounds(SIE_COMPUTE_INT8, rows, n, k));
        const sie_share share = scratch.share(0, 1);
        CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: K %lld", ops->name,
              static_cast<long long>(k));
        for (int64_t i = 0; i < rows * n; i++) {
          const sie_outlier &o = outlier.data()[i / n];
          const double want = exact(w, k, i % n, i / n) + 2 + static_cast<double>(bias.data()[i % n]) +
                              o.excess * static_cast<double>(w[static_cast<size_t>(i % n * k + o.column)]);
          const double got = static_cast<double>(y[static_cast<size_t>(i)]);
          if (got == want) continue;
          CHECK(false, "%s: K %lld: y[%lld] = %g, %g expected", ops->name, static_cast<long long>(k),
                static_cast<long long>(i), got, want);
          break;
        }
      }
    }
  }
}

// Blocks of rows, panels that are not full, and a residual that is y.
TEST(host_linears_end_with_their_rows) {
  const int64_t k = 5;
  for (int64_t n : {3, 8, 17, 31, 48, 70}) {
    std::vector<float> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = small(i);
    Weight weight(SIE_COMPUTE_F32, n, k, w);
    AtEnd<float> bias(n, 3.0f);
    for (int32_t rows : {1, 6, 13, 160, 300}) {
      AtEnd<float> x(rows * k), addend(rows * n, 2.0f), y(rows * n);
      AtEnd<uint16_t> halves(rows * n, 0x3f80);  // 1
      for (int64_t i = 0; i < rows * k; i++) x.data()[i] = static_cast<float>((i / k * 13 + i % k * 5) % 7);
      for (const sie_ops *ops : tables()) {
        for (int32_t with = 0; with < 16; with++) {  // a bias, an addend, a residual, one of bf16
          for (int64_t i = 0; i < rows * n; i++) y.data()[i] = 1;
          sie_linear_args a = {};
          a.rows = {rows, &rows};
          a.n = n, a.k = k;
          a.x = of(x.data(), k, SIE_F32);
          a.w = weight.packed(ops);
          a.bias = (with & 1) != 0 ? bias.data() : nullptr;
          if ((with & 2) != 0) a.addend = of(addend.data(), n, SIE_F32);
          a.y = of(y.data(), n, SIE_F32);
          if ((with & 4) != 0) a.residual = (with & 8) != 0 ? of(halves.data(), n, SIE_BF16) : a.y;
          Scratch scratch(ops, linear_bounds(SIE_COMPUTE_F32, rows, n, k));
          const sie_share share = scratch.share(0, 1);
          CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: N %lld", ops->name,
                static_cast<long long>(n));
          for (int64_t i = 0; i < rows * n; i++) {
            const double want = exact(w, k, i % n, i / n) + ((with & 1) != 0 ? 3 : 0) +
                                ((with & 2) != 0 ? 2 : 0) + ((with & 4) != 0 ? 1 : 0);
            const double got = static_cast<double>(y.data()[i]);
            if (got == want) continue;
            CHECK(false, "%s: N %lld, with %d: y[%lld] = %g, %g expected", ops->name,
                  static_cast<long long>(n), with, static_cast<long long>(i), got, want);
            break;
          }
        }
      }
    }
  }
}

// In bf16: blocks of rows, steps and panels that are not full, each operand alone. Sums are integers that
// bf16's products have exactly.
TEST(host_halves_end_with_their_rows) {
  for (int64_t k : {1, 31, 32, 33, 96}) {
    for (int64_t n : {3, 32, 70}) {
      std::vector<float> w(static_cast<size_t>(n * k));
      for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = small(i);
      Weight weight(SIE_COMPUTE_BF16, n, k, w);
      AtEnd<float> bias(n);
      for (int64_t i = 0; i < n; i++) bias.data()[i] = small(i + 5);
      for (int32_t rows : {1, 12, 13, 16, 17, 33, 48}) {
        AtEnd<uint16_t> x(rows * k);
        AtEnd<float> addend(rows * n), y(rows * n);
        for (int64_t i = 0; i < rows * k; i++)
          x.data()[i] = sie_bf16_from_f32(static_cast<float>((i / k * 13 + i % k * 5) % 7));
        for (int64_t i = 0; i < rows * n; i++) addend.data()[i] = small(i + 2);
        for (const sie_ops *ops : tables()) {
          if ((ops->compute_mask >> SIE_COMPUTE_BF16 & 1) == 0) continue;
          for (int32_t with = 0; with < 8; with++) {  // a bias, an addend, a residual
            for (int64_t i = 0; i < rows * n; i++) y.data()[i] = small(i + 3);
            sie_linear_args a = {};
            a.rows = {rows, &rows};
            a.n = n, a.k = k;
            a.x = of(x.data(), k, SIE_BF16);
            a.w = weight.packed(ops);
            a.bias = (with & 1) != 0 ? bias.data() : nullptr;
            if ((with & 2) != 0) a.addend = of(addend.data(), n, SIE_F32);
            a.y = of(y.data(), n, SIE_F32);
            if ((with & 4) != 0) a.residual = a.y;
            Scratch scratch(ops, linear_bounds(SIE_COMPUTE_BF16, rows, n, k));
            const sie_share share = scratch.share(0, 1);
            CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: N %lld", ops->name,
                  static_cast<long long>(n));
            for (int64_t i = 0; i < rows * n; i++) {
              const double want = exact(w, k, i % n, i / n) +
                                  static_cast<double>(((with & 1) != 0 ? bias.data()[i % n] : 0.0f) +
                                                      ((with & 2) != 0 ? addend.data()[i] : 0.0f) +
                                                      ((with & 4) != 0 ? small(i + 3) : 0.0f));
              const double got = static_cast<double>(y.data()[i]);
              if (got == want) continue;
              CHECK(false, "%s: K %lld, N %lld, with %d: y[%lld] = %g, %g expected", ops->name,
                    static_cast<long long>(k), static_cast<long long>(n), with, static_cast<long long>(i),
                    got, want);
              break;
            }
          }
        }
      }
    }
  }
}

// Rows so long that some of them are a slab of their own: of 96 or 120 on tiles and on vectors.
TEST(host_linears_of_more_rows_than_a_slab) {
  const int64_t n = 35;
  for (uint32_t compute : {SIE_COMPUTE_INT8, SIE_COMPUTE_BF16}) {
    const bool bytes = compute == SIE_COMPUTE_INT8;
    const int64_t k = bytes ? 8226 : 4100;
    std::vector<float> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; i++)
      w[static_cast<size_t>(i)] = bytes && i % k == 0 ? 127 : (i + i / k) % 97 == 0 ? small(i) : 0;
    Weight weight(compute, n, k, w);
    for (const int32_t rows : {125}) {
      AtEnd<uint8_t> x(rows * k * (bytes ? 1 : 2));
      std::vector<float> scale(static_cast<size_t>(rows), 1.0f);
      std::vector<int32_t> zero(static_cast<size_t>(rows), 0);
      for (int64_t i = 0; i < rows * k; i++) {
        const int64_t value = (i / k * 13 + i % k * 5) % 7;
        const uint16_t half = sie_bf16_from_f32(static_cast<float>(value));
        if (bytes) x.data()[i] = static_cast<uint8_t>(value);
        if (!bytes) memcpy(x.data() + 2 * i, &half, 2);
      }
      for (const sie_ops *ops : tables()) {
        if ((ops->compute_mask >> compute & 1) == 0) continue;
        std::vector<float> y(static_cast<size_t>(rows * n), -1.0f);
        sie_linear_args a = {};
        a.rows = {rows, &rows};
        a.n = n, a.k = k;
        a.x = of(x.data(), k, bytes ? SIE_U8 : SIE_BF16);
        if (bytes) a.x.scale = scale.data(), a.x.zero = zero.data(), a.x.scale_group = -1;
        a.w = weight.packed(ops);
        a.y = of(y.data(), n, SIE_F32);
        Scratch scratch(ops, linear_bounds(compute, rows, n, k));
        const sie_share share = scratch.share(0, 1);
        CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: class %u", ops->name, compute);
        for (int64_t r = 0; r < rows; r++) {
          for (int64_t c = 0; c < n; c++) {
            const double got = static_cast<double>(y[static_cast<size_t>(r * n + c)]);
            const double want = r < 7 || r + 7 >= rows || r % 16 < 2 ? exact(w, k, c, r) : got;
            CHECK(got == want && got != -1, "%s: class %u: y[%lld, %lld] = %g, %g expected", ops->name,
                  compute, static_cast<long long>(r), static_cast<long long>(c), got, want);
          }
        }
      }
    }
  }
}

// Rows of large, tiny and mixed numbers, and of a NaN beside zeros.
TEST(host_rows_are_quantised_as_the_reference_does) {
  constexpr int64_t c = 21;
  for (int32_t kind = 0; kind < 6; kind++) {
    for (bool outliers : {false, true}) {
      AtEnd<float> x(c);
      for (int64_t i = 0; i < c; i++) {
        const float v = small(i) + small(i * i) / 16;
        x.data()[i] = kind == 0   ? v * 1e9f
                      : kind == 1 ? v * 1e-40f
                      : kind == 2 ? v * 3e36f
                      : kind == 3 ? v * 1e-27f
                      : kind == 4 ? (i == 0 ? NAN : 0.0f)
                                  : v;
      }
      struct Row {
        uint8_t q[24];
        float scale;
        int32_t zero;
        sie_outlier outlier;
      };
      std::vector<uint8_t> want;
      for (const sie_ops *ops : tables()) {
        const int32_t one = 1;
        Row row = {};
        sie_quantise_rows_args a = {};
        a.rows = {1, &one};
        a.c = c;
        a.x = of(x.data(), c, SIE_F32);
        a.y = of(row.q, 24, SIE_U8);
        a.y.scale = &row.scale, a.y.zero = &row.zero, a.y.scale_group = -1;
        a.y.outlier = outliers ? &row.outlier : nullptr;
        sie_op_bounds bounds = {};
        bounds.kind = SIE_OP_QUANTISE_ROWS;
        bounds.rows = 1, bounds.c = c;
        Scratch scratch(ops, bounds);
        const sie_share share = scratch.share(0, 1);
        CHECK(ops->quantise_rows(&a, &share) == SIE_OK && scratch.intact(), "%s: a row is refused",
              ops->name);
        if (isnan(row.scale)) row.scale = 0;
        const uint8_t *p = reinterpret_cast<const uint8_t *>(&row);
        const std::vector<uint8_t> bytes(p, p + sizeof row);
        if (want.empty()) want = bytes;
        CHECK(bytes == want, "%s: kind %d%s: other bytes than the reference", ops->name, kind,
              outliers ? " with outliers" : "");
      }
    }
  }
}

// Rows of bytes wait in groups for their quantisation: all at once, shared out, and each alone give the
// same.
TEST(host_bytes_are_quantised_in_groups) {
  for (int64_t n : {35, 12320}) {
    const int64_t k = 65;
    const int32_t rows = 40;
    std::vector<float> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = i % k == 0 ? 127 : small(i);
    Weight weight(SIE_COMPUTE_INT8, n, k, w);
    AtEnd<uint8_t> x(rows * k);
    for (int64_t i = 0; i < rows * k; i++) x.data()[i] = static_cast<uint8_t>((i / k * 13 + i % k * 5) % 7);
    AtEnd<float> scale(rows, 1.0f);
    AtEnd<int32_t> zero(rows, 0);
    for (const sie_ops *ops : tables()) {
      if (ops == sie_ref_ops()) continue;
      auto run = [&](int32_t first, int32_t count, int32_t parts, std::vector<uint8_t> *y) {
        std::vector<float> y_scale(static_cast<size_t>(count));
        std::vector<int32_t> y_zero(static_cast<size_t>(count));
        y->assign(static_cast<size_t>(count * n), 0xee);
        sie_linear_args a = {};
        a.rows = {count, &count};
        a.n = n, a.k = k;
        a.x = of(x.data() + first * k, k, SIE_U8);
        a.x.scale = scale.data() + first, a.x.zero = zero.data() + first, a.x.scale_group = -1;
        a.w = weight.packed(ops);
        a.y = of(y->data(), n, SIE_U8);
        a.y.scale = y_scale.data(), a.y.zero = y_zero.data(), a.y.scale_group = -1;
        Scratch scratch(ops, linear_bounds(SIE_COMPUTE_INT8, count, n, k));
        for (int32_t part = 0; part < parts; part++) {
          const sie_share share = scratch.share(part, parts);
          CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: N %lld", ops->name,
                static_cast<long long>(n));
        }
      };
      std::vector<uint8_t> all, shared, alone;
      run(0, rows, 1, &all);
      run(0, rows, 3, &shared);
      CHECK(all == shared, "%s: N %lld: other bytes in shares", ops->name, static_cast<long long>(n));
      for (int32_t r = 0; r < rows; r++) {
        run(r, 1, 1, &alone);
        CHECK(memcmp(alone.data(), all.data() + r * n, static_cast<size_t>(n)) == 0, "%s: N %lld: row %d",
              ops->name, static_cast<long long>(n), r);
      }
    }
  }
}

TEST(host_gates_end_with_their_columns) {
  const int64_t k = 5;
  const int32_t rows = 7;
  for (int64_t n : {2, 6, 8, 10, 16, 22, 24, 40, 58}) {
    std::vector<float> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = small(i);
    Weight weight(SIE_COMPUTE_F32, n, k, w);
    AtEnd<float> x(rows * k), bias(n, 0.5f);
    for (int64_t i = 0; i < rows * k; i++) x.data()[i] = small(i + 1) / 8;
    for (int32_t gate : {SIE_GATE_SWIGLU, SIE_GATE_GEGLU, SIE_GATE_GEGLU_TANH}) {
      std::vector<float> want;
      for (const sie_ops *ops : tables()) {
        std::vector<float> y(static_cast<size_t>(rows * n / 2), -9.0f);
        sie_linear_args a = {};
        a.rows = {rows, &rows};
        a.n = n, a.k = k;
        a.gate = gate;
        a.x = of(x.data(), k, SIE_F32);
        a.w = weight.packed(ops);
        a.bias = bias.data();
        a.y = of(y.data(), n / 2, SIE_F32);
        Scratch scratch(ops, linear_bounds(SIE_COMPUTE_F32, rows, n, k));
        const sie_share share = scratch.share(0, 1);
        CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: N %lld", ops->name,
              static_cast<long long>(n));
        if (want.empty()) want = y;
        close_to(ops->name, y, want, 1e-5);
      }
    }
  }
}

TEST(host_gates_of_bytes_fill_their_panels) {
  const int64_t k = 5, n = 128;
  const int32_t rows = 7;
  std::vector<float> w(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n * k; i++) w[static_cast<size_t>(i)] = i % k == 0 ? 127 : small(i);
  Weight weight(SIE_COMPUTE_INT8, n, k, w);
  AtEnd<uint8_t> x(rows * k);
  for (int64_t i = 0; i < rows * k; i++) x.data()[i] = static_cast<uint8_t>(i % 5);
  std::vector<float> scale(rows, 0.0078125f), want;
  std::vector<int32_t> zero(rows, 2);
  for (const sie_ops *ops : tables()) {
    std::vector<float> y(static_cast<size_t>(rows * n / 2), -9.0f);
    sie_linear_args a = {};
    a.rows = {rows, &rows};
    a.n = n, a.k = k;
    a.gate = SIE_GATE_SWIGLU;
    a.x = of(x.data(), k, SIE_U8);
    a.x.scale = scale.data(), a.x.zero = zero.data(), a.x.scale_group = -1;
    a.w = weight.packed(ops);
    a.y = of(y.data(), n / 2, SIE_F32);
    Scratch scratch(ops, linear_bounds(SIE_COMPUTE_INT8, rows, n, k));
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "%s: a gate of bytes", ops->name);
    if (want.empty()) want = y;
    close_to(ops->name, y, want, 1e-5);
  }
}
