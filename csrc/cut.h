// cut.h — the sizes of blocks of a long slab (Cut).
#ifndef SIE_CSRC_CUT_H
#define SIE_CSRC_CUT_H

#include "program.h"

namespace sie {

constexpr int64_t row_block_step = 288;  // rows: a multiple of 9, 16, 32 and 144

// The space whose rows an operation that is cut into rows computes.
sie_space cut_space(const sie_program *program, const Op &op);

// The rows of a block that one of `parts` executors runs. In attention: the queries, against `keys`
// keys.
int64_t block_rows(const sie_program *program, const PlannedOp &planned, int64_t keys, int32_t parts);

// The number of shares into which one executor's share of all `rows` is cut.
int64_t block_shares(const sie_program *program, const PlannedOp &planned, int64_t rows, int32_t parts);

}  // namespace sie

#endif  // SIE_CSRC_CUT_H
