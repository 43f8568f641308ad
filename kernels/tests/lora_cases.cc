// lora_cases.cc — products with the adapter of each row's sequence, several in one batch.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct Config {
  std::vector<int32_t> lengths, ranks;  // of sequences; of adapters
  int64_t n, k;
  int32_t x;
  bool by_sequence;  // x has one row a sequence
  int32_t step;  // sequence b has adapter b·step modulo one more than there are, the last of which is none
  Input input;
  bool bench;
};

class LoraCase : public Case {
 public:
  LoraCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form = text("lora x=%s%s", dtype_text(c_.x), c_.by_sequence ? " by sequence" : "");
    units = sequences_.count();
    shape = text("R=%lld B=%lld N=%lld K=%lld", static_cast<long long>(rows()), static_cast<long long>(units),
                 static_cast<long long>(c_.n), static_cast<long long>(c_.k));
    for (int32_t rank : c_.ranks) shape += text(" rank=%d", rank);
    shape += text(" input=%s", input_names[c_.input]);
    bench = c_.bench;
    const int32_t count = static_cast<int32_t>(c_.ranks.size());
    for (int64_t b = 0; b < units; b++) {
      const int32_t i = static_cast<int32_t>(b * c_.step % (count + 1));
      adapter_.push_back(i == count ? -1 : i);
    }
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), rows(), c_.k, c_.x));
    y_.reset(new Rows(&random, layout, rows(), c_.n, SIE_F32));
    fill(x_.get(), &random, c_.input);
    // Odd: shifted by one element, so that no two elements lie in one aligned word.
    const int64_t off = layout == odd ? 1 : 0;
    for (int32_t rank : c_.ranks) {
      max_rank_ = max_rank_ > rank ? max_rank_ : rank;
      add_matrix(&random, rank * c_.k, off, 1);
      add_matrix(&random, rank * c_.n, off, 0.5f);
    }
    for (size_t i = 0; i < c_.ranks.size(); i++) {
      wide_pairs_.push_back({wide_[2 * i].data() + off, wide_[2 * i + 1].data() + off, c_.ranks[i], SIE_F32});
      pairs_.push_back({halves_[2 * i].data() + off, halves_[2 * i + 1].data() + off, c_.ranks[i], c_.x});
    }
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->lora != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_LORA;
    b.rows = rows();
    b.seqs = units;
    b.n = c_.n;
    b.k = c_.k;
    b.max_len = sequences_.longest();
    b.max_rank = max_rank_;
    return b;
  }
  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = row(u);
    *last = row(u + 1);
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }
  void expect() override {
    expected_.reset(new Rows(rows(), c_.n, SIE_F32));
    Scratch scratch(sie_ref_ops(), bounds());
    const sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, *expected_);
  }
  void verify(const char *backend) override {
    // GPUs keep the inner sum in x's type.
    const bool rounds = strncmp(backend, "cuda", 4) == 0;
    for (int64_t b = 0; b < units; b++) {
      const int32_t adapter = adapter_[static_cast<size_t>(b)];
      for (int64_t r = row(b); r < row(b + 1); r++) {
        const std::vector<double> t = adapter < 0 ? std::vector<double>() : inner(r, adapter, rounds);
        for (int64_t n = 0; n < c_.n; n++) {
          const double want = expected_->get(r, n), got = y_->get(r, n);
          const double tolerance = adapter < 0 ? 0 : tolerance_of(t, adapter, n) + SIE_TOL_U * fabs(want);
          CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend,
                form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(n), got, want,
                tolerance);
        }
      }
    }
  }
  void poison(int64_t u) override {
    for (int64_t r = row(u); r < row(u + 1); r++) x_->poison(r);
  }
  double flops() const override {
    double sum = 0;
    for (int64_t b = 0; b < units; b++) {
      const int32_t adapter = adapter_[static_cast<size_t>(b)];
      if (adapter < 0) continue;
      sum += 2.0 * static_cast<double>((row(b + 1) - row(b)) * c_.ranks[static_cast<size_t>(adapter)] *
                                       (c_.k + c_.n));
    }
    return sum;
  }
  double bytes() const override {
    return static_cast<double>(rows() * ((c_.x == SIE_F32 ? 4 : 2) * c_.k + 4 * c_.n));
  }

 private:
  int64_t row(int64_t b) const { return c_.by_sequence ? b : sequences_.first(b); }
  int64_t rows() const { return row(sequences_.count()); }

  // The same values in f32 and, where x has 16 bits, in x's type, which holds them exactly; with a
  // NaN before and behind them.
  void add_matrix(Random *random, int64_t size, int64_t off, float scale) {
    wide_.emplace_back();
    halves_.emplace_back();
    for (int64_t i = 0; i < size + off; i++) {
      float value = random->real() * scale;
      const uint16_t bits = c_.x == SIE_F16 ? sie_f16_from_f32(value) : sie_bf16_from_f32(value);
      if (c_.x == SIE_F16) value = sie_f32_from_f16(bits);
      if (c_.x == SIE_BF16) value = sie_f32_from_bf16(bits);
      wide_.back().push_back(value);
      halves_.back().push_back(bits);
    }
    wide_.back().push_back(NAN);
    halves_.back().push_back(0xffff);
    for (int64_t i = 0; i < off; i++)
      wide_.back()[static_cast<size_t>(i)] = NAN, halves_.back()[static_cast<size_t>(i)] = 0xffff;
    wide_.back().shrink_to_fit();
    halves_.back().shrink_to_fit();
  }

  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    const bool halves = stream_of(ops) != nullptr && c_.x != SIE_F32;
    sie_lora_args a = {};
    a.rows = row_count(0, rows() - row(first), row(first + count) - row(first));
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = c_.by_sequence ? nullptr : sequences_.cu(first, count);
    a.adapter = adapter_.data() + first;
    a.n_adapters = static_cast<int32_t>(c_.ranks.size());
    a.max_rank = max_rank_;
    a.adapters = (halves ? pairs_ : wide_pairs_).data();
    a.n = c_.n;
    a.k = c_.k;
    a.x = x_->tensor(row(first));
    a.y = y.tensor(row(first));
    return ops->lora(&a, share);
  }

  static double norm(const float *v, int64_t count, int64_t step = 1) {
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
      squares += static_cast<double>(v[i * step]) * static_cast<double>(v[i * step]);
    return sqrt(squares);
  }

  // For each column of x·Aᵀ its magnitude, then how far it may be off.
  std::vector<double> inner(int64_t r, int32_t adapter, bool rounds) const {
    const int64_t rank = c_.ranks[static_cast<size_t>(adapter)];
    std::vector<double> sizes, errors;
    double x_norm = 0;
    for (int64_t k = 0; k < c_.k; k++) x_norm += x_->get(r, k) * x_->get(r, k);
    x_norm = sqrt(x_norm);
    const float *a = static_cast<const float *>(wide_pairs_[static_cast<size_t>(adapter)].a);
    for (int64_t i = 0; i < rank; i++) {
      double t = 0;
      for (int64_t k = 0; k < c_.k; k++) t += x_->get(r, k) * static_cast<double>(a[i * c_.k + k]);
      const double own = sie_tol_dot(c_.k, x_norm, norm(a + i * c_.k, c_.k));
      sizes.push_back(fabs(t) + own);
      errors.push_back(own + (rounds ? sie_tol_store(c_.x, fabs(t) + own) : 0));
    }
    sizes.insert(sizes.end(), errors.begin(), errors.end());
    return sizes;
  }
  double tolerance_of(const std::vector<double> &t, int32_t adapter, int64_t n) const {
    const size_t rank = t.size() / 2;
    const float *b = static_cast<const float *>(wide_pairs_[static_cast<size_t>(adapter)].b) +
                     n * static_cast<int64_t>(rank);
    double off = 0, t_norm = 0;
    for (size_t i = 0; i < rank; i++) {
      off += t[rank + i] * fabs(static_cast<double>(b[i]));
      t_norm += t[i] * t[i];
    }
    return off + sie_tol_dot(static_cast<int64_t>(rank), sqrt(t_norm), norm(b, static_cast<int64_t>(rank))) +
           1e-37;
  }

  Config c_;
  Sequences sequences_;
  int32_t max_rank_ = 0;
  std::unique_ptr<Rows> x_, y_, expected_;
  Array<int32_t> adapter_;
  std::vector<Array<float>> wide_;
  std::vector<Array<uint16_t>> halves_;
  Array<sie_lora_pair> wide_pairs_, pairs_;
};

std::vector<Config> configs() {
  std::vector<Config> all;
  // Around tiles of 64 rows, 16 rows and 16 columns; sequences shorter than a tile and longer.
  const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0},
                             ragged = {7, 1, 0, 33, 2, 130, 0, 64, 65, 63, 31, 32}, few = {20, 0, 9, 70},
                             short_ones(40, 3);
  for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (const std::vector<int32_t> &lengths : {none, one, empty, ragged})
      all.push_back({lengths, {8, 16}, 65, 40, x, false, 1, plain, false});
    const int64_t shapes[][2] = {{1, 1},   {7, 8},    {16, 31},  {17, 32}, {33, 33},
                                 {64, 72}, {66, 130}, {130, 64}, {200, 96}};
    for (const int64_t *s : shapes)
      all.push_back({ragged, {4, 16, 32}, s[0], s[1], x, false, 3, plain, false});
    // Ranks around a product's 8 and 16, a warp's 64 at once, panels of 16 and 48, and the largest.
    for (int32_t rank : {1, 2, 7, 15, 17, 24, 48, 50, 63, 64, 65, 128, 130})
      all.push_back({few, {rank, 8}, 40, 48, x, false, 1, plain, false});
    all.push_back({few, {512}, 24, 24, x, false, 1, plain, false});
    // One adapter for all, none for any, neighbours that share one, and an adapter that does not
    // change this linear.
    all.push_back({ragged, {16}, 72, 64, x, false, 0, plain, false});
    all.push_back({ragged, {}, 72, 64, x, false, 1, plain, false});
    all.push_back({short_ones, {16, 8, 3, 5}, 40, 40, x, false, 2, plain, false});
    all.push_back({ragged, {0, 12}, 72, 64, x, false, 1, plain, false});
    for (int32_t step : {0, 1, 3})
      all.push_back({std::vector<int32_t>(70, 1), {16, 8}, 36, 56, x, true, step, plain, false});
    for (Input input : {outliers, equal_rows, denormals}) {
      if (input == outliers && x == SIE_F16) continue;  // t would leave f16
      all.push_back({ragged, {16, 8}, 48, 64, x, false, 1, input, false});
    }
    // More rows than the CPU's blocks, and columns for several CTAs of a GPU.
    all.push_back({{300, 5}, {8}, 48, 40, x, false, 0, plain, false});
    all.push_back({few, {16}, 1000, 40, x, false, 1, plain, false});
    if (x == SIE_F16) continue;
    all.push_back({std::vector<int32_t>(4, 128), {16, 16}, 1024, 1024, x, false, 1, plain, true});
    all.push_back({{16}, {16}, 1024, 1024, x, false, 1, plain, true});
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_lora(int index) {
  static const std::vector<std::pair<Config, Layout>> list = in_layouts(configs());
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<LoraCase>(config, layout, 5000 + index);
}

std::unique_ptr<Case> model_lora(const ModelShape &m, const Lengths &lengths) {
  return in_layout<LoraCase>(Config{lengths, {16, 16}, m.width, m.width, SIE_BF16, false, 1, plain, true},
                             dense, 1);
}

}  // namespace harness
