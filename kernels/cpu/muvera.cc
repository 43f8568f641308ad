// muvera — the fixed dimensional encoding of each sequence's token vectors, as an output row.
//   The formulas and the tables are at sie_muvera_args (kernels/ops.h).
// Shapes   x [T, C], row stride ≥ C; simhash [R, C, k]; ams [R, C]; sketch [R·2ᵏ·P]; items [B].
//          k ≤ 10.
// Types    x f32 | bf16; output types as output_rows.
// Alias    none.
// Align    element.
// Share    sequences.
// Scratch  Layout below, ~4·(R·2ᵏ·P + F) bytes and 2·R·L.
// Cost     2·L·C·R·k flop of signs, L·R·C (or L·R·P) adds of tokens, R·2ᵏ·P of the sketch, where it
//          is not empty: 8, 0.7 and 0.3 million for 128 tokens of 128 dimensions, R 40, k 6, no
//          projection.
// Plan     chunks of kTokens tokens, kept token by token and transposed. Signs: a register block of
//          kTokens tokens × up to kBits planes, one FMA chain over C each. Projection: column by
//          column for a whole chunk. All repetitions run while the chunk is in L1; their sums stay
//          in L2. Then means, filling and the sketch, which skips empty partitions: they would add
//          zeros.
// Order    chains ascend in C, sums in tokens, the sketch in its index: bits depend on the item
//          alone.
// Error    sums of at most L terms in f32; a sign differs from the exact one where |x·plane| is
//          below ~√C·2⁻²⁴·‖x‖‖plane‖.
// Source   Dhulipala 2024 §2, arXiv:2405.19504; the Gray code and the sketch of google/graph-mining
#include "output_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// kTokenVecs·kBits accumulators, kTokenVecs vectors of tokens and one plane's coefficient fit in
// the registers.
#if defined(__AVX512F__)
constexpr int kTokenVecs = 4;
#else
constexpr int kTokenVecs = 2;
#endif
constexpr int kBits = 6, kTokens = kTokenVecs * kLanes;

// Where the intermediates of an item lie, in bytes.
struct Layout {
  int64_t projected, partitions, block, columns;  // P, 2ᵏ, 2ᵏ·P, F; elements
  int64_t tokens, across, projection, mean, sums, counts, codes, out, end;
};

Layout layout_of(int64_t c, int64_t repetitions, int64_t bits, int64_t projected, int64_t final_dims,
                 int64_t max_len) {
  Layout at;
  at.projected = projected != 0 ? projected : c;
  at.partitions = int64_t{1} << bits;
  at.block = at.partitions * at.projected;
  at.columns = final_dims != 0 ? final_dims : repetitions * at.block;
  at.tokens = 0;                                         // f32 [kTokens, C]
  at.across = at.tokens + float_bytes(kTokens * c);      // f32 [C, kTokens]
  at.projection = at.across + float_bytes(kTokens * c);  // f32 [P, kTokens]
  at.mean = at.projection + float_bytes(kTokens * at.projected);
  at.sums = at.mean + float_bytes(c);  // f32 [R, 2ᵏ, P]
  at.counts = at.sums + float_bytes(repetitions * at.block);
  at.codes = at.counts + float_bytes(repetitions * at.partitions);  // u16 [R, L]
  at.out = at.codes + float_bytes((repetitions * max_len + 1) / 2);
  at.end = at.out + float_bytes(at.columns);
  return at;
}

struct Item {
  const sie_muvera_args *a;
  Layout at;
  int64_t first, length;
  float *tokens, *across, *projection, *mean, *sums, *out;
  int32_t *counts;
  uint16_t *codes;
};

// Writes token t to the scratch's row `to`: divided by its norm with normalize, less the centre,
// and less the mean where less_mean.
void load_token(const Item &item, int64_t t, float *to, bool less_mean) {
  const sie_muvera_args *a = item.a;
  const int64_t c = a->c, row = item.first + t;
  if (a->x.dtype == SIE_F32) {
    copy_row(row_of<const float>(a->x, row), c, to);
  } else {
    copy_row(row_of<const Bf16>(a->x, row), c, to);
  }
  if (a->normalize != 0) divide_by_norm(to, c);
  for (int64_t i = 0; a->center != nullptr && i < c; i += kLanes)
    vstore_row(to, i, c, vload_row(to, i, c) - vload_row(a->center, i, c));
  for (int64_t i = 0; less_mean && i < c; i += kLanes)
    vstore_row(to, i, c, vload_row(to, i, c) - vload_row(item.mean, i, c));
}

void find_mean(const Item &item) {
  const int64_t c = item.a->c;
  memset(item.mean, 0, static_cast<size_t>(c) * sizeof(float));
  for (int64_t t = 0; t < item.length; t++) {
    load_token(item, t, item.tokens, false);
    for (int64_t i = 0; i < c; i += kLanes)
      vstore_row(item.mean, i, c, vload_row(item.mean, i, c) + vload_row(item.tokens, i, c));
  }
  const Vec length = vset(static_cast<float>(item.length));
  for (int64_t i = 0; i < c; i += kLanes) vstore_row(item.mean, i, c, vload_row(item.mean, i, c) / length);
}

// Tokens [t, t + count) in both forms; the transposed form has zeros beyond count.
void load_chunk(const Item &item, int64_t t, int64_t count) {
  const int64_t c = item.a->c;
  for (int64_t i = 0; i < count; i++)
    load_token(item, t + i, item.tokens + i * c, item.a->center_tokens != 0);
  for (int64_t n = 0; n < kTokens; n += kLanes) {
    for (int64_t i = 0; i < c; i += kLanes) {
      Vec block[kLanes];
      for (int j = 0; j < kLanes; j++)
        block[j] = n + j < count ? vload_row(item.tokens + (n + j) * c, i, c) : vset(0.0f);
      vtranspose(block);
      for (int j = 0; j < kLanes && i + j < c; j++) vstore(item.across + (i + j) * kTokens + n, block[j]);
    }
  }
}

// Sets bit v·kLanes + lane of signs[b] where the token's product with plane b is above 0. planes:
// [C] rows of `stride`.
template <int Bits>
void sign_planes(const float *across, int64_t c, const float *planes, int64_t stride, uint64_t *signs) {
  Vec sum[Bits][kTokenVecs];
#pragma GCC unroll 8
  for (int b = 0; b < Bits; b++) {
#pragma GCC unroll 4
    for (int v = 0; v < kTokenVecs; v++) sum[b][v] = vset(0.0f);
  }
#pragma GCC unroll 1
  for (int64_t i = 0; i < c; i++, across += kTokens, planes += stride) {
    Vec x[kTokenVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kTokenVecs; v++) x[v] = vload(across + v * kLanes);
#pragma GCC unroll 8
    for (int b = 0; b < Bits; b++) {
      const Vec m = vset(planes[b]);
#pragma GCC unroll 4
      for (int v = 0; v < kTokenVecs; v++) sum[b][v] = vfma(x[v], m, sum[b][v]);
    }
  }
  for (int b = 0; b < Bits; b++) {
    signs[b] = 0;
    for (int v = 0; v < kTokenVecs; v++) signs[b] |= uint64_t{vpositive(sum[b][v])} << (v * kLanes);
  }
}

typedef void (*SignFn)(const float *, int64_t, const float *, int64_t, uint64_t *);
constexpr SignFn kSigns[kBits] = {sign_planes<1>, sign_planes<2>, sign_planes<3>,
                                  sign_planes<4>, sign_planes<5>, sign_planes<6>};

// The partitions of the chunk's tokens in one repetition.
void find_codes(const Item &item, int64_t repetition, int64_t count, uint16_t *codes) {
  const int64_t c = item.a->c, k = item.a->simhash_bits;
  uint64_t signs[kBits];
  memset(codes, 0, static_cast<size_t>(count) * sizeof *codes);
  for (int64_t first = 0; first < k; first += kBits) {
    const int64_t bits = k - first < kBits ? k - first : kBits;
    kSigns[bits - 1](item.across, c, item.a->simhash + repetition * c * k + first, k, signs);
    for (int64_t b = 0; b < bits; b++) {
      for (int64_t t = 0; t < count; t++) {
        const uint32_t g = codes[t], bit = static_cast<uint32_t>(signs[b] >> t & 1);
        codes[t] = static_cast<uint16_t>(2 * g + (bit ^ (g & 1)));
      }
    }
  }
}

// ψ of all tokens of the chunk, column by column.
void project_chunk(const Item &item, const int32_t *ams) {
  memset(item.projection, 0, static_cast<size_t>(item.at.projected * kTokens) * sizeof(float));
  for (int64_t i = 0; i < item.a->c; i++) {
    const int32_t to = ams[i] < 0 ? ~ams[i] : ams[i];
    const float *x = item.across + i * kTokens;
    float *y = item.projection + to * kTokens;
    const Vec sign = vset(ams[i] < 0 ? -1.0f : 1.0f);
    for (int v = 0; v < kTokens; v += kLanes) vstore(y + v, vfma(vload(x + v), sign, vload(y + v)));
  }
}

// ψ(x) of one token, for filling.
void project_token(const Item &item, const int32_t *ams, const float *x, float *y) {
  for (int64_t j = 0; j < item.at.projected; j++) y[j] = 0.0f;
  for (int64_t i = 0; i < item.a->c; i++) y[ams[i] < 0 ? ~ams[i] : ams[i]] += ams[i] < 0 ? -x[i] : x[i];
}

void add_chunk(const Item &item, int64_t t, int64_t count) {
  const sie_muvera_args *a = item.a;
  const int64_t p = item.at.projected;
  for (int64_t r = 0; r < a->repetitions; r++) {
    uint16_t *codes = item.codes + r * item.length + t;
    find_codes(item, r, count, codes);
    if (a->projected != 0) project_chunk(item, a->ams + r * a->c);
    for (int64_t i = 0; i < count; i++) {
      const int64_t partition = r * item.at.partitions + codes[i];
      float *sum = item.sums + partition * p;
      item.counts[partition]++;
      if (a->projected != 0) {
        for (int64_t j = 0; j < p; j++) sum[j] += item.projection[j * kTokens + i];
      } else {
        const float *x = item.tokens + i * p;
        for (int64_t j = 0; j < p; j += kLanes)
          vstore_row(sum, j, p, vload_row(sum, j, p) + vload_row(x, j, p));
      }
    }
  }
}

// The first token whose bits differ least from those of partition g.
int64_t nearest_token(const uint16_t *codes, int64_t length, int64_t g) {
  const uint32_t bits = static_cast<uint32_t>(g ^ (g >> 1));
  int64_t nearest = 0;
  int best = 64;
  for (int64_t t = 0; t < length; t++) {
    const uint32_t code = codes[t];
    const int distance = __builtin_popcount(bits ^ code ^ (code >> 1));
    if (distance < best) nearest = t, best = distance;
  }
  return nearest;
}

// For documents: divides by the numbers of tokens, and fills empty partitions where the caller asks
// for it.
void finish_partitions(const Item &item) {
  const sie_muvera_args *a = item.a;
  const int64_t p = item.at.projected;
  for (int64_t r = 0; r < a->repetitions; r++) {
    for (int64_t g = 0; g < item.at.partitions; g++) {
      const int64_t partition = r * item.at.partitions + g;
      float *sum = item.sums + partition * p;
      if (item.counts[partition] > 0) {
        const Vec count = vset(static_cast<float>(item.counts[partition]));
        for (int64_t j = 0; j < p; j += kLanes) vstore_row(sum, j, p, vload_row(sum, j, p) / count);
      } else if (a->fill_empty != 0) {
        const int64_t t = nearest_token(item.codes + r * item.length, item.length, g);
        load_token(item, t, item.tokens, a->center_tokens != 0);
        if (a->projected != 0) {
          project_token(item, a->ams + r * a->c, item.tokens, sum);
        } else {
          copy_row(item.tokens, p, sum);
        }
        item.counts[partition] = 1;
      }
    }
  }
}

void sketch_sums(const Item &item) {
  memset(item.out, 0, static_cast<size_t>(item.at.columns) * sizeof(float));
  const int64_t p = item.at.projected, all = item.a->repetitions * item.at.partitions;
  for (int64_t partition = 0; partition < all; partition++) {
    if (item.counts[partition] == 0) continue;
    const float *v = item.sums + partition * p;
    const int32_t *to = item.a->sketch + partition * p;
    for (int64_t j = 0; j < p; j++) {
      // to[j]'s sign bit is the sign of the sum: it flips v's sign bit, and the index's bits where
      // it is set.
      const int32_t flip = to[j] >> 31;
      uint32_t bits;
      memcpy(&bits, v + j, sizeof bits);
      item.out[to[j] ^ flip] += sie_f32_from_bits(bits ^ (static_cast<uint32_t>(flip) & 0x80000000u));
    }
  }
}

// Encodes an item that has tokens; returns where the encoding lies.
float *encode(const Item &item) {
  const sie_muvera_args *a = item.a;
  const int64_t partitions = a->repetitions * item.at.partitions;
  memset(item.sums, 0, static_cast<size_t>(partitions * item.at.projected) * sizeof(float));
  memset(item.counts, 0, static_cast<size_t>(partitions) * sizeof(int32_t));
  if (a->center_tokens != 0) find_mean(item);
  for (int64_t t = 0; t < item.length; t += kTokens) {
    const int64_t count = item.length - t < kTokens ? item.length - t : kTokens;
    load_chunk(item, t, count);
    add_chunk(item, t, count);
  }
  if (a->is_query == 0) finish_partitions(item);
  if (a->final_dims == 0) return item.sums;
  sketch_sums(item);
  return item.out;
}

bool valid(const sie_muvera_args *a) {
  return a->repetitions >= 1 && a->simhash_bits >= 0 && a->simhash_bits <= 10 && a->projected >= 0 &&
         a->final_dims >= 0;
}

}  // namespace

int64_t muvera_scratch(const sie_op_bounds *bounds) {
  if (bounds->simhash_bits < 0 || bounds->simhash_bits > 10) return 0;
  return layout_of(bounds->c, bounds->repetitions, bounds->simhash_bits, bounds->projected,
                   bounds->final_dims, bounds->max_len)
      .end;
}

sie_status muvera(const sie_muvera_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype)) return SIE_UNSUPPORTED;
  if (!valid(a)) return SIE_INVALID_ARGUMENT;
  const Range seqs = share_of(*a->seqs.n, share);
  char *scratch = static_cast<char *>(share->scratch);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    Item item;
    item.a = a;
    item.first = a->cu_seqlens[b];
    item.length = a->cu_seqlens[b + 1] - a->cu_seqlens[b];
    const Layout at =
        layout_of(a->c, a->repetitions, a->simhash_bits, a->projected, a->final_dims, item.length);
    item.at = at;
    item.tokens = reinterpret_cast<float *>(scratch + at.tokens);
    item.across = reinterpret_cast<float *>(scratch + at.across);
    item.projection = reinterpret_cast<float *>(scratch + at.projection);
    item.mean = reinterpret_cast<float *>(scratch + at.mean);
    item.sums = reinterpret_cast<float *>(scratch + at.sums);
    item.counts = reinterpret_cast<int32_t *>(scratch + at.counts);
    item.codes = reinterpret_cast<uint16_t *>(scratch + at.codes);
    item.out = reinterpret_cast<float *>(scratch + at.out);
    float *row = item.out;
    if (item.length > 0) {
      row = encode(item);
    } else {
      memset(row, 0, static_cast<size_t>(at.columns) * sizeof(float));
    }
    const sie_status status = write_item(a->items[b], at.columns, row, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
