#include "lists.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "chat.hpp"

namespace llm {
namespace {

using timer = std::chrono::steady_clock;

// Long enough for a tile to leave the default window, and so long that none leaves it during the first answer.
constexpr const char* system_prompt =
    "You are the librarian of a small town by the sea, and you answer the questions of its visitors. You have read "
    "most "
    "of the books on your shelves, and you remember who wrote them, when they wrote them and what they are about. Your "
    "shelves hold stories, maps of the coast, books about the stars, the weather and the sea, and a few newspapers "
    "that "
    "are older than you are. You answer in plain and friendly words, in three sentences at most, and you begin with "
    "the "
    "answer itself. Children often come in after school, so you explain words that are hard, and you give examples "
    "from "
    "everyday life. When a question is about nature, you say what can be seen outside the window: the harbour, the "
    "gulls, "
    "the lighthouse, the fishing boats that come in with the tide, and the hills behind the town. When a question is "
    "about people, you say when they lived and what they are known for. When you do not know something, you say so, "
    "and "
    "you name the shelf where the visitor may find a book about it. You never make up the title of a book. You wish "
    "nobody a good day before they have their answer, and you do not speak about yourself.";
constexpr std::array<const char*, 2> questions = {"What is a lighthouse for?", "Why does the sea rise and fall?"};

// An allocator that knows how much it has given out.
struct counted_memory {
  std::size_t bytes = 0;

  kvaxis::allocator hook() { return {&allocate, &deallocate, this}; }

 private:
  static void* allocate(void* context, std::size_t bytes, std::size_t alignment) noexcept {
    void* const out = kvaxis::allocator::default_allocate(nullptr, bytes, alignment);
    if (out != nullptr) static_cast<counted_memory*>(context)->bytes += bytes;
    return out;
  }
  static void deallocate(void* context, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    static_cast<counted_memory*>(context)->bytes -= bytes;
    kvaxis::allocator::default_deallocate(nullptr, pointer, bytes, alignment);
  }
};

double milliseconds_since(timer::time_point begin) {
  return std::chrono::duration<double, std::milli>(timer::now() - begin).count();
}

void require(bool exact, const char* what) {
  if (!exact) throw std::runtime_error(std::string(what) + " is not exact");
}

// A copy is a fork.
struct conversation {
  layer_caches caches;
  matrix state;  // behind the last layer at the newest token: what the next one is chosen from
};

struct answer {
  std::vector<int> tokens;
  std::vector<matrix> states;  // behind each token

  [[nodiscard]] bool operator==(const answer& other) const { return tokens == other.tokens && states == other.states; }
  // How many tokens at the front are the same.
  [[nodiscard]] int common(const answer& other) const {
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
    return static_cast<int>(differs.first - tokens.begin());
  }
  [[nodiscard]] std::string text(const tokenizer& tokenizer) const {
    std::string out;
    for (const int token : tokens) out += tokenizer.decode(token);
    return out;
  }
};

class demonstration {
 public:
  demonstration(const model& model, const tokenizer& tokenizer, thread_pool& pool, const lists_request& request)
      : model_(model), tokenizer_(tokenizer), pool_(pool), request_(request) {}

  lists_report run() {
    shift();  // first, for it is what a policy may refuse
    fork_and_roll_back();
    return out_;
  }

 private:
  void fork_and_roll_back() {
    counted_memory memory;
    const conversation prefix = start(memory.hook());
    out_.system_tokens = prefix.caches.size();
    const auto begin = timer::now();
    std::array<conversation, 2> forks = {prefix, prefix};
    out_.fork_milliseconds = milliseconds_since(begin) / 2;
    const auto footprint = [&] {
      const auto bytes = [](const conversation& c) { return c.caches.sequence().bytes().total(); };
      return lists_report::footprint{bytes(prefix) + bytes(forks[0]) + bytes(forks[1]), memory.bytes};
    };
    out_.at_fork = footprint();
    for (std::size_t i = 0; i < 2; ++i) ask(questions[i], forks[i]);
    const point asked = {forks[0].caches.size(), forks[0].state, folded(forks[0])};
    const std::array<answer, 2> answers = {reply(forks[0]), reply(forks[1])};
    out_.at_end = footprint();
    for (std::size_t i = 0; i < 2; ++i) {
      out_.answers[i] = answers[i].text(tokenizer_);
      conversation own = start({});
      ask(questions[i], own);
      require(reply(own) == answers[i], "a fork");
    }
    roll_back(forks[0], asked, answers);
  }

  struct point {
    int size;
    matrix state;
    std::int64_t folded;
  };

  // The system prompt in caches of its own.
  [[nodiscard]] conversation start(const kvaxis::allocator& memory) const {
    cache_options options = request_.cache;
    options.context = 0;
    conversation out{layer_caches(model_.shape(), options, 0, pool_, memory), {}};
    feed(system_message(tokenizer_, system_prompt), out);
    return out;
  }
  void feed(const std::vector<int>& tokens, conversation& to) const {
    to.state = model_.feed(tokens, to.caches).bottomRows(1);
  }
  void ask(const char* text, conversation& of) const { feed(question(tokenizer_, text), of); }
  [[nodiscard]] int next(const conversation& c) const { return most_likely(model_.logits(c.state)); }
  [[nodiscard]] answer reply(conversation& from) const {
    answer out;
    const int limit = std::min(request_.tokens, model_.shape().context - from.caches.size());
    while (static_cast<int>(out.tokens.size()) < limit) {
      const int token = next(from);
      if (is_end(tokenizer_, token)) break;
      feed({token}, from);
      out.tokens.push_back(token);
      out.states.push_back(from.state);
    }
    return out;
  }
  [[nodiscard]] static std::int64_t folded(const conversation& c) { return c.caches.sequence()[0].folded_tokens(); }

  // The first question's answer once more, then the other question in its place.
  void roll_back(conversation& c, const point& asked, const std::array<answer, 2>& answers) {
    out_.answer_tokens = static_cast<int>(answers[0].tokens.size());
    out_.quantized = static_cast<int>(folded(c) - asked.folded);
    c.caches.truncate(asked.size);
    c.state = asked.state;
    const answer again = reply(c);
    out_.equal_again = again.common(answers[0]);
    require(out_.quantized != 0 || again == answers[0], "a roll back");

    c.caches.truncate(out_.system_tokens);
    ask(questions[1], c);
    out_.other_tokens = static_cast<int>(answers[1].tokens.size());
    out_.equal_other = reply(c).common(answers[1]);
  }

  // All keys and values, token by token.
  [[nodiscard]] std::vector<float> stored(const layer_caches& caches) const {
    const model_shape& shape = model_.shape();
    std::vector<float> out(static_cast<std::size_t>(caches.size()) * numbers_per_token());
    float* to = out.data();
    for (int token = 0; token < caches.size(); ++token) {
      for (int layer = 0; layer < shape.layers; ++layer) {
        for (int head = 0; head < shape.kv_heads; ++head, to += 2 * shape.head_dim) {
          kvaxis::check(caches.sequence()[layer].read_key(token, head, to));
          kvaxis::check(caches.sequence()[layer].read_value(token, head, to + shape.head_dim));
        }
      }
    }
    return out;
  }
  [[nodiscard]] std::size_t numbers_per_token() const {
    const model_shape& shape = model_.shape();
    return 2 * static_cast<std::size_t>(shape.layers) * static_cast<std::size_t>(shape.kv_heads) *
           static_cast<std::size_t>(shape.head_dim);
  }

  void make_room(layer_caches& caches) {
    if (caches.size() < request_.cache.context) return;
    std::vector<float> kept = stored(caches);
    const auto begin = timer::now();
    const int dropped = caches.make_room();
    out_.shift_milliseconds = std::max(out_.shift_milliseconds, milliseconds_since(begin));
    ++out_.shifts;
    out_.dropped += dropped;

    const auto pins = kept.begin() + static_cast<std::ptrdiff_t>(numbers_per_token()) * request_.cache.pins;
    kept.erase(pins, pins + static_cast<std::ptrdiff_t>(numbers_per_token()) * dropped);
    require(stored(caches) == kept, "a context shift");
  }

  // Goes on until half as many tokens again as the context holds have gone in.
  void shift() {
    out_.context = request_.cache.context;
    conversation c{layer_caches(model_.shape(), request_.cache, request_.cache.context, pool_), {}};
    std::vector<int> tokens = system_message(tokenizer_, default_system_prompt);
    const std::vector<int> asked = question(tokenizer_, "Tell me a long story about a lighthouse.");
    tokens.insert(tokens.end(), asked.begin(), asked.end());
    for (;;) {
      for (const int token : tokens) {
        make_room(c.caches);
        feed({token}, c);
      }
      out_.fed += static_cast<int>(tokens.size());
      if (out_.fed >= request_.cache.context / 2 * 3) return;
      const int token = next(c);
      tokens = is_end(tokenizer_, token) ? question(tokenizer_, "Go on.") : std::vector<int>{token};
      if (tokens.size() == 1 && out_.shifts > 0) out_.text_past_context += tokenizer_.decode(token);
    }
  }

  const model& model_;
  const tokenizer& tokenizer_;
  thread_pool& pool_;
  const lists_request& request_;
  lists_report out_;
};

double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

lists_report run_lists(const model& model, const tokenizer& tokenizer, thread_pool& pool,
                       const lists_request& request) {
  return demonstration(model, tokenizer, pool, request).run();
}

void print_text(const lists_report& done) {
  std::printf("fork: a system prompt of %d tokens, prefilled once, is forked for two questions in %.3f ms each\n",
              done.system_tokens, done.fork_milliseconds);
  for (std::size_t i = 0; i < 2; ++i) std::printf("  > %s\n  %s\n", questions[i], done.answers[i].c_str());
  std::printf("  each is, bit for bit, what caches answer that were given the prompt themselves\n");
  const auto print = [](const char* when, const lists_report::footprint& f) {
    std::printf("  %s, the prompt and its forks take %.2f MiB; if nothing were shared, %.2f MiB\n", when,
                mib(f.together), mib(f.apart));
  };
  print("at the fork", done.at_fork);
  print("after the answers", done.at_end);

  std::printf("\nroll back: of the first answer, generated again, %d of %d tokens are the same\n", done.equal_again,
              done.answer_tokens);
  if (done.quantized == 0) {
    std::printf("  bit for bit, for none had left the window\n");
  } else {
    std::printf("  %d had left the window during the first attempt, which is not undone\n", done.quantized);
  }
  std::printf("  the second question in place of the first: %d of %d tokens are those of the fork\n", done.equal_other,
              done.other_tokens);

  std::printf("\ncontext shift: %d tokens through a context of %d: %d shifts of at most %.3f ms dropped %d tokens\n",
              done.fed, done.context, done.shifts, done.shift_milliseconds, done.dropped);
  std::printf("  the keys and values that stayed are the same bits; the text after the first shift:\n  %s\n",
              done.text_past_context.c_str());
}

void print_json(const lists_report& done) {
  const auto print = [](const char* name, const lists_report::footprint& f) {
    std::printf("    \"%s\": {\"bytes\": %zu, \"bytes_if_nothing_were_shared\": %zu},\n", name, f.together, f.apart);
  };
  std::printf("{\n  \"fork\": {\n    \"system_tokens\": %d,\n", done.system_tokens);
  print("at_the_fork", done.at_fork);
  print("after_the_answers", done.at_end);
  std::printf("    \"milliseconds\": %.6f\n  },\n", done.fork_milliseconds);
  std::printf(
      "  \"roll_back\": {\"tokens\": %d, \"quantized\": %d, \"equal_again\": %d, \"other_tokens\": %d,"
      " \"equal_other\": %d},\n",
      done.answer_tokens, done.quantized, done.equal_again, done.other_tokens, done.equal_other);
  std::printf(
      "  \"context_shift\": {\"context\": %d, \"tokens\": %d, \"shifts\": %d, \"dropped\": %d,"
      " \"milliseconds\": %.6f}\n}\n",
      done.context, done.fed, done.shifts, done.dropped, done.shift_milliseconds);
}

}  // namespace llm
