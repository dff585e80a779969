// Makes the rows up from the trial's number alone, so that the same number gives the same database.
#include "tests/reports/many_trials_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/store/db.h"
#include "profiler/store/store.h"

namespace moetune::tests {
namespace {

using nlohmann::json;
using store::Database;
using store::Statement;

constexpr int kRanks = 8;
constexpr int64_t kDeviceBytes = 80LL << 30;
constexpr int64_t kTokens = 1 << 20;

/// A knob, and the values that trials draw from.
struct DrawnKnob {
  const char* name;
  std::array<const char*, 4> values;
};
constexpr auto kDrawnKnobs = std::to_array<DrawnKnob>({
    {"data_parallel_size", {"8", "4", "2", "1"}},
    {"context_parallel_size", {"1", "1", "2", "4"}},
    {"expert_model_parallel_size", {"8", "4", "2", "1"}},
    {"pipeline_model_parallel_size", {"1", "2", "4", "8"}},
    {"virtual_pipeline_model_parallel_size", {"1", "1", "2", "4"}},
    {"micro_batch_size", {"1", "2", "4", "1"}},
    {"recompute", {"none", "norm", "norm,moe_act", "full"}},
    {"ep_chunks_forward", {"1", "2", "4", "1"}},
    {"ep_chunks_backward", {"1", "2", "4", "1"}},
    {"cuda_graph_modules", {"none", "attn", "attn,moe_router", "attn,moe_router,moe_preprocess"}},
    {"overlap_grad_reduce", {"false", "true", "false", "true"}},
    {"overlap_param_gather", {"false", "true", "true", "false"}},
    {"moe_shared_expert_overlap", {"false", "false", "true", "false"}},
    {"delay_wgrad_compute", {"false", "false", "false", "true"}},
    {"use_distributed_optimizer", {"true", "true", "true", "true"}},
    {"sequence_parallel", {"true", "true", "true", "true"}},
    {"moe_token_dispatcher_type", {"alltoall", "alltoall", "alltoall", "alltoall"}},
    {"attention_backend", {"flash", "flash", "flash", "flash"}},
});

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 32);
}
double between(int trial, int salt, double low, double high) {
  const uint64_t drawn = mixed(static_cast<uint64_t>(trial) * 1009 + static_cast<uint64_t>(salt));
  return low + (high - low) * static_cast<double>(drawn % 100'000) / 100'000;
}
const char* value_of(const DrawnKnob& knob, size_t index, int trial) {
  // The first ones are as the user has set them.
  if (trial <= 3) return knob.values[0];
  return knob.values[mixed(static_cast<uint64_t>(trial) * 64 + index) % knob.values.size()];
}

struct Ending {
  const char* status;
  const char* reason;
  int out_of_100;
};
constexpr auto kEndings = std::to_array<Ending>({
    {"ok", "", 62},
    {"pruned", "predicted peak {:.1f} GiB is above the capacity of 80.0 GiB", 22},
    {"oom",
     "out of memory on rank {:.0f}: allocation 'layers.{:.0f}.experts' (optimizer) of 1.50 GiB "
     "does not fit",
     6},
    {"invalid",
     "ep_divides_experts: expert_model_parallel_size is {:.0f}, but 8 experts need one of 1, 2, 4, "
     "8",
     6},
    {"wrong", "loss of step 3 is {:.3f}, the reference has 4.871 (allowed difference 0.02)", 2},
    {"hung", "no new step within {:.0f} s (20 times the prediction); the last was step 1", 1},
    {"failed", "rank {:.0f} ended with code 1", 1},
});

const Ending& ending_of(int trial) {
  if (trial == 1 || trial == 3) return kEndings[0];
  if (trial == 2) return kEndings[2];
  int left = static_cast<int>(between(trial, 1, 0, 100));
  for (const Ending& ending : kEndings) {
    if (left < ending.out_of_100) return ending;
    left -= ending.out_of_100;
  }
  return kEndings[0];
}

const char* phase_of(int trial, int num_trials) {
  if (trial <= 2) return "contract";
  if (trial <= 4) return "fit";
  return trial < num_trials / 4 ? "scale" : "retune";
}

/// Of the step, by the names of the metric table.
std::vector<std::pair<const char*, double>> metric_shares(int64_t trial) {
  const double ep = between(static_cast<int>(trial), 8, 0.05, 0.2);
  return {{"traced_step_ns", 1.02},
          {"compute_busy_ns", 0.7 - ep},
          {"recompute_busy_ns", 0.05},
          {"launch_starved_ns", 0.1},
          {"blocking_transfer_ns", 0.03 + ep},
          {"blocking_transfer_ns.ep", ep},
          {"blocking_transfer_ns.dp_cp", 0.02},
          {"blocking_wait_ns", 0.05},
          {"pipeline_bubble_ns", 0.03},
          {"dependency_stalled_ns", 0.01},
          {"comm_busy_ns", 0.3},
          {"comm_busy_ns.ep", 0.2},
          {"comm_exposed_ns", 0.15},
          {"comm_exposed_ns.ep", 0.1},
          {"comm_volume_ns", 0.35},
          {"comm_volume_ns.ep", 0.25},
          {"jitter_ns", 0.02},
          {"host_sync_ns", 0.01},
          {"critical_compute_ns", 0.6},
          {"critical_transfer_ns", 0.2}};
}

/// One database while it is filled.
class ManyTrials {
 public:
  ManyTrials(Database& database, int64_t sweep, int num_trials, std::string mark)
      : sweep_(sweep),
        num_trials_(num_trials),
        mark_(std::move(mark)),
        trial_(database,
               "INSERT INTO trial (id, sweep_id, ordinal, spec_hash, status, reason, phase, "
               "spec_json, wall, predicted_peak_bytes, peak_bytes, predicted_step_ns, step_ns, "
               "step_ns_low, step_ns_high, tokens_per_s, loss_final, started_at, num_attempts) "
               "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2.3, "
               "'2026-01-01T00:00:00.000Z', 1)"),
        knob_(database, "INSERT INTO trial_knob VALUES (?, ?, ?, ?)"),
        prediction_(database, "INSERT INTO prediction VALUES (?, ?, ?, ?)"),
        metric_(database, "INSERT INTO metric VALUES (?, ?, ?, 'ns', ?)"),
        memory_(database, "INSERT INTO memory_peak VALUES (?, ?, ?, ?, ?, ?)"),
        log_(database, "INSERT INTO trial_log VALUES (?, ?, ?, ?)"),
        measurement_(database,
                     "INSERT INTO measurement (trial_id, attempt, purpose, status, is_counted, "
                     "num_steps, samples, step_ns, step_ns_low, step_ns_high, window_start, "
                     "window_end, \"commit\") VALUES (?, 1, 'first', ?, 1, 6, ?, ?, ?, ?, "
                     "'2026-01-01T00:00:00.000Z', '2026-01-01T00:00:01.000Z', 'abc')"),
        decision_(database,
                  "INSERT INTO decision (sweep_id, ordinal, phase, kind, trial_id, "
                  "baseline_trial_id, wall, remedy, knob, value_before, value_after, gain_ratio, "
                  "noise_ratio, text, evidence_json) VALUES "
                  "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0.01, ?, '{}')") {}

  void add(int trial) {
    const Ending& ending = ending_of(trial);
    const bool is_ok = std::string_view(ending.status) == "ok";
    const bool is_run = is_ok || std::string_view(ending.status) == "oom";
    std::optional<int64_t> step;
    if (is_ok) step = ns_of(trial);
    const auto part = [&](double ratio) {
      return step ? std::optional(static_cast<int64_t>(ratio * static_cast<double>(*step)))
                  : std::nullopt;
    };
    const double peak = static_cast<double>(kDeviceBytes) * between(trial, 3, 0.35, 0.99);
    const char* wall = !is_ok          ? ""
                       : trial % 5 < 3 ? "communication"
                       : trial % 5 < 4 ? "host"
                                       : "compute";
    json knobs;
    for (size_t i = 0; i < kDrawnKnobs.size(); ++i) {
      knobs[kDrawnKnobs[i].name] = value_of(kDrawnKnobs[i], i, trial);
    }
    const json spec = {{"model", {{"name", "made-up"}, {"num_layers", 48}, {"num_experts", 128}}},
                       {"hardware", {{"name", "made-up"}, {"memory_bytes", kDeviceBytes}}},
                       {"knobs", knobs},
                       {"backend", "cpu"},
                       {"clock", "virtual_measured"},
                       {"seed", trial}};
    trial_
        .bind_all(trial, sweep_, trial, fmt::format("{:016x}", mixed(static_cast<uint64_t>(trial))),
                  ending.status, reason_of(trial, ending), phase_of(trial, num_trials_),
                  spec.dump())
        .bind_text_or_null(9, wall)
        .bind(10, std::optional(static_cast<int64_t>(peak * between(trial, 4, 0.98, 1.02))))
        .bind(11, is_run ? std::optional(static_cast<int64_t>(peak)) : std::nullopt)
        .bind(12, part(between(trial, 5, 0.9, 1.1)))
        .bind(13, step)
        .bind(14, part(0.992))
        .bind(15, part(1.009))
        .bind(16, step ? std::optional(1e9 * kTokens / static_cast<double>(*step)) : std::nullopt);
    trial_.run();
    for (size_t i = 0; i < kDrawnKnobs.size(); ++i) {
      knob_
          .bind_all(trial, static_cast<int64_t>(i), mark_ + kDrawnKnobs[i].name,
                    mark_ + value_of(kDrawnKnobs[i], i, trial))
          .run();
    }
    prediction_.bind_all(trial, "peak_bytes", peak, "analytic").run();
    prediction_.bind_all(trial, "step_ns", 1e9, "calibrated").run();
    log_.bind_all(trial, 0, "title",
                  fmt::format("{}{}: {} {} -> {}, {} {}", mark_, phase_of(trial, num_trials_),
                              varied(trial).name, varied(trial).values[0],
                              varied(trial).values[static_cast<size_t>(trial) % 4],
                              varied(trial + 5).name, varied(trial + 5).values[1]))
        .run();
    log_.bind_all(trial, 1, "stderr", std::string(300, 'x')).run();
    if (is_run) add_memory(trial, peak);
    if (is_ok) {
      add_metrics(trial, static_cast<double>(*step));
      measurement_
          .bind_all(trial, ending.status, fmt::format("[{0},{0},{0},{0}]", *step), *step,
                    *part(0.992), *part(1.009))
          .run();
    }
    decide(trial, is_ok);
  }

 private:
  static const DrawnKnob& varied(int trial) { return kDrawnKnobs[static_cast<size_t>(trial) % 14]; }

  static int64_t ns_of(int trial) {
    if (trial == 1) return 30'000'000'000;
    double ratio = 1;
    for (size_t i = 0; i < kDrawnKnobs.size(); ++i) {
      const std::string_view value = value_of(kDrawnKnobs[i], i, trial);
      const size_t at = static_cast<size_t>(std::ranges::find(kDrawnKnobs[i].values, value) -
                                            kDrawnKnobs[i].values.begin());
      ratio *= 1 + 0.03 * static_cast<double>(at) * static_cast<double>(i % 5);
    }
    return static_cast<int64_t>(1e9 * ratio * between(trial, 2, 0.99, 1.01));
  }

  std::string reason_of(int trial, const Ending& ending) const {
    if (ending.reason[0] == '\0') return "";
    const double a = between(trial, 6, 80.1, 160);
    const double b = between(trial, 7, 0, 47);
    return mark_ + fmt::vformat(ending.reason, fmt::make_format_args(a, b));
  }

  void add_memory(int trial, double peak) {
    constexpr auto kShares = std::to_array<std::pair<const char*, double>>({{"weights", 0.2},
                                                                            {"gradients", 0.2},
                                                                            {"optimizer", 0.15},
                                                                            {"activations", 0.3},
                                                                            {"workspace", 0.1},
                                                                            {"communication", 0.05},
                                                                            {"total", 1}});
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const auto& [group, share] : kShares) {
        const auto bytes = static_cast<int64_t>(peak * share);
        memory_
            .bind_all(trial, rank, group, bytes, bytes + 1000,
                      std::string_view(group) == "total" ? "layers.0.experts" : "")
            .run();
      }
      memory_.bind_all(trial, rank, "capacity", kDeviceBytes).bind_null(5).bind(6, "");
      memory_.run();
    }
  }

  void add_metrics(int trial, double step) {
    const auto shares = metric_shares(trial);
    for (int rank = -1; rank < kRanks; ++rank) {
      for (const auto& [name, share] : shares)
        metric_.bind_all(trial, rank, name, share * step).run();
    }
  }

  void decide(int trial, bool is_ok) {
    const bool is_kept = is_ok && trial > 2 && (trial < 6 || trial % 400 == 0);
    const char* phase = phase_of(trial, num_trials_);
    decision_.bind_all(sweep_, ++num_decisions_, phase,
                       is_kept ? "kept"
                       : is_ok ? "rejected"
                               : "tried",
                       trial);
    decision_.bind(
        6, trial > 3 ? std::optional<int64_t>(std::max(3, trial - trial % 400)) : std::nullopt);
    decision_.bind_text_or_null(7, trial % 800 < 400 ? "communication" : "host");
    decision_.bind(8, mark_ + "overlap").bind(9, mark_ + varied(trial).name);
    decision_.bind(10, varied(trial).values[0]).bind(11, varied(trial).values[1]);
    decision_.bind(12, is_ok ? std::optional(between(trial, 9, -0.2, 0.05)) : std::nullopt);
    decision_.bind(13, fmt::format("{}{} {} -> {}: {:.1f} % slower than the best so far, by 2 and "
                                   "2 runs.",
                                   mark_, varied(trial).name, varied(trial).values[0],
                                   varied(trial).values[1], between(trial, 9, 0, 20)));
    decision_.run();
    if (trial % 400 == 0) {
      decision_.bind_all(sweep_, ++num_decisions_, "retune", "wall", trial).bind_null(6);
      decision_.bind(7, trial % 800 == 0 ? "communication" : "host").bind(8, "").bind(9, "");
      decision_.bind(10, "").bind(11, "").bind_null(12).bind(13, mark_ + "The wall is met again.");
      decision_.run();
    }
  }

  int64_t sweep_;
  int num_trials_;
  std::string mark_;
  int64_t num_decisions_ = 0;
  Statement trial_;
  Statement knob_;
  Statement prediction_;
  Statement metric_;
  Statement memory_;
  Statement log_;
  Statement measurement_;
  Statement decision_;
};

profiler::StepTrace trace_of(int rank, const std::string& mark) {
  constexpr int kRecords = 1500;
  profiler::StepTrace trace;
  trace.rank = rank;
  trace.step = 5;
  trace.end_ns = int64_t{kRecords} * 100'000;
  for (int i = 0; i < kRecords; ++i) {
    const bool is_comm = i % 4 == 3;
    profiler::TraceRecord& record = trace.records.emplace_back();
    record.id = i;
    record.rank = rank;
    record.step = trace.step;
    record.kind = is_comm ? profiler::RecordKind::collective : profiler::RecordKind::kernel;
    record.stream = is_comm ? 1 : 0;
    record.name = fmt::format("{}op_{}.forward", mark, i % 40);
    record.group = is_comm ? "ep" : "";
    record.layer = i % 48;
    record.micro_batch = i / 200;
    record.start_ns = int64_t{i} * 100'000 + static_cast<int64_t>(between(i, rank, 1e4, 2e4));
    record.end_ns = record.start_ns + 70'000;
    record.launch_start_ns = record.start_ns - 9000;
    record.launch_end_ns = record.start_ns - 3000;
    record.transfer_ns = is_comm ? 50'000 : 0;
    record.bytes = is_comm ? 4096 : 0;
  }
  return trace;
}

/// The long run of the start's knobs, as a sweep stores it: with steps, a trace and its numbers.
int64_t add_winner(store::Store& store, int64_t sweep, const std::string& mark,
                   const std::string& folder) {
  constexpr double kStepNs = 900e6;
  store::TrialRow row;
  row.sweep_id = sweep;
  row.spec_hash = "feedfacefeedface";
  row.phase = "validate";
  row.spec_json = json{{"hardware", {{"memory_bytes", kDeviceBytes}}}, {"clock", "wall"}}.dump();
  for (const DrawnKnob& knob : kDrawnKnobs) {
    row.knobs.push_back({mark + knob.name, mark + knob.values[0]});
  }
  const int64_t id = store.begin_trial(row);
  const std::string shard = folder + "/winner.shard";
  {
    store::ShardWriter writer(shard);
    for (int rank = 0; rank < kRanks; ++rank) {
      writer.add_trace(trace_of(rank, mark));
      for (const auto& [name, share] : metric_shares(id)) {
        writer.add_metric(rank, name, share * kStepNs);
      }
    }
    for (int step = 0; step < 50; ++step) {
      writer.add_step({.step = step,
                       .is_warmup = step == 0,
                       .is_traced = step == 5,
                       .step_ns = static_cast<int64_t>(kStepNs),
                       .loss = 5.0 / (1 + step)});
    }
    writer.commit();
  }
  store::TrialResult result;
  result.status = "ok";
  result.wall = "communication";
  result.peak_bytes = kDeviceBytes / 2;
  result.step_ns = static_cast<int64_t>(kStepNs);
  result.step_ns_low = static_cast<int64_t>(0.99 * kStepNs);
  result.step_ns_high = static_cast<int64_t>(1.01 * kStepNs);
  result.tokens_per_s = 1e9 * kTokens / kStepNs;
  result.shards = {store::read_shard(shard)};
  store.finish_trial(id, result);
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(shard + suffix);
  store::DecisionRow kept;
  kept.sweep_id = sweep;
  kept.ordinal = 1'000'000;
  kept.phase = "validate";
  kept.kind = store::DecisionKind::kept;
  kept.trial_id = id;
  kept.text = mark + "The step time holds.";
  store.add_decision(kept);
  return id;
}

}  // namespace

void make_many_trials(const std::string& path, int num_trials, const std::string& mark) {
  store::Store store = store::Store::open(path);
  store::SweepRow sweep;
  sweep.name = mark + "many trials";
  sweep.config_hash = "many";
  sweep.config_json = "{}";
  sweep.model_name = "made-up";
  sweep.model_json = "{}";
  sweep.hardware_name = "made-up";
  sweep.hardware_json = "{}";
  sweep.command_line = mark + "moetune sweep many.json";
  sweep.contract_json = "{}";
  const int64_t id = store.create_or_resume_sweep(sweep).id;
  store.set_environment(id, {{"host", "example"}});
  Database& database = store.database();
  {
    store::Transaction transaction(database);
    ManyTrials rows(database, id, num_trials, mark);
    for (int trial = 1; trial < num_trials; ++trial) rows.add(trial);
    transaction.commit();
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int64_t winner = add_winner(store, id, mark, folder.empty() ? "." : folder);
  store.set_landmarks(id, {winner, 2, 3});
  store.finish_sweep(id, store::SearchStatus::done);
}

}  // namespace moetune::tests
