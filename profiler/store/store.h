// The runs database: every sweep, trial, decision and trace in one SQLite file. Plain structs go in
// and come out, so that the tuner, the sweep loop and the report know no SQL. A trial becomes final
// in one transaction (finish_trial).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/search_words.h"
#include "profiler/memory_ledger.h"
#include "profiler/record.h"
#include "profiler/store/bisect.h"
#include "profiler/store/shard.h"

namespace moetune::store {

using base::DecisionKind;
using base::Phase;

class Database;

/// The process that runs a trial. The start time (clock ticks since boot, field 22 of
/// /proc/<pid>/stat) tells a reused pid from the process that took the lease.
struct Lease {
  int64_t pid = 0;
  std::string host;
  int64_t start = 0;
};
Lease current_lease();
/// True when the holder still runs, or when it ran on another host, where nobody here can look.
bool is_alive(const Lease& lease);

/// UTC, ISO 8601 with milliseconds: "2026-01-31T12:34:56.789Z".
std::string now_utc();
/// Seconds since 1970 for a text as now_utc() writes it; 0 for any other text.
double seconds_of(const std::string& utc);

/// A named text value: a knob, a line of the environment, a text of a trial.
struct NamedText {
  std::string name;
  std::string value;
};

/// One sweep. `config_hash` is its identity: the same hash resumes the same row.
struct SweepRow {
  int64_t id = 0;
  std::string name;
  std::string config_hash;
  std::string config_json;
  std::string contract_json;
  std::string model_name;
  std::string model_json;
  std::string hardware_name;
  std::string hardware_json;
  SearchStatus status = SearchStatus::running;
  std::string started_at;  ///< UTC, ISO 8601 with milliseconds; set by the store
  std::string ended_at;    ///< empty while it runs
  std::string command_line;
  std::string tool_version;
  std::string tool_commit;
  // Ids of trials, set by the store (set_landmarks, begin_trial). Empty until there is such a
  // trial.
  std::optional<int64_t> winner_trial;     ///< the best so far; once the sweep is done, its answer
  std::optional<int64_t> baseline_trial;   ///< the user's starting configuration
  std::optional<int64_t> first_fit_trial;  ///< the first configuration that fitted and ran
};

/// A machine and a build with which a sweep has run.
struct EnvironmentRow {
  int64_t id = 0;
  int64_t ordinal = 0;  ///< 1, 2, ... of its sweep; the latest has the largest
  std::string started_at;
  std::vector<NamedText> values;  ///< host, cpu, compiler, ...; see kEnvironmentIdentity

  /// The value of that name; empty if there is none.
  [[nodiscard]] std::string value(std::string_view name) const;
};
/// Names of the values that two environments must share for their measurements to be compared.
inline constexpr std::array<std::string_view, 3> kEnvironmentIdentity = {"host", "commit",
                                                                         "binary"};
bool are_comparable(const EnvironmentRow& a, const EnvironmentRow& b);

/// One run of a trial that came to an end.
struct MeasurementRow {
  int64_t trial_id = 0;
  int64_t attempt = 0;            ///< 1, 2, ... in the order they were made
  std::string purpose = "first";  ///< first, again, longer, in_turns
  std::string status;
  std::string reason;
  bool is_counted = true;              ///< false: its environment is not the trial's latest one
  int64_t num_steps = 0;               ///< timed, untraced steps that were asked for
  std::vector<int64_t> samples_ns;     ///< times of the steps that ran
  std::vector<int64_t> played_ns;      ///< the same steps, played with the run's robust durations
  std::optional<int64_t> probe_ns;     ///< time of a fixed piece of work, median of its runs
  std::optional<int64_t> step_ns;      ///< median of the played times, else of the samples
  std::optional<int64_t> step_ns_low;  ///< interval of that median
  std::optional<int64_t> step_ns_high;
  std::string window_start;  ///< UTC, ISO 8601 with milliseconds
  std::string window_end;
  std::optional<int64_t> duration_ns;
  std::optional<int64_t> environment_id;
  std::string commit;  ///< of the build that measured
};

/// One trial as stored. An optional is empty if the value is not known (never started, no
/// prediction, no steps).
struct TrialRow {
  int64_t id = 0;
  int64_t sweep_id = 0;
  int64_t ordinal = 0;  ///< 1, 2, ... by first appearance in the sweep; set by the store
  std::string spec_hash;
  std::string spec_json;
  std::string status;        ///< as spec::name_of(TrialStatus)
  std::string reason;        ///< why it is not ok; for ok trials empty
  std::string phase;         ///< a name of Phase
  bool is_baseline = false;  ///< the sweep says so (SweepRow::baseline_trial)
  std::string wall;          ///< as base::name_of(Wall); empty when not analysed
  std::optional<int64_t> predicted_peak_bytes;
  std::optional<int64_t> peak_bytes;
  std::optional<int64_t> predicted_step_ns;
  std::optional<int64_t> step_ns;      ///< median of the timed, untraced steps
  std::optional<int64_t> step_ns_low;  ///< confidence interval of the median
  std::optional<int64_t> step_ns_high;
  std::optional<double> tokens_per_s;
  std::optional<double> loss_final;  ///< nats per token
  std::string started_at;
  std::string ended_at;
  std::optional<int64_t> duration_ns;  ///< real time from begin_trial to finish_trial
  Lease lease;
  int64_t num_attempts = 0;
  std::vector<NamedText> knobs;
};

/// A predicted number of a trial; `grade` is measured, calibrated or analytic.
struct PredictionRow {
  std::string name;
  double value = 0;
  std::string grade = "analytic";
};

/// A number of a trial under a name of metric_table() (metrics.h). Rank -1 is the whole run.
struct MetricRow {
  int rank = -1;
  std::string name;
  double value = 0;
};

/// Bytes that one group of one rank held at the moment of the rank's peak. Group "total" is the
/// peak itself, "capacity" the rank's capacity.
struct MemoryRow {
  int rank = 0;
  std::string group;
  std::optional<int64_t> bytes;  ///< empty: predicted only
  std::optional<int64_t> predicted_bytes;
  std::string peak_allocation;  ///< the allocation that set the peak; only for group "total"
};

/// The predicted counterpart of a rank's and group's measured memory. Kept even if nothing was
/// measured.
struct MemoryPrediction {
  int rank = 0;
  std::string group;  ///< a name of profiler::MemoryGroup, or "total"
  int64_t predicted_bytes = 0;
};

/// What the workflow saw, did and gained. `(sweep_id, ordinal)` is the identity: replaying it on
/// resume replaces the row.
struct DecisionRow {
  int64_t id = 0;
  int64_t sweep_id = 0;
  int64_t ordinal = 0;
  std::string phase;  ///< a name of Phase
  DecisionKind kind = DecisionKind::note;
  std::optional<int64_t> trial_id;
  std::optional<int64_t> baseline_trial_id;
  std::string wall;
  std::string remedy;
  std::string knob;
  std::string value_before;
  std::string value_after;
  std::optional<double> gain_ratio;      ///< step time saved over the baseline's
  std::optional<double> gain_low_ratio;  ///< interval of gain_ratio
  std::optional<double> gain_high_ratio;
  std::optional<double> noise_ratio;  ///< half of that interval
  std::string text;                   ///< one sentence for people
  std::string evidence_json = "{}";
};

/// Time before / time after - 1, and its interval if one is known.
struct Gain {
  double ratio = 0;
  std::optional<double> low_ratio;
  std::optional<double> high_ratio;
  // The two step times of the ratio, of the winner and of the first fit, from runs of one length.
  std::optional<int64_t> step_ns;
  std::optional<int64_t> first_fit_step_ns;
};
/// Gain of the winner over the first configuration that fitted. Taken from the search's verdict,
/// which compares runs of one length; without a verdict, from the rows. The row of a validated
/// winner holds its long run, whose steps take longer (routing drifts while the router learns), so
/// it is not comparable with the row of the first fit.
std::optional<Gain> gain_over_first_fit(const std::vector<DecisionRow>& decisions,
                                        const TrialRow& winner, const TrialRow& first_fit);

using StepRow = ShardStep;
using OpRow = ShardOp;

/// Everything of one shard file, in memory, so that it can be analysed before the trial is
/// finished.
struct ShardContents {
  std::string path;
  std::vector<ShardStep> steps;
  std::vector<profiler::StepTrace> traces;  ///< ordered by step, then rank
  std::vector<ShardMemory> memory;
  std::vector<ShardOp> ops;
  std::vector<ShardWork> work;
  std::vector<MetricRow> metrics;
  std::vector<NamedText> texts;

  /// The last text under that name, or empty.
  [[nodiscard]] std::string text(std::string_view name) const;
};

/// A shard that is missing, damaged or not one of ours.
class ShardError : public base::Error {
 public:
  using Error::Error;
};

/// Reads what a rank process has committed, also after it was killed (the write-ahead log is
/// recovered). Checks everything in the file. Throws ShardError, which names the path, for a
/// missing, damaged or foreign file.
ShardContents read_shard(const std::string& path);

/// The largest step that the process writing `path` has committed; empty when there is none yet or
/// the file cannot be read at this moment. Cheap enough to ask while the process runs.
std::optional<int64_t> committed_step(const std::string& path);

/// How a trial ended; what finish_trial writes.
struct TrialResult {
  std::string status;
  std::string reason;
  std::string wall;
  std::optional<int64_t> peak_bytes;  ///< empty: the largest peak in the shards, if any
  std::optional<int64_t> step_ns;
  std::optional<int64_t> step_ns_low;
  std::optional<int64_t> step_ns_high;
  std::optional<double> tokens_per_s;
  std::optional<double> loss_final;  ///< empty: the loss of the last step in the shards, if any
  std::vector<MetricRow> metrics;
  std::vector<NamedText> texts;  ///< such as "stderr", "command"
  // The run that gave these numbers, stored as a measurement (MeasurementRow).
  std::string purpose = "first";
  int64_t num_steps = 0;
  std::vector<int64_t> samples_ns;
  std::vector<int64_t> played_ns;
  std::optional<int64_t> probe_ns;
  std::optional<int64_t> environment_id;  ///< empty: the sweep's latest
  std::vector<ShardContents> shards;      ///< shards of its ranks, from read_shard
  bool keeps_trace = true;                ///< false: trace records are left out, the rest is stored
};

/// The speed in a trial's row, from all measurements that count, if there are several.
struct TrialSpeed {
  int64_t step_ns = 0;
  int64_t step_ns_low = 0;
  int64_t step_ns_high = 0;
  std::optional<double> tokens_per_s;
};

/// The status that finish_trial has stored.
struct FinishOutcome {
  std::string status;
  std::string reason;
  std::vector<std::string> shard_problems;  ///< one sentence per shard that contradicts itself
};

/// What take_back_stale found among the running rows of other processes.
struct StaleTrials {
  std::vector<std::string> taken_back;  ///< spec hashes; their rows are `interrupted` now
  std::vector<std::string> held;  ///< sentences naming the hash and the living or foreign holder
};

/// True if a sweep never runs a spec again after this status (all but running and interrupted).
bool is_final(std::string_view status);

/// One open database. Not thread-safe; several processes may have the same file open. All calls
/// throw base::Error, or base::UsageError for a wrong file, with the path in the message.
class Store {
 public:
  /// Opens a database for writing, creating it (with the schema) when the file does not exist or is
  /// empty.
  static Store open(const std::string& path);
  /// Opens an existing database for reading only; it must have the current schema.
  static Store open_read_only(const std::string& path);
  /// Brings an existing database to the current schema; returns the schema number it had.
  static int upgrade(const std::string& path);
  static int schema_version();

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // Writing: sweeps and decisions.

  struct OpenedSweep {
    int64_t id = 0;
    bool is_resumed = false;
  };
  /// Finds the sweep of the same config_hash and sets it running again, or inserts it.
  OpenedSweep create_or_resume_sweep(const SweepRow& sweep);
  /// Sets status and end time.
  void finish_sweep(int64_t sweep_id, SearchStatus status);
  /// Sets the environment in which the sweep runs from now on (host, cpu, compiler, versions, ...);
  /// returns its id. Values that equal those of the latest environment add none; earlier ones stay.
  int64_t set_environment(int64_t sweep_id, const std::vector<NamedText>& values);
  /// Ids of trials of the sweep.
  struct Landmarks {
    std::optional<int64_t> winner_trial;
    std::optional<int64_t> baseline_trial;
    std::optional<int64_t> first_fit_trial;
    bool operator==(const Landmarks&) const = default;
  };
  void set_landmarks(int64_t sweep_id, const Landmarks& landmarks);
  /// Inserts, or replaces the decision of the same sweep and ordinal.
  void add_decision(const DecisionRow& decision);
  /// Drops the decisions from `first_ordinal` on, when a replay took another way.
  void drop_decisions(int64_t sweep_id, int64_t first_ordinal);

  // Writing: trials.

  /// Writes the row as `running` with this process's lease and returns its id. Uses these members
  /// of `trial`: sweep_id, spec_hash, spec_json, phase, is_baseline (true: it becomes the sweep's
  /// baseline), predicted_*, knobs. Reuses an interrupted, stale or pruned row of the same hash:
  /// num_attempts grows, its old records are deleted. Throws base::Error if the row is finished
  /// otherwise, or if a living process holds it.
  int64_t begin_trial(const TrialRow& trial, const std::vector<PredictionRow>& predictions = {},
                      const std::vector<MemoryPrediction>& memory = {});
  /// The commit point: ingests the shards, writes metrics and texts, and sets the status, all in
  /// one transaction. A missing or damaged shard turns `ok` into `failed` with the reason; other
  /// statuses stay, and the problem goes to the trial's log.
  FinishOutcome finish_trial(int64_t trial_id, const TrialResult& result);
  /// Replaces a finished trial that was measured anew in another environment. Does what begin_trial
  /// and finish_trial do, in one transaction, but with the caller's `started_at`.
  FinishOutcome replace_trial(const TrialRow& trial, const std::vector<PredictionRow>& predictions,
                              const std::vector<MemoryPrediction>& memory,
                              const TrialResult& result);
  /// Adds a further run of a finished trial, which lasted from `started_at` (UTC) until now;
  /// returns its attempt. Keeps only status, reason, step times, samples and the other members of
  /// MeasurementRow from the result. `speed` replaces the trial's own numbers.
  int64_t add_measurement(int64_t trial_id, const std::string& started_at,
                          const TrialResult& result, const std::optional<TrialSpeed>& speed);
  /// Adds a text to a finished trial.
  void add_text(int64_t trial_id, const NamedText& text);
  /// Adds a trial that never started (invalid, pruned); returns its id. If the hash is known,
  /// returns the old id and changes the row only if it was interrupted.
  int64_t add_finished_trial(const TrialRow& trial,
                             const std::vector<PredictionRow>& predictions = {},
                             const std::vector<MemoryPrediction>& memory = {});
  void set_baseline(int64_t trial_id);
  /// Sets `running` rows whose holder is dead to `interrupted`, so that they are repeated. With
  /// `takes_foreign`, also rows held by another host.
  StaleTrials take_back_stale(int64_t sweep_id, bool takes_foreign = false);

  // Writing: hunts (bisect.h).

  /// Finds the hunt of the same config_hash and sets it running again (its last result stays), or
  /// inserts it. The caller has to keep two processes from running the same hunt.
  int64_t open_bisect(const BisectRow& hunt);
  /// Replaces the commits of a hunt.
  void set_bisect_commits(int64_t hunt_id, const std::vector<BisectCommitRow>& commits);
  /// Adds a run; it is on disk when the call returns, also if the power fails. Ordinal 0 stands for
  /// the next one. Throws ConstraintError if the ordinal is taken.
  void add_bisect_run(int64_t hunt_id, const BisectRunRow& run);
  /// Sets status, verdict ("" for none) and result. With `running` they are preliminary.
  void finish_bisect(int64_t hunt_id, SearchStatus status, const std::string& verdict,
                     const std::string& result_json);

  // Reading.

  /// Ordered by id.
  [[nodiscard]] std::vector<BisectRow> read_bisects() const;
  /// Ordered by position. Throws base::Error for a position outside of an int, which somebody else
  /// has written.
  [[nodiscard]] std::vector<BisectCommitRow> read_bisect_commits(int64_t hunt_id) const;
  /// Ordered by ordinal. Throws as read_bisect_commits; does not check that the hunt has such a
  /// commit.
  [[nodiscard]] std::vector<BisectRunRow> read_bisect_runs(int64_t hunt_id) const;
  /// Measurements with this key from all hunts except `hunt_id`, in the order of time.
  [[nodiscard]] std::vector<BisectRunRow> read_bisect_runs_of_others(int64_t hunt_id,
                                                                     const std::string& key) const;
  [[nodiscard]] std::vector<SweepRow> read_sweeps() const;
  [[nodiscard]] std::optional<SweepRow> read_sweep(int64_t sweep_id) const;
  /// The values of the sweep's latest environment.
  [[nodiscard]] std::vector<NamedText> read_environment(int64_t sweep_id) const;
  /// All environments, ordered by ordinal.
  [[nodiscard]] std::vector<EnvironmentRow> read_environments(int64_t sweep_id) const;
  /// Ordered by attempt. Samples that are not a list of durations are read as none.
  [[nodiscard]] std::vector<MeasurementRow> read_measurements(int64_t trial_id) const;
  /// Those of all trials of a sweep, ordered by trial and attempt.
  [[nodiscard]] std::vector<MeasurementRow> read_measurements_of_sweep(int64_t sweep_id) const;
  [[nodiscard]] std::vector<DecisionRow> read_decisions(int64_t sweep_id) const;
  /// Trials with their knobs, ordered by sweep and ordinal. `sweep_id` 0: all sweeps.
  [[nodiscard]] std::vector<TrialRow> list_trials(int64_t sweep_id = 0) const;
  [[nodiscard]] std::optional<TrialRow> find_trial(int64_t sweep_id,
                                                   const std::string& spec_hash) const;
  [[nodiscard]] std::optional<TrialRow> get_trial(int64_t trial_id) const;
  /// Finds a trial by its id ("12") or by the first digits of its hash (at least 4). A text that is
  /// both is taken as an id. Throws base::UsageError if none or several match; `others` is what the
  /// message names beside ids and hashes ("best, "), `behind` what it ends with where none matches.
  [[nodiscard]] TrialRow get_trial(const std::string& id_or_hash_prefix,
                                   const std::string& others = "",
                                   const std::string& behind = "") const;
  /// Ordered by step, then rank.
  [[nodiscard]] std::vector<profiler::StepTrace> read_trace(int64_t trial_id) const;
  /// Replaces the contents of this connection's temporary table trace_record (columns:
  /// trace_columns.h) with the records of the trial's last traced step. The file does not change.
  void unpack_trace(int64_t trial_id) const;
  [[nodiscard]] std::vector<StepRow> read_steps(int64_t trial_id) const;
  [[nodiscard]] std::vector<MemoryRow> read_memory(int64_t trial_id) const;
  [[nodiscard]] std::vector<OpRow> read_ops(int64_t trial_id) const;
  [[nodiscard]] std::vector<MetricRow> read_metrics(int64_t trial_id) const;
  [[nodiscard]] std::vector<PredictionRow> read_predictions(int64_t trial_id) const;
  [[nodiscard]] std::vector<NamedText> read_texts(int64_t trial_id) const;

  /// The connection, for the report's own queries (db.h).
  [[nodiscard]] Database& database() const;
  [[nodiscard]] const std::string& path() const;

 private:
  explicit Store(std::unique_ptr<Database> database);

  std::unique_ptr<Database> database_;
};

}  // namespace moetune::store
