// batch_checks_test.cc — what a batch must be: every list, offset, index, mark, place and item at its
// bounds, for a made-up program. Behind the end of each list is memory that cannot be read.
#include <math.h>
#include <string.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fence.h"
#include "says.h"
#include "slot.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, kept = 3, queries = 4, first_words = 7, words = 8;
constexpr sie_input ids = 1, unread = 2, keep = 3, choose = 4, query_rows = 5, partner = 6, first = 9,
                    last = 20;

sie_out_item item(int32_t dtype, int32_t dims, int64_t offset, uint32_t normalize = 0, float threshold = 0) {
  sie_out_item i = {};
  i.dtype = dtype, i.dims = dims, i.offset = offset;
  i.normalize = normalize, i.threshold = threshold;
  return i;
}

// Four sequences of 2, 20, 8 and 2 tokens and 3, 3, 3 and no words.
struct Batch {
  int64_t seqs = 4, groups = 2;
  std::vector<int32_t> offsets[9], numbers[21];
  std::vector<uint8_t> marks[21];
  std::vector<float> floats;
  bool left_out[21] = {};  // of inputs
  bool no_spaces = false, no_inputs = false, no_items = false;
  std::vector<sie_out_item> items[8];
  bool items_left_out[8] = {};
  uint32_t n_spaces = 8, n_inputs = 20, n_outputs = 6;

  Batch() {
    offsets[tokens] = {0, 2, 22, 30, 32};
    offsets[words] = {0, 3, 6, 9, 9};
    offsets[queries] = {0, 5, 9};
    for (int i = 0; i < 32; i++) numbers[ids].push_back(10 + i % 10);
    numbers[unread].assign(32, 12345);
    marks[keep].assign(32, 0);
    for (size_t i : {0, 3, 7, 11, 15, 21, 22, 23, 24, 25, 26, 27, 28, 29}) marks[keep][i] = 1;
    marks[choose] = {1, 1, 0, 1, 0, 0, 1, 1, 1};
    floats.assign(9, -1e30f);
    numbers[partner] = {-1, 0, 1, 1};
    numbers[first] = {0, 1, -1, 19, 5, 0, 7, 0, -1};
    numbers[last] = {1, 1, -1, 19, 6, 0, 7, 7, -1};
    items[0] = {item(SIE_F32, 0, 0, 1), item(SIE_F16, 10, 40), item(SIE_BINARY, 9, 61), item(SIE_I8, 1, 199)};
    items[2] = {item(SIE_F32, 0, 0), item(SIE_F32, 4, 16), item(SIE_F32, 0, 96), item(SIE_F32, 0, 224)};
    items[3] = {item(SIE_F16, 5, 0), item(SIE_F32, 1, 48), item(SIE_F32, 2, 80), item(SIE_F16, 1, 112)};
    items[4] = {item(SIE_F32, 3, 0, 0, 0.5f), item(SIE_F32, 1, 64, 0, -1), item(SIE_F32, 1, 96, 0, INFINITY),
                item(SIE_F32, 1, 128, 0, -INFINITY)};
    items[5] = {item(SIE_I8, 0, 0), item(SIE_U8, 1, 3), item(SIE_I8, 1, 6), item(SIE_I8, 0, 9)};
  }
};

// The program and the slot, of which the batch takes the most in many ways.
struct Made {
  sie_program p;
  sie_slot slot;

  Made() {
    space(tokens, SIE_SPACE_ROWS, 100, 20, 2, "tokens");
    space(sequences, SIE_SPACE_SEQS, 6, 0, 0, "sequences");
    space(kept, SIE_SPACE_SUBSET, 0, 0, 0, "kept", keep);
    space(queries, SIE_SPACE_SHARED, 30, 0, 0, "queries");
    space(first_words, SIE_SPACE_SUBSET, 0, 0, 0, "first_words", choose);
    space(words, SIE_SPACE_ROWS, 40, 9, 0, "words");
    p.spaces[first_words].first_rows = true;
    p.seqs = sequences;
    p.rows = words;
    p.many = true;
    p.caps.max_seqs = 6;
    input(ids, tokens, SIE_I32, 10, 20, "ids");
    input(unread, tokens, SIE_I32, 0, 1, "unread").read = false;
    input(keep, tokens, SIE_U8, 0, 2, "keep").optional = true;
    p.inputs[keep].otherwise = 1;
    input(choose, words, SIE_U8, 0, 2, "choose").optional = true;
    input(query_rows, queries, SIE_F32, 0, 0, "query_rows");
    input(partner, sequences, SIE_I32, -1, int64_t{1} << 31, "partner").groups_of = queries;
    input(first, words, SIE_I32, INT32_MIN, int64_t{1} << 31, "first").places_of = tokens;
    input(last, words, SIE_I32, INT32_MIN, int64_t{1} << 31, "last").places_of = tokens;
    p.inputs[last].from = first;
    output(SIE_FORM_ROWS, sequences, 10, 200);
    output(SIE_FORM_VALUES, tokens, 3, 384);
    output(SIE_FORM_TOKEN_ROWS, kept, 4, 224);
    output(SIE_FORM_SPARSE, sequences, 100, 134);
    output(SIE_FORM_FOUND, sequences, 4, 160);
    output(SIE_FORM_TOKEN_ROWS, words, 1, 9);
    slot.caps.n_outputs = 6;
    slot.caps.output_bytes = slot.output_bytes;
    slot.caps.max_tokens = 33;  // the extents: 3 words, 20, 8 and 2 tokens
    slot.caps.max_seqs = 9;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  void space(sie_space number, uint32_t kind, int64_t rows, int64_t each, int64_t least, const char *name,
             sie_input marks = 0) {
    sie::Space &s = p.spaces[number];
    s.kind = kind;
    s.marks = marks;
    s.max_rows = rows, s.max_each = each, s.min_each = least;
    strcpy(s.name.text, name);
  }
  sie::Input &input(sie_input number, sie_space space, int32_t dtype, int64_t least, int64_t bound,
                    const char *name) {
    sie::Input &i = p.inputs[number];
    i.space = space;
    i.dtype = dtype;
    i.least = least, i.bound = bound;
    i.read = true;
    strcpy(i.name.text, name);
    return i;
  }
  void output(uint32_t form, sie_space space, int64_t columns, int64_t room) {
    sie::Output &o = p.outputs[p.n_outputs];
    o.form = form;
    o.space = space;
    o.columns = columns;
    slot.output_bytes[p.n_outputs++] = room;
  }

  sie_status check(const Batch &b, sie::BatchIn *in, sie_error *err) {
    Fence fence;
    std::vector<sie_rows_of> spaces(b.n_spaces);
    for (uint32_t s = 1; s <= b.n_spaces && s <= 8; s++) {
      spaces[s - 1].groups = p.spaces[s].kind == SIE_SPACE_SHARED ? b.groups : -9;
      if (!b.offsets[s].empty()) spaces[s - 1].offsets = fence.behind(b.offsets[s]);
    }
    std::vector<const void *> inputs(b.n_inputs);
    for (uint32_t i = 1; i <= b.n_inputs && i <= 20; i++) {
      if (b.left_out[i]) continue;
      if (!b.marks[i].empty()) inputs[i - 1] = fence.behind(b.marks[i]);
      if (!b.numbers[i].empty()) inputs[i - 1] = fence.behind(b.numbers[i]);
      if (i == query_rows) inputs[i - 1] = fence.behind(b.floats);
    }
    std::vector<const sie_out_item *> items(b.n_outputs);
    for (uint32_t o = 0; o < b.n_outputs && o < 8; o++) {
      if (!b.items_left_out[o] && !b.items[o].empty()) items[o] = fence.behind(b.items[o]);
    }
    sie_batch batch = sized<sie_batch>();
    batch.n_spaces = b.n_spaces, batch.n_inputs = b.n_inputs, batch.n_outputs = b.n_outputs;
    batch.n_seqs = b.seqs;
    batch.spaces = b.no_spaces ? nullptr : fence.behind(spaces);
    batch.inputs = b.no_inputs ? nullptr : fence.behind(inputs);
    batch.items = b.no_items ? nullptr : fence.behind(items);
    auto *const written = const_cast<sie::BatchIn *>(fence.behind(std::vector<sie::BatchIn>(1)));
    const sie_status status = sie::check_batch(&slot, &p, batch, written, err);
    *in = *written;
    if (status == SIE_OK) {
      for (int32_t i = 1; i <= 20; i++) {
        const void *want = p.inputs[i].read && static_cast<uint32_t>(i) <= b.n_inputs
                               ? inputs[static_cast<size_t>(i - 1)]
                               : nullptr;
        CHECK(in->inputs[i] == want, "input %d is another's", i);
      }
    }
    return status;
  }
};

using Change = std::function<void(Made *, Batch *)>;

sie::BatchIn passes(const char *what, const Change &change) {
  const auto m = std::make_unique<Made>();
  Batch batch;
  change(m.get(), &batch);
  sie::BatchIn in;
  sie_error err = {};
  CHECK(m->check(batch, &in, &err) == SIE_OK, "%s is refused: %s", what, err.message);
  return in;
}

void refuses(const char *message, const Change &change, sie_status want = SIE_INVALID_ARGUMENT) {
  const auto m = std::make_unique<Made>();
  Batch batch;
  change(m.get(), &batch);
  sie::BatchIn in;
  sie_error err = {};
  const sie_status status = m->check(batch, &in, &err);
  says(message, status, err, message, want);
}

// Makes a batch of no sequences.
void empty(Batch *b) {
  b->seqs = 0;
  for (auto &offsets : b->offsets) {
    if (!offsets.empty()) offsets = {0};
  }
  b->groups = 0;
}

}  // namespace

TEST(batches_are_read_as_they_are) {
  const sie::BatchIn in = passes("the batch", [](Made *, Batch *) {});
  CHECK(in.seqs == 4 && in.max_rows == 32 && in.longest == 20 && in.longest_keys == 20 && in.state_rows == 0,
        "%lld rows at most, %lld of one sequence", static_cast<long long>(in.max_rows),
        static_cast<long long>(in.longest));
  const int64_t rows[] = {0, 32, 4, 14, 9, 0, 0, 6, 9};
  for (int32_t s = 1; s <= 8; s++)
    CHECK(in.rows[s] == rows[s], "%lld rows of space %d", static_cast<long long>(in.rows[s]), s);
  for (int32_t s = 1; s <= 8; s++) {
    CHECK(in.groups[s] == (s == queries ? 2 : 0), "%lld groups of space %d",
          static_cast<long long>(in.groups[s]), s);
    CHECK((in.offsets[s] != nullptr) == (s == tokens || s == queries || s == words), "offsets of space %d",
          s);
  }
  const sie::BatchIn none = passes("an empty batch", [](Made *, Batch *b) {
    empty(b);
    for (bool &out : b->left_out) out = true;
    for (bool &out : b->items_left_out) out = true;
  });
  CHECK(none.rows[tokens] == 0 && none.rows[kept] == 0 && none.longest == 0 && none.max_rows == 0,
        "rows of none");
}

TEST(batches_may_have_short_lists) {
  refuses("spaces is NULL", [](Made *, Batch *b) { b->no_spaces = true; });
  refuses("inputs is NULL", [](Made *, Batch *b) { b->no_inputs = true; });
  refuses("items is NULL", [](Made *, Batch *b) { b->no_items = true; });
  refuses("the offsets of tokens are NULL", [](Made *, Batch *b) { b->no_spaces = true, b->n_spaces = 0; });
  refuses("ids is left out", [](Made *, Batch *b) { b->no_inputs = true, b->n_inputs = 0; });
  refuses("items of output 0 is NULL", [](Made *, Batch *b) { b->no_items = true, b->n_outputs = 0; });
  refuses("the offsets of words are NULL", [](Made *, Batch *b) { b->n_spaces = 7; });
  refuses("last is left out", [](Made *, Batch *b) { b->n_inputs = 19; });
  refuses("first is left out", [](Made *, Batch *b) { b->n_inputs = 8; });
  refuses("items of output 5 is NULL", [](Made *, Batch *b) { b->n_outputs = 5; });
  passes("longer lists", [](Made *, Batch *b) { b->n_spaces = 30, b->n_inputs = 30, b->n_outputs = 30; });
  refuses("the slot has 5 outputs; the program 6", [](Made *m, Batch *) { m->slot.caps.n_outputs = 5; });
  passes("a slot of more outputs", [](Made *m, Batch *) { m->slot.caps.n_outputs = 8; });
  passes("a program of all outputs", [](Made *m, Batch *b) {
    m->output(SIE_FORM_VALUES, tokens, 1, 128);
    m->output(SIE_FORM_VALUES, words, 1, 36);
    m->slot.caps.n_outputs = 8;
    b->n_outputs = 30;
  });
}

TEST(batches_have_offsets) {
  refuses("the offsets of tokens start at 1", [](Made *, Batch *b) { b->offsets[tokens][0] = 1; });
  refuses("the offsets of words start at -1", [](Made *, Batch *b) { b->offsets[words][0] = -1; });
  refuses("the offsets of queries start at 1", [](Made *, Batch *b) { b->offsets[queries][0] = 1; });
  refuses("the offsets of tokens fall from 31 to 30 at 2",
          [](Made *, Batch *b) { b->offsets[tokens][2] = 31; });
  refuses("the offsets of words fall from 9 to 8 at 3", [](Made *, Batch *b) { b->offsets[words][4] = 8; });
  refuses("the offsets of queries fall from 5 to 4 at 1",
          [](Made *, Batch *b) { b->offsets[queries][2] = 4; });
  passes("a group of no rows", [](Made *, Batch *b) { b->offsets[queries] = {0, 9, 9}; });
}

TEST(batches_have_as_many_rows_as_fit) {
  for (int64_t more : {0, 1}) {
    const bool fits = more == 0;
    auto either = [fits](const char *words, const Change &change) {
      if (fits) {
        passes(words, change);
      } else {
        refuses(words, change);
      }
    };
    either("32 rows of tokens; at most 31 fit",
           [more](Made *m, Batch *) { m->p.spaces[tokens].max_rows = 32 - more; });
    either("9 rows of words; at most 8 fit",
           [more](Made *m, Batch *) { m->p.spaces[words].max_rows = 9 - more; });
    either("numbers of rows are 33 together; at most 32 fit",
           [more](Made *m, Batch *) { m->slot.caps.max_tokens = 33 - more; });
    either("32 rows of tokens; at most 31 fit", [more](Made *m, Batch *) {
      // Of several ROWS spaces each is bounded, too; here words are not more than tokens.
      m->p.many = false;
      m->slot.caps.max_tokens = 32 - more;
    });
    either("sequence 1 has 20 rows of tokens; at most 19",
           [more](Made *m, Batch *) { m->p.spaces[tokens].max_each = 20 - more; });
    either("sequence 1 has 20 rows of tokens; at most 19",
           [more](Made *m, Batch *) { m->p.spaces[tokens].positions = 20 - more; });
    either("sequence 0 has 3 rows of words; at most 2",
           [more](Made *m, Batch *) { m->p.spaces[words].max_each = 3 - more; });
    either("sequence 0 has 2 rows of tokens; at least 3",
           [more](Made *m, Batch *) { m->p.spaces[tokens].min_each = 2 + more; });
    either("sequence 3 has 0 rows of words; at least 1",
           [more](Made *m, Batch *) { m->p.spaces[words].min_each = more; });
    either("4 sequences; at most 3 fit", [more](Made *m, Batch *) { m->p.caps.max_seqs = 4 - more; });
    either("4 sequences; at most 3 fit", [more](Made *m, Batch *) { m->slot.caps.max_seqs = 4 - more; });
    either("9 rows of queries; at most 8 fit",
           [more](Made *m, Batch *) { m->p.spaces[queries].max_rows = 9 - more; });
    either("7 groups of queries; at most 6 fit", [more](Made *, Batch *b) {
      b->groups = 6 + more;
      b->offsets[queries] = {0, 1, 2, 3, 4, 5, 6, 7};
      b->offsets[queries].resize(static_cast<size_t>(b->groups) + 1);
      b->floats.resize(static_cast<size_t>(b->groups));
    });
  }
  passes("a sequence as long as possible, with longer tables",
         [](Made *m, Batch *) { m->p.spaces[tokens].positions = 21; });
  refuses("-1 sequences", [](Made *, Batch *b) { b->seqs = -1; });
  refuses("-1 groups of queries", [](Made *, Batch *b) { b->groups = -1; });
  passes("no groups", [](Made *, Batch *b) {
    b->groups = 0;
    b->numbers[partner] = {-1, -1, -1, -1};
    b->offsets[queries].clear();
  });
  // Of a program that reads none of its rows, a space's groups do not count.
  const sie::BatchIn in = passes("groups that nobody reads", [](Made *m, Batch *b) {
    m->p.inputs[query_rows].read = false;
    b->groups = 1000;
    b->offsets[queries].clear();
    b->numbers[partner] = {-1, -1, -1, -1};
  });
  CHECK(in.groups[queries] == 0 && in.rows[queries] == 0, "%lld groups",
        static_cast<long long>(in.groups[queries]));
}

TEST(batches_name_what_there_is) {
  refuses("ids is 9 in row 5; 10 to 19 are possible", [](Made *, Batch *b) { b->numbers[ids][5] = 9; });
  refuses("ids is 20 in row 5; 10 to 19 are possible", [](Made *, Batch *b) { b->numbers[ids][5] = 20; });
  refuses("ids is 25 in row 31; 10 to 19", [](Made *, Batch *b) { b->numbers[ids][31] = 25; });
  for (int32_t id : {INT32_MIN, -1, 0, 30, INT32_MAX})
    refuses("in row 0; 10 to 19", [id](Made *, Batch *b) { b->numbers[ids][0] = id; });
  refuses("partner is -2 in row 3; -1 to 1 are possible",
          [](Made *, Batch *b) { b->numbers[partner][3] = -2; });
  refuses("partner is 2 in row 0; -1 to 1 are possible",
          [](Made *, Batch *b) { b->numbers[partner][0] = 2; });
  refuses("partner is 1 in row 2; -1 to 0", [](Made *m, Batch *) { m->p.inputs[partner].bound = 1; });
  // Without rows any bounds will do, also those of no value.
  passes("no rows of an input that may have no value", [](Made *m, Batch *b) {
    empty(b);
    m->p.inputs[ids].bound = 10;
  });
  refuses("ids is left out", [](Made *, Batch *b) { b->left_out[ids] = true; });
  passes("an input that nobody reads", [](Made *, Batch *b) { b->left_out[unread] = true; });

  refuses("keep is 2 in row 30, not 0 or 1", [](Made *, Batch *b) { b->marks[keep][30] = 2; });
  refuses("choose is 255 in row 8, not 0 or 1", [](Made *, Batch *b) { b->marks[choose][8] = 255; });
  passes("marks that are all 1", [](Made *m, Batch *b) {
    b->marks[keep].assign(32, 1);
    m->slot.output_bytes[2] = 1000;
  });
  for (bool otherwise : {true, false}) {
    const sie::BatchIn in = passes("marks left out", [otherwise](Made *m, Batch *b) {
      m->p.inputs[keep].otherwise = otherwise ? 1 : 0;
      m->slot.output_bytes[2] = 1000;
      b->left_out[keep] = true;
    });
    CHECK(in.rows[kept] == (otherwise ? 32 : 0), "%lld rows are kept", static_cast<long long>(in.rows[kept]));
  }
  // What is kept then decides what is written.
  auto left_out = [](int32_t otherwise) {
    return [otherwise](Made *m, Batch *b) {
      m->p.inputs[keep].otherwise = otherwise;
      b->left_out[keep] = true;
    };
  };
  passes("nothing to write", left_out(0));
  refuses("item 1 writes 320 bytes from byte 16 of output 2", left_out(1));
  const sie::BatchIn in = passes("first rows left out", [](Made *, Batch *b) { b->left_out[choose] = true; });
  CHECK(in.rows[first_words] == 0, "%lld first rows", static_cast<long long>(in.rows[first_words]));
  refuses("sequence 0 keeps row 1 of first_words behind one",
          [](Made *, Batch *b) { b->marks[choose][0] = 0; });
  refuses("sequence 1 keeps row 2 of first_words behind one",
          [](Made *, Batch *b) { b->marks[choose][5] = 1; });
  refuses("sequence 2 keeps row 2 of first_words behind one",
          [](Made *, Batch *b) { b->marks[choose][7] = 0; });
  passes("marks that need not be the first", [](Made *m, Batch *b) {
    m->p.spaces[first_words].first_rows = false;
    b->marks[choose] = {0, 1, 0, 0, 0, 1, 0, 1, 0};
  });
}

TEST(batches_name_places_in_their_sequence) {
  refuses("first is 2 in row 0 of sequence 0, which has 2 rows of tokens",
          [](Made *, Batch *b) { b->numbers[first][0] = 2; });
  refuses("first is 20 in row 1 of sequence 1, which has 20 rows of tokens",
          [](Made *, Batch *b) { b->numbers[first][4] = 20; });
  refuses("first is -2 in row 2 of sequence 1", [](Made *, Batch *b) { b->numbers[first][5] = -2; });
  refuses("first is 8 in row 0 of sequence 2, which has 8 rows",
          [](Made *, Batch *b) { b->numbers[first][6] = 8; });
  refuses("last is 8 in row 1 of sequence 2, which has 8 rows",
          [](Made *, Batch *b) { b->numbers[last][7] = 8; });
  // Behind the first place, or both are none.
  refuses("last is 0 in row 2 of sequence 2, and first is -1: a row of nothing",
          [](Made *, Batch *b) { b->numbers[last][8] = 0; });
  refuses("last is 7 in row 2 of sequence 2, and first is -1",
          [](Made *, Batch *b) { b->numbers[last][8] = 7; });
  refuses("last is 4 in row 1 of sequence 1, before first, which is 5",
          [](Made *, Batch *b) { b->numbers[last][4] = 4; });
  refuses("last is -1 in row 1 of sequence 2, before first, which is 0",
          [](Made *, Batch *b) { b->numbers[last][7] = -1; });
  passes("places apart", [](Made *m, Batch *b) {
    m->p.inputs[last].from = 0;
    b->numbers[last] = {0, 0, 1, 0, 0, 0, 0, 0, 0};
  });
}

// One item of each output, at the end of its room.
TEST(batches_write_what_fits) {
  for (size_t o : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{5}}) {
    const char *const words = o == 1 ? "output 1 needs 384 bytes; the slot has 383" : ", which has ";
    passes("items that fit", [o](Made *m, Batch *) { m->slot.output_bytes[o]++; });
    if (o != 2 && o != 5) refuses(words, [o](Made *m, Batch *) { m->slot.output_bytes[o]--; });
  }
  refuses("item 2 writes 128 bytes from byte 112 of output 2, which has 224",
          [](Made *, Batch *b) { b->items[2][2].offset = 112; });
  refuses("item 3 writes 0 bytes from byte 224 of output 2, which has 223",
          [](Made *m, Batch *b) { m->slot.output_bytes[2]--, b->items[2][2].offset = 80; });
  refuses("item 2 writes 3 bytes from byte 7 of output 5, which has 9",
          [](Made *, Batch *b) { b->items[5][2].offset = 7; });
  refuses("item 0 writes 40 bytes from byte 0 of output 0, which has 39", [](Made *m, Batch *b) {
    m->slot.output_bytes[0] = 39;
    for (sie_out_item &i : b->items[0]) i.offset = 0;
  });
  passes("items that fill the room", [](Made *m, Batch *b) {
    m->slot.output_bytes[0] = 40;
    for (sie_out_item &i : b->items[0]) i.offset = 0;
  });
  for (size_t o : {0, 2, 3, 4, 5}) {
    const std::string words = "items of output " + std::to_string(o) + " is NULL";
    refuses(words.c_str(), [o](Made *, Batch *b) { b->items_left_out[o] = true; });
  }
}

TEST(batches_have_items_of_known_forms) {
  // Of rows, sparse rows and records: which types there are.
  struct Types {
    size_t output;
    std::vector<int32_t> known;
    const char *message;
  };
  for (const Types &t :
       {Types{0, {SIE_F32, SIE_F16, SIE_I8, SIE_U8, SIE_BINARY}, "f32, f16, i8, u8 and binary are"},
        Types{3, {SIE_F32, SIE_F16}, "; f32 and f16 are"}, Types{4, {SIE_F32}, "; f32 is"}}) {
    for (int32_t dtype = -1; dtype <= 9; dtype++) {
      bool known = false;
      for (int32_t k : t.known) known = known || k == dtype;
      auto change = [&](Made *, Batch *b) { b->items[t.output][0].dtype = dtype; };
      if (known) {
        // As wide as f32 and no wider: it fits where f32 does.
        passes("a known type", [&](Made *m, Batch *b) {
          change(m, b);
          m->slot.output_bytes[t.output] += 1000;
        });
      } else {
        refuses(t.message, change, SIE_UNSUPPORTED);
      }
    }
  }
  auto set = [](size_t output, const std::function<void(sie_out_item *)> &change) {
    return [output, change](Made *m, Batch *b) {
      change(&b->items[output][1]);
      m->slot.output_bytes[output] += 1000;
    };
  };
  auto normalize = [&set](size_t output, uint32_t n) {
    return set(output, [n](sie_out_item *i) { i->normalize = n; });
  };
  auto threshold = [&set](size_t output, float x) {
    return set(output, [x](sie_out_item *i) { i->threshold = x; });
  };
  auto offset = [&set](size_t output, int64_t at) {
    return set(output, [at](sie_out_item *i) { i->offset = at; });
  };
  auto dims = [&set](size_t output, int32_t n) { return set(output, [n](sie_out_item *i) { i->dims = n; }); };
  for (uint32_t n : {0u, 1u}) passes("a flag", normalize(0, n));
  refuses("normalize is 2, not 0 or 1", normalize(0, 2));
  refuses("normalize is 1, not 0", normalize(3, 1));
  refuses("normalize is 1, not 0", normalize(4, 1));
  for (size_t o : {0, 3}) {
    refuses("the threshold is 0.5", threshold(o, 0.5f));
    refuses("the threshold is -1", threshold(o, -1));
  }
  refuses("the threshold is no number", threshold(4, NAN));
  passes("a threshold", threshold(4, 0));
  // Item 1 of output 0 is f16, those of 3 and 4 begin at multiples of 16.
  for (int64_t at : {0, 2, 42, 64}) passes("a place for f16", offset(0, at));
  for (int64_t at : {-2, -1, 1, 41}) refuses("is not a place for f16", offset(0, at));
  for (int64_t at : {0, 16, 160}) passes("a place", offset(3, at)), passes("a place", offset(4, at));
  for (int64_t at : {-16, -1, 1, 4, 8, 17}) {
    refuses("is not a place for a sparse row", offset(3, at));
    refuses("is not a place for records", offset(4, at));
  }
  for (int32_t n : {0, 1, 10}) passes("columns", dims(0, n));
  for (int32_t n : {-1, 11}) refuses("1 to 10 are possible", dims(0, n));
  for (int32_t n : {1, 9}) {
    passes("room", dims(3, n));
    passes("room", dims(4, n));
  }
  for (int32_t n : {INT32_MIN, -1, 0}) {
    refuses("columns; at least 1", dims(3, n));
    refuses("records; at least 1", dims(4, n));
  }
  // The whole message of a sparse item's flag ends there.
  const auto m = std::make_unique<Made>();
  Batch b;
  b.items[3][0].normalize = 1;
  sie::BatchIn in;
  sie_error err = {};
  m->check(b, &in, &err);
  CHECK(strstr(err.message, "0 or 1") == nullptr, "%s", err.message);
}

// The last number of a space may be of any kind.
TEST(batches_of_the_last_space) {
  auto without_words = [](Made *m) {
    m->p.inputs[choose].read = m->p.inputs[first].read = m->p.inputs[last].read = false;
    m->p.inputs[first].places_of = m->p.inputs[last].places_of = 0;
    m->p.spaces[first_words].kind = 0;
    m->p.spaces[words] = {};
    m->p.n_outputs = 5;
    m->p.many = false;
  };
  const sie::BatchIn subset = passes("a subset", [&](Made *m, Batch *b) {
    without_words(m);
    m->space(words, SIE_SPACE_SUBSET, 0, 0, 0, "more", choose);
    m->input(choose, tokens, SIE_U8, 0, 2, "choose");
    b->marks[choose].assign(32, 0);
    b->marks[choose][31] = 1;
  });
  CHECK(subset.rows[words] == 1, "%lld rows", static_cast<long long>(subset.rows[words]));
  const sie::BatchIn shared = passes("shared rows", [&](Made *m, Batch *b) {
    without_words(m);
    m->space(words, SIE_SPACE_SHARED, 50, 0, 0, "more");
    m->input(last, words, SIE_F32, 0, 0, "last");
    b->offsets[words] = {0, 7, 7};
    b->numbers[last].assign(7, 1);
  });
  CHECK(shared.rows[words] == 7, "%lld rows", static_cast<long long>(shared.rows[words]));
}

namespace {

// A program that reads a state of 60 rows; its sequences have up to 20 rows together with their
// prefixes.
void reads_state(Made *m, Batch *b) {
  for (sie_input i : {keep, choose, query_rows, partner, first, last}) {
    m->p.inputs[i].read = false;
    m->p.inputs[i].places_of = 0;
  }
  for (sie_space s : {kept, queries, first_words, words}) m->p.spaces[s] = {};
  m->p.rows = tokens;
  m->p.many = false;
  m->p.n_outputs = 1;
  m->p.spaces[tokens].min_each = 0;
  m->p.state.declared = true;
  m->p.state.max_rows = 60;
  m->p.state.first = 10, m->p.state.rows = 11;
  m->input(10, sequences, SIE_I32, 0, 100, "begins").optional = true;
  m->input(11, sequences, SIE_I32, 0, 61, "prefix").optional = true;
  b->offsets[tokens] = {0, 2, 12, 17, 18};
  b->numbers[10] = {0, 30, 40, 60};
  b->numbers[11] = {18, 10, 7, 0};
}

}  // namespace

TEST(batches_begin_with_rows_of_a_state) {
  const sie::BatchIn in = passes("a batch behind a state", reads_state);
  CHECK(in.state_rows == 47 && in.longest_keys == 20 && in.longest == 10, "%lld rows of the state, %lld keys",
        static_cast<long long>(in.state_rows), static_cast<long long>(in.longest_keys));
  auto with = [](std::vector<int32_t> begins, std::vector<int32_t> prefix, int64_t positions = 0) {
    return [=](Made *m, Batch *b) {
      reads_state(m, b);
      b->numbers[10] = begins, b->numbers[11] = prefix;
      b->left_out[10] = begins.empty(), b->left_out[11] = prefix.empty();
      m->p.spaces[tokens].positions = positions;
      m->p.inputs[10].otherwise = 3, m->p.inputs[11].otherwise = 4;
    };
  };
  sie::BatchIn got = passes("the last rows", with({50, 0, 0, 0}, {10, 1, 0, 0}));
  CHECK(got.state_rows == 60 && got.longest_keys == 12, "%lld rows, %lld keys",
        static_cast<long long>(got.state_rows), static_cast<long long>(got.longest_keys));
  got = passes("no prefixes", with({60, 61, 99, 60}, {0, 0, 0, 0}));
  CHECK(got.state_rows == 0 && got.longest_keys == 10, "%lld rows, %lld keys",
        static_cast<long long>(got.state_rows), static_cast<long long>(got.longest_keys));
  got = passes("prefixes from the third row on", with({}, {1, 2, 5, 0}));
  CHECK(got.state_rows == 8 && got.longest_keys == 12, "%lld rows, %lld keys",
        static_cast<long long>(got.state_rows), static_cast<long long>(got.longest_keys));
  got = passes("prefixes of four rows", with({9, 0, 0, 1}, {}));
  CHECK(got.state_rows == 13 && got.longest_keys == 14, "%lld rows, %lld keys",
        static_cast<long long>(got.state_rows), static_cast<long long>(got.longest_keys));
  refuses("sequence 0 begins with 10 rows of the state from 51 on; it has at most 60",
          with({51, 0, 0, 0}, {10, 1, 0, 0}));
  refuses("sequence 3 begins with 1 rows of the state from 60 on", with({0, 0, 0, 60}, {0, 0, 0, 1}));
  refuses("sequence 1 has 11 rows of the state and 10 of tokens; together at most 20",
          with({0, 0, 0, 0}, {0, 11, 0, 0}));
  got = passes("as many keys as positions", with({0, 0, 0, 0}, {0, 9, 0, 0}, 19));
  CHECK(got.longest_keys == 19, "%lld keys", static_cast<long long>(got.longest_keys));
  refuses("together at most 19", with({0, 0, 0, 0}, {0, 10, 0, 0}, 19));
  passes("as many keys as possible, with longer tables", with({0, 0, 0, 0}, {0, 10, 0, 0}, 21));
  // A program that writes has its rows in the state.
  got = passes("a batch that writes", [](Made *m, Batch *b) {
    reads_state(m, b);
    m->p.state.first = m->p.state.rows = 0;
  });
  CHECK(got.state_rows == 18 && got.longest_keys == 10, "%lld rows, %lld keys",
        static_cast<long long>(got.state_rows), static_cast<long long>(got.longest_keys));
}

TEST(outputs_say_how_many_bytes_they_take) {
  const auto m = std::make_unique<Made>();
  auto bytes = [&m](int32_t output, const sie_out_item *of, int64_t rows) {
    return sie_program_output_bytes(&m->p, output, of, rows);
  };
  const sie_out_item f32 = item(SIE_F32, 0, 0), bits = item(SIE_BINARY, 9, 0), sparse = item(SIE_F16, 5, 0),
                     wrong = item(SIE_BF16, 0, 0);
  struct {
    int32_t output;
    const sie_out_item *of;
    int64_t rows, want;
  } cases[] = {{0, &f32, 1, 40},
               {0, &bits, 1, 2},
               {0, &f32, 2, -1},
               {0, &f32, 0, -1},
               {0, nullptr, 1, -1},
               {0, &wrong, 1, -1},
               {1, nullptr, 7, 84},
               {1, &f32, 0, 0},
               {1, nullptr, -1, -1},
               {1, nullptr, 16777216, 16777216 * 12},
               {1, nullptr, 16777217, -1},
               {2, &f32, 3, 48},
               {2, &f32, 0, 0},
               {2, &f32, -1, -1},
               {2, nullptr, 3, -1},
               {2, &f32, 16777216, 16777216 * 16},
               {2, &f32, 16777217, -1},
               {3, &sparse, 1, 46},
               {3, &sparse, 2, -1},
               {3, &bits, 1, -1},
               {4, &sparse, 1, -1},
               {5, &f32, 9, 36},
               {-1, &f32, 1, -1},
               {6, &f32, 1, -1},
               {INT32_MIN, &f32, 1, -1},
               {INT32_MAX, &f32, 1, -1}};
  for (const auto &c : cases) {
    const int64_t got = bytes(c.output, c.of, c.rows);
    CHECK(got == c.want, "output %d, %lld rows: %lld bytes, %lld expected", c.output,
          static_cast<long long>(c.rows), static_cast<long long>(got), static_cast<long long>(c.want));
  }
  CHECK(sie_program_output_bytes(nullptr, 0, &f32, 1) == -1, "no program has outputs");
}
