// Weighted sums of latent values, which are channels of the key. Included once per instruction set by walk.hpp, inside a
// target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// Channels that are decoded at a time, and summed for all rows of weights before the next ones: what lies between the
// two passes stays in the first-level cache.
constexpr int panel_channels = 64;

// Stored channels first .. first + count - 1 of the run that begins at slot `run`, as f32 rows [token][count]; `first` and
// `count` are multiples of 16. Channels that the tile does not have are 0, tokens from `end` on may be missing.
inline void decode_panel(const tile_format& f, const entry& e, int head, const block_view& keys, int run, int end,
                         int first, int count, float* out) noexcept {
  const tile& t = *e.tile;
  if (!e.folded) {
    for (int i = run; i < end; ++i, out += count) {
      if (f.half_rows) {
        as_floats(t.key_row<float16>(head, i) + first, count, out);
      } else {
        std::memcpy(out, t.key_row<float>(head, i) + first, static_cast<std::size_t>(count) * sizeof(float));
      }
    }
    return;
  }
  const int rows = first + count < f.key.rows ? count : f.key.rows - first;
  for (int i = 0; i < run_tokens && rows < count; ++i) {
    for (int c = count - 16; c < count; c += lanes) store(out + i * count + c, zero());
  }
  if (f.key_codec->kernels != nullptr) {
    const unit_kernels& linear = *(*f.key_codec->kernels)[static_cast<std::size_t>(this_isa)];
    return linear.transpose_keys(keys, run, first, first + rows, count, out);
  }
  for (int row = 0; row < rows; ++row) {
    float numbers[run_tokens];
    f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), first + row, run, run_tokens, numbers);
    for (int i = 0; i < run_tokens; ++i) out[i * count + row] = numbers[i];
  }
}

// Adds the values of slots first_row .. end_row - 1.
inline void sum_latent(const tile_format& f, const entry& e, int head, const sum_request& r, int rows,
                       const scratch& s) noexcept {
  const int begin = f.first_value - detail::first_sum(f);
  const int end = detail::round_up(f.first_value + f.value_dim, 16);
  block_view keys;
  if (e.folded) {
    keys = view_block(f.key, *f.key_codec, f.key_given[head], e.tile->key_block(head), s.key_scale, s.key_offset);
  }
  for (int run = r.first_row / run_tokens * run_tokens; run < r.end_row; run += run_tokens) {
    sum_request part = r;
    part.weights += run;
    part.first_row = r.first_row > run ? r.first_row - run : 0;
    part.end_row = r.end_row - run < run_tokens ? r.end_row - run : run_tokens;
    for (int c = begin; c < end; c += panel_channels) {
      const int count = end - c < panel_channels ? end - c : panel_channels;
      decode_panel(f, e, head, keys, run, run + part.end_row, c, count, s.expanded);
      part.sums = r.sums + (c - begin);
      run_batches(kernels<unit_kind::f32>.sums, view_rows(s.expanded, run_tokens, count), part, rows);
    }
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
