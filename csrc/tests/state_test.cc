// state_test.cc — sequences behind prefixes whose keys and values are in a state have the bits that
// they have as whole sequences; what a state refuses.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "decoder.h"
#include "device.h"
#include "paths.h"
#include "refused.h"
#include "tests/check.h"

using decoder::Behind;
using decoder::Decoder;
using decoder::Result;
using decoder::Text;
using model::Path;

namespace {

// Prefixes of every adapter, and one of more than 512 rows.
std::vector<Text> prefixes_of_tests() {
  return {{1, 60, -1}, {2, 1, -1}, {3, 7, 0}, {4, 256, 1}, {5, 500, -1}, {6, 403, -1}};
}

// Texts behind them: ragged, without a prefix, to 511, 512, 513 and 514 keys, and long ones.
std::vector<Behind> texts_of_tests() {
  std::vector<Behind> texts;
  auto add = [&texts](int prefix, int length, int adapter) {
    texts.push_back({{100 + static_cast<int>(texts.size()), length, adapter}, prefix});
  };
  for (int length : {1, 2, 16, 31, 128}) add(0, length, -1);
  for (int length : {1, 32, 100}) add(1, length, -1);
  for (int length : {1, 9, 130}) add(2, length, 0);
  for (int length : {1, 128, 255, 256, 257, 258}) add(3, length, 1);
  for (int length : {1, 11, 12, 13, 14, 60, 600}) add(4, length, -1);
  for (int length : {100, 109, 110, 700}) add(5, length, -1);
  for (int length : {3, 128, 530}) add(-1, length, texts.size() % 2 == 0 ? -1 : 1);
  return texts;
}

void same_as_plain(Decoder *d, const char *name) {
  const std::vector<Text> prefixes = prefixes_of_tests();
  const std::vector<Behind> texts = texts_of_tests();
  const Result want = d->plain(prefixes, texts), got = d->shared(prefixes, texts);
  CHECK(got.status == SIE_OK && want.status == SIE_OK, "%s: status %d, %d: %s", name, got.status, want.status,
        d->err.message);
  const int n = differences(want, got);
  CHECK(n == 0, "%s: %d results differ", name, n);
  for (int b : {0, 7, 20}) {  // alone, behind a prefix that is alone
    Text prefix = prefixes[static_cast<size_t>(texts[static_cast<size_t>(b)].prefix)];
    Behind text = texts[static_cast<size_t>(b)];
    text.prefix = 0;
    const Result alone = d->shared({prefix}, {text});
    CHECK(alone.status == SIE_OK && alone.rows[0] == got.rows[static_cast<size_t>(b)] &&
              alone.last[0] == got.last[static_cast<size_t>(b)],
          "%s: text %d alone", name, b);
  }
}

}  // namespace

TEST(states_give_the_bits_of_whole_sequences) {
  for (const Path &path : model::machine_paths()) {
    for (int threads : {1, 3, 40}) {
      Decoder d;
      const sie_status status = d.open(SIE_DEVICE_CPU, path.isa, threads, path.compute);
      CHECK(status == SIE_OK, "%s: status %d %s %s", path.name, status, d.err.message, d.m.err.message);
      if (status == SIE_OK) same_as_plain(&d, path.name);
    }
  }
  Decoder judge;
  CHECK(judge.open(SIE_DEVICE_REF, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", judge.err.message);
  same_as_plain(&judge, "reference");
}

// A NaN in a prefix reaches every text behind it and no other.
TEST(states_pass_nans_on) {
  Decoder d;
  CHECK(d.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32) == SIE_OK, "%s", d.err.message);
  const std::vector<Text> prefixes = {{1, 40, -1}, {2, 1, -1}};
  const std::vector<Behind> texts = {{{9, 1, -1}, 0}, {{9, 1, -1}, 1}, {{10, 1, -1}, 0}, {{9, 1, -1}, -1}};
  harness::Random random(5002);  // of the second prefix's only row
  d.plant(random.below(97), 5, NAN);
  const Result want = d.plain(prefixes, texts), got = d.shared(prefixes, texts);
  CHECK(want.status == SIE_OK && got.status == SIE_OK, "%s", d.err.message);
  CHECK(want.nonfinite == got.nonfinite && got.nonfinite[1] == 1 && got.nonfinite[3] == 0,
        "flags %d %d %d %d", got.nonfinite[0], got.nonfinite[1], got.nonfinite[2], got.nonfinite[3]);
}

// Runs of both programs in turn, in one state: none reads what an earlier one wrote.
TEST(states_are_written_again) {
  Decoder d;
  CHECK(d.open(SIE_DEVICE_CPU, 0, 3, SIE_COMPUTE_F32) == SIE_OK, "%s", d.err.message);
  harness::Random random(77);
  for (int round = 0; round < 12; round++) {
    std::vector<Text> prefixes;
    std::vector<Behind> texts;
    const int n = 1 + random.below(5);
    for (int i = 0; i < n; i++)
      prefixes.push_back({random.below(50), 1 + random.below(120), random.below(3) - 1});
    for (int i = 0; i < 9; i++) {
      const int of = random.below(n + 1) - 1;
      const int adapter = of >= 0 ? prefixes[static_cast<size_t>(of)].adapter : -1;
      texts.push_back({{random.below(50), 1 + random.below(90), adapter}, of});
    }
    const int differ = differences(d.plain(prefixes, texts), d.shared(prefixes, texts));
    CHECK(differ == 0, "round %d: %d results differ (%s)", round, differ, d.err.message);
  }
}

TEST(states_refuse_what_does_not_fit) {
  Decoder d, other;
  CHECK(d.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", d.err.message);
  CHECK(other.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", other.err.message);
  const std::vector<Text> prefix = {{1, 60, -1}};
  auto status_of = [&d](const std::vector<Text> &prefixes, const std::vector<Behind> &texts,
                        const char *says) {
    const Result got = d.read(prefixes, texts);
    CHECK(got.status == SIE_INVALID_ARGUMENT && strstr(d.err.message, says) != nullptr, "%s: status %d: %s",
          says, got.status, d.err.message);
  };
  // Nothing is written yet; then 60 rows.
  status_of(prefix, {{{2, 5, -1}, 0}}, "0 are written");
  CHECK(d.read({}, {{{2, 5, -1}, -1}}).status == SIE_OK, "no text has a prefix: %s", d.err.message);
  CHECK(d.write(prefix) == SIE_OK, "%s", d.err.message);
  status_of({{1, 61, -1}}, {{{2, 5, -1}, 0}}, "names 61 rows of the state; 60 are written");
  status_of({{1, 50, -1}, {1, 20, -1}}, {{{2, 5, -1}, 1}}, "names 70 rows of the state; 60 are written");
  status_of({{1, 1301, -1}}, {{{2, 5, -1}, 0}}, "prefix_rows is 1301");
  status_of({{1, 1290, -1}, {1, 11, -1}}, {{{2, 5, -1}, 1}}, "at most 1300");
  status_of({{1, 700, -1}, {1, 700, -1}}, {{{2, 5, -1}, 1}}, "at most 1300");
  status_of({{1, 1300, -1}}, {{{2, 1, -1}, 0}}, "together at most 1300");
  status_of({{1, -1, -1}}, {{{2, 1, -1}, 0}}, "prefix_rows is -1");
  sie_state *own = d.state;
  d.state = nullptr;
  status_of(prefix, {{{2, 5, -1}, 0}}, "state is NULL");
  CHECK(d.write(prefix) == SIE_INVALID_ARGUMENT, "a program that writes needs a state");
  d.state = other.state;
  status_of(prefix, {{{2, 5, -1}, 0}}, "of another device");
  sie_state_desc small = sized<sie_state_desc>();
  small.bytes = 1000;
  sie_error err = {};
  CHECK(sie_state_create(d.m.device, &small, &d.state, &err) == SIE_OK, "%s", err.message);
  CHECK(d.write(prefix) == SIE_INVALID_ARGUMENT && strstr(d.err.message, "1000 bytes") != nullptr, "%s",
        d.err.message);
  sie_state_free(d.state);
  // 60 rows, to the byte.
  const int64_t row = sie_program_state_bytes(d.programs[Decoder::writer]) / decoder::state_rows;
  for (int64_t missing : {1, 0}) {
    small.bytes = 60 * row - missing;
    CHECK(sie_state_create(d.m.device, &small, &d.state, &err) == SIE_OK, "%s", err.message);
    const sie_status status = d.write(prefix);
    CHECK(status == (missing > 0 ? SIE_INVALID_ARGUMENT : SIE_OK), "%d missing: status %d: %s",
          static_cast<int>(missing), status, d.err.message);
    sie_state_free(d.state);
  }
  d.state = own;
  // The rows of the last write count, not those of one before that had more.
  CHECK(d.write({{1, 10, -1}}) == SIE_OK, "%s", d.err.message);
  status_of(prefix, {{{2, 5, -1}, 0}}, "names 60 rows of the state; 10 are written");
  // A batch without prefixes uses no state, not even that of the batch before, which may be gone.
  CHECK(d.shared(prefix, {{{2, 5, -1}, 0}}).status == SIE_OK, "%s", d.err.message);
  sie_state_free(d.state);
  d.state = nullptr;
  CHECK(d.read({}, {{{2, 5, -1}, -1}}).status == SIE_OK, "%s", d.err.message);
  small.bytes = -1;
  REFUSED(sie_state_create(d.m.device, &small, &own, &err));
  REFUSED(sie_state_place(other.state, &small, &err));
  REFUSED(sie_state_place(nullptr, &small, &err));
}

namespace {

const sie_ops *real;
std::atomic<int> calls_left{0};

// The n-th call fails.
sie_status failing_linear(const sie_linear_args *a, const sie_share *share) {
  if (*a->rows.n > 0 && calls_left.fetch_sub(1) == 1) return SIE_INTERNAL;
  return real->linear(a, share);
}

}  // namespace

// A run that is refused leaves the rows that are written; one that fails leaves none, whichever linear fails.
TEST(states_keep_no_rows_of_a_failed_run) {
  Decoder d;
  CHECK(d.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32) == SIE_OK, "%s", d.err.message);
  const std::vector<Text> prefix = {{1, 60, -1}}, longer = {{2, 70, -1}};
  const std::vector<Behind> texts = {{{3, 5, -1}, 0}, {{4, 20, -1}, 0}};
  const Result want = d.plain(prefix, texts);
  auto refuses = [&](const std::vector<Text> &prefixes, const char *says) {
    const Result got = d.read(prefixes, texts);
    CHECK(got.status == SIE_INVALID_ARGUMENT && strstr(d.err.message, says) != nullptr, "%s: status %d: %s",
          says, got.status, d.err.message);
  };
  CHECK(d.write(prefix) == SIE_OK, "%s", d.err.message);
  sie_arena *const own = d.arena;
  const sie_workspace small = {64, 0};
  CHECK(sie_arena_create(d.m.device, &small, &d.arena, &d.err) == SIE_OK, "%s", d.err.message);
  CHECK(d.write(longer) == SIE_INVALID_ARGUMENT && strstr(d.err.message, "the arena has lanes") != nullptr,
        "%s", d.err.message);
  sie_arena_free(d.arena);
  d.arena = own;
  refuses(longer, "names 70 rows of the state; 60 are written");
  CHECK(differences(want, d.read(prefix, texts)) == 0, "a refused run changes what is read: %s",
        d.err.message);
  real = d.m.device->ops;
  sie_ops faulty = *real;
  faulty.linear = failing_linear;
  for (int n : {1, 2, 5}) {  // of three blocks with two linears, the last of which has one
    d.m.device->ops = &faulty;
    calls_left.store(n);
    CHECK(d.write(longer) == SIE_INTERNAL, "call %d does not fail: %s", n, d.err.message);
    d.m.device->ops = real;
    for (const auto *prefixes : {&longer, &prefix}) refuses(*prefixes, "0 are written");
    CHECK(d.write(prefix) == SIE_OK && differences(want, d.read(prefix, texts)) == 0, "after call %d: %s", n,
          d.err.message);
  }
}

namespace {

// Programs of one device with a state of 8 rows, and what a batch of them runs in.
struct Programs {
  model::Model m;
  sie_error err = {};
  sie_arena *arena = nullptr;
  sie_slot *slot = nullptr;
  sie_state *state = nullptr;
  std::vector<sie_program *> all;

  Programs() { ok(m.open(SIE_DEVICE_REF, 0, 1, SIE_COMPUTE_F32)); }
  ~Programs() {
    sie_slot_free(slot);
    for (sie_program *p : all) sie_program_free(p);
    sie_arena_free(arena);
    sie_state_free(state);
  }
  void ok(sie_status status) { CHECK(status == SIE_OK, "%s %s", err.message, m.err.message); }

  // Attention with 32 columns of keys and of values in that segment; or, where columns are given,
  // writes as many of a linear into each segment.
  sie_program *make(int32_t segment, const std::vector<int64_t> &columns) {
    record::Caps caps;
    caps.max_tokens = caps.max_len = 8, caps.max_seqs = 2;
    sie_program *p = nullptr;
    sie_weight *word = nullptr, *w = nullptr;
    sie_value x = 0, y = 0, part[3] = {};
    ok(m.weight(SIE_WEIGHT_TABLE, SIE_COMPUTE_F32, 20, 64, 1, 0, &word));
    ok(m.weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, 256, 64, 1, 0, &w));
    ok(record::begin(m.device, caps, &p, &err));
    all.push_back(p);
    ok(record::state(p, 8, segment != 0, &err));
    sie_embed_params e = record::params<sie_embed_params>();
    e.ids = record::ids;
    e.word = word;
    e.norm = SIE_NORM_NONE;
    ok(record::result(p, SIE_EMBED, e, &x, &err));
    ok(record::linear(p, x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
    for (size_t i = 0; i < columns.size(); i++) {
      ok(record::columns(p, y, 0, columns[i], &part[0], &err));
      ok(record::state_rows(p, part[0], static_cast<int32_t>(i + 1), &err));
    }
    if (segment != 0) {
      for (int i = 0; i < 3; i++) ok(record::columns(p, y, 32 * i, 32, &part[i], &err));
      sie_attention_params a = record::params<sie_attention_params>();
      a.heads = 1;
      a.head_dim = 32;
      a.mask = SIE_MASK_CAUSAL;
      a.segment = segment;
      ok(record::attention(p, part[0], part[1], part[2], &a, &y, &err));
      ok(record::output_values(p, y, 0, &err));
    }
    return p;
  }

  void prepare() {
    sie_workspace most = {64, 0};
    const int64_t output_bytes = 8 * 32 * 4;
    sie_slot_caps caps = record::params<sie_slot_caps>();
    caps.n_outputs = 1;
    caps.max_tokens = 8;
    caps.max_seqs = 2;
    caps.output_bytes = &output_bytes;
    sie_state_desc desc = sized<sie_state_desc>();
    desc.bytes = 1 << 16;
    for (sie_program *p : all) {
      sie_workspace workspace;
      ok(sie_program_end(p, &workspace, &err));
      most = {std::max(most.lane, workspace.lane), std::max(most.region, workspace.region)};
      caps.input_bytes = std::max(caps.input_bytes, sie_program_input_bytes(p));
    }
    ok(sie_arena_create(m.device, &most, &arena, &err));
    ok(sie_slot_create(m.device, &caps, &slot, &err));
    ok(sie_state_create(m.device, &desc, &state, &err));
  }

  // Runs a text of two tokens, behind two rows where the program reads.
  sie_status run(sie_program *p) {
    const int32_t ids[] = {3, 5}, cu[] = {0, 2}, first[] = {0}, rows[] = {2};
    record::Batch b;
    b.n_seqs = 1;
    b.ids = ids;
    b.cu_seqlens = cu;
    b.prefix_first = first;
    b.prefix_rows = rows;
    ok(record::load(slot, p, &b, &err));
    const sie_status status = sie_program_submit(p, arena, slot, state, &err);
    return status == SIE_OK ? sie_slot_wait(slot, &err) : status;
  }
};

}  // namespace

// What a program reads is what the last run wrote: as wide, at the same place.
TEST(states_are_read_as_they_were_written) {
  Programs p;
  sie_program *first = p.make(1, {}), *second = p.make(2, {});
  sie_program *fits = p.make(0, {64}), *wide = p.make(0, {128}), *both = p.make(0, {64, 64});
  p.prepare();
  auto reads = [&p](sie_program *writer, sie_program *reader, bool can, const char *what) {
    p.ok(p.run(writer));
    const sie_status status = p.run(reader);
    CHECK(status == (can ? SIE_OK : SIE_INVALID_ARGUMENT), "%s: status %d: %s", what, status, p.err.message);
    CHECK(can || strstr(p.err.message, "segment ") != nullptr, "%s: %s", what, p.err.message);
  };
  reads(fits, first, true, "as it was written");
  reads(both, first, true, "one of two segments");
  reads(wide, first, false, "a segment of another width");
  reads(fits, second, false, "a segment that is not written");
  reads(both, second, false, "a segment at another place");
  reads(fits, first, true, "again");
}

TEST(states_are_declared_once_and_used_as_declared) {
  model::Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  record::Caps caps;
  caps.max_tokens = 100, caps.max_seqs = 4, caps.max_len = 50;
  sie_error none = {};
  sie_program *p = nullptr;
  sie_weight *word = nullptr, *w = nullptr;
  CHECK(m.weight(SIE_WEIGHT_TABLE, SIE_COMPUTE_F32, 20, 64, 1, 0, &word) == SIE_OK, "%s", m.err.message);
  CHECK(m.weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, 128, 64, 1, 0, &w) == SIE_OK, "%s", m.err.message);
  auto begin = [&](bool reads, sie_value *x, sie_value *kv) {
    sie_program_free(p);
    CHECK(record::begin(m.device, caps, &p, &none) == SIE_OK, "%s", none.message);
    if (reads) CHECK(record::state(p, 100, true, &none) == SIE_OK, "%s", none.message);
    sie_embed_params e = record::params<sie_embed_params>();
    e.ids = record::ids;
    e.word = word;
    e.norm = SIE_NORM_NONE;
    CHECK(record::result(p, SIE_EMBED, e, x, &none) == SIE_OK, "%s", none.message);
    CHECK(record::linear(p, *x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, kv, &none) == SIE_OK, "%s",
          none.message);
  };
  sie_value x = 0, kv = 0, y = 0, last = 0, narrow = 0;
  begin(false, &x, &kv);
  REFUSED(record::state_rows(p, kv, 1, &err));  // not declared
  REFUSED(record::state(p, 0, false, &err));    // no rows
  REFUSED(record::state(p, 99, false, &err));   // fewer than a batch has
  REFUSED(record::state(p, int64_t{1} << 40, false, &err));
  sie_state_params s = record::params<sie_state_params>();
  s.max_rows = 100;
  s.rows = record::adapter;
  REFUSED(record::add(p, SIE_STATE, s, &err));  // rows without first
  s.first = record::adapter;
  REFUSED(record::add(p, SIE_STATE, s, &err));  // the same input
  s.first = record::ids;
  REFUSED(record::add(p, SIE_STATE, s, &err));  // of tokens
  s.first = record::partner;
  REFUSED(record::add(p, SIE_STATE, s, &err));  // left out they are -1
  s.first = s.rows = 0;
  s.reserved = 1;
  REFUSED(record::add(p, SIE_STATE, s, &err));
  CHECK(record::state(p, 100, false, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::state(p, 100, false, &err));  // again
  REFUSED(record::state_rows(p, kv, 0, &err));
  REFUSED(record::state_rows(p, kv, SIE_MAX_SEGMENTS + 1, &err));
  REFUSED(record::state_rows(p, 99, 1, &err));
  CHECK(record::gather_rows(p, kv, SIE_POOL_LAST, &last, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::state_rows(p, last, 1, &err));  // one row a sequence
  CHECK(record::state_rows(p, kv, 1, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::state_rows(p, kv, 1, &err));  // written already
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = 1;
  a.head_dim = 64;
  a.mask = SIE_MASK_CAUSAL;
  a.segment = 2;
  REFUSED(record::attention(p, x, x, x, &a, &y, &err));  // it writes
  REFUSED(record::declare_space(p, record::labels, SIE_SPACE_ROWS, "more", 100, 50, 0, &err),
          SIE_UNSUPPORTED);
  sie_workspace workspace;
  CHECK(sie_program_state_bytes(p) == 0, "not ended");
  CHECK(sie_program_end(p, &workspace, &none) == SIE_OK, "%s", none.message);  // without an output
  CHECK(sie_program_state_bytes(p) == 100 * 128 * 4, "%lld bytes",
        static_cast<long long>(sie_program_state_bytes(p)));

  begin(true, &x, &kv);
  REFUSED(record::state_rows(p, kv, 1, &err));  // it reads
  sie_weight *slopes = nullptr;
  CHECK(m.vector({0.5f}, &slopes) == SIE_OK, "%s", m.err.message);
  a.segment = 1;
  a.alibi = slopes;
  REFUSED(record::attention(p, x, x, x, &a, &y, &err), SIE_UNSUPPORTED);
  a.alibi = nullptr;
  CHECK(record::gather_rows(p, x, SIE_POOL_CLS, &last, &none) == SIE_OK, "%s", none.message);
  a.which = SIE_POOL_CLS;
  REFUSED(record::attention(p, last, x, x, &a, &y, &err), SIE_UNSUPPORTED);
  a.which = 0;
  a.segment = SIE_MAX_SEGMENTS + 1;
  REFUSED(record::attention(p, x, x, x, &a, &y, &err));
  a.segment = -1;
  REFUSED(record::attention(p, x, x, x, &a, &y, &err));
  a.segment = 1;
  CHECK(record::attention(p, x, x, x, &a, &y, &none) == SIE_OK, "%s", none.message);
  a.heads = 2;
  a.head_dim = 32;
  CHECK(record::attention(p, x, x, x, &a, &y, &none) == SIE_OK, "as wide: %s", none.message);
  a.kv_heads = 1;
  CHECK(record::columns(p, x, 0, 32, &narrow, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::attention(p, x, narrow, narrow, &a, &y, &err));  // the segment is wider
  sie_rope_params r = record::params<sie_rope_params>();
  r.q = x;
  r.heads = 1;
  r.head_dim = 64;
  r.behind = 2;
  REFUSED(record::add(p, SIE_ROPE, r, &err));
  r.behind = 0;
  r.reserved = 1;
  REFUSED(record::add(p, SIE_ROPE, r, &err));
  sie_program_free(p);
  p = nullptr;
}
