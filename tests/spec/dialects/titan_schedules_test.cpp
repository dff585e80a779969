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
                         {"flexibleinterleaved1f1b", "FlexibleInterleaved1F1B", 2, false, true},
                         {"PipelineScheduleMulti", "PipelineScheduleMulti", 2, false, false},
                         {"PipelineScheduleSingle", "PipelineScheduleSingle", 1, false, false},
                         {"", "", 1, false, true}}) {
    BOOST_TEST_CONTEXT(row.name) {
      const RunConfig run = import_run(text_of(row.name, 4), Dialect::torchtitan);
      BOOST_TEST(run.pipeline_schedule == row.kept);
      BOOST_TEST(run.knobs.vpp == row.vpp);
      BOOST_TEST(holds_all_micro_batches(run, run.knobs) == row.holds_all);
      BOOST_TEST(has_rounds(run, run.knobs) == row.has_rounds);
    }
  }
}

// Whatever the schedule is called, a file may say it.
BOOST_AUTO_TEST_CASE(a_listed_schedule_is_told) {
  const std::string list = "pipeline_parallel_schedule_csv = \"actions.csv\"\n";
  const RunConfig run = import_run(text_of("Bogus", 4) + list, Dialect::torchtitan);
  BOOST_TEST(run.knobs.vpp == 2);
  BOOST_TEST(std::ranges::any_of(
      run.notes, [](const std::string& note) { return contains(note, "is a file's"); }));
  const std::string none = "pipeline_parallel_schedule_csv = \"\"\n";
  BOOST_TEST(!samples::refusal(text_of("Bogus", 4) + none, Dialect::torchtitan).empty());
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
  // Nobody asks for one without a pipeline.
  BOOST_TEST(samples::refusal(text_of("Bogus", 1), Dialect::torchtitan).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::spec::dialects
