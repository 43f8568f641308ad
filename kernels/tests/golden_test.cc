// golden_test.cc — what is compared with files: NumPy's bits of output_rows, and the support table.
#include <map>
#include <set>

#include "tests/support.h"

using namespace harness;

namespace {

std::vector<uint8_t> read_file(const char *path) {
  std::vector<uint8_t> bytes;
  FILE *file = fopen(path, "rb");
  if (file == nullptr) return bytes;
  uint8_t block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) bytes.insert(bytes.end(), block, block + n);
  fclose(file);
  return bytes;
}

// The names of a line of support.txt: of all tables that have the form, and of those that take odd rows.
struct Names {
  std::set<std::string> layouts[2];
};

std::map<std::string, Names> parse_support(const std::string &all) {
  std::map<std::string, Names> forms;
  for (size_t at = 0; at < all.size();) {
    size_t end = all.find('\n', at);
    if (end == std::string::npos) end = all.size();
    std::string line = all.substr(at, end - at);
    at = end + 1;
    size_t colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    Names &names = forms[line.substr(0, colon)];
    for (size_t from = colon + 1; from < line.size();) {
      size_t space = line.find(' ', from + 1);
      if (space == std::string::npos) space = line.size();
      const std::string name = line.substr(from + 1, space - from - 1);
      const size_t mark = name.find("(aligned)");
      names.layouts[0].insert(name.substr(0, mark));
      if (mark == std::string::npos) names.layouts[1].insert(name);
      from = space;
    }
  }
  return forms;
}

}  // namespace

TEST(output_rows_are_numpys_bits) {
  std::vector<uint8_t> file = read_file(SIE_TESTDATA "/output_rows.bin");
  size_t at = 0;
  auto take = [&](void *p, size_t bytes) {
    if (at + bytes > file.size()) return false;
    memcpy(p, file.data() + at, bytes);
    at += bytes;
    return true;
  };
  int32_t count = 0;
  CHECK(take(&count, sizeof count) && count >= 100, "%d cases in output_rows.bin", count);
  for (int32_t i = 0; i < count; i++) {
    int32_t head[3];
    if (!take(head, sizeof head))
      return check::failed(__FILE__, __LINE__, "output_rows.bin ends in case %d", i);
    std::vector<float> row(static_cast<size_t>(head[1]));
    std::vector<uint8_t> want(static_cast<size_t>(head[2])), got(want.size());
    bool whole = take(row.data(), row.size() * sizeof(float)) && take(want.data(), want.size());
    CHECK(whole, "output_rows.bin ends in case %d", i);
    for (const sie_ops *ops : backends()) {
      sie_out_item item = {head[0], 0, 0, 0, 0};
      int32_t one = 1;
      sie_output_rows_args a = {};
      a.seqs = {1, &one};
      a.c = head[1];
      a.x = {row.data(), head[1], SIE_F32, 0, nullptr, nullptr, nullptr};
      a.items = &item;
      a.out = got.data();
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_OUTPUT_ROWS;
      bounds.c = head[1];
      Scratch scratch(ops, bounds);
      sie_share share = scratch.share(0, 1);
      CHECK(ops->output_rows(&a, &share) == SIE_OK, "%s has no output_rows", ops->name);
      for (size_t b = 0; b < want.size(); b++) {
        CHECK(got[b] == want[b], "%s: case %d (%s, %d columns), byte %zu is %d, NumPy's is %d", ops->name, i,
              dtype_text(head[0]), head[1], b, got[b], want[b]);
      }
    }
  }
}

// A form that golden says a table has must not get lost; a new one must be written down.
void harness::check_support() {
  if (noted_support().empty()) note_all_support();
  const std::vector<uint8_t> bytes = read_file(SIE_SUPPORT_FILE);
  const auto golden = parse_support(std::string(bytes.begin(), bytes.end()));
  CHECK(golden.size() > 100, "%zu forms in support.txt", golden.size());
  const char *update =
      "if that is meant: kernel_tests --support > kernels/tests/support.txt, on a machine with all";
  std::set<std::string> forms;
  size_t compared = 0;
  for (const Support &now : noted_support()) {
    forms.insert(now.form);
    const auto found = golden.find(now.form);
    CHECK(found != golden.end(), "%s is not in the table; %s", now.form.c_str(), update);
    for (int layout = 0; layout < 2 && found != golden.end(); layout++) {
      if (!now.layouts[layout].run) continue;
      for (const sie_ops *ops : backends()) {
        bool has = false;
        for (const sie_ops *o : now.layouts[layout].tables) has = has || o == ops;
        const bool had = found->second.layouts[layout].count(ops->name) != 0;
        CHECK(has == had, "%s %s %s%s; %s", ops->name, had ? "lost" : "has, and the table lacks,",
              now.form.c_str(), layout != 0 ? " with odd rows" : "", update);
        compared++;
      }
    }
  }
  bool whole = true;  // or some groups were not asked for
  for (const Group &group : groups()) whole = whole && forms.count(group.make(0)->form) != 0;
  for (const auto &line : golden) {
    CHECK(!whole || forms.count(line.first) != 0, "%s is no longer in the list; %s", line.first.c_str(),
          update);
  }
  printf("     support: %zu forms, %zu tables here, %zu compared\n", noted_support().size(),
         backends().size(), compared);
}
