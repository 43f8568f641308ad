// arch.cc — the rules of arch.h. Host code, no CUDA.
#include "cuda/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A build without nvcc (the emulator) claims every target of the current toolkit.
#ifndef SIE_CUDA_TARGETS
#define SIE_CUDA_TARGETS "80,86,89,90a,100f,120f"
#define SIE_CUDA_RELEASE "13.0"
#endif

namespace {

constexpr int32_t oldest_major = 8;  // ldmatrix, cp.async and bf16 mma arrived with 8.0
constexpr char first_blackwell_release[] = "12.9";

// Whether code of a target, its number and its suffix (0, 'a' or 'f'), runs on major.minor.
bool runs(long target, char suffix, int32_t major, int32_t minor) {
  long target_major = target / 10, target_minor = target % 10;
  if (target_major != major) return false;
  if (suffix == 'a') return target_minor == minor;
  if (major == 8 && (minor == 7 || minor == 8)) return target_minor == minor;
  return minor >= target_minor;
}

bool any_runs(const char *targets, int32_t major, int32_t minor) {
  for (const char *p = targets; *p != '\0';) {
    char *end;
    long target = strtol(p, &end, 10);
    char suffix = *end == 'a' || *end == 'f' ? *end++ : '\0';
    if (end == p || (*end != ',' && *end != '\0')) return false;
    if (runs(target, suffix, major, minor)) return true;
    p = *end == ',' ? end + 1 : end;
  }
  return false;
}

// "12.4" is before "12.9" and "13.0": releases have one digit after the point.
bool before(const char *release, const char *other) {
  return strtod(release, nullptr) < strtod(other, nullptr);
}

}  // namespace

extern "C" sie_status sie_cuda_arch_refusal_of(const char *targets, const char *release, int32_t major,
                                               int32_t minor, char *message, size_t size) {
  if (size > 0) message[0] = '\0';
  if (major >= oldest_major && any_runs(targets, major, minor)) return SIE_OK;
  if (major < oldest_major) {
    (void)snprintf(
        message, size,
        "the card has compute capability %d.%d (sm_%d%d); the CUDA kernels need 8.0 or newer (Ampere: A100, "
        "A10, RTX 30): use such a card, or run on the CPU",
        major, minor, major, minor);
  } else if (major >= 10 && before(release, first_blackwell_release)) {
    (void)snprintf(
        message, size,
        "the card has compute capability %d.%d (sm_%d%d); this build of CUDA %s has code for %s: build with "
        "CUDA 13.0 (make kernels TOOLKIT=13.0), or run on the CPU",
        major, minor, major, minor, release, targets);
  } else {
    (void)snprintf(
        message, size,
        "the card has compute capability %d.%d (sm_%d%d); this build has code for %s only: add its target in "
        "cmake/cuda.cmake and build again, or run on the CPU",
        major, minor, major, minor, targets);
  }
  return SIE_UNSUPPORTED;
}

extern "C" sie_status sie_cuda_arch_refusal(int32_t major, int32_t minor, char *message, size_t size) {
  return sie_cuda_arch_refusal_of(SIE_CUDA_TARGETS, SIE_CUDA_RELEASE, major, minor, message, size);
}

extern "C" sie_status sie_cuda_driver_refusal_of(const char *release, int32_t driver, char *message,
                                                 size_t size) {
  if (size > 0) message[0] = '\0';
  const int32_t major = static_cast<int32_t>(strtol(release, nullptr, 10));
  if (driver / 1000 >= major) return SIE_OK;
  // The first driver of each major release (CUDA Toolkit release notes, table 3).
  const char *floor = major >= 13 ? "580" : "525";
  const char *older =
      major >= 13 ? "update the driver, build with CUDA 12.4 (make build-cuda TOOLKIT=12.4, driver 525), "
                  : "update the driver, ";
  (void)snprintf(
      message, size,
      "the driver supports CUDA %d.%d; this build of CUDA %s needs %d.0 (driver %s or newer): %sor run on "
      "the CPU",
      driver / 1000, driver % 1000 / 10, release, major, floor, older);
  return SIE_UNSUPPORTED;
}

extern "C" sie_status sie_cuda_driver_refusal(int32_t driver, char *message, size_t size) {
  return sie_cuda_driver_refusal_of(SIE_CUDA_RELEASE, driver, message, size);
}
