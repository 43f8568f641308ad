// found_items.h — what the two passes of spans and pairs share: the sequence of a word, and the
// items that are written from what was found.
#ifndef SIE_KERNELS_CPU_FOUND_ITEMS_H
#define SIE_KERNELS_CPU_FOUND_ITEMS_H

#include "common/found.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// Whether spans and pairs take these items.
static inline bool are_found_items(const sie_out_item *items, int64_t seqs) {
  for (int64_t b = 0; b < seqs; b++) {
    if (!sie_is_found_item(&items[b])) return false;
  }
  return true;
}

// The sequence of row `row`, which is not before the first row of sequence b.
static inline int64_t sequence_of(const int32_t *cu, int64_t b, int64_t row) {
  while (cu[b + 1] <= row) b++;
  return b;
}

// Writes the items of this share's sequences. add(b, i, code, y, &item) adds the record of what was
// found of word i of sequence b; score(b, i, &item) computes and adds all of a word, of which found
// has no room for all. Args is sie_spans_args or sie_pairs_args.
template <typename Args, typename Add, typename Score>
SIE_INLINE void write_items(const Args *a, int32_t logits, int32_t words, Add add, Score score,
                            const sie_share *share) {
  const Range seqs = share_of(*a->seqs.n, share);
  const int32_t room = sie_found_room(logits);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    sie_found_item item = sie_found_begin(&a->items[b], a->out, words);
    const int64_t first = a->cu_words[b], count = a->cu_words[b + 1] - first;
    for (int64_t i = 0; i < count; i++) {
      const int32_t *const row = a->found + (first + i) * a->found_ld;
      if (row[0] > room && item.count < item.room) {
        score(b, i, &item);
      } else if (row[0] > room) {
        item.count += row[0];
      } else {
        for (int32_t e = 0; e < row[0]; e++) {
          const int32_t *const entry = sie_found_entry(row, logits, e);
          float y[3];
          memcpy(y, entry + 1, static_cast<size_t>(logits) * sizeof *y);
          add(b, i, entry[0], y, &item);
        }
      }
    }
    sie_found_end(&item);
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_FOUND_ITEMS_H
