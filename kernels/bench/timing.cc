// timing.cc — graphs over replicas, turns, medians.
#include "bench/timing.h"

#include <algorithm>
#include <memory>

#include "bench/device.h"
#include "bench/mirror.h"
#include "bench/peak.h"

namespace bench {

namespace {

constexpr int turns = 15;
constexpr int64_t least_calls = 64;
constexpr double longest_case = 1.0, warm_up = 0.02;  // seconds

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}

struct Captured {
  device::Graph *graph = nullptr;
  ~Captured() { device::destroy(graph); }
};

// launches `count` times what `launch` launches.
template <typename Launch>
sie_status capture(int64_t count, Captured *captured, Launch launch) {
  if (!device::begin_capture()) return SIE_INTERNAL;
  sie_status status = SIE_OK;
  for (int64_t i = 0; i < count && status == SIE_OK; i++) status = launch(i);
  captured->graph = device::end_capture();
  if (status == SIE_OK && captured->graph == nullptr) status = SIE_INTERNAL;
  return status;
}

void warm(const Captured &captured) {
  const double begin = check::seconds();
  while (check::seconds() - begin < warm_up && device::run(captured.graph) >= 0) {
  }
}

// Median milliseconds of a graph's run; 0 when it fails.
double median_run(const Captured &captured) {
  std::vector<double> samples;
  warm(captured);
  for (int i = 0; i < turns; i++) samples.push_back(device::run(captured.graph));
  return *std::min_element(samples.begin(), samples.end()) > 0 ? quantile(samples, 0.5) : 0;
}

}  // namespace

Timer::Timer(int64_t l2_bytes, int64_t memory_bytes)
    : l2_bytes_(l2_bytes), memory_bytes_(memory_bytes), other_bytes_(2 * l2_bytes + (int64_t{32} << 20)) {
  other_ = device::allocate(static_cast<size_t>(other_bytes_));
  sink_ = static_cast<float *>(device::allocate(256));
  if (other_ == nullptr) return;
  const std::vector<uint8_t> zeros(static_cast<size_t>(other_bytes_));
  device::copy_in(other_, zeros.data(), zeros.size());
}

Timer::~Timer() {
  if (other_ != nullptr) device::release(other_);
  if (sink_ != nullptr) device::release(sink_);
}

bool Timer::empty_cache() { return peak::read(device::stream(), other_, other_bytes_, sink_) == SIE_OK; }

bool Timer::ceilings(Ceilings *c) {
  if (other_ == nullptr || sink_ == nullptr) return false;
  *c = {};
  const size_t bytes = static_cast<size_t>(std::min<int64_t>(int64_t{1} << 30, memory_bytes_ / 8));
  void *from = device::allocate(bytes), *to = device::allocate(bytes);
  bool worked = from != nullptr && to != nullptr;
  std::vector<double> samples;
  for (int i = 0; i < turns + 3 && worked; i++) {
    const double ms = device::time_copy(to, from, bytes);
    worked = ms > 0;
    if (i >= 3) samples.push_back(ms);
  }
  if (worked) c->copy_gbs = 2 * static_cast<double>(bytes) / (quantile(samples, 0.5) * 1e6);
  if (from != nullptr) device::release(from);
  if (to != nullptr) device::release(to);

  struct {
    uint32_t compute;
    double *tflops;
  } products[] = {{SIE_COMPUTE_BF16, &c->bf16_tflops}, {SIE_COMPUTE_FP8, &c->fp8_tflops}};
  for (const auto &p : products) {
    double flops = 0;
    Captured captured;
    sie_status status = capture(
        4, &captured, [&](int64_t) { return peak::products(device::stream(), p.compute, sink_, &flops); });
    if (status == SIE_UNSUPPORTED) continue;
    const double ms = status == SIE_OK ? median_run(captured) : 0;
    worked = worked && ms > 0;
    if (ms > 0) *p.tflops = 4 * flops / (ms * 1e9);
  }

  constexpr int64_t launches = 500;
  Captured captured;
  const sie_status status =
      capture(launches, &captured, [](int64_t) { return peak::nothing(device::stream()); });
  const double ms = status == SIE_OK ? median_run(captured) : 0;
  c->launch_us = ms * 1e3 / launches;
  return worked && ms > 0;
}

std::vector<Result> Timer::time(harness::Case *c, const sie_ops *table,
                                const std::vector<Implementation> &list) {
  std::vector<Result> results;
  for (const Implementation &implementation : list)
    results.push_back({implementation.name, SIE_INTERNAL, {}, 0, 0});
  harness::Scratch scratch(table, c->bounds());
  const sie_share share = scratch.share(0, 1);
  auto call = [&](const sie_ops *inner) {
    mirror::use(inner);
    const sie_status status = c->call(table, &share, 0, c->units);
    mirror::use(nullptr);
    return status;
  };
  // The scratch of this share must be resident too.
  for (size_t i = 0; i < list.size(); i++) results[i].status = call(list[i].ops);
  const int64_t footprint = std::max<int64_t>(mirror::footprint(), 1);
  const int64_t enough = std::max<int64_t>(4 * l2_bytes_, int64_t{256} << 20);
  int64_t replicas = std::min<int64_t>(std::max<int64_t>(enough / footprint + 1, 4), 128);
  replicas = std::max<int64_t>(std::min<int64_t>(replicas, memory_bytes_ / 3 / footprint), 1);
  const bool resident = mirror::resident(replicas);
  // Enough calls that the start of a graph does not count; data that comes round again has left L2
  // by then.
  const int64_t calls = (least_calls + replicas - 1) / replicas * replicas;

  std::vector<std::unique_ptr<Captured>> graphs;
  for (size_t i = 0; i < list.size(); i++) {
    graphs.emplace_back(new Captured);
    if (results[i].status != SIE_OK) continue;
    if (!resident) {
      results[i].status = SIE_OUT_OF_MEMORY;
      continue;
    }
    results[i].status = capture(calls, graphs[i].get(), [&](int64_t n) {
      mirror::select(n % replicas);
      return call(list[i].ops);
    });
    if (results[i].status == SIE_OK) warm(*graphs[i]);
  }

  std::vector<std::vector<double>> samples(list.size());
  std::vector<double> again;
  const double begin = check::seconds();
  for (int turn = 0; turn < turns && (turn < 5 || check::seconds() - begin < longest_case); turn++) {
    for (size_t i = 0; i <= list.size(); i++) {
      const size_t which = i < list.size() ? i : 0;
      if (which >= list.size() || results[which].status != SIE_OK) continue;
      const double ms = empty_cache() ? device::run(graphs[which]->graph) : -1;
      if (ms <= 0) results[which].status = SIE_DEVICE_LOST;
      (i < list.size() ? samples[which] : again).push_back(ms * 1e3 / static_cast<double>(calls));
    }
  }
  for (size_t i = 0; i < list.size(); i++) {
    if (results[i].status != SIE_OK) continue;
    std::vector<double> all = samples[i];
    if (i == 0) {
      const double p50 = quantile(samples[0], 0.5);
      results[0].noise = std::abs(quantile(again, 0.5) - p50) / p50;
      all.insert(all.end(), again.begin(), again.end());
    }
    results[i].calls = static_cast<int64_t>(all.size()) * calls;
    results[i].us = {quantile(all, 0.1), quantile(all, 0.5), quantile(all, 0.9)};
  }
  graphs.clear();
  mirror::copying();
  return results;
}

}  // namespace bench
