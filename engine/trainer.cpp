// One rank's training step; see trainer.h.
#include "engine/trainer.h"

namespace moetune::engine {

RankTrainer::RankTrainer(const spec::TrialSpec& trial, int rank, World& world,
                         kernels::Backend& backend, const TrainerHooks& hooks)
    : world_(world), rank_(trial, rank, backend), hooks_(hooks) {
  rank_.world = &world;
  RankComms& comms = rank_.comms;
  comms.world = world.communicator(spec::Group::world, rank, backend);
  comms.dp_cp = world.communicator(spec::Group::dp_cp, rank, backend);
  comms.cp = world.communicator(spec::Group::cp, rank, backend);
  comms.ep = world.communicator(spec::Group::ep, rank, backend);
  comms.edp = world.communicator(spec::Group::edp, rank, backend);
  comms.pp = world.communicator(spec::Group::pp, rank, backend);
  comms.embedding = world.communicator(spec::Group::embedding, rank, backend);
  constexpr auto kNumScalars = static_cast<int64_t>(spec::Scalar::count);
  rank_.scalars = kernels::Tensor::matrix(
      rank_.memory.allocate("step_sums", MemoryGroup::workspace, kNumScalars * 8), base::DType::f64,
      1, kNumScalars);
  params_ = std::make_unique<Parameters>(
      rank_, hooks.initial_value ? hooks.initial_value
                                 : random_initial_value(trial.model, trial.training.seed));
  stage_ = std::make_unique<Stage>(rank_, *params_, hooks.routing, hooks.logits);
  optimizer_ = std::make_unique<Optimizer>(rank_, *params_);
  const int64_t num_micro_batches =
      spec::num_micro_batches(rank_.layout, trial.knobs, trial.training.global_batch_size);
  schedule_ = spec::one_f_one_b(rank_.layout.pp, rank_.layout.pp_rank(rank), num_micro_batches);
  if (trial.knobs.overlap_grad_reduce) {
    stage_->set_layer_done([this, num_micro_batches](int64_t layer, int64_t micro_batch) {
      // Gradients of a layer are complete after the last micro-batch's backward.
      if (micro_batch == num_micro_batches - 1 && layer >= 0) optimizer_->reduce_layer(layer);
    });
  }
}

RankTrainer::~RankTrainer() = default;

StepResult RankTrainer::step(int64_t step, const TokenSource& tokens, profiler::TraceLevel level) {
  const StepTokens batch = step_tokens(tokens, rank_.trial, rank_.rank, step);
  rank_.timeline.begin_step(static_cast<int>(step), level);
  const int64_t begin_ns = rank_.timeline.host_ns();
  stage_->begin_step(batch);
  optimizer_->zero_grads();
  GraphCapture iteration(rank_, spec::GraphScope::full_iteration, Pass::forward,
                         [] { return std::vector<const void*>(); });
  for (const spec::ScheduleStep& item : schedule_) {
    if (item.is_forward) {
      stage_->forward(item.micro_batch);
    } else {
      stage_->backward(item.micro_batch);
    }
  }
  iteration.close();
  StepResult result;
  result.grad_norm = optimizer_->finish_gradients();
  rank_.backend.use_stream(static_cast<int>(Stream::data));
  if (hooks_.on_gradients) hooks_.on_gradients(step, *params_, rank_.backend);
  optimizer_->update(step, result.grad_norm);
  result.lr = learning_rate(rank_.trial.training, step);

  constexpr int kNumLosses = 3;
  join_streams(rank_, Stream::data, Stream::compute);
  run_comm(rank_, Op::loss_reduce, Pass::update, spec::Group::world, [&](int64_t ready_ns) {
    return rank_.comms.world->all_reduce(rank_.scalar(spec::Scalar::loss), kNumLosses,
                                         base::DType::f64, ready_ns);
  });
  double sums[kNumLosses];
  rank_.backend.use_stream(static_cast<int>(Stream::data));
  {
    const profiler::OpTag tag{spec::op_label(Op::host_sync, Pass::update)};
    const profiler::DeviceOpScope scope(
        rank_.labels(), device_op(rank_, tag, Op::loss_reduce, profiler::RecordKind::host_sync));
    rank_.backend.copy_to_host(sums, rank_.scalar(spec::Scalar::loss), sizeof(sums));
  }
  result.loss = sums[0] / static_cast<double>(rank_.trial.training.global_batch_size *
                                              rank_.trial.training.seq_length);
  result.aux_loss = sums[1];
  result.z_loss = sums[2];
  rank_.backend.synchronize();
  // The clocks of several hosts have nothing in common but their speed.
  const int64_t end_ns = begin_ns + world_.join_max(rank_.timeline.latest_ns() - begin_ns);
  result.step_ns = end_ns - begin_ns;
  trace_ = rank_.timeline.end_step(end_ns);
  return result;
}

}  // namespace moetune::engine
