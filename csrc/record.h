// record.h — what the functions that record operations share: checks of their arguments, and appending.
//
// Every one of them checks first and appends last, so a refused call leaves the program as it was.
#ifndef SIE_CSRC_RECORD_H
#define SIE_CSRC_RECORD_H

#include "program.h"

namespace sie {

sie_status check_open(const sie_program *p, sie_error *err);

// A value that operations may read; `name` is the parameter's.
sie_status check_value(const sie_program *p, sie_value v, const char *name, sie_error *err);

// A weight of a kind, of this device, where kernels reach it.
sie_status check_weight(const sie_program *p, const sie_weight *w, uint32_t kind, const char *name,
                        sie_error *err);

// A vector of `length` elements; NULL passes when optional.
sie_status check_vector(const sie_program *p, const sie_weight *w, int64_t length, bool optional,
                        const char *name, sie_error *err);

// A SIE_WEIGHT_DATA of [n, k].
sie_status check_data(const sie_program *p, const sie_weight *w, int32_t dtype, int64_t n, int64_t k,
                      const char *name, sie_error *err);

// x, w and bias of x·Wᵀ + bias.
sie_status check_linear(const sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                        sie_error *err);

// A field that is 0 or 1.
sie_status check_flag(int32_t flag, const char *name, sie_error *err);

// SIE_UNSUPPORTED, with the operation's name, where the device's table lacks its entry.
sie_status check_has(const sie_program *p, bool has, uint32_t kind, sie_error *err);

const char *rows_name(Rows rows);

Op new_op(uint32_t kind);

// Appends the operation and, when y is given, the value it makes.
sie_status append(sie_program *p, const Op &op, Rows rows, uint32_t compute, int64_t columns, sie_value *y,
                  sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_RECORD_H
