// fault_pipe_test.cc — faults in Hopper's pipelines: TMA, wgmma, their barriers and fences.
#include "fault.h"

namespace simt_test {
namespace {

using namespace ptx;

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

}  // namespace
}  // namespace simt_test
