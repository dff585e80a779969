// The tables of concepts are asked by name: each name is that of one row, and whatever writes flags
// of a framework spells them as the tables do.
#include "engine/spec/dialects/concepts.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/spec/knobs.h"
#include "engine/spec/megatron_flags.h"
#include "kernels/base/error.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(concepts_of_dialects)

using enum Dialect;

BOOST_AUTO_TEST_CASE(a_name_is_that_of_one_row) {
  std::set<std::string_view> names;
  for (const std::span<const Row> table : {rows(), carried_rows()}) {
    for (const Row& row : table) {
      BOOST_TEST(names.insert(row.name).second, row.name);
      BOOST_TEST(&row_of(row.name) == &row, row.name);
    }
  }
  BOOST_CHECK_THROW(row_of("no such concept"), base::Error);
}

BOOST_AUTO_TEST_CASE(choices_that_are_carried_are_asked_by_name) {
  BOOST_TEST(key_of(row_of("train_iters"), megatron_lm) == "--train-iters");
  BOOST_TEST(key_of(row_of("train_iters"), megatron_bridge) == "train.train_iters");
  BOOST_TEST(key_of(row_of("train_iters"), primus) == "train_iters");
  BOOST_TEST(key_of(row_of("train_iters"), torchtitan).empty());
}

// Knobs of our own engine name Megatron-LM's flags in their own table, for `moetune knobs`.
BOOST_AUTO_TEST_CASE(flags_of_our_own_knobs_are_those_of_the_tables) {
  int num_flags = 0;
  for (const KnobRow& row : knob_table()) {
    if (!has_megatron_flag(row)) continue;
    std::string_view flags = row.megatron_flag;
    while (!flags.empty()) {
      const std::string_view flag = flags.substr(0, flags.find(", "));
      flags.remove_prefix(std::min(flags.size(), flag.size() + 2));
      BOOST_TEST(is_known(flag, megatron_lm), flag);
      ++num_flags;
    }
  }
  BOOST_TEST(num_flags > 10);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
