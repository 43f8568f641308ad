// Planted faults: each kernel is right without Fault and wrong with it. The right kernel must pass
// under every seed. The wrong one must be noticed under most seeds, by an abort that names the rule
// or by a wrong result. Each run has a process of its own.
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

constexpr int wrong_result = 3;
constexpr const char *anything = "";

// Runs body (0: right result) with a seed in a child. Returns its exit status or minus the signal,
// and its stderr.
int run_in_child(int (*body)(), uint64_t seed, std::string *said) {
  int ends[2];
  fflush(nullptr);
  if (pipe(ends) != 0) return -1000;
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], 2);
    close(ends[1]);
    simt::seed(seed);
    _exit(body());
  }
  close(ends[1]);
  said->clear();
  char buffer[4096];
  for (;;) {
    ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said->append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Expectation {
  const char *says;  // part of the message of the abort; NULL: a wrong result; anything: either
  int of_ten;        // runs in ten that notice, at least
};

void check_fault(const char *name, int (*right)(), int (*wrong)(), Expectation expect) {
  std::string said;
  int noticed = 0;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    int status = run_in_child(right, seed, &said);
    CHECK(status == 0, "%s, as it should be, seed %d: status %d\n%s", name, static_cast<int>(seed), status,
          said.c_str());
    status = run_in_child(wrong, seed, &said);
    bool aborted = status == -SIGABRT && said.find("simt: kernel") == 0;
    bool as_expected = expect.says != nullptr ? aborted && said.find(expect.says) != std::string::npos &&
                                                    said.find("SIE_SIMT_SEED=") != std::string::npos
                                              : status == wrong_result;
    if (expect.says == anything) as_expected = as_expected || status == wrong_result;
    CHECK(as_expected || status == 0, "%s, seed %d: status %d, not as expected\n%s", name,
          static_cast<int>(seed), status, said.c_str());
    noticed += as_expected;
  }
  CHECK(noticed >= expect.of_ten, "%s: noticed in %d of 10 runs", name, noticed);
}

#define FAULT(name, says, of_ten) \
  TEST(fault_##name) { check_fault(#name, name<false>, name<true>, Expectation{says, of_ten}); }

// ---- races that give wrong results

template <bool Fault>
__global__ void reverse_kernel(const int *in, int *out) {
  SIE_DYNAMIC_SHARED(shared);
  int *values = reinterpret_cast<int *>(shared);
  values[threadIdx.x] = in[threadIdx.x];
  if (!Fault) __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

template <bool Fault>
int missing_syncthreads() {
  std::vector<int> in(128), out(128);
  for (int i = 0; i < 128; i++) in[static_cast<size_t>(i)] = i;
  if (SIE_LAUNCH(reverse_kernel<Fault>, 1, 128, 512, &on_sm80, in.data(), out.data()) != SIE_OK) return 2;
  for (int i = 0; i < 128; i++) {
    if (out[static_cast<size_t>(i)] != 127 - i) return wrong_result;
  }
  return 0;
}
FAULT(missing_syncthreads, nullptr, 10)

// The second of two: values are overwritten before all have read them.
template <bool Fault>
__global__ void two_rounds_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  int *values = reinterpret_cast<int *>(shared);
  int sum = 0;
  for (int round = 0; round < 2; round++) {
    values[threadIdx.x] = round * 1000 + static_cast<int>(threadIdx.x);
    __syncthreads();
    sum += values[blockDim.x - 1 - threadIdx.x];
    if (!Fault) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

template <bool Fault>
int write_after_read() {
  std::vector<int> out(128);
  if (SIE_LAUNCH(two_rounds_kernel<Fault>, 1, 128, 512, &on_sm80, out.data()) != SIE_OK) return 2;
  for (int i = 0; i < 128; i++) {
    if (out[static_cast<size_t>(i)] != 1000 + 2 * (127 - i)) return wrong_result;
  }
  return 0;
}
FAULT(write_after_read, nullptr, 10)

// The first warp overwrites what the others read, after so many barriers of its own that only a
// warp that leaves the barrier late has not read it yet.
template <bool Fault>
__global__ void far_ahead_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  int *values = reinterpret_cast<int *>(shared);
  const int t = static_cast<int>(threadIdx.x);
  if (t < 32) values[t] = t;
  __syncthreads();
  if (t < 32) {
    for (int i = 0; i < 40; i++) __syncwarp();
    if (Fault) values[t] = -1;
  } else {
    out[t] = values[t % 32];
  }
}

template <bool Fault>
int late_from_a_barrier() {
  std::vector<int> out(512);
  // One launch in four has a late warp.
  for (int run = 0; run < 20; run++) {
    if (SIE_LAUNCH(far_ahead_kernel<Fault>, 1, 512, 128, &on_sm80, out.data()) != SIE_OK) return 2;
    for (int i = 32; i < 512; i++) {
      if (out[static_cast<size_t>(i)] != i % 32) return wrong_result;
    }
  }
  return 0;
}
FAULT(late_from_a_barrier, nullptr, 9)

enum class CopyFault { none, wait, reuse };

// Chunks of 512 bytes through two buffers, summed.
template <CopyFault Fault>
__global__ void stream_kernel(const int *in, int *out, int chunks) {
  SIE_DYNAMIC_SHARED(shared);
  int *buffers = reinterpret_cast<int *>(shared);
  uint32_t t = threadIdx.x;
  auto load = [&](int chunk) {
    if (chunk < chunks && t < 32) cp_async_16(buffers + chunk % 2 * 128 + 4 * t, in + chunk * 128 + 4 * t);
    cp_async_commit();
  };
  load(0);
  int sum = 0;
  for (int chunk = 0; chunk < chunks; chunk++) {
    load(chunk + 1);
    if (Fault != CopyFault::wait) cp_async_wait<1>();
    __syncthreads();
    sum += buffers[chunk % 2 * 128 + 127 - static_cast<int>(t)];
    if (Fault != CopyFault::reuse) __syncthreads();
  }
  out[t] = sum;
}

template <CopyFault Fault>
int run_stream() {
  const int chunks = 6;
  Aligned<int> in(chunks * 128);
  for (int i = 0; i < chunks * 128; i++) in[static_cast<size_t>(i)] = i;
  std::vector<int> out(128);
  if (SIE_LAUNCH(stream_kernel<Fault>, 1, 128, 1024, &on_sm80, in.data(), out.data(), chunks) != SIE_OK)
    return 2;
  for (int t = 0; t < 128; t++) {
    int want = 0;
    for (int chunk = 0; chunk < chunks; chunk++) want += chunk * 128 + 127 - t;
    if (out[static_cast<size_t>(t)] != want) return wrong_result;
  }
  return 0;
}
template <bool Fault>
int missing_copy_wait() {
  return run_stream<Fault ? CopyFault::wait : CopyFault::none>();
}
template <bool Fault>
int copy_into_a_buffer_in_use() {
  return run_stream<Fault ? CopyFault::reuse : CopyFault::none>();
}
FAULT(missing_copy_wait, nullptr, 10)
FAULT(copy_into_a_buffer_in_use, nullptr, 9)

// The copied bytes are the ones already there: only the poison shows that nobody waited.
template <bool Fault>
__global__ void same_bytes_kernel(const int *in, int *out) {
  SIE_DYNAMIC_SHARED(shared);
  for (int i = 0; i < 4; i++) {
    cp_async_16(shared + 16 * threadIdx.x, in + 4 * threadIdx.x);
    if (i == 0 || !Fault) cp_async_wait_all();
    out[threadIdx.x] = reinterpret_cast<int *>(shared)[4 * threadIdx.x];
    if (out[threadIdx.x] == -1) return;
  }
}
template <bool Fault>
int copy_of_the_same_bytes_read_too_early() {
  Aligned<int> in(128);
  for (size_t i = 0; i < 128; i++) in[i] = 5;
  std::vector<int> out(32);
  if (SIE_LAUNCH(same_bytes_kernel<Fault>, 1, 32, 512, &on_sm80, in.data(), out.data()) != SIE_OK) return 2;
  for (int x : out) {
    if (x != 5) return wrong_result;
  }
  return 0;
}
FAULT(copy_of_the_same_bytes_read_too_early, nullptr, 10)

// wait<1> where the youngest group is read.
template <bool Fault>
__global__ void youngest_group_kernel(const int *in, int *out) {
  SIE_DYNAMIC_SHARED(shared);
  cp_async_16(shared + 16 * threadIdx.x, in);
  cp_async_commit();
  cp_async_16(shared + 512 + 16 * threadIdx.x, in);
  cp_async_commit();
  Fault ? cp_async_wait<1>() : cp_async_wait<0>();
  out[threadIdx.x] = *reinterpret_cast<int *>(shared + 512 + 16 * threadIdx.x);
}
template <bool Fault>
int copy_wait_for_one_group_less() {
  Aligned<int> in(4);
  for (int &x : in) x = 5;
  std::vector<int> out(32);
  if (SIE_LAUNCH(youngest_group_kernel<Fault>, 1, 32, 1024, &on_sm80, in.data(), out.data()) != SIE_OK)
    return 2;
  for (int x : out) {
    if (x != 5) return wrong_result;
  }
  return 0;
}
FAULT(copy_wait_for_one_group_less, nullptr, 10)

// Each lane waits for its own copy; ldmatrix reads those of all lanes, and the next copies go over
// what it reads.
enum class RowFault { none, copied, read };

template <RowFault Fault>
__global__ void rows_kernel(const uint8_t *in, uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t sum = 0;
  for (int i = 0; i < 2; i++) {
    cp_async_16(shared + 16 * threadIdx.x, in + 16 * threadIdx.x);
    cp_async_wait_all();
    if (Fault != RowFault::copied) __syncwarp();
    uint32_t r[4];
    ldmatrix_x4(r, shared + 16 * threadIdx.x);
    if (Fault != RowFault::read) __syncwarp();
    sum += r[0] + r[3];
  }
  out[threadIdx.x] = sum;
}
template <RowFault Fault>
int run_rows() {
  Aligned<uint8_t> in(512);
  std::vector<uint32_t> out(32);
  return SIE_LAUNCH(rows_kernel<Fault>, 1, 32, 512, &on_sm80, in.data(), out.data()) == SIE_OK ? 0 : 2;
}
template <bool Fault>
int rows_of_others_without_a_barrier() {
  return run_rows<Fault ? RowFault::copied : RowFault::none>();
}
template <bool Fault>
int copy_onto_rows_just_read() {
  return run_rows<Fault ? RowFault::read : RowFault::none>();
}
FAULT(rows_of_others_without_a_barrier, "copies to without a wait and a barrier behind it", 10)
FAULT(copy_onto_rows_just_read, "read by ldmatrix without a barrier behind it", 10)

template <bool Fault>
__global__ void warp_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  int *values = reinterpret_cast<int *>(shared);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!Fault) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 31u];
}
template <bool Fault>
int missing_syncwarp() {
  std::vector<int> out(32);
  if (SIE_LAUNCH(warp_kernel<Fault>, 1, 32, 128, &on_sm80, out.data()) != SIE_OK) return 2;
  for (int i = 0; i < 32; i++) {
    if (out[static_cast<size_t>(i)] != (i ^ 31)) return wrong_result;
  }
  return 0;
}
FAULT(missing_syncwarp, nullptr, 10)

// ---- Hopper's pipelines

enum class PipeFault {
  none,
  full_wait,
  empty_wait,
  wgmma_wait,
  release_early,
  fence,
  init_fence,
  keep,
  touch,
  expect_less,
  expect_more,
  no_expect,
  leave
};

// out[64, 8] = Σ over chunks of A·Bᵀ: a producer warp with TMA, a consumer warpgroup with wgmma,
// two slots.
template <PipeFault Fault>
__global__ void pipe_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                            float *out, int chunks) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *full = reinterpret_cast<uint64_t *>(shared), *empty = full + 2;
  uint8_t *slots = shared + 1024;
  constexpr uint32_t a_bytes = 8192, slot_bytes = a_bytes + 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, 1);
    }
    if (Fault != PipeFault::init_fence) fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x != 128) return;
    for (int chunk = 0; chunk < chunks; chunk++) {
      int slot = chunk % 2;
      if (Fault != PipeFault::empty_wait)
        mbarrier_wait(empty + slot, static_cast<uint32_t>(chunk / 2 + 1) & 1u);
      uint8_t *at = slots + static_cast<uint32_t>(slot) * slot_bytes;
      uint32_t bytes = Fault == PipeFault::expect_less   ? slot_bytes - 16
                       : Fault == PipeFault::expect_more ? slot_bytes + 16
                                                         : slot_bytes;
      if (Fault == PipeFault::no_expect) {
        mbarrier_arrive(full + slot);
      } else {
        mbarrier_arrive_expect(full + slot, bytes);
      }
      tma_load_2d(at, &a, 0, chunk * 64, full + slot);
      tma_load_2d(at + a_bytes, &b, 0, chunk * 64, full + slot);
    }
    return;
  }
  float d[4] = {};
  for (int chunk = 0; chunk < chunks; chunk++) {
    int slot = chunk % 2;
    if (Fault != PipeFault::full_wait) mbarrier_wait(full + slot, static_cast<uint32_t>(chunk / 2) & 1u);
    const uint8_t *at = slots + static_cast<uint32_t>(slot) * slot_bytes;
    uint64_t da = wgmma_descriptor(at, Swizzle::b128, 1024),
             db = wgmma_descriptor(at + a_bytes, Swizzle::b128, 1024);
    if (Fault != PipeFault::fence) wgmma_fence();
    for (uint32_t k = 0; k < 4; k++)
      wgmma<Operand::bf16, 8>(d, wgmma_advance(da, 32 * k), wgmma_advance(db, 32 * k), 1);
    wgmma_commit();
    if (Fault == PipeFault::touch) d[0] = 0.0f;
    if (Fault == PipeFault::release_early && threadIdx.x == 0) mbarrier_arrive(empty + slot);
    if (Fault != PipeFault::wgmma_wait && Fault != PipeFault::leave) wgmma_wait<0>();
    if (Fault != PipeFault::release_early && threadIdx.x == 0) mbarrier_arrive(empty + slot);
  }
  if (Fault == PipeFault::leave) return;
  if (Fault != PipeFault::keep) wgmma_keep(d);
  float copy[4] = {d[0], d[1], d[2], d[3]};
  if (Fault == PipeFault::wgmma_wait) wgmma_wait<0>();
  uint32_t t = threadIdx.x;
  for (uint32_t i = 0; i < 4; i++)
    out[(t / 32 * 16 + t % 32 / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = copy[i];
}

template <PipeFault Fault>
int run_pipe() {
  const int chunks = 6, k = 64 * chunks;
  Aligned<uint16_t> a(static_cast<size_t>(64 * k)), b(static_cast<size_t>(8 * k));
  Random random(5);
  std::vector<int> ia(a.size()), ib(b.size());
  for (size_t i = 0; i < a.size(); i++) a[i] = to_bf16(static_cast<float>(ia[i] = random.below(7) - 3));
  for (size_t i = 0; i < b.size(); i++) b[i] = to_bf16(static_cast<float>(ib[i] = random.below(7) - 3));
  TensorMap ma, mb;
  if (tensor_map_2d(&ma, SIE_BF16, a.data(), 64, k, k, 64, 64, Swizzle::b128) != SIE_OK) return 2;
  if (tensor_map_2d(&mb, SIE_BF16, b.data(), 8, k, k, 8, 64, Swizzle::b128) != SIE_OK) return 2;
  std::vector<float> out(64 * 8, NAN);
  if (SIE_LAUNCH(pipe_kernel<Fault>, 1, 160, 1024 + 2 * 9216, &on_sm90, ma, mb, out.data(), chunks) != SIE_OK)
    return 2;
  for (int row = 0; row < 64; row++) {
    for (int column = 0; column < 8; column++) {
      int want = 0;
      for (int l = 0; l < k; l++)
        want += ia[static_cast<size_t>(row * k + l)] * ib[static_cast<size_t>(column * k + l)];
      if (!(out[static_cast<size_t>(row * 8 + column)] == static_cast<float>(want))) return wrong_result;
    }
  }
  return 0;
}

#define PIPE_FAULT(name, fault, says, of_ten)                      \
  template <bool Fault>                                            \
  int name() {                                                     \
    return run_pipe<Fault ? PipeFault::fault : PipeFault::none>(); \
  }                                                                \
  FAULT(name, says, of_ten)

PIPE_FAULT(missing_mbarrier_wait, full_wait, anything, 7)
PIPE_FAULT(missing_wait_for_a_free_slot, empty_wait, anything, 9)
PIPE_FAULT(missing_wgmma_wait, wgmma_wait, nullptr, 10)
PIPE_FAULT(slot_released_before_the_product, release_early, nullptr, 9)
PIPE_FAULT(missing_wgmma_keep, keep, nullptr, 10)
PIPE_FAULT(missing_wgmma_fence, fence, "without wgmma_fence", 10)
PIPE_FAULT(missing_fence_mbarrier_init, init_fence, "came no fence_mbarrier_init", 10)
PIPE_FAULT(accumulators_touched_under_way, touch, "was written before the wait", 10)
PIPE_FAULT(too_few_bytes_expected, expect_less, "which expects", 10)
PIPE_FAULT(too_many_bytes_expected, expect_more, "deadlock", 10)
PIPE_FAULT(no_bytes_expected, no_expect, "which expects 0", 10)
PIPE_FAULT(leaving_with_products_under_way, leave, "without wgmma_wait", 10)

// Two products, each a group of its own; the younger is read after a wait for the older.
template <bool Fault>
__global__ void two_groups_kernel(float *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint16_t *tile = reinterpret_cast<uint16_t *>(shared);
  for (uint32_t i = threadIdx.x; i < 64 * 16; i += 128) tile[i] = 0x3f80;  // 1
  fence_proxy_async();
  __syncthreads();
  float older[4] = {}, younger[4] = {};
  uint64_t a = wgmma_descriptor(shared, Swizzle::b32, 256);
  wgmma_fence();
  wgmma<Operand::bf16, 8>(older, a, a, 0);
  wgmma_commit();
  wgmma<Operand::bf16, 8>(younger, a, a, 0);
  wgmma_commit();
  wgmma_wait<1>();
  wgmma_keep(older);
  float first = older[0];
  if (!Fault) wgmma_wait<0>();
  wgmma_keep(younger);
  float second = younger[0];
  if (Fault) wgmma_wait<0>();
  out[threadIdx.x] = first + second;
}
template <bool Fault>
int product_wait_for_one_group_less() {
  std::vector<float> out(128);
  if (SIE_LAUNCH(two_groups_kernel<Fault>, 1, 128, 2048, &on_sm90, out.data()) != SIE_OK) return 2;
  for (float x : out) {
    if (x != 32.0f) return wrong_result;
  }
  return 0;
}
FAULT(product_wait_for_one_group_less, nullptr, 10)

template <bool Fault>
__global__ void arrival_kernel(const uint8_t *in) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  mbarrier_init(barrier, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect(barrier, 16);
  if (Fault) mbarrier_arrive(barrier);
  bulk_load(shared + 16, in, 16, barrier);
  mbarrier_wait(barrier, 0);
}
template <bool Fault>
int arrival_too_many() {
  Aligned<uint8_t> in(16);
  return SIE_LAUNCH(arrival_kernel<Fault>, 1, 1, 64, &on_sm90, in.data()) == SIE_OK ? 0 : 2;
}
FAULT(arrival_too_many, "an arrival too many", 10)

template <bool Fault>
__global__ void two_phases_kernel() {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) mbarrier_init(barrier, 1);
  __syncwarp(3);  // none is late from it
  if (threadIdx.x == 0) {
    mbarrier_wait(barrier, 0);
  } else {
    for (int i = 0; i < 100; i++) mbarrier_test(barrier, 0);  // until the other waits
    mbarrier_arrive(barrier);
    if (Fault) mbarrier_arrive(barrier);
  }
}
template <bool Fault>
int two_phases_at_once() {
  return SIE_LAUNCH((two_phases_kernel<Fault>), 1, 2, 64, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(two_phases_at_once, "went on by 2 phases before a waiter looked", 10)

template <bool Fault>
__global__ void phase_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) mbarrier_init(barrier, 1);
  __syncthreads();
  for (uint32_t round = 0; round < 20; round++) {
    if (threadIdx.x == 0) {
      mbarrier_arrive(barrier);
    } else {
      mbarrier_wait(barrier, round & 1u);
    }
    if (!Fault) __syncthreads();  // else the arrivals run ahead of the waiters
  }
  out[threadIdx.x] = 1;
}
template <bool Fault>
int waiter_falls_behind() {
  std::vector<int> out(64);
  return SIE_LAUNCH(phase_kernel<Fault>, 1, 64, 64, &on_sm90, out.data()) == SIE_OK ? 0 : 2;
}
// A thread that has not yet looked waits for a phase that is two behind: it aborts or hangs.
TEST(fault_waiter_falls_behind) {
  std::string said;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    CHECK(run_in_child(waiter_falls_behind<false>, seed, &said) == 0, "right: %s", said.c_str());
    int status = run_in_child(waiter_falls_behind<true>, seed, &said);
    CHECK(status == -SIGABRT && (said.find("before a waiter looked") != std::string::npos ||
                                 said.find("deadlock") != std::string::npos),
          "status %d: %s", status, said.c_str());
  }
}

enum class StoreFault { none, wait, leave, fence };
template <StoreFault Fault>
__global__ void store_twice_kernel(const __grid_constant__ TensorMap map) {
  SIE_DYNAMIC_SHARED(shared);
  for (int round = 0; round < 4; round++) {
    for (uint32_t i = threadIdx.x; i < 128; i += 32) reinterpret_cast<int *>(shared)[i] = round;
    if (Fault != StoreFault::fence || round == 0) fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      tma_store_2d(&map, shared, 4 * round, 0);
      tma_store_commit();
      if (Fault != StoreFault::wait && Fault != StoreFault::leave) tma_store_wait_read<0>();
    }
    __syncthreads();
    if (Fault == StoreFault::leave) return;
  }
  if (threadIdx.x == 0) tma_store_wait<0>();
}
template <StoreFault Fault>
int run_store() {
  Aligned<int> tensor(16 * 32);
  TensorMap map;
  if (tensor_map_2d(&map, SIE_F32, tensor.data(), 16, 32, 32, 4, 32, Swizzle::b128) != SIE_OK) return 2;
  if (SIE_LAUNCH(store_twice_kernel<Fault>, 1, 32, 512, &on_sm90, map) != SIE_OK) return 2;
  for (int i = 0; i < 16 * 32; i++) {
    if (tensor[static_cast<size_t>(i)] != i / 128) return wrong_result;
  }
  return 0;
}
template <bool Fault>
int store_buffer_reused_before_it_is_read() {
  return run_store<Fault ? StoreFault::wait : StoreFault::none>();
}
FAULT(store_buffer_reused_before_it_is_read, nullptr, 7)
template <bool Fault>
int missing_fence_proxy_async() {
  return run_store<Fault ? StoreFault::fence : StoreFault::none>();
}
FAULT(missing_fence_proxy_async, "no fence_proxy_async by its thread", 10)
TEST(fault_leaving_while_a_store_reads) {
  std::string said;
  int aborted = 0;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    run_in_child(run_store<StoreFault::leave>, seed, &said);
    aborted += said.find("while its TMA store still reads") != std::string::npos;
  }
  CHECK(aborted >= 3, "noticed in %d of 10 runs", aborted);
}

// ---- rules whose breach aborts

template <bool Fault>
__global__ void mask_kernel(int *out) {
  int lane = static_cast<int>(threadIdx.x);
  if (lane >= 16) return;
  __syncthreads();  // until the others have left
  out[lane] = shuffle_xor(lane, 1, Fault ? full_warp : 0xffffu);
}
template <bool Fault>
int mask_names_a_lane_that_left() {
  std::vector<int> out(32);
  return SIE_LAUNCH(mask_kernel<Fault>, 1, 32, 0, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(mask_names_a_lane_that_left, "names lanes ffff0000, which have left", 10)

template <bool Fault>
__global__ void leaving_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  int lane = static_cast<int>(threadIdx.x);
  if (Fault && lane == 9) {
    mbarrier_init(barrier, 1);
    for (int i = 0; i < 100; i++) mbarrier_test(barrier, 0);  // until the others wait
    return;
  }
  out[lane] = lane == 9 ? 0 : shuffle_xor(lane, 0, Fault ? full_warp : ~(1u << 9));
}
template <bool Fault>
int lane_leaves_while_others_wait() {
  std::vector<int> out(32);
  return SIE_LAUNCH(leaving_kernel<Fault>, 1, 32, 64, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(lane_leaves_while_others_wait, "lane 9 leaves while shuffle_xor waits for it", 10)

template <bool Fault>
__global__ void own_mask_kernel(int *out) {
  int lane = static_cast<int>(threadIdx.x);
  uint32_t mask = lane < 16 ? 0xffffu : Fault ? 0xffffu : 0xffff0000u;
  out[lane] = shuffle_xor(lane, 1, mask);
}
template <bool Fault>
int lane_outside_its_mask() {
  std::vector<int> out(32);
  return SIE_LAUNCH(own_mask_kernel<Fault>, 1, 32, 0, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(lane_outside_its_mask, "is not in its own mask", 10)

// A lane outside the mask gives poison.
template <bool Fault>
__global__ void far_lane_kernel(int *out) {
  int lane = static_cast<int>(threadIdx.x);
  uint32_t mask = lane < 16 ? 0xffffu : 0xffff0000u;
  out[lane] = shuffle_xor(lane, Fault ? 16 : 8, mask);
}
template <bool Fault>
int shuffle_from_outside_the_mask() {
  std::vector<int> out(32);
  if (SIE_LAUNCH(far_lane_kernel<Fault>, 1, 32, 0, &on_sm80, out.data()) != SIE_OK) return 2;
  for (int i = 0; i < 32; i++) {
    if (out[static_cast<size_t>(i)] < 0) return wrong_result;
  }
  return 0;
}
FAULT(shuffle_from_outside_the_mask, nullptr, 10)

template <bool Fault>
__global__ void part_kernel(int *out) {
  if (!Fault || threadIdx.x < 32) __syncthreads();
  if (threadIdx.x >= 32) named_barrier_sync(1, Fault ? 64 : 32);
  out[threadIdx.x] = 1;
}
template <bool Fault>
int deadlock() {
  std::vector<int> out(64);
  return SIE_LAUNCH(part_kernel<Fault>, 1, 64, 0, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(deadlock, "threads 0-31: __syncthreads\n  block (0, 0, 0) threads 32-63: named barrier 1", 10)

template <bool Fault>
__global__ void never_kernel(int *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) mbarrier_init(barrier, Fault ? 33 : 32);
  __syncthreads();
  mbarrier_arrive(barrier);
  mbarrier_wait(barrier, 0);
  out[threadIdx.x] = 1;
}
template <bool Fault>
int mbarrier_of_too_many_arrivals() {
  std::vector<int> out(32);
  return SIE_LAUNCH(never_kernel<Fault>, 1, 32, 64, &on_sm90, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(mbarrier_of_too_many_arrivals, "1 of 33 arrivals missing", 10)

template <bool Fault>
__global__ void count_kernel(int *out) {
  if (threadIdx.x < 64) named_barrier_sync(1, Fault && threadIdx.x < 32 ? 96 : 64);
  out[threadIdx.x] = 1;
}
template <bool Fault>
int named_barrier_of_two_counts() {
  std::vector<int> out(96);
  return SIE_LAUNCH(count_kernel<Fault>, 1, 96, 0, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(named_barrier_of_two_counts, " threads, while ", 10)

template <bool Fault>
__global__ void large_count_kernel(int *out) {
  named_barrier_sync(1, Fault ? 96 : 64);
  out[threadIdx.x] = 1;
}
template <bool Fault>
int named_barrier_of_more_than_the_block() {
  std::vector<int> out(64);
  return SIE_LAUNCH(large_count_kernel<Fault>, 1, 64, 0, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(named_barrier_of_more_than_the_block, "barrier 1 of 96 threads in a block of 64", 10)

template <bool Fault>
__global__ void misaligned_kernel(const uint8_t *in, uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  cp_async_16(shared + 32 * threadIdx.x + (Fault ? 8 : 0), in);
  cp_async_wait_all();
  out[threadIdx.x] = 1;
}
template <bool Fault>
int misaligned_copy() {
  Aligned<uint8_t> in(64);
  std::vector<uint32_t> out(32);
  return SIE_LAUNCH(misaligned_kernel<Fault>, 1, 32, 2048, &on_sm80, in.data(), out.data()) == SIE_OK ? 0 : 2;
}
FAULT(misaligned_copy, "is not 16-byte aligned", 10)

template <bool Fault>
__global__ void misaligned_source_kernel(const uint8_t *in) {
  SIE_DYNAMIC_SHARED(shared);
  cp_async_8(shared + 8 * threadIdx.x, in + (Fault ? 4 : 0));
  cp_async_wait_all();
}
template <bool Fault>
int misaligned_source() {
  Aligned<uint8_t> in(64);
  return SIE_LAUNCH(misaligned_source_kernel<Fault>, 1, 32, 2048, &on_sm80, in.data()) == SIE_OK ? 0 : 2;
}
FAULT(misaligned_source, "is not 8-byte aligned", 10)

template <bool Fault>
__global__ void misaligned_row_kernel(uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t r[4];
  ldmatrix_x4(r, shared + 32 * threadIdx.x + (Fault && threadIdx.x == 13 ? 8 : 0));
  out[threadIdx.x] = r[0];
}
template <bool Fault>
int misaligned_matrix_row() {
  std::vector<uint32_t> out(32);
  return SIE_LAUNCH(misaligned_row_kernel<Fault>, 1, 32, 1024, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(misaligned_matrix_row, "ldmatrix: shared byte 424 is not 16-byte aligned", 10)

template <bool Fault>
__global__ void outside_kernel(uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t r[4];
  ldmatrix_x4(r, shared + 16 * threadIdx.x + (Fault ? 16 : 0));
  out[threadIdx.x] = r[0];
}
template <bool Fault>
int matrix_outside_shared_memory() {
  std::vector<uint32_t> out(32);
  return SIE_LAUNCH(outside_kernel<Fault>, 1, 32, 512, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(matrix_outside_shared_memory, "ldmatrix: bytes 512 … 527 of 512", 10)

#if !defined(__SANITIZE_ADDRESS__)  // which stops at the access itself
template <bool Fault>
__global__ void overflow_kernel(uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  volatile uint8_t *bytes = shared;
  if (threadIdx.x == 0) bytes[Fault ? 100 : 99] = 1;
  out[threadIdx.x] = 1;
}
template <bool Fault>
int write_behind_shared_memory() {
  std::vector<uint32_t> out(32);
  return SIE_LAUNCH(overflow_kernel<Fault>, 1, 32, 100, &on_sm80, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(write_behind_shared_memory, "byte 100 of 100 bytes", 10)
#endif

template <bool Fault>
__global__ void poison_kernel(float *out) {
  SIE_DYNAMIC_SHARED(shared);
  float *values = reinterpret_cast<float *>(shared);
  if (!Fault) values[threadIdx.x] = 1.0f;
  out[threadIdx.x] = values[threadIdx.x];
}
template <bool Fault>
int read_of_unwritten_shared_memory() {
  std::vector<float> out(32);
  if (SIE_LAUNCH(poison_kernel<Fault>, 1, 32, 128, &on_sm80, out.data()) != SIE_OK) return 2;
  return out[5] == 1.0f ? 0 : wrong_result;
}
FAULT(read_of_unwritten_shared_memory, nullptr, 10)

template <bool Fault>
__global__ void raw_barrier_kernel() {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (!Fault) mbarrier_init(barrier, 1);
  mbarrier_arrive(barrier);
}
template <bool Fault>
int mbarrier_not_initialised() {
  return SIE_LAUNCH((raw_barrier_kernel<Fault>), 1, 1, 64, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(mbarrier_not_initialised, "is not initialised", 10)

template <bool Fault>
__global__ void overwritten_barrier_kernel() {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  mbarrier_init(barrier, 1);
  shared[Fault ? 4 : 8] = 0;
  mbarrier_arrive(barrier);
}
template <bool Fault>
int mbarrier_overwritten() {
  return SIE_LAUNCH((overwritten_barrier_kernel<Fault>), 1, 1, 64, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(mbarrier_overwritten, "was overwritten", 10)

template <bool Fault>
__global__ void dependency_kernel() {
  if (!Fault || threadIdx.x != 7) grid_dependency_wait();
}
template <bool Fault>
int missing_dependency_wait() {
  const sie_stream pdl = {nullptr, 90, 2, 1, 0};
  return SIE_LAUNCH((dependency_kernel<Fault>), 1, 32, 0, &pdl) == SIE_OK ? 0 : 2;
}
FAULT(missing_dependency_wait, "leaves without grid_dependency_wait", 10)

template <bool Fault>
int instruction_the_target_lacks() {
  const sie_stream *on = Fault ? &on_sm80 : &on_sm90;
  std::vector<uint16_t> out(256);
  auto kernel = +[](uint16_t *to) {
    SIE_DYNAMIC_SHARED(shared);
    const uint32_t r[4] = {};
    stmatrix_x4(shared + 16 * threadIdx.x, r);
    to[threadIdx.x] = 1;
  };
  return SIE_LAUNCH(kernel, 1, 32, 512, on, out.data()) == SIE_OK ? 0 : 2;
}
FAULT(instruction_the_target_lacks, "stmatrix needs sm_90, this is sm_80", 10)

template <bool Fault>
__global__ void cluster_fault_kernel() {
  cluster_arrive();
  if (Fault && cluster_rank() == 1 && threadIdx.x == 3) cluster_arrive();
  cluster_wait();
}
template <bool Fault>
int cluster_arrival_twice() {
  return SIE_LAUNCH_CLUSTER((cluster_fault_kernel<Fault>), 2, 2, 32, 0, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(cluster_arrival_twice, "cluster_", 5)

// One warpgroup gives registers; the two others take the free ones, or 1024 more.
template <bool Fault>
__global__ void __launch_bounds__(384, 1) registers_kernel() {
  if (threadIdx.x >= 256) {
    registers_decrease<Fault ? 40 : 32>();
  } else {
    registers_increase<240>();
  }
}
template <bool Fault>
int more_registers_than_there_are() {
  return SIE_LAUNCH(registers_kernel<Fault>, 1, 384, 0, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(more_registers_than_there_are, "registers of 65536", 10)

}  // namespace
}  // namespace simt_test
