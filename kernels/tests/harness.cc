// harness.cc — the checks that every case passes, and the bench.
#include "harness.h"

#include <algorithm>
#if defined(__SANITIZE_THREAD__)
#include <thread>
#endif

#include "tests/support.h"

namespace harness {

namespace {

// Above this the emulated kernels of a GPU would take too long.
constexpr double emulated_flops = 1e8;
// Above this the reference only computes what a case expects.
constexpr double reference_flops = 1e6;

bool is_gpu(const sie_ops *ops) { return stream_of(ops) != nullptr; }

std::vector<uint8_t> unit_bytes(const Case &c, int64_t u) {
  std::vector<uint8_t> bytes;
  int64_t first, last;
  c.rows_of(u, &first, &last);
  for (const Rows *rows : c.outputs) {
    std::vector<uint8_t> part = rows->bytes(first, last);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

// The bytes of every unit, by unit.
using Units = std::vector<std::vector<uint8_t>>;
Units bytes_of_units(const Case &c) {
  Units all;
  for (int64_t u = 0; u < c.units; u++) all.push_back(unit_bytes(c, u));
  return all;
}

void clear(Case &c) {
  for (Rows *rows : c.outputs) rows->clear();
}

// One share of a call, with scratch of its own.
struct Part {
  Case *c;
  const sie_ops *ops;
  int64_t first, count;
  int32_t part, parts;
  sie_status status = SIE_OK;
  bool intact = true;

  void call() {
    Scratch scratch(ops, c->bounds());
    sie_share share = scratch.share(part, parts);
    status = c->call(ops, &share, first, count);
    if (status == SIE_OK) status = memory.finish(share.on);
    intact = scratch.intact();
  }
};

// Under ThreadSanitizer all but the first share run at once: it sees if one touches what another
// writes.
#if defined(__SANITIZE_THREAD__)
void call_others(std::vector<Part> *parts) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < parts->size(); i++) threads.emplace_back(&Part::call, &(*parts)[i]);
  for (std::thread &thread : threads) thread.join();
}
#else
void call_others(std::vector<Part> *parts) {
  for (size_t i = 1; i < parts->size(); i++) (*parts)[i].call();
}
#endif

// Runs units [first, first + count) in `parts` shares, the last one first: no order is promised.
sie_status run(Case &c, const sie_ops *ops, int64_t first, int64_t count, int32_t parts) {
  clear(c);
  std::vector<Part> calls;
  for (int32_t part = parts - 1; part >= 0; part--) calls.push_back({&c, ops, first, count, part, parts});
  calls[0].call();
  if (calls[0].status != SIE_OK) return calls[0].status;
  call_others(&calls);
  for (const Part &call : calls) {
    if (call.status != SIE_OK) return call.status;
    CHECK(call.intact, "%s %s %s: wrote behind its scratch", ops->name, c.form.c_str(), c.shape.c_str());
  }
  for (const Rows *rows : c.outputs) {
    CHECK(rows->guards_intact(), "%s %s %s: wrote between or beside the rows", ops->name, c.form.c_str(),
          c.shape.c_str());
  }
  return SIE_OK;
}

// The units to check alone: both ends and some in between.
std::vector<int64_t> chosen_units(int64_t units, bool few) {
  std::vector<int64_t> chosen, candidates = {0, units / 2, units - 1, 1, units / 3, units - 2};
  if (few) candidates.resize(3);
  for (int64_t u : candidates) {
    if (u >= 0 && u < units && std::find(chosen.begin(), chosen.end(), u) == chosen.end())
      chosen.push_back(u);
  }
  return chosen;
}

// Checks several counts of shares: 64 is the largest team; 5 divides no number of heads or panels
// here. Of two neighbours in the list, which are often one shape in two layouts, one uses two of
// the counts and the other the rest.
void check_shares(Case &c, int index, const sie_ops *ops, const Units &whole) {
  const int32_t counts[2][2] = {{3, 64}, {2, 5}};
  for (int32_t parts : counts[index % 2]) {
    run(c, ops, 0, c.units, parts);
    CHECK(bytes_of_units(c) == whole, "%s %s %s: %d shares give other bits than one", ops->name,
          c.form.c_str(), c.shape.c_str(), parts);
  }
}

void check_alone(Case &c, const sie_ops *ops, const Units &whole) {
  auto check = [&](int64_t first, int64_t count) {
    run(c, ops, first, count, 1);
    for (int64_t u = first; u < first + count; u++) {
      CHECK(unit_bytes(c, u) == whole[static_cast<size_t>(u)], "%s %s %s: unit %lld differs among %lld",
            ops->name, c.form.c_str(), c.shape.c_str(), static_cast<long long>(u),
            static_cast<long long>(count));
    }
    for (int64_t u : {first - 1, first + count}) {
      if (u < 0 || u >= c.units) continue;
      int64_t begin, end;
      c.rows_of(u, &begin, &end);
      for (const Rows *rows : c.outputs) {
        CHECK(rows->untouched(begin, end), "%s %s %s: wrote unit %lld, not asked for", ops->name,
              c.form.c_str(), c.shape.c_str(), static_cast<long long>(u));
      }
    }
  };
  for (int64_t u : chosen_units(c.units, is_gpu(ops))) check(u, 1);
  for (int64_t count : {7, 31, 64}) {
    if (count < c.units) check(c.units - count, count);
  }
}

// Checks that a unit of NaN and infinity leaves every other unit's bits alone. It destroys the
// inputs, so all tables share one run.
void check_poison(Case &c, const std::vector<std::pair<const sie_ops *, Units>> &tables) {
  if (c.units < 2) return;
  int64_t victim = c.units / 2;
  c.poison(victim);
  for (const auto &[ops, clean] : tables) {
    run(c, ops, 0, c.units, 1);
    for (int64_t u = 0; u < c.units; u++) {
      CHECK(u == victim || unit_bytes(c, u) == clean[static_cast<size_t>(u)],
            "%s %s %s: unit %lld sees the poison of unit %lld", ops->name, c.form.c_str(), c.shape.c_str(),
            static_cast<long long>(u), static_cast<long long>(victim));
    }
  }
}

}  // namespace

bool run_whole(Case &c, const sie_ops *ops) {
  if (!c.present(ops)) return false;
  sie_status status = run(c, ops, 0, c.units, 1);
  CHECK(status == SIE_OK || status == SIE_UNSUPPORTED, "%s %s %s: status %d", ops->name, c.form.c_str(),
        c.shape.c_str(), status);
  for (const Rows *rows : c.outputs) {
    CHECK(status == SIE_OK || rows->untouched(0, rows->rows()), "%s %s %s: refused, but wrote", ops->name,
          c.form.c_str(), c.shape.c_str());
  }
  return status == SIE_OK;
}

bool affordable(const Case &c, const sie_ops *ops, bool first_of_form) {
  if (is_gpu(ops)) return c.flops() <= emulated_flops;
  return ops != sie_ref_ops() || first_of_form || c.flops() <= reference_flops;
}

namespace {

// Whether the table uses a lower table's own function for this case (kernels/cpu/table.cc); shares
// and units alone of that function are already checked.
bool borrowed(const Case &c, const sie_ops *ops) {
  const sie_op_bounds b = c.bounds();
  const bool product = b.kind == SIE_OP_LINEAR || b.kind == SIE_OP_SPLADE;
  if (product && b.compute == SIE_COMPUTE_INT8)
    return b.kind == SIE_OP_LINEAR && (ops->isa == SIE_ISA_AVX512 || ops->isa == SIE_ISA_AVX512_BF16);
  if (product && b.compute == SIE_COMPUTE_BF16) return false;
  // Only AMX has an attention of its own, in bf16.
  if (b.kind == SIE_OP_ATTENTION && ops->isa == SIE_ISA_AMX)
    return c.form.compare(0, 13, "attention f32") == 0;
  return !has_own_generic(ops);
}

// Whether two GPUs run the same code of an operation on words, markers and spans. The LSTM has
// clusters from sm_90 on.
bool same_code(uint32_t kind, const Gpu &a, const Gpu &b) {
  if (kind == SIE_OP_LSTM) return (a.on.sm >= 90) == (b.on.sm >= 90);
  return kind == SIE_OP_TAKE_ROWS || kind == SIE_OP_PRODUCT || kind == SIE_OP_DOTS || kind == SIE_OP_SPANS ||
         kind == SIE_OP_PAIRS || a.ops == b.ops;
}

// Behind the first case of a form, which says what each table has, a case runs on one of the GPUs
// that have the same code, which changes with each case.
bool runs_elsewhere(const Case &c, const sie_ops *ops, int index, bool first_of_form) {
  if (first_of_form || !is_gpu(ops)) return false;
  std::vector<const sie_ops *> same;
  for (const Gpu &own : gpus()) {
    if (own.ops != ops) continue;
    for (const Gpu &gpu : gpus()) {
      if (same_code(c.bounds().kind, own, gpu)) same.push_back(gpu.ops);
    }
  }
  return !same.empty() && same[static_cast<size_t>(index) % same.size()] != ops;
}

// Checks the values of every table. Partial units and poison are checked on every CPU table that
// has a kernel of its own, and on one GPU table, which changes with each case: most of their
// kernels are the same.
void check_tables(Case &c, int index, bool first_of_form, const std::vector<const sie_ops *> &tables) {
  std::vector<std::pair<const sie_ops *, Units>> hosts, devices;
  for (const sie_ops *ops : tables) {
    if (!affordable(c, ops, first_of_form) || runs_elsewhere(c, ops, index, first_of_form)) continue;
    const bool has = run_whole(c, ops);
    if (has && first_of_form) note_support(c, ops);
    CHECK(has == should_run(c, ops, has), "%s %s %s: %s, other than its form in support.txt", ops->name,
          c.form.c_str(), c.shape.c_str(), has ? "runs" : "refused");
    if (!has) continue;
    c.verify(ops->name);
    if (!is_gpu(ops) && borrowed(c, ops)) continue;
    (is_gpu(ops) ? devices : hosts).emplace_back(ops, bytes_of_units(c));
  }
  if (!devices.empty()) hosts.push_back(devices[static_cast<size_t>(index) % devices.size()]);
  for (const auto &[ops, whole] : hosts) {
    if (!is_gpu(ops)) check_shares(c, index, ops, whole);
    check_alone(c, ops, whole);
  }
  check_poison(c, hosts);
}

void run_case(Case &c, int index, bool first_of_form) {
  if (!check::judging()) {
    c.expect();
    return check_tables(c, index, first_of_form, backends());
  }
  // A fault in the reference shows in all tables, a fault in a table in that table alone.
  const std::string name = c.form + " " + c.shape;
  auto expect = [&] { c.expect(); };
  check::judged((name + " reference").c_str(), expect, [&] {
    c.expect();
    check_tables(c, index, first_of_form, backends());
  });
  c.expect();
  for (const sie_ops *ops : backends()) {
    check::judged((name + " " + ops->name).c_str(), [&] { check_tables(c, index, first_of_form, {ops}); });
  }
}

}  // namespace

void run_group(const Group &group) {
  for (int index = 0;; index++) {
    const std::unique_ptr<Case> name = named(group.make, index);
    if (name == nullptr) return;
    if (name->bench) continue;  // sizes the reference would need minutes for
    const bool ours = check::in_shard(index), first_of_form = note_form(*name, ours);
    if (ours) run_case(*group.make(index), index, first_of_form);
  }
}

// Sanitizers watch memory, which smaller shapes use in the same way, and make this slow: they run
// one case of five, of every class.
#if defined(SIE_ADDRESS_SANITIZER) || defined(__SANITIZE_THREAD__)
constexpr int production_step = 5;
#else
constexpr int production_step = 1;
#endif

void run_production(int part, int parts) {
  int index = 0, ran = 0;
  for (const Make make : {make_production_linear, make_production_attention}) {
    for (int i = 0;; i++, index++) {
      if (named(make, i) == nullptr) break;
      if (index % parts != part || index / parts % production_step != 0 || !check::in_shard(index)) continue;
      const std::unique_ptr<Case> c = make(i);
      for (const sie_ops *ops : backends()) {
        if (ops == sie_ref_ops() || is_gpu(ops) || borrowed(*c, ops)) continue;
        check::judged((c->form + " " + c->shape + " " + ops->name).c_str(), [&] {
          if (!run_whole(*c, ops)) return;
          const Units whole = bytes_of_units(*c);
          check_shares(*c, index / 2, ops, whole);
          check_alone(*c, ops, whole);
          ran++;
        });
      }
    }
  }
  printf("     %d pairs of a shape and a table\n", ran);
}

void bench_all(const char *filter) {
  for (const Group &group : groups()) {
    for (int index = 0;; index++) {
      const std::unique_ptr<Case> name = named(group.make, index);
      if (name == nullptr) break;
      if (!name->bench ||
          (filter != nullptr && (name->form + " " + name->shape).find(filter) == std::string::npos))
        continue;
      const std::unique_ptr<Case> c = group.make(index);
      for (const sie_ops *ops : backends()) {
        if (ops->isa == 0 || is_gpu(ops) || !c->present(ops)) continue;
        if (run(*c, ops, 0, c->units, 1) != SIE_OK) continue;  // correct calls only: the cases are tests too
        Scratch scratch(ops, c->bounds());
        sie_share share = scratch.share(0, 1);
        double begin = check::seconds(), elapsed = 0, best = 1e9;
        long iterations = 0;
        while (elapsed < 0.15) {
          double from = check::seconds();
          c->call(ops, &share, 0, c->units);
          best = std::min(best, check::seconds() - from);
          iterations++;
          elapsed = check::seconds() - begin;
        }
        std::string name = c->form + " " + c->shape;
        std::replace(name.begin(), name.end(), ' ', '/');
        printf("BenchmarkKernel/op=%s/backend=%s %ld %.0f ns/op %.1f GFLOP/s %.2f GB/s %.0f best-ns/op\n",
               name.c_str(), ops->name, iterations, elapsed / static_cast<double>(iterations) * 1e9,
               c->flops() / elapsed * static_cast<double>(iterations) * 1e-9,
               c->bytes() / elapsed * static_cast<double>(iterations) * 1e-9, best * 1e9);
        fflush(stdout);
      }
    }
  }
}

}  // namespace harness
