// record.h — the functions that record entries, and what they share: checks of structs, and
// appending.
//
// Each record function takes one entry's struct from the caller, checks all of it, and appends
// last. So a refused entry leaves the program unchanged.
#ifndef SIE_CSRC_RECORD_H
#define SIE_CSRC_RECORD_H

#include "grow.h"
#include "program.h"

namespace sie {

using Record = sie_status (*)(sie_program *p, const void *params, sie_error *err);

sie_status record_space(sie_program *p, const void *params, sie_error *err);
sie_status record_input(sie_program *p, const void *params, sie_error *err);
sie_status record_embed(sie_program *p, const void *params, sie_error *err);
sie_status record_norm(sie_program *p, const void *params, sie_error *err);
sie_status record_linear(sie_program *p, const void *params, sie_error *err);
sie_status record_columns(sie_program *p, const void *params, sie_error *err);
sie_status record_join(sie_program *p, const void *params, sie_error *err);
sie_status record_stream(sie_program *p, const void *params, sie_error *err);
sie_status record_attention(sie_program *p, const void *params, sie_error *err);
sie_status record_rope(sie_program *p, const void *params, sie_error *err);
sie_status record_state(sie_program *p, const void *params, sie_error *err);
sie_status record_state_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_gather_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_pool(sie_program *p, const void *params, sie_error *err);
sie_status record_keep_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_take_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_product(sie_program *p, const void *params, sie_error *err);
sie_status record_dots(sie_program *p, const void *params, sie_error *err);
sie_status record_softmax(sie_program *p, const void *params, sie_error *err);
sie_status record_lstm(sie_program *p, const void *params, sie_error *err);
sie_status record_given_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_splade(sie_program *p, const void *params, sie_error *err);
sie_status record_maxsim(sie_program *p, const void *params, sie_error *err);
sie_status record_output_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_output_values(sie_program *p, const void *params, sie_error *err);
sie_status record_output_token_rows(sie_program *p, const void *params, sie_error *err);
sie_status record_output_sparse(sie_program *p, const void *params, sie_error *err);
sie_status record_output_spans(sie_program *p, const void *params, sie_error *err);
sie_status record_output_pairs(sie_program *p, const void *params, sie_error *err);
sie_status record_output_muvera(sie_program *p, const void *params, sie_error *err);
sie_status record_output_smve(sie_program *p, const void *params, sie_error *err);

// Copies the entry's struct, whatever its version.
template <class T>
sie_status take_params(const void *params, T *to, sie_error *err) {
  return take(static_cast<const T *>(params), to, "params", err);
}

// v must be a value that operations may read. In all checks, `name` is the field's name.
sie_status check_value(const sie_program *p, sie_value v, const char *name, sie_error *err);

// v must be a value that operations may read, or rows that batches bring (SIE_GIVEN_ROWS).
sie_status check_value_or_given(const sie_program *p, sie_value v, const char *name, sie_error *err);

// v must be a number that no earlier operation uses for its result.
sie_status check_result(const sie_program *p, sie_value v, const char *name, sie_error *err);

// w must be a weight of this kind and of this device, in memory that kernels reach.
sie_status check_weight(const sie_program *p, const sie_weight *w, uint32_t kind, const char *name,
                        sie_error *err);

// w must be a vector of `length` elements; NULL passes if optional.
sie_status check_vector(const sie_program *p, const sie_weight *w, int64_t length, bool optional,
                        const char *name, sie_error *err);
inline const float *vector_of(const sie_weight *w) { return w != nullptr ? w->vector() : nullptr; }

// w must be a SIE_WEIGHT_DATA of [n, k]; n 0: any number of rows.
sie_status check_data(const sie_program *p, const sie_weight *w, int32_t dtype, int64_t n, int64_t k,
                      const char *name, sie_error *err);

// The dtype of DATA that is multiplied with values of a class (adapters, position tables): f32 on a
// CPU; on a GPU, the type in which values of the class are stored.
int32_t stored_dtype(const sie_program *p, uint32_t compute);

// Checks x, w and bias of x·Wᵀ + bias.
sie_status check_linear(const sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                        sie_error *err);

// residual must have `columns` columns and the rows of x; SIE_NO_VALUE passes.
sie_status check_residual(const sie_program *p, sie_value residual, sie_value x, int64_t columns,
                          sie_error *err);

// check_flag: the field must be 0 or 1. check_zero: it must be 0, until a later version gives it a
// meaning. check_norm: a norm's eps and weight_offset.
sie_status check_flag(int32_t flag, const char *name, sie_error *err);
sie_status check_zero(int64_t field, const char *name, sie_error *err);
sie_status check_norm(float eps, float weight_offset, sie_error *err);

// A name has 1 to SIE_MAX_NAME of a to z, 0 to 9 and '_'; it is copied to *to.
sie_status check_name(const char *name, Name *to, sie_error *err);

// SIE_UNSUPPORTED, with the operation's name, if the device's table lacks the operation (`has` is
// false).
sie_status check_has(const sie_program *p, bool has, uint32_t kind, sie_error *err);

// An operation reads an i32 input, whose space must be of this kind. It accepts values from `least`
// to below `bound`. check_input changes nothing; read_input, called after all checks, records the
// bounds.
sie_status check_input(const sie_program *p, sie_input input, uint32_t kind, int64_t least, int64_t bound,
                       const char *name, sie_error *err);
void read_input(sie_program *p, sie_input input, int64_t least, int64_t bound);

// partner must be an i32 input of the SEQS space that names groups of the SHARED space, or −1 for none.
// check_partner changes nothing; read_partner, called after all checks, records what it names.
sie_status check_partner(const sie_program *p, sie_input partner, sie_space shared, sie_error *err);
void read_partner(sie_program *p, sie_input partner, sie_space shared);

// An operation uses a segment of the program's state, which must be declared to write, or to read.
sie_status check_segment(const sie_program *p, int32_t segment, bool writes, sie_error *err);

// A description such as "token rows of tokens", for messages.
const char *space_name(const sie_program *p, sie_space space);

// Checks an output's value, whose field is `field`, and its name. Only outputs with of_splade may
// read a value of SPLADE.
sie_status check_output(const sie_program *p, sie_value x, const char *field, const char *name,
                        bool of_splade, Name *to, sie_error *err);

// The SEQS space must be declared before an output of one row a sequence.
sie_status check_has_sequences(const sie_program *p, sie_error *err);

// Appends an output and the operation that makes it of x.
sie_status append_output(sie_program *p, Op op, sie_value x, const Output &output, sie_error *err);

Op new_op(uint32_t kind);

// Appends the operation and its results: the value op.out and, if set, op.sum of the same shape.
sie_status append(sie_program *p, const Op &op, sie_space space, uint32_t compute, int64_t columns,
                  sie_error *err);

// Makes room for values with numbers up to v; false if there is no memory.
bool reserve_value(sie_program *p, sie_value v);

}  // namespace sie

#endif  // SIE_CSRC_RECORD_H
