// record.cu — runs every experiment on the GPU of this machine and writes <folder>/<name>.bin for
// each.
//
//   sie_record testdata/hopper
//
// Exit 0: all experiments that the device can run are written; 1: one failed; 2: no device.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simt/experiments.h"

namespace {

using simt_record::Experiment;
using simt_record::Recording;

constexpr uint32_t input_seed = 1;

// Device memory of one experiment, and the host's copies.
struct Buffers {
  uint8_t *host_in, *host_out;
  void *in, *out;
};

bool run(const Experiment &experiment, const sie_stream &on, const Buffers &b) {
  simt_record::fill_input(experiment, input_seed, b.host_in);
  if (cudaMemcpy(b.in, b.host_in, experiment.input_bytes, cudaMemcpyHostToDevice) != cudaSuccess)
    return false;
  if (cudaMemset(b.out, 0xff, experiment.output_bytes) != cudaSuccess) return false;
  sie_status status = experiment.run(&on, b.in, b.out);
  cudaError_t error = cudaDeviceSynchronize();
  if (status != SIE_OK || error != cudaSuccess) {
    fprintf(stderr, "%s: status %d, %s\n", experiment.name, static_cast<int>(status),
            cudaGetErrorString(error));
    return false;
  }
  return cudaMemcpy(b.host_out, b.out, experiment.output_bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

bool write(const char *folder, const Experiment &experiment, int32_t sm, const Buffers &b) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s.bin", folder, experiment.name);
  Recording head = {};
  memcpy(head.magic, "SIEREC01", 8);
  snprintf(head.name, sizeof head.name, "%s", experiment.name);
  head.sm = sm;
  head.input_bytes = experiment.input_bytes;
  head.output_bytes = experiment.output_bytes;
  FILE *file = fopen(path, "wb");
  if (file == nullptr) {
    perror(path);
    return false;
  }
  bool written = fwrite(&head, sizeof head, 1, file) == 1 &&
                 fwrite(b.host_in, 1, experiment.input_bytes, file) == experiment.input_bytes &&
                 fwrite(b.host_out, 1, experiment.output_bytes, file) == experiment.output_bytes;
  return fclose(file) == 0 && written;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: sie_record FOLDER\n");
    return 1;
  }
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || cudaSetDevice(0) != cudaSuccess) {
    fprintf(stderr, "no CUDA device\n");
    return 2;
  }
  const sie_stream on = {nullptr, 10 * device.major + device.minor, device.multiProcessorCount, 0, 0};
  size_t count, largest = 0;
  const Experiment *list = simt_record::experiments(&count);
  for (size_t i = 0; i < count; i++) {
    if (list[i].input_bytes > largest) largest = list[i].input_bytes;
    if (list[i].output_bytes > largest) largest = list[i].output_bytes;
  }
  Buffers b = {static_cast<uint8_t *>(malloc(largest)), static_cast<uint8_t *>(malloc(largest)), nullptr,
               nullptr};
  if (b.host_in == nullptr || b.host_out == nullptr || cudaMalloc(&b.in, largest) != cudaSuccess ||
      cudaMalloc(&b.out, largest) != cudaSuccess) {
    fprintf(stderr, "no memory\n");
    return 1;
  }
  int recorded = 0, skipped = 0, failed = 0;
  for (size_t i = 0; i < count; i++) {
    if (on.sm < list[i].sm || (list[i].wgmma && on.sm / 10 != 9)) {
      skipped++;
    } else if (run(list[i], on, b) && write(argv[1], list[i], on.sm, b)) {
      recorded++;
    } else {
      failed++;
    }
  }
  printf("%s, sm_%d: %d recorded, %d not for this device, %d failed\n", device.name, on.sm, recorded, skipped,
         failed);
  return failed == 0 ? 0 : 1;
}
