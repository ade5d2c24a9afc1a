// Attention over one layer of one sequence: checks, splits the work into tasks, and merges what they bring.
#pragma once

#include <cmath>

#include "../function_ref.hpp"
#include "walk.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Blocks of queries that a call of n queries can have at most, wherever its positions begin.
[[nodiscard]] inline int most_blocks(int n_query, int group) noexcept {
  const int size = block_queries(group);
  return n_query <= 1 ? n_query : (n_query + size - 2) / size + 1;
}

// The blocks of a call: queries up to the next multiple of block_queries().
struct query_blocks {
  std::int64_t first_position;
  std::int64_t first_multiple;
  int size;
  int n_query;
  int count;

  query_blocks(std::int64_t position, int n, int group) noexcept
      : first_position(position), size(block_queries(group)), n_query(n) {
    first_multiple = floor_to_multiple(position, size);
    count = static_cast<int>((position + n - first_multiple + size - 1) / size);
  }
  [[nodiscard]] query_block block(int index, int head, int heads) const noexcept {
    const std::int64_t begin = first_multiple + static_cast<std::int64_t>(index) * size - first_position;
    const std::int64_t end = begin + size < n_query ? begin + size : n_query;
    const std::int64_t first = begin > 0 ? begin : 0;
    return {static_cast<int>(first), static_cast<int>(end - first), head, heads};
  }
};

// Work is cut into items: (range of entries, block of queries, some kv heads), each with a state of its own, merged at
// the end. With more blocks than tasks an item is (block, kv head), walking its ranges in order. The bits are the same.
// One block reads faster than it computes, and memory is read fastest in order: an item then is as many kv heads as leave
// an item for every task.
struct work_plan {
  int ranges = 0;
  int heads = 1;    // kv heads of an item; divides kv_heads
  int columns = 0;  // items of a range
  bool split = false;
  int items = 0;
  int tasks = 0;
  int rows = 0;                 // of an item's kv head, at most
  std::size_t slice_bytes = 0;  // scratch of a task
  std::size_t state_bytes = 0;  // of an item

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(tasks) * slice_bytes + static_cast<std::size_t>(items) * state_bytes + 64;
  }
};

inline work_plan plan_work(const tile_format& f, int entry_count, int blocks, int n_query, int group,
                           int max_tasks) noexcept {
  const int size = block_queries(group);
  work_plan w;
  w.rows = (n_query < size ? n_query : size) * group;
  w.ranges = entry_count == 0 ? 1 : (entry_count + range_entries - 1) / range_entries;
  w.split = blocks * f.kv_heads < max_tasks || blocks == 1;
  if (blocks == 1) {
    w.heads = f.kv_heads;
    while (w.heads > 1 && (f.kv_heads % w.heads != 0 || w.ranges * (f.kv_heads / w.heads) < max_tasks)) --w.heads;
  }
  w.columns = blocks * (f.kv_heads / w.heads);
  w.items = w.columns * (w.split ? w.ranges : 1);
  w.tasks = w.items < max_tasks ? w.items : max_tasks;
  const std::size_t state_bytes = round_up(state_floats(f, w.heads * w.rows) * sizeof(float), std::size_t{64});
  w.state_bytes = w.split ? state_bytes : 0;
  w.slice_bytes = scratch_bytes(f, w.heads, w.rows) + 2 * state_bytes;
  return w;
}

// Bytes that are enough for any first position.
inline std::size_t most_bytes(const tile_format& f, int entry_count, int n_query, int group, int max_tasks) noexcept {
  std::size_t most = 0;
  for (int blocks = (n_query + block_queries(group) - 1) / block_queries(group); blocks <= most_blocks(n_query, group);
       ++blocks) {
    const std::size_t bytes = plan_work(f, entry_count, blocks, n_query, group, max_tasks).bytes();
    most = bytes > most ? bytes : most;
  }
  return most;
}

inline std::byte* align_workspace(const workspace& w) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(w.data);
  return static_cast<std::byte*>(w.data) + (round_up(address, std::uintptr_t{64}) - address);
}

struct task_memory {
  scratch buffers;
  softmax_state state;
  softmax_state part;  // of one range, before it is merged
};
inline task_memory slice(const tile_format& f, const work_plan& w, std::byte* base, int task) noexcept {
  const int rows = w.heads * w.rows;
  arena a(base + static_cast<std::size_t>(task) * w.slice_bytes);
  task_memory m;
  m.buffers = place_scratch(f, w.heads, w.rows, a);
  m.state = place_state(rows, a.take<float>(state_floats(f, rows)));
  m.part = place_state(rows, a.take<float>(state_floats(f, rows)));
  return m;
}

// For calls that take one query and one kv head at a time: never more than any plan's slice.
inline task_memory single_slice(const tile_format& f, int group, const workspace& memory) noexcept {
  work_plan one;
  one.rows = group;
  return slice(f, one, align_workspace(memory), 0);
}

// Out = sums / totals, and the log-sum-exp; a query that saw no key gets 0 and minus infinity.
inline void write_result(const problem& p, const query_block& b, const softmax_state& s, float* out,
                         float* lse) noexcept {
  const tile_format& f = *p.sequence.format;
  for (int i = 0; i < b.heads * b.queries * p.group; ++i) {
    const int query = b.first + i / p.group % b.queries;
    const int head = b.head + i / (b.queries * p.group);
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(query) * p.query_heads + head * p.group + i % p.group;
    const float total = s.totals[i];
    const float inverse = total > 0.0F ? 1.0F / total : 0.0F;
    const float* sums = s.sums + i * sum_stride(f) + first_sum(f);
    for (int c = 0; c < f.value_dim; ++c) out[row * f.value_dim + c] = total > 0.0F ? sums[c] * inverse : 0.0F;
    if (lse != nullptr) lse[row] = total > 0.0F ? s.maxima[i] + std::log(total) : bits_float(0xFF800000U);
  }
}

inline void run_tasks(int tasks, const parallel_for& parallel, task body) {
  if (parallel && tasks > 1) return parallel(tasks, body);
  for (int t = 0; t < tasks; ++t) body(t);
}

inline void attend(const problem& p, const query_blocks& blocks, const work_plan& w, float* out, float* lse,
                   const workspace& memory, const parallel_for& parallel) {
  const tile_format& f = *p.sequence.format;
  const walk_table& walk = active_walk();
  std::byte* base = align_workspace(memory);
  const auto range_end = [&](int range) {
    const int end = (range + 1) * range_entries;
    return end < p.sequence.entry_count ? end : p.sequence.entry_count;
  };
  std::byte* states = base + static_cast<std::size_t>(w.tasks) * w.slice_bytes;
  const auto state_of = [&](int item, int rows) {
    return place_state(rows, reinterpret_cast<float*>(states + static_cast<std::size_t>(item) * w.state_bytes));
  };
  const int parts = f.kv_heads / w.heads;
  const auto body = [&](int t) {
    const task_memory m = slice(f, w, base, t);
    for (int item = t; item < w.items; item += w.tasks) {
      const query_block b = blocks.block(item % w.columns / parts, item % parts * w.heads, w.heads);
      const int rows = b.heads * b.queries * p.group;
      if (w.split) {  // all heads of a range, then the next range: that is how they lie in memory
        const int range = item / w.columns;
        walk.attend_range(p, b, range * range_entries, range_end(range), m.buffers, state_of(item, rows));
        continue;
      }
      walk.attend_range(p, b, 0, range_end(0), m.buffers, m.state);
      for (int range = 1; range < w.ranges; ++range) {
        walk.attend_range(p, b, range * range_entries, range_end(range), m.buffers, m.part);
        walk.merge(f, rows, m.part, m.state);
      }
      write_result(p, b, m.state, out, lse);
    }
  };
  run_tasks(w.tasks, parallel, body);
  if (!w.split) return;
  for (int column = 0; column < w.columns; ++column) {
    const query_block b = blocks.block(column / parts, column % parts * w.heads, w.heads);
    const int rows = b.heads * b.queries * p.group;
    const softmax_state whole = state_of(column, rows);
    for (int range = 1; range < w.ranges; ++range) {
      walk.merge(f, rows, state_of(range * w.columns + column, rows), whole);
    }
    write_result(p, b, whole, out, lse);
  }
}

}  // namespace detail
KVAXIS_END_NAMESPACE
