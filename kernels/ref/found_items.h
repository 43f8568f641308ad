// found_items.h — the second pass of spans and pairs: writes items from what the first pass found.
#ifndef SIE_KERNELS_REF_FOUND_ITEMS_H
#define SIE_KERNELS_REF_FOUND_ITEMS_H

#include "common/found.h"
#include "rows.h"

namespace sie_ref {

// Whether spans and pairs take these items.
inline bool are_found_items(const sie_out_item *items, int64_t seqs) {
  for (int64_t b = 0; b < seqs; b++) {
    if (!sie_is_found_item(&items[b])) return false;
  }
  return true;
}

// The sequence of row `row`, which is not before the first row of sequence b.
inline int64_t sequence_of(const int32_t *cu, int64_t b, int64_t row) {
  while (cu[b + 1] <= row) b++;
  return b;
}

// Writes the items of this share's sequences. score(b, i, emit) calls emit(code, y) for what is
// found of word i of sequence b, by ascending code; number(b, i, code, numbers) gives the record's.
// Args is sie_spans_args or sie_pairs_args.
template <typename Args, typename Number, typename Score>
void write_items(const Args *a, int32_t logits, int32_t words, Number number, Score score,
                 const sie_share *share) {
  const Range seqs = share_of(*a->seqs.n, share);
  const int32_t room = sie_found_room(logits);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    sie_found_item item = sie_found_begin(&a->items[b], a->out, words);
    for (int64_t i = 0; i < a->cu_words[b + 1] - a->cu_words[b]; i++) {
      const int32_t *row = a->found + (a->cu_words[b] + i) * a->found_ld;
      auto record = [&](int32_t code, const float *y) {
        int32_t numbers[3];
        number(b, i, code, numbers);
        sie_found_record(&item, numbers, y, logits);
      };
      if (row[0] > room) {
        score(b, i, record);
        continue;
      }
      for (int32_t e = 0; e < row[0]; e++) {
        const int32_t *entry = sie_found_entry(row, logits, e);
        float y[3];
        memcpy(y, entry + 1, static_cast<size_t>(logits) * sizeof *y);
        record(entry[0], y);
      }
    }
    sie_found_end(&item);
  }
}

}  // namespace sie_ref

#endif  // SIE_KERNELS_REF_FOUND_ITEMS_H
