// Who was missing in a run that hung though all of its watchdogs speak: ranks that are behind in
// their group, groups that wait for each other, and what nobody can tell.
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(waiting_ranks)

namespace {

using golden_logs::facts_of;
using golden_logs::megatron_steps;
using Ranks = std::vector<int>;

struct Group {
  int id;
  const char* name;
};
constexpr Group kTensor = {12, "TENSOR_MODEL_PARALLEL_GROUP"};
constexpr Group kData = {13, "DATA_PARALLEL_GROUP"};

std::string prefix(int rank, const char* second, const Group& group) {
  return "[rank" + std::to_string(rank) + "]:[E304 05:16:" + second +
         ".0 ProcessGroupNCCL.cpp:683] [PG ID 5 PG GUID " + std::to_string(group.id) + "(" +
         group.name + ") Rank 0] ";
}
std::string call_of(int sequence, const std::string& operation) {
  return "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(sequence) + ", OpType=" + operation +
         ", NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing "
         "out.\n";
}
std::string waits(int rank, const Group& group, int sequence, const std::string& operation,
                  const char* second = "07") {
  return prefix(rank, second, group) + call_of(sequence, operation);
}
/// Of older releases: the group has no name.
std::string waits(int rank, int sequence, const std::string& operation) {
  const std::string r = std::to_string(rank);
  return "[rank" + r + "]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:683] [Rank " + r + "] " +
         call_of(sequence, operation);
}
std::string started(int rank, const Group& group, int count) {
  return prefix(rank, "08", group) + "PG status: last enqueued work: " + std::to_string(count) +
         ", last completed work: " + std::to_string(count - 1) + "\n";
}
std::string run_of(int world) {
  return "using world size: " + std::to_string(world) +
         ", data-parallel size: " + std::to_string(world) + "\n" + megatron_steps(1, 5);
}

}  // namespace

// As a terminal wraps them: neither the time nor the whole name is known then.
BOOST_AUTO_TEST_CASE(lines_that_are_cut_say_no_time_and_no_other_operation) {
  const auto cut = [](int rank, const std::string& operation) {
    const std::string r = std::to_string(rank);
    return "[rank" + r + "]:[E304 05:16:07.0 ProcessGroupNCCL.cpp:683] [Rank " + r +
           "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=" +
           operation + "\n";
  };
  const RunFacts facts =
      facts_of(run_of(8) + cut(0, "_ALLGATHER_BASE, NumelI") + cut(2, "_ALLGATHER_BA[451/1919]"));
  BOOST_TEST((facts.status == ForeignStatus::hung));
  BOOST_TEST(facts.reason.find("ranks 0, 2 waited for _ALLGATHER_BASE") != std::string::npos,
             facts.reason);
  BOOST_TEST(facts.reason.find("different") == std::string::npos, facts.reason);
}

BOOST_AUTO_TEST_CASE(of_two_ranks_the_one_at_an_earlier_operation_is_behind) {
  for (const int world : {2, 8}) {
    for (const char* second : {"06", "07", "09"}) {  // of the rank that is behind
      const RunFacts facts = facts_of(run_of(world) + waits(0, kTensor, 77, "ALLREDUCE") +
                                      waits(1, kTensor, 76, "ALLGATHER", second));
      BOOST_REQUIRE(facts.root.has_value());
      BOOST_TEST_CONTEXT(world << " ranks, " << second << ": " << facts.reason) {
        BOOST_TEST((facts.status == ForeignStatus::hung));
        BOOST_TEST(
            facts.reason ==
            "rank 0 waited 10 min 00 s for ALLREDUCE number 77 of group "
            "TENSOR_MODEL_PARALLEL_GROUP; rank 1 had come to number 76 only, others up to 77");
        BOOST_TEST(facts.root->rank == 1);
        BOOST_TEST(facts.root->missing_ranks == Ranks{1});
        BOOST_TEST(facts.root->waiting_ranks == Ranks{0});
      }
    }
  }
}

// The one that is behind speaks, too: it is not the others that are missed.
BOOST_AUTO_TEST_CASE(of_a_whole_group_the_one_at_an_earlier_operation_is_behind) {
  std::string text = run_of(8);
  for (int rank = 0; rank < 8; ++rank) text += waits(rank, kTensor, rank == 5 ? 76 : 77, "X");
  const RunFacts facts = facts_of(text);
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.root->rank == 5);
  BOOST_TEST(facts.root->waiting_ranks == (Ranks{0, 1, 2, 3, 4, 6, 7}));
  BOOST_TEST(facts.reason.ends_with("; rank 5 had come to number 76 only, others up to 77"),
             facts.reason);
  // One that has gone on alone, with the others at the operation before, does not tell.
  text = run_of(8);
  for (int rank = 0; rank < 8; ++rank) text += waits(rank, kTensor, rank == 5 ? 78 : 77, "X");
  const RunFacts ahead = facts_of(text);
  BOOST_TEST(ahead.root->rank == -1);
  BOOST_TEST(ahead.root->missing_ranks.empty());
  // Without names of groups it is one of another group, for all that is known, and missed here.
  text = run_of(8);
  for (int rank = 0; rank < 8; ++rank) text += waits(rank, rank == 5 ? 76 : 77, "X");
  const RunFacts unnamed = facts_of(text);
  BOOST_TEST(unnamed.reason ==
             "ranks 0-4, 6-7 waited 10 min 00 s for X number 77; rank 5 did not come; rank 5 "
             "waited in other operations");
  BOOST_TEST(unnamed.root->rank == 5);
}

BOOST_AUTO_TEST_CASE(of_two_ranks_at_one_operation_nobody_is_named) {
  const RunFacts facts =
      facts_of(run_of(2) + waits(0, kTensor, 77, "ALLREDUCE") + waits(1, kTensor, 77, "ALLREDUCE"));
  BOOST_REQUIRE(facts.root.has_value());
  BOOST_TEST(facts.reason ==
             "ranks 0-1 waited 10 min 00 s for ALLREDUCE number 77 of group "
             "TENSOR_MODEL_PARALLEL_GROUP; all of the group had come");
  BOOST_TEST(facts.root->rank == -1);
  BOOST_TEST(facts.root->missing_ranks.empty());
  // Of a larger run the two need not be all of the group.
  const RunFacts part =
      facts_of(run_of(8) + waits(0, kTensor, 77, "ALLREDUCE") + waits(1, kTensor, 77, "ALLREDUCE"));
  BOOST_TEST(part.reason.ends_with("; who did not come is not said"), part.reason);
  BOOST_TEST(part.root->rank == -1);
  // All wait for messages, which are of two ranks each.
  const RunFacts messages =
      facts_of(run_of(2) + waits(0, kTensor, 77, "SEND") + waits(1, kTensor, 77, "SEND"));
  BOOST_TEST(messages.reason.ends_with("; who did not come is not said"), messages.reason);
  // Different operations in one place.
  const RunFacts calls =
      facts_of(run_of(2) + waits(0, kTensor, 77, "ALLREDUCE") + waits(1, kTensor, 77, "ALLGATHER"));
  BOOST_TEST(calls.reason.find("rank 1 had called ALLGATHER") != std::string::npos, calls.reason);
  BOOST_TEST(calls.reason.find("rank 0 had called ALLREDUCE") != std::string::npos, calls.reason);
  BOOST_TEST(calls.root->rank == -1);
}

// Each waits in a group of the same two ranks: which of them is behind only their counts tell.
BOOST_AUTO_TEST_CASE(two_ranks_that_wait_in_two_groups) {
  const std::string both =
      run_of(2) + waits(0, kTensor, 77, "ALLREDUCE") + waits(1, kData, 9, "ALLGATHER");
  const RunFacts unknown = facts_of(both);
  BOOST_REQUIRE(unknown.root.has_value());
  BOOST_TEST(unknown.reason ==
             "rank 0 waited 10 min 00 s for ALLREDUCE number 77 of group "
             "TENSOR_MODEL_PARALLEL_GROUP; rank 1 waited for ALLGATHER number 9 of group "
             "DATA_PARALLEL_GROUP: which of them is behind is not said");
  BOOST_TEST(unknown.root->rank == -1);
  BOOST_TEST(unknown.root->missing_ranks.empty());
  // Rank 0 has passed by the other group's operation, rank 1 has not come to this one.
  const std::string of_tensor = started(0, kTensor, 77) + started(1, kTensor, 76);
  const RunFacts behind = facts_of(both + of_tensor + started(0, kData, 9) + started(1, kData, 9));
  BOOST_TEST(
      behind.reason ==
      "rank 0 waited 10 min 00 s for ALLREDUCE number 77 of group "
      "TENSOR_MODEL_PARALLEL_GROUP; rank 1 had come to number 76 only, others up to 77; rank 1 "
      "waited in other operations");
  BOOST_TEST(behind.root->rank == 1);
  // Neither has come to the other's.
  const RunFacts circle = facts_of(both + of_tensor + started(0, kData, 8) + started(1, kData, 9));
  BOOST_TEST(
      circle.reason ==
      "rank 0 waited 10 min 00 s for ALLREDUCE number 77 of group "
      "TENSOR_MODEL_PARALLEL_GROUP; rank 1 had come to number 76 only, others up to 77; rank 1 "
      "waited for ALLGATHER number 9 of group DATA_PARALLEL_GROUP, to which rank 0 had not "
      "come: they wait for each other");
  BOOST_TEST(circle.root->rank == -1);
  BOOST_TEST(circle.root->missing_ranks == Ranks{1});
  // Who began to wait seconds later had let the other one wait.
  const RunFacts later = facts_of(run_of(2) + waits(0, kTensor, 77, "ALLREDUCE", "01") +
                                  waits(1, kData, 9, "ALLGATHER", "07"));
  BOOST_TEST(later.reason.find("; rank 1 did not come") != std::string::npos, later.reason);
  BOOST_TEST(later.root->rank == 1);
}

// Three of four wait for the one that waits in another group, whichever spoke first.
BOOST_AUTO_TEST_CASE(a_rank_that_waits_in_another_group_is_the_one_that_most_miss) {
  const auto three = [](const char* second) {
    std::string text;
    for (const int rank : {0, 1, 3}) text += waits(rank, kTensor, 77, "ALLREDUCE", second);
    return text;
  };
  for (const char* second : {"05", "07", "09"}) {
    const RunFacts facts = facts_of(run_of(4) + waits(2, kData, 9, "ALLGATHER") + three(second));
    BOOST_REQUIRE(facts.root.has_value());
    BOOST_TEST_CONTEXT(second << ": " << facts.reason) {
      BOOST_TEST(facts.reason ==
                 "ranks 0-1, 3 waited 10 min 00 s for ALLREDUCE number 77 of group "
                 "TENSOR_MODEL_PARALLEL_GROUP; rank 2 did not come; rank 2 waited in other "
                 "operations");
      BOOST_TEST(facts.root->rank == 2);
      BOOST_TEST(facts.root->missing_ranks == Ranks{2});
    }
  }
  // Where not all ranks speak, one of those that do not may be what the first waits for.
  const RunFacts facts = facts_of(run_of(16) + waits(2, kData, 9, "ALLGATHER", "05") + three("07"));
  BOOST_TEST(facts.reason.find("; who did not come is not said") != std::string::npos,
             facts.reason);
  BOOST_TEST(facts.root->rank == -1);
  // Halves of the run that wait in two groups are most likely two groups.
  std::string halves = run_of(8);
  for (int rank = 0; rank < 8; ++rank) {
    halves += waits(rank, rank < 4 ? kTensor : kData, 77, "ALLREDUCE");
  }
  const RunFacts both = facts_of(halves);
  BOOST_TEST(both.reason.find("; who did not come is not said; ranks 4-7 waited in other") !=
                 std::string::npos,
             both.reason);
  BOOST_TEST(both.root->missing_ranks.empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
