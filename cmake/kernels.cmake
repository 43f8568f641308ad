# Kernel objects → SIE_KERNEL_OBJECTS.
#
# kernels/ref is compiled once, plainly. kernels/cpu goes by file name, on x86-64 and on arm64:
#   table.cc, detect.cc           x86-64: once, for the baseline instruction set: they run before anything is known
#   table_arm64.cc                arm64: the same
#   detect_arm64.cc               both: the same
#   X_avx2.cc, X_avx512.cc,
#   X_vnni.cc, X_avx512bf16.cc,
#   X_amx.cc                      x86-64: once, with the flags of that instruction set
#   X_avx512.S                    x86-64: once, assembly
#   X_neon.cc, X_dot.cc           arm64: once, with the flags of that instruction set
#   int8_pack.cc, bf16_pack.cc    once, for avx2 or neon; the latter for avx2 alone
#   any other X.cc                x86-64: twice, as namespace sie_cpu::avx2 and sie_cpu::avx512 (SIE_ISA_NS)
#                                 arm64: once, as sie_cpu::neon
# Kernel sources include no C++ library headers: an inline function of such a header, compiled here with
# AVX-512, could be the copy the linker keeps for baseline code. ctest's symbols test watches over it.
set(SIE_KERNEL_OBJECTS "")

function(sie_kernel_objects target)
  cmake_parse_arguments(arg "" "" "SOURCES;FLAGS" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE sie_flags)
  target_compile_options(${target} PRIVATE ${arg_FLAGS})
  set(SIE_KERNEL_OBJECTS ${SIE_KERNEL_OBJECTS} $<TARGET_OBJECTS:${target}> PARENT_SCOPE)
endfunction()

# The judge is never vectorised: what it computes is what it says.
file(GLOB ref_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/ref/*.cc)
sie_kernel_objects(kernels_ref SOURCES ${ref_sources} FLAGS -O2 -fno-tree-vectorize)

set(cpu_dir ${CMAKE_SOURCE_DIR}/kernels/cpu)
file(GLOB cpu_sources CONFIGURE_DEPENDS ${cpu_dir}/*.cc)
set(SIE_CPU_GENERIC ${cpu_sources})
list(FILTER SIE_CPU_GENERIC EXCLUDE REGEX
     "_(avx2|avx512|vnni|avx512bf16|amx|neon|dot)\\.cc$|/(table|detect|table_arm64|detect_arm64|int8_pack|bf16_pack)\\.cc$")

# Linked behind sie_flags, whose option it takes back.
add_library(sie_unsanitized INTERFACE)
target_compile_options(sie_unsanitized INTERFACE -fno-sanitize=all)

# What test programs are compiled for beside the kernels: the lowest table's instructions.
set(SIE_TEST_ISA "")
# sie_machine_has(FLAG RESULT): whether the CPU of this machine has the flag of /proc/cpuinfo; ON where nothing says it.
function(sie_machine_has flag result)
  set(${result} ON PARENT_SCOPE)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    if(flags AND NOT flags MATCHES " ${flag}( |$)")
      set(${result} OFF PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(isa_avx2 -mavx2 -mfma -mf16c)
  set(SIE_TEST_ISA ${isa_avx2})
  set(isa_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  set(isa_vnni ${isa_avx512} -mavx512vnni)
  set(isa_avx512bf16 ${isa_vnni} -mavx512bf16)
  set(isa_amx ${isa_avx512bf16} -mamx-tile -mamx-bf16 -mamx-int8)
  set(SIE_ISAS avx2 avx512 vnni avx512bf16 amx)
  set(generic_isas avx2 avx512)
  # The flag of a CPU that runs the table, as /proc/cpuinfo has it.
  set(flag_avx2 avx2)
  set(flag_avx512 avx512vl)
  set(flag_vnni avx512_vnni)
  set(flag_avx512bf16 avx512_bf16)
  set(flag_amx amx_tile)
  set(cpu_baseline ${cpu_dir}/table.cc ${cpu_dir}/detect.cc ${cpu_dir}/detect_arm64.cc)
  set(bf16_pack ${cpu_dir}/bf16_pack.cc)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(isa_neon -march=armv8-a)
  set(isa_dot -march=armv8.2-a+dotprod)
  set(SIE_ISAS neon dot)
  set(generic_isas neon)
  set(cpu_baseline ${cpu_dir}/table_arm64.cc ${cpu_dir}/detect_arm64.cc)
endif()

if(SIE_ISAS)
  sie_kernel_objects(kernels_cpu_baseline SOURCES ${cpu_baseline})
  list(GET SIE_ISAS 0 least_isa)
  foreach(isa IN LISTS SIE_ISAS)
    set(own ${cpu_sources})
    list(FILTER own INCLUDE REGEX "_${isa}\\.cc$")
    if(isa IN_LIST generic_isas)
      list(APPEND own ${SIE_CPU_GENERIC})
    endif()
    if(isa STREQUAL least_isa)
      list(APPEND own ${cpu_dir}/int8_pack.cc ${bf16_pack})
    endif()
    file(GLOB assembly CONFIGURE_DEPENDS ${cpu_dir}/*_${isa}.S)
    list(APPEND own ${assembly})
    # GCC 12's own AVX-512 headers read a vector they leave undefined on purpose (GCC bug 105593).
    set(header_noise $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    # No errno from sqrt and no trap semantics: nothing reads either, and both forbid vectorising.
    sie_kernel_objects(kernels_cpu_${isa} SOURCES ${own}
                       FLAGS ${isa_${isa}} -DSIE_ISA_NS=${isa} -fno-math-errno -fno-trapping-math
                       ${header_noise})
    list(LENGTH own sources)
    if(flag_${isa} AND sources GREATER 2)
      sie_precompile(kernels_cpu_${isa} <immintrin.h>)
    endif()
    # Sanitizers see what runs. A table that this machine cannot run is compiled without them and hardly optimised, in a
    # sixth of the time; not at all, and AMX's assembly would lack its constants.
    if(SIE_SANITIZE AND flag_${isa})
      sie_machine_has(${flag_${isa}} runs)
      if(NOT runs)
        target_link_libraries(kernels_cpu_${isa} PRIVATE sie_unsanitized)
        if(isa STREQUAL amx)
          target_compile_options(kernels_cpu_${isa} PRIVATE -O1)
        else()
          target_compile_options(kernels_cpu_${isa} PRIVATE -O0)
        endif()
      endif()
    endif()
  endforeach()
endif()
