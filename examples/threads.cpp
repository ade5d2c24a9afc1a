// threads: attention on the threads of an engine, by a pool of std::thread and by OpenMP.
#include <chrono>
#include <cstring>
#include <kvaxis/kvaxis.hpp>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"
#include "thread_pool.hpp"
#ifdef _OPENMP
#include "openmp.hpp"
#endif

namespace {

constexpr const char help[] = R"(usage: threads [--json] [--threads N] [--tokens N]

Attends with one query token to a 4-bit cache (8 kv heads, 32 query heads, head dim 128) on 1 to N threads: of the pool in
thread_pool.hpp and, where it was compiled in, of OpenMP. Prints the times and fails if the results differ in a bit.

  --json        the same figures as JSON
  --threads N   the most threads; 0 takes one per processor (0)
  --tokens N    tokens in the cache (16384)
  --help        this text
)";

constexpr int kv_heads = 8;
constexpr int query_heads = 32;
constexpr int dim = 128;

using cache = kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int4>, kvaxis::per_token<kvaxis::int4>>;

void fill(cache& c, int tokens) {
  kvaxis::cache_config config;
  config.kv_heads = kv_heads;
  config.head_dim = dim;
  kvaxis::check(kvaxis::make_rope({dim}, config.rope));
  kvaxis::check(cache::create(config, c));
  normal_numbers normal(1);
  constexpr int at_once = 256;  // the same ones over and over
  std::vector<float> keys(at_once * kv_heads * dim);
  std::vector<float> values(keys.size());
  normal.fill(keys.data(), keys.size());
  normal.fill(values.data(), values.size());
  for (int done = 0; done < tokens; done += at_once) {
    kvaxis::check(c.append(keys.data(), values.data(), std::min(at_once, tokens - done)));
  }
}

// One query on a cache; the memory of a call is made once, so that attend() allocates nothing.
class attention {
 public:
  explicit attention(const cache& c) : cache_(c), q_(query_heads * dim), out_(q_.size()) {
    normal_numbers(2).fill(q_.data(), q_.size());
    options_.query_heads = query_heads;
    memory_.resize(cache_.workspace_bytes(1, options_));
  }

  const std::vector<float>& operator()(const kvaxis::parallel_for& parallel) {
    kvaxis::check(cache_.attend(q_.data(), 1, cache_.size(), options_, out_.data(), nullptr,
                                {memory_.data(), memory_.size()}, parallel));
    return out_;
  }

 private:
  const cache& cache_;
  kvaxis::attend_options options_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<std::byte> memory_;
};

// Milliseconds, the median of nine calls after a first one.
double milliseconds(attention& attend, const kvaxis::parallel_for& parallel) {
  using clock = std::chrono::steady_clock;
  attend(parallel);
  double times[9];
  for (double& t : times) {
    const clock::time_point start = clock::now();
    attend(parallel);
    t = std::chrono::duration<double, std::milli>(clock::now() - start).count();
  }
  std::nth_element(times, times + 4, times + 9);
  return times[4];
}

class comparison {
 public:
  explicit comparison(const cache& c) : attend_(c), serial_(attend_({})), serial_time_(milliseconds(attend_, {})) {
    add("none", 1, serial_time_);
  }

  void add(const char* name, int threads, const kvaxis::parallel_for& parallel) {
    const double time = milliseconds(attend_, parallel);
    if (std::memcmp(attend_(parallel).data(), serial_.data(), serial_.size() * sizeof(float)) != 0) {
      throw std::runtime_error(std::string(name) + ": other bits on " + std::to_string(threads) + " threads");
    }
    add(name, threads, time);
  }
  [[nodiscard]] const table& rows() const { return table_; }

 private:
  void add(const char* name, int threads, double time) {
    table_.add({name, std::int64_t{threads}, cell(time, 3), cell(serial_time_ / time, 3)});
  }

  attention attend_;
  std::vector<float> serial_;
  double serial_time_;
  table table_{{{"adapter", "adapter"}, {"threads", "threads"}, {"milliseconds", "ms"}, {"speed_up", "speed-up"}}};
};

void run(arguments& given) {
  const bool json = given.flag("--json");
  const int wanted = static_cast<int>(given.integer("--threads", 0, 1024).value_or(0));
  const int tokens = static_cast<int>(given.integer("--tokens", 1, 1 << 20).value_or(16384));
  given.finish();
  const int most = wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cache c;
  fill(c, tokens);
  comparison all(c);
  for (int n = 1; n <= most; ++n) {
    thread_pool pool(n);
    all.add("thread_pool", n, pool);
  }
#ifdef _OPENMP
  for (int n = 1; n <= most; ++n) {
    omp_set_num_threads(n);
    all.add("openmp", n, &openmp_for);
  }
#endif
  if (json) {
    std::printf("{\n");
    all.rows().print_json();
    std::printf("}\n");
    return;
  }
  all.rows().print(0, all.rows().size());
  std::printf("\nThe results are the same bits in all of them.\n");
}

}  // namespace

int main(int argc, char** argv) { return run_example("threads", help, argc, argv, run); }
