// at_end.h — memory that ends where nobody may read on, and the reference's answer to compare with, for
// tests that call the host's tables one by one.
#ifndef SIE_KERNELS_TESTS_AT_END_H
#define SIE_KERNELS_TESTS_AT_END_H

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

namespace at_end {

using namespace harness;

// `count` elements between memory that nobody may touch: right before its end, or from its start on.
template <typename T>
class AtEnd {
 public:
  explicit AtEnd(int64_t count, T value = {}, bool from_start = false) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                 used = static_cast<size_t>(count) * sizeof(T);
    const size_t pages = (used + page - 1) / page * page;
    bytes_ = page + pages + page;
    memory_ = static_cast<char *>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(memory_ != MAP_FAILED && mprotect(memory_ + page, pages, PROT_READ | PROT_WRITE) == 0,
          "no memory of pages");
    data_ = reinterpret_cast<T *>(memory_ + page + (from_start ? 0 : pages - used));
    for (int64_t i = 0; i < count; i++) data_[i] = value;
  }
  AtEnd(const AtEnd &) = delete;
  AtEnd &operator=(const AtEnd &) = delete;
  ~AtEnd() { munmap(memory_, bytes_); }
  T *data() const { return data_; }

 private:
  size_t bytes_;
  char *memory_;
  T *data_;
};

inline sie_tensor of(void *p, int64_t ld, int32_t dtype) {
  sie_tensor t = {};
  t.p = p, t.ld = ld, t.dtype = dtype;
  return t;
}

inline std::vector<const sie_ops *> tables() {
  std::vector<const sie_ops *> all;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) == nullptr) all.push_back(ops);
  }
  return all;
}

inline sie_share whole() {
  alignas(64) static char scratch[1 << 16];
  return {0, 1, scratch, sizeof scratch, nullptr};
}

// What the reference makes of the same call: y is compared by bytes, so inputs are small integers, or
// by `relative` of the largest value.
inline void close_to(const char *name, const std::vector<float> &y, const std::vector<float> &want,
                     double relative) {
  double largest = 0;
  for (float v : want) {
    if (isfinite(v)) largest = fmax(largest, fabs(static_cast<double>(v)));
  }
  for (size_t i = 0; i < y.size(); i++) {
    if (y[i] == want[i] || (isnan(y[i]) && isnan(want[i]))) continue;
    const double off = fabs(static_cast<double>(y[i]) - static_cast<double>(want[i]));
    if (off <= relative * largest) continue;
    CHECK(false, "%s: y[%zu] = %g, %g expected", name, i, static_cast<double>(y[i]),
          static_cast<double>(want[i]));
    return;
  }
}

// The integer i of a row that repeats with no period of a vector's.
inline float small(int64_t i) { return static_cast<float>(i * 7 % 11 - 4); }

}  // namespace at_end

#endif  // SIE_KERNELS_TESTS_AT_END_H
