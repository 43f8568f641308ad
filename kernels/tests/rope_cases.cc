// rope_cases.cc — qk_norm_rope: heads normalised and rotated in place, whole and in part, q alone
// or with k.
#include <math.h>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct Config {
  std::vector<int32_t> lengths;
  int32_t dtype, heads, kv_heads, head_dim, rot;  // kv_heads 0: no k
  bool norm, offset;                              // offset: checkpoints that store gamma − 1
  int32_t position_offset;
  bool packed;  // q and k are columns of one value
  Input input;
  bool bench;
  bool behind = false;  // each sequence begins behind a prefix of a length of its own
  int32_t tabled = 0;   // sequences of more rows have turns; 0: none has
  int32_t whole = 0;    // rows of the only sequence, of which the case has some
};

class RopeCase : public Case {
 public:
  RopeCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form = text("qk_norm_rope %s D=%d%s%s%s%s", dtype_text(c_.dtype), c_.head_dim, c_.norm ? " norm" : "",
                c_.rot == 0 ? " unrotated" : (c_.rot < c_.head_dim ? " partial" : ""),
                c_.kv_heads == 0 ? " q only" : "", c_.behind ? " prefix" : (c_.tabled > 0 ? " turns" : ""));
    shape = text("T=%lld B=%lld H=%d/%d rot=%d input=%s", static_cast<long long>(sequences_.tokens()),
                 static_cast<long long>(sequences_.count()), c_.heads, c_.kv_heads, c_.rot,
                 input_names[c_.input]);
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    const int64_t tokens = sequences_.tokens(), q_columns = int64_t{c_.heads} * c_.head_dim,
                  k_columns = int64_t{c_.kv_heads} * c_.head_dim, extra = c_.packed ? 2 * k_columns : 0;
    for (Tensor *t : {&q_, &k_}) {
      const int64_t columns = t == &q_ ? q_columns : k_columns;
      if (columns == 0) continue;
      t->in.reset(new Rows(tokens, columns, c_.dtype));
      t->out.reset(new Rows(&random, layout, tokens, columns, c_.dtype, {false, -1}, t == &q_ ? extra : 0));
      fill(t->in.get(), &random, c_.input);
      outputs.push_back(t->out.get());
      for (int32_t i = 0; i < c_.head_dim; i++)
        t->gamma.push_back(1 + 0.5f * random.real() - (c_.offset ? 1.0f : 0.0f));
    }
    positions_ = sequences_.longest() + c_.position_offset;
    for (int64_t b = 0; b < units && c_.behind; b++) first_.push_back(static_cast<int32_t>(b * 37 % 61));
    if (c_.behind) positions_ += 60;
    if (c_.tabled > 0) {
      make_turns(std::max<int64_t>(c_.whole, sequences_.longest()));
      positions_ = c_.tabled;
    }
    for (int64_t p = 0; p < positions_; p++) {
      for (int32_t i = 0; i < c_.rot / 2; i++) {
        double angle = static_cast<double>(p) * pow(10000.0, -2.0 * i / c_.rot);
        cos_.push_back(static_cast<float>(cos(angle)));
        sin_.push_back(static_cast<float>(sin(angle)));
      }
    }
  }

  bool present(const sie_ops *ops) const override { return ops->qk_norm_rope != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_QK_NORM_ROPE;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = int64_t{c_.heads} * c_.head_dim;
    b.max_len = sequences_.longest();
    b.head_dim = c_.head_dim;
    b.heads = c_.heads;
    b.kv_heads = c_.kv_heads;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    const int64_t row = sequences_.first(first), end = sequences_.first(first + count);
    for (Tensor *t : {&q_, &k_}) {
      if (t->out != nullptr && first_share(share)) t->out->copy(*t->in, row, end);
    }
    sie_qk_norm_rope_args a = {};
    a.tokens = row_count(0, sequences_.tokens() - row, end - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.heads = c_.heads;
    a.kv_heads = c_.kv_heads;
    a.head_dim = c_.head_dim;
    a.rot = c_.rot;
    a.q_gamma = c_.norm ? q_.gamma.data() : nullptr;
    a.k_gamma = c_.norm && c_.kv_heads > 0 ? k_.gamma.data() : nullptr;
    a.eps = eps;
    a.weight_offset = c_.offset ? 1.0f : 0.0f;
    a.cos = c_.rot > 0 ? cos_.data() : nullptr;
    a.sin = c_.rot > 0 ? sin_.data() : nullptr;
    a.positions = positions_;
    a.position_offset = c_.position_offset;
    a.first_position = c_.behind ? first_.data() + first : nullptr;
    a.turns = c_.tabled > 0 ? turns_.data() : nullptr;
    a.whole_rows = c_.whole;
    a.q = q_.out->tensor(row);
    if (k_.out != nullptr) a.k = k_.out->tensor(row);
    sie_status status = ops->qk_norm_rope(&a, share);
    for (Rows *rows : outputs) {
      if (status == SIE_UNSUPPORTED) rows->clear();
    }
    return status;
  }

  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = sequences_.first(u);
    *last = sequences_.first(u + 1);
  }

  void expect() override {}

  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      const int64_t start = c_.position_offset + (c_.behind ? first_[static_cast<size_t>(b)] : 0);
      const int64_t rows = c_.whole > 0 ? c_.whole : sequences_.length(b);
      for (int64_t i = 0; i < sequences_.length(b); i++) {
        verify_row(backend, q_, c_.heads, sequences_.first(b) + i, rows, start + i);
        if (k_.in != nullptr) verify_row(backend, k_, c_.kv_heads, sequences_.first(b) + i, rows, start + i);
      }
    }
  }

  void poison(int64_t u) override {
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) {
      q_.in->poison(t);
      if (k_.in != nullptr) k_.in->poison(t);
    }
  }
  double flops() const override {
    return 8.0 * static_cast<double>(sequences_.tokens()) * (c_.heads + c_.kv_heads) * c_.head_dim;
  }
  double bytes() const override {
    return 2.0 * static_cast<double>(sequences_.tokens()) * (c_.heads + c_.kv_heads) * c_.head_dim *
           (c_.dtype == SIE_F32 ? 4 : 2);
  }

 private:
  static constexpr float eps = 1e-6f;

  struct Tensor {
    std::unique_ptr<Rows> in, out;
    Array<float> gamma;
  };

  // The turn from one row to the next of pair i in a sequence of that many rows.
  double turn(int64_t rows, int32_t i) const {
    return pow(10.0 * static_cast<double>(rows - c_.tabled), -2.0 * i / c_.rot) / (2 * M_PI);
  }

  void make_turns(int64_t longest) {
    const int32_t half = c_.rot / 2;
    turns_.resize(static_cast<size_t>(std::max<int64_t>(longest - c_.tabled, 1) * c_.rot));
    for (int64_t n = 0; n < longest - c_.tabled; n++) {
      for (int32_t i = 0; i < half; i++) {
        const uint64_t fixed = static_cast<uint64_t>(ldexp(turn(c_.tabled + 1 + n, i), 64));
        turns_[static_cast<size_t>(n * c_.rot + i)] = static_cast<int32_t>(fixed >> 32);
        turns_[static_cast<size_t>(n * c_.rot + half + i)] = static_cast<int32_t>(fixed);
      }
    }
  }

  void verify_row(const char *backend, const Tensor &t, int32_t heads, int64_t row, int64_t rows,
                  int64_t position) const {
    const int32_t d = c_.head_dim, half = c_.rot / 2;
    std::vector<double> x(static_cast<size_t>(d));
    for (int32_t h = 0; h < heads; h++) {
      double squares = 0;
      for (int32_t i = 0; i < d; i++) {
        x[static_cast<size_t>(i)] = t.in->get(row, int64_t{h} * d + i);
        squares += x[static_cast<size_t>(i)] * x[static_cast<size_t>(i)];
      }
      double factor = 1 / sqrt(squares / d + static_cast<double>(eps));
      for (int32_t i = 0; i < d && c_.norm; i++) {
        x[static_cast<size_t>(i)] *=
            factor * (static_cast<double>(t.gamma[static_cast<size_t>(i)]) + (c_.offset ? 1 : 0));
      }
      for (int32_t i = 0; i < d; i++) {
        double want = x[static_cast<size_t>(i)], magnitude = fabs(want);
        if (i < 2 * half) {
          const size_t at = static_cast<size_t>(position * half + i % half);
          const double own = x[static_cast<size_t>(i)],
                       other = x[static_cast<size_t>(i < half ? i + half : i - half)];
          const bool own_angle = c_.tabled > 0 && rows > c_.tabled;
          const double angle =
              own_angle ? 2 * M_PI * static_cast<double>(position) * turn(rows, i % half) : 0;
          const double c = own_angle ? cos(angle) : static_cast<double>(cos_[at]),
                       s = own_angle ? sin(angle) : static_cast<double>(sin_[at]);
          want = own * c + (i < half ? -other : other) * s;
          magnitude = fabs(own) + fabs(other);
        }
        // Without a norm, columns that are not rotated stay as they are.
        double tolerance =
            i >= 2 * half && !c_.norm ? 0 : 12 * SIE_TOL_U * magnitude + sie_tol_store(c_.dtype, want);
        double got = t.out->get(row, int64_t{h} * d + i);
        CHECK(fabs(got - want) <= tolerance,
              "%s %s %s: head %d of row %lld, [%d] = %.9g, %.9g expected, ±%.2g", backend, form.c_str(),
              shape.c_str(), h, static_cast<long long>(row), i, got, want, tolerance);
      }
    }
  }

  Config c_;
  Sequences sequences_;
  int64_t positions_ = 0;
  Tensor q_, k_;
  Array<float> cos_, sin_;
  Array<int32_t> first_, turns_;
};

}  // namespace

std::unique_ptr<Case> make_rope(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0}, ragged = {7, 1, 0, 33, 2, 0, 31, 65},
                               longer = {513, 3, 130, 64, 32};
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (int32_t d : {32, 64, 128, 256}) {
        for (bool norm : {false, true}) {
          all.push_back({ragged, dtype, 3, 1, d, d, norm, false, 0, false, plain, false});
          all.push_back({ragged, dtype, 2, 2, d, d / 2, norm, norm, 5, true, plain, false});
          all.push_back({ragged, dtype, 2, 0, d, d, norm, false, 0, false, plain, false});
        }
        all.push_back({ragged, dtype, 2, 1, d, 0, true, false, 0, false, plain, false});
        all.push_back({ragged, dtype, 2, 1, d, d, true, false, d == 64 ? 5 : 0, true, plain, false, true});
        // Sequences up to the tables' length, one row above it, and longer.
        all.push_back(
            {{20, 7, 0, 21, 65, 1, 33}, dtype, 3, 1, d, d, d == 64, false, 0, true, plain, false, false, 20});
      }
      for (const std::vector<int32_t> &lengths : {none, one, empty, longer})
        all.push_back({lengths, dtype, 2, 1, 64, 64, true, false, 0, true, plain, false});
      if (dtype != SIE_F16)
        all.push_back({ragged, dtype, 2, 1, 64, 64, true, false, 0, false, outliers, false});
      all.push_back({ragged, dtype, 2, 1, 64, 64, true, true, 0, false, equal_rows, false});
    }
    // A rotation that is no multiple of an octet's pairs, and of 17.
    all.push_back({ragged, SIE_BF16, 2, 1, 64, 34, true, false, 0, false, plain, false});
    // More columns than a GPU's warp has in flight.
    all.push_back({{3, 0, 2}, SIE_BF16, 9, 5, 128, 128, true, false, 0, true, plain, false});
    all.push_back({{3, 0, 2}, SIE_F16, 40, 36, 32, 16, false, false, 0, true, plain, false});
    // Other even head dimensions exist on CPUs.
    all.push_back({ragged, SIE_F32, 2, 1, 80, 20, true, false, 0, false, plain, false});
    all.push_back({ragged, SIE_BF16, 2, 1, 80, 80, true, false, 0, false, plain, false});
    all.push_back({ragged, SIE_F32, 2, 1, 80, 20, true, false, 0, false, plain, false, true});
    // Some rows of a long sequence: the last of 8,192, the first ones, and of one without turns.
    for (const std::vector<int32_t> &c :
         std::vector<std::vector<int32_t>>{{65, 8127, 8192}, {33, 0, 301}, {9, 11, 20}})
      all.push_back(
          {{c[0]}, SIE_F32, 2, 1, 64, 64, false, false, c[1], false, plain, false, false, 20, c[2]});
    all.push_back({{65, 2, 30}, SIE_BF16, 2, 0, 80, 20, true, false, 0, false, plain, false, false, 20});
    for (int32_t dtype : {SIE_F32, SIE_BF16})
      all.push_back({{128, 128, 128, 128}, dtype, 16, 8, 128, 128, true, false, 0, true, plain, true});
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<RopeCase>(config, layout, 2400 + index);
}

std::unique_ptr<Case> model_rope(const ModelShape &m, const Lengths &lengths) {
  return in_layout<RopeCase>(Config{lengths, SIE_BF16, m.heads, m.kv_heads, m.head_dim, m.head_dim,
                                    m.head_norm, false, 0, true, plain, true},
                             dense, 1);
}

}  // namespace harness
