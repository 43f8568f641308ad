// load_test.cc — what lies in a slot after a batch is loaded: for random batches of made-up programs,
// each part of each slab beside the batch itself; and the bytes that a slot needs for it.
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "fence.h"
#include "model.h"
#include "says.h"
#include "slot.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, kept = 3, queries = 4;
constexpr unsigned char poison = 0x11;
constexpr int32_t poisoned = 0x11111111;

// How the last numbers are used, and whether the program reads a state.
enum Kind { subset_last, rows_last, shared_last, with_state, kinds };

struct Made {
  Kind kind;
  model::Random random;
  sie_space words, some_words;  // a ROWS space and a subset of it
  sie_device device;
  sie_program p;
  sie_slot *slot = nullptr;
  Fence fence;
  // The batch.
  int64_t seqs, groups;
  std::vector<int32_t> cu[9];  // of ROWS and SHARED spaces
  std::vector<int32_t> numbers[21];
  std::vector<uint8_t> marks[21];
  std::vector<float> floats[21];
  std::vector<sie_out_item> items[5];

  Made(Kind of, uint32_t seed, int64_t n, int32_t longest)
      : kind(of), random(seed), words(of == rows_last ? 8 : 7), some_words(of == rows_last ? 7 : 8), seqs(n) {
    device.kind = SIE_DEVICE_CPU;
    device.threads = 3;
    p.device = &device;
    p.ended = true;
    p.serial = 77;
    p.seqs = sequences;
    p.rows = words;
    p.many = true;
    p.caps.max_seqs = 64;
    p.slab_seqs = 1 + random.below(40);
    space(tokens, SIE_SPACE_ROWS);
    space(sequences, SIE_SPACE_SEQS);
    space(kept, SIE_SPACE_SUBSET, 3);
    space(queries, SIE_SPACE_SHARED);
    space(words, SIE_SPACE_ROWS);
    if (kind == shared_last) {
      space(some_words, SIE_SPACE_SHARED);
    } else {
      space(some_words, SIE_SPACE_SUBSET, 4);
    }
    input(1, tokens, SIE_I32);
    input(2, tokens, SIE_I32).read = false;
    input(3, tokens, SIE_U8).optional = true;
    input(4, words, SIE_U8).optional = true;
    input(5, queries, SIE_F32, 3);
    input(6, queries, SIE_F32, 2).read = false;
    input(10, sequences, SIE_I32);
    input(11, sequences, SIE_I32).optional = true;
    input(12, tokens, SIE_I32).optional = true;
    input(13, sequences, SIE_I32);
    if (kind == shared_last) {
      input(20, some_words, SIE_F32, 1);
    } else if (kind == rows_last) {
      input(20, queries, SIE_F32, 2);
    } else {
      input(20, words, SIE_I32);
    }
    p.inputs[3].otherwise = random.below(2);
    p.inputs[11].otherwise = 5, p.inputs[12].otherwise = 7;
    if (kind == with_state) {
      p.state.declared = true;
      p.state.max_rows = 1000;
      p.state.first = 10, p.state.rows = 13;
    }
    output(SIE_FORM_ROWS, sequences, 16);
    output(SIE_FORM_VALUES, tokens, 2);
    output(SIE_FORM_TOKEN_ROWS, tokens, 4);
    output(SIE_FORM_TOKEN_ROWS, kept, 8);
    output(SIE_FORM_SPARSE, sequences, 100);
    make_batch(longest);
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;
  ~Made() { sie_slot_free(slot); }

  void space(sie_space number, uint32_t space_kind, sie_input of = 0) {
    sie::Space &s = p.spaces[number];
    s.kind = space_kind;
    s.marks = of;
    if (space_kind == SIE_SPACE_ROWS) s.max_rows = 64000, s.max_each = 2000;
    if (space_kind == SIE_SPACE_SHARED) s.max_rows = 300;
    if (space_kind == SIE_SPACE_SEQS) s.max_rows = 63;
  }
  sie::Input &input(sie_input number, sie_space of, int32_t dtype, int32_t columns = 1) {
    sie::Input &i = p.inputs[number];
    i.space = of;
    i.dtype = dtype;
    i.columns = columns;
    i.read = true;
    i.least = -1, i.bound = int64_t{1} << 31;
    return i;
  }
  void output(uint32_t form, sie_space of, int64_t columns) {
    sie::Output &o = p.outputs[p.n_outputs++];
    o.form = form;
    o.space = of;
    o.columns = columns;
  }

  void make_batch(int32_t longest) {
    for (sie_space s : {tokens, words}) {
      cu[s] = {0};
      for (int64_t b = 0; b < seqs; b++) cu[s].push_back(cu[s].back() + random.below(longest + 1));
    }
    groups = seqs > 0 ? random.below(5) : 0;
    for (sie_space s : {queries, some_words}) {
      if (p.spaces[s].kind != SIE_SPACE_SHARED || groups == 0) continue;
      cu[s] = {0};
      for (int64_t g = 0; g < groups; g++) cu[s].push_back(cu[s].back() + random.below(20));
    }
    for (sie_input i = 1; i <= 20; i++) {
      const sie::Input &in = p.inputs[i];
      if (in.space == 0) continue;
      const bool left_out = i == 12 || (i == 11 && random.below(2) == 0) || (i == 3 && random.below(4) == 0);
      const size_t n = static_cast<size_t>(rows_of(in.space) * in.columns);
      if (left_out) continue;
      for (size_t k = 0; k < n; k++) {
        if (in.dtype == SIE_I32) numbers[i].push_back(random.below(kind == with_state && i == 13 ? 40 : 900));
        if (in.dtype == SIE_U8) marks[i].push_back(static_cast<uint8_t>(random.below(2)));
        if (in.dtype == SIE_F32) floats[i].push_back(random.real());
      }
    }
    for (size_t o = 0; o < 5; o++) {
      for (int64_t b = 0; b < seqs && o != 1; b++) {
        sie_out_item item = {};
        item.dtype = SIE_F32;
        item.dims = 1 + random.below(4);
        item.offset = 16 * random.below(1000);
        items[o].push_back(item);
      }
    }
  }
  int64_t rows_of(sie_space s) const { return s == sequences ? seqs : cu[s].empty() ? 0 : cu[s].back(); }
  int64_t length(sie_space s, int64_t b) const {
    return cu[s][static_cast<size_t>(b + 1)] - cu[s][static_cast<size_t>(b)];
  }
  int64_t extent(int64_t b) const { return std::max(length(tokens, b), length(words, b)); }
  // Whether a subset keeps a row of the batch.
  bool keeps(sie_space s, int64_t row) const {
    const sie_input i = p.spaces[s].marks;
    return marks[i].empty() ? p.inputs[i].otherwise != 0 : marks[i][static_cast<size_t>(row)] != 0;
  }
  sie_space whole(sie_space s) const { return s == kept ? tokens : s == some_words ? words : s; }

  // Bytes of the parts: each begins a cache line.
  int64_t wanted_bytes(int64_t n, int64_t n_groups, int64_t (Made::*rows)(sie_space) const) const {
    int64_t sum = 0;
    auto add = [&sum](int64_t bytes) { sum += (bytes + 63) / 64 * 64; };
    for (sie_space s = 1; s <= 8; s++) {
      const uint32_t of = p.spaces[s].kind;
      if (of == SIE_SPACE_SHARED) add(4 * (n_groups + 1));
      if (of == SIE_SPACE_ROWS || of == SIE_SPACE_SUBSET) add(8 * n), add(4 * n);
      if (of == SIE_SPACE_SUBSET) add(4 * n), add(4 * (this->*rows)(whole(s)));
    }
    for (sie_input i = 1; i <= 20; i++) {
      const sie::Input &in = p.inputs[i];
      if (in.read && in.dtype != SIE_U8)
        add(4 * in.columns * (in.space == sequences ? n : (this->*rows)(in.space)));
    }
    for (int32_t o = 0; o < p.n_outputs; o++) {
      const sie::Output &out = p.outputs[o];
      if (out.form == SIE_FORM_ROWS || out.form == SIE_FORM_SPARSE) add(n * int64_t{sizeof(sie_out_item)});
      if (out.form == SIE_FORM_TOKEN_ROWS)
        add((this->*rows)(whole(out.space)) * int64_t{sizeof(sie_out_item)});
    }
    return sum;
  }
  int64_t most_rows(sie_space s) const { return p.spaces[s].max_rows; }
  int64_t bytes() const { return wanted_bytes(seqs, groups, &Made::rows_of); }

  // Makes a slot whose memory for the batch is as large as that, and poisoned.
  void make_slot(int64_t input_bytes) {
    static const std::vector<int64_t> room(5, 1 << 18);
    sie_slot_caps caps = sized<sie_slot_caps>();
    caps.n_outputs = 5;
    caps.output_bytes = room.data();
    caps.max_tokens = 64000, caps.max_seqs = 64;
    caps.input_bytes = input_bytes;
    sie_slot_free(slot);
    sie_error err = {};
    CHECK(sie_slot_create(&device, &caps, &slot, &err) == SIE_OK, "%s", err.message);
    for (const sie::Block *b : {&slot->inputs, &slot->slabs, &slot->nonfinite})
      memset(b->p, poison, b->bytes);
  }
  sie_status load(sie_error *err) {
    std::vector<sie_rows_of> spaces(8);
    for (size_t s = 1; s <= 8; s++) {
      spaces[s - 1].groups = groups;
      if (!cu[s].empty()) spaces[s - 1].offsets = fence.behind(cu[s]);
    }
    std::vector<const void *> inputs(20);
    for (size_t i = 1; i <= 20; i++) {
      if (!numbers[i].empty()) inputs[i - 1] = fence.behind(numbers[i]);
      if (!marks[i].empty()) inputs[i - 1] = fence.behind(marks[i]);
      if (!floats[i].empty()) inputs[i - 1] = fence.behind(floats[i]);
    }
    std::vector<const sie_out_item *> lists(5);
    for (size_t o = 0; o < 5; o++) {
      if (o != 1) lists[o] = fence.behind(items[o]);
    }
    sie_batch batch = sized<sie_batch>();
    batch.n_spaces = 8, batch.n_inputs = 20, batch.n_outputs = 5;
    batch.n_seqs = seqs;
    batch.spaces = fence.behind(spaces);
    batch.inputs = fence.behind(inputs);
    batch.items = fence.behind(lists);
    return sie_slot_load(slot, &p, &batch, err);
  }

  // The rows that a slab of these sequences has of a space, and where each sequence's begin.
  struct Rows {
    std::vector<int32_t> offsets = {0}, index, first;
  };
  Rows rows_of_slab(sie_space s, const int32_t *order, int32_t n) const {
    Rows rows;
    int32_t before = 0;  // rows of the whole space in the slab
    for (int32_t i = 0; i < n; i++) {
      const int32_t b = order[i], begin = cu[whole(s)][static_cast<size_t>(b)];
      const int32_t count = static_cast<int32_t>(length(whole(s), b));
      if (s == whole(s)) {
        rows.first.push_back(begin);
        rows.offsets.push_back(rows.offsets.back() + count);
        continue;
      }
      int32_t kept_before = 0;
      for (int32_t r = 0; r < begin; r++) kept_before += keeps(s, r);
      rows.first.push_back(kept_before);
      for (int32_t r = 0; r < count; r++) {
        if (keeps(s, begin + r)) rows.index.push_back(before + r);
      }
      rows.offsets.push_back(static_cast<int32_t>(rows.index.size()));
      before += count;
    }
    return rows;
  }

  void check_slab(int32_t number) const {
    const sie::SlabShare &share = static_cast<const sie::SlabShare *>(slot->shares.p)[number];
    const sie::Slab &slab = static_cast<const sie::Slab *>(slot->slabs.p)[number];
    const int32_t *const order = static_cast<const int32_t *>(slot->order.p) + share.first;
    const int32_t n = share.seqs;
    CHECK(slab.spaces[sequences].n == n && slab.spaces[sequences].first == order &&
              slab.spaces[sequences].offsets == nullptr && slab.spaces[sequences].index == nullptr,
          "slab %d has other sequences", number);
    int64_t longest = 0, keys = 0;
    for (int32_t i = 0; i < n; i++) {
      const int64_t b = order[i];
      longest = std::max(longest, extent(b));
      if (kind == with_state) keys = std::max(keys, numbers[13][static_cast<size_t>(b)] + length(words, b));
    }
    if (kind != with_state) keys = longest;
    CHECK(slab.max_len == longest && slab.max_keys == keys,
          "slab %d: %lld rows and %lld keys at most, not %lld and %lld", number,
          static_cast<long long>(slab.max_len), static_cast<long long>(slab.max_keys),
          static_cast<long long>(longest), static_cast<long long>(keys));
    for (sie_space s = 1; s <= 8; s++) {
      const uint32_t of = p.spaces[s].kind;
      const sie::SlabRows &got = slab.spaces[s];
      if (of == SIE_SPACE_SHARED) {
        CHECK(got.n == rows_of(s) && got.index == nullptr && got.first == nullptr, "space %d", s);
        CHECK(got.offsets[0] == 0 && (groups == 0 || same(got.offsets, cu[s])), "groups of space %d", s);
      } else if (of == SIE_SPACE_ROWS || of == SIE_SPACE_SUBSET) {
        const Rows want = rows_of_slab(s, order, n);
        CHECK(got.n == want.offsets.back() && same(got.offsets, want.offsets) && same(got.first, want.first),
              "slab %d: other rows of space %d", number, s);
        CHECK(of == SIE_SPACE_ROWS ? got.index == nullptr : same(got.index, want.index),
              "slab %d: other places in space %d", number, s);
      } else if (of == 0) {
        CHECK(got.n == 0 && got.offsets == nullptr, "space %d is not declared", s);
      }
    }
    for (sie_input i = 1; i <= 20; i++) check_input(slab, i, order, n);
    for (int32_t o = 0; o < 5; o++) check_items(slab, o, order, n);
  }
  template <class T>
  static bool same(const T *got, const std::vector<T> &want) {
    return want.empty() || (got != nullptr && std::equal(want.begin(), want.end(), got));
  }

  void check_input(const sie::Slab &slab, sie_input i, const int32_t *order, int32_t n) const {
    const sie::Input &in = p.inputs[i];
    if (in.space == 0 || !in.read || in.dtype == SIE_U8) {
      CHECK(slab.inputs[i] == nullptr, "input %d is there", i);
      return;
    }
    if (in.dtype == SIE_F32) {
      CHECK(same(static_cast<const float *>(slab.inputs[i]), floats[i]), "input %d has other values", i);
      return;
    }
    std::vector<int32_t> want;
    for (int32_t k = 0; k < n; k++) {
      const int64_t b = order[k], begin = in.space == sequences ? b : cu[in.space][static_cast<size_t>(b)];
      const int64_t count = in.space == sequences ? 1 : length(in.space, b);
      for (int64_t r = begin; r < begin + count; r++)
        want.push_back(numbers[i].empty() ? in.otherwise : numbers[i][static_cast<size_t>(r)]);
    }
    CHECK(slab.inputs[i] != nullptr && same(static_cast<const int32_t *>(slab.inputs[i]), want),
          "input %d has other values", i);
  }

  void check_items(const sie::Slab &slab, int32_t o, const int32_t *order, int32_t n) const {
    const sie::Output &out = p.outputs[o];
    const sie_out_item *got = slab.items[o];
    if (out.form == SIE_FORM_VALUES) {
      CHECK(got == nullptr, "values have items");
      return;
    }
    const bool spread = out.form == SIE_FORM_TOKEN_ROWS;
    const Rows of = spread ? rows_of_slab(out.space, order, n) : Rows();
    for (int32_t k = 0; k < n; k++) {
      const sie_out_item &item = items[static_cast<size_t>(o)][static_cast<size_t>(order[k])];
      const size_t i = static_cast<size_t>(k);
      const int64_t rows = spread ? of.offsets[i + 1] - of.offsets[i] : 1;
      for (int64_t r = 0; r < rows; r++, got++) {
        CHECK(got->offset == item.offset + r * 4 * item.dims && got->dims == item.dims &&
                  got->dtype == item.dtype,
              "output %d: item %d, row %lld lies at %lld", o, k, static_cast<long long>(r),
              static_cast<long long>(got->offset));
      }
    }
  }

  void check() {
    sie_error err = {};
    make_slot(std::max<int64_t>(bytes(), 1));
    CHECK(load(&err) == SIE_OK, "%s", err.message);
    CHECK(slot->program == &p && slot->program_serial == 77 && slot->state.load() == sie::run_loaded,
          "the slot is loaded for another program");
    int64_t sum = 0, prefixed = 0;
    for (int32_t s = 0; s < slot->n_slabs; s++) {
      check_slab(s);
      sum += static_cast<const sie::SlabShare *>(slot->shares.p)[s].seqs;
    }
    CHECK(sum == seqs, "%lld sequences of %lld", static_cast<long long>(sum), static_cast<long long>(seqs));
    for (int64_t b = 0; kind == with_state && b < seqs; b++) {
      const int32_t prefix = numbers[13][static_cast<size_t>(b)];
      if (prefix > 0) prefixed = std::max<int64_t>(prefixed, prefix + numbers[10][static_cast<size_t>(b)]);
    }
    CHECK(slot->state_rows == prefixed, "%lld rows of the state", static_cast<long long>(slot->state_rows));
    // Nothing behind the slabs, and behind the sequences' flags.
    if (slot->n_slabs < 64)
      CHECK(static_cast<const sie::Slab *>(slot->slabs.p)[slot->n_slabs].after == poisoned,
            "a slab too many");
    const int32_t *flags = static_cast<const int32_t *>(slot->nonfinite.p);
    for (int64_t b = 0; b < 64; b++)
      CHECK(flags[b] == (b < seqs ? 0 : poisoned), "flag %lld is %d", static_cast<long long>(b), flags[b]);
  }
};

}  // namespace

// Batches of 16, 32 and 64 sequences fill their parts to the last byte.
TEST(loads_are_the_batch_slab_by_slab) {
  uint32_t seed = 0;
  for (int kind = 0; kind < kinds; kind++) {
    for (int64_t seqs : {0, 1, 2, 5, 16, 17, 32, 64}) {
      for (int32_t longest : {3, 40, 200}) {
        const auto m = std::make_unique<Made>(static_cast<Kind>(kind), ++seed, seqs, longest);
        m->check();
      }
      // Each sequence alone.
      const auto m = std::make_unique<Made>(static_cast<Kind>(kind), ++seed, seqs, 20);
      m->p.slab_seqs = 1;
      m->check();
    }
  }
}

// A slot needs as many bytes as the batch's parts have, and as many as the largest batch's may have.
TEST(loads_need_the_bytes_of_their_parts) {
  for (int kind = 0; kind < kinds; kind++) {
    const auto m = std::make_unique<Made>(static_cast<Kind>(kind), 500 + static_cast<uint32_t>(kind), 9, 30);
    sie_error err = {};
    const int64_t need = m->bytes();
    m->make_slot(need);
    CHECK(m->load(&err) == SIE_OK, "%lld bytes do not do: %s", static_cast<long long>(need), err.message);
    m->make_slot(need - 1);
    SAYS("the batch's inputs need", m->load(&err));
    CHECK(m->slot->state.load() == sie::run_idle, "a refused batch is loaded");
    m->p.caps.max_seqs = 63;  // the offsets of 63 groups fill whole cache lines
    const int64_t most = m->wanted_bytes(63, 63, &Made::most_rows), got = sie_program_input_bytes(&m->p);
    CHECK(got == most, "kind %d: a program needs %lld bytes, %lld expected", kind,
          static_cast<long long>(got), static_cast<long long>(most));
    m->p.ended = false;
    CHECK(sie_program_input_bytes(&m->p) == 0, "a program that is not ended needs bytes");
    m->make_slot(need);
    SAYS("not ended", m->load(&err));
    m->p.ended = true;
    m->device.kind = SIE_DEVICE_CUDA;
    CHECK(sie_program_input_bytes(&m->p) == 0, "this build has no GPU");
    SAYS("no GPU", m->load(&err), SIE_INTERNAL);
    m->device.kind = SIE_DEVICE_CPU;
  }
  CHECK(sie_program_input_bytes(nullptr) == 0, "no program needs bytes");
}

TEST(loads_wait_for_the_run_before) {
  const auto m = std::make_unique<Made>(subset_last, 600, 5, 30);
  m->make_slot(m->bytes());
  for (uint32_t state : {sie::run_started, sie::run_done}) {
    m->slot->state.store(state);
    SAYS("in flight", m->load(&err));
  }
  for (uint32_t state : {sie::run_idle, sie::run_loaded}) {
    m->slot->state.store(state);
    PASSES(m->load(&err));
  }
  sie_batch batch = sized<sie_batch>();
  SAYS("is NULL", sie_slot_load(nullptr, &m->p, &batch, &err));
  SAYS("is NULL", sie_slot_load(m->slot, nullptr, &batch, &err));
  SAYS("slot, program or batch is NULL", sie_slot_load(m->slot, &m->p, nullptr, &err));
  sie_device other;
  m->slot->device = &other;
  SAYS("of two devices", m->load(&err));
  m->slot->device = &m->device;
}

// Long slabs lie side by side while they fit into the region, then from its start again, where a slab
// waits for all before that restart.
TEST(loads_place_long_slabs) {
  const auto m = std::make_unique<Made>(shared_last, 700, 6, 0);
  sie_program &p = m->p;
  p.many = false;
  p.rows = tokens;
  p.region_tokens = 4096;
  p.caps.max_len = 2000;
  p.long_row_bytes = 100, p.long_stage_bytes = 7, p.long_fixed_bytes = 64;
  p.n_outputs = 0;
  auto load = [&](const std::vector<int32_t> &lengths) {
    m->seqs = static_cast<int64_t>(lengths.size());
    for (sie_space s : {tokens, m->words}) {
      m->cu[s] = {0};
      for (int32_t length : lengths) m->cu[s].push_back(m->cu[s].back() + (s == tokens ? length : 0));
    }
    for (sie_input i : {1, 10, 11, 13})
      m->numbers[i].assign(static_cast<size_t>(i == 1 ? m->cu[tokens].back() : m->seqs), 0);
    m->marks[3].assign(static_cast<size_t>(m->cu[tokens].back()), 0);
    m->make_slot(1 << 20);
    sie_error err = {};
    CHECK(m->load(&err) == SIE_OK, "%s", err.message);
    // By the rule, with the region's bytes and those of a slab.
    const sie::Slab *const slabs = static_cast<const sie::Slab *>(m->slot->slabs.p);
    int64_t end = 0;
    int32_t after = 0, n = 0;
    for (int32_t s = 0; s < m->slot->n_slabs && slabs[s].max_len > 512; s++, n++) {
      const int64_t bytes = sie::long_bytes(&p, slabs[s].max_len);
      if (end + bytes > sie::region_bytes(&p)) end = 0, after = s;
      CHECK(slabs[s].place == end && slabs[s].after == after,
            "slab %d lies at %lld behind %d, not at %lld behind %d", s,
            static_cast<long long>(slabs[s].place), slabs[s].after, static_cast<long long>(end), after);
      end += bytes;
    }
    CHECK(m->slot->n_long == n, "%d long slabs, not %d", m->slot->n_long, n);
    return n;
  };
  CHECK(load({512, 100, 513, 3}) == 1, "a slab of 513 tokens is long, one of 512 is not");
  CHECK(load({600, 600, 1000, 1999, 700}) == 5, "all are long");
  CHECK(load({2000, 2000, 2000, 600}) == 4, "all are long");
  CHECK(load({100, 100}) == 0, "none is long");
  // Two of 1,024 tokens, and nothing else, fill a region.
  p.region_tokens = 2048;
  p.long_stage_bytes = p.long_fixed_bytes = 0;
  CHECK(load({1024, 1024, 1024}) == 3, "all are long");
  const sie::Slab *const slabs = static_cast<const sie::Slab *>(m->slot->slabs.p);
  CHECK(slabs[1].place == 102400 && slabs[1].after == 0 && slabs[2].place == 0 && slabs[2].after == 2,
        "two slabs do not fill the region");
}
