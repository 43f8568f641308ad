// wgmma.cc — products of a warpgroup: issued together, carried out in order at random moments, and
// not readable before the wait.
#include <algorithm>

#include "simt/machine.h"
#include "simt/matrix.h"

namespace simt {

namespace {

constexpr uint32_t poison = 0xffffffffu;

Warpgroup &warpgroup_of(Fiber *fiber) {
  Cta &cta = *fiber->cta;
  uint32_t index = fiber->number / 128;
  if (128 * (index + 1) > cta.threads)
    fail("wgmma: warps %u … of the block are no whole warpgroup", 4 * index);
  while (cta.warpgroups.size() <= index) {
    cta.warpgroups.push_back(std::make_unique<Warpgroup>());
    cta.warpgroups.back()->cta = &cta;
    cta.warpgroups.back()->number = static_cast<uint32_t>(cta.warpgroups.size()) - 1;
  }
  return *cta.warpgroups[index];
}

struct Layout {
  uint32_t start, row_group, k_group;
  uint32_t row_bytes;   // 16: no swizzle
  uint32_t chunk_mask;  // of the swizzle
};

// Takes the fields apart; start_of_atom: the operand begins with an atom.
Layout decode(uint64_t descriptor, const char *operand, bool start_of_atom = false) {
  Layout layout;
  layout.start = static_cast<uint32_t>(descriptor & 0x3fffu) << 4;
  layout.k_group = static_cast<uint32_t>(descriptor >> 16 & 0x3fffu) << 4;
  layout.row_group = static_cast<uint32_t>(descriptor >> 32 & 0x3fffu) << 4;
  if ((descriptor >> 49 & 7u) != 0) fail("wgmma: %s has a base offset, tiles start at an atom here", operand);
  if ((descriptor & 0x3ff1c000c000c000u) != 0)
    fail("wgmma: %s descriptor %016llx has reserved bits set", operand,
         static_cast<unsigned long long>(descriptor));
  static const uint32_t row_bytes[4] = {16, 128, 64, 32}, masks[4] = {0, 7, 3, 1};
  layout.row_bytes = row_bytes[descriptor >> 62];
  layout.chunk_mask = masks[descriptor >> 62];
  uint32_t inside = layout.start % (8 * layout.row_bytes);
  if (layout.row_bytes == 16) {
    if (inside % 16 != 0) fail("wgmma: %s starts at %u, not a multiple of 16", operand, layout.start);
  } else if (start_of_atom ? inside != 0 : inside + 32 > layout.row_bytes) {
    fail("wgmma: %s starts at shared byte %u, not %s of an atom of %u bytes", operand,
         layout.start - shared_base, start_of_atom ? "at the start" : "in the first row",
         8 * layout.row_bytes);
  }
  return layout;
}

// The 32 bytes of K of each of `rows` rows as floats, to out[row·row_step + k·k_step].
void read_operand(const Cta &cta, Element type, uint64_t descriptor, int32_t rows, float *out,
                  int32_t row_step, int32_t k_step, const char *operand) {
  Layout layout = decode(descriptor, operand);
  int32_t per_register = type == Element::e4m3 ? 4 : 2;
  for (int32_t row = 0; row < rows; row++) {
    uint32_t r = static_cast<uint32_t>(row);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
      uint32_t address = layout.start + r / 8 * layout.row_group + r % 8 * layout.row_bytes +
                         chunk * (layout.row_bytes == 16 ? layout.k_group : 16u);
      address ^= (address >> 7 & layout.chunk_mask) << 4;
      const uint8_t *bytes = shared_bytes(cta, address, 16, 16, operand);
      for (int32_t i = 0; i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, bytes + 4 * i, 4);
        unpack(type, bits,
               out + row * row_step + (static_cast<int32_t>(chunk) * 4 + i) * per_register * k_step, k_step);
      }
    }
  }
}

// B as 16 rows of n columns of 16-bit elements, to out[k·n + column].
void read_rows(const Cta &cta, Element type, uint64_t descriptor, int32_t n, float *out) {
  Layout layout = decode(descriptor, "wgmma operand B by rows", true);
  if (type == Element::e4m3 || layout.row_bytes == 16)
    fail("wgmma: operand B by rows is of 16-bit elements, with a swizzle");
  const uint32_t chunks = layout.row_bytes / 16;
  for (uint32_t k = 0; k < 16; k++) {
    for (uint32_t chunk = 0; chunk < static_cast<uint32_t>(n) / 8; chunk++) {
      uint32_t address = layout.start + k / 8 * layout.row_group + k % 8 * layout.row_bytes +
                         chunk / chunks * layout.k_group + chunk % chunks * 16;
      address ^= (address >> 7 & layout.chunk_mask) << 4;
      const uint8_t *bytes = shared_bytes(cta, address, 16, 16, "wgmma operand B by rows");
      for (uint32_t i = 0; i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, bytes + 4 * i, 4);
        unpack(type, bits, out + k * static_cast<uint32_t>(n) + chunk * 8 + 2 * i, 1);
      }
    }
  }
}

// The row of d that register i of a thread holds.
int32_t row_of(int32_t thread, int32_t i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
int32_t column_of(int32_t thread, int32_t i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

Accumulator *accumulator_of(Warpgroup &group, int32_t n) {
  for (const auto &accumulator : group.accumulators) {
    if (accumulator->d[0] != group.calls[0].d) continue;
    for (int32_t t = 0; t < 128; t++) {
      if (accumulator->d[t] != group.calls[t].d || accumulator->n != n)
        fail("wgmma: accumulators under way are used with another shape, or by a part of the warpgroup");
    }
    return accumulator.get();
  }
  group.accumulators.push_back(std::make_unique<Accumulator>());
  Accumulator *accumulator = group.accumulators.back().get();
  accumulator->n = n;
  accumulator->value.resize(static_cast<size_t>(64 * n));
  for (int32_t t = 0; t < 128; t++) {
    float *d = accumulator->d[t] = group.calls[t].d;
    for (int32_t i = 0; i < n / 2; i++) {
      accumulator->value[static_cast<size_t>(row_of(t, i) * n + column_of(t, i))] = d[i];
      memcpy(&d[i], &poison, 4);
    }
  }
  return accumulator;
}

void issue(Warpgroup &group) {
  const Warpgroup::Call &first = group.calls[0];
  for (const Warpgroup::Call &call : group.calls) {
    if (call.type != first.type || call.n != first.n || call.a != first.a || call.b != first.b ||
        call.accumulate != first.accumulate || call.b_by_rows != first.b_by_rows ||
        (call.fragment == nullptr) != (first.fragment == nullptr))
      fail("wgmma: thread %u calls with other operands than thread %u", call.fiber->number,
           first.fiber->number);
    if (!call.fiber->wgmma_fenced) fail("wgmma without wgmma_fence since the last wait");
  }
  WgmmaOperation operation;
  operation.type = first.type;
  operation.accumulate = first.accumulate;
  operation.b_by_rows = first.b_by_rows;
  operation.a = first.a;
  operation.b = first.b;
  operation.a_in_registers = first.fragment != nullptr;
  if (operation.a_in_registers) {
    operation.fragments.resize(128 * 4);
    for (size_t t = 0; t < 128; t++) memcpy(&operation.fragments[4 * t], group.calls[t].fragment, 16);
  }
  operation.accumulator = accumulator_of(group, first.n);
  uint64_t number = 0;
  for (const Warpgroup::Call &call : group.calls) number = ++call.fiber->wgmma_issued;
  operation.accumulator->last = number;
  group.queue.push_back(std::move(operation));
  group.finished = false;
  // A product is carried out at once with all before it, at some moment, or not before every thread
  // waits; a queue that is not empty keeps its choice.
  if (group.queue.size() > 1) return;
  uint32_t moment = random_below(3);
  group.late = moment == 2;
  if (moment == 0) finish_async(&group);
  if (moment == 1) float_async(&group);
}

}  // namespace

bool wgmma_under_way(const Fiber *fiber) {
  const Cta &cta = *fiber->cta;
  if (fiber->number / 128 >= cta.warpgroups.size()) return false;
  for (const auto &accumulator : cta.warpgroups[fiber->number / 128]->accumulators) {
    if (accumulator->d[fiber->number % 128] != nullptr && accumulator->last > fiber->wgmma_awaited)
      return true;
  }
  return false;
}

bool Warpgroup::step() {
  if (queue.empty()) return true;
  const WgmmaOperation &operation = queue.front();
  Accumulator &accumulator = *operation.accumulator;
  int32_t n = accumulator.n, k = operation.type == Element::e4m3 ? 32 : 16;
  static float a[64 * 32], b[32 * 256];
  if (operation.a_in_registers) {
    int32_t per_register = k / 8;
    for (int32_t t = 0; t < 128; t++) {
      for (int32_t i = 0; i < 4; i++) {
        int32_t row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8;
        unpack(operation.type, operation.fragments[static_cast<size_t>(4 * t + i)],
               a + row * k + i / 2 * (k / 2) + t % 4 * per_register, 1);
      }
    }
  } else {
    read_operand(*cta, operation.type, operation.a, 64, a, k, 1, "wgmma operand A");
  }
  if (operation.b_by_rows) {
    read_rows(*cta, operation.type, operation.b, n, b);
  } else {
    read_operand(*cta, operation.type, operation.b, n, b, 1, n, "wgmma operand B");
  }
  if (!operation.accumulate) std::fill(accumulator.value.begin(), accumulator.value.end(), 0.0f);
  multiply(64, n, k, a, b, accumulator.value.data());
  executed++;
  queue.pop_front();
  return queue.empty();
}

void wgmma_fence() {
  require(90, "wgmma.fence");
  current()->wgmma_fenced = true;
}

void wgmma(Element type, int32_t n, float *d, const uint32_t *a_registers, uint64_t a, uint64_t b,
           bool accumulate, bool b_by_rows) {
  require(90, "wgmma");
  Fiber *fiber = current();
  Warpgroup &group = warpgroup_of(fiber);
  group.calls[fiber->number % 128] = {type, n, d, a_registers, a, b, accumulate, b_by_rows, fiber};
  if (++group.arrived < 128) {
    block("wgmma", &group);
    return;
  }
  group.arrived = 0;
  issue(group);
  for (const Warpgroup::Call &call : group.calls) {
    if (call.fiber != fiber) wake(call.fiber);
  }
}

void wgmma_commit() {
  require(90, "wgmma.commit_group");
  Fiber *fiber = current();
  fiber->wgmma_groups.push_back(fiber->wgmma_issued);
}

void wgmma_wait(int32_t pending) {
  require(90, "wgmma.wait_group");
  Fiber *fiber = current();
  Warpgroup &group = warpgroup_of(fiber);
  uint64_t done = 0;
  while (fiber->wgmma_groups.size() > static_cast<size_t>(pending)) {
    done = fiber->wgmma_groups.front();
    fiber->wgmma_groups.pop_front();
  }
  if (group.executed < done) dawdle("wgmma_wait", group.late);
  while (group.executed < done) {
    if (group.step()) finish_async(&group);
  }
  for (const auto &accumulator : group.accumulators) {
    const float *d = accumulator->d[fiber->number % 128];
    if (d == nullptr || accumulator->last > done || accumulator->last <= fiber->wgmma_awaited) continue;
    for (int32_t r = 0; r < accumulator->n / 2; r++) {
      if (memcmp(&d[r], &poison, 4) != 0)
        fail("wgmma: accumulator register %d was written before the wait", r);
    }
    fiber->wgmma_fenced = false;
  }
  fiber->wgmma_awaited = std::max(fiber->wgmma_awaited, done);
}

void wgmma_keep(float *d) {
  const Fiber *fiber = current();
  if (fiber->number / 128 >= fiber->cta->warpgroups.size()) return;
  auto &accumulators = fiber->cta->warpgroups[fiber->number / 128]->accumulators;
  const uint32_t t = fiber->number % 128;
  const auto found = std::find_if(accumulators.begin(), accumulators.end(), [&](const auto &accumulator) {
    return accumulator->d[t] == d && accumulator->last <= fiber->wgmma_awaited;
  });
  if (found == accumulators.end()) return;
  Accumulator &accumulator = **found;
  for (int32_t r = 0; r < accumulator.n / 2; r++) {
    const int32_t thread = static_cast<int32_t>(t);
    d[r] = accumulator.value[static_cast<size_t>(row_of(thread, r) * accumulator.n + column_of(thread, r))];
  }
  accumulator.d[t] = nullptr;
  if (std::all_of(accumulator.d, accumulator.d + 128, [](float *p) { return p == nullptr; }))
    accumulators.erase(found);
}

}  // namespace simt
