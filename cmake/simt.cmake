# The CUDA backend without a GPU: kernels/cuda compiled by g++ with the emulator of kernels/simt.
#
#   sie_cuda_emulated   the emulator, the kernels and their launchers: sie_cuda_ops() on host memory
#   cuda_emulated       their objects, for libsie_gpu_emulated.a (cmake/gpu.cmake)
#   simt_tests          the emulator against the definitions of the instructions, and planted faults
#
# A kernel's files enter this list when they pass the conformance list.
set(SIE_CUDA_SOURCES
  table.cc arch.cc cost.cc cost_heads.cc
  embed_layernorm.cu layernorm.cu quantise_rows.cu qk_norm_rope.cu
  gather_rows.cu output_rows.cu pool_output.cu row_norms.cu muvera.cu smve.cu maxsim.cu lora.cu
  take_rows.cu products.cu lstm.cu found_items.cu spans.cu pairs.cu
  join_columns.cu keep_rows.cu mark_nonfinite.cu output_sparse.cu splade.cu splade_sm80_bf16.cu splade_sm80_f16.cu splade_sm80_fp8.cu
  splade_sm90_bf16.cu splade_sm90_f16.cu splade_sm90_e4m3.cu
  attention.cu attention_work.cc attention_d32.cu attention_d64.cu attention_d128.cu attention_d256.cu
  attention_bias_d32.cu attention_bias_d64.cu attention_bias_d128.cu
  attention_prefix_d32.cu attention_prefix_d64.cu attention_prefix_d128.cu attention_prefix_d256.cu
  attention_sm90.cc attention_sm90_d64.cu attention_sm90_d128.cu attention_sm90_d256.cu
  attention_sm90_slopes_d64.cu attention_sm90_slopes_d128.cu
  attention_sm90_bias_d64.cu attention_sm90_bias_d128.cu
  attention_disentangled.cu attention_disentangled_d32.cu attention_disentangled_d64.cu attention_disentangled_d128.cu
  linear.cu linear_norm.cu linear_f32.cu gemm_call.cc gemm_pack.cc gemm_epilogue.cc
  gemm_sm80.cc gemm_sm80_bf16.cu gemm_sm80_f16.cu gemm_sm80_fp8.cu
  gemm_sm90.cc gemm_sm90_choose.cc gemm_sm90_bf16.cu gemm_sm90_f16.cu gemm_sm90_e4m3.cu gemm_sm90_skinny.cu
  gemm_sm90_norm.cc gemm_sm90_norm_choose.cc gemm_sm90_norm_bf16.cu gemm_sm90_norm_f16.cu
)
list(TRANSFORM SIE_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)

# What nvcc has to itself: #pragma unroll, and kernel parameters of 64-byte alignment. fmaf and rintf, which kernels call most,
# are instructions from AVX2 on and calls of libm before; the bits are the same.
add_library(simt_flags INTERFACE)
target_compile_options(simt_flags INTERFACE -Wno-unknown-pragmas -Wno-psabi ${SIE_TEST_ISA})

file(GLOB simt_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/simt/*.cc)
add_library(sie_simt OBJECT EXCLUDE_FROM_ALL ${simt_sources})
target_link_libraries(sie_simt PRIVATE sie_flags simt_flags)


# Marks .cu files as C++ for g++.
function(sie_emulate)
  foreach(source ${ARGN})
    if(source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
    endif()
  endforeach()
endfunction()

add_library(cuda_emulated OBJECT EXCLUDE_FROM_ALL ${SIE_CUDA_SOURCES})
target_link_libraries(cuda_emulated PRIVATE sie_flags simt_flags)
if(NOT SIE_SANITIZE)  # -O3 takes three times as long to compile, and the emulator's switches take the time
  target_compile_options(cuda_emulated PRIVATE -O1)
endif()
sie_precompile(cuda_emulated <math.h>)
sie_emulate(${SIE_CUDA_SOURCES})
add_library(sie_cuda_emulated STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:cuda_emulated> $<TARGET_OBJECTS:sie_simt>)
set_target_properties(sie_cuda_emulated PROPERTIES LINKER_LANGUAGE CXX)

# sie_add_third(NAME COMMAND…): every third case, in three turns all of them; with `ctest -C whole` all at once, too.
function(sie_add_third name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT SIE_TEST_CASES=0/3)
  add_test(NAME ${name}_whole COMMAND ${ARGN} CONFIGURATIONS whole)
endfunction()

# Fibers change stacks behind ThreadSanitizer's back: its build goes without them.
set(SIE_EMULATED OFF)
if(SIE_TESTS AND SIE_EMULATION AND NOT SIE_SANITIZE MATCHES "thread")
  set(SIE_EMULATED ON)
  file(GLOB simt_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/simt/tests/*.cc)
  set(experiments ${CMAKE_SOURCE_DIR}/kernels/simt/experiments.cu)
  sie_emulate(${experiments})
  add_executable(simt_tests ${simt_test_sources} ${experiments})
  target_link_libraries(simt_tests PRIVATE sie_flags simt_flags sie_cuda_emulated m pthread)
  target_compile_definitions(simt_tests PRIVATE SIE_TESTDATA="${CMAKE_SOURCE_DIR}/testdata")
  target_compile_options(simt_tests PRIVATE -O1)  # compiled for minutes with -O3, and run for seconds
  add_test(NAME simt COMMAND simt_tests)

  file(GLOB gemm_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/gemm_*.cc)
  add_executable(gemm_tests ${gemm_test_sources} ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/activation_test.cc
                 ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/norm_order_test.cc ${CMAKE_SOURCE_DIR}/kernels/simt/tests/main.cc)
  target_link_libraries(gemm_tests PRIVATE sie_flags simt_flags sie_cuda_emulated m pthread)
  add_test(NAME cuda_gemm_sm80 COMMAND gemm_tests gemm_sm80)
  sie_add_third(cuda_gemm_sm90 gemm_tests gemm_sm90)
  add_test(NAME cuda_gemm COMMAND gemm_tests gemm_cost gemm_epilogue gemm_tiles gemm_f32 activations norm_order)

  set(tests ${CMAKE_SOURCE_DIR}/kernels/tests)
  add_executable(cuda_attention_tests ${tests}/cuda/attention_test.cc ${tests}/cuda/attention_work_test.cc
                 ${tests}/cuda/attention_disentangled_test.cc ${tests}/cuda/attention_sm90_test.cc
                 ${tests}/cuda/attention_problem.cc ${tests}/rows.cc)
  target_link_libraries(cuda_attention_tests PRIVATE sie_flags simt_flags sie_cuda_emulated sie m pthread)
  sie_add_third(cuda_attention cuda_attention_tests)
endif()
