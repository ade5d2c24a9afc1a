// The cache of one layer of one sequence, for any codecs: a list of tiles, the newest in full precision, older ones
// folded once into their quantized form. kv_cache (typed) and make_cache (by name) put the codecs in.
//
// A token has an *index*, its place in the list, and a *position*, which turns it and decides who sees it. Roll back,
// eviction, fork, shift and splice edit the list: they cost the same for any codec and change no stored number.
//
// Rules. The first `pins` tokens are never folded. After every appended token, while the oldest full-precision tile is
// closed (full, or followed by a gap in positions) and at least `window` unpinned full-precision tokens would remain,
// it folds. So the bytes after an append do not depend on how the tokens were cut into calls.
//
// Every call either does all it says or changes nothing and answers why. Calls on one cache exclude each other, but for
// const ones, which may run at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../attention/attention.hpp"
#include "../tile/fold.hpp"
#include "config.hpp"
#include "entries.hpp"
#include "rows.hpp"

KVAXIS_BEGIN_NAMESPACE

class any_kv_cache;

// One call of attend among many.
struct attend_request {
  const any_kv_cache* cache = nullptr;
  const float* q = nullptr;
  int n_query = 0;
  std::int64_t first_position = 0;
  attend_options options;  // max_tasks is the batch's
  float* out = nullptr;
  float* lse = nullptr;
};

// "The position after the last token", 0 for the first.
constexpr std::int64_t next = INT64_MIN;

enum class fold_mode : int {
  now,
  deferred,  // full precision for the tokens of this call until fold(): a prefill chunk that must see itself exactly
};

// Tiles that other caches hold too are counted by each.
struct cache_bytes {
  std::size_t folded = 0;       // tiles of quantized tokens, headers included
  std::size_t exact = 0;        // tiles of full-precision tokens: window, pins and the open tile
  std::size_t spare = 0;        // tiles kept for later
  std::size_t bookkeeping = 0;  // tables of the rotation, the list of entries, scratch of folding

  [[nodiscard]] constexpr std::size_t total() const noexcept { return folded + exact + spare + bookkeeping; }
  constexpr cache_bytes& operator+=(const cache_bytes& other) noexcept {
    folded += other.folded;
    exact += other.exact;
    spare += other.spare;
    bookkeeping += other.bookkeeping;
    return *this;
  }
};

namespace detail {
class layer_reader;  // io/layer_reader.hpp
}

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
  [[nodiscard]] const tile_format* format() const noexcept { return formats_[0]; }
  [[nodiscard]] const cache_config& config() const noexcept { return config_; }  // without given scales
  [[nodiscard]] sequence_view view() const noexcept {
    sequence_view v{formats_[0], entries_.data(), entries_.size()};
    for (std::size_t i = 0; i < formats_.size(); ++i) v.tiers[i] = formats_[i];
    return v;
  }

  // Memory for a size of `tokens`: until then, append allocates nothing (tokens in sequence, fold_mode::now).
  status reserve(std::int64_t tokens) noexcept;
  // Forgets all tokens, keeps the memory of tiles that no other cache holds.
  void clear() noexcept;

  // n tokens at positions first_position, first_position + 1, ...; keys [token][kv_head][head_dim] before RoPE (after
  // it for rotation `post`), values [token][kv_head][value_dim]. Latent values come with the keys: v is {}. Errors: k, v
  // (null, stride, non-finite, out of range), n, first_position, out of memory.
  status append(const rows& k, const rows& v, int n, std::int64_t first_position = next,
                fold_mode mode = fold_mode::now) noexcept;
  // What fold_mode::deferred left to do.
  status fold() noexcept;
  // Folds everything that is not pinned, a last short tile too.
  status flush() noexcept;
  // Gives tiles that are old enough the policies of cache_config::older_tiers: each is decoded and encoded anew, once per
  // tier, as a tile of this cache alone; forks keep the old one. The error of the new codec comes on top of the old one's.
  // Tile by tile, to free memory while it is short: what did not fit is left to the next call.
  status demote() noexcept;

  // --- Operations on the list ------------------------------------------------------------------------------------

  // Roll back to the first `tokens` tokens. An end among full-precision tokens leaves no trace: the next bytes are those
  // of a cache that never saw the dropped ones. What is left of a folded tile stays as it is, and the next token opens a
  // new tile; the window then holds less until it has refilled, for nothing is unfolded.
  status truncate(std::int64_t tokens) noexcept;
  // Drops the tokens first .. first + count - 1; the others keep their positions. Up to the last one, it is a roll back.
  status erase(std::int64_t first, std::int64_t count) noexcept;
  // Drops all but the pinned tokens and the newest `tokens`: StreamingLLM's eviction, or that of a sliding-window layer.
  status keep_last(std::int64_t tokens) noexcept;
  // Moves tokens by `delta` positions, exactly. Refused for `post`, whose keys came in rotated.
  status move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept;
  // Makes `out` a cache of the same tokens. It shares all tiles; one that is still open is copied by the first append.
  status fork(any_kv_cache& out) const noexcept;
  // Inserts tokens of another cache of the same configuration before token `at`, behind the pinned ones, the first of them
  // at `position`, the others as far from it as they were. An empty cache takes pins over as pins. The tiles are shared,
  // so the other cache's allocator must outlive this cache too.
  status splice(std::int64_t at, const any_kv_cache& other, std::int64_t first, std::int64_t count,
                std::int64_t position) noexcept;

  // Of a token, or `next_position()` at the end; the index must be in range.
  [[nodiscard]] std::int64_t position(std::int64_t token) const noexcept;
  // The first token from index `from` on whose position is at least `position`; size() if there is none.
  [[nodiscard]] std::int64_t find_position(std::int64_t position, std::int64_t from = 0) const noexcept;

  // --- Reading -----------------------------------------------------------------------------------------------------

  // The key as it was appended, up to the codec's error, natural channel order; [head_dim] and [value_dim] numbers.
  status read_key(std::int64_t token, int kv_head, float* out) const noexcept;
  status read_value(std::int64_t token, int kv_head, float* out) const noexcept;

  // out[query][query_head][value_dim] = softmax(scale * q . k) v over the keys whose position is at most the query's,
  // first_position + query; attend_options has more masks. q [query][query_head][head_dim] before RoPE (after it for `post`). lse (may be null):
  // [query][query_head], natural logarithm of the softmax's denominator. A query that sees no key gets 0, and -infinity
  // or its sink logit.
  // The same bits for any parallel_for and any number of queries in the call, on one instruction set.
  status attend(const float* q, int n_query, std::int64_t first_position, const attend_options& options, float* out,
                float* lse, const workspace& memory, const parallel_for& parallel = {}) const noexcept;
  // Many calls of attend at once, of any caches: their work is cut into parts of about one size, spread over max_tasks
  // tasks. Each result has the bits of a call of its own. All are checked before any runs: the index of a request that is
  // refused goes to `failed`, which may be null.
  static status attend_batch(const attend_request* requests, int count, int max_tasks, const workspace& memory,
                             const parallel_for& parallel = {}, int* failed = nullptr) noexcept;
  // Bytes of workspace for these requests; 0 where they would be refused.
  [[nodiscard]] static std::size_t batch_bytes(const attend_request* requests, int count, int max_tasks) noexcept;
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
  friend class sequence;
  friend class detail::layer_reader;
  using needs = detail::append_needs;

  void destroy() noexcept;
  status make_scratch() noexcept;
  [[nodiscard]] std::size_t scratch_bytes() const noexcept { return fold_scratch_floats(*formats_[0]) * 8U; }
  [[nodiscard]] detail::append_model model() const noexcept;
  struct spare_counts {
    int exact = 0;
    int pins = 0;
    int folded = 0;
  };
  [[nodiscard]] spare_counts count_spares() const noexcept {
    return {spare_exact_.count(), spare_pins_.count(), spare_folded_.count()};
  }
  void drop_spares(const spare_counts& to) noexcept;
  status prepare(const needs& n) noexcept;
  void store_tokens(const rows& k, const rows& v, int n, std::int64_t position, bool folds) noexcept;
  void open_tile(bool pinned, std::int64_t position) noexcept;
  void own_open_tile() noexcept;
  void recycle(const entry& e) noexcept;
  void copy_rows(const rows& k, const rows& v, int count) noexcept;
  [[nodiscard]] int foldable(std::int64_t keep) const noexcept;
  [[nodiscard]] int all_foldable() const noexcept;
  status prepare_folds(int count) noexcept;
  void fold_oldest(int count) noexcept;
  [[nodiscard]] int next_foldable(int from) const noexcept;
  [[nodiscard]] int tier_of(const entry& e, std::int64_t following) const noexcept;
  void demote_entry(entry& e, tile& exact, tile& made) noexcept;

  // A list operation is checked and gets its memory first; what then changes the list cannot fail.
  status check_range(std::int64_t first, std::int64_t count) const noexcept;
  status prepare_entries(int more) noexcept;
  status prepare_move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept;
  status prepare_splice(std::int64_t at, const any_kv_cache& other, std::int64_t first, std::int64_t count,
                        std::int64_t position) noexcept;
  int split_at(std::int64_t token) noexcept;
  void do_truncate(std::int64_t tokens) noexcept;
  void do_erase(std::int64_t first, std::int64_t count) noexcept;
  void do_move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept;
  void do_splice(std::int64_t at, const any_kv_cache& other, std::int64_t first, std::int64_t count,
                 std::int64_t position) noexcept;
  void reopen_last() noexcept;
  void recount() noexcept;
  void replace_tokens(detail::entry_list& entries, std::int64_t replaced) noexcept;

  status check_append(const rows& k, const rows& v, int n, std::int64_t position) const noexcept;
  status make_problem(const float* q, int n_query, std::int64_t first_position, const attend_options& o,
                      detail::problem& out) const noexcept;
  [[nodiscard]] std::size_t bytes_for(int n_query, const detail::problem& p,
                                      const attend_options& options) const noexcept;
  [[nodiscard]] int pin_capacity() const noexcept { return detail::round_up(config_.pins, 4); }
  // The first `pins` tokens are pinned, as long as no other comes between.
  [[nodiscard]] int pins_left() const noexcept {
    return size_ == pinned_tokens_ && pinned_tokens_ < config_.pins ? config_.pins - static_cast<int>(pinned_tokens_)
                                                                    : 0;
  }

  cache_config config_;  // without the caller's pointers
  allocator memory_;
  std::array<const tile_format*, max_tiers> formats_{};  // of new tiles, then of the older tiers'
  detail::entry_list entries_;
  detail::spare_tiles spare_exact_;
  detail::spare_tiles spare_pins_;
  detail::spare_tiles spare_folded_;
  detail::fold_scratch fold_scratch_;  // made by create(), or by the first fold after fork()
  int first_exact_ = 0;                // entries before it are pinned or folded
  std::int64_t size_ = 0;
  std::int64_t folded_tokens_ = 0;
  std::int64_t pinned_tokens_ = 0;
  std::int64_t next_position_ = 0;
  std::int64_t lowest_position_ = 0;
  std::int64_t replaced_ = 0;
};

KVAXIS_END_NAMESPACE

#include "any_kv_cache_append.hpp"
#include "any_kv_cache_batch.hpp"
#include "any_kv_cache_lists.hpp"
#include "any_kv_cache_read.hpp"
