// main.cc — the kernel tests: conformance by default, --bench [filter], --support.
//
//   kernel_tests                  every case on every table: ref, the CPU's and the emulated GPUs'
//   kernel_tests --host           … on ref, the CPU's tables, and those of CPUs that are emulated
//   kernel_tests --machine        … on ref and the CPU's tables
//   kernel_tests --emulated       … on the tables of CPUs that are emulated
//   kernel_tests --gpu            … on the GPUs' tables
//   kernel_tests linear           cases whose name contains the word; may follow the options above
//   kernel_tests --bench [text]   timings in the format of Go benchmarks, of the forms that contain
//                                 the text
//   kernel_tests --support        the support table; kernels/tests/support.txt is its golden copy
#include "harness.h"
#include "tests/attention_blocks.h"
#include "tests/cuda/emulated.h"
#include "tests/emulated_cpu.h"
#include "tests/support.h"

using namespace harness;

namespace {

void run(int group) {
#ifdef SIE_CUDA_EMULATED
  restart_emulation();
#endif
  run_group(groups()[static_cast<size_t>(group)]);
}

}  // namespace

TEST_LIST(embed_layernorm) { run(0); }
TEST_LIST(layernorm) { run(1); }
TEST_LIST(linear) { run(2); }
TEST_LIST(quantise_rows) { run(3); }
TEST_LIST(attention) { run(4); }
TEST_LIST(gather_rows) { run(5); }
TEST_LIST(pool) { run(6); }
TEST_LIST(output_rows) { run(7); }
TEST_LIST(qk_norm_rope) { run(8); }
TEST_LIST(pool_output) { run(9); }
TEST_LIST(muvera) { run(10); }
TEST_LIST(keep_rows) { run(11); }
TEST_LIST(output_sparse) { run(12); }
TEST_LIST(splade) { run(13); }
TEST_LIST(smve) { run(14); }
TEST_LIST(maxsim) { run(15); }
TEST_LIST(lora) { run(16); }
TEST_LIST(mark_nonfinite) { run(17); }
TEST_LIST(join_columns) { run(18); }
TEST_LIST(spans) { run(19); }
TEST_LIST(pairs) { run(20); }
TEST_LIST(take_rows) { run(21); }
TEST_LIST(product) { run(22); }
TEST_LIST(dots) { run(23); }
TEST_LIST(lstm) { run(24); }
TEST_LIST(linear_norm) { run(25); }
TEST_LIST(attention_blocks) { check_attention_blocks(); }
TEST_LIST(attention_one_query) { check_attention_one_query(); }
TEST_LIST(attention_keys) { check_attention_keys(); }
TEST_LIST(attention_hidden_keys) { check_attention_hidden_keys(); }
TEST_LIST(attention_hidden_buckets) { check_attention_hidden_buckets(); }
TEST_LIST(attention_without_sight) { check_attention_without_sight(); }
TEST_LIST(attention_prefix) { check_attention_prefix(); }
TEST_LIST(attention_hidden_prefix) { check_attention_hidden_prefix(); }
TEST_LIST(attention_scratch) { check_attention_scratch(); }
// In two parts, so that two cores share them.
TEST_LIST(production_shapes_0) { run_production(0, 2); }
TEST_LIST(production_shapes_1) { run_production(1, 2); }
TEST_VERDICT(support_table_is_golden) { check_support(); }  // what the groups before have shown

int main(int argc, char **argv) {
  const struct {
    const char *option;
    Tables tables;
  } groups_of_tables[] = {{"--host", Tables::host},
                          {"--machine", Tables::machine},
                          {"--emulated", Tables::emulated},
                          {"--gpu", Tables::gpu}};
  [[maybe_unused]] bool gpus_too = true;
  for (const auto &[option, tables] : groups_of_tables) {
    if (argc < 2 || strcmp(argv[1], option) != 0) continue;
    select(tables);
    gpus_too = tables != Tables::machine && tables != Tables::emulated;
    argv[1] = argv[0];
    argc--, argv++;
    break;
  }
  for (uint32_t isa = SIE_ISA_AVX512; isa <= SIE_ISA_AMX; isa++) {
    if (const sie_ops *ops = emulated_cpu(isa)) emulated_cpus().push_back(ops);
  }
#ifdef SIE_CUDA_EMULATED
  // Without them the tests of their calls have nothing to do.
  if (gpus_too) add_emulated_gpus();
#endif
  if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
    bench_all(argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "--support") == 0) {
    list_support(stdout);
    return 0;
  }
  const int status = check::run_tests(argc, argv);
#ifdef SIE_CUDA_EMULATED
  if (status != 0) print_emulation_seed();
#endif
  return status;
}
