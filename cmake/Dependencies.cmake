# Everything that comes from outside. scripts/install-deps.sh installs it on Debian and Ubuntu; what the distribution
# lacks or has too old it puts into .deps/ of the source folder.
list(PREPEND CMAKE_PROGRAM_PATH ${CMAKE_SOURCE_DIR}/.deps/node/bin)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options unit_test_framework)
find_package(SQLite3 3.37 REQUIRED)

find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread x86_64-linux-gnu/openblas-pthread
          aarch64-linux-gnu/openblas-pthread REQUIRED)
find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED)
add_library(openblas INTERFACE)
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIR})
target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY})

# NVTX is header only; ranges cost nothing without a tool attached. Without it the ranges are stubbed out.
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
          HINTS ${CMAKE_SOURCE_DIR}/.deps/nvtx/nvidia/nvtx/include $ENV{CUDA_HOME}/include
          PATHS /usr/local/cuda/include)
if(NOT NVTX_INCLUDE_DIR)
  message(STATUS "No NVTX headers: profiler ranges are stubbed out (nothing else changes)")
endif()
