// describe_test.cc — the text of a program: every line that a made-up program can have, and buffers that
// are too short for it.
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "program.h"
#include "record.h"
#include "tests/check.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, kept = 3, queries = 4;

// A program of four spaces, two inputs and three values: v1 and v3 of tokens, v2 is columns 8 to 23 of v1.
struct Made {
  sie_device device;
  sie_program p;
  sie_weight table, matrix, odd;

  Made() {
    device.kind = SIE_DEVICE_CPU;
    device.threads = 3;
    p.device = &device;
    p.seqs = sequences;
    space(tokens, SIE_SPACE_ROWS, "tokens");
    space(sequences, SIE_SPACE_SEQS, "sequences");
    input(1, tokens, SIE_I32, "ids");
    input(2, tokens, SIE_U8, "keep");
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
    for (sie_value v = 1; v <= 3; v++) {
      sie::Op op = sie::new_op(SIE_OP_LINEAR);
      op.out = v;
      CHECK(sie::append(&p, op, tokens, SIE_COMPUTE_F32, v == 2 ? 16 : 32, nullptr) == SIE_OK, "no memory");
    }
    p.values[2].base = 1;
    p.values[2].column = 8;
    p.ops.clear();
    table.n = 97, table.k = 32;
    matrix.n = 64, matrix.k = 7;
    matrix.compute = SIE_COMPUTE_INT8;
    odd.k = 11;
    p.n_outputs = 1;
    p.outputs[0] = {SIE_FORM_ROWS, sequences, 32, {}};
    strcpy(p.outputs[0].name.text, "o");
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  sie::Space &space(sie_space number, uint32_t kind, const char *name) {
    sie::Space &s = p.spaces[number];
    s.kind = kind;
    s.max_rows = 40 + number, s.max_each = 20 + number;
    strcpy(s.name.text, name);
    return s;
  }
  sie::Input &input(sie_input number, sie_space of, int32_t dtype, const char *name) {
    sie::Input &i = p.inputs[number];
    i.space = of;
    i.dtype = dtype;
    strcpy(i.name.text, name);
    return i;
  }

  std::string text() const {
    const size_t need = sie_program_describe(&p, nullptr, 0);
    std::string all(need + 1, 'x');
    CHECK(sie_program_describe(&p, &all[0], all.size()) == need, "two lengths");
    CHECK(all[need] == '\0' && strlen(all.c_str()) == need, "a text of %zu, %zu promised",
          strlen(all.c_str()), need);
    all.resize(need);
    return all;
  }
  // The line of an operation of a program that is not ended, without its name.
  std::string line(const sie::Op &op) {
    p.ops.clear();
    CHECK(p.ops.push(op), "no memory");
    const std::string all = text();
    return all.substr(all.rfind('\n', all.size() - 2) + 1);
  }
};

void is(const std::string &got, const std::string &want) {
  CHECK(got == want, "\"%s\", \"%s\" expected", got.c_str(), want.c_str());
}

sie::Op op_of(uint32_t kind) { return sie::new_op(kind); }

}  // namespace

TEST(described_operations) {
  const auto m = std::make_unique<Made>();
  sie::Op op = op_of(SIE_OP_LINEAR);
  op.weights[0] = &m->matrix;
  op.in[0] = 1, op.out = 3;
  is(m->line(op), "linear           int8 v1[tokens, 32] -> v3[tokens, 32]\n");
  const float bias = 0;
  op.bias = &bias;
  op.act = SIE_ACT_TANH, op.gate = SIE_GATE_GEGLU;
  op.residual = 2;
  is(m->line(op),
     "linear           int8 bias tanh geglu v1[tokens, 32] +  v2[tokens, 16] (columns 8 to 23 of v1) -> "
     "v3[tokens, 32]\n");
  m->p.values[1].stream = true;
  is(m->line(op),
     "linear           int8 bias tanh geglu v1[tokens, 32, stream] +  v2[tokens, 16, stream] (columns 8 to "
     "23 "
     "of v1) -> v3[tokens, 32]\n");
  m->p.values[1].stream = false;

  op = op_of(SIE_OP_LINEAR_NORM);
  op.weights[0] = &m->matrix;
  op.in[0] = op.residual = 1, op.out = 3;
  op.bias = &bias;
  is(m->line(op), "linear_norm      int8 bias v1[tokens, 32] +  v1[tokens, 32] -> v3[tokens, 32]\n");

  op = op_of(SIE_OP_EMBED_LAYERNORM);
  op.weights[0] = &m->table;
  op.inputs[0] = 1;
  op.norm = SIE_NORM_RMS;
  is(m->line(op), "embed_layernorm  rms vocabulary 97 by ids\n");
  op.weights[1] = &m->table;
  is(m->line(op), "embed_layernorm  rms vocabulary 97 by ids position\n");
  op.weights[2] = &m->table;
  is(m->line(op), "embed_layernorm  rms vocabulary 97 by ids position type\n");
  op.inputs[1] = 2;
  is(m->line(op), "embed_layernorm  rms vocabulary 97 by ids position rows by keep\n");

  op = op_of(SIE_OP_LAYERNORM);
  op.in[0] = 1, op.out = 2, op.sum = 3;
  is(m->line(op),
     "layernorm        v1[tokens, 32] -> v2[tokens, 16] (columns 8 to 23 of v1) and the sum v3[tokens, "
     "32]\n");

  op = op_of(sie::op_state_rows);
  op.segment = 5;
  is(m->line(op), "state_rows       to segment 5\n");

  op = op_of(SIE_OP_TAKE_ROWS);
  // The third input is not this operation's.
  op.inputs[2] = 1;
  is(m->line(op), "take_rows        of its sequence\n");
  op.pooling = SIE_POOL_MEAN;
  op.inputs[0] = 2, op.inputs[1] = 1;
  is(m->line(op), "take_rows        mean by keep by ids\n");
  op.inputs[1] = 0;
  is(m->line(op), "take_rows        mean by keep\n");

  op = op_of(SIE_OP_LSTM);
  op.weights[0] = &m->matrix;
  is(m->line(op), "lstm             forward\n");
  op.weights[1] = &m->matrix;
  is(m->line(op), "lstm             forward reverse\n");
  op.weights[0] = nullptr;
  is(m->line(op), "lstm             reverse\n");

  op = op_of(SIE_OP_SOFTMAX);
  op.eps = 0.5f;
  is(m->line(op), "softmax          times 0.5\n");

  op = op_of(SIE_OP_JOIN_COLUMNS);
  op.in[0] = 1, op.in[1] = 2, op.out = 3;
  is(m->line(op),
     "join_columns     v1[tokens, 32] v2[tokens, 16] (columns 8 to 23 of v1) -> v3[tokens, 32]\n");
  op.in[1] = SIE_NO_VALUE, op.out = 1;
  is(m->line(op), "join_columns     rounded v1[tokens, 32] -> v1[tokens, 32]\n");

  m->p.n_adapters = 9;
  op = op_of(SIE_OP_LORA);
  op.inputs[0] = 2;
  is(m->line(op), "lora             9 adapters by keep\n");

  op = op_of(SIE_OP_MAXSIM);
  op.inputs[0] = 2, op.inputs[1] = 1;
  is(m->line(op), "maxsim           with keep by ids\n");

  op = op_of(SIE_OP_GATHER_ROWS);
  op.pooling = SIE_POOL_LAST;
  is(m->line(op), "gather_rows      last\n");
  op.kind = SIE_OP_POOL, op.pooling = SIE_POOL_ABS_MEAN;
  is(m->line(op), "pool             abs_mean\n");
  op.kind = SIE_OP_POOL_OUTPUT, op.pooling = SIE_POOL_MEAN_SQRT;
  is(m->line(op), "pool_output      mean_sqrt to o\n");
  op = op_of(sie::op_output_values);
  is(m->line(op), "output_values    to o\n");
  op = op_of(SIE_OP_PRODUCT);
  is(m->line(op), "product         \n");

  op = op_of(SIE_OP_SPANS);
  op.widest = 12;
  is(m->line(op), "spans            of at most 12 words to o\n");
  op.inputs[0] = 1;
  is(m->line(op), "spans            of at most 12 words, labels by ids to o\n");
  op.kind = SIE_OP_PAIRS;
  op.weights[0] = &m->matrix;
  op.n_logits = 3;
  is(m->line(op), "pairs            int8, 3 logits, labels by ids to o\n");
}

TEST(described_attention) {
  const auto m = std::make_unique<Made>();
  sie::Op op = op_of(SIE_OP_QK_NORM_ROPE);
  sie_rope_params &r = op.rope;
  r.heads = 8, r.kv_heads = 2, r.head_dim = 64, r.rot = 32;
  const std::string heads = "qk_norm_rope     8 and 2 heads of 64, 32 columns";
  is(m->line(op), heads + ", in place\n");
  r.q_gamma = &m->table;
  is(m->line(op), heads + ", norm, in place\n");
  r.q_gamma = nullptr, r.k_gamma = &m->table;
  is(m->line(op), heads + ", norm, in place\n");
  r.behind = 1;
  is(m->line(op), heads + ", norm, in place, behind the prefix\n");
  r.turns = &m->matrix, r.cos = &m->table;
  is(m->line(op), heads + ", norm, in place, behind the prefix, by length beyond 97\n");

  op = op_of(SIE_OP_ATTENTION);
  sie_attention_params &a = op.attention;
  a.heads = 8, a.kv_heads = 2, a.head_dim = 64;
  a.mask = SIE_MASK_WINDOW;
  std::string want = "attention        8 heads over 2 of 64, window";
  is(m->line(op), want + "\n");
  const float slopes = 0;
  op.vector = &slopes;
  is(m->line(op), (want += ", alibi") + "\n");
  a.bias = &m->odd;
  is(m->line(op), (want += ", bias by distance to 5") + "\n");
  a.buckets = &m->odd;
  is(m->line(op), want + ", disentangled by distance to 5\n");
  a.pos_key = &m->table;
  is(m->line(op), want + ", disentangled pos_key by distance to 5\n");
  a.pos_query = &m->table;
  is(m->line(op), (want += ", disentangled pos_key pos_query by distance to 5") + "\n");
  a.first_keys = 1;
  is(m->line(op), (want += ", first keys") + "\n");
  a.segment = 4;
  is(m->line(op), (want += ", behind segment 4 of the state") + "\n");
  a.which = SIE_POOL_LAST;
  is(m->line(op), (want += ", one query: last") + "\n");
}

TEST(described_declarations) {
  const auto m = std::make_unique<Made>();
  m->p.spaces[tokens].min_each = 1;
  m->space(kept, SIE_SPACE_SUBSET, "kept").marks = 2;
  m->space(queries, SIE_SPACE_SHARED, "queries");
  m->p.inputs[1].read = true;
  m->p.inputs[2].optional = true;
  m->p.inputs[2].otherwise = 1;
  m->input(20, queries, SIE_F32, "rows").columns = 8;
  m->p.outputs[1] = {SIE_FORM_FOUND, sequences, 4, {}};
  strcpy(m->p.outputs[1].name.text, "second");
  const std::string spaces =
      "space sequences: one row a sequence, at most 42\n"
      "space kept: rows of tokens by keep\n"
      "space queries: at most 44 rows of the batch\n"
      "input ids: i32[tokens]\n"
      "input keep: u8[tokens], else 1, not read\n"
      "input rows: f32[queries, 8], not read\n"
      "output o: rows by items of sequences, 32 columns\n";
  is(m->text(), "space tokens: at most 41 rows, 21 a sequence, at least 1\n" + spaces);
  m->p.spaces[tokens].min_each = 0;
  is(m->text(), "space tokens: at most 41 rows, 21 a sequence\n" + spaces);
  m->p.n_outputs = 2;
  const std::string both = m->text().substr(0, m->text().rfind("output ")) +
                           "output second: found by items of sequences, 4 columns\n";
  is(m->text(), both);
  m->p.state.declared = true;
  m->p.state.max_rows = 77;
  is(m->text(), both + "state of at most 77 rows, written: 0 B\n");
  m->p.state.rows = 1;
  is(m->text(), both + "state of at most 77 rows, read: 0 B\n");
}

TEST(described_plans) {
  const auto m = std::make_unique<Made>();
  m->p.inputs[1].space = m->p.inputs[2].space = 0;
  m->p.spaces[tokens].kind = m->p.spaces[sequences].kind = 0;
  m->p.n_outputs = 0;
  m->p.ended = true;
  m->p.slab_tokens = 512, m->p.slab_seqs = 16;
  m->p.scratch_bytes = 128, m->p.values_bytes = 640;
  const std::string slabs =
      "slabs of at most 512 tokens, 16 sequences; 3 lanes of 768 B, scratch 128 B of each\n";
  is(m->text(), slabs);
  m->p.region_tokens = 1024;
  m->p.caps.max_len = 1024;
  m->p.long_row_bytes = 10, m->p.long_stage_bytes = 3, m->p.stage_rows = 48, m->p.long_scratch_bytes = 64;
  is(m->text(),
     slabs +
         "region of 1024 tokens for longer sequences, 10384 B: 10 B a token, and 3 B for each of 48 "
         "rows; scratch up to 64 B of a lane\n");
  m->p.region_tokens = 0;
  // Each result has a place; what is behind the end of the plan is nobody's.
  for (int32_t i = 0; i < 3; i++) {
    sie::Buffer b = {};
    b.offset = 1000 * i, b.bytes = 100 + i;
    b.shares = i - 1;
    CHECK(m->p.buffers.push(b), "no memory");
  }
  auto at = [](int32_t buffer, int32_t dtype) {
    sie::Operand o = {};
    o.present = true;
    o.buffer = buffer;
    o.dtype = dtype;
    return o;
  };
  sie::PlannedOp planned = {};
  planned.op = op_of(SIE_OP_LAYERNORM);
  planned.out = at(0, SIE_F32), planned.sum = at(1, SIE_BF16), planned.quantised = at(2, SIE_U8);
  CHECK(m->p.plan.push(planned), "no memory");
  planned = {};
  planned.op = op_of(SIE_OP_SPANS);
  planned.op.widest = 2;
  planned.found = at(1, SIE_I32);
  CHECK(m->p.plan.push(planned), "no memory");
  planned.writes = true;
  CHECK(m->p.plan.push(planned), "no memory");
  CHECK(m->p.plan.push(planned), "no memory");
  m->p.plan.pop();
  const std::string plan =
      "  0 layernorm        f32 @0 100 B bf16 @1000 101 B in place u8 @2000 102 B in place\n"
      "  1 spans            of at most 2 words to o, found i32 @1000 101 B in place\n"
      "  2 spans            of at most 2 words to o, written i32 @1000 101 B in place\n";
  is(m->text(), slabs + plan);
  m->device.kind = SIE_DEVICE_CUDA;
  m->p.n_work_lists = 4;
  is(m->text(), "arena: input 0 B, values 640 B, scratch 128 B; 4 work lists\n" + plan);
}

// Whatever room there is, the text is as long, what fits is its beginning, and nothing behind is touched.
TEST(described_in_short_buffers) {
  const auto m = std::make_unique<Made>();
  const std::string all = m->text();
  CHECK(all.size() > 100, "a short text");
  for (size_t cap = 0; cap <= all.size() + 2; cap++) {
    std::vector<char> buffer(all.size() + 8, 'x');
    CHECK(sie_program_describe(&m->p, buffer.data(), cap) == all.size(), "another length with room for %zu",
          cap);
    const size_t shown = cap == 0 ? 0 : std::min(cap - 1, all.size());
    CHECK(memcmp(buffer.data(), all.data(), shown) == 0 && (cap == 0 || buffer[shown] == '\0'),
          "another text with room for %zu", cap);
    for (size_t i = cap == 0 ? 0 : shown + 1; i < buffer.size(); i++)
      CHECK(buffer[i] == 'x', "byte %zu is touched with room for %zu", i, cap);
  }
  CHECK(sie_program_describe(&m->p, nullptr, 99) == all.size(), "no buffer has room");
  char none[] = "xx";
  CHECK(sie_program_describe(nullptr, none, 2) == 0 && none[0] == '\0' && none[1] == 'x',
        "no program has a text");
}
