// support.h — records which tables have which forms, for kernels/tests/support.txt.
//
// A table has a form when it accepts the form's first case; for odd rows, the first case with odd
// rows. This is noted while the list runs, so it costs no further runs.
#ifndef SIE_KERNELS_TESTS_SUPPORT_H
#define SIE_KERNELS_TESTS_SUPPORT_H

#include <stdio.h>

#include "tests/harness.h"

namespace harness {

// Notes that there is such a case, and whether it runs here (it may run in another shard). Returns
// true for the first case of its form and layout.
bool note_form(const Case &c, bool run);
void note_support(const Case &c, const sie_ops *ops);

// What has been noted, forms in the order of the list.
struct Support {
  std::string form;
  struct {
    bool there, run;
    std::vector<const sie_ops *> tables;
  } layouts[2];  // aligned rows, odd rows
};
const std::vector<Support> &noted_support();

// Runs the first cases of all forms and nothing else.
void note_all_support();

// The name of a table in support.txt. An emulated table has the forms of the table that it emulates,
// and those of arm64 have AVX2's.
std::string support_name(const sie_ops *ops);

// Tables that have one name together in support.txt, where all of them have a form.
struct TableSet {
  std::string name;
  std::vector<std::string> tables;
};
const std::vector<TableSet> &table_sets();

// One line a form: the tables that have it, "(aligned)" behind those which take no odd rows.
void list_support(FILE *out);

// Whether support.txt says that the table has the case's form, in its layout; `otherwise` where it
// lacks the form.
bool should_run(const Case &c, const sie_ops *ops, bool otherwise);

// Compares the notes with support.txt; without notes it first notes all forms.
void check_support();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_SUPPORT_H
