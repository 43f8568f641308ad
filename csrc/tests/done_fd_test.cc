// done_fd_test.cc — the eventfd of a run learns once that it is done, and not before.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "executor.h"
#include "hooks.h"
#include "model.h"
#include "refused.h"
#include "slot.h"
#include "tests/check.h"

namespace {

constexpr int for_long = 60000;  // ms, for what happens at once unless it never does

struct Event {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Event() { CHECK(fd > 0, "no eventfd"); }
  ~Event() { close(fd); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  bool told(int within = 0) const {
    pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, within) == 1;
  }
  // How often it has been told since the last call.
  uint64_t times() const {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n ? n : 0;
  }
};

struct Empty : sie::Run {
  Empty(int count, const Event *event) {
    work = [](sie::Run *, int32_t, int32_t, int32_t) {};
    tickets = count;
    if (event != nullptr) done_fd = event->fd;
  }
};

// Counts the steps at which a run's eventfd has been told of a run that is not done.
struct Watch {
  const Event *event;
  const sie::Run *run;
};
std::atomic<const Watch *> watch{nullptr};
std::atomic<int> steps{0}, early{0};
void look() {
  const Watch *w = watch.load();
  if (w == nullptr) return;
  steps++;
  if (w->event->told() && w->run->state.load() != sie::run_done) early++;
}
const sie::hooks::Hooks looking = {look, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

TEST(done_fd_learns_of_the_end_once) {
  sie::hooks::installed.store(&looking);
  sie::Executors executors;
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  steps = early = 0;
  // All of them outlive the executors, which may look at one after its end.
  struct Round {
    Event event;
    Empty run;
    Watch watch = {&event, &run};
    explicit Round(int tickets) : run(tickets, &event) {}
  };
  std::vector<std::unique_ptr<Round>> rounds;
  for (int round = 0; round < 60; round++) {
    rounds.emplace_back(new Round(round % 3));
    Event &event = rounds.back()->event;
    Empty &run = rounds.back()->run;
    watch.store(&rounds.back()->watch);
    CHECK(executors.submit(&run), "refused");
    const bool told = event.told(for_long);
    const uint32_t state = run.state.load();
    executors.wait(&run);
    CHECK(told, "a run of %d tickets ends and nobody learns of it", round % 3);
    CHECK(state == sie::run_done, "told of a run in state %u", state);
    CHECK(event.times() == 1 && !event.told(), "not told once");
  }
  executors.stop();
  sie::hooks::installed.store(nullptr);
  watch.store(nullptr);
  CHECK(steps.load() > 100 && early.load() == 0, "%d of %d steps see the news before the end", early.load(),
        steps.load());
}

TEST(done_fd_is_each_runs_own) {
  sie::Executors executors;
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  // Whoever wrote to file 0, which stands for none, would write here.
  const int input = dup(0);
  Event first, second, none;
  CHECK(dup2(none.fd, 0) == 0, "no file 0");
  Empty one(1, &first), two(2, &second), neither(2, nullptr);
  for (int round = 1; round <= 20; round++) {
    for (Empty *run : {&one, &two, &neither}) {
      CHECK(executors.submit(run), "refused");
      executors.wait(run);
    }
    CHECK(first.told(for_long) && second.told(for_long), "not told");
    CHECK(first.times() == 1 && second.times() == 1, "told of another's end");
  }
  executors.stop();
  CHECK(!none.told(), "a run without an eventfd writes to a file");
  if (input >= 0) {
    dup2(input, 0);
    close(input);
  } else {
    close(0);
  }
}

// A caller that has read from the eventfd frees slot, arena and file without a look at the run.
TEST(done_fd_of_a_slot) {
  model::Model m;
  model::Shape shape;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  sie_slot_caps caps = m.slots[0]->caps;
  caps.struct_size = sizeof caps;
  const int64_t bytes[] = {caps.output_bytes[0], caps.output_bytes[1]};
  caps.output_bytes = bytes;
  sie_error err;
  sie_slot *bad = nullptr;
  caps.done_fd = -1;
  REFUSED(sie_slot_create(m.device, &caps, &bad, &err));
  caps.done_fd = 0, caps.reserved = 1;
  REFUSED(sie_slot_create(m.device, &caps, &bad, &err));
  caps.reserved = 0;
  model::Batch batch;
  batch.add(shape, 1, 5);
  const model::Result want = model::run(&m, batch);
  for (int round = 0; round < 5; round++) {
    Event event;
    caps.done_fd = event.fd;
    sie_slot_free(m.slots[1]);
    CHECK(sie_slot_create(m.device, &caps, &m.slots[1], &err) == SIE_OK, "%s", err.message);
    CHECK(!event.told(), "told of no run");
    for (int again = 0; again < 2; again++) {
      CHECK(submit(&m, 1, batch) == SIE_OK, "%s", m.err.message);
      CHECK(event.told(for_long) && event.times() == 1, "not told once");
      CHECK(m.slots[1]->state.load() == sie::run_done, "told of a run that goes on");
      const model::Result got = wait(&m, 1, batch);
      CHECK(got.status == SIE_OK && got.rows == want.rows, "another result");
    }
  }
  m.close();
}
