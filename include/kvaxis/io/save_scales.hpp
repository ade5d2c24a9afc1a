// A safetensors file of scales, under the names that vLLM reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "../function_ref.hpp"
#include "scales.hpp"

KVAXIS_BEGIN_NAMESPACE

// Where a file goes, piece by piece; false if it cannot.
using byte_sink = function_ref<bool(const void*, std::size_t)>;

// Writes a safetensors file with the scales of the layers 0 .. n - 1 as vLLM reads them: `module`, with {} for the layer's
// number, and ".k_scale" or ".v_scale"; F32 of shape [1], or [kv_heads, 1, 1] where there are several. vLLM stores keys
// after RoPE, so scales for it come from keys that were rotated when a calibrator saw them.
[[nodiscard]] inline status save_scales(const layer_scales* layers, int n, std::string_view module,
                                        const byte_sink& sink) noexcept {
  constexpr std::size_t max_module = 256;
  if (layers == nullptr || n < 1) return {errc::invalid_argument, "layers", 1};
  if (module.empty()) return {errc::invalid_argument, "module", 0};
  if (module.size() > max_module) return {errc::out_of_range, "module: length", max_module};
  for (const char c : module) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') return {errc::invalid_argument, "module: characters", 0};
  }
  if (n > 1 && module.find("{}") == std::string_view::npos) return {errc::invalid_argument, "module: no {}", n};
  for (int i = 0; i < n; ++i) {
    if (layers[i].count < 1 || layers[i].count > max_kv_heads) return {errc::invalid_argument, "layers: count", i};
    for (const bool is_key : {true, false}) {
      const auto& numbers = is_key ? layers[i].k : layers[i].v;
      if (status s = detail::check_scales(numbers.data(), nullptr, layers[i].count, is_key); !s.ok()) return s;
    }
  }
  // Gives the header's parts to `put` until it answers false.
  const auto header = [&](const byte_sink& put) {
    long long end = 0;
    for (int i = 0; i < n; ++i) {
      const detail::layer_module name(module, i);
      for (const char side : {'k', 'v'}) {
        const long long begin = end;
        end += 4LL * layers[i].count;
        char part[max_module + 160];
        const int length = std::snprintf(
            part, sizeof part,
            "%c\"%.*s%.*s%.*s.%c_scale\":{\"dtype\":\"F32\",\"shape\":[%d%s],\"data_offsets\":[%lld,%lld]}%s",
            begin == 0 ? '{' : ',', static_cast<int>(name.before.size()), name.before.data(),
            static_cast<int>(name.number.size()), name.number.data(), static_cast<int>(name.after.size()),
            name.after.data(), side, layers[i].count, layers[i].count == 1 ? "" : ",1,1", begin, end,
            i == n - 1 && side == 'v' ? "}" : "");
        if (!put(part, static_cast<std::size_t>(length))) return false;
      }
    }
    return true;
  };
  std::size_t size = 0;
  header([&](const void*, std::size_t length) { return size += length, true; });
  const std::size_t blanks = (8 - size % 8) % 8;  // so that the data is aligned
  const auto put_number = [&](std::uint64_t x, int bytes) {
    unsigned char little_endian[8];
    for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<unsigned char>(x >> 8 * i);
    return sink(little_endian, static_cast<std::size_t>(bytes));
  };
  bool all = put_number(size + blanks, 8) && header(sink) && sink("       ", blanks);
  for (int i = 0; all && i < n; ++i) {
    for (const auto* numbers : {&layers[i].k, &layers[i].v}) {
      for (int h = 0; all && h < layers[i].count; ++h)
        all = put_number(float_bits((*numbers)[static_cast<std::size_t>(h)]), 4);
    }
  }
  return all ? status{} : status{errc::invalid_argument, "sink", 0};
}

KVAXIS_END_NAMESPACE
