// record_check_test.cc — the checks that recording functions share, one by one and at their bounds, on
// made-up programs.
#include <math.h>
#include <string.h>

#include <initializer_list>
#include <string>

#include "record.h"
#include "says.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, words = 3;

// A program with two values of tokens and one of sequences; inputs 1 (tokens) and 20 (sequences).
struct Made {
  sie_ops ops = {};
  sie_device device;
  sie_program p;
  sie_weight w;

  Made() {
    device.kind = SIE_DEVICE_CPU;
    p.device = &device;
    p.seqs = sequences;
    space(tokens, SIE_SPACE_ROWS, "tokens");
    space(sequences, SIE_SPACE_SEQS, "sequences");
    space(words, SIE_SPACE_ROWS, "words");
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
    for (sie_value v = 1; v <= 4; v++) {
      sie::Op op = sie::new_op(SIE_OP_LINEAR);
      op.out = v;
      const sie_space of = v == 3 ? sequences : v == 4 ? words : tokens;
      CHECK(sie::append(&p, op, of, SIE_COMPUTE_F32, 16, nullptr) == SIE_OK, "no memory");
    }
    input(1, tokens, "ids");
    input(20, sequences, "last");
    w.device = &device;
    w.n = 8, w.k = 16;
    w.compute = SIE_COMPUTE_F32;
    w.table.p = this;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  void space(sie_space number, uint32_t kind, const char *name) {
    p.spaces[number].kind = kind;
    strcpy(p.spaces[number].name.text, name);
  }
  void input(sie_input number, sie_space of, const char *name) {
    sie::Input &i = p.inputs[number];
    i.space = of;
    i.dtype = SIE_I32;
    i.least = -1000, i.bound = int64_t{1} << 40;
    strcpy(i.name.text, name);
  }
};

}  // namespace

TEST(checks_of_values) {
  Made m;
  for (sie_value v : {1, 2, 3, 4}) PASSES(sie::check_value(&m.p, v, "x", &err));
  // One that a longer list has left behind its end, and one that no operation has made.
  const sie::Value copy = m.p.values[1];  // push may move the list
  m.p.values.push(copy);
  m.p.values.pop();
  CHECK(sie::reserve_value(&m.p, 7) && m.p.values.size() == 8, "%lld values",
        static_cast<long long>(m.p.values.size()));
  m.p.values.push(copy);
  m.p.values.pop();
  for (sie_value v : {INT32_MIN, 0, 5, 6, 7, 8, INT32_MAX}) {
    SAYS("x is ", sie::check_value(&m.p, v, "x", &err));
    SAYS("that no operation before it makes", sie::check_value_or_given(&m.p, v, "x", &err));
  }
  m.p.values[2].outputs_only = true;
  SAYS("splade", sie::check_value(&m.p, 2, "x", &err));
  m.p.values[1].given = 1;
  SAYS("rows of tokens that batches bring", sie::check_value(&m.p, 1, "x", &err));
  PASSES(sie::check_value_or_given(&m.p, 1, "x", &err));
}

TEST(checks_of_results) {
  Made m;
  for (sie_value v : {5, 6, SIE_MAX_VALUES}) PASSES(sie::check_result(&m.p, v, "y", &err));
  for (sie_value v : {INT32_MIN, -1, 0, SIE_MAX_VALUES + 1})
    SAYS("is possible", sie::check_result(&m.p, v, "y", &err));
  Made empty;
  empty.p.values.clear();
  CHECK(sie::reserve_value(&empty.p, 0), "no memory");
  PASSES(sie::check_result(&empty.p, 1, "y", &err));
  SAYS("another operation", sie::check_result(&m.p, 4, "y", &err));
}

TEST(checks_of_weights) {
  Made m, other;
  m.w.kind = SIE_WEIGHT_VECTOR;
  PASSES(sie::check_weight(&m.p, &m.w, SIE_WEIGHT_VECTOR, "w", &err));
  SAYS("w is NULL", sie::check_weight(&m.p, nullptr, SIE_WEIGHT_VECTOR, "w", &err));
  SAYS("another device", sie::check_weight(&other.p, &m.w, SIE_WEIGHT_VECTOR, "w", &err));
  SAYS("w is a vector; a table is needed", sie::check_weight(&m.p, &m.w, SIE_WEIGHT_TABLE, "w", &err));
  PASSES(sie::check_vector(&m.p, &m.w, 8, false, "w", &err));
  PASSES(sie::check_vector(&m.p, &m.w, 8, true, "w", &err));
  PASSES(sie::check_vector(&m.p, nullptr, 8, true, "w", &err));
  SAYS("w is NULL", sie::check_vector(&m.p, nullptr, 8, false, "w", &err));
  SAYS("8 elements; 9 are needed", sie::check_vector(&m.p, &m.w, 9, true, "w", &err));
  const float values[8] = {};
  m.w.table.p = const_cast<float *>(values);
  CHECK(sie::vector_of(&m.w) == values && sie::vector_of(nullptr) == nullptr, "another vector");
  m.w.kind = SIE_WEIGHT_DATA;
  m.w.table.dtype = SIE_I32;
  PASSES(sie::check_data(&m.p, &m.w, SIE_I32, 8, 16, "w", &err));
  PASSES(sie::check_data(&m.p, &m.w, SIE_I32, 0, 16, "w", &err));
  SAYS("w is i32; f32 is needed", sie::check_data(&m.p, &m.w, SIE_F32, 8, 16, "w", &err));
  SAYS("[8, 16]; [7, 16]", sie::check_data(&m.p, &m.w, SIE_I32, 7, 16, "w", &err));
  SAYS("[8, 16]; [8, 15]", sie::check_data(&m.p, &m.w, SIE_I32, 8, 15, "w", &err));
  SAYS("[8, 16]; [8, 15]", sie::check_data(&m.p, &m.w, SIE_I32, 0, 15, "w", &err));
  m.w.table.p = nullptr;
  SAYS("not on the device yet", sie::check_weight(&m.p, &m.w, SIE_WEIGHT_DATA, "w", &err));
  for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_F16, SIE_COMPUTE_FP8}) {
    m.device.kind = SIE_DEVICE_CPU;
    CHECK(sie::stored_dtype(&m.p, compute) == SIE_F32, "class %u on a CPU", compute);
    m.device.kind = SIE_DEVICE_CUDA;
    CHECK(sie::stored_dtype(&m.p, compute) == (compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16),
          "class %u on a GPU", compute);
  }
}

TEST(checks_of_linears) {
  Made m;
  m.w.kind = SIE_WEIGHT_LINEAR;
  PASSES(sie::check_linear(&m.p, 1, &m.w, nullptr, &err));
  m.w.k = 15;
  SAYS("16 columns; the weight takes 15", sie::check_linear(&m.p, 1, &m.w, nullptr, &err));
  m.w.k = 16;
  // A value's class is its weight's, but bf16 weights multiply rows of FP8 on a GPU.
  for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA}) {
    m.device.kind = kind;
    for (uint32_t value = SIE_COMPUTE_F32; value <= SIE_COMPUTE_FP8; value++) {
      for (uint32_t weight = SIE_COMPUTE_F32; weight <= SIE_COMPUTE_FP8; weight++) {
        m.p.values[1].compute = value;
        m.w.compute = weight;
        const bool mixed = kind == SIE_DEVICE_CUDA && value == SIE_COMPUTE_FP8 && weight == SIE_COMPUTE_BF16;
        sie_error err = {};
        const sie_status status = sie::check_linear(&m.p, 1, &m.w, nullptr, &err);
        CHECK((status == SIE_OK) == (value == weight || mixed),
              "class %u times class %u on device %u: status %d", value, weight, kind, status);
      }
    }
  }
  for (sie_value residual : {SIE_NO_VALUE, 1, 2}) PASSES(sie::check_residual(&m.p, residual, 1, 16, &err));
  SAYS("16 columns in rows of tokens; 17 columns", sie::check_residual(&m.p, 2, 1, 17, &err));
  SAYS("rows of sequences; 16 columns in rows of tokens", sie::check_residual(&m.p, 3, 1, 16, &err));
  SAYS("residual is 9", sie::check_residual(&m.p, 9, 1, 16, &err));
}

TEST(checks_of_numbers) {
  for (int32_t flag : {0, 1}) PASSES(sie::check_flag(flag, "flag", &err));
  for (int32_t flag : {-1, 2}) SAYS("not 0 or 1", sie::check_flag(flag, "flag", &err));
  PASSES(sie::check_zero(0, "reserved", &err));
  for (int64_t field : {int64_t{1}, int64_t{-1}, int64_t{1} << 32})
    SAYS("must be 0", sie::check_zero(field, "reserved", &err));
  for (float eps : {0.0f, 1e-12f, 0.99f}) PASSES(sie::check_norm(eps, 1, &err));
  for (float eps : {-1e-12f, 1.0f, 2.0f, NAN, INFINITY}) SAYS("eps is", sie::check_norm(eps, 1, &err));
  for (float offset : {NAN, INFINITY}) SAYS("weight_offset", sie::check_norm(0, offset, &err));
}

TEST(checks_of_names) {
  sie::Name name;
  memset(&name, 'x', sizeof name);
  const std::string longest(31, 'n');
  for (const std::string &text : {std::string("a"), std::string("z0_9a"), longest}) {
    PASSES(sie::check_name(text.c_str(), &name, &err));
    CHECK(name.text == text, "%s becomes %s", text.c_str(), name.text);
    for (size_t i = text.size(); i < sizeof name.text; i++)
      CHECK(name.text[i] == '\0', "the rest is not cleared");
  }
  SAYS("name is NULL", sie::check_name(nullptr, &name, &err));
  SAYS("has 0 bytes", sie::check_name("", &name, &err));
  SAYS("at least 32 bytes", sie::check_name(std::string(32, 'n').c_str(), &name, &err));
  SAYS("at least 32 bytes", sie::check_name(std::string(99, 'n').c_str(), &name, &err));
  for (char c : {'`', '{', '/', ':', 'A', 'Z', ' ', '-', '^'})
    SAYS("byte 2 of the name", sie::check_name((std::string("ab") + c).c_str(), &name, &err));
  CHECK(name.text == longest, "a refused name is copied: %s", name.text);
}

TEST(checks_of_inputs) {
  Made m;
  PASSES(sie::check_input(&m.p, 1, SIE_SPACE_ROWS, 0, 10, "first", &err));
  PASSES(sie::check_input(&m.p, 20, SIE_SPACE_SEQS, 0, 10, "first", &err));
  for (sie_input input : {INT32_MIN, -1, 0, 2, 19, 21, INT32_MAX})
    SAYS("which is no input", sie::check_input(&m.p, input, SIE_SPACE_ROWS, 0, 10, "first", &err));
  SAYS("i32 of tokens; i32 of a SEQS space", sie::check_input(&m.p, 1, SIE_SPACE_SEQS, 0, 10, "first", &err));
  SAYS("i32 of sequences; i32 of a ROWS space",
       sie::check_input(&m.p, 20, SIE_SPACE_ROWS, 0, 10, "first", &err));
  sie::Input &i = m.p.inputs[1];
  i.dtype = SIE_F32;
  SAYS("first is ids, f32 of tokens", sie::check_input(&m.p, 1, SIE_SPACE_ROWS, 0, 10, "first", &err));
  i.dtype = SIE_I32;
  i.optional = true;
  for (int32_t otherwise : {-3, 0, 9}) {
    i.otherwise = otherwise;
    PASSES(sie::check_input(&m.p, 1, SIE_SPACE_ROWS, -3, 10, "first", &err));
  }
  for (int32_t otherwise : {-4, 10}) {
    i.optional = true;
    i.otherwise = otherwise;
    SAYS("-3 to 9 are possible", sie::check_input(&m.p, 1, SIE_SPACE_ROWS, -3, 10, "first", &err));
    i.optional = false;
    PASSES(sie::check_input(&m.p, 1, SIE_SPACE_ROWS, -3, 10, "first", &err));
  }
  CHECK(!i.read && i.least == -1000 && i.bound == int64_t{1} << 40, "a check changes an input");
  sie::read_input(&m.p, 1, -5, 100);
  CHECK(i.read && i.least == -5 && i.bound == 100, "bounds %lld to %lld", static_cast<long long>(i.least),
        static_cast<long long>(i.bound));
  sie::read_input(&m.p, 1, -7, 200);
  sie::read_input(&m.p, 1, -6, 50);
  CHECK(i.least == -5 && i.bound == 50, "bounds %lld to %lld of three operations",
        static_cast<long long>(i.least), static_cast<long long>(i.bound));
}

TEST(checks_of_partners) {
  Made m;
  PASSES(sie::check_partner(&m.p, 20, 4, &err));
  sie::Input &i = m.p.inputs[20];
  i.optional = true;
  i.otherwise = -1;
  PASSES(sie::check_partner(&m.p, 20, 4, &err));
  i.otherwise = -2;
  SAYS("-1 to 2147483647 are possible", sie::check_partner(&m.p, 20, 4, &err));
  i.otherwise = 0;
  SAYS("only -1 is always there", sie::check_partner(&m.p, 20, 4, &err));
  i.optional = false;
  PASSES(sie::check_partner(&m.p, 20, 4, &err));
  sie::read_partner(&m.p, 20, words);
  CHECK(i.read && i.groups_of == words && i.least == -1 && i.bound == int64_t{1} << 31,
        "groups of %d, %lld to %lld", i.groups_of, static_cast<long long>(i.least),
        static_cast<long long>(i.bound));
  PASSES(sie::check_partner(&m.p, 20, words, &err));
  SAYS("groups of words for another operation, and here those of tokens",
       sie::check_partner(&m.p, 20, tokens, &err));
}

TEST(checks_end_with_an_operation) {
  Made m;
  sie::Op op = sie::new_op(SIE_OP_LAYERNORM);
  CHECK(op.kind == SIE_OP_LAYERNORM && op.lora == -1 && op.out == SIE_NO_VALUE, "a new operation");
  const int64_t before = m.p.ops.size();
  PASSES(sie::append(&m.p, op, tokens, SIE_COMPUTE_INT8, 24, &err));  // no result
  CHECK(m.p.ops.size() == before + 1 && m.p.values.size() == 5 && m.p.values[0].space == 0,
        "an operation without a result makes one");
  op.out = 6, op.sum = 9;
  PASSES(sie::append(&m.p, op, words, SIE_COMPUTE_INT8, 24, &err));
  CHECK(m.p.ops.size() == before + 2 && m.p.values.size() == 10 && m.p.ops[before + 1].sum == 9,
        "%lld operations, %lld values", static_cast<long long>(m.p.ops.size()),
        static_cast<long long>(m.p.values.size()));
  for (sie_value v = 5; v < 10; v++) {
    const sie::Value &value = m.p.values[v];
    const bool made = v == 6 || v == 9;
    CHECK(value.space == (made ? words : 0) && value.columns == (made ? 24 : 0) && value.base == v &&
              value.compute == (made ? static_cast<uint32_t>(SIE_COMPUTE_INT8) : 0u) && value.buffer == -1 &&
              value.quantised == -1 && value.rounded == -1 && value.given == 0,
          "value %d", v);
  }
  op.out = 11, op.sum = SIE_NO_VALUE;
  PASSES(sie::append(&m.p, op, tokens, SIE_COMPUTE_F32, 8, &err));
  CHECK(m.p.values.size() == 12 && m.p.values[11].columns == 8 && m.p.values[0].space == 0, "value 11");
}

// Lists of entries: none, one, and as many operations as a program has.
TEST(checks_of_lists) {
  Made m;
  sie_norm_params n = sized<sie_norm_params>();
  sie_op op = {SIE_NORM, 0, &n};
  PASSES(sie_program_add(&m.p, nullptr, 0, &err));
  PASSES(sie_program_add(&m.p, &op, 0, &err));
  SAYS("1 entries; ops is NULL", sie_program_add(&m.p, nullptr, 1, &err));
  SAYS("-1 entries", sie_program_add(&m.p, &op, -1, &err));
  sie_stream_params s = sized<sie_stream_params>();
  s.x = 4;
  op = {SIE_STREAM, 0, &s};
  m.ops.join_columns = [](const sie_join_columns_args *, const sie_share *) { return SIE_OK; };
  m.device.ops = &m.ops;
  const sie::Op last = m.p.ops[m.p.ops.size() - 1];
  while (m.p.ops.size() < 4095) CHECK(m.p.ops.push(last), "no memory");
  PASSES(sie_program_add(&m.p, &op, 1, &err));
  CHECK(m.p.entries == 1 && m.p.values[4].stream, "%lld entries", static_cast<long long>(m.p.entries));
  CHECK(m.p.ops.push(last), "no memory");
  SAYS("entry 1, stream: a program has at most 4096 operations", sie_program_add(&m.p, &op, 1, &err));
  op.reserved = 7;
  m.p.ops.pop();
  SAYS("entry 1, stream: reserved is 7", sie_program_add(&m.p, &op, 1, &err));
  op.kind = 9999;
  SAYS("entry 1 is of kind 9999", sie_program_add(&m.p, &op, 1, &err), SIE_UNSUPPORTED);
  m.p.ended = true;
  SAYS("the program is ended", sie_program_add(&m.p, &op, 1, &err));
}
