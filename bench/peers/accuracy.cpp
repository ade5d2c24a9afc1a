// peer_accuracy: how far quantized caches move llama.cpp's predictions for a text. The same tokens pass through several
// contexts of one model, the first with an f16 cache, and the distributions of every position are compared with its own.
#include <llama-cpp.h>
#include <kvaxis/eval/sampling.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "arguments.hpp"
#include "table.hpp"

namespace {

constexpr const char help[] = R"(usage:
  peer_accuracy --model FILE --text FILE [--token-offset N] [--tokens N] [--type-k T --type-v T ...] [--json]

Compares llama.cpp's predictions for a text from caches of the given types with those from its own f16 cache. Caches of
quantized types are measured twice: as llama.cpp rotates them, by a Hadamard matrix, and with LLAMA_ATTN_ROT_DISABLE=1.
The first row is the same f16 cache without flash attention: what a change of mere rounding does to the figures.

  --model FILE      the model in GGUF
  --text FILE       the text
  --token-offset N  the text's first token that is used (0)
  --tokens N        the number of tokens, 512 or more, the first quarter of them not compared (1024); where the model wants
                    a token before every text, that one comes first and counts as one of them
  --type-k T        the keys' type: f16 q8_0 q5_0 q5_1 q4_0 q4_1 iq4_nl
  --type-v T        the values' type; both may be repeated for more caches (q8_0, q8_0 and q4_0, q5_0, q4_0)
  --threads N       threads to use; 0 takes one per processor (0)
  --json            prints the figures as JSON
  --help            this text

The figures are those of eval, and so are the sampling errors beside them: from the means of 64 positions at a time.
)";

constexpr int step = 64;  // tokens that llama.cpp gets at once; their means give the sampling errors, as in eval

struct cache_types {
  ggml_type k, v;
  bool rotated;  // only what is quantized ever is
  bool flash;    // without flash attention there are no quantized values
};

struct options {
  std::string model, text;
  int token_offset = 0, tokens = 1024, threads = 0;
  std::vector<cache_types> caches;
  bool json = false;
};

ggml_type to_type(const std::string& word) {
  for (const ggml_type t : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q4_0,
                            GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL}) {
    if (word == ggml_type_name(t)) return t;
  }
  throw usage_error("unknown type of a cache: " + word);
}

options parse(arguments& given) {
  options out;
  const auto required = [&](const char* name) {
    std::optional<std::string> word = given.text(name);
    if (!word) throw usage_error(std::string(name) + " is missing");
    return *std::move(word);
  };
  const auto integer = [&](const char* name, int low, int otherwise) {
    return static_cast<int>(given.integer(name, low, 1 << 30).value_or(otherwise));
  };
  out.caches = {{GGML_TYPE_F16, GGML_TYPE_F16, false, false}};
  const auto add = [&](ggml_type k, ggml_type v) {
    const bool quantized = ggml_is_quantized(k) || ggml_is_quantized(v);
    out.caches.push_back({k, v, quantized, true});
    if (quantized) out.caches.push_back({k, v, false, true});
  };
  out.model = required("--model");
  out.text = required("--text");
  out.token_offset = integer("--token-offset", 0, 0);
  out.tokens = integer("--tokens", 512, 1024);
  out.threads = integer("--threads", 0, 0);
  if (out.threads == 0) out.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  while (const std::optional<std::string> type_k = given.text("--type-k")) {
    add(to_type(*type_k), to_type(required("--type-v")));
  }
  out.json = given.flag("--json");
  given.finish();
  if (out.caches.size() == 1) {
    add(GGML_TYPE_Q8_0, GGML_TYPE_Q8_0);
    add(GGML_TYPE_Q8_0, GGML_TYPE_Q4_0);
    add(GGML_TYPE_Q5_0, GGML_TYPE_Q5_0);
    add(GGML_TYPE_Q4_0, GGML_TYPE_Q4_0);
  }
  return out;
}

llama_model_ptr load(const std::string& path) {
  llama_model_ptr model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!model) throw std::runtime_error("llama.cpp cannot load " + path);
  return model;
}

std::vector<llama_token> read_tokens(const llama_vocab& vocab, const options& o) {
  std::ifstream file(o.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + o.text);
  std::vector<llama_token> all(text.size() + 1);  // no token stands for less than a byte, but for a space put in front
  const int count = llama_tokenize(&vocab, text.data(), static_cast<int>(text.size()), all.data(),
                                   static_cast<int>(all.size()), false, false);
  if (count - o.token_offset < o.tokens) {
    throw std::runtime_error(o.text + " has " + std::to_string(count) + " tokens, too few for this offset and number");
  }
  std::vector<llama_token> out;
  if (llama_vocab_get_add_bos(&vocab)) out.push_back(llama_vocab_bos(&vocab));
  const auto first = all.begin() + o.token_offset;
  out.insert(out.end(), first, first + o.tokens - static_cast<std::ptrdiff_t>(out.size()));
  return out;
}

llama_context_ptr make_context(llama_model& model, const options& o, const cache_types& types) {
  setenv("LLAMA_ATTN_ROT_DISABLE", types.rotated ? "0" : "1", 1);  // read when a context is made
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(o.tokens);
  params.n_batch = params.n_ubatch = step;
  params.n_threads = params.n_threads_batch = o.threads;
  params.flash_attn_type = types.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = types.k;
  params.type_v = types.v;
  llama_context_ptr context(llama_init_from_model(&model, params));
  if (!context) throw std::runtime_error("llama.cpp refuses a cache of these types");
  return context;
}

class token_batch {
 public:
  token_batch() : batch_(llama_batch_init(step, 0, 1)) {}
  ~token_batch() { llama_batch_free(batch_); }
  token_batch(const token_batch&) = delete;
  token_batch& operator=(const token_batch&) = delete;

  // The tokens first .. end - 1, with logits of those from first_compared on.
  const llama_batch& fill(const std::vector<llama_token>& tokens, int first, int end, int first_compared) {
    batch_.n_tokens = end - first;
    for (int i = 0; i < batch_.n_tokens; ++i) {
      batch_.token[i] = tokens[static_cast<std::size_t>(first + i)];
      batch_.pos[i] = first + i;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = first + i >= first_compared;
    }
    return batch_;
  }

 private:
  llama_batch batch_;
};

// A row of logits as a distribution: probability(i) = exp(logits[i] - log_sum).
struct distribution {
  const float* logits;
  std::ptrdiff_t best;
  double log_sum = 0;

  distribution(const float* row, int size) : logits(row), best(std::max_element(row, row + size) - row) {
    for (int i = 0; i < size; ++i) log_sum += std::exp(static_cast<double>(row[i]) - static_cast<double>(row[best]));
    log_sum = static_cast<double>(row[best]) + std::log(log_sum);
  }
  [[nodiscard]] double log_probability(int i) const { return static_cast<double>(logits[i]) - log_sum; }
};

struct comparison {
  kvaxis::batch_mean kl, same_top, loss, added_loss;  // loss: minus the log probability of the next token
};

struct sums_of_batch {
  double kl = 0, same_top = 0, loss = 0, added_loss = 0;
};

// Of the f16 cache first, then of each of the others.
std::vector<comparison> compare(llama_model& model, const options& o) {
  const llama_vocab& vocab = *llama_model_get_vocab(&model);
  const int size = llama_vocab_n_tokens(&vocab), first_compared = o.tokens / 4;
  const std::vector<llama_token> tokens = read_tokens(vocab, o);
  std::vector<llama_context_ptr> contexts;
  contexts.push_back(make_context(model, o, {GGML_TYPE_F16, GGML_TYPE_F16, false, true}));
  for (const cache_types& types : o.caches) contexts.push_back(make_context(model, o, types));
  std::vector<comparison> out(contexts.size());
  std::vector<double> probabilities(static_cast<std::size_t>(size));
  token_batch batch;
  for (int first = 0; first < o.tokens; first += step) {
    const int end = std::min(o.tokens, first + step), compared = std::max(first, first_compared);
    for (const llama_context_ptr& context : contexts) {
      if (llama_decode(context.get(), batch.fill(tokens, first, end, first_compared)) != 0) {
        throw std::runtime_error("llama.cpp fails at token " + std::to_string(first));
      }
    }
    std::vector<sums_of_batch> sums(contexts.size());
    for (int position = compared; position < end; ++position) {
      const auto row = [&](std::size_t context) {
        return distribution(llama_get_logits_ith(contexts[context].get(), position - first), size);
      };
      const distribution expected = row(0);
      for (int i = 0; i < size; ++i) probabilities[static_cast<std::size_t>(i)] = std::exp(expected.log_probability(i));
      for (std::size_t c = 0; c < contexts.size(); ++c) {
        const distribution found = row(c);
        for (int i = 0; i < size; ++i) {
          sums[c].kl +=
              probabilities[static_cast<std::size_t>(i)] * (expected.log_probability(i) - found.log_probability(i));
        }
        sums[c].same_top += found.best == expected.best ? 1 : 0;
        if (position + 1 == o.tokens) continue;
        const llama_token next = tokens[static_cast<std::size_t>(position + 1)];
        sums[c].loss -= found.log_probability(next);
        sums[c].added_loss += expected.log_probability(next) - found.log_probability(next);
      }
    }
    const int positions = end - compared, predictions = std::min(end, o.tokens - 1) - compared;
    for (std::size_t c = 0; positions > 0 && c < contexts.size(); ++c) {
      out[c].kl.add(sums[c].kl, positions);
      out[c].same_top.add(sums[c].same_top, positions);
      out[c].loss.add(sums[c].loss, predictions);
      out[c].added_loss.add(sums[c].added_loss, predictions);
    }
    std::fprintf(stderr, "\r%d of %d tokens", end, o.tokens);
  }
  std::fprintf(stderr, "\n");
  return out;
}

double bits(ggml_type type) {
  return 8.0 * static_cast<double>(ggml_type_size(type)) / static_cast<double>(ggml_blck_size(type));
}

void print(const options& o, const std::vector<comparison>& done) {
  table t({{"type_k", "keys"},
           {"type_v", "values"},
           {"rotated", "rotated"},
           {"flash_attention", "flash"},
           {"bits_per_value", "bits"},
           {"kl_mean", "KL (nats)"},
           {"kl_error", "+-"},
           {"top1_agreement", "same top"},
           {"top1_error", "+-"},
           {"perplexity", "perplexity"},
           {"perplexity_error", "+-"},
           {"added_loss", "added loss"},
           {"added_loss_error", "+-"}});
  for (std::size_t i = 0; i < o.caches.size(); ++i) {
    const cache_types& types = o.caches[i];
    const comparison& c = done[i + 1];
    std::vector<cell> row = {ggml_type_name(types.k), ggml_type_name(types.v), types.rotated ? "yes" : "no",
                             types.flash ? "yes" : "no", cell((bits(types.k) + bits(types.v)) / 2, 4)};
    const auto add = [&](double mean, double error) {
      row.emplace_back(mean, 6);
      row.emplace_back(error, 2);
    };
    const kvaxis::estimate kl = c.kl.result(), same_top = c.same_top.result(), loss = c.loss.result(),
                           added_loss = c.added_loss.result();
    add(kl.mean, kl.error);
    add(same_top.mean, same_top.error);
    add(std::exp(loss.mean), std::exp(loss.mean) * loss.error);
    add(added_loss.mean, added_loss.error);
    t.add(std::move(row));
  }
  const double f16_perplexity = std::exp(done[0].loss.result().mean);
  if (o.json) {
    std::printf("{\n  \"token_offset\": %d,\n  \"tokens\": %d,\n  \"f16_perplexity\": %.6f,\n", o.token_offset,
                o.tokens, f16_perplexity);
    t.print_json();
    std::printf("}\n");
  } else {
    std::printf("%d tokens; perplexity with an f16 cache %.4f\n\n", o.tokens, f16_perplexity);
    t.print(0, t.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("peer_accuracy", help, argc, argv, [](arguments& given) {
    const options o = parse(given);
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    llama_backend_init();
    print(o, compare(*load(o.model), o));
  });
}
