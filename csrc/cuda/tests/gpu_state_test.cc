// gpu_state_test.cc — sequences behind prefixes in a state, on an emulated GPU: the bits of whole
// sequences, launched kernel by kernel, captured and replayed.
#include "card.h"
#include "decoder.h"
#include "tests/check.h"

using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using decoder::Behind;
using decoder::Decoder;
using decoder::Text;

TEST(gpu_states_give_the_bits_of_whole_sequences) {
  const std::vector<Text> prefixes = {{1, 60, -1}, {2, 1, 0}, {3, 33, 1}};
  std::vector<Behind> texts;
  for (int length : {1, 4, 5, 70}) texts.push_back({{100 + length, length, -1}, 0});
  for (int length : {1, 31, 32}) texts.push_back({{200 + length, length, 0}, 1});
  for (int length : {2, 16, 95, 96}) texts.push_back({{300 + length, length, 1}, 2});
  texts.push_back({{400, 20, -1}, -1});
  for (const Path &path : paths) {
    StandInCard on(path.major, path.minor, true);
    Decoder d;
    const sie_status status = d.open_on(&on, path.compute);
    CHECK(status == SIE_OK, "%s: status %d %s %s", name_of(path), status, d.err.message, d.m.err.message);
    if (status != SIE_OK) continue;
    // The whole sequences and the texts fit a bucket: the third run of each replays a graph.
    for (int round = 0; round < 3; round++) {
      const int n = differences(d.plain(prefixes, texts), d.shared(prefixes, texts));
      CHECK(n == 0, "%s, round %d: %d results differ (%s)", name_of(path), round, n, d.err.message);
    }
    // Without a prefix there is no state in the graph.
    const std::vector<Behind> alone = {{{7, 12, -1}, -1}, {{8, 300, -1}, -1}};
    const int n = differences(d.plain({}, alone), d.read({}, alone));
    CHECK(n == 0, "%s: %d results without a prefix differ (%s)", name_of(path), n, d.err.message);
  }
}
