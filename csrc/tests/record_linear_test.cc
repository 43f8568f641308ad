// record_linear_test.cc — linears, their gates and adapters, and SPLADE: what is recorded of them, at every
// bound, on made-up programs.
#include <vector>

#include "made_program.h"
#include "wrapped.h"

namespace {

using made::of_sequence;
using made::sequences;
using made::tokens;
using made::words;

// x has 16 columns, w is [24, 16].
struct Linear : made::Program {
  sie_value x = value(tokens, 16);
  sie_linear_params l = sized<sie_linear_params>();
  std::vector<const sie_weight *> a, b;

  Linear() {
    l.x = x;
    l.w = weight(SIE_WEIGHT_LINEAR, 24, 16);
  }
  // An adapter of this rank; 0: it does not change the linear.
  void adapter(int64_t rank) {
    a.push_back(rank > 0 ? data(rank, 16) : nullptr);
    b.push_back(rank > 0 ? data(24, rank) : nullptr);
    l.n_adapters = static_cast<int32_t>(a.size());
    l.adapter = of_sequence;
  }
  sie_status add(sie_error *err) {
    l.y = next();
    if (!a.empty()) l.a = a.data();
    if (!b.empty()) l.b = b.data();
    return sie::record_linear(&p, &l, err);
  }
};

struct Splade : made::Program {
  sie_splade_params s = sized<sie_splade_params>();
  Splade() {
    s.x = value(tokens, 16);
    s.w = weight(SIE_WEIGHT_LINEAR, 24, 16);
  }
  sie_status add(sie_error *err) {
    s.y = next();
    return sie::record_splade(&p, &s, err);
  }
};

template <class Change>
void refuses(const char *words, Change change, sie_status want = SIE_INVALID_ARGUMENT) {
  made::refuses<Linear>(words, change, want);
}

}  // namespace

TEST(recorded_linears) {
  made::takes<Linear>(
      [](Linear *) {},
      [](const Linear &m) {
        const sie::Op &op = m.last_op();
        CHECK(op.kind == SIE_OP_LINEAR && op.in[0] == m.x && op.weights[0] == m.l.w && op.lora == -1 &&
                  op.max_rank == 0 && op.inputs[0] == 0,
              "another operation");
        CHECK(m.last_value().columns == 24 && m.p.n_adapters == 0 && !m.p.inputs[of_sequence].read,
              "%lld columns", static_cast<long long>(m.last_value().columns));
      });
  for (uint32_t act = SIE_ACT_NONE; act <= SIE_ACT_SILU; act++)
    made::takes<Linear>(
        [act](Linear *m) { m->l.act = act; },
        [act](const Linear &m) { CHECK(m.last_op().act == static_cast<int32_t>(act), "act"); });
  refuses("act 6 is none", [](Linear *m) { m->l.act = SIE_ACT_SILU + 1; });
  for (uint32_t gate = SIE_GATE_NONE + 1; gate <= SIE_GATE_GEGLU_TANH; gate++) {
    made::takes<Linear>([gate](Linear *m) { m->l.gate = gate; },
                        [gate](const Linear &m) {
                          CHECK(
                              m.last_value().columns == 12 && m.last_op().gate == static_cast<int32_t>(gate),
                              "%lld columns", static_cast<long long>(m.last_value().columns));
                        });
  }
  refuses("gate 4 is none", [](Linear *m) { m->l.gate = SIE_GATE_GEGLU_TANH + 1; });
  refuses("with a gate it is NONE", [](Linear *m) { m->l.gate = SIE_GATE_SWIGLU, m->l.act = SIE_ACT_RELU; });
  refuses("W has 27 rows; with a gate they are pairs", [](Linear *m) {
    m->l.gate = SIE_GATE_SWIGLU;
    m->l.w = m->weight(SIE_WEIGHT_LINEAR, 27, 16);
  });
  made::takes<Linear>([](Linear *m) {
    m->l.gate = SIE_GATE_SWIGLU;
    m->l.w = m->weight(SIE_WEIGHT_LINEAR, 22, 16);
    m->l.residual = m->value(tokens, 11);
    m->l.bias = m->vector(22);
  });
  refuses("residual has 22 columns", [](Linear *m) {
    m->l.gate = SIE_GATE_SWIGLU;
    m->l.w = m->weight(SIE_WEIGHT_LINEAR, 22, 16);
    m->l.residual = m->value(tokens, 22);
  });
}

TEST(recorded_adapters) {
  made::takes<Linear>(
      [](Linear *m) {
        for (int64_t rank : {0, 8, 4, 0}) m->adapter(rank);
      },
      [](const Linear &m) {
        const sie::Op &op = m.last_op();
        CHECK(op.lora == 0 && op.max_rank == 8 && op.inputs[0] == of_sequence, "pair %d, rank %d", op.lora,
              op.max_rank);
        CHECK(m.p.lora_pairs.size() == 4 && m.p.n_adapters == 4, "%lld pairs, %d adapters",
              static_cast<long long>(m.p.lora_pairs.size()), m.p.n_adapters);
        const int32_t ranks[] = {0, 8, 4, 0};
        for (int i = 0; i < 4; i++) {
          const sie_lora_pair &pair = m.p.lora_pairs[i];
          CHECK(pair.rank == ranks[i] && pair.dtype == SIE_F32 && (pair.a != nullptr) == (ranks[i] > 0) &&
                    (pair.b != nullptr) == (ranks[i] > 0),
                "pair %d is of rank %d", i, pair.rank);
        }
        const sie::Input &i = m.p.inputs[of_sequence];
        CHECK(i.read && i.least == -1 && i.bound == 4, "adapters from %lld to below %lld",
              static_cast<long long>(i.least), static_cast<long long>(i.bound));
      });
  // A linear that no adapter changes is one without, but the program has them.
  made::takes<Linear>([](Linear *m) { m->adapter(0), m->adapter(0); },
                      [](const Linear &m) {
                        CHECK(m.last_op().lora == -1 && m.p.lora_pairs.size() == 0 && m.p.n_adapters == 2 &&
                                  m.p.inputs[of_sequence].read,
                              "pair %d of %lld", m.last_op().lora,
                              static_cast<long long>(m.p.lora_pairs.size()));
                      });
  // The next one's pairs come behind those of the first, which stay where it has none.
  Linear m;
  m.adapter(0), m.adapter(2);
  PASSES(m.add(&err));
  m.a = {m.data(3, 16), nullptr}, m.b = {m.data(24, 3), nullptr};
  PASSES(m.add(&err));
  CHECK(m.last_op().lora == 2 && m.last_op().max_rank == 3 && m.p.lora_pairs.size() == 4, "pair %d of %lld",
        m.last_op().lora, static_cast<long long>(m.p.lora_pairs.size()));
  m.a = {nullptr, nullptr}, m.b = {nullptr, nullptr};
  PASSES(m.add(&err));
  CHECK(m.last_op().lora == -1 && m.p.lora_pairs.size() == 4, "pair %d of %lld", m.last_op().lora,
        static_cast<long long>(m.p.lora_pairs.size()));
  Linear plain;
  plain.p.n_adapters = 2;
  PASSES(plain.add(&err));
  CHECK(plain.p.n_adapters == 2 && !plain.p.inputs[0].read, "a linear without adapters leaves %d",
        plain.p.n_adapters);
  m.adapter(1);
  SAYS("n_adapters is 3; the program has 2", m.add(&err));
  CHECK(m.p.lora_pairs.size() == 4 && m.p.n_adapters == 2, "a refused linear has pairs");
}

TEST(recorded_adapters_have_bounds) {
  refuses("a or b is given, but n_adapters is 0", [](Linear *m) { m->a.push_back(nullptr); });
  refuses("a or b is given, but n_adapters is 0", [](Linear *m) { m->b.push_back(nullptr); });
  refuses("adapter is 5; it has no meaning here", [](Linear *m) { m->l.adapter = of_sequence; });
  auto count = [](int n) {
    return [n](Linear *m) {
      for (int i = 0; i < n; i++) m->adapter(i == 0 ? 1 : 0);
    };
  };
  made::takes<Linear>(count(1));
  made::takes<Linear>(count(64));
  refuses("n_adapters is 65; 1 to 64 is possible", count(65));
  refuses("n_adapters is -1; 1 to 64 is possible", [](Linear *m) { m->adapter(1), m->l.n_adapters = -1; });
  refuses("a or b is NULL", [](Linear *m) { m->adapter(1), m->a.clear(); });
  refuses("a or b is NULL", [](Linear *m) { m->adapter(1), m->b.clear(); });
  refuses("adapter 1 has one of a and b", [](Linear *m) { m->adapter(1), m->adapter(1), m->a[1] = nullptr; });
  refuses("adapter 0 has one of a and b", [](Linear *m) { m->adapter(1), m->adapter(1), m->b[0] = nullptr; });
  made::takes<Linear>([](Linear *m) { m->adapter(1024); });
  refuses("adapter 0 is of rank 1025; at most 1024 is possible", [](Linear *m) { m->adapter(1025); });
  // One that is right behind one that is wrong does not help.
  refuses("a is [2, 15]; [2, 16]", [](Linear *m) { m->adapter(2), m->adapter(2), m->a[0] = m->data(2, 15); });
  refuses("b is [24, 3]; [24, 2]", [](Linear *m) { m->adapter(2), m->b[0] = m->data(24, 3); });
  refuses("b is [23, 2]; [24, 2]", [](Linear *m) { m->adapter(2), m->b[0] = m->data(23, 2); });
  refuses("adapter is ids", [](Linear *m) { m->adapter(2), m->l.adapter = made::ids; });
  refuses("has no lora", [](Linear *m) { m->adapter(2), m->ops.lora = nullptr; }, SIE_UNSUPPORTED);
  made::takes<Linear>([](Linear *m) { m->adapter(0), m->ops.lora = nullptr; });
}

// Where there is no memory for the operation, its pairs go, and those of others stay.
TEST(recorded_adapters_leave_with_their_linear) {
  int refused = 0;
  for (int n = 0; n < 8; n++) {
    Linear m;
    for (int i = 0; i < 8; i++) m.adapter(i + 1);
    PASSES(m.add(&err));
    while (m.p.values.size() % 8 != 0) m.value(tokens, 16);
    const int64_t ops = m.p.ops.size();
    sie_error err = {};
    wrapped::calls_left.store(n);
    const sie_status status = m.add(&err);
    wrapped::calls_left.store(-1);
    const bool ok = status == SIE_OK;
    CHECK(ok || status == SIE_OUT_OF_MEMORY, "status %d: %s", status, err.message);
    CHECK(m.p.ops.size() == ops + (ok ? 1 : 0) && m.p.lora_pairs.size() == (ok ? 16 : 8), "%lld pairs",
          static_cast<long long>(m.p.lora_pairs.size()));
    refused += ok ? 0 : 1;
  }
  CHECK(refused > 0 && refused < 8, "%d of 8 are refused", refused);
}

TEST(recorded_splade) {
  made::takes<Splade>(
      [](Splade *) {},
      [](const Splade &m) {
        const sie::Value &v = m.last_value();
        CHECK(v.space == sequences && v.columns == 24 && v.outputs_only && v.compute == SIE_COMPUTE_F32,
              "another value");
      });
  auto refused = [](const char *words, void (*change)(Splade *), sie_status want = SIE_INVALID_ARGUMENT) {
    made::refuses<Splade>(words, change, want);
  };
  refused("reserved is 1", [](Splade *m) { m->s.reserved = 1; });
  refused("has no splade", [](Splade *m) { m->ops.splade = nullptr; }, SIE_UNSUPPORTED);
  refused("declares no SEQS space", [](Splade *m) { m->p.seqs = 0; });
  refused("those of a ROWS space", [](Splade *m) { m->s.x = m->value(sequences, 16); });
  refused("those of a ROWS space", [](Splade *m) { m->s.x = m->value(made::kept, 16); });
  made::takes<Splade>([](Splade *m) { m->s.x = m->value(words, 16); });
}
