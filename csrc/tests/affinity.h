// affinity.h — a made-up affinity mask in place of the kernel's, for code that reads or sets it.
//
// The test binary is linked with --wrap, which redirects csrc's system calls here.
#ifndef SIE_CSRC_TESTS_AFFINITY_H
#define SIE_CSRC_TESTS_AFFINITY_H

#include <stdint.h>

#include <initializer_list>
#include <mutex>
#include <vector>

namespace affinity {

using Mask = std::vector<unsigned long>;

// The mask with these CPUs, of 65,536.
Mask mask_of(std::initializer_list<int32_t> cpus);

// While it lives, every thread has the mask `mine`, of which the kernel tells the first `bytes` bytes,
// or fails where bytes is −1; and what threads are kept on is noted.
class Made {
 public:
  explicit Made(std::initializer_list<int32_t> cpus);
  ~Made();
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  Mask mine;
  long bytes = 8192;
  // The masks that threads were kept on, ascending.
  std::vector<Mask> kept();
  long call(long number, const long *arguments);

 private:
  std::mutex lock_;
  std::vector<Mask> kept_;
};

}  // namespace affinity

#endif  // SIE_CSRC_TESTS_AFFINITY_H
