# The conformance list and the bench of kernels/bench.
#
#   with SIE_CUDA        gpu_programs: sie_conformance, sie_bench and sie_record, for the GPU of the machine they run on;
#                        the CUDA and C++ runtimes are linked statically, so a driver is all they need
#   with emulated GPUs   kernel_mirror_test, kernel_conformance_emulated and kernel_bench_emulated, which are tests
#   kernel_model         prints what the cost model predicts
#   kernel_model_test    what it is asked of whole models
set(bench_dir ${CMAKE_SOURCE_DIR}/kernels/bench)

# Cases, harness and judge; no table.
add_library(kernel_cases STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kernel_case_objects> ${lent_case_objects}
            ${CMAKE_SOURCE_DIR}/kernels/tests/support_golden.cc ${bench_dir}/mirror.cc ${bench_dir}/points.cc
            ${bench_dir}/models.cc ${bench_dir}/model.cc ${bench_dir}/verify.cc ${bench_dir}/no_cpu.cc $<TARGET_OBJECTS:kernels_ref>)
target_link_libraries(kernel_cases PRIVATE sie_flags)

# What the cost model predicts, and whether bench/results/gpu-model.md still says it.
set(model_sources ${CMAKE_SOURCE_DIR}/kernels/cuda/cost.cc ${CMAKE_SOURCE_DIR}/kernels/cuda/cost_heads.cc
    ${CMAKE_SOURCE_DIR}/kernels/cuda/gemm_sm90_choose.cc ${CMAKE_SOURCE_DIR}/kernels/cuda/gemm_sm90_norm_choose.cc)
add_executable(kernel_model EXCLUDE_FROM_ALL ${bench_dir}/model_main.cc ${model_sources})
target_link_libraries(kernel_model PRIVATE sie_flags kernel_cases pthread m)
add_executable(kernel_model_test EXCLUDE_FROM_ALL ${bench_dir}/model_test.cc
               ${CMAKE_SOURCE_DIR}/kernels/tests/cuda/cost_heads_test.cc ${model_sources})
target_link_libraries(kernel_model_test PRIVATE sie_flags kernel_cases pthread m)
if(SIE_EMULATED AND NOT SIE_SANITIZE)
  set_target_properties(kernel_model kernel_model_test PROPERTIES EXCLUDE_FROM_ALL OFF)
  add_test(NAME kernel_model_test COMMAND kernel_model_test)
  add_test(NAME kernel_model COMMAND sh -c "$<TARGET_FILE:kernel_model> | diff - ${CMAKE_SOURCE_DIR}/bench/results/gpu-model.md")
endif()

if(SIE_CUDA)
  set(peak_object ${CMAKE_BINARY_DIR}/bench-objects/peak.o)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bench-objects)
  sie_gencode(gencode ${targets})
  add_custom_command(
    OUTPUT ${peak_object}
    COMMAND ${compile} ${peak_object}.ptxas.txt
            ${nvcc} ${nvcc_flags} ${gencode} -MD -MF ${peak_object}.d -MT ${peak_object} -c ${bench_dir}/peak.cu
            -o ${peak_object}
    DEPENDS ${bench_dir}/peak.cu ${compile} ${nvcc}
    DEPFILE ${peak_object}.d
    COMMENT "nvcc peak.cu for ${target_list}"
    VERBATIM)
  set_source_files_properties(${peak_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

  find_library(cudart NAMES libcudart_static.a PATHS ${SIE_CUDA_HOME}/lib64 ${SIE_CUDA_HOME}/lib
               ${SIE_CUDA_HOME}/targets/x86_64-linux/lib NO_DEFAULT_PATH REQUIRED)
  add_executable(sie_conformance EXCLUDE_FROM_ALL ${bench_dir}/conformance.cc ${bench_dir}/device_cuda.cc)
  add_executable(sie_bench EXCLUDE_FROM_ALL ${bench_dir}/bench_main.cc ${bench_dir}/device_cuda.cc
                 ${bench_dir}/timing.cc ${bench_dir}/report.cc ${bench_dir}/sweep.cc ${bench_dir}/cublaslt.cc
                 ${peak_object})
  foreach(program sie_conformance sie_bench)
    target_include_directories(${program} SYSTEM PRIVATE ${SIE_CUDA_HOME}/include)
    target_link_libraries(${program} PRIVATE sie_flags kernel_cases sie_cuda ${cudart} dl rt pthread m)
    target_link_options(${program} PRIVATE -static-libgcc -static-libstdc++)
  endforeach()
  add_custom_target(gpu_programs DEPENDS sie_conformance sie_bench record)
endif()

if(SIE_EMULATED)
  add_executable(kernel_mirror_test ${bench_dir}/mirror_test.cc ${bench_dir}/device_host.cc)
  target_link_libraries(kernel_mirror_test PRIVATE sie_flags kernel_cases pthread m)
  add_executable(kernel_conformance_emulated ${bench_dir}/conformance.cc ${bench_dir}/device_host.cc)
  add_executable(kernel_bench_emulated ${bench_dir}/emulated_main.cc ${bench_dir}/device_host.cc)
  foreach(program kernel_conformance_emulated kernel_bench_emulated)
    target_link_libraries(${program} PRIVATE sie_flags kernel_cases sie_cuda_emulated pthread m)
  endforeach()
  set(configurations "")
  if(SIE_SANITIZE)
    # They run kernel_tests' kernels in other programs: under sanitizers for `ctest -C whole` only.
    set(configurations CONFIGURATIONS whole)
    set_target_properties(kernel_mirror_test kernel_conformance_emulated kernel_bench_emulated PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  add_custom_target(bench_tests DEPENDS kernel_mirror_test kernel_conformance_emulated kernel_bench_emulated)
  add_test(NAME kernel_mirror COMMAND kernel_mirror_test ${configurations})
  add_test(NAME kernel_conformance_emulated COMMAND kernel_conformance_emulated ${configurations})
  add_test(NAME kernel_bench_emulated COMMAND kernel_bench_emulated ${configurations})
  # The whole list runs without the mirror; how these launch the kernels is no part of the record of that.
  set_tests_properties(kernel_mirror kernel_conformance_emulated kernel_bench_emulated PROPERTIES
                       ENVIRONMENT_MODIFICATION "SIE_TEST_SHARD=set:0/29;SIE_SIMT_LAUNCHES=unset:")
endif()

# What bench/scale.py measures with: single operations, and threads.
add_executable(scale_bench ${CMAKE_SOURCE_DIR}/bench/scale/main.cc ${CMAKE_SOURCE_DIR}/csrc/tests/model.cc)
target_link_libraries(scale_bench PRIVATE sie_flags sie m pthread)
target_include_directories(scale_bench PRIVATE csrc csrc/tests)
if(SIE_SANITIZE)
  set_target_properties(scale_bench PROPERTIES EXCLUDE_FROM_ALL ON)
elseif(NOT CMAKE_CROSSCOMPILING)
  add_test(NAME scale_bench COMMAND python3 -B ${CMAKE_SOURCE_DIR}/bench/scale/check.py $<TARGET_FILE:scale_bench>)
endif()
