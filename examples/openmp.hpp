// OpenMP's threads for the library: pass &openmp_for wherever it takes a parallel_for. Compile with -fopenmp.
#pragma once

#include <omp.h>

#include <kvaxis/function_ref.hpp>

// On as many threads as OpenMP is set to use. Dynamic, because tasks differ in length.
inline void openmp_for(int n, kvaxis::task f) {
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < n; ++i) f(i);
}
