// record_found.cc — records the outputs of scores above thresholds: spans, and pairs of word and
// label.
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// A value that an output of this kind reads: which rows it has, and how many columns. Those of a
// SHARED space are given rows.
sie_status check_operand(const sie_program *p, sie_value v, sie_space space, int64_t columns,
                         const char *name, sie_error *err) {
  SIE_TRY(check_value_or_given(p, v, name, err));
  const Value &value = p->values[v];
  SIE_FAIL_IF(value.space != space || value.columns != columns, SIE_INVALID_ARGUMENT, err,
              "%s has %lld columns in rows of %s; %lld columns in rows of %s are needed", name,
              static_cast<ll>(value.columns), space_name(p, value.space), static_cast<ll>(columns),
              space_name(p, space));
  return SIE_OK;
}

// The labels have several rows a sequence, or are given rows of its partner's group. Codes of a word
// and a label are numbers of 31 bits.
sie_status check_labels(const sie_program *p, sie_value labels, sie_input partner, int64_t widest,
                        sie_error *err) {
  SIE_TRY(check_value_or_given(p, labels, "labels", err));
  sie_space space = p->values[labels].space;
  const bool given = kind_of(p, space) == SIE_SPACE_SHARED;
  SIE_TRY(given ? check_partner(p, partner, space, err) : check_zero(partner, "partner", err));
  SIE_FAIL_IF(of_seqs(p, labels), SIE_INVALID_ARGUMENT, err,
              "labels has rows of %s; several rows a sequence are needed", space_name(p, space));
  int64_t most = most_labels(p, space);
  SIE_FAIL_IF(widest * most > INT32_MAX, SIE_INVALID_ARGUMENT, err,
              "spans of %lld words with up to %lld rows of %s; their product may be at most %d",
              static_cast<ll>(widest), static_cast<ll>(most), space_name(p, space), INT32_MAX);
  return SIE_OK;
}

sie_status append_found(sie_program *p, Op op, sie_input partner, const Output &output, sie_error *err) {
  op.inputs[0] = partner;
  SIE_TRY(append_output(p, op, op.in[0], output, err));
  if (partner != 0) read_partner(p, partner, p->values[op.in[2]].space);
  return SIE_OK;
}

}  // namespace

sie_status record_given_rows(sie_program *p, const void *params, sie_error *err) {
  sie_given_rows_params g;
  SIE_TRY(take_params(params, &g, err));
  SIE_TRY(check_result(p, g.y, "y", err));
  SIE_FAIL_IF(g.input < 1 || g.input > max_inputs || p->inputs[g.input].dtype != SIE_F32,
              SIE_INVALID_ARGUMENT, err, "input is %d, which is no f32 input of a SHARED space", g.input);
  Input &input = p->inputs[g.input];
  SIE_FAIL_IF(g.columns < 1 || g.columns > max_columns, SIE_INVALID_ARGUMENT, err,
              "columns is %d; 1 to %lld is possible", g.columns, static_cast<ll>(max_columns));
  SIE_FAIL_IF(input.columns != 0 && input.columns != g.columns, SIE_INVALID_ARGUMENT, err,
              "columns is %d; %s has %d", g.columns, input.name.text, input.columns);
  SIE_FAIL_IF(!reserve_value(p, g.y), SIE_OUT_OF_MEMORY, err, "no memory to record given rows");
  input.read = true;
  input.columns = g.columns;
  p->values[g.y] = {input.space, SIE_COMPUTE_F32, g.y, 0, g.columns, false, false, -1, -1, -1, g.input};
  return SIE_OK;
}

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
  SIE_TRY(check_zero(s.reserved, "reserved", err));
  SIE_TRY(check_labels(p, s.labels, s.partner, s.widest, err));
  SIE_TRY(check_operand(p, s.labels, p->values[s.labels].space, words.columns, "labels", err));
  if (s.bias != SIE_NO_VALUE) {
    SIE_TRY(check_operand(p, s.bias, p->values[s.labels].space, 1, "bias", err));
  }
  Op op = new_op(SIE_OP_SPANS);
  op.in[0] = s.starts;
  op.in[1] = s.ends;
  op.in[2] = s.labels;
  op.in[3] = s.bias;
  op.widest = s.widest;
  return append_found(p, op, s.partner, output, err);
}

sie_status record_output_pairs(sie_program *p, const void *params, sie_error *err) {
  sie_output_pairs_params s;
  Output output = {SIE_FORM_FOUND, p->seqs, 0, {}};
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_output(p, s.words, "words", s.name, false, &output.name, err));
  SIE_TRY(check_has_sequences(p, err));
  SIE_TRY(check_has(p, p->device->ops->pairs != nullptr, SIE_OP_PAIRS, err));
  SIE_TRY(check_weight(p, s.w, SIE_WEIGHT_LINEAR, "w", err));
  SIE_FAIL_IF(is_quantised(s.w->compute), SIE_UNSUPPORTED, err,
              "w is of class %s; f32, bf16 and f16 are possible", compute_name(s.w->compute));
  sie_space words = p->values[s.words].space;
  SIE_TRY(check_labels(p, s.labels, s.partner, 1, err));
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
  op.in[0] = s.words;
  op.in[1] = s.word_terms;
  op.in[2] = s.labels;
  op.in[3] = s.label_terms;
  op.weights[0] = s.w;
  op.weights[1] = s.head;
  op.bias = vector_of(s.bias);
  op.n_logits = static_cast<int32_t>(s.head->n);
  output.columns = 2 + s.head->n;
  return append_found(p, op, s.partner, output, err);
}

}  // namespace sie
