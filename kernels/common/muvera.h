/* muvera.h — orders the count sketch of an encoding for backends that add in parallel
 * (kernels/ops.h). */
#ifndef SIE_KERNELS_COMMON_MUVERA_H
#define SIE_KERNELS_COMMON_MUVERA_H

#include <stdint.h>

enum {
  SIE_SKETCH_ROUNDS = 1024, /* a round's number is kept modulo this */
  SIE_SKETCH_BANKS = 32,    /* words of a GPU's shared memory that one access reaches */
  SIE_SKETCH_WINDOW = 8192  /* additions among which those of one access are sought */
};

static inline uint32_t sie_sketch_place(int32_t source) { return (uint32_t)(source < 0 ? ~source : source); }

/* Orders the additions [begin, end) of one round so that those of each 32 from a multiple of 32 on
 * have places, and outputs, in different banks, as far as a greedy search finds them. */
static inline void sie_spread_banks(int64_t begin, int64_t end, int32_t *output, int32_t *source) {
  for (int64_t at = begin; at < end;) {
    int64_t first = at, until = (at / SIE_SKETCH_BANKS + 1) * SIE_SKETCH_BANKS;
    uint8_t places[SIE_SKETCH_BANKS] = {0}, outputs[SIE_SKETCH_BANKS] = {0};
    if (until > end) until = end;
    for (uint8_t most = 1; at < until; most++) { /* of one bank; what is found is moved to `at` */
      for (int64_t i = at; i < end && i < first + SIE_SKETCH_WINDOW && at < until; i++) {
        int32_t to = output[i], from = source[i];
        uint8_t *p = &places[sie_sketch_place(from) % SIE_SKETCH_BANKS];
        uint8_t *o = &outputs[to / SIE_SKETCH_ROUNDS % SIE_SKETCH_BANKS];
        if (*p >= most || *o >= most) continue;
        (*p)++, (*o)++;
        output[i] = output[at], source[i] = source[at];
        output[at] = to, source[at] = from;
        at++;
      }
    }
  }
}

/* Fills output and source [repetitions·block] from sketch [repetitions·block], block = 2ᵏ·P.
 * Addition e of a repetition takes source[e], a place in the repetition's block, or ~place for the
 * sign −1, to output[e]/1024. Round n has the n-th place of each output that has so many, places
 * ascending, so the outputs of a round are all different. Rounds ascend; output[e]%1024 is the
 * round's number modulo 1024. Within a round the order is free (sie_spread_banks). Indices of the
 * sketch must be below final_dims ≤ 2²⁰. `room` is for final_dims + 2·block numbers. */
static inline void sie_order_sketch(const int32_t *sketch, int64_t repetitions, int64_t block,
                                    int64_t final_dims, int32_t *room, int32_t *output, int32_t *source) {
  int32_t *count = room, *round = count + final_dims, *next = round + block;
  for (int64_t r = 0; r < repetitions; r++) {
    const int32_t *of = sketch + r * block;
    int32_t *to = output + r * block, *from = source + r * block;
    for (int64_t j = 0; j < final_dims; j++) count[j] = 0;
    for (int64_t n = 0; n < block; n++) next[n] = 0;
    for (int64_t l = 0; l < block; l++) {
      round[l] = count[sie_sketch_place(of[l])]++;
      next[round[l]]++;
    }
    int32_t begin = 0;
    for (int64_t n = 0; n < block; n++) { /* from the sizes of rounds to their begins */
      int32_t size = next[n];
      next[n] = begin;
      begin += size;
    }
    for (int64_t l = 0; l < block; l++) {
      int32_t e = next[round[l]]++;
      to[e] = (int32_t)sie_sketch_place(of[l]) * SIE_SKETCH_ROUNDS + round[l] % SIE_SKETCH_ROUNDS;
      from[e] = of[l] < 0 ? ~(int32_t)l : (int32_t)l;
    }
    begin = 0;
    for (int64_t n = 0; begin < block; n++) { /* next has become the ends */
      sie_spread_banks(begin, next[n], to, from);
      begin = next[n];
    }
  }
}

#endif /* SIE_KERNELS_COMMON_MUVERA_H */
