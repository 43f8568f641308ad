// maxsim_cases.cc — late interaction: the rows of each sequence against those of its query.
#include <math.h>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

// How sequences find their queries.
enum Partners { in_turn, one_for_all, some_without, none_at_all };
const char *const partner_names[] = {"in turn", "one", "some", "none"};

struct Config {
  std::vector<int32_t> lengths, queries;  // rows of each
  int64_t c;
  int32_t x;
  bool normalize;
  Partners partners;
  Input input;
  bool bench;
};

class MaxsimCase : public Case {
 public:
  MaxsimCase(const Config &config, Layout layout, int seed)
      : c_(config), sequences_(config.lengths), queries_(config.queries) {
    form = text("maxsim x=%s%s", dtype_text(c_.x), c_.normalize ? " normalize" : "");
    units = sequences_.count();
    shape =
        text("R=%lld B=%lld Q=%lld C=%lld queries=%s input=%s", static_cast<long long>(sequences_.tokens()),
             static_cast<long long>(units), static_cast<long long>(queries_.tokens()),
             static_cast<long long>(c_.c), partner_names[c_.partners], input_names[c_.input]);
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), sequences_.tokens(), c_.c, c_.x));
    y_.reset(new Rows(&random, layout, units, 1, SIE_F32));
    fill(x_.get(), &random, c_.input);
    // Odd: 4 bytes off every boundary a load of more than one element needs.
    odd_ = layout == odd ? 1 : 0;
    for (int64_t i = 0; i < queries_.tokens() * c_.c + odd_; i++) q_.push_back(random.real());
    for (int64_t b = 0; b < units; b++) {
      const int32_t turn = static_cast<int32_t>(b % queries_.count());
      const bool without = c_.partners == none_at_all || (c_.partners == some_without && b % 3 == 1);
      partner_.push_back(without ? -1 : (c_.partners == one_for_all ? 0 : turn));
    }
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->maxsim != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_MAXSIM;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    b.query_rows = queries_.tokens();
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }
  void expect() override {
    expected_.reset(new Rows(units, 1, SIE_F32));
    Scratch scratch(sie_ref_ops(), bounds());
    const sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, *expected_);
  }
  void verify(const char *backend) override {
    const bool parts = strncmp(backend, "cuda", 4) == 0;
    for (int64_t b = 0; b < units; b++) {
      const double want = expected_->get(b, 0), got = y_->get(b, 0), tolerance = tolerance_of(b, parts);
      CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld] = %.9g, %.9g expected, ±%.2g", backend,
            form.c_str(), shape.c_str(), static_cast<long long>(b), got, want, tolerance);
    }
  }
  void poison(int64_t u) override {
    for (int64_t r = sequences_.first(u); r < sequences_.first(u + 1); r++) x_->poison(r);
  }
  double flops() const override {
    double sum = 0;
    for (int64_t b = 0; b < units; b++) {
      const int32_t query = partner_[static_cast<size_t>(b)];
      if (query >= 0) sum += 2.0 * static_cast<double>(sequences_.length(b) * queries_.length(query) * c_.c);
    }
    return sum;
  }
  double bytes() const override {
    return static_cast<double>((sequences_.tokens() * (c_.x == SIE_F32 ? 4 : 2) + queries_.tokens() * 4) *
                               c_.c);
  }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    sie_maxsim_args a = {};
    a.rows = row_count(0, sequences_.tokens() - sequences_.first(first),
                       sequences_.first(first + count) - sequences_.first(first));
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.c = c_.c;
    a.x = x_->tensor(sequences_.first(first));
    a.queries = q_.data() + odd_;
    a.cu_queries = queries_.cu(0, queries_.count());
    a.partner = partner_.data() + first;
    a.normalize = c_.normalize ? 1 : 0;
    a.y = y.tensor(first);
    return ops->maxsim(&a, share);
  }

  // Each query row's best is off by at most its product's error; then that many additions follow. parts:
  // f32 is the sum of parts in bf16 (maxsim.cuh), and x of more than one misses three products of 2⁻¹⁶.
  double tolerance_of(int64_t b, bool parts) const {
    const int32_t query = partner_[static_cast<size_t>(b)];
    if (query < 0) return 0;
    double longest = 0, sum = 0, size = 0;
    for (int64_t r = sequences_.first(b); r < sequences_.first(b + 1); r++) {
      double squares = 0;
      for (int64_t i = 0; i < c_.c; i++) squares += x_->get(r, i) * x_->get(r, i);
      longest = fmax(longest, sqrt(squares) / (c_.normalize ? fmax(sqrt(squares), 1e-12) : 1));
    }
    for (int64_t i = queries_.first(query); i < queries_.first(query + 1); i++) {
      double squares = 0;
      for (int64_t k = 0; k < c_.c; k++) {
        const double q = static_cast<double>(q_[static_cast<size_t>(odd_ + i * c_.c + k)]);
        squares += q * q;
      }
      sum += sie_tol_dot(c_.c, sqrt(squares), longest);
      if (parts && c_.x != SIE_BF16) sum += 3 * ldexp(sqrt(squares) * longest, -16);
      size += sqrt(squares) * longest;
    }
    // A denormal loses what lies below its own step, once a product; a part in bf16 what lies below half
    // its least, times an element of a query.
    const double rows = static_cast<double>(queries_.length(query)), least = parts ? 4.6e-41 * 4 : 2e-45;
    return sum + (2 + rows) * SIE_TOL_U * size +
           rows * static_cast<double>(c_.c) * least * (c_.normalize ? 1e12 : 1);
  }

  Config c_;
  Sequences sequences_, queries_;
  int64_t odd_ = 0;
  std::unique_ptr<Rows> x_, y_, expected_;
  Array<float> q_;
  Array<int32_t> partner_;
};

std::vector<Config> configs() {
  std::vector<Config> all;
  // Around tiles of 64 rows, 32 and 48 query rows and 32 columns.
  const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0},
                             ragged = {7, 1, 0, 33, 2, 130, 0, 64, 65, 63, 31, 32}, few = {5, 0, 9},
                             query = {32}, queries = {5, 0, 33, 1, 32, 16},
                             long_queries = {64, 97, 31, 48, 49};
  for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (bool normalize : {false, true}) {
      for (const std::vector<int32_t> &lengths : {none, one, empty, ragged})
        all.push_back({lengths, query, 65, x, normalize, one_for_all, plain, false});
      for (int64_t c : {1, 7, 8, 31, 32, 33, 64, 96, 128})
        all.push_back({ragged, queries, c, x, normalize, in_turn, plain, false});
      all.push_back({ragged, long_queries, 40, x, normalize, some_without, plain, false});
      all.push_back({ragged, query, 40, x, normalize, none_at_all, plain, false});
      all.push_back({few, queries, 1024, x, normalize, in_turn, plain, false});
      all.push_back({{513, 3}, {1, 32}, 64, x, normalize, in_turn, plain, false});
      for (Input input : {outliers, equal_rows, denormals})
        all.push_back({ragged, queries, 48, x, normalize, some_without, input, false});
    }
    if (x == SIE_F16) continue;
    all.push_back({std::vector<int32_t>(16, 128), query, 128, x, true, one_for_all, plain, true});
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_maxsim(int index) {
  static const std::vector<std::pair<Config, Layout>> list = in_layouts(configs());
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<MaxsimCase>(config, layout, 4000 + index);
}

std::unique_ptr<Case> model_maxsim(const ModelShape &m, const Lengths &lengths) {
  return in_layout<MaxsimCase>(Config{lengths, {32}, m.width, SIE_BF16, true, one_for_all, plain, true},
                               dense, 1);
}

}  // namespace harness
