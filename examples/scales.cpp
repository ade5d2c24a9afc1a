// scales: FP8 and int8 caches with the scales of a file, measured, written and shown.
#include <fstream>
#include <kvaxis/eigen.hpp>
#include <kvaxis/eval/metrics.hpp>
#include <kvaxis/io/calibrator.hpp>
#include <kvaxis/io/save_scales.hpp>
#include <kvaxis/kvaxis.hpp>

#include "common/arguments.hpp"
#include "common/normal.hpp"
#include "common/table.hpp"
#include "llm/mapped_file.hpp"

namespace {

constexpr const char help[] = R"(usage: scales [--json] [--seed N] [--write FILE]
       scales [--json] --show FILE

Calibrates scales on 1024 tokens of normally distributed keys and values, writes them as a safetensors file, reads that
file, makes caches from it and appends 1024 other tokens of the same kind. The 4 kv heads have sizes from 0.5 to 4 (keys)
and from 0.002 to 2 (values), and in the keys channels 3, 17, 44 and 91 of 128 are 60 times as large. Prints, next to the
same with a scale of 1,
  clipped   numbers beyond the scale's range, which became its end
  keys      the relative error of keys, mean and largest of the heads
  values    the same of values

  --write FILE   keep the file with a scale for each head
  --show FILE    the tensors of a safetensors file with "scal" in their names, and their smallest and largest numbers
  --json         the same figures as JSON
  --seed N       another sample (1)
  --help         this text
)";

constexpr const char module[] = "model.layers.{}.self_attn";
constexpr int kv_heads = 4;
constexpr int dim = 128;
constexpr int tokens = 1024;

using kvaxis::row_matrix;

struct sample {
  row_matrix keys = row_matrix(tokens, kv_heads* dim);
  row_matrix values = row_matrix(tokens, kv_heads* dim);

  explicit sample(normal_numbers& normal) {
    normal.fill(keys.data(), static_cast<std::size_t>(keys.size()));
    normal.fill(values.data(), static_cast<std::size_t>(values.size()));
    for (int h = 0; h < kv_heads; ++h) {
      keys.middleCols(h * dim, dim) *= std::ldexp(0.5F, h);
      values.middleCols(h * dim, dim) *= 0.002F * std::pow(10.0F, static_cast<float>(h));
      for (const int outlier : {3, 17, 44, 91}) keys.col(h * dim + outlier) *= 60;
    }
  }
};

struct errors {
  double mean = 0;
  double largest = 0;
};

errors errors_of_heads(const row_matrix& exact, const row_matrix& decoded) {
  errors e;
  for (int h = 0; h < kv_heads; ++h) {
    const double head = kvaxis::relative_error(exact.middleCols(h * dim, dim), decoded.middleCols(h * dim, dim));
    e.mean += head / kv_heads;
    e.largest = std::max(e.largest, head);
  }
  return e;
}

class demo {
 public:
  explicit demo(std::uint64_t seed) : normal_(seed), calibration_(normal_), data_(normal_) {
    config_.kv_heads = kv_heads;
    config_.head_dim = dim;
    config_.window = 0;
    config_.pins = 0;
    config_.out_of_range = kvaxis::on_bad_input::replace;
    kvaxis::check(kvaxis::make_rope({dim}, config_.rope));
  }

  template <class Codec>
  void measure() {
    kvaxis::layer_scales ones;
    ones.count = 1;
    ones.k[0] = ones.v[0] = 1.0F;
    add<Codec>("1", ones);
    add<Codec>("one", from_file(calibrated_file<Codec>(1)));
    add<Codec>("one per head", from_file(calibrated_file<Codec>(kv_heads)));
  }

  // What a calibrator makes of other tokens than the cache gets; 10 % of room for what it has not seen.
  template <class Codec>
  std::string calibrated_file(int count) const {
    kvaxis::calibrator seen;
    kvaxis::check(kvaxis::calibrator::create(config_, seen));
    kvaxis::check(seen.observe(calibration_.keys.data(), calibration_.values.data(), tokens));
    kvaxis::layer_scales scales;
    constexpr kvaxis::bound_policy policy = kvaxis::bind<kvaxis::per_tensor<Codec>>;
    kvaxis::check(seen.scales(policy, policy, count, 1.1F, scales));
    std::string file;
    kvaxis::check(kvaxis::save_scales(&scales, 1, module, [&](const void* bytes, std::size_t n) {
      file.append(static_cast<const char*>(bytes), n);
      return true;
    }));
    return file;
  }

  [[nodiscard]] const table& results() const { return table_; }

 private:
  static kvaxis::layer_scales from_file(const std::string& bytes) {
    kvaxis::safetensors file;
    kvaxis::check(kvaxis::safetensors::open(bytes.data(), bytes.size(), file));
    kvaxis::layer_scales scales;
    kvaxis::check(kvaxis::load_scales(&file, 1, module, 0, kv_heads, scales));
    return scales;
  }

  template <class Codec>
  void add(const char* kind, const kvaxis::layer_scales& scales) {
    using policy = kvaxis::per_tensor<Codec>;
    kvaxis::kv_cache<policy, policy> cache;
    kvaxis::check(cache.create(scales.apply(config_), cache));
    kvaxis::check(kvaxis::append(cache, data_.keys, data_.values));
    row_matrix keys(tokens, kv_heads * dim);
    row_matrix values(tokens, kv_heads * dim);
    kvaxis::check(kvaxis::read_keys(cache, 0, keys));
    kvaxis::check(kvaxis::read_values(cache, 0, values));
    const errors k = errors_of_heads(data_.keys, keys);
    const errors v = errors_of_heads(data_.values, values);
    table_.add({Codec::name, kind, cell(static_cast<double>(scales.k[0]), 3), cell(static_cast<double>(scales.v[0]), 3),
                cache.replaced(), cell(k.mean, 3), cell(k.largest, 3), cell(v.mean, 3), cell(v.largest, 3)});
  }

  normal_numbers normal_;
  sample calibration_;
  sample data_;
  kvaxis::cache_config config_;
  table table_{{{"codec", "codec"},
                {"scales", "scales"},
                {"k_scale", "k_scale"},
                {"v_scale", "v_scale"},
                {"clipped", "clipped"},
                {"key_error", "keys"},
                {"worst_key_error", "worst head"},
                {"value_error", "values"},
                {"worst_value_error", "worst head"}}};
};

table tensors_of(const std::string& path) {
  const llm::mapped_file bytes(path);
  kvaxis::safetensors file;
  kvaxis::check(kvaxis::safetensors::open(bytes.data(), bytes.size(), file));
  table out(
      {{"name", "tensor"}, {"dtype", "dtype"}, {"shape", "shape"}, {"smallest", "smallest"}, {"largest", "largest"}});
  kvaxis::check(file.for_each([&](kvaxis::json_text name, const kvaxis::tensor_view& t) {
    if (name.written().find("scal") == std::string_view::npos) return;
    std::string shape = "[";
    for (int i = 0; i < t.rank; ++i) shape += (i > 0 ? "," : "") + std::to_string(t.shape[static_cast<std::size_t>(i)]);
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    double x = 0;
    for (std::uint64_t i = 0; i < t.count && kvaxis::read_number(t, i, x); ++i) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
    const auto number = [](double n) { return std::isfinite(n) ? cell(n, 9) : cell(); };
    out.add({std::string(name.written()), std::string(t.dtype), shape + "]", number(low), number(high)});
  }));
  return out;
}

void show(const table& t, bool json) {
  if (json) {
    std::printf("{\n");
    t.print_json();
    std::printf("}\n");
  } else if (t.size() > 0) {
    t.print(0, t.size());
  } else {
    std::printf("no tensor with \"scal\" in its name\n");
  }
}

void run(arguments& given) {
  const bool json = given.flag("--json");
  if (const auto path = given.text("--show")) {
    given.finish();
    return show(tensors_of(*path), json);
  }
  const auto path = given.text("--write");
  const auto seed = static_cast<std::uint64_t>(given.integer("--seed", 0, 1 << 30).value_or(1));
  given.finish();
  demo d(seed);
  d.measure<kvaxis::e4m3>();
  d.measure<kvaxis::int8s>();
  show(d.results(), json);
  if (!path) return;
  const std::string bytes = d.calibrated_file<kvaxis::e4m3>(kv_heads);
  std::ofstream out(*path, std::ios::binary);
  if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
    throw std::runtime_error("cannot write " + *path);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_example("scales", help, argc, argv, run); }
