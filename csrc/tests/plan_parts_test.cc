// plan_parts_test.cc — what is planned of an operation: types, quantised and rounded rows, what a GPU does in one
// kernel, and the bounds of slabs; on made-up programs, written as lists of what runs.
#include <stdio.h>
#include <string.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hooks.h"
#include "made_program.h"
#include "program.h"

namespace {

using made::kept;
using made::Program;
using made::sequences;
using made::tokens;
using made::words;

const char *short_name(int32_t dtype) { return sie::dtype_name(dtype); }

struct Made : Program {
  ~Made() { sie::release(&p.one_row_each); }
  Made() {
    p.caps.max_rows = p.caps.max_extents = 4000;
    p.caps.max_len = 200;
    p.caps.max_seqs = 50;
    ops.scratch_bytes = [](const sie_op_bounds *) { return int64_t{0}; };
    accept();
  }
  // The table has every form.
  void accept() {
    ops.embed_layernorm = [](const sie_embed_layernorm_args *, const sie_share *) { return SIE_OK; };
    ops.layernorm = [](const sie_layernorm_args *, const sie_share *) { return SIE_OK; };
    ops.linear = [](const sie_linear_args *, const sie_share *) { return SIE_OK; };
    ops.quantise_rows = [](const sie_quantise_rows_args *, const sie_share *) { return SIE_OK; };
    ops.attention = [](const sie_attention_args *, const sie_share *) { return SIE_OK; };
    ops.gather_rows = [](const sie_gather_rows_args *, const sie_share *) { return SIE_OK; };
    ops.pool = [](const sie_pool_args *, const sie_share *) { return SIE_OK; };
    ops.output_rows = [](const sie_output_rows_args *, const sie_share *) { return SIE_OK; };
    ops.qk_norm_rope = [](const sie_qk_norm_rope_args *, const sie_share *) { return SIE_OK; };
    ops.pool_output = [](const sie_pool_output_args *, const sie_share *) { return SIE_OK; };
    ops.keep_rows = [](const sie_keep_rows_args *, const sie_share *) { return SIE_OK; };
    ops.take_rows = [](const sie_take_rows_args *, const sie_share *) { return SIE_OK; };
    ops.splade = [](const sie_splade_args *, const sie_share *) { return SIE_OK; };
    ops.output_sparse = [](const sie_output_sparse_args *, const sie_share *) { return SIE_OK; };
    ops.maxsim = [](const sie_maxsim_args *, const sie_share *) { return SIE_OK; };
    ops.lora = [](const sie_lora_args *, const sie_share *) { return SIE_OK; };
    ops.mark_nonfinite = [](const sie_mark_nonfinite_args *, const sie_share *) { return SIE_OK; };
    ops.join_columns = [](const sie_join_columns_args *, const sie_share *) { return SIE_OK; };
    ops.product = [](const sie_product_args *, const sie_share *) { return SIE_OK; };
    ops.spans = [](const sie_spans_args *, const sie_share *) { return SIE_OK; };
  }

  // Operations, by the names of what they make.
  sie_value add(uint32_t kind, std::vector<sie_value> in, sie_space of, int64_t columns, uint32_t compute,
                const std::function<void(sie::Op *)> &change = nullptr) {
    sie::Op op = sie::new_op(kind);
    for (size_t i = 0; i < in.size(); i++) op.in[i] = in[i];
    if (of != 0) op.out = next();
    if (change) change(&op);
    CHECK(sie::append(&p, op, of, compute, columns, nullptr) == SIE_OK, "no memory");
    return op.out;
  }
  sie_value embed(int64_t columns, uint32_t compute) {
    sie_weight *table = weight(SIE_WEIGHT_TABLE, 10, columns, compute);
    return add(SIE_OP_EMBED_LAYERNORM, {}, tokens, columns, compute, [table](sie::Op *op) {
      op->weights[0] = table;
      op->inputs[0] = made::ids;
    });
  }
  sie_value norm(sie_value x, sie_value residual = SIE_NO_VALUE, sie_value *sum = nullptr) {
    const sie::Value v = p.values[x];
    return add(SIE_OP_LAYERNORM, {x}, v.space, v.columns, v.compute, [&](sie::Op *op) {
      op->residual = residual;
      if (sum != nullptr) *sum = op->sum = op->out + 1;
    });
  }
  sie_value linear(sie_value x, int64_t n, uint32_t compute, sie_value residual = SIE_NO_VALUE,
                   int32_t lora = -1) {
    sie_weight *w = weight(SIE_WEIGHT_LINEAR, n, p.values[x].columns, compute);
    w->packed.compute = compute;
    return add(SIE_OP_LINEAR, {x}, p.values[x].space, n, compute, [=](sie::Op *op) {
      op->weights[0] = w;
      op->residual = residual;
      op->lora = lora;
      op->max_rank = lora >= 0 ? 4 : 0;
      op->inputs[0] = lora >= 0 ? made::of_sequence : 0;
    });
  }
  sie_value attention(sie_value q, sie_value k, sie_value v,
                      const std::function<void(sie_attention_params *)> &change = nullptr) {
    const sie::Value of = p.values[q];
    return add(SIE_OP_ATTENTION, {q, k, v}, of.space, of.columns, of.compute, [&](sie::Op *op) {
      op->attention.heads = op->attention.kv_heads = 2;
      op->attention.head_dim = 32;
      if (change) change(&op->attention);
    });
  }
  sie_value pool(sie_value x, int32_t mode = SIE_POOL_MEAN) {
    return add(SIE_OP_POOL, {x}, sequences, p.values[x].columns, SIE_COMPUTE_F32,
               [mode](sie::Op *op) { op->pooling = mode; });
  }
  void output(uint32_t kind, sie_value x) {
    add(kind, {x}, 0, 0, 0, [this](sie::Op *op) { op->output = p.n_outputs++; });
  }

  std::string operand(const sie::Operand &o) {
    if (!o.present) return "";
    if (o.given != 0) return "given" + (o.column > 0 ? "+" + std::to_string(o.column) : "");
    std::string text = std::string(short_name(o.dtype)) + "#" + std::to_string(o.buffer);
    if (o.column > 0) text += "+" + std::to_string(o.column);
    if (o.scale_group != 0) text += "/" + std::to_string(o.scale_group);
    if (o.outliers) text += "!";
    return text;
  }
  // Each operation with its operands, and what it makes. A buffer has a number: #3.
  std::string plan(sie_status want = SIE_OK, const char *words_of = "") {
    sie_error err = {};
    p.plan.clear(), p.buffers.clear();
    sie::release(&p.one_row_each);
    p.n_work_lists = 0;
    const sie_status status = sie::plan_program(&p, &err);
    CHECK(status == want && strstr(err.message, words_of) != nullptr, "status %d: %s", status, err.message);
    std::string text;
    for (const sie::PlannedOp &planned : p.plan) {
      text += sie::op_name(planned.op.kind);
      for (const sie::Operand &in : planned.in) {
        if (in.present) text += " " + operand(in);
      }
      if (planned.addend.present) text += " +" + operand(planned.addend);
      if (planned.residual.present) text += " +" + operand(planned.residual);
      if (planned.out.present || planned.sum.present || planned.quantised.present) text += " ->";
      for (const sie::Operand *o : {&planned.out, &planned.sum, &planned.quantised}) {
        if (o->present) text += " " + operand(*o);
      }
      if (planned.found.present)
        text += " found " + operand(planned.found) + (planned.writes ? " written" : "");
      if (planned.work >= 0) text += " list " + std::to_string(planned.work);
      text += "\n";
    }
    return text;
  }
  void on_gpu() {
    device.kind = SIE_DEVICE_CUDA;
    ops.act_dtype_int8 = SIE_BF16;
  }
};

void is(const std::string &got, const std::string &want) {
  CHECK(got == want, "planned:\n%sexpected:\n%s", got.c_str(), want.c_str());
}

constexpr uint32_t f32 = SIE_COMPUTE_F32, bf16 = SIE_COMPUTE_BF16, int8 = SIE_COMPUTE_INT8,
                   f16 = SIE_COMPUTE_F16, fp8 = SIE_COMPUTE_FP8;

}  // namespace

TEST(planned_slabs_have_bounds) {
  const struct {
    int64_t extents, len, seqs, vocabulary, tokens, region, slab_seqs;
  } cases[] = {{4000, 200, 50, 0, 512, 0, 50},         {300, 200, 50, 0, 300, 0, 50},
               {512, 512, 600, 0, 512, 0, 512},        {4000, 513, 50, 0, 512, 4032, 50},
               {600, 513, 50, 0, 512, 640, 50},        {100000, 600, 50, 0, 512, 16384, 50},
               {100000, 20000, 50, 0, 512, 20032, 50}, {4000, 200, 600, 30522, 512, 0, 68},
               {4000, 200, 60, 30522, 512, 0, 60},     {4000, 200, 600, 250002, 512, 0, 16},
               {4000, 200, 600, 131072, 512, 0, 16},   {4000, 200, 600, 123361, 512, 0, 17},
               {4000, 200, 600, 4096, 512, 0, 512},    {4000, 200, 600, 4112, 512, 0, 510}};
  for (const auto &t : cases) {
    const auto m = std::make_unique<Made>();
    m->p.caps.max_extents = t.extents, m->p.caps.max_len = t.len, m->p.caps.max_seqs = t.seqs;
    const sie_value x = m->embed(64, f32);
    for (int64_t n : {int64_t{2}, t.vocabulary, int64_t{5}}) {
      if (t.vocabulary == 0) continue;
      sie_weight *w = m->weight(SIE_WEIGHT_LINEAR, n, 64);
      w->packed.compute = f32;
      m->add(SIE_OP_SPLADE, {x}, sequences, n, f32, [w](sie::Op *op) { op->weights[0] = w; });
    }
    // A wide linear makes no slab narrower.
    m->linear(x, 300000, f32);
    m->plan();
    CHECK(m->p.slab_tokens == t.tokens && m->p.region_tokens == t.region && m->p.slab_seqs == t.slab_seqs,
          "%lld tokens, %lld of the region, %lld sequences", static_cast<long long>(m->p.slab_tokens),
          static_cast<long long>(m->p.region_tokens), static_cast<long long>(m->p.slab_seqs));
    const int32_t *each = static_cast<const int32_t *>(m->p.one_row_each.p);
    for (int32_t i = 0; i <= m->p.slab_seqs; i++) CHECK(each[i] == i, "row %d begins at %d", i, each[i]);
  }
  // On a GPU a batch is one slab.
  const auto m = std::make_unique<Made>();
  m->on_gpu();
  m->p.caps.max_rows = 5000, m->p.caps.max_len = 3000, m->p.caps.max_seqs = 700;
  m->embed(64, bf16);
  m->plan();
  CHECK(m->p.slab_tokens == 5000 && m->p.slab_seqs == 700 && m->p.region_tokens == 0, "%lld tokens",
        static_cast<long long>(m->p.slab_tokens));
}

// A key costs as much attention as so many tokens cost matrices; what is done for sequences does not count.
TEST(planned_slabs_weigh_attention) {
  auto balance = [](const std::function<void(Made *)> &record) {
    const auto m = std::make_unique<Made>();
    record(m.get());
    m->plan();
    return m->p.balance;
  };
  auto layer = [](Made *m, int64_t n) {
    const sie_value x = m->embed(64, f32);
    m->linear(x, n, f32);
    m->attention(x, x, x);
  };
  CHECK(balance([&](Made *m) { layer(m, 640); }) == 640 * 64 / (2 * 64), "another balance");
  CHECK(balance([&](Made *m) { layer(m, 1); }) == 1, "the least");
  CHECK(balance([](Made *m) { m->linear(m->embed(64, f32), 64, f32); }) == 0, "without attention");
  CHECK(balance([&](Made *m) {
          layer(m, 640);
          m->linear(m->pool(1), 999, f32);
        }) == 320,
        "what is done for sequences counts");
  CHECK(balance([&](Made *m) {
          layer(m, 640);
          sie_weight *w = m->weight(SIE_WEIGHT_LINEAR, 64, 64);
          w->packed.compute = f32;
          m->add(SIE_OP_SPLADE, {1}, sequences, 64, f32, [w](sie::Op *op) { op->weights[0] = w; });
        }) == 320 + 32,
        "a matrix whose operands are tokens does not count");
  CHECK(balance([](Made *m) {
          const sie_value x = m->embed(64, f32);
          m->attention(x, x, x);
        }) == 1,
        "without matrices");
}

// Types of results by class: on a CPU what feeds a norm is f32; elsewhere rows are of their class's type.
TEST(planned_types_of_a_cpu) {
  const struct {
    uint32_t compute;
    int32_t int8_dtype;
    const char *x, *y;
  } classes[] = {{f32, SIE_F32, "f32", "f32"}, {bf16, SIE_F32, "bf16", "f32"}, {f16, SIE_F32, "f16", "f32"}};
  for (const auto &c : classes) {
    const auto m = std::make_unique<Made>();
    const sie_value x = m->embed(64, c.compute), y = m->linear(x, 64, c.compute, x), z = m->norm(y);
    m->linear(z, 8, c.compute);
    const std::string t = c.x;
    is(m->plan(), "embed_layernorm -> " + t + "#0\nlinear " + t + "#0 +" + t +
                      "#0 -> f32#1\nlayernorm f32#1 -> " + t + "#2\nlinear " + t + "#2 -> " + t + "#3\n");
  }
  // A sum that a matrix reads is of the class's type.
  const auto m = std::make_unique<Made>();
  const sie_value x = m->embed(64, bf16), y = m->linear(x, 64, bf16, x);
  m->linear(y, 8, bf16);
  is(m->plan(), "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlinear bf16#1 -> bf16#2\n");
  // So is one that goes to a state, or is updated in place, also where a norm reads it before; what is only added
  // to stays f32.
  for (int reader : {0, 1, 2, 3}) {
    const auto n = std::make_unique<Made>();
    const sie_value a = n->embed(64, bf16), b = n->linear(a, 64, bf16, a);
    n->norm(b);
    if (reader == 0) n->linear(b, 8, bf16);
    if (reader == 1) n->add(sie::op_state_rows, {b}, 0, 0, 0);
    if (reader == 2) n->add(SIE_OP_QK_NORM_ROPE, {b}, 0, 0, 0, [](sie::Op *op) { op->updates = true; });
    if (reader == 3) n->linear(a, 64, bf16, b);
    const std::string t = reader == 3 ? "f32#1" : "bf16#1";
    const std::string last[] = {"linear bf16#1 -> bf16#3\n", "state_rows bf16#1\n", "qk_norm_rope bf16#1\n",
                                "linear bf16#0 +f32#1 -> f32#3\n"};
    is(n->plan(), "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> " + t + "\nlayernorm " + t +
                      " -> bf16#2\n" + last[reader]);
  }
  // Norms have a sum, too.
  for (bool strict : {false, true}) {
    const auto n = std::make_unique<Made>();
    sie_value sum;
    const sie_value a = n->embed(64, bf16);
    n->norm(a, a, &sum);
    if (strict) n->linear(sum, 8, bf16);
    const std::string t = strict ? "bf16" : "f32";
    is(n->plan(), "embed_layernorm -> bf16#0\nlayernorm bf16#0 +bf16#0 -> bf16#1 " + t + "#2\n" +
                      (strict ? "linear bf16#2 -> bf16#3\n" : ""));
  }
  // Pooled values, of SPLADE and of late interaction are f32.
  const auto q = std::make_unique<Made>();
  const sie_value b = q->embed(64, bf16);
  sie_weight *w = q->weight(SIE_WEIGHT_LINEAR, 9, 64, bf16);
  w->packed.compute = bf16;
  q->add(SIE_OP_SPLADE, {b}, sequences, 9, f32, [w](sie::Op *op) { op->weights[0] = w; });
  q->add(SIE_OP_MAXSIM, {b}, sequences, 1, f32, [](sie::Op *op) {
    op->inputs[0] = made::query_rows;
    op->inputs[1] = made::of_sequence;
  });
  q->pool(b);
  q->add(SIE_OP_PRODUCT, {b, b}, tokens, 64, bf16);
  is(q->plan(),
     "embed_layernorm -> bf16#0\nsplade bf16#0 -> f32#1\nmaxsim bf16#0 -> f32#2\npool bf16#0 -> f32#3\n"
     "product bf16#0 bf16#0 -> bf16#4\n");
}

// Rows that are moved keep their type, and what reads them decides about those that they are moved from.
TEST(planned_rows_that_are_moved) {
  for (uint32_t kind : {SIE_OP_GATHER_ROWS, SIE_OP_KEEP_ROWS, SIE_OP_TAKE_ROWS}) {
    for (bool strict : {false, true}) {
      const auto m = std::make_unique<Made>();
      const sie_value x = m->embed(64, bf16), y = m->linear(x, 64, bf16, x);
      const sie_value z = m->add(kind, {y},
                                 kind == SIE_OP_GATHER_ROWS ? sequences
                                 : kind == SIE_OP_KEEP_ROWS ? kept
                                                            : words,
                                 64, bf16);
      if (strict) m->linear(z, 8, bf16);
      if (!strict) m->norm(z);
      const std::string t = strict ? "bf16" : "f32", name = sie::op_name(kind);
      is(m->plan(), "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> " + t + "#1\n" + name + " " + t +
                        "#1 -> " + t + "#2\n" +
                        (strict ? "linear bf16#2 -> bf16#3\n" : "layernorm f32#2 -> bf16#3\n"));
    }
  }
}

// Quantised rows: written by norms beside float rows, by linears in their place, else by an operation; once.
TEST(planned_quantised_rows) {
  auto m = std::make_unique<Made>();
  m->ops.act_dtype_int8 = SIE_BF16;
  sie_value x = m->embed(64, int8), y = m->linear(x, 96, int8), z = m->linear(y, 64, int8, x), n = m->norm(z);
  m->linear(n, 8, int8), m->linear(n, 8, int8);
  is(m->plan(),
     "embed_layernorm -> bf16#1 u8#0/-1!\nlinear u8#0/-1! -> u8#2/-1\nlinear u8#2/-1 +bf16#1 -> f32#3\n"
     "layernorm f32#3 -> bf16#5 u8#4/-1!\nlinear u8#4/-1! -> bf16#6\nlinear u8#4/-1! -> bf16#7\n");
  // A linear whose float rows are read, too, keeps them.
  m = std::make_unique<Made>();
  x = m->embed(64, int8), y = m->linear(x, 96, int8);
  m->linear(y, 8, int8), m->linear(y, 8, int8), m->norm(y);
  is(m->plan(),
     "embed_layernorm -> f32#1 u8#0/-1!\nlinear u8#0/-1! -> f32#2\nquantise_rows f32#2 -> u8#3/-1\n"
     "linear u8#3/-1 -> f32#4\nlinear u8#3/-1 -> f32#5\nlayernorm f32#2 -> f32#6\n");
  // Also where they are only added to.
  m = std::make_unique<Made>();
  x = m->embed(64, int8), y = m->linear(x, 64, int8);
  m->linear(y, 64, int8, y);
  is(m->plan(),
     "embed_layernorm -> f32#1 u8#0/-1!\nlinear u8#0/-1! -> f32#2\nquantise_rows f32#2 -> u8#3/-1\n"
     "linear u8#3/-1 +f32#2 -> f32#4\n");
  // Nobody reads quantised rows: none are written.
  m = std::make_unique<Made>();
  x = m->embed(64, int8);
  m->norm(x);
  is(m->plan(), "embed_layernorm -> f32#0\nlayernorm f32#0 -> f32#1\n");
  // A view has quantised rows of its own.
  m = std::make_unique<Made>();
  x = m->embed(64, int8);
  y = m->view(x, 16, 32);
  m->p.ops.pop();
  m->linear(y, 8, int8);
  is(m->plan(), "embed_layernorm -> f32#0\nquantise_rows f32#0+64 -> u8#1/-1\nlinear u8#1/-1 -> f32#2\n");
  // Attention's result is quantised by an operation.
  m = std::make_unique<Made>();
  x = m->embed(64, int8);
  y = m->attention(x, x, x);
  m->linear(y, 8, int8);
  is(m->plan(),
     "embed_layernorm -> f32#0\nattention f32#0 f32#0 f32#0 -> f32#1\nquantise_rows f32#1 -> u8#2/-1\n"
     "linear u8#2/-1 -> f32#3\n");
  // FP8 has a scale for a norm's row, and for each block of a linear's.
  m = std::make_unique<Made>();
  m->on_gpu();
  x = m->embed(64, fp8), y = m->linear(x, 256, fp8), z = m->linear(y, 64, fp8, x);
  m->attention(z, z, z);
  is(m->plan(),
     "embed_layernorm -> bf16#1 f8e4m3#0/-1\nlinear f8e4m3#0/-1 -> f8e4m3#2/128\n"
     "linear f8e4m3#2/128 +bf16#1 -> bf16#3\nattention bf16#3 bf16#3 bf16#3 -> bf16#4 list 0\n");
}

// An update in place makes quantised rows that were made before invalid.
TEST(planned_updates) {
  const auto m = std::make_unique<Made>();
  const sie_value x = m->embed(64, int8), other = m->embed(64, int8);
  const sie_value q = m->view(x, 0, 32);
  m->p.ops.pop();
  m->linear(x, 8, int8), m->linear(q, 8, int8), m->linear(other, 8, int8);
  m->add(SIE_OP_QK_NORM_ROPE, {q}, 0, 0, 0, [](sie::Op *op) { op->updates = true; });
  m->linear(x, 8, int8), m->linear(q, 8, int8), m->linear(other, 8, int8);
  is(m->plan(),
     "embed_layernorm -> f32#1 u8#0/-1!\nembed_layernorm -> f32#3 u8#2/-1!\nlinear u8#0/-1! -> f32#4\n"
     "quantise_rows f32#1 -> u8#5/-1\nlinear u8#5/-1 -> f32#6\nlinear u8#2/-1! -> f32#7\nqk_norm_rope f32#1\n"
     "quantise_rows f32#1 -> u8#8/-1\nlinear u8#8/-1 -> f32#9\nquantise_rows f32#1 -> u8#10/-1\n"
     "linear u8#10/-1 -> f32#11\nlinear u8#2/-1! -> f32#12\n");
}

// Streams are f32; what needs the class's type reads rounded rows, made once, views of them, too.
TEST(planned_streams) {
  auto m = std::make_unique<Made>();
  sie_value x = m->embed(64, bf16);
  m->p.values[x].stream = true;
  sie_value v = m->view(x, 32, 32);
  m->p.ops.pop();
  m->linear(x, 8, bf16), m->linear(v, 8, bf16), m->norm(x);
  m->attention(x, x, x);
  is(m->plan(),
     "embed_layernorm -> f32#0\njoin_columns f32#0 -> bf16#1\nlinear bf16#1 -> bf16#2\nlinear bf16#1+64 -> "
     "bf16#3\nlayernorm f32#0 -> bf16#4\nattention bf16#1 bf16#1 bf16#1 -> bf16#5\n");
  // Nobody needs rounded rows: there are none. A state does.
  m = std::make_unique<Made>();
  x = m->embed(64, bf16);
  m->p.values[x].stream = true;
  m->norm(x);
  is(m->plan(), "embed_layernorm -> f32#0\nlayernorm f32#0 -> bf16#1\n");
  m->add(sie::op_state_rows, {x}, 0, 0, 0);
  is(m->plan(),
     "embed_layernorm -> f32#0\nlayernorm f32#0 -> bf16#1\njoin_columns f32#0 -> bf16#2\nstate_rows "
     "bf16#2\n");
  // Of class f32 they are rows as others are.
  m = std::make_unique<Made>();
  x = m->embed(64, f32);
  m->p.values[x].stream = true;
  m->linear(x, 8, f32);
  is(m->plan(), "embed_layernorm -> f32#0\nlinear f32#0 -> f32#1\n");
  // A sum that is a stream stays f32, on a GPU as well; others are of the class's type there.
  for (bool stream : {false, true}) {
    m = std::make_unique<Made>();
    m->on_gpu();
    x = m->embed(64, bf16);
    sie_value sum;
    m->norm(x, x, &sum);
    m->p.values[sum].stream = stream;
    const sie_value y = m->linear(x, 64, bf16, x);
    m->p.values[y].stream = stream;
    const std::string t = stream ? "f32" : "bf16";
    is(m->plan(), "embed_layernorm -> bf16#0\nlayernorm bf16#0 +bf16#0 -> bf16#1 " + t +
                      "#2\nlinear bf16#0 +bf16#0 -> " + t + "#3\n");
  }
}

// Adapters read float rows beside the quantised ones that the linear reads, which they do not change.
TEST(planned_adapters) {
  for (int32_t lora : {0, 3}) {
    auto m = std::make_unique<Made>();
    sie_value x = m->embed(64, bf16);
    m->linear(x, 8, bf16, SIE_NO_VALUE, lora);
    is(m->plan(), "embed_layernorm -> bf16#0\nlora bf16#0 -> f32#1\nlinear bf16#0 +f32#1 -> bf16#2\n");
    // A norm has both kinds of rows; a linear gets exact ones, which are quantised and rounded.
    m = std::make_unique<Made>();
    m->ops.act_dtype_int8 = SIE_BF16;
    x = m->embed(64, int8);
    sie_value y = m->linear(x, 96, int8, SIE_NO_VALUE, lora);
    m->linear(y, 8, int8, SIE_NO_VALUE, lora);
    is(m->plan(),
       "embed_layernorm -> bf16#1 u8#0/-1!\nlora bf16#1 -> f32#2\nlinear u8#0/-1! +f32#2 -> f32#3\n"
       "quantise_rows f32#3 -> u8#4/-1\njoin_columns f32#3 -> bf16#5\nlora bf16#5 -> f32#6\n"
       "linear u8#4/-1 +f32#6 -> bf16#7\n");
    // One that a norm reads, too, is of its class's type.
    m = std::make_unique<Made>();
    m->ops.act_dtype_int8 = SIE_BF16;
    x = m->embed(64, int8), y = m->linear(x, 96, int8);
    m->norm(y);
    m->linear(y, 8, int8, SIE_NO_VALUE, lora);
    is(m->plan(),
       "embed_layernorm -> bf16#1 u8#0/-1!\nlinear u8#0/-1! -> bf16#2\nlayernorm bf16#2 -> bf16#3\n"
       "quantise_rows bf16#2 -> u8#4/-1\nlora bf16#2 -> f32#5\nlinear u8#4/-1 +f32#5 -> bf16#6\n");
    // Of a view the float rows are read anyway.
    m = std::make_unique<Made>();
    m->ops.act_dtype_int8 = SIE_BF16;
    x = m->embed(64, int8), y = m->linear(x, 96, int8);
    const sie_value v = m->view(y, 32, 64);
    m->p.ops.pop();
    m->linear(v, 8, int8, SIE_NO_VALUE, lora);
    is(m->plan(),
       "embed_layernorm -> bf16#1 u8#0/-1!\nlinear u8#0/-1! -> bf16#2\nquantise_rows bf16#2+64 -> u8#3/-1\n"
       "lora bf16#2+64 -> f32#4\nlinear u8#3/-1 +f32#4 -> bf16#5\n");
    // FP8: a linear with adapters behind it keeps the blocks of its scales.
    m = std::make_unique<Made>();
    m->on_gpu();
    x = m->embed(64, fp8), y = m->linear(x, 256, fp8);
    m->linear(y, 8, fp8, SIE_NO_VALUE, lora);
    is(m->plan(),
       "embed_layernorm -> bf16#1 f8e4m3#0/-1\nlinear f8e4m3#0/-1 -> f32#2\nquantise_rows f32#2 -> "
       "f8e4m3#3/128\njoin_columns f32#2 -> bf16#4\nlora bf16#4 -> f32#5\nlinear f8e4m3#3/128 +f32#5 -> "
       "bf16#6\n");
  }
}

// Outputs take f32: other rows are widened first. On a GPU the output's kernel pools, where outputs alone read.
TEST(planned_outputs) {
  auto m = std::make_unique<Made>();
  sie_value x = m->embed(64, bf16), g = m->add(SIE_OP_GATHER_ROWS, {x}, sequences, 64, bf16), p = m->pool(x);
  m->output(SIE_OP_OUTPUT_ROWS, g), m->output(SIE_OP_OUTPUT_SPARSE, g), m->output(SIE_OP_OUTPUT_ROWS, p);
  m->output(sie::op_output_values, x);
  is(m->plan(),
     "embed_layernorm -> bf16#0\ngather_rows bf16#0 -> bf16#1\npool bf16#0 -> f32#2\npool bf16#1 -> f32#3\n"
     "output_rows f32#3\npool bf16#1 -> f32#4\noutput_sparse f32#4\noutput_rows f32#2\noutput_values "
     "bf16#0\n");
  auto gpu = [](const std::function<void(Made *, sie_value, sie_value)> &then) {
    auto made = std::make_unique<Made>();
    made->on_gpu();
    const sie_value of = made->embed(64, bf16), pooled = made->pool(of, SIE_POOL_LAST);
    then(made.get(), of, pooled);
    return made;
  };
  m = gpu([](Made *made, sie_value, sie_value pooled) {
    made->output(SIE_OP_OUTPUT_ROWS, pooled), made->output(SIE_OP_OUTPUT_ROWS, pooled);
  });
  is(m->plan(), "embed_layernorm -> bf16#0\npool_output bf16#0\npool_output bf16#0\n");
  for (const sie::PlannedOp &planned : m->p.plan) {
    const bool output = planned.op.kind == SIE_OP_POOL_OUTPUT;
    CHECK(!output || (planned.op.pooling == SIE_POOL_LAST && planned.op.in[0] == 1), "pooling %d",
          planned.op.pooling);
  }
  // Each output reads what its own rows are pooled from.
  m = gpu([](Made *made, sie_value of, sie_value pooled) {
    const sie_value other = made->pool(made->norm(of), SIE_POOL_CLS);
    made->output(SIE_OP_OUTPUT_ROWS, pooled), made->output(SIE_OP_OUTPUT_ROWS, other);
    made->output(SIE_OP_OUTPUT_ROWS, pooled);
  });
  is(m->plan(),
     "embed_layernorm -> bf16#0\nlayernorm bf16#0 -> bf16#1\npool_output bf16#0\npool_output bf16#1\n"
     "pool_output bf16#0\n");
  CHECK(m->p.plan[2].op.pooling == SIE_POOL_LAST && m->p.plan[3].op.pooling == SIE_POOL_CLS, "other pooling");
  // Somebody else reads the pooled rows, or some columns of them, or nobody at all.
  m = gpu([](Made *made, sie_value, sie_value pooled) {
    made->output(SIE_OP_OUTPUT_ROWS, pooled), made->norm(pooled);
  });
  is(m->plan(),
     "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\npool_output f32#1\nlayernorm f32#1 -> f32#2\n");
  CHECK(m->p.plan[2].op.pooling == sie::each_row && m->p.plan[2].op.in[0] == 2, "pooled again");
  m = gpu([](Made *made, sie_value, sie_value pooled) {
    const sie_value v = made->view(pooled, 8, 16);
    made->p.ops.pop();
    made->output(SIE_OP_OUTPUT_ROWS, v);
  });
  is(m->plan(), "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\npool_output f32#1+32\n");
  m = gpu([](Made *made, sie_value, sie_value pooled) { made->output(sie::op_output_values, pooled); });
  is(m->plan(), "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\noutput_values f32#1\n");
  m = gpu([](Made *, sie_value, sie_value) {});
  is(m->plan(), "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\n");
  // The rows are changed after they were pooled; and other rows than pooled ones go out as they are.
  m = gpu([](Made *made, sie_value of, sie_value pooled) {
    made->add(SIE_OP_QK_NORM_ROPE, {of}, 0, 0, 0, [](sie::Op *op) { op->updates = true; });
    made->output(SIE_OP_OUTPUT_ROWS, pooled);
  });
  is(m->plan(), "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\nqk_norm_rope bf16#0\npool_output f32#1\n");
  m = gpu([](Made *made, sie_value of, sie_value) {
    made->output(SIE_OP_OUTPUT_ROWS, made->add(SIE_OP_GATHER_ROWS, {of}, sequences, 64, bf16));
  });
  is(m->plan(),
     "embed_layernorm -> bf16#0\npool bf16#0 -> f32#1\ngather_rows bf16#0 -> bf16#2\npool_output bf16#2\n");
}

// Given rows have no buffer; what is found has two passes and a buffer between them.
TEST(planned_given_and_found_rows) {
  const auto m = std::make_unique<Made>();
  const sie_value x = m->embed(64, bf16);
  sie::Op none = sie::new_op(SIE_OP_LINEAR);
  none.out = m->next();
  const sie_value given = none.out;
  CHECK(sie::append(&m->p, none, made::queries, f32, 64, nullptr) == SIE_OK, "no memory");
  m->p.ops.pop();
  m->p.values[given].given = made::query_rows;
  m->p.values[given].column = 4;
  m->p.inputs[made::query_rows].columns = 80;
  m->p.n_outputs = 1;
  m->add(SIE_OP_SPANS, {x, x, given}, 0, 0, 0, [](sie::Op *op) {
    op->widest = 3;
    op->inputs[0] = made::of_sequence;
  });
  is(m->plan(),
     "embed_layernorm -> bf16#0\nspans bf16#0 bf16#0 given+16 found i32#1\nspans bf16#0 bf16#0 given+16 "
     "found "
     "i32#1 written\n");
  const sie::Operand &o = m->p.plan[1].in[2];
  CHECK(o.ld == 80 && o.offset == 16 && o.dtype == SIE_F32 && o.buffer == -1, "given rows %lld apart",
        static_cast<long long>(o.ld));
}

// A state's segments: the type of what they hold, and rows that avoid multiples of 2 KiB.
TEST(planned_states) {
  for (bool reads : {false, true}) {
    for (uint32_t compute : {f32, bf16}) {
      const auto m = std::make_unique<Made>();
      const sie_value x = m->embed(64, compute);
      m->p.state.declared = true;
      m->p.state.rows = reads ? made::of_sequence : 0;
      m->p.state.segments[2].columns = 512 + 64, m->p.state.segments[5].columns = compute == f32 ? 512 : 1024;
      for (int32_t segment : {2, 5}) {
        if (reads) m->attention(x, x, x, [segment](sie_attention_params *a) { a->segment = segment; });
        if (!reads) {
          m->add(sie::op_state_rows, {x}, 0, 0, 0, [segment](sie::Op *op) { op->segment = segment; });
        }
      }
      m->plan();
      const int64_t element = compute == f32 ? 4 : 2, first = 576 * element, second = 2048 + 64;
      const sie::Segment &a = m->p.state.segments[2], &b = m->p.state.segments[5];
      CHECK(a.before == 0 && a.ld == 576 && b.before == first && b.ld == second / element &&
                m->p.state.row_bytes == first + second && a.dtype == (compute == f32 ? SIE_F32 : SIE_BF16) &&
                b.dtype == a.dtype,
            "segments of %lld and %lld columns, %lld bytes", static_cast<long long>(a.ld),
            static_cast<long long>(b.ld), static_cast<long long>(m->p.state.row_bytes));
    }
  }
}

// Rows begin on 64 bytes, and on a CPU not at multiples of 2 KiB; parts have the room of a slab.
TEST(planned_rows_are_apart) {
  for (bool gpu : {false, true}) {
    const struct {
      int64_t columns, row;
    } cases[] = {{1, 64},
                 {16, 64},
                 {17, 128},
                 {496, 1984},
                 {512, gpu ? 2048 : 2112},
                 {513, 2112},
                 {1024, gpu ? 4096 : 4160},
                 {768, 3072},
                 {1536, gpu ? 6144 : 6208}};
    for (const auto &t : cases) {
      const auto m = std::make_unique<Made>();
      if (gpu) m->on_gpu();
      m->p.caps.max_rows = m->p.caps.max_extents = 299;
      m->embed(t.columns, f32);
      m->plan();
      const sie::Buffer &b = m->p.buffers[0];
      const int64_t bytes = 299 * t.row, round = gpu ? 256 : 64;
      CHECK(b.ld * 4 == t.row && b.bytes == (bytes + round - 1) / round * round && b.columns == t.columns,
            "%lld columns are %lld bytes apart, %lld bytes", static_cast<long long>(t.columns),
            static_cast<long long>(b.ld * 4), static_cast<long long>(b.bytes));
    }
  }
}

// On a GPU attention of one shape shares a work list; each difference makes another, of at most eight.
TEST(planned_work_lists) {
  using Change = std::function<void(sie_attention_params *)>;
  const Change same = [](sie_attention_params *) {};
  auto lists = [](const std::vector<Change> &all) {
    const auto m = std::make_unique<Made>();
    m->on_gpu();
    const sie_value x = m->embed(64, bf16);
    for (const Change &change : all) m->attention(x, x, x, change);
    m->p.state.rows = made::of_sequence;
    m->plan();
    std::vector<int32_t> work;
    for (const sie::PlannedOp &planned : m->p.plan) {
      if (planned.op.kind == SIE_OP_ATTENTION) work.push_back(planned.work);
    }
    CHECK(m->p.plan[0].work == -1, "an embedding has a list");
    // Lists of a plan before are none of this one's.
    const int32_t count = m->p.n_work_lists;
    m->plan();
    CHECK(m->p.n_work_lists == count, "%d lists, %d before", m->p.n_work_lists, count);
    return work;
  };
  using List = std::vector<int32_t>;
  CHECK(lists({same, same, same}) == (List{0, 0, 0}), "equal attention has several lists");
  const Change others[] = {[](sie_attention_params *a) { a->heads = 4; },
                           [](sie_attention_params *a) { a->head_dim = 16; },
                           [](sie_attention_params *a) { a->kv_heads = 1; },
                           [](sie_attention_params *a) { a->mask = SIE_MASK_CAUSAL; },
                           [](sie_attention_params *a) { a->window = 7; },
                           [](sie_attention_params *a) { a->which = SIE_POOL_LAST; },
                           [](sie_attention_params *a) { a->first_keys = 1; },
                           [](sie_attention_params *a) { a->segment = 3; }};
  for (const Change &other : others) {
    CHECK(lists({same, other, same, other}) == (List{0, 1, 0, 1}), "another shape has the same list");
  }
  // All rows of a state count alike; what else differs makes no other list.
  CHECK(lists({others[7], [](sie_attention_params *a) { a->segment = 4; }}) == (List{0, 0}),
        "segments have lists");
  CHECK(lists({same, [](sie_attention_params *a) { a->scale = 3; }}) == (List{0, 0}), "scales have lists");
  // Of other spaces, and of another type.
  const auto m = std::make_unique<Made>();
  m->on_gpu();
  const sie_value x = m->embed(64, bf16), y = m->embed(64, f16);
  const sie_value w = m->add(SIE_OP_TAKE_ROWS, {x}, words, 64, bf16);
  m->attention(x, x, x), m->attention(x, w, w), m->attention(w, x, x), m->attention(y, y, y),
      m->attention(x, w, w);
  m->plan();
  List work;
  for (const sie::PlannedOp &planned : m->p.plan) {
    if (planned.op.kind == SIE_OP_ATTENTION) work.push_back(planned.work);
  }
  CHECK(work == (List{0, 1, 2, 3, 1}), "lists of other spaces");
  for (int count : {8, 9}) {
    const auto many = std::make_unique<Made>();
    many->on_gpu();
    const sie_value a = many->embed(64, bf16);
    for (int i = 0; i < count; i++)
      many->attention(a, a, a, [i](sie_attention_params *of) { of->window = i; });
    many->plan(count == 8 ? SIE_OK : SIE_UNSUPPORTED,
               count == 8 ? "" : "attention of more than 8 different shapes");
    CHECK(many->p.n_work_lists == 8, "%d lists", many->p.n_work_lists);
  }
  // On a CPU there are none.
  const auto cpu = std::make_unique<Made>();
  const sie_value a = cpu->embed(64, bf16);
  cpu->attention(a, a, a);
  is(cpu->plan(), "embed_layernorm -> bf16#0\nattention bf16#0 bf16#0 bf16#0 -> bf16#1\n");
}

namespace {

// What the made-up table was asked of a linear's weight, and what it answers.
const sie_packed *asked_weight;
const sie_stream *asked_stream;
int asked_times;
int32_t pays;

int32_t linear_norm_pays(const sie_packed *w, const sie_stream *on) {
  asked_weight = w, asked_stream = on;
  asked_times++;
  return pays;
}

// Of a GPU that has linear_norm: a linear with the residual x, and its norm.
struct WithNorm : Made {
  sie_value x, y, z;

  explicit WithNorm(uint32_t compute = bf16) {
    on_gpu();
    ops.linear_norm = [](const sie_linear_norm_args *, const sie_share *) { return SIE_OK; };
    ops.linear_norm_pays = linear_norm_pays;
    pays = 1, asked_times = 0;
    x = embed(64, compute), y = linear(x, 64, compute, x), z = norm(y);
  }
  sie::Op &of_linear() { return p.ops[1]; }
  sie::Op &of_norm() { return p.ops[2]; }
};

using ChangeNorm = std::function<void(WithNorm *)>;

}  // namespace

// A linear and the norm behind it are one operation where the table has it pay, whatever the batch.
TEST(planned_norms_of_linears) {
  for (uint32_t compute : {bf16, f16}) {
    for (int64_t rows : {1, 16, 512, 100000}) {
      const auto m = std::make_unique<WithNorm>(compute);
      m->p.caps.max_rows = m->p.caps.max_extents = rows;
      m->linear(m->z, 8, compute);
      float bias[64], gamma[64], beta[64];
      m->of_linear().bias = bias;
      m->of_linear().norm = SIE_NORM_RMS;  // of a linear it says nothing
      sie::Op &norm = m->of_norm();
      norm.gamma = gamma, norm.beta = beta, norm.eps = 0.25f, norm.weight_offset = 1;
      const std::string t = compute == bf16 ? "bf16" : "f16";
      is(m->plan(), "embed_layernorm -> " + t + "#0\nlinear_norm " + t + "#0 +" + t + "#0 -> " + t +
                        "#1\nlinear " + t + "#1 -> " + t + "#2\n");
      const sie::Op &op = m->p.plan[1].op;
      CHECK(op.out == m->z && op.in[0] == m->x && op.residual == m->x &&
                op.weights[0] == m->of_linear().weights[0],
            "another operation");
      CHECK(op.bias == bias && op.gamma == gamma && op.beta == beta && op.eps == 0.25f &&
                op.weight_offset == 1 && op.norm == SIE_NORM_LAYER,
            "another norm");
      CHECK(asked_times == 1 && asked_weight == &m->of_linear().weights[0]->packed &&
                asked_stream == &m->device.on,
            "the table is asked of another weight or card, %d times", asked_times);
      CHECK(m->p.buffers.size() == 3, "the rows between have a buffer");
    }
  }
  // The result takes the memory of a residual that nobody reads any more.
  auto m = std::make_unique<WithNorm>();
  m->norm(m->linear(m->linear(m->z, 96, bf16), 64, bf16, m->z));
  is(m->plan(),
     "embed_layernorm -> bf16#0\nlinear_norm bf16#0 +bf16#0 -> bf16#1\nlinear bf16#1 -> bf16#2\n"
     "linear_norm bf16#2 +bf16#1 -> bf16#3\n");
  CHECK(m->p.buffers[3].shares == 1, "the result has memory of its own");
  // Each of two layers, and each by its own weight.
  m = std::make_unique<WithNorm>();
  m->norm(m->linear(m->z, 64, bf16, m->z));
  is(m->plan(),
     "embed_layernorm -> bf16#0\nlinear_norm bf16#0 +bf16#0 -> bf16#1\nlinear_norm bf16#1 +bf16#1 -> "
     "bf16#2\n");
  m->ops.linear_norm_pays = [](const sie_packed *w, const sie_stream *) {
    if (asked_times++ == 0) asked_weight = w;
    return w == asked_weight ? 0 : 7;
  };
  asked_times = 0;
  is(m->plan(),
     "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"
     "linear_norm bf16#2 +bf16#2 -> bf16#3\n");
}

// They stay two where one of them does more, somebody else reads the rows between, or types differ.
TEST(planned_norms_that_stay_alone) {
  const struct {
    const char *what;
    ChangeNorm change;
    const char *plan;  // null: the two operations, on bf16 rows
  } cases[] = {
      {"the table says no", [](WithNorm *) { pays = 0; }, nullptr},
      {"the table has no answer", [](WithNorm *m) { m->ops.linear_norm_pays = nullptr; }, nullptr},
      {"a gate", [](WithNorm *m) { m->of_linear().gate = SIE_GATE_SWIGLU; }, nullptr},
      {"an activation", [](WithNorm *m) { m->of_linear().act = SIE_ACT_TANH; }, nullptr},
      {"an adapter", [](WithNorm *m) { m->of_linear().lora = 0; },
       "embed_layernorm -> bf16#0\nlora bf16#0 -> f32#1\nlinear bf16#0 +f32#1 +bf16#0 -> bf16#2\n"
       "layernorm bf16#2 -> bf16#3\n"},
      {"no residual",
       [](WithNorm *m) {
         m->of_linear().residual = SIE_NO_VALUE;
         m->p.values[SIE_NO_VALUE].buffer = 0;  // whose rows are of y's type
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"},
      {"a residual in f32", [](WithNorm *m) { m->p.values[m->x].stream = true; },
       "embed_layernorm -> f32#0\njoin_columns f32#0 -> bf16#1\nlinear bf16#1 +f32#0 -> bf16#2\n"
       "layernorm bf16#2 -> bf16#3\n"},
      {"rows between in f32", [](WithNorm *m) { m->p.values[m->y].stream = true; },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> f32#1\nlayernorm f32#1 -> bf16#2\n"},
      {"a result in f32", [](WithNorm *m) { m->p.values[m->z].stream = true; },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> f32#2\n"},
      {"another norm", [](WithNorm *m) { m->of_norm().norm = SIE_NORM_RMS; }, nullptr},
      {"a bias of the norm",
       [](WithNorm *m) {
         static const float bias[64] = {};
         m->of_norm().bias = bias;
       },
       nullptr},
      {"a residual of the norm", [](WithNorm *m) { m->of_norm().residual = m->x; },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 +bf16#0 -> bf16#2\n"},
      {"a sum of the norm",
       [](WithNorm *m) {
         m->p.ops.pop();
         sie_value sum;
         m->norm(m->y, SIE_NO_VALUE, &sum);
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2 bf16#3\n"},
      {"another reader", [](WithNorm *m) { m->linear(m->y, 8, bf16); },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"
       "linear bf16#1 -> bf16#3\n"},
      {"an output of the rows between", [](WithNorm *m) { m->output(sie::op_output_values, m->y); },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"
       "output_values bf16#1\n"},
      {"a reader of some columns",
       [](WithNorm *m) {
         const sie_value v = m->view(m->y, 8, 16);
         m->p.ops.pop();
         m->linear(v, 8, bf16);
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"
       "linear bf16#1+16 -> bf16#3\n"},
      {"a norm of a view",
       [](WithNorm *m) {
         m->p.ops.pop();
         const sie_value v = m->view(m->y, 0, 64);
         m->p.ops.pop();
         m->norm(v);
       },
       nullptr},
      {"a norm of other rows", [](WithNorm *m) { m->of_norm().in[0] = m->x; },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#0 -> bf16#2\n"},
      {"a norm of other rows, and another reader of these",
       [](WithNorm *m) {
         m->of_norm().in[0] = m->x;
         m->linear(m->y, 8, bf16);
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#0 -> bf16#2\n"
       "linear bf16#1 -> bf16#3\n"},
      {"an operation between",
       [](WithNorm *m) {
         m->p.ops.pop();
         m->linear(m->x, 8, bf16), m->norm(m->y);
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nlinear bf16#0 -> bf16#2\n"
       "layernorm bf16#1 -> bf16#3\n"},
      {"no norm behind it",
       [](WithNorm *m) {
         m->p.ops.pop();
         m->add(SIE_OP_PRODUCT, {m->y, m->x}, tokens, 64, bf16);
       },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\nproduct bf16#1 bf16#0 -> bf16#2\n"},
      {"no linear before it", [](WithNorm *m) { m->of_linear().kind = SIE_OP_PRODUCT; },
       "embed_layernorm -> bf16#0\nproduct bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\n"},
      {"nothing behind it", [](WithNorm *m) { m->p.ops.pop(); },
       "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\n"},
  };
  for (const auto &t : cases) {
    const auto m = std::make_unique<WithNorm>();
    t.change(m.get());
    const std::string got = m->plan();
    const std::string want = t.plan != nullptr
                                 ? t.plan
                                 : "embed_layernorm -> bf16#0\nlinear bf16#0 +bf16#0 -> bf16#1\n"
                                   "layernorm bf16#1 -> bf16#2\n";
    CHECK(got == want, "%s, planned:\n%sexpected:\n%s", t.what, got.c_str(), want.c_str());
  }
  // Rows of class F32 have no 16 bits, and quantised rows have no linear_norm.
  is(std::make_unique<WithNorm>(f32)->plan(),
     "embed_layernorm -> f32#0\nlinear f32#0 +f32#0 -> f32#1\nlayernorm f32#1 -> f32#2\n");
  is(std::make_unique<WithNorm>(fp8)->plan(),
     "embed_layernorm -> bf16#1 f8e4m3#0/-1\nlinear f8e4m3#0/-1 +bf16#1 -> bf16#2\nlayernorm bf16#2 -> "
     "bf16#3\n");
  // In class FP8 a matrix of BF16 has one, unless a norm's rows, or those between, are wanted quantised.
  for (int reader : {0, 1, 2}) {
    const auto m = std::make_unique<WithNorm>(fp8);
    m->of_linear().weights[0] = m->weight(SIE_WEIGHT_LINEAR, 64, 64, bf16);
    const_cast<sie_weight *>(m->of_linear().weights[0])->packed.compute = bf16;
    if (reader > 0) m->linear(reader == 1 ? m->z : m->y, 8, fp8);
    const std::string last[] = {
        "linear_norm bf16#0 +bf16#0 -> bf16#1\n",
        "linear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#3 f8e4m3#2/-1\nlinear f8e4m3#2/-1 -> "
        "bf16#4\n",
        "linear bf16#0 +bf16#0 -> bf16#1\nlayernorm bf16#1 -> bf16#2\nquantise_rows bf16#1 -> f8e4m3#3/-1\n"
        "linear f8e4m3#3/-1 -> bf16#4\n"};
    is(m->plan(), "embed_layernorm -> bf16#0\n" + last[reader]);
  }
}

// A program that ends: what it must have, and the workspace that it asks for.
TEST(planned_programs_end) {
  auto made = [] {
    auto m = std::make_unique<Made>();
    m->output(SIE_OP_OUTPUT_ROWS, m->pool(m->embed(64, f32)));
    return m;
  };
  sie_workspace workspace = {};
  auto m = made();
  SAYS("program or workspace is NULL", sie_program_end(nullptr, &workspace, &err));
  SAYS("program or workspace is NULL", sie_program_end(&m->p, nullptr, &err));
  m->p.seqs = 0;
  SAYS("declares no space of the kind SEQS", sie_program_end(&m->p, &workspace, &err));
  m = made();
  m->p.rows = 0;
  SAYS("declares no space of the kind ROWS", sie_program_end(&m->p, &workspace, &err));
  m = made();
  m->p.n_outputs = 0;
  SAYS("declares no output", sie_program_end(&m->p, &workspace, &err));
  m->p.state.declared = true;
  m->p.state.rows = made::of_sequence;  // it reads
  SAYS("declares no output", sie_program_end(&m->p, &workspace, &err));
  m->p.state.rows = 0;
  m->p.ops.pop();
  PASSES(sie_program_end(&m->p, &workspace, &err));
  for (bool region : {false, true}) {
    m = made();
    if (region) m->p.caps.max_len = 700;
    // What an end that was refused has left.
    m->p.scratch_bytes = m->p.values_bytes = m->p.late_bytes = m->p.long_scratch_bytes = 1 << 20;
    m->p.long_row_bytes = m->p.long_stage_bytes = m->p.long_fixed_bytes = 1 << 20;
    PASSES(sie_program_end(&m->p, &workspace, &err));
    CHECK(m->p.ended && workspace.lane == sie::lane_bytes(&m->p) &&
              workspace.region == sie::region_bytes(&m->p) && workspace.lane < 1 << 20 &&
              (workspace.region > 0) == region,
          "%lld bytes a lane, %lld in the region", static_cast<long long>(workspace.lane),
          static_cast<long long>(workspace.region));
    SAYS("is ended already", sie_program_end(&m->p, &workspace, &err));
  }
  // On a GPU a batch's inputs lie behind the lane.
  m = made();
  m->on_gpu();
  SAYS("no GPU", sie_program_end(&m->p, &workspace, &err), SIE_INTERNAL);
  CHECK(!m->p.ended, "a program that no GPU has ended is ended");
  sie::hooks::gpu_inputs = 12345;
  PASSES(sie_program_end(&m->p, &workspace, &err));
  sie::hooks::gpu_inputs = 0;
  CHECK(m->p.ended && workspace.lane == sie::lane_bytes(&m->p) + 12345 && workspace.region == 0,
        "%lld bytes a lane, %lld in the region", static_cast<long long>(workspace.lane),
        static_cast<long long>(workspace.region));
}
