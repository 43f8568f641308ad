// memory.cc — device memory and pinned memory: host pages between guards, counted.
//
// An inaccessible page lies before each allocation, and another begins less than 256 bytes after
// its end. The processor stops a kernel that strays there; a pattern around the allocation, checked
// when it is freed, finds smaller strays. Fresh memory is full of NaN. Freed pages stay
// inaccessible for a while, so that a kernel that still uses them is stopped too.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "cuda/standin/standin.h"

namespace standin {

namespace {

constexpr size_t page = 4096;
constexpr size_t alignment = 256;  // the driver's
constexpr uint8_t guard = 0xa5;
constexpr int fresh = 0xff;
constexpr size_t kept_after_free = 256;  // blocks

struct Block {
  size_t bytes = 0;
  uint8_t *mapping = nullptr;  // with an inaccessible page at both ends
  size_t mapped = 0;
  const Context *context = nullptr;
  bool pinned = false;    // host memory
  bool portable = false;  // pinned for every context
};

struct Memory {
  std::map<uintptr_t, Block> blocks;
  std::deque<Block> freed;
};

Memory &memory() {
  static Memory *all = new Memory;
  return *all;
}

size_t round_up(size_t x, size_t multiple) { return (x + multiple - 1) / multiple * multiple; }

uint8_t *address(uintptr_t p) { return reinterpret_cast<uint8_t *>(p); }

// The allocation in which p lies, or NULL. *start receives where it begins.
const Block *block_at(uintptr_t p, uintptr_t *start) {
  auto next = memory().blocks.upper_bound(p);
  if (next == memory().blocks.begin()) return nullptr;
  --next;
  *start = next->first;
  return p - next->first < next->second.bytes ? &next->second : nullptr;
}

// Returns 0 if the host has no memory.
uintptr_t allocate(size_t bytes, Block block) {
  const size_t used = round_up(round_up(bytes, alignment), page);
  block.bytes = bytes;
  block.mapped = used + 2 * page;
  void *mapping = mmap(nullptr, block.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  block.mapping = static_cast<uint8_t *>(mapping);
  if (mprotect(block.mapping + page, used, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, block.mapped);
    return 0;
  }
  uint8_t *begin = block.mapping + page, *end = begin + used;
  uint8_t *p = end - round_up(bytes, alignment);
  memset(begin, guard, static_cast<size_t>(p - begin));
  memset(p, fresh, bytes);
  memset(p + bytes, guard, static_cast<size_t>(end - p) - bytes);
  memory().blocks[reinterpret_cast<uintptr_t>(p)] = block;
  return reinterpret_cast<uintptr_t>(p);
}

void check_guards(uintptr_t start, const Block &block) {
  const uint8_t *p = address(start), *begin = block.mapping + page,
                *end = block.mapping + block.mapped - page;
  for (const uint8_t *q = begin; q < end; q++) {
    if (q == p) q += block.bytes;
    if (q < end && *q != guard) {
      die("byte %td of an allocation of %zu bytes was written", q - p, block.bytes);
    }
  }
}

void free_block(uintptr_t start) {
  auto it = memory().blocks.find(start);
  if (it == memory().blocks.end()) die("two threads free the same allocation");
  Block block = it->second;
  check_guards(start, block);
  if (!block.pinned) block.context->device->allocated -= block.bytes;
  memory().blocks.erase(it);
  // The addresses stay reserved; the host gets the memory back.
  if (mmap(block.mapping, block.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0) == MAP_FAILED) {
    die("mmap of freed memory failed");
  }
  memory().freed.push_back(block);
  if (memory().freed.size() > kept_after_free) {
    munmap(memory().freed.front().mapping, memory().freed.front().mapped);
    memory().freed.pop_front();
  }
}

// Frees the allocation that begins at p, after all work in flight has ended.
int free_after_all(Call *call, uintptr_t p, bool pinned) {
  if (call->refusal_to_free() != 0) return call->answer(call->refusal_to_free());
  if (p == 0) return call->answer(CUDA_SUCCESS);
  if (int code = forbidden_while_capturing()) return code;
  auto it = memory().blocks.find(p);
  if (it == memory().blocks.end() || it->second.pinned != pinned) return CUDA_ERROR_INVALID_VALUE;
  drain(call->lock(), it->second.context, false);
  free_block(p);
  return call->answer(CUDA_SUCCESS);
}

}  // namespace

void free_all(const Context *context) {
  std::vector<uintptr_t> own;
  for (const auto &[start, block] : memory().blocks) {
    if (block.context == context) own.push_back(start);
  }
  for (uintptr_t start : own) free_block(start);
}

void check_device_range(const Context *context, DevicePointer p, size_t bytes, const char *what) {
  uintptr_t start = 0;
  const Block *block = block_at(p, &start);
  if (block == nullptr || block->pinned) die("%s at %#llx, where no device memory is allocated", what, p);
  if (block->context->device != context->device) {
    die("%s at %#llx, which is memory of device %d, for device %d", what, p, block->context->device->ordinal,
        context->device->ordinal);
  }
  if (bytes > block->bytes - (p - start)) {
    die("%s of %zu bytes at byte %llu of an allocation of %zu bytes", what, bytes, p - start, block->bytes);
  }
}

void check_host_range(const Context *context, const void *p, size_t bytes, bool pinned, const char *what) {
  uintptr_t at = reinterpret_cast<uintptr_t>(p), start = 0;
  const Block *block = block_at(at, &start);
  if (block != nullptr && !block->pinned) die("%s at %p, which is device memory", what, p);
  if (block == nullptr && pinned) {
    die("%s at %p, which is not pinned: an asynchronous copy would wait", what, p);
  }
  if (block == nullptr) return;
  if (pinned && block->context != context && !block->portable) {
    die("%s at %p, which is pinned in another context, without CU_MEMHOSTALLOC_PORTABLE", what, p);
  }
  if (bytes > block->bytes - (at - start)) {
    die("%s of %zu bytes at byte %zu of %zu pinned bytes", what, bytes, at - start, block->bytes);
  }
}

bool is_pinned(const void *p) {
  uintptr_t start = 0;
  return block_at(reinterpret_cast<uintptr_t>(p), &start) != nullptr;
}

std::string describe_memory() {
  size_t bytes[2] = {}, blocks[2] = {};
  for (const auto &[start, block] : memory().blocks) {
    bytes[block.pinned] += block.bytes;
    blocks[block.pinned]++;
  }
  char text[128];
  snprintf(text, sizeof text, "%zu bytes in %zu blocks, pinned %zu bytes in %zu blocks", bytes[0], blocks[0],
           bytes[1], blocks[1]);
  return text;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cuMemAlloc_v2(DevicePointer *p, size_t bytes) {
  Call call("cuMemAlloc_v2");
  if (call.refusal() != 0) return call.refusal();
  if (int code = forbidden_while_capturing()) return code;
  if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device *device = call.context()->device;
  if (bytes > device->memory - std::min(device->memory, device->allocated)) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  block.context = call.context().get();
  *p = allocate(bytes, block);
  if (*p == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  device->allocated += bytes;
  return CUDA_SUCCESS;
}

STANDIN_API int cuMemFree_v2(DevicePointer p) {
  Call call("cuMemFree_v2");
  return free_after_all(&call, p, false);
}

STANDIN_API int cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
  Call call("cuMemHostAlloc");
  if (call.refusal() != 0) return call.refusal();
  if (int code = forbidden_while_capturing()) return code;
  if (p == nullptr || bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  block.context = call.context().get();
  block.pinned = true;
  block.portable = (flags & CU_MEMHOSTALLOC_PORTABLE) != 0;
  *p = address(allocate(bytes, block));
  return *p != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

STANDIN_API int cuMemFreeHost(void *p) {
  Call call("cuMemFreeHost");
  return free_after_all(&call, reinterpret_cast<uintptr_t>(p), true);
}

STANDIN_API int cuMemGetInfo_v2(size_t *free, size_t *total) {
  Call call("cuMemGetInfo_v2");
  if (call.refusal() != 0) return call.refusal();
  const Device *device = call.context()->device;
  *total = device->memory;
  *free = device->memory - std::min(device->memory, device->allocated);
  return CUDA_SUCCESS;
}

STANDIN_API int cuMemGetAddressRange_v2(DevicePointer *base, size_t *bytes, DevicePointer p) {
  Call call("cuMemGetAddressRange_v2");
  if (call.refusal() != 0) return call.refusal();
  uintptr_t start = 0;
  const Block *block = block_at(p, &start);
  if (block == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (bytes != nullptr) *bytes = block->bytes;
  return CUDA_SUCCESS;
}
