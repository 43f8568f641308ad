# The conformance list, compiled once: kernel_case_objects, for kernel_tests (tests.cmake) and for the programs of kernels/bench.
#
#   SIE_KERNEL_TEST_SOURCES   all of kernels/tests
#   SIE_CASE_SOURCES          those of them in kernel_case_objects: cases, harness and judge, which are the same everywhere
file(GLOB SIE_KERNEL_TEST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/tests/*.cc)
set(SIE_CASE_SOURCES ${SIE_KERNEL_TEST_SOURCES})
list(FILTER SIE_CASE_SOURCES EXCLUDE REGEX "/(main|golden_[a-z_]*|detect_test|table_test|host_bf16_test|emulated_cpu|emulated_[a-z0-9_]*_test|support_golden)\\.cc$")
add_library(kernel_case_objects OBJECT EXCLUDE_FROM_ALL ${SIE_CASE_SOURCES})
target_link_libraries(kernel_case_objects PRIVATE sie_flags)
set(SIE_CASE_FLAGS ${SIE_TEST_ISA})
if(NOT SIE_SANITIZE)
  list(APPEND SIE_CASE_FLAGS -O2)
endif()
target_compile_options(kernel_case_objects PRIVATE ${SIE_CASE_FLAGS})

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
