# CUDA kernels → libsie_cuda.a: kernels/cuda/*.cu by nvcc, kernels/cuda/*.cc by the host compiler. Included when
# SIE_CUDA is on; `make kernels` does that in a build folder of its own. Needs a toolkit, no GPU and no driver.
#
# Every object holds machine code (SASS) for every target and no PTX: a driver compiles PTX only of its own
# release or older, and code that the driver makes is code that no test of ours has read. A card that no target fits is
# refused by name (kernels/cuda/arch.h).
set(SIE_CUDA_HOME "" CACHE PATH "The CUDA toolkit, as tools/setup/cuda.sh prints it")
set(SIE_CUDA_TARGETS "" CACHE STRING "Targets to compile for, as 80;90a; empty: every one the toolkit has")

set(nvcc ${SIE_CUDA_HOME}/bin/nvcc)
execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT text MATCHES "release ([0-9]+\\.[0-9]+), V([0-9.]+)")
  message(FATAL_ERROR "SIE_CUDA_HOME=${SIE_CUDA_HOME} has no nvcc that runs; tools/setup/cuda.sh prints one that does")
endif()
set(SIE_CUDA_RELEASE ${CMAKE_MATCH_1})
if(SIE_CUDA_RELEASE VERSION_LESS 12.4)
  message(FATAL_ERROR "CUDA ${SIE_CUDA_RELEASE} is too old: 12.4 or newer")
endif()

# 80 A100 · 86 RTX 30, A10 · 89 RTX 40, L4, L40S · 90a H100, H200 · 100f B200, B300 · 120f RTX 50, RTX PRO.
# 90a because wgmma is in no plain sm_90; the f targets cover their family (10.0 and 10.3, 12.0 and 12.1).
set(targets 80 86 89 90a)
if(SIE_CUDA_RELEASE VERSION_GREATER_EQUAL 12.9)
  list(APPEND targets 100f 120f)
endif()
if(SIE_CUDA_TARGETS)
  foreach(target IN LISTS SIE_CUDA_TARGETS)
    if(NOT target IN_LIST targets)
      message(FATAL_ERROR "no target ${target} with CUDA ${SIE_CUDA_RELEASE}: ${targets}")
    endif()
  endforeach()
  set(targets ${SIE_CUDA_TARGETS})
endif()
list(JOIN targets "," target_list)

# The targets a source is for, to `out`: those whose tables have a launcher that starts its kernels. For the others
# its kernels would be empty (kernels/cuda/linear.cu chooses; mma.sync of e4m3 is an instruction on 89 and 120 alone).
function(sie_targets_of source out)
  set(own ${targets})
  if(source MATCHES "^(gemm|splade|attention)_sm90_")
    list(FILTER own INCLUDE REGEX "^90a$")
  elseif(source MATCHES "^(gemm|splade)_sm80_fp8")
    list(FILTER own INCLUDE REGEX "^(89|120f)$")
  elseif(source MATCHES "^(gemm|splade)_sm80_")
    list(FILTER own EXCLUDE REGEX "^90a$")
  endif()
  set(${out} ${own} PARENT_SCOPE)
endfunction()

# The options of nvcc for targets, to `out`.
function(sie_gencode out)
  set(options "")
  foreach(target ${ARGN})
    list(APPEND options -gencode arch=compute_${target},code=sm_${target})
  endforeach()
  set(${out} ${options} PARENT_SCOPE)
endfunction()

# No fast-math: what is fast and inexact is written so in the kernel. Warnings of nvcc, ptxas and g++ are errors;
# -v makes ptxas report registers, stack, spills and shared memory, which tools/kernels/budgets.py reads.
set(nvcc_flags
  -O3 -std=c++17 --threads 2 -ccbin ${CMAKE_CXX_COMPILER} -Xfatbin -compress-all
  -Werror all-warnings -Xptxas -v
  -Xcompiler -fPIC,-Wall,-Wextra,-Werror,-fvisibility=hidden,-ffp-contract=off,-fno-exceptions,-fno-rtti
  -DNDEBUG -I${CMAKE_SOURCE_DIR}/csrc/include -I${CMAKE_SOURCE_DIR}/kernels)

set(object_dir ${CMAKE_BINARY_DIR}/cuda-objects)
file(MAKE_DIRECTORY ${object_dir})
file(GLOB device_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
set(device_objects "")
set(description "release ${SIE_CUDA_RELEASE}\nhome ${SIE_CUDA_HOME}\ntargets ${target_list}\n")
set(compile ${CMAKE_SOURCE_DIR}/tools/kernels/compile.sh)
foreach(source IN LISTS device_sources)
  get_filename_component(name ${source} NAME_WE)
  set(object ${object_dir}/${name}.o)
  sie_targets_of(${name} own)
  list(JOIN own "," own_list)
  string(APPEND description "source ${name} ${own_list}\n")
  if(NOT own)  # in a build for a part of the targets: its launchers are linked all the same
    list(GET targets 0 own)
    set(own_list "${own}, where it is empty")
  endif()
  sie_gencode(gencode ${own})
  add_custom_command(
    OUTPUT ${object}
    BYPRODUCTS ${object_dir}/${name}.ptxas.txt
    COMMAND ${compile} ${object_dir}/${name}.ptxas.txt
            ${nvcc} ${nvcc_flags} ${gencode} -MD -MF ${object_dir}/${name}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} ${compile} ${nvcc}
    DEPFILE ${object_dir}/${name}.d
    COMMENT "nvcc ${name}.cu for ${own_list}"
    VERBATIM)
  list(APPEND device_objects ${object})
endforeach()
set_source_files_properties(${device_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

file(GLOB host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cc)
add_library(sie_cuda STATIC ${host_sources} ${device_objects})
target_link_libraries(sie_cuda PRIVATE sie_flags)
target_compile_definitions(sie_cuda PRIVATE SIE_CUDA_TARGETS="${target_list}" SIE_CUDA_RELEASE="${SIE_CUDA_RELEASE}")
set_target_properties(sie_cuda PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINKER_LANGUAGE CXX)

# What the readers of the compiled code need to know.
file(CONFIGURE OUTPUT ${object_dir}/build.txt CONTENT "${description}")

# sie_record: what the instructions of a real card return, for the emulator's own test (kernels/simt/record.cu).
# Linked to the static CUDA runtime, so that it runs where only a driver is.
set(record_dir ${CMAKE_BINARY_DIR}/record-objects)
file(MAKE_DIRECTORY ${record_dir})
set(record_objects "")
sie_gencode(gencode ${targets})
foreach(name experiments record)
  set(source ${CMAKE_SOURCE_DIR}/kernels/simt/${name}.cu)
  set(object ${record_dir}/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${compile} ${record_dir}/${name}.ptxas.txt
            ${nvcc} ${nvcc_flags} ${gencode} -MD -MF ${record_dir}/${name}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} ${compile} ${nvcc}
    DEPFILE ${record_dir}/${name}.d
    COMMENT "nvcc ${name}.cu for ${target_list}"
    VERBATIM)
  list(APPEND record_objects ${object})
endforeach()
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/sie_record
  COMMAND ${nvcc} -cudart static -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -static-libgcc,-static-libstdc++
          ${record_objects} -o ${CMAKE_BINARY_DIR}/sie_record
  DEPENDS ${record_objects}
  COMMENT "linking sie_record"
  VERBATIM)
add_custom_target(record ALL DEPENDS ${CMAKE_BINARY_DIR}/sie_record)
