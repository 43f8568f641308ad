// table_test.cc — which kernel each table of x86-64 calls, on machines that lack it, too.
//
// kernels/cpu/table.cc is compiled once more, and here each of its kernels is made up: it notes that it
// was called. cmake/tables.cmake gives these kernels, sie_cpu_ops and sie_cpu_detect other names, in that
// object and in this file.
#if defined(__x86_64__)
#include "tests/made_up_tables.h"

#include <string.h>

#include <initializer_list>

#include "cpu/isa.h"
#include "cpu/kernels_amx.h"
#include "cpu/kernels_bf16.h"
#include "cpu/kernels_int8.h"
#include "tests/check.h"

namespace {

// What the made-up kernels were asked since `forget`, and what they return.
struct Asked {
  const char *kernel;           // the last one
  sie_cpu::LinearFn linear;     // that splade or pairs got
  int64_t panel;                // that splade got
  int64_t rows;                 // of the bounds of a linear's scratch
  int64_t n, k, n0, count, ld;  // of pack
  const void *from, *to;
};
Asked asked;
sie_status answers = SIE_OK;        // all, but
sie_status answers_tiles = SIE_OK;  // attention on tiles

uint32_t best_of_machine;

void forget() { asked = {}; }

sie_status called(const char *kernel) {
  asked.kernel = kernel;
  return answers;
}

bool was(const char *kernel) { return asked.kernel != nullptr && strcmp(asked.kernel, kernel) == 0; }

const char *last() { return asked.kernel != nullptr ? asked.kernel : "none"; }

void note_pack(const char *kernel, int64_t n, int64_t k, int64_t n0, int64_t count, const float *from,
               int64_t ld, void *to) {
  asked = {kernel, nullptr, 0, 0, n, k, n0, count, ld, from, to};
}

// The bytes that each function answers with: no two the same.
constexpr int64_t f32_packed = 1, int8_packed = 2, bf16_packed = 4, of_linear = 1 << 3, of_attention = 1 << 4,
                  of_muvera = 1 << 5, of_splade = 1 << 6, of_lstm = 1 << 7, of_spans = 1 << 8,
                  of_pairs = 1 << 9, of_smve = 1 << 10, of_maxsim = 1 << 11, of_lora = 1 << 12,
                  of_linear_int8 = 1 << 13, of_linear_bf16 = 1 << 14, avx512_kernel = 1 << 20;

// Attention on tiles; more or less than the other kernel's.
int64_t bytes_of_tiles, bytes_of_disentangled_tiles;

}  // namespace

// The operations of which a table has the generic kernel, and its scratch.
// clang-format off
#define SIE_EACH_OPERATION(X) \
  X(embed_layernorm) X(layernorm) X(quantise_rows) X(attention) X(gather_rows) X(pool) \
  X(output_rows) X(qk_norm_rope) X(pool_output) X(muvera) X(keep_rows) X(output_sparse) X(maxsim) \
  X(lora) X(smve) X(mark_nonfinite) X(join_columns) X(take_rows) X(product) X(dots) X(lstm) \
  X(spans) X(softmax)
// clang-format on
#define SIE_EACH_SCRATCH(X) X(attention) X(muvera) X(lstm) X(spans) X(pairs) X(smve) X(maxsim) X(lora)

// The kernels of an instruction set; `more` is added to their bytes.
#define SIE_OPERATION(name) \
  sie_status name(const sie_##name##_args *, const sie_share *) { return called(generic " " #name); }
#define SIE_SCRATCH(name) \
  int64_t name##_scratch(const sie_op_bounds *) { return more + of_##name; }
#define SIE_MADE_UP                                                                                       \
  SIE_EACH_OPERATION(SIE_OPERATION)                                                                       \
  SIE_EACH_SCRATCH(SIE_SCRATCH)                                                                           \
  sie_status linear_f32(const sie_linear_args *, const sie_share *) { return called(generic " linear"); } \
  sie_status splade(const sie_splade_args *, const sie_share *, LinearFn linear, int64_t panel) {         \
    asked.linear = linear, asked.panel = panel;                                                           \
    return called(generic " splade");                                                                     \
  }                                                                                                       \
  sie_status pairs(const sie_pairs_args *, const sie_share *, LinearFn linear) {                          \
    asked.linear = linear;                                                                                \
    return called(generic " pairs");                                                                      \
  }                                                                                                       \
  int64_t linear_f32_packed_bytes(int64_t, int64_t) { return more + f32_packed; }                         \
  void linear_f32_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,      \
                       void *dst) {                                                                       \
    note_pack(generic " pack", n, k, n0, rows, src, ld, dst);                                             \
  }                                                                                                       \
  int64_t linear_f32_scratch(const sie_op_bounds *bounds) {                                               \
    asked.rows = bounds->rows;                                                                            \
    return more + of_linear;                                                                              \
  }                                                                                                       \
  int64_t linear_f32_panel() { return panel; }                                                            \
  int64_t splade_logits_bytes(int64_t, int64_t columns) { return more + of_splade * columns; }

namespace sie_cpu {

#define generic "avx2"
namespace avx2 {
constexpr int64_t more = 0, panel = 16;
SIE_MADE_UP
}  // namespace avx2
#undef generic
#define generic "avx512"
namespace avx512 {
constexpr int64_t more = avx512_kernel, panel = 48;
SIE_MADE_UP
}  // namespace avx512
#undef generic

int64_t int8_packed_bytes(int64_t, int64_t) { return int8_packed; }
void int8_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  note_pack("int8 pack", n, k, n0, rows, src, ld, dst);
}
int64_t linear_int8_scratch(const sie_op_bounds *bounds) {
  asked.rows = bounds->rows;
  return of_linear_int8;
}
sie_status linear_int8_avx2(const sie_linear_args *, const sie_share *) { return called("int8 avx2"); }
sie_status linear_int8_vnni(const sie_linear_args *, const sie_share *) { return called("int8 vnni"); }
sie_status linear_int8_amx(const sie_linear_args *, const sie_share *) { return called("int8 amx"); }

int64_t bf16_packed_bytes(int64_t, int64_t) { return bf16_packed; }
void bf16_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  note_pack("bf16 pack", n, k, n0, rows, src, ld, dst);
}
int64_t linear_bf16_scratch(const sie_op_bounds *bounds) {
  asked.rows = bounds->rows;
  return of_linear_bf16;
}
sie_status linear_bf16_avx512bf16(const sie_linear_args *, const sie_share *) {
  return called("bf16 avx512");
}
sie_status linear_bf16_amx(const sie_linear_args *, const sie_share *) { return called("bf16 amx"); }

sie_status attention_bf16_amx(const sie_attention_args *, const sie_share *) {
  called("attention amx");
  return answers_tiles;
}
int64_t attention_bf16_amx_scratch(const sie_op_bounds *) { return bytes_of_tiles; }
sie_status attention_disentangled_amx(const sie_attention_args *, const sie_share *) {
  called("disentangled amx");
  return answers_tiles;
}
int64_t attention_disentangled_amx_scratch(const sie_op_bounds *) { return bytes_of_disentangled_tiles; }

}  // namespace sie_cpu

uint32_t sie_cpu_detect(void) { return best_of_machine; }

const sie_ops *table_on(uint32_t best, uint32_t isa) {
  best_of_machine = best;
  return sie_cpu_ops(isa);
}

namespace {

// The head of table.cc, a line each.
struct Line {
  uint32_t isa;
  const char *name, *generic, *f32, *int8;
  const char *bf16;  // or null
  bool tiles;        // attention on tiles, and activations of class INT8 in bf16
};
constexpr Line lines[] = {
    {SIE_ISA_AVX2, "avx2", "avx2", "avx2 linear", "int8 avx2", nullptr, false},
    {SIE_ISA_AVX512, "avx512", "avx512", "avx512 linear", "int8 avx2", nullptr, false},
    {SIE_ISA_AVX512_VNNI, "avx512-vnni", "avx512", "avx512 linear", "int8 vnni", nullptr, false},
    {SIE_ISA_AVX512_BF16, "avx512-bf16", "avx512", "avx512 linear", "int8 vnni", "bf16 avx512", false},
    {SIE_ISA_AMX, "amx", "avx512", "avx512 linear", "int8 amx", "bf16 amx", true},
};

const sie_ops *table_of(const Line &line) { return table_on(SIE_ISA_AMX, line.isa); }
bool is_avx512(const Line &line) { return line.isa != SIE_ISA_AVX2; }
int64_t more_of(const Line &line) { return is_avx512(line) ? avx512_kernel : 0; }

// Whether the operation calls the kernel of that name.
bool is_generic(const Line &line, const char *operation) {
  const size_t length = strlen(line.generic);
  return asked.kernel != nullptr && strncmp(asked.kernel, line.generic, length) == 0 &&
         asked.kernel[length] == ' ' && strcmp(asked.kernel + length + 1, operation) == 0;
}

// A linear that table_parts.h lets through; its class is w's.
sie_linear_args linear_of(const sie_packed *w) {
  sie_linear_args args = {};
  args.w = w, args.n = w->n, args.k = w->k;
  args.act = SIE_ACT_NONE, args.gate = SIE_GATE_NONE;
  return args;
}

sie_packed weight_of(uint32_t compute) { return {compute, 0, 64, 64, nullptr}; }

}  // namespace

TEST(tables_of_each_machine) {
  CHECK(table_on(0, SIE_ISA_BEST) == nullptr, "a table where the machine has none");
  for (const Line &best : lines) {
    const sie_ops *ops = table_on(best.isa, SIE_ISA_BEST);
    CHECK(ops != nullptr && ops->isa == best.isa, "the best table of %s is %s", best.name,
          ops != nullptr ? ops->name : "none");
    for (const Line &line : lines) {
      CHECK(table_on(0, line.isa) == nullptr, "%s where the machine has none", line.name);
      ops = table_on(best.isa, line.isa);
      CHECK((ops != nullptr) == (line.isa <= best.isa), "%s on %s", line.name, best.name);
      if (ops == nullptr) continue;
      CHECK(ops->isa == line.isa, "%s is isa %x", line.name, ops->isa);
      CHECK(strcmp(ops->name, line.name) == 0, "%s is called %s", line.name, ops->name);
    }
    CHECK(table_on(best.isa, SIE_ISA_AVX2 - 1) == nullptr, "a table below AVX2 on %s", best.name);
    CHECK(table_on(best.isa, SIE_ISA_AMX + 1) == nullptr, "a table beyond AMX on %s", best.name);
    CHECK(table_on(best.isa, SIE_ISA_NEON) == nullptr, "a table of arm64 on %s", best.name);
  }
}

TEST(tables_name_their_classes) {
  CHECK(sie_ref_ops()->act_dtype_bf16 == SIE_BF16, "ref: bf16 keeps %d", sie_ref_ops()->act_dtype_bf16);
  for (const Line &line : lines) {
    const sie_ops *ops = table_of(line);
    const uint32_t classes =
        1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_INT8 | (line.bf16 != nullptr ? 1u << SIE_COMPUTE_BF16 : 0);
    CHECK(ops->compute_mask == classes, "%s: classes %x", line.name, ops->compute_mask);
    CHECK(ops->act_dtype_bf16 == SIE_BF16, "%s: bf16 keeps %d", line.name, ops->act_dtype_bf16);
    CHECK(ops->act_dtype_int8 == (line.tiles ? SIE_BF16 : SIE_F32), "%s: int8 keeps %d", line.name,
          ops->act_dtype_int8);
    CHECK(ops->attention_work_bytes == nullptr && ops->attention_work == nullptr, "%s: work of a GPU",
          line.name);
    CHECK(ops->linear_norm == nullptr && ops->linear_norm_pays == nullptr, "%s: a GPU's operation",
          line.name);
  }
}

TEST(tables_call_the_kernels_of_their_line) {
  answers = SIE_OUT_OF_MEMORY;
  for (const Line &line : lines) {
    const sie_ops *ops = table_of(line);
    const sie_share share = {0, 1, nullptr, 0, nullptr};
#define SIE_CALL(op)                                                                                         \
  if (strcmp(#op, "attention") != 0 || !line.tiles) {                                                        \
    forget();                                                                                                \
    const sie_##op##_args args = {};                                                                         \
    const sie_status status = ops->op(&args, &share);                                                        \
    CHECK(is_generic(line, #op) && status == answers, "%s: " #op " calls %s, returns %d", line.name, last(), \
          status);                                                                                           \
  }
    SIE_EACH_OPERATION(SIE_CALL)
#undef SIE_CALL
  }
  answers = SIE_OK;
}

TEST(tables_multiply_each_class) {
  for (const Line &line : lines) {
    const sie_ops *ops = table_of(line);
    const sie_share share = {0, 1, nullptr, 0, nullptr};
    const struct {
      uint32_t compute;
      const char *kernel;
      int64_t panel;
    } classes[] = {
        {SIE_COMPUTE_F32, line.f32, is_avx512(line) ? 48 : 16},
        {SIE_COMPUTE_INT8, line.int8, 32},
        {SIE_COMPUTE_BF16, line.bf16, 32},
        {SIE_COMPUTE_F16, nullptr, 32},
        {SIE_COMPUTE_FP8, nullptr, 32},
    };
    for (const auto &c : classes) {
      const sie_packed w = weight_of(c.compute);
      const sie_linear_args linear = linear_of(&w);
      for (const sie_status status : {SIE_OK, SIE_INVALID_ARGUMENT}) {
        forget();
        answers = status;
        const sie_status got = ops->linear(&linear, &share);
        answers = SIE_OK;
        if (c.kernel == nullptr) {
          CHECK(got == SIE_UNSUPPORTED && asked.kernel == nullptr, "%s: a linear of class %u calls %s",
                line.name, c.compute, last());
        } else {
          CHECK(was(c.kernel) && got == status, "%s: a linear of class %u calls %s and returns %d", line.name,
                c.compute, last(), got);
        }
      }
      sie_linear_args odd = linear;
      odd.gate = SIE_GATE_GEGLU, odd.n = 63;
      forget();
      const sie_status got = ops->linear(&odd, &share);
      CHECK(got == SIE_INVALID_ARGUMENT && asked.kernel == nullptr,
            "%s: a gate of 63 columns of class %u: %d, calls %s", line.name, c.compute, got, last());

      sie_splade_args splade = {};
      splade.w = &w;
      forget();
      CHECK(ops->splade(&splade, &share) == SIE_OK && is_generic(line, "splade"), "%s: splade calls %s",
            line.name, last());
      CHECK(asked.linear == ops->linear && asked.panel == c.panel, "%s: splade of class %u: panels of %lld",
            line.name, c.compute, static_cast<long long>(asked.panel));
      sie_pairs_args pairs = {};
      pairs.w = &w;
      forget();
      CHECK(ops->pairs(&pairs, &share) == SIE_OK && is_generic(line, "pairs") && asked.linear == ops->linear,
            "%s: pairs call %s", line.name, last());
    }
  }
}

TEST(tables_pack_each_class) {
  for (const Line &line : lines) {
    const sie_ops *ops = table_of(line);
    const struct {
      uint32_t compute;
      const char *kernel;
      int64_t bytes;
    } classes[] = {
        {SIE_COMPUTE_F32, is_avx512(line) ? "avx512 pack" : "avx2 pack", more_of(line) + f32_packed},
        {SIE_COMPUTE_INT8, "int8 pack", int8_packed},
        {SIE_COMPUTE_BF16, line.bf16 != nullptr ? "bf16 pack" : nullptr,
         line.bf16 != nullptr ? bf16_packed : -1},
        {SIE_COMPUTE_F16, nullptr, -1},
        {SIE_COMPUTE_FP8, nullptr, -1},
    };
    for (const auto &c : classes) {
      const int64_t bytes = ops->packed_bytes(c.compute, 3, 5);
      CHECK(bytes == c.bytes, "%s: class %u has %lld bytes", line.name, c.compute,
            static_cast<long long>(bytes));
      const float from = 0;
      char to = 0;
      forget();
      ops->pack(c.compute, 30, 50, 7, 11, &from, 60, &to);
      if (c.kernel == nullptr) {
        CHECK(asked.kernel == nullptr, "%s: class %u is packed by %s", line.name, c.compute, last());
        continue;
      }
      CHECK(was(c.kernel), "%s: class %u is packed by %s", line.name, c.compute, last());
      CHECK(asked.n == 30 && asked.k == 50 && asked.n0 == 7 && asked.count == 11 && asked.ld == 60 &&
                asked.from == &from && asked.to == &to,
            "%s: class %u is packed with other arguments", line.name, c.compute);
    }
  }
}

TEST(tables_have_the_scratch_of_their_kernels) {
  for (const Line &line : lines) {
    const sie_ops *ops = table_of(line);
    const int64_t more = more_of(line);
    bytes_of_tiles = bytes_of_disentangled_tiles = 0;
    for (const uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_INT8, SIE_COMPUTE_BF16}) {
      const bool bf16 = compute == SIE_COMPUTE_BF16;
      if (bf16 && line.bf16 == nullptr) continue;
      const int64_t of_f32 = more + of_linear,
                    linear = bf16 ? of_linear_bf16 : (compute == SIE_COMPUTE_INT8 ? of_linear_int8 : of_f32);
      const int64_t logits =
          more + of_splade * (compute == SIE_COMPUTE_F32 ? (is_avx512(line) ? 48 : 16) : 32);
      const struct {
        uint32_t kind;
        int64_t bytes;
        int64_t rows;  // of the linear that is asked, or 0
      } kinds[] = {
          {SIE_OP_EMBED_LAYERNORM, 64, 0},
          {SIE_OP_LAYERNORM, 64, 0},
          {SIE_OP_LINEAR, linear, 5},
          {SIE_OP_QUANTISE_ROWS, 0, 0},
          {SIE_OP_ATTENTION, more + of_attention, 0},
          {SIE_OP_GATHER_ROWS, 0, 0},
          {SIE_OP_POOL, 128, 0},
          {SIE_OP_OUTPUT_ROWS, 64, 0},
          {SIE_OP_QK_NORM_ROPE, 192, 0},
          {SIE_OP_POOL_OUTPUT, 192, 0},
          {SIE_OP_MUVERA, more + of_muvera, 0},
          {SIE_OP_KEEP_ROWS, 0, 0},
          {SIE_OP_SPLADE, logits + (compute == SIE_COMPUTE_F32 ? 0 : 288 * 64), 0},
          {SIE_OP_OUTPUT_SPARSE, 0, 0},
          {SIE_OP_MAXSIM, more + of_maxsim, 0},
          {SIE_OP_LORA, more + of_lora, 0},
          {SIE_OP_SMVE, more + of_smve, 0},
          {SIE_OP_LSTM, more + of_lstm, 0},
          {SIE_OP_SPANS, more + of_spans, 0},
          {SIE_OP_PAIRS, more + of_pairs + (bf16 ? of_linear_bf16 : of_f32), 96},
          {SIE_OP_SOFTMAX, 0, 0},
          {SIE_OP_LINEAR_NORM, 0, 0},
      };
      for (const auto &k : kinds) {
        sie_op_bounds bounds = {};
        bounds.kind = k.kind, bounds.compute = compute;
        bounds.rows = 5, bounds.c = 16, bounds.max_len = 32, bounds.head_dim = 24, bounds.n = 100;
        forget();
        const int64_t bytes = ops->scratch_bytes(&bounds);
        CHECK(bytes == k.bytes && asked.rows == k.rows,
              "%s, class %u, operation %u: %lld bytes, a linear of %lld rows", line.name, compute, k.kind,
              static_cast<long long>(bytes), static_cast<long long>(asked.rows));
      }
    }
  }
}

// Tiles take what they have kernels for; what they refuse as unsupported falls to the generic kernel,
// and the scratch holds either.
TEST(tables_give_tiles_what_they_take) {
  const sie_ops *amx = table_on(SIE_ISA_AMX, SIE_ISA_AMX);
  const sie_share share = {0, 1, nullptr, 0, nullptr};
  const int32_t buckets[1] = {0};
  for (const bool with_buckets : {false, true}) {
    sie_attention_args args = {};
    if (with_buckets) args.buckets = buckets;
    const char *tiles = with_buckets ? "disentangled amx" : "attention amx";
    for (const sie_status status : {SIE_OK, SIE_INVALID_ARGUMENT, SIE_UNSUPPORTED}) {
      answers_tiles = status;
      answers = SIE_OUT_OF_MEMORY;
      forget();
      const sie_status got = amx->attention(&args, &share);
      if (status == SIE_UNSUPPORTED) {
        CHECK(was("avx512 attention") && got == answers, "refused by tiles: %s, %d", last(), got);
      } else {
        CHECK(was(tiles) && got == status, "by tiles, that return %d: %s, %d", status, last(), got);
      }
      answers = answers_tiles = SIE_OK;
    }
  }
  const int64_t generic = avx512_kernel + of_attention;
  for (const int64_t difference : {-1, 1}) {
    for (const int32_t position_rows : {0, 1}) {
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_ATTENTION, bounds.position_rows = position_rows;
      bytes_of_tiles = position_rows == 0 ? generic + difference : generic + 7;
      bytes_of_disentangled_tiles = position_rows != 0 ? generic + difference : generic + 7;
      const int64_t bytes = amx->scratch_bytes(&bounds), wanted = difference > 0 ? generic + 1 : generic;
      CHECK(bytes == wanted, "%d rows of positions, tiles of %lld: %lld bytes", position_rows,
            static_cast<long long>(generic + difference), static_cast<long long>(bytes));
    }
  }
}
#endif
