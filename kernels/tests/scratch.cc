// scratch.cc — guarded scratch.
#include "harness.h"

namespace harness {

namespace {

// As behind Rows: AddressSanitizer itself sees an access one byte too far.
#if defined(SIE_ADDRESS_SANITIZER)
constexpr int64_t guard = 0;
#else
constexpr int64_t guard = 256;
#endif

}  // namespace

Scratch::Scratch(const sie_ops *ops, const sie_op_bounds &bounds) : memory_(nullptr), on_(stream_of(ops)) {
  bytes_ = ops->scratch_bytes(&bounds);
  int64_t size = bytes_ + guard;
  memory_ = static_cast<uint8_t *>(memory.allocate(static_cast<size_t>(size)));
  memset(memory_, 0xff, static_cast<size_t>(size));
}

sie_share Scratch::share(int32_t part, int32_t parts) { return {part, parts, memory_, bytes_, on_}; }

bool Scratch::intact() const {
  for (int64_t i = bytes_; i < bytes_ + guard; i++) {
    if (memory_[i] != 0xff) return false;
  }
  return true;
}

}  // namespace harness
