// embed_cases.cc — embed_layernorm: tables, positions, types, norms, scales and quantised twins.
#include <math.h>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/norm_case.h"

namespace harness {

namespace {

struct Config {
  std::vector<int32_t> lengths;
  int64_t c;
  int32_t table, y;
  bool position, type;
  Twin twin;
  bool beta, bench;
  int32_t offset;
  Input input;
  int32_t norm = SIE_NORM_LAYER;
  float word_scale = 0;
  int32_t vocabulary = 50;
};

class EmbedCase : public NormCase {
 public:
  EmbedCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    static const char *const norms[] = {"", " rms", " no norm"};
    form = text("embed_layernorm%s tables=%s%s%s y=%s%s%s", norms[c_.norm], dtype_text(c_.table),
                c_.position ? " position" : "", c_.type ? " type" : "", dtype_text(c_.y), twin_names[c_.twin],
                c_.word_scale != 0 ? " scale" : "");
    shape =
        text("T=%lld B=%lld C=%lld input=%s", static_cast<long long>(sequences_.tokens()),
             static_cast<long long>(sequences_.count()), static_cast<long long>(c_.c), input_names[c_.input]);
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    word_ = table(layout, c_.vocabulary, &random);
    position_ = table(layout, positions, &random);
    type_ = table(layout, 2, &random);
    for (int64_t i = 0; i < sequences_.tokens(); i++) {
      // The last row of each table is used: it ends where the memory ends.
      ids_.push_back(i % 9 == 8 ? c_.vocabulary - 2 : random.below(c_.vocabulary - 1));
      types_.push_back(random.below(2));
    }
    make_outputs(&random, layout, sequences_.tokens(), c_.c, c_.y, c_.twin, c_.beta, c_.norm, 0);
  }

  bool present(const sie_ops *ops) const override { return ops->embed_layernorm != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_EMBED_LAYERNORM;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    int64_t row = sequences_.first(first), tokens = sequences_.first(first + count) - row;
    sie_embed_layernorm_args a = {};
    a.tokens = row_count(0, sequences_.tokens() - row, tokens);
    a.seqs = row_count(1, units - first, count);
    a.ids = ids_.data() + row;
    a.type_ids = c_.type ? types_.data() + row : nullptr;
    a.cu_seqlens = sequences_.cu(first, count);
    a.word = word_->tensor();
    if (c_.position) a.position = position_->tensor();
    if (c_.type) a.type = type_->tensor();
    a.position_offset = c_.offset;
    a.norm = c_.norm;
    a.word_scale = c_.word_scale;
    a.gamma = c_.norm == SIE_NORM_NONE ? nullptr : gamma_.data();
    a.beta = beta();
    a.eps = eps_;
    a.c = c_.c;
    a.y = y_->tensor(row);
    if (yq_ != nullptr) a.yq = yq_->tensor(row);
    return ops->embed_layernorm(&a, share);
  }

  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = sequences_.first(u);
    *last = sequences_.first(u + 1);
  }

  void expect() override {}

  void verify(const char *backend) override {
    const double scale = c_.word_scale != 0 ? static_cast<double>(c_.word_scale) : 1;
    std::vector<double> x(static_cast<size_t>(c_.c));
    for (int64_t b = 0; b < units; b++) {
      for (int64_t i = 0; i < sequences_.length(b); i++) {
        int64_t t = sequences_.first(b) + i;
        double largest = 0;
        for (int64_t c = 0; c < c_.c; c++) {
          double terms[] = {scale * word_->get(ids_[static_cast<size_t>(t)], c),
                            c_.position ? position_->get(i + c_.offset, c) : 0,
                            c_.type ? type_->get(types_[static_cast<size_t>(t)], c) : 0};
          x[static_cast<size_t>(c)] = terms[0] + terms[1] + terms[2];
          largest = fmax(largest, fabs(terms[0]) + fabs(terms[1]) + fabs(terms[2]));
        }
        verify_row(backend, t, x, largest);
      }
    }
  }

  // The poisoned word is one that no other sequence has.
  void poison(int64_t u) override {
    word_->poison(c_.vocabulary - 1);
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) {
      ids_[static_cast<size_t>(t)] = c_.vocabulary - 1;
    }
  }

  double flops() const override { return 10.0 * static_cast<double>(sequences_.tokens() * c_.c); }
  // A word's row and the result's; positions and types are few enough to stay in a cache.
  double bytes() const override {
    return static_cast<double>(sequences_.tokens() * c_.c) *
           ((c_.table == SIE_F32 ? 4 : 2) + (c_.y == SIE_F32 ? 4 : 2));
  }

 private:
  static constexpr int32_t positions = 700;

  std::unique_ptr<Rows> table(Layout layout, int64_t rows, Random *random) {
    std::unique_ptr<Rows> t(new Rows(random, layout, rows, c_.c, c_.table));
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < c_.c; i++) t->set(r, i, input_value(random, c_.input, r));
    }
    return t;
  }

  Config c_;
  Sequences sequences_;
  Array<int32_t> ids_, types_;
  std::unique_ptr<Rows> word_, position_, type_;
};

}  // namespace

std::unique_ptr<Case> make_embed(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    const std::vector<int32_t> none = {}, one = {1}, ragged = {7, 1, 0, 33, 64, 2, 0, 130, 31},
                               empty = {0, 0}, longest = {513, 1};
    for (int32_t table : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (int32_t y : {SIE_F32, SIE_BF16, SIE_F16}) {
        if (table == SIE_F16 && y == SIE_BF16) continue;
        for (Twin twin : {no_twin, twin_u8, twin_u8_outlier, twin_f8})
          all.push_back({ragged, 65, table, y, true, true, twin, true, false, 0, plain});
        for (Twin twin : {no_twin, twin_u8})
          all.push_back({ragged, 33, table, y, true, false, twin, false, false, 2, plain});
        all.push_back({ragged, 64, table, y, false, false, no_twin, true, false, 0, plain});
        // RMSNorm of words alone, and words alone, as in models with rotary positions.
        all.push_back({ragged, 40, table, y, false, false, no_twin, false, false, 0, plain, SIE_NORM_RMS});
        all.push_back({ragged, 40, table, y, false, false, no_twin, false, false, 0, plain, SIE_NORM_NONE});
        all.push_back(
            {ragged, 64, table, y, false, false, no_twin, false, false, 0, plain, SIE_NORM_NONE, 27.75f});
      }
    }
    all.push_back(
        {ragged, 65, SIE_BF16, SIE_BF16, true, true, no_twin, true, false, 1, plain, SIE_NORM_LAYER, 3.5f});
    for (const std::vector<int32_t> &lengths : {none, one, empty, longest}) {
      all.push_back({lengths, 31, SIE_F32, SIE_F32, true, true, twin_u8, true, false, 1, plain});
      all.push_back({lengths, 32, SIE_BF16, SIE_BF16, true, true, no_twin, true, false, 1, plain});
    }
    for (int64_t c : {1, 7, 384})
      all.push_back({ragged, c, SIE_F32, SIE_F32, true, true, twin_u8, true, false, 1, plain});
    for (int64_t c : {1, 7, 384, 768, 1024})
      all.push_back({{3, 0, 9}, c, SIE_BF16, SIE_BF16, true, true, twin_f8, true, false, 1, plain});
    // Sequence counts with which a GPU's warp finds a token's sequence in two steps, and in three.
    for (int32_t count : {31, 32, 70, 1100}) {
      std::vector<int32_t> many;
      for (int32_t b = 0; b < count; b++) many.push_back(b % 7 == 3 ? 2 : (b % 3 == 0 ? 1 : 0));
      all.push_back({many, 8, SIE_BF16, SIE_BF16, true, false, no_twin, true, false, 0, plain});
    }
    for (int64_t c :
         {512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192}) {  // a GPU's one to eight warps a row
      for (int32_t t : {SIE_BF16, SIE_F16})
        all.push_back({{1, 0, 2}, c, t, t, true, true, twin_f8, true, false, 1, plain});
    }
    for (Input input : {outliers, equal_rows, offset}) {
      for (Twin twin : {twin_u8, twin_u8_outlier, twin_f8})
        all.push_back({ragged, 130, SIE_F32, SIE_F32, true, true, twin, true, false, 0, input});
    }
    for (int32_t t : {SIE_F32, SIE_BF16})
      all.push_back({{128, 128, 128, 128}, 384, t, t, true, true, no_twin, true, true, 0, plain});
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<EmbedCase>(config, layout, 500 + index);
}

std::unique_ptr<Case> model_embed(const ModelShape &m, const Lengths &lengths) {
  return in_layout<EmbedCase>(Config{lengths, m.width, SIE_BF16, SIE_BF16, !m.rotary, !m.rotary, no_twin,
                                     m.norm == SIE_NORM_LAYER, true, 0, plain, m.norm, 0, 30000},
                              dense, 1);
}

}  // namespace harness
