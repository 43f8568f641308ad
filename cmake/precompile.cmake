# Headers that many sources of a target include are read once: those of vectors take a second of each source, those of the C++
# library half of one. The code stays the same. Not where a launcher (ccache) keeps objects, which it cannot with such headers;
# and with GCC on x86-64 alone.
#
#   SIE_PRECOMPILES                  whether it is done
#   sie_precompile(TARGET HEADER…)   TARGET's C++ sources begin with these headers, <…> or a path; a source with flags of its own
#                                    needs SKIP_PRECOMPILE_HEADERS
# No header for it is one that defines macros of the compiler itself, as emulated_avx512.h does: they would be forgotten.
# Whoever compiles a source with other flags leaves them out (tools/mutate): GCC dies of one that was made with another -O.
set(SIE_PRECOMPILES OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CROSSCOMPILING AND
   CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(SIE_PRECOMPILES ON)
endif()

function(sie_precompile target)
  if(SIE_PRECOMPILES)
    list(TRANSFORM ARGN REPLACE ">" "$<ANGLE-R>")
    list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # Those of another compiler, from before an upgrade, are not used.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=invalid-pch>)
  endif()
endfunction()
