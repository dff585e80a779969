// Reads the records and the names of the streams together; the format is the exporter's.
#include "sweeps/trace_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/plan/ops.h"
#include "engine/spec/document.h"
#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "profiler/export/chrome_json.h"
#include "profiler/export/imported_events.h"
#include "profiler/export/perfetto.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/rank_traces.h"
#include "profiler/import/step_traces.h"
#include "profiler/import/trace_files.h"
#include "profiler/store/db.h"
#include "reports/engine_trial.h"

namespace moetune::sweeps {
namespace {

/// Of the sweep, by id.
std::vector<int64_t> trials_with_trace(const store::Store& store, int64_t sweep_id) {
  store::Statement select(store.database(),
                          "SELECT id FROM trial WHERE sweep_id = ? AND EXISTS (SELECT 1 FROM "
                          "trace_blob WHERE trial_id = trial.id) ORDER BY id");
  select.bind(1, sweep_id);
  std::vector<int64_t> ids;
  while (select.step()) ids.push_back(select.get_int(0));
  return ids;
}

profiler::TimelineOptions own_streams() {
  profiler::TimelineOptions options;
  for (int stream = 0; stream < static_cast<int>(plan::Stream::count); ++stream) {
    options.stream_names[stream] = plan::name_of(static_cast<plan::Stream>(stream));
  }
  return options;
}

/// The database may be one of an older moetune, or edited: then the groups' ranks are not told.
profiler::CommunicatorKeys communicators_of(const store::TrialRow& trial) {
  try {
    const std::string source = fmt::format("trial {}", trial.id);
    const spec::TrialSpec spec =
        spec::trial_spec_from_json(spec::parse_json(trial.spec_json, source), spec::Source(source));
    // Files of more ranks are not read back.
    if (spec.knobs.world_size() > static_cast<int64_t>(profiler::RankTraces::kMaxRanks)) return {};
    return plan::group_instances(plan::layout_of(spec.knobs));
  } catch (const base::Error&) {
    return {};
  }
}

/// Calls write(file).
template <typename Write>
void write_to(const std::string& path, const Write& write) {
  std::ofstream file(path, std::ios::binary);
  if (!file) throw base::UsageError(fmt::format("{}: the trace cannot be written there", path));
  write(file);
  file.flush();
  // The place is right, but the disk is full: not a mistake on the command line.
  if (!file) throw base::Error(fmt::format("{}: the trace could not be written", path));
}

void write_steps(const std::vector<profiler::StepTrace>& traces,
                 const profiler::TimelineOptions& options, const std::string& path,
                 TraceFormat format) {
  const auto write =
      format == TraceFormat::perfetto ? profiler::write_perfetto : profiler::write_chrome_json;
  write_to(path, [&](std::ostream& file) { write(file, traces, options); });
}

}  // namespace

TraceFormat trace_format_of(std::string_view path) {
  return path.ends_with(".pftrace") || path.ends_with(".perfetto-trace") ? TraceFormat::perfetto
                                                                         : TraceFormat::chrome;
}

bool has_records(const std::vector<profiler::StepTrace>& traces) {
  return std::ranges::any_of(traces, [](const auto& trace) { return !trace.records.empty(); });
}

bool write_trace_file(const store::Store& store, const store::TrialRow& trial,
                      const std::string& path, TraceFormat format) {
  std::vector<profiler::StepTrace> traces = store.read_trace(trial.id);
  if (!has_records(traces)) return false;
  profiler::TimelineOptions timeline;
  if (!reports::is_of_another_engine(trial)) {
    timeline = own_streams();
    // Older databases have records without them.
    const profiler::CommunicatorKeys communicators = communicators_of(trial);
    for (profiler::StepTrace& trace : traces) profiler::set_communicators(trace, communicators);
  }
  write_steps(traces, timeline, path, format);
  return true;
}

void write_traces(const std::vector<profiler::StepTrace>& traces, const std::string& path,
                  TraceFormat format) {
  write_steps(traces, own_streams(), path, format);
}

void write_trace_anew(const std::string& from, const std::string& path, TraceFormat format) {
  constexpr size_t kHeadBytes = 4096;
  if (profiler::is_step_traces(profiler::first_bytes(from, kHeadBytes))) {
    const std::vector<profiler::StepTrace> traces = profiler::read_step_traces(from);
    if (!has_records(traces)) throw base::UsageError(from + ": holds no records");
    return write_steps(traces, own_streams(), path, format);
  }
  const std::vector<profiler::ImportedTrace> traces = profiler::read_trace_file(from);
  if (!profiler::has_events(traces)) {
    throw base::UsageError(from + ": holds no device work, no calls and no ranges");
  }
  if (!profiler::can_be_read_back(traces)) {
    throw base::UsageError(from + ": its times are more than 73 years apart, which no trace's are");
  }
  write_to(path, [&](std::ostream& file) {
    if (format == TraceFormat::perfetto) {
      profiler::write_imported_perfetto(file, traces);
    } else {
      profiler::write_imported_chrome_json(file, traces, from);
    }
  });
}

std::string no_trace_text(const store::Store& store, const store::TrialRow& trial) {
  constexpr size_t kMostNamed = 20;
  const bool is_ok = trial.status == spec::name_of(spec::TrialStatus::ok);
  std::string text = fmt::format("trial {} has no stored trace: it {}", trial.id,
                                 is_ok ? "ran without a traced step" : "ended as " + trial.status);
  std::vector<int64_t> others = trials_with_trace(store, trial.sweep_id);
  if (others.empty()) return text + "; no trial of its sweep has one";
  const bool is_cut = others.size() > kMostNamed;
  if (is_cut) others.resize(kMostNamed);
  return text + fmt::format("; trials of its sweep that have one: {}{}", fmt::join(others, ", "),
                            is_cut ? ", ..." : "");
}

}  // namespace moetune::sweeps
