// llm: a language model that decodes on a quantized KV cache.
#include <optional>

#include "../common/arguments.hpp"
#include "arithmetic.hpp"
#include "generate.hpp"
#include "lists.hpp"
#include "load.hpp"

namespace {

constexpr const char help[] = R"(usage:
  llm [--model FILE] --prompt TEXT [--tokens N] [--context N] [--policy P] [--window W] [--pins S] [--raw]
  llm [--model FILE] --lists [--tokens N] [--context N] [--policy P] [--window W] [--pins S] [--json]

Runs a model of the Llama architecture from a GGUF file (tensors in F32, F16, Q8_0, Q4_1) on a quantized KV cache.

  --model FILE            the model; without it, the one that fetch_model.sh downloads
  --prompt TEXT           generates an answer, greedily, and tells what the cache saved and cost
  --raw                   continues the prompt as it stands, without the chat format
  --lists                 shows a forked system prompt, an answer that is rolled back, and a context that shifts when full
  --context N             the tokens that the cache holds at most; when it is full, the older half goes, but for the pinned
                          ones (256 for the shift of --lists; else generation ends in the model's context)
  --tokens N              the number of tokens to generate at most (128; 48 for an answer of --lists)
  --policy P              the cache's formats (k:int4-channel64-auto,v:int4-token64)
  --window W              the newest tokens that are kept exact (128)
  --pins S                the first tokens that are kept exact (4)
  --growth X              by how much rotation must widen a pair's squared ranges for `auto` to keep it hot (2)
  --arithmetic A          of attention: automatic, f32 or int8 (automatic)
  --json                  prints the figures of --lists as JSON
  --threads N             threads to use; 0 takes one per processor (0)
  --help                  this text
)";

struct options {
  std::string model;
  std::optional<std::string> prompt;
  int tokens = 0, threads = 0;
  llm::cache_options cache;
  bool lists = false, raw = false, json = false;
};

options parse(arguments& given) {
  options out;
  const auto integer = [&](const char* name, int low, int otherwise) {
    return static_cast<int>(given.integer(name, low, 1 << 30).value_or(otherwise));
  };
  out.prompt = given.text("--prompt");
  out.lists = given.flag("--lists");
  out.model = given.text("--model").value_or("");
  out.tokens = integer("--tokens", 1, out.prompt ? 128 : 48);
  out.threads = integer("--threads", 0, out.threads);
  out.cache.policy = given.text("--policy").value_or(out.cache.policy);
  out.cache.window = integer("--window", 0, out.cache.window);
  out.cache.pins = integer("--pins", 0, out.cache.pins);
  out.cache.context = integer("--context", 2, out.lists ? 256 : 0);
  out.cache.growth = static_cast<float>(given.positive("--growth").value_or(out.cache.growth));
  out.cache.arithmetic = take_arithmetic(given, out.cache.arithmetic);
  out.raw = given.flag("--raw");
  out.json = given.flag("--json");
  given.finish();
  if (out.prompt.has_value() == out.lists) throw usage_error("one of --prompt and --lists is needed");
  if (out.cache.context != 0 && out.cache.context < out.cache.pins + 2) {
    throw usage_error("--context must be at least --pins + 2");
  }
  return out;
}

void run(const options& o) {
  thread_pool pool(o.threads);
  const llm::loaded_model loaded(o.model, pool);
  const llm::model& model = loaded.weights();
  if (o.cache.context > model.shape().context) {
    throw usage_error("--context is more than the model's, " + std::to_string(model.shape().context));
  }
  if (o.prompt) {
    llm::generate(model, loaded.tokens(), pool, {*o.prompt, !o.raw, o.tokens, o.cache});
    return;
  }
  const llm::lists_report done = llm::run_lists(model, loaded.tokens(), pool, {o.tokens, o.cache});
  if (o.json) {
    llm::print_json(done);
  } else {
    llm::print_text(done);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("llm", help, argc, argv, [](arguments& given) { run(parse(given)); });
}
