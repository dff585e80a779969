// Lists of layers as Python expressions, the way Megatron evaluates them.
#include "engine/spec/dialects/layer_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

constexpr int kMostParentheses = 32;

int64_t count_of(const std::vector<bool>& layers) { return static_cast<int64_t>(layers.size()); }

/// Sums of lists, which may be repeated: "([1]*3+[0])*2". Empty where it is none.
class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : in_(text, "") {}

  std::optional<std::vector<bool>> read() {
    auto layers = sum(0);
    in_.skip_blanks();
    return layers && in_.at_end() ? layers : std::nullopt;
  }

 private:
  using Layers = std::optional<std::vector<bool>>;

  Layers sum(int depth) {
    Layers all = product(depth);
    while (all && take('+')) {
      const Layers more = product(depth);
      if (!more || count_of(*all) + count_of(*more) > kMostLayers) return std::nullopt;
      all->insert(all->end(), more->begin(), more->end());
    }
    return all;
  }

  Layers product(int depth) {
    Layers layers = take('[') ? list() : parenthesis(depth);
    while (layers && take('*')) {
      const auto times = number();
      if (!times || *times < 0 || *times > kMostLayers) return std::nullopt;
      if (count_of(*layers) * *times > kMostLayers) return std::nullopt;
      const std::vector<bool> once = *layers;
      layers->clear();
      for (int64_t i = 0; i < *times && !once.empty(); ++i) {
        layers->insert(layers->end(), once.begin(), once.end());
      }
    }
    return layers;
  }

  Layers parenthesis(int depth) {
    if (depth == kMostParentheses || !take('(')) return std::nullopt;
    Layers layers = sum(depth + 1);
    return take(')') ? layers : std::nullopt;
  }

  Layers list() {
    std::vector<bool> layers;
    while (!take(']')) {
      if (!layers.empty() && !take(',')) return std::nullopt;
      const auto layer = number();
      const bool is_one = layer && (*layer == 0 || *layer == 1);
      if (!is_one || count_of(layers) == kMostLayers) return std::nullopt;
      layers.push_back(*layer == 1);
    }
    return layers;
  }

  std::optional<int64_t> number() {
    in_.skip_blanks();
    const size_t first = in_.at();
    while (in_.peek() >= '0' && in_.peek() <= '9') in_.next();
    return parse_integer(in_.from(first));
  }

  bool take(char c) {
    in_.skip_blanks();
    return in_.take(c);
  }

  Cursor in_;
};

[[noreturn]] void refuse(std::string_view what, std::string_view pattern,
                         std::string_view example) {
  throw base::UsageError(fmt::format("the pattern of {} is '{}', expected one such as 2 or {}",
                                     what, shown(pattern), example));
}

void check_count(int64_t num_layers) {
  if (num_layers < 0 || num_layers > kMostLayers) {
    throw base::UsageError(fmt::format("{} layers, expected at most {}", num_layers, kMostLayers));
  }
}

/// `what`: the layers that have a 1.
std::vector<bool> listed_layers(const std::string& pattern, int64_t num_layers,
                                std::string_view what, std::string_view example) {
  check_count(num_layers);
  // Configuration files may have lists of their own, which come without brackets.
  const bool has_brackets = pattern.find('[') != std::string::npos;
  auto layers = PatternReader(has_brackets ? pattern : "[" + pattern + "]").read();
  if (!layers) refuse(what, pattern, example);
  if (count_of(*layers) != num_layers) {
    throw base::UsageError(fmt::format("the pattern of {}, '{}', has {} layers, and the model {}",
                                       what, shown(pattern), layers->size(), num_layers));
  }
  return *std::move(layers);
}

}  // namespace

std::vector<bool> moe_layers_of(const std::string& pattern, int64_t num_layers) {
  constexpr std::string_view kWhat = "layers with experts";
  constexpr std::string_view kExample = "([0]*3+[1]*58)";
  const auto step = parse_integer(pattern);
  if (!step) return listed_layers(pattern, num_layers, kWhat, kExample);
  check_count(num_layers);
  if (*step < 1) refuse(kWhat, pattern, kExample);
  std::vector<bool> layers;
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back(i % *step == 0);
  return layers;
}

std::vector<bool> mixed_layers_of(const std::string& pattern, int64_t num_layers,
                                  std::string_view what) {
  constexpr std::string_view kExample = "([1]*3+[0]*1)*2";
  const auto step = parse_integer(pattern);
  if (!step) return listed_layers(pattern, num_layers, what, kExample);
  check_count(num_layers);
  if (*step < 1) refuse(what, pattern, kExample);
  std::vector<bool> layers;
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back((i + 1) % *step != 0);
  return layers;
}

std::string written_out(const std::string& pattern) {
  const auto layers = PatternReader(pattern).read();
  if (!layers) return pattern;
  std::string text;
  for (const bool layer : *layers)
    text += fmt::format("{}{}", text.empty() ? "" : ",", layer ? 1 : 0);
  return "[" + text + "]";
}

std::string pattern_of(const std::vector<bool>& layers) {
  std::string text;
  for (size_t first = 0; first < layers.size();) {
    size_t end = first;
    while (end < layers.size() && layers[end] == layers[first]) ++end;
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", layers[first] ? 1 : 0, end - first);
    first = end;
  }
  return "(" + text + ")";
}

std::string mixed_pattern_of(const std::vector<bool>& layers) {
  const auto first = std::ranges::find(layers, false) - layers.begin();
  const int64_t step = first + 1;
  const int64_t num_layers = count_of(layers);
  const bool is_regular =
      step <= num_layers && layers == mixed_layers_of(std::to_string(step), num_layers, "layers");
  return is_regular ? std::to_string(step) : pattern_of(layers);
}

}  // namespace moetune::spec::dialects
