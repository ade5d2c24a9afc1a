// quickstart: the cache of one layer with 4-bit keys and values, filled and attended to.
#include <cstdio>
#include <kvaxis/kvaxis.hpp>
#include <random>
#include <vector>

int main() {
  // One scale for 64 tokens of a key's channel, and for 64 channels of a token's value: what kv_cache<> has as well.
  using keys = kvaxis::per_channel<kvaxis::int4, 64, kvaxis::automatic>;
  using values = kvaxis::per_token<kvaxis::int4, 64>;
  kvaxis::cache_config config;
  config.kv_heads = 8;
  config.head_dim = 128;
  kvaxis::check(kvaxis::make_rope({128}, config.rope));  // half-split pairs, theta 10000
  kvaxis::kv_cache<keys, values> cache;
  kvaxis::check(cache.create(config, cache));

  std::mt19937 random(1);
  std::vector<float> k(4096 * 8 * 128), v(k.size()), q(32 * 128), out(q.size());  // [token][head][channel]
  for (auto* numbers : {&k, &v, &q}) {
    for (float& x : *numbers) x = static_cast<float>(random()) / 2147483648.0F - 1;
  }
  kvaxis::check(cache.append(k.data(), v.data(), 4096));  // keys before RoPE; positions count from 0

  kvaxis::attend_options options;
  options.query_heads = 32;
  std::vector<std::byte> memory(cache.workspace_bytes(1, options));
  kvaxis::check(cache.attend(q.data(), 1, 4096, options, out.data(), nullptr, {memory.data(), memory.size()}));

  std::printf("head 0: %.4f %.4f %.4f ...\n", out[0], out[1], out[2]);
  std::printf("bytes: %zu, of these %zu exact (the newest tokens and the first four); as f16: %zu\n",
              cache.bytes().total(), cache.bytes().exact, 2 * (k.size() + v.size()));
}
