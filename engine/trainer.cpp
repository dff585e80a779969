// Brings program, parameters, batches and communicators together, and counts what a step did.
#include "engine/trainer.h"

#include "engine/optim/adamw.h"
#include "engine/plan/compile.h"

namespace moetune::engine {

RankTrainer::RankTrainer(const spec::TrialSpec& trial, int rank, World& world,
                         kernels::Backend& backend, const TrainerHooks& hooks)
    : world_(world),
      rank_(trial, rank, backend),
      hooks_(hooks),
      program_(plan::compile(trial, rank)) {
  rank_.world = &world;
  rank_.memory.set_observer(hooks.observers.memory);
  rank_.comms.make(world, rank, backend);
  params_ = std::make_unique<Parameters>(rank_, program_.params);
  executor_ = std::make_unique<Executor>(rank_, program_, *params_, hooks.observers);
  executor_->set_up();
  params_->initialize(hooks.initial_value ? hooks.initial_value
                                          : random_initial_value(trial.model, trial.training.seed));
}

RankTrainer::~RankTrainer() = default;

StepResult RankTrainer::step(int64_t step, const TokenSource& tokens, profiler::TraceLevel level) {
  const StepTokens batch = step_tokens(tokens, rank_.trial, rank_.rank, step);
  rank_.timeline.begin_step(static_cast<int>(step), level);
  const int64_t begin_ns = rank_.timeline.host_ns();
  StepValues values;
  values.tokens = &batch;
  values.num_updates = num_updates_;
  values.lr = learning_rate(rank_.trial.training, num_updates_);
  if (hooks_.on_zeroed) {
    values.on_zeroed = [&] { hooks_.on_zeroed(step, rank_.rank, *params_, rank_.backend); };
  }
  if (hooks_.on_gradients) {
    values.on_gradients = [&] { hooks_.on_gradients(step, *params_, rank_.backend); };
  }
  executor_->run_step(values);
  StepResult result;
  result.grad_norm = values.grad_norm;
  result.lr = values.lr;
  result.is_skipped = values.is_skipped();
  if (!result.is_skipped) ++num_updates_;
  result.loss = values.losses[0] / static_cast<double>(rank_.trial.training.global_batch_size *
                                                       rank_.trial.training.seq_length);
  result.aux_loss = values.losses[1];
  result.z_loss = values.losses[2];
  rank_.backend.synchronize();
  // The clocks of several hosts have nothing in common but their speed.
  const int64_t end_ns = begin_ns + world_.join_max(rank_.timeline.latest_ns() - begin_ns);
  result.step_ns = end_ns - begin_ns;
  trace_ = rank_.timeline.end_step(end_ns);
  return result;
}

}  // namespace moetune::engine
