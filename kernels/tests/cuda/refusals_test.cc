// refusals_test.cc — what the GPU tables refuse, by which status, before they write anything; and what they must not
// refuse: operands that lie anywhere, give the same bits.
#include <string.h>

#include <algorithm>

#include "common/muvera.h"
#include "cuda/cuda_ops.h"
#include "tests/harness.h"

using namespace harness;

namespace {

// Operands of every operation here: 4 rows of 32 columns in 2 sequences.
constexpr int64_t rows = 4, columns = 32, widest = 1 << 20, too_wide = widest + 1;
struct Operands {
  Array<uint16_t> x = Array<uint16_t>(rows * columns, 0x3f80),
                  out = Array<uint16_t>(rows * columns * 2, 0xffff);
  Array<uint16_t> kept;
  Array<uint8_t> bytes = Array<uint8_t>(rows * columns, 0xff);
  Array<float> vector = Array<float>(columns, 1.0f), scale = Array<float>(rows, 1.0f);
  Array<int32_t> cu = {0, 1, 4}, ids = {0, 1, 2, 3}, counts = {4, 2};
  Array<sie_out_item> items = {{SIE_F32, 0, 0, 0, 0}, {SIE_F32, 0, 0, 0, 128}};

  sie_rows tokens() { return {rows, &counts[0]}; }
  sie_rows seqs() { return {2, &counts[1]}; }
  sie_tensor in() { return {x.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr}; }
  sie_tensor to() { return {out.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr}; }
  sie_tensor f8() { return {bytes.data(), columns, SIE_F8E4M3, -1, scale.data(), nullptr, nullptr}; }
  void clear() {
    std::fill(out.begin(), out.end(), uint16_t{0xffff});
    std::fill(bytes.begin(), bytes.end(), uint8_t{0xff});
  }
  // Everything as check_places begins with: x may be an output, and out an operand.
  void restore() {
    clear();
    if (kept.empty()) kept = x;
    x = kept;
    std::copy(x.begin(), x.end(), out.begin());
    std::fill(scale.begin(), scale.end(), 0.0f);
  }
  std::vector<uint8_t> all_bytes() const {
    std::vector<uint8_t> all(bytes.begin(), bytes.end());
    for (const Array<uint16_t> *of : {&x, &out}) {
      for (uint16_t v : *of)
        all.push_back(static_cast<uint8_t>(v)), all.push_back(static_cast<uint8_t>(v >> 8));
    }
    const uint8_t *scales = reinterpret_cast<const uint8_t *>(scale.data());
    all.insert(all.end(), scales, scales + scale.size() * sizeof(float));
    return all;
  }
  bool untouched() const {
    for (uint16_t v : out) {
      if (v != 0xffff) return false;
    }
    for (uint8_t v : bytes) {
      if (v != 0xff) return false;
    }
    return true;
  }
};

// The emulator runs no grid of so many CTAs, and says so: the launcher has let the call pass.
constexpr sie_status too_large_to_emulate = SIE_OUT_OF_MEMORY;
bool emulated(const Gpu &gpu) { return gpu.on.stream == nullptr; }

template <class Args>
struct Spoiled {
  const char *what;
  sie_status status;
  void (*spoil)(Args *);
};

// The arguments are right as they are; spoiled in any of these ways they are refused, or say that there is nothing to
// do (SIE_OK). taken: changes that leave them right.
template <class Args>
void check_refusals(const char *name, sie_status (*const sie_ops::*entry)(const Args *, const sie_share *),
                    const Args &right, sie_rows Args::*count, Operands *operands,
                    const std::vector<Spoiled<Args>> &list, const std::vector<Spoiled<Args>> &taken = {},
                    const sie_op_bounds &bounds = {}) {
  for (const Gpu &gpu : gpus()) {
    Scratch memory_of_call(gpu.ops, bounds);
    auto share = [&](int32_t part, int32_t parts, const sie_stream *on) {
      sie_share s = memory_of_call.share(part, parts);
      s.on = on;
      return s;
    };
    auto expect = [&](const char *what, sie_status status, const Args &args, const sie_share &share) {
      const sie_status got = (gpu.ops->*entry)(&args, &share);
      CHECK(got == status, "%s %s: %s: status %d, not %d", gpu.ops->name, name, what, got, status);
      CHECK(operands->untouched(), "%s %s: %s: refused, but wrote", gpu.ops->name, name, what);
    };
    const sie_share whole = share(0, 1, &gpu.on);
    for (const Spoiled<Args> &spoiled : list) {
      Args args = right;
      spoiled.spoil(&args);
      expect(spoiled.what, spoiled.status, args, whole);
    }
    expect("half of it", SIE_INVALID_ARGUMENT, right, share(0, 2, &gpu.on));
    expect("its second part", SIE_INVALID_ARGUMENT, right, share(1, 1, &gpu.on));
    expect("no stream", SIE_INVALID_ARGUMENT, right, share(0, 1, nullptr));
    sie_stream turing = gpu.on;
    turing.sm = 75;
    expect("sm_75", SIE_UNSUPPORTED, right, share(0, 1, &turing));
    Args args = right;
    (args.*count).cap = -1;
    expect("fewer rows than none", SIE_INVALID_ARGUMENT, args, whole);
    (args.*count).cap = int64_t{1} << 31;
    expect("more rows than int32", SIE_UNSUPPORTED, args, whole);
    if (emulated(gpu) && bounds.kind == 0) {
      (args.*count).cap = INT32_MAX;
      expect("as many rows as int32", too_large_to_emulate, args, whole);
    }
    args = right;
    (args.*count).n = nullptr;
    expect("no row count", SIE_INVALID_ARGUMENT, args, whole);
    (args.*count).cap = 0;
    expect("no rows", SIE_OK, args, whole);

    auto run = [&](const char *what, const Args &good) {
      CHECK((gpu.ops->*entry)(&good, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK,
            "%s %s: refuses what is right%s", gpu.ops->name, name, what);
      CHECK(!operands->untouched(), "%s %s: wrote nothing%s", gpu.ops->name, name, what);
      operands->clear();
    };
    run("", right);
    for (const Spoiled<Args> &change : taken) {
      args = right;
      change.spoil(&args);
      run(change.what, args);
    }
  }
}

constexpr sie_status invalid = SIE_INVALID_ARGUMENT, unsupported = SIE_UNSUPPORTED;

}  // namespace

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
          {"an unknown mode", invalid, [](Args *b) { b->mode = 9; }},
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
          {"no sequences of the widest, first rows", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->mode = SIE_POOL_CLS; }},
          {"no sequences of the widest, last rows", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->mode = SIE_POOL_LAST; }},
          {"no sequences of the widest, as they are", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = b->y.ld = widest, b->cu_seqlens = nullptr; }},
      },
      {{" by sequence", SIE_OK, [](Args *b) { b->cu_seqlens = nullptr, b->mode = SIE_POOL_MEAN; }}});
}

TEST(pool_output_refuses) {
  Operands o;
  sie_pool_output_args a = {};
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.mode = SIE_POOL_MEAN;
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
          {"an odd rotation", invalid, [](Args *b) { b->rot = 7; }},
          {"more rotated than there is", invalid, [](Args *b) { b->rot = columns + 2; }},
          {"a rotation below zero", invalid, [](Args *b) { b->rot = -2; }},
          {"no cosines", invalid, [](Args *b) { b->cos = nullptr; }},
          {"no sines", invalid, [](Args *b) { b->sin = nullptr; }},
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

// ---- encodings

namespace {

// The tables of one repetition, for encodings with everything.
struct Encoding {
  Encoding(int64_t c, int32_t bits, int32_t projected, int32_t final_dims)
      : simhash(c * std::max(bits, 1), 1.0f), ams(c), first(final_dims + 1) {
    const int64_t block = (projected != 0 ? projected : c) << bits;
    std::vector<int32_t> sketch;
    for (int64_t i = 0; i < block; i++)
      sketch.push_back(static_cast<int32_t>(i % 3 == 0 ? ~(i % final_dims) : i % final_dims));
    for (size_t i = 0; i < simhash.size(); i += 2) simhash[i] = -0.5f;
    for (size_t i = 0; i < ams.size() && projected != 0; i++) ams[i] = static_cast<int32_t>(i) % projected;
    source.resize(sketch.size());
    sie_group_sketch(sketch.data(), 1, block, final_dims, first.data(), source.data());
    args.c = c;
    args.repetitions = 1;
    args.simhash_bits = bits;
    args.projected = projected;
    args.final_dims = final_dims;
    args.simhash = simhash.data();
    args.ams = ams.data();
    args.sketch_first = first.data();
    args.sketch_source = source.data();
  }

  Array<float> simhash;
  Array<int32_t> ams, first, source;
  sie_muvera_args args = {};
};

sie_op_bounds muvera_bounds(int64_t tokens, int64_t seqs, int64_t c, int32_t repetitions, int32_t bits,
                            int32_t projected, int64_t final_dims) {
  sie_op_bounds b = {};
  b.kind = SIE_OP_MUVERA;
  b.rows = tokens;
  b.seqs = seqs;
  b.c = c;
  b.repetitions = repetitions;
  b.simhash_bits = bits;
  b.projected = projected;
  b.final_dims = final_dims;
  return b;
}

}  // namespace

TEST(muvera_refuses) {
  Operands o;
  Encoding e(columns, 1, 8, 16);
  sie_muvera_args a = e.args;
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.x = o.in();
  a.items = o.items.data();
  a.out = o.out.data();
  using Args = sie_muvera_args;
  static constexpr int64_t most_tokens = int64_t{1} << 26;
  check_refusals<Args>(
      "muvera", &sie_ops::muvera, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no repetitions", invalid, [](Args *b) { b->repetitions = 0; }},
          {"fewer bits than none", invalid, [](Args *b) { b->seqs.cap = 0, b->simhash_bits = -1; }},
          {"eleven bits", invalid, [](Args *b) { b->seqs.cap = 0, b->simhash_bits = 11; }},
          {"fewer projected columns than none", invalid, [](Args *b) { b->projected = -1; }},
          {"fewer columns than none", invalid, [](Args *b) { b->final_dims = -1; }},
          {"fewer tokens than none", invalid, [](Args *b) { b->tokens.cap = -1; }},
          {"no token count", invalid, [](Args *b) { b->tokens.n = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no items", invalid, [](Args *b) { b->items = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"no planes", invalid, [](Args *b) { b->simhash = nullptr; }},
          {"no projection", invalid, [](Args *b) { b->ams = nullptr; }},
          {"no sketch", invalid, [](Args *b) { b->sketch_first = nullptr; }},
          {"no source of the sketch", invalid, [](Args *b) { b->sketch_source = nullptr; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"more tokens than 26 bits", unsupported, [](Args *b) { b->tokens.cap = most_tokens + 1; }},
          {"as many tokens as 26 bits, in too little scratch", invalid,
           [](Args *b) { b->tokens.cap = most_tokens; }},
          {"a sequence more than there is scratch for", invalid, [](Args *b) { b->seqs.cap = 1000; }},
          {"wide tokens to centre", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8193, b->center_tokens = 1; }},
          {"no wide tokens to centre", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8192, b->center_tokens = 1; }},
          {"no wide tokens", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8193; }},
          {"no sequences of the widest tokens", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0, b->c = b->x.ld = widest, b->simhash_bits = 10, b->repetitions = 2;
           }},
          {"too many columns", unsupported, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = too_wide; }},
          {"no sequences in the most repetitions", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = widest, b->projected = 1023; }},
          {"too many repetitions", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = too_wide, b->projected = 1; }},
          {"no sequences in the widest projection", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->projected = 4096, b->simhash_bits = 10, b->repetitions = 511; }},
          {"too wide a projection", unsupported, [](Args *b) { b->seqs.cap = 0, b->projected = 4097; }},
          {"more places than int32", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->projected = 4096, b->simhash_bits = 10, b->repetitions = 512; }},
          {"no sequences of nearly as many places as int32", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0, b->projected = 2047, b->simhash_bits = 0, b->repetitions = widest;
           }},
          {"no sequences of the widest results", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->final_dims = widest; }},
          {"too wide a result", unsupported, [](Args *b) { b->seqs.cap = 0, b->final_dims = too_wide; }},
          {"no sequences of the widest results without a sketch", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0;
             b->final_dims = 0;
             b->projected = 1024;
             b->simhash_bits = 10;
           }},
          {"too wide a result without a sketch", unsupported,
           [](Args *b) {
             b->seqs.cap = 0;
             b->final_dims = 0;
             b->projected = 1025;
             b->simhash_bits = 10;
           }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = {0, nullptr};
             b->tokens.n = b->cu_seqlens = b->ams = b->sketch_first = b->sketch_source = nullptr;
             b->simhash = nullptr;
             b->items = nullptr;
             b->x.p = b->out = nullptr;
           }},
      },
      {}, muvera_bounds(rows, 2, columns, 1, 1, 8, 16));

  for (const Gpu &gpu : gpus()) {
    Scratch scratch(gpu.ops, muvera_bounds(rows, 2, columns, 1, 1, 8, 16));
    sie_share share = scratch.share(0, 1);
    share.scratch_bytes--;
    CHECK(gpu.ops->muvera(&a, &share) == invalid, "%s: a byte of scratch less", gpu.ops->name);
    share = scratch.share(0, 1);
    share.scratch = nullptr;
    CHECK(gpu.ops->muvera(&a, &share) == invalid, "%s: no scratch", gpu.ops->name);
    CHECK(o.untouched(), "%s: refused, but wrote", gpu.ops->name);
    // Sequences without tokens: nothing that a token needs has to be there.
    sie_muvera_args none = a;
    Array<int32_t> cu = {0, 0, 0}, n = {0};
    none.tokens = {0, n.data()};
    none.cu_seqlens = cu.data();
    none.simhash = nullptr;
    none.ams = none.sketch_first = none.sketch_source = nullptr;
    none.x.p = nullptr;
    share = scratch.share(0, 1);
    CHECK(gpu.ops->muvera(&none, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: no tokens",
          gpu.ops->name);
    for (size_t i = 0; i < 2 * 2 * 16; i++)
      CHECK(o.out[i / 32 * 64 + i % 32] == 0, "%s: [%zu]", gpu.ops->name, i);
    o.clear();
  }
}

// Partitions [R, T], means [B, C], and for at most 128 sequences at a time what 96 KiB do not hold: muvera.h.
TEST(muvera_scratch_is_no_larger_than_said) {
  struct Shape {
    sie_op_bounds bounds;
    int64_t slot;  // floats
  };
  // P·2⁴ and F on both sides of what fits beside the tables of a projection.
  const Shape shapes[] = {
      {muvera_bounds(130, 3, 100, 3, 2, 8, 50), 0},
      {muvera_bounds(0, 1, 1, 1, 0, 1, 1), 0},
      {muvera_bounds(8, 3, 4, 1, 4, 1222, 16), 0},
      {muvera_bounds(9, 3, 4, 1, 4, 1222, 17), 24},
      {muvera_bounds(8, 3, 4, 1, 4, 1219, 96), 0},
      {muvera_bounds(9, 3, 4, 1, 4, 1223, 16), 16},
      {muvera_bounds(9, 3, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 128, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 200, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(70, 3, 4, 2, 4, 1224, 19568), 19584},
      {muvera_bounds(70, 3, 4, 2, 4, 1224, 19569), 19584 + 19576},
      {muvera_bounds(9, 3, 1224, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 3, 4096, 1, 2, 4096, 16), 16384},
      {muvera_bounds(70, 3, 5000, 2, 3, 8, 24), 0},
      {muvera_bounds(70, 3, 5000, 2, 2, 5000, 24), 0},
      {muvera_bounds(70, 3, 5000, 2, 3, 5000, 24), 40000},
      {muvera_bounds(70, 3, 5000, 2, 3, 5000, 80000), 120000},
  };
  auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  for (const Gpu &gpu : gpus()) {
    for (const Shape &s : shapes) {
      const sie_op_bounds &b = s.bounds;
      const int64_t partitions = up(b.repetitions * up(b.rows, 8) * 2, 64), means = b.seqs * b.c * 4,
                    want = up(partitions + means, 64) + std::min<int64_t>(b.seqs, 128) * s.slot * 4,
                    got = gpu.ops->scratch_bytes(&b);
      CHECK(got == want, "%s: %lld bytes for C=%lld P=%d F=%lld, not %lld", gpu.ops->name,
            static_cast<long long>(got), static_cast<long long>(b.c), b.projected,
            static_cast<long long>(b.final_dims), static_cast<long long>(want));
    }
    for (const sie_op_bounds &b :
         {muvera_bounds(9, 3, 0, 1, 4, 8, 16), muvera_bounds(9, 3, 4, 1, 11, 8, 16),
          muvera_bounds(9, 3, 4, 1, -1, 8, 16), muvera_bounds(9, 3, 4, 512, 10, 4096, 16)}) {
      CHECK(gpu.ops->scratch_bytes(&b) == 0, "%s: scratch for what is refused", gpu.ops->name);
    }
  }
}

// However many CTAs there are, each has a slot of scratch, and they take all sequences.
TEST(muvera_slots) {
  constexpr int32_t sequences = 130, c = 24, f = 8;
  Encoding e(c, 10, 0, f);  // 24,576 floats a block
  const std::vector<int32_t> with_tokens = {0, 1, 2, 127, 128, 129};
  std::vector<int32_t> lengths(sequences, 0);
  for (int32_t b : with_tokens) lengths[static_cast<size_t>(b)] = 1;
  Sequences own(lengths);
  Array<int32_t> n = {static_cast<int32_t>(own.tokens()), sequences};
  Array<float> x(own.tokens() * c);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i * i % 23) - 11.0f;
  Array<sie_out_item> items(sequences);
  for (int32_t b = 0; b < sequences; b++) items[static_cast<size_t>(b)] = {SIE_F32, 0, 0, 0, b * f * 4};
  sie_muvera_args a = e.args;
  a.tokens = {own.tokens(), &n[0]};
  a.seqs = {sequences, &n[1]};
  a.cu_seqlens = own.cu(0, sequences);
  a.x = {x.data(), c, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.items = items.data();
  std::vector<float> expected;
  for (const Gpu &gpu : gpus()) {
    for (int32_t multiprocessors : {1, 0, 70}) {
      Scratch scratch(gpu.ops, muvera_bounds(own.tokens(), sequences, c, 1, 10, c, f));
      sie_stream on = gpu.on;
      on.multiprocessors = multiprocessors;
      sie_share share = scratch.share(0, 1);
      share.on = &on;
      Array<float> out(sequences * f, -1.0f);
      a.out = out.data();
      CHECK(gpu.ops->muvera(&a, &share) == SIE_OK && memory.finish(&on) == SIE_OK, "%s with %d: refused",
            gpu.ops->name, multiprocessors);
      CHECK(scratch.intact(), "%s with %d: wrote behind its scratch", gpu.ops->name, multiprocessors);
      const std::vector<float> got(out.begin(), out.end());
      if (expected.empty()) expected = got;
      CHECK(got == expected, "%s with %d: other bits", gpu.ops->name, multiprocessors);
    }
  }
  for (int32_t b : with_tokens) {
    float most = 0;
    for (int32_t i = 0; i < f; i++) most = std::max(most, std::abs(expected[static_cast<size_t>(b * f + i)]));
    CHECK(most > 0, "sequence %d has no sum", b);
  }
}

// ---- operands anywhere

namespace {

// Copies of operands at chosen places. What was moved can be brought back.
class Shelf {
 public:
  enum Place {
    even,  // a multiple of 16 bytes, and of 9 and 17
    off    // a multiple of 4, 9 and 17, and of 8 not: what a wrong divisor takes for aligned
  };

  float *vector(const float *from, int64_t count, Place place) {
    uint8_t *to = take(count * 4, place);
    memcpy(to, from, static_cast<size_t>(count) * 4);
    return reinterpret_cast<float *>(to);
  }
  // The rows of t, columns wide, with another stride.
  void move(sie_tensor *t, int64_t row_count, int64_t width, int64_t ld, Place place) {
    const int64_t element = t->dtype == SIE_F32 ? 4 : (t->dtype == SIE_F8E4M3 ? 1 : 2);
    Moved m = {static_cast<uint8_t *>(t->p),
               t->ld * element,
               take(row_count * ld * element, place),
               ld * element,
               row_count,
               width * element};
    for (int64_t r = 0; r < m.rows; r++)
      memcpy(m.to + r * m.to_line, m.from + r * m.from_line, size(m.width));
    t->p = m.to;
    t->ld = ld;
    moved_.push_back(m);
  }
  void bring_back() {
    for (const Moved &m : moved_) {
      for (int64_t r = 0; r < m.rows; r++)
        memcpy(m.from + r * m.from_line, m.to + r * m.to_line, size(m.width));
    }
  }

 private:
  struct Moved {
    uint8_t *from;
    int64_t from_line;
    uint8_t *to;
    int64_t to_line, rows, width;  // bytes
  };
  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  uint8_t *take(int64_t bytes, Place place) {
    const uintptr_t step = 16 * 9 * 17, at = reinterpret_cast<uintptr_t>(memory_.data()) + used_;
    const uintptr_t place_at = (at + step - 1) / step * step + (place == off ? step / 4 : 0);
    used_ += place_at - at + size(bytes);
    if (used_ > memory_.size()) abort();
    return memory_.data() + used_ - bytes;
  }

  Array<uint8_t> memory_ = Array<uint8_t>(1 << 16);
  size_t used_ = 0;
  std::vector<Moved> moved_;
};

// Numbers whose sums are exact in any order.
void fill_small(Array<uint16_t> *bits) {
  static const uint16_t integers[] = {0xc040, 0xc000, 0xbf80, 0, 0x3f80, 0x4000, 0x4040};  // −3 … 3
  for (size_t i = 0; i < bits->size(); i++) (*bits)[i] = integers[(i * i + i / 5) % 7];
}

// The same call with each tensor and each vector elsewhere, one at a time, gives the same bits.
template <class Args>
void check_places(const char *name, sie_status (*const sie_ops::*entry)(const Args *, const sie_share *),
                  const Args &right, Operands *operands, const std::vector<sie_tensor Args::*> &tensors,
                  const std::vector<const float *Args::*> &vectors) {
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    auto run = [&](const Args &args, Shelf *shelf, const char *what, size_t which) {
      operands->restore();
      CHECK((gpu.ops->*entry)(&args, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK,
            "%s %s: %s %zu: refused", gpu.ops->name, name, what, which);
      shelf->bring_back();
      return operands->all_bytes();
    };
    Shelf none;
    const std::vector<uint8_t> want = run(right, &none, "in place", 0);
    for (size_t i = 0; i < tensors.size(); i++) {
      // Strides of 16 bytes and others, that a wrong divisor takes for such.
      for (int64_t ld : {int64_t{48}, int64_t{34}, int64_t{36}, int64_t{153}}) {
        for (Shelf::Place place : {Shelf::even, Shelf::off}) {
          Shelf shelf;
          Args args = right;
          operands->restore();
          shelf.move(&(args.*tensors[i]), rows, columns, ld, place);
          CHECK(run(args, &shelf, "tensor", i) == want, "%s %s: other bits with tensor %zu elsewhere",
                gpu.ops->name, name, i);
        }
      }
    }
    for (size_t i = 0; i < vectors.size(); i++) {
      Shelf shelf;
      Args args = right;
      args.*vectors[i] = shelf.vector(right.*vectors[i], columns, Shelf::off);
      CHECK(run(args, &shelf, "vector", i) == want, "%s %s: other bits with vector %zu elsewhere",
            gpu.ops->name, name, i);
    }
  }
  operands->clear();
}

}  // namespace

TEST(layernorm_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> beta(columns, 0.5f), bias(columns, 2.0f);
  Array<uint16_t> residual(rows * columns, 0x4000), sum(rows * columns);
  sie_layernorm_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.gamma = o.vector.data();
  a.beta = beta.data();
  a.bias = bias.data();
  a.y = o.to();
  a.yq = o.f8();
  a.residual = {residual.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.sum = {sum.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  using Args = sie_layernorm_args;
  check_places<Args>("layernorm", &sie_ops::layernorm, a, &o,
                     {&Args::x, &Args::y, &Args::yq, &Args::residual, &Args::sum},
                     {&Args::gamma, &Args::beta, &Args::bias});
}

TEST(embed_layernorm_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> beta(columns, 0.5f);
  Array<int32_t> types = {1, 0, 1, 2};
  Array<uint16_t> position(rows * columns), type(rows * columns);
  fill_small(&position);
  std::fill(type.begin(), type.end(), uint16_t{0x4000});
  sie_embed_layernorm_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.ids = o.ids.data();
  a.type_ids = types.data();
  a.cu_seqlens = o.cu.data();
  a.word = o.in();
  a.position = {position.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.type = {type.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.gamma = o.vector.data();
  a.beta = beta.data();
  a.c = columns;
  a.y = o.to();
  a.yq = o.f8();
  using Args = sie_embed_layernorm_args;
  check_places<Args>("embed_layernorm", &sie_ops::embed_layernorm, a, &o,
                     {&Args::word, &Args::position, &Args::type, &Args::y, &Args::yq},
                     {&Args::gamma, &Args::beta});
}

TEST(quantise_rows_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  sie_quantise_rows_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.y = o.f8();
  using Args = sie_quantise_rows_args;
  for (int32_t group : {-1, 128}) {
    a.y.scale_group = group;
    check_places<Args>("quantise_rows", &sie_ops::quantise_rows, a, &o, {&Args::x, &Args::y}, {});
  }
}

TEST(qk_norm_rope_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> cosines(3 * columns / 2), sines(3 * columns / 2), gamma(columns, 2.0f);
  for (size_t i = 0; i < cosines.size(); i++) {
    cosines[i] = static_cast<float>(i % 5) * 0.25f;
    sines[i] = static_cast<float>(i % 3) * 0.5f;
  }
  sie_qk_norm_rope_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.heads = a.kv_heads = 1;
  a.head_dim = a.rot = columns;
  a.q_gamma = o.vector.data();
  a.k_gamma = gamma.data();
  a.cos = cosines.data();
  a.sin = sines.data();
  a.positions = 3;
  a.q = o.in();
  a.k = o.to();
  using Args = sie_qk_norm_rope_args;
  check_places<Args>("qk_norm_rope", &sie_ops::qk_norm_rope, a, &o, {&Args::q, &Args::k},
                     {&Args::q_gamma, &Args::k_gamma});
  // A vector of check_places has as many elements as a row; cos and sin have more.
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    std::vector<uint8_t> want;
    for (int which = 0; which < 3; which++) {
      Shelf shelf;
      sie_qk_norm_rope_args b = a;
      if (which == 1) b.cos = shelf.vector(a.cos, 3 * columns / 2, Shelf::off);
      if (which == 2) b.sin = shelf.vector(a.sin, 3 * columns / 2, Shelf::off);
      o.restore();
      CHECK(gpu.ops->qk_norm_rope(&b, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
            gpu.ops->name);
      if (which == 0) want = o.all_bytes();
      CHECK(o.all_bytes() == want, "%s: other bits with table %d elsewhere", gpu.ops->name, which);
    }
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
