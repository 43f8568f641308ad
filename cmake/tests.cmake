# Tests of the C side. One binary per folder of tests plus small ones that need their own compiler flags.
file(GLOB kernel_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/tests/*.cc)
if(kernel_test_sources)
  add_executable(kernel_tests ${kernel_test_sources})
  target_link_libraries(kernel_tests PRIVATE sie_flags sie m pthread)
  target_compile_definitions(kernel_tests PRIVATE
    SIE_TESTDATA="${CMAKE_SOURCE_DIR}/kernels/tests/testdata"
    SIE_SUPPORT_FILE="${CMAKE_SOURCE_DIR}/kernels/tests/support.txt")
  add_test(NAME kernels COMMAND kernel_tests)
endif()

file(GLOB csrc_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/tests/*.cc)
add_executable(csrc_tests ${csrc_test_sources})
target_link_libraries(csrc_tests PRIVATE sie_flags sie m pthread)
target_include_directories(csrc_tests PRIVATE csrc csrc/tests)
add_test(NAME csrc COMMAND csrc_tests)
