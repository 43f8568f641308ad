// attention_blocks.h — attention for some of the queries: in blocks of them, and one a sequence.
#ifndef SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
#define SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H

namespace harness {

// Checks on every CPU table that calls in blocks give the bits of one call for all queries.
void check_attention_blocks();
// Checks on every table that a sequence's first or last query alone has the bits that it has among
// all.
void check_attention_one_query();

// Checks on every CPU table, at lengths and windows around the blocks of keys: the reference's
// values; the bits in shares, unit by unit, and of single queries.
void check_attention_keys();

// Checks that a NaN behind a mask reaches no query, and every query before it.
void check_attention_hidden_keys();

// Checks on every CPU table that queries whose window holds no key give zeros, alone and in company.
void check_attention_without_sight();

// Checks that scratch does not grow with the length of an item.
void check_attention_scratch();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
