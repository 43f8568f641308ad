// barrier.cc — the barriers of CTAs and clusters.
#include "simt/machine.h"

namespace simt {

namespace {

// One time in four a warp leaves the barrier late: writes of other warps meanwhile hit what it has
// not read yet.
void release(Barrier &barrier) {
  const uint32_t waiting = static_cast<uint32_t>(barrier.waiting.size());
  const Warp *late =
      waiting > 0 && random_below(4) == 0 ? barrier.waiting[random_below(waiting)]->warp : nullptr;
  for (Fiber *fiber : barrier.waiting) {
    fiber->late = fiber->warp == late;
    fiber->answer = barrier.count;
    wake(fiber);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
  barrier.expected = 0;
  barrier.count = 0;
}

// Waits until the barrier opens; a late warp also until all others wait for something.
void wait_at_barrier(Barrier &barrier, const char *name) {
  Fiber *fiber = current();
  barrier.waiting.push_back(fiber);
  block(name);
  if (fiber->late) dawdle("late from a barrier", true);
}

// All living threads have arrived.
bool complete(const Barrier &barrier, const Cta &cta) {
  return barrier.arrived == (barrier.of_all ? cta.live : barrier.expected);
}

int32_t sync_all(int32_t predicate) {
  arrive_at_barrier();
  Fiber *fiber = current();
  Cta &cta = *fiber->cta;
  Barrier &barrier = cta.barriers[0];
  if (barrier.arrived != 0 && !barrier.of_all)
    fail("__syncthreads meets a named barrier 0 of %u threads", barrier.expected);
  barrier.of_all = true;
  barrier.arrived++;
  barrier.count += predicate != 0;
  if (complete(barrier, cta)) {
    int32_t count = barrier.count;
    release(barrier);
    return count;
  }
  wait_at_barrier(barrier, "__syncthreads");
  return fiber->answer;
}

void release_cluster(Cluster &cluster) {
  cluster.arrived = 0;
  cluster.phase++;
  for (const Cta *cta : cluster.ctas) {
    for (Fiber *fiber : cta->fibers) fiber->cluster_arrived = false;
  }
  for (Fiber *fiber : cluster.waiting) wake(fiber);
  cluster.waiting.clear();
}

}  // namespace

void sync_threads() { sync_all(0); }
int sync_threads_count(int predicate) { return sync_all(predicate); }

void named_barrier(uint32_t id, uint32_t threads, bool wait) {
  arrive_at_barrier();
  Fiber *fiber = current();
  Cta &cta = *fiber->cta;
  if (id > 15) fail("barrier %u: there are 16", id);
  if (threads == 0 || threads % 32 != 0 || threads > (cta.threads + 31) / 32 * 32)
    fail("barrier %u of %u threads in a block of %u", id, threads, cta.threads);
  Barrier &barrier = cta.barriers[id];
  if (barrier.arrived != 0 && (barrier.of_all || barrier.expected != threads)) {
    fail("barrier %u of %u threads, while %u wait for %u", id, threads, barrier.arrived,
         barrier.of_all ? cta.live : barrier.expected);
  }
  barrier.of_all = false;
  barrier.expected = threads;
  barrier.arrived++;
  if (complete(barrier, cta)) {
    release(barrier);
  } else if (wait) {
    static const char *const names[16] = {
        "named barrier 0",  "named barrier 1",  "named barrier 2",  "named barrier 3",
        "named barrier 4",  "named barrier 5",  "named barrier 6",  "named barrier 7",
        "named barrier 8",  "named barrier 9",  "named barrier 10", "named barrier 11",
        "named barrier 12", "named barrier 13", "named barrier 14", "named barrier 15"};
    wait_at_barrier(barrier, names[id]);
  }
}

void thread_left_barriers(Fiber *fiber) {
  Cta &cta = *fiber->cta;
  Barrier &barrier = cta.barriers[0];
  if (barrier.of_all && barrier.arrived != 0 && complete(barrier, cta)) release(barrier);
  // A thread that has exited counts as arrived at every later barrier of the cluster.
  Cluster &cluster = *cta.cluster;
  if (fiber->cluster_arrived) cluster.arrived--;
  if (cluster.arrived != 0 && cluster.arrived == cluster.live) release_cluster(cluster);
}

uint32_t cluster_rank() {
  require(90, "cluster_rank");
  return current()->cta->rank;
}

uint32_t cluster_size() {
  require(90, "cluster_size");
  return machine.launch.cluster;
}

void cluster_arrive() {
  require(90, "barrier.cluster");
  arrive_at_barrier();
  Fiber *fiber = current();
  if (fiber->cluster_arrived) fail("cluster_arrive twice without cluster_wait");
  Cluster &cluster = *fiber->cta->cluster;
  fiber->cluster_arrived = true;
  fiber->answer = static_cast<int32_t>(cluster.phase);
  if (++cluster.arrived == cluster.live) release_cluster(cluster);
}

void cluster_wait() {
  require(90, "barrier.cluster");
  Fiber *fiber = current();
  Cluster &cluster = *fiber->cta->cluster;
  if (fiber->answer == static_cast<int32_t>(cluster.phase) && !fiber->cluster_arrived)
    fail("cluster_wait without cluster_arrive");
  if (!fiber->cluster_arrived) return;  // the phase it arrived in has ended
  cluster.waiting.push_back(fiber);
  block("cluster_wait");
}

}  // namespace simt
