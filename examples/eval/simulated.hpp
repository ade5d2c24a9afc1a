// Policies as this program takes them: the names that make_cache knows, and codecs that other engines store, simulated.
//
//   name  = a policy of kvaxis | "sim:" codec [ "," codec ]      the second is the values'; left out: the same as keys
//   codec = q8_0 | q5_0 | q5_1 | q4_0 | q4_1 | iq4_nl, each also with "-hadamard"
//
// A simulated codec stores, after the rotation (RoPE), what decoding ggml's blocks of 32 channels would give, in f32: the
// errors are those of the blocks, in a cache with the same window, pins and arithmetic as all others. With "-hadamard"
// each head is multiplied by an orthonormal Hadamard matrix before, and back after.
#pragma once

#include <kvaxis/attention/kernels.hpp>
#include <string>

namespace eval {

struct policy {
  std::string name;
  std::string cache_policy;                        // for make_cache
  const kvaxis::codec_table* key_codec = nullptr;  // simulated; null: the policy's own
  const kvaxis::codec_table* value_codec = nullptr;
  double simulated_bits = 0;  // mean of keys and values, which have as many; 0: what the caches take
};

// Throws usage_error for a simulated codec that does not exist or that heads of so many channels do not fit; other names
// are left to the cache.
policy find_policy(const std::string& name, int head_dim);

}  // namespace eval
