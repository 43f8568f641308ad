# sie_cgo_flags(TARGET OUTPUT FILE TAGS EXPRESSION LIBRARIES LIBRARIES... LINK FLAGS...): a target that writes
# runtime/engine/FILE, from which cgo knows what to link in a build with these tags. ALL builds it. A library is a target, or
# the path of an archive that is there.
#
# Runs on each build: reading the libraries costs milliseconds, and a deleted Go file comes back.
function(sie_cgo_flags target)
  cmake_parse_arguments(arg "" "OUTPUT;TAGS" "LIBRARIES;LINK" ${ARGN})
  set(engine ${CMAKE_SOURCE_DIR}/runtime/engine)
  set(files "")
  foreach(library IN LISTS arg_LIBRARIES)
    if(TARGET ${library})
      list(APPEND files $<TARGET_FILE:${library}>)
    else()
      list(APPEND files ${library})
    endif()
  endforeach()
  list(JOIN files "," files)
  list(JOIN arg_LINK " " link)
  add_custom_target(${target} ALL
    COMMAND ${CMAKE_COMMAND} -DLIBRARIES=${files} -DHEADER=${CMAKE_SOURCE_DIR}/csrc/include/sie.h
            -DENGINE=${engine} -DOUTPUT=${engine}/${arg_OUTPUT} -DTAGS=${arg_TAGS} -DLINK=${link}
            -P ${CMAKE_SOURCE_DIR}/cmake/cgo_flags.cmake
    DEPENDS ${arg_LIBRARIES} VERBATIM)
endfunction()
