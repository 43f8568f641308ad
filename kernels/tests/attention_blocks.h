// attention_blocks.h — attention in blocks of queries.
#ifndef SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
#define SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H

namespace harness {

// Checks on every CPU table that calls in blocks give the bits of one call for all queries.
void check_attention_blocks();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
