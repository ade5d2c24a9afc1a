// Attention over one layer of one sequence: checks, splits the work into tasks, and merges what they bring.
#pragma once

#include <cmath>

#include "../function_ref.hpp"
#include "walk.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Work is cut into items. One query: (kv head, range of entries), each with a state of its own, merged at the end.
// Several queries: (query, kv head), each walking its ranges in order.
struct work_plan {
  int ranges = 0;
  int items = 0;
  int tasks = 0;
  std::size_t slice_bytes = 0;  // scratch of a task
  std::size_t state_bytes = 0;  // of an item

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(tasks) * slice_bytes + static_cast<std::size_t>(items) * state_bytes + 64;
  }
};

inline work_plan plan_work(const tile_format& f, int entry_count, int n_query, int group, int max_tasks) noexcept {
  work_plan w;
  w.ranges = entry_count == 0 ? 1 : (entry_count + range_entries - 1) / range_entries;
  const bool split = n_query == 1;
  w.items = split ? w.ranges * f.kv_heads : n_query * f.kv_heads;
  w.tasks = w.items < max_tasks ? w.items : max_tasks;
  const std::size_t state_bytes = round_up(state_floats(f, group) * sizeof(float), std::size_t{64});
  w.state_bytes = split ? state_bytes : 0;
  w.slice_bytes = scratch_bytes(f, group) + 2 * state_bytes;
  return w;
}

struct task_memory {
  scratch buffers;
  softmax_state state;
  softmax_state part;  // of one range, before it is merged
};
inline task_memory slice(const tile_format& f, int group, const work_plan& w, std::byte* base, int task) noexcept {
  arena a(base + static_cast<std::size_t>(task) * w.slice_bytes);
  task_memory m;
  m.buffers = place_scratch(f, group, a);
  m.state = place_state(group, a.take<float>(state_floats(f, group)));
  m.part = place_state(group, a.take<float>(state_floats(f, group)));
  return m;
}

inline std::byte* align_workspace(const workspace& w) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(w.data);
  return static_cast<std::byte*>(w.data) + (round_up(address, std::uintptr_t{64}) - address);
}

// Out = sums / totals, and the log-sum-exp; a query that saw no key gets 0 and minus infinity.
inline void write_result(const problem& p, const softmax_state& s, int query, int head, float* out,
                         float* lse) noexcept {
  const tile_format& f = *p.sequence.format;
  for (int h = 0; h < p.group; ++h) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(query) * p.query_heads + head * p.group + h;
    const float total = s.totals[h];
    const float inverse = total > 0.0F ? 1.0F / total : 0.0F;
    const float* sums = s.sums + h * sum_stride(f);
    for (int c = 0; c < f.value_dim; ++c) out[row * f.value_dim + c] = total > 0.0F ? sums[c] * inverse : 0.0F;
    if (lse != nullptr) lse[row] = total > 0.0F ? s.maxima[h] + std::log(total) : bits_float(0xFF800000U);
  }
}

inline void run_tasks(int tasks, const parallel_for& parallel, task body) {
  if (parallel && tasks > 1) return parallel(tasks, body);
  for (int t = 0; t < tasks; ++t) body(t);
}

inline void attend(const problem& p, const work_plan& w, int n_query, float* out, float* lse, const workspace& memory,
                   const parallel_for& parallel) {
  const tile_format& f = *p.sequence.format;
  const walk_table& walk = active_walk();
  std::byte* base = align_workspace(memory);
  const auto range_end = [&](int range) {
    const int end = (range + 1) * range_entries;
    return end < p.sequence.entry_count ? end : p.sequence.entry_count;
  };
  std::byte* states = base + static_cast<std::size_t>(w.tasks) * w.slice_bytes;
  const auto state_of = [&](int item) {
    return place_state(p.group, reinterpret_cast<float*>(states + static_cast<std::size_t>(item) * w.state_bytes));
  };
  const auto body = [&](int t) {
    const task_memory m = slice(f, p.group, w, base, t);
    for (int item = t; item < w.items; item += w.tasks) {
      if (n_query == 1) {  // all heads of a range, then the next range: that is how they lie in memory
        const int range = item / f.kv_heads;
        const int head = item % f.kv_heads;
        walk.attend_range(p, 0, head, range * range_entries, range_end(range), m.buffers,
                          state_of(head * w.ranges + range));
        continue;
      }
      const int query = item / f.kv_heads;
      const int head = item % f.kv_heads;
      walk.attend_range(p, query, head, 0, range_end(0), m.buffers, m.state);
      for (int range = 1; range < w.ranges; ++range) {
        walk.attend_range(p, query, head, range * range_entries, range_end(range), m.buffers, m.part);
        walk.merge(f, p.group, m.part, m.state);
      }
      write_result(p, m.state, query, head, out, lse);
    }
  };
  run_tasks(w.tasks, parallel, body);
  if (n_query != 1) return;
  for (int head = 0; head < f.kv_heads; ++head) {
    const softmax_state whole = state_of(head * w.ranges);
    for (int range = 1; range < w.ranges; ++range) walk.merge(f, p.group, state_of(head * w.ranges + range), whole);
    write_result(p, whole, 0, head, out, lse);
  }
}

}  // namespace detail
KVAXIS_END_NAMESPACE
