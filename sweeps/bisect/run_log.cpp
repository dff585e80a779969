#include "sweeps/bisect/run_log.h"

#include <algorithm>

namespace moetune::sweeps {

size_t RunLog::keep(const HuntRun& run, bool is_apart) {
  (is_apart ? apart_by_position_ : by_position_)[run.position].push_back(runs_.size());
  runs_.push_back(run);
  is_used_.push_back(false);
  // A moment at least: no two are at the same time.
  next_time_ += std::max(0.0, run.run.build_seconds);
  times_.push_back(next_time_);
  next_time_ += std::max(1e-3, run.run.run_seconds);
  return runs_.size() - 1;
}

void RunLog::use(size_t index) {
  if (is_used_[index]) return;
  is_used_[index] = true;
  const CommitRun& run = runs_[index].run;
  ++num_used_;
  run_seconds_ += run.run_seconds;
  build_seconds_ += run.build_seconds;
  num_builds_ += run.was_built_now;
}

std::optional<size_t> RunLog::nth(int position, size_t n, bool is_apart) const {
  const auto& lists = is_apart ? apart_by_position_ : by_position_;
  const auto list = lists.find(position);
  if (list == lists.end() || list->second.size() <= n) return std::nullopt;
  return list->second[n];
}

double RunLog::build_cost() const {
  if (num_builds_ == 0) return num_used_ == 0 ? 5.0 : 0.0;
  if (run_seconds_ <= 0) return 5.0;
  return build_seconds_ / num_builds_ / (run_seconds_ / num_used_);
}

RunList RunLog::good_runs_at(int position) const {
  RunList runs;
  for (const HuntRun& run : used_runs()) {
    if (run.position == position && run.run.status == RunStatus::ok) runs.emplace_back(run.run);
  }
  return runs;
}

std::vector<std::reference_wrapper<const HuntRun>> RunLog::used_runs() const {
  std::vector<std::reference_wrapper<const HuntRun>> runs;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (is_used_[i]) runs.emplace_back(runs_[i]);
  }
  return runs;
}

}  // namespace moetune::sweeps
