// attend/: the whole attention of one query token over one layer.
#include "fused.hpp"

namespace bench {

void register_attend() {
  const auto call = [](const kvaxis::any_kv_cache& c, const float* q, int position, buffers& b) {
    return c.attend(q, 1, position, b.options, b.out.data(), nullptr, b.workspace());
  };
  register_fused("attend", side::both, kvaxis::arithmetic::automatic, call);
  register_fused("attend_f32", side::both, kvaxis::arithmetic::f32, call);
  const auto both_arithmetics = [=](const shape& s) {
    kvaxis::for_each_isa([=](kvaxis::isa isa) {
      register_fused("attend", side::both, kvaxis::arithmetic::automatic, isa, s, call);
      register_fused("attend_f32", side::both, kvaxis::arithmetic::f32, isa, s, call);
    });
  };
  for_each_shared_shape(both_arithmetics);
  for_each_packed_shape(both_arithmetics);
  for_each_curve_shape([=](const shape& s) {  // one shape after the other: the caches are too large to keep them all
    kvaxis::for_each_isa(
        [=](kvaxis::isa isa) { register_fused("attend", side::both, kvaxis::arithmetic::automatic, isa, s, call); });
  });
}

}  // namespace bench
