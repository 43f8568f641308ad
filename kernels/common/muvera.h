/* muvera.h — groups the count sketch of an encoding by output, for backends that gather
 * (kernels/ops.h). */
#ifndef SIE_KERNELS_COMMON_MUVERA_H
#define SIE_KERNELS_COMMON_MUVERA_H

#include <stdint.h>

/* Fills first [repetitions, final_dims + 1] and source [repetitions·block] from sketch
 * [repetitions·block], block = 2ᵏ·P. Output j of repetition r takes
 * source[first[r·(final_dims + 1) + j] … first[r·(final_dims + 1) + j + 1]). Each source is a place
 * in the repetition's block, or ~place for the sign −1; places ascend. Indices of the sketch must
 * be below final_dims, and repetitions·block must fit in int32. */
static inline void sie_group_sketch(const int32_t *sketch, int64_t repetitions, int64_t block,
                                    int64_t final_dims, int32_t *first, int32_t *source) {
  for (int64_t r = 0; r < repetitions; r++) {
    const int32_t *of = sketch + r * block;
    int32_t *begin = first + r * (final_dims + 1);
    /* A counting sort: counts, then ends, then each place from the last to the first. */
    for (int64_t j = 0; j <= final_dims; j++) begin[j] = 0;
    for (int64_t l = 0; l < block; l++) begin[of[l] < 0 ? ~of[l] : of[l]]++;
    int64_t end = r * block;
    for (int64_t j = 0; j < final_dims; j++) {
      end += begin[j];
      begin[j] = (int32_t)end;
    }
    begin[final_dims] = (int32_t)end;
    for (int64_t l = block - 1; l >= 0; l--) {
      int32_t j = of[l] < 0 ? ~of[l] : of[l];
      source[--begin[j]] = of[l] < 0 ? ~(int32_t)l : (int32_t)l;
    }
  }
}

#endif /* SIE_KERNELS_COMMON_MUVERA_H */
