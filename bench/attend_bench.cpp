// attend/: the whole attention of one query token over one layer.
#include "fused.hpp"

namespace bench {

void register_attend() {
  const auto attend = [](const kvaxis::any_kv_cache& c, const float* q, int position, buffers& b) {
    return c.attend(q, 1, position, b.options, b.out.data(), nullptr, b.workspace());
  };
  register_fused("attend", side::both, kvaxis::arithmetic::automatic, attend);
  register_fused("attend_f32", side::both, kvaxis::arithmetic::f32, attend);
}

}  // namespace bench
