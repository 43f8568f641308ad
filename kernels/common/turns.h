/* turns.h — the angles of sequences that have a row of their own in sie_qk_norm_rope_args.turns, for
 * backends that rotate in float. */
#ifndef SIE_KERNELS_COMMON_TURNS_H
#define SIE_KERNELS_COMMON_TURNS_H

#include <stddef.h>

#include "ops.h"

#ifdef __CUDACC__
#define SIE_TURNS_FUNCTION static __host__ __device__ inline
#else
#define SIE_TURNS_FUNCTION static inline
#endif

/* Returns the row of a->turns of a sequence of that many rows, or NULL: it reads cos and sin. */
SIE_TURNS_FUNCTION const int32_t *sie_turns_of(const sie_qk_norm_rope_args *a, int64_t rows) {
  if (a->turns == NULL || rows <= a->positions) return NULL;
  return a->turns + (rows - a->positions - 1) * a->rot;
}

/* Sets the cos and sin of pair i at that position. turns is a row, h = rot/2. Both are within 2^-23
 * of their values, at any position: the angle is a product in fixed point, which loses whole turns
 * and nothing else, and is reduced to a quarter before it becomes a float. */
SIE_TURNS_FUNCTION void sie_cos_sin(const int32_t *turns, int32_t h, int32_t i, int64_t position,
                                    float *cosine, float *sine) {
  const uint64_t step = (uint64_t)(uint32_t)turns[i] << 32 | (uint32_t)turns[h + i];
  const uint32_t turn = (uint32_t)((uint64_t)position * step >> 32);
  const uint32_t quarter = (turn + 0x20000000u) >> 30;                 /* the nearest; 4 is 0 */
  const float r = (float)(int32_t)(turn - (quarter << 30)) * 0x1p-31f; /* half turns, up to 1/4 */
  const float x = r * r;
  /* sin and cos of πr by their series; the first terms that are missing are 2e-9 and 2e-10. */
  const float s =
      r * (3.14159265f + x * (-5.16771278f + x * (2.55016404f + x * (-0.599264529f + x * 0.0821458866f))));
  const float c =
      1.0f +
      x * (-4.93480220f + x * (4.05871213f + x * (-1.33526277f + x * (0.235330630f + x * -0.0258068913f))));
  const float to_cos = quarter & 1 ? s : c, to_sin = quarter & 1 ? c : s;
  *cosine = (quarter + 1) & 2 ? -to_cos : to_cos;
  *sine = quarter & 2 ? -to_sin : to_sin;
}

#endif /* SIE_KERNELS_COMMON_TURNS_H */
