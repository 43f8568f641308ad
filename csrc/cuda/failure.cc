// failure.cc — turns a driver's code into a sie_error.
#include "cuda/gpu_program.h"
#include "status.h"

namespace sie {

sie_status driver_failure(int code, const char *what, sie_error *err) {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (cuGetErrorString(code, &words) != CUDA_SUCCESS || words == nullptr) words = "no description";
  return fail(err, sie_gpu_status(code), "%s: %s (%d): %s", what, name, code, words);
}

}  // namespace sie
