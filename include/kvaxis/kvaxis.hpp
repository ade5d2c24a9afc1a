// Everything but what one asks for by name: cache/make_cache.hpp, cache/plan.hpp, quantizers/round_trip.hpp, eigen.hpp, eval/.
#pragma once

#include "cache/kv_cache.hpp"
