// gpu_state_test.cc — sequences behind prefixes in a state, on an emulated GPU: the bits of whole
// sequences, launched kernel by kernel, captured and replayed.
#include <string.h>

#include "card.h"
#include "decoder.h"
#include "tests/check.h"

using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using decoder::Behind;
using decoder::Decoder;
using decoder::Result;
using decoder::Text;

TEST_LIST(gpu_states_give_the_bits_of_whole_sequences) {
  const std::vector<Text> prefixes = {{1, 60, -1}, {2, 1, 0}, {3, 33, 1}};
  std::vector<Behind> texts;
  for (int length : {1, 4, 5, 70}) texts.push_back({{100 + length, length, -1}, 0});
  for (int length : {1, 31, 32}) texts.push_back({{200 + length, length, 0}, 1});
  for (int length : {2, 16, 95, 96}) texts.push_back({{300 + length, length, 1}, 2});
  texts.push_back({{400, 20, -1}, -1});
  for (const Path &path : paths) {
    if (!check::in_shard(card::index_of(path))) continue;
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

// Programs with other bounds lay the same state out otherwise: a graph is one for the layout, and for where the
// state and the arena lie. Without graphs every run finds them for itself.
TEST(gpu_graphs_find_what_has_moved) {
  char calls[8192];
  const std::vector<Text> some = {{1, 60, -1}, {3, 33, 1}}, others = {{4, 51, -1}, {5, 42, 1}};
  const std::vector<Behind> texts = {{{6, 9, -1}, 0}, {{7, 30, 1}, 1}, {{8, 5, -1}, -1}};
  for (bool graphs : {false, true}) {
    StandInCard on(9, 0, graphs);
    Decoder d;
    const sie_status status = d.open_on(&on, SIE_COMPUTE_BF16);
    CHECK(status == SIE_OK, "status %d %s %s", status, d.err.message, d.m.err.message);
    if (status != SIE_OK) return;
    const Result of_some = d.plain(some, texts), of_others = d.plain(others, texts);
    CHECK(sie_standin_command("reset-calls", calls, sizeof calls) == 0, "%s", calls);
    // The second and the third run replay a graph, which the next step finds.
    bool first = true;
    auto three_times = [&](sie_status moved, const char *what) {
      CHECK(moved == SIE_OK, "%s: %s", what, d.err.message);
      for (int time = 0; time < 3; time++, first = !first) {
        const int n = differences(first ? of_some : of_others, d.shared(first ? some : others, texts));
        CHECK(n == 0, "graphs %d, %s, time %d: %d results differ (%s)", graphs, what, time, n, d.err.message);
      }
    };
    three_times(SIE_OK, "at first");
    three_times(d.replace_writer(1000), "a state of 1000 rows");
    three_times(d.replace_writer(97), "a state of 97 rows");  // its only bucket has no graph
    three_times(d.place_state(), "another place of the state");
    three_times(d.place_arena(), "another place of the arena");
    three_times(d.replace_writer(decoder::state_rows), "the first state");
    CHECK(sie_standin_command("calls", calls, sizeof calls) == 0, "%s", calls);
    const bool replayed = strstr(calls, "cuGraphLaunch 18") != nullptr;  // 6 · 2 that read, 3 · 2 that write
    CHECK(replayed == graphs, "graphs %d:\n%s", graphs, calls);
  }
}

// A run that is refused leaves the rows that are written; one whose launches or whose graph are refused leaves
// none.
TEST(gpu_states_keep_no_rows_of_a_failed_run) {
  char answer[256];
  const std::vector<Text> prefix = {{1, 60, -1}}, longer = {{2, 64, -1}};
  const std::vector<Behind> texts = {{{3, 5, -1}, 0}, {{4, 20, -1}, 0}};
  for (const char *failure :
       {"fail cuLaunchKernelEx 1 912", "fail cuLaunchKernelEx 9 912", "fail cuGraphLaunch 1 912"}) {
    StandInCard on(9, 0, strstr(failure, "Graph") != nullptr);
    Decoder d;
    const sie_status status = d.open_on(&on, SIE_COMPUTE_BF16);
    CHECK(status == SIE_OK, "status %d %s %s", status, d.err.message, d.m.err.message);
    if (status != SIE_OK) return;
    const Result want = d.plain(prefix, texts);
    auto refuses = [&](const std::vector<Text> &prefixes, const char *says) {
      const Result got = d.read(prefixes, texts);
      CHECK(got.status == SIE_INVALID_ARGUMENT && strstr(d.err.message, says) != nullptr, "%s: status %d: %s",
            says, got.status, d.err.message);
    };
    auto reads = [&](const char *when) {
      const int n = differences(want, d.read(prefix, texts));
      CHECK(n == 0, "%s: %d results differ (%s)", when, n, d.err.message);
    };
    for (int time = 0; time < 3; time++) CHECK(d.write(prefix) == SIE_OK, "%s", d.err.message);
    reads("written");
    sie_arena *const own = d.arena;
    const sie_workspace workspace = {sie_arena_bytes(own), 0};
    CHECK(sie_arena_create(d.m.device, &workspace, &d.arena, &d.err) == SIE_OK, "%s", d.err.message);
    CHECK(d.write(longer) == SIE_INVALID_ARGUMENT && strstr(d.err.message, "arena is not placed") != nullptr,
          "%s", d.err.message);
    sie_arena_free(d.arena);
    d.arena = own;
    refuses(longer, "names 64 rows of the state; 60 are written");
    reads("a refused run");
    CHECK(sie_standin_command(failure, answer, sizeof answer) == 0, "%s", answer);
    CHECK(d.write(longer) == SIE_INTERNAL, "%s: %s", failure, d.err.message);
    for (const auto *prefixes : {&longer, &prefix}) refuses(*prefixes, "0 are written");
    CHECK(d.write(prefix) == SIE_OK, "%s", d.err.message);
    reads(failure);
  }
}
