// attention_cases.cc — packed attention: ragged and empty sequences, masks, grouped heads, gathered queries.
#include <math.h>

#include "common/tol.h"
#include "harness.h"

namespace harness {

namespace {

enum Input { plain, outliers, equal_rows, sharp };
const char *const input_names[] = {"plain", "outliers", "equal", "sharp"};

struct Config {
  std::vector<int32_t> lengths;
  int32_t heads, kv_heads, head_dim, mask, window;
  int32_t dtype;
  bool gathered;  // one query a sequence
  bool packed;    // q, k, v are columns of one value
  Input input;
  bool bench;
};

class AttentionCase : public Case {
 public:
  AttentionCase(const Config &config, int seed) : c_(config) {
    static const char *const masks[] = {"full", "causal", "window"};
    form = text("attention %s D=%d mask=%s%s%s", dtype_text(c_.dtype), c_.head_dim, masks[c_.mask],
                c_.gathered ? " gathered" : "", c_.kv_heads != c_.heads ? " grouped" : "");
    cu_.push_back(0);
    one_each_.push_back(0);
    for (int32_t length : c_.lengths) {
      cu_.push_back(cu_.back() + length);
      one_each_.push_back(one_each_.back() + 1);
      longest_ = length > longest_ ? length : longest_;
    }
    shape = text("T=%d B=%zu H=%d longest=%d input=%s", cu_.back(), c_.lengths.size(), c_.heads, longest_,
                 input_names[c_.input]);
    units = static_cast<int64_t>(c_.lengths.size());
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    int64_t q_columns = int64_t{c_.heads} * c_.head_dim, kv_columns = int64_t{c_.kv_heads} * c_.head_dim;
    int64_t queries = c_.gathered ? units : cu_.back();
    // As columns of one value the rows stand three times as far apart, and end where the next one's begin.
    int64_t extra = c_.packed ? q_columns + kv_columns : 0;
    q_.reset(new Rows(queries, q_columns, c_.dtype, gap + extra, shift));
    k_.reset(new Rows(cu_.back(), kv_columns, c_.dtype, gap + extra, shift));
    v_.reset(new Rows(cu_.back(), kv_columns, c_.dtype, gap + extra, shift));
    y_.reset(new Rows(queries, q_columns, c_.dtype, gap, shift));
    expected_.reset(new Rows(queries, q_columns, SIE_F32, 0, 0));
    fill(&random);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->attention != nullptr; }

  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_ATTENTION;
    b.rows = cu_.back();
    b.c = int64_t{c_.heads} * c_.head_dim;
    b.max_len = longest_;
    b.head_dim = c_.head_dim;
    b.heads = c_.heads;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }

  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    const std::vector<int32_t> &cu = c_.gathered ? one_each_ : cu_;
    *first = cu[static_cast<size_t>(u)];
    *last = cu[static_cast<size_t>(u) + 1];
  }

  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, *expected_);
  }

  void verify(const char *backend) override {
    double q_norm = largest_norm(*q_), k_norm = largest_norm(*k_), v_max = 0;
    for (int64_t r = 0; r < v_->rows(); r++) {
      for (int64_t i = 0; i < v_->columns(); i++) v_max = fmax(v_max, fabs(v_->get(r, i)));
    }
    double own =
        sie_tol_attention(c_.dtype, c_.head_dim, static_cast<double>(scale_) * q_norm * k_norm, v_max);
    for (int64_t r = 0; r < y_->rows(); r++) {
      for (int64_t i = 0; i < y_->columns(); i++) {
        double want = expected_->get(r, i), got = y_->get(r, i),
               tolerance = own + sie_tol_store(c_.dtype, want);
        CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend,
              form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(i), got, want,
              tolerance);
      }
    }
  }

  void poison(int64_t u) override {
    for (int32_t t = cu_[static_cast<size_t>(u)]; t < cu_[static_cast<size_t>(u) + 1]; t++) {
      k_->poison(t);
      v_->poison(t);
      if (!c_.gathered) q_->poison(t);
    }
  }

  double flops() const override {
    double sum = 0;
    for (int32_t length : c_.lengths) sum += 4.0 * length * length * c_.heads * c_.head_dim;
    return sum;
  }
  double bytes() const override {
    return static_cast<double>(cu_.back()) * c_.heads * c_.head_dim * 4 * (c_.dtype == SIE_F32 ? 4 : 2);
  }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    std::vector<int32_t> cu, one_each;
    for (int64_t b = 0; b <= count; b++) {
      cu.push_back(cu_[static_cast<size_t>(first + b)] - cu_[static_cast<size_t>(first)]);
      one_each.push_back(static_cast<int32_t>(b));
    }
    int64_t row = cu_[static_cast<size_t>(first)], query = c_.gathered ? first : row;
    int32_t queries = c_.gathered ? static_cast<int32_t>(count) : cu.back(),
            seqs = static_cast<int32_t>(count);
    sie_attention_args a = {};
    a.q_rows = {y.rows(), &queries};
    a.seqs = {units, &seqs};
    a.cu_q = c_.gathered ? one_each.data() : cu.data();
    a.cu_kv = cu.data();
    for (int64_t b = 0; b < count; b++) {
      int64_t length = cu[static_cast<size_t>(b) + 1] - cu[static_cast<size_t>(b)];
      a.max_kv = length > a.max_kv ? length : a.max_kv;
    }
    a.q = q_->tensor(query);
    a.k = k_->tensor(row);
    a.v = v_->tensor(row);
    a.heads = c_.heads;
    a.kv_heads = c_.kv_heads;
    a.head_dim = c_.head_dim;
    a.mask = c_.mask;
    a.window = c_.window;
    a.scale = scale_;
    a.y = y.tensor(query);
    return ops->attention(&a, share);
  }

  // The largest norm of one head of one row.
  double largest_norm(const Rows &x) const {
    double largest = 0;
    for (int64_t r = 0; r < x.rows(); r++) {
      for (int64_t h = 0; h < x.columns() / c_.head_dim; h++) {
        double sum = 0;
        for (int64_t i = 0; i < c_.head_dim; i++)
          sum += x.get(r, h * c_.head_dim + i) * x.get(r, h * c_.head_dim + i);
        largest = fmax(largest, sqrt(sum));
      }
    }
    return largest;
  }

  void fill(Random *random) {
    scale_ = 1 / sqrtf(static_cast<float>(c_.head_dim));
    float spread = c_.input == sharp ? 6.0f : 2.0f;
    auto fill_rows = [&](Rows *x, bool is_value) {
      for (int64_t r = 0; r < x->rows(); r++) {
        for (int64_t i = 0; i < x->columns(); i++) {
          float v = random->real() * spread;
          if (c_.input == equal_rows) v = 0.25f * static_cast<float>(i % 5);
          if (c_.input == outliers && is_value && random->below(40) == 0) v *= 1e4f;
          x->set(r, i, v);
        }
      }
    };
    fill_rows(q_.get(), false);
    fill_rows(k_.get(), false);
    fill_rows(v_.get(), true);
  }

  Config c_;
  int32_t longest_ = 0;
  float scale_ = 1;
  std::vector<int32_t> cu_, one_each_;
  std::unique_ptr<Rows> q_, k_, v_, y_, expected_;
};

}  // namespace

std::unique_ptr<Case> make_attention(int index) {
  static const std::vector<Config> list = [] {
    std::vector<Config> all;
    const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0},
                               ragged = {7, 1, 0, 33, 64, 2, 65, 0, 31, 130, 32};
    const std::vector<int32_t> longer = {16, 513, 17, 257},
                               blocks = {15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 128, 129};
    for (int32_t dtype : {SIE_F32, SIE_BF16}) {
      for (int32_t d : {32, 64}) {
        for (bool gathered : {false, true}) {
          for (const std::vector<int32_t> &lengths : {ragged, none, one, empty}) {
            all.push_back(
                {lengths, 3, 3, d, SIE_MASK_FULL, 0, dtype, gathered, lengths.size() > 3, plain, false});
          }
          all.push_back({longer, 1, 1, d, SIE_MASK_FULL, 0, dtype, gathered, true, plain, false});
          all.push_back({blocks, 2, 2, d, SIE_MASK_FULL, 0, dtype, gathered, true, plain, false});
        }
        for (Input input : {outliers, equal_rows, sharp}) {
          all.push_back({ragged, 2, 2, d, SIE_MASK_FULL, 0, dtype, false, true, input, false});
        }
        all.push_back({ragged, 4, 2, d, SIE_MASK_FULL, 0, dtype, false, false, plain, false});
        all.push_back({ragged, 2, 2, d, SIE_MASK_CAUSAL, 0, dtype, false, true, plain, false});
        all.push_back({ragged, 2, 2, d, SIE_MASK_WINDOW, 12, dtype, false, true, plain, false});
        all.push_back({ragged, 2, 2, d, SIE_MASK_WINDOW, 0, dtype, false, true, plain, false});
      }
      for (int32_t length : {16, 128, 512}) {
        std::vector<int32_t> lengths(static_cast<size_t>(512 / length), length);
        all.push_back({lengths, 12, 12, 32, SIE_MASK_FULL, 0, dtype, false, true, plain, true});
      }
    }
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new AttentionCase(list[static_cast<size_t>(index)], 1300 + index));
}

}  // namespace harness
