// Primus' list of the layers that are recomputed. A plan has a number for each stage.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/pipeline_layout.h"

namespace moetune::spec::dialects {
namespace {

constexpr std::string_view kList = "recompute_layer_ids";

/// The numbers of a list, in brackets or not; empty where it is none.
std::set<int64_t> numbers_of(const Setting& setting) {
  std::set<int64_t> numbers;
  for (const std::string& word : setting.words) {
    std::string text = word + ",";
    std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ' '; });
    for (size_t first = 0; first < text.size();) {
      const size_t end = text.find(',', first);
      const std::string part = text.substr(first, end - first);
      first = end + 1;
      if (part.empty()) continue;
      const auto number = parse_integer(part);
      if (!number || *number < 0) return {};
      numbers.insert(*number);
    }
  }
  return numbers;
}

/// Layers of the stages, in the model's order; empty where they are not known.
std::vector<int64_t> stage_sizes(const Reading& in, int64_t layers) {
  const PlanKnobs& k = in.run.knobs;
  const int64_t count = int64_t{k.pp} * k.vpp;
  std::vector<int64_t> sizes;
  if (!in.run.pipeline_layout.empty()) {
    for (const std::string& stage : pipeline_stages_of(in.run.pipeline_layout)) {
      sizes.push_back(std::ranges::count(stage, 't'));
    }
    return sizes;
  }
  const Setting* by_hand = in.settings.find("decoder_pipeline_manual_split_list");
  const bool is_by_hand = by_hand != nullptr && !by_hand->is_null;
  const bool is_even = k.first_stage_layers == 0 && k.last_stage_layers == 0 && !is_by_hand &&
                       keys_of_counted_ends(in.run).empty() && layers % count == 0;
  if (count == 1 || is_even) sizes.assign(static_cast<size_t>(count), layers / count);
  return sizes;
}

/// How many layers of each stage are among the numbers, where that is one number for all of them.
/// Else why there is none.
std::optional<int64_t> number_for_all(const std::set<int64_t>& numbers,
                                      const std::vector<int64_t>& sizes, std::string& why) {
  std::vector<int64_t> counts;
  int64_t first = 0;
  for (const int64_t size : sizes) {
    counts.push_back(std::distance(numbers.lower_bound(first), numbers.lower_bound(first + size)));
    first += size;
  }
  if (counts.empty()) {
    why = "how many layers each stage has is not known here";
    return std::nullopt;
  }
  if (*numbers.rbegin() >= first) {
    why = fmt::format("layer {} lies behind the {} of the model, which is not planned",
                      *numbers.rbegin(), first);
    return std::nullopt;
  }
  const auto [least, most] = std::ranges::minmax(counts);
  if (least == most) return least;
  why = fmt::format("it names {} layers of one stage and {} of another, which is not planned",
                    least, most);
  return std::nullopt;
}

}  // namespace

bool names_recomputed_layers(const Reading& reading) {
  const Setting* list = reading.settings.find(kList);
  return list != nullptr && !list->is_null && !list->words.empty();
}

void read_listed_layers(Reading& in) {
  if (!names_recomputed_layers(in)) return;
  const Setting& list = *in.settings.find(kList);
  const std::set<int64_t> numbers = numbers_of(list);
  if (numbers.empty()) {
    in.problem(fmt::format("'{}' is '{}', expected numbers of layers such as 0,1,2", kList,
                           shown(list.value)));
    return;
  }
  const int64_t said = in.traits.value("num_layers", in.options.num_layers);
  PlanKnobs& k = in.run.knobs;
  std::string why;
  std::optional<int64_t> number;
  if (said == 0 && k.pp * k.vpp == 1) {
    number = static_cast<int64_t>(numbers.size());
  } else {
    number =
        number_for_all(numbers, said == 0 ? std::vector<int64_t>{} : stage_sizes(in, said), why);
  }
  if (!number) {
    const std::string text = fmt::format("'{}' is '{}': {}", kList, shown(list.value), why);
    if (in.options.is_echo) {
      in.note(text + ", so all layers are taken");
    } else {
      in.problem(text);
    }
    return;
  }
  k.recompute_method = RecomputeMethod::block;
  k.recompute_num_layers = static_cast<int32_t>(*number);
  in.note(fmt::format("'{}' names {} layers of each stage: priced as its first {}", kList, *number,
                      *number));
}

}  // namespace moetune::spec::dialects
