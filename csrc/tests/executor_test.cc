// executor_test.cc — tickets, teams, overlapping runs, start and stop, without any kernel.
#include "executor.h"

#include "cpu_limits.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include <vector>

#include "model.h"
#include "tests/check.h"
#include "tickets.h"

namespace {

struct Job : sie::Run {
  std::vector<int32_t> members;  // of each slab's team
  std::vector<sie::Ticket> list;
  std::vector<std::vector<int>> done;  // by slab and member
  std::vector<sie::Team> teams;
  int steps = 0;
  std::atomic<int> late{0};               // how often a member passed a barrier too early
  std::vector<std::atomic<int>> reached;  // by slab: members that have reached the current step

  Job(std::vector<int32_t> sizes, int wanted_steps)
      : members(std::move(sizes)),
        list(tickets::of(members)),
        teams(members.size()),
        steps(wanted_steps),
        reached(members.size()) {
    for (int32_t m : members) done.emplace_back(static_cast<size_t>(m));
    tickets = static_cast<int32_t>(list.size());
    if (list.size() > members.size()) ticket_of = list.data();
    work = run;
  }
  Job(int slabs, int each, int wanted_steps)
      : Job(std::vector<int32_t>(static_cast<size_t>(slabs), each), wanted_steps) {}

  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t) {
    Job *job = static_cast<Job *>(r);
    const size_t s = static_cast<size_t>(slab);
    const int32_t team = job->members[s];
    for (int step = 0; step < job->steps && team > 1; step++) {
      job->reached[s].fetch_add(1);
      job->teams[s].barrier.arrive_and_wait(team);
      if (job->reached[s].load() < (step + 1) * team) job->late.fetch_add(1);
    }
    job->done[s][static_cast<size_t>(member)]++;
  }

  bool complete() const {
    for (const std::vector<int> &slab : done) {
      for (int n : slab) {
        if (n != 1) return false;
      }
    }
    return late.load() == 0;
  }
};

// Threads that keep cores busy while a test runs, as a Go runtime's would.
class Spinners {
 public:
  explicit Spinners(int count) : ids_(static_cast<size_t>(count)) {
    for (pthread_t &id : ids_) pthread_create(&id, nullptr, spin, this);
  }
  ~Spinners() {
    stop_.store(true);
    for (pthread_t id : ids_) pthread_join(id, nullptr);
  }
  Spinners(const Spinners &) = delete;
  Spinners &operator=(const Spinners &) = delete;

 private:
  static void *spin(void *p) {
    while (!static_cast<Spinners *>(p)->stop_.load(std::memory_order_relaxed)) continue;
    return nullptr;
  }
  std::atomic<bool> stop_{false};
  std::vector<pthread_t> ids_;
};

}  // namespace

TEST(executors_do_every_ticket_once) {
  model::Random random(1);
  for (int threads : {1, 2, 3, 7}) {
    sie::Executors executors;
    CHECK(executors.start(threads, nullptr, nullptr) == SIE_OK, "cannot start %d", threads);
    std::vector<Job *> jobs;
    for (int i = 0; i < 400; i++) {
      // A run with teams has at most as many members as there are executors, as slots ensure.
      std::vector<int32_t> teams(static_cast<size_t>(i % 2 == 0 ? random.below(40) : 0), 1);
      for (int left = i % 2 == 0 ? 0 : threads; left > 0; left -= teams.back()) {
        teams.push_back(1 + random.below(left));
      }
      Job *job = new Job(teams, 3);
      CHECK(executors.submit(job), "run %d refused", i);
      jobs.push_back(job);
      if (jobs.size() == 2) {
        for (Job *j : jobs) {
          executors.wait(j);
          CHECK(j->complete(), "a ticket was not done once, or a barrier leaked");
          delete j;
        }
        jobs.clear();
      }
    }
    executors.stop();
  }
}

// A run whose tickets wait for a signal.
struct GatedJob : sie::Run {
  std::atomic<bool> open{false};
  GatedJob() {
    tickets = 2;
    work = run;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t) {
    while (!static_cast<GatedJob *>(r)->open.load()) sched_yield();
  }
};

TEST(executors_take_two_runs_at_most) {
  sie::Executors executors;
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  GatedJob first, second, third;
  CHECK(executors.submit(&first) && executors.submit(&second), "two runs must be taken");
  CHECK(!executors.submit(&third), "a third run was taken");
  CHECK(first.state.load() == sie::run_started, "the first run is in state %u", first.state.load());
  first.open.store(true);
  executors.wait(&first);
  third.open.store(true);
  CHECK(executors.submit(&third), "there is room again");
  second.open.store(true);
  executors.wait(&second);
  executors.wait(&third);
  executors.stop();
}

TEST(executors_pipeline_two_runs) {
  // Waits for the older of two runs while the newer one runs; then they change roles.
  sie::Executors executors;
  CHECK(executors.start(3, nullptr, nullptr) == SIE_OK, "cannot start");
  Job *older = new Job(5, 1, 0);
  executors.submit(older);
  for (int i = 0; i < 3000; i++) {
    Job *newer = i % 5 == 0 ? new Job(1, 3, 2) : new Job(i % 7, 1, 2);
    CHECK(executors.submit(newer), "run %d refused", i);
    executors.wait(older);
    CHECK(older->complete(), "run %d is not complete", i);
    delete older;
    older = newer;
  }
  executors.wait(older);
  delete older;
  executors.stop();
}

TEST(executors_start_and_stop) {
  for (int i = 0; i < 50; i++) {
    sie::Executors executors;
    CHECK(executors.start(1 + i % 5, nullptr, nullptr) == SIE_OK, "cannot start");
    Job job(3, 1, 0);
    if (i % 2 == 0) executors.submit(&job);
    executors.stop();  // waits for submitted runs
    CHECK(i % 2 == 1 || job.complete(), "stop left a run undone");
  }
}

TEST(executors_meet_on_busy_cores) {
  // A team runs while as many other threads spin: barriers must sleep, not use up their share of
  // the core.
  sie::Executors executors;
  sie::Seats seats = {};
  seats.pinned = sie::affinity_cpus(seats.cpus, 2) >= 2;
  CHECK(executors.start(2, &seats, nullptr) == SIE_OK, "cannot start");
  for (int busy : {0, 2}) {
    Spinners spinners(busy);
    const int runs = 20, steps = 45;
    std::vector<double> times;
    for (int i = 0; i < runs; i++) {
      Job job(1, 2, steps);
      double begin = check::seconds();
      executors.submit(&job);
      executors.wait(&job);
      times.push_back(check::seconds() - begin);
      CHECK(job.complete(), "a barrier leaked");
    }
    double least = times[0], sum = 0;
    for (double t : times) {
      least = t < least ? t : least;
      sum += t;
    }
    printf(
        "     %d spinning threads: 45 barriers and the run around them: %.1f us at best, %.1f us on "
        "average\n",
        busy, least * 1e6, sum / runs * 1e6);
    CHECK(sum < 20, "%.1f s for %d runs", sum, runs);
  }
  executors.stop();
}
