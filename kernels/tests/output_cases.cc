// output_cases.cc — output_rows and pool_output: every type, cut and normalised or not. NumPy's own
// bits: golden_test.cc.
#include <math.h>

#include <algorithm>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/out_rows.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct OutputConfig {
  int64_t b, c;
  OutType out;
  Input input;
  bool bench;
};

class OutputCase : public Case {
 public:
  OutputCase(const OutputConfig &config, Layout layout, int seed) : c_(config) {
    form = text("output_rows %s", out_type_text(c_.out).c_str());
    shape = text("B=%lld C=%lld dims=%d input=%s", static_cast<long long>(c_.b), static_cast<long long>(c_.c),
                 c_.out.dims, input_names[c_.input]);
    units = c_.b;
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, layout, c_.b, c_.c, SIE_F32));
    out_.reset(new OutRows(&random, c_.b, c_.c, c_.out));
    expected_.reset(new OutRows(nullptr, c_.b, c_.c, c_.out));
    fill(x_.get(), &random, c_.input);
    outputs = {out_->rows()};
  }

  bool present(const sie_ops *ops) const override { return ops->output_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_OUTPUT_ROWS;
    b.rows = b.seqs = c_.b;
    b.c = c_.c;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, out_.get());
  }
  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, c_.b, expected_.get());
  }

  // Without a norm the formula is exact. With one, its sum may be off by rounding: one step of a
  // level, and a rounding of a float.
  void verify(const char *backend) override {
    std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
    for (int64_t r = 0; r < c_.b; r++) {
      out_->verify(what.c_str(), r, *expected_, !c_.out.normalize || c_.out.dtype == SIE_BINARY, 0, nullptr);
    }
  }

  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override {
    return 4.0 * static_cast<double>(c_.b * (c_.out.dims != 0 ? c_.out.dims : c_.c));
  }
  double bytes() const override { return flops(); }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       OutRows *out) {
    sie_output_rows_args a = {};
    a.seqs = row_count(0, c_.b - first, count);
    a.c = c_.c;
    a.x = x_->tensor(first);
    a.items = out->items(first, count);
    a.out = out->base();
    return ops->output_rows(&a, share);
  }

  OutputConfig c_;
  std::unique_ptr<Rows> x_;
  std::unique_ptr<OutRows> out_, expected_;
};

struct PoolOutputConfig {
  std::vector<int32_t> lengths;
  int64_t c;
  int32_t x, pooling;
  bool by_sequence;
  OutType out;
  Input input;
  bool bench;
  bool kept = false;  // the rows were kept of another space
};

class PoolOutputCase : public Case {
 public:
  PoolOutputCase(const PoolOutputConfig &config, Layout layout, int seed)
      : c_(config), sequences_(config.lengths) {
    form = text("pool_output x=%s%s %s%s %s", dtype_text(c_.x), c_.by_sequence ? " by sequence" : "",
                pooling_text(c_.pooling), c_.kept ? " of kept rows" : "", out_type_text(c_.out).c_str());
    units = sequences_.count();
    shape =
        text("rows=%lld B=%lld C=%lld dims=%d input=%s", static_cast<long long>(rows()),
             static_cast<long long>(units), static_cast<long long>(c_.c), c_.out.dims, input_names[c_.input]);
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, layout, rows(), c_.c, c_.x));
    out_.reset(new OutRows(&random, units, c_.c, c_.out));
    expected_.reset(new OutRows(nullptr, units, c_.c, c_.out));
    values_.reset(new OutRows(nullptr, units, c_.c, {SIE_F32, c_.out.dims, c_.out.normalize}));
    fill(x_.get(), &random, c_.input);
    for (int64_t i = 0; i < c_.c; i++) w_.push_back(random.real());
    w_.push_back(NAN);  // behind the last weight: a score that reads it shows
    kept_.reset(new Kept(&random, sequences_));
    outputs = {out_->rows()};
  }

  bool present(const sie_ops *ops) const override { return ops->pool_output != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_POOL_OUTPUT;
    b.rows = x_->rows();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, out_.get());
  }
  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, expected_.get());
    call_into(sie_ref_ops(), &share, 0, units, values_.get());
  }

  // A single row's conversion is exact; means may be off by rounding, which a division by their
  // norm keeps small against the largest element.
  void verify(const char *backend) override {
    std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
    for (int64_t b = 0; b < units; b++) {
      const float *values = static_cast<const float *>(values_->rows()->at(b));
      double scale = 1;  // of the row before it was normalised, against after
      int64_t first = c_.by_sequence ? b : sequences_.first(b);
      int64_t rows = c_.by_sequence ? 1 : sequences_.length(b);
      if (c_.pooling == SIE_POOL_CLS || c_.pooling == SIE_POOL_LAST) rows = rows < 1 ? rows : 1;
      bool exact = rows <= 1 || c_.pooling == SIE_POOL_MAX;
      double factor = c_.pooling == SIE_POOL_MEAN_SQRT ? sqrt(static_cast<double>(rows)) : 1;
      double largest = 0;
      for (int64_t r = first; r < first + rows; r++) {
        for (int64_t i = 0; i < c_.c; i++) largest = fmax(largest, fabs(x_->get(r, i)));
      }
      if (c_.out.normalize) scale = norm_of_means(b);
      double tolerance =
          (factor * sie_tol_mean(rows, largest) + (c_.pooling == SIE_POOL_ATTENTION ? 2e-5 * largest : 0)) /
          scale;
      out_->verify(what.c_str(), b, *expected_, exact && (!c_.out.normalize || c_.out.dtype == SIE_BINARY),
                   tolerance, values);
    }
  }

  void poison(int64_t u) override {
    if (c_.by_sequence) return x_->poison(u);
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) x_->poison(t);
  }
  double flops() const override { return static_cast<double>(rows() * c_.c); }
  double bytes() const override { return flops() * (c_.x == SIE_F32 ? 4 : 2); }

 private:
  int64_t rows() const { return c_.by_sequence ? units : sequences_.tokens(); }

  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       OutRows *out) {
    sie_pool_output_args a = {};
    a.seqs = row_count(0, units - first, count);
    a.cu_seqlens = c_.by_sequence ? nullptr : sequences_.cu(first, count);
    a.mode = c_.pooling;
    a.longest = std::max(1, static_cast<int32_t>(sequences_.longest_of(first, count)));
    a.c = c_.c;
    a.x = x_->tensor(c_.by_sequence ? first : sequences_.first(first));
    if (c_.pooling == SIE_POOL_ATTENTION) a.w = w_.data();
    if (c_.kept) a.index = kept_->index(sequences_.first(first)), a.cu_whole = kept_->cu_whole(first);
    a.items = out->items(first, count);
    a.out = out->base();
    return ops->pool_output(&a, share);
  }

  // The L2 norm of what sequence b was divided by, as far as rounding matters.
  double norm_of_means(int64_t b) {
    OutRows means(nullptr, units, c_.c, {SIE_F32, c_.out.dims, false});
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, &means);
    double sum = 0;
    for (int64_t i = 0; i < means.dims(); i++) sum += means.element(b, i) * means.element(b, i);
    return fmax(sqrt(sum), 1e-12);
  }

  PoolOutputConfig c_;
  Sequences sequences_;
  Array<float> w_;
  std::unique_ptr<Kept> kept_;
  std::unique_ptr<Rows> x_;
  std::unique_ptr<OutRows> out_, expected_, values_;
};

const int32_t out_types[] = {SIE_F32, SIE_F16, SIE_I8, SIE_U8, SIE_BINARY};

}  // namespace

std::unique_ptr<Case> make_output(int index) {
  static const std::vector<std::pair<OutputConfig, Layout>> list = [] {
    std::vector<OutputConfig> all;
    const int64_t columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 513};
    for (int32_t dtype : out_types) {
      for (bool normalize : {false, true}) {
        for (size_t i = 0; i < 10; i++) {
          int32_t cut = i % 2 == 0 ? 0 : static_cast<int32_t>((columns[i] + 1) / 2);
          all.push_back({static_cast<int64_t>(i % 4), columns[i], {dtype, cut, normalize}, plain, false});
          all.push_back({9, columns[i], {dtype, static_cast<int32_t>(columns[i]), normalize}, plain, false});
        }
        // Rows of a warp, and of a GPU's whole CTA.
        for (int64_t c : {2048, 2056}) all.push_back({2, c, {dtype, 0, normalize}, plain, false});
        all.push_back({3, 4099, {dtype, 4093, normalize}, plain, false});
        for (Input input : {outliers, equal_rows, ties})
          all.push_back({12, 100, {dtype, 0, normalize}, input, false});
        if (!normalize) all.push_back({12, 100, {dtype, 0, normalize}, denormals, false});
        if (!normalize && (dtype == SIE_I8 || dtype == SIE_U8))
          all.push_back({12, 100, {dtype, 0, normalize}, holes, false});
        all.push_back({64, 384, {dtype, 0, normalize}, plain, true});
      }
    }
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<OutputCase>(config, layout, 1600 + index);
}

std::unique_ptr<Case> make_pool_output(int index) {
  static const std::vector<std::pair<PoolOutputConfig, Layout>> list = [] {
    std::vector<PoolOutputConfig> all;
    const std::vector<int32_t> none = {}, one = {1}, empty = {0},
                               ragged = {7, 1, 0, 33, 2, 0, 65, 31, 32, 64}, longest = {513, 0, 130};
    const int64_t columns[] = {1, 7, 31, 33, 64, 65, 130, 384};
    size_t i = 0;
    for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (int32_t pooling : {SIE_POOL_CLS, SIE_POOL_MEAN, SIE_POOL_LAST, SIE_POOL_ATTENTION,
                              SIE_POOL_WEIGHTED_MEAN, SIE_POOL_MAX, SIE_POOL_MEAN_SQRT}) {
        for (int32_t dtype : out_types) {
          for (bool normalize : {false, true}) {
            int64_t c = columns[i++ % 8];
            int32_t cut = i % 3 == 0 ? static_cast<int32_t>((c + 1) / 2) : 0;
            all.push_back({ragged, c, x, pooling, false, {dtype, cut, normalize}, plain, false});
          }
        }
        for (const std::vector<int32_t> &lengths : {none, one, empty, longest})
          all.push_back({lengths, 40, x, pooling, false, {SIE_F32, 24, true}, plain, false});
        all.push_back({ragged, 1024, x, pooling, false, {SIE_I8, 0, true}, plain, false});
        // Both ends of what a GPU's groups of 1 to 16 warps hold of a row.
        for (int64_t c :
             {256, 264, 512, 513, 520, 768, 769, 776, 1032, 1536, 2048, 2056, 3080, 4096, 6144, 6152, 8192}) {
          // One mode of each kernel.
          bool narrow = pooling == SIE_POOL_CLS || pooling == SIE_POOL_LAST || pooling == SIE_POOL_MEAN_SQRT;
          if (narrow && c > 264) continue;
          if ((x == SIE_BF16) == (c % 512 == 0))
            all.push_back({{3, 0, 5}, c, x, pooling, false, {SIE_F32, 0, true}, plain, false});
        }
        // Parts of 1, 2 and 3 octets a thread, of 1 to 16 warps a row.
        if (x == SIE_BF16 && (pooling == SIE_POOL_MEAN || pooling == SIE_POOL_MAX)) {
          for (int64_t c : {200, 384, 513, 768, 1024, 1032, 2048, 3080, 6152})
            all.push_back({{2, 129, 0, 130}, c, x, pooling, false, {SIE_I8, 0, true}, plain, false});
        }
        all.push_back({ragged, 48, x, pooling, false, {SIE_F32, 0, true}, equal_rows, false});
        // Three rounds of scores, and all warps write the row.
        if (pooling == SIE_POOL_ATTENTION)
          all.push_back({{130}, 4096, x, pooling, false, {SIE_F32, 0, false}, plain, false});
      }
      all.push_back({ragged, 72, x, SIE_POOL_WEIGHTED_MEAN, false, {SIE_F32, 0, true}, plain, false, true});
      for (int32_t dtype : out_types)
        all.push_back({ragged, 72, x, SIE_POOL_CLS, true, {dtype, 0, dtype != SIE_BINARY}, plain, false});
    }
    for (int32_t x : {SIE_F32, SIE_BF16})
      all.push_back({{128, 128, 128, 128}, 384, x, SIE_POOL_MEAN, false, {SIE_F32, 0, true}, plain, true});
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<PoolOutputCase>(config, layout, 1900 + index);
}

std::unique_ptr<Case> model_output(const ModelShape &m, const Lengths &lengths) {
  return in_layout<OutputCase>(
      OutputConfig{static_cast<int64_t>(lengths.size()), m.width, {SIE_I8, 0, true}, plain, true}, dense, 1);
}

std::unique_ptr<Case> model_pool_output(const ModelShape &m, const Lengths &lengths) {
  return in_layout<PoolOutputCase>(
      PoolOutputConfig{lengths, m.width, SIE_BF16, m.pooling, false, {SIE_F32, 0, true}, plain, true}, dense,
      1);
}

}  // namespace harness
