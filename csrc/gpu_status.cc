// gpu_status.cc — maps a code of the CUDA driver to what it means for the process.
//
// Source: CUresult in the CUDA Driver API. After most errors of a kernel "the process must be
// terminated and relaunched"; unknown codes count as such errors.
#include "sie.h"

sie_status sie_gpu_status(int32_t code) {
  switch (code) {
    case 0:
      return SIE_OK;
    case 2:
      return SIE_OUT_OF_MEMORY;
    case 100:  // no device
    case 101:  // invalid device
    case 209:  // no binary for the GPU
    case 222:  // unsupported PTX version
    case 801:  // not supported
    case 803:  // driver mismatch
    case 804:  // compatibility not supported on the device
      return SIE_UNSUPPORTED;
    case 1:    // invalid value
    case 3:    // not initialised
    case 201:  // invalid context
    case 400:  // invalid handle
    case 600:  // not ready
    case 701:  // launch out of resources
    case 912:  // invalid cluster size
      return SIE_INTERNAL;
    default:
      // 900 … 908: a capture was invalidated; nothing ran.
      return code >= 900 && code <= 908 ? SIE_INTERNAL : SIE_DEVICE_LOST;
  }
}
