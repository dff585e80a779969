#include "engine/device_tracing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "engine/world_run.h"

namespace moetune::engine {

DeviceTracing::DeviceTracing(const spec::TrialSpec& trial, const std::vector<int>& ranks) {
  // Counters end after the recorder, which is therefore made after them.
  if (trial.counts_hardware) {
    profiler::CounterOptions counter_options;
    counter_options.device = local_device(trial);
    counters_ = profiler::make_device_counters(counter_options);
  }
  profiler::DeviceRecorderOptions options;
  options.detail = trial.trace == profiler::TraceLevel::all ? profiler::DeviceDetail::all
                                                            : profiler::DeviceDetail::launches;
  counts_overhead_ = options.detail == profiler::DeviceDetail::all;
  options.ranks = {ranks.begin(), ranks.end()};
  recorder_ = profiler::make_cupti_recorder(options);
}

void DeviceTracing::begin(int64_t step) {
  if (!recorder_) return;
  if (!is_set_up_) {
    // The first step that it records would pay for what it sets up.
    recorder_->begin_step(static_cast<int>(step));
    static_cast<void>(recorder_->end_step());
    is_set_up_ = true;
  }
  if (counters_) counters_->begin_step();
  recorder_->begin_step(static_cast<int>(step));
}

void DeviceTracing::end(TrialRecorder& recorder) {
  if (!recorder_) return;
  profiler::DeviceStep step = recorder_->end_step();
  profiler::CounterWindow window;
  for (profiler::RankStep& rank : step.ranks) {
    window = {rank.trace.start_ns, rank.trace.end_ns};
    const int id = rank.trace.rank;
    recorder.add_trace(id, std::move(rank.trace));
  }
  counts_ += step.facts;
  if (counts_overhead_ && recorder_->is_active()) {
    int64_t overhead_ns = 0;
    for (const profiler::OverheadSum& overhead : step.facts.overheads) overhead_ns += overhead.ns;
    recorder.add_tracing_overhead(overhead_ns);
  }
  if (!counters_ || step.ranks.empty()) return;
  // Between the two ends lies the reading of the trace, which is not part of the step.
  const profiler::CounterStep counted = counters_->end_step();
  profiler::CounterSums sums = counted.is_on_wall_clock
                                   ? profiler::sum_counters(counted.samples, window)
                                   : static_cast<const profiler::CounterSums&>(counted);
  if (counted.is_truncated) {
    // Of a part of the step: ratios are means, but bytes would pass for the whole step's.
    sums.dram_read_bytes.reset();
    sums.dram_write_bytes.reset();
    has_truncated_counters_ = true;
  }
  recorder.add_counters(sums);
}

std::string DeviceTracing::note() const {
  if (!recorder_) return "this build has no CUPTI: steps on the device are not traced";
  std::vector<std::string> notes = {recorder_->note(), profiler::missing_text(counts_)};
  if (counters_) notes.push_back(counters_->note());
  if (has_truncated_counters_) {
    notes.emplace_back(
        "the hardware counted a part of a traced step only: its bytes are left out, and its "
        "ratios are of that part");
  }
  std::erase(notes, std::string());
  return fmt::format("{}", fmt::join(notes, " "));
}

int64_t DeviceTracing::device_buffer_bytes() const {
  return (recorder_ ? recorder_->device_buffer_bytes() : 0) +
         (counters_ ? counters_->buffer_bytes() : 0);
}

}  // namespace moetune::engine
