// Any bytes as a safetensors file: either refused, or every tensor lies in it and every scale is a normal number.
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <kvaxis/io/scales.hpp>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvaxis::safetensors file;
  if (!kvaxis::safetensors::open(data, size, file).ok()) return 0;
  const kvaxis::status s = file.for_each([&](kvaxis::json_text name, const kvaxis::tensor_view& t) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(t.data);
    require(bytes >= data && t.bytes <= size - static_cast<std::size_t>(bytes - data));
    for (std::size_t i = 0; i < t.bytes; ++i) {
      [[maybe_unused]] volatile std::uint8_t read = bytes[i];
    }
    require(name == name.written() || name.written().find('\\') != std::string_view::npos);
  });
  require(s.ok());
  for (const int kv_heads : {1, 2}) {
    kvaxis::layer_scales scales;
    if (!kvaxis::load_scales(&file, 1, "model.layers.{}.self_attn", 0, kv_heads, scales).ok()) continue;
    require(scales.count == 1 || scales.count == kv_heads);
    for (std::size_t h = 0; h < static_cast<std::size_t>(scales.count); ++h) {
      require(kvaxis::is_finite(scales.k[h]) && scales.k[h] >= FLT_MIN);
      require(kvaxis::is_finite(scales.v[h]) && scales.v[h] >= FLT_MIN);
    }
  }
  return 0;
}
