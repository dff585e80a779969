// Steps of a real GPU with a planted fault: its label, its cause, and what the step gained without
// it.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/import/trace_files.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(faults_on_a_card)

// A known excess of `truth.json` is how much more was gained than the ceiling says.
BOOST_AUTO_TEST_CASE(planted_faults_are_found_with_their_ceilings) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/faults/";
  std::ifstream file(folder + "truth.json");
  const nlohmann::json truth = nlohmann::json::parse(file);
  BOOST_TEST(truth.at("cases").size() == 4U);
  for (const nlohmann::json& one : truth.at("cases")) {
    const std::string name = one.at("trace");
    const std::vector<ImportedTrace> traces = read_trace_file(folder + name);
    const ImportedWall wall = classify_imported(traces);
    const double gained =
        1 - one.at("traced_healthy_step_ms").get<double>() / one.at("traced_step_ms").get<double>();
    BOOST_TEST_CONTEXT(name << ": " << wall.summary) {
      BOOST_TEST(std::string(name_of(wall.label)) == one.at("label").get<std::string>());
      BOOST_TEST(wall.sub_cause == one.at("sub_cause").get<std::string>());
      BOOST_TEST(gained <= wall.share_ratio + one.value("known_excess", 0.0));
      BOOST_TEST(wall.share_ratio < gained + 0.1);
    }
  }
}

// What helps against one kind of waiting for input does not help against another.
BOOST_AUTO_TEST_CASE(waiting_for_input_is_told_by_its_kinds) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/faults/";
  const auto parts = [&](const char* name) {
    return classify_imported(read_trace_file(folder + name)).loader;
  };
  const LoaderParts slow = parts("slow_loader.json.gz");
  BOOST_TEST(slow.loading_ratio > 0.99);
  BOOST_TEST(slow.stall_ratio < 0.01);
  const LoaderParts pageable = parts("pageable_copies.json.gz");
  BOOST_TEST(pageable.copies_ratio > 0.99);
  BOOST_TEST(pageable.stall_ratio < 0.01);
  const LoaderParts unknown = loader_parts_of({}, 0);
  BOOST_TEST(unknown.stall_ratio == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
