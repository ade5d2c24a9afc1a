// The cache of one layer of one sequence, for any codecs: a list of tiles, the newest in full precision, older ones
// folded once into their quantized form. kv_cache (typed) and make_cache (by name) put the codecs in.
//
// Rules. The first `pins` tokens are never folded. After every appended token, while the oldest full-precision tile is
// closed (full, or followed by a gap in positions) and at least `window` unpinned full-precision tokens would remain,
// it folds. So the bytes after an append do not depend on how the tokens were cut into calls.
//
// Every call either does all it says or changes nothing and answers why. Calls on one cache exclude each other, but for
// const ones, which may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../attention/attention.hpp"
#include "../tile/fold.hpp"
#include "config.hpp"
#include "entries.hpp"
#include "rows.hpp"

KVAXIS_BEGIN_NAMESPACE

// "The position after the last token", 0 for the first.
constexpr std::int64_t next = INT64_MIN;

enum class fold_mode : int {
  now,
  deferred,  // full precision for the tokens of this call until fold(): a prefill chunk that must see itself exactly
};

struct cache_bytes {
  std::size_t folded = 0;       // tiles of quantized tokens, headers included
  std::size_t exact = 0;        // tiles of full-precision tokens: window, pins and the open tile
  std::size_t spare = 0;        // tiles kept for later
  std::size_t bookkeeping = 0;  // tables of the rotation, the list of entries, scratch of folding

  [[nodiscard]] constexpr std::size_t total() const noexcept { return folded + exact + spare + bookkeeping; }
};

class any_kv_cache {
 public:
  any_kv_cache() noexcept = default;
  any_kv_cache(any_kv_cache&& other) noexcept { swap(other); }
  any_kv_cache& operator=(any_kv_cache&& other) noexcept {
    any_kv_cache(std::move(other)).swap(*this);
    return *this;
  }
  any_kv_cache(const any_kv_cache&) = delete;
  any_kv_cache& operator=(const any_kv_cache&) = delete;
  ~any_kv_cache() { destroy(); }

  // `out` is unchanged unless the answer is ok.
  static status create(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                       const allocator& memory, any_kv_cache& out) noexcept;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }  // tokens
  [[nodiscard]] std::int64_t next_position() const noexcept { return next_position_; }
  [[nodiscard]] std::int64_t folded_tokens() const noexcept { return folded_tokens_; }
  [[nodiscard]] std::int64_t exact_tokens() const noexcept { return size_ - folded_tokens_; }
  [[nodiscard]] std::int64_t replaced() const noexcept { return replaced_; }  // numbers, see cache_config::non_finite
  [[nodiscard]] cache_bytes bytes() const noexcept;
  // Shape, policies and codecs in force; null before create().
  [[nodiscard]] const tile_format* format() const noexcept { return format_; }
  [[nodiscard]] sequence_view view() const noexcept { return {format_, entries_.data(), entries_.size()}; }

  // Memory for a size of `tokens`: until then, append allocates nothing (tokens in sequence, fold_mode::now).
  status reserve(std::int64_t tokens) noexcept;
  // Forgets all tokens, keeps the memory.
  void clear() noexcept;

  // n tokens at positions first_position, first_position + 1, ...; keys [token][kv_head][head_dim] before RoPE (after
  // it for rotation `post`), values [token][kv_head][value_dim]; latent values come with the keys, v is {}. Errors: k, v (null, stride, non-finite, out of range),
  // n, first_position, out of memory.
  status append(const rows& k, const rows& v, int n, std::int64_t first_position = next,
                fold_mode mode = fold_mode::now) noexcept;
  // What fold_mode::deferred left to do.
  status fold() noexcept;
  // Folds everything that is not pinned, a last short tile too.
  status flush() noexcept;

  // The key as it was appended, up to the codec's error, natural channel order; [head_dim] and [value_dim] numbers.
  status read_key(std::int64_t token, int kv_head, float* out) const noexcept;
  status read_value(std::int64_t token, int kv_head, float* out) const noexcept;

  // out[query][query_head][value_dim] = softmax(scale * q . k) v over the keys whose position is at most the query's,
  // first_position + query. q [query][query_head][head_dim] before RoPE (after it for `post`). lse (may be null):
  // [query][query_head], natural logarithm of the softmax's denominator. A query that sees no key gets 0 and -infinity.
  // The same bits for any parallel_for and any number of queries in the call, on one instruction set.
  status attend(const float* q, int n_query, std::int64_t first_position, const attend_options& options, float* out,
                float* lse, const workspace& memory, const parallel_for& parallel = {}) const noexcept;
  // Logits alone: out[query][query_head][size()], scaled and capped, -infinity where the key is not visible.
  status scores(const float* q, int n_query, std::int64_t first_position, const attend_options& options, float* out,
                const workspace& memory) const noexcept;
  // out[query][query_head][value_dim] = weights[query][query_head][size()] times the values.
  status weighted_sum(const float* weights, int n_query, const attend_options& options, float* out,
                      const workspace& memory) const noexcept;
  // Bytes of workspace for one of these calls, now or when the cache holds `tokens` tokens; 0 where the call would be
  // refused.
  [[nodiscard]] std::size_t workspace_bytes(int n_query, const attend_options& options,
                                            std::int64_t tokens = 0) const noexcept;

 protected:
  void swap(any_kv_cache& other) noexcept;

 private:
  using needs = detail::append_needs;

  void destroy() noexcept;
  [[nodiscard]] detail::append_model model() const noexcept;
  status prepare(const needs& n) noexcept;
  void store_tokens(const rows& k, const rows& v, int n, std::int64_t position, bool folds) noexcept;
  void open_tile(bool pinned, std::int64_t position) noexcept;
  void copy_rows(const rows& k, const rows& v, int count) noexcept;
  [[nodiscard]] int foldable(std::int64_t keep) const noexcept;
  status prepare_folds(int count) noexcept;
  void fold_oldest(int count) noexcept;
  status check_append(const rows& k, const rows& v, int n, std::int64_t position) const noexcept;
  status make_problem(const float* q, int n_query, std::int64_t first_position, const attend_options& o,
                      detail::problem& out) const noexcept;
  [[nodiscard]] std::size_t bytes_for(int n_query, const detail::problem& p,
                                      const attend_options& options) const noexcept;
  [[nodiscard]] int pin_capacity() const noexcept { return detail::round_up(config_.pins, 4); }

  cache_config config_;  // without the caller's pointers
  allocator memory_;
  tile_format* format_ = nullptr;
  detail::entry_list entries_;
  detail::spare_tiles spare_exact_;
  detail::spare_tiles spare_pins_;
  detail::spare_tiles spare_folded_;
  detail::fold_scratch fold_scratch_;
  int first_exact_ = 0;  // entries before it are pinned or folded
  std::int64_t size_ = 0;
  std::int64_t folded_tokens_ = 0;
  std::int64_t pinned_tokens_ = 0;
  std::int64_t next_position_ = 0;
  std::int64_t lowest_position_ = 0;
  std::int64_t replaced_ = 0;
};

KVAXIS_END_NAMESPACE

#include "any_kv_cache_append.hpp"
#include "any_kv_cache_read.hpp"
