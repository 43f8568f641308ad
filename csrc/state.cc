// state.cc — state that outlives a batch; empty so far (sie.h, sie_state_desc).
#include "grow.h"
#include "memory.h"
#include "slot.h"
#include "status.h"

using namespace sie;

sie_status sie_state_create(sie_device *device, const sie_state_desc *desc, sie_state **state,
                            sie_error *err) {
  SIE_FAIL_IF(state == nullptr, SIE_INVALID_ARGUMENT, err, "state is NULL");
  *state = nullptr;
  sie_state_desc known;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  SIE_TRY(take(desc, &known, "sie_state_desc", err));
  SIE_FAIL_IF(known.reserved != 0, SIE_INVALID_ARGUMENT, err, "reserved is %u, not 0", known.reserved);
  sie_state *s = new_object<sie_state>();
  SIE_FAIL_IF(s == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a state");
  s->device = device;
  *state = s;
  return SIE_OK;
}

void sie_state_free(sie_state *state) { destroy_object(state); }
