// self_test_parts_test.cc — what the start-up test asks of a table, call by call; how wrong a kernel may be; and
// what it says when there is no memory.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "common/dtype.h"
#include "self_test.h"
#include "tests/check.h"
#include "wrapped.h"

namespace {

constexpr int64_t rows = 69, n = 83, k = 135, width = 64, slack = 5;
constexpr int32_t offsets[] = {0, 1, 18, 18, 51, 69};

// A table that notes how it is called, computes as the reference does, and errs where it is told to.
struct Table {
  sie_ops ops = *sie_ref_ops();
  uint32_t compute = SIE_COMPUTE_F32;
  int linears = 0, norms = 0, attentions = 0, quantisations = 0;
  // A result that is wrong by a part of the largest of all, and one more by a number.
  int in = 0;  // 1: linear, 2: norm, 3: attention
  int64_t row = 0, column = 0;
  double relative = 0, more = 0;
  sie_tensor first_x = {}, first_residual = {}, first_norm = {}, quantised = {};
};
Table *t = nullptr;

// Whether the operand's slack holds zeros, and its columns numbers of about −1 to 1, some of them larger.
void check_numbers(const sie_tensor &x, int64_t columns, const char *what) {
  CHECK(x.ld == columns + slack, "%s: rows are %lld apart", what, static_cast<long long>(x.ld));
  int64_t large = 0, positive = 0, small = 0;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < x.ld; c++) {
      const float value = x.dtype == SIE_BF16
                              ? sie_f32_from_bf16(static_cast<const uint16_t *>(x.p)[r * x.ld + c])
                              : static_cast<const float *>(x.p)[r * x.ld + c];
      if (c >= columns) {
        if (value != 0)
          CHECK(false, "%s: row %lld has %g in its slack", what, static_cast<long long>(r),
                static_cast<double>(value));
        continue;
      }
      large += fabsf(value) > 1.01f;
      positive += value > 0;
      small += fabsf(value) < 1e-6f;
      if (!(fabsf(value) <= 8.01f)) CHECK(false, "%s: %g", what, static_cast<double>(value));
    }
  }
  const int64_t all = rows * columns;
  CHECK(large > all / 100 && large < all / 50, "%s: %lld of %lld are large", what,
        static_cast<long long>(large), static_cast<long long>(all));
  CHECK(positive > all * 2 / 5 && positive < all * 3 / 5 && small < all / 100,
        "%s: %lld of %lld are positive, %lld are none", what, static_cast<long long>(positive),
        static_cast<long long>(all), static_cast<long long>(small));
}

void err_in(int which, int64_t first, int64_t count, int64_t columns, int32_t dtype, const sie_tensor &y) {
  auto at = [&](int64_t r, int64_t c) -> double {
    const int64_t i = r * y.ld + c;
    return dtype == SIE_BF16 ? static_cast<double>(sie_f32_from_bf16(static_cast<uint16_t *>(y.p)[i]))
                             : static_cast<double>(static_cast<float *>(y.p)[i]);
  };
  // What lies behind a row's columns is the table's.
  if (dtype == SIE_F32) {
    for (int64_t r = 0; r < count; r++) static_cast<float *>(y.p)[r * y.ld + columns] = 77;
  }
  if (t->in != which || t->row < first || t->row >= first + count) return;
  double largest = 0;
  for (int64_t r = 0; r < count; r++) {
    for (int64_t c = 0; c < columns; c++) largest = std::max(largest, fabs(at(r, c)));
  }
  const int64_t i = (t->row - first) * y.ld + t->column;
  const float wrong = static_cast<float>(at(t->row - first, t->column) + t->relative * (largest + t->more));
  if (dtype == SIE_BF16) static_cast<uint16_t *>(y.p)[i] = sie_bf16_from_f32(wrong);
  if (dtype == SIE_F32) static_cast<float *>(y.p)[i] = wrong;
}

sie_status linear(const sie_linear_args *a, const sie_share *share) {
  static const int32_t counts[] = {rows, 1, 7, 31, 64, 65};
  const int32_t count = counts[t->linears % 6];
  const int64_t first = rows - count;
  t->linears++;
  CHECK(*a->rows.n == count && a->rows.cap == rows && a->n == n && a->k == k, "a linear of %d rows",
        *a->rows.n);
  CHECK(a->y.ld == k + slack && a->y.dtype == SIE_F32, "rows are %lld apart",
        static_cast<long long>(a->y.ld));
  const int32_t dtype = t->compute == SIE_COMPUTE_INT8   ? SIE_U8
                        : t->compute == SIE_COMPUTE_BF16 ? SIE_BF16
                                                         : SIE_F32;
  CHECK(a->x.dtype == dtype, "x is of type %d", a->x.dtype);
  if (first == 0) {
    t->first_x = a->x, t->first_residual = a->residual;
    if (dtype != SIE_U8) check_numbers(a->x, k, "x");
    check_numbers(a->residual, n, "the residual");
    int64_t none = 0;
    for (int64_t i = 0; i < n; i++) none += a->bias[i] == 0;
    CHECK(none == 0, "%lld of the bias are none", static_cast<long long>(none));
  }
  const int64_t element = dtype == SIE_U8 ? 1 : dtype == SIE_BF16 ? 2 : 4;
  CHECK(a->x.p == static_cast<char *>(t->first_x.p) + first * a->x.ld * element &&
            a->residual.p == static_cast<float *>(t->first_residual.p) + first * a->residual.ld,
        "the last %d rows begin elsewhere", count);
  if (dtype == SIE_U8) {
    CHECK(a->x.scale == t->quantised.scale + first && a->x.zero == t->quantised.zero + first &&
              a->x.outlier == t->quantised.outlier + first && a->x.scale_group == -1,
          "the last %d rows' scales begin elsewhere", count);
  }
  const sie_status status = sie_ref_ops()->linear(a, share);
  err_in(1, first, count, n, SIE_F32, a->y);
  return status;
}

sie_status layernorm(const sie_layernorm_args *a, const sie_share *share) {
  const bool all = t->norms++ % 2 == 0;
  const int64_t first = all ? 0 : 40;
  CHECK(*a->rows.n == (all ? rows : 3) && a->c == k && a->y.ld == k + slack, "a norm of %d rows", *a->rows.n);
  if (all) {
    t->first_norm = a->x;
    check_numbers(a->x, k, "the norm's rows");
    int64_t none = 0;
    for (int64_t i = 0; i < k; i++) none += a->gamma[i] == 0;
    CHECK(none == 0, "%lld of gamma are none", static_cast<long long>(none));
  }
  CHECK(a->x.p == static_cast<char *>(t->first_norm.p) + first * a->x.ld * (a->x.dtype == SIE_BF16 ? 2 : 4),
        "the rows begin elsewhere");
  const sie_status status = sie_ref_ops()->layernorm(a, share);
  err_in(2, first, *a->rows.n, k, SIE_F32, a->y);
  return status;
}

sie_status attention(const sie_attention_args *a, const sie_share *share) {
  const bool all = t->attentions++ % 2 == 0;
  const int32_t dtype = t->compute == SIE_COMPUTE_BF16   ? SIE_BF16
                        : t->compute == SIE_COMPUTE_INT8 ? t->ops.act_dtype_int8
                                                         : SIE_F32;
  CHECK(a->q.dtype == dtype && a->k.dtype == dtype && a->v.dtype == dtype && a->y.dtype == dtype, "type %d",
        a->q.dtype);
  const int32_t seqs = all ? 5 : 1;
  CHECK(*a->seqs.n == seqs && *a->q_rows.n == (all ? rows : 33) && a->cu_q == a->cu_kv,
        "%d sequences of %d rows", *a->seqs.n, *a->q_rows.n);
  for (int32_t b = 0; b <= seqs; b++) {
    const int32_t want = all ? offsets[b] : b == 0 ? 0 : 33;
    CHECK(a->cu_q[b] == want, "sequence %d begins at %d", b, a->cu_q[b]);
  }
  if (all) {
    check_numbers(a->q, width, "q"), check_numbers(a->k, width, "k"), check_numbers(a->v, width, "v");
  }
  const sie_status status = sie_ref_ops()->attention(a, share);
  err_in(3, all ? 0 : 18, *a->q_rows.n, width, dtype, a->y);
  return status;
}

sie_status quantise_rows(const sie_quantise_rows_args *a, const sie_share *share) {
  t->quantisations++;
  t->quantised = a->y;
  CHECK(*a->rows.n == rows && a->c == k, "%d rows", *a->rows.n);
  check_numbers(a->x, k, "rows to quantise");
  return sie_ref_ops()->quantise_rows(a, share);
}

// More than the reference's kernels need, and in another kind each.
int64_t scratch_of = 0;
uint32_t scratch_kind = 0;
int64_t scratch_bytes(const sie_op_bounds *bounds) {
  CHECK(bounds->rows == rows && bounds->n == n && bounds->k == k && bounds->c == k &&
            bounds->max_len == rows && bounds->heads == 2 && bounds->head_dim == 32,
        "other bounds");
  return bounds->kind == scratch_kind ? scratch_of : 10;
}
sie_status linear_with_scratch(const sie_linear_args *a, const sie_share *share) {
  CHECK(share->scratch_bytes == scratch_of + 64 && share->part == 0 && share->parts == 1,
        "%lld bytes of scratch", static_cast<long long>(share->scratch_bytes));
  memset(share->scratch, 0x5a, static_cast<size_t>(share->scratch_bytes));
  return linear(a, share);
}

struct Verdict {
  sie_status status;
  const char *problem;
};
Verdict test(Table *of) {
  t = of;
  of->ops.linear = of->ops.linear == sie_ref_ops()->linear ? linear : of->ops.linear;
  of->ops.layernorm = of->ops.layernorm == sie_ref_ops()->layernorm ? layernorm : of->ops.layernorm;
  of->ops.attention = of->ops.attention == sie_ref_ops()->attention ? attention : of->ops.attention;
  of->ops.quantise_rows =
      of->ops.quantise_rows == sie_ref_ops()->quantise_rows ? quantise_rows : of->ops.quantise_rows;
  const char *problem = "?";
  const sie_status status = sie::self_test(&of->ops, of->compute, &problem);
  return {status, problem != nullptr ? problem : ""};
}

void says(const Verdict &got, const char *problem) {
  const sie_status want = problem[0] == '\0' ? SIE_OK : SIE_UNSUPPORTED;
  CHECK(got.status == want && strcmp(got.problem, problem) == 0, "status %d: \"%s\", \"%s\" expected",
        got.status, got.problem, problem);
}

const uint32_t classes[] = {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8};

}  // namespace

TEST(self_test_calls_every_kernel) {
  for (uint32_t compute : classes) {
    for (int32_t dtype : {SIE_F32, SIE_BF16}) {
      Table table;
      table.compute = compute;
      table.ops.act_dtype_int8 = dtype;
      says(test(&table), "");
      CHECK(table.linears == 6 && table.norms == 2 && table.attentions == 2 &&
                table.quantisations == (compute == SIE_COMPUTE_INT8 ? 1 : 0),
            "%d linears, %d norms, %d attentions, %d quantisations", table.linears, table.norms,
            table.attentions, table.quantisations);
    }
  }
}

// Scratch is the most that one of the kernels needs, in this table or in the reference.
TEST(self_test_has_scratch_for_all) {
  for (uint32_t kind : {SIE_OP_LAYERNORM, SIE_OP_LINEAR, SIE_OP_QUANTISE_ROWS, SIE_OP_ATTENTION}) {
    Table table;
    table.ops.scratch_bytes = scratch_bytes;
    table.ops.linear = linear_with_scratch;
    scratch_kind = kind, scratch_of = int64_t{1} << 20;
    says(test(&table), "");
  }
}

TEST(self_test_wants_a_whole_table) {
  auto without = [](uint32_t compute, void (*change)(sie_ops *), const char *problem) {
    Table table;
    table.compute = compute;
    change(&table.ops);
    says(test(&table), problem);
  };
  for (uint32_t compute : classes) {
    without(compute, [](sie_ops *ops) { ops->linear = nullptr; }, "is incomplete");
    without(compute, [](sie_ops *ops) { ops->layernorm = nullptr; }, "is incomplete");
    without(compute, [](sie_ops *ops) { ops->attention = nullptr; }, "is incomplete");
    without(
        compute, [](sie_ops *ops) { ops->quantise_rows = nullptr; },
        compute == SIE_COMPUTE_INT8 ? "is incomplete" : "");
    without(
        compute,
        [](sie_ops *ops) {
          ops->linear = [](const sie_linear_args *, const sie_share *) { return SIE_UNSUPPORTED; };
        },
        "has no linear");
    without(
        compute,
        [](sie_ops *ops) {
          ops->layernorm = [](const sie_layernorm_args *, const sie_share *) { return SIE_UNSUPPORTED; };
        },
        "has no layernorm");
    without(
        compute,
        [](sie_ops *ops) {
          ops->attention = [](const sie_attention_args *, const sie_share *) { return SIE_UNSUPPORTED; };
        },
        "has no attention");
    // Of fewer rows alone.
    without(
        compute,
        [](sie_ops *ops) {
          ops->linear = [](const sie_linear_args *a, const sie_share *share) {
            return *a->rows.n < rows ? SIE_UNSUPPORTED : linear(a, share);
          };
        },
        "has no linear");
    without(
        compute,
        [](sie_ops *ops) {
          ops->layernorm = [](const sie_layernorm_args *a, const sie_share *share) {
            return *a->rows.n < rows ? SIE_UNSUPPORTED : layernorm(a, share);
          };
        },
        "has no layernorm");
    without(
        compute,
        [](sie_ops *ops) {
          ops->attention = [](const sie_attention_args *a, const sie_share *share) {
            return *a->seqs.n < 5 ? SIE_UNSUPPORTED : attention(a, share);
          };
        },
        "has no attention");
  }
  without(
      SIE_COMPUTE_INT8,
      [](sie_ops *ops) {
        ops->quantise_rows = [](const sie_quantise_rows_args *, const sie_share *) {
          return SIE_UNSUPPORTED;
        };
      },
      "cannot quantise rows");
}

// One element may be wrong by a part of the largest, wherever it is; a row alone by nothing.
TEST(self_test_allows_small_errors_alone) {
  const char *const names[] = {"", "linear", "layernorm", "attention"};
  const int64_t columns[] = {0, n, k, width};
  for (uint32_t compute : classes) {
    for (int32_t int8_dtype : {SIE_F32, SIE_BF16}) {
      for (int which : {1, 2, 3}) {
        if (int8_dtype == SIE_BF16 && compute != SIE_COMPUTE_INT8) continue;
        const bool halves =
            compute == SIE_COMPUTE_BF16 || (compute == SIE_COMPUTE_INT8 && int8_dtype == SIE_BF16);
        double tolerance = 2e-5;
        if (which == 1 && compute == SIE_COMPUTE_INT8) tolerance = 1e-2;
        if (which == 3 && halves) tolerance = 2e-2;
        const struct {
          int64_t row, column;
        } places[] = {{0, 0}, {17, columns[which] - 1}, {68, 0}};
        for (const auto &place : places) {
          for (bool wrong : {false, true}) {
            Table table;
            table.compute = compute;
            table.ops.act_dtype_int8 = int8_dtype;
            table.in = which;
            table.row = place.row, table.column = place.column;
            // In halves a result is rounded, so that the error is less exact.
            table.relative = tolerance * (wrong ? 1.0 : 0.9);
            table.more = wrong ? 0.5 : 0;
            if (halves && which == 3) table.relative = tolerance * (wrong ? 2.0 : 0.4);
            const Verdict got = test(&table);
            const std::string differs = std::string("differs from the reference in ") + names[which];
            const std::string depends = std::string("depends on the batch in ") + names[which];
            // What is wrong within the tolerance is so in a call of all rows and in one of some: the same bits
            // only where both err alike.
            const bool refused = wrong && differs == got.problem;
            const bool allowed = !wrong && (got.status == SIE_OK || depends == got.problem);
            CHECK(refused || allowed, "class %u, row %lld, column %lld of %s, %s: \"%s\"", compute,
                  static_cast<long long>(place.row), static_cast<long long>(place.column), names[which],
                  wrong ? "wrong" : "right", got.problem);
          }
        }
        Table nan;
        nan.compute = compute;
        nan.ops.act_dtype_int8 = int8_dtype;
        nan.in = which;
        nan.row = 68, nan.column = 3;
        nan.relative = NAN;
        CHECK(std::string("differs from the reference in ") + names[which] == test(&nan).problem,
              "a NaN is no difference");
      }
    }
  }
}

TEST(self_test_says_when_there_is_no_memory) {
  for (uint32_t compute : classes) {
    int refused = 0;
    for (int call = 0; call < 20; call++) {
      Table table;
      table.compute = compute;
      wrapped::calls_left.store(call);
      const Verdict got = test(&table);
      const bool failed = wrapped::calls_left.exchange(-1) < 0;
      CHECK(got.status == (failed ? SIE_OUT_OF_MEMORY : SIE_OK), "allocation %d: status %d", call,
            got.status);
      refused += failed ? 1 : 0;
    }
    // x, q, k, v, the norm's rows, the residual, four for quantised rows, three results, two weights, two packed
    // ones and scratch.
    CHECK(refused == 18, "%d allocations", refused);
  }
}
