// Faults are put where they happen on a cluster: into the hardware, the links between certain
// ranks, the durations of one rank, the routing, or as instructions into the programs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "kernels/base/error.h"
#include "profiler/analysis/intervals.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::tuner::testing {
namespace {

using plan::Instr;
using plan::Verb;
using profiler::SubCause;

constexpr FaultRow kFaults[] = {
    {Fault::none, "nothing", SubCause::flops, false},
    {Fault::slow_links, "slower links", SubCause::transfer, false},
    {Fault::one_ranks_link, "one rank's link", SubCause::one_link, true},
    {Fault::launches, "launch overhead", SubCause::launch, false},
    {Fault::syncs, "sync per layer", SubCause::sync, false},
    {Fault::allocator, "allocator storm", SubCause::allocator, false},
    {Fault::loader, "loader on one rank", SubCause::loader, true},
    {Fault::stall, "collection on one rank", SubCause::loader, true},
    {Fault::slow_rank, "slow rank", SubCause::rank, true},
    {Fault::uneven_experts, "uneven experts", SubCause::experts, false},
    {Fault::few_micro_batches, "few micro-batches", SubCause::bubble, false},
    {Fault::uneven_stages, "uneven stages", SubCause::uneven_stage, true},
    {Fault::capped_memory, "capped memory", SubCause::recompute, false},
    {Fault::offload, "offload on a slow link", SubCause::offload, false},
    {Fault::small_work, "small products", SubCause::occupancy, false},
    {Fault::slow_memory, "slow memory", SubCause::bandwidth, false},
    {Fault::held_multiprocessors, "held multiprocessors", SubCause::contention, false},
    {Fault::large_products, "large products", SubCause::flops, false}};
static_assert(std::size(kFaults) == static_cast<size_t>(Fault::count));

constexpr const char* kModel = R"({"model_type": "qwen3_moe", "vocab_size": 1024,
  "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 8,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-5, "num_experts": 16, "num_experts_per_tok": 2,
  "moe_intermediate_size": 4096, "norm_topk_prob": true})";
constexpr int64_t kMicroBatches = 4;         ///< without a pipeline
constexpr int64_t kMicroBatchesAStage = 12;  ///< so that the bubble is none to speak of
/// Links may be so much slower where collectives shall be beside work for long; tried in steps.
constexpr double kLongestCollectives = 300;
constexpr double kLongerCollectives = 1.2;
/// Then no larger part of a step is spent on collectives with nothing beside them.
constexpr double kMostExposed = 0.08;
/// What work keeps of the device, however many collectives are beside it.
constexpr double kLeastSpeed = 0.25;
/// So short that the host, which is fast, always waits for room in it.
constexpr int kLaunchQueue = 64;
/// Marks of inserted instructions, in their chunk.
constexpr int32_t kAllocate = 1001;
constexpr int32_t kLoad = 1002;
constexpr int32_t kStall = 1003;
constexpr int32_t kOffload = 1004;
constexpr double kInsertedNs = 1e6;  // at strength 2

/// So well connected and so fast to launch that nothing but compute is left.
spec::HardwareSpec ideal_machine(int64_t num_ranks) {
  spec::HardwareSpec hardware;
  hardware.name = "ideal";
  hardware.devices_per_node = num_ranks;
  hardware.peak_flops_per_s = 4e14;
  hardware.memory_bytes_per_s = 6e13;
  hardware.intra_node = hardware.inter_node = {1000, 4e13};
  hardware.launch_ns = 500;
  hardware.graph_launch_ns = 500;
  hardware.sync_ns = 500;
  return hardware;
}

class SkewedBindings final : public plan::Bindings {
 public:
  /// The group's first member receives `skew` times its part.
  SkewedBindings(const spec::TrialSpec& trial, int rank, double skew)
      : route_(plan::BalancedBindings(trial, rank).at(0, 0)) {
    const plan::Layout layout = plan::layout_of(trial.knobs);
    const plan::LayerDims dims =
        plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, 0);
    if (skew <= 1 || dims.expert_ranks < 2) return;
    const int64_t all = dims.expert_ranks * dims.tokens * dims.topk;
    const auto hot = static_cast<int64_t>(
        std::min(0.95, skew / static_cast<double>(dims.expert_ranks)) * static_cast<double>(all));
    route_ = plan::make_route(dims, layout.rank_in(plan::Group::ep, rank),
                              plan::uneven_counts(dims, 0, hot));
  }
  [[nodiscard]] const plan::Route& at(int64_t /*layer*/, int64_t /*micro_batch*/) const override {
    return route_;
  }

 private:
  plan::Route route_;
};

Instr inserted(Verb verb, int32_t mark, plan::Pass pass) {
  Instr instr;
  instr.verb = verb;
  instr.op = plan::Op::host_sync;
  instr.pass = pass;
  instr.chunk = mark;
  return instr;
}

/// Puts instructions in front of each segment of layers. Sharings are by place in the code.
template <typename Make>
void insert_in_layers(plan::StepProgram& program, Make&& make) {
  std::vector<size_t> num_inserted(program.segments.size());
  std::vector<bool> is_of_layer(program.segments.size());
  for (const plan::Item& item : program.items) {
    if (item.layer >= 0 && item.micro_batch >= 0) {
      is_of_layer[static_cast<size_t>(item.segment)] = true;
    }
  }
  for (size_t i = 0; i < program.segments.size(); ++i) {
    if (!is_of_layer[i]) continue;
    plan::Segment segment = *program.segments[i];
    const std::vector<Instr> code = make(segment);
    segment.code.insert(segment.code.begin(), code.begin(), code.end());
    num_inserted[i] = code.size();
    program.segments[i] = std::make_shared<const plan::Segment>(std::move(segment));
  }
  for (plan::Item& item : program.items) {
    const size_t count = num_inserted[static_cast<size_t>(item.segment)];
    if (item.sharing < 0 || count == 0) continue;
    std::vector<plan::Sharing> shifted = program.sharings[static_cast<size_t>(item.sharing)];
    shifted.insert(shifted.begin(), count, {});
    item.sharing = static_cast<int32_t>(program.sharings.size());
    program.sharings.push_back(std::move(shifted));
  }
}

/// What a case comes to before it is played.
struct Setup {
  spec::TrialSpec trial;
  std::vector<StrongFault> faults;
  int num_ranks = 1;
  int faulty_rank = 0;
  int64_t num_micro_batches = 1;

  [[nodiscard]] double strength(Fault fault) const { return strength_of(faults, fault); }
  [[nodiscard]] bool has(Fault fault) const { return has_fault(faults, fault); }
};

/// `longer`: times that collectives take, of the same bytes.
Setup setup_of(const FaultyCase& faulty, double longer) {
  Setup setup;
  setup.faults = faulty.faults;
  spec::TrialSpec& trial = setup.trial;
  trial.model = spec::model_from_json(nlohmann::json::parse(kModel), "model");
  trial.knobs =
      spec::knobs_from_json(nlohmann::json::parse(faulty_layouts()[faulty.layout].knobs), "knobs");
  setup.num_ranks = static_cast<int>(trial.knobs.world_size());
  setup.faulty_rank = setup.num_ranks - 1;
  trial.hardware = ideal_machine(setup.num_ranks);
  trial.hardware.intra_node.bytes_per_s /= longer;
  trial.hardware.inter_node.bytes_per_s /= longer;
  trial.training.seq_length = 4096;
  setup.num_micro_batches = put_into(trial, faulty.faults);
  return setup;
}

void put_into(plan::StepProgram& program, const Setup& setup) {
  const auto pass_of = [](const plan::Segment& segment) {
    return segment.is_backward ? plan::Pass::backward : plan::Pass::forward;
  };
  if (setup.has(Fault::allocator)) {
    insert_in_layers(program, [&](const plan::Segment& segment) {
      return std::vector{inserted(Verb::host, kAllocate, pass_of(segment))};
    });
  }
  if (setup.has(Fault::syncs)) {
    insert_in_layers(program, [&](const plan::Segment& segment) {
      return std::vector{inserted(Verb::fetch, -1, pass_of(segment))};
    });
  }
  for (const auto& one : {std::pair{Fault::loader, kLoad}, {Fault::stall, kStall}}) {
    const auto mark = one.second;
    if (!setup.has(one.first) || program.rank != setup.faulty_rank) continue;
    insert_in_layers(program, [&](const plan::Segment& segment) {
      if (segment.is_backward) return std::vector<Instr>{};
      return std::vector{inserted(Verb::host, mark, plan::Pass::forward)};
    });
  }
  if (setup.has(Fault::offload)) {
    insert_in_layers(program, [&](plan::Segment& segment) {
      Instr copy = inserted(Verb::op, kOffload, pass_of(segment));
      copy.stream = plan::Stream::copy;
      Instr record = inserted(Verb::record, -1, pass_of(segment));
      record.stream = plan::Stream::copy;
      record.event = segment.num_events++;
      Instr wait = inserted(Verb::wait, -1, pass_of(segment));
      wait.event = record.event;
      return std::vector{copy, record, wait};
    });
  }
}

/// Names of inserted work.
void name_inserted(std::vector<profiler::StepTrace>& traces, const Setup& setup) {
  for (profiler::StepTrace& trace : traces) {
    std::vector<profiler::TraceRecord> kept;
    for (profiler::TraceRecord& record : trace.records) {
      const bool is_inserted = record.name.text().starts_with("host_sync");
      if (is_inserted && record.kind == profiler::RecordKind::host_work) {
        if (setup.has(Fault::allocator)) {
          record.name = "cudaMalloc";
        } else if (setup.has(Fault::loader)) {
          record.name = "load_batch";
        } else {
          continue;
        }
      } else if (is_inserted && record.kind == profiler::RecordKind::kernel) {
        record.kind = profiler::RecordKind::memcpy;
        record.name = record.name.text().ends_with("backward") ? "reload" : "offload";
      }
      kept.push_back(std::move(record));
    }
    trace.records = std::move(kept);
  }
}

/// How long an operation takes that takes `work_ns` alone: each collective beside it holds the part
/// `held` of the multiprocessors while it is there, and waits for other ranks on them, too.
double slowed_ns(double work_ns, int64_t start_ns,
                 const std::vector<profiler::Interval>& collectives, double held) {
  auto now_ns = static_cast<double>(start_ns);
  while (true) {
    int num_beside = 0;
    double until_ns = std::numeric_limits<double>::infinity();
    for (const profiler::Interval& one : collectives) {
      const auto begin_ns = static_cast<double>(one.start_ns);
      const auto end_ns = static_cast<double>(one.end_ns);
      if (begin_ns > now_ns) {
        until_ns = std::min(until_ns, begin_ns);
      } else if (end_ns > now_ns) {
        until_ns = std::min(until_ns, end_ns);
        ++num_beside;
      }
    }
    const double speed = std::max(kLeastSpeed, 1 - held * num_beside);
    if (now_ns + work_ns / speed <= until_ns) {
      return now_ns + work_ns / speed - static_cast<double>(start_ns);
    }
    work_ns -= (until_ns - now_ns) * speed;
    now_ns = until_ns;
  }
}

FaultyStep play_with(const FaultyCase& faulty, double longer) {
  const Setup setup = setup_of(faulty, longer);
  const spec::HardwareSpec& hardware = setup.trial.hardware;
  std::vector<plan::StepProgram> programs;
  std::vector<SkewedBindings> bindings;
  std::vector<plan::PlayedRank> ranks;
  for (int rank = 0; rank < setup.num_ranks; ++rank) {
    programs.push_back(plan::compile(setup.trial, rank));
    put_into(programs.back(), setup);
    bindings.emplace_back(setup.trial, rank, setup.strength(Fault::uneven_experts));
  }
  for (size_t i = 0; i < programs.size(); ++i) ranks.push_back({&programs[i], &bindings[i]});

  std::vector<std::mt19937_64> random;
  for (int rank = 0; rank < setup.num_ranks; ++rank) {
    random.emplace_back(faulty.seed * 1'000'003 + static_cast<uint64_t>(rank));
  }
  std::normal_distribution<double> normal(0, 1);
  std::vector<std::vector<profiler::Interval>> collectives(programs.size());  // by rank, so far
  const auto duration_of = [&](const plan::Position& at, const Instr& instr,
                               const plan::OpCost& cost) {
    const double noise =
        std::exp(faulty.noise_ratio * normal(random[static_cast<size_t>(at.rank)]));
    const auto inserted = [&](Fault fault) {
      return std::llround(inserted_ns(setup.strength(fault)) * noise);
    };
    if (instr.chunk == kAllocate) return inserted(Fault::allocator);
    if (instr.chunk == kLoad) return inserted(Fault::loader);
    if (instr.chunk == kStall) return inserted(Fault::stall);
    if (instr.chunk == kOffload) return inserted(Fault::offload);
    if (instr.verb == Verb::host) return std::llround(500 * noise);
    auto ns = static_cast<double>(plan::roofline_ns(hardware, instr.op, cost));
    ns *= noise * setup.strength(Fault::small_work);
    if (at.rank == setup.faulty_rank) ns *= setup.strength(Fault::slow_rank);
    const double held = 1 - 1 / setup.strength(Fault::held_multiprocessors);
    if (held > 0) ns = slowed_ns(ns, at.start_ns, collectives[static_cast<size_t>(at.rank)], held);
    return std::llround(ns);
  };
  plan::PlayOptions options;
  options.level = profiler::TraceLevel::ops;
  options.launch_queue = faulty_layouts()[faulty.layout].launch_queue;
  options.transfer_of = [&](const plan::Instr&, const std::vector<int>& members, int64_t ns) {
    const bool is_slow = std::ranges::find(members, setup.faulty_rank) != members.end();
    return is_slow ? std::llround(static_cast<double>(ns) * setup.strength(Fault::one_ranks_link))
                   : ns;
  };
  // What a rank launched before a collective has ended when that begins: it sums its gradients.
  options.sees_collective = [&](int rank, int64_t start_ns, int64_t end_ns) {
    collectives[static_cast<size_t>(rank)].push_back({start_ns, end_ns});
  };
  plan::PlayResult played = plan::play(hardware, ranks, duration_of, options);

  FaultyStep step;
  step.step_ns = played.step_ns;
  step.traces = std::move(played.traces);
  name_inserted(step.traces, setup);
  lose_records(faulty, step);
  step.communicators = plan::group_instances(plan::layout_of(setup.trial.knobs));
  step.facts.peak_flops_per_s = hardware.peak_flops_per_s;
  step.facts.memory_bytes_per_s = hardware.memory_bytes_per_s;
  step.facts.memory.capacity_bytes = 1000;
  step.facts.memory.peak_bytes = setup.has(Fault::capped_memory) ? 950 : 500;
  step.num_micro_batches = setup.num_micro_batches;
  // The first stage has more layers than any other.
  const bool is_first = faulty.faults.size() == 1 && setup.has(Fault::uneven_stages);
  step.faulty_rank = is_first ? 0 : setup.faulty_rank;
  return step;
}

/// Shares of a step of rank 0 in which collectives run beside work, and alone.
std::pair<double, double> collectives_of(const FaultyStep& step) {
  std::vector<profiler::Interval> collectives;
  std::vector<profiler::Interval> work;
  for (const profiler::TraceRecord& record : step.traces.front().records) {
    if (record.kind == profiler::RecordKind::collective) {
      collectives.push_back({record.start_ns, record.end_ns});
    } else if (record.kind == profiler::RecordKind::kernel) {
      work.push_back({record.start_ns, record.end_ns});
    }
  }
  const profiler::IntervalSet all(std::move(collectives));
  const profiler::IntervalSet beside = intersect(all, profiler::IntervalSet(std::move(work)));
  const auto step_ns = static_cast<double>(step.step_ns);
  return {static_cast<double>(beside.total_ns()) / step_ns,
          static_cast<double>(all.total_ns() - beside.total_ns()) / step_ns};
}

/// The same for all cases of a layout.
double long_collectives_in(size_t layout) {
  static std::map<size_t, double> found;
  const auto [at, is_new] = found.try_emplace(layout, 1);
  if (is_new) {
    at->second = long_collectives([&](double longer) {
      return play_with({layout, {{Fault::held_multiprocessors, 1}}, 1, 0}, longer);
    });
  }
  return at->second;
}

/// The case without its faults.
double healthy_time(const FaultyCase& faulty) { return play_faulty(without_faults(faulty)).time(); }

bool has_strength(Fault fault) {
  return fault != Fault::few_micro_batches && fault != Fault::uneven_stages &&
         fault != Fault::capped_memory;
}

}  // namespace

const FaultRow& row_of(Fault fault) { return kFaults[static_cast<size_t>(fault)]; }

const std::vector<FaultyLayout>& faulty_layouts() {
  static const std::vector<FaultyLayout> kLayouts = {
      {"dp4", R"({"data_parallel_size": 4})"},
      {"dp4 ep4", R"({"data_parallel_size": 4, "expert_model_parallel_size": 4})"},
      {"dp4 ep2", R"({"data_parallel_size": 4, "expert_model_parallel_size": 2})"},
      {"dp8 ep4, overlapped", R"({"data_parallel_size": 8, "expert_model_parallel_size": 4,
          "overlap_grad_reduce": true, "ep_chunks_forward": 2, "ep_chunks_backward": 2})"},
      {"dp8, overlapped", R"({"data_parallel_size": 8, "overlap_grad_reduce": true})"},
      {"tp2 dp2", R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2})"},
      {"cp2 dp2 ep2, ring", R"({"context_parallel_size": 2, "cp_comm_type": "p2p",
          "data_parallel_size": 2, "expert_model_parallel_size": 2})"},
      {"pp4", R"({"pipeline_model_parallel_size": 4})"},
      {"pp2 dp2 ep2", R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2,
          "expert_model_parallel_size": 2})"},
      {"pp4 dp2 ep2", R"({"pipeline_model_parallel_size": 4, "data_parallel_size": 2,
          "expert_model_parallel_size": 2})"},
      {"pp2 vpp2 dp2", R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2,
          "virtual_pipeline_model_parallel_size": 2})"},
      {"tp2 pp2 dp2 ep4", R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
          "data_parallel_size": 2, "expert_model_parallel_size": 4})"},
      {"tp2 cp2 dp2 ep4, chunks", R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2,
          "data_parallel_size": 2, "expert_model_parallel_size": 4, "ep_chunks_forward": 2,
          "ep_chunks_backward": 2})"},
      {"dp4, full launch queue", R"({"data_parallel_size": 4})", kLaunchQueue},
      {"pp2 dp2 ep2, full launch queue", R"({"pipeline_model_parallel_size": 2,
          "data_parallel_size": 2, "expert_model_parallel_size": 2})",
       kLaunchQueue}};
  return kLayouts;
}

bool is_possible(size_t layout, Fault fault) {
  const spec::Knobs knobs =
      spec::knobs_from_json(nlohmann::json::parse(faulty_layouts()[layout].knobs), "knobs");
  switch (fault) {
    case Fault::uneven_experts:
      return knobs.expert_model_parallel_size > 1;
    case Fault::few_micro_batches:
      return knobs.pipeline_model_parallel_size > 1;
    case Fault::uneven_stages:
      return knobs.pipeline_model_parallel_size > 1 &&
             knobs.virtual_pipeline_model_parallel_size == 1;
    case Fault::held_multiprocessors:
      // Elsewhere nothing runs beside collectives.
      return knobs.overlap_grad_reduce;
    case Fault::one_ranks_link:
      // Otherwise all communicators have the rank in them, and no record tells its link.
      return knobs.expert_model_parallel_size > 1 &&
             knobs.expert_model_parallel_size < knobs.stage_ranks();
    default:
      return true;
  }
}

FaultyStep play_faulty(const FaultyCase& faulty) {
  const bool holds = has_fault(faulty.faults, Fault::held_multiprocessors);
  return play_with(faulty, holds ? long_collectives_in(faulty.layout) : 1);
}

double removal_gain(const FaultyCase& faulty) {
  return 1 - healthy_time(faulty) / play_faulty(faulty).time();
}

std::optional<double> strength_for(size_t layout, Fault fault, double gain_ratio) {
  return strength_for(fault, gain_ratio, healthy_time({layout, {{fault, 1}}, 1, 0}),
                      [&](double strength) {
                        return play_faulty({layout, {{fault, strength}}, 1, 0}).time();
                      });
}

std::optional<double> strength_for(Fault fault, double gain_ratio, double healthy,
                                   const std::function<double(double strength)>& time_with) {
  const double wanted = healthy / (1 - gain_ratio);
  if (!has_strength(fault)) {
    return time_with(1) >= wanted ? std::optional(1.0) : std::nullopt;
  }
  // Beyond some strength the step grows in proportion.
  double low = 1;
  double low_time = healthy;
  double high = 2;
  double high_time = time_with(high);
  while (high_time < wanted) {
    low = std::exchange(high, 1 + (high - 1) * 8);
    low_time = std::exchange(high_time, time_with(high));
    if (high > 1e7) return std::nullopt;
  }
  for (int i = 0; i < 8 && high_time > 1.01 * wanted; ++i) {
    const double part = (1.003 * wanted - low_time) / (high_time - low_time);
    const double middle = low + (high - low) * std::clamp(part, 0.05, 0.95);
    const double time = time_with(middle);
    (time < wanted ? low : high) = middle;
    (time < wanted ? low_time : high_time) = time;
  }
  return high;
}

double strength_of(const std::vector<StrongFault>& faults, Fault fault) {
  const auto found = std::ranges::find(faults, fault, &StrongFault::fault);
  return found == faults.end() ? 1 : found->strength;
}

bool has_fault(const std::vector<StrongFault>& faults, Fault fault) {
  return std::ranges::find(faults, fault, &StrongFault::fault) != faults.end();
}

double inserted_ns(double strength) { return kInsertedNs * (strength - 1); }

int64_t put_into(spec::TrialSpec& trial, const std::vector<StrongFault>& faults) {
  const auto has = [&](Fault fault) { return has_fault(faults, fault); };
  const auto strength = [&](Fault fault) { return strength_of(faults, fault); };
  const int64_t pp = trial.knobs.pipeline_model_parallel_size;
  const int64_t num_micro_batches = has(Fault::held_multiprocessors) ? 1
                                    : has(Fault::few_micro_batches)  ? pp
                                    : pp > 1                         ? kMicroBatchesAStage * pp
                                                                     : kMicroBatches;
  trial.training.global_batch_size = num_micro_batches * trial.knobs.data_parallel_size;
  // Nothing is gathered behind the sums of gradients, which would cost more than what they take.
  if (has(Fault::held_multiprocessors)) trial.knobs.use_distributed_optimizer = false;
  spec::HardwareSpec& hardware = trial.hardware;
  const auto times = [](int64_t ns, double by) {
    return std::llround(static_cast<double>(ns) * by);
  };
  hardware.intra_node.bytes_per_s /= strength(Fault::slow_links);
  hardware.inter_node.bytes_per_s /= strength(Fault::slow_links);
  hardware.memory_bytes_per_s /= strength(Fault::slow_memory);
  hardware.peak_flops_per_s /= strength(Fault::large_products);
  hardware.launch_ns = times(hardware.launch_ns, strength(Fault::launches));
  hardware.sync_ns = times(hardware.sync_ns, strength(Fault::syncs));
  if (has(Fault::capped_memory)) {
    spec::set_knob(trial.knobs, *spec::find_knob("recompute"), "full");
  }
  if (has(Fault::uneven_stages)) {
    trial.knobs.decoder_first_pipeline_num_layers =
        trial.model.num_layers - (pp - 1) * (pp > 2 ? 1 : trial.model.num_layers / 4);
  }
  return num_micro_batches;
}

void lose_records(const FaultyCase& faulty, FaultyStep& step) {
  std::mt19937_64 random(faulty.seed * 7919 + 13);
  std::uniform_real_distribution<double> chance(0, 1);
  for (profiler::StepTrace& trace : step.traces) {
    std::vector<profiler::TraceRecord> kept;
    for (profiler::TraceRecord& record : trace.records) {
      if (faulty.deleted_edges > 0 && chance(random) < faulty.deleted_edges) {
        record.producer_id = profiler::kNoRecord;
        std::erase_if(trace.further_waits, [&](const profiler::FurtherWait& wait) {
          return wait.record_id == record.id;
        });
      }
      if (faulty.lost_records > 0 && chance(random) < faulty.lost_records) {
        ++step.facts.num_lost;
        continue;
      }
      kept.push_back(std::move(record));
    }
    trace.records = std::move(kept);
  }
}

double long_collectives(const std::function<FaultyStep(double longer)>& step_with) {
  double best = 1;
  double most = 0;
  for (double longer = 1; longer < kLongestCollectives; longer *= kLongerCollectives) {
    const auto [beside, exposed] = collectives_of(step_with(longer));
    if (exposed > kMostExposed || beside <= most) continue;
    most = beside;
    best = longer;
  }
  return best;
}

FaultyCase without_fault(FaultyCase faulty, Fault fault) {
  std::erase_if(faulty.faults, [&](StrongFault& one) {
    if (one.fault != fault) return false;
    one.strength = 1;
    return fault != Fault::held_multiprocessors;
  });
  return faulty;
}

FaultyCase without_faults(FaultyCase faulty) {
  const std::vector<StrongFault> faults = faulty.faults;
  for (const StrongFault& one : faults) faulty = without_fault(std::move(faulty), one.fault);
  return faulty;
}

profiler::StepVerdict judge(const FaultyStep& step) {
  return profiler::judge_step(profiler::ReplayedRun(step.traces, step.communicators), step.facts);
}

}  // namespace moetune::tuner::testing
