// How many configurations the planner prices in a second of one core: the closed form of a step's
// time and memory from nothing, the same with what layouts share kept, and feasibility alone (rules
// and memory). Then whole searches.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/rates_file.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/search.h"
#include "tuner/planner/step_time.h"

namespace moetune {
namespace {

namespace planner = tuner::planner;
using planner::PlanRun;
using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 5;
constexpr double kSecondsEach = 0.5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Layouts of 256 devices, as a search goes through them.
std::vector<PlanRun> some_runs(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  std::vector<PlanRun> runs;
  for (const int32_t tp : {1, 2, 4}) {
    for (const int32_t pp : {1, 2, 4, 8}) {
      for (const int32_t ep : {8, 16, 32}) {
        for (const int32_t micro_batch : {1, 2, 4}) {
          PlanRun run;
          run.model = &model;
          run.hardware = &hardware;
          run.global_batch_size = 2048;
          run.seq_length = 4096;
          run.knobs.tp = tp;
          run.knobs.pp = pp;
          run.knobs.ep = ep;
          run.knobs.dp = static_cast<int32_t>(hardware.num_devices() / tp / pp);
          run.knobs.micro_batch_size = micro_batch;
          if (planner::broken_rule(run) == nullptr) runs.push_back(run);
        }
      }
    }
  }
  return runs;
}

/// Calls a second, the median of several times.
template <typename Call>
double rate_of(const std::vector<PlanRun>& runs, const Call& call) {
  std::vector<double> rates;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    int64_t count = 0;
    const auto start = Clock::now();
    do {
      for (const PlanRun& run : runs) call(run);
      count += static_cast<int64_t>(runs.size());
    } while (seconds_since(start) < kSecondsEach);
    rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

void price_many(const char* name, const planner::Rates& rates) {
  const auto model = sweeps::model_named(name);
  const auto hardware = sweeps::machine_of("h100-80g", 256);
  const std::vector<PlanRun> runs = some_runs(*model, *hardware);
  double sum = 0;  // so that nothing is left out
  const double alone = rate_of(runs, [&](const PlanRun& run) {
    sum += planner::predict_step(run, rates).seconds + planner::predict_memory(run).peak_bytes();
  });
  planner::WorkCache works;
  std::vector<std::unique_ptr<planner::PreparedStep>> steps;
  std::vector<std::unique_ptr<planner::PreparedMemory>> memories;
  for (const PlanRun& run : runs) {
    steps.push_back(std::make_unique<planner::PreparedStep>(run, works));
    memories.push_back(std::make_unique<planner::PreparedMemory>(run));
  }
  // Of a layout, the many choices that leave its sizes as they are.
  const auto at = [&](const PlanRun& run) { return static_cast<size_t>(&run - runs.data()); };
  const double kept = rate_of(runs, [&](const PlanRun& run) {
    sum += steps[at(run)]->price(rates).seconds + memories[at(run)]->peak_bytes(run.knobs, 1);
  });
  const double feasible = rate_of(runs, [&](const PlanRun& run) {
    const bool is_legal = planner::broken_rule(run) == nullptr;
    sum += is_legal ? memories[at(run)]->peak_bytes(run.knobs, 1) : 0;
  });
  fmt::print(
      "{:16} {:4} layouts: {:>9.0f}/s from nothing, {:>9.0f}/s with what they share, {:>9.0f}/s "
      "feasibility alone{}\n",
      name, runs.size(), alone, kept, feasible, sum > 0 ? "" : " (nothing)");
}

void search_once(const char* name, int64_t devices, const planner::Rates& rates) {
  const auto model = sweeps::model_named(name);
  const auto hardware = sweeps::machine_of("h100-80g", devices);
  planner::PlanQuestion question;
  question.model = model.get();
  question.hardware = hardware.get();
  question.global_batch_size = 8 * devices;
  question.seq_length = 4096;
  const auto start = Clock::now();
  const planner::PlanAnswer answer = planner::search_plans(question, rates);
  const double seconds = seconds_since(start);
  fmt::print(
      "{:16} {:4} devices: {} points, {} legal, {} fit in {:.2f} s: {:.0f} points a second\n", name,
      devices, answer.num_points, answer.num_legal, answer.num_fit, seconds,
      static_cast<double>(answer.num_points) / seconds);
}

}  // namespace
}  // namespace moetune

int main() {
  using namespace moetune;
  const planner::Rates rates = sweeps::default_calibration().rates;
  for (const char* model : {"qwen3-30b-a3b", "deepseek-v3"}) price_many(model, rates);
  for (const int64_t devices : {64, 256, 1024}) search_once("deepseek-v3", devices, rates);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("most memory: {} MiB\n", usage.ru_maxrss / 1024);
  return 0;
}
