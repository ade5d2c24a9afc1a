// A use of the library, compiled anew in every file that includes this.
#pragma once

#include <cmath>
#include <kvaxis/kvaxis.hpp>
#include <vector>

namespace {

// Attends with one query to 200 tokens, the oldest of them quantized; returns the output, empty if a call failed.
std::vector<float> attend_once() {
  using keys = kvaxis::per_channel<kvaxis::int4, 64>;
  using values = kvaxis::per_token<kvaxis::int4, 32>;
  constexpr int heads = 2;
  constexpr int dim = 32;
  constexpr int tokens = 200;

  kvaxis::cache_config config;
  config.kv_heads = heads;
  config.head_dim = dim;
  config.window = 64;
  kvaxis::rope_parameters rope;
  rope.head_dim = dim;
  if (!kvaxis::make_rope(rope, config.rope).ok()) return {};
  kvaxis::kv_cache<keys, values> cache;
  if (!cache.create(config, kvaxis::allocator{}, cache).ok()) return {};

  std::vector<float> rows(static_cast<std::size_t>(tokens * heads * dim));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(0.37F * static_cast<float>(i));
  if (!cache.append(rows.data(), rows.data(), tokens).ok() || cache.folded_tokens() == 0) return {};

  std::vector<float> out(heads * dim);
  std::vector<std::byte> memory(cache.workspace_bytes(1, {}));
  const kvaxis::status done =
      cache.attend(rows.data(), 1, tokens, {}, out.data(), nullptr, {memory.data(), memory.size()});
  return done.ok() ? out : std::vector<float>{};
}

}  // namespace
