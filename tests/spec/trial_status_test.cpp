// The status table: every status once, exit codes both ways.
#include "engine/spec/trial_status.h"

#include <boost/test/unit_test.hpp>
#include <set>

#include "kernels/base/error.h"

namespace moetune::spec {

BOOST_AUTO_TEST_SUITE(trial_status)

BOOST_AUTO_TEST_CASE(names_and_exit_codes_are_unique_and_round_trip) {
  std::set<std::string_view> names;
  std::set<int> codes;
  for (const StatusRow& row : status_table()) {
    BOOST_TEST(names.insert(row.name).second);
    BOOST_TEST(!row.help.empty());
    BOOST_TEST((status_from_name(name_of(row.status)) == row.status));
    if (!row.exit_code) continue;
    const int code = static_cast<int>(*row.exit_code);
    BOOST_TEST(codes.insert(code).second);
    BOOST_TEST((status_from_exit_code(code) == row.status));
  }
  BOOST_TEST(names.size() == static_cast<size_t>(TrialStatus::interrupted) + 1);
}

BOOST_AUTO_TEST_CASE(unknown_names_and_codes) {
  BOOST_CHECK_THROW(status_from_name("fine"), base::Error);
  for (const int code : {1, 3, 127, 255, -1}) {
    BOOST_TEST((status_from_exit_code(code) == TrialStatus::failed));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
