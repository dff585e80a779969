// Lines about steps: two about one step become one, very many become fewer.
#include <algorithm>
#include <cmath>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMostKept = size_t{1} << 16;

constexpr StepMember kStepMembers[] = {&StepLine::step_time_s,
                                       &StepLine::loss,
                                       &StepLine::grad_norm,
                                       &StepLine::learning_rate,
                                       &StepLine::tflops_per_gpu,
                                       &StepLine::tokens_per_s_per_gpu,
                                       &StepLine::samples_per_s,
                                       &StepLine::seq_length,
                                       &StepLine::global_batch_size,
                                       &StepLine::consumed_samples,
                                       &StepLine::num_skipped,
                                       &StepLine::num_nan,
                                       &StepLine::time_s};

}  // namespace

void StepLine::fill_from(const StepLine& other) {
  if (total == 0) total = other.total;
  for (const StepMember member : kStepMembers) {
    if (!(this->*member)) this->*member = other.*member;
  }
}

void StepSeries::add(const StepLine& line) {
  const bool is_twice = num_lines_ > 0 && line.step == last_.step;
  if (is_twice) {
    // A second writer, or the same line once more.
    last_.fill_from(line);
    if (!kept_.empty() && kept_.back().step == line.step) kept_.back().fill_from(line);
    return;
  }
  if (num_lines_ % stride_ == 0) kept_.push_back(line);
  ++num_lines_;
  last_ = line;
  if (line.step > furthest_) {
    furthest_ = line.step;
    ++num_advances_;
    num_skipped_ += line.num_skipped.value_or(0);
    // A mean over several steps that is NaN had at least one.
    const double least = line.loss && !std::isfinite(*line.loss) ? 1 : 0;
    num_nan_ += std::max(line.num_nan.value_or(0), least);
  }
  if (kept_.size() < kMostKept) return;
  size_t to = 0;
  for (size_t from = 0; from < kept_.size(); from += 2) kept_[to++] = kept_[from];
  kept_.resize(to);
  stride_ *= 2;
}

std::vector<StepLine> StepSeries::lines() const {
  std::vector<StepLine> all = kept_;
  if (num_lines_ > 0 && (all.empty() || all.back().line != last_.line)) all.push_back(last_);
  return all;
}

}  // namespace moetune::sweeps
