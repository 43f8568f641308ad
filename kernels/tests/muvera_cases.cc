// muvera_cases.cc — muvera: queries and documents, with and without projection, sketch, filling and
// centring.
#include <math.h>

#include "common/muvera.h"
#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/out_rows.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct Config {
  std::vector<int32_t> lengths;
  int32_t dtype;
  int32_t c, repetitions, bits, projected, final_dims;
  bool query, fill_empty, center_tokens, center;
  OutType out;
  bool bench;
  bool normalize = false;
};

class MuveraCase : public Case {
 public:
  MuveraCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form =
        text("muvera x=%s %s%s%s%s%s%s%s %s", dtype_text(c_.dtype), c_.query ? "query" : "document",
             c_.projected != 0 ? " projected" : "", c_.final_dims != 0 ? " sketch" : "",
             c_.fill_empty ? " filled" : "", c_.center_tokens ? " centred tokens" : "",
             c_.center ? " centred" : "", c_.normalize ? " normalised" : "", out_type_text(c_.out).c_str());
    shape = text("T=%lld B=%lld C=%d R=%d k=%d P=%d F=%d", static_cast<long long>(sequences_.tokens()),
                 static_cast<long long>(sequences_.count()), c_.c, c_.repetitions, c_.bits, c_.projected,
                 c_.final_dims);
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    block_ = (int64_t{1} << c_.bits) * (c_.projected != 0 ? c_.projected : c_.c);
    columns_ = c_.final_dims != 0 ? c_.final_dims : c_.repetitions * block_;
    Random random(static_cast<uint32_t>(seed));
    make_tables(&random);
    x_.reset(new Rows(&random, layout, sequences_.tokens(), c_.c, c_.dtype));
    for (int64_t b = 0; b < units; b++) fill_sequence(b, &random);
    out_.reset(new OutRows(&random, units, columns_, c_.out));
    expected_.reset(new OutRows(nullptr, units, columns_, c_.out));
    values_.reset(new OutRows(nullptr, units, columns_, {SIE_F32, c_.out.dims, c_.out.normalize}));
    outputs = {out_->rows()};
  }

  bool present(const sie_ops *ops) const override { return ops->muvera != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_MUVERA;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    b.projected = c_.projected != 0 ? c_.projected : c_.c;
    b.repetitions = c_.repetitions;
    b.simhash_bits = c_.bits;
    b.final_dims = columns_;
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

  // No token is near a plane (fill_sequence), so partitions agree and only sums may be off by
  // rounding.
  void verify(const char *backend) override {
    std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
    for (int64_t b = 0; b < units; b++) {
      const float *values = static_cast<const float *>(values_->rows()->at(b));
      double largest = 0;
      for (int64_t i = 0; i < values_->dims(); i++)
        largest = fmax(largest, fabs(static_cast<double>(values[i])));
      out_->verify(what.c_str(), b, *expected_, sequences_.length(b) == 0, 4e-6 * largest, values);
    }
  }

  void poison(int64_t u) override {
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) x_->poison(t);
  }
  double flops() const override {
    return static_cast<double>(sequences_.tokens()) * c_.c * c_.repetitions * (2.0 * c_.bits + 1) +
           static_cast<double>(units * c_.repetitions * block_);
  }
  double bytes() const override {
    return static_cast<double>(sequences_.tokens()) * c_.c * (c_.dtype == SIE_F32 ? 4 : 2) +
           4.0 * static_cast<double>(units * columns_);
  }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       OutRows *out) {
    const int64_t row = sequences_.first(first);
    sie_muvera_args a = {};
    a.tokens = row_count(0, sequences_.tokens() - row, sequences_.first(first + count) - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.c = c_.c;
    a.x = x_->tensor(row);
    a.repetitions = c_.repetitions;
    a.simhash_bits = c_.bits;
    a.projected = c_.projected;
    a.final_dims = c_.final_dims;
    a.is_query = c_.query ? 1 : 0;
    a.fill_empty = c_.fill_empty ? 1 : 0;
    a.center_tokens = c_.center_tokens ? 1 : 0;
    a.normalize = c_.normalize ? 1 : 0;
    a.center = c_.center ? center_.data() : nullptr;
    a.simhash = simhash_.data();
    if (c_.projected != 0) a.ams = ams_.data();
    if (c_.final_dims != 0) {
      a.sketch = sketch_.data();
      if (stream_of(ops) != nullptr) {
        a.sketch_output = sketch_output_.data();
        a.sketch_source = sketch_source_.data();
      }
    }
    a.items = out->items(first, count);
    a.out = out->base();
    return ops->muvera(&a, share);
  }

  static int32_t with_sign(int32_t index, Random *random) { return random->below(2) == 0 ? index : ~index; }

  void make_tables(Random *random) {
    for (int64_t i = 0; i < int64_t{c_.repetitions} * c_.c * c_.bits; i++)
      simhash_.push_back(random->real() + random->real() + random->real());
    for (int32_t i = 0; i < c_.repetitions * c_.c && c_.projected != 0; i++)
      ams_.push_back(with_sign(random->below(c_.projected), random));
    center_.reserve(static_cast<size_t>(c_.c));  // no more: a sanitizer sees who reads on
    for (int32_t i = 0; i < c_.c; i++) center_.push_back(0.3f * random->real());
    if (c_.final_dims == 0) return;
    for (int64_t i = 0; i < c_.repetitions * block_; i++)
      sketch_.push_back(with_sign(random->below(c_.final_dims), random));
    sketch_output_.resize(sketch_.size());
    sketch_source_.resize(sketch_.size());
    std::vector<int32_t> room(static_cast<size_t>(c_.final_dims + 2 * block_));
    sie_order_sketch(sketch_.data(), c_.repetitions, block_, c_.final_dims, room.data(),
                     sketch_output_.data(), sketch_source_.data());
  }

  // Tokens drawn until none is so near a plane that rounding could move it to the other side.
  void fill_sequence(int64_t b, Random *random) {
    const int64_t first = sequences_.first(b), tokens = sequences_.length(b);
    do {
      for (int64_t t = first; t < first + tokens; t++) {
        float shift = 0.5f * random->real();
        // The second of three or more is zero: on every plane at once, which counts as below it.
        const bool zero = t == first + 1 && tokens > 2;
        for (int64_t c = 0; c < c_.c; c++) x_->set(t, c, zero ? 0.0f : random->real() + shift);
      }
    } while (!bench && !clear_of_planes(first, tokens));
  }

  double norm_of(int64_t t) const {
    double sum = 0;
    for (int64_t c = 0; c < c_.c; c++) sum += x_->get(t, c) * x_->get(t, c);
    return fmax(sqrt(sum), 1e-12);
  }

  bool clear_of_planes(int64_t first, int64_t tokens) const {
    std::vector<double> mean(static_cast<size_t>(c_.c)), x(static_cast<size_t>(c_.c));
    std::vector<double> norms;
    for (int64_t t = first; t < first + tokens; t++) norms.push_back(c_.normalize ? norm_of(t) : 1);
    auto left = [&](int64_t t, size_t c) {
      return x_->get(t, static_cast<int64_t>(c)) / norms[static_cast<size_t>(t - first)] -
             (c_.center ? static_cast<double>(center_[c]) : 0);
    };
    for (size_t c = 0; c < mean.size() && c_.center_tokens; c++) {
      for (int64_t t = first; t < first + tokens; t++) mean[c] += left(t, c) / static_cast<double>(tokens);
    }
    // A single token less its own mean is zero under any rounding.
    for (int64_t t = first; t < first + tokens && !(c_.center_tokens && tokens == 1); t++) {
      double norm = 0;
      for (size_t c = 0; c < x.size(); c++) {
        x[c] = left(t, c) - mean[c];
        norm += x[c] * x[c];
      }
      for (int64_t p = 0; p < int64_t{c_.repetitions} * c_.bits; p++) {
        double s = 0, plane = 0;
        for (size_t c = 0; c < x.size(); c++) {
          double m =
              static_cast<double>(simhash_[static_cast<size_t>(p / c_.bits * c_.c + static_cast<int64_t>(c)) *
                                               static_cast<size_t>(c_.bits) +
                                           static_cast<size_t>(p % c_.bits)]);
          s += x[c] * m;
          plane += m * m;
        }
        if (fabs(s) < 1e-5 * sqrt(norm * plane)) return false;
      }
    }
    return true;
  }

  Config c_;
  Sequences sequences_;
  int64_t block_, columns_;
  Array<float> simhash_, center_;
  Array<int32_t> ams_, sketch_, sketch_output_, sketch_source_;
  std::unique_ptr<Rows> x_;
  std::unique_ptr<OutRows> out_, expected_, values_;
};

}  // namespace

std::unique_ptr<Case> make_muvera(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    // Tokens of `ragged` fit one CTA of the partition kernel, those of `several_ctas` do not.
    const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0}, ragged = {7, 1, 0, 33, 2, 0, 65, 16},
                               several_ctas = {7, 1, 0, 33, 2, 0, 65, 31, 32, 64}, longer = {130, 513};
    const OutType values = {SIE_F32, 0, false};
    auto add = [&](const std::vector<int32_t> &lengths, int32_t dtype, int32_t c, int32_t r, int32_t k,
                   int32_t p, int32_t f, bool query, bool fill, bool center_tokens, bool center,
                   const OutType &out) {
      all.push_back({lengths, dtype, c, r, k, p, f, query, fill, center_tokens, center, out, false});
    };
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (bool query : {false, true}) {
        add(several_ctas, dtype, 32, 3, 3, 0, 0, query, false, false, false, values);
        add(ragged, dtype, 40, 3, 4, 8, 0, query, false, false, false, values);
        add(ragged, dtype, 32, 3, 3, 0, 100, query, false, false, false, values);
        add(ragged, dtype, 33, 2, 4, 5, 70, query, false, false, false, values);
        add(ragged, dtype, 32, 2, 4, 8, 0, query, true, false, false, values);
        add(query ? ragged : several_ctas, dtype, 32, 2, 4, 8, 0, query, false, true, false, values);
        add(ragged, dtype, 32, 2, 4, 8, 0, query, false, false, true, values);
        add(ragged, dtype, 24, 2, 5, 0, 64, query, true, true, true, {SIE_F32, 48, true});
      }
      for (int32_t out : {SIE_F16, SIE_I8, SIE_U8, SIE_BINARY}) {
        for (bool normalize : {false, true})
          add(ragged, dtype, 32, 2, 3, 8, normalize ? 50 : 0, normalize, false, false, false,
              {out, 0, normalize});
      }
      for (const std::vector<int32_t> &lengths : {none, one, empty, longer})
        add(lengths, dtype, 32, 2, 4, 8, 0, false, lengths.size() == 2, false, false, values);
    }
    // Rows divided by their norms first, combined with everything else that is done to them.
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (bool query : {false, true}) {
        for (int32_t what = 0; what < 4; what++) {
          all.push_back({several_ctas, dtype, 33, 2, 4, what % 2 == 0 ? 8 : 0, 0, query, !query,
                         what % 2 == 1, what >= 2, values, false, true});
        }
      }
    }
    all.push_back({several_ctas, SIE_BF16, 32, 2, 4, 8, 0, false, true, false, false, values, false, true});
    all.push_back({{9, 0, 2, 65},
                   SIE_BF16,
                   128,
                   2,
                   5,
                   0,
                   300,
                   false,
                   true,
                   true,
                   false,
                   {SIE_F32, 0, true},
                   false,
                   true});
    all.push_back({{5, 3}, SIE_F32, 600, 2, 3, 40, 64, false, false, true, false, values, false, true});
    // More rounds of the sketch than are told apart, and more additions than a CTA asks for at a time.
    add({3, 0, 1}, SIE_F32, 2048, 1, 0, 0, 1, false, false, false, false, values);
    // A round for each addition, and the last one alone in what a CTA asks for.
    add({3, 1}, SIE_F32, 1280, 1, 0, 0, 1, false, false, false, false, values);
    add({3, 1}, SIE_F32, 513, 1, 0, 0, 7, false, false, false, false, values);
    add({9, 2, 5}, SIE_BF16, 128, 2, 6, 0, 3000, false, false, false, false, {SIE_F32, 0, true});
    // More tokens of a warp's partitions than it has lanes, where they fill the memory that they change lanes in; and
    // more tokens than a warp keeps, of which some warps have few.
    add({256, 40, 200}, SIE_F32, 5, 3, 6, 2, 0, false, false, false, false, values);
    add({200, 70}, SIE_F32, 5, 2, 6, 1, 0, false, false, false, false, values);
    add({260, 40, 289}, SIE_BF16, 16, 2, 6, 0, 0, false, false, false, false, values);
    // The widths of real models, and the smallest tables there are.
    add({31, 0, 5}, SIE_BF16, 128, 2, 6, 0, 512, false, false, false, false, {SIE_F32, 0, true});
    add({31, 0, 5}, SIE_F32, 128, 2, 6, 8, 0, false, true, false, false, {SIE_F32, 0, true});
    add({9, 2}, SIE_BF16, 96, 3, 5, 16, 0, true, false, false, false, values);
    add({9, 0, 2}, SIE_F32, 7, 1, 0, 0, 0, false, true, false, false, values);
    add({9, 0, 2}, SIE_F32, 1, 1, 1, 1, 1, true, false, false, false, values);
    add({33, 3}, SIE_F32, 16, 1, 8, 2, 0, false, true, false, false, values);
    add({33, 3}, SIE_F32, 16, 1, 7, 2, 0, true, false, false, false, values);
    // Columns that are not a multiple of what a lane takes, and more repetitions than a CTA of a
    // GPU takes.
    add({9, 0, 2}, SIE_F32, 7, 2, 4, 0, 0, false, false, false, false, values);
    add({5, 0, 3}, SIE_F32, 20, 17, 2, 0, 0, false, false, false, false, values);
    add({3, 0, 9}, SIE_F32, 33, 2, 4, 5, 0, false, false, true, false, values);
    add({3, 0, 9}, SIE_F32, 33, 2, 4, 5, 0, false, false, false, true, values);
    // A projection whose tables fill a warp's memory to the last byte.
    add({3, 2}, SIE_F32, 24, 1, 2, 7, 0, false, false, false, false, values);
    // Wide tokens, few projected columns: sums of sums.
    add({5, 3}, SIE_F32, 520, 1, 2, 8, 0, false, false, false, false, values);
    // Blocks and rows too large for a CTA's shared memory, and tokens wider than one pass sums.
    const std::vector<int32_t> several = {3, 0, 2, 1, 4, 2};
    add(several, SIE_BF16, 48, 1, 10, 0, 0, false, false, false, false, {SIE_I8, 0, true});
    add(several, SIE_F32, 48, 1, 10, 0, 90, true, false, false, false, {SIE_F32, 0, true});
    add({2, 1, 3}, SIE_F32, 24, 1, 10, 0, 24600, false, false, false, false, values);
    // A row that 96 KiB hold, as nearly every one of an older card's CTA has.
    add({2, 1}, SIE_F32, 44, 1, 9, 0, 0, true, false, false, false, values);
    add({5, 3}, SIE_BF16, 600, 1, 3, 0, 0, false, true, false, false, values);
    add({5, 3}, SIE_F32, 600, 2, 3, 40, 64, false, false, true, false, values);
    for (int32_t tokens : {32, 128, 512}) {
      all.push_back({{tokens, tokens, tokens, tokens},
                     SIE_F32,
                     128,
                     40,
                     6,
                     0,
                     10240,
                     false,
                     false,
                     false,
                     false,
                     {SIE_F32, 0, true},
                     true});
      all.push_back({{tokens, tokens, tokens, tokens},
                     SIE_F32,
                     128,
                     40,
                     6,
                     8,
                     0,
                     false,
                     false,
                     false,
                     false,
                     {SIE_F32, 0, true},
                     true});
    }
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<MuveraCase>(config, layout, 3000 + index);
}

std::unique_ptr<Case> model_muvera(const ModelShape &m, const Lengths &lengths) {
  return in_layout<MuveraCase>(
      Config{
          lengths, SIE_BF16, m.width, 40, 6, 0, 10240, false, false, false, false, {SIE_F32, 0, true}, true},
      dense, 1);
}

}  // namespace harness
