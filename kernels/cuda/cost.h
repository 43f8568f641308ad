// cost.h — what work costs on a card: the clocks for which it keeps each unit of a multiprocessor
// busy, and what starts and ends it.
//
// The model is a roof for each unit: work takes as long as its busiest unit, and a fixed part. It chooses
// the tiles of gemm_sm90_choose.cc and predicts for kernels/bench/model.cc. Constants come from documents or are fitted to published figures, which
// gemm_cost_test.cc reproduces. No card has run these kernels.
#ifndef SIE_KERNELS_CUDA_COST_H
#define SIE_KERNELS_CUDA_COST_H

#include <stdint.h>

namespace sie_cuda {

// A card at the clock that it holds under load. Rates are of one multiprocessor and a clock.
struct Card {
  const char *name;
  int32_t sm, multiprocessors;
  double ghz;
  double multiply_adds;   // of 16-bit operands by wgmma; of e4m3 twice as many
  double products_share;  // of them that a pipelined main loop reaches
  double warp_products;   // share that mma.sync reaches
  double shared_bytes;    // the port of shared memory
  double l2_bytes;        // with all multiprocessors reading
  double exponentials;    // ex2
  double lanes;           // instructions of all schedulers, times 32
  double dram_bytes_s;    // copied, read and written bytes together
  double gap_us;          // from one kernel's end to the next one's first work, in a graph
  double chain_clocks;    // one dependent step of a main loop: barrier, descriptor, product, wait
  double load_clocks;     // from an address to its data in shared memory, L2 missed
};

// The cards that are predicted for; sm 90. The first one stands for a card of unknown name.
constexpr Card card_h100 = {"H100 SXM", 90, 132, 1.65,   2048, 0.90, 0.62, 128,
                            46.6,       16, 128, 3.0e12, 1.3,  36,   1000};
constexpr Card card_h200 = {"H200 SXM", 90, 132, 1.65,   2048, 0.90, 0.62, 128,
                            46.6,       16, 128, 4.3e12, 1.3,  36,   1000};

enum class Limit { tensor, shared, l2, exponentials, issue, dram, latency };
const char *limit_name(Limit limit);

// Clocks of one multiprocessor, by unit.
struct Cost {
  double tensor = 0, shared = 0, l2 = 0, exponentials = 0, issue = 0;
  double busiest() const;
  Limit limit() const;
};

// What a whole kernel takes.
struct Prediction {
  double us = 0;
  Limit limit = Limit::dram;
  double floor_us = 0;  // the least that the card allows: bytes, or products at their full rate
};

// A product [rows, k]·[n, k]ᵀ and what follows it.
struct GemmWork {
  int64_t rows, n, k;
  bool fp8 = false;
  bool blocks = false;         // FP8: x has a scale for each 128 columns, which the main loop loads
  bool activated = false;      // GELU, or a gate's
  bool gated = false;          // two columns of the product are one of y
  int32_t residual_bytes = 0;  // an element of the residual, 0: none
  int32_t y_bytes = 2;         // 1: e4m3 with scales of 128 columns

  double y_columns() const { return static_cast<double>(n) / (gated ? 2 : 1); }
};

// Returns the bytes of operands, residual and y, each read or written once.
double gemm_bytes(const GemmWork &work);

// A tile of gemm_sm90.cuh.
struct GemmTileShape {
  int32_t rows, columns, warpgroup_rows, cluster;
  int32_t code = 0;  // bytes of its kernel (gemm_sm90_code.h); 0: so few that they cost nothing
};

// The part of the issue slots that is left of an epilogue whose kernel has so many bytes of code: its warps run
// through once a tile, and no loop of it stays in a cache. What a launch takes to read code for the first time
// is in no constant here: nobody has published it.
double code_share(int32_t bytes);

// Returns the clocks of one tile's main loop. Per 64-row product both operands come through the port of
// shared memory; TMA writes each stage there once, and L2 brings it.
Cost gemm_main_loop(const Card &card, const GemmWork &work, const GemmTileShape &tile);

// Returns the clocks of one step of a main loop for which x's block scales are waited for: they are asked for that
// long before the step's promotion.
double scale_clocks(const GemmWork &work, double ahead);

// Returns the clocks of one tile's epilogue: its instructions, as code_share lets them be issued, or its bytes.
double gemm_epilogue_clocks(const Card &card, const GemmWork &work, const GemmTileShape &tile);

// Returns the clocks of the whole product on `multiprocessors`; persistent CTAs, one each.
double gemm_clocks(const Card &card, const GemmWork &work, const GemmTileShape &tile,
                   int32_t multiprocessors);

// The same in time, with its limit and its floor.
Prediction predict_gemm(const Card &card, const GemmWork &work, const GemmTileShape &tile);

// The clusters that run at once, at least 1. A GPC of 16 or 18 multiprocessors has room for 16/cluster of more than
// two CTAs.
int64_t gemm_norm_clusters(int32_t cluster, int32_t multiprocessors);

// A product whose clusters compute whole rows and normalise them (linear_norm): tile.cluster CTAs next to each
// other along N, each with tile.columns of the n columns; x is multicast, and W is each CTA's own.
double gemm_norm_clocks(const Card &card, const GemmWork &work, const GemmTileShape &tile,
                        int32_t multiprocessors);

// The same in time, with its limit and its floor.
Prediction predict_gemm_norm(const Card &card, const GemmWork &work, const GemmTileShape &tile);

// A product that leaves as each sequence's maxima (splade_sm90.cuh): w.y_bytes is 0, and the zeros that the maxima
// start from are a kernel of their own.
Prediction predict_splade(const Card &card, const GemmWork &work, const GemmTileShape &tile, int64_t seqs);

// The skinny form (gemm_sm90_skinny.cuh): 64 rows of W a CTA, all of x; a chain of steps of K.
double skinny_clocks(const Card &card, const GemmWork &work, int32_t multiprocessors);

// The same in time, with its limit and its floor.
Prediction predict_skinny(const Card &card, const GemmWork &work);

// Attention over sequences of some lengths, queries and keys alike; without tables.
struct AttentionShape {
  int32_t heads, kv_heads, dim;
  int32_t window = 0;   // keys to each side, 0: all
  bool causal = false;  // half of the pairs
  bool slopes = false;  // ALiBi
  int32_t reach = -1;   // of a bias by distance; -1: none
  int32_t most = 0;     // keys of the narrow form; 0: as many as attention_narrow_keys says

  bool is_wide(int32_t length) const {
    const int32_t own = dim == 256 ? 256 : (dim == 64 ? 704 : 448) * (causal ? 2 : 1);
    const int32_t narrow = most > 0 ? most : own;
    return (dim == 64 || dim == 128 || dim == 256) && length > narrow && (window == 0 || 2 * window > narrow);
  }
};

// The mma.sync kernel of attention.cuh, and for sequences that are wide that of attention_sm90.cuh.
Prediction predict_attention(const Card &card, const AttentionShape &shape, const int32_t *lengths,
                             int64_t seqs);

// FlashAttention-3 as published, for the model's own test and as the aim of a wgmma form.
double flash3_tflops(const Card &card, int64_t length, int32_t dim);

// What pool_output.cuh makes of each text's rows of `columns` in 16 bits: with a CTA a text, or, where one has
// more rows than a part, with a CTA for each octet of a part and a second kernel that joins parts.
Prediction predict_pool(const Card &card, int32_t columns, const int32_t *lengths, int64_t seqs);

// maxsim.cuh: a CTA for each text's rows of `columns` in 16 bits against one query's, whose f32 it reads
// again for each tile of the text.
Prediction predict_maxsim(const Card &card, int32_t columns, int32_t query_rows, const int32_t *lengths,
                          int64_t seqs);

// An encoding without projection, sketched to `dims` (muvera.cuh). Two documents a multiprocessor are under way.
struct MuveraShape {
  int32_t columns, repetitions, bits, dims;
  int32_t documents;  // of a CTA, which read the tables once

  int64_t block() const { return int64_t{columns} << bits; }
};

// The partitions of all tokens, by FMAs, and the kernel that sums and sketches.
Prediction predict_muvera(const Card &card, const MuveraShape &shape, const int32_t *lengths, int64_t seqs);

// A row operation that moves so many bytes. waves: dependent trips to memory before the first store.
Prediction predict_rows(const Card &card, double bytes, double waves);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_COST_H
