// The naive path with -O3 -march=native; see CMakeLists.txt.
#define KVAXIS_NAIVE naive_native
#include "naive.inl"
