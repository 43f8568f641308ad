// run_parts.h — what the files that run a loaded batch share.
#ifndef SIE_CSRC_RUN_PARTS_H
#define SIE_CSRC_RUN_PARTS_H

#include "long_team.h"
#include "slot.h"

namespace sie {

// Member `member`'s replay of a slab, with the scratch of the executor's lane.
Replay make_replay(sie_slot *slot, int32_t slab, int32_t member, int32_t executor);

// What a team does between two meetings: an operation, as the step of that number.
struct Step {
  int32_t op, number;
};

// Notes that a member failed at a step. Another member may be ahead and have failed at a later one;
// the first failed step counts, so that all members leave after the same one.
void note_team_failure(sie_slot *slot, Team *team, Step step, sie_status status);

bool has_failed(const Team &team, int32_t step);

inline SlabShare *shares_of(sie_slot *slot) { return static_cast<SlabShare *>(slot->shares.p); }

// Fills the run of a slot that is loaded and has its arena: its tickets, teams and lists. In a batch
// with long slabs each slab has one ticket, because short slabs are never paused for others; behind
// them are the tickets of executors that join long slabs' teams.
void plan_run(sie_slot *slot);

// Runs a long slab as the leader of its team.
void lead_long(sie_slot *slot, int32_t slab, int32_t executor);

// Joins teams of the slot's long slabs, until none takes another member.
void help_long(sie_slot *slot, int32_t executor);

}  // namespace sie

#endif  // SIE_CSRC_RUN_PARTS_H
