// record_output_test.cc — the outputs of a program: what is recorded of them, at every bound, on made-up
// programs; and what a program says of them.
#include <vector>

#include "made_program.h"
#include "wrapped.h"

namespace {

using made::kept;
using made::Program;
using made::sequences;
using made::takes;
using made::tokens;

constexpr int64_t most = 1 << 20;  // columns

struct Output : Program {
  sie_output_params o = sized<sie_output_params>();
  sie_status (*record)(sie_program *, const void *, sie_error *) = sie::record_output_rows;
  Output() {
    o.x = value(sequences, 16);
    o.name = "o";
  }
  sie_status add(sie_error *err) { return record(&p, &o, err); }
};

struct Sparse : Program {
  sie_output_sparse_params o = sized<sie_output_sparse_params>();
  Sparse() {
    o.x = value(sequences, 16);
    o.name = "o";
  }
  sie_status add(sie_error *err) { return sie::record_output_sparse(&p, &o, err); }
};

// Two repetitions of 2³ parts of 4 columns, of rows of 16.
struct Muvera : Program {
  sie_muvera_params m = sized<sie_muvera_params>();
  Muvera() {
    m.x = value(tokens, 16);
    m.name = "o";
    of(2, 3, 4, 0);
  }
  // Tables of the right shapes.
  void of(int32_t repetitions, int32_t bits, int32_t projected, int32_t final_dims) {
    m.repetitions = repetitions, m.simhash_bits = bits, m.projected = projected, m.final_dims = final_dims;
    m.simhash = bits > 0 ? data(int64_t{repetitions} * 16, bits) : nullptr;
    m.ams = projected > 0 ? indices(repetitions, 16, -projected, projected) : nullptr;
    const int64_t block = (int64_t{1} << (bits < 0 ? 0 : bits)) * (projected != 0 ? projected : 16);
    m.sketch = final_dims > 0 ? indices(repetitions * block, 1, -final_dims, final_dims) : nullptr;
  }
  // On a GPU the sketch is in rounds.
  void on_gpu() {
    device.kind = SIE_DEVICE_CUDA;
    of(2, 3, 4, 8);
    m.sketch = nullptr;
    m.sketch_output = indices(64, 1, 0, 8 << 10);
    m.sketch_source = indices(64, 1, -32, 32);
  }
  sie_status add(sie_error *err) { return sie::record_output_muvera(&p, &m, err); }
};

struct Smve : Program {
  sie_smve_params s = sized<sie_smve_params>();
  Smve() {
    s.x = value(tokens, 16);
    s.name = "o";
    of(3, 8);
  }
  void of(int32_t repetitions, int32_t width) {
    s.repetitions = repetitions, s.width = width;
    s.top = 1;
    s.anchors = data(int64_t{repetitions} * width, 16);
  }
  sie_status add(sie_error *err) { return sie::record_output_smve(&p, &s, err); }
};

void is(const Program &m, uint32_t form, sie_space space, int64_t columns, uint32_t kind) {
  const sie::Output &o = m.p.outputs[0];
  CHECK(m.p.n_outputs == 1 && o.form == form && o.space == space && o.columns == columns &&
            strcmp(o.name.text, "o") == 0,
        "form %u of space %d, %lld columns", o.form, o.space, static_cast<long long>(o.columns));
  CHECK(m.last_op().kind == kind && m.last_op().output == 0 && m.last_op().in[0] == 1, "operation %u",
        m.last_op().kind);
}

}  // namespace

TEST(recorded_outputs) {
  takes<Output>([](Output *) {},
                [](const Output &m) { is(m, SIE_FORM_ROWS, sequences, 16, SIE_OP_OUTPUT_ROWS); });
  auto values = [](Output *m) { m->record = sie::record_output_values; };
  auto token_rows = [](Output *m) { m->record = sie::record_output_token_rows; };
  takes<Output>(values,
                [](const Output &m) { is(m, SIE_FORM_VALUES, sequences, 16, sie::op_output_values); });
  takes<Output>([token_rows](Output *m) { token_rows(m), m->p.values[1].space = tokens; },
                [](const Output &m) { is(m, SIE_FORM_TOKEN_ROWS, tokens, 16, SIE_OP_OUTPUT_ROWS); });
  made::refuses<Output>("x has rows of tokens; pool and gather_rows give one row a sequence",
                        [](Output *m) { m->p.values[1].space = tokens; });
  made::refuses<Output>("x has rows of sequences; several rows a sequence are needed", token_rows);
  takes<Sparse>([](Sparse *) {},
                [](const Sparse &m) { is(m, SIE_FORM_SPARSE, sequences, 16, SIE_OP_OUTPUT_SPARSE); });
  for (uint32_t transform = 0; transform <= SIE_SPARSE_LOG_LOG; transform++)
    takes<Sparse>([transform](Sparse *m) { m->o.transform = transform; });
  made::refuses<Sparse>("is none of sie_sparse", [](Sparse *m) { m->o.transform = SIE_SPARSE_LOG_LOG + 1; });
  made::refuses<Sparse>("reserved is 1", [](Sparse *m) { m->o.reserved = 1; });
  made::refuses<Sparse>(
      "has no output_sparse", [](Sparse *m) { m->ops.output_sparse = nullptr; }, SIE_UNSUPPORTED);
  made::refuses<Sparse>("one row a sequence", [](Sparse *m) { m->p.values[1].space = tokens; });
}

TEST(recorded_outputs_of_splade) {
  // Values and sparse rows alone read what is as wide as a vocabulary.
  takes<Sparse>([](Sparse *m) { m->p.values[1].outputs_only = true; });
  takes<Output>([](Output *m) {
    m->record = sie::record_output_values;
    m->p.values[1].outputs_only = true;
  });
  made::refuses<Output>("result of splade", [](Output *m) { m->p.values[1].outputs_only = true; });
  // Value 0 is nobody's, and so is what a longer list has left behind its end.
  for (sie_value x : {INT32_MIN, -1, 0, 2, 3, INT32_MAX}) {
    made::refuses<Sparse>("that no operation before it makes", [x](Sparse *m) {
      sie::Value wide = m->p.values[1];
      wide.outputs_only = true;
      m->p.values[0].outputs_only = true;
      m->p.values.push(wide);
      m->p.values.pop();
      m->o.x = x;
    });
  }
  made::refuses<Sparse>("that no operation before it makes", [](Sparse *m) {
    m->o.x = m->next();
    CHECK(sie::reserve_value(&m->p, m->o.x), "no memory");
  });
}

TEST(recorded_outputs_have_names) {
  Output m;
  const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  for (int i = 0; i < 8; i++) {
    m.o.name = names[i];
    PASSES(m.add(&err));
    // Those so far, and no other.
    for (int j = 0; j <= i; j++) {
      m.o.name = names[j];
      SAYS("is recorded already", m.add(&err));
      CHECK(sie_program_find_output(&m.p, names[j]) == j, "%s is output %d", names[j],
            sie_program_find_output(&m.p, names[j]));
    }
    CHECK(sie_program_find_output(&m.p, "z") == -1 && sie_program_n_outputs(&m.p) == i + 1, "%d outputs",
          sie_program_n_outputs(&m.p));
  }
  m.o.name = "i";
  SAYS("at most 8 outputs", m.add(&err));
  // What is behind the last one is no output.
  m.p.n_outputs = 2;
  CHECK(sie_program_find_output(&m.p, "b") == 1 && sie_program_find_output(&m.p, "c") == -1,
        "an output too many");
  CHECK(sie_program_find_output(nullptr, "a") == -1 && sie_program_find_output(&m.p, nullptr) == -1,
        "an output of nothing");
  CHECK(sie_program_n_outputs(nullptr) == 0, "no program has outputs");
  sie_output_info info = sized<sie_output_info>();
  for (int32_t i : {0, 1}) {
    PASSES(sie_program_output(&m.p, i, &info, &err));
    CHECK(strcmp(info.name, names[i]) == 0 && info.form == SIE_FORM_ROWS && info.space == sequences &&
              info.columns == 16,
          "output %d is %s", i, info.name);
  }
  for (int32_t i : {INT32_MIN, -1, 2, 3, INT32_MAX})
    SAYS("the program has 2", sie_program_output(&m.p, i, &info, &err));
  SAYS("program is NULL", sie_program_output(nullptr, 0, &info, &err));
}

TEST(recorded_muvera) {
  takes<Muvera>([](Muvera *) {},
                [](const Muvera &m) {
                  is(m, SIE_FORM_ROWS, sequences, 64, SIE_OP_MUVERA);
                  CHECK(m.last_op().muvera.name == nullptr, "a name that is not kept");
                });
  auto of = [](int32_t repetitions, int32_t bits, int32_t projected, int32_t final_dims) {
    return [=](Muvera *m) { m->of(repetitions, bits, projected, final_dims); };
  };
  const struct {
    int32_t repetitions, bits, projected, final_dims;
    int64_t columns;
  } taken[] = {{1, 3, 4, 0, 32},    {4096, 8, 1, 0, most}, {2, 0, 4, 0, 8},
               {1, 10, 4, 0, 4096}, {2, 3, 0, 0, 256},     {1, 0, most, 0, most},
               {2, 3, 4, 1, 1},     {2, 3, 4, most, most}, {4096, 10, 4, 8, 8}};
  for (const auto &t : taken) {
    takes<Muvera>(of(t.repetitions, t.bits, t.projected, t.final_dims), [t](const Muvera &m) {
      CHECK(m.p.outputs[0].columns == t.columns, "%lld columns, %lld expected",
            static_cast<long long>(m.p.outputs[0].columns), static_cast<long long>(t.columns));
    });
  }
  const struct {
    int32_t repetitions, bits, projected, final_dims;
    const char *words;
  } refused[] = {{0, 3, 4, 0, "repetitions is 0"},
                 {-1, 3, 4, 0, "repetitions is -1"},
                 {4097, 0, 4, 0, "repetitions is 4097"},
                 {2, -1, 4, 0, "simhash_bits is -1"},
                 {2, 11, 4, 0, "simhash_bits is 11"},
                 {2, 3, -1, 0, "projected is -1"},
                 {1, 0, most + 1, 8, "projected is 1048577"},
                 {2, 3, 4, -1, "final_dims is -1"},
                 {2, 3, 4, most + 1, "final_dims is 1048577"},
                 {4096, 8, 2, 0, "the encoding has 2097152 columns; at most 1048576"},
                 {4096, 9, 1, 0, "the encoding has 2097152 columns; at most 1048576"},
                 {4095, 10, 5, 8, "the encoding has 20966400 columns; at most 16777216"}};
  for (const auto &r : refused)
    made::refuses<Muvera>(r.words, of(r.repetitions, r.bits, r.projected, r.final_dims));
  auto refuses = [](const char *words, void (*change)(Muvera *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Muvera>(words, change, want);
  };
  refuses("is_query is 2", [](Muvera *m) { m->m.is_query = 2; });
  refuses("fill_empty is 2", [](Muvera *m) { m->m.fill_empty = 2; });
  refuses("center_tokens is 2", [](Muvera *m) { m->m.center_tokens = 2; });
  refuses("normalize is 2", [](Muvera *m) { m->m.normalize = 2; });
  refuses("simhash has a table, but no bits",
          [](Muvera *m) { m->of(2, 0, 4, 0), m->m.simhash = m->data(32, 1); });
  refuses("simhash is [31, 3]; [32, 3]", [](Muvera *m) { m->m.simhash = m->data(31, 3); });
  refuses("simhash is [32, 2]; [32, 3]", [](Muvera *m) { m->m.simhash = m->data(32, 2); });
  refuses("ams has a table, but projected is 0",
          [](Muvera *m) { m->of(2, 3, 0, 0), m->m.ams = m->indices(2, 16, 0, 1); });
  refuses(
      "ams has indices up to 4, the least is -4; below 4",
      [](Muvera *m) { m->m.ams = m->indices(2, 16, -4, 5); }, SIE_CORRUPT);
  refuses("ams is [3, 16]; [2, 16]", [](Muvera *m) { m->m.ams = m->indices(3, 16, 0, 4); });
  refuses("declares no SEQS space", [](Muvera *m) { m->p.seqs = 0; });
  refuses("several rows a sequence are needed", [](Muvera *m) { m->p.values[1].space = sequences; });
  refuses("has no muvera", [](Muvera *m) { m->ops.muvera = nullptr; }, SIE_UNSUPPORTED);
}

TEST(recorded_sketches) {
  for (int which : {0, 1, 2}) {
    made::refuses<Muvera>("there is a sketch, but final_dims is 0", [which](Muvera *m) {
      (which == 0   ? m->m.sketch
       : which == 1 ? m->m.sketch_output
                    : m->m.sketch_source) = m->indices(64, 1, 0, 1);
    });
  }
  auto refuses = [](const char *words, void (*change)(Muvera *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Muvera>(words, change, want);
  };
  refuses("sketch is [63, 1]; [64, 1]",
          [](Muvera *m) { m->of(2, 3, 4, 8), m->m.sketch = m->indices(63, 1, 0, 1); });
  refuses(
      "sketch has indices up to 8",
      [](Muvera *m) { m->of(2, 3, 4, 8), m->m.sketch = m->indices(64, 1, 0, 9); }, SIE_CORRUPT);
  takes<Muvera>([](Muvera *m) { m->on_gpu(); });
  auto gpu = [](void (*change)(Muvera *)) { return [change](Muvera *m) { m->on_gpu(), change(m); }; };
  made::refuses<Muvera>("sketch_output is [65, 1]; [64, 1]",
                        gpu([](Muvera *m) { m->m.sketch_output = m->indices(65, 1, 0, 8 << 10); }));
  made::refuses<Muvera>("sketch_output has indices up to 8192",
                        gpu([](Muvera *m) { m->m.sketch_output = m->indices(64, 1, 0, 8193); }), SIE_CORRUPT);
  made::refuses<Muvera>("sketch_output has indices up to 8191, the least is -1",
                        gpu([](Muvera *m) { m->m.sketch_output = m->indices(64, 1, -1, 8192); }),
                        SIE_CORRUPT);
  made::refuses<Muvera>("sketch_source has indices up to 32",
                        gpu([](Muvera *m) { m->m.sketch_source = m->indices(64, 1, 0, 33); }), SIE_CORRUPT);
  made::refuses<Muvera>("sketch_source is [65, 1]; [64, 1]",
                        gpu([](Muvera *m) { m->m.sketch_source = m->indices(65, 1, 0, 32); }));
}

TEST(recorded_smve) {
  takes<Smve>([](Smve *) {},
              [](const Smve &m) {
                is(m, SIE_FORM_SPARSE, sequences, 24, SIE_OP_SMVE);
                CHECK(m.last_op().smve.name == nullptr, "a name that is not kept");
              });
  auto of = [](int32_t repetitions, int32_t width) { return [=](Smve *m) { m->of(repetitions, width); }; };
  takes<Smve>(of(1, 1));
  takes<Smve>(of(1, most));
  takes<Smve>(of(1 << 10, 1 << 10));
  const struct {
    int32_t repetitions, width;
  } refused[] = {
      {0, 8}, {-1, -8}, {3, 0}, {3, -1}, {1, most + 1}, {1 << 10, (1 << 10) + 1}, {1 << 30, 1 << 30}};
  for (const auto &r : refused)
    made::refuses<Smve>("at least 1 each and at most 1048576 together", of(r.repetitions, r.width));
  for (int32_t top : {1, 8}) takes<Smve>([top](Smve *m) { m->s.top = top; });
  for (int32_t top : {0, -1, 9})
    made::refuses<Smve>("1 to width (8) is possible", [top](Smve *m) { m->s.top = top; });
  auto refuses = [](const char *words, void (*change)(Smve *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Smve>(words, change, want);
  };
  refuses("max_nonzeros is -1", [](Smve *m) { m->s.max_nonzeros = -1; });
  refuses("is_query is 2", [](Smve *m) { m->s.is_query = 2; });
  refuses("normalize is 2", [](Smve *m) { m->s.normalize = 2; });
  refuses("anchors is [23, 16]; [24, 16]", [](Smve *m) { m->s.anchors = m->data(23, 16); });
  refuses("declares no SEQS space", [](Smve *m) { m->p.seqs = 0; });
  refuses("several rows a sequence are needed", [](Smve *m) { m->p.values[1].space = sequences; });
  refuses("has no smve", [](Smve *m) { m->ops.smve = nullptr; }, SIE_UNSUPPORTED);
}

// Sketches are ordered by rounds; entries are checked first, so an entry that is wrong tells bounds
// that are passed from those that are not.
TEST(sketches_are_ordered) {
  const int32_t sketch[] = {2, -1, 0, 2, ~2, 1, /* behind the last entry */ 9, 9, 9, 9, 9, 9};
  int32_t output[6], source[6];
  PASSES(sie_muvera_order(sketch, 2, 3, 3, output, source, &err));
  // By repetition and round, of which each result is in once: the places of those that are added to it, ~place
  // of those that are subtracted.
  const int32_t want_output[] = {2 << 10, 0, 0 | 1, 2 << 10, 1 << 10, 2 << 10 | 1};
  const int32_t want_source[] = {0, ~1, 2, 0, 2, ~1};
  for (int i = 0; i < 6; i++) CHECK(output[i] == want_output[i], "output[%d] is %d", i, output[i]);
  for (int i = 0; i < 6; i++) CHECK(source[i] == want_source[i], "source[%d] is %d", i, source[i]);
  wrapped::calls_left.store(0);
  SAYS("no memory to order a sketch", sie_muvera_order(sketch, 2, 3, 3, output, source, &err),
       SIE_OUT_OF_MEMORY);
  wrapped::calls_left.store(-1);
  PASSES(sie_muvera_order(sketch + 2, 1, 1, 1, output, source, &err));
  const int32_t wrong[] = {1 << 20};
  PASSES(sie_muvera_order(sketch, 1, 1, most, output, source, &err));
  const char *const entry = "entry 0 of the sketch is 1048576";
  SAYS(entry, sie_muvera_order(wrong, 1, 1 << 24, 3, output, source, &err), SIE_CORRUPT);
  SAYS(entry, sie_muvera_order(wrong, 1 << 24, 1, 3, output, source, &err), SIE_CORRUPT);
  SAYS(entry, sie_muvera_order(wrong, 4096, 4096, 3, output, source, &err), SIE_CORRUPT);
  const struct {
    int64_t repetitions, block, final_dims;
  } refused[] = {{0, 3, 3},
                 {-1, 3, 3},
                 {2, 0, 3},
                 {2, -1, 3},
                 {2, 3, 0},
                 {2, 3, -1},
                 {2, 3, most + 1},
                 {1, (1 << 24) + 1, 3},
                 {(1 << 24) + 1, 1, 3},
                 {4097, 4096, 3},
                 {INT64_MAX, 4096, 3}};
  for (const auto &r : refused)
    SAYS("a sketch of", sie_muvera_order(wrong, r.repetitions, r.block, r.final_dims, output, source, &err));
  const int32_t below[] = {0, ~3};
  SAYS("entry 1 of the sketch is -4; the result has 3 columns",
       sie_muvera_order(below, 1, 2, 3, output, source, &err), SIE_CORRUPT);
  SAYS("is NULL", sie_muvera_order(nullptr, 1, 1, 1, output, source, &err));
  SAYS("is NULL", sie_muvera_order(sketch, 1, 1, 1, nullptr, source, &err));
  SAYS("is NULL", sie_muvera_order(sketch, 1, 1, 1, output, nullptr, &err));
}
