// paths.h — the ways this machine can run a model.
#ifndef SIE_CSRC_TESTS_PATHS_H
#define SIE_CSRC_TESTS_PATHS_H

#include <string>
#include <vector>

#include "sie.h"

namespace model {

struct Path {
  uint32_t isa, compute;
  const char *name;
};

// Every path that this machine can take; the others are reported once and do not fail.
inline std::vector<Path> machine_paths() {
  static const char *const isas[] = {"", "avx2", "avx512", "avx512-vnni", "amx"};
  static const char *const classes[] = {"", "f32", "bf16", "int8"};
  static std::vector<std::string> names;
  names.reserve(32);
  std::vector<Path> paths;
  for (uint32_t isa = SIE_ISA_AVX2; isa <= SIE_ISA_AMX; isa++) {
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
      names.push_back(std::string(isas[SIE_ISA_LEVEL(isa)]) + "/" + classes[compute]);
      paths.push_back({isa, compute, names.back().c_str()});
    }
  }
  return paths;
}

}  // namespace model

#endif  // SIE_CSRC_TESTS_PATHS_H
