// gpu_nonfinite_test.cc — which sequences a run on a GPU flags (sie_slot_nonfinite): the same as on
// a CPU, also when a graph is replayed.
#include "card.h"
#include "device.h"
#include "nonfinite.h"

using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using heads::Head;
using model::Model;
using model::Shape;

// Each head meets each value on some path: the CPU's test tries every value everywhere.
TEST_LIST(gpu_nonfinite_sequences_are_flagged) {
  const float values[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < heads::count; i++) {
    if (!check::in_shard(i)) continue;
    const Head &head = heads::all[i];
    int turn = i;
    for (const Path &path : card::some_paths(i)) {
      float value = values[turn++ % 3];
      StandInCard card(path.major, path.minor, true);
      Model m;
      Shape shape;
      shape.layers = 1;
      shape.ffn = 192;
      shape.positions = 300;
      shape.tail = head.tail;
      sie_status status = m.open_on(&card, path.compute, shape);
      if (status == SIE_UNSUPPORTED && !head.has(m.device->ops)) continue;
      CHECK(status == SIE_OK, "%s %s: %s", head.name, name_of(path), m.err.message);
      if (status == SIE_OK) heads::check_nonfinite(&m, head, {0, 1, 2, 4, 5, 7}, name_of(path), {value});
    }
  }
}

TEST(gpu_nonfinite_rows_that_reach_no_output_are_no_fault) {
  for (const Path &path : paths) {
    for (sie_pooling mode : {SIE_POOL_CLS, SIE_POOL_LAST, SIE_POOL_MEAN, SIE_POOL_MAX}) {
      StandInCard card(path.major, path.minor, true);
      Model m;
      CHECK(m.open_on(&card, path.compute, heads::pooled_shape(mode)) == SIE_OK, "%s", m.err.message);
      if (m.slots[0] != nullptr) heads::check_rows_read(&m, mode, name_of(path));
    }
  }
}
