// moetune trace: the stored trace of a trial, or that of another tool, as a file for viewers.
#include <fmt/format.h>

#include <iostream>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/trace_file.h"
#include "sweeps/trial_id.h"

namespace moetune::sweeps {

CommandOptions trace_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "trace [--db] PATH ID --out FILE [--format chrome|perfetto]   or   trace --from FILE --out "
      "FILE",
      "Writes the trace that is stored of a trial, all traced steps of all ranks with their "
      "launches, arrows between what waits for each other, and rates, for chrome://tracing and "
      "ui.perfetto.dev. Nothing is run. With --from, a trace of another tool is written anew, with "
      "its threads, streams and names and an arrow from each launch to what it launched; so is "
      "what moetune wrote in Chrome's format of a trial, or of one rank of another tool's trace.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("id", po::value<std::vector<std::string>>()->value_name("ID"), kTrialIdHelp);
  options.add()(
      "from", po::value<std::string>()->value_name("FILE"),
      "instead of a database: a trace of PyTorch's profiler, an SQLite export of Nsight "
      "Systems, JSON of rocprofv3, or what moetune wrote in Chrome's format: of a trial, or of "
      "one rank");
  options.add()("out", po::value<std::string>()->value_name("FILE"), "where to write it");
  options.add()(
      "format", po::value<std::string>()->value_name("chrome|perfetto"),
      "chrome (JSON) or perfetto (protobuf, a third as large); default: perfetto for a file "
      "that ends in .pftrace or .perfetto-trace, else chrome");
  options.positional("id", -1);
  return options;
}

namespace {

TraceFormat trace_format(const CommandOptions& options, const std::string& out) {
  const std::string name = options.text("format");
  if (name.empty()) return trace_format_of(out);
  const auto format = spec::find_by_name<TraceFormat>(name);
  if (!format) {
    throw base::UsageError(fmt::format("--format is '{}', expected chrome or perfetto", name));
  }
  return *format;
}

/// Told where neither the command nor the file's name says what the file holds.
std::string format_note(const CommandOptions& options, const std::string& out, TraceFormat format) {
  const bool is_said =
      options.has("format") || format == TraceFormat::perfetto || out.ends_with(".json");
  return is_said ? "" : ", as Chrome's JSON; --format perfetto writes Perfetto's format";
}

}  // namespace

int run_trace_command(const CommandOptions& options) {
  const std::string out = options.required("out", "the file (--out FILE)");
  const TraceFormat format = trace_format(options, out);
  std::vector<std::string> inputs = options.texts("id");
  inputs.insert(inputs.end(), {options.text("db"), options.text("from")});
  check_output(out, output_kind(format), "--out", inputs);
  if (options.has("from")) {
    if (options.has("db") || options.has("id")) {
      throw base::UsageError("--from names the trace: neither a database nor a trial beside it");
    }
    const std::string from = options.text("from");
    write_trace_anew(from, out, format);
    std::cout << fmt::format("{} (from {}{})\n", out, from, format_note(options, out, format));
    return 0;
  }

  const auto [path, id] = options.database_and_word(kTrialIdWhat);
  const auto store = store::Store::open_read_only(path);
  const store::TrialRow trial = find_trial(store, id);
  if (!write_trace_file(store, trial, out, format)) {
    throw base::UsageError(fmt::format("{}: {}", path, no_trace_text(store, trial)));
  }
  std::cout << fmt::format("{} (trial {}{})\n", out, trial.id, format_note(options, out, format));
  return 0;
}

}  // namespace moetune::sweeps
