// A text to a run: its settings by the table, what several of them say together, and what follows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/forms.h"
#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"
#include "kernels/base/fnv.h"
#include "kernels/base/utf8.h"

namespace moetune::spec::dialects {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultVocabMultiple = 128;

/// The value as a line of the dialect has it.
std::string stated_value(const Setting& setting) {
  std::string value = setting.value;
  if (setting.key.starts_with("-") || value.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : setting.words) words.push_back(shell_quoted(word));
    value = fmt::format("{}", fmt::join(words, " "));
  }
  if (value.size() <= kMostStatedBytes) return value;
  const std::string end = fmt::format("... ({} bytes, {})", value.size(), base::fnv_digits(value));
  return value.substr(0, kMostStatedBytes - end.size()) + end;
}

/// Has to come before words of ours are found for settings, which takes them out.
void keep_what_is_stated(Reading& in) {
  const std::vector<Setting>& all = in.settings.all();
  for (size_t i = 0; i < std::min(all.size(), kMostStated); ++i) {
    in.run.stated.push_back({all[i].key, stated_value(all[i])});
  }
  if (all.size() > kMostStated) {
    in.note(fmt::format("it has {} settings: a comparison reads the first {}", all.size(),
                        kMostStated));
  }
}

/// Keys of which nothing was understood, in their order.
void keep_the_rest(Reading& in) {
  for (const std::string& name : in.parts.taken()) {
    in.settings.remove(in.key(name));
    for (const OtherKey& other : other_keys()) {
      if (other.dialect == in.dialect && other.row == name) in.settings.remove(other.key);
    }
  }
  for (const Setting& setting : in.settings.all()) {
    // Which class of Python a part is goes without saying where one writes overrides.
    if (setting.key == "_target_" || setting.key.ends_with("._target_")) continue;
    const bool is_inherited = in.own_keys && !in.own_keys->contains(setting.key);
    in.run.unknown.push_back({setting.key, setting.value, is_inherited});
  }
}

void place_ranks(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  if (!in.problems.empty()) return;
  // Recipes of Megatron-Bridge for experts do not slice them, all that say it.
  const bool is_of_recipe =
      in.dialect == Dialect::megatron_bridge && !in.options.is_echo && !in.is_stated("etp");
  in.run.is_etp_derived = !in.has_etp && in.dialect != Dialect::torchtitan && !is_of_recipe;
  if (in.run.is_etp_derived) k.etp = k.tp;
  const int64_t replica = k.replica_ranks();
  const int64_t experts = int64_t{k.etp} * k.ep * k.pp;
  if (replica > kMostRanks) {
    in.problem(fmt::format("{} are more than {} ranks", in.replica_text(), kMostRanks));
    return;
  }
  const bool is_said = in.options.world_size > 0 || !in.has_default_ranks;
  if (!is_said && in.run.world_size > 0 && in.run.world_size < std::max(replica, experts)) {
    in.note(fmt::format("it starts {} ranks where nobody says more, too few for its layout",
                        in.run.world_size));
    in.run.world_size = 0;
  }
  const int64_t world = in.run.world_size;
  if (world == 0) {
    if (in.dialect != Dialect::torchtitan) {
      in.note("the number of ranks is not said: one replica is taken");
    }
    return;
  }
  if (world % replica != 0) {
    in.problem(fmt::format("{} are {}, which does not divide the {} ranks", in.replica_text(),
                           replica, world));
    return;
  }
  if (in.dialect != Dialect::torchtitan) k.dp = static_cast<int32_t>(world / replica);
  if (k.ep > 1 && world % experts != 0) {
    in.problem(fmt::format("{} are {}, which does not divide the {} ranks",
                           in.product_of({"etp", "ep", "pp"}), experts, world));
  }
}

/// The variable of the environment that is a choice of the plan.
void read_connections(Reading& in) {
  const auto found = in.run.environment.find(kConnections);
  if (found == in.run.environment.end()) return;
  try {
    set_plan_knob(in.run.knobs, *find_plan_knob("cuda_device_max_connections"), found->second);
  } catch (const base::UsageError& error) {
    in.note(error.what());
  }
}

/// Recipes of Megatron-Bridge say them: no default of theirs is known.
void forget_defaults_of_recipes(Reading& in) {
  if (in.dialect != Dialect::megatron_bridge) return;
  for (const char* trait : {"swiglu", "normalization"}) {
    if (in.unsaid_traits.contains(trait)) in.traits.erase(trait);
  }
}

/// Before it becomes a config.json, which has not words for all of it.
void keep_model_flags(Reading& in) {
  if (in.options.is_echo) return;
  json& flags = in.run.model_flags;
  for (const Row& row : trait_rows()) {
    const std::string name(row.name);
    const auto trait = in.traits.find(name);
    if (trait == in.traits.end()) continue;
    (in.unsaid_traits.contains(name) ? in.run.model_defaults : flags)[name] = *trait;
  }
  // Whether there are groups is said beside how many there would be.
  const auto is_grouped = in.traits.find("group_query_attention");
  if (flags.contains("num_query_groups") && is_grouped != in.traits.end()) {
    flags["group_query_attention"] = *is_grouped;
  }
}

void make_model(Reading& in) {
  if (in.traits.contains("mtp_num_layers")) {
    in.run.mtp_depth = in.traits["mtp_num_layers"].get<int64_t>();
  }
  json traits = in.traits;
  const int64_t padded = traits.value("padded_vocab_size", int64_t{0});
  // Rows that no word has cost as much as others.
  if (padded > 0 && !traits.contains("vocab_size")) traits["vocab_size"] = padded;
  in.problems.attempt([&] { in.run.model = huggingface_of(traits, in.run.notes); });
  if (in.run.model.contains("vocab_size") && in.run.model.contains("model_type")) {
    const auto vocab = in.run.model["vocab_size"].get<int64_t>();
    if (padded >= vocab) {
      in.run.model["padded_vocab_size"] = padded;
      return;
    }
    if (padded > 0) {
      in.note(fmt::format("'{}' is {}, less than the vocabulary of {}: it is padded as usual",
                          in.key("padded_vocab_size"), padded, vocab));
    }
    // Megatron pads the table so that every tensor-parallel rank gets the same.
    const int64_t multiple =
        in.traits.value("make_vocab_size_divisible_by", kDefaultVocabMultiple) * in.run.knobs.tp;
    if (multiple > 0) {
      in.run.model["padded_vocab_size"] = (vocab + multiple - 1) / multiple * multiple;
    }
  }
}

}  // namespace

namespace {

/// A text of something else would make a run of defaults.
void refuse_strangers(std::string_view text, const Reading& in) {
  const bool has_any = std::ranges::any_of(
      in.settings.all(), [&](const Setting& setting) { return is_known(setting.key, in.dialect); });
  if (has_any || !in.run.model_name.empty()) return;
  // It is a run's text all the same.
  const Setting* file = in.settings.find(kConfigFile);
  if (file != nullptr && !file->words.empty() && in.run.is_partial) {
    const std::string& folder = in.options.place;
    throw base::UsageError(
        fmt::format("{}: names {}, which {}", in.source, shown(file->words.front()),
                    folder.empty() ? "was not given" : "is not below " + folder));
  }
  if (has_unused_flags(text, in.dialect)) {
    throw NoSettings(
        fmt::format("{}: has flags of {} and starts nothing with them: give the script that does",
                    in.source, name_of(in.dialect)));
  }
  throw NoSettings(fmt::format("{}: has no setting that {} takes, such as '{}'", in.source,
                               name_of(in.dialect), in.key("tp")));
}

}  // namespace

RunConfig import_run(std::string_view text, Dialect dialect, const ImportOptions& options) {
  Reading in(dialect, options);
  read_text(text, in);
  keep_what_is_stated(in);
  refuse_strangers(text, in);
  judge_other_models(in);
  if (options.world_size > 0) in.run.world_size = options.world_size;
  read_rows(in);
  // What follows is judged by these.
  in.problems.throw_if_any();
  if (dialect == Dialect::torchtitan) {
    read_parts_of_titan(in);
  } else {
    read_layer_flags(in);
    read_parts_of_megatron(in);
    refuse_contradictions(in);
    forget_defaults_of_recipes(in);
    keep_model_flags(in);
    make_model(in);
  }
  place_ranks(in);
  read_connections(in);
  keep_the_rest(in);
  in.problems.throw_if_any();
  const PlanKnobs& k = in.run.knobs;
  if (in.run.global_batch_size == 0 && in.run.world_size > 0 && dialect == Dialect::megatron_lm) {
    in.run.global_batch_size = int64_t{k.micro_batch_size} * k.dp;  // Megatron-LM's default
    in.run.is_batch_derived = true;
  }
  // People read them on a terminal.
  for (std::string& note : in.run.notes) note = base::one_line(note);
  return std::move(in.run);
}

}  // namespace moetune::spec::dialects
