// host_parts_test.cc — on every CPU table: the parts of a share write each element once, and together
// all of them. Parts run at once, so that an element of two is a race, though both write the same bits.
#include <math.h>

#include "harness.h"

using namespace harness;

namespace {

std::vector<const sie_ops *> tables() {
  std::vector<const sie_ops *> all;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) == nullptr) all.push_back(ops);
  }
  return all;
}

// What each part has written of y, which call(share) fills; whole: {0, elements} where a part has them all.
struct Written {
  std::vector<int> times;                // by element
  std::vector<std::vector<size_t>> own;  // by part
};

template <class Call>
Written written(Array<float> *y, int32_t parts, void *scratch, int64_t bytes, const Call &call) {
  constexpr uint32_t mark = 0x7fc12345;  // a NaN that nobody computes
  Written w = {std::vector<int>(y->size()), std::vector<std::vector<size_t>>(static_cast<size_t>(parts))};
  for (int32_t part = 0; part < parts; part++) {
    for (float &v : *y) memcpy(&v, &mark, sizeof v);
    const sie_share share = {part, parts, scratch, bytes, nullptr};
    const sie_status status = call(share);
    CHECK(status == SIE_OK, "part %d of %d: status %d", part, parts, status);
    for (size_t i = 0; i < y->size(); i++) {
      if (memcmp(&(*y)[i], &mark, sizeof mark) == 0) continue;
      w.times[i]++;
      w.own[static_cast<size_t>(part)].push_back(i);
    }
  }
  return w;
}

// Columns of a panel of class F32.
int64_t panel_of(const sie_ops *ops) {
  const bool wide = ops->isa == SIE_ISA_AVX512 || ops->isa == SIE_ISA_AVX512_VNNI ||
                    ops->isa == SIE_ISA_AVX512_BF16 || ops->isa == SIE_ISA_AMX;
  return wide ? 48 : 16;
}

}  // namespace

// Columns are dealt in whole panels where these divide among the parts, or are many.
TEST(host_parts_of_a_linear) {
  constexpr int64_t k = 3;
  for (const sie_ops *ops : tables()) {
    if (ops == sie_ref_ops()) continue;
    for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_INT8}) {
      const int64_t panel = compute == SIE_COMPUTE_F32 ? panel_of(ops) : 32;
      for (int64_t which = 0; which < 24; which++) {
        // The last panel lacks a column, or a vector of 8 or of 16.
        const int64_t most = std::vector<int64_t>{1, 2, 3, 4, 6, 9, 13, 16}[static_cast<size_t>(which / 3)];
        const int64_t n = most * panel - 1 - 8 * (which % 3), panels = (n + panel - 1) / panel;
        if (n < 1) continue;
        Weight weight(compute, n, k, std::vector<float>(static_cast<size_t>(n * k), 1.0f));
        for (int32_t rows : {0, 1, 13, 19}) {
          Array<float> x(static_cast<size_t>(rows * k + 1), 1.0f), y(static_cast<size_t>(rows * n));
          Array<float> scale(static_cast<size_t>(rows + 1), 1.0f);
          Array<int32_t> zero(static_cast<size_t>(rows + 1), 0);
          sie_linear_args a = {};
          a.rows = {rows, &rows};
          a.n = n, a.k = k;
          a.x.p = x.data(), a.x.ld = k, a.x.dtype = compute == SIE_COMPUTE_F32 ? SIE_F32 : SIE_U8;
          a.x.scale = scale.data(), a.x.zero = zero.data(), a.x.scale_group = -1;
          a.w = weight.packed(ops);
          a.y.p = y.data(), a.y.ld = n, a.y.dtype = SIE_F32;
          sie_op_bounds bounds = {};
          bounds.kind = SIE_OP_LINEAR, bounds.compute = compute;
          bounds.rows = rows, bounds.n = n, bounds.k = k;
          Array<double> scratch(static_cast<size_t>(ops->scratch_bytes(&bounds) / 8 + 16));
          for (int32_t parts : {1, 2, 3, 4, 5, 7}) {
            const Written w = written(&y, parts, scratch.data(), static_cast<int64_t>(scratch.size()) * 8,
                                      [&](const sie_share &share) { return ops->linear(&a, &share); });
            for (int times : w.times)
              CHECK(times == 1, "%s: class %u, %d rows, %lld panels: %d of %d parts write an element",
                    ops->name, compute, rows, static_cast<long long>(panels), times, parts);
            const bool by_panel = panels >= 4 * parts || (compute == SIE_COMPUTE_F32 && panels % parts == 0);
            for (int32_t part = 0; by_panel && part < parts; part++) {
              const int64_t first = panels * part / parts * panel, last = panels * (part + 1) / parts * panel;
              for (size_t i : w.own[static_cast<size_t>(part)]) {
                const int64_t c = static_cast<int64_t>(i) % n;
                CHECK(c >= first && c < last, "%s: class %u, %lld panels: part %d of %d has column %lld",
                      ops->name, compute, static_cast<long long>(panels), part, parts,
                      static_cast<long long>(c));
              }
            }
          }
        }
      }
    }
  }
}

TEST(host_parts_of_a_recurrence) {
  constexpr int64_t h = 3;
  const int32_t seqs = 3, cu[] = {0, 2, 3, 5}, rows = 5;
  Weight weight(SIE_COMPUTE_F32, 4 * h, h, std::vector<float>(4 * h * h, 0.5f));
  Array<float> gates(static_cast<size_t>(rows * 8 * h), 0.5f);
  for (const sie_ops *ops : tables()) {
    for (int directions : {1, 2, 3}) {  // ahead, back, both
      const int64_t columns = directions == 3 ? 2 * h : h;
      Array<float> y(static_cast<size_t>(rows * columns));
      sie_lstm_args a = {};
      a.rows = {rows, &rows}, a.seqs = {seqs, &seqs};
      a.cu_seqlens = cu;
      a.h = h;
      a.w = directions != 2 ? weight.packed(ops) : nullptr;
      a.w_reverse = directions != 1 ? weight.packed(ops) : nullptr;
      a.gates.p = gates.data(), a.gates.ld = 8 * h, a.gates.dtype = SIE_F32;
      a.y.p = y.data(), a.y.ld = columns, a.y.dtype = SIE_F32;
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_LSTM;
      bounds.rows = rows, bounds.seqs = seqs, bounds.max_len = 2;
      bounds.k = h, bounds.n = 4 * h, bounds.c = h;
      Array<double> scratch(static_cast<size_t>(ops->scratch_bytes(&bounds) / 8 + 16));
      for (int32_t parts : {1, 2, 3, 4, 5, 6, 7}) {
        const Written w = written(&y, parts, scratch.data(), static_cast<int64_t>(scratch.size()) * 8,
                                  [&](const sie_share &share) { return ops->lstm(&a, &share); });
        for (int times : w.times)
          CHECK(times == 1, "%s: directions %d: %d of %d parts write an element", ops->name, directions,
                times, parts);
        for (const std::vector<size_t> &own : w.own)
          CHECK(parts > seqs * (directions == 3 ? 2 : 1) || !own.empty(),
                "%s: directions %d: one of %d parts has nothing", ops->name, directions, parts);
      }
    }
  }
}
