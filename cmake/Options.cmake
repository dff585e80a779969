# Build options and the one function that declares a library of the project.
set(MOETUNE_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize= takes them")
option(MOETUNE_WERROR "Treat warnings as errors" ON)

# The CPU kernels are compiled for the machine they run on; set to x86-64-v3 or similar for binaries that travel.
set(MOETUNE_CPU_ARCH native CACHE STRING "Value of -march for kernels/cpu and tuner/stats/noise_model.cpp")

add_library(moetune_flags INTERFACE)
set(WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers)
# g++ 12 takes "text" + std::string for an overlapping copy (GCC bug 105651).
list(APPEND WARNINGS $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(MOETUNE_WERROR)
  list(APPEND WARNINGS -Werror)
endif()
target_compile_options(moetune_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${WARNINGS}>"
                                               $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(MOETUNE_SANITIZE)
  target_compile_options(moetune_flags INTERFACE -fsanitize=${MOETUNE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(moetune_flags INTERFACE -fsanitize=${MOETUNE_SANITIZE})
endif()
target_include_directories(moetune_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)

# moetune_library(NAME SOURCES ... HEADERS ... LINK ...): a static library whose headers compile alone.
function(moetune_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${name} PUBLIC moetune_flags ${ARG_LINK})
endfunction()

# moetune_lightly_optimised(TARGET): in sanitizer builds, of what takes longer to compile than to run.
function(moetune_lightly_optimised target)
  if(MOETUNE_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()
