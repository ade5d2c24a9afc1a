#include "ggml_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "recent.hpp"

namespace bench {
namespace {

lines lines_for(std::size_t bytes) { return lines((bytes + sizeof(cache_line) - 1) / sizeof(cache_line)); }
std::byte* begin(lines& l) { return l.front().bytes; }

// Where number i of [token][kv head][dim] is in another layout of `count` tokens.
std::size_t place(ggml_layout layout, std::size_t i, std::size_t count) {
  constexpr auto channels = static_cast<std::size_t>(kv_heads * ggml_dim);
  const std::size_t token = i / channels;
  const std::size_t channel = i % channels;
  if (layout == ggml_layout::by_token) return i;
  if (layout == ggml_layout::transposed) return channel * count + token;
  return (channel / ggml_dim * count + token) * ggml_dim + channel % ggml_dim;
}

// tokens::count tokens in a layout: pieces that each go on where the tokens are repeated.
struct pieces {
  std::vector<std::byte> bytes;
  std::size_t size;
};

pieces quantize(ggml_type type, ggml_layout layout, const std::vector<float>& x) {
  std::vector<float> numbers(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) numbers[place(layout, i, tokens::count)] = x[i];
  const auto count = static_cast<std::int64_t>(x.size());
  pieces p;
  p.bytes.resize(ggml_row_size(type, count));
  ggml_quantize_chunk(type, numbers.data(), p.bytes.data(), 0, 1, count, nullptr);
  p.size = p.bytes.size();
  if (layout == ggml_layout::by_head) p.size /= kv_heads;
  if (layout == ggml_layout::transposed) p.size /= kv_heads * ggml_dim;
  return p;
}

ggml_side make_side(ggml_type type, ggml_layout layout, int context, const std::vector<float>& x) {
  const pieces p = quantize(type, layout, x);
  const auto repeats = static_cast<std::size_t>(context / tokens::count);
  ggml_side side{type, layout, context, {}};
  std::size_t total = 0;
  do {
    lines layer = lines_for(p.bytes.size() * repeats);
    std::byte* to = begin(layer);
    for (std::size_t at = 0; at < p.bytes.size(); at += p.size) {
      for (std::size_t i = 0; i < repeats; ++i, to += p.size) std::memcpy(to, p.bytes.data() + at, p.size);
    }
    total += p.bytes.size() * repeats;
    side.layers.push_back(std::move(layer));
  } while (context >= memory_context && total < memory_set_bytes / 2);
  return side;
}

const ggml_side& side_of(const char* name, ggml_type type, ggml_layout layout, int context,
                         const std::vector<float>& x) {
  static recent<ggml_side> sides(std::size_t{4} << 30);
  const std::string key = std::string(name) + " " + std::to_string(static_cast<int>(layout)) + " " +
                          ggml_type_name(type) + " " + std::to_string(context);
  return sides.get(key, [&] {
    ggml_side side = make_side(type, layout, context, x);
    const std::size_t bytes = side.layers.size() * side.layers[0].size() * sizeof(cache_line);
    return std::make_pair(std::move(side), bytes);
  });
}

bool by_head(ggml_path p) { return p == ggml_path::flash_by_head || p == ggml_path::grouped; }

// One kv head after the other in `tensor`, although token after token in memory.
void stride_by_token(ggml_tensor* tensor) {
  tensor->nb[2] = tensor->nb[1];
  tensor->nb[1] *= static_cast<std::size_t>(tensor->ne[2]);
}

}  // namespace

const ggml_side& keys_of(const ggml_case& c) {
  const ggml_layout layout = by_head(c.path) ? ggml_layout::by_head : ggml_layout::by_token;
  return side_of("keys", c.types.keys, layout, c.context, tokens_of(ggml_dim).keys);
}

const ggml_side& values_of(const ggml_case& c) {
  const ggml_layout layout = !is_flash(c.path) ? ggml_layout::transposed
                             : by_head(c.path) ? ggml_layout::by_head
                                               : ggml_layout::by_token;
  return side_of("values", c.types.values, layout, c.context, tokens_of(ggml_dim).values);
}

std::vector<float> decoded(const ggml_side& side) {
  std::vector<float> stored(static_cast<std::size_t>(side.context * kv_heads * ggml_dim));
  ggml_get_type_traits(side.type)->to_float(side.layers[0].front().bytes, stored.data(),
                                            static_cast<std::int64_t>(stored.size()));
  std::vector<float> out(stored.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = stored[place(side.layout, i, static_cast<std::size_t>(side.context))];
  }
  return out;
}

std::vector<float> queries_of(int group, int n_query) {
  // The queries of the other benchmarks, or for many of them other normal numbers that no key equals.
  const std::vector<float>& from = n_query == 1 ? tokens_of(ggml_dim).queries : tokens_of(ggml_dim).values;
  std::vector<float> q(static_cast<std::size_t>(n_query * group * kv_heads * ggml_dim));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = from[i % from.size()];
  return q;
}

ggml_attention::ggml_attention(const ggml_case& c) : case_(c), key_side_(keys_of(c)), value_side_(values_of(c)) {
  const bool grouped = c.path == ggml_path::grouped;
  context_ = ggml_init({ggml_tensor_overhead() * 32 + ggml_graph_overhead(), nullptr, true});
  keys_ = ggml_new_tensor_3d(context_, c.types.keys, ggml_dim, c.context, kv_heads);
  if (!by_head(c.path)) stride_by_token(keys_);
  values_ = is_flash(c.path) ? ggml_new_tensor_3d(context_, c.types.values, ggml_dim, c.context, kv_heads)
                             : ggml_new_tensor_3d(context_, c.types.values, c.context, ggml_dim, kv_heads);
  if (c.path == ggml_path::flash) stride_by_token(values_);

  const std::vector<float> numbers = queries_of(c.group, c.n_query);
  ggml_tensor* q = grouped ? ggml_new_tensor_3d(context_, GGML_TYPE_F32, ggml_dim, c.group, kv_heads)
                           : ggml_new_tensor_3d(context_, GGML_TYPE_F32, ggml_dim, c.n_query, c.group * kv_heads);
  if (!grouped) stride_by_token(q);
  q->data = memory(ggml_nbytes(q));
  std::memcpy(q->data, numbers.data(), numbers.size() * sizeof(float));

  ggml_tensor* mask = nullptr;
  if (c.n_query > 1) {
    mask = ggml_new_tensor_2d(context_, GGML_TYPE_F16, c.context, c.n_query);
    mask->data = memory(ggml_nbytes(mask));
    std::vector<float> row(static_cast<std::size_t>(c.context));
    for (int i = 0; i < c.n_query; ++i) {
      const int visible = c.context - c.n_query + i + 1;
      std::fill(row.begin(), row.end(), -INFINITY);
      std::fill_n(row.begin(), visible, 0.0F);
      ggml_fp32_to_fp16_row(row.data(), static_cast<ggml_fp16_t*>(mask->data) + i * c.context, c.context);
    }
  }

  const float scale = 1.0F / std::sqrt(static_cast<float>(ggml_dim));
  out_ = is_flash(c.path) ? flash(q, mask, scale) : products(q, mask, scale);
  graph_ = ggml_new_graph(context_);
  ggml_build_forward_expand(graph_, out_);
  for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
    ggml_tensor* t = ggml_graph_node(graph_, i);
    t->data =
        t->view_src != nullptr ? static_cast<std::byte*>(t->view_src->data) + t->view_offs : memory(ggml_nbytes(t));
  }
  ggml_threadpool_params one = ggml_threadpool_params_default(1);
  thread_ = ggml_threadpool_new(&one);
  plan_ = ggml_graph_plan(graph_, 1, thread_);
  plan_.work_data = static_cast<std::uint8_t*>(memory(plan_.work_size));
}

ggml_attention::~ggml_attention() {
  ggml_threadpool_free(thread_);
  ggml_free(context_);
}

ggml_tensor* ggml_attention::flash(ggml_tensor* q, ggml_tensor* mask, float scale) {
  return ggml_flash_attn_ext(context_, q, keys_, values_, mask, scale, 0.0F, 0.0F);
}

ggml_tensor* ggml_attention::products(ggml_tensor* q, ggml_tensor* mask, float scale) {
  ggml_tensor* weights = ggml_soft_max_ext_inplace(context_, ggml_mul_mat(context_, keys_, q), mask, scale, 0.0F);
  ggml_tensor* sums = ggml_mul_mat(context_, values_, weights);
  if (case_.path == ggml_path::grouped) return sums;
  return ggml_cont(context_, ggml_permute(context_, sums, 0, 2, 1, 3));
}

bool ggml_attention::run(std::size_t i) {
  keys_->data = const_cast<cache_line*>(key_side_.layers[i % key_side_.layers.size()].data());
  values_->data = const_cast<cache_line*>(value_side_.layers[i % value_side_.layers.size()].data());
  return ggml_graph_compute(graph_, &plan_) == GGML_STATUS_SUCCESS;
}

void* ggml_attention::memory(std::size_t bytes) {
  memory_.push_back(lines_for(bytes + 1));
  return begin(memory_.back());
}

}  // namespace bench
