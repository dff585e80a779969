#include "engine/spec/pipeline_layout.h"

#include <algorithm>
#include <cctype>

#include "engine/spec/knobs.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {
namespace {

constexpr size_t kMostLetters = 10'000;
constexpr int kDeepest = 16;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::string parse() {
    if (text_.size() > kMostLetters) {
      fail(fmt::format("it has {} characters, at most {} are read", text_.size(), kMostLetters));
    }
    std::string all = sequence(0);
    if (at_ < text_.size()) fail(fmt::format("'{}' at {} closes nothing", text_[at_], at_));
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw base::UsageError(
        fmt::format("knob 'pipeline_model_parallel_layout' is '{}' and breaks the rule "
                    "layout_text: {}; expected stages such as Et*3|(tt|)*2tL",
                    base::shortened(text_, kMostKnobBytes), what));
  }

  std::string sequence(int depth) {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      if (c == ',' || c == ' ') {
        ++at_;
        continue;
      }
      std::string part;
      if (c == '(') {
        if (depth == kDeepest) fail("its parentheses are too deep");
        ++at_;
        part = sequence(depth + 1);
        if (at_ == text_.size()) fail("a parenthesis is not closed");
        ++at_;
      } else if (std::string_view("EtmL|").find(c) != std::string_view::npos) {
        part = c;
        ++at_;
      } else {
        fail(fmt::format("'{}' at {} is no letter of it",
                         std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?', at_));
      }
      const size_t times = repetitions();
      if (part.size() * times + all.size() > kMostLetters) {
        fail(fmt::format("written out it has more than {} letters", kMostLetters));
      }
      for (size_t i = 0; i < times; ++i) all += part;
    }
    return all;
  }

  /// What follows as *n; 1 without.
  size_t repetitions() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    const size_t star = at_++;
    size_t times = 0;
    const size_t first = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      times = times * 10 + static_cast<size_t>(text_[at_++] - '0');
      if (times > kMostLetters) fail(fmt::format("the number at {} is too large", first));
    }
    if (at_ == first || times == 0) fail(fmt::format("'*' at {} needs a number from 1 on", star));
    return times;
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// "tttt" is "t*4".
std::string counted(const std::string& letters) {
  std::string text;
  for (size_t i = 0; i < letters.size();) {
    const size_t end = std::min(letters.find_first_not_of(letters[i], i), letters.size());
    const size_t times = end - i;
    text += times > 2 ? fmt::format("{}*{}", letters[i], times) : letters.substr(i, times);
    i = end;
  }
  return text;
}

}  // namespace

std::string pipeline_layout_text(const std::vector<std::string>& stages) {
  std::string text;
  for (size_t i = 0; i + 1 < stages.size();) {
    size_t end = i;
    while (end + 1 < stages.size() && stages[end] == stages[i]) ++end;
    const std::string stage = counted(stages[i]) + "|";
    text += end - i > 1 ? fmt::format("({})*{}", stage, end - i) : stage;
    i = end;
  }
  return stages.empty() ? text : text + counted(stages.back());
}

std::vector<std::string> counted_pipeline_stages(int64_t num_layers, int64_t mtp_depth,
                                                 int64_t num_stages, CountedEnds counted) {
  const int64_t first = counted.has_embedding ? 1 : 0;
  const int64_t last = counted.has_loss ? 1 : 0;
  const int64_t letters = num_layers + first + last;
  if (num_stages < 1 || letters % num_stages != 0) return {};
  const auto each = static_cast<size_t>(letters / num_stages);
  std::vector<std::string> stages(static_cast<size_t>(num_stages), std::string(each, 't'));
  if (each < static_cast<size_t>(num_stages == 1 ? first + last : std::max(first, last))) return {};
  stages.front().resize(stages.front().size() - static_cast<size_t>(first));
  stages.back().resize(stages.back().size() - static_cast<size_t>(last));
  stages.front().insert(0, 1, 'E');
  stages.back() += std::string(static_cast<size_t>(mtp_depth), 'm') + 'L';
  return stages;
}

std::vector<std::string> lone_pipeline_stages(int64_t num_layers, int64_t mtp_depth,
                                              int64_t num_stages) {
  const int64_t lone = num_stages - num_layers;
  if (num_layers < 1 || lone < 1 || lone > most_lone_stages(mtp_depth)) return {};
  if (lone <= 2) {
    return counted_pipeline_stages(num_layers, mtp_depth, num_stages, {lone == 2, true});
  }
  std::vector<std::string> stages =
      counted_pipeline_stages(num_layers, 0, num_stages - 1, {true, true});
  stages.insert(stages.end() - 1, std::string(static_cast<size_t>(mtp_depth), 'm'));
  return stages;
}

std::vector<std::string> pipeline_stages_of(std::string_view text) {
  std::vector<std::string> stages = {""};
  for (const char c : Parser(text).parse()) {
    if (c == '|') {
      stages.emplace_back();
    } else {
      stages.back() += c;
    }
  }
  return stages;
}

std::vector<std::string> pipeline_stages_for(std::string_view text, int64_t pp,
                                             int64_t num_layers) {
  std::vector<std::string> stages = pipeline_stages_of(text);
  const auto refuse = [&](const std::string& why) {
    throw base::UsageError(
        fmt::format("the pipeline layout '{}' {}", base::shortened(text, kMostKnobBytes), why));
  };
  std::string letters;
  for (const std::string& stage : stages) letters += stage;
  const auto count = [&](char letter) {
    return static_cast<int64_t>(std::count(letters.begin(), letters.end(), letter));
  };
  const auto num_stages = static_cast<int64_t>(stages.size());
  if (num_stages % pp != 0) {
    refuse(fmt::format("has {} stages, no multiple of pp {}", num_stages, pp));
  }
  if (count('t') != num_layers) {
    refuse(fmt::format("has {} layers, the model {}", count('t'), num_layers));
  }
  if (count('E') != 1 || letters.front() != 'E') {
    refuse("does not begin with the only embedding, E");
  }
  if (count('L') != 1 || letters.back() != 'L') refuse("does not end with the only loss, L");
  return stages;
}

}  // namespace moetune::spec
