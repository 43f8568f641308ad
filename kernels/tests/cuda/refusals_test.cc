// refusals_test.cc — what the GPU tables refuse, with which status, before they write anything.
#include "tests/cuda/operands.h"

using namespace calls;

TEST(layernorm_refuses) {
  Operands o;
  sie_layernorm_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.gamma = o.vector.data();
  a.y = o.to();
  a.yq = o.f8();
  using Args = sie_layernorm_args;
  check_refusals<Args>(
      "layernorm", &sie_ops::layernorm, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no gamma", invalid, [](Args *b) { b->gamma = nullptr; }},
          {"no output", invalid, [](Args *b) { b->y.p = b->yq.p = nullptr; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) {
             b->rows = {0, nullptr};
             b->gamma = nullptr;
             b->x.p = b->y.p = b->yq.p = nullptr;
           }},
          {"no norm", invalid, [](Args *b) { b->norm = SIE_NORM_NONE; }},
          {"an unknown norm", invalid, [](Args *b) { b->norm = 7; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"a stride of yq below its columns", invalid, [](Args *b) { b->yq.ld = columns - 1; }},
          {"a stride of the residual below its columns", invalid,
           [](Args *b) { b->residual = b->x, b->residual.ld = columns - 1; }},
          {"no scale of yq", invalid, [](Args *b) { b->yq.scale = nullptr; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = b->y.ld = b->yq.ld = 8193; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"y of bytes", unsupported, [](Args *b) { b->y.dtype = SIE_I8; }},
          {"sum of bytes", unsupported, [](Args *b) { b->sum = b->y, b->sum.dtype = SIE_U8; }},
          {"yq of u8", unsupported, [](Args *b) { b->yq.dtype = SIE_U8; }},
          {"yq in blocks", unsupported, [](Args *b) { b->yq.scale_group = 128; }},
      },
      {{" without y", SIE_OK, [](Args *b) { b->y.p = nullptr; }},
       {" without yq", SIE_OK, [](Args *b) { b->yq.p = nullptr; }}});
}

TEST(embed_layernorm_refuses) {
  Operands o;
  sie_embed_layernorm_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.ids = o.ids.data();
  a.cu_seqlens = o.cu.data();
  a.word = o.in();
  a.gamma = o.vector.data();
  a.c = columns;
  a.y = o.to();
  a.yq = o.f8();
  using Args = sie_embed_layernorm_args;
  check_refusals<Args>(
      "embed_layernorm", &sie_ops::embed_layernorm, a, &Args::tokens, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no ids", invalid, [](Args *b) { b->ids = nullptr; }},
          {"no words", invalid, [](Args *b) { b->word.p = nullptr; }},
          {"no sequences' count", invalid, [](Args *b) { b->seqs.n = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no gamma", invalid, [](Args *b) { b->gamma = nullptr; }},
          {"no output", invalid, [](Args *b) { b->y.p = b->yq.p = nullptr; }},
          {"no tokens and no memory", SIE_OK,
           [](Args *b) {
             b->tokens = b->seqs = {0, nullptr};
             b->ids = b->cu_seqlens = nullptr;
             b->gamma = nullptr;
             b->word.p = b->y.p = b->yq.p = nullptr;
           }},
          {"a norm before the first", invalid, [](Args *b) { b->norm = -1; }},
          {"an unknown norm", invalid, [](Args *b) { b->norm = 7; }},
          {"a stride of words below their columns", invalid, [](Args *b) { b->word.ld = columns - 1; }},
          {"a stride of positions below their columns", invalid,
           [](Args *b) { b->position = b->word, b->position.ld = columns - 1; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->word.ld = b->y.ld = b->yq.ld = 8193; }},
          {"words of bytes", unsupported, [](Args *b) { b->word.dtype = SIE_U8; }},
          {"types of bytes", unsupported, [](Args *b) { b->type = b->word, b->type.dtype = SIE_U8; }},
          {"yq of u8", unsupported, [](Args *b) { b->yq = b->y, b->yq.dtype = SIE_U8; }},
      },
      {{" without y", SIE_OK, [](Args *b) { b->y.p = nullptr; }},
       {" without yq", SIE_OK, [](Args *b) { b->yq.p = nullptr; }}});
}

TEST(quantise_rows_refuses) {
  Operands o;
  sie_quantise_rows_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.y = o.f8();
  using Args = sie_quantise_rows_args;
  check_refusals<Args>(
      "quantise_rows", &sie_ops::quantise_rows, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no scale", invalid, [](Args *b) { b->y.scale = nullptr; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = {0, nullptr}, b->x.p = b->y.p = nullptr; }},
          {"no rows of the widest in blocks", SIE_OK,
           [](Args *b) {
             b->rows.cap = 0;
             b->c = b->x.ld = b->y.ld = widest;
             b->y.scale_group = 128;
           }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"too many columns of a row", unsupported, [](Args *b) { b->c = b->x.ld = b->y.ld = 8193; }},
          {"too many columns in blocks", unsupported,
           [](Args *b) { b->c = b->x.ld = b->y.ld = too_wide, b->y.scale_group = 128; }},
          {"groups of 64", unsupported, [](Args *b) { b->y.scale_group = 64; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"y of u8", unsupported, [](Args *b) { b->y.dtype = SIE_U8; }},
      });
}

TEST(gather_rows_refuses) {
  Operands o;
  sie_gather_rows_args a = {};
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.which = SIE_POOL_LAST;
  a.c = columns;
  a.x = o.in();
  a.y = o.to();
  using Args = sie_gather_rows_args;
  check_refusals<Args>(
      "gather_rows", &sie_ops::gather_rows, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"two types", unsupported, [](Args *b) { b->y.dtype = SIE_F16; }},
          {"bytes", unsupported, [](Args *b) { b->x.dtype = b->y.dtype = SIE_U8; }},
          {"a mean", unsupported, [](Args *b) { b->which = SIE_POOL_MEAN; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) { b->seqs = {0, nullptr}, b->cu_seqlens = nullptr, b->x.p = b->y.p = nullptr; }},
      });
}

TEST(pool_refuses) {
  Operands o;
  sie_pool_args a = {};
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.mode = SIE_POOL_ATTENTION;
  a.longest = 3;
  a.w = o.vector.data();
  a.c = columns;
  a.x = o.in();
  a.y = o.to();
  a.y.dtype = SIE_F32;
  using Args = sie_pool_args;
  check_refusals<Args>(
      "pool", &sie_ops::pool, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no w", invalid, [](Args *b) { b->w = nullptr; }},
          {"an index without the sequences of its space", invalid,
           [](Args *b) { b->index = reinterpret_cast<const int32_t *>(b->x.p); }},
          {"sequences of a space without an index", invalid, [](Args *b) { b->cu_whole = b->cu_seqlens; }},
          {"an unknown mode", invalid, [](Args *b) { b->mode = 9; }},
          {"sequences of fewer rows than none", invalid, [](Args *b) { b->longest = -1; }},
          {"no scratch for parts", invalid, [](Args *b) { b->mode = SIE_POOL_MAX, b->longest = 129; }},
          {"no scratch for sequences of any length", invalid,
           [](Args *b) { b->mode = SIE_POOL_MEAN, b->longest = 0; }},
          {"no mode", invalid, [](Args *b) { b->mode = 0; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = b->y.ld = 8193; }},
          {"too many columns of one row", unsupported,
           [](Args *b) { b->c = b->x.ld = b->y.ld = too_wide, b->mode = SIE_POOL_CLS; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"y of bf16", unsupported, [](Args *b) { b->y.dtype = SIE_BF16; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = {0, nullptr};
             b->cu_seqlens = nullptr;
             b->w = nullptr;
             b->x.p = b->y.p = nullptr;
           }},
          // Rows that are one row may be wider than sums of several.
          {"no sequences of the widest sums", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = 8192, b->mode = SIE_POOL_MEAN; }},
          {"no sequences of the widest, first rows", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->mode = SIE_POOL_CLS; }},
          {"no sequences of the widest, last rows", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->mode = SIE_POOL_LAST; }},
          {"no sequences of the widest, as they are", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->cu_seqlens = nullptr; }},
      },
      {{" by sequence", SIE_OK, [](Args *b) { b->cu_seqlens = nullptr, b->mode = SIE_POOL_MEAN; }},
       {" of one part", SIE_OK, [](Args *b) { b->mode = SIE_POOL_MEAN, b->longest = 128; }},
       {" by attention, of any length", SIE_OK, [](Args *b) { b->longest = 0; }},
       {" of any length, first rows", SIE_OK, [](Args *b) { b->longest = 0, b->mode = SIE_POOL_CLS; }}});
}

// ⌊T/128⌋ + B places, each of whole octets in f32 and a double.
TEST(pool_scratch_is_no_larger_than_said) {
  sie_op_bounds b = {};
  b.rows = 1280;
  b.seqs = 5;
  const struct {
    int64_t c, longest, bytes;
  } rows[] = {{32, 129, 15 * (32 * 4 + 8)},
              {33, 1280, 15 * (40 * 4 + 8)},
              {8192, 129, 15 * (8192 * 4 + 8)},
              {32, 0, 15 * (32 * 4 + 8)},
              {32, 128, 0},
              {32, 1, 0},
              {8193, 1280, 0},
              {0, 1280, 0}};
  for (const Gpu &gpu : gpus()) {
    for (uint32_t kind : {SIE_OP_POOL, SIE_OP_POOL_OUTPUT}) {
      for (const auto &r : rows) {
        b.kind = kind;
        b.c = r.c;
        b.max_len = r.longest;
        const int64_t got = gpu.ops->scratch_bytes(&b);
        CHECK(got == r.bytes, "%s: %lld bytes of %lld columns, sequences to %lld", gpu.ops->name,
              static_cast<long long>(got), static_cast<long long>(r.c), static_cast<long long>(r.longest));
      }
    }
  }
}

// A place less than there are sequences.
TEST(pool_refuses_less_scratch_than_places) {
  Operands o;
  sie_pool_args a = {};
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.mode = SIE_POOL_MEAN;
  a.c = columns;
  a.x = o.in();
  a.y = o.to();
  a.y.dtype = SIE_F32;
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_POOL;
  bounds.rows = rows;
  bounds.seqs = 2;
  bounds.c = columns;
  for (const Gpu &gpu : gpus()) {
    Scratch scratch(gpu.ops, bounds);
    sie_share share = scratch.share(0, 1);
    share.on = &gpu.on;
    share.scratch_bytes--;
    CHECK(gpu.ops->pool(&a, &share) == invalid && o.untouched(), "%s: a byte less", gpu.ops->name);
    share.scratch_bytes++;
    void *const there = share.scratch;
    share.scratch = nullptr;
    CHECK(gpu.ops->pool(&a, &share) == invalid && o.untouched(), "%s: none", gpu.ops->name);
    share.scratch = there;
    CHECK(gpu.ops->pool(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK && !o.untouched(),
          "%s: all of it", gpu.ops->name);
    CHECK(scratch.intact(), "%s: wrote behind its scratch", gpu.ops->name);
    o.clear();
  }
}

TEST(pool_output_refuses) {
  Operands o;
  sie_pool_output_args a = {};
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.mode = SIE_POOL_MEAN;
  a.longest = 3;
  a.c = columns;
  a.x = o.in();
  a.items = o.items.data();
  a.out = o.out.data();
  using Args = sie_pool_output_args;
  check_refusals<Args>("pool_output", &sie_ops::pool_output, a, &Args::seqs, &o,
                       {
                           {"no columns", invalid, [](Args *b) { b->c = 0; }},
                           {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
                           {"no items", invalid, [](Args *b) { b->items = nullptr; }},
                           {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
                           {"attention without w", invalid, [](Args *b) { b->mode = SIE_POOL_ATTENTION; }},
                           {"an unknown mode", invalid, [](Args *b) { b->mode = 9; }},
                           {"sequences of fewer rows than none", invalid, [](Args *b) { b->longest = -1; }},
                           {"no scratch for parts", invalid, [](Args *b) { b->longest = 129; }},
                           {"a stride below the columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
                           {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = 8193; }},
                           {"bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
                       });
}

TEST(output_rows_refuses) {
  Operands o;
  Array<float> x(2 * columns, 1.0f);
  sie_output_rows_args a = {};
  a.seqs = o.seqs();
  a.c = columns;
  a.x = {x.data(), columns, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.items = o.items.data();
  a.out = o.out.data();
  using Args = sie_output_rows_args;
  check_refusals<Args>(
      "output_rows", &sie_ops::output_rows, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no items", invalid, [](Args *b) { b->items = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
          {"a stride below the columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = too_wide; }},
          {"x of bf16", unsupported, [](Args *b) { b->x.dtype = SIE_BF16; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->seqs = {0, nullptr}, b->x.p = nullptr, b->c = b->x.ld = widest; }},
      });
}

TEST(qk_norm_rope_refuses) {
  Operands o;
  sie_qk_norm_rope_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.heads = 1;
  a.head_dim = a.rot = columns;
  a.q_gamma = o.vector.data();
  Array<float> angles(3 * columns / 2, 0.5f);
  a.cos = a.sin = angles.data();
  a.positions = 3;
  a.q = o.to();
  using Args = sie_qk_norm_rope_args;
  check_refusals<Args>(
      "qk_norm_rope", &sie_ops::qk_norm_rope, a, &Args::tokens, &o,
      {
          {"no heads", invalid, [](Args *b) { b->heads = 0; }},
          {"fewer heads of k than none", invalid, [](Args *b) { b->kv_heads = -1; }},
          {"no columns", invalid, [](Args *b) { b->head_dim = 0; }},
          {"no columns, and none of them rotated", invalid, [](Args *b) { b->head_dim = b->rot = 0; }},
          {"an odd rotation", invalid, [](Args *b) { b->rot = 7; }},
          {"more rotated than there is", invalid, [](Args *b) { b->rot = columns + 2; }},
          {"a rotation below zero", invalid, [](Args *b) { b->rot = -2; }},
          {"no cosines", invalid, [](Args *b) { b->cos = nullptr; }},
          {"no sines", invalid, [](Args *b) { b->sin = nullptr; }},
          {"turns behind prefixes", invalid, [](Args *b) { b->turns = b->first_position = b->cu_seqlens; }},
          {"no q", invalid, [](Args *b) { b->q.p = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no sequences' count", invalid, [](Args *b) { b->seqs.n = nullptr; }},
          {"a stride of q below its heads", invalid, [](Args *b) { b->heads = 2; }},
          {"a stride of k below its heads", invalid, [](Args *b) { b->k = b->q, b->kv_heads = 2; }},
          {"heads of 264", unsupported, [](Args *b) { b->head_dim = 264, b->q.ld = 264; }},
          {"q of bytes", unsupported, [](Args *b) { b->q.dtype = SIE_U8; }},
          {"two types", unsupported, [](Args *b) { b->k = b->q, b->k.dtype = SIE_F16, b->kv_heads = 1; }},
          {"no tokens and no memory", SIE_OK,
           [](Args *b) {
             b->tokens = b->seqs = {0, nullptr};
             b->cu_seqlens = nullptr;
             b->cos = b->sin = nullptr;
             b->q.p = nullptr;
           }},
          {"no tokens of heads of one column", SIE_OK,
           [](Args *b) { b->tokens.cap = 0, b->head_dim = 1, b->rot = 0; }},
          {"no tokens, k without a gap", SIE_OK,
           [](Args *b) { b->tokens.cap = 0, b->k = b->q, b->kv_heads = 1; }},
          {"no tokens, heads of a k that is not there", SIE_OK,
           [](Args *b) { b->tokens.cap = 0, b->kv_heads = 2; }},
          {"no tokens of the widest", SIE_OK,
           [](Args *b) { b->tokens.cap = 0, b->heads = widest / columns, b->q.ld = widest; }},
          {"too many heads", unsupported,
           [](Args *b) { b->tokens.cap = 0, b->heads = widest / columns + 1, b->q.ld = widest + columns; }},
          {"too many heads of both", unsupported,
           [](Args *b) {
             b->tokens.cap = 0;
             b->heads = widest / columns;
             b->q.ld = widest;
             b->k = b->q;
             b->kv_heads = 1;
           }},
      });
  // A warp each for as many heads of tokens as CTAs can be counted in int32.
  a.head_dim = 1;
  a.rot = 0;
  for (const Gpu &gpu : gpus()) {
    if (!emulated(gpu)) continue;
    auto status = [&](int64_t tokens, int32_t heads) {
      a.tokens.cap = tokens;
      a.heads = heads;
      const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
      return gpu.ops->qk_norm_rope(&a, &whole);
    };
    CHECK(status(INT32_MAX, 7) == too_large_to_emulate, "%s: refuses what can be counted", gpu.ops->name);
    CHECK(status(int64_t{1} << 30, 15) == too_large_to_emulate, "%s: counts too much", gpu.ops->name);
    CHECK(status(INT32_MAX, 8) == SIE_UNSUPPORTED, "%s: does not refuse 2³¹−1 CTAs", gpu.ops->name);
  }
}

TEST(there_is_no_table_below_sm_80) {
  for (int sm : {0, 70, 75, 79}) CHECK(sie_cuda_ops(sm) == nullptr, "a table for sm_%d", sm);
  for (int sm : {80, 86, 87, 89, 90, 100, 103, 120, 121}) {
    const bool e4m3 = sm == 89 || sm >= 120;  // of mma.sync
    const char *want = sm / 10 == 9 ? "cuda-sm90" : (e4m3 ? "cuda-sm89" : "cuda-sm80");
    const sie_ops *ops = sie_cuda_ops(sm);
    CHECK(ops != nullptr && strcmp(ops->name, want) == 0, "sm_%d has %s", sm,
          ops == nullptr ? "none" : ops->name);
  }
}

TEST(maxsim_refuses) {
  Operands o;
  const Array<int32_t> cu_queries = {0, 2}, partner = {0, 0};
  sie_maxsim_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.c = columns;
  a.x = o.in();
  const Array<float> queries(2 * columns, 0.5f);
  a.queries = queries.data();
  a.cu_queries = cu_queries.data();
  a.partner = partner.data();
  a.y = {o.out.data(), 1, SIE_F32, 0, nullptr, nullptr, nullptr};
  using Args = sie_maxsim_args;
  check_refusals<Args>(
      "maxsim", &sie_ops::maxsim, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"fewer rows of x than none", invalid, [](Args *b) { b->rows.cap = -1; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no queries", invalid, [](Args *b) { b->queries = nullptr; }},
          {"no lengths of queries", invalid, [](Args *b) { b->cu_queries = nullptr; }},
          {"no partners", invalid, [](Args *b) { b->partner = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below one", invalid, [](Args *b) { b->y.ld = 0; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"y of bf16", unsupported, [](Args *b) { b->y.dtype = SIE_BF16; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = too_wide; }},
          {"no sequences of the widest", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = widest; }},
          {"too many rows of x", unsupported, [](Args *b) { b->rows.cap = int64_t{1} << 31; }},
          {"no sequences of as many rows as int32", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->rows.cap = INT32_MAX; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = {0, nullptr};
             b->cu_seqlens = b->cu_queries = b->partner = nullptr;
             b->queries = nullptr;
             b->x.p = b->y.p = nullptr;
           }},
      });
}

TEST(lora_refuses) {
  Operands o;
  const Array<int32_t> adapter = {0, -1};
  const Array<sie_lora_pair> pairs = {{o.x.data(), o.x.data(), 2, SIE_BF16}};
  sie_lora_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.adapter = adapter.data();
  a.n_adapters = 1;
  a.max_rank = 2;
  a.adapters = pairs.data();
  a.n = a.k = columns;
  a.x = o.in();
  a.y = {o.out.data(), columns, SIE_F32, 0, nullptr, nullptr, nullptr};
  using Args = sie_lora_args;
  check_refusals<Args>(
      "lora", &sie_ops::lora, a, &Args::rows, &o,
      {
          {"no columns of x", invalid, [](Args *b) { b->k = 0; }},
          {"no columns of y", invalid, [](Args *b) { b->n = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no sequences' count", invalid, [](Args *b) { b->seqs.n = nullptr; }},
          {"fewer sequences than none", invalid, [](Args *b) { b->seqs.cap = -1; }},
          {"no sequences' adapters", invalid, [](Args *b) { b->adapter = nullptr; }},
          {"no adapters", invalid, [](Args *b) { b->adapters = nullptr; }},
          {"fewer adapters than none", invalid, [](Args *b) { b->n_adapters = -1; }},
          {"fewer ranks than none", invalid, [](Args *b) { b->max_rank = -1; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"x of f32", unsupported, [](Args *b) { b->x.dtype = SIE_F32; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"y of bf16", unsupported, [](Args *b) { b->y.dtype = SIE_BF16; }},
          {"a rank of 513", unsupported, [](Args *b) { b->max_rank = 513; }},
          {"no rows of rank 512", SIE_OK, [](Args *b) { b->rows.cap = 0, b->max_rank = 512; }},
          {"too many columns of x", unsupported, [](Args *b) { b->k = b->x.ld = too_wide; }},
          {"too many columns of y", unsupported, [](Args *b) { b->n = b->y.ld = too_wide; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->n = b->k = b->x.ld = b->y.ld = widest; }},
          {"too many sequences", unsupported, [](Args *b) { b->seqs.cap = int64_t{1} << 31; }},
          {"no rows of as many sequences as int32", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->seqs.cap = INT32_MAX; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) {
             b->rows = b->seqs = {0, nullptr};
             b->cu_seqlens = b->adapter = nullptr;
             b->adapters = nullptr;
             b->x.p = b->y.p = nullptr;
           }},
      },
      {{" without adapters", SIE_OK, [](Args *b) { b->n_adapters = 0, b->adapters = nullptr; }},
       {" of rank 0", SIE_OK, [](Args *b) { b->max_rank = 0; }}});
}
