// mbarrier.cc — barriers in shared memory: arrivals, expected bytes, phases.
#include "simt/machine.h"

namespace simt {

namespace {

// The contents of the barrier's eight bytes: enough to notice that something else was written
// there.
uint64_t word_of(const PhaseBarrier &barrier) {
  return 0x6d62617272000000u ^ barrier.address ^ barrier.phase << 48;
}

void write_word(const Cta &cta, const PhaseBarrier &barrier) {
  uint64_t word = word_of(barrier);
  memcpy(cta.shared + (barrier.address - shared_base), &word, sizeof word);
}

void end_phase_if_complete(Cta &cta, PhaseBarrier &barrier) {
  if (barrier.pending != 0) return;
  if (barrier.bytes < 0) {
    fail("mbarrier at shared byte %u: %lld bytes more were written than expected",
         barrier.address - shared_base, static_cast<long long>(-barrier.bytes));
  }
  if (barrier.bytes != 0) return;
  barrier.phase++;
  barrier.pending = barrier.count;
  write_word(cta, barrier);
  for (Fiber *fiber : barrier.waiting) wake(fiber);
  barrier.waiting.clear();
}

void arrive(Cta &cta, PhaseBarrier &barrier, uint32_t expected_bytes) {
  arrive_at_barrier();
  if (barrier.pending == 0) {
    fail("mbarrier at shared byte %u: an arrival too many, its phase has its %u and waits for %lld bytes",
         barrier.address - shared_base, barrier.count, static_cast<long long>(barrier.bytes));
  }
  barrier.bytes += expected_bytes;
  if (barrier.bytes >= 1 << 20)
    fail("mbarrier at shared byte %u expects 2^20 bytes or more", barrier.address - shared_base);
  barrier.pending--;
  end_phase_if_complete(cta, barrier);
}

PhaseBarrier &own_barrier(uint64_t *barrier) {
  return phase_barrier(*current()->cta, shared_address(barrier));
}

}  // namespace

PhaseBarrier &phase_barrier(Cta &cta, uint32_t address) {
  for (PhaseBarrier &barrier : cta.phase_barriers) {
    if (barrier.address != address) continue;
    uint64_t word;
    memcpy(&word, cta.shared + (address - shared_base), sizeof word);
    if (word != word_of(barrier)) fail("mbarrier at shared byte %u was overwritten", address - shared_base);
    return barrier;
  }
  fail("mbarrier at shared byte %lld is not initialised", static_cast<long long>(address) - shared_base);
}

void phase_barrier_written(Cta &cta, uint32_t address, uint32_t bytes) {
  PhaseBarrier &barrier = phase_barrier(cta, address);
  barrier.bytes -= bytes;
  barrier.in_flight -= bytes;
  end_phase_if_complete(cta, barrier);
}

void check_phase_barriers(const Cta &cta) {
  for (const PhaseBarrier &barrier : cta.phase_barriers) {
    if (barrier.bytes != 0) {
      self = cta.fibers[0];
      fail("the block ends while its mbarrier at shared byte %u expects %lld bytes",
           barrier.address - shared_base, static_cast<long long>(barrier.bytes));
    }
  }
}

void mbarrier_init(uint64_t *barrier, uint32_t count) {
  Cta &cta = *current()->cta;
  uint32_t address = shared_address(barrier);
  shared_bytes(cta, address, 8, 8, "mbarrier_init");
  if (count == 0 || count >= 1 << 20) fail("mbarrier_init with count %u", count);
  for (const PhaseBarrier &other : cta.phase_barriers) {
    if (other.address == address)
      fail("mbarrier at shared byte %u is initialised twice", address - shared_base);
  }
  PhaseBarrier fresh;
  fresh.address = address;
  fresh.count = fresh.pending = count;
  fresh.initialised_by = current();
  cta.phase_barriers.push_back(fresh);
  write_word(cta, fresh);
}

void fence_mbarrier_init() {
  require(90, "fence.mbarrier_init");
  for (PhaseBarrier &barrier : current()->cta->phase_barriers) {
    if (barrier.initialised_by == current()) barrier.published = true;
  }
}

void check_published(const PhaseBarrier &barrier, const char *user) {
  if (!barrier.published) {
    fail("%s uses the mbarrier at shared byte %u, after whose mbarrier_init came no fence_mbarrier_init",
         user, barrier.address - shared_base);
  }
}

void mbarrier_arrive(uint64_t *barrier, uint32_t expected_bytes) {
  if (expected_bytes != 0) require(90, "mbarrier.arrive.expect_tx");
  arrive(*current()->cta, own_barrier(barrier), expected_bytes);
}

void mbarrier_arrive_cluster(uint64_t *barrier, uint32_t rank) {
  require(90, "mbarrier.arrive.shared::cluster");
  if (rank >= machine.launch.cluster)
    fail("mbarrier_arrive_cluster: rank %u of %u", rank, machine.launch.cluster);
  Cta &cta = *current()->cta->cluster->ctas[rank];
  if (cta.live == 0) fail("mbarrier_arrive_cluster: block %u of the cluster has left", rank);
  PhaseBarrier &remote = phase_barrier(cta, shared_address(barrier));
  check_published(remote, "mbarrier_arrive_cluster");
  arrive(cta, remote, 0);
}

bool mbarrier_test(uint64_t *barrier, uint32_t parity) {
  if (parity > 1) fail("mbarrier parity %u", parity);
  yield();  // somebody may spin on it
  return (own_barrier(barrier).phase & 1u) != parity;
}

void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
  if (parity > 1) fail("mbarrier parity %u", parity);
  PhaseBarrier &own = own_barrier(barrier);
  if ((own.phase & 1u) != parity) return;
  uint64_t phase = own.phase;
  own.waiting.push_back(current());
  block("mbarrier_wait", barrier);
  // Looks it up again: the list may have grown.
  uint64_t now = own_barrier(barrier).phase;
  if (now != phase + 1) {
    fail(
        "mbarrier at shared byte %u went on by %llu phases before a waiter looked: on a device it would hang "
        "or "
        "take the wrong phase",
        shared_address(barrier) - shared_base, static_cast<unsigned long long>(now - phase));
  }
}

}  // namespace simt
