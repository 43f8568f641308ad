// host_scratch_test.cc — the scratch that the AVX2 table asks for, and the bytes that it packs a weight
// in, to the byte. Every case runs with guards behind its scratch: less shows there, more here.
#include "harness.h"

using namespace harness;

namespace {

sie_op_bounds plain(uint32_t kind) {
  sie_op_bounds b = {};
  b.kind = kind;
  b.compute = SIE_COMPUTE_F32;
  b.rows = 70, b.n = 37, b.k = 75, b.c = 45;
  b.max_len = 21;
  b.head_dim = 41, b.heads = b.kv_heads = 3;
  b.seqs = 4;
  b.repetitions = 3, b.simhash_bits = 2, b.top = 4;
  b.query_rows = 7;
  b.max_rank = 11;
  b.labels = 19;
  return b;
}

}  // namespace

TEST(host_avx2_has_the_scratch_it_needs) {
  using B = sie_op_bounds;
  const struct {
    uint32_t kind;
    void (*change)(B *);
    int64_t bytes;
  } wanted[] = {
      {SIE_OP_EMBED_LAYERNORM, [](B *) {}, 192},
      {SIE_OP_LAYERNORM, [](B *) {}, 192},
      {SIE_OP_LAYERNORM, [](B *b) { b->c = 48; }, 192},
      {SIE_OP_QUANTISE_ROWS, [](B *) {}, 0},
      {SIE_OP_GATHER_ROWS, [](B *) {}, 0},
      {SIE_OP_POOL, [](B *) {}, 128},
      {SIE_OP_OUTPUT_ROWS, [](B *) {}, 192},
      {SIE_OP_QK_NORM_ROPE, [](B *) {}, 384},
      {SIE_OP_POOL_OUTPUT, [](B *) {}, 320},
      {SIE_OP_KEEP_ROWS, [](B *) {}, 0},
      {SIE_OP_OUTPUT_SPARSE, [](B *) {}, 0},
      {SIE_OP_MAXSIM, [](B *) {}, 3968},
      {SIE_OP_SMVE, [](B *) {}, 84032},
      {SIE_OP_SMVE, [](B *b) { b->repetitions = b->top = 1, b->max_len = 16, b->c = 16; }, 70912},
      {SIE_OP_LORA, [](B *) {}, 17920},
      {SIE_OP_LORA, [](B *b) { b->k = 5; }, 12096},
      {SIE_OP_LSTM, [](B *) {}, 45632},
      {SIE_OP_SPANS, [](B *) {}, 7232},
      {SIE_OP_SPANS, [](B *b) { b->labels = 16; }, 7040},
      {SIE_OP_SPANS, [](B *b) { b->k = 8; }, 1280},
      {SIE_OP_PAIRS, [](B *) {}, 50040},
      {SIE_OP_LINEAR, [](B *) {}, 888},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8; }, 22400},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->k = 64; }, 17920},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->rows = 200, b->n = 4000; }, 1548800},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->n = 6144; }, 1577344},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->n = 12288; }, 1577344},
      {SIE_OP_LINEAR, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->n = 20000; }, 2564480},
      {SIE_OP_SPLADE, [](B *) {}, 55296},
      {SIE_OP_SPLADE, [](B *b) { b->compute = SIE_COMPUTE_INT8; }, 92160},
      {SIE_OP_SPLADE, [](B *b) { b->n = 150; }, 92160},
      {SIE_OP_SPLADE, [](B *b) { b->compute = SIE_COMPUTE_INT8, b->n = 150; }, 202752},
      {SIE_OP_MUVERA, [](B *) {}, 13376},
      {SIE_OP_MUVERA, [](B *b) { b->projected = 5; }, 6976},
      {SIE_OP_MUVERA, [](B *b) { b->c = 48, b->repetitions = b->simhash_bits = 4, b->max_len = 16; }, 34368},
      {SIE_OP_MUVERA, [](B *b) { b->final_dims = 9, b->max_len = 22; }, 11328},
      {SIE_OP_ATTENTION, [](B *) {}, 9312},
      {SIE_OP_ATTENTION, [](B *b) { b->max_len = 512; }, 194752},
      {SIE_OP_ATTENTION, [](B *b) { b->max_len = 513; }, 425152},
      {SIE_OP_ATTENTION, [](B *b) { b->head_dim = 1; }, 1632},
      {SIE_OP_ATTENTION, [](B *b) { b->head_dim = 256; }, 49920},
      {SIE_OP_ATTENTION, [](B *b) { b->head_dim = 0; }, 0},
      {SIE_OP_ATTENTION, [](B *b) { b->head_dim = 257; }, 0},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 33, b->bucket_reach = 20; }, 69344},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 1; }, 57504},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 32, b->bucket_reach = 19, b->max_len = 512; }, 487360},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 32, b->bucket_reach = 19, b->max_len = 513; }, 717760},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 9, b->bucket_reach = 4, b->head_dim = 1; }, 23264},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 9, b->bucket_reach = 4, b->head_dim = 256; }, 239104},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 9, b->bucket_reach = 4, b->head_dim = 0; }, 0},
      {SIE_OP_ATTENTION, [](B *b) { b->position_rows = 9, b->bucket_reach = 4, b->head_dim = 257; }, 0},
      {SIE_OP_MARK_NONFINITE, [](B *) {}, 0},
      {SIE_OP_JOIN_COLUMNS, [](B *) {}, 0},
      {SIE_OP_TAKE_ROWS, [](B *) {}, 0},
      {SIE_OP_PRODUCT, [](B *) {}, 0},
      {SIE_OP_DOTS, [](B *) {}, 0},
      {SIE_OP_SOFTMAX, [](B *) {}, 0},
      {SIE_OP_LINEAR_NORM, [](B *) {}, 0},
  };
  for (const sie_ops *ops : backends()) {
    if (ops->isa != SIE_ISA_AVX2) continue;
    int entry = 0;
    for (const auto &[kind, change, bytes] : wanted) {
      sie_op_bounds b = plain(kind);
      change(&b);
      const int64_t got = ops->scratch_bytes(&b);
      CHECK(got == bytes, "entry %d, kind %u: %lld bytes, %lld expected", entry, kind,
            static_cast<long long>(got), static_cast<long long>(bytes));
      entry++;
    }
  }
}

TEST(host_avx2_packs_in_the_bytes_it_says) {
  const struct {
    uint32_t compute;
    int64_t n, k, bytes;
  } wanted[] = {{SIE_COMPUTE_F32, 1, 1, 32},         {SIE_COMPUTE_F32, 8, 3, 96},
                {SIE_COMPUTE_F32, 9, 3, 192},        {SIE_COMPUTE_INT8, 1, 1, 32 * 72},
                {SIE_COMPUTE_INT8, 32, 64, 32 * 72}, {SIE_COMPUTE_INT8, 33, 65, 64 * 136},
                {SIE_COMPUTE_BF16, 1, 1, -1},        {SIE_COMPUTE_FP8, 1, 1, -1}};
  for (const sie_ops *ops : backends()) {
    if (ops->isa != SIE_ISA_AVX2) continue;
    CHECK(ops->compute_mask == (1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_INT8), "the classes are %x",
          ops->compute_mask);
    // The scales of 32 columns come first; those of zeros are 1.
    const float zeros[3] = {}, ones[3] = {1, 127, -127};
    Array<float> packed(static_cast<size_t>(ops->packed_bytes(SIE_COMPUTE_INT8, 2, 3) / 4), 0.0f);
    ops->pack(SIE_COMPUTE_INT8, 2, 3, 0, 1, zeros, 3, packed.data());
    ops->pack(SIE_COMPUTE_INT8, 2, 3, 1, 1, ones, 3, packed.data());
    CHECK(packed[0] == 1 && packed[1] == 1, "scales %g and %g", static_cast<double>(packed[0]),
          static_cast<double>(packed[1]));
    for (const auto &[compute, n, k, bytes] : wanted) {
      const int64_t got = ops->packed_bytes(compute, n, k);
      CHECK(got == bytes, "class %u, %lld × %lld: %lld bytes, %lld expected", compute,
            static_cast<long long>(n), static_cast<long long>(k), static_cast<long long>(got),
            static_cast<long long>(bytes));
    }
  }
}
