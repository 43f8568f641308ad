// fault_race_test.cc — races that give wrong results.
#include "fault.h"

namespace simt_test {
namespace {

using namespace ptx;

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

}  // namespace
}  // namespace simt_test
