// pairs_cases.cc — pairs: every word against every label, above the threshold.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "tests/found_case.h"

namespace harness {

namespace {

struct PairsConfig : FoundShape {
  int64_t n;
  int32_t x;  // type of all operands
  uint32_t compute;
  int32_t logits;
  bool bias;
};

const char *class_text(uint32_t compute) {
  return compute == SIE_COMPUTE_F32 ? "f32" : (compute == SIE_COMPUTE_BF16 ? "bf16" : "f16");
}

double rounded(uint32_t compute, double x) {
  const float f = static_cast<float>(x);
  if (compute == SIE_COMPUTE_BF16) return static_cast<double>(sie_f32_from_bf16(sie_bf16_from_f32(f)));
  if (compute == SIE_COMPUTE_F16) return static_cast<double>(sie_f32_from_f16(sie_f16_from_f32(f)));
  return static_cast<double>(f);
}

class PairsCase : public FoundCase {
 public:
  PairsCase(const PairsConfig &config, Layout layout, int seed)
      : FoundCase(config, layout, config.logits, 2, static_cast<uint32_t>(seed)), c_(config) {
    form = text("pairs %s x=%s w=%s%s", f_.write ? "write" : "find", dtype_text(c_.x), class_text(c_.compute),
                f_.shared ? " shared" : "");
    shape = text("R=%lld B=%lld labels=%lld K=%lld N=%lld logits=%d above=%d room=%d%s",
                 static_cast<long long>(words()), static_cast<long long>(units),
                 static_cast<long long>(labels_.tokens()), static_cast<long long>(f_.k),
                 static_cast<long long>(c_.n), c_.logits, f_.above, f_.room, f_.holes ? " holes" : "");
    if (names_only) return;
    t_.reset(new Rows(&random_, operand(layout), words(), f_.k, c_.x));
    u_.reset(new Rows(&random_, operand(layout), words(), c_.n, c_.x));
    l_.reset(new Rows(&random_, operand(layout), labels_.tokens(), f_.k, c_.x));
    v_.reset(new Rows(&random_, operand(layout), labels_.tokens(), c_.n, c_.x));
    fill_operand(t_.get(), 2);
    fill_operand(u_.get(), 1);
    fill_operand(l_.get(), 2);
    fill_operand(v_.get(), 1);
    for (int64_t i = 0; i < c_.n * f_.k; i++) w_.push_back(value(1 / sqrt(static_cast<double>(f_.k))));
    weight_.reset(new Weight(c_.compute, c_.n, f_.k, w_));
    for (int64_t i = 0; i < c_.logits * c_.n; i++)
      head_.push_back(value(4 / sqrt(static_cast<double>(c_.n))));
    for (int32_t o = 0; o < c_.logits && c_.bias; o++) bias_.push_back(value(0.5));
    choose_thresholds();
  }

  bool present(const sie_ops *ops) const override {
    return ops->pairs != nullptr && (ops->compute_mask >> c_.compute & 1) != 0;
  }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_PAIRS;
    b.compute = c_.compute;
    b.rows = words();
    b.seqs = units;
    b.n = c_.n;
    b.k = f_.k;
    b.labels = labels_.longest();
    return b;
  }
  void poison(int64_t u) override {
    for (int64_t r = words_.first(u); r < words_.first(u + 1); r++) {
      t_->poison(r);
      u_->poison(r);
    }
    if (f_.shared) return;  // another's labels
    for (int64_t r = labels_.first(u); r < labels_.first(u + 1); r++) {
      l_->poison(r);
      v_->poison(r);
    }
  }
  double flops() const override {
    double sum = 0;
    for (int64_t b = 0; b < units; b++) {
      sum += 2.0 * static_cast<double>(words_.length(b) * label_count(b) * c_.n * (f_.k + c_.logits));
    }
    return sum;
  }
  double bytes() const override {
    const int64_t weight = c_.n * f_.k * (c_.compute == SIE_COMPUTE_F32 ? 4 : 2),
                  rows = (words() + labels_.tokens()) * (c_.n + f_.k) * (c_.x == SIE_F32 ? 4 : 2);
    return static_cast<double>(weight + rows);
  }

 protected:
  sie_status pass(const sie_ops *ops, const sie_share *share, const Pass &p) override {
    const int64_t row = words_.first(p.first);
    sie_pairs_args a = {};
    const int64_t label = give_labels(p.first, p.count, &a.cu_labels, &a.label_group);
    a.words = row_count(0, words() - row, words_.first(p.first + p.count) - row);
    a.seqs = row_count(1, units - p.first, p.count);
    a.cu_words = words_.cu(p.first, p.count);
    a.n = c_.n;
    a.k = f_.k;
    a.words_x = t_->tensor(row);
    a.words_u = u_->tensor(row);
    a.labels_x = l_->tensor(label);
    a.labels_u = v_->tensor(label);
    a.w = weight_->packed(ops);
    a.head = head_.data();
    a.head_bias = c_.bias ? bias_.data() : nullptr;
    a.n_logits = c_.logits;
    a.write = p.write ? 1 : 0;
    a.found = p.found;
    a.found_ld = p.ld;
    a.items = p.items;
    a.out = p.out;
    return ops->pairs(&a, share);
  }
  std::vector<Score> scores(int64_t b, int64_t i) const override {
    std::vector<Score> all;
    std::vector<double> x(static_cast<size_t>(f_.k));
    const int64_t row = words_.first(b) + i, labels = label_count(b),
                  label = labels > 0 ? labels_.first(group_of(b)) : 0;
    for (int64_t c = 0; c < labels; c++) {
      double x_squares = 0;
      for (int64_t k = 0; k < f_.k; k++) {
        const double product = rounded(c_.compute, t_->get(row, k) * l_->get(label + c, k));
        x[static_cast<size_t>(k)] = product;
        x_squares += product * product;
      }
      Score score = {static_cast<int32_t>(c), {0, 0, 0}, 0};
      for (int32_t o = 0; o < c_.logits && c_.bias; o++)
        score.y[o] = static_cast<double>(bias_[static_cast<size_t>(o)]);
      double h_squares[3] = {0, 0, 0}, off[3] = {0, 0, 0};
      for (int64_t n = 0; n < c_.n; n++) {
        double h = u_->get(row, n) + v_->get(label + c, n);
        for (int64_t k = 0; k < f_.k; k++) {
          h += x[static_cast<size_t>(k)] *
               rounded(c_.compute, static_cast<double>(w_[static_cast<size_t>(n * f_.k + k)]));
        }
        const double relu = h < 0 ? 0 : h;
        const double off_h = sie_tol_dot(f_.k, sqrt(x_squares), weight_->norm(n)) + 4 * SIE_TOL_U * fabs(h);
        for (int32_t o = 0; o < c_.logits; o++) {
          const double head = static_cast<double>(head_[static_cast<size_t>(o * c_.n + n)]);
          score.y[o] += relu * head;
          h_squares[o] += relu * relu * head * head;
          off[o] += off_h * off_h * head * head;
        }
      }
      // The errors of h are independent; those of the sum are the terms' own.
      for (int32_t o = 0; o < c_.logits; o++) {
        const double sum = sqrt(h_squares[o] * static_cast<double>(c_.n));
        const double tolerance =
            3 * sqrt(off[o]) + sie_tol_dot(c_.n, sum, 1) + 2 * SIE_TOL_U * fabs(score.y[o]);
        score.tolerance = fmax(score.tolerance, tolerance);
      }
      if (f_.above == equal) score.tolerance = 0;
      all.push_back(score);
    }
    return all;
  }
  std::vector<int32_t> numbers(int64_t, int64_t i, int32_t code) const override {
    return {static_cast<int32_t>(i), code};
  }

 private:
  PairsConfig c_;
  std::unique_ptr<Rows> t_, u_, l_, v_;
  std::vector<float> w_;
  std::unique_ptr<Weight> weight_;
  Array<float> head_, bias_;
};

}  // namespace

std::unique_ptr<Case> make_pairs(int index) {
  struct Types {
    int32_t x;
    uint32_t compute;
  };
  static const std::vector<std::pair<PairsConfig, Layout>> list = [] {
    std::vector<PairsConfig> all;
    const std::vector<int32_t> ragged = {1, 5, 0, 3, 2}, labels = {1, 9, 2, 0, 3};
    const Types types[] = {{SIE_F32, SIE_COMPUTE_F32},  {SIE_BF16, SIE_COMPUTE_F32},
                           {SIE_F32, SIE_COMPUTE_BF16}, {SIE_BF16, SIE_COMPUTE_BF16},
                           {SIE_F16, SIE_COMPUTE_F16},  {SIE_F32, SIE_COMPUTE_F16}};
    for (bool write : {false, true}) {
      for (const Types &type : types) {
        const int64_t ks[] = {1, 17, 32, 40}, ns[] = {1, 16, 70, 33};
        for (size_t i = 0; i < 4; i++) {
          const int32_t rooms[] = {200, 3, 1}, logits = static_cast<int32_t>(i % 3) + 1;
          all.push_back({{ragged, labels, ks[i], in_turn, rooms[i % 3], write, false, false},
                         ns[i],
                         type.x,
                         type.compute,
                         logits,
                         i % 2 == 0});
        }
        for (Above above : {many, everything, nothing, equal}) {
          all.push_back({{{4, 3}, {30, 13}, 24, above, above == many ? 20 : 300, write, false, false},
                         20,
                         type.x,
                         type.compute,
                         3,
                         above != nothing});
        }
        all.push_back(
            {{{4, 3}, {4, 5}, 24, in_turn, 30, write, true, false}, 20, type.x, type.compute, 3, true});
        all.push_back(
            {{{2, 0}, {250, 3}, 8, few, 60, write, false, false}, 6, type.x, type.compute, 3, true});
        all.push_back({{{}, {}, 9, few, 4, write, false, false}, 6, type.x, type.compute, 3, true});
        // Several lines of columns of each of several panels.
        all.push_back({{{3}, {5}, 130, many, 20, write, false, false}, 70, type.x, type.compute, 2, true});
        all.push_back({{ragged, labels, 20, in_turn, 30, write, false, false, true},
                       17,
                       type.x,
                       type.compute,
                       3,
                       true});
      }
    }
    // More sequences than a CTA of the headers has, and more words of one than a CTA counts at once.
    for (const std::vector<int32_t> &lengths : {short_sequences(), std::vector<int32_t>{280, 2}}) {
      const std::vector<int32_t> one(lengths.size(), 1);
      all.push_back(
          {{lengths, one, 8, everything, 400, true, false, false}, 6, SIE_F32, SIE_COMPUTE_F32, 1, false});
    }
    for (int32_t count : {5, 25}) {
      all.push_back(
          {{{384}, {count}, 512, few, 1024, false, false, true}, 2048, SIE_F32, SIE_COMPUTE_F32, 3, true});
      all.push_back(
          {{{384}, {count}, 512, few, 1024, false, false, true}, 2048, SIE_BF16, SIE_COMPUTE_BF16, 3, true});
    }
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<PairsCase>(config, layout, 6300 + index);
}

std::unique_ptr<Case> model_pairs(const ModelShape &m, const Lengths &lengths) {
  const Lengths labels(lengths.size(), 25);
  const FoundShape shape = {lengths, labels, word_columns(m), few, 1024, false, false, true};
  const PairsConfig three = {shape, 4 * word_columns(m), SIE_BF16, SIE_COMPUTE_BF16, 3, true};
  return in_layout<PairsCase>(three, dense, 1);
}

}  // namespace harness
