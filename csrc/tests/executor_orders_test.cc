// executor_orders_test.cc — the executors' loop in every order of its steps, with one thread that
// submits runs and waits for them. schedule::explore has the threads, start is not called.
#include <memory>

#include "executor.h"
#include "long_team.h"
#include "schedule.h"
#include "tests/check.h"

namespace {

// Counts how often each ticket is done.
struct Counted : sie::Run {
  std::atomic<int> done[2] = {};
  explicit Counted(int count) {
    work = run;
    tickets = count;
  }
  static void run(sie::Run *r, int32_t slab, int32_t, int32_t) { static_cast<Counted *>(r)->done[slab]++; }
  bool complete() const {
    for (int i = 0; i < tickets; i++) {
      if (done[i].load() != 1) return false;
    }
    return true;
  }
};

// A long slab's team of two, which meets twice.
struct Pair : sie::Run {
  sie::Executors *executors;
  sie::Team pair;
  std::atomic<int> reached{0}, early{0};
  explicit Pair(sie::Executors *on) : executors(on) {
    work = run;
    tickets = 2;
    yields = true;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t executor) {
    Pair *self = static_cast<Pair *>(r);
    for (int round = 1; round <= 2; round++) {
      self->reached++;
      self->executors->meet(&self->pair.barrier, 2, executor, [] { return false; });
      if (self->reached.load() < 2 * round) self->early++;
    }
  }
};

// A short slab's team of two, which meets once.
struct ShortPair : sie::Run {
  sie::Barrier barrier;
  std::atomic<int> met{0};
  ShortPair() {
    work = run;
    tickets = 2;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t) {
    ShortPair *self = static_cast<ShortPair *>(r);
    self->barrier.arrive_and_wait(2);
    self->met++;
  }
};

// Thread 0 submits; the others are executors until it has called stop.
long explore(int executor_threads, int preemptions, const std::function<void(sie::Executors *)> &prepare,
             const std::function<void(sie::Executors *)> &submitter) {
  std::unique_ptr<sie::Executors> executors;
  schedule::Threads threads = {};
  threads.count = 1 + executor_threads;
  threads.preemptions = preemptions;
  threads.prepare = [&] {
    executors.reset(new sie::Executors);
    prepare(executors.get());
  };
  threads.body = [&](int thread) {
    if (thread > 0) return executors->loop(thread - 1);
    submitter(executors.get());
    executors->stop();
  };
  threads.afterwards = [] {};
  return schedule::explore(threads);
}

}  // namespace

// A run may be freed as soon as it has been waited for, and another takes its place in the queue.
TEST(executors_do_tickets_once_in_every_order) {
  std::unique_ptr<Counted> first, second, third;
  const long orders = explore(
      2, 1,
      [&](sie::Executors *) {
        first.reset(new Counted(2));
        second.reset(new Counted(1));
        third.reset(new Counted(1));
      },
      [&](sie::Executors *executors) {
        CHECK(executors->submit(first.get()) && executors->submit(second.get()), "refused");
        executors->wait(first.get());
        CHECK(first->complete(), "the first run is not complete");
        first.reset();
        CHECK(executors->submit(third.get()), "refused, though a run has ended");
        executors->wait(third.get());
        executors->wait(second.get());
        CHECK(second->complete() && third->complete(), "a later run is not complete");
      });
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// A run that does not yield comes between, and the team of a long slab meets all the same.
TEST(executors_meet_in_every_order_beside_another_run) {
  std::unique_ptr<Pair> pair;
  std::unique_ptr<Counted> other;
  const long orders = explore(
      2, 1,
      [&](sie::Executors *executors) {
        pair.reset(new Pair(executors));
        other.reset(new Counted(1));
      },
      [&](sie::Executors *executors) {
        CHECK(executors->submit(pair.get()) && executors->submit(other.get()), "refused");
        executors->wait(other.get());
        CHECK(other->complete(), "the other run is not complete");
        other.reset();
        executors->wait(pair.get());
        CHECK(pair->early.load() == 0 && pair->reached.load() == 4, "%d arrivals, %d went on too early",
              pair->reached.load(), pair->early.load());
      });
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// Two executors and two runs with a team of both: they must be in the older run together, although
// both runs may begin while one of them looks for tickets.
TEST(executors_are_in_the_older_team_in_every_order) {
  std::unique_ptr<ShortPair> first, second;
  const long orders = explore(
      2, 1,
      [&](sie::Executors *) {
        first.reset(new ShortPair);
        second.reset(new ShortPair);
      },
      [&](sie::Executors *executors) {
        CHECK(executors->submit(first.get()) && executors->submit(second.get()), "refused");
        executors->wait(first.get());
        executors->wait(second.get());
        CHECK(first->met.load() == 2 && second->met.load() == 2, "%d and %d have met", first->met.load(),
              second->met.load());
      });
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// An entry that has no tickets may get another run at once: here as soon as its last ticket is
// taken, before the executor has begun it.
TEST(executors_know_the_run_of_a_ticket_in_every_order) {
  std::unique_ptr<Counted> first, second;
  const long orders = explore(
      1, 2,
      [&](sie::Executors *) {
        first.reset(new Counted(1));
        second.reset(new Counted(1));
      },
      [&](sie::Executors *executors) {
        CHECK(executors->submit(first.get()) && executors->submit(second.get()), "refused");
        executors->wait(first.get());
        executors->wait(second.get());
        CHECK(first->complete() && second->complete(), "a ticket was done twice or not at all");
      });
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// The place of a run that has ended may go to one that yields, while an executor of another yielding
// run looks for tickets of the first: it takes none of the second.
TEST(executors_do_no_yielding_ticket_between_blocks_in_every_order) {
  struct Marked : Counted {
    std::atomic<int> between{0};
    Marked() : Counted(1) { work = run; }
    static void run(sie::Run *r, int32_t slab, int32_t member, int32_t executor) {
      if (executor == 1) static_cast<Marked *>(r)->between++;
      Counted::run(r, slab, member, executor);
    }
  };
  std::unique_ptr<sie::Executors> executors;
  std::unique_ptr<Counted> first;
  std::unique_ptr<Marked> second;
  schedule::Threads threads = {};
  threads.count = 3;
  threads.preemptions = 1;
  threads.prepare = [&] {
    executors.reset(new sie::Executors);
    first.reset(new Counted(1));
    second.reset(new Marked);
    second->yields = true;
  };
  threads.body = [&](int thread) {
    if (thread == 1) return executors->loop(0);
    if (thread == 2) {
      executors->do_other(1);
      return;
    }
    CHECK(executors->submit(first.get()), "refused");
    executors->wait(first.get());
    CHECK(executors->submit(second.get()), "refused");
    executors->wait(second.get());
    executors->stop();
  };
  threads.afterwards = [&] {
    CHECK(first->complete() && second->complete(), "a ticket was done twice or not at all");
    CHECK(second->between.load() == 0, "a ticket of a yielding run was done between two blocks");
  };
  const long orders = schedule::explore(threads);
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// A member that has passed may arrive again before the last to arrive has left.
TEST(executors_meet_twice_in_every_order) {
  std::unique_ptr<sie::Executors> executors;
  std::unique_ptr<sie::Barrier> barrier;
  std::atomic<int> reached{0}, early{0};
  schedule::Threads threads = {};
  threads.count = 2;
  threads.preemptions = 2;
  threads.prepare = [&] {
    executors.reset(new sie::Executors);
    barrier.reset(new sie::Barrier);
    reached = early = 0;
  };
  threads.body = [&](int thread) {
    for (int round = 1; round <= 3; round++) {
      reached++;
      executors->meet(barrier.get(), 2, thread, [] { return false; });
      if (reached.load() < 2 * round) early++;
    }
  };
  threads.afterwards = [&] {
    CHECK(early.load() == 0 && reached.load() == 6, "%d arrivals, %d went on too early", reached.load(),
          early.load());
  };
  const long orders = schedule::explore(threads);
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

namespace {

// A long slab of `steps` steps, led by the first ticket's executor; the others join. Every member
// takes the same steps, in parts that make up the whole.
struct Joined : sie::Run {
  static constexpr int32_t steps = 3;
  sie::Executors *executors;
  sie::LongTeam joined;
  std::atomic<int> parts[steps] = {}, members[steps] = {}, late{0};
  Joined(sie::Executors *on, int32_t helpers) : executors(on) {
    work = run;
    tickets = 1 + helpers;
    yields = true;
  }
  void take_steps(int32_t member, int32_t executor, sie::LongStep at) {
    for (bool more = true; more;) {
      int32_t now = at.number, count = joined.members();
      if (member >= count) late++;
      members[now].store(count);
      parts[now]++;
      more = ++at.number < steps;
      executors->meet(&joined.barrier, count, executor,
                      [this, &at, more] { return more && joined.admit(at); });
      if (parts[now].load() != count) late++;
    }
  }
  static void run(sie::Run *r, int32_t slab, int32_t, int32_t executor) {
    Joined *self = static_cast<Joined *>(r);
    sie::LongTeam &team = self->joined;
    if (slab == 0) {
      self->take_steps(0, executor, {});
      team.close();
      return self->executors->notify();
    }
    int32_t member;
    if (!team.ask(&member)) return;
    self->executors->wait_for(executor, [&team, member] { return team.has(member) || team.closed(); });
    if (team.has(member)) self->take_steps(member, executor, team.next());
  }
  void check() const {
    CHECK(late.load() == 0, "%d parts missing or too many", late.load());
    for (int step = 0; step < steps; step++) {
      CHECK(parts[step].load() == members[step].load(), "step %d: %d parts of %d", step, parts[step].load(),
            members[step].load());
    }
  }
};

}  // namespace

// An executor joins while the leader takes its steps, and a run that does not yield comes between.
TEST(executors_join_a_long_slab_beside_another_run_in_every_order) {
  std::unique_ptr<Joined> slab;
  std::unique_ptr<Counted> other;
  const long orders = explore(
      2, 1,
      [&](sie::Executors *executors) {
        slab.reset(new Joined(executors, 1));
        other.reset(new Counted(1));
      },
      [&](sie::Executors *executors) {
        CHECK(executors->submit(slab.get()) && executors->submit(other.get()), "refused");
        executors->wait(slab.get());
        executors->wait(other.get());
        slab->check();
        CHECK(other->complete(), "the other run is not complete");
      });
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// Whoever is a member at a step takes its part, and nobody goes on before all have.
TEST(executors_join_a_long_slab_in_every_order) {
  for (int helpers : {1, 2}) {
    std::unique_ptr<sie::Executors> executors;
    std::unique_ptr<Joined> slab;
    long by[4] = {};  // orders, by the members at the last step
    schedule::Threads threads = {};
    threads.count = 1 + helpers;
    // Three: the executor that asks is awake while its admission is made, and twice goes on first.
    threads.preemptions = helpers == 1 ? 3 : 1;
    threads.prepare = [&] {
      executors.reset(new sie::Executors);
      slab.reset(new Joined(executors.get(), helpers));
    };
    threads.body = [&](int thread) { Joined::run(slab.get(), thread, 0, thread); };
    threads.afterwards = [&] {
      slab->check();
      by[slab->members[Joined::steps - 1].load()]++;
    };
    const long orders = schedule::explore(threads);
    printf("     %ld orders: %ld alone, %ld by two, %ld by three\n", orders, by[1], by[2], by[3]);
    CHECK(by[1] > 100 && by[2] > 100 && (helpers == 1 || by[3] > 100), "%ld orders", orders);
  }
}
