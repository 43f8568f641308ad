// sparse_cases.cc — output_sparse: the positive columns of rows, with and without room for all of
// them.
#include <math.h>

#include "tests/model_cases.h"
#include "tests/row_input.h"
#include "tests/sparse_rows.h"

namespace harness {

namespace {

// `kept` of 1000 columns are positive; others are 0, negative, or (Input holes) NaN.
struct SparseConfig {
  int64_t b, c;
  int32_t kept, room, dtype, transform;
  Input input;
  bool bench;
};

constexpr const char *transforms[] = {"", " log", " log log"};

class SparseCase : public Case {
 public:
  SparseCase(const SparseConfig &config, Layout layout, int seed) : c_(config) {
    form = text("output_sparse %s%s", dtype_text(c_.dtype), transforms[c_.transform]);
    shape = text("B=%lld C=%lld kept=%d room=%d input=%s", static_cast<long long>(c_.b),
                 static_cast<long long>(c_.c), c_.kept, c_.room, input_names[c_.input]);
    units = c_.b;
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, layout, c_.b, c_.c, SIE_F32));
    out_.reset(new SparseRows(&random, c_.b, c_.room, c_.dtype));
    for (int64_t r = 0; r < c_.b; r++) {
      for (int64_t i = 0; i < c_.c; i++) x_->set(r, i, value(&random, r));
    }
    outputs = {out_->rows()};
  }

  bool present(const sie_ops *ops) const override { return ops->output_sparse != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_OUTPUT_SPARSE;
    b.rows = b.seqs = c_.b;
    b.c = c_.c;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_output_sparse_args a = {};
    a.seqs = row_count(0, c_.b - first, count);
    a.c = c_.c;
    a.x = x_->tensor(first);
    a.transform = c_.transform;
    a.items = out_->items(first, count);
    a.out = out_->base();
    return ops->output_sparse(&a, share);
  }
  void expect() override {}
  void verify(const char *backend) override {
    const std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
    for (int64_t r = 0; r < c_.b; r++) {
      std::vector<SparseEntry> want;
      for (int64_t i = 0; i < c_.c; i++) {
        double x = x_->get(r, i);
        if (!(x > 0)) continue;
        for (int32_t log = 0; log < c_.transform; log++) x = log1p(x);
        want.push_back({i, x});
      }
      out_->verify(what.c_str(), r, want, c_.transform == SIE_SPARSE_AS_IS ? 0 : 4e-7);
    }
  }
  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override { return static_cast<double>(c_.b * c_.c); }
  double bytes() const override { return 4.0 * flops(); }

 private:
  float value(Random *random, int64_t r) const {
    const float x = fabsf(input_value(random, c_.input, r));
    if (random->below(1000) < c_.kept) return x;
    if (c_.input == holes && random->below(3) == 0) return NAN;
    return random->below(2) == 0 ? 0.0f : -x;
  }

  SparseConfig c_;
  std::unique_ptr<Rows> x_;
  std::unique_ptr<SparseRows> out_;
};

}  // namespace

std::unique_ptr<Case> make_sparse(int index) {
  static const std::vector<std::pair<SparseConfig, Layout>> list = [] {
    std::vector<SparseConfig> all;
    const int64_t columns[] = {1, 3, 7, 31, 32, 33, 64, 65, 127, 128, 129, 130, 513};
    for (int32_t dtype : {SIE_F32, SIE_F16}) {
      for (int32_t transform : {SIE_SPARSE_AS_IS, SIE_SPARSE_LOG, SIE_SPARSE_LOG_LOG}) {
        size_t i = 0;
        for (int64_t c : columns) {
          // Room for all, for all but some, for one.
          const int32_t rooms[] = {static_cast<int32_t>(c), static_cast<int32_t>((c + 3) / 4), 1};
          const int64_t rows[] = {9, 1, 3};
          all.push_back(
              {rows[i % 3], c, i % 2 == 0 ? 400 : 1000, rooms[i % 3], dtype, transform, plain, false});
          i++;
        }
        all.push_back({0, 9, 400, 9, dtype, transform, plain, false});
        all.push_back({4, 300, 0, 7, dtype, transform, plain, false});  // no column is kept
        // Several steps of every warp of a GPU's CTA, and a last one that is cut short.
        all.push_back({3, 4500, 300, 1500, dtype, transform, plain, false});
        all.push_back({2, 2049, 1000, 2000, dtype, transform, plain, false});
        for (Input input : {outliers, equal_rows, denormals, holes, offset})
          all.push_back({6, 190, 500, 110, dtype, transform, input, false});
      }
      all.push_back({16, 30522, 7, 512, dtype, SIE_SPARSE_LOG, plain, true});
    }
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<SparseCase>(config, layout, 4300 + index);
}

std::unique_ptr<Case> model_sparse(const ModelShape &m, const Lengths &lengths) {
  return in_layout<SparseCase>(SparseConfig{static_cast<int64_t>(lengths.size()), vocabulary_of(m), 7, 512,
                                            SIE_F32, SIE_SPARSE_LOG, plain, true},
                               dense, 1);
}

}  // namespace harness
