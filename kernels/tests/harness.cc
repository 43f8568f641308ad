// harness.cc — what every case goes through, the bench and the support list.
#include "harness.h"

#include <algorithm>
#include <map>

namespace harness {

std::string text(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

const char *dtype_text(int32_t dtype) {
  switch (dtype) {
    case SIE_F32:
      return "f32";
    case SIE_F16:
      return "f16";
    case SIE_BF16:
      return "bf16";
    case SIE_I8:
      return "i8";
    case SIE_U8:
      return "u8";
    case SIE_BINARY:
      return "binary";
    case SIE_F8E4M3:
      return "f8";
    default:
      return "none";
  }
}

const char *pooling_text(int32_t pooling) {
  static const char *const names[] = {"", "cls", "mean", "last", "attention", "weighted mean"};
  return names[pooling];
}

std::vector<Gpu> &gpus() {
  static std::vector<Gpu> list;
  return list;
}

const sie_stream *stream_of(const sie_ops *ops) {
  for (const Gpu &gpu : gpus()) {
    if (gpu.ops == ops) return &gpu.on;
  }
  return nullptr;
}

namespace {

Tables selected = Tables::all;

}  // namespace

void select(Tables tables) { selected = tables; }

const std::vector<const sie_ops *> &backends() {
  static const std::vector<const sie_ops *> list = [] {
    std::vector<const sie_ops *> tables;
    if (selected != Tables::gpu) {
      tables.push_back(sie_ref_ops());
      const uint32_t best = sie_cpu_detect();
      for (uint32_t isa = SIE_ISA_AVX2; isa <= best; isa++) {
        if (const sie_ops *ops = sie_cpu_ops(isa)) tables.push_back(ops);
      }
    }
    for (const Gpu &gpu : gpus()) {
      if (selected != Tables::host) tables.push_back(gpu.ops);
    }
    return tables;
  }();
  return list;
}

const std::vector<Group> &groups() {
  static const std::vector<Group> list = {
      {"embed_layernorm", make_embed},
      {"layernorm", make_layernorm},
      {"linear", make_linear},
      {"quantise_rows", make_quantise},
      {"attention", make_attention},
      {"gather_rows", make_gather},
      {"pool", make_pool},
      {"output_rows", make_output},
      {"qk_norm_rope", make_rope},
      {"pool_output", make_pool_output},
      {"muvera", make_muvera},
  };
  return list;
}

namespace {

// Above this the emulated kernels of a GPU would take too long.
constexpr double emulated_flops = 1e8;
// Above this the reference is asked for what it expects, and no more.
constexpr double reference_flops = 1e6;

bool is_gpu(const sie_ops *ops) { return stream_of(ops) != nullptr; }

std::vector<uint8_t> all_bytes(const Case &c) {
  std::vector<uint8_t> bytes;
  for (const Rows *rows : c.outputs) {
    std::vector<uint8_t> part = rows->bytes(0, rows->rows());
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

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

void clear(Case &c) {
  for (Rows *rows : c.outputs) rows->clear();
}

// Runs units [first, first + count) in `parts` shares, the last one first: no order is promised.
sie_status run(Case &c, const sie_ops *ops, int64_t first, int64_t count, int32_t parts) {
  clear(c);
  for (int32_t part = parts - 1; part >= 0; part--) {
    Scratch scratch(ops, c.bounds());
    sie_share share = scratch.share(part, parts);
    sie_status status = c.call(ops, &share, first, count);
    if (status == SIE_OK) status = memory.finish(share.on);
    if (status != SIE_OK) return status;
    CHECK(scratch.intact(), "%s %s %s: wrote behind its scratch", ops->name, c.form.c_str(), c.shape.c_str());
  }
  for (const Rows *rows : c.outputs) {
    CHECK(rows->guards_intact(), "%s %s %s: wrote between or beside the rows", ops->name, c.form.c_str(),
          c.shape.c_str());
  }
  return SIE_OK;
}

// Units worth a look of their own: both ends and some in between.
std::vector<int64_t> chosen_units(int64_t units, bool few) {
  std::vector<int64_t> chosen, candidates = {0, units / 2, units - 1, 1, units / 3, units - 2};
  if (few) candidates.resize(3);
  for (int64_t u : candidates) {
    if (u >= 0 && u < units && std::find(chosen.begin(), chosen.end(), u) == chosen.end())
      chosen.push_back(u);
  }
  return chosen;
}

void check_shares(Case &c, const sie_ops *ops, const std::vector<uint8_t> &whole) {
  if (is_gpu(ops)) return;
  for (int32_t parts : {2, 3}) {
    run(c, ops, 0, c.units, parts);
    CHECK(all_bytes(c) == whole, "%s %s %s: %d shares give other bits than one", ops->name, c.form.c_str(),
          c.shape.c_str(), parts);
  }
}

void check_alone(Case &c, const sie_ops *ops) {
  run(c, ops, 0, c.units, 1);
  std::map<int64_t, std::vector<uint8_t>> together;
  for (int64_t u = 0; u < c.units; u++) together[u] = unit_bytes(c, u);
  auto check = [&](int64_t first, int64_t count) {
    run(c, ops, first, count, 1);
    for (int64_t u = first; u < first + count; u++) {
      CHECK(unit_bytes(c, u) == together[u], "%s %s %s: unit %lld differs among %lld", ops->name,
            c.form.c_str(), c.shape.c_str(), static_cast<long long>(u), static_cast<long long>(count));
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

// A unit of NaN and infinity leaves every other unit's bits alone. Destroys the inputs, so backends share it.
void check_poison(Case &c, const std::vector<const sie_ops *> &tables) {
  if (c.units < 2) return;
  std::vector<std::map<int64_t, std::vector<uint8_t>>> clean(tables.size());
  for (size_t t = 0; t < tables.size(); t++) {
    run(c, tables[t], 0, c.units, 1);
    for (int64_t u = 0; u < c.units; u++) clean[t][u] = unit_bytes(c, u);
  }
  int64_t victim = c.units / 2;
  c.poison(victim);
  for (size_t t = 0; t < tables.size(); t++) {
    run(c, tables[t], 0, c.units, 1);
    for (int64_t u = 0; u < c.units; u++) {
      CHECK(u == victim || unit_bytes(c, u) == clean[t][u],
            "%s %s %s: unit %lld sees the poison of unit %lld", tables[t]->name, c.form.c_str(),
            c.shape.c_str(), static_cast<long long>(u), static_cast<long long>(victim));
    }
  }
}

// The tables that have this form; whether they should is the support table's business.
std::vector<const sie_ops *> tables_for(Case &c, bool list) {
  std::vector<const sie_ops *> tables;
  for (const sie_ops *ops : backends()) {
    if (!c.present(ops) || (is_gpu(ops) && c.flops() > emulated_flops)) continue;
    if (!list && ops == sie_ref_ops() && c.flops() > reference_flops) continue;
    sie_status status = run(c, ops, 0, c.units, 1);
    if (status == SIE_OK) tables.push_back(ops);
    CHECK(status == SIE_OK || status == SIE_UNSUPPORTED, "%s %s %s: status %d", ops->name, c.form.c_str(),
          c.shape.c_str(), status);
    for (const Rows *rows : c.outputs) {
      CHECK(status == SIE_OK || rows->untouched(0, rows->rows()), "%s %s %s: refused, but wrote", ops->name,
            c.form.c_str(), c.shape.c_str());
    }
  }
  return tables;
}

}  // namespace

namespace {

int sampled = 1;

}  // namespace

void sample(int every) { sampled = every; }

void run_group(const Group &group) {
  for (int index = 0;; index++) {
    std::unique_ptr<Case> c = group.make(index);
    if (c == nullptr) return;
    if (c->bench || index % sampled != 0 || !check::in_shard(index)) continue;  // sizes the reference would need minutes for
    c->expect();
    std::vector<const sie_ops *> tables = tables_for(*c, false);
    for (const sie_ops *ops : tables) {
      run(*c, ops, 0, c->units, 1);
      c->verify(ops->name);
      check_shares(*c, ops, all_bytes(*c));
      check_alone(*c, ops);
    }
    check_poison(*c, tables);
  }
}

void bench_all(const char *filter) {
  for (const Group &group : groups()) {
    for (int index = 0;; index++) {
      std::unique_ptr<Case> c = group.make(index);
      if (c == nullptr) break;
      if (!c->bench || (filter != nullptr && (c->form + " " + c->shape).find(filter) == std::string::npos))
        continue;
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

// One line a form: the backends that have it, "(aligned)" behind those which take no odd rows. In the order
// of the list, each form once.
int list_support(FILE *out) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const sie_ops *>> tables[2];  // by layout
  for (const Group &group : groups()) {
    for (int index = 0;; index++) {
      std::unique_ptr<Case> c = group.make(index);
      if (c == nullptr) break;
      auto &of_layout = tables[c->layout == odd ? 1 : 0];
      if (c->bench || of_layout.count(c->form) != 0) continue;
      if (tables[0].count(c->form) == 0) order.push_back(c->form);
      of_layout[c->form] = tables_for(*c, true);
    }
  }
  for (const std::string &form : order) {
    std::string line;
    const std::vector<const sie_ops *> &both = tables[1][form];
    for (const sie_ops *ops : tables[0][form]) {
      bool any = std::find(both.begin(), both.end(), ops) != both.end();
      line += text(" %s%s", ops->name, any ? "" : "(aligned)");
    }
    fprintf(out, "%s:%s\n", form.c_str(), line.c_str());
  }
  return static_cast<int>(order.size());
}

}  // namespace harness
