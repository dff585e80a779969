# Build options and the one function that declares a library of the project.
set(MOETUNE_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize= takes them")
option(MOETUNE_WERROR "Treat warnings as errors" ON)
option(MOETUNE_FUZZ "Build the fuzzers of tests/fuzz instead of their replay; needs clang" OFF)

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
  # Their checks hide from g++ what has been given a value (it warns of std::regex).
  target_compile_options(moetune_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
target_include_directories(moetune_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)

# From nothing, sources are compiled sixteen at a time, so that a library's templates are instantiated once for sixteen,
# and the libraries' headers that nearly every source reads once for all (not for sanitizers, which keep all warnings).
# Not where ccache is, which would not know a source again then: such a build finds forgotten #includes.
find_program(CCACHE_PROGRAM ccache)
set(PRECOMPILES ON)
if(CCACHE_PROGRAM OR MOETUNE_SANITIZE)
  set(PRECOMPILES OFF)
endif()
if(NOT CCACHE_PROGRAM AND NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
endif()
if(CMAKE_UNITY_BUILD)  # a source is no header
  target_compile_options(moetune_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
option(MOETUNE_PRECOMPILED_HEADERS "Compile the headers of fmt, nlohmann_json and Boost.Test once for all" ${PRECOMPILES})
if(MOETUNE_PRECOMPILED_HEADERS)
  # g++ 12 forgets that they are a library's and warns of what it takes for overflows in them (GCC bug 105651, again).
  # Builds with ccache and those with sanitizers keep these warnings.
  target_compile_options(moetune_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>
                                                 $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overread>
                                                 $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>)
endif()

# moetune_precompiled(TARGET KIND): TARGET takes the headers of a kind: fmt, json (with fmt), light (json, for targets that
# are lightly optimised) or test (with json).
function(moetune_precompiled target kind)
  if(NOT MOETUNE_PRECOMPILED_HEADERS)
    return()
  endif()
  set(owner precompiled_${kind})
  if(NOT TARGET ${owner})
    set(libraries)
    set(headers <fmt/format.h> <algorithm> <map> <memory> <optional> <string> <vector>)
    if(NOT kind STREQUAL fmt)
      list(APPEND headers <nlohmann/json.hpp>)
      list(APPEND libraries nlohmann_json::nlohmann_json)
    endif()
    if(kind STREQUAL test)
      list(APPEND headers <boost/test/unit_test.hpp>)
      list(APPEND libraries Boost::unit_test_framework)
    endif()
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${owner}.cpp CONTENT "// Holds nothing: its target owns headers.\n")
    add_library(${owner} STATIC ${CMAKE_BINARY_DIR}/generated/${owner}.cpp)
    # g++ takes them only where every macro that they were compiled with is defined alike.
    target_link_libraries(${owner} PRIVATE moetune_flags fmt::fmt ${libraries})
    target_precompile_headers(${owner} PRIVATE ${headers})
    if(kind STREQUAL test)
      target_compile_definitions(${owner} PRIVATE BOOST_TEST_DYN_LINK)
      target_compile_options(${owner} PRIVATE -Og)  # as tests are
    elseif(kind STREQUAL light)
      moetune_lightly_optimised(${owner})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  if(kind STREQUAL test)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)  # in Boost
  endif()
endfunction()

# moetune_library(NAME SOURCES ... HEADERS ... LINK ... PRECOMPILED fmt|json): a static library whose headers compile
# alone. A header that the source beside it includes first is shown to by `make tidy`, which reads each source alone.
function(moetune_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;HEADERS;LINK" ${ARGN})
  set(headers)
  foreach(header ${ARG_HEADERS})
    string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
    set(first)
    if(EXISTS ${source})
      file(STRINGS ${source} first REGEX "^#include" LIMIT_COUNT 1)
    endif()
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${header})
    if(NOT first STREQUAL "#include \"${path}\"")
      list(APPEND headers ${header})
    endif()
  endforeach()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${headers})
  target_link_libraries(${name} PUBLIC moetune_flags ${ARG_LINK})
  if(ARG_PRECOMPILED)
    moetune_precompiled(${name} ${ARG_PRECOMPILED})
  endif()
endfunction()

# moetune_lightly_optimised(TARGET): of what takes longer to compile than to run.
function(moetune_lightly_optimised target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endfunction()
