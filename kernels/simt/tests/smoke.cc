#include "cuda/ptx/launch.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/wgmma.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/grid_dependency.h"
#include "tests/check.h"
#include <vector>
using namespace ptx;
namespace {
constexpr sie_stream sm90 = {nullptr, 90, 132, 1, 0};
__global__ void gemm_kernel(const __grid_constant__ TensorMap ma, const __grid_constant__ TensorMap mb, float *out, int k) {
  grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  uint64_t *full = reinterpret_cast<uint64_t *>(shared);
  uint8_t *a = shared + 1024, *b = a + 2 * 8192;
  if (threadIdx.x == 0) { mbarrier_init(full, 1); mbarrier_init(full + 1, 1); fence_mbarrier_init(); }
  __syncthreads();
  float d[32];
  for (int i = 0; i < 32; i++) d[i] = 0;
  int steps = k / 64;
  for (int s = 0; s < steps; s++) {
    __syncthreads();
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(full + s % 2, 16384);
      tma_load_2d(a + s % 2 * 8192, &ma, static_cast<int>(blockIdx.x) * 64, s * 64, full + s % 2);
      tma_load_2d(b + s % 2 * 8192, &mb, static_cast<int>(blockIdx.y) * 64, s * 64, full + s % 2);
    }
    mbarrier_wait(full + s % 2, static_cast<uint32_t>(s / 2 & 1));
    wgmma_fence();
    uint64_t da = wgmma_descriptor(a + s % 2 * 8192, Swizzle::b128, 1024), db = wgmma_descriptor(b + s % 2 * 8192, Swizzle::b128, 1024);
    for (int kk = 0; kk < 4; kk++) wgmma<Operand::bf16, 64>(d, wgmma_advance(da, static_cast<uint32_t>(32 * kk)), wgmma_advance(db, static_cast<uint32_t>(32 * kk)), 1);
    wgmma_commit();
    wgmma_wait<0>();
  }
  int lane = static_cast<int>(threadIdx.x) % 32, w = static_cast<int>(threadIdx.x) / 32;
  for (int i = 0; i < 32; i++) {
    int row = static_cast<int>(blockIdx.x) * 64 + w * 16 + lane / 4 + i / 2 % 2 * 8, col = static_cast<int>(blockIdx.y) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    out[row * 128 + col] = d[i];
  }
}
TEST(smoke) {
  const int K = 256;
  std::vector<uint16_t> a(128 * K + 8), b(128 * K + 8);
  uint16_t *pa = reinterpret_cast<uint16_t *>((reinterpret_cast<uintptr_t>(a.data()) + 15) / 16 * 16), *pb = reinterpret_cast<uint16_t *>((reinterpret_cast<uintptr_t>(b.data()) + 15) / 16 * 16);
  for (int i = 0; i < 128 * K; i++) { pa[i] = to_bf16(static_cast<float>(i * 7 % 13 - 6)); pb[i] = to_bf16(static_cast<float>(i * 5 % 11 - 5)); }
  std::vector<float> out(128 * 128, NAN);
  TensorMap ma, mb;
  CHECK(tensor_map_2d(&ma, SIE_BF16, pa, 128, K, K, 64, 64, Swizzle::b128) == SIE_OK, "map");
  CHECK(tensor_map_2d(&mb, SIE_BF16, pb, 128, K, K, 64, 64, Swizzle::b128) == SIE_OK, "map");
  for (int r = 0; r < 20; r++) {
    for (float &x : out) x = NAN;
    CHECK(SIE_LAUNCH(gemm_kernel, dim3(2, 2), 128, 1024 + 4 * 8192, &sm90, ma, mb, out.data(), K) == SIE_OK, "launch");
    for (int i = 0; i < 128; i++) for (int j = 0; j < 128; j++) {
      float want = 0;
      for (int k = 0; k < K; k++) want += from_bf16(pa[i * K + k]) * from_bf16(pb[j * K + k]);
      CHECK(out[i * 128 + j] == want, "%d %d: %f %f", i, j, out[i * 128 + j], want);
    }
  }
}
}
int main(int argc, char **argv) { return check::run_tests(argc, argv); }
