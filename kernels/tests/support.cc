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

void list_support(FILE *out) {
  note_all_support();
  for (const Support &support : noted) {
    std::string line;
    const std::vector<const sie_ops *> &both = support.layouts[1].tables;
    for (const sie_ops *ops : support.layouts[0].tables) {
      const bool any = std::find(both.begin(), both.end(), ops) != both.end();
      line += text(" %s%s", ops->name, any ? "" : "(aligned)");
    }
    fprintf(out, "%s:%s\n", support.form.c_str(), line.c_str());
  }
}

}  // namespace harness
