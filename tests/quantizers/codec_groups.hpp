// Groups of numbers that codecs are tried on: bell-shaped ones of every size, far from zero, constant, with an outlier,
// at the ends of the range, and at its bottom. All multiples of a power of two, subnormals flushed.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kvaxis/formats/bits.hpp>
#include <numbers.hpp>
#include <string>
#include <vector>

namespace test {

struct group {
  std::string name;
  std::vector<float> x;
};

inline void add_group(std::vector<group>& out, const std::string& name, std::vector<float> x, float limit) {
  for (float& v : x) {
    v = kvaxis::flush_subnormal(v);
    v = v > limit ? limit : v < -limit ? -limit : v;
  }
  out.push_back({name, std::move(x)});
}

inline std::vector<group> codec_groups(float limit) {
  std::vector<group> out;
  numbers random(11);
  const auto add = [&](const std::string& name, std::vector<float> x) { add_group(out, name, std::move(x), limit); };
  for (const int n : {1, 2, 3, 16, 32, 64, 128, 256, 576}) {
    for (int exponent = -40; exponent <= 16; exponent += 4) {
      add("bell " + std::to_string(n) + " 2^" + std::to_string(exponent),
          random.bells(static_cast<std::size_t>(n), std::ldexp(1.0F, exponent)));
    }
  }
  for (const float centre : {300.0F, -300.0F, 8e4F, 2047.5F, -65503.0F, 1e-4F}) {
    std::vector<float> x = random.uniforms(64, std::fabs(centre) / 256);
    for (float& v : x) v += centre;
    add("around " + std::to_string(centre), x);
  }
  for (const float c :
       {0.0F, -0.0F, 1.0F, -1.0F, 3000.0F, -3000.0F, 0.1F, -0.1F, 1e-5F, -1e-7F, 65504.0F, -65504.0F, 1e-30F}) {
    add("constant " + std::to_string(c), std::vector<float>(32, c));
  }
  std::vector<float> outlier = random.bells(64);
  outlier[17] = 60.0F * outlier[17] + 60.0F;
  add("outlier", outlier);
  std::vector<float> ends = random.uniforms(64, limit);
  ends[3] = limit;
  ends[60] = -limit;
  add("both ends", ends);
  add("positive", {0.5F, 1.0F, 2.0F, 0.75F, 10.0F});
  add("negative", {-0.5F, -1.0F, -2.0F, -0.75F, -10.0F});
  add("zero and tiny", {0.0F, FLT_MIN, 0.0F, 0.0F});
  add("zero and minus tiny", {0.0F, -FLT_MIN, 0.0F, 0.0F});
  add("a step of metadata apart", {1.0F, 1.0F + 0x1p-10F, 1.0F + 0x1p-12F});
  add("one and its neighbour", {1.0F, 1.0F + FLT_EPSILON});
  return out;
}

template <class Codec>
std::vector<std::uint32_t> encoded(typename Codec::params p, const std::vector<float>& x) {
  std::vector<std::uint32_t> codes(x.size(), 0xDEADBEEFU);
  Codec::encode(p, x.data(), static_cast<int>(x.size()), codes.data());
  return codes;
}

// All bytes that a cache would store of those groups, so that a flag that changes one is seen. Parameters are float16.
template <class Codec>
std::uint64_t hash_of_bytes() {
  using params = typename Codec::params;
  std::uint64_t hash = 0;
  const auto add = [&](std::uint64_t x) { hash = (hash ^ x) * 0x9E3779B97F4A7C15U; };
  for (const group& g : codec_groups(Codec::limit)) {
    const params p = Codec::fit(g.x.data(), static_cast<int>(g.x.size()));
    std::uint16_t members[sizeof(params) / 2];
    std::memcpy(members, &p, sizeof p);
    for (const std::uint16_t bits : members) add(bits);
    for (const std::uint32_t code : encoded<Codec>(p, g.x)) add(code);
  }
  return hash;
}

}  // namespace test
