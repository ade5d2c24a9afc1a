#include "generate.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "chat.hpp"

namespace llm {
namespace {

using timer = std::chrono::steady_clock;

double seconds_since(timer::time_point begin) { return std::chrono::duration<double>(timer::now() - begin).count(); }

// A line about the speed on stderr, rewritten in place on a terminal. There is none while stderr and the text share one
// terminal or file, where it would cut the text to pieces.
class progress {
 public:
  progress() {
    struct stat text = {}, line = {};
    const bool same = ::fstat(STDOUT_FILENO, &text) == 0 && ::fstat(STDERR_FILENO, &line) == 0 &&
                      text.st_dev == line.st_dev && text.st_ino == line.st_ino;
    terminal_ = ::isatty(STDERR_FILENO) != 0;
    every_ = same ? 0 : terminal_ ? 1 : 32;
  }
  void show(int tokens) const {
    if (every_ == 0 || tokens % every_ != 0) return;
    std::fprintf(stderr, "%s%d tokens, %.1f tokens/s%s", terminal_ ? "\r" : "", tokens, tokens / seconds_since(begin_),
                 terminal_ ? "  " : "\n");
  }
  void end() const {
    if (every_ == 1) std::fprintf(stderr, "\n");
  }

 private:
  timer::time_point begin_ = timer::now();
  bool terminal_ = false;
  int every_ = 0;  // tokens between two lines; 0: no lines
};

// Prints text that arrives in pieces of tokens, and of a character only when all of its bytes are there.
class text_printer {
 public:
  void print(const std::string& piece) {
    pending_ += piece;
    flush(complete_utf8(pending_));
  }
  void end() {
    flush(pending_.size());
    std::printf("\n");
  }

 private:
  void flush(std::size_t bytes) {
    std::fwrite(pending_.data(), 1, bytes, stdout);
    std::fflush(stdout);
    pending_.erase(0, bytes);
  }
  std::string pending_;
};

std::vector<int> prompt_tokens(const tokenizer& tokenizer, const generation_request& request) {
  std::vector<int> out = request.chat ? system_message(tokenizer, default_system_prompt) : tokenizer.beginning();
  const std::vector<int> rest = request.chat ? question(tokenizer, request.prompt) : tokenizer.encode(request.prompt);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

// What an f32 cache would have chosen for each token from `first` on, given the same tokens before it and the same
// context.
std::vector<int> f32_choices(const model& model, thread_pool& pool, const cache_options& options,
                             std::vector<int> tokens, int first) {
  cache_options exact;
  exact.policy = "k:f32,v:f32";
  exact.window = static_cast<int>(tokens.size());
  exact.pins = options.pins;
  exact.context = options.context;
  tokens.pop_back();  // nothing is asked about what comes after the last
  layer_caches caches(model.shape(), exact, static_cast<int>(tokens.size()), pool);
  const matrix states = model.feed(tokens, caches);
  std::vector<int> out;
  for (Eigen::Index i = first - 1; i < states.rows(); ++i) out.push_back(most_likely(model.logits(states.row(i))));
  return out;
}

void print_size(const layer_caches& caches, const char* when, int tokens, std::size_t bytes) {
  const auto size = static_cast<double>(bytes), f16 = static_cast<double>(caches.f16_bytes_at(tokens));
  std::printf("%s %d tokens: cache %.2f MiB, in f16 %.2f MiB (%.2f times)\n", when, tokens, size / (1 << 20),
              f16 / (1 << 20), size / f16);
}

// `expected`: what an f32 cache would have chosen for the last tokens.
void print_agreement(const std::vector<int>& tokens, const std::vector<int>& expected) {
  std::size_t equal = 0, equal_at_front = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool same = tokens[tokens.size() - expected.size() + i] == expected[i];
    if (same && equal_at_front == i) ++equal_at_front;
    equal += same ? 1 : 0;
  }
  std::printf("equal to an f32 cache: %.1f %% of the tokens, each given the text before it; the first %zu in a row\n",
              100 * static_cast<double>(equal) / static_cast<double>(expected.size()), equal_at_front);
}

}  // namespace

void generate(const model& model, const tokenizer& tokenizer, thread_pool& pool, const generation_request& request) {
  std::vector<int> tokens = prompt_tokens(tokenizer, request);
  const int prompt_size = static_cast<int>(tokens.size());
  const int limit = request.cache.context, context = limit != 0 ? limit : model.shape().context;
  if (prompt_size == 0) throw gguf_error("the prompt is empty");
  if (prompt_size >= context) throw gguf_error("the prompt is longer than the context");
  const int end = prompt_size + (limit != 0 ? request.tokens : std::min(request.tokens, context - prompt_size));

  layer_caches caches(model.shape(), request.cache, end, pool);
  const auto prompt_begin = timer::now();
  matrix states = model.feed(tokens, caches);
  std::fprintf(stderr, "prompt: %d tokens, %.1f tokens/s\n", prompt_size, prompt_size / seconds_since(prompt_begin));

  text_printer printer;
  if (!request.chat) printer.print(request.prompt);
  const progress line;
  const auto begin = timer::now();
  while (static_cast<int>(tokens.size()) < end) {
    tokens.push_back(most_likely(model.logits(states.bottomRows(1))));
    line.show(static_cast<int>(tokens.size()) - prompt_size);
    if (is_end(tokenizer, tokens.back())) break;
    printer.print(tokenizer.decode(tokens.back()));
    if (static_cast<int>(tokens.size()) < end) states = model.feed({tokens.back()}, caches);
  }
  const double seconds = seconds_since(begin);
  line.end();
  printer.end();

  const std::size_t generated = tokens.size() - static_cast<std::size_t>(prompt_size);
  std::printf("\n%zu tokens, %.1f tokens/s, cache %s, window %d, %d pinned\n", generated,
              static_cast<double>(generated) / seconds, request.cache.policy.c_str(), request.cache.window,
              request.cache.pins);
  if (limit != 0) {
    std::printf("context shifts dropped %zu tokens\n", tokens.size() - 1 - static_cast<std::size_t>(caches.size()));
  }
  print_size(caches, "now, at", caches.size(), caches.bytes());
  print_size(caches, "in a full context of", context, caches.bytes_at(context));
  print_agreement(tokens, f32_choices(model, pool, request.cache, tokens, prompt_size));
}

}  // namespace llm
