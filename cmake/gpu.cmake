# What links the CUDA backend into a program.
#
#   sie_driver   libcuda.a: stubs that open the driver's library when it is first needed (csrc/cuda/driver)
enable_language(ASM)
set(gpu_dir ${CMAKE_SOURCE_DIR}/csrc/cuda)

add_library(sie_driver STATIC EXCLUDE_FROM_ALL ${gpu_dir}/driver/stubs.S ${gpu_dir}/driver/stubs.cc)
target_link_libraries(sie_driver PRIVATE sie_flags)
target_include_directories(sie_driver PRIVATE csrc)
set_source_files_properties(${gpu_dir}/driver/stubs.S ${gpu_dir}/driver/stubs.cc PROPERTIES
                            OBJECT_DEPENDS ${gpu_dir}/driver/functions.inc)
# A folder of its own: the linker must find this libcuda before any other (CGO_LDFLAGS).
set_target_properties(sie_driver PROPERTIES OUTPUT_NAME cuda ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/driver)

if(SIE_TESTS)
  add_library(driver_probe MODULE ${gpu_dir}/tests/probe.cc)
  target_link_libraries(driver_probe PRIVATE sie_flags)
  add_executable(stubs_test ${gpu_dir}/tests/stubs_test.cc)
  target_link_libraries(stubs_test PRIVATE sie_flags sie_driver dl pthread)
  target_include_directories(stubs_test PRIVATE csrc)
  foreach(case stubs_without_library stubs_over_probe stubs_over_probe_that_fails)
    add_test(NAME ${case} COMMAND stubs_test =${case})
    set_tests_properties(${case} PROPERTIES ENVIRONMENT SIE_LIBCUDA=$<TARGET_FILE:driver_probe>)
  endforeach()
  set_tests_properties(stubs_without_library PROPERTIES ENVIRONMENT SIE_LIBCUDA=no-such-libcuda.so.1)
  set_tests_properties(stubs_over_probe_that_fails PROPERTIES
                       ENVIRONMENT "SIE_LIBCUDA=$<TARGET_FILE:driver_probe>;PROBE_INIT=999")
endif()
