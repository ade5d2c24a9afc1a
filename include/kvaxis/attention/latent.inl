// Weighted sums of latent values, which are channels of the key. Included once per instruction set by walk.hpp, inside a
// target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// Stored channels first .. first + count - 1 of a run in full precision, as f32 rows [token][count]. `first` and `count`
// are multiples of 16.
inline void copy_run(const tile_format& f, const tile& t, int head, int run, int tokens, int first, int count,
                     float* out) noexcept {
  for (int i = run; i < run + tokens; ++i, out += count) {
    if (f.half_rows) {
      as_floats(t.key_row<float16>(head, i) + first, count, out);
    } else {
      std::memcpy(out, t.key_row<float>(head, i) + first, static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

// The same of a folded run; channels that it does not have are 0.
inline void decode_run(const tile_format& f, const tile& t, int head, const block_view& keys, int run, int first,
                       int count, float* out) noexcept {
  const int end = first + count < f.key.rows ? first + count : f.key.rows;
  for (int i = 0; i < run_tokens && end < first + count; ++i) {
    for (int c = count - 16; c < count; c += lanes) store(out + i * count + c, zero());
  }
  if (f.key_codec->kernels != nullptr) {
    const unit_kernels& linear = *(*f.key_codec->kernels)[static_cast<std::size_t>(this_isa)];
    return linear.transpose_keys(keys, run, first, end, count, out);
  }
  for (int row = first; row < end; ++row) {
    float numbers[run_tokens];
    f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), row, run, run_tokens, numbers);
    for (int i = 0; i < run_tokens; ++i) out[i * count + row - first] = numbers[i];
  }
}

// Adds the values of slots first_row .. end_row - 1, a run at a time, which is decoded once for all rows of weights.
inline void sum_latent(const tile_format& f, const tile& t, int head, const sum_request& r, int rows,
                       const scratch& s) noexcept {
  const int first = f.first_value / 16 * 16;
  const int count = detail::round_up(f.first_value + f.value_dim, 16) - first;
  block_view keys;
  if (t.folded) {
    keys = view_block(f.key, *f.key_codec, f.key_given[head], t.key_block(head), s.key_scale, s.key_offset);
  }
  for (int run = r.first_row / run_tokens * run_tokens; run < r.end_row; run += run_tokens) {
    sum_request part = r;
    part.weights += run;
    part.first_row = r.first_row > run ? r.first_row - run : 0;
    part.end_row = r.end_row - run < run_tokens ? r.end_row - run : run_tokens;
    if (t.folded) {
      decode_run(f, t, head, keys, run, first, count, s.expanded);
    } else {
      copy_run(f, t, head, run, part.end_row, first, count, s.expanded);
    }
    run_batches(kernels<unit_kind::f32>.sums, view_rows(s.expanded, run_tokens, count), part, rows);
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
