// points.h — the list of what is timed: every operation of some models under some loads.
#ifndef SIE_KERNELS_BENCH_POINTS_H
#define SIE_KERNELS_BENCH_POINTS_H

#include <functional>
#include <string>
#include <vector>

#include "tests/model_cases.h"

namespace bench {

enum class Roof { memory, bf16, fp8 };  // beside bytes: which tensor-core rate bounds it, if any

struct Point {
  std::string op;  // table entry
  const harness::ModelShape *model;
  std::string part, load, type;  // "up", "passages", "bf16"
  harness::Lengths lengths;
  Roof roof;
  std::function<std::unique_ptr<harness::Case>()> make;
  // The case without its operands.
  std::unique_ptr<harness::Case> named() const {
    const harness::NamesOnly names;
    return make();
  }

  // op=…/model=…/… as in names of Go benchmarks.
  std::string name() const;
};

const char *part_name(harness::ModelLinear part);

// Models of the catalogue: one short query, passages of 128 tokens, mixed lengths.
std::vector<Point> points();
// One small model, for devices that are emulated.
std::vector<Point> tiny_points();

// The linears alone, at row counts from a query to a full batch; for the sweep of tile variants.
struct SweepShape {
  const harness::ModelShape *model;
  harness::ModelLinear part;
  uint32_t compute;
};
std::vector<SweepShape> sweep_shapes();

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_POINTS_H
