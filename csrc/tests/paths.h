// paths.h — the ways this machine can run a model.
#ifndef SIE_CSRC_TESTS_PATHS_H
#define SIE_CSRC_TESTS_PATHS_H

#include <stdlib.h>

#include <string>
#include <vector>

#include "sie.h"

namespace model {

// The lowest table of the machines that this build is for.
#if defined(__aarch64__)
constexpr uint32_t least_isa = SIE_ISA_NEON;
#else
constexpr uint32_t least_isa = SIE_ISA_AVX2;
#endif

struct Path {
  uint32_t isa, compute;
  const char *name;
};

// Whether tests run all that they have. With AddressSanitizer, which is slow, they do so only where
// SIE_TEST_WHOLE is set (make test-asan).
inline bool whole() {
#if defined(__SANITIZE_ADDRESS__)
  static const bool set = getenv("SIE_TEST_WHOLE") != nullptr;
  return set;
#else
  return true;
#endif
}

// `all`, or `some` where tests do not run all: rounds, or texts, that should come out the same.
inline int times(int all, int some) { return whole() ? all : some; }

inline std::vector<Path> find_paths() {
  static const struct {
    uint32_t isa;
    const char *name;
  } isas[] = {{SIE_ISA_AVX2, "avx2"},
              {SIE_ISA_AVX512, "avx512"},
              {SIE_ISA_AVX512_VNNI, "avx512-vnni"},
              {SIE_ISA_AVX512_BF16, "avx512-bf16"},
              {SIE_ISA_AMX, "amx"},
              {SIE_ISA_NEON, "neon"},
              {SIE_ISA_NEON_DOT, "neon-dot"}};
  static const char *const classes[] = {"", "f32", "bf16", "int8"};
  static std::vector<std::string> names;
  names.reserve(32);
  std::vector<Path> paths;
  uint32_t seen = 0;  // classes
  for (const auto &[isa, isa_name] : isas) {
    sie_device_options options = {};
    options.struct_size = sizeof options;
    options.kind = SIE_DEVICE_CPU;
    options.isa = isa;
    options.threads = 1;
    sie_device *device;
    sie_error err;
    if (sie_device_open(&options, &device, &err) != SIE_OK) continue;
    sie_device_info info = {};
    info.struct_size = sizeof info;
    sie_device_query(device, &info, &err);
    sie_device_close(device);
    if (info.isa != isa) continue;
    for (uint32_t compute = SIE_COMPUTE_F32; compute <= SIE_COMPUTE_INT8; compute++) {
      if ((info.compute_mask >> compute & 1) == 0) continue;
      if (!whole() && (seen >> compute & 1) != 0) continue;
      seen |= 1u << compute;
      names.push_back(std::string(isa_name) + "/" + classes[compute]);
      paths.push_back({isa, compute, names.back().c_str()});
    }
  }
  return paths;
}

// Every path that this machine can take; where tests are not whole, each class only on the lowest
// table that has it. The other tables differ in kernels, which kernel_tests runs on all of them.
inline const std::vector<Path> &machine_paths() {
  static const std::vector<Path> paths = find_paths();
  return paths;
}

}  // namespace model

#endif  // SIE_CSRC_TESTS_PATHS_H
