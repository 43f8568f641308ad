// record_found.cc — records the outputs of scores above thresholds: spans, and pairs of word and
// label.
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// A value that an output of this kind reads: which rows it has, and how many columns.
sie_status check_operand(const sie_program *p, sie_value v, sie_space space, int64_t columns,
                         const char *name, sie_error *err) {
  SIE_TRY(check_value(p, v, name, err));
  const Value &value = p->values[v];
  SIE_FAIL_IF(value.space != space || value.columns != columns, SIE_INVALID_ARGUMENT, err,
              "%s has %lld columns in rows of %s; %lld columns in rows of %s are needed", name,
              static_cast<ll>(value.columns), space_name(p, value.space), static_cast<ll>(columns),
              space_name(p, space));
  return SIE_OK;
}

// The labels have several rows a sequence. Codes of a word and a label are numbers of 31 bits.
sie_status check_labels(const sie_program *p, sie_value labels, int64_t widest, sie_error *err) {
  SIE_TRY(check_value(p, labels, "labels", err));
  sie_space space = p->values[labels].space;
  SIE_FAIL_IF(of_seqs(p, labels), SIE_INVALID_ARGUMENT, err,
              "labels has rows of %s; several rows a sequence are needed", space_name(p, space));
  int64_t most = p->spaces[whole_of(p, space)].max_each;
  SIE_FAIL_IF(widest * most > INT32_MAX, SIE_INVALID_ARGUMENT, err,
              "spans of %lld words with up to %lld rows of %s; their product may be at most %d",
              static_cast<ll>(widest), static_cast<ll>(most), space_name(p, space), INT32_MAX);
  return SIE_OK;
}

}  // namespace

sie_status record_output_spans(sie_program *p, const void *params, sie_error *err) {
  sie_output_spans_params s;
  Output output = {SIE_FORM_FOUND, p->seqs, 4, {}};
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_output(p, s.starts, "starts", s.name, false, &output.name, err));
  SIE_TRY(check_has_sequences(p, err));
  SIE_TRY(check_has(p, p->device->ops->spans != nullptr, SIE_OP_SPANS, err));
  SIE_FAIL_IF(s.widest < 1 || s.widest > SIE_MAX_SPAN_WIDTH, SIE_INVALID_ARGUMENT, err,
              "widest is %d; 1 to %d is possible", s.widest, SIE_MAX_SPAN_WIDTH);
  const Value &words = p->values[s.starts];
  SIE_FAIL_IF(of_seqs(p, s.starts), SIE_INVALID_ARGUMENT, err,
              "starts has rows of %s; several rows a sequence are needed", space_name(p, words.space));
  SIE_TRY(check_operand(p, s.ends, words.space, words.columns, "ends", err));
  SIE_TRY(check_labels(p, s.labels, s.widest, err));
  SIE_TRY(check_operand(p, s.labels, p->values[s.labels].space, words.columns, "labels", err));
  if (s.bias != SIE_NO_VALUE) {
    SIE_TRY(check_operand(p, s.bias, p->values[s.labels].space, 1, "bias", err));
  }
  Op op = new_op(SIE_OP_SPANS);
  op.in[1] = s.ends;
  op.in[2] = s.labels;
  op.in[3] = s.bias;
  op.widest = s.widest;
  return append_output(p, op, s.starts, output, err);
}

sie_status record_output_pairs(sie_program *p, const void *params, sie_error *err) {
  sie_output_pairs_params s;
  Output output = {SIE_FORM_FOUND, p->seqs, 0, {}};
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_zero(s.reserved, "reserved", err));
  SIE_TRY(check_output(p, s.words, "words", s.name, false, &output.name, err));
  SIE_TRY(check_has_sequences(p, err));
  SIE_TRY(check_has(p, p->device->ops->pairs != nullptr, SIE_OP_PAIRS, err));
  SIE_TRY(check_weight(p, s.w, SIE_WEIGHT_LINEAR, "w", err));
  SIE_FAIL_IF(is_quantised(s.w->compute), SIE_UNSUPPORTED, err,
              "w is of class %s; f32, bf16 and f16 are possible", compute_name(s.w->compute));
  sie_space words = p->values[s.words].space;
  SIE_TRY(check_labels(p, s.labels, 1, err));
  sie_space labels = p->values[s.labels].space;
  SIE_TRY(check_operand(p, s.words, words, s.w->k, "words", err));
  SIE_TRY(check_operand(p, s.word_terms, words, s.w->n, "word_terms", err));
  SIE_TRY(check_operand(p, s.labels, labels, s.w->k, "labels", err));
  SIE_TRY(check_operand(p, s.label_terms, labels, s.w->n, "label_terms", err));
  SIE_TRY(check_data(p, s.head, SIE_F32, 0, s.w->n, "head", err));
  SIE_FAIL_IF(s.head->n < 1 || s.head->n > 3, SIE_INVALID_ARGUMENT, err,
              "head has %lld rows; 1 to 3 are possible", static_cast<ll>(s.head->n));
  SIE_TRY(check_vector(p, s.bias, s.head->n, true, "bias", err));
  Op op = new_op(SIE_OP_PAIRS);
  op.in[1] = s.word_terms;
  op.in[2] = s.labels;
  op.in[3] = s.label_terms;
  op.weights[0] = s.w;
  op.weights[1] = s.head;
  op.bias = vector_of(s.bias);
  op.n_logits = static_cast<int32_t>(s.head->n);
  output.columns = 2 + s.head->n;
  return append_output(p, op, s.words, output, err);
}

}  // namespace sie
