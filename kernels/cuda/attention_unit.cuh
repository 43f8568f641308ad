// attention_unit.cuh — one item of the work list for one head: the places of its rows, the keys
// they see, and their loads and stores.
#ifndef SIE_KERNELS_CUDA_ATTENTION_UNIT_CUH
#define SIE_KERNELS_CUDA_ATTENTION_UNIT_CUH

#include "cuda/attention_block.cuh"
#include "cuda/attention_launch.h"
#include "cuda/ptx/vector.h"

namespace sie_cuda {
namespace {

// What an instance has beside the rest.
enum class With { nothing, bias, prefix };

struct Blocks {
  int key, count;  // the first block's first key
};

// One (item, head); a CTA keeps its head for good. The item's numbers are read from the list where
// they are needed: a load from L1 costs less than the registers to keep them.
template <int D>
struct Unit {
  unsigned item;

  struct Span {
    int row, count;
  };
  SIE_DEVICE Span queries(const AttentionParams &p) const { return span(&entry(p)->q_row); }
  // The first own row, and the number of all keys.
  SIE_DEVICE Span keys(const AttentionParams &p) const { return span(&entry(p)->kv_row); }
  SIE_DEVICE Span prefix(const AttentionParams &p) const { return span(&entry(p)->prefix_row); }
  // For `rows` rows from `row` on, or as many as exist.
  SIE_DEVICE Sight sight(const AttentionParams &p, int row, int rows) const {
    int position = static_cast<int>(ptx::load_global<uint32_t>(&entry(p)->position));
    return Sight{position + row, min(rows, queries(p).count - row), keys(p).count, p.left, p.right};
  }
  // The blocks that some of those rows see.
  SIE_DEVICE Blocks visible(const AttentionParams &p, int row, int rows) const {
    constexpr unsigned kKeys = kBlockKeys<D>;
    Sight sight = this->sight(p, row, rows);
    unsigned first = static_cast<unsigned>(sight.first()) / kKeys;
    if (sight.last() <= sight.first()) return Blocks{static_cast<int>(first * kKeys), 0};
    unsigned last = (static_cast<unsigned>(sight.last()) + kKeys - 1) / kKeys;
    return Blocks{static_cast<int>(first * kKeys), static_cast<int>(last - first)};
  }
  SIE_DEVICE Scale scale(const AttentionParams &p) const {
    return Scale{p.scale_log2, p.inverse_scale, p.slopes, blockIdx.x, p.bias, p.bias_reach};
  }
  SIE_DEVICE int64_t q_column() const { return int64_t{blockIdx.x} * D; }
  SIE_DEVICE int64_t kv_column(const AttentionParams &p) const {
    return int64_t{blockIdx.x * static_cast<unsigned>(p.kv_heads) / static_cast<unsigned>(p.heads)} * D;
  }

 private:
  SIE_DEVICE const AttentionItem *entry(const AttentionParams &p) const {
    return reinterpret_cast<const AttentionItem *>(p.work + 1) + ptx::opaque(static_cast<int>(item));
  }
  SIE_DEVICE static Span span(const int32_t *pair) {
    uint2 v = ptx::load_global<uint2>(pair);
    return Span{static_cast<int>(v.x), static_cast<int>(v.y)};
  }
};

// Loads keys from `key` on to `tile` and their values behind them; kThreads threads together.
template <int D, int kKeys, int kThreads, With kWith>
SIE_DEVICE void copy_keys(const AttentionParams &p, const Unit<D> &unit, int key, uint32_t tile, int thread) {
  auto keys = unit.keys(p);
  const int64_t column = unit.kv_column(p);
  if constexpr (kWith == With::prefix) {
    auto prefix = unit.prefix(p);
    const int split = prefix.count - key;  // of the block's rows; below 0 behind the prefix
    const int64_t shared = int64_t{prefix.row} + key, own = keys.row;
    copy_split_rows<D, kKeys, kThreads>(tile, p.prefix_k + shared * p.prefix_k_ld + column, p.prefix_k_ld,
                                        split, p.k + own * p.k_ld + column, p.k_ld, keys.count - key, thread);
    copy_split_rows<D, kKeys, kThreads>(tile + kKeys * D * 2, p.prefix_v + shared * p.prefix_v_ld + column,
                                        p.prefix_v_ld, split, p.v + own * p.v_ld + column, p.v_ld,
                                        keys.count - key, thread);
  } else {
    int64_t row = int64_t{keys.row} + key;
    copy_rows<D, kKeys, kThreads>(tile, p.k + row * p.k_ld + column, p.k_ld, keys.count - key, thread);
    copy_rows<D, kKeys, kThreads>(tile + kKeys * D * 2, p.v + row * p.v_ld + column, p.v_ld, keys.count - key,
                                  thread);
  }
}

// Loads sixteen rows of queries from `row` on; one warp.
template <int D>
SIE_DEVICE void copy_queries(const AttentionParams &p, const Unit<D> &unit, int row, uint32_t tile,
                             int lane) {
  auto queries = unit.queries(p);
  const uint16_t *from = p.q + (int64_t{queries.row} + row) * p.q_ld + unit.q_column();
  copy_rows<D, kWarpRows, 32>(tile, from, p.q_ld, queries.count - row, lane);
}

template <ptx::Operand T, int D>
SIE_DEVICE void store_unit_rows(const AttentionParams &p, const Unit<D> &unit, const Rows<D> &rows, int row,
                                int lane) {
  auto queries = unit.queries(p);
  uint16_t *y = p.y + (int64_t{queries.row} + row) * p.y_ld + unit.q_column();
  if (row < queries.count) store_rows<T, D>(rows, y, p.y_ld, queries.count - row, lane);
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_UNIT_CUH
