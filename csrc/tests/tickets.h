// tickets.h — the tickets of runs that tests make up.
#ifndef SIE_CSRC_TESTS_TICKETS_H
#define SIE_CSRC_TESTS_TICKETS_H

#include <stdint.h>

#include <vector>

#include "executor.h"

namespace tickets {

// The tickets of these slabs, slab by slab; members[slab] is the size of a slab's team.
inline std::vector<sie::Ticket> of(const std::vector<int32_t> &slabs, const std::vector<int32_t> &members) {
  std::vector<sie::Ticket> all;
  for (int32_t slab : slabs) {
    for (int32_t m = 0; m < members[static_cast<size_t>(slab)]; m++) all.push_back({slab, m});
  }
  return all;
}

// Those of slabs 0, 1, … with teams of these sizes.
inline std::vector<sie::Ticket> of(const std::vector<int32_t> &members) {
  std::vector<int32_t> slabs(members.size());
  for (size_t i = 0; i < slabs.size(); i++) slabs[i] = static_cast<int32_t>(i);
  return of(slabs, members);
}

}  // namespace tickets

#endif  // SIE_CSRC_TESTS_TICKETS_H
