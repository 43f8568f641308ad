// made_program.h — made-up programs for tests of what is recorded, planned and run: spaces, inputs, values and
// weights that nothing has created.
#ifndef SIE_CSRC_TESTS_MADE_PROGRAM_H
#define SIE_CSRC_TESTS_MADE_PROGRAM_H

#include <string.h>

#include <deque>

#include "record.h"
#include "says.h"

namespace made {

// The first and the last number of a space are subsets.
constexpr sie_space kept = 1, tokens = 2, sequences = 3, words = 4, queries = 5, kept_words = 8;
// Inputs: i32 of tokens, of words and of sequences, marks of both, f32 of queries at the first and the last
// number.
constexpr sie_input query_rows = 1, ids = 2, more_ids = 3, word_ids = 4, of_sequence = 5, keep = 9,
                    keep_words = 10, last_rows = 20;

// A program without spaces, on a device of the CPU's kind that runs `ops`.
struct Bare {
  sie_ops ops = *sie_ref_ops();
  sie_device device;
  sie_program p;

  Bare() {
    device.kind = SIE_DEVICE_CPU;
    device.ops = &ops;
    p.device = &device;
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
  }
  Bare(const Bare &) = delete;
  Bare &operator=(const Bare &) = delete;

  sie::Space &space(sie_space number, uint32_t kind, const char *name) {
    sie::Space &s = p.spaces[number];
    s.kind = kind;
    s.max_rows = 50, s.max_each = kind == SIE_SPACE_ROWS ? 10 : 0;
    strcpy(s.name.text, name);
    return s;
  }
  sie::Input &input(sie_input number, sie_space of, int32_t dtype, const char *name) {
    sie::Input &i = p.inputs[number];
    i.space = of;
    i.dtype = dtype;
    i.least = INT32_MIN, i.bound = int64_t{1} << 31;
    strcpy(i.name.text, name);
    return i;
  }

  sie_value next() const { return static_cast<sie_value>(p.values.size()); }
  // The result of a linear.
  sie_value value(sie_space of, int64_t columns, uint32_t compute = SIE_COMPUTE_F32) {
    sie::Op op = sie::new_op(SIE_OP_LINEAR);
    op.out = next();
    CHECK(sie::append(&p, op, of, compute, columns, nullptr) == SIE_OK, "no memory");
    return op.out;
  }

  const sie::Op &last_op() const { return p.ops[p.ops.size() - 1]; }
  const sie::Value &last_value() const { return p.values[p.values.size() - 1]; }
};

// A program with a space of each kind, and an input of each.
struct Program : Bare {
  Program() {
    p.seqs = sequences;
    p.rows = words;
    space(tokens, SIE_SPACE_ROWS, "tokens");
    space(sequences, SIE_SPACE_SEQS, "sequences");
    space(words, SIE_SPACE_ROWS, "words");
    space(queries, SIE_SPACE_SHARED, "queries");
    space(kept, SIE_SPACE_SUBSET, "kept").marks = keep;
    space(kept_words, SIE_SPACE_SUBSET, "kept_words").marks = keep_words;
    input(query_rows, queries, SIE_F32, "query_rows");
    input(ids, tokens, SIE_I32, "ids");
    input(more_ids, tokens, SIE_I32, "more_ids");
    input(word_ids, words, SIE_I32, "word_ids");
    input(of_sequence, sequences, SIE_I32, "of_sequence");
    input(keep, tokens, SIE_U8, "keep");
    input(keep_words, words, SIE_U8, "keep_words");
    input(last_rows, queries, SIE_F32, "last_rows");
  }

  // Some columns of a value.
  sie_value view(sie_value of, int64_t column, int64_t columns) {
    const sie_value v = value(p.values[of].space, columns, p.values[of].compute);
    p.values[v].base = of;
    p.values[v].column = column;
    return v;
  }

  sie_weight *weight(uint32_t kind, int64_t n, int64_t k, uint32_t compute = SIE_COMPUTE_F32) {
    weights_.emplace_back();
    sie_weight &w = weights_.back();
    w.device = &device;
    w.kind = kind, w.compute = compute;
    w.n = n, w.k = k;
    w.table.p = this;
    w.table.dtype = SIE_F32;
    return &w;
  }
  sie_weight *vector(int64_t n) { return weight(SIE_WEIGHT_VECTOR, n, 1); }
  sie_weight *data(int64_t n, int64_t k) { return weight(SIE_WEIGHT_DATA, n, k); }
  // A table of indices from `least` to below `end`.
  sie_weight *indices(int64_t n, int64_t k, int64_t least, int64_t end) {
    sie_weight *w = data(n, k);
    w->table.dtype = SIE_I32;
    w->index_least = least, w->index_end = end;
    return w;
  }

 private:
  std::deque<sie_weight> weights_;
};

// Checks that what an entry asks for is refused with these words and changes nothing, or that it is taken.
// T is made anew each time; T::add records its entry.
template <class T, class Change>
void refuses(const char *words, Change change, sie_status want = SIE_INVALID_ARGUMENT) {
  T m;
  change(&m);
  const int64_t ops = m.p.ops.size(), values = m.p.values.size(), pairs = m.p.lora_pairs.size();
  const int32_t outputs = m.p.n_outputs;
  sie_error err = {};
  const sie_status status = m.add(&err);
  says("an entry", status, err, words, want);
  CHECK(m.p.ops.size() == ops && m.p.values.size() == values && m.p.lora_pairs.size() == pairs &&
            m.p.n_outputs == outputs,
        "what is refused with \"%s\" changes the program", words);
}
template <class T, class Change, class Then>
void takes(Change change, Then then) {
  T m;
  change(&m);
  sie_error err = {};
  CHECK(m.add(&err) == SIE_OK, "an entry is refused: %s", err.message);
  then(m);
}
template <class T, class Change>
void takes(Change change) {
  takes<T>(change, [](const T &) {});
}

}  // namespace made

#endif  // SIE_CSRC_TESTS_MADE_PROGRAM_H
