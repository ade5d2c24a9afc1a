// Caches by policy name for the tests.
#pragma once

#include <kvaxis/cache/make_cache.hpp>
#include <string_view>

namespace test {

using kvaxis::make_cache;

// The two sides of a policy name; codec pointers are null where the name is not valid.
struct policies {
  kvaxis::bound_policy keys;
  kvaxis::bound_policy values;
};
inline policies find(std::string_view name) {
  kvaxis::named_policy found;
  if (!kvaxis::find_policy(name, found).ok()) return {};
  return {found.keys, found.values};
}

// A cache that must come into being; throws kvaxis::error otherwise.
inline kvaxis::any_kv_cache cache_of(std::string_view name, const kvaxis::cache_config& config,
                                     const kvaxis::allocator& memory = {}) {
  kvaxis::any_kv_cache made;
  kvaxis::check(kvaxis::make_cache(name, config, memory, made));
  return made;
}

}  // namespace test
