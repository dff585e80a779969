// The differences that are allowed, and the comparison of each kind of number in turn.
#include "engine/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/checkpoint/hf_weights.h"
#include "engine/checkpoint/reference_run.h"
#include "engine/spec/problems.h"
#include "engine/world_run.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

class ReferenceTokens final : public TokenSource {
 public:
  explicit ReferenceTokens(const ReferenceRun& run) : run_(run) {}
  [[nodiscard]] std::vector<int32_t> sequence(int64_t step, int64_t index) const override {
    const int64_t length = run_.training.seq_length + 1;
    const auto begin =
        run_.tokens.begin() + (step * run_.training.global_batch_size + index) * length;
    return {begin, begin + length};
  }

 private:
  const ReferenceRun& run_;
};

/// Devices whose speed does not matter: time is modelled and not looked at.
spec::HardwareSpec plain_hardware(const spec::Knobs& knobs) {
  spec::HardwareSpec hardware;
  hardware.name = "verify";
  hardware.devices_per_node = knobs.world_size();
  hardware.peak_flops_per_s = 1e12;
  hardware.memory_bytes_per_s = 1e12;
  hardware.intra_node = {0, 1e12};
  hardware.inter_node = {0, 1e12};
  return hardware;
}

spec::TrialSpec make_spec(const ReferenceRun& run, const spec::Knobs& knobs) {
  spec::TrialSpec trial;
  trial.model = run.model;
  trial.knobs = knobs;
  trial.hardware = plain_hardware(knobs);
  trial.training = run.training;
  trial.clock = spec::ClockMode::virtual_modelled;
  trial.trace = spec::TraceLevel::none;
  trial.num_warmup_steps = 0;
  trial.num_steps = run.num_steps();
  trial.num_traced_steps = 0;
  return trial;
}

/// Throws base::UsageError with all breaches of other rules than those named.
void refuse_impossible(const spec::TrialSpec& trial, const std::string& folder,
                       std::initializer_list<std::string_view> but) {
  spec::Problems problems;
  for (const spec::Violation& violation : spec::check_constraints(spec::parts_of(trial))) {
    if (std::find(but.begin(), but.end(), violation.rule) != but.end()) continue;
    problems.add(fmt::format("{}: this layout is impossible: {} ({})", folder, violation.message,
                             violation.rule));
  }
  problems.throw_if_any();
}

spec::TrialSpec make_trial(const ReferenceRun& run, const spec::Knobs& knobs,
                           const std::string& folder) {
  spec::TrialSpec trial = make_spec(run, knobs);
  // The reference computes beyond the positions its model was made for, and so does the engine.
  refuse_impossible(trial, folder, {"seq_within_positions"});
  return trial;
}

/// Collects what the ranks compute in the first step, in the order of the global batch.
class Collector final : public RoutingObserver, public LogitsObserver {
 public:
  Collector(const ReferenceRun& run, const spec::TrialSpec& trial)
      : run_(run),
        trial_(trial),
        layout_(plan::layout_of(trial.knobs)),
        step_of_rank_(static_cast<size_t>(layout_.world_size()), 0),
        logits_(run.logits.size(), std::nan("")),
        gradients_(*run.gradient_names) {
    for (const auto& [layer, experts] : run.experts) experts_[layer].assign(experts.size(), -1);
    for (int rank = 0; rank < layout_.world_size(); ++rank) {
      positions_.push_back(plan::local_positions(layout_, rank, run.training.seq_length));
    }
  }

  /// Of the rank whose thread calls.
  void begin_step(int rank, int64_t step) { step_of_rank_[static_cast<size_t>(rank)] = step; }

  void on_logits(int rank, int64_t micro_batch, int64_t first_token, int64_t first_col,
                 const kernels::Tensor& shape, const std::vector<double>& logits) override {
    if (step_of_rank_[static_cast<size_t>(rank)] != 0) return;
    const std::scoped_lock lock(mutex_);
    for (int64_t i = 0; i < shape.rows; ++i) {
      const auto row = logits.begin() + i * shape.cols;
      const int64_t place = place_of(rank, micro_batch, first_token + i);
      std::copy(row, row + shape.cols, logits_.begin() + place * run_.model.vocab_size + first_col);
    }
  }

  void on_routing(int rank, int64_t layer, int64_t micro_batch, const int32_t* indices,
                  int64_t num_tokens, int64_t topk) override {
    if (step_of_rank_[static_cast<size_t>(rank)] != 0) return;
    const std::scoped_lock lock(mutex_);
    std::vector<int32_t>& experts = experts_.at(layer);
    // Between the matrices a tensor-parallel rank holds its share of the micro-batch's tokens.
    const int64_t first = layout_.tp_rank(rank) * num_tokens;
    for (int64_t token = 0; token < num_tokens; ++token) {
      std::copy(indices + token * topk, indices + (token + 1) * topk,
                experts.begin() + place_of(rank, micro_batch, first + token) * topk);
    }
  }

  /// Takes the part of every gradient that this rank is the one to know: its shard of each bucket
  /// with the distributed optimizer, else everything on the first of the ranks that hold the same.
  void on_gradients(int64_t step, const Parameters& params, kernels::Backend& backend) {
    if (step != 0) return;
    const std::scoped_lock lock(mutex_);
    for (const plan::ParamDesc& param : params.plan().params) {
      const Bucket& bucket = params.buckets()[static_cast<size_t>(param.bucket)];
      const plan::BucketDesc& desc = bucket.desc;
      const bool is_shared = desc.own_numel == desc.numel && bucket.group->rank() != 0;
      if (param.is_tied_copy || is_shared) continue;
      const int64_t begin = std::max(param.offset, desc.own_begin);
      const int64_t end = std::min(param.offset + param.numel(), desc.own_begin + desc.own_numel);
      if (begin >= end || !desc.has_gradient) continue;
      const std::vector<double> values =
          values_of(backend, bucket.grad.columns(begin, end - begin));
      gradients_.add(param, begin - param.offset, values);
    }
  }

  [[nodiscard]] double logits_max_abs() const {
    double worst = 0;
    for (size_t i = 0; i < logits_.size(); ++i) {
      const double distance = std::abs(logits_[i] - run_.logits[i]);
      if (!(distance <= worst)) worst = distance;
      if (std::isnan(worst)) break;
    }
    return worst;
  }

  [[nodiscard]] int64_t router_mismatches() const {
    int64_t mismatches = 0;
    const int64_t topk = run_.model.experts_per_token;
    for (const auto& [layer, reference] : run_.experts) {
      const std::vector<int32_t>& ours = experts_.at(layer);
      for (int64_t at = 0; at < static_cast<int64_t>(ours.size()); at += topk) {
        std::vector<int32_t> a(ours.begin() + at, ours.begin() + at + topk);
        std::vector<int32_t> b(reference.begin() + at, reference.begin() + at + topk);
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        if (a != b) ++mismatches;
      }
    }
    return mismatches;
  }

  void compare_gradients(VerifyResult& result) const {
    for (const auto& [name, ours] : gradients_.tensors()) {
      const auto reference = run_.gradients.find(name);
      MOETUNE_CHECK(reference != run_.gradients.end(), "no reference gradient of {}", name);
      double difference = 0;
      double norm = 0;
      for (size_t i = 0; i < ours.size(); ++i) {
        const double expected = reference->second[i];
        difference += (ours[i] - expected) * (ours[i] - expected);
        norm += expected * expected;
      }
      // Experts without a token have no gradient at all; then the difference itself counts.
      const double rel = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
      if (!result.gradient_worst_name.empty() && rel <= result.gradient_worst_rel_l2) continue;
      result.gradient_worst_rel_l2 = rel;
      result.gradient_worst_name = name;
      if (std::isnan(rel)) return;
    }
  }

 private:
  /// Index of a rank's token in [batch * seq].
  [[nodiscard]] int64_t place_of(int rank, int64_t micro_batch, int64_t token) const {
    const std::vector<int32_t>& positions = positions_[static_cast<size_t>(rank)];
    const auto num_local = static_cast<int64_t>(positions.size());
    const int64_t sequence = plan::sequence_index(layout_, trial_.knobs, micro_batch,
                                                  layout_.dp_rank(rank), token / num_local);
    return sequence * run_.training.seq_length + positions[static_cast<size_t>(token % num_local)];
  }

  const ReferenceRun& run_;
  const spec::TrialSpec& trial_;
  plan::Layout layout_;
  std::vector<std::vector<int32_t>> positions_;  ///< by rank
  std::vector<int64_t> step_of_rank_;
  std::mutex mutex_;
  std::vector<double> logits_;
  std::map<int64_t, std::vector<int32_t>> experts_;
  HfGather gradients_;
};

/// The larger of both; what is no number stays.
double worse(double so_far, double value) {
  return std::isnan(so_far) || value <= so_far ? so_far : value;
}

}  // namespace

namespace {

VerifyResult verify_run(const ReferenceRun& run, const spec::TrialSpec& trial) {
  const ReferenceTokens tokens(run);
  TrainerHooks hooks;
  hooks.initial_value = checkpoint_initial_value(run.model, run.weights);
  Collector collector(run, trial);
  hooks.observers.routing = &collector;
  hooks.observers.logits = &collector;
  hooks.on_gradients = [&](int64_t step, const Parameters& params, kernels::Backend& backend) {
    collector.on_gradients(step, params, backend);
  };
  std::vector<StepResult> steps(static_cast<size_t>(run.num_steps()));
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int rank) {
    for (int64_t step = 0; step < run.num_steps(); ++step) {
      collector.begin_step(rank, step);
      const StepResult result = trainer.step(step, tokens, profiler::TraceLevel::none);
      // The same on every rank.
      if (rank == 0) steps[static_cast<size_t>(step)] = result;
    }
  });

  VerifyResult result;
  result.logits_max_abs = collector.logits_max_abs();
  result.router_mismatches = collector.router_mismatches();
  collector.compare_gradients(result);
  for (size_t step = 0; step < steps.size(); ++step) {
    const double norm = run.grad_norms[step];
    const double distance = std::abs(steps[step].grad_norm - norm);
    result.loss_max_abs = worse(result.loss_max_abs, std::abs(steps[step].loss - run.losses[step]));
    result.grad_norm_max_rel =
        worse(result.grad_norm_max_rel, norm > 0 ? distance / norm : distance);
  }
  result.ok = result.logits_max_abs <= VerifyTolerance::kLogits &&
              result.loss_max_abs <= VerifyTolerance::kLoss &&
              result.grad_norm_max_rel <= VerifyTolerance::kGradNorm &&
              result.gradient_worst_rel_l2 <= VerifyTolerance::kGradient &&
              result.router_mismatches == 0;
  return result;
}

}  // namespace

VerifyResult verify(const std::string& folder, spec::Knobs knobs) {
  ReferenceRun run = load_reference_run(folder);
  if (run.model.num_experts == 0) {
    refuse_impossible(make_spec(run, knobs), folder, {"seq_within_positions", "ep_needs_experts"});
    knobs.expert_model_parallel_size = 1;
    knobs.expert_tensor_parallel_size = 1;
  }
  const spec::TrialSpec trial = make_trial(run, knobs, folder);
  load_reference_tensors(folder, run);
  return verify_run(run, trial);
}

nlohmann::json to_json(const VerifyResult& result) {
  return {{"ok", result.ok},
          {"logits_max_abs", result.logits_max_abs},
          {"loss_max_abs", result.loss_max_abs},
          {"grad_norm_max_rel", result.grad_norm_max_rel},
          {"gradient_worst_rel_l2", result.gradient_worst_rel_l2},
          {"gradient_worst_name", result.gradient_worst_name},
          {"router_mismatches", result.router_mismatches}};
}

}  // namespace moetune::engine
