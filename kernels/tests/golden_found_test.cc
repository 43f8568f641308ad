// golden_found_test.cc — spans, and pairs of word and label, as the gliner package scores them:
// testdata/make_found.py. The folds of ops.h are made here, in double.
#include <math.h>

#include <algorithm>

#include "tests/golden_file.h"

using namespace harness;

namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix matrix(const GoldenCase &c, const char *key) {
  const GoldenArray &array = c.array(key);
  const std::unique_ptr<Rows> rows = c.rows(key, SIE_F32);
  Matrix m(static_cast<size_t>(array.rows), std::vector<double>(static_cast<size_t>(array.columns)));
  for (size_t r = 0; r < m.size(); r++) {
    for (size_t i = 0; i < m[r].size(); i++)
      m[r][i] = rows->get(static_cast<int64_t>(r), static_cast<int64_t>(i));
  }
  return m;
}

// x·wᵀ + bias over the columns of w from `first` on; relu: of relu(x); from: x's first column.
Matrix product(const Matrix &x, size_t from, size_t count, const Matrix &w, size_t first,
               const std::vector<double> *bias, bool relu) {
  Matrix y(x.size(), std::vector<double>(w.size()));
  for (size_t r = 0; r < x.size(); r++) {
    for (size_t n = 0; n < w.size(); n++) {
      double sum = bias != nullptr ? (*bias)[n] : 0;
      for (size_t k = 0; k < count; k++) {
        const double v = x[r][from + k];
        sum += (relu ? fmax(v, 0) : v) * w[n][first + k];
      }
      y[r][n] = sum;
    }
  }
  return y;
}

std::unique_ptr<Rows> rows_of(const Matrix &m, size_t from, size_t count) {
  std::unique_ptr<Rows> rows(new Rows(static_cast<int64_t>(m.size()), static_cast<int64_t>(count), SIE_F32));
  for (size_t r = 0; r < m.size(); r++) {
    for (size_t i = 0; i < count; i++)
      rows->set(static_cast<int64_t>(r), static_cast<int64_t>(i), static_cast<float>(m[r][from + i]));
  }
  return rows;
}

// One sequence, with everything found: what both operations are given.
template <typename Args>
struct Whole {
  Array<int32_t> counts, found, out;
  Array<sie_out_item> items;
  Args a = {};

  Whole(int32_t words, int32_t labels, int32_t records, int32_t record_words)
      : counts({words, 1, 0, words, 0, labels}),
        found(static_cast<size_t>(words * SIE_FOUND_WORDS)),
        out(static_cast<size_t>(4 + records * record_words)),
        items({{SIE_F32, records, 0, -INFINITY, 0}}) {
    a.words = {words, counts.data()};
    a.seqs = {1, counts.data() + 1};
    a.cu_words = counts.data() + 2;
    a.cu_labels = counts.data() + 4;
    a.found = found.data();
    a.found_ld = SIE_FOUND_WORDS;
    a.items = items.data();
    a.out = out.data();
  }
};

void check_logits(const std::string &what, const int32_t *y, const float *want, int32_t count,
                  double largest) {
  for (int32_t i = 0; i < count; i++) {
    float got;
    memcpy(&got, y + i, sizeof got);
    const double off = fabs(static_cast<double>(got) - static_cast<double>(want[i]));
    CHECK(off <= 2e-6 * largest, "%s: %g, %g expected", what.c_str(), static_cast<double>(got),
          static_cast<double>(want[i]));
  }
}

double largest_of(const GoldenCase &c) {
  const GoldenArray &y = c.array("y");
  double largest = 0;
  for (float value : c.values("y")) largest = fmax(largest, static_cast<double>(fabsf(value)));
  CHECK(largest > 1 && y.rows > 0, "%s: the largest logit is %g", c.name.c_str(), largest);
  return largest;
}

void spans(const GoldenCase &c, const sie_ops *ops, GoldenRuns *runs) {
  const Matrix s = matrix(c, "s"), e = matrix(c, "e"), p = matrix(c, "p"), w1 = matrix(c, "w1"),
               b1 = matrix(c, "b1"), w3 = matrix(c, "w3"), b3 = matrix(c, "b3");
  const size_t d = p[0].size(), k = w1.size();
  Matrix transposed(k, std::vector<double>(d));
  for (size_t i = 0; i < d; i++) {
    for (size_t j = 0; j < k; j++) transposed[j][i] = w3[i][j];
  }
  const std::unique_ptr<Rows> starts = rows_of(product(s, 0, d, w1, 0, &b1[0], true), 0, k),
                              ends = rows_of(product(e, 0, d, w1, d, nullptr, true), 0, k),
                              labels = rows_of(product(p, 0, d, transposed, 0, nullptr, false), 0, k),
                              bias = rows_of(product(p, 0, d, b3, 0, nullptr, false), 0, 1);
  const int32_t words = static_cast<int32_t>(s.size()), n = static_cast<int32_t>(p.size()),
                widest = c.integer("widest");
  Whole<sie_spans_args> of(words, n, words * widest * n, 4);
  of.a.k = static_cast<int64_t>(k);
  of.a.starts = starts->tensor();
  of.a.ends = ends->tensor();
  of.a.labels = labels->tensor();
  of.a.bias = bias->tensor();
  of.a.widest = widest;
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_SPANS;
  bounds.rows = words;
  bounds.seqs = 1;
  bounds.k = of.a.k;
  bounds.labels = n;
  for (of.a.write = 0; of.a.write < 2; of.a.write++) {
    if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->spans(&of.a, share); })) return;
  }
  const std::vector<float> y = c.values("y");
  const double largest = largest_of(c);
  int32_t at = 0;
  for (int32_t i = 0; i < words; i++) {
    for (int32_t w = 0; w < widest && i + w < words; w++) {
      for (int32_t l = 0; l < n; l++, at++) {
        const int32_t *record = of.out.data() + 4 + 4 * at;
        const std::string what = text("%s: spans %s, %d, %d, %d", ops->name, c.name.c_str(), i, w, l);
        CHECK(record[0] == i && record[1] == w && record[2] == l, "%s: %d, %d, %d is here", what.c_str(),
              record[0], record[1], record[2]);
        check_logits(what, record + 3, &y[static_cast<size_t>((i * widest + w) * n + l)], 1, largest);
      }
    }
  }
  CHECK(of.out[0] == at, "%s: %d spans of %d", ops->name, of.out[0], at);
}

void pairs(const GoldenCase &c, const sie_ops *ops, GoldenRuns *runs) {
  const Matrix t = matrix(c, "t"), l = matrix(c, "l"), w1 = matrix(c, "w1"), b1 = matrix(c, "b1");
  const size_t d = t[0].size() / 2, n = w1.size();
  const std::unique_ptr<Rows> words_x = rows_of(t, d, d), labels_x = rows_of(l, d, d),
                              words_u = rows_of(product(t, 0, d, w1, 0, &b1[0], false), 0, n),
                              labels_u = rows_of(product(l, 0, d, w1, d, nullptr, false), 0, n);
  std::vector<float> last;
  for (const std::vector<double> &row : w1) {
    for (size_t k = 0; k < d; k++) last.push_back(static_cast<float>(row[2 * d + k]));
  }
  Weight weight(SIE_COMPUTE_F32, static_cast<int64_t>(n), static_cast<int64_t>(d), last);
  const int32_t words = static_cast<int32_t>(t.size()), labels = static_cast<int32_t>(l.size());
  Whole<sie_pairs_args> of(words, labels, words * labels, 5);
  of.a.n = static_cast<int64_t>(n);
  of.a.k = static_cast<int64_t>(d);
  of.a.words_x = words_x->tensor();
  of.a.words_u = words_u->tensor();
  of.a.labels_x = labels_x->tensor();
  of.a.labels_u = labels_u->tensor();
  of.a.w = weight.packed(ops);
  of.a.head = c.floats("w2");
  of.a.head_bias = c.floats("b2");
  of.a.n_logits = 3;
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_PAIRS;
  bounds.compute = SIE_COMPUTE_F32;
  bounds.rows = words;
  bounds.seqs = 1;
  bounds.n = of.a.n;
  bounds.k = of.a.k;
  bounds.labels = labels;
  for (of.a.write = 0; of.a.write < 2; of.a.write++) {
    if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->pairs(&of.a, share); })) return;
  }
  const std::vector<float> y = c.values("y");
  const double largest = largest_of(c);
  for (int32_t at = 0; at < words * labels; at++) {
    const int32_t *record = of.out.data() + 4 + 5 * at;
    const std::string what = text("%s: pairs %s, %d", ops->name, c.name.c_str(), at);
    CHECK(record[0] == at / labels && record[1] == at % labels, "%s: %d, %d is here", what.c_str(), record[0],
          record[1]);
    check_logits(what, record + 2, &y[static_cast<size_t>(3 * at)], 3, largest);
  }
  CHECK(of.out[0] == words * labels, "%s: %d pairs of %d", ops->name, of.out[0], words * labels);
}

}  // namespace

TEST(golden_found) {
  const std::vector<GoldenCase> cases = read_golden("found.bin", 6);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->spans == nullptr || ops->pairs == nullptr) continue;
    for (const GoldenCase &c : cases) {
      if (c.operation == "spans") spans(c, ops, &runs);
      if (c.operation == "pairs") pairs(c, ops, &runs);
    }
    runs.check(ops, {{"spans", true}, {"pairs", true}});
  }
}
