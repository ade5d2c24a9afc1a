#include "retrieval.hpp"

#include <algorithm>
#include <array>
#include <kvaxis/eval/metrics.hpp>
#include <sstream>

#include "../common/arguments.hpp"
#include "word_lists.hpp"

namespace eval {
namespace {

// Numbers from a seed, the same with every standard library (SplitMix64).
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed) {}
  // Below n, which is small: the remainder's bias does not matter.
  int below(int n) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t x = state_;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return static_cast<int>((x ^ x >> 31) % static_cast<std::uint64_t>(n));
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<std::size_t>(below(static_cast<int>(i)))]);
  }

 private:
  std::uint64_t state_;
};

std::vector<std::string> split(const char* list) {
  std::istringstream in(list);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// A sentence as tokens, of which the answer's are answer_first .. answer_end - 1.
struct sentence {
  std::vector<int> tokens;
  int answer_first = 0, answer_end = 0;
  int size() const { return static_cast<int>(tokens.size()); }
};

sentence make_fact(const llm::tokenizer& tokenizer, bool is_first, const std::string& name, const std::string& answer) {
  sentence out;
  const auto append = [&](const std::string& text) {
    const std::vector<int> more = tokenizer.encode(text);
    out.tokens.insert(out.tokens.end(), more.begin(), more.end());
    return out.size();
  };
  out.answer_first = append((is_first ? "The secret of " : " The secret of ") + name + " is");
  out.answer_end = append(answer);
  append(".");
  return out;
}

// The facts that may be asked, the oldest first, cut into `depths` parts, each in random order.
std::array<std::vector<int>, depths> choose(int eligible, random_numbers& random) {
  std::array<std::vector<int>, depths> out;
  for (int i = 0; i < eligible; ++i) out[static_cast<std::size_t>(i * depths / eligible)].push_back(i);
  for (std::vector<int>& part : out) random.shuffle(part);
  return out;
}

}  // namespace

retrieval_text make_retrieval_text(const llm::tokenizer& tokenizer, int length, std::uint64_t seed) {
  constexpr int recent = 192;  // tokens that are not asked about
  static const std::vector<std::string> all_names = split(names), all_words = split(words);
  random_numbers random(seed);
  std::vector<std::string> order = all_names;
  random.shuffle(order);
  retrieval_text out;
  out.tokens = tokenizer.beginning();
  std::vector<sentence> facts;
  std::vector<int> ends;  // of the facts
  const int share = length - length / 6;
  for (const std::string& name : order) {
    const std::string& word = all_words[static_cast<std::size_t>(random.below(static_cast<int>(all_words.size())))];
    const std::string number = std::to_string(100 + random.below(900));
    const sentence fact = make_fact(tokenizer, facts.empty(), name, " " + word + " " + number);
    if (static_cast<int>(out.tokens.size()) + fact.size() > share) break;
    out.tokens.insert(out.tokens.end(), fact.tokens.begin(), fact.tokens.end());
    facts.push_back(fact);
    ends.push_back(static_cast<int>(out.tokens.size()));
  }
  if (facts.size() == order.size()) throw usage_error("a text for retrieval has more facts than there are names");
  const int last = static_cast<int>(out.tokens.size()) - recent;
  const auto eligible = static_cast<int>(std::upper_bound(ends.begin(), ends.end(), last) - ends.begin());
  if (eligible < 2 * depths) throw usage_error("a text for retrieval has too few facts");

  const std::array<std::vector<int>, depths> chosen = choose(eligible, random);
  const int first_depth = random.below(depths);
  for (int i = 0;; ++i) {
    const int depth = (first_depth + i) % depths;
    const std::vector<int>& part = chosen[static_cast<std::size_t>(depth)];
    if (i / depths >= static_cast<int>(part.size())) break;
    const sentence& asked = facts[static_cast<std::size_t>(part[static_cast<std::size_t>(i / depths)])];
    const int begin = static_cast<int>(out.tokens.size());
    if (begin + asked.size() > length) break;
    out.tokens.insert(out.tokens.end(), asked.tokens.begin(), asked.tokens.end());
    out.questions.push_back({begin + asked.answer_first, asked.answer_end - asked.answer_first, depth});
  }
  return out;
}

std::vector<retrieval_text> make_retrieval_texts(const llm::tokenizer& tokenizer, int length, std::uint64_t seed,
                                                 int answer_tokens) {
  std::vector<retrieval_text> out;
  for (int found = 0; found < answer_tokens;) {
    out.push_back(make_retrieval_text(tokenizer, length, seed + out.size()));
    for (const question& q : out.back().questions) found += q.count;
  }
  return out;
}

namespace {

// A policy's answer to one question: sums over the answer's tokens.
struct answer {
  int length = 0, depth = 0, tokens = 0;
  double right = 0, exact_right = 0, kl = 0;
};

struct answers_of_policy {
  std::vector<answer> answers;
  double folded_bytes = 0, folded_values = 0;
};

// The answer tokens' distributions: row i predicts the i-th answer token of the text.
std::vector<Eigen::ArrayXd> predictions(const llm::model& model, thread_pool& pool, const retrieval_text& text,
                                        const llm::matrix& states) {
  std::vector<Eigen::Index> rows;
  for (const question& q : text.questions) {
    for (int i = 0; i < q.count; ++i) rows.push_back(q.first + i - 1);
  }
  const llm::matrix logits = model.logits(states(rows, Eigen::all));
  std::vector<Eigen::ArrayXd> out(rows.size());
  pool(static_cast<int>(rows.size()),
       [&](int i) { out[static_cast<std::size_t>(i)] = kvaxis::log_softmax(logits.row(i)); });
  return out;
}

bool is_right(const Eigen::ArrayXd& prediction, int token) {
  Eigen::Index top = 0;
  prediction.maxCoeff(&top);
  return top == token;
}

void add_answers(const retrieval_text& text, int length, const std::vector<Eigen::ArrayXd>& exact,
                 const std::vector<Eigen::ArrayXd>& found, std::vector<answer>& to) {
  std::size_t at = 0;
  for (const question& q : text.questions) {
    answer sum{length, q.depth, q.count};
    for (int i = 0; i < q.count; ++i, ++at) {
      const int token = text.tokens[static_cast<std::size_t>(q.first + i)];
      sum.right += is_right(found[at], token) ? 1 : 0;
      sum.exact_right += is_right(exact[at], token) ? 1 : 0;
      sum.kl += kvaxis::divergence(exact[at], found[at]);
    }
    to.push_back(sum);
  }
}

retrieval_result summarize(const std::string& policy, const answers_of_policy& of, int length, int depth) {
  retrieval_result out;
  out.policy = policy;
  out.length = length;
  out.depth = depth;
  if (of.folded_values > 0) out.bits = 8 * of.folded_bytes / of.folded_values;
  kvaxis::batch_mean accuracy, added, kl;
  for (const answer& a : of.answers) {
    if ((length != 0 && a.length != length) || (depth >= 0 && a.depth != depth)) continue;
    accuracy.add(a.right, a.tokens);
    added.add(a.right - a.exact_right, a.tokens);
    kl.add(a.kl, a.tokens);
  }
  out.answer_tokens = static_cast<int>(accuracy.count());
  out.accuracy = accuracy.result();
  out.added_accuracy = added.result();
  out.kl = kl.result();
  return out;
}

}  // namespace

std::vector<retrieval_result> evaluate_retrieval(const llm::model& model, thread_pool& pool,
                                                 const std::vector<int>& lengths,
                                                 const std::vector<std::vector<retrieval_text>>& texts,
                                                 const std::vector<policy>& policies, const cache_settings& settings) {
  const runner runs(model, pool, settings);
  for (const policy& p : policies) runs.check(p);
  double work = 0;
  for (const std::vector<retrieval_text>& same_length : texts) {
    for (const retrieval_text& text : same_length)
      work += static_cast<double>(text.tokens.size() * (policies.size() + 1));
  }
  progress shown(work);
  std::vector<answers_of_policy> all(policies.size() + 1);
  for (std::size_t l = 0; l < lengths.size(); ++l) {
    for (const retrieval_text& text : texts[l]) {
      const std::vector<Eigen::ArrayXd> exact =
          predictions(model, pool, text, runs.run_exact(text.tokens, shown).states);
      add_answers(text, lengths[l], exact, exact, all[0].answers);
      for (std::size_t i = 0; i < policies.size(); ++i) {
        const cached_run run = runs.run(text.tokens, policies[i], {}, shown);
        answers_of_policy& to = all[i + 1];
        add_answers(text, lengths[l], exact, predictions(model, pool, text, run.states), to.answers);
        to.folded_bytes += run.folded_bytes;
        to.folded_values += run.folded_values;
      }
    }
  }

  std::vector<int> length_groups{0}, depth_groups{-1};
  length_groups.insert(length_groups.end(), lengths.begin(), lengths.end());
  for (int depth = 0; depth < depths; ++depth) depth_groups.push_back(depth);
  std::vector<retrieval_result> out;
  for (const int length : length_groups) {
    for (const int depth : depth_groups) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        out.push_back(summarize(i == 0 ? "f32" : policies[i - 1].name, all[i], length, depth));
      }
    }
  }
  return out;
}

}  // namespace eval
