// Sums over operations, and fits of few unknowns.
#include "tuner/probed_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "engine/plan/ops.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {

namespace {

using spec::Work;

constexpr double kWorthALook = 0.01;  // of the time of all operations of a trial

bool is_device_work(const plan::OpRow* row) {
  return row != nullptr && row->kind != plan::OpKind::collective &&
         row->kind != plan::OpKind::p2p && row->kind != plan::OpKind::host;
}

/// The sums of each label of one kind of work, a trial each.
using LabelSums = std::map<std::string, std::vector<ProbedSum>>;

double rate_of(Work work, const ProbedSum& sum, double half_rows) {
  return (is_bound_by_flops(work) ? sum.flops + half_rows * sum.row_flops : sum.bytes) / sum.ns;
}

/// The length with which each label's rate is most alike in all trials, which differ in rows.
double half_rows_of(Work work, const LabelSums& sums) {
  constexpr int kLongest = 8192;
  double best = 0;
  double least = std::numeric_limits<double>::max();
  for (int rows = 0; rows <= kLongest; rows += std::max(1, rows / 256)) {
    double spread = 0;
    for (const auto& [label, trials] : sums) {
      double mean = 0;
      for (const ProbedSum& sum : trials) mean += std::log(rate_of(work, sum, rows));
      mean /= static_cast<double>(trials.size());
      for (const ProbedSum& sum : trials) {
        spread += std::pow(std::log(rate_of(work, sum, rows)) - mean, 2);
      }
    }
    if (spread < least) {
      least = spread;
      best = rows;
    }
  }
  return best;
}

double two_digits(double value) { return std::stod(fmt::format("{:.1e}", value)); }

/// A transfer as a line: latency x steps + bytes / bandwidth.
struct Transfer {
  double steps = 0;
  double bytes = 0;
  double ns = 0;
};

/// Steps of recursive doubling.
double doublings(int members) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(members - 1)));
}

/// How a group lies over nodes.
struct Spread {
  int num_nodes = 0;
  int least = 0;  ///< members of the node that has fewest
  int most = 0;
};

/// Rings that go around once. All-reduces go around twice and exchanges go to each peer, which a
/// record does not tell.
bool goes_around_once(plan::Op op) {
  switch (op) {
    case plan::Op::grad_reduce:  // of the distributed optimizer
    case plan::Op::param_gather:
    case plan::Op::tp_gather:
    case plan::Op::tp_scatter:
    case plan::Op::kv_gather:
    case plan::Op::vocab_gather:
      return true;
    default:
      return false;
  }
}

Spread spread_of(const std::vector<int>& ranks, const spec::HardwareSpec& hardware) {
  std::map<int64_t, int> members;
  for (const int rank : ranks) ++members[hardware.node_of(rank)];
  Spread spread{static_cast<int>(members.size()), std::numeric_limits<int>::max(), 0};
  for (const auto& [node, count] : members) {
    spread.least = std::min(spread.least, count);
    spread.most = std::max(spread.most, count);
  }
  return spread;
}

std::optional<plan::Group> group_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(plan::Group::count); ++i) {
    const auto group = static_cast<plan::Group>(i);
    if (name == plan::name_of(group)) return group;
  }
  return std::nullopt;
}

std::optional<ProbedLink> fitted(const std::vector<Transfer>& transfers) {
  // Minimises the sum of (a steps + b bytes - ns)^2 / ns^2.
  double ss = 0;
  double sb = 0;
  double bb = 0;
  double s = 0;
  double b = 0;
  double least = std::numeric_limits<double>::max();
  double most = 0;
  for (const Transfer& t : transfers) {
    const double steps = t.steps / t.ns;
    const double bytes = t.bytes / t.ns;
    ss += steps * steps;
    sb += steps * bytes;
    bb += bytes * bytes;
    s += steps;
    b += bytes;
    least = std::min(least, t.bytes);
    most = std::max(most, t.bytes);
  }
  // One size tells nothing of a line's two figures.
  constexpr double kSizesApart = 2;
  const double determinant = ss * bb - sb * sb;
  if (transfers.empty() || most < kSizesApart * least || !(determinant > 0)) return std::nullopt;
  double latency = (s * bb - b * sb) / determinant;
  double per_byte = (b * ss - s * sb) / determinant;
  if (latency < 0) {
    latency = 0;
    per_byte = b / bb;
  }
  if (!(per_byte > 0)) return std::nullopt;
  ProbedLink found;
  found.link = {std::llround(latency), 1e9 / per_byte};
  std::vector<double> errors;
  for (const Transfer& t : transfers) {
    errors.push_back(std::abs((latency * t.steps + per_byte * t.bytes) / t.ns - 1));
  }
  found.error = profiler::median(errors);
  found.num_records = static_cast<int>(transfers.size());
  return found;
}

/// The value below which that share lies; none of nothing.
std::optional<int64_t> share_below(const std::vector<int64_t>& values, double share) {
  if (values.empty()) return std::nullopt;
  return std::llround(profiler::quantile({values.begin(), values.end()}, share));
}

}  // namespace

bool is_bound_by_flops(Work work) {
  return work == Work::product || work == Work::grouped || work == Work::attention ||
         work == Work::scan;
}

WorkRates rates_of(const ProbedSums& sums) {
  std::map<int64_t, double> all_ns;  // of a trial
  for (const auto& [key, sum] : sums) {
    if (is_device_work(plan::find_op_label(key.first))) all_ns[key.second] += sum.ns;
  }
  std::map<Work, LabelSums> all;
  std::map<Work, LabelSums> large;
  for (const auto& [key, sum] : sums) {
    const plan::OpRow* row = plan::find_op_label(key.first);
    if (!is_device_work(row) || !(sum.ns > 0)) continue;
    if (!((is_bound_by_flops(row->work) ? sum.flops : sum.bytes) > 0)) continue;
    all[row->work][key.first].push_back(sum);
    if (sum.ns > kWorthALook * all_ns[key.second]) large[row->work][key.first].push_back(sum);
  }
  WorkRates rates;
  for (const auto& [work, labels] : all) {
    const bool has_large = large.contains(work);
    const LabelSums& seen = has_large ? large[work] : labels;
    WorkRate rate;
    if (work == Work::product || work == Work::grouped) rate.half_rows = half_rows_of(work, seen);
    rate.low = std::numeric_limits<double>::max();
    // The rate with which all of that takes as long as it took: the middle between the slowest and
    // the fastest would be that of operations which take no time.
    double amount = 0;
    double ns = 0;
    for (const auto& [label, trials] : seen) {
      for (const ProbedSum& sum : trials) {
        const double one = rate_of(work, sum, rate.half_rows);
        rate.low = std::min(rate.low, one);
        rate.high = std::max(rate.high, one);
        rate.num_ops += static_cast<int>(sum.count);
        amount += one * sum.ns;
        ns += sum.ns;
      }
    }
    rate.per_ns = amount / ns;
    rates[work] = rate;
  }
  return rates;
}

ProbedLinks links_of(const std::vector<profiler::StepTrace>& traces, const plan::Layout& layout,
                     const spec::HardwareSpec& hardware) {
  std::vector<Transfer> intra;
  std::vector<Transfer> inter;
  std::vector<double> inter_doublings;  // within a node, before the ring crosses
  for (const profiler::StepTrace& trace : traces) {
    for (const profiler::TraceRecord& record : trace.records) {
      const plan::OpRow* row = plan::find_op_label(record.name);
      if (row == nullptr || !goes_around_once(row->id)) continue;
      if (record.bytes <= 0 || record.transfer_ns <= 0) continue;
      const std::optional<plan::Group> group = group_named(record.group);
      if (!group || record.rank < 0 || record.rank >= layout.world_size()) continue;
      const std::vector<int> ranks = layout.group_ranks(*group, record.rank);
      if (ranks.size() < 2) continue;
      const Spread spread = spread_of(ranks, hardware);
      const auto bytes = static_cast<double>(record.bytes);
      const auto ns = static_cast<double>(record.transfer_ns);
      if (spread.num_nodes == 1) {
        intra.push_back({doublings(spread.most), bytes, ns});
      } else {
        inter.push_back({doublings(spread.num_nodes), bytes / spread.least, ns});
        inter_doublings.push_back(doublings(spread.most));
      }
    }
  }
  ProbedLinks links;
  links.intra_node = fitted(intra);
  if (links.intra_node) {
    const auto latency = static_cast<double>(links.intra_node->link.latency_ns);
    for (size_t i = 0; i < inter.size(); ++i) {
      inter[i].ns = std::max(1.0, inter[i].ns - latency * inter_doublings[i]);
    }
  }
  links.inter_node = fitted(inter);
  return links;
}

ProbedHost host_of(const std::vector<profiler::StepTrace>& traces) {
  std::vector<int64_t> launches;
  std::vector<int64_t> syncs;
  std::vector<int64_t> kernels;
  for (const profiler::StepTrace& trace : traces) {
    for (const profiler::TraceRecord& record : trace.records) {
      if (record.kind == profiler::RecordKind::host_sync) {
        syncs.push_back(record.end_ns - record.start_ns);
      }
      if (record.kind != profiler::RecordKind::kernel) continue;
      kernels.push_back(record.end_ns - record.start_ns);
      if (record.graph_id == 0 && record.launch_end_ns > record.launch_start_ns) {
        launches.push_back(record.launch_end_ns - record.launch_start_ns);
      }
    }
  }
  return {share_below(launches, 0.5), share_below(syncs, 0.1), share_below(kernels, 0.01)};
}

spec::HardwareSpec with_rates(spec::HardwareSpec hardware, const WorkRates& rates,
                              bool keeps_peaks) {
  const auto peak_of = [&](Work work) -> double& {
    return is_bound_by_flops(work) ? hardware.peak_flops_per_s : hardware.memory_bytes_per_s;
  };
  if (!keeps_peaks) {
    hardware.peak_flops_per_s = hardware.memory_bytes_per_s = 0;
    for (const auto& [work, rate] : rates) {
      peak_of(work) = std::max(peak_of(work), two_digits(rate.per_ns * 1e9));
    }
  }
  for (const auto& [work, rate] : rates) {
    const auto index = static_cast<size_t>(work);
    hardware.efficiency[index] = std::min(1.0, two_digits(rate.per_ns * 1e9 / peak_of(work)));
    hardware.half_rows[index] = two_digits(rate.half_rows);
  }
  return hardware;
}

}  // namespace moetune::tuner
