// attention_disentangled.h — the parameters of disentangled attention's kernel, and the parts of its
// launcher.
#ifndef SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_H
#define SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_H

#include "cuda/attention_launch.h"

namespace sie_cuda {

// The queries that a CTA takes at a time, and its threads.
constexpr int kDisentangledRows = 64, kDisentangledThreads = 128;
// The terms of those queries and of a block of as many keys: floats from one query to the next.
constexpr int kDisentangledTermsLd = 68;
constexpr int kDisentangledTermsBytes = kDisentangledRows * kDisentangledTermsLd * 4;

// A table of rows by distance; rows is NULL where it is absent.
struct PositionTable {
  const uint16_t *rows;
  int64_t ld;
};

struct DisentangledParams {
  AttentionParams attention;
  PositionTable pos_key, pos_query;
  const int32_t *bucket;  // the table row of distance 0; before and behind it `reach` more
  int32_t reach;
};

// What attention_check asks of arguments with buckets, besides.
sie_status attention_disentangled_check(const sie_attention_args *a);

// The shared memory of a CTA for key sequences of at most max_kv.
int64_t attention_disentangled_shared(int head_dim, int64_t max_kv);

// Launches the kernel; `params` and `items`, a bound of the list's items, are those of the arguments,
// which attention has checked.
sie_status attention_disentangled(const sie_attention_args *a, const AttentionParams &params, int64_t items,
                                  const sie_stream *on);

// The instances of one head dimension: attention_disentangled_d32.cu, _d64.cu and _d128.cu.
template <int D>
sie_status attention_launch_disentangled(int32_t dtype, int64_t shared_bytes, int64_t ctas,
                                         const sie_stream *on, const DisentangledParams &params);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_H
