// Central differences through the whole tiny model in double precision: the gradient of the
// training objective (cross-entropy plus both auxiliary losses) with respect to single weights and
// along a random direction through all weights of a tensor, on one rank and on a parallel layout.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/engine/training_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(gradient)

namespace {

using testing::GradientMap;
using testing::RandomTokens;

// How far each weight of the tensor `name` moves per unit of `delta`.
struct Probe {
  std::string name;
  std::function<double(int64_t element)> direction;
};

// A unit vector through a whole tensor.
std::vector<double> random_direction(const std::string& name, size_t numel) {
  const uint64_t key = philox_key(11, name);
  std::vector<double> direction(numel);
  double squared_norm = 0;
  for (size_t i = 0; i < numel; ++i) {
    direction[i] = philox_normal(key, i);
    squared_norm += direction[i] * direction[i];
  }
  for (double& value : direction) value /= std::sqrt(squared_norm);
  return direction;
}

// Objective of step 0 with one tensor moved by `delta` along the probe's direction.
StepResult run_with(const spec::TrialSpec& trial, const Probe& probe, double delta,
                    GradientMap* gradients) {
  const InitialValue base = random_initial_value(trial.model, trial.training.seed);
  TrainerHooks hooks;
  hooks.initial_value = [&](const plan::ParamDesc& param, int64_t local, int64_t global) {
    const double value = base(param, local, global);
    const bool is_tied_head = param.is_tied_copy && probe.name == "embedding";
    const bool is_probe = param.name == probe.name || is_tied_head;
    return is_probe ? value + delta * probe.direction(global) : value;
  };
  testing::GradientGatherer gatherer;
  hooks.on_gradients = [&](int64_t step, const Parameters& params, kernels::Backend& backend) {
    gatherer.add(step, params, backend);
  };
  const RandomTokens tokens(trial);
  StepResult result;
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int rank) {
    const StepResult step = trainer.step(0, tokens, profiler::TraceLevel::none);
    if (rank == 0) result = step;
  });
  if (gradients != nullptr) *gradients = gatherer.by_step.at(0);
  return result;
}

double objective(const StepResult& result) { return result.loss + result.aux_loss + result.z_loss; }

// Central difference of fourth order along the probe's direction: with two points alone, either the
// rounding of the objective or its curvature would be off by more than small gradients allow.
// Larger steps would change which experts the router takes, where the objective jumps.
double numeric_derivative(const spec::TrialSpec& trial, const Probe& probe) {
  constexpr double kStep = 1e-4;
  const auto difference = [&](double delta) {
    return objective(run_with(trial, probe, delta, nullptr)) -
           objective(run_with(trial, probe, -delta, nullptr));
  };
  return (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
}

// Relative to the derivative itself, not to larger ones of its tensor. Below 1e-5 the rounding of
// the objective, up to 1e-11 in the difference, would be the larger part: there, relative to 1e-5.
double relative_error(double numeric, double analytic) {
  return std::abs(numeric - analytic) / std::max(std::abs(analytic), 1e-5);
}

void check_model(const spec::ModelSpec& model, const std::string& knobs) {
  spec::TrialSpec trial =
      testing::tiny_trial(model, spec::knobs_from_json(nlohmann::json::parse(knobs), "test"));
  trial.dtype = spec::DType::f64;
  GradientMap gradients;
  run_with(trial, {}, 0, &gradients);
  for (const auto& [name, gradient] : gradients) {
    // The largest element of each parameter and another one.
    const auto largest = static_cast<int64_t>(
        std::max_element(gradient.begin(), gradient.end(),
                         [](double a, double b) { return std::abs(a) < std::abs(b); }) -
        gradient.begin());
    const double scale = std::abs(gradient[static_cast<size_t>(largest)]);
    for (const int64_t at : {largest, static_cast<int64_t>(gradient.size()) / 3}) {
      const double numeric = numeric_derivative(
          trial, {name, [=](int64_t element) { return element == at ? 1.0 : 0.0; }});
      BOOST_TEST_CONTEXT(name << "[" << at << "] analytic " << gradient[static_cast<size_t>(at)]
                              << " numeric " << numeric) {
        BOOST_TEST(scale > 0);
        BOOST_TEST(relative_error(numeric, gradient[static_cast<size_t>(at)]) < 1e-6);
      }
    }
    // All elements at once, so that an error in any one of them shows.
    const std::vector<double> direction = random_direction(name, gradient.size());
    const double numeric = numeric_derivative(
        trial, {name, [&](int64_t element) { return direction[static_cast<size_t>(element)]; }});
    const double analytic =
        std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
    BOOST_TEST_CONTEXT(name << " along a random direction: analytic " << analytic << " numeric "
                            << numeric) {
      BOOST_TEST(relative_error(numeric, analytic) < 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(errors_are_relative_to_the_derivative_itself) {
  for (const double analytic : {1e-4, -0.1, 3.0}) {
    BOOST_TEST(relative_error(analytic, analytic) == 0);
    BOOST_TEST(relative_error(analytic * (1 + 2e-6), analytic) > 1e-6);
    BOOST_TEST(relative_error(0, analytic) == 1);
  }
  BOOST_TEST(relative_error(1e-11, 0) < 2e-6);
  BOOST_TEST(relative_error(1e-9, 0) > 1e-6);
}

BOOST_AUTO_TEST_CASE(moe_model_on_one_rank) { check_model(testing::tiny_model(), "{}"); }

BOOST_AUTO_TEST_CASE(moe_model_on_a_parallel_layout) {
  check_model(testing::tiny_model(),
              R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
                  "pipeline_model_parallel_size": 2, "ep_chunks_forward": 2})");
}

BOOST_AUTO_TEST_CASE(mixed_model_with_biases_window_shared_expert_and_tied_head) {
  spec::ModelSpec model = testing::tiny_model();
  model.is_moe_layer = {false, true, true};
  model.shared_ffn_size = 8;
  model.has_attention_bias = true;
  model.has_attention_output_bias = true;
  model.has_mlp_bias = true;
  model.attention_window = {5, 0, 0};
  model.normalizes_topk = false;
  model.has_qk_norm = false;
  model.ties_embeddings = true;
  model.hidden_act = "gelu_tanh";
  check_model(model, "{}");
  check_model(model, R"({"pipeline_model_parallel_size": 2, "recompute": "full"})");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
