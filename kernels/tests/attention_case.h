// attention_case.h — packed attention of one shape: full, causal and window masks, grouped heads,
// gathered queries, ALiBi, relative biases, prefixes, tables by distance.
#ifndef SIE_KERNELS_TESTS_ATTENTION_CASE_H
#define SIE_KERNELS_TESTS_ATTENTION_CASE_H

#include <math.h>

#include <algorithm>

#include "common/tol.h"
#include "harness.h"

namespace harness {
namespace attention {

enum Input { plain, outliers, equal_rows, sharp };
static const char *const input_names[] = {"plain", "outliers", "equal", "sharp"};

// The tables of disentangled attention and the buckets of distances −reach … reach: those of DeBERTa,
// or, where there are more rows than distances, in steps of several rows.
struct Positions {
  int32_t rows, reach;  // rows 0: none
  bool key, query;      // which tables there are
};

struct Config {
  std::vector<int32_t> lengths;
  int32_t heads, kv_heads, head_dim, mask, window;
  int32_t dtype;
  bool gathered;  // one query a sequence
  bool packed;    // q, k, v are columns of one value
  Input input;
  bool bench;
  bool alibi = false;
  bool first = false;  // gathered: the query is the first row of its sequence, not the last
  int32_t reach = -1;  // of the relative bias; -1: none
  int32_t ahead = 0;   // queries behind the last key: the keys are the first rows of each sequence
  std::vector<int32_t> prefix = {};  // keys before each sequence's own, in rows of their own; empty: none
  bool joined = false;               // those keys are rows of k and v after all, and the prefixes have none
  Positions positions = {};
};

// The same with queries behind the last key.
inline Config longer_than_keys(Config c, int32_t ahead) {
  c.ahead = ahead;
  return c;
}

// The same with tables by distance.
inline Config disentangled(Config c, const Positions &positions) {
  c.positions = positions;
  return c;
}

// The same with a relative bias.
inline Config biased(Config c, int32_t reach) {
  c.reach = reach;
  return c;
}

// The same behind prefixes, which are taken in turn.
inline Config behind(Config c, const std::vector<int32_t> &prefixes) {
  for (size_t b = 0; b < c.lengths.size(); b++) c.prefix.push_back(prefixes[b % prefixes.size()]);
  return c;
}

class AttentionCase : public Case {
 public:
  AttentionCase(const Config &config, Layout layout, int seed)
      : c_(config),
        sequences_(own_keys_of(config)),
        queries_(queries_of(config)),
        all_keys_(all_keys_of(config)) {
    static const char *const masks[] = {"full", "causal", "window"};
    form = text("attention %s D=%d mask=%s%s%s%s%s%s%s%s", dtype_text(c_.dtype), c_.head_dim, masks[c_.mask],
                c_.gathered ? (c_.first ? " gathered first" : " gathered") : "",
                c_.kv_heads != c_.heads ? " grouped" : "", c_.alibi ? " alibi" : "",
                c_.reach >= 0 ? " bias" : "", c_.ahead > 0 ? " first keys" : "",
                c_.prefix.empty() ? "" : " prefix", positions_text(c_.positions));
    shape =
        text("T=%lld B=%zu H=%d longest=%lld input=%s", static_cast<long long>(sequences_.tokens()),
             c_.lengths.size(), c_.heads, static_cast<long long>(all_keys_.longest()), input_names[c_.input]);
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    int64_t q_columns = int64_t{c_.heads} * c_.head_dim, kv_columns = int64_t{c_.kv_heads} * c_.head_dim;
    // As columns of one value the rows lie three times as far apart, and a row ends where the next
    // begins.
    int64_t extra = c_.packed ? q_columns + kv_columns : 0;
    auto make = [&](int64_t rows, int64_t columns, int64_t gap) {
      return std::unique_ptr<Rows>(new Rows(&random, layout, rows, columns, c_.dtype, {false, -1}, gap));
    };
    q_ = make(queries_.tokens(), q_columns, extra);
    k_ = make(sequences_.tokens(), kv_columns, extra);
    v_ = make(sequences_.tokens(), kv_columns, extra);
    y_ = make(queries_.tokens(), q_columns, 0);
    int64_t prefix_rows = 0;
    for (size_t b = 0; b < c_.prefix.size(); b++) {
      // Sequences share rows, each from a row of its own on.
      prefix_first_.push_back(static_cast<int32_t>(5 * b % 7));
      prefix_keys_.push_back(c_.joined ? 0 : c_.prefix[b]);
      prefix_rows = std::max<int64_t>(prefix_rows, prefix_first_[b] + prefix_keys_[b]);
    }
    if (c_.prefix.empty()) {
      prefix_k_.reset(new Rows(0, kv_columns, c_.dtype));
      prefix_v_.reset(new Rows(0, kv_columns, c_.dtype));
    } else {
      prefix_k_ = make(prefix_rows, kv_columns, kv_columns);
      prefix_v_ = make(prefix_rows, kv_columns, 0);
    }
    // As in the paper, 2^(−8·(h+1)/H), and one head that has none.
    for (int32_t h = 0; h < c_.heads; h++)
      slopes_.push_back(h == 1 ? 0.0f
                               : exp2f(-8.0f * static_cast<float>(h + 1) / static_cast<float>(c_.heads)));
    for (Table *table : {&pos_key_, &pos_query_}) {
      for (std::unique_ptr<Rows> *form : {&table->wide, &table->stored})
        form->reset(new Rows(&random, layout, c_.positions.rows, q_columns,
                             form == &table->wide ? SIE_F32 : c_.dtype, {false, -1}, 16));
    }
    fill(&random);
    fill_bias(&random);
    fill_buckets();
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->attention != nullptr; }

  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_ATTENTION;
    b.rows = sequences_.tokens() > queries_.tokens() ? sequences_.tokens() : queries_.tokens();
    b.seqs = units;
    b.c = int64_t{c_.heads} * c_.head_dim;
    b.max_len = all_keys_.longest();
    b.head_dim = c_.head_dim;
    b.heads = c_.heads;
    b.kv_heads = c_.kv_heads;
    b.position_rows = c_.positions.rows;
    b.bucket_reach = c_.positions.reach;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }

  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = queries_.first(u);
    *last = queries_.first(u + 1);
  }

  void expect() override {
    expected_.reset(new Rows(queries_.tokens(), q_->columns(), SIE_F32));
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, *expected_);
  }

  void verify(const char *backend) override {
    double q_norm = largest_norm(*q_), k_norm = fmax(largest_norm(*k_), largest_norm(*prefix_k_)), v_max = 0;
    for (const Rows *v : {v_.get(), prefix_v_.get()}) {
      for (int64_t r = 0; r < v->rows(); r++) {
        for (int64_t i = 0; i < v->columns(); i++) v_max = fmax(v_max, fabs(v->get(r, i)));
      }
    }
    double bias = c_.alibi ? static_cast<double>(slopes_[0]) * static_cast<double>(all_keys_.longest()) : 0;
    if (c_.reach >= 0) bias += largest_bias;
    const double scale = static_cast<double>(scale_);
    if (c_.positions.key) bias += scale * q_norm * largest_norm(*pos_key_.wide);
    if (c_.positions.query) bias += scale * k_norm * largest_norm(*pos_query_.wide);
    double own =
        sie_tol_attention(c_.dtype, c_.head_dim, static_cast<double>(scale_) * q_norm * k_norm + bias, v_max);
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
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) {
      k_->poison(t);
      v_->poison(t);
    }
    for (int64_t q = queries_.first(u); q < queries_.first(u + 1); q++) q_->poison(q);
  }

  double flops() const override {
    const double products = 2 + (c_.positions.key ? 1 : 0) + (c_.positions.query ? 1 : 0);
    double sum = 0;
    for (int64_t b = 0; b < units; b++) {
      sum += 2 * products *
             static_cast<double>(seen(queries_.length(b), all_keys_.length(b)) * c_.heads * c_.head_dim);
    }
    return sum;
  }
  // Calls from here on are for these queries of each sequence; last 0: for all.
  void set_block(int32_t first, int32_t last) { block_ = {first, last}; }
  const Sequences &queries() const { return queries_; }
  // All of key t becomes a NaN or an infinity.
  void poison_key(int64_t t) {
    k_->poison(t);
    v_->poison(t);
  }
  // All of row r of the prefixes becomes a NaN or an infinity.
  void poison_prefix(int64_t r) {
    prefix_k_->poison(r);
    prefix_v_->poison(r);
  }
  // All of row r of the tables by distance becomes a NaN or an infinity.
  void poison_bucket(int64_t r) {
    for (Table *table : {&pos_key_, &pos_query_}) table->wide->poison(r), table->stored->poison(r);
  }
  // The row of those tables that a key `distance` before its query has.
  int64_t bucket(int64_t distance) const {
    const int64_t reach = c_.positions.reach, near = std::clamp(distance, -reach, reach);
    return buckets_[static_cast<size_t>(bias_guard + reach + near)];
  }
  // Whether the query at position i sees key j.
  bool sees(int64_t i, int64_t j) const {
    if (c_.mask == SIE_MASK_FULL) return true;
    return j <= i + (c_.mask == SIE_MASK_WINDOW ? c_.window : 0) &&
           (c_.mask == SIE_MASK_CAUSAL || j >= i - c_.window);
  }
  // Takes over the keys, the values, the biases and of each sequence the query of another case,
  // which has them all.
  void gather(const AttentionCase &all) {
    bias_ = all.bias_;
    pos_key_.copy(all.pos_key_), pos_query_.copy(all.pos_query_);
    for (int64_t r = 0; r < k_->rows(); r++)
      copy_row(k_.get(), r, *all.k_, r), copy_row(v_.get(), r, *all.v_, r);
    for (int64_t u = 0; u < units; u++) {
      if (sequences_.length(u) > 0) copy_row(q_.get(), u, *all.q_, all.place_of_one(u, c_.first));
    }
  }
  // Takes over all of a case with prefixes; this one, which is joined, has their keys among its own.
  void join(const AttentionCase &parts) {
    bias_ = parts.bias_;
    for (int64_t r = 0; r < q_->rows(); r++) copy_row(q_.get(), r, *parts.q_, r);
    for (int64_t u = 0; u < units; u++) {
      const int32_t split = parts.prefix_keys_[static_cast<size_t>(u)];
      for (int64_t j = 0; j < sequences_.length(u); j++) {
        const bool shared = j < split;
        const int64_t row = sequences_.first(u) + j,
                      source = shared ? parts.prefix_first_[static_cast<size_t>(u)] + j
                                      : parts.sequences_.first(u) + j - split;
        copy_row(k_.get(), row, shared ? *parts.prefix_k_ : *parts.k_, source);
        copy_row(v_.get(), row, shared ? *parts.prefix_v_ : *parts.v_, source);
      }
    }
  }
  // Calls from here on state no prefixes at all.
  void leave_out_prefixes() { without_prefixes_ = true; }
  // The row of the query that is sequence u's first or last.
  int64_t place_of_one(int64_t u, bool first) const {
    return first ? queries_.first(u) : queries_.first(u + 1) - 1;
  }

  double bytes() const override {
    return 2.0 * static_cast<double>(queries_.tokens() * c_.heads + sequences_.tokens() * c_.kv_heads) *
           c_.head_dim * (c_.dtype == SIE_F32 ? 4 : 2);
  }

 private:
  // Pairs of a query and a key that the mask lets through.
  int64_t seen(int64_t queries, int64_t keys) const {
    if (c_.mask == SIE_MASK_FULL || queries != keys) return queries * keys;
    int64_t pairs = 0;
    for (int64_t i = 0; i < queries; i++) {
      const int64_t before = c_.mask == SIE_MASK_CAUSAL || i < c_.window ? i : c_.window;
      const int64_t behind =
          c_.mask == SIE_MASK_CAUSAL ? 0 : (keys - 1 - i < c_.window ? keys - 1 - i : c_.window);
      pairs += before + 1 + behind;
    }
    return pairs;
  }

  // Rows of k of each sequence, and with those of its prefix.
  static std::vector<int32_t> own_keys_of(const Config &c) { return c.joined ? all_keys_of(c) : c.lengths; }
  static std::vector<int32_t> all_keys_of(const Config &c) {
    std::vector<int32_t> lengths = c.lengths;
    for (size_t b = 0; b < c.prefix.size(); b++) lengths[b] += c.prefix[b];
    return lengths;
  }

  static void copy_row(Rows *to, int64_t row, const Rows &from, int64_t source) {
    for (int64_t i = 0; i < to->columns(); i++) to->set(row, i, static_cast<float>(from.get(source, i)));
  }

  // Rows of q of each sequence.
  static std::vector<int32_t> queries_of(const Config &c) {
    if (c.gathered) return std::vector<int32_t>(c.lengths.size(), 1);
    std::vector<int32_t> lengths = c.lengths;
    for (int32_t &length : lengths) length += c.ahead;
    return lengths;
  }

  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    const int64_t row = sequences_.first(first), query = queries_.first(first);
    sie_attention_args a = {};
    a.q_rows = row_count(0, queries_.tokens() - query, queries_.first(first + count) - query);
    a.seqs = row_count(1, units - first, count);
    a.cu_q = queries_.cu(first, count);
    a.cu_kv = sequences_.cu(first, count);
    a.max_kv = all_keys_.longest_of(first, count);
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
    a.alibi_slopes = c_.alibi ? slopes_.data() : nullptr;
    a.q_first = block_.first;
    a.q_last = block_.last;
    a.queries_first = c_.first || c_.ahead > 0 ? 1 : 0;
    a.bias = c_.reach >= 0 ? bias_.data() + bias_guard : nullptr;
    a.bias_reach = c_.reach >= 0 ? c_.reach : 0;
    if (c_.positions.rows > 0) {
      const bool wide = stream_of(ops) == nullptr;
      if (c_.positions.key) a.pos_key = pos_key_.tensor(wide);
      if (c_.positions.query) a.pos_query = pos_query_.tensor(wide);
      a.buckets = buckets_.data() + bias_guard;
      a.bucket_reach = c_.positions.reach;
      a.position_rows = c_.positions.rows;
    }
    if (!c_.prefix.empty() && !without_prefixes_) {
      a.prefix_k = prefix_k_->tensor();
      a.prefix_v = prefix_v_->tensor();
      a.prefix_first = prefix_first_.data() + first;
      a.prefix_keys = prefix_keys_.data() + first;
    }
    sie_status status = list_work(ops, &a);
    return status == SIE_OK ? ops->attention(&a, share) : status;
  }

  // Makes the work list of a GPU table on the host, in no more bytes than the bound says.
  sie_status list_work(const sie_ops *ops, sie_attention_args *a) {
    if (ops->attention_work == nullptr) return SIE_OK;
    const sie_op_bounds b = bounds();
    const int64_t bytes = ops->attention_work_bytes(&b);
    if (bytes < 0) return SIE_UNSUPPORTED;
    const size_t guard = 64;
    work_.assign(static_cast<size_t>(bytes) + guard, 0xff);
    sie_status status = ops->attention_work(a, work_.data());
    for (size_t i = static_cast<size_t>(bytes); i < work_.size(); i++) {
      CHECK(work_[i] == 0xff, "%s %s %s: wrote behind its work list", ops->name, form.c_str(), shape.c_str());
    }
    a->work = work_.data();
    return status;
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
    const int terms = 1 + (c_.positions.key ? 1 : 0) + (c_.positions.query ? 1 : 0);
    scale_ = 1 / sqrtf(static_cast<float>(terms * c_.head_dim));
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
    for (Table *table : {&pos_key_, &pos_query_}) {
      fill_rows(table->stored.get(), false);
      for (int64_t r = 0; r < table->wide->rows(); r++) copy_row(table->wide.get(), r, *table->stored, r);
    }
    fill_rows(prefix_k_.get(), false);
    fill_rows(prefix_v_.get(), true);
  }

  // Another value for each head and distance, between NaNs: what is read beside a row is seen.
  void fill_bias(Random *random) {
    if (c_.reach < 0) return;
    for (int i = 0; i < bias_guard; i++) bias_.push_back(NAN);
    for (int32_t i = 0; i < c_.heads * (2 * c_.reach + 1); i++)
      bias_.push_back(random->real() * static_cast<float>(largest_bias));
    for (int i = 0; i < bias_guard; i++) bias_.push_back(NAN);
  }

  // DeBERTa's: one row a distance up to a quarter of the rows, then by the logarithm. What is read
  // beside them is no row.
  void fill_buckets() {
    const auto [rows, reach, key, query] = c_.positions;
    if (rows == 0) return;
    const int32_t span = rows / 2, linear = span / 2;
    buckets_.insert(buckets_.end(), bias_guard, -1000000000);
    for (int32_t d = -reach; d <= reach; d++) {
      int32_t bucket = d;
      if (rows > 2 * reach + 1) {
        bucket = (d + reach) * (rows - 1) / std::max(2 * reach, 1) - span;
      } else if (abs(d) > linear) {
        const double far = log(static_cast<double>(abs(d)) / linear) /
                           log(static_cast<double>(reach - 1) / linear) * (linear - 1);
        bucket = static_cast<int32_t>(ceil(far)) + linear;
        if (d < 0) bucket = -bucket;
      }
      buckets_.push_back(std::clamp(bucket + span, 0, rows - 1));
    }
    buckets_.insert(buckets_.end(), bias_guard, -1000000000);
  }

  static const char *positions_text(const Positions &p) {
    if (p.rows == 0) return "";
    if (p.key && p.query) return " disentangled";
    return p.key ? " disentangled by key" : " disentangled by query";
  }

  struct Block {
    int32_t first, last;
  };

  // A table by distance, in f32 for a CPU and in the queries' type for a GPU: the same values.
  struct Table {
    std::unique_ptr<Rows> wide, stored;

    sie_tensor tensor(bool in_f32) const { return (in_f32 ? wide : stored)->tensor(); }
    void copy(const Table &from) {
      for (int64_t r = 0; r < wide->rows(); r++)
        copy_row(wide.get(), r, *from.wide, r), copy_row(stored.get(), r, *from.stored, r);
    }
  };

  static constexpr int bias_guard = 64;
  static constexpr double largest_bias = 4;

  Config c_;
  Block block_ = {0, 0};
  bool without_prefixes_ = false;
  Sequences sequences_, queries_;  // rows of k and v, and of q
  Sequences all_keys_;             // keys, those of prefixes included
  float scale_ = 1;
  Array<float> slopes_, bias_;
  Array<uint8_t> work_;
  Array<int32_t> prefix_first_, prefix_keys_, buckets_;
  Table pos_key_, pos_query_;
  std::unique_ptr<Rows> q_, k_, v_, prefix_k_, prefix_v_, y_, expected_;
};

}  // namespace attention
}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ATTENTION_CASE_H
