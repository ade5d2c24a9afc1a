// llm: a language model that decodes on a quantized KV cache.
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "../common/arguments.hpp"
#include "activations.hpp"
#include "evaluate.hpp"
#include "generate.hpp"
#include "lists.hpp"
#include "mapped_file.hpp"

namespace {

constexpr const char help[] = R"(usage:
  llm [--model FILE] --prompt TEXT [--tokens N] [--context N] [--policy P] [--window W] [--pins S] [--raw]
  llm [--model FILE] --lists [--tokens N] [--context N] [--policy P] [--window W] [--pins S] [--json]
  llm [--model FILE] --evaluate FILE --token-offset N --tokens N --window W --pins S --policy P [--policy P2 ...] [--json]
  llm [--model FILE] --evaluate FILE --token-offset N --tokens N --dump-activations FILE --layers A,B

Runs a model of the Llama architecture from a GGUF file (tensors in F32, F16, Q8_0, Q4_1) on a quantized KV cache.

  --model FILE            the model; without it, the one that fetch_model.sh downloads
  --prompt TEXT           generates an answer, greedily, and tells what the cache saved and cost
  --raw                   continues the prompt as it stands, without the chat format
  --lists                 shows a forked system prompt, an answer that is rolled back, and a context that shifts when full
  --context N             the tokens that the cache holds at most; when it is full, the older half goes, but for the pinned
                          ones (256 for the shift of --lists; else generation ends in the model's context)
  --evaluate FILE         compares the predictions for a text from quantized caches with those from an f32 cache
  --token-offset N        the text's first token that is used (0)
  --tokens N              the number of tokens to generate at most (128; 48 for an answer of --lists), or to evaluate (1024)
  --policy P              the cache's formats (k:int4-channel64-auto,v:int4-token64)
  --window W              the newest tokens that are kept exact (128); in an evaluation, 0 quantizes all before attending
  --pins S                the first tokens that are kept exact (4)
  --growth X              by how much rotation must widen a pair's squared ranges for `auto` to keep it hot (2)
  --arithmetic A          of attention: automatic, f32 or int8 (automatic)
  --json                  prints the figures of --evaluate or --lists as JSON
  --dump-activations FILE writes keys, values and queries of the text to a file (the format: llm/activations.hpp)
  --layers A,B            the layers to dump (0)
  --threads N             threads to use; 0 takes one per processor (0)
  --help                  this text
)";

struct options {
  std::string model, dump_to;
  std::optional<std::string> prompt, text;
  std::vector<std::string> policies;
  std::vector<int> layers = {0};
  int tokens = 0, token_offset = 0, window = 128, pins = 4, context = 0, threads = 0;
  float growth = 2.0F;
  kvaxis::arithmetic arithmetic = kvaxis::arithmetic::automatic;
  bool lists = false, raw = false, json = false;
};

std::vector<int> to_list(std::string_view text) {
  std::vector<int> out;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out.emplace_back());
    if (error != std::errc() || end != word.data() + word.size()) throw usage_error("--layers needs numbers like 0,17");
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

kvaxis::arithmetic to_arithmetic(const std::string& name) {
  if (name == "automatic") return kvaxis::arithmetic::automatic;
  if (name == "f32") return kvaxis::arithmetic::f32;
  if (name == "int8") return kvaxis::arithmetic::int8;
  throw usage_error("--arithmetic is automatic, f32 or int8");
}

options parse(arguments& given) {
  options out;
  const auto integer = [&](const char* name, int low, int otherwise) {
    return static_cast<int>(given.integer(name, low, 1 << 30).value_or(otherwise));
  };
  out.prompt = given.text("--prompt");
  out.lists = given.flag("--lists");
  out.text = given.text("--evaluate");
  out.model = given.text("--model").value_or("");
  out.dump_to = given.text("--dump-activations").value_or("");
  while (const std::optional<std::string> policy = given.text("--policy")) out.policies.push_back(*policy);
  if (const std::optional<std::string> layers = given.text("--layers")) out.layers = to_list(*layers);
  out.tokens = integer("--tokens", 1, out.prompt ? 128 : out.lists ? 48 : 1024);
  out.token_offset = integer("--token-offset", 0, out.token_offset);
  out.window = integer("--window", 0, out.window);
  out.pins = integer("--pins", 0, out.pins);
  out.context = integer("--context", 2, out.lists ? 256 : 0);
  out.threads = integer("--threads", 0, out.threads);
  out.growth = static_cast<float>(given.positive("--growth").value_or(2.0));
  if (const std::optional<std::string> name = given.text("--arithmetic")) out.arithmetic = to_arithmetic(*name);
  out.raw = given.flag("--raw");
  out.json = given.flag("--json");
  given.finish();
  if ((out.prompt ? 1 : 0) + (out.text ? 1 : 0) + (out.lists ? 1 : 0) != 1) {
    throw usage_error("one of --prompt, --lists and --evaluate is needed");
  }
  if (!out.text && out.policies.size() > 1) throw usage_error("only --evaluate takes more than one --policy");
  if (!out.text && !out.dump_to.empty()) throw usage_error("--dump-activations needs --evaluate");
  if (out.text && out.context != 0) throw usage_error("--context needs --prompt or --lists");
  if (out.context != 0 && out.context < out.pins + 2) throw usage_error("--context must be at least --pins + 2");
  if (out.policies.empty()) out.policies = {llm::cache_options{}.policy};
  return out;
}

std::string default_model() {
  const char* const directory = std::getenv("KVAXIS_MODEL_DIR");
  const char* const home = std::getenv("HOME");
  const std::string base =
      directory != nullptr ? directory : std::string(home != nullptr ? home : ".") + "/.cache/kvaxis";
  std::string path = base + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::ifstream(path))
    throw llm::gguf_error("there is no " + path + "; run examples/fetch_model.sh, or give --model");
  return path;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string out{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw std::runtime_error("cannot read " + path);
  return out;
}

// The slice of the text's tokens that the options ask for; where the model wants a token before every text, that one
// comes first and counts as one of them.
std::vector<int> text_tokens(const llm::tokenizer& tokenizer, const options& o) {
  const std::vector<int> all = tokenizer.encode(read_text(*o.text));
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t end = std::int64_t{o.token_offset} + o.tokens;
  if (o.tokens < 2 || end > size) {
    throw usage_error("the text has " + std::to_string(size) +
                      " tokens; --token-offset and --tokens (at least 2) ask for " + std::to_string(o.token_offset) +
                      " to " + std::to_string(end));
  }
  std::vector<int> out = tokenizer.beginning();
  out.insert(out.end(), all.begin() + o.token_offset, all.begin() + end - static_cast<std::ptrdiff_t>(out.size()));
  return out;
}

void dump(const llm::model& model, thread_pool& pool, const std::vector<int>& tokens, const options& o) {
  for (const int layer : o.layers) {
    if (layer < 0 || layer >= model.shape().layers) {
      throw usage_error("the model has the layers 0 to " + std::to_string(model.shape().layers - 1));
    }
  }
  if (std::set<int>(o.layers.begin(), o.layers.end()).size() != o.layers.size()) {
    throw usage_error("--layers names a layer twice");
  }
  llm::dump_activations(model, pool, tokens, o.layers, o.dump_to);
}

void run(const options& o) {
  const llm::mapped_file file(o.model.empty() ? default_model() : o.model);
  const llm::gguf_file contents(file.data(), file.size());
  const std::unique_ptr<const llm::tokenizer> read = llm::read_tokenizer(contents);
  const llm::tokenizer& tokenizer = *read;
  thread_pool pool(o.threads);
  const llm::model model(contents, pool);
  if (tokenizer.size() > model.shape().vocabulary) {
    throw llm::gguf_error("the model knows fewer tokens than its tokenizer");
  }
  if (o.context > model.shape().context) {
    throw usage_error("--context is more than the model's, " + std::to_string(model.shape().context));
  }
  const llm::cache_options cache{o.policies.front(), o.window, o.pins, false, o.growth, o.arithmetic, o.context};
  if (o.prompt) {
    llm::generate(model, tokenizer, pool, {*o.prompt, !o.raw, o.tokens, cache});
    return;
  }
  if (o.lists) {
    const llm::lists_report done = llm::run_lists(model, tokenizer, pool, {o.tokens, cache});
    if (o.json) {
      llm::print_json(done);
    } else {
      llm::print_text(done);
    }
    return;
  }
  const std::vector<int> tokens = text_tokens(tokenizer, o);
  if (static_cast<int>(tokens.size()) > model.shape().context) {
    throw usage_error("--tokens is more than the model's context, " + std::to_string(model.shape().context));
  }
  if (!o.dump_to.empty()) {
    dump(model, pool, tokens, o);
    return;
  }
  const llm::evaluation_request request{tokens, o.policies, o.window, o.pins, o.growth, o.arithmetic};
  const llm::evaluation done = llm::evaluate(model, pool, request);
  if (o.json) {
    llm::print_json(request, o.token_offset, done);
  } else {
    llm::print_table(request, done);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("llm", help, argc, argv, [](arguments& given) { run(parse(given)); });
}
