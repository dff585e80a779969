// A run of any framework from what it has left: logs, traces, command or configuration, any of them
// missing. What moetune diagnose prints.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"
#include "sweeps/diagnosis.h"
#include "sweeps/runs/remedies.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// What the user states besides the files; all of it is optional.
struct AboutRun {
  /// Reads the command or configuration, whose ranks are those of the logs where it does not say
  /// them (0: neither do these). Empty: none was named. Throws base::UsageError.
  std::function<spec::dialects::RunConfig(int64_t world_size)> read_config;
  std::string config_source;  ///< its file, or the option that has it
  std::shared_ptr<const spec::ModelSpec> model;
  std::shared_ptr<const spec::HardwareSpec> hardware;
  int64_t num_devices = 0;  ///< of the run; 0: not said
};

struct RunDiagnosis {
  std::optional<RunFacts> facts;    ///< empty: no log
  std::optional<Diagnosis> traces;  ///< empty: no trace
  /// As the user gave it, or as it was found in a file or in the log; empty: unknown.
  std::optional<spec::dialects::RunConfig> config;
  std::string config_source;       ///< the file or option that says it; empty: the log
  bool has_unread_config = false;  ///< one was named or found that is not understood
  bool has_other_config = false;   ///< one was named or found that is of another run than the logs
  std::string other_log;           ///< why the logs are of another run than the traces; empty: not
  /// Its ranks are what a script starts where nobody says otherwise: nothing that fits tells how
  /// many there were.
  bool has_default_world = false;
  ParallelSizes traced_sizes;  ///< that the groups in the traces tell and no log does
  std::vector<Remedy> remedies;
  std::vector<std::string> notes;
};

/// Diagnoses one run from its folders and files, whose kinds are recognized by their content.
/// Throws base::UsageError if none of them has facts about a run.
RunDiagnosis diagnose_run(const std::vector<std::string>& paths, const AboutRun& about);

/// Whether ranks may send each other rows of their experts in a trace: it has an all-to-all, a
/// kernel of DeepEP, HybridEP or another such library, or work that may be one.
bool may_exchange_rows(const profiler::ImportedTrace& trace);
/// The same for certain, or with whole graphs and kernels without a name, which may be of experts.
/// A kernel that only sends and receives speaks for no experts: stages have such messages, too.
bool exchanges_rows(const profiler::ImportedTrace& trace);

/// Memory of the fullest device by the logs; its capacity by the logs, else by `hardware`. Zeros:
/// not known.
profiler::MemoryFacts said_memory(const std::optional<RunFacts>& facts,
                                  const spec::HardwareSpec* hardware);

/// Whether the run ended for lack of memory: its remedies free memory and save no time.
bool is_out_of_memory(const RunDiagnosis& diagnosis);
/// Heading of the remedies of a failure, "what would free memory".
std::string what_failure_asks_for(const RunDiagnosis& diagnosis);

/// The wall as to_json() has it, without what is behind it.
struct WallInShort {
  std::string label = name_of(base::Wall::unknown);
  std::string sub_cause;              ///< empty: not told apart
  std::optional<double> share_ratio;  ///< none: no trace tells it
};
WallInShort wall_in_short(const RunDiagnosis& diagnosis);

nlohmann::json to_json(const RunDiagnosis& diagnosis);
/// `width`: of the terminal, empty where it is none.
std::string run_text(const RunDiagnosis& diagnosis, std::optional<size_t> width);

}  // namespace moetune::sweeps
