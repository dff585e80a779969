// Speed of the engine itself: one rank in wall-clock time on the quick-start model, beside this
// machine's own GEMM rate. Prints figures; asserts nothing.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/world_run.h"
#include "kernels/base/median.h"
#include "kernels/base/units.h"

namespace {

using namespace moetune;  // NOLINT: a program, not a library

constexpr int kRepeats = 7;
constexpr int64_t kGemmSize = 1024;

double gemm_flops_per_s() {
  const auto backend = kernels::make_cpu_backend();
  const int64_t bytes = kGemmSize * kGemmSize * 4;
  std::vector<kernels::Tensor> tensors;
  for (int i = 0; i < 3; ++i) {
    void* data = backend->allocate(bytes);
    std::vector<float> values(static_cast<size_t>(kGemmSize * kGemmSize));
    for (size_t at = 0; at < values.size(); ++at) {
      values[at] = static_cast<float>((at * 7919 + static_cast<size_t>(i)) % 1000) * 1e-3F - 0.5F;
    }
    backend->copy_to_device(data, values.data(), bytes);
    tensors.push_back(kernels::Tensor::matrix(data, base::DType::f32, kGemmSize, kGemmSize));
  }
  std::vector<double> rates;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    const int64_t begin = profiler::thread_cpu_ns();
    backend->gemm({tensors[0], tensors[1], tensors[2], false, true, false});
    const auto ns = static_cast<double>(profiler::thread_cpu_ns() - begin);
    const double flops = 2.0 * static_cast<double>(kGemmSize * kGemmSize * kGemmSize);
    if (repeat > 0) rates.push_back(flops / ns * 1e9);
  }
  for (const kernels::Tensor& tensor : tensors) backend->free(tensor.data);
  return base::median(rates);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model_path = argc > 1 ? argv[1] : "engine/models/quickstart_moe.json";
  const std::string text_path = argc > 2 ? argv[2] : ".";
  spec::TrialSpec trial;
  trial.model = spec::model_from_json(nlohmann::json::parse(std::ifstream(model_path)), model_path);
  trial.hardware.name = "this machine";
  trial.hardware.devices_per_node = 1;
  trial.clock = spec::ClockMode::wall;
  trial.training.global_batch_size = 16;
  trial.training.seq_length = 128;
  trial.knobs.micro_batch_size = 4;
  const engine::TextSource tokens(spec::read_corpus(text_path), trial.training, text_path);
  std::vector<double> step_ns;
  engine::run_ranks(trial, {}, [&](engine::RankTrainer& trainer, engine::World&, int) {
    for (int step = 0; step <= kRepeats; ++step) {
      const auto result = trainer.step(step, tokens, profiler::TraceLevel::none);
      if (step > 0) step_ns.push_back(static_cast<double>(result.step_ns));
    }
  });
  const auto tokens_per_step =
      static_cast<double>(trial.training.global_batch_size * trial.training.seq_length);
  const double tokens_per_s = tokens_per_step / base::median(step_ns) * 1e9;
  const double flops_per_s =
      tokens_per_s * trial.model.training_flops_per_token(trial.training.seq_length);
  const double peak = gemm_flops_per_s();
  fmt::print("model {}: {} parameters, {} per step\n", model_path,
             base::format_count(static_cast<double>(trial.model.num_parameters())),
             base::format_count(tokens_per_step));
  fmt::print("one rank, wall clock, median of {} steps: {:.0f} tokens/s, {}\n", kRepeats,
             tokens_per_s, base::format_flops_per_s(flops_per_s));
  fmt::print("GEMM {}^3 f32, one thread, median of {}: {}\n", kGemmSize, kRepeats,
             base::format_flops_per_s(peak));
  fmt::print("share of the GEMM rate: {}\n", base::format_ratio(flops_per_s / peak));
  return 0;
}
