// Attention over layers of sequences: splits the work into tasks, and merges what they bring.
#pragma once

#include <cmath>

#include "../function_ref.hpp"
#include "walk.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Blocks of queries that a call of n queries can have at least and at most, wherever its positions lie.
[[nodiscard]] inline int least_blocks(int n_query, int group) noexcept {
  const int size = block_queries(group);
  return (n_query + size - 1) / size;
}
[[nodiscard]] inline int most_blocks(int n_query, int group, bool any_order) noexcept {
  const int size = block_queries(group);
  if (n_query <= 1 || any_order) return n_query;
  return (n_query + size - 2) / size + 1;
}

// The blocks of a call: queries up to the next multiple of block_queries(); with positions of their own, as many of the
// following ones as lie between the same multiples.
struct query_blocks {
  const std::int64_t* positions;
  std::int64_t first_position;
  std::int64_t first_multiple;
  int size;
  int n_query;
  int count = 0;

  query_blocks(const problem& p, int n) noexcept
      : positions(p.positions), first_position(p.first_position), size(block_queries(p.group)), n_query(n) {
    first_multiple = floor_to_multiple(first_position, size);
    if (n == 0) return;
    if (positions == nullptr) {
      count = static_cast<int>((first_position + n - first_multiple + size - 1) / size);
      return;
    }
    for (int first = 0; first < n; first = end_of(first)) ++count;
  }
  [[nodiscard]] query_block block(int index, int head, int heads) const noexcept {
    if (positions == nullptr) {
      const std::int64_t begin = first_multiple + static_cast<std::int64_t>(index) * size - first_position;
      const std::int64_t end = begin + size < n_query ? begin + size : n_query;
      const std::int64_t first = begin > 0 ? begin : 0;
      return {static_cast<int>(first), static_cast<int>(end - first), head, heads};
    }
    int first = 0;
    for (int i = 0; i < index; ++i) first = end_of(first);
    return {first, end_of(first) - first, head, heads};
  }

 private:
  [[nodiscard]] int end_of(int first) const noexcept {
    const std::int64_t multiple = floor_to_multiple(positions[first], size);
    int end = first + 1;
    while (end < n_query && end - first < size && floor_to_multiple(positions[end], size) == multiple) ++end;
    return end;
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
  int rows = 0;                 // of an item's kv head, at most
  std::size_t slice_bytes = 0;  // scratch of a task
  std::size_t state_bytes = 0;  // of an item
};

inline work_plan plan_work(const sequence_view& s, int blocks, int n_query, int group, int max_tasks) noexcept {
  const int size = block_queries(group);
  const int kv_heads = s.format->kv_heads;
  work_plan w;
  w.rows = (n_query < size ? n_query : size) * group;
  w.ranges = s.entry_count == 0 ? 1 : (s.entry_count + range_entries - 1) / range_entries;
  w.split = blocks * kv_heads < max_tasks || blocks == 1;
  if (blocks == 1) {
    w.heads = kv_heads;
    while (w.heads > 1 && (kv_heads % w.heads != 0 || w.ranges * (kv_heads / w.heads) < max_tasks)) --w.heads;
  }
  w.columns = blocks * (kv_heads / w.heads);
  w.items = w.columns * (w.split ? w.ranges : 1);
  const std::size_t state_bytes = round_up(state_floats(*s.format, w.heads * w.rows) * sizeof(float), std::size_t{64});
  w.state_bytes = w.split ? state_bytes : 0;
  w.slice_bytes = scratch_bytes(s, w.heads, w.rows) + 2 * state_bytes;
  return w;
}

// Bytes of a call with one job.
inline std::size_t bytes_of(const work_plan& w, int max_tasks) noexcept {
  const int tasks = w.items < max_tasks ? w.items : max_tasks;
  return static_cast<std::size_t>(tasks) * w.slice_bytes + static_cast<std::size_t>(w.items) * w.state_bytes + 64;
}

// Bytes that are enough for any positions. From max_tasks blocks on there are no states of items, and all plans alike.
inline std::size_t most_bytes(const sequence_view& s, int n_query, int group, int max_tasks, bool any_order) noexcept {
  std::size_t most = 0;
  const int end = most_blocks(n_query, group, any_order);
  for (int blocks = least_blocks(n_query, group); blocks <= end; ++blocks) {
    const std::size_t bytes = bytes_of(plan_work(s, blocks, n_query, group, max_tasks), max_tasks);
    most = bytes > most ? bytes : most;
    if (blocks > max_tasks) break;
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
inline task_memory place_task(const sequence_view& s, const work_plan& w, std::byte* base) noexcept {
  const int rows = w.heads * w.rows;
  arena a(base);
  task_memory m;
  m.buffers = place_scratch(s, w.heads, w.rows, a);
  m.state = place_state(rows, a.take<float>(state_floats(*s.format, rows)));
  m.part = place_state(rows, a.take<float>(state_floats(*s.format, rows)));
  return m;
}

// For calls that take one query and one kv head at a time: never more than any plan's slice.
inline task_memory single_slice(const sequence_view& s, int group, const workspace& memory) noexcept {
  work_plan one;
  one.rows = group;
  return place_task(s, one, align_workspace(memory));
}

// Out = sums / totals, and the log-sum-exp; a query that saw no key gets 0, and minus infinity or its sink logit.
inline void write_result(const problem& p, const query_block& b, const softmax_state& s, float* out,
                         float* lse) noexcept {
  const tile_format& f = *p.sequence.format;
  for (int i = 0; i < b.heads * b.queries * p.group; ++i) {
    const int query = b.first + i / p.group % b.queries;
    const int query_head = (b.head + i / (b.queries * p.group)) * p.group + i % p.group;
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(query) * p.query_heads + query_head;
    float* const to = out + row * f.value_dim;
    const float* const sums = join_sums(f, s.sums + i * sum_stride(f));
    const bool seen = s.totals[i] > 0.0F;
    float top = s.maxima[i];
    float total = s.totals[i];
    float factor = 1.0F;
    if (p.sink_logits != nullptr) {
      const float sink = p.sink_logits[query_head];
      if (!seen || sink > top) {
        factor = seen ? std::exp(top - sink) : 0.0F;
        top = sink;
        total *= factor;
      }
      total += std::exp(sink - top);
    }
    const float inverse = seen ? factor / total : 0.0F;
    for (int c = 0; c < f.value_dim; ++c) to[c] = seen ? sums[c] * inverse : 0.0F;
    if (lse != nullptr) lse[row] = total > 0.0F ? top + std::log(total) : bits_float(0xFF800000U);
  }
}

inline void run_tasks(int tasks, const parallel_for& parallel, task body) {
  if (parallel && tasks > 1) return parallel(tasks, body);
  for (int t = 0; t < tasks; ++t) body(t);
}

// One call of attend: its items and columns follow those of the jobs before it.
struct attend_job {
  problem p;
  query_blocks blocks;
  work_plan work;
  float* out = nullptr;
  float* lse = nullptr;
  std::int64_t first_item = 0;
  std::byte* states = nullptr;

  attend_job(const problem& what, int n_query, int max_tasks, float* to, float* lse_to) noexcept
      : p(what),
        blocks(what, n_query),
        work(plan_work(what.sequence, blocks.count, n_query, what.group, max_tasks)),
        out(to),
        lse(lse_to) {}

  [[nodiscard]] int parts() const noexcept { return p.sequence.format->kv_heads / work.heads; }
  [[nodiscard]] query_block block_of(int column) const noexcept {
    return blocks.block(column / parts(), column % parts() * work.heads, work.heads);
  }
  [[nodiscard]] int rows_of(const query_block& b) const noexcept { return b.heads * b.queries * p.group; }
  [[nodiscard]] softmax_state state_of(int item, int rows) const noexcept {
    return place_state(rows, reinterpret_cast<float*>(states + static_cast<std::size_t>(item) * work.state_bytes));
  }

  void walk_range(const walk_table& walk, const query_block& b, int range, const scratch& buffers,
                  const softmax_state& into) const noexcept {
    const int end = (range + 1) * range_entries;
    walk.attend_range(p, b, range * range_entries, end < p.sequence.entry_count ? end : p.sequence.entry_count, buffers,
                      into);
  }
  // All heads of a range, then the next range: that is how they lie in memory.
  void run_item(const walk_table& walk, int item, std::byte* slice) const noexcept {
    const query_block b = block_of(item % work.columns);
    const int rows = rows_of(b);
    const task_memory m = place_task(p.sequence, work, slice);
    if (work.split) return walk_range(walk, b, item / work.columns, m.buffers, state_of(item, rows));
    walk_range(walk, b, 0, m.buffers, m.state);
    for (int range = 1; range < work.ranges; ++range) {
      walk_range(walk, b, range, m.buffers, m.part);
      walk.merge(*p.sequence.format, rows, m.part, m.state);
    }
    write_result(p, b, m.state, out, lse);
  }
  // What is left to do when all items of a split job have run.
  void merge_ranges(const walk_table& walk) const noexcept {
    for (int column = 0; work.split && column < work.columns; ++column) {
      const query_block b = block_of(column);
      const softmax_state whole = state_of(column, rows_of(b));
      for (int range = 1; range < work.ranges; ++range) {
        walk.merge(*p.sequence.format, rows_of(b), state_of(range * work.columns + column, rows_of(b)), whole);
      }
      write_result(p, b, whole, out, lse);
    }
  }
};

// Runs jobs on the memory from `base` on, which is aligned. Task t takes the items t, t + tasks, ... of all jobs.
inline void attend(attend_job* jobs, int count, int max_tasks, std::byte* base, const parallel_for& parallel) {
  const walk_table& walk = active_walk();
  std::int64_t items = 0;
  std::size_t slice_bytes = 0;
  for (int i = 0; i < count; ++i) {
    jobs[i].first_item = items;
    items += jobs[i].work.items;
    slice_bytes = std::max(slice_bytes, jobs[i].work.slice_bytes);
  }
  const int tasks = items < max_tasks ? static_cast<int>(items) : max_tasks;
  std::byte* states = base + static_cast<std::size_t>(tasks) * slice_bytes;
  for (int i = 0; i < count; ++i) {
    jobs[i].states = states;
    states += static_cast<std::size_t>(jobs[i].work.items) * jobs[i].work.state_bytes;
  }
  const auto run = [&](int t) {
    const attend_job* job = jobs;
    for (std::int64_t item = t; item < items; item += tasks) {
      while (item >= job->first_item + job->work.items) ++job;
      job->run_item(walk, static_cast<int>(item - job->first_item), base + static_cast<std::size_t>(t) * slice_bytes);
    }
  };
  run_tasks(tasks, parallel, run);
  const int mergers = count < max_tasks ? count : max_tasks;
  const auto merge = [&](int t) {
    for (int i = t; i < count; i += mergers) jobs[i].merge_ranges(walk);
  };
  run_tasks(mergers, parallel, merge);
}

}  // namespace detail
KVAXIS_END_NAMESPACE
