# The AMX kernels on tiles that are emulated (kernels/tests/emulated_tiles.h), for tests on machines without AMX.
#
#   kernels_amx_emulated   for kernel_tests, which has the kernels on the machine's own tiles as well: under other names
#   table_amx_emulated     their table, under another name
#   sie_amx_emulated       libsie_amx_emulated.a: libsie.a with them, which finds SIE_ISA_AMX wherever there is AVX-512 with
#                          VNNI and BF16 (kernels/tests/amx/detect.cc)
#   cgo_flags_amx          points the tags native and emulated at sie_amx_emulated
# The last two are there on machines that can run them.
set(amx_dir ${CMAKE_SOURCE_DIR}/kernels/cpu)
set(amx_sources ${amx_dir}/linear_bf16_amx.cc ${amx_dir}/linear_int8_amx.cc ${amx_dir}/attention_amx.cc
                ${amx_dir}/attention_disentangled_amx.cc)

# sie_emulate_amx(TARGET): the kernels' objects.
function(sie_emulate_amx target)
  add_library(${target} OBJECT ${amx_sources})
  target_link_libraries(${target} PRIVATE sie_flags)
  target_compile_definitions(${target} PRIVATE SIE_EMULATED_TILES)
  target_compile_options(${target} PRIVATE ${isa_avx512bf16} -DSIE_ISA_NS=amx -fno-math-errno
                         -fno-trapping-math ${header_noise})
endfunction()

# A machine that cannot run them compiles them once, quickly.
sie_machine_has(avx512_bf16 runs_emulated_amx)
sie_emulate_amx(kernels_amx_emulated)
if(NOT runs_emulated_amx)
  target_compile_options(kernels_amx_emulated PRIVATE -O1)
  if(SIE_SANITIZE)
    target_link_libraries(kernels_amx_emulated PRIVATE sie_unsanitized)
  endif()
endif()
add_library(table_amx_emulated OBJECT ${amx_dir}/table.cc)
target_link_libraries(table_amx_emulated PRIVATE sie_flags)
target_compile_definitions(table_amx_emulated PRIVATE sie_cpu_ops=sie_emulated_amx_ops
                           sie_cpu_detect=sie_emulated_amx_detect)
foreach(target kernels_amx_emulated table_amx_emulated)
  foreach(name linear_bf16_amx linear_int8_amx attention_bf16_amx attention_bf16_amx_scratch
               attention_disentangled_amx attention_disentangled_amx_scratch)
    target_compile_definitions(${target} PRIVATE ${name}=${name}_on_emulated_tiles)
  endforeach()
endforeach()
target_sources(kernel_tests PRIVATE $<TARGET_OBJECTS:kernels_amx_emulated> $<TARGET_OBJECTS:table_amx_emulated>)
foreach(source emulated_amx emulated_tiles_test)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/tests/${source}.cc PROPERTIES
                              COMPILE_DEFINITIONS SIE_EMULATED_TILES)
endforeach()

if(SIE_SANITIZE OR NOT runs_emulated_amx)  # what follows is for Go programs
  return()
endif()
sie_emulate_amx(kernels_tiles_emulated)
add_library(detect_of_machine OBJECT ${amx_dir}/detect.cc)
target_compile_definitions(detect_of_machine PRIVATE sie_cpu_detect=sie_machine_detect)
add_library(detect_emulated OBJECT ${amx_dir}/table.cc ${CMAKE_SOURCE_DIR}/kernels/tests/amx/detect.cc)
foreach(target detect_of_machine detect_emulated)
  target_link_libraries(${target} PRIVATE sie_flags)
endforeach()
set(amx_objects ${SIE_KERNEL_OBJECTS})
list(FILTER amx_objects EXCLUDE REGEX "kernels_cpu_(baseline|amx)>")
list(APPEND amx_objects $<TARGET_OBJECTS:kernels_tiles_emulated> $<TARGET_OBJECTS:detect_of_machine>
     $<TARGET_OBJECTS:detect_emulated>)

add_library(sie_amx_emulated STATIC EXCLUDE_FROM_ALL csrc/no_gpu.cc $<TARGET_OBJECTS:csrc> ${amx_objects})
target_link_libraries(sie_amx_emulated PRIVATE sie_flags)
set_target_properties(sie_amx_emulated PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(sie_amx_emulated PRIVATE csrc)
if(SIE_CGO)
  sie_cgo_flags(cgo_flags_amx OUTPUT libsie_amx_gen.go TAGS "native && !cuda && emulated" LIBRARIES sie_amx_emulated
                LINK -lstdc++ -lm -lpthread)
endif()
