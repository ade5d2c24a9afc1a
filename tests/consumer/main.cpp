#include <cstdio>

#include "use.hpp"

int main() {
  const std::vector<float> out = attend_once();
  if (out.empty() || !std::isfinite(out[0])) return 1;
  std::printf("kvaxis %d.%d.%d works here\n", KVAXIS_VERSION_MAJOR, KVAXIS_VERSION_MINOR, KVAXIS_VERSION_PATCH);
  return 0;
}
