// main.cc — the emulator's own tests; arguments select cases.
#include "simt_test.h"

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
