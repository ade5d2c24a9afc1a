// The fuzzer of restored files: what its inputs are, so that the tests can make and replay some.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../io/saved_files.hpp"

namespace fuzz {

// The caches that a file goes into; the first byte of an input says which, the rest is the file.
struct target {
  const char* policy;
  int layers;
  int head_dim;
  bool half_window;
  int first_head;  // of the cache's two heads ...
  int heads;       // ... in the layer
};
inline constexpr std::array<target, 5> targets = {{
    {"k:int4-channel32-auto,v:int8s-token16", 1, 10, false, 0, 2},
    {"k:int8f32-token16-tile,v:e4m3-channel32", 1, 8, true, 0, 2},
    {"k:e5m2-tensor@0.02-pre,v:int4f32-token16", 2, 8, false, 0, 2},
    {"k:f16-post,v:f32", 1, 8, true, 0, 2},
    {"k:bf16,v:int4-token16", 1, 9, false, 1, 4},
}};

std::vector<kvaxis::any_kv_cache> make_caches(const target& t);

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
