// found.h — a program with outputs of scores above thresholds: spans of tokens, and pairs of a
// token and a label, of two ROWS spaces. Its other outputs are the rows that they are made of, from
// which tests compute all scores again.
#ifndef SIE_CSRC_TESTS_FOUND_H
#define SIE_CSRC_TESTS_FOUND_H

#include "heads.h"
#include "model.h"

namespace found {

constexpr int hidden = 64, span_k = 40, pair_k = 24, pair_n = 33, widest = 4, logits = 3;
// Columns of the projected tokens: starts, ends, words, word_terms; of the labels: labels, bias,
// labels, label_terms.
constexpr int token_columns = 2 * span_k + pair_k + pair_n, label_columns = span_k + 1 + pair_k + pair_n;

struct Operands {
  sie_output_spans_params spans;
  sie_output_pairs_params pairs;
  sie_value tokens, labels;  // all columns
};
// given: the labels are rows that the batch brings, with as many columns as its own would have.
sie_status make_operands(model::Model *m, sie_value x, Operands *o, bool given = false);
// The pairs' matrix in a class.
sie_status linear_weight(model::Model *m, uint32_t compute, sie_weight **w);

// Both outputs, with their operands as outputs 2 and 3; or one alone.
sie_status both_tail(model::Model *m, sie_value x);
sie_status spans_tail(model::Model *m, sie_value x);
sie_status pairs_tail(model::Model *m, sie_value x);
// Both outputs alone, with given labels.
sie_status given_tail(model::Model *m, sie_value x);
extern const heads::Head head;  // both

// Sequences by their numbers (heads.h), with items for `room` records. An item depends on the
// number alone.
model::Batch batch_of(const model::Shape &shape, const std::vector<int> &numbers, int32_t room);
// The batch with the rows of labels that a run of both_tail gave (output 3), for given_tail: sequences
// of one number share theirs, and sequence `without` has none.
model::Batch with_given_labels(const model::Batch &batch, const model::Result &result,
                               const std::vector<int> &numbers, size_t without);
// The words of an item: count, then the records that it has.
std::vector<int32_t> item(const model::Batch &batch, const model::Result &result, int o, int b);
// Checks an item's records against every score, computed from the rows that the program gave: in
// order, and none missing or too many.
void check_item(const char *what, const model::Model &m, const model::Batch &batch,
                const model::Result &result, int o, int b);
// Checks which sequences a run flags of a model that both outputs, or one alone, are recorded in.
void check_flags(const char *what, model::Model *m, bool pairs);

// Sequences of all kinds: without labels, without tokens, long, with many labels.
extern const std::vector<int> mixed;

}  // namespace found

#endif  // SIE_CSRC_TESTS_FOUND_H
