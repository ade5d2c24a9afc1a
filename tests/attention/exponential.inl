// Included once per instruction set by exponential_test.cpp.
KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {
namespace probe {

// n is a multiple of 16.
inline void exponentials(const float* x, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, exponential(load(x + i)));
}
inline void soft_caps(const float* x, float cap, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, soft_capped(load(x + i), cap));
}
inline float one_exponential(float x) { return exponential_of(x); }

inline constexpr softmax_functions table = {exponentials, soft_caps, one_exponential};

}  // namespace probe
}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
