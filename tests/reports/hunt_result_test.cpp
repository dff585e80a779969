// What a hunt left in the database, read back: complete, in part, and as nobody should write it.
#include "reports/hunt_result.h"

#include <boost/test/unit_test.hpp>
#include <string>

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(hunt_result)

namespace {

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (size_t i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

BOOST_AUTO_TEST_CASE(every_field_is_read) {
  const HuntResult result = read_hunt_result(R"({
    "verdict": "culprit", "reason": "why", "metric": "step_ns", "unit": "ns", "hunted_metric": "op_x_ns", "note": "n",
    "effect": {"ratio": 0.04, "low": 0.03, "high": 0.05}, "noise_ratio": 0.01,
    "detectable_ratio": 0.012, "confidence": 0.95, "min_effect_ratio": 0.02, "has_drift": true,
    "no_change": 0.001, "posterior": [0, 0.25, 0.75],
    "culprits": [{"position": 2, "commit": "c0ffee", "subject": "s", "author": "a",
                  "author_date": "2026-01-02T03:04:05Z", "effect": {"ratio": -0.5},
                  "before": 10, "after": 5, "confidence": 0.97,
                  "moved": [{"name": "op_x_ns", "before": 1, "after": 2.5}]}],
    "suspects": [1, 2], "runs": 30, "builds": 4, "seconds": 12.5, "reproduce": "git bisect"})");
  BOOST_TEST(result.is_readable);
  BOOST_TEST(result.verdict == "culprit");
  BOOST_TEST(result.reason == "why");
  BOOST_TEST(result.metric == "step_ns");
  BOOST_TEST(result.unit == "ns");
  BOOST_TEST(result.hunted_metric == "op_x_ns");
  BOOST_TEST(result.note == "n");
  BOOST_TEST(result.effect.ratio.value() == 0.04);
  BOOST_TEST(result.effect.low.value() == 0.03);
  BOOST_TEST(result.effect.high.value() == 0.05);
  BOOST_TEST(result.noise_ratio.value() == 0.01);
  BOOST_TEST(result.detectable_ratio.value() == 0.012);
  BOOST_TEST(result.confidence.value() == 0.95);
  BOOST_TEST(result.min_effect_ratio.value() == 0.02);
  BOOST_TEST(result.has_drift);
  BOOST_TEST(result.no_change.value() == 0.001);
  const std::vector<double> posterior = {0, 0.25, 0.75};
  BOOST_TEST(result.posterior == posterior, boost::test_tools::per_element());
  BOOST_REQUIRE(result.culprits.size() == 1u);
  const Culprit& culprit = result.culprits[0];
  BOOST_TEST(culprit.position == 2);
  BOOST_TEST(culprit.commit == "c0ffee");
  BOOST_TEST(culprit.subject == "s");
  BOOST_TEST(culprit.author == "a");
  BOOST_TEST(culprit.author_date == "2026-01-02T03:04:05Z");
  BOOST_TEST(culprit.effect.ratio.value() == -0.5);
  BOOST_TEST(!culprit.effect.low);
  BOOST_TEST(culprit.before.value() == 10);
  BOOST_TEST(culprit.after.value() == 5);
  BOOST_TEST(culprit.confidence.value() == 0.97);
  BOOST_REQUIRE(culprit.moved.size() == 1u);
  BOOST_TEST(culprit.moved[0].name == "op_x_ns");
  BOOST_TEST(culprit.moved[0].after.value() == 2.5);
  BOOST_TEST(result.suspects.size() == 2u);
  BOOST_TEST(result.runs.value() == 30);
  BOOST_TEST(result.builds.value() == 4);
  BOOST_TEST(result.seconds.value() == 12.5);
  BOOST_TEST(result.reproduce == "git bisect");
}

BOOST_AUTO_TEST_CASE(every_field_may_be_missing_or_something_else) {
  BOOST_TEST(read_hunt_result("{}").is_readable);
  for (const std::string value : {"null", "true", "-7", "1.5", "\"text\"", "[]", "[[1]]", "{}",
                                  "[null, \"x\", {}, -1, 1e300]", "{\"ratio\": \"x\"}", "[{}]",
                                  "[{\"moved\": {\"a\": 1}, \"effect\": 3, \"position\": \"x\"}]",
                                  "[{\"position\": -5, \"moved\": [7, {}], \"confidence\": 9}]"}) {
    std::string text = "{";
    for (const char* key : {"verdict",
                            "reason",
                            "metric",
                            "hunted_metric",
                            "note",
                            "unit",
                            "effect",
                            "noise_ratio",
                            "detectable_ratio",
                            "confidence",
                            "min_effect_ratio",
                            "has_drift",
                            "no_change",
                            "posterior",
                            "culprits",
                            "suspects",
                            "runs",
                            "builds",
                            "seconds",
                            "reproduce"}) {
      text += std::string(text.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
    }
    const HuntResult result = read_hunt_result(text + "}");
    BOOST_TEST(result.is_readable, value);
    BOOST_TEST((result.verdict.empty() || value == "\"text\""), value);
    BOOST_TEST(!result.confidence, value);
    BOOST_TEST(!result.no_change, value);
    BOOST_TEST((!result.runs || value == "1.5"), value);
    for (const double p : result.posterior) {
      BOOST_TEST((p >= 0 && p <= 1), value);
    }
    for (const Culprit& culprit : result.culprits) {
      BOOST_TEST(culprit.position == -1, value);
      BOOST_TEST(!culprit.confidence, value);
    }
    for (const int64_t suspect : result.suspects) {
      BOOST_TEST(suspect >= 0, value);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_object_cannot_be_read) {
  for (const std::string text :
       {"", "not json", "[1, 2", "[]", "3", "null", "{\"runs\": 1", "{\"runs\": 1e999}", "\xff"}) {
    const HuntResult result = read_hunt_result(text);
    BOOST_TEST(!result.is_readable, text);
    BOOST_TEST(!result.runs, text);
  }
}

BOOST_AUTO_TEST_CASE(deep_and_large_documents_end) {
  BOOST_TEST(!read_hunt_result(repeated("[", 1'000'000)).is_readable);
  BOOST_TEST(!read_hunt_result(repeated("{\"a\":", 1'000'000)).is_readable);
  BOOST_TEST(!read_hunt_result(repeated("[", 500'000) + repeated("]", 500'000)).is_readable);
  // Deep where nobody looks.
  BOOST_TEST(
      !read_hunt_result("{\"x\": " + repeated("[", 100) + repeated("]", 100) + "}").is_readable);
  // More values than any hunt has.
  BOOST_TEST(!read_hunt_result("{\"x\": [0" + repeated(",0", 8'000'000) + "]}").is_readable);
  BOOST_TEST(!read_hunt_result("{\"x\": \"" + std::string(40 << 20, 'x') + "\"}").is_readable);
}

BOOST_AUTO_TEST_CASE(long_lists_and_texts_are_cut) {
  const std::string many = repeated(",0.000001", 1'000'000);
  const HuntResult result = read_hunt_result("{\"posterior\": [0.5" + many + "], \"suspects\": [0" +
                                             repeated(",1", 100'000) + "], \"culprits\": [{}" +
                                             repeated(",{}", 10'000) + "]}");
  BOOST_TEST(result.is_readable);
  BOOST_TEST(result.posterior.size() == 1'000'001u);
  BOOST_TEST(result.posterior[0] == 0.5);
  BOOST_TEST(result.suspects.size() <= 1000u);
  BOOST_TEST(result.culprits.size() <= 20u);
  const HuntResult wordy = read_hunt_result(
      "{\"unit\": \"" + std::string(100'000, 'u') + "\", \"culprits\": [{\"subject\": \"" +
      std::string(100'000, 's') + "\", \"moved\": [{}" + repeated(",{}", 1000) + "]}]}");
  BOOST_TEST(wordy.unit.size() < 400u);
  BOOST_TEST(wordy.culprits.at(0).subject.size() < 400u);
  BOOST_TEST(wordy.culprits.at(0).moved.size() <= 50u);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports
