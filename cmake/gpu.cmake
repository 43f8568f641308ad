# The CUDA backend: csrc with csrc/cuda, for Go builds with the tag cuda.
#
#   sie_driver         libcuda.a: stubs that open the driver's library when it is first needed (csrc/cuda/driver)
#   sie_gpu            libsie_gpu.a: libsie.a with csrc/cuda instead of no_gpu.cc; calls the kernels of libsie_cuda.a
#   cgo_flags_cuda     with SIE_CUDA: points the tags native and cuda at this build
#   standin            libcuda.so.1 for tests, a GPU on the host (csrc/cuda/standin)
#   sie_gpu_emulated   libsie_gpu_emulated.a: libsie_gpu.a with the emulated kernels, their emulator and their way into
#                      the stand-in's streams
#   cgo_flags_emulated points the tags native, cuda and emulated at it
enable_language(ASM)
set(gpu_dir ${CMAKE_SOURCE_DIR}/csrc/cuda)

add_library(sie_driver STATIC EXCLUDE_FROM_ALL ${gpu_dir}/driver/stubs.S ${gpu_dir}/driver/stubs.cc)
target_link_libraries(sie_driver PRIVATE sie_flags)
target_include_directories(sie_driver PRIVATE csrc)
set_source_files_properties(${gpu_dir}/driver/stubs.S ${gpu_dir}/driver/stubs.cc PROPERTIES
                            OBJECT_DEPENDS ${gpu_dir}/driver/functions.inc)
# A folder of its own: the linker must find this libcuda before any other (CGO_LDFLAGS).
set_target_properties(sie_driver PROPERTIES OUTPUT_NAME cuda ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/driver)

file(GLOB gpu_sources CONFIGURE_DEPENDS ${gpu_dir}/*.cc)
add_library(csrc_gpu OBJECT EXCLUDE_FROM_ALL ${gpu_sources})
target_link_libraries(csrc_gpu PRIVATE sie_flags)
target_include_directories(csrc_gpu PRIVATE csrc)
set(gpu_objects $<TARGET_OBJECTS:csrc> $<TARGET_OBJECTS:csrc_gpu> ${SIE_KERNEL_OBJECTS})

add_library(sie_gpu STATIC EXCLUDE_FROM_ALL ${gpu_objects})
set_target_properties(sie_gpu PROPERTIES LINKER_LANGUAGE CXX)

if(SIE_CUDA)
  # The same flags make the same objects in every build folder: csrc and the CPU kernels need not be compiled in this one.
  set(SIE_GPU_ARCHIVE "" CACHE FILEPATH "libsie_gpu.a of another build folder of this tree; empty: this one makes it")
  set(gpu_library sie_gpu)
  if(SIE_GPU_ARCHIVE)
    set(gpu_library ${SIE_GPU_ARCHIVE})
  endif()
  # libgcc and libstdc++ are linked statically: the server runs in an image that has neither.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE static_cxx
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${static_cxx}")
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no libstdc++.a: install the C++ library's development package")
  endif()
  sie_cgo_flags(cgo_flags_cuda OUTPUT libsie_cuda_gen.go TAGS "native && cuda && !emulated"
                LIBRARIES ${gpu_library} sie_cuda sie_driver
                LINK ${cudart} -static-libgcc ${static_cxx} -lm -lpthread -ldl -lrt)
endif()

if(SIE_TESTS)
  add_library(driver_probe MODULE ${gpu_dir}/tests/probe.cc)
  target_link_libraries(driver_probe PRIVATE sie_flags)
  add_executable(stubs_test ${gpu_dir}/tests/stubs_test.cc)
  target_link_libraries(stubs_test PRIVATE sie_flags sie_driver dl pthread)
  target_include_directories(stubs_test PRIVATE csrc)
  add_dependencies(stubs_test driver_probe) # which it loads
  foreach(case stubs_without_library stubs_over_probe stubs_over_probe_that_fails)
    add_test(NAME ${case} COMMAND stubs_test =${case})
    set_tests_properties(${case} PROPERTIES ENVIRONMENT SIE_LIBCUDA=$<TARGET_FILE:driver_probe>)
  endforeach()
  set_tests_properties(stubs_without_library PROPERTIES ENVIRONMENT SIE_LIBCUDA=no-such-libcuda.so.1)
  set_tests_properties(stubs_over_probe_that_fails PROPERTIES
                       ENVIRONMENT "SIE_LIBCUDA=$<TARGET_FILE:driver_probe>;PROBE_INIT=999")
endif()

if(SIE_EMULATED)
  file(GLOB standin_sources CONFIGURE_DEPENDS ${gpu_dir}/standin/*.cc)
  list(FILTER standin_sources EXCLUDE REGEX "/program\\.cc$")
  add_library(standin SHARED ${standin_sources})
  target_link_libraries(standin PRIVATE sie_flags pthread)
  target_include_directories(standin PRIVATE csrc)
  target_link_options(standin PRIVATE -static-libgcc -static-libstdc++)
  set_target_properties(standin PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/standin)

  add_executable(standin_test ${gpu_dir}/tests/standin_test.cc ${gpu_dir}/tests/standin_memory_test.cc
                 ${gpu_dir}/standin/program.cc $<TARGET_OBJECTS:sie_simt>)
  target_link_libraries(standin_test PRIVATE sie_flags simt_flags sie_driver dl pthread m)
  target_include_directories(standin_test PRIVATE csrc)
  add_dependencies(standin_test standin)
  add_test(NAME standin COMMAND standin_test)
  # Its kernel is no kernel of the product: not in the record of launches.
  set_tests_properties(standin PROPERTIES ENVIRONMENT_MODIFICATION
                       "SIE_LIBCUDA=set:$<TARGET_FILE:standin>;SIE_SIMT_LAUNCHES=unset:;ASAN_OPTIONS=set:handle_segv=0")

  add_library(sie_gpu_emulated STATIC EXCLUDE_FROM_ALL ${gpu_objects} ${gpu_dir}/standin/program.cc
              $<TARGET_OBJECTS:cuda_emulated> $<TARGET_OBJECTS:sie_simt>)
  target_link_libraries(sie_gpu_emulated PRIVATE sie_flags simt_flags)
  target_include_directories(sie_gpu_emulated PRIVATE csrc)
  if(SIE_CGO)
    sie_cgo_flags(cgo_flags_emulated OUTPUT libsie_emulated_gen.go TAGS "native && cuda && emulated"
                  LIBRARIES sie_gpu_emulated sie_driver LINK -lstdc++ -lm -lpthread -ldl)
    add_dependencies(cgo_flags_emulated standin)
  endif()

  # Recorded programs on an emulated card.
  add_executable(gpu_tests ${gpu_dir}/tests/gpu_program_test.cc ${gpu_dir}/tests/gpu_heads_test.cc
                 ${gpu_dir}/tests/gpu_nonfinite_test.cc ${gpu_dir}/tests/gpu_state_test.cc
                 ${gpu_dir}/tests/gpu_found_test.cc ${CMAKE_SOURCE_DIR}/csrc/tests/found.cc
                 ${CMAKE_SOURCE_DIR}/csrc/tests/decoder.cc
                 ${CMAKE_SOURCE_DIR}/csrc/tests/model.cc ${CMAKE_SOURCE_DIR}/csrc/tests/heads.cc
                 ${CMAKE_SOURCE_DIR}/csrc/tests/heads_blocks.cc
                 ${CMAKE_SOURCE_DIR}/csrc/tests/head_batches.cc ${CMAKE_SOURCE_DIR}/csrc/tests/main.cc)
  target_link_libraries(gpu_tests PRIVATE sie_flags simt_flags sie_gpu_emulated sie_driver dl pthread m)
  target_include_directories(gpu_tests PRIVATE csrc csrc/tests csrc/cuda/tests)
  target_compile_options(gpu_tests PRIVATE -O1)
  add_dependencies(gpu_tests standin)
  sie_add_halves(gpu_programs SHARD 9 80 gpu_tests)
  set_tests_properties(gpu_programs_0 gpu_programs_1 gpu_programs_whole_0 gpu_programs_whole_1 PROPERTIES ENVIRONMENT_MODIFICATION
                       "SIE_LIBCUDA=set:$<TARGET_FILE:standin>;SIE_SIMT_LAUNCHES=unset:;ASAN_OPTIONS=set:handle_segv=0")
endif()
