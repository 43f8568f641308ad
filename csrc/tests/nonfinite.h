// nonfinite.h — tests with a word whose vector has a NaN or an infinity: the flags, and the results
// of other sequences. For CPUs and GPUs.
#ifndef SIE_CSRC_TESTS_NONFINITE_H
#define SIE_CSRC_TESTS_NONFINITE_H

#include <math.h>

#include <algorithm>

#include "heads.h"
#include "tests/check.h"

namespace heads {

constexpr int32_t spoilt_word = 96;

// Whether outputs of sequence b depend on its tokens: on all of them, or on none.
inline bool reads_tokens(const Head &head, const model::Batch &batch, size_t b) {
  const auto first = batch.keep.begin() + (batch.keep.empty() ? 0 : batch.cu[b]);
  const auto end = batch.keep.begin() + (batch.keep.empty() ? 0 : batch.cu[b + 1]);
  if (!batch.keep.empty() && std::count(first, end, 1) == 0) return false;
  // Words attend to all tokens of their sequence.
  const bool words = std::any_of(head.outputs, head.outputs + 4, [](const Output &o) { return o.words; });
  return batch.cu[b] < batch.cu[b + 1] && (!words || batch.cu_words[b] < batch.cu_words[b + 1]);
}

// Runs the head over clean sequences, then with the word in two of them, for each of the values.
// Only the flags of these two are 1, and the bytes of the others do not change. A later run of
// clean sequences has no flags.
inline void check_nonfinite(model::Model *m, const Head &head, const std::vector<int> &numbers,
                            const char *path, const std::vector<float> &values = {NAN, INFINITY, -INFINITY}) {
  model::Batch batch = batch_of(head, m->shape, numbers, true);
  for (std::vector<int32_t> *ids : {&batch.ids, &batch.label_ids}) {
    for (int32_t &id : *ids) id = id == spoilt_word ? 1 : id;
  }
  model::Batch spoilt = batch;
  std::vector<int32_t> want(numbers.size(), 0);
  int left = 2;
  for (size_t b = numbers.size(); b-- > 0 && left > 0;) {
    int32_t first = batch.cu[b], length = batch.cu[b + 1] - first;
    if (!reads_tokens(head, batch, b)) continue;
    spoilt.ids[static_cast<size_t>(first + (left == 2 ? length - 1 : length / 2))] = spoilt_word;
    want[b] = 1;
    left--;
  }
  model::Result clean = run(m, batch);
  CHECK(
      clean.status == SIE_OK && std::count(clean.nonfinite.begin(), clean.nonfinite.end(), 0) == batch.seqs(),
      "%s %s: status %d, or a finite sequence is flagged", head.name, path, clean.status);
  for (float value : values) {
    m->plant(spoilt_word, 5, value);
    // On a GPU three runs: kernel by kernel, captured, replayed.
    for (int time = 0; time < (m->card != nullptr ? 3 : 1); time++) {
      model::Result got = run(m, spoilt);
      CHECK(got.status == SIE_OK && got.nonfinite == want, "%s %s: status %d, other flags for %g", head.name,
            path, got.status, static_cast<double>(value));
      for (size_t b = 0; b < numbers.size(); b++) {
        for (int o = 0; want[b] == 0 && o < 4 && head.outputs[o].kind != Kind::none; o++) {
          CHECK(part(head, spoilt, got, o, static_cast<int>(b)) ==
                    part(head, batch, clean, o, static_cast<int>(b)),
                "%s %s: output %d of sequence %zu sees another's %g", head.name, path, o, b,
                static_cast<double>(value));
        }
      }
    }
    model::Result again = run(m, batch);
    CHECK(again.nonfinite == clean.nonfinite, "%s %s: a flag is left from the run before", head.name, path);
  }
}

// Pools the embedding's rows, where a word affects only its own row. If pooling reads only the
// first or the last row, the sequence is flagged only if the word is there.
template <sie_pooling Mode>
sie_status pooled_tail(model::Model *m, sie_value x) {
  sie_value y;
  sie_status status = record::pool(m->program, x, Mode, &y, &m->err);
  return status == SIE_OK ? record::output_rows(m->program, y, 0, &m->err) : status;
}

inline model::Shape pooled_shape(sie_pooling mode) {
  model::Shape shape;
  shape.layers = 0;
  switch (mode) {
    case SIE_POOL_CLS:
      shape.tail = pooled_tail<SIE_POOL_CLS>;
      break;
    case SIE_POOL_LAST:
      shape.tail = pooled_tail<SIE_POOL_LAST>;
      break;
    case SIE_POOL_MAX:
      shape.tail = pooled_tail<SIE_POOL_MAX>;
      break;
    default:
      shape.tail = pooled_tail<SIE_POOL_MEAN>;
  }
  return shape;
}

// Checks that only rows that pooling reads are flagged. The model is of pooled_shape.
inline void check_rows_read(model::Model *m, sie_pooling mode, const char *path) {
  const Head head = {"pooled", nullptr, nullptr, {{Kind::rows, m->hidden}, {}, {}, {}}, 1, false};
  m->plant(spoilt_word, 3, NAN);
  for (int at : {0, 1, 32, 63}) {
    model::Batch batch = batch_of(head, m->shape, {1, 3, 2}, false);  // 7, 64 and 31 tokens
    for (int32_t &id : batch.ids) id = id == spoilt_word ? 1 : id;
    batch.ids[static_cast<size_t>(batch.cu[1] + at)] = spoilt_word;
    bool all = mode == SIE_POOL_MEAN || mode == SIE_POOL_MAX;
    bool read = all || at == (mode == SIE_POOL_CLS ? 0 : 63);
    model::Result got = run(m, batch);
    CHECK(got.status == SIE_OK && got.nonfinite == (std::vector<int32_t>{0, read ? 1 : 0, 0}),
          "%s: pooling %d with a NaN in row %d of 64: status %d, flag %d", path, static_cast<int>(mode), at,
          got.status, got.nonfinite.empty() ? -1 : got.nonfinite[1]);
  }
}

}  // namespace heads

#endif  // SIE_CSRC_TESTS_NONFINITE_H
