// Restores its input, with the checksums made right. Whatever comes, memory stays sound; a file that is taken gives a
// cache on which every call works, and which writes a file that gives the same cache again.
//   restore_fuzz -max_len=16000 NEW_FOLDER tests/fuzz/corpus/restore
#include "restore_fuzz.hpp"

#include <cstdlib>
#include <kvaxis/io/inspect_file.hpp>

#include "calls.hpp"
#include "policies.hpp"

namespace fuzz {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

kvaxis::status restore_all(const test::bytes& file, std::vector<kvaxis::any_kv_cache>& caches, const target& t) {
  std::vector<kvaxis::any_kv_cache*> layers;
  for (kvaxis::any_kv_cache& c : caches) layers.push_back(&c);
  kvaxis::restore_options o;
  o.share = {t.first_head, t.heads};
  return kvaxis::restore(file.data(), file.size(), layers.data(), static_cast<int>(layers.size()), o);
}

test::bytes save_all(const std::vector<kvaxis::any_kv_cache>& caches, const target& t) {
  std::vector<const kvaxis::any_kv_cache*> layers;
  for (const kvaxis::any_kv_cache& c : caches) layers.push_back(&c);
  kvaxis::save_options o;
  o.share = {t.first_head, t.heads};
  return test::save(layers, o);
}

void use(kvaxis::any_kv_cache& cache) {
  const kvaxis::tile_format& f = *cache.format();
  std::vector<float> row(static_cast<std::size_t>(f.head_dim));
  for (std::int64_t t = 0; t < cache.size(); t += 7) kvaxis::check(cache.read_key(t, 1, row.data()));
  const std::vector<float> q(static_cast<std::size_t>(2 * 2 * f.head_dim), 0.5F);
  std::vector<float> out(static_cast<std::size_t>(2 * 2 * f.value_dim));
  std::vector<std::byte> memory(cache.workspace_bytes(2, {}));
  // The middle of the positions is in reach of every token.
  const kvaxis::workspace w{memory.data(), memory.size()};
  kvaxis::status s = cache.attend(q.data(), 2, 0, {}, out.data(), nullptr, w);
  require(s.ok());
  const std::vector<float> tokens(static_cast<std::size_t>(40 * 2 * f.head_dim), 0.25F);
  s = cache.append({tokens.data()}, {tokens.data()}, 40);
  require(s.ok() || s.argument == std::string("first_position"));
  kvaxis::check(cache.fold());
  kvaxis::check(cache.flush());
}

}  // namespace

std::vector<kvaxis::any_kv_cache> make_caches(const target& t) {
  kvaxis::cache_config c = test::rope_shape(2, t.head_dim, 8);
  c.window = 4;
  c.pins = 3;
  c.tile_tokens = 32;
  c.half_window = t.half_window;
  std::vector<kvaxis::any_kv_cache> out;
  for (int i = 0; i < t.layers; ++i) out.push_back(test::cache_of(t.policy, c));
  return out;
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::target& t = fuzz::targets[data[0] % fuzz::targets.size()];
  const auto* begin = reinterpret_cast<const std::byte*>(data) + 1;
  test::bytes file(begin, begin + size - 1);
  test::fix_checksums(file);
  file.shrink_to_fit();  // so that a sanitizer sees the end

  kvaxis::saved_file about;
  kvaxis::saved_layer layers[3];
  const bool has_form = kvaxis::inspect(file.data(), file.size(), about, layers, 3).ok();
  std::vector<kvaxis::any_kv_cache> caches = fuzz::make_caches(t);
  if (!fuzz::restore_all(file, caches, t).ok()) return 0;
  fuzz::require(has_form);
  for (const bool used : {false, true}) {
    if (used) {
      for (kvaxis::any_kv_cache& c : caches) fuzz::use(c);
    }
    const test::bytes again = fuzz::save_all(caches, t);
    std::vector<kvaxis::any_kv_cache> copies = fuzz::make_caches(t);
    kvaxis::check(fuzz::restore_all(again, copies, t));
    fuzz::require(fuzz::save_all(copies, t) == again);
  }
  return 0;
}
