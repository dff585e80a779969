// Writes the hardware of an emulated sweep: how fast this machine's CPU computes, by running the
// sweep's model, and links, launches and memory in the ratios of a machine that exists. So
// the emulated cluster has the proportions of that machine, whatever CPU its figures are made on.
//
// The machine: 2 nodes with 4 devices each of sweeps/hardware/h100-8x8.json, training OLMoE-1B-7B
// (Muennighoff et al. 2024: 16 layers, hidden 2048, 64 experts of 1024, 8 a token, vocabulary
// 50,304) in bf16 by micro-batches of one sequence of 4096 tokens. docs/results.md has the
// arithmetic. Prints the file, and what it follows from on standard error.
//
// Arguments: a sweep (the quick start), then a folder for the database (a new one in the temporary
// folder).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"
#include "sweeps/load.h"
#include "tuner/compiled_step.h"
#include "tuner/probed_rates.h"

namespace moetune {
namespace {

using tuner::ProbedSum;
using tuner::ProbedSums;

constexpr int kRounds = 3;

struct Described {
  double num_parameters = 6.92e9;
  double state_bytes_per_parameter = 18;  ///< bf16 weight; gradient, master, two moments in fp32
  double tokens = 4096;
  double experts_per_token = 8;
  double hidden = 2048;
  double expert_width = 1024;
  double product_flops_per_s = 6.5e14;
  double grouped_flops_per_s = 2.4e14;  ///< torch._grouped_mm on an H100, hidden 2048, 8 a token
  double element_bytes = 2;
};

struct Gemms {
  double median_ns = 0;
  double experts_ns = 0;  ///< both products of the experts, forward
};

Gemms gemms_of(double qkv_ns, double o_ns, double fc1_ns, double fc2_ns) {
  std::array<double, 4> all = {qkv_ns, o_ns, fc1_ns, fc2_ns};
  std::ranges::sort(all);
  return {(all[1] + all[2]) / 2, fc1_ns + fc2_ns};
}

Gemms gemms_of(const Described& m) {
  const auto ns = [](double rows, double in, double out, double rate) {
    return 2 * rows * in * out / rate * 1e9;
  };
  const double rows = m.tokens * m.experts_per_token;
  return gemms_of(ns(m.tokens, m.hidden, 3 * m.hidden, m.product_flops_per_s),
                  ns(m.tokens, m.hidden, m.hidden, m.product_flops_per_s),
                  ns(rows, m.hidden, 2 * m.expert_width, m.grouped_flops_per_s),
                  ns(rows, m.expert_width, m.hidden, m.grouped_flops_per_s));
}

/// Adds what the trial's operations did.
void run_model(const spec::TrialSpec& trial, const std::string& folder, int64_t index,
               ProbedSums& sums) {
  const std::string file = folder + "/trial.json";
  const std::string db = folder + "/hardware.db";
  std::filesystem::remove(db);
  std::ofstream(file) << spec::to_json(trial).dump(2);
  const std::string command = fmt::format("'{}/moetune' trial '{}' --db '{}' > '{}.out' 2>&1",
                                          MOETUNE_BIN_DIR, file, db, db);
  if (std::system(command.c_str()) != 0) {
    fmt::print(stderr, "the trial has failed; see {}.out\n", db);
    std::exit(1);
  }
  const std::map<std::string, double> row_flops = tuner::CompiledStep(trial).row_flops();
  for (const store::OpRow& op : store::Store::open_read_only(db).read_ops(1)) {
    if (!row_flops.contains(op.name) || op.flops + op.bytes == 0 || op.duration_ns == 0) continue;
    ProbedSum& sum = sums[{op.name, index}];
    sum.count += static_cast<double>(op.count);
    sum.flops += static_cast<double>(op.flops);
    sum.bytes += static_cast<double>(op.bytes);
    sum.row_flops += static_cast<double>(op.count) * row_flops.at(op.name);
    sum.ns += static_cast<double>(op.duration_ns);
  }
}

/// Two digits: more are not the same in the next run.
double rounded(double value) { return std::stod(fmt::format("{:.1e}", value)); }
int64_t rounded_ns(double value) { return std::llround(rounded(value)); }

int run(const std::string& root, const std::string& sweep, const std::string& folder) {
  spec::TrialSpec trial = sweeps::load_sweep(sweep).spec.base;
  const spec::HardwareSpec real = spec::hardware_from_json(
      nlohmann::json::parse(sweeps::read_spec_file(root + "/sweeps/hardware/h100-8x8.json")),
      "h100-8x8.json");
  // Nothing has to fit. Between them the trials run every kind of operation, the optimizer whole
  // and in shards, products with few rows for each matrix and with many.
  trial.hardware.memory_bytes = 0;
  trial.hardware.comm_sm_ratio = 0;
  ProbedSums sums;
  constexpr std::pair<int64_t, int64_t> kTrials[] = {{1, 1}, {1, 2}, {2, 1}, {2, 4}};
  // In turns: the machine's speed changes within seconds.
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < std::size(kTrials); ++i) {
      const auto [micro_batch, ep] = kTrials[i];
      trial.knobs.micro_batch_size = micro_batch;
      trial.knobs.expert_model_parallel_size = ep;
      trial.knobs.use_distributed_optimizer = ep > 1;
      run_model(trial, folder, static_cast<int64_t>(i), sums);
    }
  }

  // Ratios are those of the smallest micro-batch, which most layouts of a search have.
  trial.knobs.micro_batch_size = 1;
  const auto mean_ns = [&](const char* label) {
    const ProbedSum& whole = sums.at({label, 0});
    const ProbedSum& sharded = sums.at({label, 1});
    return (whole.ns + sharded.ns) / (whole.count + sharded.count);
  };
  const Gemms here = gemms_of(mean_ns("qkv_proj.forward"), mean_ns("o_proj.forward"),
                              mean_ns("expert_fc1.forward"), mean_ns("expert_fc2.forward"));
  const Described described;
  const Gemms there = gemms_of(described);
  const double time_ratio = here.median_ns / there.median_ns;

  // Dispatch over the devices of a node, over the products of the experts.
  const double sent_ratio = 1 - 1 / static_cast<double>(trial.hardware.devices_per_node);
  const double there_bytes = described.tokens * described.experts_per_token * described.hidden *
                             described.element_bytes * sent_ratio;
  const double exchange_ratio = there_bytes / real.intra_node.bytes_per_s * 1e9 / there.experts_ns;
  const spec::ModelSpec& model = trial.model;
  const double here_bytes =
      static_cast<double>(trial.knobs.micro_batch_size * trial.training.seq_length *
                          model.experts_per_token * model.hidden_size * 4) *
      sent_ratio;
  const double intra_bytes_per_s = here_bytes / (exchange_ratio * here.experts_ns) * 1e9;
  const double inter_ratio = real.inter_node.bytes_per_s / real.intra_node.bytes_per_s;
  const double memory_ratio = static_cast<double>(real.memory_bytes) / described.num_parameters /
                              described.state_bytes_per_parameter;
  // Weight, gradient and two moments, each in fp32.
  const double state_bytes = 16 * static_cast<double>(model.num_parameters());
  const double memory_mib = memory_ratio * state_bytes / (1 << 20);

  fmt::print(stderr,
             "median product: {:.0f} us here, {:.0f} us there\n"
             "products of the experts: {:.0f} us here, {:.0f} us there; all-to-all {:.2f} of it\n"
             "inter over intra {:.3f}; memory over training state {:.2f} of {:.1f} MiB\n",
             here.median_ns / 1e3, there.median_ns / 1e3, here.experts_ns / 1e3,
             there.experts_ns / 1e3, exchange_ratio, inter_ratio, memory_ratio,
             state_bytes / (1 << 20));
  spec::HardwareSpec made = tuner::with_rates(trial.hardware, tuner::rates_of(sums), false);
  made.memory_bytes = std::llround(memory_mib) << 20;
  made.intra_node = {rounded_ns(static_cast<double>(real.intra_node.latency_ns) * time_ratio),
                     rounded(intra_bytes_per_s)};
  made.inter_node = {rounded_ns(static_cast<double>(real.inter_node.latency_ns) * time_ratio),
                     rounded(intra_bytes_per_s * inter_ratio)};
  made.launch_ns = rounded_ns(static_cast<double>(real.launch_ns) * time_ratio);
  made.graph_launch_ns = rounded_ns(static_cast<double>(real.graph_launch_ns) * time_ratio);
  made.sync_ns = rounded_ns(static_cast<double>(real.sync_ns) * time_ratio);
  made.kernel_floor_ns = rounded_ns(static_cast<double>(real.kernel_floor_ns) * time_ratio);
  made.comm_sm_ratio = real.comm_sm_ratio;
  fmt::print("{}\n", spec::to_json(made).dump(2));
  return 0;
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  const std::string root = MOETUNE_SOURCE_DIR;
  const std::string sweep = argc > 1 ? argv[1] : root + "/sweeps/configs/quickstart.json";
  const std::string folder = argc > 2 ? argv[2]
                                      : (std::filesystem::temp_directory_path() /
                                         fmt::format("moetune-hardware-bench-{}", getpid()))
                                            .string();
  std::filesystem::create_directories(folder);
  return moetune::run(root, sweep, folder);
}
