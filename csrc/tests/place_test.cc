// place_test.cc — where the buffers of random plans lie, beside a plain model of the rule: a result
// takes the memory of an input that dies, and others, largest first, the lowest place that is free.
#include <algorithm>
#include <memory>
#include <vector>

#include "model.h"
#include "program.h"
#include "tests/check.h"

namespace {

using sie::Buffer;
using sie::Cut;
using sie::Operand;
using sie::PlannedOp;

constexpr int32_t absent = -1;

// A made-up plan. Its buffers live from their first to their last operation.
struct Made {
  sie_program p;
  model::Random random;

  explicit Made(uint32_t seed) : random(seed) {
    const int ops = 1 + random.below(14), count = 1 + random.below(20);
    for (int i = 0; i < ops; i++) p.plan.push(op());
    for (int i = 0; i < count; i++) p.buffers.push(buffer(ops));
    for (int i = 0; i < ops; i++) give_operands(&p.plan[i], i, count);
    // Stages of neighbours that are cut into rows.
    int32_t end = ops;
    for (int i = ops - 1; i >= 0; i--) {
      const bool joins =
          i + 1 < ops && p.plan[i].cut == Cut::rows && p.plan[i + 1].cut == Cut::rows && random.below(4) != 0;
      if (!joins) end = i + 1;
      p.plan[i].stage_end = end;
    }
    p.region_tokens = random.below(3) > 0 ? 16384 : 0;
    leave_behind(ops);
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  PlannedOp op() {
    PlannedOp planned = {};
    const uint32_t kinds[] = {SIE_OP_LAYERNORM,   SIE_OP_LAYERNORM, SIE_OP_LINEAR,
                              SIE_OP_LINEAR_NORM, SIE_OP_ATTENTION, SIE_OP_POOL};
    planned.op.kind = kinds[random.below(6)];
    planned.cut = random.below(3) > 0 ? Cut::rows : Cut::none;
    return planned;
  }

  Buffer buffer(int ops) {
    Buffer b = {};
    b.of_seqs = random.below(6) == 0;
    const int kind = random.below(8);
    b.dtype = kind == 0 ? SIE_U8 : kind == 1 ? SIE_BF16 : SIE_F32;
    b.columns = b.ld = random.below(4) == 0 ? 128 : 64;
    b.scale_group = kind == 0 ? -1 : 0;
    b.outliers = kind == 0 && random.below(2) == 0;
    b.bytes = 64 * (1 + random.below(random.below(2) == 0 ? 4 : 60));
    b.first = random.below(ops);
    b.last = std::min(ops - 1, b.first + random.below(6));
    b.shares = -1;
    b.offset = b.row_offset = 7777;
    b.inner = random.below(2) == 0;  // decided again
    return b;
  }

  Operand operand(int32_t number) {
    Operand o = {};
    o.present = number >= 0;
    o.buffer = std::max(number, 0);
    o.offset = 1, o.scale = 2, o.zero = 3, o.outlier = 4;
    return o;
  }

  // Results begin a life of their own; operands are any buffers that live.
  void give_operands(PlannedOp *planned, int i, int count) {
    auto alive = [&](bool born) {
      std::vector<int32_t> some;
      for (int32_t b = 0; b < count; b++) {
        const Buffer &buffer = p.buffers[b];
        if (born ? buffer.first == i : buffer.first < i && buffer.last >= i) some.push_back(b);
      }
      return some.empty() || random.below(5) == 0
                 ? absent
                 : some[static_cast<size_t>(random.below(static_cast<int>(some.size())))];
    };
    for (Operand &in : planned->in) in = operand(alive(false));
    planned->addend = operand(alive(false));
    planned->residual = operand(alive(false));
    planned->out = operand(alive(true));
    planned->sum = operand(alive(true));
    if (planned->sum.present && planned->sum.buffer == planned->out.buffer) planned->sum = operand(absent);
    // A norm always has an operand.
    if (!planned->in[0].present && planned->op.kind == SIE_OP_LAYERNORM) planned->op.kind = SIE_OP_POOL;
    planned->quantised = operand(alive(false));
    planned->found = operand(alive(false));
    if (random.below(5) == 0) {
      planned->in[3] = operand(0);
      planned->in[3].buffer = -1;
      planned->in[3].given = 5;
    }
  }

  // What longer lists have left behind their ends: no operation and no buffer.
  void leave_behind(int ops) {
    // The operation would give the last buffer the memory of this one.
    const int32_t count = static_cast<int32_t>(p.buffers.size());
    Buffer large = p.buffers[count - 1];
    large.bytes = 1 << 20;
    large.last = ops;
    p.buffers.push(large);
    p.buffers.pop();
    PlannedOp again = p.plan[ops - 1];
    again.op.kind = SIE_OP_LAYERNORM;
    again.in[0] = operand(count);
    again.out = operand(count - 1);
    p.plan.push(again);
    p.plan.pop();
  }
};

// The rule, on lists of its own.
struct Plain {
  const sie_program &p;
  std::vector<Buffer> buffers;

  explicit Plain(const sie_program &of) : p(of), buffers(of.buffers.begin(), of.buffers.end()) {}

  int32_t root_of(int32_t b) const {
    while (buffers[static_cast<size_t>(b)].shares >= 0) b = buffers[static_cast<size_t>(b)].shares;
    return b;
  }

  void share() {
    for (int64_t i = 0; i < p.plan.size(); i++) {
      const PlannedOp &planned = p.plan[i];
      const bool norm = planned.op.kind == SIE_OP_LAYERNORM;
      const bool linear = planned.op.kind == SIE_OP_LINEAR || planned.op.kind == SIE_OP_LINEAR_NORM;
      // A norm's result takes its operand's memory; its sum, or a linear's result, the residual's.
      if (norm && planned.out.present) share(planned.in[0], planned.out, i);
      const bool apart = planned.residual.present && planned.residual.buffer != planned.in[0].buffer;
      if (linear && apart && planned.out.present) share(planned.residual, planned.out, i);
      if ((norm || linear) && apart && planned.sum.present) share(planned.residual, planned.sum, i);
    }
  }
  void share(const Operand &input, const Operand &result, int64_t i) {
    Buffer &from = buffers[static_cast<size_t>(input.buffer)],
           &to = buffers[static_cast<size_t>(result.buffer)];
    if (from.last != i || from.of_seqs != to.of_seqs || from.dtype != to.dtype || from.columns != to.columns)
      return;
    to.shares = input.buffer;
    Buffer &root = buffers[static_cast<size_t>(root_of(input.buffer))];
    root.last = std::max(root.last, to.last);
  }

  // Places those that `group` holds and that share nothing; returns the end.
  template <class Holds, class Size, class Meet>
  int64_t place(const Holds &holds, const Size &size, const Meet &meet, int64_t Buffer::*offset) {
    std::vector<int32_t> order;
    for (int32_t b = 0; b < static_cast<int32_t>(buffers.size()); b++) {
      if (buffers[static_cast<size_t>(b)].shares < 0 && holds(buffers[static_cast<size_t>(b)]))
        order.push_back(b);
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return size(buffers[static_cast<size_t>(a)]) > size(buffers[static_cast<size_t>(b)]);
    });
    int64_t end = 0;
    for (size_t i = 0; i < order.size(); i++) {
      Buffer &mine = buffers[static_cast<size_t>(order[i])];
      // The lowest of 0 and the ends of others where it meets nobody.
      std::vector<int64_t> tries = {0};
      auto of = [&](size_t j) -> Buffer & { return buffers[static_cast<size_t>(order[j])]; };
      for (size_t j = 0; j < i; j++) tries.push_back(of(j).*offset + size(of(j)));
      std::sort(tries.begin(), tries.end());
      for (int64_t at : tries) {
        bool is_free = true;
        for (size_t j = 0; j < i; j++) {
          const bool apart = of(j).*offset + size(of(j)) <= at || at + size(mine) <= of(j).*offset;
          is_free = is_free && (apart || !meet(mine, of(j)));
        }
        if (!is_free) continue;
        mine.*offset = at;
        break;
      }
      end = std::max(end, mine.*offset + size(mine));
    }
    for (int32_t b = 0; b < static_cast<int32_t>(buffers.size()); b++) {
      Buffer &buffer = buffers[static_cast<size_t>(b)];
      if (holds(buffer)) buffer.*offset = buffers[static_cast<size_t>(root_of(b))].*offset;
    }
    return end;
  }
};

// Whether a plan is placed as the model does it. Counts results that share memory.
void check_plan(uint32_t seed, long *shared, long *inner) {
  auto made = std::make_unique<Made>(seed);
  sie_program &p = made->p;
  Plain plain(p);
  sie_error err = {};
  const std::vector<PlannedOp> before(p.plan.begin(), p.plan.end());
  CHECK(sie::place_buffers(&p, &err) == SIE_OK, "%s", err.message);
  plain.share();
  auto in_lives = [](const Buffer &a, const Buffer &b) { return a.first <= b.last && b.first <= a.last; };
  const int64_t lane =
      plain.place([](const Buffer &) { return true; },
                  [](const Buffer &b) { return b.bytes + sie::redzone_bytes; }, in_lives, &Buffer::offset);
  CHECK(p.values_bytes == lane, "seed %u: a lane of %lld bytes, %lld expected", seed,
        static_cast<long long>(p.values_bytes), static_cast<long long>(lane));
  int64_t of_rows = 0, of_stage = 0, of_seqs = 0;
  if (p.region_tokens > 0) {
    for (int32_t b = 0; b < static_cast<int32_t>(plain.buffers.size()); b++) {
      Buffer &buffer = plain.buffers[static_cast<size_t>(b)];
      if (buffer.of_seqs) continue;
      const Buffer &root = plain.buffers[static_cast<size_t>(plain.root_of(b))];
      buffer.inner = p.plan[root.first].cut == Cut::rows && root.last < p.plan[root.first].stage_end;
      buffer.row_bytes = sie::parts_of(buffer, 64).end / 64 + (sie::redzone_bytes > 0 ? 1 : 0);
    }
    auto per_row = [](const Buffer &b) { return b.row_bytes; };
    auto in_stages = [&p](const Buffer &a, const Buffer &b) {
      return a.first < p.plan[b.last].stage_end && b.first < p.plan[a.last].stage_end;
    };
    of_rows = plain.place([](const Buffer &b) { return !b.of_seqs && !b.inner; }, per_row, in_stages,
                          &Buffer::row_offset);
    of_stage = plain.place([](const Buffer &b) { return !b.of_seqs && b.inner; }, per_row, in_lives,
                           &Buffer::row_offset);
    of_seqs = plain.place([](const Buffer &b) { return b.of_seqs; },
                          [](const Buffer &b) { return sie::parts_of(b, 1).end + sie::redzone_bytes; },
                          in_lives, &Buffer::row_offset);
  }
  CHECK(p.long_row_bytes == of_rows && p.long_stage_bytes == of_stage &&
            p.long_fixed_bytes == (of_seqs + 63) / 64 * 64,
        "seed %u: %lld, %lld and %lld bytes, %lld, %lld and %lld expected", seed,
        static_cast<long long>(p.long_row_bytes), static_cast<long long>(p.long_stage_bytes),
        static_cast<long long>(p.long_fixed_bytes), static_cast<long long>(of_rows),
        static_cast<long long>(of_stage), static_cast<long long>(of_seqs));
  for (int64_t b = 0; b < p.buffers.size(); b++) {
    const Buffer &got = p.buffers[b], &want = plain.buffers[static_cast<size_t>(b)];
    CHECK(got.shares == want.shares && got.last == want.last,
          "seed %u: buffer %lld shares %d to %d, not %d to %d", seed, static_cast<long long>(b), got.shares,
          got.last, want.shares, want.last);
    CHECK(got.offset == want.offset && got.row_offset == want.row_offset,
          "seed %u: buffer %lld lies at %lld and %lld, not at %lld and %lld", seed, static_cast<long long>(b),
          static_cast<long long>(got.offset), static_cast<long long>(got.row_offset),
          static_cast<long long>(want.offset), static_cast<long long>(want.row_offset));
    if (p.region_tokens > 0 && !got.of_seqs)
      CHECK(got.inner == want.inner && got.row_bytes == want.row_bytes, "seed %u: buffer %lld in its stage",
            seed, static_cast<long long>(b));
    *shared += got.shares >= 0;
    *inner += p.region_tokens > 0 && !got.of_seqs && got.inner;
  }
  for (size_t i = 0; i < before.size(); i++) {
    const PlannedOp &was = before[i], &is = p.plan[static_cast<int64_t>(i)];
    const Operand *const old[] = {&was.in[0],    &was.in[1], &was.in[2], &was.in[3],     &was.addend,
                                  &was.residual, &was.out,   &was.sum,   &was.quantised, &was.found};
    const Operand *const now[] = {&is.in[0],    &is.in[1], &is.in[2], &is.in[3],     &is.addend,
                                  &is.residual, &is.out,   &is.sum,   &is.quantised, &is.found};
    for (size_t o = 0; o < 10; o++) {
      const bool moves = old[o]->present && old[o]->given == 0;
      const int64_t by = moves ? p.buffers[old[o]->buffer].offset : 0;
      CHECK(now[o]->offset == old[o]->offset + by && now[o]->scale == old[o]->scale + by &&
                now[o]->zero == old[o]->zero + by && now[o]->outlier == old[o]->outlier + by,
            "seed %u: operand %zu of operation %zu is moved otherwise", seed, o, i);
    }
  }
}

}  // namespace

TEST(places_are_those_of_the_rule) {
  long shared = 0, inner = 0;
  for (uint32_t seed = 0; seed < 2000; seed++) check_plan(seed, &shared, &inner);
  printf("     %ld results share memory, %ld buffers are of a stage\n", shared, inner);
  CHECK(shared > 200 && inner > 1000, "%ld and %ld: the plans show little", shared, inner);
}
