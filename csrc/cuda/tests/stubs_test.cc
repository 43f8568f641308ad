// stubs_test.cc — the driver's stubs with libraries that are complete, too old, broken or missing.
// Each case needs its own process: ctest sets SIE_LIBCUDA and names one case.
#include <pthread.h>
#include <string.h>

#include "cuda/driver.h"
#include "tests/check.h"

extern "C" {
int cuInit(unsigned flags);
int cuCtxSynchronize();
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra);
int cuTexRefSetMipmapLevelClamp(void *, float low, float high);
}

namespace {

void *address(uintptr_t value) { return reinterpret_cast<void *>(value); }

int launch() {
  return cuLaunchKernel(address(1), 2, 3, 4, 5, 6, 7, 8, address(9), static_cast<void **>(address(10)),
                        static_cast<void **>(address(11)));
}

int expected() {
  uintptr_t answer = 1;
  for (uintptr_t value = 2; value <= 11; value++) answer = answer * 3 + value;
  return static_cast<int>(answer & 0x3fffffff);
}

void *first_call(void *answer) {
  *static_cast<int *>(answer) = launch();
  return nullptr;
}

TEST(stubs_without_library) {
  CHECK(cuInit(0) == CUDA_SUCCESS, "cu's package init would end the process");
  int version = 0;
  CHECK(cuDriverGetVersion(&version) == CUDA_ERROR_NO_DEVICE, "a call answers before anything was opened");
  const char *why = nullptr;
  CHECK(sie_driver_start(&why) == CUDA_ERROR_NO_DEVICE, "start");
  CHECK(strstr(why, getenv("SIE_LIBCUDA")) != nullptr, "why: %s", why);
  CHECK(launch() == CUDA_ERROR_NO_DEVICE, "eleven arguments");
  CHECK(sie_driver_symbol("cuDriverGetVersion") == nullptr, "symbol");
}

TEST(stubs_over_probe) {
  // Many threads make the first call of a function at once: all arguments must arrive.
  pthread_t threads[16];
  int answers[16];
  for (int i = 0; i < 16; i++) pthread_create(&threads[i], nullptr, first_call, &answers[i]);
  for (int i = 0; i < 16; i++) pthread_join(threads[i], nullptr);
  for (int i = 0; i < 16; i++)
    CHECK(answers[i] == expected(), "thread %d: %d, want %d", i, answers[i], expected());
  CHECK(launch() == expected(), "the second call");
  for (int i = 0; i < 2; i++) {
    int clamp = cuTexRefSetMipmapLevelClamp(nullptr, 1.5f, 7.0f);
    CHECK(clamp == 1507, "floats: %d", clamp);
  }
  const char *why = nullptr;
  CHECK(sie_driver_start(&why) == CUDA_SUCCESS && *why == '\0', "why: %s", why);
  CHECK(sie_driver_symbol("cuLaunchKernel") != nullptr, "symbol");
  CHECK(sie_driver_symbol("cuNoSuchFunction") == nullptr, "a symbol that nobody has");
  // The probe lacks this function, as an old driver would.
  for (int i = 0; i < 2; i++) CHECK(cuCtxSynchronize() == CUDA_ERROR_NOT_SUPPORTED, "call %d", i);
}

TEST(stubs_over_probe_that_fails) {
  const char *why = nullptr;
  CHECK(sie_driver_start(&why) == 999, "start");
  CHECK(strstr(why, "999 PROBE_ERROR_999") != nullptr, "why: %s", why);
  int version = 0;
  CHECK(cuDriverGetVersion(&version) == 999 && version == 0, "a call after it");
  CHECK(sie_driver_symbol("cuDriverGetVersion") != nullptr, "the library is open all the same");
}

}  // namespace

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
