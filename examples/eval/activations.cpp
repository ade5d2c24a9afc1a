#include "activations.hpp"

#include <algorithm>
#include <fstream>
#include <kvaxis/formats/half.hpp>

#include "../llm/layer_caches.hpp"

namespace eval {
namespace {

using llm::matrix;

template <class T>
void write(std::ofstream& to, T value) {
  to.write(reinterpret_cast<const char*>(&value), sizeof(T));  // the model's file was little-endian, so the machine is
}

void write_rows(std::ofstream& to, const matrix& rows, Eigen::Index first) {
  for (Eigen::Index i = first * rows.cols(); i < rows.size(); ++i) write(to, kvaxis::to_float16(rows.data()[i]).bits);
}

}  // namespace

void dump_activations(const llm::model& model, thread_pool& pool, const std::vector<int>& tokens,
                      const std::vector<int>& layers, const std::string& path) {
  const llm::model_shape& shape = model.shape();
  const int count = static_cast<int>(tokens.size()), queries_kept = (count + 7) / 8;
  const double theta = shape.theta_of(layers.front());
  for (const int layer : layers) {
    if (shape.theta_of(layer) != theta)
      throw llm::gguf_error("layers that rotate with another theta need another file");
  }
  std::ofstream file(path, std::ios::binary);
  file.write("kvaxact1", 8);
  for (const int field : {static_cast<int>(layers.size()), count, queries_kept, shape.kv_heads, shape.query_heads,
                          shape.head_dim, shape.pairs == kvaxis::rope_layout::interleaved ? 1 : 0}) {
    write(file, std::int32_t{field});
  }
  write(file, theta);
  llm::cache_options exact;
  exact.policy = "k:f32,v:f32";
  exact.window = count;
  llm::layer_caches caches(shape, exact, count, pool);
  (void)model.forward(tokens, [&](int layer, matrix& queries, matrix& keys, const matrix& values) {
    if (std::find(layers.begin(), layers.end(), layer) != layers.end()) {
      write(file, std::int32_t{layer});
      write_rows(file, keys, 0);
      write_rows(file, values, 0);
      write_rows(file, queries, count - queries_kept);
    }
    return caches.attend(layer, queries, keys, values);
  });
  file.close();
  if (!file) throw llm::gguf_error("cannot write " + path);
}

}  // namespace eval
