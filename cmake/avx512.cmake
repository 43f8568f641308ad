# The tables above AVX2 on instructions that are emulated (kernels/tests/emulated_avx512.h), for kernel_tests on machines
# that lack AVX512_BF16, without sanitizers. The library has nothing of this.
#
#   emulates_avx512        whether the machine needs it
#   isa_emulated           flags with which a source of AVX-512 runs on AVX2
#   SIE_EMULATED_NAMES     definitions that give the emulated kernels other names
#   kernels_avx512_emulated, kernels_vnni_emulated, kernels_avx512bf16_emulated
# AMX is emulated everywhere (amx.cmake), there on top of these instructions.
sie_machine_has(avx512_bf16 has_avx512bf16)
set(isa_emulated ${isa_avx2} -include ${CMAKE_SOURCE_DIR}/kernels/tests/emulated_avx512.h -Wno-psabi)
set(SIE_EMULATED_NAMES)
set(emulated_below_amx)
set(emulates_avx512 ON)
if(has_avx512bf16 OR SIE_SANITIZE)  # sanitizers would make the emulation several times slower
  set(emulates_avx512 OFF)
  return()
endif()
foreach(name avx512 linear_bf16_avx512bf16 linear_int8_vnni sie_tiles_avx512)
  list(APPEND SIE_EMULATED_NAMES ${name}=${name}_emulated)
endforeach()

# sie_emulate(TARGET ISA DEFINITION… SOURCES…)
function(sie_emulate target isa)
  cmake_parse_arguments(arg "" "" "SOURCES;DEFINITIONS" ${ARGN})
  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE sie_flags)
  target_compile_definitions(${target} PRIVATE ${SIE_EMULATED_NAMES} ${arg_DEFINITIONS})
  target_compile_options(${target} PRIVATE ${isa_emulated} -O1 -DSIE_ISA_NS=${isa} -fno-math-errno -fno-trapping-math)
endfunction()
sie_emulate(kernels_avx512_emulated avx512 SOURCES ${SIE_CPU_GENERIC} ${CMAKE_SOURCE_DIR}/kernels/tests/emulated/gemm_tile.cc)
sie_emulate(kernels_vnni_emulated vnni SOURCES ${cpu_dir}/linear_int8_vnni.cc)
sie_emulate(kernels_avx512bf16_emulated avx512bf16 SOURCES ${cpu_dir}/linear_bf16_avx512bf16.cc
            DEFINITIONS SIE_EMULATED_BF16)
set(emulated_below_amx kernels_avx512_emulated kernels_vnni_emulated kernels_avx512bf16_emulated)
foreach(target IN LISTS emulated_below_amx)
  target_sources(kernel_tests PRIVATE $<TARGET_OBJECTS:${target}>)
endforeach()
