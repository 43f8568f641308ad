// abi_test.cc — the header compiles as C++17, and the checks of abi_test.c pass.
#include "sie.h"
#include "tests/check.h"

extern "C" int sie_abi_test_c(void);

TEST(abi_header_is_c11_and_cxx17) {
  int c = sie_abi_test_c();
  CHECK(c == 0, "the C side fails at step %d", c);
  CHECK(sie_abi_version() == SIE_ABI_VERSION, "version %u", sie_abi_version());
}
