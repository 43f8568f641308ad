// machine.cc — launches, the scheduler and its randomness, and the message when a rule is broken.
#include "simt/machine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <string>

#include "simt/fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace simt {

Machine machine;
Indices *self;

namespace {

pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;
bool seeded = false;
void *host_stack_pointer;
const uint8_t *written_begin, *written_end;  // by the kernel before

// Fibers and shared memories outlive launches; the resident CTAs use them from the front.
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<uint8_t *> shared_memories;

constexpr size_t guard_bytes = 4096;
constexpr size_t largest_shared = 232448;  // 227 KiB, sm_90
constexpr uint8_t guard_value = 0xa5;
constexpr uint64_t most_ctas = 1 << 24;  // more would take hours

size_t shared_limit(int32_t sm) {
  if (sm >= 90 && sm < 120) return 232448;
  if (sm == 80 || sm == 87) return 166912;
  return 101376;
}

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t random_bits() {
  uint64_t x = machine.random_state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return machine.random_state = x;
}

void choose_seed() {
  if (seeded) return;
  seeded = true;
  if (const char *text = getenv("SIE_SIMT_SEED")) {
    machine.base_seed = strtoull(text, nullptr, 0);
    return;
  }
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  machine.base_seed = mix(static_cast<uint64_t>(now.tv_nsec) ^ static_cast<uint64_t>(now.tv_sec) << 20) >> 32;
}

void print_place(const Fiber *fiber) {
  const Launch &launch = machine.launch;
  fprintf(stderr, "simt: kernel %s<<<(%u, %u, %u), (%u, %u, %u), %zu>>>", launch.kernel, launch.grid.x,
          launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z, launch.shared_bytes);
  if (fiber != nullptr) {
    fprintf(stderr, ", block (%u, %u, %u), thread %u", fiber->block.x, fiber->block.y, fiber->block.z,
            fiber->number);
  }
  fprintf(stderr, ":\n  ");
}

[[noreturn]] void stop() {
  fprintf(stderr, "  SIE_SIMT_SEED=%llu, launch %llu of the process\n",
          static_cast<unsigned long long>(machine.base_seed),
          static_cast<unsigned long long>(machine.launch_number));
  fflush(stderr);
  abort();
}

// "threads 0-31, 40: mbarrier_wait" for each thing threads wait for.
void print_waiting() {
  for (const Cta &cta : machine.ctas) {
    std::vector<std::pair<std::string, std::string>> lines;
    for (uint32_t first = 0; first < cta.threads; first++) {
      const Fiber *fiber = cta.fibers[first];
      uint32_t last = first;
      auto same = [&](const Fiber *other) {
        return other->done == fiber->done && other->waits_for == fiber->waits_for &&
               other->waits_on == fiber->waits_on;
      };
      while (last + 1 < cta.threads && same(cta.fibers[last + 1])) last++;
      char what[160];
      if (fiber->done) {
        snprintf(what, sizeof what, "left the kernel");
      } else if (fiber->waits_on != nullptr) {
        snprintf(what, sizeof what, "%s at %p", fiber->waits_for, fiber->waits_on);
      } else {
        snprintf(what, sizeof what, "%s", fiber->waits_for != nullptr ? fiber->waits_for : "running");
      }
      std::string range = std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
      auto line = std::find_if(lines.begin(), lines.end(), [&](const auto &l) { return l.second == what; });
      if (line == lines.end()) {
        lines.emplace_back(range, what);
      } else {
        line->first += ", " + range;
      }
      first = last;
    }
    for (const auto &line : lines) {
      fprintf(stderr, "  block (%u, %u, %u) threads %s: %s\n", cta.block.x, cta.block.y, cta.block.z,
              line.first.c_str(), line.second.c_str());
    }
    for (const PhaseBarrier &barrier : cta.phase_barriers) {
      fprintf(stderr,
              "  block (%u, %u, %u) mbarrier at shared byte %u: phase %llu, %u of %u arrivals missing, %lld "
              "bytes "
              "expected, %lld under way\n",
              cta.block.x, cta.block.y, cta.block.z, barrier.address - shared_base,
              static_cast<unsigned long long>(barrier.phase), barrier.pending, barrier.count,
              static_cast<long long>(barrier.bytes), static_cast<long long>(barrier.in_flight));
    }
  }
}

void remove(Async *async) {
  if (async->list == nullptr) return;
  std::vector<Async *> &list = *async->list;
  list[async->slot] = list.back();
  list[async->slot]->slot = async->slot;
  list.pop_back();
  async->list = nullptr;
}

void step(Async *async) {
  if (!async->step()) return;
  async->finished = true;
  remove(async);
}

void step_floating() { step(machine.floating[random_below(static_cast<uint32_t>(machine.floating.size()))]); }

// No fiber is ready: carries out an operation, or continues fibers that dawdle, so that what
// lingers may linger long. It continues all of them, or one warp alone, which is then ahead of the
// others' copies until they meet. Returns false when nothing is left.
bool step_idle() {
  size_t floating = machine.floating.size(), all = floating + machine.lingering.size();
  if (!machine.dawdling.empty() && (all == 0 || random_below(2) == 0)) {
    const uint32_t chosen = random_below(2 * static_cast<uint32_t>(machine.dawdling.size()));
    const Warp *alone = chosen < machine.dawdling.size() ? machine.dawdling[chosen]->warp : nullptr;
    size_t kept = 0;
    for (Fiber *fiber : machine.dawdling) {
      if (alone == nullptr || fiber->warp == alone) {
        wake(fiber);
      } else {
        machine.dawdling[kept++] = fiber;
      }
    }
    machine.dawdling.resize(kept);
    return true;
  }
  if (all == 0) return false;
  size_t i = random_below(static_cast<uint32_t>(all));
  step(i < floating ? machine.floating[i] : machine.lingering[i - floating]);
  return true;
}

// The next fiber to run; NULL when all have finished.
Fiber *choose() {
  if (!machine.floating.empty() && random_below(machine.float_switches) == 0) step_floating();
  while (machine.ready.empty()) {
    if (machine.live == 0) return nullptr;
    if (step_idle()) continue;
    print_place(nullptr);
    fprintf(stderr, "deadlock, no thread can go on\n");
    print_waiting();
    stop();
  }
  uint32_t i = random_below(static_cast<uint32_t>(machine.ready.size()));
  Fiber *next = machine.ready[i];
  machine.ready[i] = machine.ready.back();
  machine.ready.pop_back();
  return next;
}

void switch_to(Fiber *next) {
  Fiber *from = current();
  if (next == from) return;
  self = next;
  switch_stack(&from->stack_pointer, next->stack_pointer, next->stack, false);
}

void leave() {
  Fiber *fiber = current();
  if (machine.launch.pdl && !fiber->dependency_waited) fail("the thread leaves without grid_dependency_wait");
  for (const Meeting &meeting : fiber->warp->meetings) {
    if ((meeting.mask >> fiber->lane & 1u) != 0) {
      fail("lane %u leaves while %s waits for it (mask %08x, arrived %08x)", fiber->lane, meeting.instruction,
           meeting.mask, meeting.arrived);
    }
  }
  for (const auto &store : fiber->stores) {
    if (!store->read) fail("the thread leaves while its TMA store still reads shared memory");
  }
  if (wgmma_under_way(fiber)) fail("the thread leaves without wgmma_wait for its products");
  fiber->done = true;
  fiber->warp->exited |= 1u << fiber->lane;
  fiber->cta->live--;
  fiber->cta->cluster->live--;
  machine.live--;
  thread_left_barriers(fiber);
  Fiber *next = choose();
  self = next;
  void *unused;
  if (next != nullptr) {
    switch_stack(&unused, next->stack_pointer, next->stack, true);
  } else {
    switch_stack(&unused, host_stack_pointer, nullptr, true);
  }
  abort();  // not reached
}

void enter() {
  arrived_on_stack();
  machine.thread(machine.body);
  leave();
}

uint8_t *new_shared() {
  size_t bytes = largest_shared + 2 * guard_bytes;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "simt: no memory for shared memory\n");
    abort();
  }
  return static_cast<uint8_t *>(memory) + guard_bytes;
}

void lay_out_shared(uint8_t *shared, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared - guard_bytes, largest_shared + 2 * guard_bytes);
#endif
  memset(shared - guard_bytes, guard_value, guard_bytes);
  memset(shared, 0xff, bytes);
  if (machine.infinite) std::fill_n(reinterpret_cast<float *>(shared), bytes / sizeof(float), INFINITY);
  memset(shared + bytes, guard_value, guard_bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(shared - guard_bytes, guard_bytes);
  __asan_poison_memory_region(shared + bytes, largest_shared + guard_bytes - bytes);
#endif
}

// AddressSanitizer stops at the access itself; without it the guards show it afterwards.
void check_shared_guards(const Cta &cta) {
#if !defined(__SANITIZE_ADDRESS__)
  for (size_t i = 0; i < guard_bytes; i++) {
    if (cta.shared[machine.launch.shared_bytes + i] != guard_value) {
      print_place(cta.fibers[0]);
      fprintf(stderr, "byte %zu of %zu bytes of dynamic shared memory was written\n",
              machine.launch.shared_bytes + i, machine.launch.shared_bytes);
      stop();
    }
    if (cta.shared[-1 - static_cast<ptrdiff_t>(i)] != guard_value) {
      print_place(cta.fibers[0]);
      fprintf(stderr, "byte -%zu of shared memory was written\n", i + 1);
      stop();
    }
  }
#else
  (void)cta;
#endif
}

// On a device a setmaxnreg that needs more registers than the others leave waits for ever.
void check_registers(const Cta &cta) {
  constexpr int32_t of_cta = 65536;
  const int32_t at_launch = of_cta / static_cast<int32_t>(cta.threads) / 8 * 8;
  int32_t held = 0;
  bool set = false;
  for (const Fiber *fiber : cta.fibers) {
    held += fiber->registers != 0 ? fiber->registers : at_launch;
    set = set || fiber->registers != 0;
  }
  if (set && held > of_cta) {
    self = cta.fibers[0];
    fail("setmaxnreg: the threads hold %d registers of %d", held, of_cta);
  }
}

// place: the index among the resident CTAs.
void lay_out_cta(size_t place, Cluster *cluster, uint3 block) {
  const Launch &launch = machine.launch;
  const uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
  const size_t first_fiber = place * threads;
  Cta &cta = machine.ctas[place];
  cta.cluster = cluster;
  cta.rank = static_cast<uint32_t>(cluster->ctas.size());
  cluster->ctas.push_back(&cta);
  cluster->live += threads;
  cta.block = block;
  cta.threads = cta.live = threads;
  while (shared_memories.size() <= place) shared_memories.push_back(new_shared());
  cta.shared = shared_memories[place];
  lay_out_shared(cta.shared, launch.shared_bytes);
  cta.warps = std::vector<Warp>((threads + 31) / 32);
  for (uint32_t w = 0; w < cta.warps.size(); w++) {
    cta.warps[w].number = w;
    // Lanes behind the last thread never come.
    if (threads < 32 * (w + 1)) cta.warps[w].exited = ~0u << (threads - 32 * w);
  }
  for (uint32_t i = 0; i < threads; i++) {
    while (fibers.size() <= first_fiber + i) {
      fibers.push_back(std::make_unique<Fiber>());
      fibers.back()->stack = new_stack();
    }
    Fiber *fiber = fibers[first_fiber + i].get();
    fiber->thread = {i % launch.block.x, i / launch.block.x % launch.block.y,
                     i / (launch.block.x * launch.block.y)};
    fiber->Indices::block = block;
    fiber->block_dim = launch.block;
    fiber->grid_dim = launch.grid;
    fiber->cta = &cta;
    fiber->warp = &cta.warps[i / 32];
    fiber->number = i;
    fiber->lane = i % 32;
    fiber->done = fiber->dependency_waited = fiber->cluster_arrived = fiber->wgmma_fenced =
        fiber->proxy_fenced = false;
    fiber->answer = 0;
    fiber->waits_for = nullptr;
    fiber->waits_on = nullptr;
    fiber->copy_group = fiber->copies_awaited = fiber->store_group = 0;
    fiber->wgmma_issued = fiber->wgmma_awaited = 0;
    fiber->registers = 0;
    fiber->wgmma_groups.clear();
    fiber->copies.clear();
    fiber->unmet.clear();
    fiber->stores.clear();
    fiber->stack_pointer = prepare_stack(fiber->stack, enter);
    cta.fibers.push_back(fiber);
    machine.ready.push_back(fiber);
  }
  machine.live += threads;
}

// Runs clusters first[0 … count) of the grid at once, numbered along x, then y, then z.
void run_clusters(const uint64_t *first, size_t count) {
  const Launch &launch = machine.launch;
  const uint32_t across = launch.grid.x / launch.cluster;
  machine.ready.clear();
  machine.live = 0;
  machine.ctas = std::vector<Cta>(count * launch.cluster);
  machine.clusters = std::vector<Cluster>(count);
  for (size_t place = 0; place < machine.ctas.size(); place++) {
    const size_t i = place / launch.cluster;
    const uint32_t x = static_cast<uint32_t>(first[i] % across) * launch.cluster,
                   y = static_cast<uint32_t>(first[i] / across % launch.grid.y),
                   z = static_cast<uint32_t>(first[i] / across / launch.grid.y);
    lay_out_cta(place, &machine.clusters[i], {x + static_cast<uint32_t>(place % launch.cluster), y, z});
  }
  Fiber *fiber = choose();
  self = fiber;
  switch_stack(&host_stack_pointer, fiber->stack_pointer, fiber->stack, false);
  self = nullptr;
  // Stores that nobody waits for are still written.
  for (const Cta &cta : machine.ctas) {
    for (const Fiber *thread : cta.fibers) {
      for (const auto &store : thread->stores) finish_async(store.get());
    }
  }
  while (step_idle()) {
  }
  for (const Cta &cta : machine.ctas) {
    check_shared_guards(cta);
    check_phase_barriers(cta);
    check_registers(cta);
  }
  machine.loads.clear();
}

}  // namespace

uint32_t random_below(uint32_t n) { return static_cast<uint32_t>((random_bits() >> 32) * n >> 32); }

void fail(const char *format, ...) {
  print_place(current());
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  stop();
}

void require(int32_t sm, const char *instruction) {
  if (machine.launch.sm < sm) fail("%s needs sm_%d, this is sm_%d", instruction, sm, machine.launch.sm);
}

void seed(uint64_t value) {
  pthread_mutex_lock(&one_launch);
  seeded = true;
  machine.base_seed = value;
  machine.launch_number = 0;
  pthread_mutex_unlock(&one_launch);
}

uint64_t launches() {
  pthread_mutex_lock(&one_launch);
  uint64_t n = machine.launch_number;
  pthread_mutex_unlock(&one_launch);
  return n;
}

sie_status check_shape(const Launch &launch) {
  uint64_t threads = static_cast<uint64_t>(launch.block.x) * launch.block.y * launch.block.z;
  uint64_t ctas = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  if (threads == 0 || threads > 1024 || launch.block.z > 64) return SIE_INTERNAL;
  if (ctas == 0 || launch.grid.x > 0x7fffffffu || launch.grid.y > 65535 || launch.grid.z > 65535)
    return SIE_INTERNAL;
  if (launch.cluster == 0 || launch.cluster > 8 || launch.grid.x % launch.cluster != 0) return SIE_INTERNAL;
  if (launch.shared_bytes > shared_limit(launch.sm)) return SIE_UNSUPPORTED;
  if ((launch.cluster > 1 || launch.pdl) && launch.sm < 90) return SIE_UNSUPPORTED;
  if (ctas > most_ctas) return SIE_OUT_OF_MEMORY;
  return SIE_OK;
}

sie_status launch(const Launch &launch, void (*thread)(const void *body), const void *body) {
  const sie_status status = check_shape(launch);
  if (status != SIE_OK) return status;
  const uint64_t clusters =
      static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z / launch.cluster;
  pthread_mutex_lock(&one_launch);
  choose_seed();
  record_launch(launch);
  machine.launch_number++;
  machine.random_state = mix(machine.base_seed * 0x2545f4914f6cdd1du + machine.launch_number) | 1u;
  static const uint32_t float_switches[4] = {4, 16, 64, 256};
  machine.float_switches = float_switches[random_below(4)];
  const size_t at_once = random_below(4) == 0 ? 2 : 1;
  machine.infinite = random_below(4) == 0;  // a maximum overlooks NaN
  machine.launch = launch;
  machine.thread = thread;
  machine.body = body;
  forget_thread_stack();
  std::vector<uint64_t> order(clusters);
  for (uint64_t i = 0; i < clusters; i++) {
    uint64_t j = random_below(static_cast<uint32_t>(i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  for (size_t i = 0; i < order.size(); i += at_once)
    run_clusters(order.data() + i, std::min(at_once, order.size() - i));
  pthread_mutex_unlock(&one_launch);
  return SIE_OK;
}

void block(const char *what, const void *on) {
  Fiber *fiber = current();
  fiber->waits_for = what;
  fiber->waits_on = on;
  switch_to(choose());
}

void wake(Fiber *fiber) {
  fiber->waits_for = nullptr;
  fiber->waits_on = nullptr;
  machine.ready.push_back(fiber);
}

void yield() {
  machine.ready.push_back(current());
  switch_to(choose());
}

void float_async(Async *async) {
  async->list = &machine.floating;
  async->slot = machine.floating.size();
  machine.floating.push_back(async);
}

void linger_async(Async *async) {
  async->list = &machine.lingering;
  async->slot = machine.lingering.size();
  machine.lingering.push_back(async);
}

void finish_async(Async *async) {
  while (!async->finished) async->finished = async->step();
  remove(async);
}

void dawdle(const char *what, bool sure) {
  if (!sure && random_below(2) == 0) return;
  machine.dawdling.push_back(current());
  block(what);
}

unsigned char *dynamic_shared() { return current()->cta->shared; }

uint32_t shared_address(const void *shared) {
  const Cta &cta = *current()->cta;
  ptrdiff_t offset = static_cast<const uint8_t *>(shared) - cta.shared;
  if (offset < 0 || static_cast<size_t>(offset) > machine.launch.shared_bytes)
    fail("%p is not in the shared memory of this block", shared);
  return static_cast<uint32_t>(offset) + shared_base;
}

uint8_t *shared_bytes(const Cta &cta, uint32_t address, size_t bytes, size_t alignment, const char *what) {
  if (address < shared_base || address - shared_base + bytes > machine.launch.shared_bytes) {
    fail("%s: bytes %lld … %lld of %zu of shared memory", what, static_cast<long long>(address) - shared_base,
         static_cast<long long>(address) - shared_base + static_cast<long long>(bytes) - 1,
         machine.launch.shared_bytes);
  }
  if (address % alignment != 0)
    fail("%s: shared byte %u is not %zu-byte aligned", what, address - shared_base, alignment);
  return cta.shared + (address - shared_base);
}

void check_shared(const void *shared, size_t alignment) {
  shared_bytes(*current()->cta, shared_address(shared), alignment, alignment, "access to shared memory");
}

void check_global(const void *global, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(global) % alignment != 0)
    fail("%p is not %zu-byte aligned", global, alignment);
}

void grid_dependency_wait() { current()->dependency_waited = true; }

void written_before(const void *p, size_t bytes) {
  written_begin = static_cast<const uint8_t *>(p);
  written_end = written_begin + bytes;
}

void check_written(const void *p) {
  if (machine.launch.pdl && !current()->dependency_waited && p >= written_begin && p < written_end)
    fail("a copy of what the kernel before writes, without grid_dependency_wait");
}

void set_registers(int32_t count) {
  require(90, "setmaxnreg");
  current()->registers = count;
}

}  // namespace simt
