// The tables of the modes: every value has one name, and every name gives its value back.
#include "engine/spec/modes.h"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/spec/communicators.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(modes)

using Modes =
    boost::mpl::list<BackendKind, ClockMode, TraceLevel, DType, FaultKind, CommunicatorKind>;

BOOST_AUTO_TEST_CASE_TEMPLATE(names_and_values_go_both_ways, Mode, Modes) {
  std::set<std::string> names;
  for (const Mode value : all_values<Mode>()) {
    BOOST_TEST(names.insert(std::string(name_of(value))).second);
    BOOST_TEST((find_by_name<Mode>(name_of(value)) == value));
  }
  BOOST_TEST(!find_by_name<Mode>("sundial"));
  BOOST_TEST(name_of(static_cast<Mode>(99)) == "?");
}

BOOST_AUTO_TEST_CASE(messages_list_the_allowed_values_in_their_order) {
  const json document = {{"trace", "some"}, {"dtype", "f64"}, {"clock", "wall"}};
  JsonReader reader(document, "t");
  BOOST_TEST(contains(usage_error([&] { reader.choice("trace", all_values<TraceLevel>()); }),
                      "\"some\", expected one of \"none\", \"ops\", \"all\""));
  BOOST_TEST(contains(usage_error([&] {
                        reader.choice("dtype", std::vector{DType::bf16, DType::f32});
                      }),
                      "\"f64\", expected one of \"bf16\", \"f32\""));
  BOOST_TEST((reader.choice_or("clock", ClockMode::virtual_measured, all_values<ClockMode>()) ==
              ClockMode::wall));
  BOOST_TEST((reader.choice_or("backend", BackendKind::cuda, all_values<BackendKind>()) ==
              BackendKind::cuda));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
