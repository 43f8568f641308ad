# Kernel objects → SIE_KERNEL_OBJECTS.
#
# kernels/ref is compiled once, plainly. kernels/cpu (x86-64 only) goes by file name:
#   table.cc, detect.cc      once, for the baseline instruction set: they run before anything is known
#   X_avx2.cc, X_avx512.cc,
#   X_vnni.cc, X_amx.cc      once, with the flags of that instruction set
#   X_avx512.S               once: assembly
#   any other X.cc           twice, as namespace sie_cpu::avx2 and sie_cpu::avx512 (SIE_ISA_NS)
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

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(isa_avx2 -mavx2 -mfma -mf16c)
  set(isa_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  set(isa_vnni ${isa_avx512} -mavx512vnni)
  set(isa_amx ${isa_vnni} -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8)

  file(GLOB cpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cpu/*.cc)
  set(SIE_CPU_GENERIC ${cpu_sources})
  list(FILTER SIE_CPU_GENERIC EXCLUDE REGEX "_(avx2|avx512|vnni|amx)\\.cc$|/(table|detect)\\.cc$")
  set(cpu_baseline ${cpu_sources})
  list(FILTER cpu_baseline INCLUDE REGEX "/(table|detect)\\.cc$")
  sie_kernel_objects(kernels_cpu_baseline SOURCES ${cpu_baseline})
  foreach(isa avx2 avx512 vnni amx)
    set(own ${cpu_sources})
    list(FILTER own INCLUDE REGEX "_${isa}\\.cc$")
    if(isa STREQUAL "avx2" OR isa STREQUAL "avx512")
      list(APPEND own ${SIE_CPU_GENERIC})
    endif()
    file(GLOB assembly CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cpu/*_${isa}.S)
    list(APPEND own ${assembly})
    # GCC 12's own AVX-512 headers read a vector they leave undefined on purpose (GCC bug 105593).
    set(header_noise $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    # No errno from sqrt and no trap semantics: nothing reads either, and both forbid vectorising.
    sie_kernel_objects(kernels_cpu_${isa} SOURCES ${own}
                       FLAGS ${isa_${isa}} -DSIE_ISA_NS=${isa} -fno-math-errno -fno-trapping-math
                       ${header_noise})
  endforeach()
endif()
