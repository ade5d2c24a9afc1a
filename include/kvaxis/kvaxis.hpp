// Everything but the parts that need Eigen (eigen.hpp, eval/) and policies by name (cache/make_cache.hpp).
#pragma once

#include "cache/kv_cache.hpp"
