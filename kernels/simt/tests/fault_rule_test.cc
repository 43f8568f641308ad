// fault_rule_test.cc — rules whose breach aborts.
#include "fault.h"

namespace simt_test {
namespace {

using namespace ptx;

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

// A CTA that leaves while its neighbour still writes to its memory.
template <bool Fault>
__global__ void cluster_store_fault_kernel() {
  SIE_DYNAMIC_SHARED(shared);
  cluster_sync();
  if (Fault && cluster_rank() == 1) return;
  if (Fault) {
    for (int i = 0; i < 1000; i++) __syncthreads();  // until the neighbour has left
  }
  store_cluster(reinterpret_cast<float *>(shared) + threadIdx.x, cluster_rank() ^ 1u, 1.0f);
  if (!Fault) cluster_sync();
}
template <bool Fault>
int store_to_a_block_that_left() {
  return SIE_LAUNCH_CLUSTER((cluster_store_fault_kernel<Fault>), 2, 2, 32, 128, &on_sm90) == SIE_OK ? 0 : 2;
}
FAULT(store_to_a_block_that_left, "store_cluster: block 1 of the cluster has left", 3)

// Two CTAs exchange 16 bytes a thread, counted by the receiver.
enum class RemoteFault { none, wait, too_few, too_many, unpublished, misaligned, left };
template <RemoteFault Fault>
__global__ void store_async_fault_kernel(float *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *const counter = reinterpret_cast<uint64_t *>(shared + 1024);
  const uint32_t other = cluster_rank() ^ 1u;
  if (threadIdx.x == 0) {
    mbarrier_init(counter, 1);
    if (Fault != RemoteFault::unpublished) fence_mbarrier_init();
  }
  cluster_sync();
  if (Fault == RemoteFault::left && cluster_rank() == 1) return;
  uint8_t *place = shared + threadIdx.x * 16 + (Fault == RemoteFault::misaligned ? 8 : 0);
  store_cluster_async(place, other, make_float4(1.0f, 2.0f, 3.0f, 4.0f), counter);
  const uint32_t bytes = Fault == RemoteFault::too_few ? 496 : (Fault == RemoteFault::too_many ? 528 : 512);
  if (threadIdx.x == 0) mbarrier_arrive_expect(counter, bytes);
  const auto received = [&] { return load_shared<float4>(shared + threadIdx.x * 16).w; };
  const float early = Fault == RemoteFault::wait ? received() : 0.0f;
  mbarrier_wait(counter, 0);
  out[blockIdx.x * 32 + threadIdx.x] = Fault == RemoteFault::wait ? early : received();
  cluster_sync();
}
template <RemoteFault Fault>
int exchange() {
  std::vector<float> out(64);
  if (SIE_LAUNCH_CLUSTER(store_async_fault_kernel<Fault>, 2, 2, 32, 1032, &on_sm90, out.data()) != SIE_OK)
    return 2;
  for (float v : out) {
    if (v != 4.0f) return wrong_result;
  }
  return 0;
}
#define REMOTE_FAULT(name, says, of_ten)                                                        \
  TEST(fault_store_async_##name) {                                                              \
    check_fault("store_async_" #name, exchange<RemoteFault::none>, exchange<RemoteFault::name>, \
                {says, of_ten});                                                                \
  }
REMOTE_FAULT(wait, nullptr, 8)
REMOTE_FAULT(too_few, anything, 8)
REMOTE_FAULT(too_many, "deadlock", 10)
REMOTE_FAULT(unpublished, "no fence_mbarrier_init", 10)
REMOTE_FAULT(misaligned, "is not 16-byte aligned", 10)
REMOTE_FAULT(left, anything, 10)

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
