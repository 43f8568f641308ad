// slabs_test.cc — how sequences are shared out among slabs: none is lost, bounds are kept, costs
// are balanced.
#include "slabs.h"

#include <algorithm>
#include <vector>

#include "model.h"
#include "tests/check.h"

namespace {

struct Plan {
  std::vector<sie::SlabShare> shares;
  std::vector<int32_t> order;
};

Plan plan(const std::vector<int32_t> &lengths, const sie::SlabLimits &limits) {
  size_t n = lengths.size();
  std::vector<int32_t> cu = {0};
  for (int32_t length : lengths) cu.push_back(cu.back() + length);
  Plan p;
  const int32_t guard = -77;
  p.shares.resize(n + 1);
  p.shares[n] = {guard, guard, guard, guard, guard, guard, guard};
  p.order.resize(n + 1, guard);
  std::vector<int32_t> slab_of(n + 1, guard), heap(n + 1, guard), by_length(n + 1, guard);
  sie::SlabWork work = {p.shares.data(), p.order.data(), slab_of.data(), heap.data(), by_length.data()};
  const int32_t slabs = sie::plan_slabs(cu.data(), static_cast<int32_t>(n), limits, work);
  const sie::SlabShare &behind = p.shares[n];
  CHECK(behind.cost == guard && behind.tokens == guard && behind.seqs == guard && behind.first == guard &&
            behind.max_len == guard && behind.members == guard && behind.most == guard,
        "wrote behind the shares of %zu sequences", n);
  CHECK(p.order[n] == guard && slab_of[n] == guard && heap[n] == guard && by_length[n] == guard,
        "wrote behind the room of %zu sequences", n);
  p.shares.resize(static_cast<size_t>(slabs));
  p.order.resize(n);
  return p;
}

void check_plan(const std::vector<int32_t> &lengths, const sie::SlabLimits &limits) {
  Plan p = plan(lengths, limits);
  std::vector<int> seen(lengths.size());
  int32_t next = 0;
  for (size_t s = 0; s < p.shares.size(); s++) {
    const sie::SlabShare &share = p.shares[s];
    int64_t tokens = 0, longest = 0;
    CHECK(share.first == next && share.seqs > 0, "slab %zu has %d sequences from place %d", s, share.seqs,
          share.first);
    for (int32_t i = 0; i < share.seqs; i++) {
      int32_t b = p.order[static_cast<size_t>(share.first + i)];
      seen[static_cast<size_t>(b)]++;
      tokens += lengths[static_cast<size_t>(b)];
      longest = std::max<int64_t>(longest, lengths[static_cast<size_t>(b)]);
    }
    next += share.seqs;
    CHECK(tokens == share.tokens && longest == share.max_len, "slab %zu: %lld tokens", s,
          static_cast<long long>(tokens));
    CHECK(tokens <= limits.tokens_max || share.seqs == 1, "slab %zu of %d sequences has %lld tokens", s,
          share.seqs, static_cast<long long>(tokens));
    CHECK(share.seqs <= limits.seqs_max, "slab %zu has %d sequences", s, share.seqs);
    bool is_long = share.tokens > limits.tokens_max;
    bool after_long = s > 0 && p.shares[s - 1].tokens > limits.tokens_max;
    CHECK(s == 0 || after_long || !is_long, "the long slab %zu is behind a short one", s);
    CHECK(s == 0 || after_long != is_long || share.cost <= p.shares[s - 1].cost,
          "slab %zu is dearer than the one before", s);
  }
  for (size_t b = 0; b < seen.size(); b++) CHECK(seen[b] == 1, "sequence %zu is in %d slabs", b, seen[b]);
}

}  // namespace

TEST(slabs_hold_every_sequence_once) {
  model::Random random(3);
  for (int round = 0; round < 300; round++) {
    std::vector<int32_t> lengths(static_cast<size_t>(random.below(200)));
    int32_t longest = 1 + random.below(900);
    for (int32_t &length : lengths) length = random.below(longest);
    check_plan(lengths, {1 + random.below(20), 512, 1 + random.below(512), random.below(3) * 2304});
  }
}

TEST(slabs_of_long_sequences_come_first) {
  // Without attention a slab of many short sequences costs more than a long one: 301 of one token
  // cost 602, one of 600 tokens costs 601.
  std::vector<int32_t> lengths(310, 1);
  lengths.push_back(600);
  for (int32_t executors : {1, 2, 5}) check_plan(lengths, {executors, 512, 512, 0});
  CHECK(plan(lengths, {1, 512, 512, 0}).shares[0].max_len == 600, "a short slab comes first");
}

// The cost of the executor that ends last, as a share of all executors' mean. Each takes the next slab
// when it is free.
static double makespan(const Plan &p, int32_t executors) {
  std::vector<int64_t> busy(static_cast<size_t>(executors));
  int64_t all = 0;
  for (const sie::SlabShare &share : p.shares) {
    *std::min_element(busy.begin(), busy.end()) += share.cost;
    all += share.cost;
  }
  return static_cast<double>(*std::max_element(busy.begin(), busy.end()) * executors) /
         static_cast<double>(all);
}

TEST(slabs_keep_executors_busy_alike) {
  // Texts of 8 to 512 tokens, each length as likely as half of it. Slabs of equal costs, as many for each
  // executor, leave the last one 3 % behind on two executors and 11 % on sixteen: the longest text's
  // slab is dearer than the others.
  model::Random random(29);
  for (int32_t executors : {2, 4, 8, 16}) {
    double sum = 0;
    const int rounds = 100;
    for (int round = 0; round < rounds; round++) {
      std::vector<int32_t> lengths;
      for (int32_t i = 0; i < 8 * executors; i++) {
        lengths.push_back(std::min(512, (8 << random.below(6)) * (8 + random.below(8)) / 8));
      }
      sum += makespan(plan(lengths, {executors, 512, 4096, 2304}), executors);
    }
    CHECK(sum / rounds <= 1.03, "%d executors: the last one ends after %.3f of the mean", executors,
          sum / rounds);
  }
}

TEST(slabs_use_all_executors) {
  // Sequences of 128 tokens over two executors: neither gets two more than the other.
  for (int32_t seqs : {2, 3, 4, 7, 9, 10, 64}) {
    Plan p = plan(std::vector<int32_t>(static_cast<size_t>(seqs), 128), {2, 512, 512, 2304});
    int64_t tokens[2] = {0, 0};
    for (const sie::SlabShare &share : p.shares) *std::min_element(tokens, tokens + 2) += share.tokens;
    CHECK(std::max(tokens[0], tokens[1]) - std::min(tokens[0], tokens[1]) <= 128,
          "%d passages: %lld tokens beside %lld", seqs, static_cast<long long>(tokens[0]),
          static_cast<long long>(tokens[1]));
  }
  CHECK(plan({500}, {8, 512, 512, 2304}).shares.size() == 1, "one sequence is one slab");
  CHECK(plan({10, 10, 10}, {8, 512, 512, 2304}).shares.size() == 1, "30 tokens are one slab");
  CHECK(plan({900, 3, 4}, {4, 512, 512, 2304}).shares.size() >= 2, "a long sequence is a slab of its own");
  CHECK(plan({}, {4, 512, 512, 2304}).shares.empty(), "no sequences, no slab");
  CHECK(plan(std::vector<int32_t>(1000, 0), {2, 512, 512, 2304}).shares.size() == 2,
        "empty sequences fill slabs");
}

TEST(slabs_weigh_attention_as_the_program_does) {
  // One text of 400 and many of 32 over two executors: the more attention costs, the fewer short
  // ones join the long one.
  std::vector<int32_t> lengths(40, 32);
  lengths.push_back(400);
  auto beside_long = [&lengths](int64_t balance) {
    Plan p = plan(lengths, {2, 2048, 512, balance});
    for (const sie::SlabShare &share : p.shares) {
      if (share.max_len == 400) return share.tokens;
    }
    return int64_t{-1};
  };
  CHECK(beside_long(0) == 848 || beside_long(0) == 832, "without attention: %lld tokens",
        static_cast<long long>(beside_long(0)));
  CHECK(beside_long(6144) > beside_long(384), "balance 6144: %lld tokens, 384: %lld",
        static_cast<long long>(beside_long(6144)), static_cast<long long>(beside_long(384)));
}

TEST(slabs_stay_in_their_room) {
  // As many slabs as sequences, so that every array is full.
  for (size_t n : {1, 2, 3, 8}) {
    Plan p = plan(std::vector<int32_t>(n, 600), {2, 512, 512, 2304});
    CHECK(p.shares.size() == n, "%zu texts too long to share are %zu slabs", n, p.shares.size());
  }
}

TEST(slabs_count_a_sequence_as_a_token) {
  // 70 costs 71, 67 costs 68 and 1 costs 2: so the second 1 joins the 67 too, since 68 + 2 < 71. It
  // would not if a sequence cost more.
  Plan p = plan({70, 67, 1, 1}, {2, 512, 512, 0});
  CHECK(p.shares.size() == 2, "%zu slabs", p.shares.size());
  CHECK(p.shares[0].seqs == 3 && p.shares[0].cost == 72 && p.shares[1].cost == 71,
        "slabs of %d sequences for %lld and of %d for %lld", p.shares[0].seqs,
        static_cast<long long>(p.shares[0].cost), p.shares[1].seqs, static_cast<long long>(p.shares[1].cost));
}

namespace {

// The plan by its rule alone: sequences from the longest on, each to the cheapest load; then those of
// each load, each to its cheapest slab, or to a new one if it does not fit there. Ties go to what
// comes first.
struct Slow {
  int64_t cost = 0, tokens = 0;
  std::vector<int32_t> seqs;
};

std::vector<Slow> plan_slowly(const std::vector<int32_t> &lengths, const sie::SlabLimits &limits) {
  const int64_t n = static_cast<int64_t>(lengths.size());
  int64_t tokens = 0;
  std::vector<int32_t> by_length;
  for (int32_t b = 0; b < n; b++) {
    by_length.push_back(b);
    tokens += lengths[static_cast<size_t>(b)];
  }
  auto length_of = [&lengths](int32_t b) { return int64_t{lengths[static_cast<size_t>(b)]}; };
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](int32_t a, int32_t b) { return length_of(a) > length_of(b); });
  int64_t full = 1;  // loads of at least 64 tokens
  while (full * 64 < tokens) full++;
  auto cheaper = [](const Slow &x, const Slow &y) { return x.cost < y.cost; };
  auto add = [&](Slow *to, int32_t b) {
    const int64_t length = length_of(b);
    to->cost += 1 + (limits.balance > 0 ? length * (limits.balance + length) : length);
    to->tokens += length;
    to->seqs.push_back(b);
  };
  std::vector<Slow> loads(static_cast<size_t>(std::min({int64_t{limits.executors}, full, n})));
  for (int32_t b : by_length) add(&*std::min_element(loads.begin(), loads.end(), cheaper), b);
  std::vector<Slow> slabs;
  for (const Slow &load : loads) {
    int64_t shared = 0, wanted = 0;  // tokens of sequences that share slabs; slabs
    for (int32_t b : load.seqs) {
      const bool alone = length_of(b) > limits.tokens_max;
      wanted += alone ? 1 : 0;
      shared += alone ? 0 : length_of(b);
    }
    for (int64_t room = 0; room < shared; room += limits.tokens_max) wanted++;
    wanted = std::min(std::max<int64_t>(1, wanted), static_cast<int64_t>(load.seqs.size()));
    std::vector<Slow> own(static_cast<size_t>(wanted));
    for (int32_t b : load.seqs) {
      auto cheapest = std::min_element(own.begin(), own.end(), cheaper);
      const int64_t count = static_cast<int64_t>(cheapest->seqs.size());
      if (count > 0 && (cheapest->tokens + length_of(b) > limits.tokens_max || count == limits.seqs_max)) {
        own.emplace_back();
        cheapest = own.end() - 1;
      }
      add(&*cheapest, b);
    }
    slabs.insert(slabs.end(), own.begin(), own.end());
  }
  std::stable_sort(slabs.begin(), slabs.end(), [&limits](const Slow &x, const Slow &y) {
    const bool x_long = x.tokens > limits.tokens_max, y_long = y.tokens > limits.tokens_max;
    return x_long != y_long ? x_long : x.cost > y.cost;
  });
  return slabs;
}

}  // namespace

TEST(slabs_follow_the_rule) {
  model::Random random(17);
  for (int round = 0; round < 600; round++) {
    const int64_t tokens_max = int64_t{64} << random.below(4);
    const sie::SlabLimits limits = {1 + random.below(round % 3 == 0 ? 70 : 6), tokens_max,
                                    random.below(2) == 0 ? 3 : 512, random.below(3) * 384};
    // Many of one length, so that costs are often equal.
    std::vector<int32_t> lengths(static_cast<size_t>(1 + random.below(120)));
    const int32_t step = 1 + random.below(40), most = static_cast<int32_t>(tokens_max) * 9 / 8 / step + 1;
    for (int32_t &length : lengths) length = step * random.below(most);
    const Plan got = plan(lengths, limits);
    const std::vector<Slow> want = plan_slowly(lengths, limits);
    CHECK(got.shares.size() == want.size(), "round %d: %zu slabs, %zu by the rule", round, got.shares.size(),
          want.size());
    if (got.shares.size() != want.size()) return;
    for (size_t s = 0; s < want.size(); s++) {
      const sie::SlabShare &share = got.shares[s];
      const auto first = got.order.begin() + share.first;
      CHECK(std::vector<int32_t>(first, first + share.seqs) == want[s].seqs && share.cost == want[s].cost,
            "round %d: slab %zu has %d sequences for %lld, %zu for %lld by the rule", round, s, share.seqs,
            static_cast<long long>(share.cost), want[s].seqs.size(), static_cast<long long>(want[s].cost));
    }
  }
}

// Each slab goes to the node that would end first, and of equal ones to the first around.
TEST(slabs_are_dealt_by_the_rule) {
  model::Random random(31);
  const int32_t guard = -77;
  for (int round = 0; round < 400; round++) {
    const int32_t n = random.below(30), nodes = 1 + random.below(6), first = random.below(nodes);
    std::vector<sie::SlabShare> shares(static_cast<size_t>(n));
    std::vector<int64_t> costs(static_cast<size_t>(nodes));
    std::vector<int32_t> executors(costs.size()), ends(costs.size() + 1, guard);
    std::vector<int32_t> work(shares.size() + 1, guard), order(shares.size() + 1, guard);
    for (auto &s : shares) s.cost = 1 + random.below(6);  // so that ends are often equal
    for (auto &e : executors) e = 1 + random.below(3);
    sie::deal_slabs(shares.data(), n, executors.data(), nodes, first, work.data(), order.data(), ends.data());
    std::vector<std::vector<int32_t>> lists(costs.size());
    for (int32_t s = 0; s < n; s++) {
      const int64_t cost = shares[static_cast<size_t>(s)].cost;
      size_t best = static_cast<size_t>(first);
      for (int32_t i = 1; i < nodes; i++) {
        const size_t node = static_cast<size_t>((first + i) % nodes);
        if ((costs[node] + cost) * executors[best] < (costs[best] + cost) * executors[node]) best = node;
      }
      costs[best] += cost;
      lists[best].push_back(s);
    }
    std::vector<int32_t> want, want_ends;
    for (const auto &list : lists) {
      want.insert(want.end(), list.begin(), list.end());
      want_ends.push_back(static_cast<int32_t>(want.size()));
    }
    CHECK(work.back() == guard && order.back() == guard && ends.back() == guard, "wrote behind its room");
    order.pop_back();
    ends.pop_back();
    CHECK(order == want && ends == want_ends, "round %d: %d slabs on %d nodes are dealt otherwise", round, n,
          nodes);
  }
}

// Each member goes to the listed slab with the most cost for a member, and of equal ones to the lowest
// number.
TEST(teams_grow_by_the_rule) {
  model::Random random(47);
  const int32_t guard = -77;
  for (int round = 0; round < 600; round++) {
    const int32_t n = random.below(20), more = random.below(70) - 2;
    std::vector<sie::SlabShare> shares(static_cast<size_t>(n));
    std::vector<int32_t> listed;
    for (int32_t s = 0; s < n; s++) {
      sie::SlabShare &share = shares[static_cast<size_t>(s)];
      share.cost = 1 + random.below(round % 2 == 0 ? 6 : 5000);  // often equal; seldom
      share.members = 1 + random.below(3);
      share.most = share.members + random.below(9);
      if (round % 3 == 0 || random.below(2) == 0) listed.push_back(s);
    }
    std::vector<sie::SlabShare> want = shares;
    int32_t given = 0;
    for (; given < more; given++) {
      sie::SlabShare *last = nullptr;
      for (int32_t s : listed) {
        sie::SlabShare &share = want[static_cast<size_t>(s)];
        if (share.members == share.most) continue;
        if (last == nullptr || share.cost * last->members > last->cost * share.members) last = &share;
      }
      if (last == nullptr) break;
      last->members++;
    }
    std::vector<int32_t> work(listed.size() + 1, guard);
    const bool all = listed.size() == shares.size();
    const int32_t got = sie::grow_teams(shares.data(), all ? nullptr : listed.data(),
                                        static_cast<int32_t>(listed.size()), more, work.data());
    CHECK(got == given, "round %d: %d members were given, not %d", round, got, given);
    CHECK(work.back() == guard, "wrote behind its room");
    for (int32_t s = 0; s < n; s++) {
      const sie::SlabShare &a = shares[static_cast<size_t>(s)], &b = want[static_cast<size_t>(s)];
      CHECK(a.members == b.members, "round %d: slab %d has %d members, not %d", round, s, a.members,
            b.members);
    }
  }
}
