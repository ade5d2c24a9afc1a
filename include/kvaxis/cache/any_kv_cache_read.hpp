// any_kv_cache: reading tokens back, and attention.
#pragma once

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct token_place {
  const kvaxis::tile* tile;
  int slot;
};

// Where the token of an index lies, which is in range.
inline token_place find_token(const sequence_view& s, std::int64_t token) noexcept {
  const entry* e = s.entries;
  while (token >= e->count) {
    token -= e->count;
    ++e;
  }
  return {e->tile, e->begin + static_cast<int>(token)};
}

inline status check_read(const any_kv_cache& cache, std::int64_t token, int kv_head, const float* out) noexcept {
  if (cache.format() == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (token < 0 || token >= cache.size()) return {errc::out_of_range, "token", cache.size() - 1};
  if (kv_head < 0 || kv_head >= cache.format()->kv_heads) {
    return {errc::out_of_range, "kv_head", cache.format()->kv_heads - 1};
  }
  if (out == nullptr) return {errc::invalid_argument, "out", 0};
  return {};
}

// The numbers that come in (queries or weights, `per_query` for each query), where the results go, and the workspace.
inline status check_buffers(const float* in, const char* argument, int n_query, std::int64_t per_query,
                            const float* out, const workspace& memory, std::size_t needed) noexcept {
  if (in == nullptr && per_query > 0) return {errc::invalid_argument, argument, 0};
  if (out == nullptr) return {errc::invalid_argument, "out", 0};
  for (std::int64_t i = 0; i < n_query * per_query; ++i) {
    if (!is_finite(in[i])) return {errc::non_finite, argument, i / per_query};
  }
  if (memory.data == nullptr || memory.bytes < needed) {
    return {errc::out_of_range, "workspace", static_cast<std::int64_t>(needed)};
  }
  return {};
}

}  // namespace detail

inline status any_kv_cache::read_key(std::int64_t token, int kv_head, float* out) const noexcept {
  if (status s = detail::check_read(*this, token, kv_head, out); !s.ok()) return s;
  const detail::token_place at = detail::find_token(view(), token);
  kvaxis::read_key(*at.tile, kv_head, at.slot, out);
  return {};
}

inline status any_kv_cache::read_value(std::int64_t token, int kv_head, float* out) const noexcept {
  if (status s = detail::check_read(*this, token, kv_head, out); !s.ok()) return s;
  const detail::token_place at = detail::find_token(view(), token);
  kvaxis::read_value(*at.tile, kv_head, at.slot, out);
  return {};
}

inline status any_kv_cache::make_problem(const float* q, int n_query, std::int64_t first_position,
                                         const attend_options& o, detail::problem& out) const noexcept {
  if (format_ == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int heads = o.query_heads == 0 ? format_->kv_heads : o.query_heads;
  if (heads < 1 || heads % format_->kv_heads != 0) return {errc::invalid_argument, "query_heads", format_->kv_heads};
  if (heads / format_->kv_heads > max_query_group) return {errc::out_of_range, "query_heads", max_query_group};
  if (!is_finite(o.scale) || o.scale < 0.0F) return {errc::invalid_argument, "scale", 0};
  if (format_->is_latent() && o.scale == 0.0F)
    return {errc::invalid_argument, "scale: latent values have no default", 0};
  if (!is_finite(o.soft_cap) || o.soft_cap < 0.0F) return {errc::invalid_argument, "soft_cap", 0};
  if (o.max_tasks < 1) return {errc::out_of_range, "max_tasks", 1};
  if (n_query < 0) return {errc::out_of_range, "n_query", 0};
  if (n_query > max_queries) return {errc::out_of_range, "n_query", max_queries};
  if (first_position < -max_position) return {errc::out_of_range, "first_position", -max_position};
  if (first_position > max_position - n_query) return {errc::out_of_range, "first_position", max_position - n_query};
  if (size_ > 0 && first_position + n_query - lowest_position_ > max_position) {
    return {errc::out_of_range, "first_position", lowest_position_ + max_position - n_query};
  }
  out.sequence = view();
  out.q = q;
  out.first_position = first_position;
  out.query_heads = heads;
  out.group = heads / format_->kv_heads;
  out.scale = o.scale > 0.0F ? o.scale : 1.0F / std::sqrt(static_cast<float>(format_->head_dim));
  out.soft_cap = o.soft_cap;
  out.arithmetic = o.arithmetic;
  out.integer = o.arithmetic == arithmetic::f32 ? nullptr : &detail::active_integer();
  return {};
}

inline std::size_t any_kv_cache::bytes_for(int n_query, const detail::problem& p,
                                           const attend_options& options) const noexcept {
  return detail::most_bytes(*format_, entries_.size(), n_query, p.group, options.max_tasks);
}

inline std::size_t any_kv_cache::workspace_bytes(int n_query, const attend_options& options,
                                                 std::int64_t tokens) const noexcept {
  detail::problem p;
  if (tokens > max_position || !make_problem(nullptr, n_query, -max_position, options, p).ok()) return 0;
  const std::int64_t more = tokens > size_ ? (tokens - size_) / format_->tokens + 2 : 0;
  return detail::most_bytes(*format_, entries_.size() + static_cast<int>(more), n_query, p.group, options.max_tasks);
}

inline status any_kv_cache::attend(const float* q, int n_query, std::int64_t first_position,
                                   const attend_options& options, float* out, float* lse, const workspace& memory,
                                   const parallel_for& parallel) const noexcept {
  detail::problem p;
  status s = make_problem(q, n_query, first_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0) return {};
  const detail::query_blocks blocks(first_position, n_query, p.group);
  const detail::work_plan work =
      detail::plan_work(*format_, entries_.size(), blocks.count, n_query, p.group, options.max_tasks);
  const std::int64_t per_query = static_cast<std::int64_t>(p.query_heads) * format_->head_dim;
  s = detail::check_buffers(q, "q", n_query, per_query, out, memory, bytes_for(n_query, p, options));
  if (!s.ok()) return s;
  detail::attend(p, blocks, work, out, lse, memory, parallel);
  return {};
}

inline status any_kv_cache::scores(const float* q, int n_query, std::int64_t first_position,
                                   const attend_options& options, float* out, const workspace& memory) const noexcept {
  detail::problem p;
  status s = make_problem(q, n_query, first_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0 || size_ == 0) return {};
  const std::int64_t per_query = static_cast<std::int64_t>(p.query_heads) * format_->head_dim;
  s = detail::check_buffers(q, "q", n_query, per_query, out, memory, bytes_for(n_query, p, options));
  if (!s.ok()) return s;
  const detail::task_memory m = detail::single_slice(*format_, p.group, memory);
  for (int i = 0; i < n_query * format_->kv_heads; ++i) {
    float* to = out + static_cast<std::int64_t>(i) * p.group * size_;
    detail::active_walk().score_all(p, {i / format_->kv_heads, 1, i % format_->kv_heads, 1}, m.buffers, to, size_);
  }
  return {};
}

inline status any_kv_cache::weighted_sum(const float* weights, int n_query, const attend_options& options, float* out,
                                         const workspace& memory) const noexcept {
  detail::problem p;
  status s = make_problem(nullptr, n_query, -max_position, options, p);
  if (!s.ok()) return s;
  if (n_query == 0) return {};
  s = detail::check_buffers(weights, "weights", n_query, p.query_heads * size_, out, memory,
                            bytes_for(n_query, p, options));
  if (!s.ok()) return s;
  const detail::task_memory m = detail::single_slice(*format_, p.group, memory);
  for (int i = 0; i < n_query * format_->kv_heads; ++i) {
    const float* from = weights + static_cast<std::int64_t>(i) * p.group * size_;
    detail::active_walk().sum_all(p, i % format_->kv_heads, m.buffers, from, size_, m.state.sums);
    for (int h = 0; h < p.group; ++h) {
      const float* sums = m.state.sums + h * detail::sum_stride(*format_) + detail::first_sum(*format_);
      float* to = out + (static_cast<std::int64_t>(i) * p.group + h) * format_->value_dim;
      for (int c = 0; c < format_->value_dim; ++c) to[c] = sums[c];
    }
  }
  return {};
}

KVAXIS_END_NAMESPACE
