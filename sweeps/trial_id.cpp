// Tries ids, words such as `best`, and prefixes of hashes, and lists what was near when none fits.
#include "sweeps/trial_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

struct Word {
  const char* word;
  std::optional<int64_t> store::SweepRow::*trial;
  bool must_have_run;  ///< what is called the best has ended well
  const char* missing;
};
constexpr Word kWords[] = {
    {"best", &store::SweepRow::winner_trial, true, "no trial has ended well"},
    {"first-fit", &store::SweepRow::first_fit_trial, true, "no sweep has found one that fitted"},
    {"baseline", &store::SweepRow::baseline_trial, false,
     "no sweep has tried its starting configuration"},
};

/// For who looks for a trial in a database with hunts, whose numbers are their own; else empty.
std::string hunts_hint(const store::Store& store) {
  if (store.read_bisects().empty()) return {};
  return fmt::format(
      "; of 'moetune bisect' it holds hunts: 'moetune ls {0} --hunts' lists them, 'moetune report "
      "{0}' shows them",
      store.path());
}

}  // namespace

store::TrialRow find_trial(const store::Store& store, const std::string& word) {
  const auto* row = std::ranges::find_if(kWords, [&](const Word& w) { return word == w.word; });
  if (row == std::end(kWords)) {
    std::string words;
    for (const Word& known : kWords) words += fmt::format("'{}', ", known.word);
    return store.get_trial(word, words, hunts_hint(store));
  }
  const std::vector<store::SweepRow> sweeps = store.read_sweeps();
  for (auto sweep = sweeps.rbegin(); sweep != sweeps.rend(); ++sweep) {
    const std::optional<int64_t> id = *sweep.*row->trial;
    const auto trial = id ? store.get_trial(*id) : std::nullopt;
    if (!trial) continue;
    if (row->must_have_run && trial->status != spec::name_of(spec::TrialStatus::ok)) continue;
    return *trial;
  }
  throw base::UsageError(fmt::format("{}: there is no trial '{}': {}; 'moetune ls' lists them{}",
                                     store.path(), word, row->missing, hunts_hint(store)));
}

}  // namespace moetune::sweeps
