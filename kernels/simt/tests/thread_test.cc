// Indices, warps, barriers, mbarriers, clusters, cp.async, launches and seeds.
#include "simt_test.h"

namespace simt_test {
namespace {

using namespace ptx;

__global__ void index_kernel(uint32_t *seen) {
  uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  seen[block * blockDim.x * blockDim.y * blockDim.z + thread]++;
}

TEST(every_thread_of_the_grid_runs_once) {
  std::vector<uint32_t> seen(3 * 2 * 2 * 40 * 3 * 2);
  CHECK(SIE_LAUNCH(index_kernel, dim3(3, 2, 2), dim3(40, 3, 2), 0, &on_sm80, seen.data()) == SIE_OK,
        "launch");
  for (size_t i = 0; i < seen.size(); i++) CHECK(seen[i] == 1, "thread %zu ran %u times", i, seen[i]);
}

__global__ void exchange_kernel(int32_t *out) {
  int lane = static_cast<int>(threadIdx.x);
  int32_t *own = out + lane * 12;
  own[0] = shuffle_xor(lane * 10, 5);
  own[1] = shuffle_from(lane * 10, (lane + 3) % 32);
  own[2] = shuffle_up(lane * 10, 4);
  own[3] = shuffle_down(lane * 10, 4);
  own[4] = static_cast<int32_t>(ballot(lane % 3 == 0));
  own[5] = static_cast<int32_t>(reduce_add(static_cast<uint32_t>(lane)));
  own[6] = static_cast<int32_t>(reduce_min(static_cast<uint32_t>(lane + 7)));
  own[7] = static_cast<int32_t>(reduce_max(static_cast<uint32_t>(lane)));
  own[8] = static_cast<int32_t>(reduce_or(1u << lane));
  // Two halves at instructions of their own.
  uint32_t half = lane < 16 ? 0xffffu : 0xffff0000u;
  if (lane < 16) {
    own[9] = shuffle_xor(lane, 15, half);
  } else {
    own[9] = static_cast<int32_t>(ballot(lane % 2 == 0, half));
  }
  own[10] = static_cast<int32_t>(warp_sum(static_cast<float>(lane)));
  own[11] = elect_one();
}

TEST(lanes_exchange_as_the_isa_says) {
  std::vector<int32_t> out(32 * 12);
  for (int run = 0; run < 10; run++) {
    CHECK(SIE_LAUNCH(exchange_kernel, 1, 32, 0, &on_sm90, out.data()) == SIE_OK, "launch");
    for (int lane = 0; lane < 32; lane++) {
      const int32_t want[12] = {(lane ^ 5) * 10,
                                (lane + 3) % 32 * 10,
                                (lane < 4 ? lane : lane - 4) * 10,
                                (lane > 27 ? lane : lane + 4) * 10,
                                0x49249249,
                                496,
                                7,
                                31,
                                -1,
                                lane < 16 ? lane ^ 15 : 0x55550000,
                                496,
                                lane == 0};
      for (int i = 0; i < 12; i++) {
        CHECK(out[static_cast<size_t>(lane * 12 + i)] == want[i], "lane %d value %d: %d, not %d", lane, i,
              out[static_cast<size_t>(lane * 12 + i)], want[i]);
      }
    }
  }
}

// Threads that left do not hold up __syncthreads; named barriers bring together whom they count.
__global__ void barrier_kernel(int32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  int32_t *values = reinterpret_cast<int32_t *>(shared);
  uint32_t t = threadIdx.x;
  if (t >= 96) return;
  values[t] = static_cast<int32_t>(t);
  int count = __syncthreads_count(t % 2 == 0);
  out[t] = count * 1000 + values[95 - t];
  // Warp 2 produces for warps 0 and 1, twice, through barriers 1 (full) and 2 (free).
  for (int round = 0; round < 2; round++) {
    if (t >= 64) {
      if (round > 0) named_barrier_sync_of<1, 2>(1, 96);
      values[t] = static_cast<int32_t>(t) * (round + 1);
      named_barrier_arrive(1, 96);
    } else {
      named_barrier_sync_of<3, 2>(2, 96);  // there is none
      named_barrier_sync_of<1, 2>(0, 96);
      out[96 + static_cast<uint32_t>(round) * 64 + t] = values[64 + t % 32];
      if (round == 0) named_barrier_arrive(2, 96);
    }
  }
}

TEST(barriers_order_what_they_should) {
  for (int run = 0; run < 20; run++) {
    std::vector<int32_t> out(96 + 128, -1);
    CHECK(SIE_LAUNCH(barrier_kernel, 1, 128, 4096, &on_sm80, out.data()) == SIE_OK, "launch");
    for (int t = 0; t < 96; t++)
      CHECK(out[static_cast<size_t>(t)] == 48000 + 95 - t, "thread %d: %d", t, out[static_cast<size_t>(t)]);
    for (int i = 0; i < 128; i++) {
      CHECK(out[static_cast<size_t>(96 + i)] == (64 + i % 32) * (i / 64 + 1), "round %d thread %d: %d",
            i / 64, i % 64, out[static_cast<size_t>(96 + i)]);
    }
  }
}

// A ring of two slots between a producer warp and three consumer warps, on mbarriers alone.
__global__ void ring_kernel(int32_t *out, int rounds) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *full = reinterpret_cast<uint64_t *>(shared), *empty = full + 2;
  int32_t *slots = reinterpret_cast<int32_t *>(shared + 64);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      mbarrier_init(full + i, 32);
      mbarrier_init(empty + i, 3);
    }
  }
  __syncthreads();
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int round = 0; round < rounds; round++) {
    int slot = round % 2;
    uint32_t parity = static_cast<uint32_t>(round / 2 % 2);
    if (warp == 0) {
      mbarrier_wait(empty + slot, parity ^ 1u);
      slots[slot * 32 + static_cast<int>(lane)] = round * 100 + static_cast<int>(lane);
      mbarrier_arrive(full + slot);
    } else {
      mbarrier_wait(full + slot, parity);
      CHECK(mbarrier_test(full + slot, parity), "a phase that was waited for has ended");
      out[(round * 3 + static_cast<int>(warp) - 1) * 32 + static_cast<int>(lane)] =
          slots[slot * 32 + static_cast<int>(31 - lane)];
      __syncwarp();
      if (lane == 0) mbarrier_arrive(empty + slot);
    }
  }
}

TEST(mbarriers_carry_a_pipeline) {
  const int rounds = 9;
  for (int run = 0; run < 20; run++) {
    std::vector<int32_t> out(rounds * 96, -1);
    CHECK(SIE_LAUNCH(ring_kernel, 1, 128, 4096, &on_sm90, out.data(), rounds) == SIE_OK, "launch");
    for (int i = 0; i < rounds * 96; i++) {
      CHECK(out[static_cast<size_t>(i)] == i / 96 * 100 + 31 - i % 32, "round %d: %d", i / 96,
            out[static_cast<size_t>(i)]);
    }
  }
}

__global__ void cluster_kernel(uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *barrier = reinterpret_cast<uint64_t *>(shared);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, cluster_size() * 32);
    fence_mbarrier_init();
  }
  cluster_arrive();
  cluster_wait();
  for (uint32_t rank = 0; rank < cluster_size(); rank++) mbarrier_arrive_cluster(barrier, rank);
  mbarrier_wait(barrier, 0);
  out[blockIdx.x * 32 + threadIdx.x] = cluster_rank() * 10 + cluster_size();
  cluster_sync();
}

TEST(clusters_run_together) {
  for (uint32_t size : {1u, 2u, 4u}) {
    std::vector<uint32_t> out(8 * 32);
    CHECK(SIE_LAUNCH_CLUSTER(cluster_kernel, size, 8, 32, 64, &on_sm90, out.data()) == SIE_OK, "launch");
    for (uint32_t i = 0; i < out.size(); i++)
      CHECK(out[i] == i / 32 % size * 10 + size, "thread %u: %u", i, out[i]);
  }
}

// Every CTA writes to a place of its own in the memory of each, itself included.
__global__ void cluster_store_kernel(float *out) {
  SIE_DYNAMIC_SHARED(shared);
  float *const slots = reinterpret_cast<float *>(shared);
  const uint32_t size = cluster_size(), rank = cluster_rank();
  cluster_sync();
  for (uint32_t to = 0; to < size; to++) {
    store_cluster(slots + rank * 32 + threadIdx.x, to,
                  static_cast<float>(1000 * to + 100 * rank + threadIdx.x));
  }
  cluster_sync();
  for (uint32_t from = 0; from < size; from++) {
    out[(blockIdx.x * size + from) * 32 + threadIdx.x] = slots[from * 32 + threadIdx.x];
  }
}

TEST(clusters_write_to_each_other) {
  for (uint32_t size : {1u, 2u, 8u}) {
    std::vector<float> out(8 * size * 32);
    CHECK(SIE_LAUNCH_CLUSTER(cluster_store_kernel, size, 8, 32, size * 128, &on_sm90, out.data()) == SIE_OK,
          "launch");
    for (uint32_t i = 0; i < out.size(); i++) {
      const uint32_t to = i / 32 / size % size, from = i / 32 % size;
      CHECK(out[i] == static_cast<float>(1000 * to + 100 * from + i % 32), "element %u of %u: %g", i, size,
            static_cast<double>(out[i]));
    }
  }
}

// The same, 16 bytes at a time and in rounds: who has a round's bytes of all may write those of the next one, which
// go to the other half, and who has those has read this half.
__global__ void cluster_store_async_kernel(float4 *out, int rounds) {
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t size = cluster_size(), rank = cluster_rank(), t = threadIdx.x;
  float4 *const slots = reinterpret_cast<float4 *>(shared);
  uint64_t *const counters = reinterpret_cast<uint64_t *>(slots + 2 * size * 32);
  if (t == 0) {
    for (int i = 0; i < 2; i++) mbarrier_init(counters + i, 1);
    fence_mbarrier_init();
  }
  cluster_sync();
  for (int round = 0; round < rounds; round++) {
    float4 *const half = slots + static_cast<uint32_t>(round % 2) * size * 32;
    uint64_t *const counter = counters + round % 2;
    const float value = static_cast<float>(100 * rank + t);
    for (uint32_t to = 0; to < size; to++) {
      store_cluster_async(half + rank * 32 + t, to,
                          make_float4(value, static_cast<float>(to), static_cast<float>(round), 7.0f),
                          counter);
    }
    if (t == 0) mbarrier_arrive_expect(counter, size * 32 * 16);
    mbarrier_wait(counter, static_cast<uint32_t>(round / 2) % 2);
    for (uint32_t from = 0; from < size; from++) {
      out[((static_cast<uint32_t>(round) * gridDim.x + blockIdx.x) * size + from) * 32 + t] =
          half[from * 32 + t];
    }
    sync_warp();
  }
  cluster_sync();
}

TEST(clusters_write_to_each_other_later) {
  constexpr uint32_t ctas = 8, rounds = 5;
  for (uint32_t size : {1u, 2u, 8u}) {
    std::vector<float4> out(rounds * ctas * size * 32);
    CHECK(SIE_LAUNCH_CLUSTER(cluster_store_async_kernel, size, ctas, 32, 2 * size * 512 + 16, &on_sm90,
                             out.data(), static_cast<int>(rounds)) == SIE_OK,
          "launch");
    for (uint32_t i = 0; i < out.size(); i++) {
      const uint32_t from = i / 32 % size, to = i / 32 / size % ctas % size, round = i / 32 / size / ctas;
      const float4 v = out[i];
      CHECK(v.x == static_cast<float>(100 * from + i % 32) && v.y == static_cast<float>(to) &&
                v.z == static_cast<float>(round) && v.w == 7.0f,
            "element %u of %u: %g %g %g %g", i, size, static_cast<double>(v.x), static_cast<double>(v.y),
            static_cast<double>(v.z), static_cast<double>(v.w));
    }
  }
}

template <int Bytes>
__global__ void copy_kernel(const uint8_t *in, uint8_t *out, int n) {
  SIE_DYNAMIC_SHARED(shared);
  int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 64; i += 32) {
    const uint8_t *from = i < n ? in + i * Bytes : nullptr;
    if (Bytes == 16) cp_async_16(shared + i * Bytes, from, i < n);
    if (Bytes == 8) cp_async_8(shared + i * Bytes, from, i < n);
    if (Bytes == 4) cp_async_4(shared + i * Bytes, from, i < n);
    cp_async_commit();
  }
  cp_async_wait<1>();
  for (int b = 0; b < Bytes; b++) out[t * Bytes + b] = shared[t * Bytes + b];
  cp_async_wait_all();
  for (int b = 0; b < Bytes; b++) out[(32 + t) * Bytes + b] = shared[(32 + t) * Bytes + b];
}

template <int Bytes>
void check_copies() {
  Aligned<uint8_t> in(64 * Bytes);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<uint8_t>(i * 7 + 1);
  for (int n : {0, 1, 33, 64}) {
    std::vector<uint8_t> out(64 * Bytes, 9);
    CHECK(SIE_LAUNCH(copy_kernel<Bytes>, 1, 32, 1024, &on_sm80, in.data(), out.data(), n) == SIE_OK,
          "launch");
    for (size_t i = 0; i < out.size(); i++) {
      uint8_t want = i < static_cast<size_t>(n * Bytes) ? in[i] : uint8_t{0};
      CHECK(out[i] == want, "%d-byte copies, n %d: byte %zu is %u, not %u", Bytes, n, i, out[i], want);
    }
  }
}

TEST(cp_async_copies_and_fills) {
  check_copies<16>();
  check_copies<8>();
  check_copies<4>();
}

__global__ void head_kernel(const uint8_t *in, uint8_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t t = threadIdx.x;
  cp_async_16_head(shared_address(shared) + 16 * t, in + 16 * t, static_cast<int32_t>(t % 17));
  cp_async_wait_all();
  for (uint32_t b = 0; b < 16; b++) out[16 * t + b] = shared[16 * t + b];
}

TEST(cp_async_copies_the_head_of_a_piece) {
  Aligned<uint8_t> in(32 * 16);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<uint8_t>(i * 7 | 1);
  std::vector<uint8_t> out(32 * 16, 9);
  CHECK(SIE_LAUNCH(head_kernel, 1, 32, 512, &on_sm80, in.data(), out.data()) == SIE_OK, "launch");
  for (size_t i = 0; i < out.size(); i++) {
    uint8_t want = i % 16 < i / 16 % 17 ? in[i] : uint8_t{0};
    CHECK(out[i] == want, "byte %zu of piece %zu is %u, not %u", i % 16, i / 16, out[i], want);
  }
}

__global__ void vector_kernel(const uint32_t *in, uint32_t *out) {
  SIE_DYNAMIC_SHARED(shared);
  uint32_t t = threadIdx.x;
  uint4 v = load_global_nc<uint4>(in + 4 * t);
  store_shared(shared + 16 * t, v);
  uint2 w = load_shared<uint2>(shared + 16 * t + 8);
  uint4 none = load_global_or_zero<uint4>(nullptr, false);
  v = load_global_or_zero<uint4>(in + 4 * t, aligned_for<uint4>(in + 4 * t));
  store_global(out + 4 * t, make_uint4(v.x, w.x, w.y, none.x + none.w));
}

TEST(vectors_move_whole) {
  Aligned<uint32_t> in(128), out(128);
  for (size_t i = 0; i < 128; i++) in[i] = static_cast<uint32_t>(i + 1);
  CHECK(SIE_LAUNCH(vector_kernel, 1, 32, 512, &on_sm80, in.data(), out.data()) == SIE_OK, "launch");
  for (size_t t = 0; t < 32; t++) {
    CHECK(out[4 * t] == 4 * t + 1 && out[4 * t + 1] == 4 * t + 3 && out[4 * t + 2] == 4 * t + 4 &&
              out[4 * t + 3] == 0,
          "thread %zu", t);
  }
}

TEST(launches_are_refused_as_a_device_does) {
  uint32_t *none = nullptr;
  CHECK(SIE_LAUNCH(index_kernel, 1, 32, 0, nullptr, none) == SIE_INVALID_ARGUMENT, "no stream");
  CHECK(SIE_LAUNCH(index_kernel, 1, 2048, 0, &on_sm80, none) == SIE_INTERNAL, "2048 threads");
  CHECK(SIE_LAUNCH(index_kernel, 0, 32, 0, &on_sm80, none) == SIE_INTERNAL, "no blocks");
  CHECK(SIE_LAUNCH(index_kernel, 1, 32, 200 << 10, &on_sm80, none) == SIE_UNSUPPORTED, "200 KiB on sm_80");
  CHECK(SIE_LAUNCH(index_kernel, 1, 32, 100 << 10, &on_sm89, none) == SIE_UNSUPPORTED, "100 KiB on sm_89");
  CHECK(SIE_LAUNCH_CLUSTER(index_kernel, 2, 3, 32, 0, &on_sm90, none) == SIE_INTERNAL, "half a cluster");
  CHECK(SIE_LAUNCH_CLUSTER(index_kernel, 2, 2, 32, 0, &on_sm80, none) == SIE_UNSUPPORTED,
        "clusters on sm_80");
}

// The order in which threads pass an unordered place.
__global__ void order_kernel(uint32_t *order, uint32_t *next) {
  order[(*next)++] = blockIdx.x * 64 + threadIdx.x;
}

std::vector<uint32_t> order_of_launch() {
  std::vector<uint32_t> order(4 * 64);
  uint32_t next = 0;
  CHECK(SIE_LAUNCH(order_kernel, 4, 64, 0, &on_sm80, order.data(), &next) == SIE_OK, "launch");
  return order;
}

TEST(a_seed_fixes_the_order_and_launches_differ) {
  uint64_t before = simt::launches();
  order_of_launch();
  CHECK(simt::launches() == before + 1, "launches are counted");
  simt::seed(5);
  std::vector<uint32_t> first = order_of_launch(), second = order_of_launch();
  simt::seed(5);
  CHECK(order_of_launch() == first && order_of_launch() == second, "the seed does not decide");
  CHECK(first != second, "two launches ran in one order");
  simt::seed(6);
  CHECK(order_of_launch() != first, "two seeds gave one order");
}

TEST(blocks_and_threads_come_in_random_order) {
  simt::seed(5);
  std::vector<uint32_t> first = order_of_launch(), second = order_of_launch();
  auto blocks = [](const std::vector<uint32_t> &order) {
    std::vector<uint32_t> of;
    for (size_t i = 0; i < order.size(); i += 64) of.push_back(order[i] / 64);
    return of;
  };
  auto threads = [](const std::vector<uint32_t> &order, uint32_t block) {
    std::vector<uint32_t> of;
    for (uint32_t i : order) {
      if (i / 64 == block) of.push_back(i % 64);
    }
    return of;
  };
  CHECK(blocks(first) != blocks(second), "blocks in one order");
  CHECK(threads(first, 0) != threads(second, 0), "threads in one order");
  CHECK(threads(first, 0) != threads(first, 1), "threads of two blocks in one order");
  int neighbours = 0;
  for (size_t i = 1; i < 64; i++) neighbours += first[i] + 1 == first[i - 1] || first[i - 1] + 1 == first[i];
  CHECK(neighbours < 16, "%d of 63 threads follow their neighbour", neighbours);
}

}  // namespace
}  // namespace simt_test
