// One layout has one peak, wherever an answer tells it: what PyTorch has allocated. What lies
// beside counts in what fits.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kernels/base/units.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/plan_answer.h"
#include "sweeps/planning/plan_report.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(plan_peaks)

namespace {

namespace planner = tuner::planner;
using nlohmann::json;

struct Asked {
  std::shared_ptr<const spec::ModelSpec> model = model_named("qwen3-30b-a3b");
  std::shared_ptr<const spec::HardwareSpec> hardware = machine_of("h100-80g", 16);
  planner::PlanQuestion question;

  Asked() {
    question.model = model.get();
    question.hardware = hardware.get();
    question.global_batch_size = 64;
    question.seq_length = 4096;
    question.num_best = 1;
    // Attention is captured at once, so that its tensors lie in the pool of graphs.
    question.base.cuda_graph_warmup_steps = 0;
    question.keeps = [](const spec::PlanKnobs& k) {
      return k.tp == 1 && k.pp == 1 && k.ep == 16 && k.dispatcher == spec::Dispatcher::hybridep &&
             k.cuda_graphs.has(spec::PlanGraph::attn) && k.micro_batch_size == 1;
    };
  }

  [[nodiscard]] PlanResult plan(const std::optional<planner::PlanRun>& against = {}) const {
    return make_plan(question, default_calibration(), against);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(one_layout_has_one_peak) {
  Asked asked;
  PlanResult planned = asked.plan();
  BOOST_TEST_REQUIRE(!planned.answer.best.empty());
  const spec::PlanKnobs knobs = planned.answer.best.front().knobs;
  asked.question.keeps = [&](const spec::PlanKnobs& other) { return other == knobs; };
  planner::PlanRun today = run_with(asked.question, planned.answer.best.front());
  today.knobs.overlap_grad_reduce = !today.knobs.overlap_grad_reduce;
  planned = asked.plan(today);
  const std::string text = to_text(planned, std::nullopt);
  const json document = to_json(planned);
  const json& plan = document["plans"][0];
  const auto bytes = [&](const char* key) { return plan[key].get<double>(); };
  const double peak = bytes("peak_allocated_bytes");
  const double beside =
      bytes("graph_pool_bytes") + plan["memory_parts_bytes"]["exchange_buffers"].get<double>();
  BOOST_TEST(bytes("graph_pool_bytes") > 0);
  BOOST_TEST(beside > bytes("graph_pool_bytes"));

  // The breakdown, and the last step of the way to the plan.
  double sum = 0;
  for (const auto& [part, of_part] : plan["memory_parts_bytes"].items()) {
    sum += of_part.get<double>();
  }
  BOOST_TEST(std::abs(sum - beside - peak) < 10);
  const auto told = [](double count) { return base::format_bytes(std::llround(count)); };
  BOOST_TEST(text.find(fmt::format("\n  {:29} {:>9}  ", "peak, allocated", told(peak))) !=
                 std::string::npos,
             text);
  BOOST_TEST(text.find(fmt::format("\n  {:29} {:>9}  ", "with pool and buffers", told(sum))) !=
                 std::string::npos,
             text);
  BOOST_TEST_REQUIRE(!document["against"]["path"].empty());
  const json& last = document["against"]["path"].back();
  BOOST_TEST(last["peak_allocated_bytes"] == plan["peak_allocated_bytes"]);
  BOOST_TEST(std::abs(last["missing_bytes"].get<double>() + bytes("left_bytes")) < 10);

  // Where it does not fit. What is missing is missing for all that has to fit.
  asked.question.memory_ratio = 0.2;
  PlanResult missed = asked.plan();
  BOOST_TEST_REQUIRE(missed.answer.nearest.size() == 1U);
  const json misses = to_json(missed)["nearest_misses"];
  BOOST_TEST(misses[0]["knobs"] == plan["knobs"]);
  BOOST_TEST(misses[0]["peak_allocated_bytes"] == plan["peak_allocated_bytes"]);
  const double capacity = capacity_of(missed.question);
  BOOST_TEST(std::abs(misses[0]["missing_bytes"].get<double>() -
                      (planner::device_bytes(peak + beside) - capacity)) < 10);

  // Pages say the same.
  const reports::PlanPage page = plan_page(planned, "qwen", "");
  const reports::PlanPage page_of_misses = plan_page(missed, "qwen", "");
  BOOST_TEST(std::abs(page.rows[0].peak_bytes.value - peak) < 10);
  BOOST_TEST(std::abs(page.rows[0].needed_bytes - peak - beside) < 10);
  BOOST_TEST(std::abs(page.stages[0].allocated_bytes - peak) < 10);
  BOOST_TEST(std::abs(page.against->path.back().peak_bytes - peak) < 10);
  BOOST_TEST(std::abs(page_of_misses.misses[0].peak_bytes - peak) < 10);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
