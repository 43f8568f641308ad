// verify.cc — one call against the reference, or against itself.
#include "bench/verify.h"

namespace bench {

namespace {

// The flop that the reference does in about a second, and the number of rows that its comparison
// checks.
constexpr double reference_flops = 3e8;
constexpr int64_t reference_rows = 256;

std::vector<uint8_t> bytes_of(const harness::Case &c, int64_t unit) {
  std::vector<uint8_t> all;
  int64_t first, last;
  c.rows_of(unit, &first, &last);
  for (const harness::Rows *rows : c.outputs) {
    const std::vector<uint8_t> part = rows->bytes(first, last);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

sie_status verify(harness::Case *c, const sie_ops *table) {
  harness::Scratch scratch(table, c->bounds());
  const sie_share share = scratch.share(0, 1);
  auto run = [&](int64_t first, int64_t count) {
    for (harness::Rows *rows : c->outputs) rows->clear();
    const sie_status status = c->call(table, &share, first, count);
    for (const harness::Rows *rows : c->outputs) {
      CHECK(status != SIE_OK || rows->guards_intact(), "%s %s: wrote beside its rows", c->form.c_str(),
            c->shape.c_str());
    }
    CHECK(scratch.intact(), "%s %s: wrote behind its scratch", c->form.c_str(), c->shape.c_str());
    return status;
  };
  const sie_status status = run(0, c->units);
  if (status != SIE_OK) return status;
  if (c->flops() <= reference_flops && c->outputs[0]->rows() <= reference_rows) {
    c->expect();
    c->verify(table->name);
    return SIE_OK;
  }
  const int64_t units[] = {c->units / 3, c->units - 1};
  std::vector<uint8_t> together[2];
  for (int i = 0; i < 2; i++) together[i] = bytes_of(*c, units[i]);
  for (int i = 0; i < 2; i++) {
    const sie_status alone = run(units[i], 1);
    CHECK(alone == SIE_OK, "%s %s: status %d for one unit", c->form.c_str(), c->shape.c_str(), alone);
    CHECK(bytes_of(*c, units[i]) == together[i], "%s %s: unit %lld has other bits alone", c->form.c_str(),
          c->shape.c_str(), static_cast<long long>(units[i]));
  }
  return SIE_OK;
}

}  // namespace bench
