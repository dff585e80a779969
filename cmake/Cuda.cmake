# The CUDA toolkit and the libraries beside it, where there are any. Without nvcc all of this is one status line, and
# the programs are built with stubs in place of the CUDA backend.
#
# Included by the top-level CMakeLists.txt it sets
#   MOETUNE_CUDA_INCLUDE_DIR    the toolkit's headers; not set without a toolkit
#   MOETUNE_HAS_CUDA            TRUE when CUDA is enabled as a language
#   MOETUNE_MISSING_CUDA_PARTS  the names of table MOETUNE_CUDA_PARTS that were not found, or "nvcc"
#   MOETUNE_HAS_CUBLASLT, MOETUNE_HAS_CUDNN, MOETUNE_HAS_CUTLASS, MOETUNE_HAS_NCCL, MOETUNE_HAS_CUPTI
#                               TRUE where the real file can be built, FALSE where its stub has to stand in
# and for each part that was found an imported target: moetune::cudart (static), moetune::cupti, moetune::cublaslt,
# moetune::nvrtc, moetune::cudnn, moetune::nccl, moetune::cutlass, moetune::cudnn_frontend; and moetune::cublaslt_lazy
# for programs that load that library only when they need it. What the system has is used first; what it lacks comes
# from the cache that scripts/cuda-libs.sh fills.
#
# Run as `cmake -P cmake/Cuda.cmake` it prints what that script has to know: the version of nvcc, the one that the
# wheels need, the cache folder, then one line for each part that is missing and can be fetched: its name, the wheel,
# the size of the download in MB, and which of its files to unpack.

# Own kernels are compiled for these; the CUTLASS file, which is Hopper code, only for 90a.
set(MOETUNE_CUDA_ARCHITECTURES "90a-real;80-real;100-real;120-real" CACHE STRING
    "GPU architectures that the own CUDA kernels are compiled for")
set(MOETUNE_CUDA_LIBS "" CACHE PATH
    "NVIDIA's wheels, unpacked (a Python site-packages will do); empty: the variable of that name, or the user's cache")
set(MOETUNE_MIN_CUDA 12.8)       # the first that knows all the architectures above
set(MOETUNE_WHEELS_CUDA 13)      # the wheels below are made for this major version

# name | a header that tells a version that is new enough | library | wheel | MB | include folder in the wheel |
# library folder in the wheel | what else of the wheel is needed. These versions have been built and run together as far
# as asking for their versions.
set(MOETUNE_CUDA_PARTS
  "cudart|cuda_runtime_api.h|cudart_static|-|-|-|-|-"
  "cupti|cupti_pmsampling.h|cupti|-|-|-|-|-"
  "cublaslt|cublasLt.h|cublasLt|nvidia-cublas==13.1.0.3|404|nvidia/cu13/include|nvidia/cu13/lib|libcublas.so.*"
  "nvrtc|nvrtc.h|nvrtc|nvidia-cuda-nvrtc==13.0.88|87|nvidia/cu13/include|nvidia/cu13/lib|libnvrtc-builtins.so.*"
  "cudnn|cudnn_graph.h|cudnn|nvidia-cudnn-cu13==9.19.0.56|350|nvidia/cudnn/include|nvidia/cudnn/lib|libcudnn_*.so.*"
  "nccl|nccl.h|nccl|nvidia-nccl-cu13==2.28.9|188|nvidia/nccl/include|nvidia/nccl/lib|-"
  "cutlass|cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp|-|nvidia-cutlass==4.2.0.0|6|cutlass_library/source/include|-|-"
  "cudnn_frontend|cudnn_frontend/node/sdpa_support_surface.h|-|nvidia-cudnn-frontend==1.32.0|12|include|-|-")

# Another set of versions is another folder.
string(REGEX MATCHALL "nvidia-[a-z0-9-]+==[0-9.]+" wheels "${MOETUNE_CUDA_PARTS}")
string(MD5 wheels_key "${wheels}")
string(SUBSTRING ${wheels_key} 0 8 wheels_key)
set(MOETUNE_CUDA_CACHE_DIR "$ENV{HOME}/.cache")
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(MOETUNE_CUDA_CACHE_DIR "$ENV{XDG_CACHE_HOME}")
endif()
string(APPEND MOETUNE_CUDA_CACHE_DIR "/moetune/cuda-libs/cu${MOETUNE_WHEELS_CUDA}-${wheels_key}")
if(MOETUNE_CUDA_LIBS)
  set(MOETUNE_CUDA_CACHE_DIR "${MOETUNE_CUDA_LIBS}")
elseif(NOT "$ENV{MOETUNE_CUDA_LIBS}" STREQUAL "")
  set(MOETUNE_CUDA_CACHE_DIR "$ENV{MOETUNE_CUDA_LIBS}")
endif()

# nvcc: the one named by CUDACXX, on the PATH, or the newest of /usr/local. Asks it where its toolkit is, because what
# is on the PATH may be a wrapper.
function(moetune_find_nvcc)
  file(GLOB toolkit_bins /usr/local/cuda*/bin)
  list(SORT toolkit_bins COMPARE NATURAL ORDER DESCENDING)
  find_program(MOETUNE_NVCC NAMES $ENV{CUDACXX} nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin
               PATHS ${toolkit_bins})
  set(toolkit "")
  set(version "")
  if(MOETUNE_NVCC)
    execute_process(COMMAND ${MOETUNE_NVCC} --version OUTPUT_VARIABLE version_text ERROR_QUIET)
    execute_process(COMMAND ${MOETUNE_NVCC} --dryrun -x cu -E /dev/null OUTPUT_QUIET ERROR_VARIABLE text)
    if(text MATCHES "#\\$ TOP=([^\n]+)")
      file(REAL_PATH "${CMAKE_MATCH_1}" toolkit)
    endif()
    if(version_text MATCHES "release ([0-9]+\\.[0-9]+)")
      set(version ${CMAKE_MATCH_1})
    endif()
  endif()
  set(MOETUNE_CUDA_TOOLKIT "${toolkit}" PARENT_SCOPE)
  set(MOETUNE_NVCC_VERSION "${version}" PARENT_SCOPE)
endfunction()

# First of `names` (globs) in `dirs`; of several matches of one glob the first in alphabetical order.
function(moetune_first_file result dirs names)
  set(${result} "" PARENT_SCOPE)
  foreach(dir IN LISTS dirs)
    foreach(name IN LISTS names)
      file(GLOB found ${dir}/${name})
      if(found)
        list(SORT found)
        list(GET found 0 first)
        set(${result} ${first} PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

# Sets PART_FOUND, PART_INCLUDE_DIR and PART_LIBRARY_FILE for the part in PART_<field>.
function(moetune_find_part)
  execute_process(COMMAND uname -m OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(library_names "lib${PART_LIBRARY}.so" "lib${PART_LIBRARY}.so.*")
  if(PART_LIBRARY MATCHES "_static$")
    set(library_names "lib${PART_LIBRARY}.a")
  endif()
  set(prefixes ${MOETUNE_CUDA_TOOLKIT} ${MOETUNE_CUDA_TOOLKIT}/targets/${machine}-linux
               ${MOETUNE_CUDA_TOOLKIT}/extras/CUPTI $ENV{CUDNN_HOME} $ENV{NCCL_HOME} $ENV{CUTLASS_HOME}
               $ENV{CONDA_PREFIX} $ENV{CONDA_PREFIX}/targets/${machine}-linux /usr/local /usr)
  set(include_dirs)
  set(library_dirs)
  foreach(prefix IN LISTS prefixes)
    list(APPEND include_dirs ${prefix}/include ${prefix}/include/${machine}-linux-gnu)
    list(APPEND library_dirs ${prefix}/lib64 ${prefix}/lib/${machine}-linux-gnu ${prefix}/lib)
  endforeach()
  moetune_first_file(header "${include_dirs}" "${PART_HEADER}")
  set(library "")
  if(PART_LIBRARY)
    moetune_first_file(library "${library_dirs}" "${library_names}")
  endif()
  set(is_found FALSE)
  if(header AND (library OR NOT PART_LIBRARY))
    set(is_found TRUE)
  elseif(PART_WHEEL)
    # The wheel's own list of files is unpacked last: where it is, the rest is complete.
    string(REGEX REPLACE "==.*" "" stamp ${PART_WHEEL})
    string(REPLACE "-" "_" stamp ${stamp})
    file(GLOB stamps ${MOETUNE_CUDA_CACHE_DIR}/${stamp}-*.dist-info/RECORD)
    moetune_first_file(header ${MOETUNE_CUDA_CACHE_DIR}/${PART_WHEEL_INCLUDE} ${PART_HEADER})
    if(PART_LIBRARY)
      moetune_first_file(library ${MOETUNE_CUDA_CACHE_DIR}/${PART_WHEEL_LIB} "${library_names}")
    endif()
    if(stamps AND header AND (library OR NOT PART_LIBRARY))
      set(is_found TRUE)
    endif()
  endif()
  set(include_dir "")
  if(is_found)
    string(REPLACE "/${PART_HEADER}" "" include_dir "${header}")
  endif()
  set(PART_FOUND ${is_found} PARENT_SCOPE)
  set(PART_INCLUDE_DIR "${include_dir}" PARENT_SCOPE)
  set(PART_LIBRARY_FILE "${library}" PARENT_SCOPE)
endfunction()

macro(moetune_split_part part)
  string(REPLACE "|" ";" fields "${part}")
  foreach(field NAME HEADER LIBRARY WHEEL MB WHEEL_INCLUDE WHEEL_LIB WHEEL_EXTRA)
    list(POP_FRONT fields value)
    string(REGEX REPLACE "^-$" "" PART_${field} "${value}")
  endforeach()
endmacro()

moetune_find_nvcc()

# What scripts/cuda-libs.sh asks for.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(lines "nvcc ${MOETUNE_NVCC_VERSION}" "needs ${MOETUNE_WHEELS_CUDA}" "cache ${MOETUNE_CUDA_CACHE_DIR}")
  if(MOETUNE_CUDA_TOOLKIT)
    foreach(part IN LISTS MOETUNE_CUDA_PARTS)
      moetune_split_part("${part}")
      moetune_find_part()
      if(NOT PART_FOUND AND PART_WHEEL)
        set(files ${PART_WHEEL_INCLUDE}/*)
        if(PART_LIBRARY)
          string(APPEND files " ${PART_WHEEL_LIB}/lib${PART_LIBRARY}.so.*")
        endif()
        if(PART_WHEEL_EXTRA)
          string(APPEND files " ${PART_WHEEL_LIB}/${PART_WHEEL_EXTRA}")
        endif()
        list(APPEND lines "part ${PART_NAME} ${PART_WHEEL} ${PART_MB} ${files}")
      endif()
    endforeach()
  endif()
  foreach(line IN LISTS lines)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${line}")
  endforeach()
  return()
endif()

set(MOETUNE_HAS_CUDA FALSE)
foreach(vendor CUBLASLT CUDNN CUTLASS NCCL CUPTI)
  set(MOETUNE_HAS_${vendor} FALSE)
endforeach()
set(MOETUNE_MISSING_CUDA_PARTS nvcc)
if(NOT MOETUNE_CUDA_TOOLKIT)
  message(STATUS "CUDA: no nvcc, built without the CUDA backend")
  return()
endif()
if(MOETUNE_NVCC_VERSION VERSION_LESS MOETUNE_MIN_CUDA)
  message(STATUS "CUDA: ${MOETUNE_NVCC} is version ${MOETUNE_NVCC_VERSION}, ${MOETUNE_MIN_CUDA} is needed; built "
                 "without the CUDA backend")
  return()
endif()

set(MOETUNE_MISSING_CUDA_PARTS)
foreach(part IN LISTS MOETUNE_CUDA_PARTS)
  moetune_split_part("${part}")
  moetune_find_part()
  if(NOT PART_FOUND)
    list(APPEND MOETUNE_MISSING_CUDA_PARTS ${PART_NAME})
    continue()
  endif()
  if(PART_NAME STREQUAL cudart)
    set(MOETUNE_CUDA_INCLUDE_DIR ${PART_INCLUDE_DIR})
  endif()
  # A wheel has only lib<x>.so.<version>, hence the full path; the linker writes its folder into the run path.
  if(NOT PART_LIBRARY)
    add_library(moetune::${PART_NAME} INTERFACE IMPORTED GLOBAL)
  elseif(PART_LIBRARY MATCHES "_static$")
    add_library(moetune::${PART_NAME} STATIC IMPORTED GLOBAL)
  else()
    add_library(moetune::${PART_NAME} SHARED IMPORTED GLOBAL)
  endif()
  if(PART_LIBRARY)
    set_target_properties(moetune::${PART_NAME} PROPERTIES IMPORTED_LOCATION ${PART_LIBRARY_FILE})
  endif()
  # g++ looks in /usr/include anyway, and given it by name would look there too early.
  if(NOT PART_INCLUDE_DIR STREQUAL "/usr/include")
    target_include_directories(moetune::${PART_NAME} SYSTEM INTERFACE ${PART_INCLUDE_DIR})
  endif()
endforeach()

if(TARGET moetune::cudart)
  target_link_libraries(moetune::cudart INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)
  foreach(user cupti cublaslt cudnn nccl)
    if(TARGET moetune::${user})
      target_link_libraries(moetune::${user} INTERFACE moetune::cudart)
    endif()
  endforeach()
endif()
if(TARGET moetune::cublaslt)
  # For kernels/cuda/cublaslt_lazy.cpp: the headers, and where the library is, without linking it.
  add_library(moetune::cublaslt_lazy INTERFACE IMPORTED GLOBAL)
  get_target_property(location moetune::cublaslt IMPORTED_LOCATION)
  get_target_property(include_dirs moetune::cublaslt INTERFACE_SYSTEM_INCLUDE_DIRECTORIES)
  target_compile_definitions(moetune::cublaslt_lazy INTERFACE "MOETUNE_CUBLASLT_LIBRARY=\"${location}\"")
  target_link_libraries(moetune::cublaslt_lazy INTERFACE ${CMAKE_DL_LIBS})
  if(include_dirs)
    target_include_directories(moetune::cublaslt_lazy SYSTEM INTERFACE ${include_dirs})
  endif()
endif()
if(TARGET moetune::cutlass)
  # cute is full of host functions that device code calls.
  target_compile_options(moetune::cutlass INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
endif()
if(TARGET moetune::cudnn_frontend AND TARGET moetune::cudnn AND TARGET moetune::nvrtc)
  # Its JSON dump and its log would double the time to compile. It refers to NVRTC, and so does cuDNN at run time.
  target_compile_definitions(moetune::cudnn_frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB
                                                               NV_CUDNN_FRONTEND_DISABLE_LOGGING)
  target_link_libraries(moetune::cudnn_frontend INTERFACE moetune::cudnn moetune::nvrtc)
endif()

if(NOT TARGET moetune::cudart)
  message(STATUS "CUDA: ${MOETUNE_CUDA_TOOLKIT} has no static runtime library; built without the CUDA backend")
  return()
endif()
if(MOETUNE_SANITIZE)
  message(STATUS "CUDA: not built with sanitizers (the tests run the own kernels on the host)")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${MOETUNE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
endif()
set(ENV{CUDACXX} ${MOETUNE_NVCC})
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  list(PREPEND MOETUNE_MISSING_CUDA_PARTS nvcc)
  message(STATUS "CUDA: ${MOETUNE_NVCC} does not work with ${CMAKE_CXX_COMPILER}; built without the CUDA backend")
  return()
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc takes this standard. fmt 9 takes nvcc for a compiler without constexpr, and then
# fails over its own consteval.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
set(CMAKE_CUDA17_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA17_EXTENSION_COMPILE_OPTION "-std=c++20")
add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
set(MOETUNE_HAS_CUDA TRUE)
foreach(vendor CUBLASLT CUTLASS NCCL CUPTI)
  string(TOLOWER moetune::${vendor} part)
  if(TARGET ${part})
    set(MOETUNE_HAS_${vendor} TRUE)
  endif()
endforeach()
if(TARGET moetune::cudnn AND TARGET moetune::cudnn_frontend AND TARGET moetune::nvrtc)
  set(MOETUNE_HAS_CUDNN TRUE)
endif()
if(MOETUNE_MISSING_CUDA_PARTS)
  string(REPLACE ";" ", " missing "${MOETUNE_MISSING_CUDA_PARTS}")
  message(STATUS "CUDA ${MOETUNE_NVCC_VERSION}: without ${missing} (`make cuda-libs` fetches what can be fetched)")
else()
  message(STATUS "CUDA ${MOETUNE_NVCC_VERSION}: with all libraries")
endif()
