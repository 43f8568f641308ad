// gpu_found_test.cc — outputs of scores above thresholds on an emulated GPU (found.h): against all
// scores, alone and in batches, as graphs, with too little room, and flagged.
#include "card.h"
#include "device.h"
#include "found.h"

using card::index_of;
using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using model::Batch;
using model::Model;
using model::Result;

namespace {

bool open(Model *m, StandInCard *card, const Path &path, sie_status (*tail)(Model *, sie_value)) {
  model::Shape shape;
  shape.layers = 1;
  shape.ffn = 192;
  shape.positions = 300;
  shape.tail = tail;
  const sie_status status = m->open_on(card, path.compute, shape);
  CHECK(status == SIE_OK, "%s: %s", name_of(path), m->err.message);
  return status == SIE_OK;
}

// Without labels, without tokens, with one token; and with every threshold.
const std::vector<int> numbers = {3, 4, 1, 12, 0, 5, 9};

}  // namespace

// Each of these begins its list elsewhere, so that no turn has all of a path.

// Room for all records on one path, for three on the next.
TEST_LIST(gpu_found_are_the_scores_above) {
  for (const Path &path : paths) {
    if (!check::in_shard(index_of(path) + 2)) continue;
    StandInCard card(path.major, path.minor, false);
    Model m;
    if (!open(&m, &card, path, found::both_tail)) continue;
    const Batch batch = found::batch_of(m.shape, numbers, index_of(path) % 2 == 0 ? 4000 : 3);
    const Result result = run(&m, batch);
    CHECK(result.status == SIE_OK, "%s: %s", name_of(path), m.err.message);
    for (int b = 0; b < static_cast<int>(numbers.size()); b++) {
      for (int o = 0; o < 2; o++) found::check_item(name_of(path), m, batch, result, o, b);
    }
  }
}

// Room for all records, or for some; a batch twice, kernel by kernel and as a graph. On a path every
// second sequence runs alone, on the next one the others.
TEST_LIST(gpu_found_do_not_depend_on_the_batch_or_the_graph) {
  for (const Path &path : paths) {
    if (!check::in_shard(index_of(path) + 4)) continue;
    StandInCard card(path.major, path.minor, true);
    Model m;
    if (!open(&m, &card, path, found::both_tail)) continue;
    const int32_t room = index_of(path) % 2 == 0 ? 20 : 300;
    const Batch batch = found::batch_of(m.shape, numbers, room);
    const Result together = run(&m, batch);
    CHECK(together.status == SIE_OK, "%s: %s", name_of(path), m.err.message);
    for (int time = 0; time < 2; time++) {
      for (size_t b = static_cast<size_t>(index_of(path) % 2); b < numbers.size(); b += 2) {
        const Batch one = found::batch_of(m.shape, {numbers[b]}, room);
        const Result alone = run(&m, one);
        for (int o = 0; o < 2; o++) {
          CHECK(found::item(one, alone, o, 0) == found::item(batch, together, o, static_cast<int>(b)),
                "%s: output %d of sequence %d differs alone, time %d", name_of(path), o, numbers[b], time);
        }
      }
    }
  }
}

// Labels that the batch brings, in float32 whatever the class is, and that sequences share. The last
// sequence has none.
TEST_LIST(gpu_found_with_given_labels_are_those_with_own_ones) {
  const std::vector<int> twice = {3, 12, 4, 3, 1, 0, 12, 5};
  for (const Path &path : paths) {
    if (!check::in_shard(index_of(path) + 6)) continue;
    StandInCard card(path.major, path.minor, false);
    Model own, given;
    if (!open(&own, &card, path, found::both_tail) || !open(&given, &card, path, found::given_tail)) continue;
    const Batch batch = found::batch_of(own.shape, twice, 50);
    const Result want = run(&own, batch);
    const Batch shared = found::with_given_labels(batch, want, twice, twice.size() - 1);
    const Result got = run(&given, shared);
    CHECK(want.status == SIE_OK && got.status == SIE_OK, "%s: %s%s", name_of(path), own.err.message,
          given.err.message);
    for (int b = 0; b < static_cast<int>(twice.size()); b++) {
      for (int o = 0; o < 2; o++) {
        const std::vector<int32_t> expected = b + 1 == static_cast<int>(twice.size())
                                                  ? std::vector<int32_t>{0}
                                                  : found::item(batch, want, o, b);
        CHECK(found::item(shared, got, o, b) == expected, "%s: output %d of sequence %d differs",
              name_of(path), o, b);
      }
    }
  }
}

TEST_LIST(gpu_found_scores_flag_what_is_not_finite) {
  for (const Path &path : paths) {
    if (!check::in_shard(index_of(path) + 8)) continue;
    for (const bool pairs : {false, true}) {
      StandInCard card(path.major, path.minor, true);
      Model m;
      if (open(&m, &card, path, pairs ? found::pairs_tail : found::spans_tail))
        found::check_flags(name_of(path), &m, pairs);
    }
  }
}
