// long_test.cc — sequences of more than 512 tokens: their region, their blocks, and what runs
// between two blocks.
#include <math.h>
#include <string.h>

#include <vector>

#include "compare.h"
#include "device.h"
#include "executor.h"
#include "model.h"
#include "paths.h"
#include "program.h"
#include "slot.h"
#include "tests/check.h"
#include "tickets.h"

using model::Batch;
using model::Model;
using model::Path;
using model::Result;
using model::Shape;

namespace {

bool same_results(const Result &a, const Result &b) {
  return a.status == SIE_OK && b.status == SIE_OK && same_bits(a.rows, b.rows) &&
         same_bits(a.values, b.values);
}

Batch batch_of(const Shape &shape, const std::vector<int> &lengths) {
  Batch batch;
  int number = 0;
  for (int length : lengths) batch.add(shape, number++, length);
  return batch;
}

// A run that yields: each member looks for other tickets and meets its team until the test releases
// it.
struct LongJob : sie::Run {
  sie::Executors *executors;
  sie::Team teams[8];
  std::atomic<bool> released{false};
  std::atomic<int> members_in{0};
  bool last[8] = {};  // written before a meeting, read after it
  const int32_t team;
  const std::vector<sie::Ticket> list;

  LongJob(sie::Executors *on, int slabs, int members)
      : executors(on),
        team(members),
        list(tickets::of(std::vector<int32_t>(static_cast<size_t>(slabs), members))) {
    tickets = slabs * members;
    ticket_of = list.data();
    yields = true;
    work = run;
  }
  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t executor) {
    LongJob *job = static_cast<LongJob *>(r);
    sie::Barrier &barrier = job->teams[slab].barrier;
    job->members_in.fetch_add(1);
    for (bool last = false; !last;) {
      // Member 0 decides between two meetings, so that all members leave together.
      if (member == 0) job->last[slab] = job->released.load();
      job->executors->meet(&barrier, job->team, executor, [] { return false; });
      last = job->last[slab];
      job->executors->do_other(executor);
      job->executors->meet(&barrier, job->team, executor, [] { return false; });
    }
    job->members_in.fetch_sub(1);
  }
};

// A run of teams that meet at plain barriers.
struct ShortJob : sie::Run {
  std::vector<sie::Team> teams;
  std::vector<std::atomic<int>> done;
  const int32_t team;
  const std::vector<sie::Ticket> list;
  ShortJob(int slabs, int members)
      : teams(static_cast<size_t>(slabs)),
        done(static_cast<size_t>(slabs * members)),
        team(members),
        list(tickets::of(std::vector<int32_t>(static_cast<size_t>(slabs), members))) {
    tickets = slabs * members;
    ticket_of = list.data();
    work = run;
  }
  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t) {
    ShortJob *job = static_cast<ShortJob *>(r);
    for (int step = 0; step < 3 && job->team > 1; step++) {
      job->teams[static_cast<size_t>(slab)].barrier.arrive_and_wait(job->team);
    }
    job->done[static_cast<size_t>(slab * job->team + member)].fetch_add(1);
  }
  bool complete() const {
    for (const std::atomic<int> &n : done) {
      if (n.load() != 1) return false;
    }
    return true;
  }
};

}  // namespace

TEST(long_runs_step_back_for_others) {
  // Newer runs end however long the older run takes, also if their teams have all executors.
  for (int threads : {1, 2, 3, 4}) {
    sie::Executors executors;
    CHECK(executors.start(threads, nullptr, nullptr) == SIE_OK, "cannot start");
    for (int slabs = 1; slabs <= threads; slabs++) {
      LongJob job(&executors, slabs, threads / slabs);
      CHECK(executors.submit(&job), "the long run is refused");
      for (int i = 0; i < 60; i++) {
        int members = 1 + i % threads, short_slabs = members > 1 ? threads / members : 1 + i % 9;
        ShortJob other(short_slabs, members);
        CHECK(executors.submit(&other), "run %d is refused", i);
        executors.wait(&other);
        CHECK(other.complete(), "run %d is not complete", i);
        CHECK(job.state.load() == sie::run_started, "the long run ended by itself");
      }
      job.released.store(true);
      executors.wait(&job);
      CHECK(job.members_in.load() == 0, "members are left");
    }
    executors.stop();
  }
}

TEST(long_runs_follow_each_other) {
  sie::Executors executors;
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  LongJob first(&executors, 1, 2), second(&executors, 2, 1);
  CHECK(executors.submit(&first) && executors.submit(&second), "refused");
  first.released.store(true);
  executors.wait(&first);
  ShortJob between(1, 2);
  CHECK(executors.submit(&between), "there is room beside the second");
  executors.wait(&between);
  CHECK(between.complete(), "the run between is not complete");
  second.released.store(true);
  executors.wait(&second);
  executors.stop();
}

TEST(long_blocks_change_no_bits) {
  // Compares blocks and stages of the smallest size with one block an operation, alone and in teams.
  const struct {
    double flops;
    int64_t stage_rows;
  } cuts[] = {{sie::max_block_flops, sie::max_stage_rows}, {1.0, sie::max_stage_rows}, {1.0, 64}, {1e9, 144}};
  for (const Path &path : model::machine_paths()) {
    for (bool prune : {false, true}) {
      Shape shape;
      shape.prune = prune;
      Batch batch = batch_of(shape, {640, 30, 577, 600, 513, 512, 0, 5});
      Result whole;
      for (int threads : {1, 2, 5}) {
        for (const auto &cut : cuts) {
          Model m;
          CHECK(m.open(SIE_DEVICE_CPU, path.isa, threads, path.compute, shape) == SIE_OK, "%s: %s", path.name,
                m.err.message);
          if (m.slots[0] == nullptr) return;
          m.program->block_flops = cut.flops;
          m.program->stage_rows = cut.stage_rows;
          Result got = run(&m, batch);
          if (whole.rows.empty()) whole = got;
          CHECK(same_results(whole, got), "%s: %d executors, blocks of %g flops, stages of %lld rows",
                path.name, threads, cut.flops, static_cast<long long>(cut.stage_rows));
          for (size_t b = 0; b < batch.cu.size() - 1; b++) {
            Batch one;
            one.add(shape, static_cast<int>(b), batch.cu[b + 1] - batch.cu[b]);
            Result alone = run(&m, one);
            CHECK(memcmp(alone.rows.data(), &whole.rows[b * static_cast<size_t>(m.hidden)],
                         alone.rows.size() * sizeof(float)) == 0,
                  "%s: text %zu alone differs", path.name, b);
          }
        }
      }
    }
  }
}

TEST(long_texts_without_attention) {
  // Many short texts together cost more than a long one, which is a long slab all the same.
  for (int threads : {1, 2, 5}) {
    Shape shape;
    shape.layers = 0;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, threads, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
    if (m.slots[0] == nullptr) return;
    std::vector<int> lengths(310, 1);
    lengths.push_back(600);
    Batch batch = batch_of(shape, lengths), alone;
    alone.add(shape, 310, 600);
    CHECK(submit(&m, 0, batch) == SIE_OK && m.slots[0]->n_long == 1, "%d long slabs", m.slots[0]->n_long);
    Result together = wait(&m, 0, batch), want = run(&m, alone);
    CHECK(together.status == SIE_OK && want.status == SIE_OK, "%s", m.err.message);
    CHECK(
        memcmp(together.rows.data() + 310 * m.hidden, want.rows.data(), want.rows.size() * 4) == 0 &&
            memcmp(together.values.data() + 310 * m.hidden, want.values.data(), want.values.size() * 4) == 0,
        "%d executors: the long text differs alone", threads);
  }
}

TEST(long_slabs_wait_for_room) {
  // The region has room for one text at a time, or for two: the others wait.
  for (int64_t tokens : {640, 1280}) {
    for (int threads : {1, 3, 8}) {
      Shape shape;
      Model m;
      CHECK(m.open(SIE_DEVICE_CPU, 0, threads, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
      if (m.slots[1] == nullptr) return;
      Batch batch = batch_of(shape, {640, 520, 600, 639, 513, 40, 300});
      Result expected = run(&m, batch);
      m.program->region_tokens = tokens;
      for (int round = 0; round < model::times(10, 1); round++) {
        // Both slots run: the second run's texts wait until the first run has left the region.
        CHECK(submit(&m, 0, batch) == SIE_OK && submit(&m, 1, batch) == SIE_OK, "%s", m.err.message);
        CHECK(m.slots[0]->n_long == 5, "%d long slabs", m.slots[0]->n_long);
        const sie::Slab *slabs = static_cast<const sie::Slab *>(m.slots[0]->slabs.p);
        CHECK(slabs[1].after == (tokens == 640 ? 1 : 0) && slabs[2].after >= 1, "no slab waits");
        Result first = wait(&m, 0, batch), second = wait(&m, 1, batch);
        CHECK(same_results(expected, first) && same_results(expected, second), "%d executors: other bits",
              threads);
      }
    }
  }
}

TEST(long_texts_beside_short_ones) {
  // Short batches through one slot while the other has long ones, in blocks of the least size:
  // every result has the same bits as alone.
  for (int threads : {1, 2, 3}) {
    for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_INT8}) {
      Shape shape;
      Model m;
      CHECK(m.open(SIE_DEVICE_CPU, 0, threads, compute, shape) == SIE_OK, "%s", m.err.message);
      if (m.slots[1] == nullptr) return;
      m.program->block_flops = 1;
      Batch longer = batch_of(shape, {640, 600}), single = batch_of(shape, {17}),
            several = batch_of(shape, {90, 300, 64, 5, 128, 200});
      Result want_longer = run(&m, longer), want_single = run(&m, single), want_several = run(&m, several);
      for (int round = 0; round < model::times(20, 2); round++) {
        CHECK(submit(&m, 0, longer) == SIE_OK, "%s", m.err.message);
        for (int i = 0; i < 4; i++) {
          const Batch &batch = i % 2 == 0 ? single : several;
          CHECK(submit(&m, 1, batch) == SIE_OK, "%s", m.err.message);
          CHECK(same_results(wait(&m, 1, batch), i % 2 == 0 ? want_single : want_several),
                "a short batch differs");
        }
        CHECK(same_results(wait(&m, 0, longer), want_longer), "the long batch differs");
      }
    }
  }
}

TEST(long_texts_cost_little_memory) {
  // The shape of bge-m3 at 64 threads: lanes of 512 tokens and a region of 16,384 take at most 1.25
  // GiB.
  Shape shape;
  shape.layers = 1;
  shape.heads = 16;
  shape.head_dim = 64;
  shape.ffn = 4096;
  shape.positions = 8194;
  shape.tokens = false;
  Model m;
  m.max_len = 8192;
  m.max_tokens = 16384;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.program == nullptr) return;
  int32_t threads = m.device->threads;
  m.device->threads = 64;  // as many slabs may be at work
  int64_t bytes = 64 * sie::lane_bytes(m.program) + sie::region_bytes(m.program);
  printf("     64 threads: lanes of %.1f MiB, a region of %.1f MiB, %.1f MiB in all\n",
         static_cast<double>(sie::lane_bytes(m.program)) / (1 << 20),
         static_cast<double>(sie::region_bytes(m.program)) / (1 << 20),
         static_cast<double>(bytes) / (1 << 20));
  CHECK(m.program->region_tokens == 16384, "a region of %lld tokens",
        static_cast<long long>(m.program->region_tokens));
  CHECK(bytes <= int64_t{5} << 28, "%lld bytes", static_cast<long long>(bytes));
  // Sixteen texts of 1,024 tokens fit side by side.
  CHECK(16 * sie::long_bytes(m.program, 1024) <= sie::region_bytes(m.program), "sixteen texts do not fit");
  m.device->threads = threads;
}

TEST(stages_keep_rows_of_their_own) {
  // What lies between two operations of a stage has rows for the stage only, so the intermediate rows
  // of an MLP, 4096 columns wide, do not grow with the text.
  for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_INT8}) {
    Shape shape;
    shape.layers = 2;
    shape.ffn = 4096;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, 1, compute, shape) == SIE_OK, "%s", m.err.message);
    if (m.program == nullptr) return;
    const sie_program *p = m.program;
    int wide = 0;
    for (const sie::Buffer &b : p->buffers) {
      if (b.columns != 4096) continue;
      wide++;
      CHECK(b.inner, "a buffer of 4096 columns has all rows of a long text");
    }
    CHECK(wide > 0, "no buffer of 4096 columns");
    int64_t longer = sie::long_bytes(p, 30000) - sie::long_bytes(p, 20000);
    CHECK(longer == p->long_row_bytes * (sie::long_cap(30000) - sie::long_cap(20000)),
          "%lld bytes for 10000 tokens more", static_cast<long long>(longer));
    // Stages follow each other without gaps, and attention is a stage of its own.
    for (int32_t i = 0; i < p->plan.size(); i++) {
      int32_t end = p->plan[i].stage_end;
      CHECK(end > i && (end == i + 1 || p->plan[i].cut == sie::Cut::rows), "operation %d: stage to %d", i,
            end);
    }
  }
}

TEST(programs_for_long_texts_need_no_lanes_for_short_ones) {
  Shape shape;
  Model m;
  m.min_len = 600;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  Model any;
  CHECK(any.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", any.err.message);
  if (m.slots[0] == nullptr || any.slots[0] == nullptr) return;
  CHECK(sie::lane_bytes(m.program) < sie::lane_bytes(any.program) &&
            sie::lane_bytes(m.program) >= m.program->long_scratch_bytes,
        "lanes of %lld and %lld bytes", static_cast<long long>(sie::lane_bytes(m.program)),
        static_cast<long long>(sie::lane_bytes(any.program)));
  Batch both = batch_of(shape, {640, 600});
  CHECK(same_results(run(&m, both), run(&any, both)), "other bits");
  CHECK(submit(&m, 0, batch_of(shape, {640, 599})) == SIE_INVALID_ARGUMENT &&
            strstr(m.err.message, "sequence 1 has 599 rows of tokens; at least 600 are needed") != nullptr,
        "%s", m.err.message);
}
