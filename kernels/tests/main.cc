// main.cc — the kernel tests: conformance by default, --bench [filter], --support.
//
//   kernel_tests                  every case on ref and on each instruction set of this machine
//   kernel_tests linear           cases whose name contains the word
//   kernel_tests --bench [text]   timings in the format of Go benchmarks, of the forms that contain the text
//   kernel_tests --support        the support table; kernels/tests/support.txt is its golden copy
#include "harness.h"

using namespace harness;

TEST(embed_layernorm) { run_group(groups()[0]); }
TEST(layernorm) { run_group(groups()[1]); }
TEST(linear) { run_group(groups()[2]); }
TEST(quantise_rows) { run_group(groups()[3]); }
TEST(attention) { run_group(groups()[4]); }
TEST(gather_rows) { run_group(groups()[5]); }
TEST(pool) { run_group(groups()[6]); }
TEST(output_rows) { run_group(groups()[7]); }
TEST(qk_norm_rope) { run_group(groups()[8]); }
TEST(pool_output) { run_group(groups()[9]); }
TEST(muvera) { run_group(groups()[10]); }

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
    bench_all(argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "--support") == 0) return list_support(stdout) > 0 ? 0 : 1;
  return check::run_tests(argc, argv);
}
