// Caches by policy name for the tests. The kernels of all codecs are instantiated once, in policies.cpp; tests that include
// this file compile none of them.
#pragma once

#include <kvaxis/cache/any_kv_cache.hpp>
#include <string_view>

namespace test {

// The two sides of a policy name; codec pointers are null where the name is not valid.
struct policies {
  kvaxis::bound_policy keys;
  kvaxis::bound_policy values;
};
policies find(std::string_view name);

// kvaxis::make_cache, compiled in policies.cpp.
kvaxis::status make_cache(std::string_view name, const kvaxis::cache_config& config, const kvaxis::allocator& memory,
                          kvaxis::any_kv_cache& out);

// A cache that must come into being; throws kvaxis::error otherwise.
kvaxis::any_kv_cache cache_of(std::string_view name, const kvaxis::cache_config& config,
                              const kvaxis::allocator& memory = {});

}  // namespace test
