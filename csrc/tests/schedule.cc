// schedule.cc — runs one thread at a time, controlled by semaphores; explores orders by depth-first
// search over the choices.
#include "schedule.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "hooks.h"

namespace schedule {

namespace {

constexpr int max_threads = 4;
constexpr int max_steps = 10000;

enum class State { ready, asleep, done };

struct Choice {
  int chosen, options;
};

struct Run {
  const Threads *threads;
  State state[max_threads];
  const std::atomic<uint32_t> *sleeps_on[max_threads];
  sem_t turn[max_threads], over;
  std::vector<Choice> choices;
  std::vector<int> order;  // the thread of each step
  size_t next_choice;
  int preemptions, steps;
  bool ended;
};

// Only the thread whose turn it is uses it.
Run *run = nullptr;
thread_local int self = -1;

[[noreturn]] void give_up(const char *what) {
  fprintf(stderr, "    schedule.cc: %s; threads by step:", what);
  for (int thread : run->order) fprintf(stderr, " %d", thread);
  fputc('\n', stderr);
  exit(1);
}

int choose(int options) {
  if (options == 1) return 0;
  if (run->next_choice == run->choices.size()) run->choices.push_back({0, options});
  const Choice &choice = run->choices[run->next_choice++];
  if (choice.options != options) give_up("the threads do other things in the same order");
  return choice.chosen;
}

// The thread that goes on: `thread` itself if it can and the order allows.
int next_of(int thread) {
  int candidates[max_threads], count = 0;
  const bool goes_on = thread >= 0 && run->state[thread] == State::ready;
  if (goes_on) candidates[count++] = thread;
  for (int i = 0; i < run->threads->count && (!goes_on || run->preemptions < run->threads->preemptions);
       i++) {
    if (i != thread && run->state[i] == State::ready) candidates[count++] = i;
  }
  if (count == 0) {
    for (int i = 0; i < run->threads->count; i++) {
      if (run->state[i] == State::asleep) give_up("all threads sleep");
    }
    return -1;
  }
  const int next = candidates[choose(count)];
  if (goes_on && next != thread) run->preemptions++;
  if (++run->steps > max_steps) give_up("no end after ten thousand steps");
  run->order.push_back(next);
  return next;
}

void hand_on() {
  const int next = next_of(self);
  if (next == self) return;
  sem_post(&run->turn[next]);
  while (sem_wait(&run->turn[self]) != 0) continue;
}

void step() {
  if (self >= 0) hand_on();
}

void sleep_on(const std::atomic<uint32_t> *word, uint32_t value) {
  step();
  if (word->load() != value) return;
  run->state[self] = State::asleep;
  run->sleeps_on[self] = word;
  hand_on();
}

void wake(const std::atomic<uint32_t> *word, int waiters) {
  step();
  for (int i = 0; i < run->threads->count && waiters > 0; i++) {
    if (run->state[i] != State::asleep || run->sleeps_on[i] != word) continue;
    run->state[i] = State::ready;
    waiters--;
  }
}

const sie::hooks::Hooks hooks = {step, sleep_on, wake, nullptr, nullptr, nullptr, nullptr};

// A thread of every order, one after the other.
void *thread_main(void *number) {
  self = static_cast<int>(reinterpret_cast<intptr_t>(number));
  for (;;) {
    while (sem_wait(&run->turn[self]) != 0) continue;
    if (run->ended) return nullptr;
    run->threads->body(self);
    run->state[self] = State::done;
    const int next = next_of(self);
    sem_post(next < 0 ? &run->over : &run->turn[next]);
  }
}

void run_once() {
  run->next_choice = 0;
  run->preemptions = run->steps = 0;
  run->order.clear();
  for (int i = 0; i < run->threads->count; i++) run->state[i] = State::ready;
  sem_post(&run->turn[next_of(-1)]);
  while (sem_wait(&run->over) != 0) continue;
}

// Starts the threads on the caller's CPU, where they may be pinned: one of them runs at a time, and a
// turn is handed on sooner there than to another CPU, which has to be woken.
void start(pthread_t *ids) {
  cpu_set_t here;
  CPU_ZERO(&here);
  const int cpu = sched_getcpu();
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &here);
  for (int i = 0; i < run->threads->count; i++) {
    pthread_create(&ids[i], nullptr, thread_main, reinterpret_cast<void *>(static_cast<intptr_t>(i)));
    if (CPU_COUNT(&here) > 0) pthread_setaffinity_np(ids[i], sizeof here, &here);
  }
}

void end(const pthread_t *ids) {
  run->ended = true;
  for (int i = 0; i < run->threads->count; i++) sem_post(&run->turn[i]);
  for (int i = 0; i < run->threads->count; i++) pthread_join(ids[i], nullptr);
}

}  // namespace

long explore(const Threads &threads) {
  Run all = {};
  all.threads = &threads;
  run = &all;
  for (sem_t &turn : all.turn) sem_init(&turn, 0, 0);
  sem_init(&all.over, 0, 0);
  pthread_t ids[max_threads];
  start(ids);
  long orders = 0;
  do {
    threads.prepare();
    sie::hooks::installed.store(&hooks);
    run_once();
    sie::hooks::installed.store(nullptr);
    threads.afterwards();
    orders++;
    // Advance the last choice that has another option.
    while (!all.choices.empty() && all.choices.back().chosen + 1 == all.choices.back().options)
      all.choices.pop_back();
    if (!all.choices.empty()) all.choices.back().chosen++;
  } while (!all.choices.empty());
  end(ids);
  for (sem_t &turn : all.turn) sem_destroy(&turn);
  sem_destroy(&all.over);
  run = nullptr;
  return orders;
}

}  // namespace schedule
