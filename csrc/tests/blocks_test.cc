// blocks_test.cc — compares the heads of heads_blocks.cc with their formulas, computed from other
// outputs of the same run.
#include <math.h>

#include <algorithm>

#include "heads.h"
#include "paths.h"
#include "tests/check.h"

using model::Batch;
using model::Model;
using model::Result;

namespace {

constexpr int hidden = 64;

// Runs a head in F32 on the CPU and gives output o of sequence b.
struct Run {
  Model m;
  Batch batch;
  Result result;
  const heads::Head &head;

  explicit Run(const char *name) : Run(heads::named(name)) {}
  // kept, if not null, says how many first rows of a sequence of that length the batch keeps.
  explicit Run(const heads::Head &of, int (*kept)(int length) = nullptr,
               std::vector<int> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
      : head(of) {
    const char *name = head.name;
    model::Shape shape;
    shape.layers = 1;
    shape.tail = head.tail;
    CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s: %s", name, m.err.message);
    batch = heads::batch_of(head, m.shape, numbers, false);
    for (int b = 0; kept != nullptr && b < 12; b++) {
      const int first = batch.cu[static_cast<size_t>(b)], length = heads::length_of(b);
      for (int i = 0; i < length; i++) batch.keep[static_cast<size_t>(first + i)] = i < kept(length) ? 1 : 0;
    }
    result = run(&m, batch);
    CHECK(result.status == SIE_OK, "%s: status %d", name, result.status);
  }
  std::vector<float> rows(int o, int b) const { return heads::numbers_of(head, batch, result, o, b); }
};

void near(const char *what, int b, double got, double want, double tolerance) {
  CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s of sequence %d: %g, %g expected", what, b, got,
        want);
}

double at(const std::vector<float> &rows, int columns, int row, int column) {
  return static_cast<double>(rows[static_cast<size_t>(row * columns + column)]);
}

// What attention's score has beside q·k, of a head's query and key.
using Adds = double (*)(int head, int query, int key);
double nothing(int, int, int) { return 0; }
double slope(int head, int query, int key) {
  return -static_cast<double>(heads::slopes()[static_cast<size_t>(head)]) * abs(key - query);
}
double relative(int head, int query, int key) {
  const int reach = heads::bias_reach, held = std::clamp(key - query, -reach, reach);
  return static_cast<double>(heads::biases()[static_cast<size_t>(head * (2 * reach + 1) + held + reach)]);
}

enum class Sees { all, before, window };

// Computes one column of attention's result for one query, from rows of q (2 heads of 32), k and v,
// over the first `length` keys; 0 where none is seen.
double attention(const std::vector<float> &qkv, int length, int query, int column, Sees sees, Adds adds) {
  int head = column / heads::block_dim, d = heads::block_dim;
  double sum = 0, weighted = 0, largest = -1e30;
  std::vector<double> scores;
  for (int key = 0; key < length; key++) {
    bool seen =
        sees == Sees::all || (sees == Sees::before ? key <= query : abs(key - query) <= heads::block_window);
    double score = 0;
    for (int i = 0; i < d; i++) score += at(qkv, 128, query, head * d + i) * at(qkv, 128, key, 64 + i);
    score /= sqrt(static_cast<double>(d));
    score += adds(head, query, key);
    scores.push_back(seen ? score : -1e30);
    largest = fmax(largest, scores.back());
  }
  if (largest == -1e30) return 0;
  for (int key = 0; key < length; key++) {
    double p = exp(scores[static_cast<size_t>(key)] - largest);
    sum += p;
    weighted += p * at(qkv, 128, key, 96 + column % d);
  }
  return weighted / sum;
}

// Computes one head of q or k, normalised and rotated as recorded; by its length, if one is given.
std::vector<double> rotated(const std::vector<float> &qkv, int row, int first, int which,
                            float eps = heads::block_eps, double offset = 0, int length = 0) {
  int d = heads::block_dim, h = heads::block_rot / 2;
  std::vector<float> gamma = heads::head_gamma(which), cos = heads::rotation(false),
                     sin = heads::rotation(true);
  std::vector<double> x, y;
  double squares = 0;
  for (int i = 0; i < d; i++) squares += at(qkv, 128, row, first + i) * at(qkv, 128, row, first + i);
  double rms = sqrt(squares / d + static_cast<double>(eps));
  for (int i = 0; i < d; i++)
    x.push_back(at(qkv, 128, row, first + i) / rms *
                (offset + static_cast<double>(gamma[static_cast<size_t>(i)])));
  y = x;
  for (int i = 0; i < h; i++) {
    size_t a = static_cast<size_t>(i), b = static_cast<size_t>(i + h),
           p = static_cast<size_t>((row + (length > 0 ? 0 : 3)) * h + i);
    double c = static_cast<double>(cos[p]), s = static_cast<double>(sin[p]);
    if (length > heads::turned_from) {
      double angle = 2 * M_PI * row * heads::turn_of(length, i);
      c = ::cos(angle);
      s = ::sin(angle);
    }
    y[a] = x[a] * c - x[b] * s;
    y[b] = x[b] * c + x[a] * s;
  }
  return y;
}

}  // namespace

// The sum of a stream and of rows of the class's type, in f32: exact to the bit on every path.
static void check_stream(const heads::Head &head, Model *m, const char *path) {
  std::vector<int> numbers = {0, 1, 2, 3, 4, 5};
  Batch batch = heads::batch_of(head, m->shape, numbers, false);
  Result result = run(m, batch);
  CHECK(result.status == SIE_OK, "%s: %s", path, m->err.message);
  for (int b : numbers) {
    std::vector<float> first = heads::numbers_of(head, batch, result, 0, b),
                       branch = heads::numbers_of(head, batch, result, 1, b),
                       sum = heads::numbers_of(head, batch, result, 2, b);
    for (size_t i = 0; i < sum.size(); i++) {
      CHECK(sum[i] == branch[i] + first[i], "%s: sequence %d, element %zu: %a + %a gives %a", path, b, i,
            static_cast<double>(branch[i]), static_cast<double>(first[i]), static_cast<double>(sum[i]));
    }
  }
}

TEST(blocks_streams_add_in_f32) {
  const heads::Head &head = heads::named("stream");
  model::Shape shape;
  shape.layers = 1;
  shape.tail = head.tail;
  for (const model::Path &path : model::machine_paths()) {
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, path.isa, 2, path.compute, shape) == SIE_OK, "%s", m.err.message);
    if (m.program != nullptr) check_stream(head, &m, path.name);
  }
}

TEST(blocks_norms_sum_and_normalise) {
  Run r("residual");
  Run plain("tokens");  // the same model: gives the rows that the sum adds
  std::vector<float> gamma = heads::norm_gamma(), bias = heads::norm_bias();
  for (int b = 0; b < 12; b++) {
    std::vector<float> inner = r.rows(0, b), sum = r.rows(1, b), y = r.rows(2, b), x = plain.rows(1, b);
    for (int row = 0; row < heads::length_of(b); row++) {
      double squares = 0;
      for (int c = 0; c < hidden; c++) {
        double s = at(inner, hidden, row, c) + static_cast<double>(bias[static_cast<size_t>(c)]) +
                   at(x, hidden, row, c);
        near("the sum", b, at(sum, hidden, row, c), s, 1e-5);
        squares += s * s;
      }
      double rms = sqrt(squares / hidden + static_cast<double>(heads::block_eps));
      for (int c = 0; c < hidden; c++) {
        double want =
            at(sum, hidden, row, c) / rms * (1 + static_cast<double>(gamma[static_cast<size_t>(c)]));
        near("the norm", b, at(y, hidden, row, c), want, 1e-4);
      }
    }
  }
}

TEST(blocks_gates_multiply_pairs) {
  Run r("gate");
  for (int b = 0; b < 12; b++) {
    std::vector<float> z = r.rows(0, b), swiglu = r.rows(1, b), geglu = r.rows(2, b);
    for (int row = 0; row < heads::length_of(b); row++) {
      for (int j = 0; j < heads::gated; j++) {
        double g = at(z, 2 * heads::gated, row, 2 * j), up = at(z, 2 * heads::gated, row, 2 * j + 1);
        near("swiglu", b, at(swiglu, heads::gated, row, j), g / (1 + exp(-g)) * up, 1e-4);
        near("geglu", b, at(geglu, heads::gated, row, j), 0.5 * g * (1 + erf(g / sqrt(2.0))) * up, 1e-4);
      }
    }
  }
}

TEST(blocks_rotate_in_place_and_mask) {
  Run r("rotary");
  if (r.m.slots[0] == nullptr) return;
  for (int b = 0; b < 12; b++) {
    std::vector<float> before = r.rows(0, b), after = r.rows(1, b), causal = r.rows(2, b),
                       window = r.rows(3, b);
    int length = heads::length_of(b);
    for (int row = 0; row < length; row++) {
      for (int head = 0; head < 3; head++) {  // two of q, one of k
        std::vector<double> want = rotated(before, row, 32 * head, head < 2 ? 0 : 1);
        for (int i = 0; i < 32; i++)
          near("the rotation", b, at(after, 128, row, 32 * head + i), want[static_cast<size_t>(i)], 1e-4);
      }
      for (int c = 96; c < 128; c++) {
        CHECK(before[static_cast<size_t>(row * 128 + c)] == after[static_cast<size_t>(row * 128 + c)],
              "v of sequence %d has changed", b);
      }
      for (int c = 0; c < hidden; c += 7) {
        near("causal attention", b, at(causal, hidden, row, c),
             attention(after, length, row, c, Sees::before, nothing), 1e-4);
        near("windowed attention", b, at(window, hidden, row, c),
             attention(after, length, row, c, Sees::window, slope), 1e-4);
      }
    }
  }
}

// A long sequence is rotated in blocks of rows; the angles are those of the whole.
TEST(blocks_rotate_by_the_length_of_a_sequence) {
  const std::vector<int> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1000};
  Run r(heads::named("turned"), nullptr, numbers);
  if (r.m.slots[0] == nullptr) return;
  int shorter = 0, longer = 0;
  for (int b = 0; b < 13; b++) {
    std::vector<float> before = r.rows(0, b), after = r.rows(1, b);
    int length = heads::length_of(numbers[static_cast<size_t>(b)]);
    (length <= heads::turned_from ? shorter : longer)++;
    for (int row = 0; row < length; row++) {
      for (int head = 0; head < 3; head++) {
        std::vector<double> want =
            rotated(before, row, 32 * head, head < 2 ? 0 : 1, heads::block_eps, 0, length);
        for (int i = 0; i < 32; i++)
          near("the rotation", b, at(after, 128, row, 32 * head + i), want[static_cast<size_t>(i)], 1e-5);
      }
    }
  }
  CHECK(shorter > 1 && longer > 2, "%d sequences are short and %d long", shorter, longer);
}

TEST(blocks_attend_with_a_relative_bias) {
  Run r("relative bias");
  if (r.m.slots[0] == nullptr) return;
  for (int b = 0; b < 12; b++) {
    std::vector<float> qkv = r.rows(0, b), all = r.rows(1, b), window = r.rows(2, b), last = r.rows(3, b);
    int length = heads::length_of(b);
    for (int row = 0; row < length; row++) {
      for (int c = 0; c < hidden; c += 7) {
        double want = attention(qkv, length, row, c, Sees::all, relative);
        near("biased attention", b, at(all, hidden, row, c), want, 1e-4);
        near("biased attention in a window", b, at(window, hidden, row, c),
             attention(qkv, length, row, c, Sees::window, relative), 1e-4);
        if (row != length - 1) continue;
        CHECK(last[static_cast<size_t>(c)] == all[static_cast<size_t>(row * hidden + c)],
              "the last row of sequence %d has other bits alone", b);
      }
    }
  }
}

// The score of a query and a key in disentangled attention, times √d, from rows of q, k and v.
static double disentangled(const std::vector<float> &qkv, int query, int key, int head, bool by_query) {
  const int d = heads::block_dim, reach = heads::bucket_reach,
            bucket = heads::buckets()[static_cast<size_t>(std::clamp(query - key, -reach, reach) + reach)];
  const std::vector<float> keys = heads::positions_of(false), queries = heads::positions_of(true);
  double score = 0;
  for (int c = head * d; c < (head + 1) * d; c++) {
    const double q = at(qkv, 3 * hidden, query, c), k = at(qkv, 3 * hidden, key, hidden + c);
    score += q * k + q * at(keys, hidden, bucket, c) + (by_query ? k * at(queries, hidden, bucket, c) : 0);
  }
  return score;
}

TEST(blocks_attend_by_distance_and_content) {
  Run r("disentangled");
  if (r.m.slots[0] == nullptr) return;
  for (int b = 0; b < 12; b++) {
    std::vector<float> qkv = r.rows(0, b), all = r.rows(1, b), first = r.rows(2, b), keys = r.rows(3, b);
    const int length = heads::length_of(b);
    for (int i = 0; i < length * 4; i++) {
      const int row = i / 4, c = i % 4 * 16 + row % 16;
      for (bool by_query : {true, false}) {
        double sum = 0, weighted = 0;
        for (int key = 0; key < length; key++) {
          const double p = exp(disentangled(qkv, row, key, c / heads::block_dim, by_query) /
                               sqrt(static_cast<double>(heads::block_dim)));
          sum += p;
          weighted += p * at(qkv, 3 * hidden, key, 2 * hidden + c);
        }
        near("disentangled attention", b, at(by_query ? all : keys, hidden, row, c), weighted / sum, 1e-4);
      }
      CHECK(row > 0 || first[static_cast<size_t>(c)] == all[static_cast<size_t>(c)],
            "the first row of sequence %d has other bits alone", b);
    }
  }
}

// Attention in a window to the kept rows, which are the first of each sequence.
static sie_status first_keys_tail(Model *m, sie_value x) {
  heads::Qkv qkv;
  sie_status status = heads::make_qkv(m, x, &qkv);
  if (status == SIE_OK) status = record::output_values(m->program, qkv.all, 0, &m->err);
  for (sie_value *part : {&qkv.k, &qkv.v}) {
    if (status == SIE_OK) status = record::keep_rows(m->program, *part, part, &m->err);
  }
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = heads::block_heads;
  a.kv_heads = heads::block_kv_heads;
  a.head_dim = heads::block_dim;
  a.mask = SIE_MASK_WINDOW;
  a.window = heads::block_window;
  a.first_keys = 1;
  sie_value y = 0;
  if (status == SIE_OK) status = record::attention(m->program, qkv.q, qkv.k, qkv.v, &a, &y, &m->err);
  return status == SIE_OK ? record::output_values(m->program, y, 1, &m->err) : status;
}

TEST(blocks_attend_to_first_keys) {
  const heads::Output values = {heads::Kind::values, hidden};
  const heads::Head head = {
      "first keys", first_keys_tail, nullptr, {{heads::Kind::values, 128}, values, {}, {}}, 1, false};
  auto kept = [](int length) { return (length + 2) / 3; };
  Run r(head, kept);
  if (r.m.slots[0] == nullptr) return;
  int blind = 0;
  for (int b = 0; b < 12; b++) {
    std::vector<float> qkv = r.rows(0, b), y = r.rows(1, b);
    int length = heads::length_of(b);
    for (int row = 0; row < length; row++) {
      blind += row - heads::block_window >= kept(length) ? 1 : 0;
      for (int c = 0; c < hidden; c += 7) {
        near("attention to first keys", b, at(y, hidden, row, c),
             attention(qkv, kept(length), row, c, Sees::window, nothing), 1e-4);
      }
    }
  }
  CHECK(blind > 20, "only %d rows see no key", blind);
  // A batch that keeps a row behind one that it leaves out has keys without places.
  Batch bad = r.batch;
  const int longest = 11, last = bad.cu[longest + 1] - 1;
  CHECK(heads::length_of(longest) > 2, "sequence %d is too short", longest);
  bad.keep[static_cast<size_t>(last)] = 1;
  CHECK(run(&r.m, bad).status == SIE_INVALID_ARGUMENT, "rows behind others are taken for the first");
  // All or none are first rows.
  for (uint8_t all : {uint8_t{0}, uint8_t{1}}) {
    std::fill(bad.keep.begin(), bad.keep.end(), all);
    CHECK(run(&r.m, bad).status == SIE_OK, "marks of %d alone are refused", all);
  }
}

TEST(blocks_pool_by_position_by_score_and_by_size) {
  Run r("pools");
  std::vector<float> w = heads::scorer();
  for (int b = 0; b < 12; b++) {
    std::vector<float> weighted = r.rows(0, b), joined = r.rows(1, b), x = r.rows(2, b),
                       largest = r.rows(3, b);
    int length = heads::length_of(b);
    std::vector<double> scores(static_cast<size_t>(length), 0);
    double total = 0, positions = 0;
    for (int row = 0; row < length; row++) {
      for (int c = 0; c < hidden; c++)
        scores[static_cast<size_t>(row)] +=
            at(x, hidden, row, c) * static_cast<double>(w[static_cast<size_t>(c)]);
      total += exp(scores[static_cast<size_t>(row)]);
      positions += row + 1;
    }
    for (int c = 0; c < hidden; c++) {
      double by_position = 0, by_score = 0, sum = 0, most = -INFINITY;
      for (int row = 0; row < length; row++) {
        by_position += (row + 1) * at(x, hidden, row, c) / positions;
        by_score += exp(scores[static_cast<size_t>(row)]) * at(x, hidden, row, c) / total;
        sum += at(x, hidden, row, c);
        most = fmax(most, at(x, hidden, row, c));
      }
      near("the weighted mean", b, static_cast<double>(weighted[static_cast<size_t>(c)]), by_position, 1e-5);
      near("the scored mean", b, at(joined, 2 * hidden, 0, c), by_score, 1e-4);
      near("the sum by √n", b, at(joined, 2 * hidden, 0, hidden + c), sum / sqrt(fmax(length, 1)), 1e-5);
      near("the largest", b, at(largest, hidden, 0, c), length > 0 ? most : 0, 0);
    }
  }
}

// A sequence that keeps no row gives zeros in every mode.
TEST(blocks_pool_kept_rows_by_their_places_among_all) {
  Run r("kept pools");
  int empty = 0;
  for (int b = 0; b < 12; b++) {
    std::vector<float> weighted = r.rows(0, b), joined = r.rows(1, b), x = r.rows(2, b),
                       largest = r.rows(3, b);
    std::vector<int> places;
    for (int row = 0; row < heads::length_of(b); row++)
      if (r.batch.keep[static_cast<size_t>(r.batch.cu[static_cast<size_t>(b)] + row)] != 0)
        places.push_back(row);
    const int n = static_cast<int>(places.size());
    empty += n == 0 ? 1 : 0;
    double total = 0;
    for (int place : places) total += place + 1;
    for (int c = 0; c < hidden; c++) {
      double by_place = 0, sum = 0, most = n > 0 ? -INFINITY : 0;
      for (int row = 0; row < n; row++) {
        by_place += (places[static_cast<size_t>(row)] + 1) * at(x, hidden, row, c) / total;
        sum += at(x, hidden, row, c) / sqrt(n);
        most = fmax(most, at(x, hidden, row, c));
      }
      const double first = n > 0 ? at(x, hidden, 0, c) : 0, last = n > 0 ? at(x, hidden, n - 1, c) : 0;
      near("the kept weighted mean", b, static_cast<double>(weighted[static_cast<size_t>(c)]), by_place,
           1e-5);
      near("the largest kept", b, static_cast<double>(largest[static_cast<size_t>(c)]), most, 0);
      const double want[] = {first, most, sum, by_place, last};
      for (int i = 0; i < 5; i++)
        near("a joined pooling of kept rows", b, at(joined, 5 * hidden, 0, i * hidden + c), want[i], 1e-5);
    }
  }
  CHECK(empty > 0, "every sequence keeps a row");
}

TEST(blocks_join_columns) {
  Run r("join");
  Run plain("tokens");  // the same model: gives the rows that are joined with others
  for (int b = 0; b < 12; b++) {
    std::vector<float> all = r.rows(0, b), pools = r.rows(2, b), narrow = r.rows(3, b), x = plain.rows(1, b);
    int length = heads::length_of(b);
    std::vector<double> mean(hidden), weighted(hidden);
    for (int row = 0; row < length; row++) {
      for (int c = 0; c < heads::joined; c++) {
        int second = c - hidden, third = second - heads::reduced;
        double want = third >= 0    ? at(x, hidden, row, heads::joined_first + third)
                      : second >= 0 ? at(narrow, heads::reduced, row, second)
                                    : at(x, hidden, row, c);
        near("joined columns", b, at(all, heads::joined, row, c), want, 0);
      }
      for (int c = 0; c < hidden; c++) {
        mean[static_cast<size_t>(c)] += at(x, hidden, row, c) / length;
        weighted[static_cast<size_t>(c)] += (row + 1) * at(x, hidden, row, c) / (0.5 * length * (length + 1));
      }
    }
    for (int c = 0; c < hidden; c++) {
      near("the joined mean", b, at(pools, 2 * hidden, 0, c), mean[static_cast<size_t>(c)], 1e-5);
      near("the joined weighted mean", b, at(pools, 2 * hidden, 0, hidden + c),
           weighted[static_cast<size_t>(c)], 1e-5);
    }
  }
}

// The word's rows: unchanged, scaled, and normalised with weights that stand for 1 + gamma; and
// attention with a scale of its own.
static sie_status embeddings_tail(Model *m, sie_value) {
  sie_weight *gamma;
  sie_value plain, scaled, normal, y;
  auto embed = [m](sie_embed_params e, sie_value *to) {
    e.ids = record::ids;
    e.word = m->weights[0];
    return record::result(m->program, SIE_EMBED, e, to, &m->err);
  };
  sie_embed_params e = record::params<sie_embed_params>();
  e.norm = SIE_NORM_NONE;
  sie_status status = embed(e, &plain);
  e.word_scale = 3;
  if (status == SIE_OK) status = embed(e, &scaled);
  if (status == SIE_OK) status = m->vector(heads::norm_gamma(), &gamma);
  if (status != SIE_OK) return status;
  e = record::params<sie_embed_params>();
  e.norm = SIE_NORM_RMS;
  e.gamma = gamma;
  e.eps = 0.5f;
  e.weight_offset = 1;
  status = embed(e, &normal);
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = 1;
  a.head_dim = hidden;
  a.scale = 0.5f;
  if (status == SIE_OK) status = record::attention(m->program, plain, plain, plain, &a, &y, &m->err);
  for (int32_t o = 0; o < 4 && status == SIE_OK; o++) {
    const sie_value values[] = {plain, scaled, normal, y};
    status = record::output_values(m->program, values[o], o, &m->err);
  }
  return status;
}

TEST(blocks_embed_scale_and_normalise) {
  const heads::Output values = {heads::Kind::values, hidden};
  const heads::Head head = {"embeddings", embeddings_tail, nullptr, {values, values, values, values}, 1,
                            false};
  Run r(head);
  std::vector<float> gamma = heads::norm_gamma();
  for (int b = 0; b < 12; b++) {
    std::vector<float> x = r.rows(0, b), scaled = r.rows(1, b), normal = r.rows(2, b), y = r.rows(3, b);
    int length = heads::length_of(b);
    for (int row = 0; row < length; row++) {
      double squares = 0, sum = 0;
      for (int c = 0; c < hidden; c++) squares += at(x, hidden, row, c) * at(x, hidden, row, c);
      std::vector<double> p, mixed(hidden);
      for (int key = 0; key < length; key++) {
        double score = 0;
        for (int c = 0; c < hidden; c++) score += at(x, hidden, row, c) * at(x, hidden, key, c);
        p.push_back(exp(0.5 * (score - squares)));
        sum += p.back();
        for (int c = 0; c < hidden; c++) mixed[static_cast<size_t>(c)] += p.back() * at(x, hidden, key, c);
      }
      for (int c = 0; c < hidden; c++) {
        size_t column = static_cast<size_t>(c);
        near("the scaled row", b, at(scaled, hidden, row, c), 3 * at(x, hidden, row, c), 1e-6);
        near("the normalised row", b, at(normal, hidden, row, c),
             at(x, hidden, row, c) / sqrt(squares / hidden + 0.5) * (1 + static_cast<double>(gamma[column])),
             1e-5);
        near("attention of its own scale", b, at(y, hidden, row, c), mixed[column] / sum, 1e-4);
      }
    }
  }
}

// As "rotary", with another eps and weights that stand for 1 + gamma.
static sie_status offset_tail(Model *m, sie_value x) {
  heads::Qkv qkv;
  sie_status status = heads::make_qkv(m, x, &qkv);
  qkv.rope.eps = 0.5f;
  qkv.rope.weight_offset = 1;
  if (status == SIE_OK) status = record::output_values(m->program, qkv.all, 0, &m->err);
  if (status == SIE_OK) status = record::add(m->program, SIE_ROPE, qkv.rope, &m->err);
  return status == SIE_OK ? record::output_values(m->program, qkv.all, 1, &m->err) : status;
}

TEST(blocks_rotate_with_an_offset) {
  const heads::Output values = {heads::Kind::values, 128};
  const heads::Head head = {"offset", offset_tail, nullptr, {values, values, {}, {}}, 1, false};
  Run r(head);
  for (int b = 0; b < 12; b++) {
    std::vector<float> before = r.rows(0, b), after = r.rows(1, b);
    for (int row = 0; row < heads::length_of(b); row++) {
      for (int h = 0; h < 3; h++) {
        std::vector<double> want = rotated(before, row, 32 * h, h < 2 ? 0 : 1, 0.5f, 1);
        for (int i = 0; i < 32; i++)
          near("the rotation", b, at(after, 128, row, 32 * h + i), want[static_cast<size_t>(i)], 1e-4);
      }
    }
  }
}
