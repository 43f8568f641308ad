// grow_test.cc — structs of other versions of the header, and the functions that find and describe
// parts of a program by name.
#include <stddef.h>
#include <string.h>

#include "device.h"
#include "grow.h"
#include "model.h"
#include "refused.h"

using model::Model;

namespace {

struct Recording {
  Model m;  // weights: word, position, type, gamma, beta
  sie_program *p = nullptr;
  sie_error none = {};
  Recording() {
    CHECK(m.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, {}) == SIE_OK, "%s", m.err.message);
    record::Caps caps;
    caps.max_tokens = caps.max_len = 64;
    caps.max_seqs = 4;
    CHECK(record::begin(m.device, caps, &p, &none) == SIE_OK, "%s", none.message);
  }
  ~Recording() { sie_program_free(p); }
  void ok(sie_status status) { CHECK(status == SIE_OK, "%s", none.message); }
  sie_value embed() {
    sie_value x = 0;
    ok(record::embed_layernorm(p, m.weights[0], nullptr, nullptr, m.weights[3], nullptr, 0, 0, &x, &none));
    return x;
  }
};

// A struct with an added field, as a later header may have it.
template <class T>
struct Later {
  T known;
  int32_t more[2];
};
template <class T>
Later<T> later(const T &t, int32_t last) {
  Later<T> l = {t, {0, last}};
  l.known.struct_size = sizeof l;
  return l;
}

}  // namespace

TEST(grow_shorter_structs_have_defaults_at_their_end) {
  Recording r;
  sie_value x = r.embed();
  // As in a header without eps and weight_offset.
  sie_norm_params n = sized<sie_norm_params>();
  n.x = x;
  n.y = 7;
  n.gamma = r.m.weights[3];
  n.eps = 9;  // beyond struct_size: ignored
  n.struct_size = offsetof(sie_norm_params, eps);
  r.ok(record::add(r.p, SIE_NORM, n, &r.none));
  CHECK(r.p->ops[r.p->ops.size() - 1].eps == 0, "a field beyond the struct was read");
  n.y = 8;
  n.struct_size = sizeof n;
  REFUSED(record::add(r.p, SIE_NORM, n, &err));
  for (uint32_t size : {0u, 4u, 7u, 9u, 1u << 20}) {
    n.struct_size = size;
    REFUSED(record::add(r.p, SIE_NORM, n, &err));
  }
  sie_device_options o = sized<sie_device_options>();
  o.kind = SIE_DEVICE_REF;
  o.struct_size = offsetof(sie_device_options, threads);
  o.threads = -1;
  sie_device *device = nullptr;
  r.ok(sie_device_open(&o, &device, &r.none));
  sie_device_info info = sized<sie_device_info>();
  memset(&info, 0xee, sizeof info);
  info.struct_size = offsetof(sie_device_info, isa);
  r.ok(sie_device_query(device, &info, &r.none));
  CHECK(info.kind == SIE_DEVICE_REF && info.threads == 1 && info.isa == 0xeeeeeeee,
        "more was written than there is room");
  sie_device_close(device);
}

TEST(grow_structs_are_words_up_to_a_largest_size) {
  uint32_t from[1025] = {}, to[2] = {};
  for (uint32_t size : {0u, 4u, 7u, 8u, 9u, 4095u, 4096u, 4100u}) {
    from[0] = size;
    sie_error err;
    const sie_status got = sie::take_struct(from, to, sizeof to, "it", &err);
    CHECK(got == (size == 8 || size == 4096 ? SIE_OK : SIE_INVALID_ARGUMENT), "%u bytes: status %d", size,
          got);
  }
}

TEST(grow_longer_structs_pass_while_the_rest_is_zero) {
  Recording r;
  sie_value x = r.embed();
  sie_norm_params n = sized<sie_norm_params>();
  n.x = x;
  n.y = 7;
  n.gamma = r.m.weights[3];
  Later<sie_norm_params> l = later(n, 0);
  r.ok(record::add(r.p, SIE_NORM, l, &r.none));
  n.y = 8;
  l = later(n, 1 << 24);
  sie_op op = {SIE_NORM, 0, &l};
  sie_error err = {};
  CHECK(sie_program_add(r.p, &op, 1, &err) == SIE_UNSUPPORTED, "a field that nobody knows was passed over");
  char want[64];
  snprintf(want, sizeof want, "byte %zu is not 0", sizeof n + 7);
  CHECK(strstr(err.message, want) != nullptr && strstr(err.message, "norm") != nullptr, "message: %s",
        err.message);
  // The other structs.
  sie_device *device = nullptr;
  sie_device_options o = sized<sie_device_options>();
  o.kind = SIE_DEVICE_REF;
  auto options = later(o, 0);
  r.ok(sie_device_open(&options.known, &device, &r.none));
  options.more[1] = 1;
  sie_device *second = nullptr;
  REFUSED(sie_device_open(&options.known, &second, &err), SIE_UNSUPPORTED);
  auto info = later(sie_device_info{}, -1);
  r.ok(sie_device_query(device, &info.known, &r.none));
  CHECK(info.more[1] == 0 && info.known.struct_size == sizeof info, "what is not known is not cleared");
  sie_device_close(device);
  float value = 1;
  sie_weight_desc d = sized<sie_weight_desc>();
  d.kind = SIE_WEIGHT_VECTOR;
  d.dtype = SIE_F32;
  d.n_parts = 1;
  d.n = d.k = 1;
  d.parts[0] = {&value, 1, 0};
  auto desc = later(d, 0);
  sie_weight *w = nullptr;
  r.ok(sie_weight_create(r.m.device, &desc.known, &w, &r.none));
  sie_weight_free(w);
  desc.more[0] = 1;
  REFUSED(sie_weight_create(r.m.device, &desc.known, &w, &err), SIE_UNSUPPORTED);
  auto batch = later(sized<sie_batch>(), 1);
  REFUSED(sie_slot_load(r.m.slots[0], r.m.program, &batch.known, &err), SIE_UNSUPPORTED);
  auto caps = later(sized<sie_slot_caps>(), 1);
  sie_slot *slot = nullptr;
  REFUSED(sie_slot_create(r.m.device, &caps.known, &slot, &err), SIE_UNSUPPORTED);
  auto state = later(sized<sie_state_desc>(), 1);
  sie_state *s = nullptr;
  REFUSED(sie_state_create(r.m.device, &state.known, &s, &err), SIE_UNSUPPORTED);
}

TEST(grow_statuses_have_names) {
  const char *const names[] = {"ok",          "invalid_argument", "unsupported", "corrupt", "out_of_memory",
                               "device_lost", "internal"};
  const char *const names_end = sie_status_name(static_cast<sie_status>(7));
  CHECK(strcmp(names_end, "unknown") == 0, "status 7 is %s", names_end);
  for (int i = 0; i <= SIE_INTERNAL; i++)
    CHECK(strcmp(sie_status_name(static_cast<sie_status>(i)), names[i]) == 0, "status %d is %s", i,
          sie_status_name(static_cast<sie_status>(i)));
}

TEST(grow_declarations_are_checked) {
  Recording r;
  auto space = [&](sie_space s, uint32_t kind, const char *name, int64_t rows, int64_t each, sie_input marks,
                   sie_error *err) {
    return record::declare_space(r.p, s, kind, name, rows, each, marks, err);
  };
  REFUSED(space(0, SIE_SPACE_SHARED, "a", 4, 0, 0, &err));
  REFUSED(space(SIE_MAX_SPACES + 1, SIE_SPACE_SHARED, "a", 4, 0, 0, &err));
  REFUSED(space(record::tokens, SIE_SPACE_SHARED, "a", 4, 0, 0, &err));
  REFUSED(space(5, SIE_SPACE_SHARED, "tokens", 4, 0, 0, &err));
  REFUSED(space(5, SIE_SPACE_SEQS, "a", 4, 0, 0, &err), SIE_UNSUPPORTED);
  REFUSED(space(5, 0, "a", 4, 0, 0, &err));
  REFUSED(space(5, 5, "a", 4, 0, 0, &err));
  REFUSED(space(5, SIE_SPACE_SHARED, "a", 0, 0, 0, &err));
  REFUSED(space(5, SIE_SPACE_SHARED, "a", 4, 1, 0, &err));
  for (int64_t least : {-1, 5}) {
    REFUSED(record::declare_space(r.p, 5, SIE_SPACE_ROWS, "a", 8, 4, 0, &err, least));
  }
  REFUSED(record::declare_space(r.p, 5, SIE_SPACE_SHARED, "a", 4, 0, 0, &err, 1));
  REFUSED(space(5, SIE_SPACE_SUBSET, "a", 4, 0, record::keep, &err));
  REFUSED(space(5, SIE_SPACE_SUBSET, "a", 0, 0, record::ids, &err));
  REFUSED(space(5, SIE_SPACE_SUBSET, "a", 0, 0, 11, &err));
  for (const char *name : {"", "A", "a b", "a name of more than thirty-one bytes",
                           "abcdefghijklmnopqrstuvwxyz_01234", "\xc3\xa9"}) {
    REFUSED(space(5, SIE_SPACE_SHARED, name, 4, 0, 0, &err));
  }
  REFUSED(space(5, SIE_SPACE_SHARED, nullptr, 4, 0, 0, &err));
  r.ok(space(5, SIE_SPACE_SHARED, "abcdefghijklmnopqrstuvwxyz_0123", 4, 0, 0, &r.none));
  auto input = [&](sie_input i, const char *name, sie_space s, uint32_t dtype, int32_t optional,
                   int32_t otherwise, sie_error *err) {
    return record::declare_input(r.p, i, name, s, dtype, optional, otherwise, err);
  };
  REFUSED(input(0, "b", 1, SIE_I32, 0, 0, &err));
  REFUSED(input(SIE_MAX_INPUTS + 1, "b", 1, SIE_I32, 0, 0, &err));
  REFUSED(input(record::ids, "b", 1, SIE_I32, 0, 0, &err));
  REFUSED(input(9, "ids", 1, SIE_I32, 0, 0, &err));
  REFUSED(input(9, "b", 0, SIE_I32, 0, 0, &err));
  REFUSED(input(9, "b", 8, SIE_I32, 0, 0, &err));
  REFUSED(input(9, "b", 1, SIE_F32, 0, 0, &err), SIE_UNSUPPORTED);
  REFUSED(input(9, "b", 5, SIE_I32, 0, 0, &err), SIE_UNSUPPORTED);
  REFUSED(input(9, "b", 2, SIE_U8, 0, 0, &err), SIE_UNSUPPORTED);
  REFUSED(input(9, "b", 1, SIE_I32, 2, 0, &err));
  REFUSED(input(9, "b", 1, SIE_I32, 0, 3, &err));
  REFUSED(input(9, "b", 1, SIE_U8, 1, 2, &err));
  REFUSED(input(9, "b", 5, SIE_F32, 1, 0, &err));
  // An optional input whose `otherwise` is a row that the table lacks.
  r.ok(input(9, "b", 1, SIE_I32, 1, 5000, &r.none));
  sie_embed_params e = sized<sie_embed_params>();
  e.y = 1;
  e.ids = 9;
  e.word = r.m.weights[0];
  e.gamma = r.m.weights[3];
  REFUSED(record::add(r.p, SIE_EMBED, e, &err));
  e.ids = record::adapter;
  REFUSED(record::add(r.p, SIE_EMBED, e, &err));
  e.ids = record::ids;
  e.y = SIE_MAX_VALUES + 1;
  REFUSED(record::add(r.p, SIE_EMBED, e, &err));
  e.y = SIE_MAX_VALUES;
  r.ok(record::add(r.p, SIE_EMBED, e, &r.none));
  REFUSED(record::add(r.p, SIE_EMBED, e, &err));  // the number is taken
  e.y = 2;
  sie_op op = {SIE_EMBED, 1, &e};  // reserved
  REFUSED(sie_program_add(r.p, &op, 1, &err));
  op = {99, 0, &e};
  REFUSED(sie_program_add(r.p, &op, 1, &err), SIE_UNSUPPORTED);
}

TEST(grow_outputs_of_sequences_need_their_space) {
  Recording r;
  sie_program *p = nullptr;
  r.ok(sie_program_begin(r.m.device, &p, &r.none));
  r.ok(record::declare_space(p, 1, SIE_SPACE_ROWS, "tokens", 64, 64, 0, &r.none));
  r.ok(record::declare_input(p, record::ids, "ids", 1, SIE_I32, 0, 0, &r.none));
  sie_value x = 0;
  r.ok(record::embed_layernorm(p, r.m.weights[0], nullptr, nullptr, r.m.weights[3], nullptr, 0, 0, &x,
                               &r.none));
  sie_muvera_params m = sized<sie_muvera_params>();
  m.repetitions = 1;
  const std::vector<float> anchors(64);
  sie_smve_params s = sized<sie_smve_params>();
  s.repetitions = s.width = s.top = 1;
  sie_weight *w = nullptr;
  r.ok(r.m.data(SIE_F32, 1, 64, anchors.data(), &w));
  s.anchors = w;
  REFUSED(record::output_muvera(p, x, &m, 0, &err));
  REFUSED(record::output_smve(p, x, &s, 0, &err));
  r.ok(record::declare_space(p, 2, SIE_SPACE_SEQS, "sequences", 4, 0, 0, &r.none));
  r.ok(record::output_muvera(p, x, &m, 0, &r.none));
  r.ok(record::output_smve(p, x, &s, 1, &r.none));
  for (int32_t o = 0; o < 2; o++) {
    sie_output_info info = sized<sie_output_info>();
    r.ok(sie_program_output(p, o, &info, &r.none));
    CHECK(info.space == 2, "output %d is of space %d", o, info.space);
  }
  sie_program_free(p);
}

TEST(grow_programs_answer_by_name) {
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  CHECK(sie_program_find_space(m.program, "sequences") == record::sequences, "no space");
  CHECK(sie_program_find_input(m.program, "type_ids") == record::type_ids, "no input");
  CHECK(sie_program_find_output(m.program, "o1") == 1 && sie_program_n_outputs(m.program) == 2, "no output");
  CHECK(sie_program_find_space(m.program, "x") == 0 && sie_program_find_input(m.program, "x") == 0 &&
            sie_program_find_output(m.program, "x") == -1,
        "a name of nothing");
  CHECK(sie_program_find_output(nullptr, "o1") == -1 && sie_program_find_output(m.program, nullptr) == -1,
        "null names something");
  sie_output_info out = sized<sie_output_info>();
  sie_error none = {};
  CHECK(sie_program_output(m.program, 1, &out, &none) == SIE_OK, "%s", none.message);
  CHECK(out.form == SIE_FORM_VALUES && out.space == record::tokens && out.columns == 64 &&
            strcmp(out.name, "o1") == 0,
        "output 1 is of form %u, %d columns of space %d", out.form, out.columns, out.space);
  REFUSED(sie_program_output(m.program, 2, &out, &err));
  sie_input_info in = sized<sie_input_info>();
  CHECK(sie_program_input(m.program, record::type_ids, &in, &none) == SIE_OK, "%s", none.message);
  CHECK(in.optional == 1 && in.least == 0 && in.most == 1 && in.columns == 1 && in.dtype == SIE_I32,
        "type_ids: %d to %d", in.least, in.most);
  CHECK(sie_program_input(m.program, record::ids, &in, &none) == SIE_OK && in.optional == 0 && in.most == 96,
        "ids to %d", in.most);
  REFUSED(sie_program_input(m.program, 12, &in, &err));
  sie_out_item item = {SIE_BINARY, 12, 0, 0, 0};
  CHECK(sie_program_output_bytes(m.program, 0, &item, 1) == 2, "bits of 12 columns");
  item = {SIE_F16, 0, 0, 0, 0};
  CHECK(sie_program_output_bytes(m.program, 0, &item, 1) == 128, "a row of halves");
  CHECK(sie_program_output_bytes(m.program, 1, nullptr, 10) == 10 * 64 * 4, "values");
  CHECK(sie_program_output_bytes(m.program, 0, &item, 2) == -1 &&
            sie_program_output_bytes(m.program, 2, &item, 1) == -1 &&
            sie_program_output_bytes(m.program, 0, nullptr, 1) == -1 &&
            sie_program_output_bytes(m.program, 1, nullptr, -1) == -1,
        "what cannot be has bytes");
  int64_t bytes = 0;
  CHECK(sie_slot_output(m.slots[0], 1, &bytes) != nullptr && bytes == 4096 * 64 * 4, "%lld bytes",
        static_cast<long long>(bytes));
  CHECK(sie_slot_output(m.slots[0], 2, &bytes) == nullptr && bytes == 0, "an output of nothing");
}

TEST(grow_states_are_empty_but_checked) {
  Model m, other;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK &&
            other.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK,
        "%s", m.err.message);
  sie_state_desc desc = sized<sie_state_desc>();
  sie_state *state = nullptr, *foreign = nullptr;
  sie_error none = {};
  REFUSED(sie_state_create(nullptr, &desc, &state, &err));
  REFUSED(sie_state_create(m.device, nullptr, &state, &err));
  REFUSED(sie_state_create(m.device, &desc, nullptr, &err));
  desc.reserved = 1;
  REFUSED(sie_state_create(m.device, &desc, &state, &err));
  desc.reserved = 0;
  CHECK(sie_state_create(m.device, &desc, &state, &none) == SIE_OK &&
            sie_state_create(other.device, &desc, &foreign, &none) == SIE_OK,
        "%s", none.message);
  model::Batch batch;
  batch.add(m.shape, 1, 20);
  record::Batch packed;
  packed.n_seqs = 1;
  packed.ids = batch.ids.data();
  packed.cu_seqlens = batch.cu.data();
  packed.items[0] = batch.items[0].data();
  CHECK(record::load(m.slots[0], m.program, &packed, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_submit(m.program, m.arena, m.slots[0], foreign, &err));
  CHECK(sie_program_submit(m.program, m.arena, m.slots[0], state, &none) == SIE_OK, "%s", none.message);
  CHECK(sie_slot_wait(m.slots[0], &none) == SIE_OK, "%s", none.message);
  sie_state_free(state);
  sie_state_free(foreign);
  sie_state_free(nullptr);
}

// Positions from the batch give the same bits as the model's own: each row's place plus 2.
TEST(grow_positions_of_the_batch) {
  for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_REF}) {
    Model m;
    CHECK(m.open(kind, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
    if (m.slots[0] == nullptr) return;
    std::vector<float> results[2];
    for (int explicitly = 0; explicitly < 2; explicitly++) {
      sie_program *p = nullptr;
      sie_error none = {};
      record::Caps caps;
      caps.max_tokens = caps.max_len = 64;
      caps.max_seqs = 4;
      auto ok = [&](sie_status status) { CHECK(status == SIE_OK, "%s", none.message); };
      ok(record::begin(m.device, caps, &p, &none));
      ok(record::declare_input(p, 7, "positions", record::tokens, SIE_I32, 0, 0, &none));
      sie_embed_params e = sized<sie_embed_params>();
      e.y = 1;
      e.ids = record::ids;
      e.word = m.weights[0];
      e.position = m.weights[1];
      e.gamma = m.weights[3];
      if (explicitly == 1) {
        e.positions = 7;
      } else {
        e.position_offset = 2;
      }
      ok(record::add(p, SIE_EMBED, e, &none));
      ok(record::output_values(p, 1, 0, &none));
      sie_workspace workspace;
      sie_arena *arena = nullptr;
      ok(sie_program_end(p, &workspace, &none));
      ok(sie_arena_create(m.device, &workspace, &arena, &none));
      const int32_t ids[] = {5, 6, 7, 8, 9}, cu[] = {0, 2, 5}, positions[] = {2, 3, 2, 3, 4},
                    far[] = {2, 3, 700, 3, 4};
      sie_rows_of spaces[] = {{0, cu}};
      const void *inputs[] = {ids, nullptr, nullptr, nullptr, nullptr, nullptr, positions};
      sie_batch batch = sized<sie_batch>();
      batch.n_spaces = 1;
      batch.n_inputs = 7;
      batch.n_seqs = 2;
      batch.spaces = spaces;
      batch.inputs = inputs;
      inputs[6] = far;
      if (explicitly == 1) REFUSED(sie_slot_load(m.slots[0], p, &batch, &err));
      inputs[6] = nullptr;
      if (explicitly == 1) REFUSED(sie_slot_load(m.slots[0], p, &batch, &err));
      inputs[6] = positions;
      ok(sie_slot_load(m.slots[0], p, &batch, &none));
      ok(sie_program_submit(p, arena, m.slots[0], nullptr, &none));
      ok(sie_slot_wait(m.slots[0], &none));
      const float *values = static_cast<const float *>(sie_slot_output(m.slots[0], 0, nullptr));
      results[explicitly].assign(values, values + 5 * 64);
      sie_arena_free(arena);
      sie_program_free(p);
    }
    CHECK(memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)) == 0,
          "positions of the batch give other rows");
  }
}
