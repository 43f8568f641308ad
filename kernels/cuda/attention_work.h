// attention_work.h — what attention's kernel is to do in one run, listed on the host and read on
// the device.
//
//   byte 0    AttentionWork    how many items of each form follow
//   byte 32   AttentionItem[] those for whole CTAs first, then those for single warps; in each form
//             the
//                              costliest first, so that the last CTAs to start are the shortest
//
// An item is some query rows of one sequence against all of its keys, for every head. The device
// reads the counts: a captured graph serves every run, and the CTAs that a run does not need leave
// at once.
#ifndef SIE_KERNELS_CUDA_ATTENTION_WORK_H
#define SIE_KERNELS_CUDA_ATTENTION_WORK_H

#include <stdint.h>

#include "ops.h"

namespace sie_cuda {

struct AttentionWork {
  int32_t cta_items, warp_items;
  int32_t reserved[6];
};

struct AttentionItem {
  int32_t q_row, q_rows;  // rows of q and y
  int32_t kv_row, keys;   // rows of k and v
  int32_t position;       // of row q_row in its sequence; below zero where there are more queries than keys
  int32_t reserved[3];
};

static_assert(sizeof(AttentionWork) == 32 && sizeof(AttentionItem) == 32, "read as pairs of 16 bytes");

// Sequences of at most this many keys belong to single warps.
constexpr int kAttentionWarpKeys = 32;

// Keys a block: scores of 16 queries against so many are in a warp's registers. Of every form of a
// head dimension the same, since a row's sums run block by block.
constexpr int attention_block_keys(int head_dim) { return head_dim <= 128 ? 64 : 32; }

// Sequences of at most this many keys (64 KiB of keys and values) are wholly resident in shared
// memory, three CTAs an SM on sm_90. Where an SM has only 100 KiB, half as many are
// (attention_shape); bits stay the same.
constexpr int attention_short_keys(int head_dim) { return 16384 / head_dim; }

// Lengths beyond this are refused: positions and their differences stay far inside 32 bits.
constexpr int64_t kAttentionMaxLength = int64_t{1} << 28;

// Bounds of the number of items: no form has fewer than 32 query rows an item, but for a sequence's
// last.
constexpr int64_t attention_max_items(int64_t q_rows, int64_t seqs) { return q_rows / 32 + seqs; }

// What attention and attention_work refuse alike: types, shapes and masks; no pointer is followed.
sie_status attention_check(const sie_attention_args *a);

// The table's entries (ops.h).
int64_t attention_work_bytes(const sie_op_bounds *bounds);
sie_status attention_work(const sie_attention_args *host_view, void *dst);
sie_status attention(const sie_attention_args *a, const sie_share *share);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_WORK_H
