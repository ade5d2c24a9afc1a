// What a test run is a run of: the CPU's name and its instruction sets.
#pragma once

#include <fstream>
#include <kvaxis/simd/isa.hpp>
#include <string>

inline std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

// "scalar avx2 avx512" or "scalar neon neon_dot", as far as the machine has them (in the emulated build: all).
inline std::string isa_names() {
  std::string names;
  kvaxis::for_each_isa(
      [&](kvaxis::isa which) { names += (names.empty() ? "" : " ") + std::string(kvaxis::isa_name(which)); });
  return names;
}
