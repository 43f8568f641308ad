# The conformance list, compiled once: kernel_case_objects, for kernel_tests (tests.cmake) and for the programs of kernels/bench.
#
#   SIE_KERNEL_TEST_SOURCES   all of kernels/tests
#   SIE_CASE_SOURCES          those of them in kernel_case_objects: cases, harness and judge, which are the same everywhere
file(GLOB SIE_KERNEL_TEST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/tests/*.cc)
set(SIE_CASE_SOURCES ${SIE_KERNEL_TEST_SOURCES})
list(FILTER SIE_CASE_SOURCES EXCLUDE REGEX "/(main|golden_[a-z_]*|detect_test|table_test|host_bf16_test|emulated_cpu|emulated_[a-z0-9_]*_test|support_golden)\\.cc$")
#
# SIE_PLAIN_BUILD, a plain build's directory, lends a build with sanitizers those of its objects that would be the same
# there: the list is not instrumented, and its objects take a fourth of that build's time (tools/test/asan.sh).
set(SIE_PLAIN_BUILD "" CACHE PATH "A plain build of these sources, whose objects of the conformance list are linked")
set(own_case_sources ${SIE_CASE_SOURCES})
if(SIE_PLAIN_BUILD)
  list(FILTER own_case_sources INCLUDE REGEX "/(rows|harness|scratch)\\.cc$")  # which ask for sanitizers
endif()
add_library(kernel_case_objects OBJECT EXCLUDE_FROM_ALL ${own_case_sources})
target_link_libraries(kernel_case_objects PRIVATE sie_flags)
set(lent_case_objects ${SIE_CASE_SOURCES})
list(REMOVE_ITEM lent_case_objects ${own_case_sources})
list(TRANSFORM lent_case_objects REPLACE "^${CMAKE_SOURCE_DIR}/(.*)$"
     "${SIE_PLAIN_BUILD}/CMakeFiles/kernel_case_objects.dir/\\1.o")
set(SIE_CASE_FLAGS ${SIE_TEST_ISA})
if(NOT SIE_SANITIZE)
  list(APPEND SIE_CASE_FLAGS -O2)
endif()
target_compile_options(kernel_case_objects PRIVATE ${SIE_CASE_FLAGS})

if(NOT SIE_SANITIZE)
  sie_precompile(kernel_case_objects <math.h> <stdio.h> <string.h> <algorithm> <memory> <string> <vector>)
endif()

if(SIE_SANITIZE MATCHES "address")
  # The harness, which fills and compares, is compiled as in the plain build: AddressSanitizer watches what the kernels do
  # with the blocks that it allocates. Its loops in double would take most of the time.
  set_source_files_properties(${SIE_KERNEL_TEST_SOURCES} PROPERTIES
                              COMPILE_OPTIONS "-O2;-fno-sanitize=all;-DSIE_ADDRESS_SANITIZER")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 for arm64 dies of some loops in double that add by fma: "in vect_transform_reduction".
  set_source_files_properties(${SIE_KERNEL_TEST_SOURCES} PROPERTIES COMPILE_OPTIONS -fno-tree-vectorize)
endif()
