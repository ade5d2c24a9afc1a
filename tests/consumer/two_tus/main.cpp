// Both files may be used in one program, and the flags of one do not reach the code of the other: what the plain file
// computes does not need AVX2, and both compute the same.
#include <cmath>
#include <cstdio>
#include <kvaxis/simd/isa.hpp>
#include <vector>

std::vector<float> plain_result();
std::vector<float> wide_result();

int main() {
  const std::vector<float> plain = plain_result();
  if (plain.empty()) return 1;
#if defined(__x86_64__)
  if (kvaxis::best_isa() < kvaxis::isa::avx2) return 0;  // this CPU cannot run the other file
#endif
  const std::vector<float> wide = wide_result();
  if (wide.size() != plain.size()) return 1;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (!(std::fabs(plain[i] - wide[i]) <= 1e-6F)) {
      std::printf("channel %zu: %g and, with -mavx2, %g\n", i, static_cast<double>(plain[i]),
                  static_cast<double>(wide[i]));
      return 1;
    }
  }
  return 0;
}
