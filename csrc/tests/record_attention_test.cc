// record_attention_test.cc — attention, rotary embeddings and late interaction: what is recorded of them, at
// every bound, on made-up programs.
#include <math.h>
#include <stdio.h>

#include <string>

#include "made_program.h"

namespace {

using made::kept;
using made::of_sequence;
using made::Program;
using made::queries;
using made::query_rows;
using made::sequences;
using made::takes;
using made::tokens;
using made::words;

constexpr int64_t reach = SIE_MAX_BIAS_REACH;

// Two heads of 32 columns over tokens.
struct Attention : Program {
  sie_attention_params a = sized<sie_attention_params>();
  Attention() {
    a.q = value(tokens, 64), a.k = value(tokens, 64), a.v = value(tokens, 64);
    a.heads = 2, a.head_dim = 32;
  }
  void heads(int32_t heads, int32_t kv_heads, int32_t head_dim) {
    a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim;
    if (heads < 1 || kv_heads < 0 || head_dim < 1) return;
    a.q = value(tokens, int64_t{heads} * head_dim);
    a.k = value(tokens, int64_t{kv_heads == 0 ? heads : kv_heads} * head_dim);
    a.v = value(tokens, int64_t{kv_heads == 0 ? heads : kv_heads} * head_dim);
  }
  void keys_of(sie_space space) { a.k = value(space, 64), a.v = value(space, 64); }
  // Buckets by distance of 9 columns, and a table of 5 rows by content and distance.
  void bucketed() {
    a.buckets = indices(1, 9, 0, 5);
    a.pos_key = data(5, 64);
  }
  // The program reads a state, and keys are of its ROWS space.
  void prefixed() {
    p.state.declared = true;
    p.state.max_rows = 10;
    p.state.first = p.state.rows = of_sequence;
    a.segment = 1;
    a.q = value(words, 64);
    keys_of(words);
  }
  sie_status add(sie_error *err) {
    a.y = next();
    return sie::record_attention(&p, &a, err);
  }
};

template <class Change>
void refuses(const std::string &words, Change change, sie_status want = SIE_INVALID_ARGUMENT) {
  made::refuses<Attention>(words.c_str(), change, want);
}

std::string odd_up_to(const char *name, int64_t columns) {
  return std::string(name) + " has " + std::to_string(columns) + " columns; an odd number up to " +
         std::to_string(2 * reach + 1) + " is needed";
}

// Four heads over two of 16, q and k are columns of one value.
struct Rope : Program {
  sie_rope_params r = sized<sie_rope_params>();
  sie_value both = value(tokens, 200);
  Rope() {
    r.q = view(both, 0, 64), r.k = view(both, 64, 32);
    r.heads = 4, r.kv_heads = 2, r.head_dim = 16;
    rotated(16);
  }
  void rotated(int32_t rot) {
    r.rot = rot;
    r.cos = rot > 0 ? data(50, rot / 2) : nullptr, r.sin = rot > 0 ? data(50, rot / 2) : nullptr;
  }
  sie_status add(sie_error *err) { return sie::record_rope(&p, &r, err); }
};

struct MaxSim : Program {
  sie_maxsim_params m = sized<sie_maxsim_params>();
  MaxSim() {
    m.x = value(tokens, 16);
    m.queries = query_rows;
    m.partner = of_sequence;
  }
  sie_status add(sie_error *err) {
    m.y = next();
    return sie::record_maxsim(&p, &m, err);
  }
};

}  // namespace

TEST(recorded_attention_has_heads) {
  takes<Attention>(
      [](Attention *) {},
      [](const Attention &m) {
        const sie::Op &op = m.last_op();
        CHECK(op.attention.kv_heads == 2 && op.attention.scale == 1 / sqrtf(32) && op.vector == nullptr &&
                  op.in[0] == m.a.q && op.in[1] == m.a.k && op.in[2] == m.a.v && op.in[3] == SIE_NO_VALUE,
              "%d key heads, scale %g", op.attention.kv_heads, static_cast<double>(op.attention.scale));
        CHECK(m.last_value().columns == 64 && m.last_value().space == tokens, "another result");
        CHECK(!m.p.spaces[tokens].first_rows && m.p.state.segments[0].columns == 0 &&
                  m.p.state.segments[1].columns == 0,
              "what other attention needs");
      });
  takes<Attention>([](Attention *m) { m->a.scale = 0.25f; },
                   [](const Attention &m) { CHECK(m.last_op().attention.scale == 0.25f, "another scale"); });
  const int32_t taken[][3] = {{6, 2, 8}, {4096, 1, 1}, {4096, 4096, 1}, {1, 1, 256}, {1, 0, 1}};
  for (const auto &t : taken) takes<Attention>([t](Attention *m) { m->heads(t[0], t[1], t[2]); });
  const struct {
    int32_t heads, kv_heads, head_dim;
    const char *words;
  } refused[] = {{0, 1, 32, "0 heads over 1 key heads"},      {-2, 1, 32, "-2 heads over 1 key heads"},
                 {4097, 1, 1, "4097 heads over 1 key heads"}, {2, -1, 32, "2 heads over -1 key heads"},
                 {6, 4, 8, "6 heads over 4 key heads"},       {1, 2, 8, "1 heads over 2 key heads"},
                 {2, 2, 0, "head_dim is 0; 1 to 256"},        {2, 2, -1, "head_dim is -1; 1 to 256"},
                 {1, 1, 257, "head_dim is 257; 1 to 256"}};
  for (const auto &r : refused)
    refuses(r.words, [r](Attention *m) { m->heads(r.heads, r.kv_heads, r.head_dim); });
  refuses("q, k, v have 63, 64, 64 columns; heads and head_dim ask for 64, 64, 64",
          [](Attention *m) { m->a.q = m->value(tokens, 63); });
  refuses("q, k, v have 64, 65, 64 columns", [](Attention *m) { m->a.k = m->value(tokens, 65); });
  refuses("q, k, v have 64, 64, 32 columns; heads and head_dim ask for 64, 64, 64",
          [](Attention *m) { m->a.v = m->value(tokens, 32); });
  refuses("q, k, v are of classes f32, bf16, f32",
          [](Attention *m) { m->a.k = m->value(tokens, 64, SIE_COMPUTE_BF16); });
  refuses("q, k, v are of classes f32, f32, bf16",
          [](Attention *m) { m->a.v = m->value(tokens, 64, SIE_COMPUTE_BF16); });
}

TEST(recorded_attention_has_masks_and_biases) {
  for (uint32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW})
    takes<Attention>([mask](Attention *m) { m->a.mask = mask; });
  refuses("mask 3 is none of sie_mask", [](Attention *m) { m->a.mask = SIE_MASK_WINDOW + 1; });
  refuses("window is -1; at least 0", [](Attention *m) { m->a.mask = SIE_MASK_WINDOW, m->a.window = -1; });
  takes<Attention>([](Attention *m) { m->a.window = -1; });
  refuses("scale is not finite", [](Attention *m) { m->a.scale = NAN; });
  refuses("first_keys is 2", [](Attention *m) { m->a.first_keys = 2; });
  refuses("alibi has 3 elements; 2 are needed", [](Attention *m) { m->a.alibi = m->vector(3); });
  takes<Attention>(
      [](Attention *m) { m->a.alibi = m->vector(2); },
      [](const Attention &m) { CHECK(m.last_op().vector == m.a.alibi->vector(), "other slopes"); });
  for (int64_t k : {int64_t{1}, int64_t{9}, int64_t{11}, 2 * reach + 1})
    takes<Attention>([k](Attention *m) { m->a.bias = m->data(2, k); });
  for (int64_t k :
       {int64_t{2}, int64_t{4}, 2 * reach, 2 * reach + 2, 2 * reach + 3, 3 * reach + 1, 3 * reach})
    refuses(odd_up_to("bias", k), [k](Attention *m) { m->a.bias = m->data(2, k); });
  refuses("bias is [3, 9]; [2, 9]", [](Attention *m) { m->a.bias = m->data(3, 9); });
}

TEST(recorded_attention_by_content_and_distance) {
  takes<Attention>([](Attention *m) { m->bucketed(); });
  takes<Attention>([](Attention *m) {
    m->bucketed();
    m->a.pos_key = nullptr, m->a.pos_query = m->data(5, 64);
  });
  takes<Attention>([](Attention *m) { m->bucketed(), m->a.pos_query = m->data(5, 64); });
  for (bool key : {true, false}) {
    refuses("pos_key or pos_query is given, but buckets is NULL",
            [key](Attention *m) { (key ? m->a.pos_key : m->a.pos_query) = m->data(5, 64); });
  }
  refuses("neither pos_key nor pos_query", [](Attention *m) { m->bucketed(), m->a.pos_key = nullptr; });
  refuses("pos_key has 5 rows and pos_query 6",
          [](Attention *m) { m->bucketed(), m->a.pos_query = m->data(6, 64); });
  refuses("pos_key is [5, 63]; [5, 64]", [](Attention *m) { m->bucketed(), m->a.pos_key = m->data(5, 63); });
  refuses("pos_query is [5, 66]; [5, 64]",
          [](Attention *m) { m->bucketed(), m->a.pos_query = m->data(5, 66); });
  auto buckets = [](int64_t k, int64_t least, int64_t end, int64_t rows) {
    return [=](Attention *m) {
      m->a.buckets = m->indices(1, k, least, end);
      m->a.pos_key = m->data(rows, 64);
    };
  };
  for (int64_t k : {int64_t{1}, int64_t{9}, int64_t{11}, 2 * reach + 1})
    takes<Attention>(buckets(k, 0, 1, 5));
  for (int64_t k :
       {int64_t{2}, int64_t{4}, 2 * reach, 2 * reach + 2, 2 * reach + 3, 3 * reach + 1, 3 * reach})
    refuses(odd_up_to("buckets", k), buckets(k, 0, 1, 5));
  refuses("buckets is [2, 9]; [1, 9]",
          [](Attention *m) { m->bucketed(), m->a.buckets = m->indices(2, 9, 0, 5); });
  takes<Attention>(buckets(9, 4, 5, 5));
  refuses("buckets has values from -1 to 4; pos_key has 5 rows", buckets(9, -1, 5, 5));
  refuses("buckets has values from 0 to 5; pos_key has 5 rows", buckets(9, 0, 6, 5));
  takes<Attention>(buckets(9, 0, SIE_MAX_POSITION_ROWS, SIE_MAX_POSITION_ROWS));
  refuses("at most " + std::to_string(SIE_MAX_POSITION_ROWS) + " are possible",
          buckets(9, 0, 5, SIE_MAX_POSITION_ROWS + 1));
  // What it does without.
  const std::string without = "attention with buckets has no mask, alibi, bias";
  auto beside = [&without](void (*change)(Attention *)) {
    refuses(without, [change](Attention *m) { m->bucketed(), change(m); }, SIE_UNSUPPORTED);
  };
  beside([](Attention *m) { m->a.mask = SIE_MASK_CAUSAL; });
  beside([](Attention *m) { m->a.alibi = m->vector(2); });
  beside([](Attention *m) { m->a.bias = m->data(2, 9); });
  beside([](Attention *m) {
    m->a.kv_heads = 1;
    m->a.k = m->value(tokens, 32), m->a.v = m->value(tokens, 32);
  });
  beside([](Attention *m) { m->keys_of(kept), m->a.first_keys = 1; });
  beside([](Attention *m) { m->prefixed(); });
  takes<Attention>([](Attention *m) { m->bucketed(), m->p.rows = tokens; });
  refuses("buckets falls from 7 to 6 at column 1", [](Attention *m) {
    sie_weight *falling = m->indices(1, 9, 0, 5);
    falling->index_fall = {1, 7, 6};
    m->bucketed(), m->a.buckets = falling;
  });
}

// Which spaces queries and keys may be of.
TEST(recorded_attention_has_spaces) {
  refuses("q has rows of", [](Attention *m) { m->a.q = m->value(kept, 64); });
  refuses("q has rows of", [](Attention *m) { m->a.q = m->value(queries, 64); });
  takes<Attention>([](Attention *m) { m->a.q = m->value(sequences, 64); });
  takes<Attention>([](Attention *m) { m->keys_of(words); });
  takes<Attention>([](Attention *m) { m->keys_of(kept); });
  takes<Attention>([](Attention *m) { m->a.q = m->value(sequences, 64), m->keys_of(kept); });
  refuses("one space that is not SEQS is needed", [](Attention *m) { m->a.v = m->value(words, 64); });
  refuses("one space that is not SEQS is needed", [](Attention *m) { m->keys_of(sequences); });
  refuses("one space that is not SEQS is needed",
          [](Attention *m) { m->a.q = m->value(sequences, 64), m->keys_of(sequences); });
  // With places, keys are the queries' own rows; each kind of places needs them.
  const struct {
    void (*place)(Attention *);
  } kinds[] = {{[](Attention *m) { m->a.mask = SIE_MASK_CAUSAL; }},
               {[](Attention *m) { m->a.mask = SIE_MASK_WINDOW; }},
               {[](Attention *m) { m->a.alibi = m->vector(2); }},
               {[](Attention *m) { m->a.bias = m->data(2, 9); }},
               {[](Attention *m) { m->bucketed(); }}};
  for (const auto &kind : kinds) {
    refuses(
        "have no places among the rows of", [kind](Attention *m) { kind.place(m), m->keys_of(words); },
        SIE_UNSUPPORTED);
    takes<Attention>([kind](Attention *m) { kind.place(m); });
  }
  // A query of sequence rows is one of the rows.
  for (uint32_t which : {SIE_POOL_CLS, SIE_POOL_LAST}) {
    auto one = [which](sie_space keys, uint32_t mask) {
      return [=](Attention *m) {
        m->a.q = m->value(sequences, 64);
        m->a.which = which, m->a.mask = mask;
        m->keys_of(keys);
      };
    };
    takes<Attention>(one(tokens, SIE_MASK_CAUSAL), [which](const Attention &m) {
      CHECK(m.last_op().attention.which == which, "row %u", m.last_op().attention.which);
    });
    // Where places make no difference, it may be any.
    takes<Attention>(one(tokens, SIE_MASK_FULL), [](const Attention &m) {
      CHECK(m.last_op().attention.which == 0, "row %u", m.last_op().attention.which);
    });
    refuses("have no places among the rows of", one(kept, SIE_MASK_CAUSAL), SIE_UNSUPPORTED);
    takes<Attention>(one(kept, SIE_MASK_FULL));
    refuses("and is 0 for other queries", [which](Attention *m) { m->a.which = which; });
  }
  for (uint32_t which : {0u, static_cast<uint32_t>(SIE_POOL_MEAN)}) {
    refuses("it names the row that a query of sequence rows is", [which](Attention *m) {
      m->a.q = m->value(sequences, 64);
      m->a.which = which, m->a.mask = SIE_MASK_CAUSAL;
    });
  }
  refuses("SIE_POOL_CLS, SIE_POOL_LAST and 0 are possible",
          [](Attention *m) { m->a.q = m->value(sequences, 64), m->a.which = SIE_POOL_MEAN; });
}

TEST(recorded_attention_to_first_keys) {
  takes<Attention>([](Attention *m) { m->keys_of(kept), m->a.first_keys = 1; },
                   [](const Attention &m) {
                     CHECK(m.p.spaces[kept].first_rows && !m.p.spaces[made::kept_words].first_rows,
                           "other rows are the first");
                   });
  takes<Attention>([](Attention *m) { m->keys_of(kept); },
                   [](const Attention &m) { CHECK(!m.p.spaces[kept].first_rows, "rows are the first"); });
  auto not_first = [](void (*change)(Attention *)) {
    refuses("first_keys is 1, and keys of", [change](Attention *m) { change(m), m->a.first_keys = 1; });
  };
  not_first([](Attention *) {});  // the rows themselves
  not_first([](Attention *m) { m->keys_of(words); });
  not_first([](Attention *m) { m->keys_of(made::kept_words); });  // of another space's rows
  not_first([](Attention *m) { m->a.q = m->value(sequences, 64), m->keys_of(kept); });
  not_first([](Attention *m) {
    m->a.q = m->value(sequences, 64), m->keys_of(kept);
    m->p.inputs[made::keep].space = sequences;
  });
}

TEST(recorded_attention_behind_a_state) {
  takes<Attention>([](Attention *m) { m->prefixed(); },
                   [](const Attention &m) {
                     CHECK(m.p.state.segments[1].columns == 128 && m.p.state.segments[0].columns == 0 &&
                               m.p.state.segments[2].columns == 0,
                           "%lld columns", static_cast<long long>(m.p.state.segments[1].columns));
                   });
  auto with = [](void (*change)(Attention *)) {
    return [change](Attention *m) { m->prefixed(), change(m); };
  };
  takes<Attention>(with([](Attention *m) { m->a.mask = SIE_MASK_CAUSAL; }));
  refuses("neither alibi nor bias", with([](Attention *m) { m->a.alibi = m->vector(2); }), SIE_UNSUPPORTED);
  refuses("neither alibi nor bias", with([](Attention *m) { m->a.bias = m->data(2, 9); }), SIE_UNSUPPORTED);
  const char *const before = "rows of a state go before keys of the ROWS space whose last ones";
  refuses(before, with([](Attention *m) { m->p.rows = tokens; }), SIE_UNSUPPORTED);
  refuses(before, with([](Attention *m) { m->keys_of(made::kept_words), m->a.first_keys = 1; }),
          SIE_UNSUPPORTED);
  refuses(before, with([](Attention *m) {
            m->p.rows = made::kept_words;
            m->keys_of(made::kept_words), m->a.first_keys = 1;
          }),
          SIE_UNSUPPORTED);
  // A query of sequence rows stands at the last row, or anywhere without places.
  takes<Attention>(with([](Attention *m) {
    m->a.q = m->value(sequences, 64);
    m->a.mask = SIE_MASK_CAUSAL, m->a.which = SIE_POOL_LAST;
  }));
  for (uint32_t which : {0u, static_cast<uint32_t>(SIE_POOL_CLS), static_cast<uint32_t>(SIE_POOL_LAST)}) {
    takes<Attention>([which](Attention *m) {
      m->prefixed();
      m->a.q = m->value(sequences, 64), m->a.which = which;
    });
  }
  refuses(before, with([](Attention *m) {
            m->a.q = m->value(sequences, 64);
            m->a.mask = SIE_MASK_CAUSAL, m->a.which = SIE_POOL_CLS;
          }),
          SIE_UNSUPPORTED);
  // All attention with a segment has its columns.
  takes<Attention>(with([](Attention *m) { m->p.state.segments[1].columns = 128; }));
  refuses("segment 1 has 64 columns for another attention; 128 are needed",
          with([](Attention *m) { m->p.state.segments[1].columns = 64; }));
}

TEST(recorded_ropes) {
  takes<Rope>([](Rope *) {},
              [](const Rope &m) {
                const sie::Op &op = m.last_op();
                CHECK(op.updates && op.in[0] == m.r.q && op.in[1] == m.r.k && op.rope.kv_heads == 2 &&
                          op.out == SIE_NO_VALUE,
                      "another operation");
                CHECK(m.p.spaces[tokens].positions == 50, "%lld positions",
                      static_cast<long long>(m.p.spaces[tokens].positions));
              });
  takes<Rope>([](Rope *m) { m->r.k = SIE_NO_VALUE; },
              [](const Rope &m) { CHECK(m.last_op().rope.kv_heads == 0, "key heads without keys"); });
  takes<Rope>([](Rope *m) { m->r.kv_heads = 0, m->r.k = m->view(m->both, 64, 64); },
              [](const Rope &m) { CHECK(m.last_op().rope.kv_heads == 4, "key heads"); });
  auto refuses = [](const char *words, void (*change)(Rope *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Rope>(words, change, want);
  };
  refuses("q has 63 columns in rows of tokens; heads and head_dim ask for 64",
          [](Rope *m) { m->r.q = m->view(m->both, 0, 63); });
  refuses("q has 64 columns in rows of", [](Rope *m) { m->r.q = m->value(sequences, 64); });
  refuses("q has 64 columns in rows of", [](Rope *m) { m->r.q = m->value(kept, 64); });
  refuses("k has 33 columns in rows of tokens; kv_heads and head_dim ask for 32",
          [](Rope *m) { m->r.k = m->view(m->both, 64, 33); });
  refuses("k has 32 columns in rows of words", [](Rope *m) { m->r.k = m->value(words, 32); });
  refuses("q is of class f32 and k of bf16",
          [](Rope *m) { m->r.k = m->value(tokens, 32, SIE_COMPUTE_BF16); });
  refuses("q is a stream",
          [](Rope *m) { m->p.values[m->both].stream = true, m->r.k = m->value(tokens, 32); });
  refuses("k is a stream", [](Rope *m) {
    m->r.k = m->value(tokens, 32);
    m->p.values[m->r.k].stream = true;
  });
  refuses("has no qk_norm_rope", [](Rope *m) { m->ops.qk_norm_rope = nullptr; }, SIE_UNSUPPORTED);
  refuses("k_gamma is given, but there is no k",
          [](Rope *m) { m->r.k = SIE_NO_VALUE, m->r.k_gamma = m->vector(16); });
  refuses("q_gamma has 15 elements", [](Rope *m) { m->r.q_gamma = m->vector(15); });
  refuses("k_gamma has 17 elements", [](Rope *m) { m->r.k_gamma = m->vector(17); });
  refuses("behind is 1, but the program declares no state", [](Rope *m) { m->r.behind = 1; });
  refuses("behind is 1, but the program declares no state",
          [](Rope *m) { m->r.behind = 1, m->p.state.declared = true; });
  takes<Rope>([](Rope *m) { m->r.behind = 1, m->p.state.declared = true, m->p.state.rows = of_sequence; });
  // q and k, each from the first column on; they share one or none.
  const struct {
    int64_t q, k;
    bool shared;
  } places[] = {{0, 64, false}, {0, 63, true},     {32, 0, false},   {31, 0, true},    {0, 0, true},
                {0, 32, true},  {100, 164, false}, {100, 163, true}, {100, 68, false}, {100, 69, true}};
  for (const auto &place : places) {
    auto change = [place](Rope *m) {
      m->r.q = m->view(m->both, place.q, 64), m->r.k = m->view(m->both, place.k, 32);
    };
    if (place.shared) made::refuses<Rope>("q and k have columns in common", change);
    if (!place.shared) takes<Rope>(change);
  }
  takes<Rope>([](Rope *m) { m->r.k = m->value(tokens, 32); });  // of another value
}

TEST(recorded_rotations) {
  for (int32_t rot : {0, 2, 6, 16}) takes<Rope>([rot](Rope *m) { m->rotated(rot); });
  const struct {
    int32_t rot;
    const char *words;
  } refused[] = {{-2, "rot is -2"}, {18, "rot is 18"}, {3, "rot is 3"}, {15, "rot is 15"}};
  for (const auto &r : refused) made::refuses<Rope>(r.words, [r](Rope *m) { m->r.rot = r.rot; });
  for (int32_t which : {0, 1, 2}) {
    made::refuses<Rope>("is given, but rot is 0", [which](Rope *m) {
      m->rotated(0);
      (which == 0 ? m->r.cos : which == 1 ? m->r.sin : m->r.turns) = m->data(50, 8);
    });
  }
  made::refuses<Rope>("position_offset is -1; at least 0", [](Rope *m) { m->r.position_offset = -1; });
  made::refuses<Rope>("position_offset is -1; at least 0",
                      [](Rope *m) { m->rotated(0), m->r.position_offset = -1; });
  made::refuses<Rope>("cos is [50, 7]; [50, 8]", [](Rope *m) { m->r.cos = m->data(50, 7); });
  made::refuses<Rope>("sin is [49, 8]; [50, 8]", [](Rope *m) { m->r.sin = m->data(49, 8); });
  made::refuses<Rope>("sin is [50, 9]; [50, 8]", [](Rope *m) { m->r.sin = m->data(50, 9); });
  takes<Rope>([](Rope *m) { m->r.position_offset = 49; },
              [](const Rope &m) { CHECK(m.p.spaces[tokens].positions == 1, "positions"); });
  made::refuses<Rope>("position_offset is 50; cos has 50 rows", [](Rope *m) { m->r.position_offset = 50; });
  takes<Rope>([](Rope *m) { m->rotated(0), m->r.position_offset = 60; },
              [](const Rope &m) { CHECK(m.p.spaces[tokens].positions == 0, "positions"); });
  // Turns, with their columns for the sine and the cosine, bound positions beyond the tables.
  auto turned = [](Rope *m) { m->r.turns = m->indices(7, 16, 0, 1); };
  takes<Rope>(turned, [](const Rope &m) {
    CHECK(m.p.spaces[tokens].positions == 57, "%lld positions",
          static_cast<long long>(m.p.spaces[tokens].positions));
  });
  made::refuses<Rope>("turns is [7, 15]; [7, 16]", [](Rope *m) { m->r.turns = m->indices(7, 15, 0, 1); });
  made::refuses<Rope>("position_offset is 1 and behind 0",
                      [turned](Rope *m) { turned(m), m->r.position_offset = 1; });
  made::refuses<Rope>("position_offset is 0 and behind 1", [turned](Rope *m) {
    turned(m), m->r.behind = 1;
    m->p.state.declared = true, m->p.state.rows = of_sequence;
  });
}

TEST(recorded_late_interaction) {
  takes<MaxSim>(
      [](MaxSim *m) { m->m.normalize = 1; },
      [](const MaxSim &m) {
        const sie::Op &op = m.last_op();
        CHECK(op.inputs[0] == query_rows && op.inputs[1] == of_sequence && op.normalize == 1,
              "another operation");
        CHECK(m.last_value().space == sequences && m.last_value().columns == 1 && m.p.queries == query_rows,
              "another result");
        CHECK(m.p.inputs[query_rows].columns == 16 && m.p.inputs[query_rows].read &&
                  m.p.inputs[of_sequence].read,
              "%d columns", m.p.inputs[query_rows].columns);
      });
  takes<MaxSim>([](MaxSim *m) { m->m.queries = made::last_rows; });
  takes<MaxSim>([](MaxSim *m) { m->m.x = m->value(kept, 16); });
  takes<MaxSim>([](MaxSim *m) { m->p.inputs[query_rows].columns = 16; });
  auto refuses = [](const char *words, void (*change)(MaxSim *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<MaxSim>(words, change, want);
  };
  for (sie_input input :
       {INT32_MIN, -1, 0, 21, static_cast<int>(made::ids), static_cast<int>(made::keep), 15})
    made::refuses<MaxSim>("which is no f32 input of a SHARED space",
                          [input](MaxSim *m) { m->m.queries = input; });
  refuses("normalize is 2", [](MaxSim *m) { m->m.normalize = 2; });
  refuses("has no maxsim", [](MaxSim *m) { m->ops.maxsim = nullptr; }, SIE_UNSUPPORTED);
  refuses("late interaction is over several a sequence", [](MaxSim *m) { m->m.x = m->value(sequences, 16); });
  refuses("late interaction is over several a sequence", [](MaxSim *m) { m->p.seqs = 0; });
  refuses("x has 16 columns; query_rows has 15", [](MaxSim *m) { m->p.inputs[query_rows].columns = 15; });
  refuses("partner is ids", [](MaxSim *m) { m->m.partner = made::ids; });
  // One input of queries for all.
  MaxSim m;
  PASSES(m.add(&err));
  PASSES(m.add(&err));
  m.m.queries = made::last_rows;
  SAYS("the program's queries are query_rows", m.add(&err), SIE_UNSUPPORTED);
}
