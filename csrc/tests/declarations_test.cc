// declarations_test.cc — what spaces and inputs a program may declare, at every bound, and how it finds
// them by name.
#include <string.h>

#include <functional>
#include <memory>
#include <string>

#include "record.h"
#include "says.h"

namespace {

constexpr int64_t most_tokens = 16777216, most_seqs = 4194304;

// A program that declares on.
struct Made {
  sie_program p;

  sie_status space(const sie_space_params &s, sie_error *err) { return sie::record_space(&p, &s, err); }
  sie_status input(const sie_input_params &i, sie_error *err) { return sie::record_input(&p, &i, err); }
};

sie_space_params space_of(uint32_t kind, sie_space number = 3, const char *name = "rows") {
  sie_space_params s = sized<sie_space_params>();
  s.kind = kind;
  s.space = number;
  s.name = name;
  if (kind != SIE_SPACE_SUBSET) s.max_rows = 100;
  if (kind == SIE_SPACE_ROWS) s.max_each = 10;
  return s;
}

sie_input_params input_of(uint32_t dtype, sie_space space, sie_input number = 3, const char *name = "data") {
  sie_input_params i = sized<sie_input_params>();
  i.input = number;
  i.space = space;
  i.dtype = dtype;
  i.name = name;
  return i;
}

// A program with spaces 1 (ROWS), 2 (SEQS), 4 (SHARED) and 8 (ROWS), and marks 1 and 20.
std::unique_ptr<Made> with_spaces() {
  auto m = std::make_unique<Made>();
  PASSES(m->space(space_of(SIE_SPACE_ROWS, 1, "tokens"), &err));
  PASSES(m->space(space_of(SIE_SPACE_SEQS, 2, "sequences"), &err));
  PASSES(m->space(space_of(SIE_SPACE_SHARED, 4, "queries"), &err));
  PASSES(m->space(space_of(SIE_SPACE_ROWS, 8, "words"), &err));
  PASSES(m->input(input_of(SIE_U8, 1, 1, "keep"), &err));
  PASSES(m->input(input_of(SIE_U8, 8, 20, "choose"), &err));
  return m;
}

// Declares one space in a new program, changed before.
void one_space(uint32_t kind, const std::function<void(sie_space_params *)> &change, const char *words) {
  auto m = with_spaces();
  m->p.seqs = 0;
  sie_space_params s = space_of(kind);
  if (kind == SIE_SPACE_SUBSET) s.marks = 1;
  change(&s);
  if (words == nullptr) {
    PASSES(m->space(s, &err));
  } else {
    SAYS(words, m->space(s, &err));
    CHECK(m->p.spaces[3].kind == 0, "a refused space is declared");
  }
}

void one_input(uint32_t dtype, sie_space space, const std::function<void(sie_input_params *)> &change,
               const char *words, sie_status want = SIE_INVALID_ARGUMENT) {
  auto m = with_spaces();
  sie_input_params i = input_of(dtype, space);
  change(&i);
  if (words == nullptr) {
    PASSES(m->input(i, &err));
  } else {
    SAYS(words, m->input(i, &err), want);
    CHECK(m->p.inputs[3].space == 0, "a refused input is declared");
  }
}

}  // namespace

TEST(declared_spaces_have_bounds) {
  struct Field {
    uint32_t kind;
    int64_t sie_space_params::*field;
    int64_t value;
    const char *words;  // null: possible
  };
  const auto rows = &sie_space_params::max_rows, each = &sie_space_params::max_each,
             least = &sie_space_params::min_each;
  for (const Field &f : {Field{SIE_SPACE_SEQS, rows, 1, nullptr},
                         {SIE_SPACE_SEQS, rows, most_seqs, nullptr},
                         {SIE_SPACE_SEQS, rows, most_seqs + 1, "1 to 4194304 is possible"},
                         {SIE_SPACE_SEQS, rows, 0, "1 to 4194304 is possible"},
                         {SIE_SPACE_SEQS, rows, -1, "max_rows is -1"},
                         {SIE_SPACE_SEQS, each, 1, "max_each is 1"},
                         {SIE_SPACE_SEQS, least, 1, "min_each is 1"},
                         {SIE_SPACE_SHARED, rows, 1, nullptr},
                         {SIE_SPACE_SHARED, rows, most_tokens, nullptr},
                         {SIE_SPACE_SHARED, rows, most_tokens + 1, "1 to 16777216 is possible"},
                         {SIE_SPACE_SHARED, rows, 0, "max_rows is 0"},
                         {SIE_SPACE_SHARED, each, 1, "max_each is 1"},
                         {SIE_SPACE_SHARED, least, 1, "min_each is 1"},
                         {SIE_SPACE_SUBSET, rows, 0, nullptr},
                         {SIE_SPACE_SUBSET, rows, 1, "max_rows is 1"},
                         {SIE_SPACE_SUBSET, each, 1, "max_each is 1"},
                         {SIE_SPACE_SUBSET, least, 1, "min_each is 1"},
                         {SIE_SPACE_ROWS, rows, 10, nullptr},
                         {SIE_SPACE_ROWS, rows, most_tokens, nullptr},
                         {SIE_SPACE_ROWS, rows, most_tokens + 1, "1 to 16777216 is possible"},
                         {SIE_SPACE_ROWS, rows, 0, "max_rows is 0"},
                         {SIE_SPACE_ROWS, rows, 9, "max_each is 10; 1 to max_rows (9)"},
                         {SIE_SPACE_ROWS, each, 1, nullptr},
                         {SIE_SPACE_ROWS, each, 100, nullptr},
                         {SIE_SPACE_ROWS, each, 101, "1 to max_rows (100) is possible"},
                         {SIE_SPACE_ROWS, each, 0, "max_each is 0"},
                         {SIE_SPACE_ROWS, each, -1, "max_each is -1"},
                         {SIE_SPACE_ROWS, least, 0, nullptr},
                         {SIE_SPACE_ROWS, least, 10, nullptr},
                         {SIE_SPACE_ROWS, least, 11, "0 to max_each (10) is possible"},
                         {SIE_SPACE_ROWS, least, -1, "min_each is -1"}}) {
    one_space(f.kind, [&f](sie_space_params *s) { s->*f.field = f.value; }, f.words);
  }
  auto with_one = [](sie_space_params *s) { s->max_rows = s->max_each = 1; };
  one_space(SIE_SPACE_ROWS, with_one, nullptr);
}

TEST(declared_spaces_have_kinds_numbers_and_names) {
  for (uint32_t kind : {0u, 5u, UINT32_MAX})
    one_space(SIE_SPACE_SHARED, [kind](sie_space_params *s) { s->kind = kind; }, "none of sie_space_kind");
  for (sie_space number : {INT32_MIN, -1, 0, 9, INT32_MAX})
    one_space(SIE_SPACE_SHARED, [number](sie_space_params *s) { s->space = number; }, "1 to 8 is possible");
  for (sie_space number : {1, 8})
    one_space(
        SIE_SPACE_SHARED, [number](sie_space_params *s) { s->space = number; }, "is declared already, as ");
  one_space(
      SIE_SPACE_SHARED, [](sie_space_params *s) { s->name = "words"; },
      "of the name words is declared already");
  one_space(SIE_SPACE_SHARED, [](sie_space_params *s) { s->name = ""; }, "the name has");
  for (sie_space number : {1, 8}) {
    Made m;
    PASSES(m.space(space_of(SIE_SPACE_SHARED, number), &err));
    CHECK(m.p.spaces[number].kind == SIE_SPACE_SHARED, "space %d is not declared", number);
  }
  // Marks of a subset, and of nothing else.
  for (uint32_t kind : {SIE_SPACE_SEQS, SIE_SPACE_ROWS, SIE_SPACE_SHARED})
    one_space(kind, [](sie_space_params *s) { s->marks = 1; }, "marks is 1");
  for (sie_input marks : {INT32_MIN, -1, 0, 2, 21, INT32_MAX})
    one_space(SIE_SPACE_SUBSET, [marks](sie_space_params *s) { s->marks = marks; }, "which is no input");
  for (sie_input marks : {1, 20}) {
    auto m = with_spaces();
    sie_space_params s = space_of(SIE_SPACE_SUBSET);
    s.marks = marks;
    PASSES(m->space(s, &err));
    for (sie_input i = 0; i <= 20; i++) CHECK(m->p.inputs[i].read == (i == marks), "input %d is read", i);
    s = space_of(SIE_SPACE_SUBSET, 5, "again");
    s.marks = marks;
    SAYS("already choose the rows of another space", m->space(s, &err));
  }
  auto m = with_spaces();
  PASSES(m->input(input_of(SIE_I32, 1, 7, "ids"), &err));
  sie_space_params s = space_of(SIE_SPACE_SUBSET);
  s.marks = 7;
  SAYS("marks is i32", m->space(s, &err));
  PASSES(m->space(space_of(SIE_SPACE_SHARED, 5, "shared"), &err));
  CHECK(!m->p.inputs[0].read, "a space without marks reads some");
}

TEST(declared_spaces_bound_a_batch) {
  Made m;
  sie_space_params s = space_of(SIE_SPACE_ROWS, 1, "tokens");
  s.max_rows = 1000, s.max_each = 50, s.min_each = 3;
  PASSES(m.space(s, &err));
  CHECK(m.p.rows == 1 && !m.p.many && m.p.seqs == 0 && m.p.caps.max_seqs == 0, "the first space");
  CHECK(m.p.caps.max_rows == 1000 && m.p.caps.max_extents == 1000 && m.p.caps.max_len == 50 &&
            m.p.caps.min_len == 3,
        "bounds of one space");
  PASSES(m.space(space_of(SIE_SPACE_SEQS, 2, "sequences"), &err));
  CHECK(m.p.seqs == 2 && m.p.caps.max_seqs == 100 && m.p.rows == 1 && !m.p.many, "the sequences");
  SAYS("one space of the kind SEQS", m.space(space_of(SIE_SPACE_SEQS, 3, "more"), &err), SIE_UNSUPPORTED);
  s = space_of(SIE_SPACE_ROWS, 5, "labels");
  s.max_rows = 400, s.max_each = 60, s.min_each = 1;
  PASSES(m.space(s, &err));
  CHECK(m.p.rows == 5 && m.p.many, "the last space");
  CHECK(m.p.caps.max_rows == 1000 && m.p.caps.max_extents == 1400 && m.p.caps.max_len == 60 &&
            m.p.caps.min_len == 3,
        "bounds of two spaces");
  s = space_of(SIE_SPACE_ROWS, 6, "words");
  s.max_rows = most_tokens, s.max_each = 5, s.min_each = 4;
  PASSES(m.space(s, &err));
  CHECK(m.p.caps.max_rows == most_tokens && m.p.caps.max_extents == most_tokens && m.p.caps.max_len == 60 &&
            m.p.caps.min_len == 4,
        "bounds of three spaces");
  CHECK(m.p.spaces[5].max_rows == 400 && m.p.spaces[5].max_each == 60 && m.p.spaces[5].min_each == 1 &&
            m.p.spaces[5].positions == 0 && !m.p.spaces[5].first_rows,
        "a space is declared otherwise");
  // With a state there is one ROWS space, and any other.
  Made with_state;
  with_state.p.state.declared = true;
  SAYS("one space of the kind ROWS", with_state.space(space_of(SIE_SPACE_ROWS), &err), SIE_UNSUPPORTED);
  PASSES(with_state.space(space_of(SIE_SPACE_SHARED, 1, "shared"), &err));
  PASSES(with_state.space(space_of(SIE_SPACE_SEQS, 2, "sequences"), &err));
}

TEST(declared_inputs_have_bounds) {
  for (sie_input number : {INT32_MIN, -1, 0, 21, INT32_MAX})
    one_input(SIE_I32, 1, [number](sie_input_params *i) { i->input = number; }, "1 to 20 is possible");
  for (sie_input number : {1, 20})
    one_input(SIE_I32, 1, [number](sie_input_params *i) { i->input = number; }, "is declared already, as ");
  one_input(
      SIE_I32, 1, [](sie_input_params *i) { i->name = "choose"; }, "of the name choose is declared already");
  one_input(SIE_I32, 1, [](sie_input_params *i) { i->name = "Data"; }, "byte 0 of the name");
  one_input(SIE_I32, 1, [](sie_input_params *i) { i->reserved = 1; }, "reserved");
  one_input(SIE_I32, 1, [](sie_input_params *i) { i->optional = 2; }, "optional is 2");
  for (sie_space space : {INT32_MIN, -1, 0, 3, 9, INT32_MAX})
    one_input(SIE_I32, space, [](sie_input_params *) {}, "which is not declared");
  // i32 of sequences and their rows, marks of rows, f32 of shared rows.
  for (uint32_t dtype = 0; dtype <= 9; dtype++) {
    for (sie_space space : {1, 2, 4, 8}) {
      const bool rows = space == 1 || space == 8;
      const bool can =
          (dtype == SIE_I32 && space != 4) || (dtype == SIE_U8 && rows) || (dtype == SIE_F32 && space == 4);
      one_input(
          dtype, space, [](sie_input_params *) {}, can ? nullptr : "i32 goes with SEQS and ROWS spaces",
          SIE_UNSUPPORTED);
    }
  }
  struct Columns {
    uint32_t dtype;
    sie_space space;
    int32_t given, kept;
    const char *words;
  };
  for (const Columns &c : {Columns{SIE_I32, 1, 0, 1, nullptr},
                           {SIE_I32, 1, 1, 1, nullptr},
                           {SIE_I32, 1, 2, 0, "1 to 1 is possible"},
                           {SIE_I32, 1, -1, 0, "columns is -1"},
                           {SIE_U8, 1, 0, 1, nullptr},
                           {SIE_F32, 4, 0, 0, nullptr},
                           {SIE_F32, 4, 1, 1, nullptr},
                           {SIE_F32, 4, 5, 5, nullptr},
                           {SIE_F32, 4, 1048576, 1048576, nullptr},
                           {SIE_F32, 4, 1048577, 0, "1 to 1048576 is possible"},
                           {SIE_F32, 4, -1, 0, "columns is -1"}}) {
    auto m = with_spaces();
    sie_input_params i = input_of(c.dtype, c.space);
    i.columns = c.given;
    if (c.words != nullptr) {
      SAYS(c.words, m->input(i, &err));
      continue;
    }
    PASSES(m->input(i, &err));
    const sie::Input &got = m->p.inputs[3];
    CHECK(got.columns == c.kept && got.dtype == static_cast<int32_t>(c.dtype) && got.space == c.space &&
              !got.optional && got.otherwise == 0 && strcmp(got.name.text, "data") == 0,
          "%d columns are declared as %d", c.given, got.columns);
    CHECK(got.least == INT32_MIN && got.bound == int64_t{1} << 31, "values from %lld to %lld",
          static_cast<long long>(got.least), static_cast<long long>(got.bound));
  }
  struct Optional {
    uint32_t dtype;
    sie_space space;
    int32_t optional, otherwise;
    const char *words;
  };
  for (const Optional &o : {Optional{SIE_I32, 1, 1, -7, nullptr},
                            {SIE_I32, 2, 1, 9, nullptr},
                            {SIE_I32, 1, 1, 0, nullptr},
                            {SIE_I32, 1, 0, 1, "otherwise is 1, but"},
                            {SIE_F32, 4, 1, 0, "optional is 1"},
                            {SIE_U8, 1, 1, 0, nullptr},
                            {SIE_U8, 1, 1, 1, nullptr},
                            {SIE_U8, 1, 1, 2, "marks are 0 or 1"},
                            {SIE_U8, 1, 1, -1, "marks are 0 or 1"}}) {
    auto m = with_spaces();
    sie_input_params i = input_of(o.dtype, o.space);
    i.optional = o.optional, i.otherwise = o.otherwise;
    if (o.words != nullptr) {
      SAYS(o.words, m->input(i, &err));
      continue;
    }
    PASSES(m->input(i, &err));
    CHECK(m->p.inputs[3].optional && m->p.inputs[3].otherwise == o.otherwise, "optional, otherwise %d",
          o.otherwise);
  }
}

TEST(declared_names_are_found) {
  auto m = with_spaces();
  CHECK(sie_program_find_space(&m->p, "tokens") == 1 && sie_program_find_space(&m->p, "words") == 8 &&
            sie_program_find_space(&m->p, "token") == 0 && sie_program_find_space(&m->p, "") == 0 &&
            sie_program_find_space(&m->p, nullptr) == 0 && sie_program_find_space(nullptr, "words") == 0,
        "spaces");
  CHECK(sie_program_find_input(&m->p, "keep") == 1 && sie_program_find_input(&m->p, "choose") == 20 &&
            sie_program_find_input(&m->p, "words") == 0 && sie_program_find_input(&m->p, "") == 0 &&
            sie_program_find_input(&m->p, nullptr) == 0 && sie_program_find_input(nullptr, "keep") == 0,
        "inputs");
  sie_input_info info = sized<sie_input_info>();
  SAYS("not ended", sie_program_input(&m->p, 1, &info, &err));
  SAYS("program is NULL", sie_program_input(nullptr, 1, &info, &err));
  m->p.ended = true;
  for (sie_input i : {INT32_MIN, -1, 0, 2, 21, INT32_MAX})
    SAYS("has no input", sie_program_input(&m->p, i, &info, &err));
  m->p.inputs[1].least = -3, m->p.inputs[1].bound = 50;
  m->p.inputs[20].columns = 6;
  struct {
    bool optional, read;
    int32_t want;
  } cases[] = {{false, false, 1}, {false, true, 0}, {true, false, 1}, {true, true, 1}};
  for (const auto &c : cases) {
    for (sie_input i : {1, 20}) {
      m->p.inputs[i].optional = c.optional, m->p.inputs[i].read = c.read;
      PASSES(sie_program_input(&m->p, i, &info, &err));
      CHECK(info.optional == c.want && info.space == (i == 1 ? 1 : 8) && info.dtype == SIE_U8 &&
                info.columns == (i == 1 ? 1 : 6) && strcmp(info.name, i == 1 ? "keep" : "choose") == 0,
            "input %d is described otherwise", i);
      CHECK(i != 1 || (info.least == -3 && info.most == 49), "values %d to %d", info.least, info.most);
    }
  }
}
