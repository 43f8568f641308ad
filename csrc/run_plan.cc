// run_plan.cc — decides how executors share a loaded batch: how many of them compute each slab, and
// which node's take it first.
#include <math.h>

#include <algorithm>

#include "run_parts.h"

namespace sie {

namespace {

// Teams of so many members are let be, however little there is to do; larger ones only where the work
// pays for their meetings.
constexpr int32_t usual_team = 16;
// A member makes each meeting about 60 ns longer, a cache line on its way between two cores. So the m-th
// member of a team pays where 1/m² of the work between two meetings takes longer than that. This is
// the work of 60 ns at 670 GFLOP/s a core. Assumed, not measured: slower cores would gain from more.
constexpr double flops_of_meeting = 4e4;

int32_t most_members(const sie_program *program, int64_t tokens) {
  const double between = program->token_flops * static_cast<double>(tokens) /
                         static_cast<double>(std::max<size_t>(1, program->plan.size()));
  const double pays = sqrt(between / flops_of_meeting);
  return static_cast<int32_t>(std::clamp<double>(pays, usual_team, max_team));
}

// Deals each node its slabs, where there are several nodes and the order of slabs does not matter. Batches
// of fewer slabs than nodes begin at another node each time. Writes the slabs node by node to
// by_length, and where each node's end to ends.
void deal_to_nodes(sie_slot *slot, int32_t *ends) {
  sie_device *device = slot->device;
  const int32_t nodes = device->seats.nodes;
  slot->lists = 0;
  if (nodes < 2 || slot->yields || slot->n_slabs == 0) return;
  const int32_t first = static_cast<int32_t>(device->runs++ % static_cast<uint64_t>(nodes));
  deal_slabs(shares_of(slot), slot->n_slabs, device->node_executors, nodes, first,
             static_cast<int32_t *>(slot->heap.p), static_cast<int32_t *>(slot->by_length.p), ends);
  slot->lists = nodes;
}

// Sizes the teams of a batch that has fewer slabs than there are executors; of another, and of one
// with long slabs, each is of one. A team is of executors of its slab's node, as far as they go: those of
// nodes that have no slab, or fewer than their slabs take, join any. Returns the sum.
int32_t size_teams(sie_slot *slot, const int32_t *ends) {
  SlabShare *const shares = shares_of(slot);
  const int32_t n = slot->n_slabs, threads = slot->device->threads;
  const bool teams = !slot->yields && n < threads;
  for (int32_t s = 0; s < n; s++) {
    shares[s].members = 1;
    shares[s].most = teams ? most_members(slot->program, shares[s].tokens) : 1;
  }
  if (!teams) return n;
  int32_t *const heap = static_cast<int32_t *>(slot->heap.p), sum = n;
  for (int32_t node = 0, begin = 0; node < slot->lists; begin = ends[node++]) {
    const int32_t *slabs = static_cast<const int32_t *>(slot->by_length.p) + begin;
    const int32_t own = ends[node] - begin, more = slot->device->node_executors[node] - own;
    sum += grow_teams(shares, slabs, own, std::min(more, threads - sum), heap);
  }
  return sum + grow_teams(shares, nullptr, n, threads - sum, heap);
}

// Writes the tickets of a list of slabs, slab by slab.
int32_t list_tickets(const SlabShare *shares, const int32_t *slabs, int32_t n, Ticket *to) {
  int32_t count = 0;
  for (int32_t i = 0; i < n; i++) {
    const int32_t slab = slabs != nullptr ? slabs[i] : i;
    for (int32_t member = 0; member < shares[slab].members; member++) to[count++] = {slab, member};
  }
  return count;
}

void list_by_node(sie_slot *slot, const int32_t *ends) {
  Ticket *tickets = static_cast<Ticket *>(slot->tickets_of_run.p);
  for (int32_t node = 0, begin = 0; node < slot->lists; begin = ends[node++]) {
    const int32_t *slabs = static_cast<const int32_t *>(slot->by_length.p) + begin;
    TicketList &list = slot->of_node[node];
    list.tickets = tickets;
    list.n = list_tickets(shares_of(slot), slabs, ends[node] - begin, tickets);
    list.left.store(list.n, std::memory_order_relaxed);
    tickets += list.n;
  }
}

}  // namespace

void plan_run(sie_slot *slot) {
  slot->yields = slot->n_long > 0;
  int32_t ends[max_nodes];
  deal_to_nodes(slot, ends);
  slot->tickets = size_teams(slot, ends);
  // Tickets of executors that join long slabs' teams.
  if (slot->yields) slot->tickets += std::min(slot->device->threads - 1, slot->n_long * (max_team - 1));
  const bool teams = !slot->yields && slot->tickets > slot->n_slabs;
  slot->ticket_of = nullptr;
  if (slot->lists > 0) {
    list_by_node(slot, ends);
  } else if (teams) {
    Ticket *const tickets = static_cast<Ticket *>(slot->tickets_of_run.p);
    list_tickets(shares_of(slot), nullptr, slot->n_slabs, tickets);
    slot->ticket_of = tickets;
  }
  const int32_t with_team = slot->yields ? slot->n_long : (teams ? slot->n_slabs : 0);
  LongTeam *first = static_cast<LongTeam *>(slot->teams.p);
  for (int32_t s = 0; s < with_team; s++) new (first + s) LongTeam();
  slot->long_left.store(slot->n_long, std::memory_order_relaxed);
  slot->long_turn = slot->arena->long_runs;
}

}  // namespace sie
