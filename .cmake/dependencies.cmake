# The libraries that tests, benchmarks and examples need: the system's packages where they are installed, else release
# archives pinned by hash. FETCHCONTENT_SOURCE_DIR_<NAME> (EIGEN, GOOGLETEST, BENCHMARK) names unpacked sources instead and
# goes first, which also serves cross builds: the system's libraries are not of their architecture.
include(FetchContent)

# kvaxis_dependency(<package> <name> <url> <sha256> [SOURCE_SUBDIR dir]) defines <package>'s targets; <name>_SOURCE_DIR is
# set when they were not the system's.
macro(kvaxis_dependency package name url sha256)
  string(TOUPPER ${name} kvaxis_name)
  if(NOT FETCHCONTENT_SOURCE_DIR_${kvaxis_name})
    find_package(${package} QUIET)
  endif()
  if(NOT ${package}_FOUND)
    message(STATUS "${package}: built from source")
    FetchContent_Declare(${name} URL ${url} URL_HASH SHA256=${sha256} ${ARGN})
    FetchContent_MakeAvailable(${name})
  endif()
endmacro()

# Their headers are not ours to warn about.
function(kvaxis_system_headers)
  foreach(target IN LISTS ARGN)
    get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
    set_target_properties(${target} PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${directories}")
  endforeach()
endfunction()

set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # the variables below are the options of projects older than that policy
set(CMAKE_POLICY_DEFAULT_CMP0135 NEW)  # unpacked files get the time of unpacking

# Only the headers are wanted, so Eigen's own build (the subdirectory that does not exist) is left alone.
kvaxis_dependency(
  Eigen3 eigen https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2
  b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626 SOURCE_SUBDIR no-build)
if(NOT TARGET Eigen3::Eigen)
  add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
  target_include_directories(Eigen3::Eigen INTERFACE ${eigen_SOURCE_DIR})
endif()

if(KVAXIS_BUILD_TESTS)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  kvaxis_dependency(
    GTest googletest https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
  if(googletest_SOURCE_DIR)
    kvaxis_system_headers(gtest)
  endif()
endif()

if(KVAXIS_BUILD_BENCH)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(BENCHMARK_ENABLE_WERROR OFF)
  kvaxis_dependency(
    benchmark benchmark https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz
    6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7)
  if(benchmark_SOURCE_DIR)
    kvaxis_system_headers(benchmark)
  endif()
endif()
