// values/: the weighted sum over the values of one layer.
#include "fused.hpp"

namespace bench {

void register_values() {
  register_fused("values", side::values, kvaxis::arithmetic::automatic,
                 [](const kvaxis::any_kv_cache& c, const float*, int, buffers& b) {
                   return c.weighted_sum(b.in.data(), 1, b.options, b.out.data(), b.workspace());
                 });
}

}  // namespace bench
