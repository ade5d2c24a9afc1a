#include "policies.hpp"

#include <kvaxis/cache/make_cache.hpp>

namespace test {

policies find(std::string_view name) {
  kvaxis::named_policy found;
  if (!kvaxis::find_policy(name, found).ok()) return {};
  return {found.keys, found.values};
}

kvaxis::status make_cache(std::string_view name, const kvaxis::cache_config& config, const kvaxis::allocator& memory,
                          kvaxis::any_kv_cache& out) {
  return kvaxis::make_cache(name, config, memory, out);
}

kvaxis::any_kv_cache cache_of(std::string_view name, const kvaxis::cache_config& config,
                              const kvaxis::allocator& memory) {
  kvaxis::any_kv_cache made;
  const kvaxis::status s = kvaxis::make_cache(name, config, memory, made);
  if (!s.ok()) throw kvaxis::error(s);
  return made;
}

}  // namespace test
