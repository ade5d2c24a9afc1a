// plan: what the cache of a model will take, and how much context fits into a budget, before anything is allocated.
#include <cctype>
#include <cmath>
#include <kvaxis/cache/make_cache.hpp>
#include <kvaxis/cache/plan.hpp>

#include "common/arguments.hpp"
#include "common/table.hpp"

namespace {

constexpr const char help[] = R"(usage:
  plan --model NAME [options]
  plan --layers N --kv-heads N --head-dim N [--value-dim N] [options]
  plan --list

Prints what the KV cache of one sequence takes, in f16 arrays and in the policies of kvaxis: bytes per folded token, memory
at a context with everything counted (the full-precision window, pins, bookkeeping), and what fits a budget: the tokens of
one sequence, and the sequences of that context.

  --model NAME     a model of the list
  --list           the models and their shapes
  --context N      tokens of the sequence (the model's largest context; 131072)
  --memory GIB     a budget in GiB
  --window N       the newest tokens kept in full precision (128)
  --pins N         the first tokens kept in full precision (4)
  --policy P       this policy instead of all
  --json           the same figures as JSON
  --help           this text

Heads are key-value heads, not query heads. All layers are taken to cache all tokens; --context below that is a model's
sliding window. Models with latent attention (MLA) store one key for all heads, which holds the values too (v:latent).
)";

struct model {
  const char* name;
  int layers, kv_heads, head_dim;
  std::int64_t context;
  int latent = 0;  // channels of the key that are the values
};

// From the published configurations; every layer attends to all tokens.
constexpr model models[] = {
    {"Llama-2-7B", 32, 32, 128, 4096},
    {"Llama-2-13B", 40, 40, 128, 4096},
    {"Llama-2-70B", 80, 8, 128, 4096},
    {"Llama-3.2-1B", 16, 8, 64, 131072},
    {"Llama-3.2-3B", 28, 8, 128, 131072},
    {"Llama-3.1-8B", 32, 8, 128, 131072},
    {"Llama-3.1-70B", 80, 8, 128, 131072},
    {"Llama-3.3-70B", 80, 8, 128, 131072},
    {"Llama-3.1-405B", 126, 8, 128, 131072},
    {"Mistral-7B-v0.3", 32, 8, 128, 32768},
    {"Mistral-Nemo-12B", 40, 8, 128, 131072},
    {"Mixtral-8x7B", 32, 8, 128, 32768},
    {"Mixtral-8x22B", 56, 8, 128, 65536},
    {"Qwen2.5-0.5B", 24, 2, 64, 32768},
    {"Qwen2.5-1.5B", 28, 2, 128, 131072},
    {"Qwen2.5-7B", 28, 4, 128, 131072},
    {"Qwen2.5-14B", 48, 8, 128, 131072},
    {"Qwen2.5-32B", 64, 8, 128, 131072},
    {"Qwen2.5-72B", 80, 8, 128, 131072},
    {"Qwen3-0.6B", 28, 8, 128, 40960},
    {"Qwen3-4B", 36, 8, 128, 40960},
    {"Qwen3-8B", 36, 8, 128, 40960},
    {"Qwen3-14B", 40, 8, 128, 40960},
    {"Qwen3-32B", 64, 8, 128, 40960},
    {"Qwen3-30B-A3B", 48, 4, 128, 40960},
    {"Qwen3-235B-A22B", 94, 4, 128, 40960},
    {"Phi-2", 32, 32, 80, 2048},
    {"Phi-3-mini-128k", 32, 32, 96, 131072},
    {"Phi-3-medium-128k", 40, 10, 128, 131072},
    {"phi-4", 40, 10, 128, 16384},
    {"Phi-4-mini", 32, 8, 128, 131072},
    {"SmolLM2-135M", 30, 3, 64, 8192},
    {"SmolLM2-360M", 32, 5, 64, 8192},
    {"SmolLM2-1.7B", 24, 32, 64, 8192},
    {"GLM-4-9B", 40, 2, 128, 131072},
    {"GPT-NeoX-20B", 44, 64, 96, 2048},
    {"Falcon-40B", 60, 8, 64, 2048},
    {"OLMo-2-32B", 64, 8, 128, 4096},
    {"DeepSeek-V2-Lite", 27, 1, 576, 163840, 512},
    {"DeepSeek-V2", 60, 1, 576, 163840, 512},
    {"DeepSeek-V3", 61, 1, 576, 163840, 512},
};

// Every codec, and the groups and pairings that differ in size.
constexpr const char* policies[] = {
    "k:f32,v:f32",
    "k:f16,v:f16",
    "k:bf16,v:bf16",
    "k:int8f32-channel64-pre,v:int8f32-token64",
    "k:int8-channel64-pre,v:int8-token64",
    "k:int8s-channel64-pre,v:int8s-token64",
    "k:e4m3-tensor@1.0-pre,v:e4m3-tensor@1.0",
    "k:e5m2-tensor@1.0-pre,v:e5m2-tensor@1.0",
    "k:e4m3-channel64-pre,v:e4m3-token64",
    "k:int8-channel64-pre,v:int4-token64",
    "k:int4f32-channel64-pre,v:int4f32-token64",
    "k:int4-channel32-pre,v:int4-token32",
    "k:int4-channel64-pre,v:int4-token64",
    "k:int4-channel64-auto,v:int4-token64",
    "k:int4-token64-post,v:int4-token64",
    "k:int4-channel128-pre,v:int4-token128",
    "k:int4s-channel64-pre,v:int4s-token64",
    "k:int4-channel256-pre,v:int4-token128",
};

std::vector<std::string> known_policies(bool latent) {
  std::vector<std::string> out;
  for (std::string name : policies) {
    if (latent) name = name.substr(0, name.find(",v:")) + ",v:latent";
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct request {
  std::string model = "given shape";
  int layers = 0;
  kvaxis::cache_config config;
  bool latent = false;
  std::int64_t context = 131072;
  std::optional<double> memory;  // bytes
  std::vector<std::string> policies;

  [[nodiscard]] int value_dim() const { return config.value_dim == 0 ? config.head_dim : config.value_dim; }
  // Keys and values of a token in all layers.
  [[nodiscard]] std::int64_t numbers() const {
    return static_cast<std::int64_t>(layers) * config.kv_heads * (config.head_dim + (latent ? 0 : value_dim()));
  }
};

request parse(arguments& given) {
  request r;
  const auto size = [&](const char* name, std::int64_t low, std::int64_t high) {
    return static_cast<int>(given.integer(name, low, high).value_or(0));
  };
  if (const std::optional<std::string> name = given.text("--model")) {
    const auto* found = std::find_if(std::begin(models), std::end(models),
                                     [&](const model& m) { return lower(m.name) == lower(*name); });
    if (found == std::end(models)) throw usage_error("unknown model " + *name + "; --list shows the known ones");
    r.model = found->name;
    r.layers = found->layers;
    r.config.kv_heads = found->kv_heads;
    r.config.head_dim = found->head_dim;
    r.config.value_dim = found->latent;
    r.latent = found->latent > 0;
    r.context = found->context;
  } else {
    r.layers = size("--layers", 1, 512);
    r.config.kv_heads = size("--kv-heads", 1, kvaxis::max_kv_heads);
    r.config.head_dim = size("--head-dim", kvaxis::min_head_dim, kvaxis::max_head_dim);
    r.config.value_dim = size("--value-dim", kvaxis::min_head_dim, kvaxis::max_head_dim);
    if (r.layers == 0 || r.config.kv_heads == 0 || r.config.head_dim == 0) {
      throw usage_error("--model, or --layers, --kv-heads and --head-dim are needed");
    }
  }
  r.context = given.integer("--context", 1, kvaxis::max_position).value_or(r.context);
  r.memory = given.positive("--memory");
  if (r.memory) *r.memory *= 0x1p30;
  r.config.window = static_cast<int>(given.integer("--window", 0, 1 << 30).value_or(r.config.window));
  r.config.pins = static_cast<int>(given.integer("--pins", 0, kvaxis::max_tile_tokens).value_or(r.config.pins));
  const auto policy = given.text("--policy");
  r.policies = policy ? std::vector<std::string>{*policy} : known_policies(r.latent);
  kvaxis::rope_parameters rope;
  rope.head_dim = r.config.head_dim;
  rope.first_channel = r.latent ? r.config.value_dim : 0;
  rope.rotary_dim = (r.config.head_dim - rope.first_channel) / 2 * 2;
  kvaxis::check(kvaxis::make_rope(rope, r.config.rope));
  return r;
}

// One policy's cache of all layers.
class planner {
 public:
  planner(const request& r, const std::string& policy) {
    kvaxis::check(kvaxis::find_policy(policy, policy_));
    config_ = policy_.apply(r.config);
    layers_ = {&config_, policy_.keys, policy_.values, r.layers};
  }
  planner(const planner&) = delete;
  planner& operator=(const planner&) = delete;

  [[nodiscard]] std::int64_t bytes(std::int64_t tokens) const {
    kvaxis::cache_bytes out;
    kvaxis::check(kvaxis::plan_sequence(&layers_, 1, tokens, out));
    return static_cast<std::int64_t>(out.total());
  }
  [[nodiscard]] double bytes_per_token() const {
    double out = 0;
    kvaxis::check(kvaxis::plan_token(&layers_, 1, out));
    return out;
  }
  // The longest sequence that takes at most `budget` bytes.
  [[nodiscard]] std::int64_t tokens_in(double budget) const {
    std::int64_t out = 0;
    kvaxis::check(kvaxis::plan_tokens(&layers_, 1, static_cast<std::size_t>(budget), out));
    return out;
  }
  // How many sequences of so many tokens do.
  [[nodiscard]] std::int64_t sequences_in(double budget, std::int64_t tokens) const {
    std::int64_t out = 0;
    kvaxis::check(kvaxis::plan_sequences(&layers_, 1, tokens, static_cast<std::size_t>(budget), out));
    return out;
  }

 private:
  kvaxis::named_policy policy_;
  kvaxis::cache_config config_;
  kvaxis::planned_layers layers_;
};

void run(arguments& given) {
  if (given.flag("--list")) {
    given.finish();
    table t({{"", "model"}, {"", "layers"}, {"", "kv heads"}, {"", "head dim"}, {"", "context"}});
    for (const model& m : models) {
      t.add({m.name, std::int64_t{m.layers}, std::int64_t{m.kv_heads}, std::int64_t{m.head_dim}, m.context});
    }
    t.print(0, t.size());
    return;
  }
  const bool json = given.flag("--json");
  const request r = parse(given);
  given.finish();

  table t({{"policy", "policy"},
           {"bits_per_value", "bits"},
           {"bytes_per_token", "bytes/token"},
           {"bytes_at_context", ""},
           {"gib_at_context", "GiB at " + std::to_string(r.context)},
           {"share_of_f16", "of f16"},
           {"tokens_in_memory", r.memory ? "tokens that fit" : ""},
           {"sequences_in_memory", r.memory ? "sequences" : ""}});
  const std::int64_t f16_token = 2 * r.numbers();
  const std::int64_t f16_bytes = f16_token * r.context;
  const auto add = [&](const std::string& name, double per_token, std::int64_t bytes, const cell& tokens,
                       const cell& sequences) {
    t.add({name, cell(8 * per_token / static_cast<double>(r.numbers()), 5), cell(per_token, 12), bytes,
           cell(static_cast<double>(bytes) / 0x1p30, 4),
           cell(static_cast<double>(bytes) / static_cast<double>(f16_bytes), 3), tokens, sequences});
  };
  add("f16 arrays", static_cast<double>(f16_token), f16_bytes,
      r.memory ? cell(static_cast<std::int64_t>(*r.memory / static_cast<double>(f16_token))) : cell(),
      r.memory ? cell(static_cast<std::int64_t>(*r.memory / static_cast<double>(f16_bytes))) : cell());
  for (const std::string& name : r.policies) {
    const planner p(r, name);
    add(name, p.bytes_per_token(), p.bytes(r.context), r.memory ? cell(p.tokens_in(*r.memory)) : cell(),
        r.memory ? cell(p.sequences_in(*r.memory, r.context)) : cell());
  }

  const auto context = static_cast<long long>(r.context);
  if (!json) {
    std::printf("%s: %d layers, %d kv heads, head dim %d (values %d); one sequence of %lld tokens,\n", r.model.c_str(),
                r.layers, r.config.kv_heads, r.config.head_dim, r.value_dim(), context);
    std::printf("the last %d (to the end of their tile) and the first %d in f32\n\n", r.config.window, r.config.pins);
    t.print(0, t.size());
    return;
  }
  std::printf("{\n  \"model\": \"%s\", \"layers\": %d, \"kv_heads\": %d, \"head_dim\": %d, \"value_dim\": %d,\n",
              r.model.c_str(), r.layers, r.config.kv_heads, r.config.head_dim, r.value_dim());
  std::printf("  \"context\": %lld, \"window\": %d, \"pins\": %d,\n", context, r.config.window, r.config.pins);
  t.print_json();
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) { return run_example("plan", help, argc, argv, run); }
