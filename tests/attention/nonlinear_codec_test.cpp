// A codec that the kernels do not know is decoded by its own scalar code: every way through attention, for any number
// of query heads, against the oracle.
#include <gtest/gtest.h>

#include <kvaxis/cache/kv_cache.hpp>
#include <square4.hpp>

#include "against_oracle.hpp"

namespace {

using test::square4;

template <class Keys, class Values>
void expect_agreement() {
  const kvaxis::rope rope = test::rope_of(46, 32);
  test::shape s;
  s.head_dim = 46;
  s.value_dim = 40;
  kvaxis::any_kv_cache cache;
  kvaxis::check(
      kvaxis::any_kv_cache::create(test::config_of(s, rope), kvaxis::bind<Keys>, kvaxis::bind<Values>, {}, cache));
  test::append_random(cache, 100, 3);
  test::append_random(cache, 50, 4, 1000);
  kvaxis::check(cache.flush());
  const test::agreement check(cache, rope);
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}) check.expect({group, 2, 1048});
}

TEST(NonlinearCodec, agrees_with_the_oracle) {
  using kvaxis::per_channel;
  using kvaxis::per_token;
  expect_agreement<per_channel<square4, 64>, per_token<square4, 64>>();
  expect_agreement<per_channel<square4, 64, kvaxis::automatic>, per_channel<square4, 32>>();
  expect_agreement<per_token<square4, 32, kvaxis::tile_rotated>, per_token<square4, 16>>();
  expect_agreement<per_channel<square4, 32, kvaxis::post>, per_channel<square4, 32>>();
}

}  // namespace
