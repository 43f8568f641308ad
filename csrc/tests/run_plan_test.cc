// run_plan_test.cc — how executors are shared out among the slabs of a run, on made-up machines.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "device.h"
#include "model.h"
#include "run_parts.h"
#include "tests/check.h"

namespace {

// A slot with slabs of these costs, on a device with so many executors on each node. What lies behind
// each list stays as it was made: a slab that is in no batch, a ticket, a team that is closed.
struct Made {
  static constexpr int32_t untouched = -77;
  sie_device device;
  sie_program program;
  sie_arena arena;
  sie_slot slot;
  std::vector<sie::SlabShare> shares;
  std::vector<int32_t> heap, by_length;
  std::vector<sie::Ticket> tickets;
  std::vector<sie::LongTeam> teams;

  Made(const std::vector<int32_t> &executors, const std::vector<int64_t> &costs, int64_t tokens, double flops)
      : shares(costs.size() + 1), heap(costs.size() + 1), by_length(costs.size() + 1) {
    device.seats.nodes = static_cast<int32_t>(executors.size());
    device.threads = 0;
    for (size_t k = 0; k < executors.size(); k++) {
      device.node_executors[k] = executors[k];
      device.threads += executors[k];
    }
    program.token_flops = flops;
    const size_t threads = static_cast<size_t>(device.threads);
    tickets.resize(std::max(costs.size(), threads) + 1, {untouched, untouched});
    teams = std::vector<sie::LongTeam>(std::max(costs.size(), threads) + 1);
    for (sie::LongTeam &team : teams) team.close();
    for (sie::TicketList &list : slot.of_node) list.n = untouched;
    for (size_t s = 0; s < costs.size(); s++) {
      shares[s] = {};
      shares[s].cost = costs[s];
      shares[s].tokens = tokens;
      shares[s].members = shares[s].most = untouched;
    }
    shares.back() = {};
    shares.back().members = 1;
    shares.back().most = untouched;
    arena.long_runs = 41;
    slot.device = &device;
    slot.program = &program;
    slot.arena = &arena;
    slot.n_slabs = static_cast<int32_t>(costs.size());
    slot.shares.p = shares.data();
    slot.heap.p = heap.data();
    slot.by_length.p = by_length.data();
    slot.tickets_of_run.p = tickets.data();
    slot.teams.p = teams.data();
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  // Every ticket of the run, list by list.
  std::vector<sie::Ticket> all() const {
    std::vector<sie::Ticket> out;
    for (int32_t k = 0; k < slot.lists; k++) {
      const sie::TicketList &list = slot.of_node[k];
      CHECK(list.left.load() == list.n, "%d of %d tickets are left", list.left.load(), list.n);
      out.insert(out.end(), list.tickets, list.tickets + list.n);
      CHECK(k == 0 || list.tickets == slot.of_node[k - 1].tickets + slot.of_node[k - 1].n,
            "the lists of nodes %d and %d are apart", k - 1, k);
    }
    for (int32_t t = 0; slot.lists == 0 && t < slot.tickets; t++) {
      out.push_back(slot.ticket_of != nullptr ? slot.ticket_of[t] : sie::Ticket{t, 0});
    }
    return out;
  }

  // Whether only what a run needs is written: the lists of its nodes, as many tickets as are listed, and
  // a new team for each of the first `with_team` slabs.
  void check_rest(int32_t with_team) const {
    CHECK(shares.back().members == 1 && shares.back().most == untouched, "a slab of no batch is sized");
    for (int32_t k = slot.lists; k < sie::max_nodes; k++)
      CHECK(slot.of_node[k].n == untouched, "node %d of %d has a list", k, slot.lists);
    const bool listed = slot.lists > 0 || slot.ticket_of != nullptr;
    for (size_t t = listed ? static_cast<size_t>(slot.tickets) : 0; t < tickets.size(); t++)
      CHECK(tickets[t].slab == untouched, "ticket %zu of %d is written", t, slot.tickets);
    for (size_t s = 0; s < teams.size(); s++) {
      const bool is_new = s < static_cast<size_t>(with_team);
      CHECK(teams[s].closed() == !is_new, "team %zu of %d is %s", s, with_team, is_new ? "old" : "new");
    }
    CHECK(slot.long_left.load() == slot.n_long && slot.long_turn == 41, "%d long slabs in turn %llu",
          slot.long_left.load(), static_cast<unsigned long long>(slot.long_turn));
  }
};

}  // namespace

TEST(runs_use_every_executor_once) {
  model::Random random(5);
  for (int round = 0; round < 2000; round++) {
    std::vector<int32_t> executors(static_cast<size_t>(1 + random.below(4)));
    for (int32_t &e : executors) e = 1 + random.below(9);
    std::vector<int64_t> costs(static_cast<size_t>(random.below(20)));
    for (int64_t &c : costs) c = 1 + random.below(random.below(2) == 0 ? 4 : 4000);
    std::sort(costs.rbegin(), costs.rend());
    auto made = std::make_unique<Made>(executors, costs, 60, random.below(2) == 0 ? 1e5 : 1e6);
    made->slot.n_long = random.below(5) == 0 && !costs.empty() ? 1 : 0;
    sie::plan_run(&made->slot);
    const sie_slot &slot = made->slot;
    const int32_t threads = made->device.threads, n = slot.n_slabs,
                  helpers = slot.n_long > 0 ? threads - 1 : 0;
    std::vector<sie::Ticket> tickets = made->all();
    CHECK(static_cast<int32_t>(tickets.size()) == slot.tickets, "%zu tickets, not %d", tickets.size(),
          slot.tickets);
    const bool teams = slot.n_long == 0 && slot.tickets > n;
    made->check_rest(teams ? n : slot.n_long);
    CHECK(slot.yields == (slot.n_long > 0), "round %d: yields", round);
    CHECK(n > 0 || slot.lists == 0, "round %d: lists of no slabs", round);
    CHECK((slot.ticket_of != nullptr) == (teams && slot.lists == 0), "round %d: a list for no team", round);
    for (int32_t t = n; slot.n_long > 0 && t < slot.tickets; t++)
      CHECK(tickets[static_cast<size_t>(t)].slab == t, "round %d: ticket %d is no helper's", round, t);
    // Each member of each slab once, a slab's tickets one after the other from member 0 on.
    std::vector<int32_t> seen(costs.size());
    for (size_t t = 0; t + static_cast<size_t>(helpers) < tickets.size(); t++) {
      const sie::Ticket ticket = tickets[t];
      CHECK(ticket.slab >= 0 && ticket.slab < n && ticket.member == seen[static_cast<size_t>(ticket.slab)],
            "round %d: ticket %zu is member %d of slab %d", round, t, ticket.member, ticket.slab);
      CHECK(ticket.member == 0 || tickets[t - 1].slab == ticket.slab, "the tickets of slab %d are apart",
            ticket.slab);
      seen[static_cast<size_t>(ticket.slab)]++;
    }
    int32_t sum = 0, most = 0;
    for (size_t s = 0; s < costs.size(); s++) {
      CHECK(n < threads || made->shares[s].most == 1, "round %d: a team where there are slabs enough", round);
      CHECK(seen[s] == made->shares[s].members && seen[s] >= 1, "slab %zu has %d tickets, %d members", s,
            seen[s], made->shares[s].members);
      sum += seen[s];
      most += made->shares[s].most;
    }
    if (slot.n_long > 0 || n >= threads) {
      CHECK(
          sum == n && slot.lists ==
                          (slot.n_long == 0 && executors.size() > 1 && n > 0 ? made->device.seats.nodes : 0),
          "round %d: %d members of %d slabs", round, sum, n);
    } else if (n > 0) {
      // Nobody is idle but where teams have their most, and nobody waits for a member without executor.
      CHECK(sum == std::min(threads, most), "round %d: %d members for %d executors", round, sum, threads);
    }
    // On one node no member could be moved so that the last slab ended earlier.
    for (size_t a = 0; executors.size() == 1 && sum == threads && a < costs.size(); a++) {
      for (size_t b = 0; b < costs.size(); b++) {
        const sie::SlabShare &from = made->shares[a], &to = made->shares[b];
        if (from.members == 1 || to.members == to.most) continue;
        CHECK(from.cost * to.members >= to.cost * (from.members - 1),
              "round %d: slab %zu of cost %lld has %d members, slab %zu of cost %lld %d", round, a,
              static_cast<long long>(from.cost), from.members, b, static_cast<long long>(to.cost),
              to.members);
      }
    }
  }
}

// A node's own executors are members of its slabs' teams; those of a node without slabs join others.
TEST(teams_stay_on_their_node) {
  struct Case {
    int32_t executors[2];
    int64_t costs[2];
    int32_t tickets[2];
  };
  for (const Case &c : {Case{{4, 4}, {100, 90}, {4, 4}},
                        // By cost alone seven executors would compute the first slab.
                        Case{{4, 4}, {100, 10}, {4, 4}}, Case{{5, 3}, {90, 60}, {5, 3}},
                        // Both slabs end sooner on the first node, so the second's executors join them.
                        Case{{6, 2}, {100, 90}, {8, 0}}}) {
    auto made = std::make_unique<Made>(std::vector<int32_t>(c.executors, c.executors + 2),
                                       std::vector<int64_t>(c.costs, c.costs + 2), 60, 1e6);
    sie::plan_run(&made->slot);
    for (int k = 0; k < 2; k++)
      CHECK(made->slot.of_node[k].n == c.tickets[k], "slabs of %lld and %lld: %d tickets of node %d",
            static_cast<long long>(c.costs[0]), static_cast<long long>(c.costs[1]), made->slot.of_node[k].n,
            k);
  }
  auto lone = std::make_unique<Made>(std::vector<int32_t>{4, 4}, std::vector<int64_t>{100}, 60, 1e6);
  sie::plan_run(&lone->slot);
  CHECK(lone->shares[0].members == 8, "%d members", lone->shares[0].members);
}

// Teams above 16 only where there is work between two meetings.
TEST(teams_are_large_where_the_work_is) {
  struct Case {
    double flops;
    int64_t tokens;
    int32_t members;
  };
  for (const Case &c : {Case{0, 512, 16}, Case{1e6, 8, 16}, Case{4e4, 289, 17}, Case{4e4, 288, 16},
                        Case{1e6, 100, 50}, Case{1e9, 512, 64}, Case{1e30, 512, 64}}) {
    auto made = std::make_unique<Made>(std::vector<int32_t>{200}, std::vector<int64_t>{9}, c.tokens, c.flops);
    sie::plan_run(&made->slot);
    CHECK(made->shares[0].members == c.members && made->slot.tickets == c.members,
          "%g flops a token, %lld tokens: %d members, %d wanted", c.flops, static_cast<long long>(c.tokens),
          made->shares[0].members, c.members);
  }
}

// A program of few operations has more work between two meetings; one token alone has little.
TEST(teams_count_the_work_between_two_meetings) {
  struct Case {
    double flops;
    int operations;
    int32_t members;
  };
  for (const Case &c : {Case{4e4 * 17 * 17, 0, 17}, Case{4e4 * 17 * 17, 1, 17},
                        Case{4e4 * 2 * 17 * 17, 2, 17}, Case{4e4 * 3 * 20 * 20, 3, 20}}) {
    auto made = std::make_unique<Made>(std::vector<int32_t>{200}, std::vector<int64_t>{9}, 1, c.flops);
    for (int i = 0; i < c.operations; i++) made->program.plan.push({});
    sie::plan_run(&made->slot);
    CHECK(made->shares[0].members == c.members, "%d operations of %g flops: %d members, %d wanted",
          c.operations, c.flops, made->shares[0].members, c.members);
  }
}

// Runs with fewer slabs than nodes begin at each node in turn.
TEST(teams_begin_at_each_node_in_turn) {
  auto made = std::make_unique<Made>(std::vector<int32_t>{2, 2, 2}, std::vector<int64_t>{100}, 60, 1e6);
  for (int run = 0; run < 7; run++) {
    sie::plan_run(&made->slot);
    for (int k = 0; k < 3; k++) {
      const int32_t n = made->slot.of_node[k].n;
      CHECK((n > 0) == (k == run % 3), "run %d: %d tickets of node %d", run, n, k);
    }
  }
}

// A long slab is joined by as many executors as its team can take, and by no more than there are.
TEST(long_slabs_have_tickets_for_those_who_join) {
  struct Case {
    int32_t threads, long_slabs, tickets;
  };
  for (const Case &c : {Case{100, 1, 2 + 63}, Case{64, 1, 2 + 63}, Case{63, 1, 2 + 62}, Case{200, 2, 2 + 126},
                        Case{1, 1, 2}, Case{127, 2, 2 + 126}, Case{126, 2, 2 + 125}}) {
    auto made =
        std::make_unique<Made>(std::vector<int32_t>{c.threads}, std::vector<int64_t>{100, 90}, 60, 1e6);
    made->slot.n_long = c.long_slabs;
    sie::plan_run(&made->slot);
    CHECK(made->slot.tickets == c.tickets, "%d executors, %d long slabs: %d tickets, %d wanted", c.threads,
          c.long_slabs, made->slot.tickets, c.tickets);
  }
}
