// record_rows_test.cc — operations that look rows up, normalise, join, pool or choose them: what is recorded
// of them, at every bound, on made-up programs.
#include <math.h>

#include "made_program.h"

namespace {

using made::ids;
using made::kept;
using made::kept_words;
using made::more_ids;
using made::Program;
using made::sequences;
using made::takes;
using made::tokens;
using made::word_ids;
using made::words;

struct Embed : Program {
  sie_embed_params e = sized<sie_embed_params>();
  Embed() {
    e.ids = ids;
    e.word = table(100);
    e.gamma = vector(32);
  }
  sie_weight *table(int64_t n, int64_t k = 32, uint32_t compute = SIE_COMPUTE_F32) {
    return weight(SIE_WEIGHT_TABLE, n, k, compute);
  }
  sie_status add(sie_error *err) {
    e.y = next();
    return sie::record_embed(&p, &e, err);
  }
};

struct Norm : Program {
  sie_norm_params n = sized<sie_norm_params>();
  Norm() {
    n.x = value(tokens, 32, SIE_COMPUTE_BF16);
    n.gamma = vector(32);
    n.norm = SIE_NORM_LAYER;
  }
  sie_status add(sie_error *err) {
    n.y = next();
    return sie::record_norm(&p, &n, err);
  }
};

struct Columns : Program {
  sie_columns_params c = sized<sie_columns_params>();
  Columns() {
    c.x = value(tokens, 32, SIE_COMPUTE_BF16);
    c.column = 8, c.width = 4;
  }
  sie_status add(sie_error *err) {
    c.y = next();
    return sie::record_columns(&p, &c, err);
  }
};

struct Join : Program {
  sie_join_params j = sized<sie_join_params>();
  Join() { j.x[0] = value(tokens, 32, SIE_COMPUTE_BF16), j.x[1] = value(tokens, 8, SIE_COMPUTE_BF16); }
  sie_status add(sie_error *err) {
    j.y = next();
    return sie::record_join(&p, &j, err);
  }
};

// Of the operation before, a norm with a sum.
struct Stream : Program {
  sie_stream_params s = sized<sie_stream_params>();
  sie_value sum = 0;
  Stream() {
    value(tokens, 32);
    sie::Op op = sie::new_op(SIE_OP_LAYERNORM);
    op.out = s.x = next();
    op.sum = sum = op.out + 1;
    CHECK(sie::append(&p, op, tokens, SIE_COMPUTE_F32, 32, nullptr) == SIE_OK, "no memory");
  }
  uint32_t &kind() { return p.ops[p.ops.size() - 1].kind; }
  sie_status add(sie_error *err) { return sie::record_stream(&p, &s, err); }
};

struct Gather : Program {
  sie_gather_rows_params g = sized<sie_gather_rows_params>();
  Gather() {
    g.x = value(tokens, 32, SIE_COMPUTE_BF16);
    g.which = SIE_POOL_CLS;
  }
  sie_status add(sie_error *err) {
    g.y = next();
    return sie::record_gather_rows(&p, &g, err);
  }
};

struct Pool : Program {
  sie_pool_params m = sized<sie_pool_params>();
  Pool() {
    m.x = value(tokens, 32, SIE_COMPUTE_BF16);
    m.mode = SIE_POOL_MEAN;
  }
  sie_status add(sie_error *err) {
    m.y = next();
    return sie::record_pool(&p, &m, err);
  }
};

struct Keep : Program {
  sie_keep_rows_params k = sized<sie_keep_rows_params>();
  Keep() {
    k.x = value(tokens, 32, SIE_COMPUTE_BF16);
    k.to = kept;
  }
  sie_status add(sie_error *err) {
    k.y = next();
    return sie::record_keep_rows(&p, &k, err);
  }
};

void has(const sie::Value &v, sie_space space, uint32_t compute, int64_t columns) {
  CHECK(v.space == space && v.compute == compute && v.columns == columns, "[%d, %lld] of class %u", v.space,
        static_cast<long long>(v.columns), v.compute);
}

}  // namespace

TEST(recorded_embeds) {
  takes<Embed>([](Embed *) {},
               [](const Embed &m) {
                 const sie::Op &op = m.last_op();
                 CHECK(op.inputs[0] == ids && op.weights[0] == m.e.word && op.weights[1] == nullptr &&
                           op.weights[2] == nullptr && op.inputs[1] == 0,
                       "other operands");
                 has(m.last_value(), tokens, SIE_COMPUTE_F32, 32);
                 const sie::Input &i = m.p.inputs[ids];
                 CHECK(i.read && i.least == 0 && i.bound == 100 && m.p.spaces[tokens].positions == 0,
                       "bounds");
               });
  takes<Embed>(
      [](Embed *m) {
        m->e.position = m->table(40), m->e.type = m->table(2);
        m->e.type_ids = more_ids;
        m->e.position_offset = 3;
      },
      [](const Embed &m) {
        const sie::Op &op = m.last_op();
        CHECK(op.weights[1] == m.e.position && op.weights[2] == m.e.type && op.inputs[1] == more_ids &&
                  op.position_offset == 3,
              "other tables");
        CHECK(m.p.inputs[more_ids].read && m.p.inputs[more_ids].bound == 2, "types below %lld",
              static_cast<long long>(m.p.inputs[more_ids].bound));
        CHECK(m.p.spaces[tokens].positions == 37, "%lld positions",
              static_cast<long long>(m.p.spaces[tokens].positions));
      });
  // A type table without an input: all rows are of type 0.
  takes<Embed>([](Embed *m) { m->e.type = m->table(2); },
               [](const Embed &m) {
                 CHECK(m.last_op().weights[2] == m.e.type && m.last_op().inputs[1] == 0, "another table");
               });
  // Positions that the batch brings are looked up like types, and bound no sequence.
  takes<Embed>([](Embed *m) { m->e.position = m->table(40), m->e.positions = more_ids; },
               [](const Embed &m) {
                 const sie::Op &op = m.last_op();
                 CHECK(op.weights[1] == nullptr && op.weights[2] == m.e.position && op.inputs[1] == more_ids,
                       "other tables");
                 CHECK(m.p.inputs[more_ids].bound == 40 && m.p.spaces[tokens].positions == 0, "bounds");
               });
  auto refuses = [](const char *words, void (*change)(Embed *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Embed>(words, change, want);
  };
  refuses("the position table has 31 columns; the word table has 32",
          [](Embed *m) { m->e.position = m->table(40, 31); });
  refuses("the type table is of class bf16; the word table of f32",
          [](Embed *m) { m->e.type = m->table(2, 32, SIE_COMPUTE_BF16); });
  refuses("position is a vector", [](Embed *m) { m->e.position = m->vector(40); });
  refuses("type_ids has an input, but there is no type table", [](Embed *m) { m->e.type_ids = more_ids; });
  refuses("type_ids has rows of words; ids has rows of tokens",
          [](Embed *m) { m->e.type = m->table(2), m->e.type_ids = word_ids; });
  refuses("positions has an input, but there is no position table",
          [](Embed *m) { m->e.positions = more_ids; });
  refuses(
      "positions of the batch's beside a type table",
      [](Embed *m) {
        m->e.position = m->table(40), m->e.type = m->table(2);
        m->e.positions = more_ids;
      },
      SIE_UNSUPPORTED);
  refuses("positions has rows of words",
          [](Embed *m) { m->e.position = m->table(40), m->e.positions = word_ids; });
  refuses("position_offset is 1; it has no meaning", [](Embed *m) {
    m->e.position = m->table(40), m->e.positions = more_ids;
    m->e.position_offset = 1;
  });
  for (bool table : {false, true}) {
    made::refuses<Embed>("position_offset is -1; it must be a row", [table](Embed *m) {
      if (table) m->e.position = m->table(40);
      m->e.position_offset = -1;
    });
  }
  takes<Embed>([](Embed *m) { m->e.position = m->table(40), m->e.position_offset = 39; },
               [](const Embed &m) { CHECK(m.p.spaces[tokens].positions == 1, "positions"); });
  refuses("position_offset is 40; it must be a row",
          [](Embed *m) { m->e.position = m->table(40), m->e.position_offset = 40; });
  takes<Embed>([](Embed *m) { m->e.position_offset = 40; });
  takes<Embed>([](Embed *m) { m->e.norm = SIE_NORM_NONE, m->e.gamma = nullptr; });
  refuses("norm 3 is none of sie_norm", [](Embed *m) { m->e.norm = SIE_NORM_NONE + 1; });
  refuses("gamma or beta is given, but norm is NONE", [](Embed *m) { m->e.norm = SIE_NORM_NONE; });
  refuses("gamma or beta is given, but norm is NONE", [](Embed *m) {
    m->e.norm = SIE_NORM_NONE, m->e.gamma = nullptr;
    m->e.beta = m->vector(32);
  });
  refuses("gamma is NULL", [](Embed *m) { m->e.gamma = nullptr; });
  refuses("beta has 31 elements", [](Embed *m) { m->e.beta = m->vector(31); });
  refuses("word_scale is not finite", [](Embed *m) { m->e.word_scale = INFINITY; });
  refuses("ids is word_ids", [](Embed *m) { m->p.inputs[word_ids].space = sequences, m->e.ids = word_ids; });
}

TEST(recorded_norms) {
  for (uint32_t norm : {SIE_NORM_LAYER, SIE_NORM_RMS}) {
    takes<Norm>([norm](Norm *m) { m->n.norm = norm; },
                [norm](const Norm &m) {
                  CHECK(m.last_op().norm == static_cast<int32_t>(norm) && m.last_op().sum == SIE_NO_VALUE,
                        "norm %d", m.last_op().norm);
                  has(m.last_value(), tokens, SIE_COMPUTE_BF16, 32);
                });
  }
  auto refuses = [](const char *words, void (*change)(Norm *)) { made::refuses<Norm>(words, change); };
  refuses("norm is 2; LAYER and RMS are possible", [](Norm *m) { m->n.norm = SIE_NORM_NONE; });
  takes<Norm>([](Norm *m) { m->n.sum = m->next() + 1; },
              [](const Norm &m) {
                CHECK(m.last_op().sum == m.n.sum, "another sum");
                has(m.p.values[m.n.sum], tokens, SIE_COMPUTE_BF16, 32);
              });
  refuses("two results need two numbers", [](Norm *m) { m->n.sum = m->next(); });
  refuses("sum is 1, which another operation", [](Norm *m) { m->n.sum = m->n.x; });
}

TEST(recorded_columns) {
  takes<Columns>([](Columns *) {},
                 [](const Columns &m) {
                   const sie::Value &v = m.last_value();
                   has(v, tokens, SIE_COMPUTE_BF16, 4);
                   CHECK(v.base == m.c.x && v.column == 8, "columns from %lld",
                         static_cast<long long>(v.column));
                 });
  takes<Columns>([](Columns *m) { m->c.x = m->view(m->c.x, 16, 12); },
                 [](const Columns &m) {
                   CHECK(m.last_value().base == 1 && m.last_value().column == 24,
                         "columns of a view from %lld", static_cast<long long>(m.last_value().column));
                 });
  for (int64_t column : {int64_t{0}, int64_t{31}}) {
    takes<Columns>([column](Columns *m) { m->c.column = column, m->c.width = column == 0 ? 32 : 1; });
  }
  const struct {
    int64_t column, width;
  } refused[] = {{-1, 4}, {INT64_MIN, 4}, {0, 0},  {0, -1},        {0, 33},       {29, 4},
                 {32, 1}, {33, 1},        {33, 0}, {INT64_MAX, 1}, {0, INT64_MAX}};
  for (const auto &r : refused) {
    made::refuses<Columns>("of a value of 32 columns",
                           [r](Columns *m) { m->c.column = r.column, m->c.width = r.width; });
  }
  made::refuses<Columns>("reserved is 1", [](Columns *m) { m->c.reserved = 1; });
}

TEST(recorded_joins) {
  takes<Join>([](Join *) {},
              [](const Join &m) {
                has(m.last_value(), tokens, SIE_COMPUTE_BF16, 40);
                CHECK(m.last_op().in[0] == m.j.x[0] && m.last_op().in[1] == m.j.x[1] &&
                          m.last_op().in[2] == SIE_NO_VALUE,
                      "other operands");
              });
  takes<Join>([](Join *m) { m->j.x[2] = m->j.x[1]; },
              [](const Join &m) {
                has(m.last_value(), tokens, SIE_COMPUTE_BF16, 48);
                CHECK(m.last_op().in[2] == m.j.x[1] && m.last_op().in[3] == SIE_NO_VALUE, "other operands");
              });
  auto refuses = [](const char *words, void (*change)(Join *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Join>(words, change, want);
  };
  refuses("x[0] is 0", [](Join *m) { m->j.x[0] = 0; });
  refuses("x[1] is 0", [](Join *m) { m->j.x[1] = 0; });
  refuses("x[2] is 99", [](Join *m) { m->j.x[2] = 99; });
  refuses("x[1] has rows of words", [](Join *m) { m->j.x[1] = m->value(words, 8, SIE_COMPUTE_BF16); });
  refuses("x[1] has rows of tokens and is of class f32", [](Join *m) { m->j.x[1] = m->value(tokens, 8); });
  refuses("has no join_columns", [](Join *m) { m->ops.join_columns = nullptr; }, SIE_UNSUPPORTED);
  refuses("reserved is 1", [](Join *m) { m->j.reserved = 1; });
  auto wide = [](int64_t columns) {
    return [columns](Join *m) { m->j.x[0] = m->value(tokens, columns, SIE_COMPUTE_BF16); };
  };
  takes<Join>(wide((1 << 20) - 8));
  made::refuses<Join>("y has 1048577 columns; at most 1048576", wide((1 << 20) - 7));
}

TEST(recorded_streams) {
  for (uint32_t kind : {SIE_OP_EMBED_LAYERNORM, SIE_OP_LAYERNORM, SIE_OP_LINEAR}) {
    for (bool sum : {false, true}) {
      takes<Stream>(
          [kind, sum](Stream *m) {
            m->kind() = kind;
            if (sum) m->s.x = m->sum;
          },
          [](const Stream &m) {
            for (sie_value v = 1; v < m.next(); v++)
              CHECK(m.p.values[v].stream == (v == m.s.x), "value %d", v);
          });
    }
  }
  made::refuses<Stream>("no result of an embed", [](Stream *m) { m->kind() = SIE_OP_POOL; });
  made::refuses<Stream>("x is 1, which is no result of an embed", [](Stream *m) { m->s.x = 1; });
  made::refuses<Stream>("a stream already", [](Stream *m) { m->p.values[m->s.x].stream = true; });
  made::refuses<Stream>(
      "has no join_columns", [](Stream *m) { m->ops.join_columns = nullptr; }, SIE_UNSUPPORTED);
}

TEST(recorded_gathers) {
  for (uint32_t which : {SIE_POOL_CLS, SIE_POOL_LAST}) {
    for (bool stream : {false, true}) {
      takes<Gather>(
          [which, stream](Gather *m) {
            m->g.which = which;
            m->p.values[m->g.x].stream = stream;
          },
          [which, stream](const Gather &m) {
            has(m.last_value(), sequences, SIE_COMPUTE_BF16, 32);
            CHECK(m.last_op().pooling == static_cast<int32_t>(which) && m.last_value().stream == stream,
                  "row %d", m.last_op().pooling);
          });
    }
  }
  for (uint32_t which : {0u, static_cast<uint32_t>(SIE_POOL_MEAN), 99u})
    made::refuses<Gather>("cannot be gathered; cls and last can", [which](Gather *m) { m->g.which = which; });
  made::refuses<Gather>("declares no SEQS space", [](Gather *m) { m->p.seqs = 0; });
  made::refuses<Gather>("x has one row a sequence already",
                        [](Gather *m) { m->g.x = m->value(sequences, 32); });
}

TEST(recorded_pools) {
  for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA}) {
    for (uint32_t mode = 0; mode <= SIE_POOL_ABS_MEAN + 1; mode++) {
      auto change = [kind, mode](Pool *m) {
        m->device.kind = kind;
        m->m.mode = mode;
        if (mode == SIE_POOL_ATTENTION) m->m.w = m->vector(32);
      };
      if (mode < SIE_POOL_CLS || mode > SIE_POOL_ABS_MEAN) {
        made::refuses<Pool>("none of sie_pooling", change);
      } else if (kind == SIE_DEVICE_CUDA && mode > SIE_POOL_MEAN_SQRT) {
        made::refuses<Pool>("is not computed on GPUs", change, SIE_UNSUPPORTED);
      } else {
        takes<Pool>(change, [mode](const Pool &m) {
          has(m.last_value(), sequences, SIE_COMPUTE_F32, 32);
          CHECK(m.last_op().pooling == static_cast<int32_t>(mode), "pooling %d", m.last_op().pooling);
        });
      }
    }
  }
  made::refuses<Pool>("declares no SEQS space", [](Pool *m) { m->p.seqs = 0; });
  made::refuses<Pool>("which ATTENTION alone reads", [](Pool *m) { m->m.w = m->vector(32); });
  made::refuses<Pool>("w is NULL", [](Pool *m) { m->m.mode = SIE_POOL_ATTENTION; });
  made::refuses<Pool>("w has 31 elements",
                      [](Pool *m) { m->m.mode = SIE_POOL_ATTENTION, m->m.w = m->vector(31); });
}

TEST(recorded_kept_rows) {
  for (bool stream : {false, true}) {
    takes<Keep>([stream](Keep *m) { m->p.values[m->k.x].stream = stream; },
                [stream](const Keep &m) {
                  has(m.last_value(), kept, SIE_COMPUTE_BF16, 32);
                  CHECK(m.last_value().stream == stream, "another stream");
                });
  }
  takes<Keep>([](Keep *m) { m->k.x = m->value(words, 8), m->k.to = kept_words; },
              [](const Keep &m) { has(m.last_value(), kept_words, SIE_COMPUTE_F32, 8); });
  for (sie_space to : {INT32_MIN, -1, 0, static_cast<int>(tokens), 7, 9, INT32_MAX})
    made::refuses<Keep>("which is no SUBSET space", [to](Keep *m) { m->k.to = to; });
  made::refuses<Keep>("are chosen from", [](Keep *m) { m->k.to = kept_words; });
  made::refuses<Keep>("has no keep_rows", [](Keep *m) { m->ops.keep_rows = nullptr; }, SIE_UNSUPPORTED);
}
