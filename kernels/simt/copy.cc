// copy.cc — cp.async: each copy happens at a moment of its own between issue and wait.
#include "simt/machine.h"

namespace simt {

bool Copy::step() {
  if (read > 0) memcpy(to, from, read);
  memset(to + read, 0, bytes - read);
  return true;
}

namespace {

// Marks the bytes as the thread's; fails where a warp has read them by ldmatrix and has not reached
// a barrier since.
void mark_copy(Fiber *fiber, uint32_t shared, uint32_t bytes) {
  Cta &cta = *fiber->cta;
  if (cta.touched.empty()) cta.touched.resize((machine.launch.shared_bytes + 15) / 16);
  const uint32_t place = (shared - shared_base) / 16;
  Touch &touch = cta.touched[place];
  if (touch.reader != 0 && cta.warps[touch.reader - 1u].met == touch.met) {
    fail("cp.async: shared bytes %u … %u, which warp %u has read by ldmatrix without a barrier behind it",
         shared - shared_base, shared - shared_base + bytes - 1, touch.reader - 1u);
  }
  touch.reader = 0;
  touch.copier = static_cast<uint16_t>(fiber->number + 1);
  fiber->unmet.emplace_back(fiber->copy_group, place);
}

}  // namespace

void arrive_at_barrier() {
  Fiber *fiber = current();
  fiber->warp->met++;
  size_t kept = 0;
  for (const auto &[group, place] : fiber->unmet) {
    if (group >= fiber->copies_awaited) {
      fiber->unmet[kept++] = {group, place};
      continue;
    }
    uint16_t &copier = fiber->cta->touched[place].copier;
    if (copier == fiber->number + 1) copier = 0;
  }
  fiber->unmet.resize(kept);
}

void read_row(Cta &cta, const Warp &warp, uint32_t address) {
  if (cta.touched.empty()) return;
  Touch &touch = cta.touched[(address - shared_base) / 16];
  if (touch.copier != 0) {
    fail("ldmatrix: shared byte %u, where thread %u copies to without a wait and a barrier behind it",
         address - shared_base, touch.copier - 1u);
  }
  touch.reader = static_cast<uint16_t>(warp.number + 1);
  touch.met = warp.met;
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
  mark_copy(fiber, shared, bytes);
  // At once, at some moment, or not before the wait: each finds races that the others hide.
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
  if (done > fiber->copies_awaited) fiber->copies_awaited = done;
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
