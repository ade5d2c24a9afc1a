// any_kv_cache: reading tokens back, and attention.
#pragma once

#include "any_kv_cache_lists.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

inline status check_read(const any_kv_cache& cache, std::int64_t token, int kv_head, const float* out) noexcept {
  if (cache.format() == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (token < 0 || token >= cache.size()) return {errc::out_of_range, "token", cache.size() - 1};
  if (kv_head < 0 || kv_head >= cache.format()->kv_heads) {
    return {errc::out_of_range, "kv_head", cache.format()->kv_heads - 1};
  }
  if (out == nullptr) return {errc::invalid_argument, "out", 0};
  return {};
}

// The numbers that come in, queries or weights, `per_query` for each query, and where the results go.
inline status check_numbers(const float* in, const char* argument, int n_query, std::int64_t per_query,
                            const float* out) noexcept {
  if (in == nullptr && per_query > 0) return {errc::invalid_argument, argument, 0};
  if (out == nullptr) return {errc::invalid_argument, "out", 0};
  for (std::int64_t i = 0; i < n_query * per_query; ++i) {
    if (!is_finite(in[i])) return {errc::non_finite, argument, i / per_query};
  }
  return {};
}

inline status check_workspace(const workspace& memory, std::size_t needed) noexcept {
  if (memory.data != nullptr && memory.bytes >= needed) return {};
  return {errc::out_of_range, "workspace", static_cast<std::int64_t>(needed)};
}

}  // namespace detail

inline status any_kv_cache::read_key(std::int64_t token, int kv_head, float* out) const noexcept {
  if (status s = detail::check_read(*this, token, kv_head, out); !s.ok()) return s;
  const detail::list_place place = detail::find_place(view(), token);
  const entry& e = entries_[place.index];
  kvaxis::read_key(*e.tile, kv_head, e.begin + place.offset, out);
  return {};
}

inline status any_kv_cache::read_value(std::int64_t token, int kv_head, float* out) const noexcept {
  if (status s = detail::check_read(*this, token, kv_head, out); !s.ok()) return s;
  const detail::list_place place = detail::find_place(view(), token);
  const entry& e = entries_[place.index];
  kvaxis::read_value(*e.tile, kv_head, e.begin + place.offset, out);
  return {};
}

inline status any_kv_cache::make_problem(const float* q, int n_query, std::int64_t first_position,
                                         const attend_options& o, detail::problem& out) const noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int heads = o.query_heads == 0 ? formats_[0]->kv_heads : o.query_heads;
  if (heads < 1 || heads % formats_[0]->kv_heads != 0)
    return {errc::invalid_argument, "query_heads", formats_[0]->kv_heads};
  if (heads / formats_[0]->kv_heads > max_query_group) return {errc::out_of_range, "query_heads", max_query_group};
  if (!is_finite(o.scale) || o.scale < 0.0F) return {errc::invalid_argument, "scale", 0};
  if (formats_[0]->is_latent() && o.scale == 0.0F)
    return {errc::invalid_argument, "scale: latent values have no default", 0};
  if (!is_finite(o.soft_cap) || o.soft_cap < 0.0F) return {errc::invalid_argument, "soft_cap", 0};
  if (o.max_tasks < 1) return {errc::out_of_range, "max_tasks", 1};
  if (n_query < 0) return {errc::out_of_range, "n_query", 0};
  if (n_query > max_queries) return {errc::out_of_range, "n_query", max_queries};
  if (o.sliding_window < 0 || o.sliding_window > 2 * max_position) {
    return {errc::out_of_range, "sliding_window", 2 * max_position};
  }
  for (int h = 0; o.sink_logits != nullptr && h < heads; ++h) {
    if (!is_finite(o.sink_logits[h])) return {errc::non_finite, "sink_logits", h};
  }
  for (int i = 0; i < n_query && (i == 0 || o.query_positions != nullptr); ++i) {
    const bool listed = o.query_positions != nullptr;
    const char* const argument = listed ? "query_positions" : "first_position";
    const std::int64_t position = listed ? o.query_positions[i] : first_position;
    const int more = listed ? 1 : n_query;
    if (position < -max_position) return {errc::out_of_range, argument, -max_position};
    if (position > max_position - more) return {errc::out_of_range, argument, max_position - more};
    if (size_ > 0 && position + more - lowest_position_ > max_position) {
      return {errc::out_of_range, argument, lowest_position_ + max_position - more};
    }
  }
  out.sequence = view();
  out.q = q;
  out.first_position = first_position;
  out.positions = o.query_positions;
  out.query_heads = heads;
  out.group = heads / formats_[0]->kv_heads;
  out.scale = o.scale > 0.0F ? o.scale : 1.0F / std::sqrt(static_cast<float>(formats_[0]->head_dim));
  out.soft_cap = o.soft_cap;
  out.sliding_window = o.sliding_window;
  out.pins_visible = o.pins_visible;
  out.sink_logits = o.sink_logits;
  out.arithmetic = o.arithmetic;
  if (o.arithmetic != arithmetic::f32) {
    out.integer = &detail::active_integer();
    out.half = detail::active_half();
  }
  return {};
}

inline std::size_t any_kv_cache::bytes_for(int n_query, const detail::problem& p,
                                           const attend_options& options) const noexcept {
  return detail::most_bytes(p.sequence, n_query, p.group, options.max_tasks, p.positions != nullptr);
}

inline std::size_t any_kv_cache::workspace_bytes(int n_query, const attend_options& options,
                                                 std::int64_t tokens) const noexcept {
  detail::problem p;
  attend_options anywhere = options;
  anywhere.query_positions = nullptr;
  if (tokens > max_position || !make_problem(nullptr, n_query, -max_position, anywhere, p).ok()) return 0;
  const std::int64_t more = tokens > size_ ? (tokens - size_) / formats_[0]->tokens + 2 : 0;
  p.sequence.entry_count += static_cast<int>(more);
  p.positions = options.query_positions;
  return bytes_for(n_query, p, options);
}

inline status any_kv_cache::attend(const float* q, int n_query, std::int64_t first_position,
                                   const attend_options& options, float* out, float* lse, const workspace& memory,
                                   const parallel_for& parallel) const noexcept {
  detail::problem p;
  status s = make_problem(q, n_query, first_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0) return {};
  const std::int64_t per_query = static_cast<std::int64_t>(p.query_heads) * formats_[0]->head_dim;
  if (s = detail::check_numbers(q, "q", n_query, per_query, out); !s.ok()) return s;
  if (s = detail::check_workspace(memory, bytes_for(n_query, p, options)); !s.ok()) return s;
  detail::attend_job job(p, n_query, options.max_tasks, out, lse);
  detail::attend(&job, 1, options.max_tasks, detail::align_workspace(memory), parallel);
  return {};
}

inline status any_kv_cache::scores(const float* q, int n_query, std::int64_t first_position,
                                   const attend_options& options, float* out, const workspace& memory) const noexcept {
  detail::problem p;
  status s = make_problem(q, n_query, first_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0 || size_ == 0) return {};
  const std::int64_t per_query = static_cast<std::int64_t>(p.query_heads) * formats_[0]->head_dim;
  if (s = detail::check_numbers(q, "q", n_query, per_query, out); !s.ok()) return s;
  if (s = detail::check_workspace(memory, bytes_for(n_query, p, options)); !s.ok()) return s;
  const detail::task_memory m = detail::single_slice(p.sequence, p.group, memory);
  for (int i = 0; i < n_query * formats_[0]->kv_heads; ++i) {
    float* to = out + static_cast<std::int64_t>(i) * p.group * size_;
    detail::active_walk().score_all(p, {i / formats_[0]->kv_heads, 1, i % formats_[0]->kv_heads, 1}, m.buffers, to,
                                    size_);
  }
  return {};
}

inline status any_kv_cache::weighted_sum(const float* weights, int n_query, const attend_options& options, float* out,
                                         const workspace& memory) const noexcept {
  detail::problem p;
  status s = make_problem(nullptr, n_query, -max_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0) return {};
  if (s = detail::check_numbers(weights, "weights", n_query, p.query_heads * size_, out); !s.ok()) return s;
  if (s = detail::check_workspace(memory, bytes_for(n_query, p, options)); !s.ok()) return s;
  const detail::task_memory m = detail::single_slice(p.sequence, p.group, memory);
  for (int i = 0; i < n_query * formats_[0]->kv_heads; ++i) {
    const float* from = weights + static_cast<std::int64_t>(i) * p.group * size_;
    detail::active_walk().sum_all(p, i % formats_[0]->kv_heads, m.buffers, from, size_, m.state.sums);
    for (int h = 0; h < p.group; ++h) {
      const float* sums = detail::join_sums(*formats_[0], m.state.sums + h * detail::sum_stride(*formats_[0]));
      float* to = out + (static_cast<std::int64_t>(i) * p.group + h) * formats_[0]->value_dim;
      for (int c = 0; c < formats_[0]->value_dim; ++c) to[c] = sums[c];
    }
  }
  return {};
}

KVAXIS_END_NAMESPACE
