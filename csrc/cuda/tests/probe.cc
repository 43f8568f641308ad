// probe.cc — a driver library for stubs_test, whose functions return what they were called with.
// Its cuInit returns the code in the environment variable PROBE_INIT.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuInit(unsigned) {
  const char *code = getenv("PROBE_INIT");
  return code != nullptr ? atoi(code) : 0;
}

EXPORT int cuGetErrorName(int code, const char **name) {
  static char text[32];
  snprintf(text, sizeof text, "PROBE_ERROR_%d", code);
  *name = text;
  return 0;
}

// Six integers in registers, five on the stack.
EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  uintptr_t answer = reinterpret_cast<uintptr_t>(f);
  const uintptr_t rest[] = {gx,
                            gy,
                            gz,
                            bx,
                            by,
                            bz,
                            shared,
                            reinterpret_cast<uintptr_t>(stream),
                            reinterpret_cast<uintptr_t>(parameters),
                            reinterpret_cast<uintptr_t>(extra)};
  for (uintptr_t value : rest) answer = answer * 3 + value;
  return static_cast<int>(answer & 0x3fffffff);
}

EXPORT int cuTexRefSetMipmapLevelClamp(void *, float low, float high) {
  return static_cast<int>(1000.0f * low + high);
}

EXPORT int cuDriverGetVersion(int *version) {
  *version = 4711;
  return 0;
}
