// stubs.cc — finds the driver library when it is first needed, and each function when it is first
// called.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/driver.h"

namespace {

const char *const names[] = {
#define SIE_DRIVER_FUNCTION(name) #name,
#include "functions.inc"
#undef SIE_DRIVER_FUNCTION
};
constexpr uint32_t count = sizeof names / sizeof names[0];

pthread_once_t once = PTHREAD_ONCE_INIT;
void *library;
int start_code = CUDA_ERROR_NO_DEVICE;
char start_problem[384];

// The functions that answer a call when there is no driver, and when the driver lacks the function.
// They ignore the call's arguments, which lie in registers and in the caller's part of the stack.
int answer_start_code() { return start_code; }
int answer_not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

template <class Function>
Function *look_up(const char *name) {
  return reinterpret_cast<Function *>(dlsym(library, name));
}

void start() {
  const char *name = getenv("SIE_LIBCUDA");
  if (name == nullptr || *name == '\0') name = "libcuda.so.1";
  library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char *why = dlerror();
    snprintf(start_problem, sizeof start_problem, "%s", why != nullptr ? why : "dlopen failed");
    return;
  }
  auto *init = look_up<int(unsigned)>("cuInit");
  start_code = init != nullptr ? init(0) : CUDA_ERROR_NOT_SUPPORTED;
  if (start_code == CUDA_SUCCESS) return;
  const char *error = nullptr;
  auto *error_name = look_up<int(int, const char **)>("cuGetErrorName");
  if (error_name == nullptr || error_name(start_code, &error) != CUDA_SUCCESS) error = nullptr;
  snprintf(start_problem, sizeof start_problem, "cuInit of %s answers %d %s", name, start_code,
           error != nullptr ? error : "(no name)");
}

}  // namespace

extern "C" {

extern void *sie_driver_slots[count] __attribute__((visibility("hidden")));

// gorgonia.org/cu calls this before main and ends the process if it fails, also on a machine
// without a driver. So it never fails. start() calls the driver's own cuInit.
__attribute__((visibility("hidden"))) int cuInit(unsigned) { return CUDA_SUCCESS; }

__attribute__((visibility("hidden"))) void *sie_driver_resolve(uint32_t number) {
  pthread_once(&once, start);
  void *function = reinterpret_cast<void *>(answer_start_code);
  if (start_code == CUDA_SUCCESS) {
    function = dlsym(library, names[number]);
    if (function == nullptr) function = reinterpret_cast<void *>(answer_not_supported);
  }
  // Threads that race here all store the same address.
  __atomic_store_n(&sie_driver_slots[number], function, __ATOMIC_RELAXED);
  return function;
}

int sie_driver_start(const char **why) {
  pthread_once(&once, start);
  if (why != nullptr) *why = start_problem;
  return start_code;
}

void *sie_driver_symbol(const char *name) {
  pthread_once(&once, start);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

}  // extern "C"
