// A hunt through commits as JSON and as lines of text: the second half of what hunt.h declares.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/units.h"
#include "sweeps/bisect/answer_text.h"
#include "sweeps/bisect/effect_text.h"
#include "sweeps/bisect/hunt.h"
#include "sweeps/bisect/moved.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tuner::HuntResult;

constexpr size_t kMostListed = 20;  ///< suspects and the like, for people

json config_json(const std::vector<reports::ConfigChange>& changes) {
  json list = json::array();
  for (const reports::ConfigChange& change : changes) {
    list.push_back({{"name", change.name}, {"before", change.before}, {"after", change.after}});
  }
  return list;
}

std::string config_text(const std::vector<reports::ConfigChange>& changes, const char* lead) {
  std::string text;
  for (size_t i = 0; i < std::min(changes.size(), kMostListed); ++i) {
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("(none)") : plain_text(value, 100);
    };
    text += fmt::format("  {}: {}: {} -> {}\n", lead, plain_text(changes[i].name, 100),
                        shown(changes[i].before), shown(changes[i].after));
  }
  return text;
}

bool is_improvement(const HuntAnswer& answer, const tuner::Culprit& culprit,
                    const HuntSetup& setup) {
  return answer.failure.empty() && (culprit.effect_ratio < 0) != setup.is_higher_better;
}

}  // namespace

json to_json(const HuntAnswer& answer, const HuntSetup& setup) {
  const HuntResult& result = answer.result;
  json culprits = json::array();
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::Culprit& culprit = result.culprits[i];
    const CommitInfo& commit = setup.commits[static_cast<size_t>(culprit.position)];
    culprits.push_back({{"position", culprit.position},
                        {"commit", commit.id},
                        {"subject", commit.subject},
                        {"author", commit.author},
                        {"author_date", commit.author_date},
                        {"confidence", culprit.confidence},
                        {"config", config_json(answer.culprit_config_changes[i])},
                        {"is_improvement", is_improvement(answer, culprit, setup)},
                        {"moved", moved_json(answer.moved[i])}});
    add_levels(answer, culprit, culprit.before, culprit.after, culprits.back());
  }
  json candidates = json::array();
  for (const int position : result.suspects) {
    candidates.push_back({{"position", position},
                          {"commit", setup.commits[static_cast<size_t>(position)].id},
                          {"probability", result.posterior[static_cast<size_t>(position)]}});
  }
  json skipped = json::array();
  for (const HuntAnswer::Skipped& skip : answer.skipped) {
    skipped.push_back({{"position", skip.position},
                       {"commit", setup.commits[static_cast<size_t>(skip.position)].id},
                       {"status", skip.status},
                       {"message", skip.message}});
  }
  json document = answer_json(answer, result, {setup.confidence, setup.min_effect_ratio});
  document.update(
      {{"effect_metric", answer.effect_metric.empty() ? answer.metric : answer.effect_metric},
       {"config", config_json(answer.config_changes)},
       {"moved", moved_json(answer.moved_between_ends)},
       {"skipped", std::move(skipped)},
       {"good", setup.commits.front().id},
       {"bad", setup.commits.back().id},
       {"num_commits", setup.commits.size() - 1},
       {"posterior", result.posterior},
       {"culprits", std::move(culprits)},
       {"suspects", result.suspects},
       {"candidates", std::move(candidates)}});
  return document;
}

std::string to_text(const HuntAnswer& answer, const HuntSetup& setup) {
  const HuntResult& result = answer.result;
  std::string text = opening_text(answer, result, "the ends");
  text += config_text(answer.config_changes, "default that differs between the ends");
  if (result.is_swapped) {
    text +=
        "  are they swapped? To find what made it better, reverse the direction of the metric "
        "(with or without --higher-is-better)\n";
  }
  std::set<std::string> told;
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::Culprit& culprit = result.culprits[i];
    const CommitInfo& commit = setup.commits[static_cast<size_t>(culprit.position)];
    text += fmt::format("{}: {} {}\n  {}, {}\n",
                        is_improvement(answer, culprit, setup) ? "improvement" : "culprit",
                        base::short_commit(commit.id), plain_text(commit.subject, 200),
                        plain_text(commit.author, 100), plain_text(commit.author_date, 40));
    if (!answer.failure.empty()) {
      text += fmt::format("  from here on it ends as {}, confidence {:.1f} %\n", answer.failure,
                          100 * culprit.confidence);
    } else {
      text += fmt::format("  effect {}, {} -> {}, confidence {:.1f} %\n", effect_text(culprit),
                          base::format_value(culprit.before, answer.unit),
                          base::format_value(culprit.after, answer.unit), 100 * culprit.confidence);
    }
    text += config_text(answer.culprit_config_changes[i], "config");
    for (const Moved& moved : answer.moved[i]) {
      text += moved_line("moved", moved);
      told.insert(moved.name);
    }
  }
  for (const Moved& moved : answer.moved_between_ends) {
    if (!told.contains(moved.name)) text += moved_line("the ends also differ in", moved);
  }
  if (result.culprits.empty() && !result.suspects.empty()) {
    std::vector<int> likeliest = result.suspects;
    const auto probability = [&](int position) {
      return result.posterior[static_cast<size_t>(position)];
    };
    std::stable_sort(likeliest.begin(), likeliest.end(),
                     [&](int a, int b) { return probability(a) > probability(b); });
    const size_t num_listed = std::min(likeliest.size(), kMostListed);
    text += num_listed < likeliest.size()
                ? fmt::format("suspects ({}, the {} likeliest):\n", likeliest.size(), num_listed)
                : fmt::format("suspects ({}):\n", likeliest.size());
    for (size_t i = 0; i < num_listed; ++i) {
      const int position = likeliest[i];
      const CommitInfo& commit = setup.commits[static_cast<size_t>(position)];
      text += fmt::format("  {} {} ({:.0f} %)\n", base::short_commit(commit.id),
                          plain_text(commit.subject, 200), 100 * probability(position));
    }
  }
  for (size_t i = 0; i < std::min(answer.skipped.size(), kMostListed); ++i) {
    const HuntAnswer::Skipped& skip = answer.skipped[i];
    text += fmt::format("skipped: {} ({}): {}\n",
                        base::short_commit(setup.commits[static_cast<size_t>(skip.position)].id),
                        skip.status, plain_text(skip.message, 200));
  }
  if (answer.skipped.size() > kMostListed) {
    text += fmt::format("and {} more were skipped\n", answer.skipped.size() - kMostListed);
  }
  text += failures_text(result, !answer.skipped.empty() || !answer.failure.empty());
  text += fmt::format("{} runs, {} builds, {:.0f} s\n", answer.num_runs, answer.num_builds,
                      answer.seconds);
  return text;
}

}  // namespace moetune::sweeps
