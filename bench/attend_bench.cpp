// attend/: the whole attention of one query token over one layer.
#include "fused.hpp"

namespace bench {

void register_attend() {
  register_fused("attend", side::both, [](const kvaxis::any_kv_cache& c, const float* q, int position, buffers& b) {
    return c.attend(q, 1, position, b.options, b.out.data(), nullptr, b.workspace());
  });
}

}  // namespace bench
