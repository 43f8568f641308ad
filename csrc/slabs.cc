// slabs.cc — longest-processing-time packing of sequences: into loads, and each load into slabs.
#include "slabs.h"

#include <algorithm>

#include "topology.h"

namespace sie {

namespace {

// With fewer tokens, a GEMM's row blocks are not full.
constexpr int64_t tokens_min = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Linear layers, and attention, which grows with the square of the length. The 1 spreads empty
// sequences over slabs.
int64_t cost_of(int64_t length, int64_t balance) {
  return (balance > 0 ? length * (balance + length) : length) + 1;
}

// One load for each executor, as long as it gets a full row block.
int32_t loads_wanted(int64_t tokens, int32_t n_seqs, int32_t executors) {
  int64_t full = std::max<int64_t>(1, ceil_div(tokens, tokens_min));
  return static_cast<int32_t>(std::min<int64_t>({executors, full, n_seqs}));
}

// A binary min-heap of slab numbers by cost; ties go to the lower number.
class Heap {
 public:
  Heap(int32_t *items, const SlabShare *shares) : items_(items), shares_(shares) {}

  void clear() { size_ = 0; }
  int32_t top() const { return items_[0]; }

  void push(int32_t slab) {
    int32_t i = size_++;
    for (; i > 0 && before(slab, items_[(i - 1) / 2]); i = (i - 1) / 2) items_[i] = items_[(i - 1) / 2];
    items_[i] = slab;
  }

  // Moves the top to its place after its cost has grown.
  void settle_top() {
    int32_t slab = items_[0], i = 0;
    for (;;) {
      int32_t child = 2 * i + 1;
      if (child >= size_) break;
      if (child + 1 < size_ && before(items_[child + 1], items_[child])) child++;
      if (!before(items_[child], slab)) break;
      items_[i] = items_[child];
      i = child;
    }
    items_[i] = slab;
  }

 private:
  bool before(int32_t a, int32_t b) const {
    return shares_[a].cost != shares_[b].cost ? shares_[a].cost < shares_[b].cost : a < b;
  }

  int32_t *items_;
  const SlabShare *shares_;
  int32_t size_ = 0;
};

bool fits(const SlabShare &slab, int64_t length, const SlabLimits &limits) {
  return slab.seqs == 0 || (slab.tokens + length <= limits.tokens_max && slab.seqs < limits.seqs_max);
}

void add(SlabShare *slab, int64_t length, int64_t balance) {
  slab->cost += cost_of(length, balance);
  slab->tokens += length;
  slab->seqs++;
  slab->max_len = std::max(slab->max_len, length);
}

// The slabs that hold a load's sequences if they are packed well: one for each long sequence, and
// full ones for the others.
struct Load {
  int64_t tokens = 0;  // of sequences that share slabs
  int32_t seqs = 0, alone = 0;

  void add(int64_t length, const SlabLimits &limits) {
    seqs++;
    if (length > limits.tokens_max) {
      alone++;
    } else {
      tokens += length;
    }
  }
  int32_t slabs(const SlabLimits &limits) const {
    int64_t full = ceil_div(tokens, limits.tokens_max);
    return static_cast<int32_t>(std::min<int64_t>(seqs, std::max<int64_t>(1, alone + full)));
  }
};

}  // namespace

int32_t plan_slabs(const int32_t *cu, int32_t n_seqs, const SlabLimits &limits, const SlabWork &work) {
  if (n_seqs == 0) return 0;
  auto length_of = [cu](int32_t b) { return int64_t{cu[b + 1]} - cu[b]; };
  for (int32_t b = 0; b < n_seqs; b++) work.by_length[b] = b;
  std::sort(work.by_length, work.by_length + n_seqs, [&length_of](int32_t a, int32_t b) {
    return length_of(a) != length_of(b) ? length_of(a) > length_of(b) : a < b;
  });

  // Loads first: each sequence to the cheapest. The shares hold their costs.
  const int32_t loads = loads_wanted(cu[n_seqs], n_seqs, limits.executors);
  Heap heap(work.heap, work.shares);
  auto begin = [&work, &heap](int32_t share) {
    work.shares[share] = {};
    heap.push(share);
  };
  for (int32_t l = 0; l < loads; l++) begin(l);
  for (int32_t i = 0; i < n_seqs; i++) {
    work.slab_of[i] = heap.top();
    add(&work.shares[heap.top()], length_of(work.by_length[i]), limits.balance);
    heap.settle_top();
  }

  // The places in length order, load by load. The heap's memory holds where each load goes on.
  int32_t *by_load = work.order, *next = work.heap;
  for (int32_t l = 0, first = 0; l < loads; l++) {
    next[l] = first;
    first += work.shares[l].seqs;
  }
  for (int32_t i = 0; i < n_seqs; i++) by_load[next[work.slab_of[i]]++] = i;

  // Each load's slabs, over the shares of the loads, which nothing reads any more.
  int32_t slabs = 0;
  for (int32_t i = 0, end = 0; i < n_seqs;) {
    Load load;
    for (int32_t l = work.slab_of[by_load[i]]; end < n_seqs && work.slab_of[by_load[end]] == l; end++) {
      load.add(length_of(work.by_length[by_load[end]]), limits);
    }
    heap.clear();
    for (int32_t s = load.slabs(limits); s > 0; s--) begin(slabs++);
    for (; i < end; i++) {
      const int64_t length = length_of(work.by_length[by_load[i]]);
      int32_t slab = heap.top();
      if (fits(work.shares[slab], length, limits)) {
        add(&work.shares[slab], length, limits.balance);
        heap.settle_top();
      } else {
        slab = slabs++;
        work.shares[slab] = {};
        add(&work.shares[slab], length, limits.balance);
        heap.push(slab);
      }
      work.slab_of[by_load[i]] = slab;
    }
  }

  // Long slabs come first. Among the others the most expensive run first, and the cheap ones fill
  // the gaps at the end. The heap's memory now holds the ranking.
  int32_t *ranked = work.heap;
  for (int32_t s = 0; s < slabs; s++) ranked[s] = s;
  std::sort(ranked, ranked + slabs, [&work, &limits](int32_t a, int32_t b) {
    const SlabShare &x = work.shares[a], &y = work.shares[b];
    bool x_long = x.tokens > limits.tokens_max, y_long = y.tokens > limits.tokens_max;
    if (x_long != y_long) return x_long;
    return x.cost != y.cost ? x.cost > y.cost : a < b;
  });
  int32_t first = 0;
  for (int32_t r = 0; r < slabs; r++) {
    work.shares[ranked[r]].first = first;
    first += work.shares[ranked[r]].seqs;
  }
  for (int32_t i = 0; i < n_seqs; i++) work.order[work.shares[work.slab_of[i]].first++] = work.by_length[i];
  for (int32_t s = 0; s < slabs; s++) work.shares[s].first -= work.shares[s].seqs;
  std::sort(work.shares, work.shares + slabs,
            [](const SlabShare &a, const SlabShare &b) { return a.first < b.first; });
  return slabs;
}

int32_t grow_teams(SlabShare *shares, const int32_t *slabs, int32_t n, int32_t more, int32_t *work) {
  // A heap of the slabs whose teams can grow; at its top the one that would end last.
  auto ends_before = [shares](int32_t a, int32_t b) {
    const double x = static_cast<double>(shares[a].cost) / shares[a].members,
                 y = static_cast<double>(shares[b].cost) / shares[b].members;
    return x != y ? x < y : a > b;
  };
  int32_t growing = 0, given = 0;
  for (int32_t i = 0; i < n; i++) {
    const int32_t slab = slabs != nullptr ? slabs[i] : i;
    if (shares[slab].members < shares[slab].most) work[growing++] = slab;
  }
  std::make_heap(work, work + growing, ends_before);
  for (; given < more && growing > 0; given++) {
    std::pop_heap(work, work + growing, ends_before);
    const int32_t slab = work[growing - 1];
    if (++shares[slab].members == shares[slab].most) {
      growing--;
    } else {
      std::push_heap(work, work + growing, ends_before);
    }
  }
  return given;
}

void deal_slabs(const SlabShare *shares, int32_t n, const int32_t *executors, int32_t nodes, int32_t first,
                int32_t *work, int32_t *order, int32_t *ends) {
  double costs[max_nodes] = {};
  std::fill(ends, ends + nodes, 0);
  for (int32_t s = 0; s < n; s++) {
    int32_t best = first;
    double soonest = 0;
    for (int32_t i = 0; i < nodes; i++) {
      int32_t node = (first + i) % nodes;
      double end = (costs[node] + static_cast<double>(shares[s].cost)) / executors[node];
      if (i > 0 && end >= soonest) continue;
      best = node;
      soonest = end;
    }
    costs[best] += static_cast<double>(shares[s].cost);
    work[s] = best;
    ends[best]++;
  }
  for (int32_t node = 1; node < nodes; node++) ends[node] += ends[node - 1];
  for (int32_t s = n - 1; s >= 0; s--) order[--ends[work[s]]] = s;
  // Each end has become its node's beginning, which is the end of the node before.
  for (int32_t node = 0; node < nodes; node++) ends[node] = node + 1 < nodes ? ends[node + 1] : n;
}

}  // namespace sie
