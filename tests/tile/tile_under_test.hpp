// One tile in full precision and the same folded, without a cache and without kernels: the layer below attention alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <kvaxis/tile/fold.hpp>
#include <kvaxis/tile/tile.hpp>
#include <vector>

namespace test {

// A codec without the kernels of attention.
template <class Codec>
inline constexpr kvaxis::codec_table scalar_table = kvaxis::detail::describe_codec<Codec>(nullptr);

inline constexpr const kvaxis::codec_table* scalar_tables[] = {
    &scalar_table<kvaxis::int4>,  &scalar_table<kvaxis::int8>,    &scalar_table<kvaxis::int4s>,
    &scalar_table<kvaxis::int8s>, &scalar_table<kvaxis::int4f32>, &scalar_table<kvaxis::int8f32>,
    &scalar_table<kvaxis::e4m3>,  &scalar_table<kvaxis::e5m2>,    &scalar_table<kvaxis::f32>,
    &scalar_table<kvaxis::f16>,   &scalar_table<kvaxis::bf16>,    &scalar_table<kvaxis::int2>,
    &scalar_table<kvaxis::int3>,  &scalar_table<kvaxis::int5>,    &scalar_table<kvaxis::int6>,
    &scalar_table<kvaxis::int2s>, &scalar_table<kvaxis::int6s>,
};

inline kvaxis::rope make_rope(int head_dim, int rotary_dim = 0, int first_channel = 0,
                              kvaxis::rope_layout layout = kvaxis::rope_layout::half_split, double theta = 10000.0) {
  kvaxis::rope_parameters p;
  p.head_dim = head_dim;
  p.rotary_dim = rotary_dim;
  p.first_channel = first_channel;
  p.layout = layout;
  p.theta = theta;
  kvaxis::rope r;
  if (!kvaxis::make_rope(p, r).ok()) std::abort();
  return r;
}

class tile_under_test {
 public:
  // `q.rope` and the given scales must outlive the call only.
  explicit tile_under_test(const kvaxis::format_request& q)
      : format_(kvaxis::make_tile_format(q, {})),
        exact_(kvaxis::make_tile(*format_, false, format_->tokens)),
        folded_(kvaxis::make_tile(*format_, true, format_->tokens)),
        numbers_(kvaxis::fold_scratch_floats(*format_)),
        codes_(numbers_.size()) {}
  tile_under_test(const tile_under_test&) = delete;
  tile_under_test& operator=(const tile_under_test&) = delete;
  ~tile_under_test() {
    kvaxis::release(exact_);
    kvaxis::release(folded_);
    kvaxis::release(format_);
  }

  [[nodiscard]] const kvaxis::tile_format& format() const { return *format_; }
  [[nodiscard]] const kvaxis::tile& folded() const { return *folded_; }
  [[nodiscard]] const kvaxis::tile& exact() const { return *exact_; }

  // A row in natural channel order.
  void set_key(int head, int token, const float* row) {
    for (int c = 0; c < format_->head_dim; ++c) {
      if (format_->half_rows) {
        set(exact_->key_row<kvaxis::float16>(head, token) + c, kvaxis::to_float16(row[format_->order[c]]));
      } else {
        set(exact_->key_row<float>(head, token) + c, row[format_->order[c]]);
      }
    }
  }
  void set_value(int head, int token, const float* row) {
    for (int c = 0; c < format_->value_dim; ++c) {
      if (format_->half_rows) {
        set(exact_->value_row<kvaxis::float16>(head, token) + c, kvaxis::to_float16(row[c]));
      } else {
        set(exact_->value_row<float>(head, token) + c, row[c]);
      }
    }
  }
  void fold(int count) { kvaxis::fold_tile(*exact_, 0, count, *folded_, {numbers_.data(), codes_.data()}); }

  [[nodiscard]] std::vector<float> key(int head, int token) const {
    std::vector<float> out(static_cast<std::size_t>(format_->head_dim));
    kvaxis::read_key(*folded_, head, token, out.data());
    return out;
  }
  [[nodiscard]] std::vector<float> value(int head, int token) const {
    std::vector<float> out(static_cast<std::size_t>(format_->value_dim));
    kvaxis::read_value(*folded_, head, token, out.data());
    return out;
  }
  // Everything behind the header: masks and blocks.
  [[nodiscard]] std::vector<std::uint8_t> bytes() const {
    const auto* first = reinterpret_cast<const std::uint8_t*>(folded_->data());
    return {first + sizeof(kvaxis::tile), first + folded_->bytes};
  }

 private:
  template <class T>
  static void set(const T* to, T x) {
    *const_cast<T*>(to) = x;
  }

  kvaxis::tile_format* format_;
  kvaxis::tile* exact_;
  kvaxis::tile* folded_;
  std::vector<float> numbers_;
  std::vector<std::uint32_t> codes_;
};

}  // namespace test
