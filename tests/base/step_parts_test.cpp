// The vocabulary of where a step goes: names that are read back, words that tell the parts apart.
#include "kernels/base/step_parts.h"

#include <boost/test/unit_test.hpp>
#include <set>
#include <utility>
#include <vector>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(step_parts_table)

namespace {

/// Every part, those of groups with every group, compute with every kind of work.
std::vector<NamedPart> all_parts() {
  std::vector<NamedPart> parts;
  for (const StepPartRow& row : step_parts()) {
    if (!row.is_by_group) parts.push_back({&row, {}});
    for (const GroupRow& group : group_rows()) {
      if (row.is_by_group) parts.push_back({&row, group.name});
    }
    for (const WorkRow& work : work_rows()) {
      if (row.id == StepPart::compute) parts.push_back({&row, work.name});
    }
  }
  return parts;
}

BOOST_AUTO_TEST_CASE(walls_are_read_back) {
  std::set<std::string> names;
  for (size_t i = 0; i < kNumWalls; ++i) {
    const auto wall = static_cast<Wall>(i);
    const std::string name = name_of(wall);
    BOOST_TEST((wall_from_name(name) == wall), name);
    BOOST_TEST(names.insert(name).second, name);
    const bool is_listed = std::ranges::find(kRecoverableWalls, wall) != kRecoverableWalls.end();
    BOOST_TEST(is_recoverable(wall) == is_listed, name);
  }
  BOOST_TEST(!wall_from_name("").has_value());
  BOOST_TEST(!wall_from_name("brick").has_value());
}

BOOST_AUTO_TEST_CASE(parts_are_read_back_with_their_group) {
  for (const NamedPart& part : all_parts()) {
    const std::string name = name_of(part.row->id, part.group);
    BOOST_TEST_CONTEXT(name) {
      const auto read = part_from_name(name);
      BOOST_REQUIRE(read.has_value());
      BOOST_TEST(read->group == part.group);
      BOOST_TEST(name_of(read->row->id, read->group) == name);
      BOOST_TEST((read->row->wall == part.row->wall));
      BOOST_TEST(text_of(*read) == text_of(part));
    }
  }
  BOOST_TEST(name_of(StepPart::late, "ep") == "blocking_ep");
  for (const char* unknown :
       {"", "weather", "blocking", "blockingep", "recompute_ep", "compute_ep", "compute_"}) {
    BOOST_TEST(!part_from_name(unknown).has_value());
  }
}

BOOST_AUTO_TEST_CASE(labels_and_looks_tell_the_parts_apart) {
  std::set<std::string> labels;
  std::set<std::pair<std::string, int>> looks;
  for (const StepPartRow& row : step_parts()) {
    BOOST_TEST(labels.insert(row.label).second);
    if (row.color[0] != '\0') BOOST_TEST(looks.emplace(row.color, row.hatch).second);
  }
  for (const WorkRow& work : work_rows()) BOOST_TEST(labels.insert(work.label).second);
  for (const GroupRow& group : group_rows()) {
    BOOST_TEST(labels.insert(label_of({&row_of(StepPart::transfer), group.name})).second);
    if (group.color[0] != '\0') BOOST_TEST(looks.emplace(group.color, group.hatch).second);
    // People call it something: as a group of ranks, or as what is waited for.
    BOOST_TEST((group.adjective[0] == '\0') == (group.text[0] != '\0'));
  }
}

BOOST_AUTO_TEST_CASE(only_communication_is_told_as_such) {
  const auto text = [](const char* name) { return text_of(part_from_name(name).value()); };
  BOOST_TEST(text("recompute") == "recomputation");
  BOOST_TEST(text("blocking_ep") == "blocking ep communication");
  BOOST_TEST(text("blocking_somebody") == "blocking somebody communication");
  BOOST_TEST(text("compute_experts") == "expert GEMMs");
  BOOST_TEST(text("blocking_memcpy") == "waiting for copies between memories");
  BOOST_TEST(label_of({&row_of(StepPart::transfer), "dp_cp"}) == "transfer dp_cp");
  BOOST_TEST(label_of({&row_of(StepPart::transfer), kMemcpyGroup}) == "copies");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base
