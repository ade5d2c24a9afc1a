// Cases from the field: every codec of the keys with every codec of the values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lists.hpp"

namespace {

using namespace cases;

TEST(Pairs, B56_every_pair_of_codecs_attends_at_every_head_dim) {
  const std::vector<std::string> keys = {"int4-channel32-auto",
                                         "int4-token32-post",
                                         "int8-channel32-pre",
                                         "int4s-channel32-pre",
                                         "int8s-token16-tile",
                                         "int4f32-channel32-hot2",
                                         "e4m3-channel32-pre",
                                         "e5m2-token32-pre",
                                         "f32",
                                         "f16",
                                         "bf16",
                                         "int2-channel32-pre",
                                         "int3-channel32-auto",
                                         "int6-token16-post",
                                         "int4-channel32-hot2x6",
                                         "mxfp4-token32-pre"};
  const std::vector<std::string> values = {
      "int4-token32", "int4-channel32",        "int8-token16",    "int4s-token32", "int8s-token16", "int8f32-token32",
      "e4m3-token32", "e5m2-channel32",        "e4m3-tensor@1.0", "f32",           "f16",           "bf16",
      "int2-token32", "int3-hadamard-token16", "int5s-token32",   "nvfp4-token16"};
  for (const int dim : {64, 80, 96, 128, 192, 256}) {
    kvaxis::cache_config c = config_of(20, 2, dim, 1);
    const test::tokens t(c, 100, 6);
    for (const std::string& key : keys) {
      for (const std::string& value : values) {
        SCOPED_TRACE(key + " " + value + " " + std::to_string(dim));
        any_kv_cache cache = test::cache_of("k:" + key + ",v:" + value, c);
        t.append_all_to(cache);
        expect_oracle(cache, c.rope, 100);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
