// smve_cases.cc — smve: queries and documents, ties, rows of zeros, more columns than a range, and
// limits.
#include <math.h>

#include <algorithm>

#include "tests/model_cases.h"
#include "tests/sparse_rows.h"

namespace harness {

namespace {

struct Config {
  std::vector<int32_t> lengths;
  int32_t dtype, c, repetitions, width, top, max_nonzeros, room;
  bool query, normalize, bench;
  int32_t out = SIE_F32;
  bool pairs = false;  // anchors 2a and 2a + 1 are the same: ties, which the lower column wins
  // The last row of a sequence is the first one with every second column negated, and every second
  // anchor uses those columns alone: with every projection kept, some sums are 0 and are dropped.
  bool mirrored = false;
  bool holes = false;  // the third row has a NaN, and so nothing that is kept
};

class SmveCase : public Case {
 public:
  SmveCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form = text("smve x=%s %s%s%s %s", dtype_text(c_.dtype), c_.query ? "query" : "document",
                c_.normalize ? " normalised" : "", c_.max_nonzeros > 0 ? " limited" : "", dtype_text(c_.out));
    shape = text("T=%lld B=%lld C=%d R=%d width=%d top=%d most=%d room=%d",
                 static_cast<long long>(sequences_.tokens()), static_cast<long long>(sequences_.count()),
                 c_.c, c_.repetitions, c_.width, c_.top, c_.max_nonzeros, c_.room);
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    fill_anchors(&random);
    x_.reset(new Rows(&random, layout, sequences_.tokens(), c_.c, c_.dtype));
    out_.reset(new SparseRows(&random, units, c_.room, c_.out));
    for (int64_t b = 0; b < units; b++) fill_sequence(b, &random);
    outputs = {out_->rows()};
  }

  bool present(const sie_ops *ops) const override { return ops->smve != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_SMVE;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    b.repetitions = c_.repetitions;
    b.top = c_.top;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, c_.max_nonzeros, out_.get());
  }
  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    expected_.reset(new SparseRows(nullptr, units, columns(), SIE_F32));
    call_into(sie_ref_ops(), &share, 0, units, c_.max_nonzeros, expected_.get());
  }
  // No choice is near (fill_sequence), so columns agree and only sums may be off by rounding.
  void verify(const char *backend) override {
    const std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
    for (int64_t b = 0; b < units; b++) {
      const std::vector<SparseEntry> want = entries(*expected_, b);
      double largest = 0;
      for (const SparseEntry &entry : want) largest = fmax(largest, fabs(entry.value));
      out_->verify(what.c_str(), b, want, 4e-6, 4e-6 * largest);
    }
  }
  void poison(int64_t u) override {
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) x_->poison(t);
  }
  double flops() const override {
    return 2.0 * static_cast<double>(sequences_.tokens()) * c_.c * c_.repetitions * c_.width;
  }
  double bytes() const override {
    return static_cast<double>(sequences_.tokens()) * c_.c * (c_.dtype == SIE_F32 ? 4 : 2) +
           4.0 * static_cast<double>(columns()) * c_.c;
  }

 private:
  int32_t columns() const { return c_.repetitions * c_.width; }

  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count, int32_t most,
                       SparseRows *out) {
    const int64_t row = sequences_.first(first);
    sie_smve_args a = {};
    a.rows = row_count(0, sequences_.tokens() - row, sequences_.first(first + count) - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.c = c_.c;
    a.x = x_->tensor(row);
    a.repetitions = c_.repetitions;
    a.width = c_.width;
    a.top = c_.top;
    a.max_nonzeros = most;
    a.is_query = c_.query ? 1 : 0;
    a.normalize = c_.normalize ? 1 : 0;
    a.anchors = anchors_.data();
    a.items = out->items(first, count);
    a.out = out->base();
    return ops->smve(&a, share);
  }

  static std::vector<SparseEntry> entries(const SparseRows &rows, int64_t b) {
    std::vector<SparseEntry> all;
    for (int32_t i = 0; i < rows.count(b); i++) all.push_back(rows.entry(b, i));
    return all;
  }

  void fill_anchors(Random *random) {
    anchors_.reserve(static_cast<size_t>(columns()) * static_cast<size_t>(c_.c));
    for (int64_t a = 0; a < columns(); a++) {
      const size_t at = anchors_.size();
      float sum = 0;
      for (int32_t i = 0; i < c_.c; i++) {
        anchors_.push_back(random->real() + random->real() + random->real());
        if (c_.mirrored && a % 2 != i % 2) anchors_.back() = 0;
        sum += anchors_.back() * anchors_.back();
      }
      for (size_t i = at; i < anchors_.size(); i++) {
        anchors_[i] /= sqrtf(sum);
        if (c_.pairs && a % 2 == 1) anchors_[i] = anchors_[i - static_cast<size_t>(c_.c)];
      }
    }
  }

  // Rows are drawn until no projection is so near the last kept one, and no value so near the last
  // within the limit, that rounding could swap them.
  void fill_sequence(int64_t b, Random *random) {
    const int64_t first = sequences_.first(b), last = sequences_.first(b + 1);
    do {
      for (int64_t t = first; t < last; t++) {
        do {
          // The second of three or more is zero: all of its projections are.
          const bool zero = t == first + 1 && last - first > 2;
          for (int64_t c = 0; c < c_.c; c++) x_->set(t, c, zero ? 0.0f : random->real());
        } while (!bench && !clear_choice(t));
      }
      for (int64_t c = 0; c < c_.c && c_.mirrored && last > first + 1; c += 2)
        x_->set(last - 1, c, -static_cast<float>(x_->get(first, c)));
      if (c_.holes && last - first > 2) x_->set(first + 2, c_.c / 2, NAN);
    } while (!bench && c_.max_nonzeros > 0 && !clear_limit(b));
  }

  bool same_pair(int64_t a, int64_t b) const { return c_.pairs && a / 2 == b / 2; }

  bool clear_choice(int64_t t) const {
    double norm = 0;
    for (int64_t c = 0; c < c_.c; c++) norm += x_->get(t, c) * x_->get(t, c);
    if (norm == 0) return true;
    for (int64_t r = 0; r < c_.repetitions; r++) {
      std::vector<std::pair<double, int64_t>> all;
      for (int64_t a = 0; a < c_.width; a++) {
        double sum = 0;
        for (int64_t c = 0; c < c_.c; c++) {
          sum += x_->get(t, c) *
                 static_cast<double>(anchors_[static_cast<size_t>((r * c_.width + a) * c_.c + c)]);
        }
        all.push_back({-sum, a});
      }
      std::sort(all.begin(), all.end());
      const size_t top = static_cast<size_t>(c_.top);
      if (top == all.size()) continue;
      if (all[top].first - all[top - 1].first < 1e-5 * sqrt(norm) &&
          !same_pair(all[top].second, all[top - 1].second))
        return false;
    }
    return true;
  }

  bool clear_limit(int64_t b) {
    SparseRows all(nullptr, units, columns(), SIE_F32);
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, b, 1, 0, &all);
    std::vector<SparseEntry> values = entries(all, b);
    const size_t most = static_cast<size_t>(c_.max_nonzeros);
    if (values.size() <= most) return true;
    std::stable_sort(values.begin(), values.end(), [](const SparseEntry &x, const SparseEntry &y) {
      return fabs(x.value) > fabs(y.value);
    });
    return fabs(values[most - 1].value) - fabs(values[most].value) > 1e-5 * fabs(values[0].value) ||
           same_pair(values[most].column, values[most - 1].column);
  }

  Config c_;
  Sequences sequences_;
  Array<float> anchors_;
  std::unique_ptr<Rows> x_;
  std::unique_ptr<SparseRows> out_, expected_;
};

}  // namespace

std::unique_ptr<Case> make_smve(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    // Rows of `ragged` are several CTAs of a GPU; `longer` has more than a slab of a CPU.
    const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0}, ragged = {7, 1, 0, 33, 2, 0, 9},
                               longer = {66, 3};
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (bool query : {false, true}) {
        all.push_back({ragged, dtype, 33, 2, 65, 4, 0, 130, query, false, false});
        all.push_back({ragged, dtype, 16, 1, 130, 3, 0, 40, query, true, false});
        all.push_back({longer, dtype, 8, 1, 70, 5, 17, 70, query, true, false});
        all.push_back({ragged, dtype, 12, 1, 64, 5, 9, 12, query, false, false, SIE_F32, true});
      }
      all.push_back({{5, 0, 2}, dtype, 24, 1, 100, 33, 0, 100, false, false, false, SIE_F16});
      for (const std::vector<int32_t> &lengths : {none, one, empty})
        all.push_back({lengths, dtype, 9, 1, 20, 2, 0, 20, false, true, false});
    }
    // The smallest; all projections kept, negative ones too, and of those the largest of either
    // sign.
    all.push_back({{3, 0, 2}, SIE_F32, 1, 3, 1, 1, 0, 3, true, false, false});
    all.push_back({{4, 1}, SIE_F32, 5, 3, 7, 7, 0, 21, true, false, false});
    all.push_back({{4, 1}, SIE_F32, 5, 3, 7, 7, 4, 21, false, false, false});
    // A list of two rounds of a warp's lanes, and a range of columns that ends within a repetition.
    all.push_back({{4, 1}, SIE_F32, 130, 1, 65, 64, 0, 65, true, true, false});
    all.push_back({{3, 4}, SIE_F32, 4, 3, 2800, 3, 5, 30, true, false, false});
    // The longest list of a GPU: several rounds of values, too, and limits on both sides of one.
    all.push_back({{2, 3}, SIE_F32, 6, 1, 300, 256, 0, 300, true, false, false});
    all.push_back({{2, 3}, SIE_F32, 6, 1, 300, 256, 100, 300, false, false, false});
    all.push_back({{2, 3}, SIE_F32, 6, 1, 300, 256, 270, 300, true, true, false});
    // Columns on both sides of where a warp's own end.
    all.push_back({{12, 9}, SIE_F32, 4, 1, 2100, 256, 0, 2100, false, false, false});
    for (bool query : {false, true}) {
      all.push_back({{2, 4, 3}, SIE_F32, 5, 2, 7, 7, 0, 14, query, false, false, SIE_F32, false, true});
      all.push_back(
          {{4, 3, 1}, SIE_BF16, 5, 1, 30, 4, 0, 16, query, true, false, SIE_F32, false, false, true});
    }
    all.push_back({{3, 2}, SIE_F32, 8, 1, 320, 65, 40, 320, true, false, false, SIE_F32, true});
    all.push_back({{128, 128}, SIE_F32, 128, 1, 16384, 32, 0, 8192, false, true, true});
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<SmveCase>(config, layout, 5200 + index);
}

std::unique_ptr<Case> model_smve(const ModelShape &m, const Lengths &lengths) {
  return in_layout<SmveCase>(
      Config{lengths, SIE_BF16, m.width, 1, 512 * m.width, 32, 0, 8192, false, true, true}, dense, 1);
}

}  // namespace harness
