// slabs.h — shares the sequences of a batch out among slabs.
#ifndef SIE_CSRC_SLABS_H
#define SIE_CSRC_SLABS_H

#include <stdint.h>

namespace sie {

struct SlabLimits {
  int32_t executors;
  int64_t tokens_max;  // a sequence longer than this is a slab of its own
  int64_t seqs_max;
  // Tokens at which a sequence's attention costs as much as its linear layers; 0: no attention.
  int64_t balance;
};

struct SlabShare {
  int64_t cost;  // arbitrary unit: linear work, and attention's quadratic part
  int64_t tokens;
  int32_t seqs;
  int32_t first;  // the place in `order` of its first sequence
  int64_t max_len;
  int32_t members, most;  // of its team, now and at most
};

// Room for plan_slabs, each [n_seqs].
struct SlabWork {
  SlabShare *shares;
  int32_t *order;    // out: sequence numbers, slab by slab
  int32_t *slab_of;  // of each place in length order
  int32_t *heap;
  int32_t *by_length;
};

// Fills shares and order; returns the number of slabs. The sequences are dealt to one load for each
// executor, to fewer if a load would have less than 64 tokens: the longest first, each to the
// cheapest load. Each load's are dealt the same way to as few slabs as can hold them, and where one
// does not fit the cheapest slab it begins another. So executors end together, also where lengths
// differ much. Slabs of one sequence of more than tokens_max come first, then the others, each by
// descending cost. The result depends on the batch and the limits only. O(n log n), no allocation.
int32_t plan_slabs(const int32_t *cu_seqlens, int32_t n_seqs, const SlabLimits &limits, const SlabWork &work);

// Gives `more` members to teams of the n listed slabs, one by one: each to the slab that has the most
// cost for a member and, of equal ones, the lowest number; none to a slab that has its most. Returns
// how many were given. slabs null: slabs 0 … n - 1. work: [n]. O((n + more) log n).
int32_t grow_teams(SlabShare *shares, const int32_t *slabs, int32_t n, int32_t more, int32_t *work);

// Deals slabs 0 … n - 1 out among nodes that have so many executors each: in order, each to the
// node that would end first, and of equal ones to the first from `first` on, around. Writes the
// slabs node by node to order[n], each node's in ascending order, and where each node's end to
// ends[nodes]. work: [n]. O(n · nodes).
void deal_slabs(const SlabShare *shares, int32_t n, const int32_t *executors, int32_t nodes, int32_t first,
                int32_t *work, int32_t *order, int32_t *ends);

}  // namespace sie

#endif  // SIE_CSRC_SLABS_H
