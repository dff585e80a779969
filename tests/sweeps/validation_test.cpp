// What is said of a sweep whose winner did, did not, or could not pass its validation: text, JSON,
// report and exit code agree.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;
using tests::contains;
using tests::ScopedEnvironment;

/// As long as fake_rank's long runs.
constexpr int64_t kValidateSteps = 12;

struct SweepCli : tests::Cli {
  void write(const std::function<void(json&)>& change = [](json&) {}) {
    write_sweep([&](json& document) {
      document["validate_steps"] = kValidateSteps;
      change(document);
    });
  }
  Answer sweep(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"sweep", folder.file("sweep.json"), "--db", db, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

struct Failure {
  const char* long_run;
  const char* said;
};
std::ostream& operator<<(std::ostream& out, const Failure& f) { return out << f.long_run; }
const std::vector<Failure> kFailures = {
    {"oom", "The validation ended as oom: out of memory on rank 0: 'qkv'"},
    {"nan", "The validation ended as wrong: loss is NaN in step 2"},
    {"crash", "The validation ended as crashed: killed by signal 11"},
    {"", "The loss did not fall below the 0.01 that validate_max_loss asks for"},
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(validation_said, SweepCli)

BOOST_DATA_TEST_CASE(a_failed_validation_is_no_success, boost::unit_test::data::make(kFailures),
                     failure) {
  const ScopedEnvironment long_run("FAKE_RANK_LONG_RUN", failure.long_run);
  const bool is_loss = *failure.long_run == '\0';
  write([&](json& document) {
    if (is_loss) document["validate_max_loss"] = 0.01;
  });
  const Answer text = sweep();
  BOOST_TEST_CONTEXT(text.out << text.err) {
    BOOST_TEST(text.code == 16);
    BOOST_TEST(contains(text.out, "NOT VALIDATED: "));
    BOOST_TEST(contains(text.out, failure.said));
    BOOST_TEST(contains(text.out, "\nbest in short trials: trial "));
    BOOST_TEST(!contains(text.out, "\nbest: "));
    BOOST_TEST(!contains(text.out, "\nspeedup: "));
    BOOST_TEST(text.err.starts_with("moetune: the best configuration did not pass its validation"));
    BOOST_TEST(contains(text.err, failure.said));
  }
  // The same of what is stored.
  const Answer as_json = sweep({"--format", "json"});
  BOOST_TEST(as_json.code == 16);
  const json document = json::parse(as_json.out);
  BOOST_TEST(document["num_run"] == 0);
  BOOST_TEST(document["validated"] == false);
  BOOST_TEST(contains(document["validation"].get<std::string>(), failure.said));
  const std::string page = folder.file("page.html");
  BOOST_TEST(run({"report", db, "--out", page}).code == 0);
  const std::string html = tests::read_text(page);
  BOOST_TEST(contains(html, "This configuration did not pass its validation."));
  BOOST_TEST(contains(html, "<strong>is not validated</strong>"));
  BOOST_TEST(contains(html, "<dl class=\"cards unvalidated\">"));
  BOOST_TEST(!contains(html, "limits the winner"));
  BOOST_TEST(contains(run({"ls", db}).out, "  not validated  "));
  BOOST_TEST(document["best"]["validated"] == false);
}

BOOST_AUTO_TEST_CASE(text_and_json_mean_the_same_gain) {
  write();
  const Answer text = sweep();
  BOOST_TEST_CONTEXT(text.out << text.err) {
    BOOST_TEST(text.code == 0);
    BOOST_TEST(contains(text.out, "\nbest: trial "));
    BOOST_TEST(!contains(text.out, "alidated"));
  }
  const json document = json::parse(sweep({"--format", "json"}).out);
  BOOST_TEST(document["validated"] == true);
  const double speedup = document["speedup"];
  BOOST_TEST(speedup == document["gain_ratio"].get<double>() + 1);
  BOOST_TEST(document["speedup_low"].get<double>() <= speedup);
  BOOST_TEST(document["speedup_high"].get<double>() >= speedup);
  BOOST_TEST(contains(text.out, fmt::format("\nspeedup: {:.2f}x", speedup)));
  const std::string page = folder.file("page.html");
  BOOST_TEST(run({"report", db, "--out", page}).code == 0);
  BOOST_TEST(!contains(tests::read_text(page), "cards unvalidated"));
}

BOOST_AUTO_TEST_CASE(a_validation_that_was_not_made_is_neither) {
  const ScopedEnvironment long_run("FAKE_RANK_LONG_RUN", "hang");
  write();
  // With a unit, as files have it.
  const Answer text = sweep({"--max-seconds", "4000ms"});
  BOOST_TEST_CONTEXT(text.out << text.err) {
    BOOST_TEST(text.code == 0);
    BOOST_TEST(contains(text.out,
                        "\nnot validated: the budget of 4 seconds is used up in the "
                        "middle of 'validation over 12 steps'"));
    BOOST_TEST(contains(text.out, "\nbest in short trials: trial "));
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(environment_said, SweepCli)

BOOST_AUTO_TEST_CASE(what_is_missing_ends_the_sweep_with_one_sentence) {
  write();
  const std::string log = folder.file("launches");
  const ScopedEnvironment launch_log("FAKE_RANK_LOG", log);
  {
    const ScopedEnvironment missing("FAKE_RANK_EXIT", "20");
    const Answer answer = sweep();
    BOOST_TEST(answer.code == 15);
    BOOST_TEST(answer.err == "moetune: moetune-rank cannot run here: what it needs is not there\n");
    BOOST_TEST(answer.out == "");
    BOOST_TEST(tests::launches_in(log).size() == 1U);
    BOOST_TEST(run({"trial", spec, "--quiet"}).code == 15);
  }
  const json document = json::parse(sweep({"--format", "json"}).out);
  BOOST_TEST(document["num_reused"] == 0);
  BOOST_TEST(document["validated"] == true);
}

BOOST_AUTO_TEST_CASE(more_ranks_than_the_machine_holds_are_refused) {
  std::filesystem::resize_file(folder.file("corpus"), 2 << 20);
  write_spec([](json& document) {
    document["hardware"]["memory_bytes"] = 0;
    document["model"]["vocab_size"] = 1 << 22;
    document["model"]["max_position_embeddings"] = 1 << 20;
    document["training"]["seq_length"] = 1 << 20;
  });
  check_refused({"trial", spec, "--quiet"}, 15, {"of memory left", "ranks of this trial"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
