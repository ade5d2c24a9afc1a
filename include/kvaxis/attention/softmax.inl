// The exponential and the running softmax of a block of rows. Included once per instruction set by walk.hpp,
// inside a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

using detail::problem;
using detail::scratch;
using detail::softmax_state;

// A score that stands for "masked" inside a tile. Infinity would not survive -ffast-math; log2(e) times this is finite.
constexpr float masked = -2.0e38F;

// e^x for x <= 88, 0 from -87.34 down, within 2e-7 + 8e-8 |x| of it, relatively: x log2(e) is rounded. 2^r is a
// polynomial that is within 1e-7 on 0 .. 1, and at the ends 1 and 2 after rounding as well.
KVAXIS_INLINE vf exponential(vf x) {
  const vf s = mul(x, set1(1.44269504F));
  const vf r = fraction(s);
  vf p = set1(1.87927065e-3F);
  p = muladd(p, r, set1(8.99092294e-3F));
  p = muladd(p, r, set1(5.58187068e-2F));
  p = muladd(p, r, set1(2.40159363e-1F));
  p = muladd(p, r, set1(6.93151712e-1F));
  p = muladd(p, r, set1(1.0F));
  return scale_by_power(p, s);
}

KVAXIS_INLINE float exponential_of(float x) {
  float lanes_of_x[lanes];
  store(lanes_of_x, exponential(set1(x)));
  return lanes_of_x[0];
}

// cap * tanh(x / cap), tanh(y) = 1 - 2 / (e^2y + 1).
KVAXIS_INLINE vf soft_capped(vf x, float cap) {
  const vf y = min(div(x, set1(cap)), set1(10.0F));
  const vf e = exponential(add(y, y));
  return mul(set1(cap), sub(set1(1.0F), div(set1(2.0F), add(e, set1(1.0F)))));
}

inline void clear_state(const tile_format& f, int rows, const softmax_state& st) noexcept {
  for (int h = 0; h < rows; ++h) {
    st.maxima[h] = masked;
    st.totals[h] = 0.0F;
  }
  for (int i = 0; i < rows * detail::sum_stride(f); ++i) st.sums[i] = 0.0F;
}

// Weights are taken relative to a score that is at most this much below the largest one seen: e^12 times the number of
// keys is far from the end of f32, and the weights of most tiles need not wait until their own maximum is known.
constexpr float maximum_slack = 12.0F;

// `count` scores of each row, whole runs, to weights relative to the running maximum; sums and totals are rescaled
// when it rises.
inline void take_scores(const tile_format& f, int rows, int count, float* all_scores,
                        const softmax_state& st) noexcept {
  for (int h = 0; h < rows; ++h) {
    float* scores = all_scores + h * score_stride;
    vf top = set1(masked);
    for (int i = 0; i < count; i += lanes) top = max(top, load(scores + i));
    const float maximum = max_lane(top);
    if (maximum > st.maxima[h] + maximum_slack) {
      const float factor = exponential_of(st.maxima[h] - maximum);
      st.totals[h] *= factor;
      float* sums = st.sums + h * detail::sum_stride(f);
      for (int c = 0; c < detail::sum_stride(f); c += lanes) store(sums + c, mul(load(sums + c), set1(factor)));
      st.maxima[h] = maximum;
    }
    // A row that has seen nothing yet: its masked scores must not become weights.
    const vf reference = set1(st.maxima[h] > masked / 2.0F ? st.maxima[h] : masked / 2.0F);
    vf total = zero();
    for (int i = 0; i < count; i += lanes) {
      const vf weight = exponential(sub(load(scores + i), reference));
      store(scores + i, weight);
      total = add(total, weight);
    }
    st.totals[h] += sum(total);
  }
}

inline void merge_states(const tile_format& f, int rows, const softmax_state& part,
                         const softmax_state& into) noexcept {
  for (int h = 0; h < rows; ++h) {
    const float maximum = part.maxima[h] > into.maxima[h] ? part.maxima[h] : into.maxima[h];
    const float keep = exponential_of(into.maxima[h] - maximum);
    const float gain = exponential_of(part.maxima[h] - maximum);
    into.maxima[h] = maximum;
    into.totals[h] = into.totals[h] * keep + part.totals[h] * gain;
    float* a = into.sums + h * detail::sum_stride(f);
    const float* b = part.sums + h * detail::sum_stride(f);
    for (int c = 0; c < detail::sum_stride(f); c += lanes) {
      store(a + c, muladd(load(b + c), set1(gain), mul(load(a + c), set1(keep))));
    }
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
