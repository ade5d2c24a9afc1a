// Everything that the tiles of one cache have in common: shape, layouts, codecs, the order in which channels are
// stored, and the tables of the rotation. Built once, never changed, shared by reference count, so that a tile can
// outlive its cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "../memory.hpp"
#include "../rope/rope.hpp"
#include "../rope/sincos.hpp"
#include "block.hpp"

KVAXIS_BEGIN_NAMESPACE

// A kernel rotates inside runs of this many tokens: the queries are rotated to the run, a small table covers the rest.
constexpr int run_tokens = 32;

struct side_request {
  const codec_table* codec = nullptr;
  kvaxis::policy policy;
  // For axis::tensor with a codec that has a scale: one of each, or one per kv head; no offset: the codec's own.
  const float* scale = nullptr;
  const float* offset = nullptr;
  int scales_count = 1;
  float limit = FLT_MAX;  // largest |x| that a token may have
};

struct format_request {
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  int tokens = 0;  // of a tile
  bool half_rows = false;
  float growth = 2.0F;
  const kvaxis::rope* rope = nullptr;
  side_request key;
  side_request value;
};

struct tile_format {
  mutable std::atomic<int> references{1};
  allocator memory;
  std::size_t bytes = 0;  // of this object and its tables

  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  int tokens = 0;
  bool half_rows = false;  // full-precision rows are binary16 instead of f32
  float growth = 2.0F;     // `automatic`: a pair is hot if rotation widens its summed range^2 by more than this factor
  policy key_policy;
  policy value_policy;
  const codec_table* key_codec = nullptr;
  const codec_table* value_codec = nullptr;
  block_layout key;
  block_layout value;
  float key_limit = 0.0F;  // largest |x| that a token may have, but for given scales
  float value_limit = 0.0F;

  int pairs = 0;  // that are rotated; 0 without RoPE and for `post`
  bool stored_mask = false;
  int first_value = 0;        // latent values: the stored channel of the first one; the others follow it
  float query_factor = 1.0F;  // attention_factor^2, on the rotated channels of the query

  // Floats from row to row of full-precision tiles and of queries: multiples of the widest vector, zero-filled.
  int key_stride = 0;
  int value_stride = 0;
  int turn_stride = 0;
  int mask_stride = 0;           // words of a head's mask
  std::size_t head_offset = 0;   // of the first head in a folded tile
  std::size_t head_bytes = 0;    // its key block, then its value block
  std::size_t folded_bytes = 0;  // of a folded tile

  int* order = nullptr;         // [head_dim] the natural channel of a stored one
  double* frequency = nullptr;  // [pairs], padded to 8, radians per position
  double* step_cos = nullptr;   // [pairs] of a tile's length
  double* step_sin = nullptr;
  float* next_run_cos = nullptr;  // [key_stride] of a run's length, as row_cos, and minus row_sin
  float* next_run_sin = nullptr;
  float* run_cos = nullptr;  // [pairs][run_tokens]
  float* run_sin = nullptr;
  std::uint32_t* half_turn = nullptr;  // [pairs][tokens] cosine and sine as binary16, see half_turn_index
  float* row_cos = nullptr;            // [run_tokens][key_stride], both members of a pair alike; 1 without a pair
  float* row_sin = nullptr;            // minus for the first member, plus for the second; 0 without a pair
  // [tokens][turn_stride], cosine and sine of each pair in turn, (1, 0) behind the last; only where pairs are stored
  // rotated.
  float* turn = nullptr;
  std::uint32_t* implied_mask = nullptr;  // [mask_stride], of every tile that stores none
  given_scale* key_given = nullptr;       // [kv_heads]
  given_scale* value_given = nullptr;

  // In a folded tile, of each head: the hot pairs', and those of them that are wide.
  [[nodiscard]] std::size_t masks() const noexcept { return !stored_mask ? 0U : key_codec->wide != nullptr ? 2U : 1U; }
  [[nodiscard]] bool is_latent() const noexcept { return value_policy.axis == axis::latent; }
  [[nodiscard]] std::size_t row_bytes() const noexcept { return half_rows ? sizeof(float16) : sizeof(float); }
  // Bytes of a full-precision tile that can hold `capacity` tokens, a multiple of 4.
  [[nodiscard]] std::size_t exact_bytes(int capacity) const noexcept {
    return 64 + static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(capacity) *
                    static_cast<std::size_t>(key_stride + value_stride) * row_bytes();
  }
};

namespace detail {

// Hands out the pieces of one allocation; with a null base it only counts.
class arena {
 public:
  explicit arena(std::byte* base) noexcept : base_(base) {}
  template <class T>
  T* take(std::size_t count) noexcept {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(count * sizeof(T), std::size_t{64});
    return reinterpret_cast<T*>(at);
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

// Whether pairs are stored rotated.
inline bool rotates_tiles(const tile_format& f) noexcept { return f.pairs > 0 && f.key_policy.rotation != pre; }

// Whether hot pairs may be turned in binary16.
inline bool turns_in_halves(const tile_format& f) noexcept {
  const unit_kind unit = f.key_codec->unit;
  return has_half_arithmetic && f.pairs > 0 && !f.key.across && f.key.groups_per_line() == 1 && f.key.wide_extra == 0 &&
         (unit == unit_kind::u4 || unit == unit_kind::e4m3);
}

// Where a token's angle is in half_turn: in the order of a kernel, which finds the codes of 16 tokens of 4 bits in the low
// halves of 16 bytes, and those of 16 others in the high halves.
inline int half_turn_index(const tile_format& f, int token) noexcept {
  if (f.key.bits != 4) return token;
  const int half = f.tokens / 2;
  return token % half / 16 * 32 + token / half * 16 + token % 16;
}

inline void place_tables(tile_format& f, arena& a) noexcept {
  const auto pairs = static_cast<std::size_t>(round_up(f.pairs, 8));
  const auto stride = static_cast<std::size_t>(f.key_stride);
  const std::size_t half_turns = turns_in_halves(f) ? pairs * static_cast<std::size_t>(f.tokens) : 0;
  const std::size_t turns =
      rotates_tiles(f) ? static_cast<std::size_t>(f.tokens) * static_cast<std::size_t>(f.turn_stride) : 0;
  f.order = a.take<int>(static_cast<std::size_t>(f.head_dim));
  f.frequency = a.take<double>(pairs);
  f.step_cos = a.take<double>(pairs);
  f.step_sin = a.take<double>(pairs);
  f.next_run_cos = a.take<float>(stride);
  f.next_run_sin = a.take<float>(stride);
  f.run_cos = a.take<float>(pairs * run_tokens);
  f.run_sin = a.take<float>(pairs * run_tokens);
  f.half_turn = a.take<std::uint32_t>(half_turns);
  f.row_cos = a.take<float>(stride * run_tokens);
  f.row_sin = a.take<float>(stride * run_tokens);
  f.turn = a.take<float>(turns);
  f.implied_mask = a.take<std::uint32_t>(static_cast<std::size_t>(f.mask_stride));
  f.key_given = a.take<given_scale>(static_cast<std::size_t>(f.kv_heads));
  f.value_given = a.take<given_scale>(static_cast<std::size_t>(f.kv_heads));
}

// Stored order: the two members of each pair, pair after pair, then the channels without one.
inline void fill_order(tile_format& f, const rope& r) noexcept {
  bool paired[max_head_dim] = {};
  int next = 0;
  for (int i = 0; i < f.pairs; ++i) {
    const rope_pair& p = r.pairs[static_cast<std::size_t>(i)];
    f.order[next++] = p.a;
    f.order[next++] = p.b;
    paired[p.a] = paired[p.b] = true;
  }
  for (int c = 0; c < f.head_dim; ++c) {
    if (!paired[c]) f.order[next++] = c;
  }
}

inline void fill_tables(tile_format& f, const rope& r) noexcept {
  for (int i = 0; i < run_tokens * f.key_stride; ++i) {
    f.row_cos[i] = 1.0F;
    f.row_sin[i] = 0.0F;
  }
  for (int c = 0; c < f.key_stride; ++c) {
    f.next_run_cos[c] = 1.0F;
    f.next_run_sin[c] = 0.0F;
  }
  for (int i = 0; rotates_tiles(f) && i < f.tokens * f.turn_stride; ++i) f.turn[i] = i % 2 == 0 ? 1.0F : 0.0F;
  for (int i = f.pairs; i < round_up(f.pairs, 8); ++i) {
    f.frequency[i] = f.step_sin[i] = 0.0;
    f.step_cos[i] = 1.0;
  }
  for (int i = 0; i < f.pairs; ++i) {
    f.frequency[i] = r.pairs[static_cast<std::size_t>(i)].frequency;
    sincos(f.tokens * f.frequency[i], f.step_sin[i], f.step_cos[i]);
    double next_sine = 0;
    double next_cosine = 0;
    sincos(run_tokens * f.frequency[i], next_sine, next_cosine);
    f.next_run_cos[2 * i] = f.next_run_cos[2 * i + 1] = static_cast<float>(next_cosine);
    f.next_run_sin[2 * i] = static_cast<float>(next_sine);
    f.next_run_sin[2 * i + 1] = -f.next_run_sin[2 * i];
    const bool halves = turns_in_halves(f);
    const int offsets = (halves || f.key_policy.rotation != pre) && f.tokens > run_tokens ? f.tokens : run_tokens;
    for (int j = 0; j < offsets; ++j) {
      double sine = 0;
      double cosine = 0;
      sincos(j * f.frequency[i], sine, cosine);
      const auto s = static_cast<float>(sine);
      const auto c = static_cast<float>(cosine);
      if (j < run_tokens) {
        f.run_cos[i * run_tokens + j] = c;
        f.run_sin[i * run_tokens + j] = s;
        float* row_cos = f.row_cos + j * f.key_stride + 2 * i;
        float* row_sin = f.row_sin + j * f.key_stride + 2 * i;
        row_cos[0] = row_cos[1] = c;
        row_sin[0] = -s;
        row_sin[1] = s;
      }
      if (halves && j < f.tokens) {
        f.half_turn[i * f.tokens + half_turn_index(f, j)] = to_float16(c).bits | std::uint32_t{to_float16(s).bits}
                                                                                     << 16;
      }
      if (f.key_policy.rotation != pre && j < f.tokens) {
        f.turn[j * f.turn_stride + 2 * i] = c;
        f.turn[j * f.turn_stride + 2 * i + 1] = s;
      }
    }
  }
  for (int w = 0; w < f.mask_stride; ++w) f.implied_mask[w] = 0;
  if (f.key_policy.rotation == pre) {
    for (int i = 0; i < f.pairs; ++i) f.implied_mask[i / 32] |= std::uint32_t{1} << (i % 32);
  }
}

inline void fill_given(given_scale* out, const side_request& side, int kv_heads) noexcept {
  for (int h = 0; h < kv_heads; ++h) {
    const int i = side.scales_count == 1 ? 0 : h;
    const float scale = side.scale != nullptr ? side.scale[i] : 1.0F;
    // Without an offset a codec keeps its own: the middle code of a symmetric one is zero.
    out[h] = {scale, side.offset != nullptr ? side.offset[i] : side.codec->offset_factor * scale};
  }
}

}  // namespace detail

namespace detail {

inline void describe(tile_format& f, const format_request& q, const allocator& memory) noexcept {
  f.memory = memory;
  f.kv_heads = q.kv_heads;
  f.head_dim = q.head_dim;
  f.value_dim = q.value_dim;
  f.tokens = q.tokens;
  f.half_rows = q.half_rows;
  f.growth = q.growth;
  f.key_policy = q.key.policy;
  f.value_policy = q.value.policy;
  f.key_codec = q.key.codec;
  f.value_codec = q.value.codec;
  f.key_limit = q.key.limit;
  f.value_limit = q.value.limit;
  const codec_table* const wide = q.key.codec->wide;
  f.key = make_block_layout(role::key, q.key.policy, q.key.codec->bits, q.key.codec->members, q.key.codec->member_bytes,
                            q.head_dim, q.tokens, wide != nullptr ? wide->bits - q.key.codec->bits : 0);
  f.value = make_block_layout(role::value, q.value.policy, q.value.codec->bits, q.value.codec->members,
                              q.value.codec->member_bytes, q.value_dim, q.tokens);
  f.pairs = q.key.policy.rotation == post ? 0 : q.rope->pairs_count;
  f.first_value = f.is_latent() ? 2 * f.pairs : 0;
  f.stored_mask = f.pairs > 0 && stores_mask(q.key.policy.rotation);
  const auto factor = static_cast<float>(q.rope->attention_factor);
  f.query_factor = f.pairs > 0 ? factor * factor : 1.0F;
  f.key_stride = round_up(q.head_dim, 16);
  f.value_stride = f.is_latent() ? 0 : round_up(q.value_dim, 16);
  f.turn_stride = round_up(2 * f.pairs, 16);
  f.mask_stride = mask_words(q.head_dim);
  const auto heads = static_cast<std::size_t>(q.kv_heads);
  const std::size_t masks = f.masks() * heads * static_cast<std::size_t>(f.mask_stride) * 4U;
  f.head_offset = 64 + round_up(masks, std::size_t{64});
  f.head_bytes = f.key.bytes + f.value.bytes;
  f.folded_bytes = f.head_offset + heads * f.head_bytes;
}

// Bytes of a format and its tables.
inline std::size_t format_bytes(const format_request& q) noexcept {
  tile_format f;
  describe(f, q, {});
  arena count(nullptr);
  place_tables(f, count);
  return round_up(sizeof(tile_format), std::size_t{64}) + count.used();
}

}  // namespace detail

// The format for a checked request (see cache/config.hpp), or nullptr when memory is short.
inline tile_format* make_tile_format(const format_request& q, const allocator& memory) noexcept {
  const std::size_t bytes = detail::format_bytes(q);
  auto* base = static_cast<std::byte*>(memory.allocate(bytes));
  if (base == nullptr) return nullptr;
  auto* f = new (base) tile_format;
  detail::describe(*f, q, memory);
  f->bytes = bytes;
  detail::arena place(base + detail::round_up(sizeof(tile_format), std::size_t{64}));
  detail::place_tables(*f, place);
  detail::fill_order(*f, *q.rope);
  detail::fill_tables(*f, *q.rope);
  detail::fill_given(f->key_given, q.key, q.kv_heads);
  detail::fill_given(f->value_given, q.value, q.kv_heads);
  return f;
}

// Whether tiles of one format are good for a cache with the other: everything that gives their bytes a meaning. The
// argument that differs belongs to `other`, `limit` is what `f` has.
[[nodiscard]] inline status check_same_format(const tile_format& f, const tile_format& other) noexcept {
  if (&f == &other) return {};
  const auto differ = [](const policy& a, const policy& b) {
    return a.axis != b.axis || (a.axis != axis::tensor && a.group != b.group) || a.rotation != b.rotation;
  };
  const auto unlike = [&](const given_scale* a, const given_scale* b) {
    int head = 0;
    while (head < f.kv_heads && a[head].scale == b[head].scale && a[head].offset == b[head].offset) ++head;
    return head < f.kv_heads;
  };
  if (f.kv_heads != other.kv_heads) return {errc::invalid_argument, "other: kv_heads", f.kv_heads};
  if (f.head_dim != other.head_dim) return {errc::invalid_argument, "other: head_dim", f.head_dim};
  if (f.value_dim != other.value_dim) return {errc::invalid_argument, "other: value_dim", f.value_dim};
  if (f.tokens != other.tokens) return {errc::invalid_argument, "other: tile length", f.tokens};
  if (f.half_rows != other.half_rows) return {errc::invalid_argument, "other: half_window", f.half_rows ? 1 : 0};
  if (f.key_codec != other.key_codec || differ(f.key_policy, other.key_policy)) {
    return {errc::invalid_argument, "other: key policy", 0};
  }
  if (f.value_codec != other.value_codec || differ(f.value_policy, other.value_policy)) {
    return {errc::invalid_argument, "other: value policy", 0};
  }
  if (unlike(f.key_given, other.key_given)) return {errc::invalid_argument, "other: k_scale", 0};
  if (unlike(f.value_given, other.value_given)) return {errc::invalid_argument, "other: v_scale", 0};
  if (f.query_factor != other.query_factor) return {errc::invalid_argument, "other: rope.attention_factor", 0};
  if (f.pairs != other.pairs) return {errc::invalid_argument, "other: rope.pairs_count", f.pairs};
  for (int i = 0; i < f.head_dim; ++i) {
    if (f.order[i] != other.order[i]) return {errc::invalid_argument, "other: rope.pairs", i / 2};
  }
  for (int i = 0; i < f.pairs; ++i) {
    if (f.frequency[i] != other.frequency[i]) return {errc::invalid_argument, "other: rope.pairs.frequency", i};
  }
  return {};
}

inline void release(const tile_format* f) noexcept {
  if (f == nullptr || f->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const allocator memory = f->memory;
  const std::size_t bytes = f->bytes;
  f->~tile_format();
  memory.deallocate(const_cast<tile_format*>(f), bytes);
}

KVAXIS_END_NAMESPACE
