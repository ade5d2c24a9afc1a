// What a wrong policy gets from the compiler. Each REFUSAL is compiled by a test of its own, which checks the message;
// REFUSAL 0 is right and compiles.
#include <cstdint>
#include <kvaxis/kvaxis.hpp>

struct not_a_codec {};

struct odd_width : kvaxis::int4 {
  static constexpr int bits = 7;
};

struct no_unit {
  static constexpr int bits = 8;
  static constexpr const char* name = "no_unit";
  struct params {};
  static params fit(const float*, int) noexcept { return {}; }
  static void encode(params, const float*, int, std::uint32_t*) noexcept {}
  static float decode(params, std::uint32_t code) noexcept { return static_cast<float>(code); }
};

#if REFUSAL == 0
template struct kvaxis::per_channel<no_unit, 32, 4>;
template struct kvaxis::per_token<kvaxis::int4, 32>;
template struct kvaxis::per_tensor<kvaxis::e4m3>;
template class kvaxis::kv_cache<kvaxis::per_token<kvaxis::int4>, kvaxis::latent<kvaxis::per_token<kvaxis::int4> > >;
#elif REFUSAL == 1
template struct kvaxis::per_channel<not_a_codec>;
#elif REFUSAL == 2
template struct kvaxis::per_channel<odd_width>;
#elif REFUSAL == 3
template struct kvaxis::per_tensor<no_unit>;
#elif REFUSAL == 4
template struct kvaxis::per_token<kvaxis::int4, 24>;
#elif REFUSAL == 5
template struct kvaxis::per_token<kvaxis::int4, 64, kvaxis::automatic>;
#elif REFUSAL == 6
template struct kvaxis::per_channel<kvaxis::int4, 64, -7>;
#elif REFUSAL == 7
template class kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int4, 48>, kvaxis::per_token<kvaxis::int4> >;
#elif REFUSAL == 8
template class kvaxis::kv_cache<kvaxis::per_token<kvaxis::int4>, kvaxis::per_channel<kvaxis::int4, 512> >;
#elif REFUSAL == 9
template class kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int4, 32>, kvaxis::per_channel<kvaxis::int4, 64> >;
#elif REFUSAL == 10
template class kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int4>, kvaxis::latent<kvaxis::per_token<kvaxis::int4> > >;
#elif REFUSAL == 11
template struct kvaxis::latent<kvaxis::latent<kvaxis::per_channel<kvaxis::int4> > >;
#endif
