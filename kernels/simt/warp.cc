// warp.cc — operations of a warp's lanes together: exchange, ldmatrix and stmatrix, mma.
#include "simt/machine.h"
#include "simt/matrix.h"
#include "simt/numbers.h"

namespace simt {

void meet(const char *instruction, uint32_t mask, void *arguments,
          void (*act)(void *const *arguments, uint32_t mask)) {
  Fiber *fiber = current();
  Warp &warp = *fiber->warp;
  if ((mask >> fiber->lane & 1u) == 0)
    fail("%s: lane %u is not in its own mask %08x", instruction, fiber->lane, mask);
  if ((mask & warp.exited) != 0) {
    fail("%s: mask %08x names lanes %08x, which have left or never were", instruction, mask,
         mask & warp.exited);
  }
  // Meetings with other masks may be open at the same time; lanes that wait for each other in two
  // of them are a deadlock.
  Meeting *meeting = nullptr;
  for (Meeting &other : warp.meetings) {
    if (other.mask == mask && other.instruction == instruction) meeting = &other;
  }
  if (meeting == nullptr) {
    warp.meetings.emplace_back();
    meeting = &warp.meetings.back();
    meeting->instruction = instruction;
    meeting->mask = mask;
  }
  meeting->arrived |= 1u << fiber->lane;
  meeting->arguments[fiber->lane] = arguments;
  meeting->lanes[fiber->lane] = fiber;
  if (meeting->arrived != mask) {
    block(instruction);
    return;
  }
  act(meeting->arguments, mask);
  for (uint32_t lane = 0; lane < 32; lane++) {
    if (lane != fiber->lane && (mask >> lane & 1u) != 0) wake(meeting->lanes[lane]);
  }
  if (meeting != &warp.meetings.back()) *meeting = warp.meetings.back();
  warp.meetings.pop_back();
}

void sync_warp(uint32_t mask) {
  arrive_at_barrier();
  meet("__syncwarp", mask, nullptr, [](void *const *, uint32_t) {});
}

namespace {

struct Exchange {
  void *value;
  size_t size;
  int32_t argument;
  Shuffle kind;
};

// A value of a shuffle; most have four bytes, for which this is no call.
void copy_value(void *to, const void *from, size_t size) {
  if (size == 4) {
    memcpy(to, from, 4);
  } else {
    memcpy(to, from, size);
  }
}

void exchange(void *const *arguments, uint32_t mask) {
  uint8_t before[32][8];
  for (uint32_t lane = 0; lane < 32; lane++) {
    const Exchange *own = static_cast<const Exchange *>(arguments[lane]);
    memset(before[lane], 0xff, sizeof before[lane]);  // the value of a lane outside the mask
    if ((mask >> lane & 1u) != 0) copy_value(before[lane], own->value, own->size);
  }
  for (uint32_t lane = 0; lane < 32; lane++) {
    if ((mask >> lane & 1u) == 0) continue;
    Exchange *own = static_cast<Exchange *>(arguments[lane]);
    int32_t l = static_cast<int32_t>(lane), source = l;
    switch (own->kind) {
      case Shuffle::exclusive_or:
        source = l ^ own->argument;
        break;
      case Shuffle::from:
        source = own->argument & 31;
        break;
      case Shuffle::up:
        source = l - own->argument;
        break;
      case Shuffle::down:
        source = l + own->argument;
        break;
    }
    if (source < 0 || source > 31) source = l;
    copy_value(own->value, before[source], own->size);
  }
}

const char *name_of(Shuffle kind) {
  switch (kind) {
    case Shuffle::exclusive_or:
      return "shuffle_xor";
    case Shuffle::from:
      return "shuffle_from";
    case Shuffle::up:
      return "shuffle_up";
    default:
      return "shuffle_down";
  }
}

struct Vote {
  bool predicate;
  uint32_t result;
};

void vote(void *const *arguments, uint32_t mask) {
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < 32; lane++) {
    if ((mask >> lane & 1u) != 0 && static_cast<const Vote *>(arguments[lane])->predicate)
      result |= 1u << lane;
  }
  for (uint32_t lane = 0; lane < 32; lane++) {
    if ((mask >> lane & 1u) != 0) static_cast<Vote *>(arguments[lane])->result = result;
  }
}

struct Reduction {
  Reduce kind;
  uint32_t value;
};

void reduction(void *const *arguments, uint32_t mask) {
  uint32_t result = 0;
  bool first = true;
  for (uint32_t lane = 0; lane < 32; lane++) {
    if ((mask >> lane & 1u) == 0) continue;
    const Reduction *own = static_cast<const Reduction *>(arguments[lane]);
    if (first) {
      result = own->value;
    } else {
      switch (own->kind) {
        case Reduce::add:
          result += own->value;
          break;
        case Reduce::min:
          result = result < own->value ? result : own->value;
          break;
        case Reduce::max:
          result = result > own->value ? result : own->value;
          break;
        case Reduce::bit_or:
          result |= own->value;
          break;
      }
    }
    first = false;
  }
  for (uint32_t lane = 0; lane < 32; lane++) {
    if ((mask >> lane & 1u) != 0) static_cast<Reduction *>(arguments[lane])->value = result;
  }
}

struct Matrices {
  uint32_t *registers;      // loads
  const uint32_t *sources;  // stores
  int32_t count;
  bool transposed, store;
  uint32_t row;
};

// Register of lane l for matrix m: elements (l/4, 2(l%4)) and (l/4, 2(l%4)+1), rows and columns
// swapped when transposed.
void move_matrices(void *const *arguments, uint32_t) {
  Cta &cta = *current()->cta;
  const Matrices *first = static_cast<const Matrices *>(arguments[0]);
  const char *what = first->store ? "stmatrix" : "ldmatrix";
  for (int32_t m = 0; m < first->count; m++) {
    uint8_t *rows[8];
    for (int32_t r = 0; r < 8; r++) {
      const uint32_t row = static_cast<const Matrices *>(arguments[8 * m + r])->row;
      rows[r] = shared_bytes(cta, row, 16, 16, what);
      if (!first->store) read_row(cta, *current()->warp, row);
    }
    for (int32_t lane = 0; lane < 32; lane++) {
      Matrices *own = static_cast<Matrices *>(arguments[lane]);
      uint16_t pair[2];
      if (own->store) memcpy(pair, &own->sources[m], 4);
      for (int32_t i = 0; i < 2; i++) {
        int32_t row = lane / 4, column = 2 * (lane % 4) + i;
        uint8_t *element = own->transposed ? rows[column] + 2 * row : rows[row] + 2 * column;
        if (own->store) {
          memcpy(element, &pair[i], 2);
        } else {
          memcpy(&pair[i], element, 2);
        }
      }
      if (!own->store) memcpy(&own->registers[m], pair, 4);
    }
  }
}

struct Product {
  Element type;
  float *d;
  const uint32_t *a;
  uint32_t b[2];
};

void product(void *const *arguments, uint32_t) {
  const Product *first = static_cast<const Product *>(arguments[0]);
  int32_t per_register = first->type == Element::e4m3 ? 4 : 2;
  int32_t k = 8 * per_register;
  float a[16 * 32], b[32 * 8], d[16 * 8];
  for (int32_t lane = 0; lane < 32; lane++) {
    const Product *own = static_cast<const Product *>(arguments[lane]);
    int32_t g = lane / 4, t = lane % 4;
    for (int32_t i = 0; i < 4; i++)
      unpack(own->type, own->a[i], a + (g + i % 2 * 8) * k + i / 2 * (k / 2) + t * per_register, 1);
    for (int32_t i = 0; i < 2; i++)
      unpack(own->type, own->b[i], b + (i * (k / 2) + t * per_register) * 8 + g, 8);
    for (int32_t i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = own->d[i];
  }
  multiply(16, 8, k, a, b, d);
  for (int32_t lane = 0; lane < 32; lane++) {
    const Product *own = static_cast<const Product *>(arguments[lane]);
    int32_t g = lane / 4, t = lane % 4;
    for (int32_t i = 0; i < 4; i++) own->d[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  }
}

constexpr uint32_t all_lanes = 0xffffffffu;

}  // namespace

void shuffle(Shuffle kind, uint32_t mask, void *value, size_t size, int32_t argument) {
  if (size > 8) fail("%s of %zu bytes", name_of(kind), size);
  Exchange own = {value, size, argument, kind};
  meet(name_of(kind), mask, &own, exchange);
}

uint32_t ballot(uint32_t mask, bool predicate) {
  Vote own = {predicate, 0};
  meet("ballot", mask, &own, vote);
  return own.result;
}

uint32_t reduce(Reduce kind, uint32_t mask, uint32_t value) {
  Reduction own = {kind, value};
  meet("redux", mask, &own, reduction);
  return own.value;
}

void ldmatrix(uint32_t *registers, int32_t count, bool transposed, uint32_t row) {
  Matrices own = {registers, nullptr, count, transposed, false, row};
  meet("ldmatrix", all_lanes, &own, move_matrices);
}

void stmatrix(const uint32_t *registers, int32_t count, bool transposed, uint32_t row) {
  require(90, "stmatrix");
  Matrices own = {nullptr, registers, count, transposed, true, row};
  meet("stmatrix", all_lanes, &own, move_matrices);
}

void mma(Element type, float *d, const uint32_t *a, uint32_t b0, uint32_t b1) {
  if (type == Element::e4m3) require(89, "mma of e4m3");
  Product own = {type, d, a, {b0, b1}};
  meet("mma", all_lanes, &own, product);
}

}  // namespace simt
