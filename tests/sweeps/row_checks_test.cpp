// Rows whose run cannot be, rows that leave memory or throughput to other figures, and that none of
// them takes the others along.
#include "sweeps/planning/row_checks.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <ostream>

#include "sweeps/outputs.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/rates_file.h"
#include "sweeps/planning/row_files.h"
#include "tests/sweeps/shipped_rows.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(row_checks)

namespace {

/// Qwen3-30B (48 layers, 32 heads, 128 experts) in FP8 on 16 H100: ep 16, dp 16, 64 micro-batches
/// of one sequence.
json small_row() { return tests::shipped_row("bridge-101"); }

PublishedRow read(const json& row) { return published_rows_of(json::array({row}), "test").front(); }

json estimated(const json& rows) {
  return estimate_rows(published_rows_of(rows, "test"), default_calibration());
}

std::string assumed_text(const PublishedRow& row) { return json(row.assumed).dump(); }

}  // namespace

struct Impossible {
  const char* name;
  void (*change)(json& row);
  const char* reason;  ///< part of it
};
std::ostream& operator<<(std::ostream& out, const Impossible& row) { return out << row.name; }

const Impossible kImpossible[] = {
    {"more expert ranks than experts",
     [](json& row) {
       row.update({{"world_size", 256}, {"dp", 256}, {"ep", 256}, {"num_microbatches", 4}});
     },
     "ep 256 does not divide the 128 experts"},
    {"a sequence that cp does not divide",
     [](json& row) {
       row.update({{"cp", 2}, {"dp", 8}, {"seq_length", 4095}});
     },
     "2 x cp 2 does not divide the sequence of 4095"},
    {"heads that tp does not divide",
     [](json& row) {
       row.update({{"world_size", 24}, {"tp", 3}, {"dp", 8}, {"ep", 8}});
     },
     "tp 3 does not divide the 32 attention heads"},
    {"tp above the heads",
     [](json& row) {
       row.update({{"world_size", 64}, {"tp", 64}, {"dp", 1}});
     },
     "tp 64 does not divide the 32 attention heads"},
    {"experts' ranks without experts",
     [](json& row) {
       row = tests::shipped_row("simumax-037");
       row["ep"] = 2;
     },
     "ep 2, and the model has no experts"},
    {"more stages than layers",
     [](json& row) {
       row.update({{"world_size", 64}, {"pp", 64}, {"dp", 1}, {"ep", 1}});
     },
     "pp 64 x vpp 1 are more stages than the model's 48 layers"},
    {"MXFP8 on Hopper", [](json& row) { row["precision"] = "mxfp8"; }, "has no mxfp8"},
    {"FP4 on Hopper", [](json& row) { row["precision"] = "nvfp4"; }, "has no nvfp4"},
    {"FP8 on Ampere", [](json& row) { row["hardware"] = "A100-80G"; },
     "has no fp8-current-scaling"},
    {"a batch that replicas do not divide",
     [](json& row) {
       row["global_batch_size"] = 1000;
       row.erase("num_microbatches");
     },
     "micro-batch 1 x dp 16 does not divide the global batch of 1000"},
    {"micro-batches that contradict the batch", [](json& row) { row["num_microbatches"] = 63; },
     "num_microbatches 63 contradicts global_batch_size 1024, which is 64 micro-batches"},
    {"virtual stages that contradict the layout",
     [](json& row) {
       row = tests::shipped_row("bridge-001");
       row["vpp"] = 4;
     },
     "vpp 4 contradicts pipeline_layout, whose 16 stages are 8 for each of pp 2"},
    {"less than a share", [](json& row) { row["imbalance"] = 0.5; },
     "imbalance 0.5 is not from 1 to 10000"},
    {"more than the optimizer", [](json& row) { row["optimizer"]["offload_fraction"] = 1.5; },
     "optimizer.offload_fraction 1.5 is not from 0 to 1"},
    {"less than no offload", [](json& row) { row["optimizer"]["offload_fraction"] = -0.5; },
     "'offload_fraction' is not a number from 0"},
};

BOOST_DATA_TEST_CASE(a_run_that_cannot_be_has_a_reason, data::make(kImpossible), impossible) {
  json row = small_row();
  impossible.change(row);
  const json document = estimated(json::array({small_row(), row, small_row()}))["rows"];
  BOOST_TEST(document[1]["supported"] == false);
  const std::string reason = document[1].value("reason", "");
  BOOST_TEST(reason.find(impossible.reason) != std::string::npos, reason);
  BOOST_TEST(document[0]["supported"] == true);
  BOOST_TEST(document[2]["step_time_ns"] == document[0]["step_time_ns"]);
}

// So that a table of all rows has the same columns.
BOOST_AUTO_TEST_CASE(a_row_without_an_estimate_has_every_key) {
  const json document = estimated(json::array({small_row(), json::object(), 3, nullptr}));
  const json& priced = document["rows"][0];
  BOOST_TEST_REQUIRE(priced["supported"] == true);
  for (size_t i = 1; i < 4; ++i) {
    const json& row = document["rows"][i];
    BOOST_TEST(row.size() == priced.size());
    for (const auto& [key, value] : priced.items()) {
      BOOST_TEST_REQUIRE(row.contains(key), key);
      const bool is_told = key == "id" || key == "supported" || key == "reason";
      BOOST_TEST(row[key].is_null() != is_told, key);
    }
  }
  BOOST_TEST(undocumented_keys("estimate", document).empty());
}

// A row that the checks let pass, and that cannot be priced all the same.
BOOST_AUTO_TEST_CASE(no_row_takes_the_others_along) {
  std::vector<PublishedRow> rows = {read(small_row()), read(small_row()), read(small_row())};
  rows[1].run.knobs.cp = 2;
  rows[1].run.seq_length = 4095;
  const json document = estimate_rows(rows, default_calibration());
  BOOST_TEST(document["rows"][1]["supported"] == false);
  const std::string reason = document["rows"][1].value("reason", "");
  BOOST_TEST(reason.find("does not split into 4 chunks") != std::string::npos, reason);
  BOOST_TEST(document["rows"][2]["supported"] == true);
  BOOST_TEST(document["summary"]["num_supported"] == 2);
  // Nor does a stated figure of almost nothing, whose error is without bounds.
  for (const char* key : {"tokens_per_s_per_gpu", "step_time_s", "tflops_per_gpu"}) {
    json row = small_row();
    for (const char* other : {"tokens_per_s_per_gpu", "step_time_s", "tflops_per_gpu", "derived"}) {
      row.erase(other);
    }
    row[key] = 1e-320;
    BOOST_TEST(estimated(json::array({small_row(), row}))["summary"]["num_supported"] == 2, key);
  }
  BOOST_TEST(document["summary"]["num_priceable"] == 3);
  BOOST_TEST(document["summary"]["num_priceable_supported"] == 2);
}

// What Megatron-Core refuses was published all the same: virtual stages with too few micro-batches.
BOOST_AUTO_TEST_CASE(rules_of_megatron_are_told) {
  json row = tests::shipped_row("bridge-288");
  row.update({{"global_batch_size", 6}, {"num_microbatches", 3}});
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  constexpr const char* kTold =
      "breaks rule vpp_divides_micro_batches: 3 micro-batches are no multiple of pp 8";
  BOOST_TEST(assumed_text(result).find(kTold) != std::string::npos, assumed_text(result));
  BOOST_TEST(estimated(json::array({row}))["rows"][0]["supported"] == true);
  BOOST_TEST(assumed_text(read(tests::shipped_row("bridge-288"))).find("breaks rule") ==
             std::string::npos);
}

// Qwen3-30B in BF16 on 16 H100 with micro-batches of many sequences. Nothing that the row leaves
// open brings 32 of them below 80 GiB while nothing is recomputed.
BOOST_AUTO_TEST_CASE(what_nothing_makes_fit_is_impossible) {
  const auto verdict_of = [](int micro_batch, bool states_recompute) {
    json row = tests::shipped_row("card-016");
    row.update({{"micro_batch_size", micro_batch}, {"num_microbatches", 64 / micro_batch}});
    if (!states_recompute) row.erase("recompute");
    const json answer = estimated(json::array({row}))["rows"][0];
    BOOST_TEST_REQUIRE(answer["supported"] == true, answer.dump());
    return answer["verdict"].get<std::string>();
  };
  BOOST_TEST(verdict_of(1, true) == "fits");
  BOOST_TEST(verdict_of(2, true) == "tight");
  BOOST_TEST(verdict_of(64, true) == "oom");
  BOOST_TEST(verdict_of(32, true) == "oom");
  BOOST_TEST(verdict_of(32, false) == "tight");
}

BOOST_AUTO_TEST_CASE(only_what_is_not_stated_gets_leaner) {
  json row = tests::shipped_row("card-016");
  row["activation_offload"] = "none";
  row["optimizer"]["offload_fraction"] = 0;
  row["other_knobs"]["cross_entropy_fusion_impl"] = "native";
  row["assumed"] = json::array();
  const PublishedRow closed = read(row);
  BOOST_TEST_REQUIRE(closed.leaner.size() == 1U);
  BOOST_TEST((closed.leaner[0].knobs == closed.run.knobs));
  BOOST_TEST(closed.leaner[0].load == closed.run.load);
  row.erase("fsdp");
  row["optimizer"].erase("offload_fraction");
  // What is stated excludes FSDP: overlap with graphs of parts of a layer.
  BOOST_TEST(read(row).leaner.size() == 1U);
  row["cuda_graphs"] = json::array();
  const PublishedRow open = read(row);
  BOOST_TEST_REQUIRE(open.leaner.size() == 2U);
  for (const tuner::planner::PlanRun& run : open.leaner) {
    BOOST_TEST((run.knobs.recompute == open.run.knobs.recompute));
    BOOST_TEST(run.knobs.offload.empty());
    BOOST_TEST((run.knobs.main_grads == spec::StateType::fp32));
    BOOST_TEST(run.knobs.optimizer_offload_ratio == 1.0F);
  }
  BOOST_TEST((open.leaner[0].knobs.fsdp == spec::Fsdp::none));
  BOOST_TEST((open.leaner[1].knobs.fsdp == spec::Fsdp::megatron));
  // What the row's maker has filled in is no statement of its source.
  const json filled_in = {{"field", "optimizer"}};
  row["assumed"] = json::array({filled_in});
  BOOST_TEST((read(row).leaner[0].knobs.main_grads == spec::StateType::bf16));
  // As it is and two ways to recompute all, with and without offload, with and without FSDP.
  row.erase("recompute");
  row.erase("activation_offload");
  BOOST_TEST(read(row).leaner.size() == 12U);
}

// FP8 halves what products keep, and its weights may be kept in 8 bits alone.
BOOST_AUTO_TEST_CASE(a_precision_that_is_not_stated_may_be_fp8) {
  const auto num_narrow = [](const json& row) {
    return std::ranges::count_if(read(row).leaner, [](const tuner::planner::PlanRun& run) {
      return run.knobs.precision == spec::PrecisionRecipe::fp8_current;
    });
  };
  json row = tests::shipped_row("card-016");
  row["precision"] = "bf16";
  BOOST_TEST(num_narrow(row) == 0);
  row.erase("precision");
  BOOST_TEST(num_narrow(row) > 0);
  BOOST_TEST((read(row).run.knobs.precision == spec::PrecisionRecipe::bf16));
  row["hardware"] = "A100-80G";
  BOOST_TEST(num_narrow(row) == 0);
}

// Choices that exclude each other nobody ran: modules that the model lacks, weights in 8 bits alone
// beside an optimizer on the host.
BOOST_AUTO_TEST_CASE(the_leanest_is_legal) {
  for (const PublishedRow& row :
       load_rows(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json")) {
    BOOST_TEST(!row.leaner.empty(), row.id);
    for (const tuner::planner::PlanRun& run : row.leaner) {
      BOOST_TEST(!tuner::planner::breaks_more(run, row.run), row.id);
      BOOST_TEST((run.knobs.recompute == row.run.knobs.recompute ||
                  !run.knobs.recompute.has(spec::PlanRecompute::mla_up_proj) ||
                  tuner::planner::has_mixer(*row.model, spec::Mixer::mla)),
                 row.id);
    }
  }
  const PublishedRow narrow = read(tests::shipped_row("bridge-077"));
  BOOST_TEST_REQUIRE(narrow.run.knobs.fp8_param_gather);
  int num_narrow = 0;
  int num_on_host = 0;
  for (const tuner::planner::PlanRun& run : narrow.leaner) {
    num_narrow += run.knobs.fp8_param_gather ? 1 : 0;
    num_on_host += run.knobs.optimizer_offload_ratio > 0 ? 1 : 0;
  }
  BOOST_TEST(num_narrow > 0);
  BOOST_TEST(num_on_host > 0);
}

// Its moments have 32 bits, and are on the device.
BOOST_AUTO_TEST_CASE(the_plain_optimizer_is_not_leaner) {
  json row = tests::shipped_row("card-016");
  row["assumed"] = json::array();
  row["optimizer"] = {{"type", "adam"}, {"distributed", true}, {"precision_aware", false}};
  for (const tuner::planner::PlanRun& run : read(row).leaner) {
    BOOST_TEST((run.knobs.exp_avg == spec::StateType::fp32));
    BOOST_TEST((run.knobs.main_grads == spec::StateType::fp32));
    BOOST_TEST(run.knobs.optimizer_offload_ratio == 0.0F);
  }
}

// Published runs have it beside full recomputation, which releases exclude.
BOOST_AUTO_TEST_CASE(a_stated_overlap_leaves_recomputation_open) {
  json row = tests::shipped_row("card-016");
  row.erase("recompute");
  const auto has_full = [](const PublishedRow& result, bool has_overlap) {
    return std::ranges::any_of(result.leaner, [&](const tuner::planner::PlanRun& run) {
      return run.knobs.recompute.has(spec::PlanRecompute::full) &&
             run.knobs.overlap_moe_expert_parallel_comm == has_overlap;
    });
  };
  BOOST_TEST(has_full(read(row), true));
  json recipe = tests::shipped_row("bridge-019");
  recipe.erase("recompute");
  recipe["software"]["date"] = "2026-08";
  recipe["other_knobs"] = json::object();
  const PublishedRow open = read(recipe);
  BOOST_TEST_REQUIRE(open.run.knobs.overlap_moe_expert_parallel_comm);
  BOOST_TEST(has_full(open, false));
  BOOST_TEST(!has_full(open, true));
}

// What is above the device's memory and not impossible says what that hangs on.
BOOST_AUTO_TEST_CASE(what_has_to_be_is_named) {
  const auto needed = [](const json& row, const char* verdict) {
    const json answer = estimated(json::array({row}))["rows"][0];
    BOOST_TEST(answer["verdict"] == verdict, answer["reason"].dump());
    return answer["needed_choices"];
  };
  json dense = tests::shipped_row("bridge-077");
  const json full = json::array({"recompute full"});
  BOOST_TEST(needed(dense, "tight") == full);
  dense["recompute"] = {{"granularity", "full"}};
  BOOST_TEST(needed(dense, "fits") == json::array());
  dense["recompute"] = {{"granularity", "none"}};
  dense["activation_offload"] = false;
  BOOST_TEST(needed(dense, "oom") == json::array());
  // With 32 times the tokens that does not suffice.
  json longer = tests::shipped_row("card-016");
  for (const char* key : {"micro_batch_size", "global_batch_size"}) {
    longer[key] = 32 * longer[key].get<int>();
  }
  longer.erase("num_microbatches");
  longer.erase("recompute");
  const json more = needed(longer, "tight");
  BOOST_TEST(more.size() > 1U, more.dump());
  BOOST_TEST(more.dump().find("cross_entropy chunked") != std::string::npos, more.dump());
  longer["recompute"] = {{"granularity", "none"}};
  BOOST_TEST(needed(longer, "oom") == json::array());
}

BOOST_AUTO_TEST_CASE(a_date_beyond_the_fitted_ones_is_told) {
  const auto with_date = [](const char* date) {
    json row = small_row();
    row["software"]["date"] = date;
    return row;
  };
  const json rows = estimated({with_date("2100-01"), with_date("2026-08"), with_date("2015"),
                               with_date("2022-05")})["rows"];
  BOOST_TEST(rows[0]["step_time_ns"] == rows[1]["step_time_ns"]);
  BOOST_TEST(rows[2]["step_time_ns"] == rows[3]["step_time_ns"]);
  const auto tells = [&](size_t row, const char* part) {
    return rows[row]["assumed"].dump().find(part) != std::string::npos;
  };
  BOOST_TEST(tells(0, "software.date 2100-01 as 2026-08: no run behind the rates is later"));
  BOOST_TEST(tells(2, "software.date 2015 as 2022-05: no run behind the rates is earlier"));
  BOOST_TEST(!tells(1, "software.date"));
  BOOST_TEST(!tells(3, "software.date"));
}

// What is no date counts as far as it is one.
BOOST_AUTO_TEST_CASE(what_is_no_date_is_told) {
  struct Date {
    const char* text;
    const char* taken;  ///< null: it is a date
  };
  for (const Date& row : {Date{"2026-13-45", "2026-06"},
                          {"2026-02-30", "2026-02"},
                          {"2026-08-00", "2026-08"},
                          {"2026-8", "2026-06"},
                          {"soon", "2026-06"},
                          {"2026-08-31", nullptr},
                          {"2026-08", nullptr},
                          {"2026", nullptr}}) {
    json document = small_row();
    document["software"]["date"] = row.text;
    const std::string assumed = assumed_text(read(document));
    BOOST_TEST_CONTEXT(row.text << ": " << assumed) {
      BOOST_TEST((assumed.find("it is no date") != std::string::npos) == (row.taken != nullptr));
      if (row.taken == nullptr) continue;
      const std::string told =
          std::string("software.date ") + row.text + " as " + row.taken + ": it is no date";
      BOOST_TEST(assumed.find(told) != std::string::npos);
    }
  }
}

// 1024 sequences of 4096 tokens on 16 devices in 8 s are 32768 tokens/s each.
BOOST_AUTO_TEST_CASE(throughput_follows_from_other_figures) {
  json row = small_row();
  for (const char* key : {"tokens_per_s_per_gpu", "derived", "tflops_per_gpu"}) row.erase(key);
  BOOST_TEST(!read(row).tokens_per_s.has_value());
  BOOST_TEST(estimated(json::array({row}))["summary"]["throughput_log_error"]["count"] == 0);
  row["step_time_s"] = 8;
  BOOST_TEST(read(row).tokens_per_s.value_or(0) == 32768.0);
  BOOST_TEST(estimated(json::array({row}))["summary"]["throughput_log_error"]["count"] == 1);
  // A batch that is only assumed says nothing of a step.
  json without = row;
  without.erase("global_batch_size");
  without.erase("num_microbatches");
  BOOST_TEST(!read(without).tokens_per_s.has_value());
  row.erase("step_time_s");
  row["tflops_per_gpu"] = 200;
  const PublishedRow by_flops = read(row);
  const double flops = by_flops.model->training_flops_per_token(4096);
  BOOST_TEST(by_flops.tokens_per_s.value_or(0) * flops == 200e12,
             boost::test_tools::tolerance(1e-9));
  // In a way of counting that nobody knows they say nothing.
  row["flops_accounting"] = "by the moon";
  BOOST_TEST(!read(row).tokens_per_s.has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
