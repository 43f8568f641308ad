// host_found_test.cc — on every CPU table: spans, pairs and sparse encodings of small integers, byte for
// byte as the reference writes them, with operands that end where their memory does.
#include "at_end.h"

using namespace at_end;

namespace {

// `count` integers as elements of either float type.
struct Operand {
  AtEnd<float> wide;
  AtEnd<uint16_t> half;
  bool is_half;

  Operand(int64_t count, bool bf16, int64_t seed) : wide(count), half(count), is_half(bf16) {
    for (int64_t i = 0; i < count; i++) {
      const float v = small(i * 3 + seed);
      wide.data()[i] = v;
      uint32_t bits;
      memcpy(&bits, &v, sizeof bits);
      half.data()[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  sie_tensor tensor(int64_t ld) const {
    return is_half ? of(half.data(), ld, SIE_BF16) : of(wide.data(), ld, SIE_F32);
  }
};

void same(const char *name, const char *what, const std::vector<uint8_t> &y, std::vector<uint8_t> *want) {
  if (want->empty()) *want = y;
  for (size_t i = 0; i < y.size(); i++) {
    if (y[i] == (*want)[i]) continue;
    CHECK(false, "%s: %s: byte %zu is %d, %d expected", name, what, i, y[i], (*want)[i]);
    return;
  }
}

struct Sparse {
  float *x, *anchors;
  int64_t c;
  int32_t rows, repetitions, width, top, most;
  bool query;
};

void encode_sparsely(const Sparse &s) {
  const int32_t one = 1, cu[] = {0, s.rows};
  std::vector<uint8_t> want;
  for (const sie_ops *ops : tables()) {
    sie_out_item item = {};
    item.dtype = SIE_F32, item.dims = 900;
    std::vector<uint8_t> out(16 + 8 * 900, 0x55);
    sie_smve_args a = {};
    a.rows = {s.rows, &s.rows}, a.seqs = {1, &one};
    a.cu_seqlens = cu;
    a.c = s.c;
    a.x = of(s.x, s.c, SIE_F32);
    a.repetitions = s.repetitions, a.width = s.width, a.top = s.top, a.max_nonzeros = s.most;
    a.is_query = s.query ? 1 : 0;
    a.anchors = s.anchors;
    a.items = &item, a.out = out.data();
    sie_op_bounds bounds = {};
    bounds.kind = SIE_OP_SMVE;
    bounds.rows = bounds.max_len = s.rows, bounds.seqs = 1, bounds.c = s.c;
    bounds.repetitions = s.repetitions, bounds.top = s.top;
    bounds.n = static_cast<int64_t>(s.repetitions) * s.width;
    Scratch scratch(ops, bounds);
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->smve(&a, &share) == SIE_OK && scratch.intact(), "%s: smve of width %d", ops->name, s.width);
    same(ops->name, "smve", out, &want);
  }
}

}  // namespace

// Words with more spans than found keeps; logits that are equal to the threshold, and thresholds below 0,
// which lanes of no label would pass.
TEST(host_spans_end_with_their_operands) {
  for (int32_t types = 0; types < 16; types++) {
    for (int32_t labels : {1, 7, 9, 16, 24, 32}) {
      const float threshold = labels % 2 != 0 ? -1.0f : 13.0f;
      const int64_t k = types % 3 == 0 ? 8 : 5;
      const int32_t words = 9, one = 1, cu_words[] = {0, words}, cu_labels[] = {0, labels};
      const Operand starts(words * k, (types & 1) != 0, 1), ends(words * k, (types & 2) != 0, 2),
          rows(labels * k, (types & 4) != 0, 3), bias(labels, (types & 8) != 0, 4);
      const int32_t room = 400;
      const sie_out_item item = {SIE_F32, room, 0, threshold, 0};
      std::vector<uint8_t> want;
      for (const sie_ops *ops : tables()) {
        Array<int32_t> found(words * SIE_FOUND_WORDS, 0);
        std::vector<uint8_t> out(16 + 16 * room, 0x55);
        sie_spans_args a = {};
        a.words = {words, &words}, a.seqs = {1, &one};
        a.cu_words = cu_words, a.cu_labels = cu_labels;
        a.k = k;
        a.starts = starts.tensor(k), a.ends = ends.tensor(k), a.labels = rows.tensor(k),
        a.bias = bias.tensor(1);
        a.widest = 6;
        a.found = found.data(), a.found_ld = SIE_FOUND_WORDS;
        a.items = &item, a.out = out.data();
        sie_op_bounds bounds = {};
        bounds.kind = SIE_OP_SPANS;
        bounds.rows = bounds.max_len = words, bounds.seqs = 1, bounds.k = k, bounds.labels = labels;
        Scratch scratch(ops, bounds);
        const sie_share share = scratch.share(0, 1);
        for (int32_t write : {0, 1}) {
          a.write = write;
          CHECK(ops->spans(&a, &share) == SIE_OK && scratch.intact(), "%s: spans of %d labels", ops->name,
                labels);
        }
        same(ops->name, "spans", out, &want);
      }
    }
  }
}

TEST(host_pairs_end_with_their_operands) {
  for (int32_t labels : {1, 9, 40}) {
    for (int32_t logits : {1, 3}) {
      const int64_t k = 3, n = 5;
      const int32_t words = 7, one = 1, cu_words[] = {0, words}, cu_labels[] = {0, labels};
      const Operand t(words * k, false, 1), u(words * n, labels == 9, 2), l(labels * k, labels == 9, 3),
          v(labels * n, false, 4), head(logits * n, false, 5);
      std::vector<float> values(static_cast<size_t>(n * k));
      for (size_t i = 0; i < values.size(); i++) values[i] = small(static_cast<int64_t>(i) + 6);
      Weight weight(SIE_COMPUTE_F32, n, k, values);
      for (float threshold : {0.0f, 3.0f, 12.0f, 20.0f}) {
        const int32_t room = 300;
        const sie_out_item item = {SIE_F32, room, 0, threshold, 0};
        std::vector<uint8_t> want;
        for (const sie_ops *ops : tables()) {
          Array<int32_t> found(words * SIE_FOUND_WORDS, 0);
          std::vector<uint8_t> out(16 + 20 * room, 0x55);
          sie_pairs_args a = {};
          a.words = {words, &words}, a.seqs = {1, &one};
          a.cu_words = cu_words, a.cu_labels = cu_labels;
          a.n = n, a.k = k;
          a.words_x = t.tensor(k), a.words_u = u.tensor(n), a.labels_x = l.tensor(k),
          a.labels_u = v.tensor(n);
          a.w = weight.packed(ops);
          a.head = head.wide.data();
          a.n_logits = logits;
          a.found = found.data(), a.found_ld = SIE_FOUND_WORDS;
          a.items = &item, a.out = out.data();
          sie_op_bounds bounds = {};
          bounds.kind = SIE_OP_PAIRS, bounds.compute = SIE_COMPUTE_F32;
          bounds.rows = bounds.max_len = words, bounds.seqs = 1, bounds.n = n, bounds.k = k;
          bounds.labels = labels;
          Scratch scratch(ops, bounds);
          const sie_share share = scratch.share(0, 1);
          for (int32_t write : {0, 1}) {
            a.write = write;
            CHECK(ops->pairs(&a, &share) == SIE_OK && scratch.intact(), "%s: pairs", ops->name);
          }
          same(ops->name, "pairs", out, &want);
        }
      }
    }
  }
}

// Slabs of rows, ranges of columns that end within a repetition and where one begins, ties, and limits
// among values that are equal, neighbours or of either sign.
TEST(host_encodes_sparsely_as_the_reference) {
  const struct {
    int64_t c;
    int32_t rows, repetitions, width, top, most;
    bool query;
  } configs[] = {{1, 70, 1, 9, 9, 0, true},     {1, 70, 1, 15, 4, 0, true},   {1, 3, 1, 13, 13, 5, true},
                 {1, 64, 2, 16, 2, 0, false},   {2, 2, 3, 6001, 9, 0, true},  {2, 2, 2, 8191, 7, 0, true},
                 {1, 1, 1, 40, 40, 7, true},    {1, 1, 1, 40, 40, 20, true},  {1, 1, 1, 40, 40, 33, true},
                 {2, 3, 1, 100, 37, 0, false},  {3, 12, 1, 50, 21, 30, true}, {1, 16, 1, 16, 1, 0, true},
                 {1, 2, 1, 24, 24, 0, false},   {2, 5, 1, 21, 20, 0, true},   {1, 65, 3, 3000, 6, 11, false},
                 {1, 2, 3, 6001, 220, 0, true}, {1, 1, 1, 72, 24, 0, true}};
  for (const auto &[c, rows, repetitions, width, top, most, query] : configs) {
    const int64_t anchors = static_cast<int64_t>(repetitions) * width;
    AtEnd<float> x(rows * c), table(anchors * c);
    for (int64_t i = 0; i < rows * c; i++) x.data()[i] = rows == 1 ? 1.0f : small(i + i / 5);
    for (int64_t i = 0; i < anchors * c; i++) {
      table.data()[i] = small(i + i / 13) + small(i / 3) / 8;
    }
    // Few numbers, of either sign, some of them with their neighbours.
    for (int64_t i = 0; width == 40 && i < width; i++) {
      const float v = static_cast<float>(1 + i % 5);
      table.data()[i] = (i % 3 == 0 ? -1.0f : 1.0f) * (i % 4 == 1 ? nextafterf(v, 100.0f) : v);
    }
    // The first column of a repetition, and that of a range.
    if (width == 8191) table.data()[width * c] = 900, table.data()[width * c + 1] = 700;
    if (anchors > 8192 && rows == 2) table.data()[8192 * c] = 800;
    // Numbers of which a heap that is sorted by more than the children of a place would lose one.
    for (int64_t i = 0; width == 72 && i < width; i++)
      table.data()[i] = static_cast<float>((i * i * 18 + i * 10) % 251);
    for (int32_t limit = most; limit <= (width == 40 ? 39 : most); limit++)
      encode_sparsely({x.data(), table.data(), c, rows, repetitions, width, top, limit, query});
  }
}
