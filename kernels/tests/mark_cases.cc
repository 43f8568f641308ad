// mark_cases.cc — mark_nonfinite: rows with one element, or one scale, that is NaN or infinite, among
// rows of ordinary and of extreme elements.
#include <math.h>

#include "tests/row_input.h"

namespace harness {

namespace {

struct MarkConfig {
  std::vector<int32_t> lengths;  // none: a row each, without cu_seqlens
  int64_t seqs, c;
  int32_t x;
  int32_t group;  // of e4m3; of u8: 1 with outliers
  int32_t which;
  bool place;
  Input input;
  bool bench;
  bool scales = false;  // bad scales of good elements, in place of bad elements
};

class MarkCase : public Case {
 public:
  MarkCase(const MarkConfig &config, Layout layout, int seed)
      : c_(config),
        sequences_(config.lengths.empty() ? std::vector<int32_t>(static_cast<size_t>(config.seqs), 1)
                                          : config.lengths) {
    const char *const names[] = {"all", "first", "", "last"};
    form = text("mark_nonfinite x=%s%s", dtype_text(c_.x),
                c_.x == SIE_F8E4M3 ? text(" group=%d", c_.group).c_str() : "");
    units = sequences_.count();
    shape = text("R=%lld B=%lld C=%lld %s%s%s%s input=%s", static_cast<long long>(sequences_.tokens()),
                 static_cast<long long>(units), static_cast<long long>(c_.c), names[c_.which],
                 c_.lengths.empty() ? " alone" : "", c_.place ? " placed" : "", c_.scales ? " scales" : "",
                 input_names[c_.input]);
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    const bool quantised = c_.x == SIE_U8 || c_.x == SIE_F8E4M3;
    const int64_t rows = sequences_.tokens();
    Rows plain(&random, operand(layout), rows, c_.c, quantised ? SIE_F32 : c_.x);
    x_.reset(new Rows(&random, operand(layout), rows, c_.c, c_.x, {c_.group == 1, c_.group}));
    fill(quantised ? &plain : x_.get(), &random, c_.input);
    if (!bench && !c_.scales) plant(quantised ? &plain : x_.get(), &random);
    if (quantised) quantise(plain);
    if (c_.scales) plant(x_.get(), &random);
    flags_.reset(new Rows(units, 1, SIE_F32));  // four bytes each
    for (int64_t b = 0; b < units; b++) place_.push_back(static_cast<int32_t>(units - 1 - b));
    outputs = {flags_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->mark_nonfinite != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_MARK_NONFINITE;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_mark_nonfinite_args a = {};
    a.rows = row_count(0, sequences_.tokens() - sequences_.first(first),
                       sequences_.first(first + count) - sequences_.first(first));
    a.seqs = row_count(1, units - first, count);
    if (!c_.lengths.empty()) a.cu_seqlens = sequences_.cu(first, count);
    a.which = c_.which;
    a.c = c_.c;
    a.x = x_->tensor(sequences_.first(first));
    if (c_.place) a.place = place_.data() + first;
    a.flags = static_cast<int32_t *>(flags_->at(c_.place ? 0 : first));
    return ops->mark_nonfinite(&a, share);
  }
  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = c_.place ? place_[static_cast<size_t>(u)] : u;
    *last = *first + 1;
  }
  void expect() override {}
  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      int64_t at, end;
      rows_of(b, &at, &end);
      const int32_t got = *static_cast<int32_t *>(flags_->at(at)), want = marked(b) ? 1 : -1;
      CHECK(got == want, "%s %s %s: flag %lld is %d, %d expected", backend, form.c_str(), shape.c_str(),
            static_cast<long long>(b), got, want);
    }
  }
  void poison(int64_t u) override {
    for (int64_t r = sequences_.first(u); r < sequences_.first(u + 1); r++) x_->poison(r);
  }
  double flops() const override { return static_cast<double>(sequences_.tokens() * c_.c); }
  double bytes() const override { return flops() * (c_.x == SIE_F32 ? 4 : 2); }

 private:
  // Two of three sequences get a bad element; its place and kind vary.
  void plant(Rows *to, Random *random) {
    const float kinds[] = {NAN, INFINITY, -INFINITY, -NAN};
    bad_.assign(static_cast<size_t>(sequences_.tokens()), false);
    for (int64_t b = 0; b < units; b++) {
      const int64_t length = sequences_.length(b);
      if (length == 0) continue;
      if (b % 3 == 2 && c_.scales) continue;
      if (b % 3 == 2) {  // the largest number that is finite
        const float most =
            to->dtype() == SIE_F16 ? 65504.0f : (to->dtype() == SIE_BF16 ? 0x1.fep127f : 0x1.fffffep127f);
        to->set(sequences_.first(b) + length / 2, c_.c / 2, b % 2 == 0 ? most : -most);
        continue;
      }
      const int64_t rows[] = {0, length - 1, random->below(static_cast<int32_t>(length))},
                    columns[] = {random->below(static_cast<int32_t>(c_.c)), 0, c_.c - 1};
      const int64_t row = sequences_.first(b) + rows[b / 3 % 3];
      const int64_t column = columns[(b + length) % 3];
      if (c_.scales && c_.x == SIE_F8E4M3 && b % 4 == 3) {  // a NaN with a sign, below a scale that is good
        static_cast<uint8_t *>(to->tensor(row).p)[column] = 0xff;
      } else if (c_.scales) {
        to->tensor(row).scale[c_.group == 128 ? column / 128 : 0] = kinds[b % 4];
      } else {
        to->set(row, column, kinds[b % 4]);
      }
      bad_[static_cast<size_t>(row)] = true;
    }
  }
  bool marked(int64_t b) const {
    const int64_t first = sequences_.first(b), end = sequences_.first(b + 1);
    for (int64_t r = first; r < end && !bench; r++) {
      const bool named = c_.which == 0 || r == (c_.which == SIE_POOL_CLS ? first : end - 1);
      if (named && bad_[static_cast<size_t>(r)]) return true;
    }
    return false;
  }
  void quantise(const Rows &from) {
    sie_quantise_rows_args a = {};
    a.rows = row_count(0, from.rows(), from.rows());
    a.c = c_.c;
    a.x = from.tensor();
    a.y = x_->tensor();
    sie_op_bounds bounds = {};
    bounds.kind = SIE_OP_QUANTISE_ROWS;
    bounds.c = c_.c;
    Scratch scratch(sie_ref_ops(), bounds);
    const sie_share share = scratch.share(0, 1);
    sie_ref_ops()->quantise_rows(&a, &share);
  }

  MarkConfig c_;
  Sequences sequences_;
  std::vector<bool> bad_;
  std::unique_ptr<Rows> x_, flags_;
  Array<int32_t> place_;
};

std::vector<MarkConfig> configs() {
  std::vector<MarkConfig> all;
  const std::vector<int32_t> none = {}, empty = {0, 0},
                             ragged = {7, 1, 0, 33, 2, 130, 1, 0, 64, 65, 3, 31, 32, 1}, one = {1},
                             few = {2, 1, 1, 3, 0, 2, 1};
  struct Type {
    int32_t x, group;
  };
  for (const Type &t : {Type{SIE_F32, -1},
                        {SIE_BF16, -1},
                        {SIE_F16, -1},
                        {SIE_U8, 0},
                        {SIE_U8, 1},
                        {SIE_F8E4M3, -1},
                        {SIE_F8E4M3, 128}}) {
    bool place = false;
    for (int64_t c : {1, 7, 8, 15, 16, 17, 33, 64, 65, 127, 129, 384, 1000}) {
      all.push_back({ragged, 0, c, t.x, t.group, 0, place, plain, false});
      place = !place;
    }
    for (int32_t which : {SIE_POOL_CLS, SIE_POOL_LAST}) {
      all.push_back({ragged, 0, 40, t.x, t.group, which, true, plain, false});
      all.push_back({none, 19, 72, t.x, t.group, which, false, plain, false});
    }
    for (const std::vector<int32_t> &lengths : {one, empty})
      all.push_back({lengths, 0, 24, t.x, t.group, 0, false, plain, false});
    for (int64_t seqs : {0, 1, 9, 65}) all.push_back({none, seqs, 96, t.x, t.group, 0, true, plain, false});
    for (Input input : {outliers, denormals, positive})
      all.push_back({ragged, 0, 70, t.x, t.group, 0, true, input, false});
    // 33 blocks: more than a warp has lanes.
    if (t.x == SIE_U8 || t.x == SIE_F8E4M3)
      all.push_back({few, 0, t.group == 128 ? 4110 : 40, t.x, t.group, 0, true, plain, false, true});
    // More sequences than a warp's search takes in one step, in a last stretch that is whole, or is not.
    for (size_t seqs : {64, 65}) {
      if (t.x != SIE_F32) break;
      all.push_back({std::vector<int32_t>(seqs, 1), 0, 9, t.x, t.group, 0, false, plain, false});
    }
    if (t.x == SIE_F32 || t.x == SIE_BF16)
      all.push_back({std::vector<int32_t>(16, 32), 0, 768, t.x, t.group, 0, true, plain, true});
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_mark(int index) {
  static const std::vector<std::pair<MarkConfig, Layout>> list = in_layouts(configs());
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<MarkCase>(config, layout, 5200 + index);
}

}  // namespace harness
