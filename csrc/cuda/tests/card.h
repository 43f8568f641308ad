// card.h — the stand-in's GPUs, and those on which tests of programs run.
#ifndef SIE_CSRC_CUDA_TESTS_CARD_H
#define SIE_CSRC_CUDA_TESTS_CARD_H

#include <stdio.h>

#include "model.h"
#include "paths.h"
#include "standin_test.h"

namespace card {

// A GPU of the stand-in, with its primary context current in this thread.
class StandInCard final : public model::Card {
 public:
  StandInCard(int32_t major, int32_t minor, bool graphs) {
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    OK(cuCtxSetCurrent(context_));
    OK(cuStreamCreate(&stream_, 1));
    gpu.struct_size = sizeof gpu;
    gpu.major = major;
    gpu.minor = minor;
    gpu.multiprocessors = 2;
    gpu.graphs = graphs ? 1 : 0;
    gpu.memory_total = int64_t{1} << 30;
    gpu.stream = stream_;
    snprintf(gpu.name, sizeof gpu.name, "stand-in");
  }
  ~StandInCard() {
    OK(cuStreamDestroy_v2(stream_));
    OK(cuCtxSetCurrent(nullptr));
    OK(cuDevicePrimaryCtxRelease_v2(0));
  }
  void *allocate(int64_t bytes) override {
    DevicePointer p = 0;
    OK(cuMemAlloc_v2(&p, static_cast<size_t>(bytes)));
    return reinterpret_cast<void *>(p);
  }
  void release(void *p) override { OK(cuMemFree_v2(reinterpret_cast<DevicePointer>(p))); }
  void copy_in(void *to, const void *from, int64_t bytes) override {
    finish();
    OK(cuMemcpyHtoD_v2(reinterpret_cast<DevicePointer>(to), from, static_cast<size_t>(bytes)));
    OK(cuStreamSynchronize(nullptr));
  }
  void copy_out(void *to, const void *from, int64_t bytes) override {
    if (bytes > 0) OK(cuMemcpyDtoH_v2(to, reinterpret_cast<DevicePointer>(from), static_cast<size_t>(bytes)));
  }
  void finish() override { OK(cuStreamSynchronize(stream_)); }

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

struct Path {
  int32_t major, minor;
  uint32_t compute;
  double tolerance, cosine;
};

// One GPU of each family of kernels, with each of its classes. bf16 has the CPU's tolerances
// (program_test.cc); f16 has three more bits; rows and weights in e4m3 have a relative error of
// 2⁻⁴.
const Path paths[] = {
    {8, 0, SIE_COMPUTE_BF16, 0.08, 0.9995}, {8, 0, SIE_COMPUTE_F16, 0.02, 0.99995},
    {8, 9, SIE_COMPUTE_FP8, 0.5, 0.99},     {9, 0, SIE_COMPUTE_BF16, 0.08, 0.9995},
    {9, 0, SIE_COMPUTE_FP8, 0.5, 0.99},
};
constexpr int n_paths = sizeof paths / sizeof *paths;

// The paths on which the long tests try the i-th head: all of them. Where tests are not whole (paths.h),
// only one path, a different one for the next head: the other tests check the same memory accesses
// on every path.
inline std::vector<Path> some_paths(int i) {
  if (!model::whole()) return {paths[i % n_paths]};
  return {paths, paths + n_paths};
}

inline int index_of(const Path &path) { return static_cast<int>(&path - paths); }

inline const char *name_of(const Path &path) {
  static char name[32];
  snprintf(name, sizeof name, "sm_%d%d class %u", path.major, path.minor, path.compute);
  return name;
}

}  // namespace card

#endif  // SIE_CSRC_CUDA_TESTS_CARD_H
