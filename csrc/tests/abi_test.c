/* abi_test.c — the header is C11: includes it, uses its types, and calls functions that need no
 * device. */
#include "sie.h"

int sie_abi_test_c(void);

int sie_abi_test_c(void) {
  sie_error err = {0, ""};
  sie_device_options options = {sizeof options, SIE_DEVICE_CPU, 0, SIE_ISA_BEST, 0, 0, 0};
  sie_device_info info = {0};
  sie_weight_desc weight = {0};
  sie_batch batch = {0};
  sie_op op = {SIE_LINEAR, 0, 0};
  sie_attention_params attention = {0};
  sie_out_item item = {SIE_BINARY, 0, 1, 0, 0};
  sie_slot_caps slot = {0};
  sie_device *device = 0;
  options.struct_size = 1;
  info.struct_size = weight.struct_size = batch.struct_size = attention.struct_size = slot.struct_size = 0;
  if (info.struct_size + weight.struct_size + batch.struct_size + attention.struct_size + slot.struct_size !=
      0)
    return 5;
  if (op.kind != SIE_LINEAR) return 6;
  if (sie_abi_version() != SIE_ABI_VERSION || SIE_ABI_VERSION != 5) return 1;
  if (sie_device_open(&options, &device, &err) != SIE_INVALID_ARGUMENT || device != 0) return 2;
  if (err.status != SIE_INVALID_ARGUMENT || err.message[0] == '\0') return 3;
  if (sizeof item != 24 || sizeof err != 256) return 4; /* Go mirrors these */
  return 0;
}
