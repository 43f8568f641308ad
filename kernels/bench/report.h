// report.h — results as lines of Go benchmarks on standard output, and as JSON lines in a file.
#ifndef SIE_KERNELS_BENCH_REPORT_H
#define SIE_KERNELS_BENCH_REPORT_H

#include <stdio.h>

#include "bench/device.h"
#include "bench/points.h"
#include "bench/timing.h"

namespace bench {

class Report {
 public:
  // json: file to write, or "" for none; null when it cannot be written (perror).
  static std::unique_ptr<Report> open(const std::string &json);
  ~Report();
  void device(const device::Info &info, const Ceilings &ceilings, const std::string &cublaslt);
  // Reports c's bytes() and flops() against the ceilings given to device(), and what was predicted. Forms that an
  // implementation lacks appear in the JSON alone.
  void result(const Point &point, const harness::Case &c, const Result &result);
  // Reports the ceilings again at the end of the run: a card that warmed up has others.
  void drift(const Ceilings &ceilings);

  // The least time a case can take, in microseconds, and the ceiling that sets it: "bytes", "flops"
  // or "launch".
  static double floor_us(const Ceilings &ceilings, Roof roof, double bytes, double flops, const char **bound);

 private:
  Report() = default;
  FILE *json_ = nullptr;
  Ceilings ceilings_;
  std::string gpu_;
  bool hopper_ = false;  // the card is one that the cost model knows
};

// The text as a JSON string with its quotes.
std::string quoted(const std::string &text);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_REPORT_H
