# The AMX kernels on tiles that are emulated (kernels/tests/emulated_tiles.h), for tests on machines without AMX. Beside the
# tiles they use AVX-512, VNNI and BF16: the machine's, or emulated ones (avx512.cmake).
#
#   kernels_amx_emulated   for kernel_tests, which has the kernels on the machine's own tiles as well: under other names
#   table_emulated         the tables of what is emulated, under another name
#   sie_amx_emulated       libsie_amx_emulated.a: libsie.a with emulated tiles, which finds SIE_ISA_AMX wherever there is
#                          AVX-512 with VNNI and BF16 (kernels/tests/emulated/detect.cc)
#   cgo_flags_amx          points the tags native and emulated at sie_amx_emulated
# The last two are there on machines that can run them.
include(cmake/avx512.cmake)
set(amx_dir ${CMAKE_SOURCE_DIR}/kernels/cpu)
set(amx_sources ${amx_dir}/linear_bf16_amx.cc ${amx_dir}/linear_int8_amx.cc ${amx_dir}/attention_amx.cc
                ${amx_dir}/attention_disentangled_amx.cc)
foreach(name linear_bf16_amx linear_int8_amx attention_bf16_amx attention_bf16_amx_scratch
             attention_disentangled_amx attention_disentangled_amx_scratch)
  list(APPEND SIE_EMULATED_NAMES ${name}=${name}_emulated)
endforeach()

if(emulates_avx512)
  sie_emulate(kernels_amx_emulated amx SOURCES ${amx_sources} DEFINITIONS SIE_EMULATED_BF16 SIE_EMULATED_TILES)
else()
  add_library(kernels_amx_emulated OBJECT ${amx_sources})
  target_link_libraries(kernels_amx_emulated PRIVATE sie_flags)
  target_compile_definitions(kernels_amx_emulated PRIVATE ${SIE_EMULATED_NAMES} SIE_EMULATED_TILES)
  target_compile_options(kernels_amx_emulated PRIVATE ${isa_avx512bf16} -DSIE_ISA_NS=amx -fno-math-errno
                         -fno-trapping-math ${header_noise})
  if(NOT has_avx512bf16)  # compiled and never run
    target_compile_options(kernels_amx_emulated PRIVATE -O1)
    target_link_libraries(kernels_amx_emulated PRIVATE sie_unsanitized)
  endif()
endif()
add_library(table_emulated OBJECT ${amx_dir}/table.cc)
target_link_libraries(table_emulated PRIVATE sie_flags)
target_compile_definitions(table_emulated PRIVATE ${SIE_EMULATED_NAMES} sie_cpu_ops=sie_emulated_ops
                           sie_cpu_detect=sie_emulated_detect)
target_sources(kernel_tests PRIVATE $<TARGET_OBJECTS:kernels_amx_emulated> $<TARGET_OBJECTS:table_emulated>)
foreach(source emulated_cpu emulated_kernels_test emulated_tiles_test)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/tests/${source}.cc PROPERTIES
                              COMPILE_DEFINITIONS "SIE_EMULATED_TILES;$<$<BOOL:${emulates_avx512}>:SIE_EMULATED_AVX512>")
endforeach()

# Each emulated instruction beside the machine's own, and its results by the manual (kernels/tests/emulated_avx512_test.cc).
set(operations ${CMAKE_SOURCE_DIR}/kernels/tests/emulated/operations.cc)
add_library(operations_emulated OBJECT ${operations})
target_compile_options(operations_emulated PRIVATE ${isa_emulated} -O1)
target_compile_definitions(operations_emulated PRIVATE SIE_EMULATED_BF16 SIE_OPERATIONS=operations_emulated)
add_library(operations_of_machine OBJECT ${operations})
target_compile_options(operations_of_machine PRIVATE ${isa_avx512bf16} -O1 ${header_noise})
target_compile_definitions(operations_of_machine PRIVATE SIE_OPERATIONS=operations_of_machine)
foreach(target operations_emulated operations_of_machine)
  target_link_libraries(${target} PRIVATE sie_flags)
  target_sources(kernel_tests PRIVATE $<TARGET_OBJECTS:${target}>)
endforeach()
set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/tests/emulated_avx512_test.cc PROPERTIES
                            COMPILE_OPTIONS "${isa_emulated}" COMPILE_DEFINITIONS SIE_EMULATED_BF16)


if(SIE_SANITIZE OR NOT has_avx512bf16)  # what follows is for Go programs
  return()
endif()
add_library(detect_of_machine OBJECT ${amx_dir}/detect.cc)
target_compile_definitions(detect_of_machine PRIVATE sie_cpu_detect=sie_machine_detect)
add_library(detect_emulated OBJECT ${amx_dir}/table.cc ${CMAKE_SOURCE_DIR}/kernels/tests/emulated/detect.cc)
target_compile_definitions(detect_emulated PRIVATE ${SIE_EMULATED_NAMES}
                           $<$<BOOL:${emulates_avx512}>:SIE_EMULATED_AVX512>)
foreach(target detect_of_machine detect_emulated)
  target_link_libraries(${target} PRIVATE sie_flags)
endforeach()
set(amx_objects ${SIE_KERNEL_OBJECTS})
list(FILTER amx_objects EXCLUDE REGEX "kernels_cpu_(baseline|amx)>")
foreach(target kernels_amx_emulated detect_of_machine detect_emulated ${emulated_below_amx})
  list(APPEND amx_objects $<TARGET_OBJECTS:${target}>)
endforeach()

add_library(sie_amx_emulated STATIC EXCLUDE_FROM_ALL csrc/no_gpu.cc $<TARGET_OBJECTS:csrc> ${amx_objects})
target_link_libraries(sie_amx_emulated PRIVATE sie_flags)
set_target_properties(sie_amx_emulated PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(sie_amx_emulated PRIVATE csrc)
if(SIE_CGO)
  sie_cgo_flags(cgo_flags_amx OUTPUT libsie_amx_gen.go TAGS "native && !cuda && emulated" LIBRARIES sie_amx_emulated
                LINK -lstdc++ -lm -lpthread)
endif()
