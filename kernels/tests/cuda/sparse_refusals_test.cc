// sparse_refusals_test.cc — what the GPU tables refuse of kept rows, joined columns, sparse outputs and flags,
// before they write anything.
#include "tests/cuda/operands.h"

using namespace calls;

TEST(keep_rows_refuses) {
  Operands o;
  sie_keep_rows_args a = {};
  a.kept = o.seqs();
  a.index = o.ids.data();
  a.c = columns;
  a.x = o.in();
  a.y = o.to();
  using Args = sie_keep_rows_args;
  check_refusals<Args>(
      "keep_rows", &sie_ops::keep_rows, a, &Args::kept, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no index", invalid, [](Args *b) { b->index = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"two types", unsupported, [](Args *b) { b->y.dtype = SIE_F16; }},
          {"bytes", unsupported, [](Args *b) { b->x.dtype = b->y.dtype = SIE_U8; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->kept = {0, nullptr}, b->index = nullptr, b->x.p = b->y.p = nullptr; }},
      });
}

TEST(join_columns_refuses) {
  Operands o;
  sie_join_columns_args a = {};
  a.rows = o.tokens();
  a.c[0] = a.c[1] = columns;
  a.x[0] = a.x[1] = o.in();
  a.y = o.to();
  a.y.ld = 2 * columns;
  using Args = sie_join_columns_args;
  check_refusals<Args>(
      "join_columns", &sie_ops::join_columns, a, &Args::rows, &o,
      {
          {"no columns of the first", invalid, [](Args *b) { b->c[0] = 0; }},
          {"fewer columns than none", invalid, [](Args *b) { b->c[2] = -1, b->x[2] = b->x[1]; }},
          {"no x", invalid, [](Args *b) { b->x[0].p = nullptr; }},
          {"no second x", invalid, [](Args *b) { b->x[1].p = nullptr; }},
          {"no third x", invalid, [](Args *b) { b->c[2] = 1, b->y.ld++; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x[1].ld = columns - 1; }},
          {"a stride of y below the sum of the columns", invalid, [](Args *b) { b->y.ld = 2 * columns - 1; }},
          {"bytes", unsupported, [](Args *b) { b->x[0].dtype = SIE_U8; }},
          {"bytes behind floats", unsupported, [](Args *b) { b->x[1].dtype = SIE_U8; }},
          {"to bytes", unsupported, [](Args *b) { b->y.dtype = SIE_U8; }},
          {"too many columns", unsupported,
           [](Args *b) { b->c[0] = b->x[0].ld = too_wide, b->y.ld = 2 * too_wide; }},
          {"too many columns together", unsupported,
           [](Args *b) { b->c[0] = b->x[0].ld = widest, b->y.ld = 2 * too_wide; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->c[0] = b->x[0].ld = b->y.ld = widest, b->c[1] = 0; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = {0, nullptr}, b->x[0].p = b->x[1].p = b->y.p = nullptr; }},
      },
      {{"one alone", SIE_OK, [](Args *b) { b->c[1] = 0, b->x[1].p = nullptr; }},
       {"the second left out", SIE_OK, [](Args *b) { b->c[2] = b->c[1], b->x[2] = b->x[1], b->c[1] = 0; }}});
}

TEST(output_sparse_refuses) {
  Operands o;
  Array<float> x(2 * columns, 0.5f);
  o.items = {{SIE_F32, 6, 0, 0, 0}, {SIE_F32, 6, 0, 0, 64}};
  sie_output_sparse_args a = {};
  a.seqs = o.seqs();
  a.c = columns;
  a.x = {x.data(), columns, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.transform = SIE_SPARSE_LOG;
  a.items = o.items.data();
  a.out = o.out.data();
  using Args = sie_output_sparse_args;
  check_refusals<Args>(
      "output_sparse", &sie_ops::output_sparse, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no items", invalid, [](Args *b) { b->items = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
          {"a stride below the columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a transform before the first", invalid, [](Args *b) { b->transform = -1; }},
          {"an unknown transform", invalid, [](Args *b) { b->transform = 3; }},
          {"bf16", unsupported, [](Args *b) { b->x.dtype = SIE_BF16; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = too_wide; }},
          {"no sequences of the widest", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = widest; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) { b->seqs = {0, nullptr}, b->items = nullptr, b->x.p = b->out = nullptr; }},
      });
  // Items that are invalid for a sparse row are not written, next to a valid one that is.
  for (const sie_out_item &wrong :
       {sie_out_item{SIE_I8, 6, 0, 0, 0}, {SIE_F32, 0, 0, 0, 0}, {SIE_F32, 6, 1, 0, 0}}) {
    for (const Gpu &gpu : gpus()) {
      o.clear();
      o.items[0] = wrong;
      Scratch scratch(gpu.ops, {});
      const sie_share share = scratch.share(0, 1);
      CHECK(gpu.ops->output_sparse(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refuses",
            gpu.ops->name);
      for (size_t i = 0; i < 32; i++)
        CHECK(o.out[i] == 0xffff, "%s: wrote an item of type %d", gpu.ops->name, wrong.dtype);
      CHECK(o.out[32] == columns, "%s: %d columns in the other item", gpu.ops->name, o.out[32]);
    }
  }
}

TEST(splade_refuses) {
  Operands o;
  // Two columns of a vocabulary; y is `out` as f32.
  constexpr int64_t n = 2;
  Array<uint8_t> packed(1 << 16, 0);
  const sie_packed w = {SIE_COMPUTE_BF16, 0, n, columns, packed.data()},
                   wide = {SIE_COMPUTE_BF16, 0, too_wide, columns, packed.data()},
                   f32 = {SIE_COMPUTE_F32, 0, n, columns, packed.data()},
                   most = {SIE_COMPUTE_BF16, 0, widest, columns, packed.data()};
  static const sie_packed *weights[4];
  weights[0] = &w, weights[1] = &wide, weights[2] = &f32, weights[3] = &most;
  sie_splade_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.n = n;
  a.k = columns;
  a.x = o.in();
  a.w = &w;
  a.y = {o.out.data(), n, SIE_F32, 0, nullptr, nullptr, nullptr};
  using Args = sie_splade_args;
  check_refusals<Args>(
      "splade", &sie_ops::splade, a, &Args::seqs, &o,
      {
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no weight", invalid, [](Args *b) { b->w = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no token count", invalid, [](Args *b) { b->tokens.n = nullptr; }},
          {"fewer tokens than none", invalid, [](Args *b) { b->tokens.cap = -1; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 8; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = n - 1; }},
          {"another shape than the weight's", invalid, [](Args *b) { b->n = 1; }},
          {"x of another class", unsupported, [](Args *b) { b->x.dtype = SIE_F16; }},
          {"y in bf16", unsupported, [](Args *b) { b->y.dtype = SIE_BF16; }},
          {"class F32", unsupported,
           [](Args *b) { b->w = weights[2], b->x.dtype = SIE_F32, b->x.ld = columns; }},
          {"too many columns", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->w = weights[1], b->n = b->y.ld = too_wide; }},
          {"no sequences of as many columns as there may be", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->w = weights[3], b->n = b->y.ld = widest; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = b->tokens = {0, nullptr};
             b->cu_seqlens = nullptr;
             b->x.p = b->y.p = nullptr;
           }},
      },
      {{" without tokens", SIE_OK, [](Args *b) {
          static Array<int32_t> cu = {0, 0, 0};
          b->tokens.cap = 0, b->cu_seqlens = cu.data();
        }}});
  // Where kernels without wgmma may start before their predecessors have ended.
  for (const Gpu &gpu : gpus()) {
    if (!emulated(gpu)) continue;
    sie_stream on = gpu.on;
    on.sm = 100;
    on.pdl = 1;
    Scratch scratch(gpu.ops, {});
    sie_share share = scratch.share(0, 1);
    share.on = &on;
    CHECK(gpu.ops->splade(&a, &share) == SIE_OK, "%s: refused on sm_100", gpu.ops->name);
  }
  // e4m3: on the cards that multiply it.
  const sie_packed f8 = {SIE_COMPUTE_FP8, 0, n, columns, packed.data()};
  a.w = &f8;
  a.x = o.f8();
  for (const Gpu &gpu : gpus()) {
    Scratch scratch(gpu.ops, {});
    for (int32_t sm : {80, 88, 89, 90, 99, 100, 119, 120, 121}) {
      sie_stream on = gpu.on;
      on.sm = sm;
      sie_share share = scratch.share(0, 1);
      share.on = &on;
      sie_splade_args none = a;
      none.seqs.cap = 0;
      const bool has = sm == 89 || sm / 10 == 9 || sm >= 120;
      CHECK(gpu.ops->splade(&none, &share) == (has ? SIE_OK : unsupported), "%s: e4m3 on sm_%d",
            gpu.ops->name, sm);
    }
  }
}

TEST(smve_refuses) {
  Operands o;
  Array<float> anchors(8 * columns, 0.25f);
  o.items = {{SIE_F32, 6, 0, 0, 0}, {SIE_F32, 6, 0, 0, 64}};
  sie_smve_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.c = columns;
  a.x = o.in();
  a.repetitions = 2;
  a.width = 4;
  a.top = 3;
  a.anchors = anchors.data();
  a.items = o.items.data();
  a.out = o.out.data();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_SMVE;
  bounds.rows = rows;
  bounds.repetitions = 2;
  bounds.top = 3;
  using Args = sie_smve_args;
  check_refusals<Args>(
      "smve", &sie_ops::smve, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no repetitions", invalid, [](Args *b) { b->repetitions = 0; }},
          {"no anchors of a repetition", invalid, [](Args *b) { b->width = 0; }},
          {"none of the projections", invalid, [](Args *b) { b->top = 0; }},
          {"more projections than there are", invalid, [](Args *b) { b->seqs.cap = 0, b->top = 5; }},
          {"fewer values than none", invalid, [](Args *b) { b->max_nonzeros = -1; }},
          {"fewer rows than none", invalid, [](Args *b) { b->rows.cap = -1; }},
          {"no row count", invalid, [](Args *b) { b->rows.n = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no items", invalid, [](Args *b) { b->items = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no anchors", invalid, [](Args *b) { b->anchors = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a row more than there is scratch for", invalid, [](Args *b) { b->rows.cap = rows + 100; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"too many columns", unsupported, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = too_wide; }},
          {"no sequences of the widest", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = widest; }},
          {"too long a list", unsupported, [](Args *b) { b->seqs.cap = 0, b->width = b->top = 257; }},
          {"no sequences of the longest list", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->width = b->top = 256; }},
          {"too many repetitions", unsupported, [](Args *b) { b->seqs.cap = 0, b->repetitions = 65536; }},
          {"no sequences of the most repetitions", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = 65535; }},
          {"more columns than int32", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = 32768, b->width = 65536; }},
          {"no sequences of nearly as many columns as int32", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = 65535, b->width = 32768; }},
          {"no sequences of as many rows as int32", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->rows.cap = INT32_MAX; }},
          {"no sequences, and rows without memory", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->x.p = nullptr, b->anchors = nullptr; }},
          {"no sequences of as many columns as int32", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = 1, b->width = INT32_MAX; }},
          {"more rows than int32", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->rows.cap = int64_t{1} << 31; }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = b->rows = {0, nullptr};
             b->cu_seqlens = nullptr;
             b->anchors = nullptr;
             b->items = nullptr;
             b->x.p = b->out = nullptr;
           }},
      },
      {}, bounds);
  for (const Gpu &gpu : gpus()) {
    // Norms, and four lists of 4 rows · 2 repetitions · 3, each to whole 64 bytes.
    CHECK(gpu.ops->scratch_bytes(&bounds) == 64 + 4 * 128, "%s: %lld bytes of scratch", gpu.ops->name,
          static_cast<long long>(gpu.ops->scratch_bytes(&bounds)));
    Scratch scratch(gpu.ops, bounds);
    sie_share share = scratch.share(0, 1);
    share.scratch_bytes--;
    CHECK(gpu.ops->smve(&a, &share) == invalid, "%s: a byte of scratch less", gpu.ops->name);
    share = scratch.share(0, 1);
    share.scratch = nullptr;
    CHECK(gpu.ops->smve(&a, &share) == invalid, "%s: no scratch", gpu.ops->name);
    CHECK(o.untouched(), "%s: refused, but wrote", gpu.ops->name);
    // A sequence without rows: nothing that a row needs has to be present. Next to it an item that
    // is invalid for a sparse row.
    sie_smve_args none = a;
    Array<int32_t> cu = {0, 0, 0}, n = {0};
    none.rows = {0, n.data()};
    none.cu_seqlens = cu.data();
    none.anchors = nullptr;
    none.x.p = nullptr;
    o.items[1].dtype = SIE_I8;
    share = scratch.share(0, 1);
    CHECK(gpu.ops->smve(&none, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: no rows",
          gpu.ops->name);
    for (size_t i = 0; i < 64; i++)
      CHECK(o.out[i] == (i < 8 ? 0 : 0xffff), "%s: [%zu] is %d", gpu.ops->name, i, o.out[i]);
    o.items[1].dtype = SIE_F32;
    o.clear();
  }
}

TEST(mark_nonfinite_refuses) {
  Operands o;
  o.x[3] = 0x7fc0;  // a NaN, or nothing would be written
  sie_mark_nonfinite_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.c = columns;
  a.x = o.in();
  a.flags = reinterpret_cast<int32_t *>(o.out.data());
  using Args = sie_mark_nonfinite_args;
  check_refusals<Args>(
      "mark_nonfinite", &sie_ops::mark_nonfinite, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->flags = nullptr; }},
          {"no count of sequences", invalid, [](Args *b) { b->seqs.n = nullptr; }},
          {"fewer sequences than none", invalid, [](Args *b) { b->seqs.cap = -1; }},
          {"more sequences than int32", unsupported, [](Args *b) { b->seqs.cap = int64_t{1} << 31; }},
          {"rows before the first", invalid, [](Args *b) { b->which = -1; }},
          {"the mean's rows", invalid, [](Args *b) { b->which = SIE_POOL_MEAN; }},
          {"a stride below the columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"words", unsupported, [](Args *b) { b->x.dtype = SIE_I32; }},
          {"words in blocks", unsupported, [](Args *b) { b->x.dtype = SIE_I32, b->x.scale_group = 128; }},
          {"e4m3 without scales", unsupported,
           [](Args *b) { b->x.dtype = SIE_F8E4M3, b->x.scale_group = 0; }},
          {"u8 without scales", invalid, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"too many columns", unsupported, [](Args *b) { b->rows.cap = 0, b->c = b->x.ld = too_wide; }},
          {"no rows of the widest", SIE_OK, [](Args *b) { b->rows.cap = 0, b->c = b->x.ld = widest; }},
          {"no rows of as many sequences as int32", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->seqs.cap = INT32_MAX; }},
          {"no sequences, one row of each", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->cu_seqlens = nullptr; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = b->seqs = {0, nullptr}, b->x.p = nullptr, b->flags = nullptr; }},
      },
      // A row of each sequence: nobody asks how many rows there are.
      {{" of one row each", SIE_OK, [](Args *b) { b->rows = {0, nullptr}, b->cu_seqlens = nullptr; }},
       {" of the last rows", SIE_OK, [](Args *b) { b->rows = {0, nullptr}, b->which = SIE_POOL_LAST; }}});
}
