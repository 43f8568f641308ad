// spaces_test.cc — programs with two ROWS spaces: tokens, and labels with offsets of their own.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <functional>

#include "heads.h"
#include "paths.h"
#include "program.h"
#include "refused.h"

using heads::Kind;
using model::Batch;
using model::Model;
using model::Path;
using model::Result;

namespace {

constexpr int hidden = 64, width = 3 * hidden;

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

// Outputs the projected rows of both spaces, and what attention from one to the other makes of
// them.
sie_status cross_tail(Model *m, sie_value x) {
  sie_value rows, of[2], q[2], k[2], v[2], y[2];
  sie_program *p = m->program;
  TRY(heads::embed_labels(m, &rows));
  for (int i = 0; i < 2; i++) {
    TRY(heads::project(m, i == 0 ? rows : x, width, hidden, &of[i]));
    TRY(record::columns(p, of[i], 0, hidden, &q[i], &m->err));
    TRY(record::columns(p, of[i], hidden, hidden, &k[i], &m->err));
    TRY(record::columns(p, of[i], 2 * hidden, hidden, &v[i], &m->err));
  }
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = 2;
  a.head_dim = 32;
  for (int i = 0; i < 2; i++) {
    TRY(record::attention(p, q[i], k[1 - i], v[1 - i], &a, &y[i], &m->err));
    TRY(record::output_values(p, of[i], 2 * i, &m->err));
    TRY(record::output_values(p, y[i], 2 * i + 1, &m->err));
  }
  return SIE_OK;
}

const heads::Head cross = {"cross",
                           cross_tail,
                           nullptr,
                           {{Kind::values, width, false, false, true},
                            {Kind::values, hidden, false, false, true},
                            {Kind::values, width},
                            {Kind::values, hidden}},
                           1,
                           false};

bool open(Model *m, const heads::Head &head, uint32_t isa, int threads, uint32_t compute) {
  model::Shape shape;
  shape.layers = 1;
  shape.tail = head.tail;
  sie_status status = m->open(SIE_DEVICE_CPU, isa, threads, compute, shape);
  CHECK(status == SIE_OK, "%s: %s", head.name, m->err.message);
  return status == SIE_OK;
}

// One column of attention's result for a query, from the projected rows of two spaces.
double attend(const std::vector<float> &queries, const std::vector<float> &keys, size_t query,
              size_t column) {
  size_t head = column / 32 * 32, n = keys.size() / width;
  double sum = 0, weighted = 0, largest = -1e30;
  std::vector<double> scores;
  for (size_t key = 0; key < n; key++) {
    double score = 0;
    for (size_t i = head; i < head + 32; i++) {
      score += static_cast<double>(queries[query * width + i]) *
               static_cast<double>(keys[key * width + hidden + i]);
    }
    scores.push_back(score / sqrt(32.0));
    largest = fmax(largest, scores.back());
  }
  for (size_t key = 0; key < n; key++) {
    double p = exp(scores[key] - largest);
    sum += p;
    weighted += p * static_cast<double>(keys[key * width + 2 * hidden + column]);
  }
  return n > 0 ? weighted / sum : 0;
}

}  // namespace

// 500 has 2 tokens and 640 labels; 1000 more labels than tokens, and both long; 1002 few labels.
static const std::vector<int> mixed = {1000, 3, 1002, 500, 1, 0, 5};

TEST(spaces_attend_to_each_other) {
  Model m;
  if (!open(&m, cross, 0, 2, SIE_COMPUTE_F32)) return;
  Batch batch = heads::batch_of(cross, m.shape, mixed, false);
  Result result = run(&m, batch);
  CHECK(result.status == SIE_OK, "status %d", result.status);
  for (int b = 0; b < static_cast<int>(mixed.size()); b++) {
    std::vector<float> rows[2], y[2];
    for (int i = 0; i < 2; i++) {
      rows[i] = heads::numbers_of(cross, batch, result, 2 * i, b);
      y[i] = heads::numbers_of(cross, batch, result, 2 * i + 1, b);
    }
    CHECK(rows[0].size() == static_cast<size_t>(heads::labels_of(mixed[static_cast<size_t>(b)]) * width) &&
              rows[1].size() == static_cast<size_t>(heads::length_of(mixed[static_cast<size_t>(b)]) * width),
          "sequence %d: %zu and %zu values", b, rows[0].size(), rows[1].size());
    for (int i = 0; i < 2; i++) {
      size_t n = y[i].size() / hidden;
      for (size_t row = 0; row < n; row += std::max<size_t>(1, n / 5)) {
        for (size_t c = 0; c < hidden; c += 9) {
          double want = attend(rows[i], rows[1 - i], row, c),
                 got = static_cast<double>(y[i][row * hidden + c]);
          CHECK(fabs(got - want) <= 1e-4, "sequence %d, space %d, row %zu: %g, %g expected", b, i, row, got,
                want);
        }
      }
    }
  }
}

TEST(spaces_change_no_bits) {
  const heads::Head &head = heads::named("labels");
  for (const Path &path : model::machine_paths()) {
    Batch batch;
    Result whole;
    for (int threads : {1, 2, 5}) {
      for (double flops : {sie::max_block_flops, 1.0}) {
        Model m;
        if (!open(&m, head, path.isa, threads, path.compute)) return;
        m.program->block_flops = flops;
        batch = heads::batch_of(head, m.shape, mixed, true);
        Result got = run(&m, batch);
        CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
        if (whole.bytes[1].empty()) whole = got;
        for (int b = 0; b < static_cast<int>(mixed.size()); b++) {
          Batch one = heads::batch_of(head, m.shape, {mixed[static_cast<size_t>(b)]}, true);
          Result alone = run(&m, one);
          for (int o = 0; o < 4; o++) {
            std::vector<uint8_t> want = heads::part(head, batch, whole, o, b);
            CHECK(heads::part(head, batch, got, o, b) == want, "%s, %d executors, %g flops: output %d of %d",
                  path.name, threads, flops, o, b);
            CHECK(heads::part(head, one, alone, o, 0) == want, "%s: output %d of %d alone", path.name, o, b);
          }
        }
      }
    }
  }
}

TEST(spaces_have_bounds_of_their_own) {
  const heads::Head &head = heads::named("labels");
  Model m;
  if (!open(&m, head, 0, 1, SIE_COMPUTE_F32)) return;
  auto refuse = [&](const char *what, const std::vector<int> &numbers,
                    const std::function<void(Batch *)> &change) {
    Batch batch = heads::batch_of(head, m.shape, numbers, false);
    change(&batch);
    m.err = {};
    refused(what, submit(&m, 0, batch), m.err);
  };
  refuse("no labels", {1, 2, 3}, [](Batch *b) { b->cu_labels.clear(); });
  refuse("labels that begin behind 0", {0, 2, 3}, [](Batch *b) { b->cu_labels[0] = 1; });
  refuse("labels that fall", {0, 2, 3}, [](Batch *b) { b->cu_labels[1] = b->cu_labels[3] + 1; });
  refuse("more labels than there are positions", {500}, [](Batch *b) {
    b->label_ids.resize(701, 1);
    b->choose.resize(701, 1);
    b->cu_labels[1] = 701;
  });
  refuse("a label that the table lacks", {0, 2, 3}, [](Batch *b) { b->label_ids[4] = 97; });
  refuse("a choice that is no mark", {0, 2, 3}, [](Batch *b) { b->choose[4] = 2; });
  refuse("no ids of labels", {0, 2, 3}, [](Batch *b) { b->label_ids.clear(); });
  // 3 sequences of 611 tokens and 4 of 640 labels: each space has room, the sum of the largest has
  // not.
  refuse("sequences that are too long together", {1098, 1398, 1698, 500, 503, 506, 509}, [](Batch *) {});
  Batch batch = heads::batch_of(head, m.shape, {1098, 1398, 1698, 500, 503, 506}, false);
  CHECK(run(&m, batch).status == SIE_OK, "%s", m.err.message);
}

// The labels' position table has fewer rows than a sequence may have labels.
TEST(spaces_are_bound_by_their_position_tables) {
  const heads::Head &head = heads::named("labels");
  model::Shape shape;
  shape.layers = 1;
  shape.positions = 130;
  shape.tail = head.tail;
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  Batch batch = heads::batch_of(head, m.shape, {12}, false);  // 130 labels
  CHECK(run(&m, batch).status == SIE_OK, "%s", m.err.message);
  batch.label_ids.push_back(1);
  batch.choose.push_back(0);
  batch.cu_labels[1]++;
  m.err = {};
  refused("a label without a position", submit(&m, 0, batch), m.err);
}

TEST(spaces_keep_apart) {
  Model m;
  if (!open(&m, heads::named("tokens"), 0, 1, SIE_COMPUTE_F32)) return;
  sie_program *p = m.program;
  sie_error none = {};
  record::Caps caps;
  caps.max_tokens = caps.max_len = 64;
  caps.max_seqs = 4;
  sie_program *fresh = nullptr;
  CHECK(record::begin(m.device, caps, &fresh, &none) == SIE_OK, "%s", none.message);
  m.program = fresh;
  sie_value x = 0, rows = 0, y = 0;
  auto ok = [&](sie_status status) { CHECK(status == SIE_OK, "%s %s", none.message, m.err.message); };
  ok(record::embed_layernorm(fresh, m.weights[0], nullptr, nullptr, m.weights[3], nullptr, 0, 0, &x, &none));
  ok(heads::embed_labels(&m, &rows));
  // Bounds are those of the largest space, whatever their order.
  ok(record::declare_space(fresh, 7, SIE_SPACE_ROWS, "few", 8, 4, 0, &none));
  const sie::Caps &bounds = fresh->caps;
  CHECK(bounds.max_rows == 4096 && bounds.max_len == 700 && bounds.max_extents == 4096 + 64 + 8,
        "at most %lld rows, %lld a sequence, %lld together", static_cast<long long>(bounds.max_rows),
        static_cast<long long>(bounds.max_len), static_cast<long long>(bounds.max_extents));
  sie_embed_params e = sized<sie_embed_params>();
  e.y = 9;
  e.ids = record::label_ids;
  e.type_ids = record::type_ids;  // of the tokens
  e.word = m.weights[0];
  e.type = m.weights[2];
  e.gamma = m.weights[3];
  REFUSED(record::add(fresh, SIE_EMBED, e, &err));
  e.type_ids = 0;
  e.type = nullptr;
  e.positions = record::ids;
  e.position = m.weights[1];
  REFUSED(record::add(fresh, SIE_EMBED, e, &err));
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = 2;
  a.head_dim = 32;
  REFUSED(record::attention(fresh, x, x, rows, &a, &y, &err));
  for (uint32_t mask : {SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
    a.mask = mask;
    REFUSED(record::attention(fresh, x, rows, rows, &a, &y, &err), SIE_UNSUPPORTED);
    ok(record::attention(fresh, rows, rows, rows, &a, &y, &none));
  }
  a.mask = SIE_MASK_FULL;
  sie_weight *slopes = nullptr;
  ok(m.vector(heads::slopes(), &slopes));
  a.alibi = slopes;
  REFUSED(record::attention(fresh, rows, x, x, &a, &y, &err), SIE_UNSUPPORTED);
  REFUSED(record::keep_rows(fresh, rows, &y, &err));  // of the tokens' subset
  sie_keep_rows_params keep = sized<sie_keep_rows_params>();
  keep.to = record::chosen_labels;
  keep.x = x;
  keep.y = record::next(fresh);
  REFUSED(record::add(fresh, SIE_KEEP_ROWS, keep, &err));
  REFUSED(record::join(fresh, x, rows, 0, &y, &err));
  sie_rope_params r = sized<sie_rope_params>();
  r.q = rows;
  r.k = x;
  r.heads = 2;
  r.head_dim = 32;
  REFUSED(record::add(fresh, SIE_ROPE, r, &err));
  r.k = rows;  // both are the same columns
  REFUSED(record::add(fresh, SIE_ROPE, r, &err));
  // An input of sequences, whose values would fit, gives no ids.
  ok(record::declare_input(fresh, 10, "numbers", record::sequences, SIE_I32, 0, 0, &none));
  e = sized<sie_embed_params>();
  e.y = 9;
  e.ids = 10;
  e.word = m.weights[0];
  e.gamma = m.weights[3];
  REFUSED(record::add(fresh, SIE_EMBED, e, &err));
  ok(record::output_values(fresh, rows, 0, &none));
  sie_workspace workspace;
  ok(sie_program_end(fresh, &workspace, &none));
  std::vector<char> text(8192);
  sie_program_describe(fresh, text.data(), text.size());
  CHECK(strstr(text.data(), "space labels: at most 4096 rows, 700 a sequence\n") != nullptr &&
            strstr(text.data(), "space chosen: rows of labels by choose\n") != nullptr &&
            strstr(text.data(), "input label_ids: i32[labels]\n") != nullptr,
        "%s", text.data());
  sie_program_free(fresh);
  m.program = p;
}
