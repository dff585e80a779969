// Process groups, stages, sequences and positions over many layouts.
#include "engine/plan/layout.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "kernels/base/error.h"
#include "kernels/base/step_parts.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {

BOOST_AUTO_TEST_SUITE(layout)

namespace {

Layout grid(int dp, int cp, int ep, int pp, int tp = 1, int etp = 1) {
  Layout made;
  made.tp = tp;
  made.cp = cp;
  made.dp = dp;
  made.pp = pp;
  made.etp = etp;
  made.ep = ep;
  return made;
}

std::vector<Layout> layouts() {
  std::vector<Layout> result;
  for (const int dp : {1, 2, 3}) {
    for (const int cp : {1, 2}) {
      for (const int tp : {1, 2, 4}) {
        for (const int pp : {1, 2, 3}) {
          const int stage = dp * cp * tp;
          for (int ep = 1; ep <= stage; ++ep) {
            for (int etp = 1; etp * ep <= stage; ++etp) {
              if (stage % (ep * etp) == 0) result.push_back(grid(dp, cp, ep, pp, tp, etp));
            }
          }
        }
      }
    }
  }
  return result;
}

int expected_size(const Layout& l, Group group) {
  switch (group) {
    case Group::world:
      return l.world_size();
    case Group::dp_cp:
      return l.dp * l.cp;
    case Group::tp:
      return l.tp;
    case Group::tp_cp:
      return l.tp * l.cp;
    case Group::stage:
      return l.tp * l.dp * l.cp;
    case Group::cp:
      return l.cp;
    case Group::ep:
      return l.ep * l.etp;
    case Group::edp:
      return l.edp();
    case Group::pp:
      return l.pp;
    case Group::embedding:
      return std::min(l.pp, 2);
    case Group::count:
      break;
  }
  return 0;
}

std::vector<StageLayers> stages(int64_t layers, int64_t pp, int64_t first, int64_t last) {
  ModelSpec model;
  model.num_layers = layers;
  Knobs knobs;
  knobs.pipeline_model_parallel_size = pp;
  knobs.decoder_first_pipeline_num_layers = first;
  knobs.decoder_last_pipeline_num_layers = last;
  return split_layers(model, knobs);
}

std::vector<int64_t> counts(const std::vector<StageLayers>& stages) {
  std::vector<int64_t> result;
  for (const StageLayers& stage : stages) result.push_back(stage.count);
  return result;
}

using Counts = std::vector<int64_t>;
using Ranks = std::vector<int>;

}  // namespace

BOOST_AUTO_TEST_CASE(every_group_is_called_something) {
  for (const Group group : all_groups()) {
    const base::GroupRow* row = base::find_group(name_of(group));
    BOOST_TEST_CONTEXT(name_of(group)) {
      BOOST_REQUIRE(row != nullptr);
      BOOST_TEST(std::string(row->adjective) != "");
    }
  }
}

BOOST_AUTO_TEST_CASE(every_rank_is_in_exactly_one_group_of_each_kind) {
  for (const Layout& l : layouts()) {
    for (const Group group : all_groups()) {
      BOOST_TEST_CONTEXT(name_of(group)
                         << " dp " << l.dp << " cp " << l.cp << " ep " << l.ep << " pp " << l.pp) {
        std::set<Ranks> distinct;
        for (int rank = 0; rank < l.world_size(); ++rank) {
          const Ranks members = l.group_ranks(group, rank);
          BOOST_TEST(static_cast<int>(members.size()) == expected_size(l, group));
          BOOST_TEST(std::is_sorted(members.begin(), members.end()));
          distinct.insert(members);
          const bool is_member = std::find(members.begin(), members.end(), rank) != members.end();
          // Middle stages hold neither embedding nor head.
          const bool is_middle = l.pp_rank(rank) > 0 && l.pp_rank(rank) < l.pp - 1;
          BOOST_TEST(is_member == !(group == Group::embedding && is_middle));
          if (!is_member) continue;
          for (const int member : members) {
            BOOST_TEST(l.group_ranks(group, member) == members, boost::test_tools::per_element());
          }
        }
        size_t total = 0;
        std::set<int> seen;
        for (const Ranks& members : distinct) {
          total += members.size();
          seen.insert(members.begin(), members.end());
        }
        BOOST_TEST(total == seen.size());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_are_numbered_tp_then_cp_then_dp_then_pp) {
  for (const Layout& l : layouts()) {
    for (int rank = 0; rank < l.world_size(); ++rank) {
      BOOST_TEST(((l.pp_rank(rank) * l.dp + l.dp_rank(rank)) * l.cp + l.cp_rank(rank)) * l.tp +
                     l.tp_rank(rank) ==
                 rank);
      const Ranks ep = l.group_ranks(Group::ep, rank);
      const Ranks edp = l.group_ranks(Group::edp, rank);
      BOOST_TEST(ep[static_cast<size_t>(l.ep_rank(rank) * l.etp + l.etp_rank(rank))] == rank);
      BOOST_TEST(edp[static_cast<size_t>(l.place(Axis::edp, rank))] == rank);
    }
  }
  const Layout l = grid(2, 2, 2, 2);
  BOOST_TEST(l.group_ranks(Group::cp, 7) == (Ranks{6, 7}), boost::test_tools::per_element());
  BOOST_TEST(l.group_ranks(Group::ep, 5) == (Ranks{4, 5}), boost::test_tools::per_element());
  BOOST_TEST(l.group_ranks(Group::edp, 5) == (Ranks{5, 7}), boost::test_tools::per_element());
  BOOST_TEST(l.group_ranks(Group::pp, 5) == (Ranks{1, 5}), boost::test_tools::per_element());
  BOOST_CHECK_THROW((void)l.group_ranks(Group::cp, 8), base::Error);
  BOOST_CHECK_THROW((void)l.group_ranks(Group::cp, -1), base::Error);
}

BOOST_AUTO_TEST_CASE(layers_are_split_without_gaps) {
  BOOST_TEST(counts(stages(8, 1, 0, 0)) == Counts{8}, boost::test_tools::per_element());
  BOOST_TEST(counts(stages(10, 4, 0, 0)) == (Counts{3, 3, 2, 2}), boost::test_tools::per_element());
  BOOST_TEST(counts(stages(10, 4, 1, 0)) == (Counts{1, 3, 3, 3}), boost::test_tools::per_element());
  BOOST_TEST(counts(stages(10, 4, 0, 2)) == (Counts{3, 3, 2, 2}), boost::test_tools::per_element());
  BOOST_TEST(counts(stages(10, 4, 1, 2)) == (Counts{1, 4, 3, 2}), boost::test_tools::per_element());
  BOOST_TEST(counts(stages(5, 2, 2, 3)) == (Counts{2, 3}), boost::test_tools::per_element());
  for (int64_t layers = 1; layers <= 12; ++layers) {
    for (int64_t pp = 1; pp <= layers; ++pp) {
      int64_t next = 0;
      for (const StageLayers& stage : stages(layers, pp, 0, 0)) {
        BOOST_TEST(stage.first == next);
        BOOST_TEST(stage.count >= 1);
        next += stage.count;
      }
      BOOST_TEST(next == layers);
    }
  }
  BOOST_CHECK_THROW(stages(5, 2, 2, 2), base::Error);
}

BOOST_AUTO_TEST_CASE(every_sequence_is_used_once) {
  Knobs knobs;
  knobs.micro_batch_size = 3;
  const Layout l = grid(2, 1, 1, 1);
  const int64_t micro_batches = num_micro_batches(l, knobs, 24);
  BOOST_TEST(micro_batches == 4);
  std::set<int64_t> seen;
  for (int64_t m = 0; m < micro_batches; ++m) {
    for (int d = 0; d < l.dp; ++d) {
      for (int64_t slot = 0; slot < 3; ++slot) {
        const int64_t index = sequence_index(l, knobs, m, d, slot);
        BOOST_TEST(index >= 0);
        BOOST_TEST(index < 24);
        BOOST_TEST(seen.insert(index).second);
      }
    }
  }
  BOOST_TEST(seen.size() == 24u);
  BOOST_TEST(sequence_index(l, knobs, 1, 1, 2) == 11);
}

BOOST_AUTO_TEST_CASE(zig_zag_covers_all_positions_with_equal_causal_work) {
  for (const int cp : {1, 2, 3, 4}) {
    const Layout l = grid(1, cp, 1, 1);
    constexpr int64_t kLength = 48;
    std::set<int32_t> seen;
    std::set<int64_t> work;
    for (int rank = 0; rank < cp; ++rank) {
      const std::vector<int32_t> positions = local_positions(l, rank, kLength);
      BOOST_TEST(static_cast<int64_t>(positions.size()) == kLength / cp);
      BOOST_TEST(std::is_sorted(positions.begin(), positions.end()));
      seen.insert(positions.begin(), positions.end());
      work.insert(std::accumulate(positions.begin(), positions.end(), int64_t{0}));
    }
    BOOST_TEST(static_cast<int64_t>(seen.size()) == kLength);
    BOOST_TEST(work.size() == 1u);
  }
  BOOST_TEST(local_positions(grid(1, 2, 1, 1), 0, 8) == (std::vector<int32_t>{0, 1, 6, 7}),
             boost::test_tools::per_element());
  BOOST_CHECK_THROW(local_positions(grid(1, 2, 1, 1), 0, 6), base::Error);
  BOOST_CHECK_THROW(local_positions(grid(1, 2, 1, 1), 2, 8), base::Error);
}

BOOST_AUTO_TEST_CASE(positions_of_all_that_share_a_sequence) {
  const Layout l = grid(2, 2, 1, 2, 2);
  for (int rank = 0; rank < l.world_size(); ++rank) {
    BOOST_TEST(positions_by_rank(l, rank, 8) == (std::vector<int32_t>{0, 1, 6, 7, 2, 3, 4, 5}),
               boost::test_tools::per_element());
  }
  BOOST_TEST(positions_by_rank(grid(2, 1, 1, 1, 2), 1, 3) == (std::vector<int32_t>{0, 1, 2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_group_without_an_axis_has_the_same_ranks_where_that_has_one_place) {
  BOOST_TEST(name_of(without(Group::tp_cp, Axis::tp)) == name_of(Group::cp));
  BOOST_TEST(name_of(without(Group::stage, Axis::tp)) == name_of(Group::dp_cp));
  BOOST_TEST(name_of(without(Group::tp, Axis::tp)) == name_of(Group::tp));
  BOOST_TEST(name_of(without(Group::ep, Axis::tp)) == name_of(Group::ep));
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
    const auto size = [&](Axis other) { return other == axis ? 1 : 2; };
    const Layout l = grid(size(Axis::dp), size(Axis::cp), 1, size(Axis::pp), size(Axis::tp));
    for (const Group group : all_groups()) {
      BOOST_TEST(l.group_ranks(without(group, axis), 0) == l.group_ranks(group, 0),
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(knobs_become_a_layout) {
  const Layout l = layout_of(spec::samples::trial().knobs);
  BOOST_TEST(l.world_size() == 8);
  BOOST_TEST(l.edp() == 1);
}

BOOST_AUTO_TEST_CASE(virtual_stages_are_a_grid_of_their_own) {
  Layout l;
  l.pp = 2;
  l.vpp = 3;
  BOOST_TEST(l.num_stages() == 6);
  for (int stage = 0; stage < 6; ++stage) {
    BOOST_TEST(l.place_of_stage(Axis::pp, stage) == stage % 2);
    BOOST_TEST(l.place_of_stage(Axis::vpp, stage) == stage / 2);
  }
  BOOST_CHECK_THROW((void)l.place(Axis::vpp, 0), base::Error);
  BOOST_CHECK_THROW((void)l.place_of_stage(Axis::tp, 0), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::plan
