// gpu.cc — opens a GPU for csrc: chooses the table of kernels and the compute classes, and says
// why.
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#include "cuda/arch.h"
#include "cuda/cuda_ops.h"
#include "grow.h"
#include "status.h"

namespace sie {

namespace {

sie_status check_gpu(const sie_gpu *gpu, sie_error *err) {
  SIE_FAIL_IF(gpu->stream == nullptr, SIE_INVALID_ARGUMENT, err, "the stream is NULL");
  SIE_FAIL_IF(gpu->multiprocessors < 1 || gpu->multiprocessors > 65536, SIE_INVALID_ARGUMENT, err,
              "multiprocessors is %d; 1 to 65536 is possible", gpu->multiprocessors);
  SIE_FAIL_IF(gpu->overlap > SIE_OVERLAP_NEVER, SIE_INVALID_ARGUMENT, err,
              "overlap is %u; 0 to %d is possible", gpu->overlap, SIE_OVERLAP_NEVER);
  SIE_FAIL_IF(memchr(gpu->name, '\0', sizeof gpu->name) == nullptr, SIE_INVALID_ARGUMENT, err,
              "the card's name has no end");
  return SIE_OK;
}

}  // namespace

sie_status gpu_open(sie_device *device, const sie_gpu *card, sie_error *err) {
  SIE_FAIL_IF(card == nullptr, SIE_INVALID_ARGUMENT, err,
              "options.gpu is NULL; a GPU is opened by the caller");
  sie_gpu known;
  const sie_gpu *gpu = &known;
  SIE_TRY(take(card, &known, "sie_gpu", err));
  SIE_TRY(check_gpu(gpu, err));
  SIE_TRY(sie_gpu_check(gpu->major, gpu->minor, 0, err));
  int32_t sm = 10 * gpu->major + gpu->minor;
  device->ops = sie_cuda_ops(sm);
  SIE_FAIL_IF(device->ops == nullptr, SIE_UNSUPPORTED, err, "no kernels for compute capability %d.%d",
              gpu->major, gpu->minor);
  // A model cannot be of the class F32 here, because attention has no such form. F32 is only for
  // weights behind pooling.
  device->compute_mask = device->ops->compute_mask & ~(1u << SIE_COMPUTE_F32);
  device->threads = 1;  // an arena has one lane
  device->memory_total = gpu->memory_total;
  device->graphs = gpu->graphs != 0;
  const bool able = sm >= 90;
  device->on = {gpu->stream, sm, gpu->multiprocessors, able && gpu->overlap != SIE_OVERLAP_NEVER ? 1 : 0, 0};
  device->captured = device->on;
  device->captured.pdl = able && gpu->overlap == SIE_OVERLAP_ALWAYS ? 1 : 0;
  memcpy(device->name, gpu->name, sizeof device->name);
  const char *overlap = device->on.pdl == 0         ? "kernels start one after another"
                        : device->captured.pdl == 0 ? "programmatic launch, but not in graphs"
                                                    : "programmatic launch";
  snprintf(device->why, sizeof device->why,
           "%s kernels for compute capability %d.%d; %d multiprocessors; %s; %s", device->ops->name,
           gpu->major, gpu->minor, gpu->multiprocessors,
           device->graphs ? "batches of up to 1024 tokens as CUDA graphs" : "no CUDA graphs", overlap);
  return SIE_OK;
}

}  // namespace sie

sie_status sie_gpu_check(int32_t major, int32_t minor, int32_t driver, sie_error *err) {
  using namespace sie;
  char refusal[sizeof err->message];
  sie_status status = driver > 0 ? sie_cuda_driver_refusal(driver, refusal, sizeof refusal) : SIE_OK;
  if (status == SIE_OK) status = sie_cuda_arch_refusal(major, minor, refusal, sizeof refusal);
  SIE_FAIL_IF(status != SIE_OK, status, err, "%s", refusal);
  return SIE_OK;
}
