# The tables of x86-64 once more, for kernel_tests, on kernels that are made up (kernels/tests/table_test.cc): every table
# runs on every machine, and sie_cpu_ops is asked for machines that are described.
#
#   table_made_up   kernels/cpu/table.cc, in which each name of a kernel, sie_cpu_ops and sie_cpu_detect begin with made_up_
add_library(table_made_up OBJECT ${CMAKE_SOURCE_DIR}/kernels/cpu/table.cc)
target_link_libraries(table_made_up PRIVATE sie_flags)
set(made_up)
foreach(name avx2 avx512 bf16_pack bf16_packed_bytes int8_pack int8_packed_bytes linear_bf16_scratch linear_int8_scratch
             linear_bf16_amx linear_bf16_avx512bf16 linear_int8_amx linear_int8_vnni linear_int8_avx2
             attention_bf16_amx attention_bf16_amx_scratch attention_disentangled_amx
             attention_disentangled_amx_scratch sie_cpu_ops sie_cpu_detect)
  list(APPEND made_up ${name}=made_up_${name})
endforeach()
target_compile_definitions(table_made_up PRIVATE ${made_up})
set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/tests/table_test.cc PROPERTIES COMPILE_DEFINITIONS "${made_up}")
target_sources(kernel_tests PRIVATE $<TARGET_OBJECTS:table_made_up>)
