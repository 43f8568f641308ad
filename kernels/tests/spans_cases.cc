// spans_cases.cc — spans: every span of words against every label, above the threshold.
#include <math.h>

#include "common/tol.h"
#include "tests/found_case.h"

namespace harness {

namespace {

struct SpansConfig : FoundShape {
  int32_t widest, words_type, labels_type;
  bool bias;
};

class SpansCase : public FoundCase {
 public:
  SpansCase(const SpansConfig &config, Layout layout, int seed)
      : FoundCase(config, layout, 1, 3, static_cast<uint32_t>(seed)), c_(config) {
    form = text("spans %s words=%s labels=%s%s%s", f_.write ? "write" : "find", dtype_text(c_.words_type),
                dtype_text(c_.labels_type), c_.bias ? " bias" : "", f_.shared ? " shared" : "");
    shape = text("R=%lld B=%lld labels=%lld K=%lld W=%d above=%d room=%d%s", static_cast<long long>(words()),
                 static_cast<long long>(units), static_cast<long long>(labels_.tokens()),
                 static_cast<long long>(f_.k), c_.widest, f_.above, f_.room, f_.holes ? " holes" : "");
    if (names_only) return;
    starts_.reset(new Rows(&random_, operand(layout), words(), f_.k, c_.words_type));
    ends_.reset(new Rows(&random_, operand(layout), words(), f_.k, c_.words_type));
    m_.reset(new Rows(&random_, operand(layout), labels_.tokens(), f_.k, c_.labels_type));
    if (c_.bias) bias_.reset(new Rows(&random_, layout, labels_.tokens(), 1, c_.labels_type));
    fill_operand(starts_.get(), 1);
    fill_operand(ends_.get(), 1);
    fill_operand(m_.get(), 4 / sqrt(static_cast<double>(f_.k)));
    if (c_.bias) fill_operand(bias_.get(), 0.5);
    choose_thresholds();
  }

  bool present(const sie_ops *ops) const override { return ops->spans != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_SPANS;
    b.rows = words();
    b.seqs = units;
    b.k = f_.k;
    b.labels = labels_.longest();
    return b;
  }
  void poison(int64_t u) override {
    for (int64_t r = words_.first(u); r < words_.first(u + 1); r++) {
      starts_->poison(r);
      ends_->poison(r);
    }
    if (f_.shared) return;  // another's labels
    for (int64_t r = labels_.first(u); r < labels_.first(u + 1); r++) m_->poison(r);
  }
  double flops() const override {
    double sum = 0;
    for (int64_t b = 0; b < units; b++) {
      for (int64_t i = 0; i < words_.length(b); i++) {
        sum += 2.0 * static_cast<double>(widths(b, i) * label_count(b) * f_.k);
      }
    }
    return sum;
  }
  double bytes() const override {
    return static_cast<double>((2 * words() + labels_.tokens()) * f_.k * (c_.words_type == SIE_F32 ? 4 : 2));
  }

 protected:
  sie_status pass(const sie_ops *ops, const sie_share *share, const Pass &p) override {
    const int64_t row = words_.first(p.first);
    sie_spans_args a = {};
    const int64_t label = give_labels(p.first, p.count, &a.cu_labels, &a.label_group);
    a.words = row_count(0, words() - row, words_.first(p.first + p.count) - row);
    a.seqs = row_count(1, units - p.first, p.count);
    a.cu_words = words_.cu(p.first, p.count);
    a.k = f_.k;
    a.starts = starts_->tensor(row);
    a.ends = ends_->tensor(row);
    a.labels = m_->tensor(label);
    if (c_.bias) a.bias = bias_->tensor(label);
    a.widest = c_.widest;
    a.write = p.write ? 1 : 0;
    a.found = p.found;
    a.found_ld = p.ld;
    a.items = p.items;
    a.out = p.out;
    return ops->spans(&a, share);
  }
  std::vector<Score> scores(int64_t b, int64_t i) const override {
    std::vector<Score> all;
    const int64_t labels = label_count(b), row = words_.first(b) + i,
                  label = labels > 0 ? labels_.first(group_of(b)) : 0;
    for (int64_t w = 0; w < widths(b, i); w++) {
      for (int64_t c = 0; c < labels; c++) {
        double sum = c_.bias ? bias_->get(label + c, 0) : 0, h_squares = 0, m_squares = 0;
        for (int64_t k = 0; k < f_.k; k++) {
          const double h = starts_->get(row, k) + ends_->get(row + w, k), m = m_->get(label + c, k);
          const double relu = h < 0 ? 0 : h;
          sum += relu * m;
          h_squares += relu * relu;
          m_squares += m * m;
        }
        double tolerance = sie_tol_dot(f_.k, sqrt(h_squares), sqrt(m_squares)) + SIE_TOL_U * fabs(sum);
        if (f_.above == equal) tolerance = 0;
        all.push_back({static_cast<int32_t>(w * labels + c), {sum, 0, 0}, tolerance});
      }
    }
    return all;
  }
  std::vector<int32_t> numbers(int64_t b, int64_t i, int32_t code) const override {
    const int32_t labels = static_cast<int32_t>(label_count(b));
    return {static_cast<int32_t>(i), code / labels, code % labels};
  }

 private:
  int64_t widths(int64_t b, int64_t i) const {
    const int64_t left = words_.length(b) - i;
    return left < c_.widest ? left : c_.widest;
  }

  SpansConfig c_;
  std::unique_ptr<Rows> starts_, ends_, m_, bias_;
};

}  // namespace

std::unique_ptr<Case> make_spans(int index) {
  static const std::vector<std::pair<SpansConfig, Layout>> list = [] {
    std::vector<SpansConfig> all;
    const std::vector<int32_t> ragged = {1, 13, 0, 3, 12, 2}, labels = {1, 3, 2, 0, 33, 5};
    const int64_t ks[] = {1, 7, 8, 17, 64, 130};
    for (bool write : {false, true}) {
      for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
        for (size_t i = 0; i < 6; i++) {
          const int64_t k = ks[i];
          const bool bias = i % 2 == 0;
          // Room for all, for some, for one.
          const int32_t rooms[] = {4096, 7, 1}, widths[] = {12, 1, 5};
          all.push_back({{ragged, labels, k, in_turn, rooms[i % 3], write, false, false},
                         widths[i % 3],
                         dtype,
                         dtype,
                         bias});
        }
        const Above aboves[] = {few, many, everything, nothing, equal};
        for (Above above : aboves) {
          all.push_back({{{5, 9, 2}, {4, 50, 17}, 33, above, above == many ? 40 : 1500, write, false, false},
                         above == equal ? 3 : 12,
                         dtype,
                         dtype,
                         above != few});
        }
        all.push_back({{{6, 4, 9}, {3, 4, 2}, 40, in_turn, 60, write, true, false}, 4, dtype, dtype, true});
        // Wider than any sequence, as wide as is possible, and many labels.
        all.push_back(
            {{{3, 30}, {2, 3}, 16, many, 900, write, false, false}, SIE_MAX_SPAN_WIDTH, dtype, dtype, false});
        all.push_back({{{2, 1}, {7, 1000}, 12, few, 500, write, false, false}, 2, dtype, dtype, true});
        all.push_back({{{}, {}, 9, few, 4, write, false, false}, 2, dtype, dtype, false});
        all.push_back({{{0, 0}, {3, 0}, 9, few, 4, write, false, false}, 2, dtype, dtype, false});
      }
      all.push_back({{{7, 5}, {3, 9}, 48, many, 30, write, false, false}, 6, SIE_F32, SIE_BF16, true});
      all.push_back({{{7, 5}, {3, 9}, 48, many, 30, write, false, false}, 6, SIE_BF16, SIE_F32, true});
      for (int32_t dtype : {SIE_F32, SIE_BF16}) {
        all.push_back(
            {{ragged, labels, 33, in_turn, 40, write, false, false, true}, 5, dtype, SIE_F32, true});
      }
    }
    // More sequences than a CTA of the headers has, and more words of one than a CTA counts at once.
    for (const std::vector<int32_t> &lengths : {short_sequences(), std::vector<int32_t>{150, 2}}) {
      const std::vector<int32_t> one(lengths.size(), 1);
      all.push_back({{lengths, one, 8, everything, 400, true, false, false}, 1, SIE_F32, SIE_F32, false});
    }
    // CTAs that compute words of one sequence again, and then count for the next. Where its sums lay
    // in the logits, only a warp that comes late would show it; so there are many.
    std::vector<int32_t> six_and_two, twenty_and_three;
    for (int i = 0; i < 12; i++) {
      six_and_two.insert(six_and_two.end(), {6, 2});
      twenty_and_three.insert(twenty_and_three.end(), {20, 3});
    }
    all.push_back({{six_and_two, twenty_and_three, 8, everything, 500, true, false, false},
                   12,
                   SIE_F32,
                   SIE_F32,
                   false});
    for (int32_t count : {5, 25, 100}) {
      all.push_back({{{384}, {count}, 2048, few, 1024, false, false, true}, 12, SIE_F32, SIE_F32, true});
      all.push_back({{{384}, {count}, 2048, few, 1024, false, false, true}, 12, SIE_BF16, SIE_BF16, true});
    }
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<SpansCase>(config, layout, 6100 + index);
}

std::unique_ptr<Case> model_spans(const ModelShape &m, const Lengths &lengths) {
  const Lengths labels(lengths.size(), 25);
  const FoundShape shape = {lengths, labels, 4 * word_columns(m), few, 1024, false, false, true};
  return in_layout<SpansCase>(SpansConfig{shape, 12, SIE_BF16, SIE_BF16, true}, dense, 1);
}

}  // namespace harness
