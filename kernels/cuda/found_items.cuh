// found_items.cuh — what the kernels of spans and pairs share: the sequences that a CTA's words
// belong to, what is found of a word, and the places of records.
//
// A CTA has neighbouring words, a warp each. Its words may belong to several sequences, which it
// takes one after another. Pass 0 writes a row of `found` for each word. In pass 1 the first record
// of a word stands behind those of all words before it in its sequence: the sum of their counts. So
// the bytes are the same in every run, without an atomic.
#ifndef SIE_KERNELS_CUDA_FOUND_ITEMS_CUH
#define SIE_KERNELS_CUDA_FOUND_ITEMS_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

// Entries for which a row of found has room, of 1 + logits words each (common/found.h).
SIE_DEVICE int32_t found_room(int32_t logits) { return (SIE_FOUND_WORDS - 1) / (1 + logits); }

SIE_DEVICE bool is_found_item(const sie_out_item &item) {
  return item.dtype == SIE_F32 && item.dims > 0 && item.normalize == 0 && item.threshold == item.threshold;
}

// The words of a CTA that belong to one sequence, rows [first, last), and that sequence.
struct FoundPart {
  int32_t b;
  int32_t begin, end;   // rows of its words
  int32_t first, last;  // those of the CTA; first ≥ last: none
  int32_t label, labels;
};

// Calls take(part) for each sequence that has words among rows [row, row + rows) of the first n.
// All threads of the CTA call it, and take. Args is sie_spans_args or sie_pairs_args.
template <class Args, class Take>
SIE_DEVICE void for_found_parts(const Args &a, int32_t row, int32_t rows, int32_t n, const Take &take) {
  const int32_t stop = min(row + rows, n);
  FoundPart part;
  part.b = sequence_of(a.cu_words, *a.seqs.n, row).index;
  for (part.first = row; part.first < stop; part.b++) {
    part.begin = a.cu_words[part.b];
    part.end = a.cu_words[part.b + 1];
    part.last = min(stop, part.end);
    if (part.first >= part.last) continue;  // no words
    const int32_t group = a.label_group != nullptr ? a.label_group[part.b] : part.b;
    part.label = group < 0 ? 0 : a.cu_labels[group];
    part.labels = group < 0 ? 0 : a.cu_labels[group + 1] - part.label;
    take(part);
    part.first = part.last;
  }
}

// What is found of a warp's word: lane e keeps entry e, by ascending code. Most: logits of an entry
// at most.
template <int32_t Most>
struct FoundList {
  int32_t logits, count = 0, code = INT32_MAX;
  float y[Most] = {};

  SIE_DEVICE explicit FoundList(int32_t of_each) : logits(of_each) {}

  // Adds the codes first + l of the lanes l in `above`, whose logits lie in the lanes. Codes come
  // in any order, each once; the least are kept. A whole warp calls.
  SIE_DEVICE void add(uint32_t above, int32_t first, const float (&of_lane)[Most]) {
    const int32_t lane = static_cast<int32_t>(ptx::lane_id()), room = found_room(logits);
    for (; above != 0; above &= above - 1) {
      const int32_t source = __ffs(static_cast<int32_t>(above)) - 1, added = first + source;
      const int32_t at = __popc(ptx::ballot(lane < count && code < added));
      if (at >= room) {  // and all that follow have larger codes
        count += __popc(above);
        return;
      }
      count++;
      const int32_t before = ptx::shuffle_up(code, 1);
      code = lane < at ? code : (lane == at ? added : before);
#pragma unroll
      for (int o = 0; o < Most; o++) {
        const float moved = ptx::shuffle_up(y[o], 1), own = ptx::shuffle_from(of_lane[o], source);
        y[o] = lane < at ? y[o] : (lane == at ? own : moved);
      }
    }
  }

  // Writes the word's row of found.
  SIE_DEVICE void write(int32_t *row) const {
    const int32_t lane = static_cast<int32_t>(ptx::lane_id());
    if (lane == 0) row[0] = count;
    if (lane >= min(count, found_room(logits))) return;
    int32_t *const entry = row + 1 + lane * (1 + logits);
    entry[0] = code;
#pragma unroll
    for (int o = 0; o < Most; o++) {
      if (o < logits) entry[1 + o] = __float_as_int(y[o]);
    }
  }
};

// The sum of the counts of rows [first, last) of found, by all threads of a CTA: the same in each.
// sums: a word of shared memory for each warp, which the caller may use again behind its next
// barrier.
SIE_DEVICE int32_t count_found(const int32_t *found, int64_t ld, int32_t first, int32_t last, int32_t warps,
                               int32_t *sums) {
  uint32_t own = 0;
  for (int32_t r = first + static_cast<int32_t>(threadIdx.x); r < last; r += 32 * warps) {
    own += static_cast<uint32_t>(found[r * ld]);
  }
  own = ptx::reduce_add(own);
  if (ptx::lane_id() == 0) ptx::store_shared(sums + threadIdx.x / 32, static_cast<int32_t>(own));
  __syncthreads();
  int32_t all = 0;
  for (int32_t w = 0; w < warps; w++) all += ptx::load_shared<int32_t>(sums + w);
  __syncthreads();  // sums may be written again
  return all;
}

// Where the records of a warp's word begin in its item. A word is computed again if found has no
// room for all that it has and the item has room for its first record.
struct FoundPlace {
  int32_t place, count;
  bool there, again, some_again;  // whether the warp has a word; again: its own, any of the CTA's
};

// `begin` records stand before those of the part's first word; room: of the item.
SIE_DEVICE FoundPlace place_found(const int32_t *found, int64_t ld, const FoundPart &part, int32_t begin,
                                  int32_t word, int32_t room, int32_t logits) {
  FoundPlace own = {begin, 0, word >= part.first && word < part.last, false, false};
  int32_t place = begin;
  for (int32_t r = part.first; r < part.last; r++) {
    const int32_t count = found[r * ld];
    const bool again = count > found_room(logits) && place < room;
    own.some_again = own.some_again || again;
    if (r == word) own.place = place, own.count = count, own.again = again;
    place += count;
  }
  return own;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_FOUND_ITEMS_CUH
