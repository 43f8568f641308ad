// support_golden.cc — support.txt, and the comparison with it.
#include <map>
#include <set>

#include "tests/support.h"

// The programs for a bare GPU host have no support.txt: refusals of their tables are not checked.
#ifndef SIE_SUPPORT_FILE
#define SIE_SUPPORT_FILE ""
#endif

namespace harness {

namespace {

// The names in a line of support.txt: all tables that have the form, and those that take odd rows.
struct Names {
  std::set<std::string> layouts[2];
};

// The tables that a name of support.txt stands for.
std::vector<std::string> tables_of(const std::string &name) {
  for (const TableSet &set : table_sets()) {
    if (set.name == name) return set.tables;
  }
  return {name};
}

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
      for (const std::string &table : tables_of(name.substr(0, mark))) {
        names.layouts[0].insert(table);
        if (mark == std::string::npos) names.layouts[1].insert(table);
      }
      from = space;
    }
  }
  return forms;
}

std::map<std::string, Names> read_support() {
  std::string all;
  FILE *file = fopen(SIE_SUPPORT_FILE, "rb");
  if (file == nullptr) return {};
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) all.append(block, n);
  fclose(file);
  return parse_support(all);
}

const std::map<std::string, Names> &golden_support() {
  static const std::map<std::string, Names> golden = read_support();
  return golden;
}

}  // namespace

bool should_run(const Case &c, const sie_ops *ops, bool otherwise) {
  const auto found = golden_support().find(c.form);
  if (found == golden_support().end()) return otherwise;
  return found->second.layouts[c.layout == odd ? 1 : 0].count(support_name(ops)) != 0;
}

// A form that the golden file lists for a table must not get lost; a new one must be added to the
// file.
void check_support() {
  if (noted_support().empty()) note_all_support();
  const auto &golden = golden_support();
  CHECK(golden.size() > 100, "%zu forms in support.txt", golden.size());
  const char *update =
      "if that is meant: kernel_tests --support > kernels/tests/support.txt, on an x86-64 with all";
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
        const bool had = found->second.layouts[layout].count(support_name(ops)) != 0;
        CHECK(has == had, "%s %s %s%s; %s", ops->name, had ? "lost" : "has, and the table lacks,",
              now.form.c_str(), layout != 0 ? " with odd rows" : "", update);
        compared++;
      }
    }
  }
  bool whole = true;  // or some groups were not asked for
  for (const Group &group : groups()) whole = whole && forms.count(named(group.make, 0)->form) != 0;
  for (const auto &line : golden) {
    CHECK(!whole || forms.count(line.first) != 0, "%s is no longer in the list; %s", line.first.c_str(),
          update);
  }
  printf("     support: %zu forms, %zu tables here, %zu compared\n", noted_support().size(),
         backends().size(), compared);
}

}  // namespace harness
