// Built with many flags, standards and both compilers (.ci/run): includes every header, folds the same tokens under every
// codec, and expects the same bytes from all of these builds and every instruction set; attends on each.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "all_headers.hpp"

namespace {

constexpr int heads = 2;
constexpr int dim = 40;
constexpr int tokens = 150;
constexpr std::size_t row_numbers = std::size_t{tokens} * heads * dim;

// Numbers from -4 to 4, the same everywhere: a linear congruential generator and an exact conversion.
std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::vector<float> out(count);
  for (float& x : out) {
    seed = seed * 1664525U + 1013904223U;
    x = static_cast<float>(static_cast<std::int32_t>(seed) >> 8) / 2097152.0F;
  }
  return out;
}

// FNV-1a of the folded tiles, without their headers.
std::uint64_t hash_of(const kvaxis::sequence_view& sequence) {
  std::uint64_t hash = 14695981039346656037U;
  for (int i = 0; i < sequence.entry_count; ++i) {
    const kvaxis::tile& tile = *sequence.entries[i].tile;
    if (!tile.folded) continue;
    for (std::size_t at = sizeof tile; at < tile.bytes; ++at) {
      hash = (hash ^ std::to_integer<std::uint64_t>(tile.data()[at])) * 1099511628211U;
    }
  }
  return hash;
}

struct expectation {
  const char* policy;
  std::uint64_t hash;
};
constexpr std::array<expectation, 9> expectations = {{
    {"k:int4-channel64-pre,v:int4-token64", 0x75b2594f9a2c45e0U},
    {"k:int8-channel32-auto,v:int8-channel32", 0x8c5e0edd1266fa6bU},
    {"k:int4s-channel128-hot4,v:int8s-token16", 0xc2f41fead97b9dc9U},
    {"k:int4f32-token32-pre,v:int8f32-token32", 0x21f26fef7e4b3f50U},
    {"k:e4m3-channel64-tile,v:e5m2-token48", 0x4757cb3a8460b6d7U},
    {"k:e4m3-tensor@0.01-pre,v:int8-tensor@0.04,-4.5", 0x44333c7dfb3a1810U},
    {"k:f16,v:bf16", 0x97d17d66f7001399U},
    {"k:f32,v:f32", 0x84807d631f9ac99eU},
    {"k:int8-channel64-post,v:f16", 0x3fe78fe493bf8e1eU},
}};

bool fail(const char* policy, const char* what) {
  std::printf("%s: %s\n", policy, what);
  return false;
}

bool check_policy(const expectation& expected) {
  kvaxis::cache_config config;
  config.kv_heads = heads;
  config.head_dim = dim;
  config.window = 0;
  config.pins = 3;
  kvaxis::rope_parameters rope;
  rope.head_dim = dim;
  if (!kvaxis::make_rope(rope, config.rope).ok()) return fail(expected.policy, "make_rope");

  const std::vector<float> keys = numbers(row_numbers, 1);
  const std::vector<float> values = numbers(row_numbers, 2);
  std::vector<float> first;
  for (int i = 0; i < kvaxis::isa_count; ++i) {
    if (!kvaxis::has_isa(static_cast<kvaxis::isa>(i))) continue;
    kvaxis::set_isa(static_cast<kvaxis::isa>(i));
    kvaxis::any_kv_cache cache;
    if (!kvaxis::make_cache(expected.policy, config, kvaxis::allocator{}, cache).ok())
      return fail(expected.policy, "make_cache");
    if (!cache.append(keys.data(), values.data(), tokens).ok()) return fail(expected.policy, "append");
    if (!cache.flush().ok() || cache.exact_tokens() != config.pins) return fail(expected.policy, "flush");
    const std::uint64_t hash = hash_of(cache.view());
    if (hash != expected.hash) {
      std::printf("%s on %s: hash 0x%016llxU\n", expected.policy, kvaxis::isa_name(kvaxis::active_isa()),
                  static_cast<unsigned long long>(hash));
      return false;
    }

    kvaxis::attend_options options;
    options.arithmetic = kvaxis::arithmetic::f32;  // integers round: a code or two of a weight may differ
    std::vector<std::byte> memory(cache.workspace_bytes(1, options));
    std::vector<float> out(std::size_t{heads} * dim);
    if (!cache.attend(keys.data(), 1, tokens, options, out.data(), nullptr, {memory.data(), memory.size()}).ok()) {
      return fail(expected.policy, "attend");
    }
    if (first.empty()) first = out;
    for (std::size_t c = 0; c < out.size(); ++c) {
      const float difference = out[c] < first[c] ? first[c] - out[c] : out[c] - first[c];
      if (!(difference < 1e-4F)) return fail(expected.policy, "attend differs between instruction sets");
    }
  }
  return true;
}

}  // namespace

int main() {
  bool good = true;
  for (const expectation& e : expectations) good = check_policy(e) && good;
  return good ? 0 : 1;
}
