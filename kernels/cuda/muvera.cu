// muvera.cu — instances and the launcher.
#include "cuda/muvera.h"

#include "cuda/muvera.cuh"
#include "cuda/row_norms.h"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

constexpr int64_t tokens_max = int64_t{1} << 26;  // nearest_token counts in 26 bits

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Sizes of an encoding, and the places of its intermediates: byte offsets from the start of
// scratch.
struct Plan {
  int64_t block, columns;                                  // 2ᵏ·P, F
  int64_t shared_row, shared_block, slot_row, slot_block;  // floats
  size_t shared_bytes, pair_bytes;                         // of a CTA of one sequence, and of two
  int64_t slots;  // CTAs that have one; 0: everything lies in shared memory
  int64_t stride, partitions, means, norms, pooling, intermediates, end;
};

struct Shape {
  int64_t tokens, seqs, c, repetitions, bits, projected,
      final_dims;  // projected 0: identity; final_dims 0: no sketch
};

// Whether plan_of can count with the sizes.
bool countable(const Shape &s) {
  if (s.c < 1 || s.c > max_columns || s.repetitions > max_columns || s.projected > projected_max)
    return false;
  const int64_t block = (s.projected != 0 ? s.projected : s.c) << s.bits;
  if (s.repetitions * block > INT32_MAX || s.tokens > tokens_max) return false;
  return (s.final_dims != 0 ? s.final_dims : s.repetitions * block) <= max_columns;
}

Plan plan_of(const Shape &s) {
  Plan p = {};
  p.block = (s.projected != 0 ? s.projected : s.c) << s.bits;
  p.columns = s.final_dims != 0 ? s.final_dims : s.repetitions * p.block;
  // Shared memory goes first to the block, which is read in random order.
  const int64_t row = round_up(p.columns, 8), block = s.final_dims != 0 ? round_up(p.block, 8) : 0;
  const int64_t fixed =
      static_cast<int64_t>(sizeof(double)) * row_warps * output_reductions +
      row_warps * 4 * projection_floats(static_cast<int32_t>(s.c), static_cast<int32_t>(s.projected));
  int64_t left = (static_cast<int64_t>(muvera_shared_max) - fixed) / 4;
  (block <= left ? p.shared_block : p.slot_block) = block;
  left -= p.shared_block;
  (row <= left ? p.shared_row : p.slot_row) = row;
  p.shared_bytes = static_cast<size_t>(fixed + 4 * (p.shared_row + p.shared_block));
  p.pair_bytes = static_cast<size_t>(2 * fixed + 2 * 4 * (row + block));
  const int64_t slot = p.slot_row + p.slot_block;
  p.slots = slot == 0 ? 0 : (s.seqs < muvera_slots ? s.seqs : muvera_slots);
  p.stride = round_up(s.tokens, 8);
  p.partitions = 0;
  p.means = round_up(s.repetitions * p.stride * 2, 64);
  p.norms = round_up(p.means + s.seqs * s.c * 4, 64);
  p.pooling = round_up(p.norms + s.tokens * 4, 64);
  sie_op_bounds pooled = {};
  pooled.rows = s.tokens;
  pooled.seqs = s.seqs;
  pooled.c = s.c;
  p.intermediates = round_up(p.pooling + pool_scratch(&pooled), 64);
  p.end = p.intermediates + p.slots * slot * 4;
  return p;
}

// share: with the scratch of pool.
sie_status launch_means(const sie_muvera_args &a, const float *norms, float *means, const sie_share *share) {
  if (norms != nullptr) {
    return SIE_LAUNCH(muvera_mean_kernel, static_cast<uint32_t>(a.seqs.cap), muvera_threads, 0, share->on,
                      a.seqs, a.cu_seqlens, a.x, static_cast<int32_t>(a.c), norms, means);
  }
  sie_pool_args pool_args = {};
  pool_args.seqs = a.seqs;
  pool_args.cu_seqlens = a.cu_seqlens;
  pool_args.mode = SIE_POOL_MEAN;
  pool_args.c = a.c;
  pool_args.x = a.x;
  pool_args.y.p = means;
  pool_args.y.ld = a.c;
  pool_args.y.dtype = SIE_F32;
  return pool(&pool_args, share);
}

// The shared memory of a CTA of two sequences, on devices that have so much: 163 KiB on sm_80, 227 on
// sm_90 and sm_100, else 99.
size_t pair_shared_max(int32_t sm) {
  if (sm == 80) return 160 * 1024;
  return sm >= 90 && sm < 120 ? 224 * 1024 : muvera_shared_max;
}

sie_status launch_partitions(const PartitionJob &job, int32_t bits, const sie_stream *on) {
  const auto blocks = [](int64_t n, int64_t of) { return static_cast<uint32_t>((n + of - 1) / of); };
  const dim3 grid(blocks(job.tokens.cap, partition_tokens), blocks(job.repetitions, partition_repetitions));
  switch (bits) {
#define SIE_BITS(k) \
  case k:           \
    return SIE_LAUNCH(muvera_partition_kernel<k>, grid, partition_threads, partition_shared_bytes(k), on, job)
    SIE_BITS(0);
    SIE_BITS(1);
    SIE_BITS(2);
    SIE_BITS(3);
    SIE_BITS(4);
    SIE_BITS(5);
    SIE_BITS(6);
    SIE_BITS(7);
    SIE_BITS(8);
    SIE_BITS(9);
    SIE_BITS(10);
#undef SIE_BITS
    default:
      return SIE_INVALID_ARGUMENT;
  }
}

sie_status check(const sie_muvera_args &a, const Shape &s, bool empty) {
  if (a.c < 1 || a.repetitions < 1 || a.simhash_bits < 0 || a.simhash_bits > partition_bits_max) {
    return SIE_INVALID_ARGUMENT;
  }
  if (a.projected < 0 || a.final_dims < 0 || a.tokens.cap < 0) return SIE_INVALID_ARGUMENT;
  const bool no_tokens = empty || a.tokens.cap == 0;
  if (missing(empty, a.seqs.n, a.tokens.n, a.cu_seqlens, a.items, a.out)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, no_tokens)) return SIE_INVALID_ARGUMENT;
  if (a.simhash_bits > 0 && missing(no_tokens, a.simhash)) return SIE_INVALID_ARGUMENT;
  if (a.projected != 0 && missing(no_tokens, a.ams)) return SIE_INVALID_ARGUMENT;
  if (a.final_dims != 0 && missing(no_tokens, a.sketch_output, a.sketch_source)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || !countable(s)) return SIE_UNSUPPORTED;
  return a.center_tokens == 0 || a.c <= row_columns_max ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace

int64_t muvera_scratch(const sie_op_bounds *bounds) {
  if (bounds->simhash_bits < 0 || bounds->simhash_bits > partition_bits_max) return 0;
  // The bounds do not say whether there is a sketch or a projection as wide as a token. With
  // either, the scratch holds at least as much as without; a token that is too wide for a
  // projection has none.
  const bool identity = bounds->projected == bounds->c && bounds->c > projected_max;
  const Shape s = {bounds->rows,        bounds->seqs,         bounds->c,
                   bounds->repetitions, bounds->simhash_bits, identity ? 0 : bounds->projected,
                   bounds->final_dims};
  return countable(s) ? plan_of(s).end : 0;
}

sie_status muvera(const sie_muvera_args *args, const sie_share *share) {
  const sie_muvera_args &a = *args;
  const Shape shape = {a.tokens.cap,   a.seqs.cap,  a.c,         a.repetitions,
                       a.simhash_bits, a.projected, a.final_dims};
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(a, shape, empty);
  if (status != SIE_OK || empty) return status;
  const Plan plan = plan_of(shape);
  if (share->scratch == nullptr || share->scratch_bytes < plan.end) return SIE_INVALID_ARGUMENT;
  char *const scratch = static_cast<char *>(share->scratch);
  float *const means = reinterpret_cast<float *>(scratch + plan.means);
  uint16_t *const partitions = reinterpret_cast<uint16_t *>(scratch + plan.partitions);

  // Subtracting a sequence's own mean also removes `center`.
  float *const norms = reinterpret_cast<float *>(scratch + plan.norms);
  const TokenShift shift = {a.normalize != 0 ? norms : nullptr, a.center_tokens != 0 ? nullptr : a.center,
                            a.center_tokens != 0 ? means : nullptr};
  if (shift.norm != nullptr && a.tokens.cap > 0)
    status = launch_row_norms(a.tokens, a.x, static_cast<int32_t>(a.c), norms, share->on);
  const sie_share pooling = {0, 1, scratch + plan.pooling, plan.intermediates - plan.pooling, share->on};
  if (status == SIE_OK && shift.mean != nullptr) status = launch_means(a, shift.norm, means, &pooling);
  if (status != SIE_OK) return status;
  if (a.tokens.cap > 0) {
    const PartitionJob job = {a.tokens,      a.seqs,    a.cu_seqlens, a.x,        static_cast<int32_t>(a.c),
                              a.repetitions, a.simhash, shift,        partitions, plan.stride};
    status = launch_partitions(job, a.simhash_bits, share->on);
    if (status != SIE_OK) return status;
  }

  MuveraJob job = {};
  job.seqs = a.seqs;
  job.cu_seqlens = a.cu_seqlens;
  job.x = a.x;
  job.shift = shift;
  job.partitions = partitions;
  job.stride = plan.stride;
  job.c = static_cast<int32_t>(a.c);
  job.repetitions = a.repetitions;
  job.bits = a.simhash_bits;
  job.form = {a.projected, a.is_query != 0, a.fill_empty != 0};
  job.ams = a.ams;
  job.sketch_output = a.sketch_output;
  job.sketch_source = a.sketch_source;
  job.columns = static_cast<int32_t>(plan.columns);
  job.sketch = a.final_dims != 0;
  job.quads = a.x.dtype == SIE_BF16 && a.c <= 128 && a.c % 4 == 0 && a.x.ld % 4 == 0 &&
              reinterpret_cast<uintptr_t>(a.x.p) % 8 == 0 && shift.center == nullptr && shift.mean == nullptr;
  job.shared_row = static_cast<int32_t>(plan.shared_row);
  job.shared_block = static_cast<int32_t>(plan.shared_block);
  job.slot_row = plan.slot_row;
  job.slot_block = plan.slot_block;
  job.slots = reinterpret_cast<float *>(scratch + plan.intermediates);
  job.items = a.items;
  job.out = a.out;
  if (job.sketch && plan.pair_bytes <= pair_shared_max(share->on->sm)) {
    job.shared_row = static_cast<int32_t>(plan.shared_row + plan.slot_row);
    job.shared_block = static_cast<int32_t>(plan.shared_block + plan.slot_block);
    return SIE_LAUNCH(muvera_kernel<2>, static_cast<uint32_t>((a.seqs.cap + 1) / 2), 2 * muvera_threads,
                      plan.pair_bytes, share->on, job);
  }
  // CTAs with a slot take the sequences in turn; no more CTAs than run at a time.
  const int64_t resident = share->on->multiprocessors > 0 ? 2 * int64_t{share->on->multiprocessors} : 1;
  int64_t grid = plan.slots != 0 ? plan.slots : a.seqs.cap;
  if (plan.slots != 0 && grid > resident) grid = resident;
  return SIE_LAUNCH(muvera_kernel<1>, static_cast<uint32_t>(grid), muvera_threads, plan.shared_bytes,
                    share->on, job);
}

}  // namespace sie_cuda
