// The naive path with the flags of most users; see CMakeLists.txt.
#define KVAXIS_NAIVE naive_plain
#include "naive.inl"
