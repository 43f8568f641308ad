/* found.h — what spans and pairs find of a word, and the items that are written from it
 * (kernels/ops.h).
 *
 * The functions are static, so that the linker never replaces one with a copy compiled for another
 * instruction set. */
#ifndef SIE_KERNELS_COMMON_FOUND_H
#define SIE_KERNELS_COMMON_FOUND_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sie.h"

/* The labels of a sequence, as rows. */
typedef struct sie_label_range {
  int64_t first, count;
} sie_label_range;

/* The labels of sequence b (sie_spans_args.label_group). */
static inline sie_label_range sie_labels_of(const int32_t *cu_labels, const int32_t *label_group, int64_t b) {
  const int64_t group = label_group != NULL ? label_group[b] : b;
  sie_label_range range = {0, 0};
  if (group < 0) return range;
  range.first = cu_labels[group];
  range.count = cu_labels[group + 1] - range.first;
  return range;
}

/* The entries for which a row of found has room. */
static inline int32_t sie_found_room(int32_t logits) { return 31 / (1 + logits); }

/* Entry i of a row of found: its code, then its logits. */
static inline const int32_t *sie_found_entry(const int32_t *row, int32_t logits, int32_t i) {
  return row + 1 + i * (1 + logits);
}

/* Adds an entry to a row whose count began at 0. Codes may come in any order, each once: the row
 * keeps the least. */
static inline void sie_found_add(int32_t *row, int32_t logits, int32_t code, const float *y) {
  const int32_t room = sie_found_room(logits), size = 1 + logits;
  const int32_t kept = row[0] < room ? row[0] : room;
  int32_t at = kept;
  row[0]++;
  while (at > 0 && row[1 + (at - 1) * size] > code) at--;
  if (at == room) return;
  const int32_t moved = (kept < room ? kept : room - 1) - at;
  int32_t *entry = row + 1 + at * size;
  memmove(entry + size, entry, (size_t)(moved * size) * sizeof *entry);
  entry[0] = code;
  memcpy(entry + 1, y, (size_t)logits * sizeof *y);
}

/* An item that is being written: records of `words` words of four bytes. */
typedef struct sie_found_item {
  int32_t *header;
  int32_t room, words, count;
} sie_found_item;

static inline int sie_is_found_item(const sie_out_item *item) {
  return item->dtype == SIE_F32 && item->dims > 0 && item->normalize == 0 &&
         item->threshold == item->threshold;
}

static inline sie_found_item sie_found_begin(const sie_out_item *item, void *base, int32_t words) {
  sie_found_item to = {(int32_t *)((char *)base + item->offset), item->dims, words, 0};
  return to;
}

/* The next record: its numbers, then its logits. One without room is only counted. */
static inline void sie_found_record(sie_found_item *to, const int32_t *numbers, const float *y,
                                    int32_t logits) {
  const int32_t at = to->count++;
  if (at >= to->room) return;
  int32_t *record = to->header + 4 + (int64_t)at * to->words;
  const int32_t first = to->words - logits;
  for (int32_t i = 0; i < first; i++) record[i] = numbers[i];
  memcpy(record + first, y, (size_t)logits * sizeof *y);
}

static inline void sie_found_end(const sie_found_item *to) {
  to->header[0] = to->count;
  to->header[1] = to->header[2] = to->header[3] = 0;
}

#endif /* SIE_KERNELS_COMMON_FOUND_H */
