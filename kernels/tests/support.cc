// support.cc — what is noted about forms, and the list of it.
#include "tests/support.h"

#include <algorithm>
#include <map>

namespace harness {

namespace {

std::vector<Support> noted;

Support &of_form(const std::string &form) {
  static std::map<std::string, size_t> index;
  const auto found = index.emplace(form, noted.size());
  if (found.second) noted.push_back({form, {}});
  return noted[found.first->second];
}

int layout_of(const Case &c) { return c.layout == odd ? 1 : 0; }

}  // namespace

bool note_form(const Case &c, bool run) {
  auto &layout = of_form(c.form).layouts[layout_of(c)];
  if (layout.there) return false;
  layout.there = true;
  layout.run = run;
  return true;
}

void note_support(const Case &c, const sie_ops *ops) {
  of_form(c.form).layouts[layout_of(c)].tables.push_back(ops);
}

const std::vector<Support> &noted_support() { return noted; }

void note_all_support() {
  for (const Group &group : groups()) {
    for (int index = 0;; index++) {
      const std::unique_ptr<Case> name = named(group.make, index);
      if (name == nullptr) break;
      if (name->bench || !note_form(*name, true)) continue;
      const std::unique_ptr<Case> c = group.make(index);
      for (const sie_ops *ops : backends()) {
        if (affordable(*c, ops, true) && run_whole(*c, ops)) note_support(*c, ops);
      }
    }
  }
}

std::string support_name(const sie_ops *ops) {
  if (SIE_ISA_FAMILY(ops->isa) == SIE_FAMILY_ARM64) return "avx2";
  const std::string name = ops->name, mark = "-emulated";
  const bool emulated =
      name.size() > mark.size() && name.compare(name.size() - mark.size(), mark.size(), mark) == 0;
  return emulated ? name.substr(0, name.size() - mark.size()) : name;
}

const std::vector<TableSet> &table_sets() {
  static const std::vector<TableSet> sets = {
      {"cpu", {"avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"}},
      {"cuda", {"cuda-sm80", "cuda-sm89", "cuda-sm90"}},
  };
  return sets;
}

void list_support(FILE *out) {
  note_all_support();
  for (const Support &support : noted) {
    std::vector<std::string> names;
    const std::vector<const sie_ops *> &both = support.layouts[1].tables;
    for (const sie_ops *ops : support.layouts[0].tables) {
      const bool any = std::find(both.begin(), both.end(), ops) != both.end();
      const std::string name = support_name(ops) + (any ? "" : "(aligned)");
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    for (const TableSet &set : table_sets()) {
      for (const char *mark : {"", "(aligned)"}) {
        std::vector<std::string> tables;
        for (const std::string &table : set.tables) tables.push_back(table + mark);
        const auto at = std::search(names.begin(), names.end(), tables.begin(), tables.end());
        if (at == names.end()) continue;
        *at = set.name + mark;
        names.erase(at + 1, at + static_cast<std::ptrdiff_t>(tables.size()));
      }
    }
    fprintf(out, "%s:", support.form.c_str());
    for (const std::string &name : names) fprintf(out, " %s", name.c_str());
    fprintf(out, "\n");
  }
}

}  // namespace harness
