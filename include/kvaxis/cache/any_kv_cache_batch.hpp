// any_kv_cache: attention of many caches in one call.
#pragma once

#include "any_kv_cache_read.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// The jobs of a batch lie at the begin of its workspace.
[[nodiscard]] inline std::size_t job_bytes(int count) noexcept {
  return round_up(static_cast<std::size_t>(count) * sizeof(attend_job), std::size_t{64});
}

// With many caches each needs fewer parts to keep all tasks busy.
[[nodiscard]] inline int tasks_of_one(int count, int max_tasks) noexcept { return (max_tasks + count - 1) / count; }

}  // namespace detail

inline std::size_t any_kv_cache::batch_bytes(const attend_request* requests, int count, int max_tasks) noexcept {
  if (requests == nullptr || count < 1 || max_tasks < 1) return 0;
  std::int64_t items = 0;
  std::size_t slice = 0;
  std::size_t states = 0;
  for (int i = 0; i < count; ++i) {
    const attend_request& r = requests[i];
    detail::problem p;
    if (r.cache == nullptr || !r.cache->make_problem(r.q, r.n_query, r.first_position, r.options, p).ok()) return 0;
    const detail::attend_job job(p, r.n_query, detail::tasks_of_one(count, max_tasks), nullptr, nullptr);
    items += job.work.items;
    slice = std::max(slice, job.work.slice_bytes);
    states += static_cast<std::size_t>(job.work.items) * job.work.state_bytes;
  }
  const std::int64_t tasks = std::min<std::int64_t>(items, max_tasks);
  return detail::job_bytes(count) + static_cast<std::size_t>(tasks) * slice + states + 64;
}

inline status any_kv_cache::attend_batch(const attend_request* requests, int count, int max_tasks,
                                         const workspace& memory, const parallel_for& parallel, int* failed) noexcept {
  if (count < 0) return {errc::out_of_range, "count", 0};
  if (max_tasks < 1) return {errc::out_of_range, "max_tasks", 1};
  if (count == 0) return {};
  if (requests == nullptr) return {errc::invalid_argument, "requests", 0};
  for (int i = 0; i < count; ++i) {
    const attend_request& r = requests[i];
    if (failed != nullptr) *failed = i;
    if (r.cache == nullptr) return {errc::invalid_argument, "requests: cache", i};
    detail::problem p;
    if (status s = r.cache->make_problem(r.q, r.n_query, r.first_position, r.options, p); !s.ok()) return s;
    if (r.n_query == 0) continue;
    const std::int64_t per_query = static_cast<std::int64_t>(p.query_heads) * r.cache->formats_[0]->head_dim;
    if (status s = detail::check_numbers(r.q, "q", r.n_query, per_query, r.out); !s.ok()) return s;
  }
  if (failed != nullptr) *failed = -1;
  if (status s = detail::check_workspace(memory, batch_bytes(requests, count, max_tasks)); !s.ok()) return s;
  std::byte* const base = detail::align_workspace(memory);
  auto* const jobs = reinterpret_cast<detail::attend_job*>(base);
  for (int i = 0; i < count; ++i) {
    const attend_request& r = requests[i];
    detail::problem p;
    static_cast<void>(r.cache->make_problem(r.q, r.n_query, r.first_position, r.options, p));
    new (jobs + i) detail::attend_job(p, r.n_query, detail::tasks_of_one(count, max_tasks), r.out, r.lse);
  }
  detail::attend(jobs, count, max_tasks, base + detail::job_bytes(count), parallel);
  return {};
}

KVAXIS_END_NAMESPACE
