// pairs — the words and labels of which one of up to three scores is above the item's threshold.
//   h = W·(t_i∘l_c) + U_i + V_c,  y[o] = H_o·relu(h) + b_o. A NaN is not above a threshold.
// Shapes   t [R, K], U [R, N], l [labels, K], V [labels, N], row strides ≥ columns; W [N, K] packed
//          (gemm_pack.h), H [n_logits, N] dense; found [R, ≥ 32]; items [B]. R, B, labels ≥ 0,
//          1 ≤ N, K ≤ 2²⁰.
// Types    t, U, l, V bf16 | f16 | f32, each its own; W of class F32, BF16 or F16. t∘l is rounded
//          to f32, then to the class's type.
// Alias    none.
// Align    any; 128-bit loads of t and l where a row allows them. W 128 bytes, as packed.
// Cost     2·N·K flop a pair: on tensor cores in the 16-bit classes, on FMA units in F32. 384
//          words, 25 labels (of two tiles of 16), K = 512, N = 2048: 26 GFLOP, 66 µs at 390 TFLOP/s
//          of mma.sync. A CTA of 8 words reads W from L2 once a tile of labels: 96 passes of 2 MiB,
//          40 µs at 5 TB/s; in F32 0.4 ms at 67 TFLOP/s. The sums of t∘l are made anew for every
//          panel of W: per product of 16×8×16 a warp reads two words of shared memory more than mma
//          takes. So a line is 968 clocks of shared memory for 413 of products, and 48 CTAs leave
//          most SMs without one: 0.56 ms (cost_heads.h).
// Plan     a CTA of 8 warps, a word each, times 16 labels: a pair is a row of a warp's 16×64 tile,
//          so that a word's logits never leave its warp. Panels of 64 rows of W pass in lines of
//          128 bytes of k through two stages of shared memory (cp.async), beside lines of t and l
//          in f32; each warp multiplies its fragments of t∘l out in registers. Behind a panel's
//          last line a thread adds U and V to its sums, and the ReLU's products with H to its
//          logits; behind the last panel the lanes of a row add theirs in a fixed tree. Labels
//          ascend, so records do.
// Error    that of linear in the class; sums over N: one chain a lane, then the tree.
// Source   Stepanov & Shtopko 2024, arXiv:2406.12925 §3: the scorer; the fold is derived in ops.h
#ifndef SIE_KERNELS_CUDA_PAIRS_CUH
#define SIE_KERNELS_CUDA_PAIRS_CUH

#include "cuda/found_items.cuh"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"
#include "cuda/read_four.cuh"

namespace sie_cuda {

// All arguments of a launch.
struct PairsArgs {
  sie_pairs_args a;
  const uint8_t *w;
  int64_t w_row;  // bytes between rows
};

constexpr int32_t pairs_words = 8, pairs_threads = 32 * pairs_words;
constexpr int32_t pairs_labels = 16, pairs_panel = 64;  // of a warp's tile
constexpr int32_t pairs_most = 3;                       // logits
constexpr int32_t pairs_w_stride = 144;                 // bytes between the rows of a line of W
constexpr int32_t pairs_rows = pairs_words + pairs_labels;

// The tile of a warp in a class of weights. A thread has `rows` × `columns` of its sums; the lanes
// that have parts of one row are `sharing` neighbours.
//   line     elements of k in 128 bytes of W
//   stride   floats between the rows of t and l in a stage: what a warp reads at once is in all banks
//   ctas     that an SM shall hold, which bounds the registers
template <ptx::Operand T>
struct PairsProduct16 {
  static constexpr int32_t line = 64, stride = 72, rows = 2, columns = 16, sharing = 4, ctas = 2;
  float acc[8][4] = {};

  SIE_DEVICE static int32_t row(int32_t i) { return static_cast<int32_t>(ptx::lane_id()) / 4 + 8 * i; }
  SIE_DEVICE static int32_t column(int32_t j) {
    return 8 * (j / 2) + 2 * (static_cast<int32_t>(ptx::lane_id()) % 4) + j % 2;
  }
  SIE_DEVICE float sum(int32_t i, int32_t j) const { return acc[j / 2][2 * i + j % 2]; }
  SIE_DEVICE void clear() {
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) acc[j][i] = 0.0f;
    }
  }

  SIE_DEVICE static uint32_t pack(float2 t, float2 l) {
    const float low = __fmul_rn(t.x, l.x), high = __fmul_rn(t.y, l.y);
    return T == ptx::Operand::bf16 ? ptx::pack_bf16x2(low, high) : ptx::pack_f16x2(low, high);
  }
  // Multiplies a line: w in shared memory, t the warp's word, l the labels.
  SIE_DEVICE void multiply(const unsigned char *w, const float *t, const float *l) {
    const int32_t lane = static_cast<int32_t>(ptx::lane_id());
    const float *const own_t = t + 2 * (lane % 4), *const own_l = l + lane / 4 * stride + 2 * (lane % 4);
    const unsigned char *const own_w = w + (lane / 16 * 8 + lane % 8) * pairs_w_stride + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < line; k += 16) {
      uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float2 of_word = ptx::load_shared<float2>(own_t + k + 8 * half);
        a[2 * half] = pack(of_word, ptx::load_shared<float2>(own_l + k + 8 * half));
        a[2 * half + 1] = pack(of_word, ptx::load_shared<float2>(own_l + 8 * stride + k + 8 * half));
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, own_w + j * 16 * pairs_w_stride + 2 * k);
        ptx::mma_m16n8<T>(acc[2 * j], a, b[0], b[1]);
        ptx::mma_m16n8<T>(acc[2 * j + 1], a, b[2], b[3]);
      }
    }
  }
};

struct PairsProductF32 {
  static constexpr int32_t line = 32, stride = 36, rows = 4, columns = 8, sharing = 8, ctas = 1;
  float acc[rows][columns] = {};

  SIE_DEVICE static int32_t row(int32_t i) { return static_cast<int32_t>(ptx::lane_id()) / 8 + 4 * i; }
  SIE_DEVICE static int32_t column(int32_t j) { return static_cast<int32_t>(ptx::lane_id()) % 8 + 8 * j; }
  SIE_DEVICE float sum(int32_t i, int32_t j) const { return acc[i][j]; }
  SIE_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < rows; i++) {
#pragma unroll
      for (int j = 0; j < columns; j++) acc[i][j] = 0.0f;
    }
  }

  SIE_DEVICE void multiply(const unsigned char *w, const float *t, const float *l) {
    const float *const own_l = l + row(0) * stride;
    const float *const own_w = reinterpret_cast<const float *>(w + column(0) * pairs_w_stride);
#pragma unroll 2
    for (int k = 0; k < line; k += 4) {
      float of_word[4], x[rows][4];
      read_four(t + k, of_word);
#pragma unroll
      for (int i = 0; i < rows; i++) {
        read_four(own_l + 4 * i * stride + k, x[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) x[i][e] = __fmul_rn(of_word[e], x[i][e]);
      }
#pragma unroll
      for (int j = 0; j < columns; j++) {
        float v[4];
        read_four(own_w + 8 * j * (pairs_w_stride / 4) + k, v);
#pragma unroll
        for (int e = 0; e < 4; e++) {
#pragma unroll
          for (int i = 0; i < rows; i++) acc[i][j] = __fmaf_rn(x[i][e], v[e], acc[i][j]);
        }
      }
    }
  }
};

// The tile of a CTA: words from row `word` on, of which part has some; labels from `label` on,
// counted in the sequence.
struct PairsTile {
  FoundPart part;
  int32_t word, label;
};

// A stage: a line of a panel of W, then lines of t and l.
template <class Product>
struct PairsStage {
  static constexpr int32_t w_bytes = pairs_panel * pairs_w_stride;
  static constexpr int32_t bytes = w_bytes + pairs_rows * Product::stride * 4;
  static constexpr int32_t octets = Product::line / 8;  // of a row of t or l
  static_assert(pairs_rows * octets <= pairs_threads, "a thread brings at most one octet");

  // Issues the copies of a line of W.
  SIE_DEVICE static void issue(const PairsArgs &args, int32_t panel, int32_t line, unsigned char *stage) {
#pragma unroll
    for (int i = 0; i < pairs_panel * 8 / pairs_threads; i++) {
      const int32_t piece = static_cast<int32_t>(threadIdx.x) + i * pairs_threads, row = piece / 8,
                    at = piece % 8 * 16;
      ptx::cp_async_16(stage + row * pairs_w_stride + at,
                       args.w + (int64_t{panel} * pairs_panel + row) * args.w_row + line * 128 + at);
    }
    ptx::cp_async_commit();
  }
  // The thread's octet of a line of t or l; rows that do not exist: zeros, and nothing is read.
  SIE_DEVICE static void load(const sie_pairs_args &a, const PairsTile &tile, int32_t line, float (&v)[8]) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / octets,
                  column = line * Product::line + static_cast<int32_t>(threadIdx.x) % octets * 8,
                  k = static_cast<int32_t>(a.k);
    if (row < pairs_words) {
      const bool there = tile.word + row >= tile.part.first && tile.word + row < tile.part.last;
      load_octet_any(a.words_x, tile.word + row, column, there ? k : 0, v);
    } else {
      const int32_t label = tile.label + row - pairs_words;
      const bool there = row < pairs_rows && label < tile.part.labels;
      load_octet_any(a.labels_x, tile.part.label + label, column, there ? k : 0, v);
    }
  }
  SIE_DEVICE static void store(unsigned char *stage, const float (&v)[8]) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / octets,
                  column = static_cast<int32_t>(threadIdx.x) % octets * 8;
    if (row >= pairs_rows) return;
    float *const to = rows_of(stage) + row * Product::stride + column;
    ptx::store_shared(to, make_float4(v[0], v[1], v[2], v[3]));
    ptx::store_shared(to + 4, make_float4(v[4], v[5], v[6], v[7]));
  }
  SIE_DEVICE static float *rows_of(unsigned char *stage) {
    return reinterpret_cast<float *>(stage + w_bytes);
  }
};

template <class Product>
constexpr int32_t pairs_shared_bytes = 2 * PairsStage<Product>::bytes + 4 * pairs_words;

// A thread's parts of the logits of its rows.
template <class Product>
using PairsLogits = float[Product::rows][pairs_most];

// Adds to the logits what the sums of a panel give.
template <class Product>
SIE_DEVICE void add_panel(const sie_pairs_args &a, const PairsTile &tile, int32_t word, int32_t panel,
                          const Product &product, PairsLogits<Product> &logits) {
  const int32_t n = static_cast<int32_t>(a.n);
#pragma unroll
  for (int j = 0; j < Product::columns; j++) {
    const int32_t column = panel * pairs_panel + Product::column(j);
    if (column >= n) continue;
    const float u = load_element(element_at(a.words_u, word, column), a.words_u.dtype, 0);
    float head[pairs_most];
#pragma unroll
    for (int o = 0; o < pairs_most; o++) head[o] = o < a.n_logits ? a.head[int64_t{o} * n + column] : 0.0f;
#pragma unroll
    for (int i = 0; i < Product::rows; i++) {
      const int32_t label = tile.label + Product::row(i);
      if (label >= tile.part.labels) continue;
      const float v =
          load_element(element_at(a.labels_u, tile.part.label + label, column), a.labels_u.dtype, 0);
      const float h = __fadd_rn(__fadd_rn(product.sum(i, j), u), v);
      const float relu = h < 0.0f ? 0.0f : h;  // in this order a NaN stays one
#pragma unroll
      for (int o = 0; o < pairs_most; o++) logits[i][o] = __fmaf_rn(relu, head[o], logits[i][o]);
    }
  }
}

// The logits of a tile, by all threads: lane l < 16 gets those of label l with the warp's word.
template <class Product>
SIE_DEVICE void pairs_logits(const PairsArgs &args, const PairsTile &tile, unsigned char *stages,
                             float (&y)[pairs_most]) {
  using Stage = PairsStage<Product>;
  const sie_pairs_args &a = args.a;
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()), warp = static_cast<int32_t>(threadIdx.x) / 32,
                word = tile.word + warp,
                lines = static_cast<int32_t>((a.k + Product::line - 1) / Product::line),
                steps = lines * static_cast<int32_t>((a.n + pairs_panel - 1) / pairs_panel);
  const bool there = word >= tile.part.first && word < tile.part.last;
  PairsLogits<Product> logits = {};
  Product product;
  float octet[8];
  Stage::issue(args, 0, 0, stages);
  Stage::load(a, tile, 0, octet);
  int32_t panel = 0, line = 0;
  for (int32_t step = 0; step < steps; step++) {
    unsigned char *const stage = stages + step % 2 * Stage::bytes, *const other =
                                                                       stages + (step + 1) % 2 * Stage::bytes;
    const bool last = line + 1 == lines;
    Stage::store(stage, octet);
    ptx::cp_async_wait<0>();
    __syncthreads();  // the lines are there, and all have left the other stage
    if (step + 1 < steps) {
      Stage::issue(args, last ? panel + 1 : panel, last ? 0 : line + 1, other);
      Stage::load(a, tile, last ? 0 : line + 1, octet);
    }
    if (there) {
      const float *const rows = Stage::rows_of(stage);
      product.multiply(stage, rows + warp * Product::stride, rows + pairs_words * Product::stride);
      if (last) {
        add_panel(a, tile, word, panel, product, logits);
        product.clear();
      }
    }
    panel += last ? 1 : 0;
    line = last ? 0 : line + 1;
  }
  __syncthreads();  // before the next tile fills the first stage
#pragma unroll
  for (int o = 0; o < pairs_most; o++) {
    y[o] = 0.0f;
#pragma unroll
    for (int i = 0; i < Product::rows; i++) {
      float sum = logits[i][o];
#pragma unroll
      for (int s = 1; s < Product::sharing; s *= 2) sum = __fadd_rn(sum, ptx::shuffle_xor(sum, s));
      constexpr int32_t each = 32 / Product::sharing;  // rows of one i
      const float of_row = ptx::shuffle_from(sum, lane % each * Product::sharing);
      if (lane / each == i) y[o] = of_row;
    }
    if (o < a.n_logits && a.head_bias != nullptr) y[o] = __fadd_rn(y[o], a.head_bias[o]);
  }
}

// Bit l: whether a logit of label l is above the threshold.
SIE_DEVICE uint32_t pairs_above(const sie_pairs_args &a, const PairsTile &tile, float threshold,
                                const float (&y)[pairs_most]) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  bool above = false;
#pragma unroll
  for (int o = 0; o < pairs_most; o++) above = above || (o < a.n_logits && y[o] > threshold);
  return ptx::ballot(above && lane < pairs_labels && tile.label + lane < tile.part.labels);
}

// Writes record `at` of an item, where there is room for it.
SIE_DEVICE void write_pair(const sie_pairs_args &a, const sie_out_item &item, int32_t at, int32_t row,
                           int32_t label, const float (&y)[pairs_most]) {
  if (at >= item.dims) return;
  int32_t *const record = reinterpret_cast<int32_t *>(static_cast<char *>(a.out) + item.offset + 16) +
                          int64_t{at} * (2 + a.n_logits);
  record[0] = row;
  record[1] = label;
#pragma unroll
  for (int o = 0; o < pairs_most; o++) {
    if (o < a.n_logits) record[2 + o] = __float_as_int(y[o]);
  }
}

template <class Product>
__global__ void __launch_bounds__(pairs_threads, Product::ctas)
    pairs_find_kernel(const __grid_constant__ PairsArgs args) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(stages);
  const sie_pairs_args &a = args.a;
  const int32_t n = *a.words.n, row = static_cast<int32_t>(blockIdx.x) * pairs_words,
                word = row + static_cast<int32_t>(threadIdx.x) / 32;
  if (row >= n) return;
  ptx::grid_dependency_launch();
  for_found_parts(a, row, pairs_words, n, [&](const FoundPart &part) {
    const float threshold = a.items[part.b].threshold;
    FoundList<pairs_most> list(a.n_logits);
    PairsTile tile = {part, row, 0};
    for (; tile.label < part.labels; tile.label += pairs_labels) {
      float y[pairs_most];
      pairs_logits<Product>(args, tile, stages, y);
      list.add(pairs_above(a, tile, threshold, y), tile.label, y);
    }
    if (word >= part.first && word < part.last) list.write(a.found + word * a.found_ld);
  });
}

template <class Product>
__global__ void __launch_bounds__(pairs_threads, 1)
    pairs_write_kernel(const __grid_constant__ PairsArgs args) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(stages);
  int32_t *const sums = reinterpret_cast<int32_t *>(stages + 2 * PairsStage<Product>::bytes);
  const sie_pairs_args &a = args.a;
  const int32_t n = *a.words.n, row = static_cast<int32_t>(blockIdx.x) * pairs_words,
                word = row + static_cast<int32_t>(threadIdx.x) / 32,
                lane = static_cast<int32_t>(ptx::lane_id());
  if (row >= n) return;
  ptx::grid_dependency_launch();
  for_found_parts(a, row, pairs_words, n, [&](const FoundPart &part) {
    const sie_out_item item = a.items[part.b];
    if (!is_found_item(item)) return;
    const int32_t begin = count_found(a.found, a.found_ld, part.begin, part.first, pairs_words, sums);
    if (begin >= item.dims) return;
    const FoundPlace own = place_found(a.found, a.found_ld, part, begin, word, item.dims, a.n_logits);
    if (own.there && !own.again) {
      const int32_t *const entry = a.found + word * a.found_ld + 1 + lane * (1 + a.n_logits);
      if (lane < min(own.count, found_room(a.n_logits))) {
        float y[pairs_most] = {};
#pragma unroll
        for (int o = 0; o < pairs_most; o++) {
          if (o < a.n_logits) y[o] = __int_as_float(entry[1 + o]);
        }
        write_pair(a, item, own.place + lane, word - part.begin, entry[0], y);
      }
    }
    if (!own.some_again) return;
    PairsTile tile = {part, row, 0};
    int32_t place = own.place;
    for (; tile.label < part.labels; tile.label += pairs_labels) {
      float y[pairs_most];
      pairs_logits<Product>(args, tile, stages, y);
      const uint32_t above = pairs_above(a, tile, item.threshold, y);
      if (own.again && (above >> lane & 1u) != 0) {
        write_pair(a, item, place + __popc(above & ((1u << lane) - 1u)), word - part.begin, tile.label + lane,
                   y);
      }
      place += __popc(above);
    }
  });
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_PAIRS_CUH
