// arch.h — tells which cards this library has code for.
//
// The library holds machine code for the targets it was built for, and no PTX that a driver could
// compile for others (cmake/cuda.cmake). Machine code of target X.Y runs on cards of capability X.Z
// with Z ≥ Y. With the suffix a it runs on exactly X.Y; with f on its family, X.Z with Z ≥ Y. The
// 8.7 and 8.8 of Jetson boards run no code of the cards' 8.x. Source: CUDA C++ Programming Guide
// 13.0, Binary Compatibility and Family-Specific Features.
#ifndef SIE_KERNELS_CUDA_ARCH_H
#define SIE_KERNELS_CUDA_ARCH_H

#include <stddef.h>
#include <stdint.h>

#include "sie.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sie_cuda_arch_refusal — whether this library runs on a card of compute capability major.minor.
 *
 * message [size] receives the reason for a refusal in one line cut to size: the card's capability,
 * the needed one, and what to do about it; with SIE_OK it is "". It may be NULL with size 0.
 *
 * Thread-safe; calls no CUDA. Returns SIE_OK, or SIE_UNSUPPORTED: older than 8.0, or no target
 * fits. */
sie_status sie_cuda_arch_refusal(int32_t major, int32_t minor, char *message, size_t size);

/* The same for a library built by CUDA `release` (such as "13.0") for `targets` (such as
 * "80,86,90a,100f"). */
sie_status sie_cuda_arch_refusal_of(const char *targets, const char *release, int32_t major, int32_t minor,
                                    char *message, size_t size);

/* sie_cuda_driver_refusal — whether this library runs with a driver for CUDA `driver`,
 * 1000·major + 10·minor as the driver reports it (13000). The driver must be of the library's major
 * release or newer: releases of one major are compatible both ways as long as the library brings
 * machine code (CUDA Compatibility, minor version compatibility). message and status are those of
 * sie_cuda_arch_refusal. */
sie_status sie_cuda_driver_refusal(int32_t driver, char *message, size_t size);

/* The same for a library built by CUDA `release`. */
sie_status sie_cuda_driver_refusal_of(const char *release, int32_t driver, char *message, size_t size);

#ifdef __cplusplus
}
#endif

#endif  // SIE_KERNELS_CUDA_ARCH_H
