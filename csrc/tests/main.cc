// main.cc — runs the cases of csrc.
#include "tests/check.h"

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
