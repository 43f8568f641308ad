# Tests of the C side: the conformance list, csrc's own, the header in both languages, and the symbols.
set(own_test_sources ${SIE_KERNEL_TEST_SOURCES})
list(REMOVE_ITEM own_test_sources ${SIE_CASE_SOURCES})
# The kernels alone of the library: a build with sanitizers for kernel_tests compiles no csrc.
add_executable(kernel_tests ${own_test_sources} $<TARGET_OBJECTS:kernel_case_objects> ${lent_case_objects} ${SIE_KERNEL_OBJECTS})
target_link_libraries(kernel_tests PRIVATE sie_flags m pthread)
target_compile_options(kernel_tests PRIVATE ${SIE_CASE_FLAGS})
if(NOT SIE_SANITIZE)
  sie_precompile(kernel_tests <math.h> <stdio.h> <string.h> <algorithm> <memory> <string> <vector>)
  # One has flags of its own, one a constant with the name of a function in math.h.
  set_source_files_properties(
    ${CMAKE_SOURCE_DIR}/kernels/tests/emulated_avx512_test.cc ${CMAKE_SOURCE_DIR}/kernels/tests/detect_test.cc
    PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endif()
set(SIE_GPU_CALLS emulated.cc refusals_test.cc sparse_refusals_test.cc places_refusals_test.cc muvera_calls_test.cc places_test.cc linear_norm_refusals_test.cc maxsim_error_test.cc pool_parts_test.cc)
if(SIE_EMULATED)
  list(TRANSFORM SIE_GPU_CALLS PREPEND ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/)
  target_sources(kernel_tests PRIVATE ${SIE_GPU_CALLS})
  target_link_libraries(kernel_tests PRIVATE sie_cuda_emulated)
  target_compile_definitions(kernel_tests PRIVATE SIE_CUDA_EMULATED)
endif()
target_compile_definitions(kernel_tests PRIVATE
  SIE_TESTDATA="${CMAKE_SOURCE_DIR}/kernels/tests/testdata"
  SIE_SUPPORT_FILE="${CMAKE_SOURCE_DIR}/kernels/tests/support.txt")
if(TARGET kernels_cpu_amx)
  include(cmake/amx.cmake)
  include(cmake/tables.cmake)
endif()
# sie_add_halves(NAME PART OF COST COMMAND…): a long list in two processes, for two cores, the longest of all tests first; each
# has every OF-th entry of its lists and half of its other cases (PART is SHARD) or every OF-th case (CASES). Where OF is more
# than 2, `ctest -C whole` runs all of them too (make test-c, make test-asan).
# The C library fills memory from malloc with bytes that are no sensible value: what reads it before it is written shows.
function(sie_add_halves name part of cost)
  foreach(half 0 1)
    set(rest MALLOC_PERTURB_=90)
    if(part STREQUAL SHARD)
      list(APPEND rest SIE_TEST_OTHERS=${half}/2)
    endif()
    add_test(NAME ${name}_${half} COMMAND ${ARGN})
    set_tests_properties(${name}_${half} PROPERTIES ENVIRONMENT "SIE_TEST_${part}=${half}/${of};${rest}" COST ${cost})
    if(of GREATER 2)
      add_test(NAME ${name}_whole_${half} COMMAND ${ARGN} CONFIGURATIONS whole)
      set_tests_properties(${name}_whole_${half} PROPERTIES ENVIRONMENT "SIE_TEST_${part}=${half}/2;${rest}" COST ${cost})
    endif()
  endforeach()
endfunction()
# Of the host's cases two of nine, with sanitizers of eleven, with ThreadSanitizer of fifteen: odd numbers, since neighbours
# in the lists are one shape in two layouts. SIE_TEST_TURN, which tools/test takes from the number of commits, says which two.
# Of the emulated kernels' cases two of fifteen, with sanitizers of thirteen; those of emulated CPUs, in one process, one of
# twenty-seven.
set(of_host 9)
set(of_gpu 15)
set(of_emulated_cpu 27)
if(SIE_SANITIZE)
  set(of_host 11)
  set(of_gpu 13)
endif()
if(SIE_SANITIZE MATCHES "thread")
  set(of_host 15)
endif()
sie_add_halves(kernels SHARD ${of_host} 100 kernel_tests --machine)
if(TARGET kernels_amx_emulated AND (emulates_avx512 OR has_avx512bf16))
  add_test(NAME kernels_emulated_cpu COMMAND kernel_tests --emulated)
  add_test(NAME kernels_emulated_cpu_whole COMMAND kernel_tests --emulated CONFIGURATIONS whole)
  set_tests_properties(kernels_emulated_cpu PROPERTIES ENVIRONMENT "SIE_TEST_SHARD=0/${of_emulated_cpu}" COST 95)
  set_tests_properties(kernels_emulated_cpu_whole PROPERTIES COST 110)
endif()
if(SIE_EMULATED)
  sie_add_halves(kernels_emulated SHARD ${of_gpu} 90 kernel_tests --gpu)
endif()

file(GLOB csrc_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/tests/*.cc ${CMAKE_SOURCE_DIR}/csrc/tests/*.c)
# With csrc compiled again, so that its tests can hold a thread where they want (csrc/hooks.h).
add_library(csrc_hooked OBJECT EXCLUDE_FROM_ALL ${csrc_sources} csrc/no_gpu.cc)
target_link_libraries(csrc_hooked PRIVATE sie_flags)
target_include_directories(csrc_hooked PRIVATE csrc)
target_compile_definitions(csrc_hooked PRIVATE SIE_TEST_HOOKS)
add_executable(csrc_tests ${csrc_test_sources} $<TARGET_OBJECTS:csrc_hooked> ${SIE_KERNEL_OBJECTS})
target_link_libraries(csrc_tests PRIVATE sie_flags m pthread)
target_compile_definitions(csrc_tests PRIVATE SIE_TEST_HOOKS)
target_include_directories(csrc_tests PRIVATE csrc csrc/tests)
# What takes its time is in csrc and the kernels, not in the tests' own sources: but for the sums in double of blocks_test.cc.
target_compile_options(csrc_tests PRIVATE -O0)
set_source_files_properties(${CMAKE_SOURCE_DIR}/csrc/tests/blocks_test.cc PROPERTIES
                            COMPILE_OPTIONS "-O2;-fno-sanitize=all" SKIP_PRECOMPILE_HEADERS ON)
sie_precompile(csrc_tests <math.h> <stdio.h> <string.h> <algorithm> <functional> <memory> <string> <vector>)
set_source_files_properties(
  ${CMAKE_SOURCE_DIR}/csrc/tests/abi_test.c ${CMAKE_SOURCE_DIR}/csrc/tests/abi_test.cc
  PROPERTIES COMPILE_OPTIONS -Wpedantic SKIP_PRECOMPILE_HEADERS ON)
target_compile_features(csrc_tests PRIVATE c_std_11)
set_target_properties(csrc_tests PROPERTIES C_EXTENSIONS OFF)
target_link_options(
  csrc_tests PRIVATE -Wl,--wrap=posix_memalign,--wrap=mmap,--wrap=munmap,--wrap=pthread_create,--wrap=syscall,--wrap=sie_cpu_detect
  -Wl,--wrap=sie_cpu_ops)
# Behind the long lists, before all that is short. Two of three cases, with AddressSanitizer of nine.
set(of_csrc 3)
if(SIE_SANITIZE MATCHES "address")
  set(of_csrc 9)
endif()
sie_add_halves(csrc CASES ${of_csrc} 80 csrc_tests)

# The vectors and the products of the lowest table against their definitions, quickly: what `make test` runs for arm64, too.
if(SIE_ISAS)
  set(vec_sources ${cpu_dir}/linear_f32.cc ${cpu_dir}/int8_pack.cc ${cpu_dir}/linear_int8_${least_isa}.cc
                  ${cpu_dir}/detect_arm64.cc)
  if(TARGET kernels_cpu_dot)
    list(APPEND vec_sources $<TARGET_OBJECTS:kernels_cpu_dot>)
  endif()
  add_executable(vec_tests ${CMAKE_SOURCE_DIR}/kernels/tests/vec/vec_test.cc
                 ${CMAKE_SOURCE_DIR}/kernels/tests/vec/product_test.cc ${vec_sources})
  target_link_libraries(vec_tests PRIVATE sie_flags m)
  target_compile_options(vec_tests PRIVATE ${isa_${least_isa}} -DSIE_ISA_NS=${least_isa} -fno-math-errno
                         -fno-trapping-math ${header_noise})
  add_test(NAME vec COMMAND vec_tests)
endif()

# Which cards the CUDA kernels accept: host code, tested without CUDA.
add_executable(cuda_arch_test ${CMAKE_SOURCE_DIR}/kernels/cuda/arch.cc
               ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/arch_test.cc)
target_link_libraries(cuda_arch_test PRIVATE sie_flags)
add_test(NAME cuda_arch COMMAND cuda_arch_test)

if(NOT SIE_SANITIZE)
  add_test(NAME symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:sie>
           -P ${CMAKE_SOURCE_DIR}/cmake/check_symbols.cmake)
  # Beside a target's objects there are its precompiled headers.
  foreach(isa IN LISTS SIE_ISAS)
    add_test(NAME symbols_${isa}
             COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DISA=${isa}
                     "-DOBJECTS=$<JOIN:$<FILTER:$<TARGET_OBJECTS:kernels_cpu_${isa}>,INCLUDE,[.]o$>,,>"
                     -P ${CMAKE_SOURCE_DIR}/cmake/check_kernel_symbols.cmake)
  endforeach()
  set(disassembled ${SIE_ISAS})
  if(TARGET kernels_cpu_amx)
    list(APPEND disassembled baseline)
  endif()
  foreach(isa IN LISTS disassembled)
    add_test(NAME instructions_${isa}
             COMMAND python3 -B ${CMAKE_SOURCE_DIR}/kernels/tests/instructions.py ${isa} ${CMAKE_OBJDUMP}
                     $<FILTER:$<TARGET_OBJECTS:kernels_cpu_${isa}>,INCLUDE,[.]o$>
             COMMAND_EXPAND_LISTS)
  endforeach()
endif()

# The header's example, in C, against the library as users link it. x is (-1, 2) for word 0 and (1, -2) for word 1, y twice that.
# With sanitizers against the objects of csrc_tests, so that csrc is not instrumented twice.
add_executable(example_embed ${CMAKE_SOURCE_DIR}/csrc/examples/embed.c)
if(SIE_SANITIZE)
  target_sources(example_embed PRIVATE $<TARGET_OBJECTS:csrc_hooked> ${SIE_KERNEL_OBJECTS})
else()
  target_link_libraries(example_embed PRIVATE sie)
endif()
target_link_libraries(example_embed PRIVATE sie_flags m pthread)
target_compile_options(example_embed PRIVATE -Wpedantic)
set_target_properties(example_embed PROPERTIES C_EXTENSIONS OFF LINKER_LANGUAGE CXX)
add_test(NAME example_embed COMMAND example_embed)
set_tests_properties(example_embed PROPERTIES PASS_REGULAR_EXPRESSION "^-2.000 4.000\n0.667 -1.333\n$")
