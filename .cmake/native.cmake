# kvaxis_native_source(<file>): compiles a file for this machine's CPU. Eigen has another name in it, or the linker would mix
# its functions with those that other files compile for less.
include(CheckCXXCompilerFlag)
function(kvaxis_native_source file)
  check_cxx_compiler_flag(-march=native KVAXIS_HAS_MARCH_NATIVE)
  set(options -O3)
  if(KVAXIS_HAS_MARCH_NATIVE)
    list(APPEND options -march=native)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND options -Wno-maybe-uninitialized) # GCC 12 warns inside its own avx512fintrin.h
  endif()
  set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${options}" COMPILE_DEFINITIONS Eigen=Eigen_native)
endfunction()
