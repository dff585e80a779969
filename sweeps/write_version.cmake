# Writes the header with the commit at build time, touching it only when something changed. Works without git.
# Run as: cmake -DOUTPUT=... -DSOURCE=... -DCOMPILER=... -DBUILD_TYPE=... -P write_version.cmake
cmake_minimum_required(VERSION 3.25)
set(COMMIT "unknown")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(result EQUAL 0 AND found)
    set(COMMIT ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Generated at build time by sweeps/write_version.cmake.
#pragma once

namespace moetune::sweeps {
constexpr const char* kBuildCommit = \"@COMMIT@\";
constexpr const char* kBuildCompiler = \"@COMPILER@\";
constexpr const char* kBuildType = \"@BUILD_TYPE@\";
}  // namespace moetune::sweeps
")
