// eval: how much a quantized KV cache costs a language model in accuracy.
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "../common/arguments.hpp"
#include "../llm/arithmetic.hpp"
#include "../llm/load.hpp"
#include "activations.hpp"
#include "report.hpp"

namespace {

constexpr const char help[] = R"(usage:
  eval [--model FILE] --text FILE --token-offset N --tokens N --window W --pins S --policy P [--policy P2 ...] [--json]
  eval [--model FILE] --retrieval --window W --pins S --policy P [--policy P2 ...] [--json]
  eval [--model FILE] --text FILE --token-offset N --tokens N --dump-activations FILE --layers A,B

Compares a language model's predictions from quantized KV caches with those from an f32 cache, for every policy:

  bits             of a folded value: bytes of folded tiles over the values in them; the bytes of exact tokens beside it
  KL               mean divergence of the next token's distribution from the f32 cache's, in nats
  same top         share of positions with the f32 cache's likeliest token
  perplexity       of the text; added loss: nats per token more than with the f32 cache, its logarithm's change
  keys, values     relative error of what is folded, against what the cache was given
  logits           relative error of the products of the last eighth of the queries with the folded keys

Beside every mean stands its sampling error, one standard deviation, from the means of batches: 64 positions one after the
other; for keys, values and logits a head of a layer (four layers); for retrieval one question. Divergence, agreement and
perplexity count from the last three quarters of each sequence on.

  --model FILE         a GGUF file; without it, the one that fetch_model.sh downloads
  --policy P           the caches' formats, such as k:int4-channel64-auto,v:int4-token64 (that one); or a codec of ggml,
                       stored behind the rotation and simulated: sim:q8_0, sim:q4_0-hadamard, sim:q8_0,q4_0 (keys, values)
  --window W           the newest tokens that are kept exact (128)
  --pins S             the first tokens that are kept exact (4)
  --prefill MODE       folded: the whole text is quantized before any token attends, itself too (the default at window 0,
                       and only there); streaming: as a decoder attends token by token (the default with a window); one: the
                       first half is one chunk that sees itself exactly and is quantized then, the rest decodes token by
                       token, and only the rest is compared
  --growth X           by how much rotation must widen a pair's squared ranges for `auto` to keep it hot (2)
  --arithmetic A       of attention: automatic, f32 or int8 (f32)
  --threads N          threads to use; 0 takes one per processor (0)
  --json               the same figures as JSON
  --help               this text

with --text FILE:
  --token-offset N     the text's first token that is used (0)
  --tokens N           tokens of a sequence (1024)
  --sequences N        sequences, from stretches of the text one after the other (1)
  --dump-activations F writes keys, values and queries to a file instead (the format: eval/activations.hpp)
  --layers A,B         the layers to dump (0)

with --retrieval, texts of facts, some of which are asked again at the end:
  --lengths A,B        lengths of the texts in tokens (600,1200,2400,4000)
  --answers N          tokens of answers at least, over all lengths (2000)
  --seed N             of the texts (1)
)";

struct options {
  std::string model, dump_to;
  std::optional<std::string> text;
  std::vector<std::string> policies;
  std::vector<int> layers, lengths;
  int tokens = 0, token_offset = 0, sequences = 0, answers = 0, seed = 0, threads = 0;
  eval::cache_settings cache;
  bool retrieval = false, json = false;
};

std::vector<int> take_list(arguments& given, const char* name, std::vector<int> otherwise) {
  const std::optional<std::string> words = given.text(name);
  if (!words) return otherwise;
  std::vector<int> out;
  for (std::string_view rest = *words;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out.emplace_back());
    if (error != std::errc() || end != word.data() + word.size() || out.back() < 0) {
      throw usage_error(std::string(name) + " needs numbers like 0,17");
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (std::set<int>(out.begin(), out.end()).size() != out.size()) {
    throw usage_error(std::string(name) + " has a number twice");
  }
  return out;
}

eval::prefill take_prefill(arguments& given, int window) {
  const std::string name = given.text("--prefill").value_or(window == 0 ? "folded" : "streaming");
  if (name == "streaming") return eval::prefill::streaming;
  if (name == "one") return eval::prefill::one;
  if (name != "folded") throw usage_error("--prefill is folded, streaming or one");
  if (window != 0) throw usage_error("--prefill folded needs --window 0");
  return eval::prefill::folded;
}

options parse(arguments& given) {
  options out;
  const auto integer = [&](const char* name, int low, int otherwise) {
    return static_cast<int>(given.integer(name, low, 1 << 30).value_or(otherwise));
  };
  out.text = given.text("--text");
  out.retrieval = given.flag("--retrieval");
  if (out.text.has_value() == out.retrieval) throw usage_error("one of --text and --retrieval is needed");
  out.model = given.text("--model").value_or("");
  while (const std::optional<std::string> policy = given.text("--policy")) out.policies.push_back(*policy);
  if (out.policies.empty()) out.policies = {llm::cache_options{}.policy};
  out.cache.window = integer("--window", 0, out.cache.window);
  out.cache.pins = integer("--pins", 0, out.cache.pins);
  out.cache.mode = take_prefill(given, out.cache.window);
  out.cache.growth = static_cast<float>(given.positive("--growth").value_or(out.cache.growth));
  out.cache.arithmetic = take_arithmetic(given, out.cache.arithmetic);
  out.threads = integer("--threads", 0, 0);
  out.json = given.flag("--json");
  if (out.text) {
    out.token_offset = integer("--token-offset", 0, 0);
    out.tokens = integer("--tokens", 4, 1024);
    out.sequences = integer("--sequences", 1, 1);
    out.dump_to = given.text("--dump-activations").value_or("");
    if (!out.dump_to.empty()) out.layers = take_list(given, "--layers", {0});
  } else {
    out.lengths = take_list(given, "--lengths", {600, 1200, 2400, 4000});
    out.answers = integer("--answers", 1, 2000);
    out.seed = integer("--seed", 0, 1);
  }
  given.finish();
  return out;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string out{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw std::runtime_error("cannot read " + path);
  return out;
}

// Stretches of the text, one after the other; where the model wants a token before every text, that one comes first and
// counts as one of them.
std::vector<std::vector<int>> text_sequences(const llm::tokenizer& tokenizer, const options& o) {
  const std::vector<int> all = tokenizer.encode(read_text(*o.text));
  const std::int64_t end = o.token_offset + std::int64_t{o.tokens} * o.sequences;
  if (end > static_cast<std::int64_t>(all.size())) {
    throw usage_error("the text has " + std::to_string(all.size()) + " tokens, and " + std::to_string(o.token_offset) +
                      " to " + std::to_string(end) + " are asked for");
  }
  std::vector<std::vector<int>> out;
  for (int i = 0; i < o.sequences; ++i) {
    std::vector<int>& sequence = out.emplace_back(tokenizer.beginning());
    const auto first = all.begin() + o.token_offset + std::ptrdiff_t{i} * o.tokens;
    sequence.insert(sequence.end(), first, first + (o.tokens - static_cast<std::ptrdiff_t>(sequence.size())));
  }
  return out;
}

const char* name_of(eval::prefill mode) {
  return mode == eval::prefill::folded ? "folded" : mode == eval::prefill::streaming ? "streaming" : "one";
}

void print(const options& o, const std::string& what, const std::string& what_json, const table& results) {
  if (o.json) {
    std::printf("{\n%s  \"window\": %d,\n  \"pinned\": %d,\n  \"prefill\": \"%s\",\n", what_json.c_str(),
                o.cache.window, o.cache.pins, name_of(o.cache.mode));
    results.print_json();
    std::printf("}\n");
  } else {
    std::printf("%s; window %d, %d pinned, prefill %s\n\n", what.c_str(), o.cache.window, o.cache.pins,
                name_of(o.cache.mode));
    results.print(0, results.size());
  }
}

void evaluate_text(const llm::loaded_model& loaded, thread_pool& pool, const std::vector<eval::policy>& policies,
                   const options& o) {
  const llm::model& model = loaded.weights();
  if (o.tokens > model.shape().context) {
    throw usage_error("--tokens is more than the model's context, " + std::to_string(model.shape().context));
  }
  const std::vector<std::vector<int>> sequences = text_sequences(loaded.tokens(), o);
  if (!o.dump_to.empty()) {
    for (const int layer : o.layers) {
      if (layer >= model.shape().layers) {
        throw usage_error("the model has the layers 0 to " + std::to_string(model.shape().layers - 1));
      }
    }
    eval::dump_activations(model, pool, sequences.front(), o.layers, o.dump_to);
    return;
  }
  const table results = make_table(eval::evaluate_texts(model, pool, sequences, policies, o.cache));
  const std::string numbers[] = {std::to_string(o.sequences), std::to_string(o.tokens), std::to_string(o.token_offset)};
  print(o, numbers[0] + " x " + numbers[1] + " tokens from token " + numbers[2] + " on",
        "  \"token_offset\": " + numbers[2] + ",\n  \"tokens\": " + numbers[1] + ",\n  \"sequences\": " + numbers[0] +
            ",\n",
        results);
}

void evaluate_retrieval(const llm::loaded_model& loaded, thread_pool& pool, const std::vector<eval::policy>& policies,
                        const options& o) {
  const llm::model& model = loaded.weights();
  std::vector<std::vector<eval::retrieval_text>> texts;
  std::size_t count = 0;
  for (const int length : o.lengths) {
    if (length > model.shape().context) {
      throw usage_error("--lengths: more than the model's context, " + std::to_string(model.shape().context));
    }
    const auto shares = static_cast<int>(o.lengths.size());
    texts.push_back(eval::make_retrieval_texts(loaded.tokens(), length, static_cast<std::uint64_t>(o.seed),
                                               (o.answers + shares - 1) / shares));
    count += texts.back().size();
  }
  const table results = make_table(eval::evaluate_retrieval(model, pool, o.lengths, texts, policies, o.cache));
  const std::string numbers[] = {std::to_string(count), std::to_string(o.seed)};
  print(o, numbers[0] + " texts, seed " + numbers[1],
        "  \"texts\": " + numbers[0] + ",\n  \"seed\": " + numbers[1] + ",\n", results);
}

void run(const options& o) {
  thread_pool pool(o.threads);
  const llm::loaded_model loaded(o.model, pool);
  std::vector<eval::policy> policies;
  for (const std::string& name : o.policies) {
    policies.push_back(eval::find_policy(name, loaded.weights().shape().head_dim));
  }
  if (o.retrieval) {
    evaluate_retrieval(loaded, pool, policies, o);
  } else {
    evaluate_text(loaded, pool, policies, o);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("eval", help, argc, argv, [](arguments& given) { run(parse(given)); });
}
