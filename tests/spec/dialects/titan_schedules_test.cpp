// The schedules of pipelines that torchtitan takes from torch, by their names.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
namespace {

using samples::contains;

BOOST_AUTO_TEST_SUITE(schedules_of_torch)

std::string text_of(std::string_view schedule, int pp) {
  return fmt::format(
      "[parallelism]\npipeline_parallel_degree = {}\npipeline_parallel_schedule = \"{}\"\n", pp,
      schedule);
}

// torch takes small letters for capitals.
BOOST_AUTO_TEST_CASE(names_in_any_letters) {
  struct Row {
    const char* name;
    const char* kept;
    int vpp;
    bool holds_all;
    bool has_rounds;
  };
  for (const Row& row : {Row{"gpipe", "GPipe", 1, true, false},
                         {"GPIPE", "GPipe", 1, true, false},
                         {"1f1b", "", 1, false, true},
                         {"interleaved1f1b", "", 2, false, true},
                         {"loopedbfs", "LoopedBFS", 2, true, false},
                         {"interleavedzerobubble", "InterleavedZeroBubble", 2, false, true},
                         {"zbvzerobubble", "ZBVZeroBubble", 2, false, false},
                         {"dualpipev", "DualPipeV", 2, false, false},
                         {"flexibleinterleaved1f1b", "FlexibleInterleaved1F1B", 2, false, true}}) {
    BOOST_TEST_CONTEXT(row.name) {
      const RunConfig run = import_run(text_of(row.name, 4), Dialect::torchtitan);
      BOOST_TEST(run.pipeline_schedule == row.kept);
      BOOST_TEST(run.knobs.vpp == row.vpp);
      BOOST_TEST(holds_all_micro_batches(run, run.knobs) == row.holds_all);
      BOOST_TEST(has_rounds(run, run.knobs) == row.has_rounds);
      BOOST_TEST(has_usual_schedule(run, run.knobs) == std::string_view(row.kept).empty());
    }
  }
}

// What is in a file may be in any order. The name says how many stages a rank has.
BOOST_AUTO_TEST_CASE(a_listed_schedule_is_told) {
  const std::string list = "pipeline_parallel_schedule_csv = \"actions.csv\"\n";
  for (const auto& [name, vpp] : {std::pair{"PipelineScheduleMulti", 2},
                                  {"pipelineschedulesingle", 1},
                                  {"1F1B", 1},
                                  {"Interleaved1F1B", 2},
                                  {"LoopedBFS", 2},
                                  {"DualPipeV", 2}}) {
    BOOST_TEST_CONTEXT(name) {
      const RunConfig run = import_run(text_of(name, 4) + list, Dialect::torchtitan);
      BOOST_TEST(run.knobs.vpp == vpp);
      BOOST_TEST(std::ranges::any_of(
          run.notes, [](const std::string& note) { return contains(note, "is a file's"); }));
      BOOST_TEST(!has_usual_schedule(run, run.knobs));
      BOOST_TEST(!has_rounds(run, run.knobs));
      BOOST_TEST(!fills_stages(run, run.knobs));
      BOOST_TEST(!holds_all_micro_batches(run, run.knobs));
    }
  }
  // torch looks up the name also beside a file.
  BOOST_TEST(contains(samples::refusal(text_of("Bogus", 4) + list, Dialect::torchtitan),
                      "is no schedule of torch"));
  const std::string none = "pipeline_parallel_schedule_csv = \"\"\n";
  for (const char* name : {"PipelineScheduleMulti", "PipelineScheduleSingle"}) {
    BOOST_TEST(contains(samples::refusal(text_of(name, 4) + none, Dialect::torchtitan),
                        "runs the order of a file"));
  }
}

// What splits the backward pass does not go through compiled modules.
BOOST_AUTO_TEST_CASE(zero_bubbles_are_of_eager_models) {
  const auto has_note = [](std::string_view schedule, std::string_view components) {
    const RunConfig run =
        import_run(text_of(schedule, 4) +
                       fmt::format("[compile]\nenable = true\ncomponents = [\"{}\"]\n", components),
                   Dialect::torchtitan);
    return std::ranges::any_of(
        run.notes, [](const std::string& note) { return contains(note, "of compiled models"); });
  };
  for (const char* schedule : {"InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"}) {
    BOOST_TEST(has_note(schedule, "model"), schedule);
    BOOST_TEST(!has_note(schedule, "loss"), schedule);
  }
  BOOST_TEST(!has_note("LoopedBFS", "model"));
}

// What overlaps both directions runs nothing again.
BOOST_AUTO_TEST_CASE(dual_pipes_of_experts_checkpoint_nothing) {
  const auto has_note = [](std::string_view schedule, int ep, std::string_view more) {
    const RunConfig run =
        import_run(text_of(schedule, 4) + fmt::format("expert_parallel_degree = {}\n{}", ep, more),
                   Dialect::torchtitan);
    return std::ranges::any_of(run.notes, [](const std::string& note) {
      return contains(note, "0.2.2 refuses DualPipeV");
    });
  };
  BOOST_TEST(has_note("dualpipev", 2, ""));  // selective unasked
  BOOST_TEST(has_note("DualPipeV", 2, "[activation_checkpoint]\nmode = \"full\"\n"));
  BOOST_TEST(!has_note("DualPipeV", 2, "[activation_checkpoint]\nmode = \"none\"\n"));
  BOOST_TEST(!has_note("DualPipeV", 1, ""));
  BOOST_TEST(!has_note("DualPipeV", 2, "pipeline_parallel_expert_parallel_overlap = false\n"));
  BOOST_TEST(!has_note("ZBVZeroBubble", 2, ""));
}

// A pass of the pipeline is a local batch, or a micro-batch of each count on main.
BOOST_AUTO_TEST_CASE(the_pipeline_drains_behind_each_local_batch) {
  const auto pass_of = [](const std::string& text) {
    return import_run(text, Dialect::torchtitan).pass_sequences;
  };
  const std::string batch = "[training]\nlocal_batch_size = 6\n";
  BOOST_TEST(pass_of(text_of("1F1B", 4) + batch) == 6);
  BOOST_TEST(pass_of(text_of("1F1B", 1) + batch) == 0);
}

// Those in the shape of a V have two stages a rank.
BOOST_AUTO_TEST_CASE(schedules_of_two_stages_take_no_more) {
  const ImportOptions options = {.num_layers = 32};
  const auto text_with = [](std::string_view schedule, int layers) {
    return text_of(schedule, 4) + fmt::format(
                                      "pipeline_parallel_layers_per_stage = {}\n"
                                      "pipeline_parallel_first_stage_less_layers = 0\n"
                                      "pipeline_parallel_last_stage_less_layers = 0\n",
                                      layers);
  };
  for (const char* schedule : {"ZBVZeroBubble", "DualPipeV"}) {
    RunConfig run = import_run(text_with(schedule, 4), Dialect::torchtitan, options);
    BOOST_TEST(run.knobs.vpp == 2);
    BOOST_TEST(!has_rounds(run, run.knobs));
    BOOST_TEST(fills_stages(run, run.knobs) == (std::string_view(schedule) == "DualPipeV"));
    run.knobs.vpp = 4;
    BOOST_TEST(has_rounds(run, run.knobs));
    BOOST_TEST(!fills_stages(run, run.knobs));
    BOOST_CHECK_THROW(import_run(text_with(schedule, 2), Dialect::torchtitan, options),
                      base::UsageError);
  }
  BOOST_TEST(import_run(text_with("LoopedBFS", 2), Dialect::torchtitan, options).knobs.vpp == 4);
}

BOOST_AUTO_TEST_CASE(unknown_names_are_refused) {
  const auto message_of = [](std::string_view schedule) {
    return samples::refusal(text_of(schedule, 4), Dialect::torchtitan);
  };
  BOOST_TEST(contains(message_of("Interleaved1F"), "did you mean 'Interleaved1F1B'?"));
  BOOST_TEST(contains(message_of("Bogus"), "'Bogus' is no schedule of torch; known are 1F1B, "));
  BOOST_TEST(contains(message_of(""), "'' is no schedule of torch"));
  // Nobody asks for one without a pipeline.
  BOOST_TEST(samples::refusal(text_of("Bogus", 1), Dialect::torchtitan).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::spec::dialects
