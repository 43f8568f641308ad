// attention_work.h — the work list of one run of attention's kernel, written on the host and read
// on the device.
//
//   byte 0    AttentionWork    the number of items of each form
//   byte 32   AttentionItem[]  the items for whole CTAs first, then those for single warps; in each
//                              form the costliest first, so that the last CTAs to start are the
//                              shortest. On sm_90, where the head dimension has a wide form, those of
//                              it (attention_sm90.cuh), then the tall ones, of more keys than stay in
//                              shared memory, then the rest
//
// An item is some query rows of one sequence against all of its keys, for every head. The device
// reads the counts, so one captured graph serves every run; CTAs that a run does not need exit at
// once.
#ifndef SIE_KERNELS_CUDA_ATTENTION_WORK_H
#define SIE_KERNELS_CUDA_ATTENTION_WORK_H

#include <stdint.h>

#include "ops.h"

namespace sie_cuda {

struct AttentionWork {
  int32_t cta_items, warp_items;  // wide, tall and short; warp
  int32_t tall_end, no_warps;     // wide and tall, where there is a wide form; 0
  int32_t wide_items;
  int32_t reserved[3];
};

struct AttentionItem {
  int32_t q_row, q_rows;  // rows of q and y
  int32_t kv_row, keys;   // the first own row of k and v; the number of keys, the prefix's included
  int32_t position;       // of row q_row in its sequence; below zero where there are more queries than keys
  int32_t reserved;
  int32_t prefix_row, prefix_keys;  // rows of prefix_k and prefix_v: the first of the keys
};

static_assert(sizeof(AttentionWork) == 32 && sizeof(AttentionItem) == 32, "read as pairs of 16 bytes");

// Sequences of at most this many keys are worked on by single warps.
constexpr int kAttentionWarpKeys = 32;

// Where there is a wide form, sequences of more keys than this have it. By the cost model it takes
// longer up to about here: the narrow kernel's 16 rows by 64 keys fit a text better than 128 by 128.
// Causal rows see half of them. At D = 256 a block has 64 keys, and the narrow kernel is slow.
constexpr int attention_narrow_keys(int head_dim, int32_t mask) {
  if (head_dim == 256) return 256;
  return (head_dim == 64 ? 704 : 448) * (mask == SIE_MASK_CAUSAL ? 2 : 1);
}

// Whether lists for sm_90 have the wide form apart: where the head dimension has it, and a window does
// not leave a row fewer keys than that.
inline bool attention_lists_wide(const sie_attention_args *a) {
  return (a->head_dim == 64 || a->head_dim == 128 || a->head_dim == 256) &&
         (a->mask != SIE_MASK_WINDOW || 2 * int64_t{a->window} > attention_narrow_keys(a->head_dim, a->mask));
}

// Keys a block: the scores of 16 queries against a block fit into a warp's registers. All forms of
// a head dimension use the same number, since a row's sums run block by block.
constexpr int attention_block_keys(int head_dim) { return head_dim <= 128 ? 64 : 32; }

// Sequences of at most this many keys (64 KiB of keys and values) stay wholly in shared memory,
// three CTAs an SM on sm_90. Where an SM has only 100 KiB, the limit is half of it
// (attention_shape); bits stay the same.
constexpr int attention_short_keys(int head_dim) { return 16384 / head_dim; }

// Longer sequences are refused, so that positions and their differences stay far inside 32 bits.
constexpr int64_t kAttentionMaxLength = int64_t{1} << 28;

// The bound of the number of items: in every form an item has at least 32 query rows, except the
// last of a sequence.
constexpr int64_t attention_max_items(int64_t q_rows, int64_t seqs) { return q_rows / 32 + seqs; }

// The checks that attention and attention_work share: types, shapes and masks; it follows no
// pointer.
sie_status attention_check(const sie_attention_args *a);

// The table's entries (ops.h).
int64_t attention_work_bytes(const sie_op_bounds *bounds);
sie_status attention_work(const sie_attention_args *host_view, void *dst);
sie_status attention_work_sm90(const sie_attention_args *host_view, void *dst);
sie_status attention(const sie_attention_args *a, const sie_share *share);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_WORK_H
