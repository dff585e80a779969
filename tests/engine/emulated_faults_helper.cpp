// Faults are put where they happen on a cluster: into the hardware of all ranks or of one, the
// links of one rank, the tokens, or as work beside the program on the ranks' timelines.
#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/comm/communicators.h"
#include "engine/model/philox.h"
#include "engine/trainer.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "tests/engine/emulated_faults.h"

namespace moetune::engine::testing {
namespace {

using tuner::testing::Fault;
using tuner::testing::FaultyCase;
using tuner::testing::FaultyStep;
using tuner::testing::StrongFault;

// So small that real data cost little. Of a token its entry in the vocabulary decides the experts.
constexpr const char* kModel = R"({"model_type": "qwen3_moe", "vocab_size": 16,
  "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_experts": 8,
  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true})";
constexpr int64_t kLayers = 4;
/// Where the sums of gradients shall be beside work: the last ones never are, and cost less of
/// more.
constexpr int64_t kLayersBesideSums = 8;
constexpr int64_t kSeqLength = 64;
/// Of its tokens so many go to other experts than their turn is, which differ by step.
constexpr double kStrayTokens = 0.05;
/// More than this share of tokens is of one kind in no text.
constexpr double kMostAlikeTokens = 0.95;
/// Rows that cost as much as a product's own at strength 2.
constexpr double kHalfRows = 16;
/// Recomputing must leave less free than this, and storing everything must not fit.
constexpr double kFreeMemory = 0.05;
constexpr const char* kStall = "stall";

/// So slow that work takes as long as that of large models does on a device, so well connected and
/// so fast to launch beside that that nothing but compute is left.
spec::HardwareSpec slow_machine(int64_t num_ranks) {
  spec::HardwareSpec hardware;
  hardware.name = "emulated";
  hardware.devices_per_node = num_ranks;
  hardware.peak_flops_per_s = 1e9;
  hardware.memory_bytes_per_s = 1e11;
  hardware.intra_node = hardware.inter_node = {1000, 1e10};
  hardware.launch_ns = 500;
  hardware.graph_launch_ns = 500;
  hardware.sync_ns = 500;
  return hardware;
}

/// Tokens take turns, so that all experts get as many rows; with a strength more of them are alike.
class TurnTokens final : public TokenSource {
 public:
  TurnTokens(const spec::TrialSpec& trial, double strength)
      : trial_(trial), alike_(std::min(kMostAlikeTokens, 1 - 1 / strength)) {}

  [[nodiscard]] std::vector<int32_t> sequence(int64_t step, int64_t index) const override {
    std::vector<int32_t> tokens(static_cast<size_t>(trial_.training.seq_length) + 1);
    const uint64_t key = philox_key(trial_.training.seed, "tokens");
    constexpr uint64_t kParts = 1'000'000;
    const auto vocab = static_cast<uint64_t>(trial_.model.vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<uint64_t>(
          (step * trial_.training.global_batch_size + index) * 1000 + static_cast<int64_t>(i));
      const auto chance = [&](uint64_t draw) {
        return static_cast<double>(philox_uniform(key, 3 * at + draw, kParts)) / kParts;
      };
      tokens[i] = static_cast<int32_t>(i % vocab);
      if (chance(0) < kStrayTokens) {
        tokens[i] = static_cast<int32_t>(philox_uniform(key, 3 * at + 2, vocab));
      }
      if (chance(1) < alike_) tokens[i] = 0;
    }
    return tokens;
  }

 private:
  const spec::TrialSpec& trial_;
  double alike_;
};

/// Weights of no meaning, but token t goes to the experts t and t + 1, counted round.
double routing_value(int64_t num_experts, const plan::ParamDesc& param, int64_t global) {
  const int64_t row = global / param.global_cols;
  const int64_t col = global % param.global_cols;
  if (param.is_norm) return 1;
  if (param.kind == plan::ParamKind::router) return col == row ? 1 : 0;
  if (param.kind == plan::ParamKind::embedding && col < num_experts) {
    if (col == row % num_experts) return 2;
    return col == (row + 1) % num_experts ? 1 : 0;
  }
  // Drawing hundreds of thousands of normal numbers would take longer than the step.
  constexpr double kRange = 0.04;
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  const uint64_t mixed = (static_cast<uint64_t>(global) + 1) * kOdd;
  return kRange * (static_cast<double>(mixed >> 32) / 4294967296.0 - 0.5);
}

/// A communicator over whose links, where they are the slow rank's, bytes take longer.
class SlowCommunicator final : public Communicator {
 public:
  /// `slow`: the slow rank's place in the group, -1 if it is not in it.
  SlowCommunicator(std::unique_ptr<Communicator> inner, int slow, double times)
      : inner_(std::move(inner)), slow_(slow), times_(times) {}

  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  CommTiming all_gather(const void* send, void* recv, int64_t bytes,
                        const CommStart& start) override {
    return inner_->all_gather(send, recv, bytes, own(start));
  }
  CommTiming reduce_scatter(const void* send, void* recv, int64_t numel, base::DType dtype,
                            const CommStart& start) override {
    return inner_->reduce_scatter(send, recv, numel, dtype, own(start));
  }
  CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                        const CommStart& start) override {
    return inner_->all_reduce(data, numel, dtype, own(start));
  }
  CommTiming all_to_all(std::span<const AllToAllLane> lanes, std::span<const int64_t> send_rows,
                        std::span<const int64_t> recv_rows, const CommStart& start) override {
    return inner_->all_to_all(lanes, send_rows, recv_rows, own(start));
  }
  CommTiming send(int peer, int64_t tag, const void* data, int64_t bytes, const MessageSlots& slots,
                  const CommStart& start) override {
    return inner_->send(peer, tag, data, bytes, slots, peer == slow_ ? slower(start) : own(start));
  }
  CommTiming recv(int peer, int64_t tag, void* data, int64_t bytes,
                  const CommStart& start) override {
    return inner_->recv(peer, tag, data, bytes, start);  // the sender's message says how long
  }

 private:
  [[nodiscard]] CommStart slower(const CommStart& start) const {
    return {start.ready_ns, {start.links.intra * times_, start.links.inter * times_}};
  }
  /// All members wait for the one whose links are slowest.
  [[nodiscard]] CommStart own(const CommStart& start) const {
    return rank() == slow_ ? slower(start) : start;
  }

  std::unique_ptr<Communicator> inner_;
  int slow_;
  double times_;
};

/// Another world, in which the links of one rank are slow.
class SlowLinkWorld final : public World {
 public:
  SlowLinkWorld(World& inner, const plan::Layout& layout, int slow_rank, double times)
      : inner_(inner), layout_(layout), slow_rank_(slow_rank), times_(times) {}

  std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                             kernels::Backend& backend) override {
    std::unique_ptr<Communicator> inner = inner_.communicator(group, rank, backend);
    if (inner == nullptr || times_ <= 1) return inner;
    const std::vector<int> ranks = layout_.group_ranks(group, rank);
    const auto found = std::ranges::find(ranks, slow_rank_);
    const int slow = found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
    return std::make_unique<SlowCommunicator>(std::move(inner), slow, times_);
  }
  int64_t join_max(int64_t value) override { return inner_.join_max(value); }
  void join_local() override { inner_.join_local(); }
  void check() override { inner_.check(); }
  [[nodiscard]] int64_t message_bytes() override { return inner_.message_bytes(); }
  void begin_computing() override { inner_.begin_computing(); }
  void end_computing() override { inner_.end_computing(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  World& inner_;
  const plan::Layout& layout_;
  int slow_rank_;
  double times_;
};

/// Work that no program asks for, before each layer's.
class InsertedWork final : public ItemObserver {
 public:
  InsertedWork(const std::vector<StrongFault>& faults, int faulty_rank)
      : faults_(faults), faulty_rank_(faulty_rank) {}

  void before_item(RankContext& rank, const plan::Item& item,
                   const plan::Segment& segment) override {
    if (item.layer < 0 || item.micro_batch < 0) return;
    const auto tag = [&](const char* name) {
      return profiler::OpTag{name, item.layer, item.micro_batch};
    };
    profiler::Timeline& timeline = rank.timeline;
    const auto on_host = [&](Fault fault, const char* name) {
      if (!has(fault)) return;
      timeline.finish_host_work(tag(name), timeline.begin_host_work(), ns_of(fault));
    };
    on_host(Fault::allocator, "cudaMalloc");
    if (rank.rank == faulty_rank_ && !segment.is_backward) {
      on_host(Fault::loader, "load_batch");
      on_host(Fault::stall, kStall);
    }
    const auto compute = static_cast<int>(Stream::compute);
    if (has(Fault::syncs)) timeline.synchronize(timeline.record_event(compute), tag("layer_sync"));
    if (has(Fault::offload)) {
      const auto copy = static_cast<int>(Stream::copy);
      const int64_t start_ns = timeline.launch(copy, false);
      timeline.finish(copy, profiler::RecordKind::memcpy,
                      tag(segment.is_backward ? "reload" : "offload"), start_ns,
                      ns_of(Fault::offload));
      timeline.wait_event(compute, timeline.record_event(copy));
    }
  }

 private:
  [[nodiscard]] bool has(Fault fault) const { return tuner::testing::has_fault(faults_, fault); }
  [[nodiscard]] int64_t ns_of(Fault fault) const {
    return std::llround(tuner::testing::inserted_ns(tuner::testing::strength_of(faults_, fault)));
  }

  const std::vector<StrongFault>& faults_;
  int faulty_rank_;
};

/// As of run_ranks (engine/world_run.h), but with hardware and a world that faults have changed.
class EmulatedCluster {
 public:
  EmulatedCluster(const spec::TrialSpec& trial, const std::vector<StrongFault>& faults,
                  int faulty_rank)
      : layout_(plan::layout_of(trial.knobs)),
        trials_(static_cast<size_t>(layout_.world_size()), trial),
        backends_(trials_.size()),
        world_(maker_of(trial.communicator).make({trials_.front(), 0, 1, nullptr, nullptr})),
        slow_links_(*world_, layout_, faulty_rank,
                    tuner::testing::strength_of(faults, Fault::one_ranks_link)),
        inserted_(faults, faulty_rank),
        tokens_(trials_.front(), tuner::testing::strength_of(faults, Fault::uneven_experts)),
        trainers_(trials_.size()) {
    spec::HardwareSpec& slow = trials_[static_cast<size_t>(faulty_rank)].hardware;
    const double strength = tuner::testing::strength_of(faults, Fault::slow_rank);
    slow.peak_flops_per_s /= strength;
    slow.memory_bytes_per_s /= strength;
  }

  /// By step, then rank.
  std::vector<std::vector<profiler::StepTrace>> run(int num_steps, profiler::TraceLevel level) {
    std::vector<std::vector<profiler::StepTrace>> traces(static_cast<size_t>(num_steps));
    for (auto& step : traces) step.resize(trials_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < trials_.size(); ++rank) {
      threads.emplace_back([this, rank, level, &traces] {
        world_->begin_computing();
        try {
          run_rank(rank, level, traces);
        } catch (const base::PeerFailed&) {
          // Another rank has the cause.
        } catch (...) {
          {
            const std::scoped_lock lock(mutex_);
            if (!cause_) cause_ = std::current_exception();
          }
          world_->abort("another rank failed");
        }
        world_->end_computing();
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (cause_) std::rethrow_exception(cause_);
    return traces;
  }

  [[nodiscard]] int64_t peak_bytes() const {
    int64_t peak = 0;
    for (const auto& trainer : trainers_) peak = std::max(peak, trainer->ledger().peak_bytes());
    return peak;
  }

 private:
  void run_rank(size_t rank, profiler::TraceLevel level,
                std::vector<std::vector<profiler::StepTrace>>& traces) {
    backends_[rank] = kernels::make_cpu_backend();
    TrainerHooks hooks;
    hooks.initial_value = [num_experts = trials_[rank].model.num_experts](
                              const plan::ParamDesc& param, int64_t /*local*/, int64_t global) {
      return routing_value(num_experts, param, global);
    };
    hooks.observers.items = &inserted_;
    trainers_[rank] = std::make_unique<RankTrainer>(trials_[rank], static_cast<int>(rank),
                                                    slow_links_, *backends_[rank], hooks);
    for (size_t step = 0; step < traces.size(); ++step) {
      trainers_[rank]->step(static_cast<int64_t>(step), tokens_, level);
      traces[step][rank] = trainers_[rank]->take_trace();
    }
  }

  plan::Layout layout_;
  std::vector<spec::TrialSpec> trials_;  ///< by rank
  std::vector<std::unique_ptr<kernels::Backend>> backends_;
  std::unique_ptr<World> world_;
  SlowLinkWorld slow_links_;
  InsertedWork inserted_;
  TurnTokens tokens_;
  std::vector<std::unique_ptr<RankTrainer>> trainers_;
  std::mutex mutex_;
  std::exception_ptr cause_;
};

EmulatedRun run_with(const FaultyCase& faulty, int num_steps, double longer,
                     profiler::TraceLevel level) {
  EmulatedRun run;
  spec::TrialSpec& trial = run.trial;
  nlohmann::json model = nlohmann::json::parse(kModel);
  const bool holds = tuner::testing::has_fault(faulty.faults, Fault::held_multiprocessors);
  model["num_hidden_layers"] = holds ? kLayersBesideSums : kLayers;
  trial.model = spec::model_from_json(model, "model");
  trial.knobs = spec::knobs_from_json(
      nlohmann::json::parse(tuner::testing::faulty_layouts()[faulty.layout].knobs), "knobs");
  const int num_ranks = static_cast<int>(trial.knobs.world_size());
  trial.hardware = slow_machine(num_ranks);
  trial.hardware.intra_node.bytes_per_s /= longer;
  trial.hardware.inter_node.bytes_per_s /= longer;
  trial.clock = spec::ClockMode::virtual_modelled;
  trial.training.seq_length = kSeqLength;
  trial.training.lr = trial.training.min_lr = 0;  // where tokens go stays
  const int64_t num_micro_batches = put_into(trial, faulty.faults);
  const auto strength = [&](Fault fault) {
    return tuner::testing::strength_of(faulty.faults, fault);
  };
  for (const spec::Work work : {spec::Work::product, spec::Work::grouped}) {
    trial.hardware.half_rows[static_cast<size_t>(work)] =
        kHalfRows * (strength(Fault::small_work) - 1);
  }
  trial.hardware.comm_sm_ratio = 1 - 1 / strength(Fault::held_multiprocessors);

  const auto has = [&](Fault fault) { return tuner::testing::has_fault(faulty.faults, fault); };
  EmulatedCluster cluster(trial, faulty.faults, num_ranks - 1);
  for (std::vector<profiler::StepTrace>& traces : cluster.run(num_steps, level)) {
    FaultyStep& step = run.steps.emplace_back();
    step.step_ns = traces.front().end_ns - traces.front().start_ns;
    for (profiler::StepTrace& trace : traces) {
      // A collection leaves no record.
      std::erase_if(trace.records, [](const profiler::TraceRecord& record) {
        return record.name.text() == kStall;
      });
    }
    step.traces = std::move(traces);
    lose_records(faulty, step);
    step.communicators = plan::group_instances(plan::layout_of(trial.knobs));
    step.facts.peak_flops_per_s = trial.hardware.peak_flops_per_s;
    step.facts.memory_bytes_per_s = trial.hardware.memory_bytes_per_s;
    step.facts.memory.peak_bytes = cluster.peak_bytes();
    const auto peak = static_cast<double>(cluster.peak_bytes());
    step.facts.memory.capacity_bytes =
        std::llround(peak * (has(Fault::capped_memory) ? 1 + kFreeMemory : 2));
    step.num_micro_batches = num_micro_batches;
    // The first stage has more layers than any other.
    step.faulty_rank = has(Fault::uneven_stages) ? 0 : num_ranks - 1;
  }
  return run;
}

double long_collectives_in(size_t layout) {
  static std::map<size_t, double> found;
  const auto [at, is_new] = found.try_emplace(layout, 1);
  if (is_new) {
    at->second = tuner::testing::long_collectives([&](double longer) {
      return run_with({layout, {{Fault::held_multiprocessors, 1}}}, 1, longer,
                      profiler::TraceLevel::ops)
          .steps.front();
    });
  }
  return at->second;
}

double longer_in(const FaultyCase& faulty) {
  const bool holds = tuner::testing::has_fault(faulty.faults, Fault::held_multiprocessors);
  return holds ? long_collectives_in(faulty.layout) : 1;
}

/// Of a layout there are two healthy trials: one of them with links that are slow.
double healthy_time(const FaultyCase& faulty, int num_steps) {
  static std::map<std::tuple<size_t, bool, int>, double> found;
  const FaultyCase healthy = tuner::testing::without_faults(faulty);
  const auto [at, is_new] =
      found.try_emplace({healthy.layout, !healthy.faults.empty(), num_steps}, 0);
  if (is_new) at->second = time_of(healthy, num_steps);
  return at->second;
}

}  // namespace

double EmulatedRun::time() const {
  double sum = 0;
  for (const FaultyStep& step : steps) sum += step.time();
  return sum / static_cast<double>(steps.size());
}

bool is_emulated(size_t layout, Fault fault) {
  return tuner::testing::faulty_layouts()[layout].launch_queue == 0 &&
         tuner::testing::is_possible(layout, fault);
}

EmulatedRun run_emulated(const FaultyCase& faulty, int num_steps) {
  return run_with(faulty, num_steps, longer_in(faulty), profiler::TraceLevel::ops);
}

double time_of(const FaultyCase& faulty, int num_steps) {
  return run_with(faulty, num_steps, longer_in(faulty), profiler::TraceLevel::none).time();
}

double emulated_gain(const FaultyCase& faulty, const EmulatedRun& run) {
  return 1 - healthy_time(faulty, static_cast<int>(run.steps.size())) / run.time();
}

std::optional<double> emulated_strength(size_t layout, Fault fault, double gain_ratio) {
  const FaultyCase healthy = tuner::testing::without_faults({layout, {{fault, 1}}});
  return tuner::testing::strength_for(
      fault, gain_ratio, run_emulated(healthy, 1).time(), [&](double strength) {
        return run_emulated({layout, {{fault, strength}}}, 1).time();
      });
}

}  // namespace moetune::engine::testing
