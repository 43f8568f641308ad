// attention_blocks.h — attention for some of the queries: in blocks of them, and one a sequence.
#ifndef SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
#define SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H

namespace harness {

// Checks on every CPU table that calls in blocks give the bits of one call for all queries.
void check_attention_blocks();
// Checks on every table that a sequence's first or last query alone has the bits that it has among
// all.
void check_attention_one_query();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
