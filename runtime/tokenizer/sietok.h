/* C ABI of libsie_tokenizers.a (Rust sources in rust/). Only native.go uses it.
 *
 * Texts are bytes with explicit lengths: NUL is a character like any other, and invalid UTF-8
 * counts as U+FFFD. No call keeps a pointer after it returns. Any number of threads may use a
 * model at once. A model may be freed when all calls on it have returned. No call aborts on bad
 * input. */
#ifndef SIETOK_H
#define SIETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sietok sietok;

enum {
  SIETOK_SPECIAL = 1,
  SIETOK_PAIR = 2,
  SIETOK_LEFT = 4,
  SIETOK_GENERAL = 8,
  SIETOK_WHOLE = 16,
  SIETOK_SECOND = 32,
  SIETOK_FIRST = 64
};
enum { SIETOK_OK = 0, SIETOK_FAILED = 1, SIETOK_TOO_LONG = 2, SIETOK_NO_ROOM = 3, SIETOK_STOPPED = 4 };

typedef struct {
  uint32_t vocab_size;    /* largest id + 1 */
  uint32_t specials;      /* special tokens added to one text */
  uint32_t pair_specials; /* special tokens added to a pair */
  uint8_t streaming;      /* the fast BERT pass applies */
  uint8_t cuttable;       /* the general pipeline takes a text in pieces and can stop at a limit */
} sietok_info;

typedef struct {
  uint64_t max_tokens; /* kept per text or pair, special tokens included; 0: all */
  uint64_t
      max_whole;  /* bytes that the general pipeline may take at once; a tokenizer's own bound may be lower */
  uint64_t piece; /* bytes of a piece; 0: the tokenizer's own bound */
  uint32_t flags; /* SIETOK_SPECIAL ... */
} sietok_options;

/* In and out. All fields are zero before the first call; a later call continues at text `done`. */
typedef struct {
  uint64_t done;        /* texts finished */
  uint64_t ids;         /* ids written */
  uint64_t need;        /* not 0: the next text needs room for this many ids; grow and call again */
  int32_t code;         /* not SIETOK_OK: text `done` failed */
  uint32_t message_len; /* bytes of the message; a number for SIETOK_NO_ROOM (of special tokens) and
                         * SIETOK_TOO_LONG (of bytes without a place to cut) */
} sietok_progress;

/* Parses tokenizer.json and drops its truncation and padding. With lowercase >= 0 the three flags
 * replace a BertNormalizer's own (strip_accents < 0: same as lowercase). Returns NULL and a message
 * on failure. */
sietok *sietok_new(const uint8_t *json, size_t len, int8_t lowercase, int8_t chinese, int8_t strip_accents,
                   sietok_info *info, uint8_t *message, size_t message_cap, uint32_t *message_len);
void sietok_free(sietok *model);

enum { SIETOK_LITERAL = 1, SIETOK_EXACT = 2 };

/* Refines a model that no other call uses yet; `json` is what it was made of. SIETOK_LITERAL: special
 * tokens written in a text are text. SIETOK_EXACT: the scores of a Unigram model are read exactly,
 * as Python's json module reads them; the library's own reading may be off by one unit in the last
 * place. Returns SIETOK_OK, or SIETOK_FAILED and a message. */
int32_t sietok_refine(sietok *model, const uint8_t *json, size_t len, uint32_t flags, uint8_t *message,
                      size_t message_cap, uint32_t *message_len);

/* Encodes `count` texts (or pairs) laid end to end in `text`. Text i is [offsets[i], offsets[i+1]);
 * pair i is texts 2i and 2i+1. Writes packed ids[cap], types[cap] unless NULL, ends[count]
 * (cumulative, within ids) and cut[count] (1 when the limit removed tokens). Another thread may set
 * *stop to 1; the call then soon ends with SIETOK_STOPPED. */
void sietok_encode(const sietok *model, const uint8_t *text, const uint64_t *offsets, size_t count,
                   const sietok_options *opt, int32_t *ids, int32_t *types, size_t cap, int32_t *ends,
                   uint8_t *cut, sietok_progress *progress, const uint32_t *stop, uint8_t *message,
                   size_t message_cap);

/* Encodes `count` items that are split into words, each word on its own. The words of all items lie
 * end to end in `text`: word w is [offsets[w], offsets[w+1]), and item i has the words
 * [items[i], items[i+1]). given[w] >= 0 is the id that stands for word w, whatever its text; given may
 * be NULL. A word in which one of the `reserved` ids is written is tokenized as if its characters
 * were no token; one that has such an id even so fails. Writes packed ids[cap] with the special
 * tokens of a single text around each item, words[cap] (by id the number of its word in the item, -1
 * for a special token), ends[count] and cut[count]. Limits, progress and stop work as above. */
void sietok_words(const sietok *model, const uint8_t *text, const uint64_t *offsets, const int32_t *given,
                  const uint64_t *items, size_t count, const int32_t *reserved, size_t reserved_len,
                  const sietok_options *opt, int32_t *ids, int32_t *words, size_t cap, int32_t *ends,
                  uint8_t *cut, sietok_progress *progress, const uint32_t *stop, uint8_t *message,
                  size_t message_cap);

typedef struct {
  int32_t id;
  uint32_t start, end; /* bytes of the text */
  uint32_t special;    /* 1: a special token, which stands for no text */
} sietok_place;

/* Encodes one text into tokens[cap] with the place of each token. Progress works as above, but
 * after a call with too little room the next one starts again. */
void sietok_places(const sietok *model, const uint8_t *text, size_t len, const sietok_options *opt,
                   sietok_place *tokens, size_t cap, uint8_t *cut, sietok_progress *progress,
                   const uint32_t *stop, uint8_t *message, size_t message_cap);

/* Returns the text of `ids` (code SIETOK_OK) or a message (SIETOK_FAILED). The caller frees it with
 * sietok_free_text. The address of an empty text is not NULL and points at nothing. */
uint8_t *sietok_decode(const sietok *model, const uint32_t *ids, size_t len, bool skip_special,
                       size_t *out_len, int32_t *code);
void sietok_free_text(uint8_t *text, size_t len);

/* Returns the id of a token by its exact text, or -1. */
int64_t sietok_token_id(const sietok *model, const uint8_t *token, size_t len);

#endif
