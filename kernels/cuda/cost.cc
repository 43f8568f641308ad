// cost.cc — the formulas of cost.h.
#include "cuda/cost.h"

#include "cuda/cost_parts.h"
#include "cuda/pool_parts.h"

namespace sie_cuda {

namespace {

// Instructions an element of an epilogue, by hand from gemm_epilogue.cuh: scale, bias and conversion; exact
// GELU or a gate; a residual.
constexpr double kPlain = 6, kActivated = 18, kResidual = 5;
// A norm in it, a guess: rounding, two sums and the result; and the clocks of an exchange in a cluster, of which
// there are two.
constexpr double kNorm = 9, kExchange = 600;
// Softmax of a score beside its exponential: scale, maximum, sum, conversion.
constexpr double kSoftmax = 6;
// ALiBi: the distance, and its product with the slope. A bias by distance: the distance, held at both ends, the
// address, the load, the product with 1/scale; the last alone where all of a block is farther than the reach.
constexpr double kSlope = 2, kBias = 6, kFarBias = 1;

// Fitted to FlashAttention-3's published figures (gpu.md's table, six points): the part of the exponentials
// that its products do not hide, and what a tile of 128 queries takes beside its keys.
constexpr double kFlashExposed = 0.7, kFlashTile = 3600;

// What the first version of the same schedule reaches of it (attention_sm90.cuh): a guess.
constexpr double kWideShare = 0.85;

// Straight code, as others measured it: of the cubie project's hardware notes of September 2026, FFMAs on an RTX 4070
// SUPER (sm_89), eight warps a multiprocessor, as many as compute here. Up to 64 KiB 98 % of the slots were used,
// with 128 KiB 86 %, with 144 KiB 34 %, and no less with 192. What lies between is a straight line here. Nobody has
// measured it on Hopper, whose instruction caches NVIDIA states no sizes of.
constexpr double kCodeFast = 64 << 10, kCodeCached = 128 << 10, kCodeMissed = 144 << 10;
constexpr double kCachedShare = 0.86, kMissedShare = 0.34;

// Steps whose block scales of a row come in one sector of 32 bytes: L1 has all but the first.
constexpr double kSectorSteps = 8;
// Bytes of rows that L1 keeps beside 160 KiB of shared memory.
constexpr double kRowsKept = 64 * 1024;

// Instructions of a warp in an encoding, by hand from its machine code for sm_90a (muvera.cuh): for a token of up to
// 128 columns in bf16, where a partition has two; for a partition, of which 60 % have something to divide; for 32
// additions of the sketch, and of these for each document. An access to shared memory takes as many passes as the
// fullest bank has words: so many, as sie_order_sketch spreads them (muvera_calls_test.cc). A sketch to more columns
// than it has places has about 7 rounds; each costs a load, a sum, a store and a barrier.
constexpr double kMuveraToken = 33, kMuveraPartition = 80, kMuveraAdditions = 26, kMuveraAddition = 6.5,
                 kMuveraBanks = 1.55, kMuveraRounds = 7, kMuveraRound = 120;

double gemm_floor_us(const Card &card, const GemmWork &w) {
  const double products =
      static_cast<double>(w.rows) * static_cast<double>(w.n) * static_cast<double>(w.k) /
      (card.multiply_adds * (w.fp8 ? 2 : 1) * card.products_share * card.multiprocessors) / (card.ghz * 1e3);
  return most(products, gemm_bytes(w) / card.dram_bytes_s * 1e6);
}

}  // namespace

const char *limit_name(Limit limit) {
  static const char *const names[] = {"tensor", "shared", "L2", "exponentials", "issue", "DRAM", "latency"};
  return names[static_cast<int>(limit)];
}

double Cost::busiest() const { return most(most(tensor, shared), most(most(l2, exponentials), issue)); }

Limit Cost::limit() const {
  const double top = busiest();
  if (tensor >= top) return Limit::tensor;
  if (shared >= top) return Limit::shared;
  if (l2 >= top) return Limit::l2;
  return exponentials >= top ? Limit::exponentials : Limit::issue;
}

double gemm_bytes(const GemmWork &w) {
  const double element = w.fp8 ? 1 : 2;
  const double rows = static_cast<double>(w.rows), n = static_cast<double>(w.n), k = static_cast<double>(w.k);
  return (rows * k + n * k) * element + rows * w.y_columns() * (w.y_bytes + w.residual_bytes);
}

Cost gemm_main_loop(const Card &card, const GemmWork &w, const GemmTileShape &t) {
  const double element = w.fp8 ? 1 : 2, k = static_cast<double>(up(w.k, 64) * 64);
  Cost c;
  c.tensor = t.rows * t.columns * k / (card.multiply_adds * (w.fp8 ? 2 : 1) * card.products_share);
  const double written = (t.rows + t.columns) * k * element;
  const double read = (t.rows + t.columns * (t.rows / 64.0)) * k * element;
  c.shared = (written + read) / card.shared_bytes;
  c.l2 = (t.rows + t.columns / static_cast<double>(t.cluster)) * k * element / card.l2_bytes;
  // e4m3 sums are promoted every 128 columns: one FMA an element, by the warpgroup that multiplies.
  if (w.fp8) c.issue = t.rows * t.columns * (k / 128) / card.lanes;
  return c;
}

double code_share(int32_t bytes) {
  const auto between = [&](double from, double to, double first, double last) {
    return first + (last - first) * (bytes - from) / (to - from);
  };
  if (bytes <= kCodeFast) return 1;
  if (bytes <= kCodeCached) return between(kCodeFast, kCodeCached, 1, kCachedShare);
  if (bytes <= kCodeMissed) return between(kCodeCached, kCodeMissed, kCachedShare, kMissedShare);
  return kMissedShare;
}

double gemm_epilogue_clocks(const Card &card, const GemmWork &w, const GemmTileShape &t) {
  const double each = kPlain + (w.activated ? kActivated : 0) + (w.residual_bytes > 0 ? kResidual : 0);
  const double elements = static_cast<double>(t.rows) * t.columns;
  const double issue = elements * each / card.lanes / code_share(t.code);
  const double moved = elements / (w.gated ? 2 : 1) * (w.y_bytes + w.residual_bytes) / card.l2_bytes;
  return most(issue, moved) + (w.residual_bytes > 0 ? card.load_clocks : 0);
}

double scale_clocks(const GemmWork &w, double ahead) {
  if (!w.fp8 || !w.blocks) return 0;
  return (most(0, kL2Trip - ahead) + (kSectorSteps - 1) * most(0, kL1Trip - ahead)) / kSectorSteps;
}

double gemm_clocks(const Card &card, const GemmWork &w, const GemmTileShape &t, int32_t multiprocessors) {
  const int64_t tiles = up(w.rows, static_cast<int64_t>(t.rows) * t.cluster) * up(w.n, t.columns);
  const int64_t groups = multiprocessors / t.cluster > 1 ? multiprocessors / t.cluster : 1;
  const double turns = static_cast<double>(up(tiles, groups));
  const Cost main = gemm_main_loop(card, w, t);
  const double epilogue = gemm_epilogue_clocks(card, w, t);
  const bool pingpong = t.warpgroup_rows == t.rows;
  double loop = main.busiest();
  // Scales are asked for before the step's first products, of 64 rows and 128 columns, and read behind them.
  const double products = 64.0 * 128 * 128 / (card.multiply_adds * 2 * card.products_share);
  loop += static_cast<double>(up(w.k, 128)) * scale_clocks(w, products);
  // e4m3 in ping-pong: the warpgroup that multiplies is the one that promotes.
  if (w.fp8 && pingpong) loop = most(loop, main.tensor + main.issue);
  const double fill = card.load_clocks;
  if (!pingpong) return fill + turns * (loop + epilogue);
  // One warpgroup stores while the other multiplies, unless storing takes longer.
  return fill + turns * most(loop, (loop + epilogue) / 2) + epilogue;
}

Prediction predict_gemm(const Card &card, const GemmWork &w, const GemmTileShape &t) {
  const Cost main = gemm_main_loop(card, w, t);
  return finish(card, gemm_clocks(card, w, t, card.multiprocessors), main.limit(), gemm_bytes(w),
                gemm_floor_us(card, w));
}

// The multiprocessors of a GPC that hold clusters of more than two; some have two more.
constexpr int32_t kGpc = 16;

int64_t gemm_norm_clusters(int32_t cluster, int32_t multiprocessors) {
  const int64_t held =
      cluster > 2 ? int64_t{multiprocessors / kGpc} * (kGpc / cluster) : multiprocessors / cluster;
  return held > 1 ? held : 1;
}

namespace {

// x comes in shares from L2, which the cluster multicasts; W is each CTA's own.
Cost norm_main_loop(const Card &card, const GemmWork &w, const GemmTileShape &t) {
  Cost c = gemm_main_loop(card, w, t);
  const double k = static_cast<double>(up(w.k, 64) * 64), element = w.fp8 ? 1 : 2;
  c.l2 = (t.rows / static_cast<double>(t.cluster) + t.columns) * k * element / card.l2_bytes;
  return c;
}

}  // namespace

double gemm_norm_clocks(const Card &card, const GemmWork &w, const GemmTileShape &t,
                        int32_t multiprocessors) {
  const double turns =
      static_cast<double>(up(up(w.rows, t.rows), gemm_norm_clusters(t.cluster, multiprocessors)));
  const double loop = norm_main_loop(card, w, t).busiest();
  const double elements = static_cast<double>(t.rows) * t.columns;
  const double issue = elements * (kPlain + kResidual + kNorm) / card.lanes / code_share(t.code);
  const double moved = elements * (w.y_bytes + w.residual_bytes) / card.l2_bytes;
  const double epilogue = most(issue, moved) + card.load_clocks + 2 * kExchange;
  if (t.warpgroup_rows != t.rows) return card.load_clocks + turns * (loop + epilogue);
  return card.load_clocks + turns * most(loop, (loop + epilogue) / 2) + epilogue;
}

Prediction predict_gemm_norm(const Card &card, const GemmWork &w, const GemmTileShape &t) {
  return finish(card, gemm_norm_clocks(card, w, t, card.multiprocessors), norm_main_loop(card, w, t).limit(),
                gemm_bytes(w), gemm_floor_us(card, w));
}

// Chains of products for which the skinny form asks for scales ahead of their promotion.
constexpr double kSkinnyAhead = 2;

double skinny_clocks(const Card &card, const GemmWork &w, int32_t multiprocessors) {
  const double tiles = static_cast<double>(up(w.n, 64)),
               steps = static_cast<double>(up(w.k, w.fp8 ? 128 : 64));
  const double turns = most(1, tiles / multiprocessors);
  // A step is 64 rows of W of 128 bytes, and four dependent products.
  const double chain = 4 * card.chain_clocks;
  const double step = most(64 * 128 / card.l2_bytes, chain + scale_clocks(w, kSkinnyAhead * chain));
  return 2 * card.load_clocks + turns * steps * step + gemm_epilogue_clocks(card, w, {64, 64, 64, 1});
}

Prediction predict_skinny(const Card &card, const GemmWork &w) {
  return finish(card, skinny_clocks(card, w, card.multiprocessors), Limit::latency, gemm_bytes(w),
                gemm_floor_us(card, w));
}

namespace {

// The keys that a tile of rows sees of a sequence, in whole blocks.
double keys_seen(const AttentionShape &a, int32_t length, int32_t rows, int64_t block) {
  double seen = length;
  if (a.window > 0) seen = least(seen, 2.0 * a.window + rows);
  if (a.causal) seen = least(seen, length / 2.0 + rows / 2.0);
  return static_cast<double>(up(static_cast<int64_t>(seen), block) * block);
}

// The instructions of slopes and biases, a score of the narrow kernel.
double terms(const AttentionShape &a) { return (a.slopes ? kSlope : 0) + (a.reach >= 0 ? kBias : 0); }

// The same of the wide form, where a warp's 16 rows see so many keys: blocks of 128 are near or far.
double wide_terms(const AttentionShape &a, double keys) {
  if (a.reach < 0) return terms(a);
  const double near = least(1, (2 * a.reach + 16 + 128) / keys);
  return kFarBias + (kBias - kFarBias) * near;
}

// What `pairs` of query and key keep busy, with bytes of shared memory and instructions a pair.
Cost attention_cost(const Card &card, const AttentionShape &a, double pairs, double share, double bytes,
                    double instructions) {
  Cost c;
  c.tensor = pairs * 2 * a.dim / (card.multiply_adds * share);
  c.shared = pairs * bytes / card.shared_bytes;
  c.exponentials = pairs / card.exponentials;
  c.issue = pairs * instructions / card.lanes;
  return c;
}

// The clocks of FlashAttention-3 for `tiles` tiles of 128 queries that have so many pairs, on one
// multiprocessor.
double flash3_clocks(const Card &card, double pairs, double tiles, int32_t dim) {
  return pairs * 2 * dim / card.multiply_adds + kFlashExposed * pairs / card.exponentials +
         kFlashTile * tiles;
}

}  // namespace

Prediction predict_attention(const Card &card, const AttentionShape &a, const int32_t *lengths,
                             int64_t seqs) {
  double narrow = 0, wide = 0, tokens = 0;  // pairs of query and key, in blocks of 16 and 64, 128 and `block`
  double tiles = 0, added = 0;              // of the wide form; instructions of slopes and biases
  const int32_t block = a.dim == 256 ? 64 : 128;  // keys of the wide form's
  bool has_wide = false;
  int32_t longest = 0;
  for (int64_t i = 0; i < seqs; i++) {
    tokens += lengths[i];
    if (lengths[i] > longest) longest = lengths[i];
    if (a.is_wide(lengths[i])) {
      has_wide = true;
      tiles += static_cast<double>(up(lengths[i], 128));
      const double keys = keys_seen(a, lengths[i], 128, block);
      const double pairs = static_cast<double>(up(lengths[i], 128) * 128) * keys;
      wide += pairs;
      added += pairs * wide_terms(a, keys);
    } else {
      narrow += static_cast<double>(up(lengths[i], 16) * 16) * keys_seen(a, lengths[i], 64, 64);
    }
  }
  const double share = a.heads / static_cast<double>(card.multiprocessors);
  narrow *= share, wide *= share, tiles *= share, added *= share;
  // Keys and values by ldmatrix, once for 16 rows.
  Cost c = attention_cost(card, a, narrow, card.warp_products, a.dim * 4 / 16.0, kSoftmax + terms(a));
  double clocks = 2 * card.load_clocks;
  // A warp's softmax follows its products; the other warps hide about half of it.
  if (narrow > 0) clocks += c.busiest() + 0.5 * (c.exponentials + c.issue);
  if (has_wide) {
    // For 64 rows and a block of keys: q, keys and values are read once, and half of them is written.
    c = attention_cost(card, a, wide, 1, a.dim * 2 * (64 + 3 * block) / (64.0 * block),
                       kSoftmax + added / wide);
    const double whole = static_cast<double>(up(static_cast<int64_t>(tiles * 1e3), 1000));
    // FlashAttention-3 has neither: of their instructions as much shows as of the exponentials.
    const double beside = kFlashExposed * added / card.lanes;
    clocks +=
        most(c.busiest(), (flash3_clocks(card, wide, tiles, a.dim) + beside) / kWideShare) * (whole / tiles);
  }
  const double bytes = (2.0 * a.heads + 2.0 * a.kv_heads) * a.dim * 2 * tokens;
  const double products = (narrow + wide) * 2 * a.dim / (card.multiply_adds * card.products_share);
  const double floor = most(bytes / card.dram_bytes_s * 1e6, products / (card.ghz * 1e3));
  Prediction p = finish(card, clocks, c.limit(), bytes / kRowsShare, floor);
  // A launch for each part of the list that the longest sequence allows, with items or without.
  if (has_wide) p.us += card.gap_us;
  if (longest > 16384 / a.dim && a.is_wide(INT32_MAX)) p.us += card.gap_us;
  return p;
}

double flash3_tflops(const Card &card, int64_t length, int32_t dim) {
  const double pairs = 128.0 * static_cast<double>(length);
  const double clocks = flash3_clocks(card, pairs, 1, dim);
  return 4.0 * pairs * dim / clocks * card.ghz * card.multiprocessors * 1e-3;
}

Prediction predict_splade(const Card &card, const GemmWork &w, const GemmTileShape &t, int64_t seqs) {
  Prediction p = predict_gemm(card, w, t);
  const Prediction zeros = predict_rows(card, 4.0 * static_cast<double>(seqs * w.n), 0);
  p.us += zeros.us;
  p.floor_us += zeros.floor_us;
  return p;
}

Prediction predict_pool(const Card &card, int32_t columns, const int32_t *lengths, int64_t seqs) {
  int64_t rows = 0, longest = 0, parts = 0;
  for (int64_t i = 0; i < seqs; i++) {
    const int64_t length = lengths[i], part = part_rows * up(length, part_rows * parts_max);
    rows += length;
    if (length > longest) longest = length;
    if (length > 0) parts += up(length, part);
  }
  const bool in_parts = longest > part_rows;
  const double row = 2.0 * columns, bytes = static_cast<double>(rows) * row;
  // The rows that the busiest multiprocessor reads: a text, or octets of parts.
  double share = most(static_cast<double>(rows) / card.multiprocessors, static_cast<double>(longest));
  double clocks = 3 * card.load_clocks;
  if (in_parts) {
    const int32_t octets = pool_shape(columns).octets;
    const int64_t part = part_rows * up(longest, part_rows * parts_max), joined = up(longest, part);
    share = static_cast<double>(up(parts * octets, card.multiprocessors) * part) / octets;
    clocks += static_cast<double>(up(joined, join_under_way)) * card.load_clocks +
              4.0 * static_cast<double>(joined) * columns / card.l2_bytes;
  }
  const double latency = clocks / (card.ghz * 1e3), read = share * row / card.l2_bytes / (card.ghz * 1e3),
               floor = bytes / card.dram_bytes_s * 1e6, dram = floor / kRowsShare;
  Prediction p;
  p.us = most(read, dram) + latency + card.gap_us * (in_parts ? 2 : 1);
  p.limit = latency > most(read, dram) ? Limit::latency : (dram > read ? Limit::dram : Limit::l2);
  p.floor_us = floor;
  return p;
}

Prediction predict_maxsim(const Card &card, int32_t columns, int32_t query_rows, const int32_t *lengths,
                          int64_t seqs) {
  int64_t rows = 0, tiles = 0, longest = 0;  // tiles of 64 rows and 32 query rows; `longest` of a text
  for (int64_t i = 0; i < seqs; i++) {
    const int64_t own = up(lengths[i], 64) * up(query_rows, 32);
    rows += lengths[i];
    tiles += own;
    if (own > longest) longest = own;
  }
  // Of the busiest multiprocessor.
  const double share = most(static_cast<double>(tiles) / card.multiprocessors, static_cast<double>(longest));
  Cost c;
  c.tensor = share * 3 * 64 * 32 * columns / (card.multiply_adds * card.warp_products);
  c.l2 = share * columns * (64 * 2 + 32 * 4) / card.l2_bytes;
  const double bytes = static_cast<double>(rows) * columns * 2;
  Prediction p = finish(card, 3 * card.load_clocks + c.busiest(), c.limit(), bytes / kRowsShare,
                        bytes / card.dram_bytes_s * 1e6);
  if (3 * card.load_clocks > c.busiest() && p.limit != Limit::dram) p.limit = Limit::latency;
  return p;
}

Prediction predict_muvera(const Card &card, const MuveraShape &a, const int32_t *lengths, int64_t seqs) {
  int64_t rows = 0, longest = 0;
  for (int64_t i = 0; i < seqs; i++) {
    rows += lengths[i];
    if (lengths[i] > longest) longest = lengths[i];
  }
  const int64_t ctas = up(seqs, a.documents), under_way = 2 / a.documents,
                turns = up(ctas, under_way * card.multiprocessors);
  // Of a multiprocessor with 2 documents under way; a lone one has its twin beside it. An instruction of a warp takes
  // 32 lanes.
  const double repetitions = static_cast<double>(turns * a.repetitions),
               tokens = 2.0 * static_cast<double>(rows) / static_cast<double>(seqs),
               chunks = static_cast<double>(up(a.block(), 32));
  const double row = a.columns * 2.0, read = static_cast<double>(rows) * row,
               tables = static_cast<double>(ctas * a.block()) * 8;
  const bool kept = 2 * row * static_cast<double>(longest) <= kRowsKept;
  Cost c;
  c.issue = repetitions * 32 / card.lanes *
            (tokens * kMuveraToken + 2 * static_cast<double>(1 << a.bits) * kMuveraPartition +
             chunks * (static_cast<double>(under_way) * kMuveraAdditions + 2 * kMuveraAddition));
  c.shared = repetitions * 2 * 128 / card.shared_bytes * chunks * (1 + 3 * kMuveraBanks);
  c.l2 =
      (a.repetitions * tables + (kept ? 1 : a.repetitions) * read) / (card.multiprocessors * card.l2_bytes);
  // The 8 warps of a document take its tokens by twos. The first additions come while the last sums are made, and
  // a barrier ends each round.
  const double trips = static_cast<double>(up(up(longest, 8), 2)) * (kept ? kL1Trip : kL2Trip) + kL2Trip +
                       kMuveraRounds * kMuveraRound;
  const double latency = repetitions * trips + 3 * card.load_clocks;
  const double planes =
      static_cast<double>(rows * a.columns * a.repetitions * a.bits) / (card.multiprocessors * card.lanes);
  const double bytes = read + static_cast<double>(seqs * a.dims) * 4;
  Prediction p = finish(card, planes + most(latency, c.busiest()), c.limit(), bytes / kRowsShare,
                        bytes / card.dram_bytes_s * 1e6);
  p.us += card.gap_us;  // two launches
  if (p.limit != Limit::dram && latency > c.busiest()) p.limit = Limit::latency;
  return p;
}

Prediction predict_rows(const Card &card, double bytes, double waves) {
  const double latency = waves * card.load_clocks / (card.ghz * 1e3);
  const double dram = bytes / card.dram_bytes_s * 1e6;
  Prediction p;
  p.us = dram / kRowsShare + latency + card.gap_us;
  p.limit = dram > latency ? Limit::dram : Limit::latency;
  p.floor_us = dram;
  return p;
}

}  // namespace sie_cuda
