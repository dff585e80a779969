# Everything that comes from outside. scripts/install-deps.sh installs it on Debian and Ubuntu; what the distribution
# lacks or has too old it puts into .deps/ of the source folder.
list(PREPEND CMAKE_PROGRAM_PATH ${CMAKE_SOURCE_DIR}/.deps/node/bin)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options unit_test_framework)
find_package(SQLite3 3.37 REQUIRED)

# JSON and gzip of traces, which are gigabytes.
find_path(SIMDJSON_INCLUDE_DIR simdjson.h REQUIRED)
find_library(SIMDJSON_LIBRARY simdjson REQUIRED)
add_library(fast_json INTERFACE)
target_include_directories(fast_json SYSTEM INTERFACE ${SIMDJSON_INCLUDE_DIR})
target_link_libraries(fast_json INTERFACE ${SIMDJSON_LIBRARY})
find_path(ISAL_INCLUDE_DIR igzip_lib.h PATH_SUFFIXES isa-l REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)
add_library(fast_gzip INTERFACE)
target_include_directories(fast_gzip SYSTEM INTERFACE ${ISAL_INCLUDE_DIR})
target_link_libraries(fast_gzip INTERFACE ${ISAL_LIBRARY})

# Packs the traces of the runs database.
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
add_library(zstd INTERFACE)
target_include_directories(zstd SYSTEM INTERFACE ${ZSTD_INCLUDE_DIR})
target_link_libraries(zstd INTERFACE ${ZSTD_LIBRARY})

# Debian's own package file of oneDNN asks for the OpenCL headers, which a GEMM on the CPU does not need.
find_path(ONEDNN_INCLUDE_DIR dnnl.h REQUIRED)
find_library(ONEDNN_LIBRARY dnnl REQUIRED)
add_library(onednn INTERFACE)
target_include_directories(onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE_DIR})
target_link_libraries(onednn INTERFACE ${ONEDNN_LIBRARY})
find_package(OpenMP REQUIRED COMPONENTS CXX)  # only to keep oneDNN on one thread

# NVTX is header only; ranges cost nothing without a tool attached. Without it the ranges are stubbed out.
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
          HINTS ${CMAKE_SOURCE_DIR}/.deps/nvtx/nvidia/nvtx/include $ENV{CUDA_HOME}/include
          PATHS /usr/local/cuda/include)
if(NOT NVTX_INCLUDE_DIR)
  message(STATUS "No NVTX headers: profiler ranges are stubbed out (nothing else changes)")
endif()
