// ship: prefill on one machine, decode on another. Here they are two processes with a pipe between them: one fills the
// caches of a model's layers and sends their tiles as soon as they are folded; the other has half of the kv heads, and
// goes on from there.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <kvaxis/io/cache_reader.hpp>
#include <kvaxis/io/cache_writer.hpp>
#include <kvaxis/kvaxis.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"

namespace {

constexpr const char help[] = R"(usage: ship [--json] [--layers N] [--tokens N] [--chunk N]

One process prefills the caches of a model (8 kv heads, 32 query heads, head dim 128, 4.5 bits a number), chunk by chunk,
and after each chunk sends the tiles that were folded, of kv heads 4 to 7. Another process restores these heads and attends
with a query token. Prints what went through the pipe, and fails if the two processes differ in a bit of those heads'
attention.

  --json      the same figures as JSON
  --layers N  of the model (4)
  --tokens N  of the prompt (2000)
  --chunk N   tokens that are prefilled at a time (256)
  --help      this text
)";

constexpr int kv_heads = 8;
constexpr int first_shipped = 4;
constexpr int query_heads = 32;
constexpr int dim = 128;

struct job {
  int layers = 4;
  int tokens = 2000;
  int chunk = 256;
};

// --- A pipe ----------------------------------------------------------------------------------------------------------

struct close_file {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using file = std::unique_ptr<std::FILE, close_file>;

struct pipe_ends {
  file out;  // what is read here ...
  file in;   // ... was written here
};
pipe_ends make_pipe() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe: " + std::string(std::strerror(errno)));
  return {file(fdopen(ends[0], "rb")), file(fdopen(ends[1], "wb"))};
}

void read_exactly(std::FILE* from, void* to, std::size_t bytes) {
  if (std::fread(to, 1, bytes, from) != bytes) throw std::runtime_error("the other process has stopped");
}
void write_all(std::FILE* to, const void* from, std::size_t bytes) {
  if (std::fwrite(from, 1, bytes, to) != bytes) throw std::runtime_error("the other process has stopped");
}

// --- The model -------------------------------------------------------------------------------------------------------

kvaxis::sequence make_caches(const job& j, int heads) {
  kvaxis::cache_config config;
  config.kv_heads = heads;
  config.head_dim = dim;
  kvaxis::check(kvaxis::make_rope({dim}, config.rope));
  const std::vector<kvaxis::layer_config> layers(
      static_cast<std::size_t>(j.layers),
      {config, kvaxis::bind<kvaxis::default_keys>, kvaxis::bind<kvaxis::default_values>});
  kvaxis::sequence out;
  kvaxis::check(kvaxis::sequence::create(layers.data(), j.layers, {}, out));
  return out;
}

// One query token after the prompt, the same in every layer; [query_head][dim].
std::vector<float> attend(const kvaxis::any_kv_cache& cache, int first_query_head) {
  std::vector<float> q(query_heads * dim);
  normal_numbers(7).fill(q.data(), q.size());
  kvaxis::attend_options options;
  options.query_heads = query_heads / kv_heads * cache.format()->kv_heads;
  std::vector<std::byte> memory(cache.workspace_bytes(1, options));
  std::vector<float> out(static_cast<std::size_t>(options.query_heads) * dim);
  kvaxis::check(cache.attend(q.data() + first_query_head * dim, 1, cache.next_position(), options, out.data(), nullptr,
                             {memory.data(), memory.size()}));
  return out;
}

// --- The two machines ------------------------------------------------------------------------------------------------

// Restores its heads from the pipe and answers with their attention, layer by layer.
void decode(const job& j, std::FILE* from, std::FILE* to) {
  kvaxis::sequence caches = make_caches(j, kv_heads - first_shipped);
  kvaxis::restore_options options;
  options.share = {first_shipped, kv_heads};
  kvaxis::cache_reader reader;
  kvaxis::check(kvaxis::cache_reader::create(caches, options, reader));
  std::vector<std::byte> section;
  while (!reader.complete()) {
    section.resize(kvaxis::section_header_bytes);
    read_exactly(from, section.data(), section.size());
    std::size_t bytes = 0;
    kvaxis::check(reader.section_bytes(section.data(), bytes));  // before there is room for so many
    section.resize(bytes);
    read_exactly(from, section.data() + kvaxis::section_header_bytes, bytes - kvaxis::section_header_bytes);
    kvaxis::check(reader.accept(section.data(), section.size()));
  }
  kvaxis::check(reader.commit());
  for (int i = 0; i < caches.layers(); ++i) {
    const std::vector<float> out = attend(caches[i], query_heads / kv_heads * first_shipped);
    write_all(to, out.data(), out.size() * sizeof(float));
  }
}

// Fills the caches and sends them; a row for each chunk that made tiles.
void prefill(const job& j, kvaxis::sequence& caches, std::FILE* to, table& sent) {
  kvaxis::save_options options;
  options.first_head = first_shipped;
  options.end_head = kv_heads;
  kvaxis::cache_writer writer;
  kvaxis::check(kvaxis::cache_writer::create(caches, options, writer));
  std::int64_t bytes = 0;
  const auto sink = [&](const void* data, std::size_t n) {
    bytes += static_cast<std::int64_t>(n);
    return std::fwrite(data, 1, n, to) == n;
  };
  normal_numbers normal(1);
  std::vector<float> keys(static_cast<std::size_t>(j.chunk) * kv_heads * dim);
  std::vector<float> values(keys.size());
  for (int done = 0; done < j.tokens; done += j.chunk) {
    const int n = std::min(j.chunk, j.tokens - done);
    for (int i = 0; i < caches.layers(); ++i) {
      normal.fill(keys.data(), keys.size());
      normal.fill(values.data(), values.size());
      kvaxis::check(caches[i].append(keys.data(), values.data(), n));
    }
    const std::int64_t before = bytes;
    kvaxis::check(writer.send_new(sink));
    sent.add({"while it fills", std::int64_t{done + n}, bytes - before});
  }
  const std::int64_t before = bytes;
  kvaxis::check(writer.finish(sink));
  sent.add({"at the end", std::int64_t{j.tokens}, bytes - before});
  if (std::fflush(to) != 0) throw std::runtime_error("the other process has stopped");
}

void expect_same_attention(const kvaxis::sequence& caches, std::FILE* from) {
  for (int i = 0; i < caches.layers(); ++i) {
    const std::vector<float> here = attend(caches[i], 0);
    std::vector<float> there(here.size() * (kv_heads - first_shipped) / kv_heads);
    read_exactly(from, there.data(), there.size() * sizeof(float));
    if (std::memcmp(there.data(), &*here.end() - there.size(), there.size() * sizeof(float)) != 0) {
      throw std::runtime_error("other bits on the other side, in layer " + std::to_string(i));
    }
  }
}

void run(arguments& given) {
  const bool json = given.flag("--json");
  job j;
  j.layers = static_cast<int>(given.integer("--layers", 1, 128).value_or(j.layers));
  j.tokens = static_cast<int>(given.integer("--tokens", 1, 1 << 20).value_or(j.tokens));
  j.chunk = static_cast<int>(given.integer("--chunk", 1, 1 << 16).value_or(j.chunk));
  given.finish();
  std::signal(SIGPIPE, SIG_IGN);  // a write to a process that has ended then fails, and is reported
  pipe_ends there = make_pipe();
  pipe_ends back = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork: " + std::string(std::strerror(errno)));
  if (child == 0) {
    there.in.reset();
    back.out.reset();
    decode(j, there.out.get(), back.in.get());
    return;
  }
  there.out.reset();
  back.in.reset();
  table sent({{"when", "sent"}, {"tokens", "tokens"}, {"bytes", "bytes"}});
  kvaxis::sequence caches = make_caches(j, kv_heads);
  prefill(j, caches, there.in.get(), sent);
  expect_same_attention(caches, back.out.get());
  int state = 0;
  if (waitpid(child, &state, 0) != child || state != 0) throw std::runtime_error("the other process has failed");
  if (json) {
    std::printf("{\n  \"layers\": %d,\n  \"shipped_heads\": %d,\n", j.layers, kv_heads - first_shipped);
    sent.print_json();
    std::printf("}\n");
    return;
  }
  sent.print(0, sent.size());
  std::printf("\nThe attention of kv heads %d to %d is the same bits in both processes.\n", first_shipped,
              kv_heads - 1);
}

}  // namespace

int main(int argc, char** argv) { return run_example("ship", help, argc, argv, run); }
