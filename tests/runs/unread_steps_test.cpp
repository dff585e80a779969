// Lines about steps that another rank has written into, and lines that never came: what is not
// counted is told.
#include "sweeps/runs/unread_steps.h"

#include <boost/test/unit_test.hpp>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(unread_steps)

namespace {

using golden_logs::facts_of;
using golden_logs::megatron_step;
using golden_logs::megatron_steps;

/// A line about a step in two parts, with words of rank 1 between them.
std::string torn_step(int step) {
  std::string line = megatron_step(step);
  line.insert(line.find("elapsed") + 7, "[rank1]:/opt/x.py:1: UserWarning: barrier\n");
  return line;
}

std::string notes_of_run(const RunFacts& facts) {
  std::string notes;
  for (const std::string& note : facts.notes) notes += note + "\n";
  return notes;
}

std::string steps_of(const std::vector<int>& steps) {
  std::string text;
  for (const int step : steps) text += megatron_step(step);
  return text;
}

std::string logging_every(int64_t steps) {
  return "------------------------ arguments ------------------------\n"
         "  log_interval .................................... " +
         std::to_string(steps) + "\n-------------------- end of arguments ---------------------\n";
}

const std::string kEnd = "[after training is done] datetime: 2026-03-04 05:07:00\n";

}  // namespace

BOOST_AUTO_TEST_CASE(torn_lines_are_counted) {
  std::string text;
  for (int step = 1; step <= 6; ++step)
    text += step % 2 == 0 ? torn_step(step) : megatron_step(step);
  const RunFacts facts = facts_of(text + kEnd);
  BOOST_TEST(facts.steps.size() == 3U);
  BOOST_TEST((facts.status == ForeignStatus::ok));
  BOOST_TEST(notes_of_run(facts) ==
             "3 lines about steps begin and cannot be read to the end, as if another rank's words "
             "stood in them: those about 2, 4, 6; figures are of the other steps\n");
  // Another rank may have printed the same step whole.
  BOOST_TEST(notes_of_run(facts_of(torn_step(1) + megatron_steps(1, 4))) == "");
}

// Forks of Megatron-LM have times in seconds, or none.
BOOST_AUTO_TEST_CASE(whole_lines_of_other_forms_are_not_torn) {
  const auto line = [](int step, const std::string& time) {
    return " iteration " + std::to_string(step) + "/ 100 | consumed samples: 256 | " + time +
           "learning rate: 1e-4 | global batch size: 256 | lm loss: 3.0 |\n";
  };
  std::string seconds;
  std::string timeless = megatron_step(1);
  for (int step = 1; step <= 4; ++step) {
    seconds += line(step, "elapsed time per iteration (s): 12.50 | ");
    if (step > 1) timeless += line(step, "");
  }
  const RunFacts facts = facts_of(seconds);
  BOOST_TEST(facts.steps.size() == 4U);
  BOOST_TEST_REQUIRE(facts.step_time.has_value());
  BOOST_TEST(facts.step_time->median_s == 12.5);
  BOOST_TEST(notes_of_run(facts) == "");
  BOOST_TEST(notes_of_run(facts_of(timeless)).find("begin and cannot be read") ==
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_run_without_any_step_that_can_be_read_has_not_ended_well) {
  const RunFacts facts = facts_of(torn_step(1) + torn_step(2) + kEnd);
  BOOST_TEST(facts.steps.empty());
  BOOST_TEST((facts.status == ForeignStatus::unknown));
  BOOST_TEST(facts.reason == "the log has a mark of its end, but no line about a step can be read");
  BOOST_TEST(notes_of_run(facts).find("2 lines about steps begin") == 0U, notes_of_run(facts));
  // Without such lines nothing is in doubt.
  BOOST_TEST((facts_of("using world size: 8, data-parallel size: 8\n" + kEnd).status ==
              ForeignStatus::ok));
}

BOOST_AUTO_TEST_CASE(a_log_of_torn_lines_alone_does_not_stop_before_its_steps) {
  const RunFacts facts =
      facts_of("using world size: 8, data-parallel size: 8\n" + torn_step(1) + torn_step(2));
  BOOST_TEST((facts.status == ForeignStatus::unknown));
  BOOST_TEST(facts.reason ==
             "no line about a step can be read, and the log has no mark of its end");
}

BOOST_AUTO_TEST_CASE(cut_losses_are_told) {
  std::string text;
  for (int step = 1; step <= 3; ++step) {
    std::string line = megatron_step(step);
    if (step > 1) {
      line.insert(line.find("E+00") + 2, "[rank3]:[W304 05:05:06.1] Warning: a warning\n");
    }
    text += line;
  }
  const RunFacts facts = facts_of(text + kEnd);
  BOOST_TEST(facts.steps.size() == 3U);
  BOOST_TEST(facts.loss.value_or(0) == 5.5);
  BOOST_TEST(facts.num_nan_steps == 0);
  BOOST_TEST(notes_of_run(facts) ==
             "2 lines about steps without a loss that can be read, as if another rank's words "
             "stood there: those about 2, 3\n");
}

// Words of another rank in the middle of the key leave nothing that looks like a loss.
BOOST_AUTO_TEST_CASE(a_broken_name_of_a_loss_is_no_nan) {
  for (const std::string words : {"[rank1]: UserWarning: barrier() ", "[rank0]: foo | bar |"}) {
    std::string last = megatron_step(4);
    last.insert(last.find("lm loss") + 5, words);
    const RunFacts facts = facts_of(megatron_steps(1, 3) + last + kEnd);
    BOOST_TEST((facts.status == ForeignStatus::ok), facts.reason);
    BOOST_TEST(facts.num_nan_steps == 0);
    BOOST_TEST(facts.loss.value_or(0) == 5.5);
    BOOST_TEST(notes_of_run(facts).find("that about 4") != std::string::npos, notes_of_run(facts));
  }
}

/// Without "lm loss", with what stands in its place.
std::string step_with_losses(int step, const std::string& losses) {
  std::string line = megatron_step(step);
  const size_t at = line.find(" lm loss");
  return line.replace(at, line.find('|', at) + 1 - at, losses);
}

BOOST_AUTO_TEST_CASE(a_loss_of_another_name_is_no_nan) {
  std::string others;
  for (int step = 1; step <= 3; ++step) others += step_with_losses(step, " loss: 3.4E+00 |");
  const RunFacts facts = facts_of(others + kEnd);
  BOOST_TEST((facts.status == ForeignStatus::ok), facts.reason);
  BOOST_TEST(facts.num_nan_steps == 0);
  BOOST_TEST(facts.loss.value_or(0) == 3.4);
  BOOST_TEST(notes_of_run(facts) == "");
  std::string neox;
  for (int step = 1; step <= 3; ++step) neox += step_with_losses(step, " lm_loss: 3.4E+00 |");
  BOOST_TEST(facts_of(neox + kEnd).loss.value_or(0) == 3.4);
  BOOST_TEST(notes_of_run(facts_of(neox + kEnd)) == "");
  // Where the log had its own before, that has become none.
  const RunFacts lost = facts_of(megatron_steps(1, 3) + step_with_losses(4, " sop loss: 1.0 |"));
  BOOST_TEST(lost.first_nan_step.value_or(0) == 4);
  // None at all, and none but those of experts.
  for (const char* losses : {"", " load_balancing_loss: 1.0E+00 | mtp_1 loss: 9.0E+00 |"}) {
    BOOST_TEST(facts_of(step_with_losses(1, losses)).first_nan_step.value_or(0) == 1);
  }
}

BOOST_AUTO_TEST_CASE(times_that_no_step_takes_are_told) {
  for (const std::string time : {"0.0", "-5.0", "1e12"}) {
    std::string text = megatron_steps(1, 3);
    const std::string usual = "1000.0 |";
    for (size_t at = 0; (at = text.find(usual, at)) != std::string::npos;) {
      text.replace(at, usual.size(), time + " |");
    }
    const RunFacts facts = facts_of(text + kEnd);
    BOOST_TEST(!facts.step_time.has_value());
    BOOST_TEST(facts.num_steps == 3);
    BOOST_TEST(notes_of_run(facts) ==
               "3 lines about steps with a time that no step takes (0, less, or more than eleven "
               "days): those about 1, 2, 3\n");
  }
}

BOOST_AUTO_TEST_CASE(the_cut_end_of_a_log_is_no_torn_line) {
  const std::string last = megatron_step(4);
  BOOST_TEST(notes_of_run(facts_of(megatron_steps(1, 3) + last.substr(0, last.find("time per")))) ==
             "");
}

BOOST_AUTO_TEST_CASE(gaps_between_steps_are_told) {
  BOOST_TEST(notes_of_run(facts_of(steps_of({1, 3, 5}))) ==
             "2 of 5 lines about steps are missing between step 1 and 5, where one comes every "
             "step: those about 2, 4; figures are of the other steps\n");
  BOOST_TEST(notes_of_run(facts_of(steps_of({1, 10, 20, 50}))) ==
             "2 of 5 lines about steps are missing between step 1 and 50, where one comes every 10 "
             "steps: those about 30, 40; figures are of the other steps\n");
  for (const std::vector<int>& steps :
       {std::vector{1, 2, 3}, {1, 2, 4, 6}, {1, 10, 20, 30}, {8, 10, 15}, {1, 47}}) {
    BOOST_TEST(notes_of_run(facts_of(steps_of(steps))) == "");
  }
  // As the log says how often it was to have one.
  const RunFacts said = facts_of(logging_every(1) + steps_of({2, 4, 6}));
  BOOST_TEST(notes_of_run(said).find("2 of 5 lines about steps are missing between step 2 and 6") !=
                 std::string::npos,
             notes_of_run(said));
  // An interval that no run has is as none.
  for (const int64_t absurd : {int64_t{2'000'000'000}, INT64_MAX}) {
    const std::string notes = notes_of_run(facts_of(logging_every(absurd) + steps_of({1, 3, 5})));
    BOOST_TEST(notes.find("2 of 5 lines about steps are missing") == 0U, notes);
  }
  const RunFacts rare = facts_of(logging_every(2) + steps_of({2, 4, 6}));
  BOOST_TEST(notes_of_run(rare).find("missing") == std::string::npos, notes_of_run(rare));
}

BOOST_AUTO_TEST_CASE(torn_lines_of_torchtitan_are_counted) {
  const auto line = [](int step, const std::string& rest) {
    return "[rank0]:[titan] 2026-03-04 05:06:0" + std::to_string(step) +
           ",089 - root - INFO - step:  " + std::to_string(step) + "  loss:  9.50000  " + rest +
           "\n";
  };
  const std::string whole = "grad_norm:  1.2500  memory: 61.25GiB(77.43%)  tps: 5,000  tflops: 210";
  const RunFacts facts = facts_of(line(1, whole) + line(2, "grad_[rank1]: W a warning") +
                                  line(3, whole) + line(4, whole));
  BOOST_TEST(facts.steps.size() == 3U);
  BOOST_TEST(notes_of_run(facts) ==
             "1 line about a step begins and cannot be read to the end, as if another rank's words "
             "stood in it: that about 2; figures are of the other steps\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
