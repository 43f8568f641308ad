// linear_part_test.cc — the parts of a linear, for every number of parts: together they are the whole,
// once, and none is much larger than it must be.
#include "cpu/linear_part.h"

#include <algorithm>
#include <vector>

#include "check.h"

TEST(linear_parts_make_up_the_whole) {
  for (int64_t block : {1, 2, 6, 12, 16}) {
    for (int64_t rows : {0, 1, 5, 6, 7, 12, 13, 31, 32, 33, 100, 512}) {
      for (int64_t panels : {1, 2, 3, 12, 24, 36, 128}) {
        for (int32_t parts : {1, 2, 3, 5, 7, 16, 24, 63, 64}) {
          std::vector<int> done(static_cast<size_t>(rows * panels));
          int64_t largest = 0;
          bool ended = false;  // parts that have nothing come last
          for (int32_t part = 0; part < parts; part++) {
            const sie_share share = {part, parts, nullptr, 0, nullptr};
            const sie_cpu::LinearPart p = sie_cpu::part_of(rows, panels, block, &share);
            CHECK(p.rows.first >= 0 && p.rows.last <= rows && p.panels.first >= 0 && p.panels.last <= panels,
                  "part %d of %d leaves the whole", part, parts);
            const bool none = p.rows.first == p.rows.last || p.panels.first == p.panels.last;
            CHECK(p.empty() == none && (none || !ended), "part %d of %d has nothing, or something", part,
                  parts);
            ended = none;
            if (none) continue;
            CHECK(p.rows.first % block == 0 && (p.rows.last % block == 0 || p.rows.last == rows),
                  "part %d of %d cuts a block", part, parts);
            for (int64_t r = p.rows.first; r < p.rows.last; r++) {
              for (int64_t c = p.panels.first; c < p.panels.last; c++)
                done[static_cast<size_t>(r * panels + c)]++;
            }
            const int64_t blocks = (p.rows.last - p.rows.first + block - 1) / block;
            largest = std::max(largest, blocks * (p.panels.last - p.panels.first));
          }
          CHECK(std::all_of(done.begin(), done.end(), [](int n) { return n == 1; }),
                "%d parts of %lld × %lld are not the whole once", parts, static_cast<long long>(rows),
                static_cast<long long>(panels));
          // At most what panels alone would leave, and what the best of all grids does.
          const int64_t blocks = (rows + block - 1) / block;
          int64_t best = blocks * panels;
          for (int64_t d = 1; d <= (panels >= 4 * parts ? 1 : parts); d++) {
            best = std::min(best, (blocks + d - 1) / d * ((panels + parts / d - 1) / (parts / d)));
          }
          CHECK(largest <= best,
                "%d parts of %lld × %lld in blocks of %lld: the largest has %lld, %lld is possible", parts,
                static_cast<long long>(rows), static_cast<long long>(panels), static_cast<long long>(block),
                static_cast<long long>(largest), static_cast<long long>(best));
        }
      }
    }
  }
}

TEST(linear_parts_keep_a_panels_weights_in_one_part) {
  // Where panels divide as well as rows would, they are what is divided.
  for (int32_t parts : {2, 4, 12}) {
    const sie_share share = {parts - 1, parts, nullptr, 0, nullptr};
    const sie_cpu::LinearPart p = sie_cpu::part_of(512, 12, 16, &share);
    CHECK(p.rows.first == 0 && p.rows.last == 512 && p.panels.last - p.panels.first == 12 / parts,
          "%d parts: %lld rows", parts, static_cast<long long>(p.rows.last - p.rows.first));
  }
}

// splade asks for groups of panels as shares.
TEST(linear_parts_are_those_of_share_of_where_panels_are_many) {
  for (int32_t parts : {1, 3, 4, 17}) {
    for (int64_t panels = 4 * parts; panels < 4 * parts + 9; panels++) {
      for (int32_t part = 0; part < parts; part++) {
        const sie_share share = {part, parts, nullptr, 0, nullptr};
        const sie_cpu::LinearPart p = sie_cpu::part_of(100, panels, 6, &share);
        const sie_cpu::Range own = sie_cpu::share_of(panels, &share);
        CHECK(p.rows.first == 0 && p.rows.last == 100 && p.panels.first == own.first &&
                  p.panels.last == own.last,
              "share %d of %d of %lld panels has %lld … %lld", part, parts, static_cast<long long>(panels),
              static_cast<long long>(p.panels.first), static_cast<long long>(p.panels.last));
      }
    }
  }
}
