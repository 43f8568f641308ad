// attention_blocks.h — attention for some of the queries, around its blocks of keys, and over keys in
// two segments.
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

// Checks on every CPU table that a NaN in a row of the tables by distance reaches the queries that
// have a key at its distances, and no others.
void check_attention_hidden_buckets();

// Checks on every CPU table that queries whose window holds no key give zeros, alone and in company.
void check_attention_without_sight();

// Checks on every table, at prefixes and own keys around vectors and blocks of keys, that keys in two
// segments give the bits of the same keys in one; on CPUs also in shares and in blocks of queries.
void check_attention_prefix();

// Checks that a NaN in a prefix, behind a window, reaches no query that does not see it.
void check_attention_hidden_prefix();

// Checks that scratch does not grow with the length of an item.
void check_attention_scratch();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ATTENTION_BLOCKS_H
