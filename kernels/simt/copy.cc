// copy.cc — cp.async: each copy happens at a moment of its own between issue and wait.
#include "simt/machine.h"

namespace simt {

bool Copy::step() {
  if (read > 0) memcpy(to, from, read);
  memset(to + read, 0, bytes - read);
  return true;
}

void cp_async(uint32_t shared, const void *global, uint32_t bytes, uint32_t read) {
  require(80, "cp.async");
  Fiber *fiber = current();
  if (read > 0) {
    check_global(global, bytes);
    check_written(global);
  }
  Copy copy;
  copy.to = shared_bytes(*fiber->cta, shared, bytes, bytes, "cp.async");
  copy.from = static_cast<const uint8_t *>(global);
  copy.bytes = bytes;
  copy.read = read;
  copy.group = fiber->copy_group;
  // At once, at some moment, or not before the wait: each finds races the others hide.
  uint32_t moment = random_below(3);
  if (moment == 0) {
    copy.step();
    return;
  }
  memset(copy.to, 0xff, bytes);
  fiber->copies.push_back(std::make_unique<Copy>(copy));
  if (moment == 1) float_async(fiber->copies.back().get());
}

void cp_async_commit() { current()->copy_group++; }

void cp_async_wait(int32_t pending) {
  Fiber *fiber = current();
  uint64_t groups = fiber->copy_group;
  uint64_t done = groups > static_cast<uint64_t>(pending) ? groups - static_cast<uint64_t>(pending) : 0;
  for (const std::unique_ptr<Copy> &copy : fiber->copies) {
    if (copy->group < done && !copy->finished) {
      dawdle("cp_async_wait");
      break;
    }
  }
  size_t kept = 0;
  for (std::unique_ptr<Copy> &copy : fiber->copies) {
    if (copy->group < done) {
      finish_async(copy.get());
    } else if (!copy->finished) {
      fiber->copies[kept++] = std::move(copy);
    }
  }
  fiber->copies.resize(kept);
}

}  // namespace simt
