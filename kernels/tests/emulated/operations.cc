// operations.cc — every AVX-512 intrinsic that cpu/ uses, in the forms that it uses. Compiled twice,
// under the name SIE_OPERATIONS: with emulated_avx512.h, and for the machine.
#include "tests/emulated/operations.h"

#include <immintrin.h>
#include <string.h>

#include "sie.h"

namespace {

template <typename V>
inline V of(const uint8_t *p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <typename V>
inline void put(uint8_t *out, V v) {
  memcpy(out, &v, sizeof v);
}

#define OPERATION(name, isa, result, statement)                                                      \
  {name, isa, OperationResult::result, [](const OperationInput *in, uint8_t *out) {                  \
     const __m512 a = of<__m512>(in->a), b = of<__m512>(in->b), c = of<__m512>(in->c);               \
     const __m512i ai = of<__m512i>(in->a), bi = of<__m512i>(in->b), ci = of<__m512i>(in->c);        \
     const __m512d ad = of<__m512d>(in->a), bd = of<__m512d>(in->b);                                 \
     const __mmask16 k = static_cast<__mmask16>(in->mask);                                           \
     (void)a, (void)b, (void)c, (void)ai, (void)bi, (void)ci, (void)ad, (void)bd, (void)k, (void)in; \
     statement;                                                                                      \
   }}
#define FLOATS(name, expression) OPERATION(name, SIE_ISA_AVX512, floats, put(out, expression))
#define INTEGERS(name, expression) OPERATION(name, SIE_ISA_AVX512, integers, put(out, expression))
#define STORES(name, statement) OPERATION(name, SIE_ISA_AVX512, integers, statement)
#define COMPARED(predicate) INTEGERS("cmp_ps_mask " #predicate, _mm512_cmp_ps_mask(a, b, predicate))

const Operation list[] = {
    // Moves.
    FLOATS("set1_ps", _mm512_set1_ps(of<float>(in->a))),
    FLOATS("setzero_ps", _mm512_setzero_ps()),
    INTEGERS("set1_epi32", _mm512_set1_epi32(of<int>(in->a))),
    INTEGERS("set1_epi16", _mm512_set1_epi16(of<short>(in->a))),
    INTEGERS("setzero_si512", _mm512_setzero_si512()),
    INTEGERS("set_epi32", _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)),
    INTEGERS("load_ps", _mm512_castps_si512(_mm512_load_ps(in->a))),
    INTEGERS("loadu_ps", _mm512_castps_si512(_mm512_loadu_ps(in->a + 4))),
    INTEGERS("load_si512", _mm512_load_si512(in->b)),
    INTEGERS("loadu_si512", _mm512_loadu_si512(in->a + 1)),
    STORES("store_ps", _mm512_store_ps(out, b)),
    STORES("storeu_ps", _mm512_storeu_ps(out, b)),
    STORES("store_si512", _mm512_store_si512(out, bi)),
    STORES("storeu_si512", _mm512_storeu_si512(out, bi)),
    INTEGERS("maskz_loadu_ps", _mm512_castps_si512(_mm512_maskz_loadu_ps(k, in->a))),
    INTEGERS("mask_loadu_ps", _mm512_castps_si512(_mm512_mask_loadu_ps(b, k, in->a))),
    STORES("mask_storeu_ps", _mm512_mask_storeu_ps(out, k, a)),
    INTEGERS("maskz_loadu_epi16", _mm512_maskz_loadu_epi16(in->mask, in->a)),
    INTEGERS("256 maskz_loadu_epi16", _mm256_maskz_loadu_epi16(k, in->a)),
    STORES("mask_storeu_epi16", _mm512_mask_storeu_epi16(out, in->mask, ai)),
    STORES("256 mask_storeu_epi16", _mm256_mask_storeu_epi16(out, k, of<__m256i>(in->a))),
    STORES("128 mask_storeu_epi8", _mm_mask_storeu_epi8(out, k, of<__m128i>(in->a))),
    INTEGERS("mask_mov_ps", _mm512_castps_si512(_mm512_mask_mov_ps(a, k, b))),
    INTEGERS("maskz_mov_ps", _mm512_castps_si512(_mm512_maskz_mov_ps(k, a))),
    INTEGERS("mask_mov_epi32", _mm512_mask_mov_epi32(ai, k, bi)),
    INTEGERS("castsi512_ps", _mm512_castps_si512(_mm512_castsi512_ps(ai))),
    INTEGERS("castpd_ps", _mm512_castps_si512(_mm512_castpd_ps(_mm512_castps_pd(a)))),
    INTEGERS("castps512_ps256", _mm512_castps512_ps256(a)),
    INTEGERS("castsi512_si256", _mm512_castsi512_si256(ai)),
    INTEGERS("castsi256_si512",
             _mm512_inserti64x4(_mm512_castsi256_si512(of<__m256i>(in->a)), of<__m256i>(in->b), 1)),
    INTEGERS("inserti64x4 0", _mm512_inserti64x4(ai, of<__m256i>(in->b), 0)),
    INTEGERS("cvtss_f32", _mm512_cvtss_f32(a)),
    INTEGERS("extractf32x8", _mm512_extractf32x8_ps(a, 1)),
    INTEGERS("extractf32x8 0", _mm512_extractf32x8_ps(a, 0)),
    INTEGERS("extracti64x4", _mm512_extracti64x4_epi64(ai, 1)),
    // Lanes in another order.
    INTEGERS("shuffle_f32x4 88", _mm512_castps_si512(_mm512_shuffle_f32x4(a, b, 0x88))),
    INTEGERS("shuffle_f32x4 dd", _mm512_castps_si512(_mm512_shuffle_f32x4(a, b, 0xdd))),
    INTEGERS("shuffle_i32x4 1b", _mm512_shuffle_i32x4(ai, bi, 0x1b)),
    INTEGERS("unpacklo_ps", _mm512_castps_si512(_mm512_unpacklo_ps(a, b))),
    INTEGERS("unpackhi_ps", _mm512_castps_si512(_mm512_unpackhi_ps(a, b))),
    INTEGERS("unpacklo_pd", _mm512_castps_si512(_mm512_castpd_ps(_mm512_unpacklo_pd(ad, bd)))),
    INTEGERS("unpackhi_pd", _mm512_castps_si512(_mm512_castpd_ps(_mm512_unpackhi_pd(ad, bd)))),
    INTEGERS("unpacklo_epi32", _mm512_unpacklo_epi32(ai, bi)),
    INTEGERS("unpackhi_epi32", _mm512_unpackhi_epi32(ai, bi)),
    INTEGERS("unpacklo_epi64", _mm512_unpacklo_epi64(ai, bi)),
    INTEGERS("unpackhi_epi64", _mm512_unpackhi_epi64(ai, bi)),
    INTEGERS("permutexvar_ps", _mm512_castps_si512(_mm512_permutexvar_ps(ci, a))),
    INTEGERS("permutex2var_ps", _mm512_castps_si512(_mm512_permutex2var_ps(a, ci, b))),
    INTEGERS("permutex2var_epi16", _mm512_permutex2var_epi16(ai, ci, bi)),
    INTEGERS("i32gather_ps",
             _mm512_castps_si512(_mm512_i32gather_ps(
                 _mm512_sub_epi32(_mm512_and_si512(ci, _mm512_set1_epi32(15)), _mm512_set1_epi32(7)),
                 in->a + 28, 4))),
    // Integers.
    INTEGERS("and_si512", _mm512_and_si512(ai, bi)),
    INTEGERS("mask_or_epi32", _mm512_mask_or_epi32(ci, k, ai, bi)),
    INTEGERS("add_epi32", _mm512_add_epi32(ai, bi)),
    INTEGERS("sub_epi32", _mm512_sub_epi32(ai, bi)),
    INTEGERS("add_epi16", _mm512_add_epi16(ai, bi)),
    INTEGERS("mullo_epi32", _mm512_mullo_epi32(ai, bi)),
    INTEGERS("min_epi32", _mm512_min_epi32(ai, bi)),
    INTEGERS("max_epi32", _mm512_max_epi32(ai, bi)),
    INTEGERS("abs_epi32", _mm512_abs_epi32(ai)),
    INTEGERS("slli_epi32", _mm512_slli_epi32(ai, 16)),
    INTEGERS("srli_epi32", _mm512_srli_epi32(ai, 16)),
    INTEGERS("srai_epi32", _mm512_srai_epi32(ai, 24)),
    INTEGERS("slli_epi32 40", _mm512_slli_epi32(ai, 40)),
    INTEGERS("srli_epi32 40", _mm512_srli_epi32(ai, 40)),
    INTEGERS("srai_epi32 40", _mm512_srai_epi32(ai, 40)),
    INTEGERS("sll_epi32", _mm512_sll_epi32(ai, _mm_cvtsi32_si128(static_cast<int>(in->mask % 40)))),
    INTEGERS("cmpeq_epi16_mask", _mm512_cmpeq_epi16_mask(ai, bi)),
    INTEGERS("knot_mask16", _knot_mask16(k)),
    INTEGERS("cvtepu16_epi32", _mm512_cvtepu16_epi32(of<__m256i>(in->a))),
    INTEGERS("cvtepi32_epi16", _mm512_cvtepi32_epi16(ai)),
    INTEGERS("cvtepi32_epi8", _mm512_cvtepi32_epi8(ai)),
    OPERATION("dpbusd_epi32", SIE_ISA_AVX512_VNNI, integers, put(out, _mm512_dpbusd_epi32(ci, ai, bi))),
    OPERATION("dpwssd_epi32", SIE_ISA_AVX512_VNNI, integers, put(out, _mm512_dpwssd_epi32(ci, ai, bi))),
    // Floats.
    FLOATS("add_ps", _mm512_add_ps(a, b)),
    FLOATS("sub_ps", _mm512_sub_ps(a, b)),
    FLOATS("mul_ps", _mm512_mul_ps(a, b)),
    FLOATS("div_ps", _mm512_div_ps(a, b)),
    FLOATS("+ - * /", (a + b) * c - a / b),
    FLOATS("min_ps", _mm512_min_ps(a, b)),
    FLOATS("max_ps", _mm512_max_ps(a, b)),
    FLOATS("mask_max_ps", _mm512_mask_max_ps(c, k, a, b)),
    FLOATS("maskz_mul_ps", _mm512_maskz_mul_ps(k, a, b)),
    FLOATS("sqrt_ps", _mm512_sqrt_ps(a)),
    INTEGERS("abs_ps", _mm512_castps_si512(_mm512_abs_ps(a))),
    FLOATS("fmadd_ps", _mm512_fmadd_ps(a, b, c)),
    FLOATS("fmsub_ps", _mm512_fmsub_ps(a, b, c)),
    FLOATS("fnmadd_ps", _mm512_fnmadd_ps(a, b, c)),
    OPERATION("add_pd", SIE_ISA_AVX512, doubles, put(out, _mm512_add_pd(ad, bd))),
    OPERATION("mul_pd", SIE_ISA_AVX512, doubles, put(out, _mm512_mul_pd(ad, bd))),
    COMPARED(_CMP_EQ_OQ),
    COMPARED(_CMP_GT_OQ),
    COMPARED(_CMP_NLE_UQ),
    COMPARED(_CMP_UNORD_Q),
    FLOATS("roundscale_ps", _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
    FLOATS("reduce_ps", _mm512_reduce_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)),
    FLOATS("scalef_ps", _mm512_scalef_ps(a, b)),
    OPERATION("rcp14_ps", SIE_ISA_AVX512, reciprocals, put(out, _mm512_rcp14_ps(a))),
    INTEGERS("fpclass_ps_mask 10", _mm512_fpclass_ps_mask(a, 0x10)),
    INTEGERS("fpclass_ps_mask 6d", _mm512_fpclass_ps_mask(a, 0x6d)),
    INTEGERS("fpclass_ps_mask 82", _mm512_fpclass_ps_mask(a, 0x82)),
    FLOATS("cvtepi32_ps", _mm512_cvtepi32_ps(ai)),
    INTEGERS("cvtps_epi32", _mm512_cvtps_epi32(a)),
    OPERATION("cvtps_pd", SIE_ISA_AVX512, doubles, put(out, _mm512_cvtps_pd(of<__m256>(in->a)))),
    INTEGERS("cvtps_ph", _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)),
    FLOATS("reduce_add_ps", _mm512_reduce_add_ps(a)),
    FLOATS("reduce_max_ps", _mm512_reduce_max_ps(a)),
    FLOATS("reduce_min_ps", _mm512_reduce_min_ps(a)),
    OPERATION("reduce_add_pd", SIE_ISA_AVX512, doubles, put(out, _mm512_reduce_add_pd(ad))),
    OPERATION("cvtneps_pbh", SIE_ISA_AVX512_BF16, integers, put(out, _mm512_cvtneps_pbh(a))),
    OPERATION("cvtne2ps_pbh", SIE_ISA_AVX512_BF16, integers, put(out, _mm512_cvtne2ps_pbh(a, b))),
    OPERATION("dpbf16_ps", SIE_ISA_AVX512_BF16, sums,
              put(out, _mm512_dpbf16_ps(c, of<__m512bh>(in->a), of<__m512bh>(in->b)))),
};

}  // namespace

Operations SIE_OPERATIONS() { return {list, static_cast<int>(sizeof list / sizeof *list)}; }
