// scores/: dequantize - rotate - dot over the keys of one layer.
#include "fused.hpp"

namespace bench {

void register_scores() {
  register_fused("scores", side::keys, kvaxis::arithmetic::automatic,
                 [](const kvaxis::any_kv_cache& c, const float* q, int position, buffers& b) {
                   return c.scores(q, 1, position, b.options, b.out.data(), b.workspace());
                 });
}

}  // namespace bench
