// spans — the spans of words whose score for a label is above the item's threshold.
//   y[i,w,c] = relu(A_i + B_(i+w))·M_c + m_c for i + w in the sequence, w < W. One FMA chain a logit,
//   k ascending, then m: the sums of the CPU. A NaN is not above a threshold.
// Shapes   A, B [R, K], M [labels, K], m [labels, 1] or absent, row strides ≥ columns; found
//          [R, ≥ 32]; items [B]. R, B, labels ≥ 0, 1 ≤ K ≤ 2²⁰, 1 ≤ W ≤ 256.
// Types    A, B, M, m bf16 | f16 | f32, each its own.
// Alias    none.
// Align    any; 128-bit loads where a row allows them. out and the items' offsets 16 bytes.
// Cost     2·K flop a span and label on the FMA units. 384 words, W = 12, 25 labels (of a panel of
//          32), K = 2048: 604 MFLOP, 9 µs at 67 TFLOP/s, where seven loads of shared memory for 48
//          FMAs allow about half of it. A CTA of 4 words reads a panel of M (256 KiB in f32) from
//          L2: 96 CTAs 25 MB, 5 µs at 5 TB/s → compute bound where an SM has three CTAs. A lone one
//          waits for its five loads of a line one after another: 84 µs. Pass 1 reads the count of
//          each word before its own, and computes the words twice of which found has no room for
//          all, until an item is full.
// Plan     a CTA of 4 warps, a word each; 12 widths and a panel of 32 labels at a time: the widths
//          of GLiNER in one. Lines of 32 columns of relu(A + B) and of M pass through two stages of
//          shared memory in f32, the next one on its way in registers; 3×4 logits a thread, the
//          12×32 of a warp are its word's. Rows of a stage lie 144 bytes apart, so that the eight
//          rows of M that a warp reads at once are in all banks. The logits pass through shared
//          memory once more, a label a lane. Codes come panel by panel, and FoundList keeps the
//          least. Pass 1 needs a word's records in order: it counts what each width has, then
//          writes behind the widths before.
// Error    sie_tol_dot over K, and one rounding of A + B.
// Source   Zaratiana 2024, arXiv:2311.08526 §2: the span layer; the fold is derived in ops.h
#ifndef SIE_KERNELS_CUDA_SPANS_CUH
#define SIE_KERNELS_CUDA_SPANS_CUH

#include "cuda/found_items.cuh"
#include "cuda/read_four.cuh"

namespace sie_cuda {

constexpr int32_t spans_words = 4, spans_threads = 32 * spans_words, spans_min_ctas = 3;
constexpr int32_t spans_widths = 12, spans_labels = 32;  // of a warp's tile
constexpr int32_t spans_line = 32;                       // columns a stage holds
constexpr int32_t spans_stride = 36;                     // floats between the rows of a stage
constexpr int32_t spans_rows = spans_words * spans_widths;
constexpr int32_t spans_stage = (spans_rows + spans_labels) * spans_stride;
constexpr int32_t spans_z_stride = spans_labels + 1, spans_z = spans_rows * spans_z_stride;
// Two stages, the logits, the sums of the warps.
constexpr int32_t spans_shared_bytes = (2 * spans_stage + spans_z + spans_words) * 4;
constexpr int32_t spans_octets = spans_line / 8;  // of a row in a line; as many threads bring it
constexpr int32_t spans_loads = 2;                // rows of spans that a thread brings
static_assert(spans_threads / spans_octets == spans_labels, "a thread brings an octet of a label");
static_assert(spans_loads * spans_labels >= spans_rows, "and of two spans");

// A tile of a CTA: the words from row `word` on, of which part has some; widths from `width` on;
// labels from `label` on, counted in the sequence.
struct SpansTile {
  FoundPart part;
  int32_t word, width, label;
};

// Whether warp-th word of the tile has a span of that width.
SIE_DEVICE bool has_span(const sie_spans_args &a, const SpansTile &tile, int32_t word, int32_t width) {
  const int32_t row = tile.word + word;
  return row >= tile.part.first && row < tile.part.last && width < a.widest && row + width < tile.part.end;
}

// A thread's octets of one line on their way to a stage: of two spans' words, and of a label.
class SpansLine {
 public:
  SIE_DEVICE void load(const sie_spans_args &a, const SpansTile &tile, int32_t line) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / spans_octets,
                  column = line * spans_line + static_cast<int32_t>(threadIdx.x) % spans_octets * 8,
                  c = static_cast<int32_t>(a.k);
    // Rows that do not exist: zeros, and nothing is read.
#pragma unroll
    for (int i = 0; i < spans_loads; i++) {
      const int32_t span = row + i * spans_labels, word = span / spans_widths,
                    width = tile.width + span % spans_widths;
      const bool there = span < spans_rows && has_span(a, tile, word, width);
      load_octet_any(a.starts, tile.word + word, column, there ? c : 0, starts_[i]);
      load_octet_any(a.ends, tile.word + word + width, column, there ? c : 0, ends_[i]);
    }
    const bool there = tile.label + row < tile.part.labels;
    load_octet_any(a.labels, tile.part.label + tile.label + row, column, there ? c : 0, label_);
  }

  SIE_DEVICE void store(float *stage) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / spans_octets,
                  column = static_cast<int32_t>(threadIdx.x) % spans_octets * 8;
#pragma unroll
    for (int i = 0; i < spans_loads; i++) {
      if (row + i * spans_labels >= spans_rows) continue;
      float h[8];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float sum = __fadd_rn(starts_[i][j], ends_[i][j]);
        h[j] = sum < 0.0f ? 0.0f : sum;  // in this order a NaN stays one
      }
      write(stage + (row + i * spans_labels) * spans_stride + column, h);
    }
    write(stage + (spans_rows + row) * spans_stride + column, label_);
  }

 private:
  SIE_DEVICE static void write(float *to, const float (&v)[8]) {
    ptx::store_shared(to, make_float4(v[0], v[1], v[2], v[3]));
    ptx::store_shared(to + 4, make_float4(v[4], v[5], v[6], v[7]));
  }

  float starts_[spans_loads][8], ends_[spans_loads][8], label_[8];
};

constexpr int32_t spans_own_rows = spans_widths / 4, spans_own_labels = spans_labels / 8;  // of a thread

// Multiplies one line: h is the first of the thread's widths in a stage, m the first of its labels.
SIE_DEVICE void spans_multiply(const float *h, const float *m,
                               float (&acc)[spans_own_rows][spans_own_labels]) {
#pragma unroll
  for (int k = 0; k < spans_line; k += 4) {
    float hs[spans_own_rows][4], ms[spans_own_labels][4];
#pragma unroll
    for (int i = 0; i < spans_own_rows; i++) read_four(h + i * 4 * spans_stride + k, hs[i]);
#pragma unroll
    for (int i = 0; i < spans_own_labels; i++) read_four(m + i * 8 * spans_stride + k, ms[i]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int r = 0; r < spans_own_rows; r++) {
#pragma unroll
        for (int c = 0; c < spans_own_labels; c++) acc[r][c] = __fmaf_rn(hs[r][j], ms[c][j], acc[r][c]);
      }
    }
  }
}

// The sums of a tile, by all threads; then z, the warp's own 12×32, holds those of its word, before
// m.
SIE_DEVICE void spans_sums(const sie_spans_args &a, const SpansTile &tile, float *stages, float *z) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()), warp = static_cast<int32_t>(threadIdx.x) / 32,
                lines = static_cast<int32_t>((a.k + spans_line - 1) / spans_line);
  float acc[spans_own_rows][spans_own_labels] = {};
  SpansLine next;
  next.load(a, tile, 0);
  for (int32_t line = 0; line < lines; line++) {
    float *const stage = stages + line % 2 * spans_stage;
    next.store(stage);
    __syncthreads();  // the line is there, and all have left the one before, which is refilled next
    if (line + 1 < lines) next.load(a, tile, line + 1);
    spans_multiply(stage + (warp * spans_widths + lane / 8) * spans_stride,
                   stage + (spans_rows + lane % 8) * spans_stride, acc);
  }
#pragma unroll
  for (int r = 0; r < spans_own_rows; r++) {
#pragma unroll
    for (int c = 0; c < spans_own_labels; c++)
      ptx::store_shared(z + (lane / 8 + 4 * r) * spans_z_stride + lane % 8 + 8 * c, acc[r][c]);
  }
  __syncthreads();  // also before the next tile fills stage 0
}

// Calls take(width, above, y) for each width of a tile that the warp's word has: y is the logit of
// the lane's label, and bit l of above whether that of lane l is above the threshold.
template <class Take>
SIE_DEVICE void for_spans(const sie_spans_args &a, const SpansTile &tile, const float *z, float threshold,
                          const Take &take) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()), warp = static_cast<int32_t>(threadIdx.x) / 32,
                label = tile.label + lane;
  const bool there = label < tile.part.labels;
  float m = 0.0f;
  if (there && a.bias.p != nullptr)
    m = load_element(a.bias.p, a.bias.dtype, (tile.part.label + label) * a.bias.ld);
  for (int32_t w = 0; w < spans_widths && has_span(a, tile, warp, tile.width + w); w++) {
    const float y = __fadd_rn(ptx::load_shared<float>(z + w * spans_z_stride + lane), m);
    take(w, ptx::ballot(there && y > threshold), y);
  }
}

// The memory of a CTA.
struct SpansShared {
  float *stages, *z;  // z: the warp's own
  int32_t *sums;
  SIE_DEVICE explicit SpansShared(unsigned char *shared)
      : stages(reinterpret_cast<float *>(shared)),
        z(stages + 2 * spans_stage + threadIdx.x / 32 * spans_widths * spans_z_stride),
        sums(reinterpret_cast<int32_t *>(stages + 2 * spans_stage + spans_z)) {}
};

__global__ void __launch_bounds__(spans_threads, spans_min_ctas) spans_find_kernel(const sie_spans_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  const SpansShared shared(memory);
  const int32_t n = *a.words.n, row = static_cast<int32_t>(blockIdx.x) * spans_words;
  if (row >= n) return;
  ptx::grid_dependency_launch();
  for_found_parts(a, row, spans_words, n, [&](const FoundPart &part) {
    const float threshold = a.items[part.b].threshold;
    const int32_t word = row + static_cast<int32_t>(threadIdx.x) / 32;
    FoundList<1> list(1);
    SpansTile tile = {part, row, 0, 0};
    for (; tile.width < a.widest && part.first + tile.width < part.end; tile.width += spans_widths) {
      for (tile.label = 0; tile.label < part.labels; tile.label += spans_labels) {
        spans_sums(a, tile, shared.stages, shared.z);
        for_spans(a, tile, shared.z, threshold, [&](int32_t w, uint32_t above, float y) {
          const float logit[1] = {y};
          list.add(above, (tile.width + w) * part.labels + tile.label, logit);
        });
      }
    }
    if (word >= part.first && word < part.last) list.write(a.found + word * a.found_ld);
  });
}

// Writes record `at` of an item, where there is room for it.
SIE_DEVICE void write_span(const sie_spans_args &a, const sie_out_item &item, int32_t at, int32_t row,
                           int32_t width, int32_t label, float y) {
  if (at >= item.dims) return;
  char *const records = static_cast<char *>(a.out) + item.offset + 16;
  const uint4 record = make_uint4(static_cast<uint32_t>(row), static_cast<uint32_t>(width),
                                  static_cast<uint32_t>(label), __float_as_uint(y));
  ptx::store_global_whole(records + int64_t{16} * at, record);
}

// Computes the words of a part again of which found has not all; `again`: the warp's is one of
// them, and its first record is `place`. All threads call it.
SIE_DEVICE void write_spans_again(const sie_spans_args &a, const FoundPart &part, int32_t row,
                                  const SpansShared &shared, const sie_out_item &item, bool again,
                                  int32_t place) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()),
                word = row + static_cast<int32_t>(threadIdx.x) / 32 - part.begin;
  SpansTile tile = {part, row, 0, 0};
  for (; tile.width < a.widest && part.first + tile.width < part.end; tile.width += spans_widths) {
    int32_t own = 0;  // lane w: what width w has, then its next place
    for (tile.label = 0; tile.label < part.labels; tile.label += spans_labels) {
      spans_sums(a, tile, shared.stages, shared.z);
      for_spans(a, tile, shared.z, item.threshold,
                [&](int32_t w, uint32_t above, float) { own += lane == w ? __popc(above) : 0; });
    }
    int32_t before = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = ptx::shuffle_up(before, step);
      before += lane >= step ? other : 0;
    }
    const int32_t all = ptx::shuffle_from(before, 31);
    own = place + before - own;
    place += all;
    for (tile.label = 0; tile.label < part.labels; tile.label += spans_labels) {
      spans_sums(a, tile, shared.stages, shared.z);
      for_spans(a, tile, shared.z, item.threshold, [&](int32_t w, uint32_t above, float y) {
        const int32_t at = ptx::shuffle_from(own, w) + __popc(above & ((1u << lane) - 1u));
        if (again && (above >> lane & 1u) != 0)
          write_span(a, item, at, word, tile.width + w, tile.label + lane, y);
        own += lane == w ? __popc(above) : 0;
      });
    }
  }
}

__global__ void __launch_bounds__(spans_threads, spans_min_ctas) spans_write_kernel(const sie_spans_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  const SpansShared shared(memory);
  const int32_t n = *a.words.n, row = static_cast<int32_t>(blockIdx.x) * spans_words;
  if (row >= n) return;
  ptx::grid_dependency_launch();
  const int32_t word = row + static_cast<int32_t>(threadIdx.x) / 32,
                lane = static_cast<int32_t>(ptx::lane_id());
  for_found_parts(a, row, spans_words, n, [&](const FoundPart &part) {
    const sie_out_item item = a.items[part.b];
    if (!is_found_item(item)) return;
    const int32_t begin = count_found(a.found, a.found_ld, part.begin, part.first, spans_words, shared.sums);
    if (begin >= item.dims) return;
    const FoundPlace own = place_found(a.found, a.found_ld, part, begin, word, item.dims, 1);
    if (own.there && !own.again && lane < min(own.count, found_room(1))) {
      const int32_t *const entry = a.found + word * a.found_ld + 1 + 2 * lane;
      write_span(a, item, own.place + lane, word - part.begin, entry[0] / part.labels, entry[0] % part.labels,
                 __int_as_float(entry[1]));
    }
    if (own.some_again) write_spans_again(a, part, row, shared, item, own.again, own.place);
  });
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SPANS_CUH
