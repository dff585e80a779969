#include "sweeps/adapters/stored_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "kernels/base/cxx_names.h"
#include "kernels/base/utf8.h"
#include "sweeps/device_peaks.h"

namespace moetune::sweeps {
namespace {

/// Of one rank: a name in a file may have megabytes, and there may be many.
constexpr size_t kMostStoredNames = 200;
constexpr size_t kMostNameBytes = 120;

struct WorkSums {
  double count = 0;
  double flops = 0;
  double bytes = 0;
  double ns = 0;
};

int64_t mean_per_step(double sum, size_t num_steps) {
  constexpr double kMost = 9e18;  // below the largest integer
  return std::llround(std::min(kMost, sum / static_cast<double>(num_steps)));
}

}  // namespace

void add_known_work(const Diagnosis& diagnosis, const std::vector<int32_t>& ranks,
                    std::span<const profiler::CountedSteps> steps,
                    std::vector<store::ShardOp>& ops) {
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) {
    const profiler::ImportedTrace& trace = diagnosis.traces[i];
    std::map<uint32_t, std::string> names;
    std::map<std::string, WorkSums> by_name;
    for (const profiler::KernelWork& work : trace.works) {
      // Against the peak of 16 bits these would stand above the roof.
      if (work.is_eight_bit || work.flops <= 0 || work.bytes <= 0) continue;
      const profiler::ImportedOp& op = trace.ops[work.op];
      if (!steps[i].hold(trace, op)) continue;
      const auto [name, is_new] = names.try_emplace(op.name);
      if (is_new) {
        name->second = base::cut_text(base::unscoped_name(trace.names[op.name]), kMostNameBytes);
      }
      WorkSums& sums = by_name[name->second];
      ++sums.count;
      sums.flops += static_cast<double>(work.flops);
      sums.bytes += static_cast<double>(work.bytes);
      sums.ns += static_cast<double>(op.duration_ns());
    }
    std::vector<std::pair<std::string, WorkSums>> longest(by_name.begin(), by_name.end());
    std::ranges::stable_sort(longest, std::ranges::greater(),
                             [](const auto& one) { return one.second.ns; });
    longest.resize(std::min(longest.size(), kMostStoredNames));
    const size_t num_steps = steps[i].num;
    for (auto& [name, sums] : longest) {
      ops.push_back({ranks[i], std::move(name),
                     std::max<int64_t>(1, mean_per_step(sums.count, num_steps)),
                     mean_per_step(sums.flops, num_steps), mean_per_step(sums.bytes, num_steps),
                     mean_per_step(sums.ns, num_steps)});
    }
  }
}

std::string device_peaks_text(const Diagnosis& diagnosis) {
  const profiler::DevicePeaks peaks = peaks_of(diagnosis.traces, nullptr);
  if (!peaks.is_known()) return {};
  return nlohmann::json{{"name", peaks.device},
                        {"peak_flops_per_s", peaks.flops_per_s},
                        {"memory_bytes_per_s", peaks.memory_bytes_per_s}}
      .dump();
}

}  // namespace moetune::sweeps
