// What goes wrong over NCCL ends: on every rank, with the cause, with everything aborted and given
// back.
#include <atomic>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <optional>

#include "kernels/cuda/runtime_check.h"
#include "tests/engine_comm/nccl_fixture.h"
#include "tests/fakes/nccl/fake_cudart.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(nccl_failure)

namespace {

using plan::Group;
using std::chrono::milliseconds;
using testing::contains;
using testing::DeviceArray;
using testing::NcclRank;
using testing::NcclTest;
using testing::Outcome;
using Kind = testing::Outcome::Kind;

constexpr plan::Layout kLayout = {.dp = 4, .ep = 2};

// One of each, for ever: whoever fails does so in here.
void train(NcclRank& rank) {
  const auto ep = rank.world.communicator(Group::ep);
  const auto dp = rank.world.communicator(Group::dp_cp);
  const DeviceArray<float> data({1.0F, 2.0F, 3.0F, 4.0F});
  const DeviceArray<float> rows({0.0F, 0.0F, 0.0F, 0.0F});
  const std::vector<int64_t> counts = {1, 1};
  const AllToAllLane lane{data.data(), rows.data(), 4};
  for (int step = 0; step < 200; ++step) {
    dp->all_reduce(data.data(), 4, base::DType::f32, 0);
    dp->reduce_scatter(data.data(), rows.data(), 1, base::DType::f32, 0);
    dp->all_gather(rows.data(), data.data(), 4, 0);
    ep->all_to_all({&lane, 1}, counts, counts, 0);
    std::this_thread::sleep_for(milliseconds(1));
  }
  throw base::Error("nothing has failed");
}

void check_ends(const std::vector<Outcome>& outcomes, int failing, Kind kind,
                const std::string& part) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    BOOST_TEST_MESSAGE(outcome.text);
    BOOST_TEST(outcome.text != "nothing has failed");
    if (static_cast<int>(rank) == failing) {
      BOOST_TEST((outcome.kind == kind));
      BOOST_TEST(contains(outcome.text, part), "'" << part << "' in: " << outcome.text);
    } else {
      BOOST_TEST((outcome.kind == Kind::peer));
      BOOST_TEST(contains(outcome.text, part), "'" << part << "' in: " << outcome.text);
    }
  }
}

struct CallRow {
  const char* call;
  int rank;
  int skip;
  const char* part;  ///< of the message: group and operation
};
std::ostream& operator<<(std::ostream& out, const CallRow& row) { return out << row.call; }

const std::vector<CallRow> kCalls = {
    {"ncclGetUniqueId", 0, 0, "no id for this run"},
    {"ncclCommInitRankConfig", 0, 0, "NCCL group world on rank 0: joining 4 ranks"},
    {"ncclCommInitRankConfig", 3, 0, "NCCL group world on rank 3: joining 4 ranks"},
    {"ncclCommSplit", 1, 0, "NCCL group world on rank 1: the split into self groups"},
    {"ncclCommSplit", 2, 2, "NCCL group dp_cp on rank 2: the split into edp groups"},
    {"ncclAllReduce", 1, 0, "NCCL group dp_cp on rank 1: all_reduce 0"},
    {"ncclReduceScatter", 0, 1, "NCCL group dp_cp on rank 0: reduce_scatter 4"},
    {"ncclAllGather", 2, 2, "NCCL group dp_cp on rank 2: all_gather 8"},
    {"ncclSend", 3, 3, "NCCL group ep on rank 3: all_to_all 1"},
    {"ncclRecv", 3, 0, "NCCL group ep on rank 3: all_to_all 0"},
    {"ncclGroupEnd", 1, 5, "NCCL group ep on rank 1: all_to_all 5"},
};

BOOST_DATA_TEST_CASE(failing_calls, boost::unit_test::data::make(kCalls), row) {
  NcclTest test;
  fakes::inject({row.call, row.rank, row.skip, fakes::kNcclSystemError});
  const std::vector<Outcome> outcomes = test.run(kLayout, train);
  check_ends(outcomes, row.rank, Kind::error, row.part);
  const std::string& text = outcomes[static_cast<size_t>(row.rank)].text;
  BOOST_TEST(contains(text, "unhandled system error (as the test wants it)"), text);
}

// NCCL has no code of its own for it; the rank that ran out is told from those that lost a peer.
// The texts are those of its version 2.28.
const std::vector<const char*> kMemoryTexts = {"Failed to CUDA malloc 4194304 bytes",
                                               "Failed to CUDA calloc async 1024 bytes",
                                               "Cuda failure 2 'out of memory'"};

BOOST_DATA_TEST_CASE(out_of_memory_inside_nccl, boost::unit_test::data::make(kMemoryTexts), text) {
  NcclTest test;
  fakes::inject({"ncclAllReduce", 1, 0, fakes::kNcclUnhandledCudaError});
  fakes::set_last_error(text);
  check_ends(test.run(kLayout, train), 1, Kind::memory, text);
}

/// Other programs held 70 of 80 GiB of this rank's device when it began.
struct FullDevice {
  static constexpr int kDevice = 41;
  std::optional<kernels::cuda::DeviceUse> use;

  FullDevice() { fakes::set_device_memory(size_t{10} << 30, size_t{80} << 30); }
  ~FullDevice() {
    use.reset();
    fakes::set_device_memory(size_t{1} << 36, size_t{1} << 36);
  }
};

// Another user's memory is no result of the trial.
BOOST_AUTO_TEST_CASE(what_others_hold_is_not_told_as_the_trials_fault) {
  FullDevice full;
  NcclTest test;
  test.before = [&](int rank, Rendezvous&) {
    fakes::use_device(FullDevice::kDevice - 1 + rank);
    if (rank == 1) full.use.emplace(FullDevice::kDevice);
  };
  fakes::inject({"ncclAllReduce", 1, 0, fakes::kNcclUnhandledCudaError});
  fakes::set_last_error(kMemoryTexts.front());
  const std::vector<Outcome> outcomes = test.run(kLayout, train);
  check_ends(outcomes, 1, Kind::environment, kMemoryTexts.front());
  BOOST_TEST(contains(outcomes[1].text, "other programs held 69.0 GiB of GPU 41's 80.0 GiB"),
             outcomes[1].text);
}

BOOST_AUTO_TEST_CASE(neither_is_it_where_a_message_finds_no_room) {
  FullDevice full;
  NcclTest test;
  test.before = [&](int, Rendezvous&) {
    fakes::use_device(FullDevice::kDevice);
    full.use.emplace(FullDevice::kDevice);
  };
  const auto outcomes = test.run({}, [&](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::world);
    fakes::inject_cuda("cudaMalloc", 2);
    double on_host = 1;
    comm->all_reduce(&on_host, 1, base::DType::f64, 0);
  });
  BOOST_TEST((outcomes[0].kind == Kind::environment));
  BOOST_TEST(contains(outcomes[0].text, "other programs held"), outcomes[0].text);
}

BOOST_AUTO_TEST_CASE(error_that_comes_later) {
  NcclTest test;
  const auto outcomes = test.run(kLayout, [](NcclRank& rank) {
    if (rank.rank == 2) fakes::set_async_error("ep", 2, fakes::kNcclSystemError);
    train(rank);
  });
  check_ends(outcomes, 2, Kind::error, "NCCL group ep on rank 2: ");
}

BOOST_AUTO_TEST_CASE(dead_peer_is_not_the_own_fault) {
  NcclTest test;
  const auto outcomes = test.run(kLayout, [](NcclRank& rank) {
    if (rank.rank == 1) fakes::set_async_error("dp_cp", 1, fakes::kNcclRemoteError);
    train(rank);
  });
  check_ends(outcomes, 1, Kind::peer, "remote process exited or there was a network error");
}

// While nobody calls anything.
BOOST_AUTO_TEST_CASE(error_while_computing) {
  NcclTest test;
  std::atomic<int> num_ended = 0;
  const auto outcomes = test.run({.dp = 2}, [&](NcclRank& rank) {
    if (rank.rank == 1) fakes::set_async_error("world", 1, fakes::kNcclRemoteError);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const Outcome outcome = testing::outcome_of([&] { rank.world.check(); });
      if (outcome.kind != Kind::fine) {
        ++num_ended;
        throw base::PeerFailed(outcome.text);
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  BOOST_TEST(num_ended == 2);
  check_ends(outcomes, 1, Kind::peer, "NCCL group world on rank 1: nothing on its way");
}

// A rank that goes another way: the others end by time, and it finds out, too.
BOOST_DATA_TEST_CASE(rank_that_does_not_come, boost::unit_test::data::make({false, true}), waits) {
  NcclTest test;
  test.options.op_timeout = milliseconds(800);
  test.options.waits = waits;
  std::atomic<int> num_ended = 0;
  const auto outcomes = test.run({.dp = 3}, [&](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::dp_cp);
    const DeviceArray<float> data({1.0F});
    comm->all_reduce(data.data(), 1, base::DType::f32, 0);
    if (rank.rank == 2) {
      while (num_ended < 2) std::this_thread::sleep_for(milliseconds(5));
    }
    const Outcome outcome = testing::outcome_of([&] {
      while (true) comm->all_reduce(data.data(), 1, base::DType::f32, 0);
    });
    ++num_ended;
    if (outcome.kind == Kind::peer) throw base::PeerFailed(outcome.text);
    throw base::Error(outcome.text);
  });
  int num_causes = 0;
  for (const Outcome& outcome : outcomes) {
    BOOST_TEST((outcome.kind == Kind::error || outcome.kind == Kind::peer));
    BOOST_TEST(contains(outcome.text, "NCCL group dp_cp on rank"), outcome.text);
    BOOST_TEST(contains(outcome.text, "not done within 0.8 s"), outcome.text);
    num_causes += outcome.kind == Kind::error ? 1 : 0;
  }
  BOOST_TEST(num_causes >= 1);
}

BOOST_AUTO_TEST_CASE(message_that_nobody_takes) {
  NcclTest test;
  test.options.op_timeout = milliseconds(500);
  std::atomic<bool> is_over = false;
  const auto outcomes = test.run({.pp = 2}, [&](NcclRank& rank) {
    if (rank.rank == 1) {
      while (!is_over) std::this_thread::sleep_for(milliseconds(5));
      rank.world.check();
      return;
    }
    const auto comm = rank.world.communicator(Group::pp);
    const DeviceArray<float> data({1.0F});
    comm->send(1, 0, data.data(), 4, {}, 0);  // returns at once
    const Outcome outcome = testing::outcome_of([&] {
      while (true) {
        rank.world.check();
        std::this_thread::sleep_for(milliseconds(5));
      }
    });
    is_over = true;
    throw base::Error(outcome.text);
  });
  BOOST_TEST(contains(outcomes[0].text, "NCCL group pp_up on rank 0: send 0 to 1: not done"),
             outcomes[0].text);
}

BOOST_AUTO_TEST_CASE(rank_that_does_not_join) {
  NcclTest test;
  test.options.join_timeout = milliseconds(700);
  std::atomic<int> num_ended = 0;
  // It takes part in the exchange of the id and then stays away from NCCL.
  const auto outcomes = [&] {
    const tests::TempFolder folder;
    std::vector<Outcome> results(3);
    testing::run_threads(3, [&](int rank) {
      results[static_cast<size_t>(rank)] = testing::outcome_of([&] {
        const auto rendezvous = join_by_file(folder.file("meet"), rank, 3, {"nccl"});
        if (rank == 2) {
          rendezvous->gather("GPU 99");
          rendezvous->broadcast("");
          while (num_ended < 2) std::this_thread::sleep_for(milliseconds(5));
          rendezvous->check();
          return;
        }
        const Outcome outcome =
            testing::outcome_of([&] { make_nccl_world({.dp = 3}, *rendezvous, test.options); });
        ++num_ended;
        throw base::Error(outcome.text);
      });
    });
    return results;
  }();
  for (const Outcome& outcome : outcomes) {
    BOOST_TEST(contains(outcome.text, "joining 3 ranks: not done within 0.7 s"), outcome.text);
  }
}

// A rank whose program fails says so to the rendezvous; the others need not wait for the timeout.
BOOST_AUTO_TEST_CASE(failing_program_releases_the_others) {
  NcclTest test;
  const auto outcomes = test.run(kLayout, [](NcclRank& rank) {
    if (rank.rank == 3) throw base::WrongNumbers("the loss is no number");
    train(rank);
  });
  BOOST_TEST((outcomes[3].kind == Kind::error));
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    BOOST_TEST((outcome.kind == Kind::peer));
    BOOST_TEST(contains(outcome.text, "rank 3 failed: the loss is no number"), outcome.text);
  }
}

BOOST_AUTO_TEST_CASE(abort_ends_what_runs) {
  NcclTest test;
  std::atomic<bool> is_waiting = false;
  const auto outcomes = test.run({.dp = 2}, [&](NcclRank& rank) {
    if (rank.rank == 1) {
      while (!is_waiting) std::this_thread::sleep_for(milliseconds(1));
      rank.world.abort("on purpose");
      rank.world.check();
      return;
    }
    const auto comm = rank.world.communicator(Group::world);
    const DeviceArray<float> data({1.0F});
    is_waiting = true;
    comm->all_reduce(data.data(), 1, base::DType::f32, 0);
  });
  BOOST_TEST((outcomes[1].kind == Kind::peer));
  BOOST_TEST(outcomes[1].text == "aborted: on purpose");
  BOOST_TEST(contains(outcomes[0].text, "rank 1 failed: aborted: on purpose"), outcomes[0].text);
  BOOST_TEST(fakes::num_aborted() > 0);
}

// One rank ends early: the others' goodbye does not wait for ever, and is no error any more.
BOOST_AUTO_TEST_CASE(goodbye_without_answer) {
  NcclTest test;
  test.options.farewell_timeout = milliseconds(300);
  std::atomic<bool> is_over = false;
  const auto outcomes = test.run({.dp = 2}, [&](NcclRank& rank) {
    if (rank.rank == 0) {
      while (!is_over) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    // A world of its own kind, gone while rank 0 still works.
    rank.rendezvous.check();
    std::thread([&] {
      std::this_thread::sleep_for(milliseconds(900));
      is_over = true;
    }).detach();
  });
  for (const Outcome& outcome : outcomes) BOOST_TEST(outcome.text == "");
  BOOST_TEST(fakes::num_aborted() > 0);
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_gpu) {
  NcclTest test;
  test.before = [](int rank, Rendezvous&) { fakes::use_device(rank == 2 ? 40 : 40 + rank); };
  const auto outcomes = test.run({.dp = 3}, [](NcclRank&) {});
  for (const Outcome& outcome : outcomes) {
    BOOST_TEST((outcome.kind == Kind::usage));
    BOOST_TEST(contains(outcome.text, "ranks 0 and 2 are both on GPU 0000:28:00.0"), outcome.text);
  }
}

struct CudaRow {
  const char* call;
  int error;
  Kind kind;
  const char* part;
};
std::ostream& operator<<(std::ostream& out, const CudaRow& row) { return out << row.call; }
const std::vector<CudaRow> kCuda = {
    {"cudaMalloc", 2, Kind::memory, "CUDA: allocating memory for messages: out of memory"},
    {"cudaMemcpyAsync", 1, Kind::error, "CUDA: copying"},
    {"cudaEventQuery", 700, Kind::device, "CUDA: "},
};

BOOST_DATA_TEST_CASE(errors_of_cuda, boost::unit_test::data::make(kCuda), row) {
  NcclTest test;
  const auto outcomes = test.run({}, [&](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::world);
    fakes::inject_cuda(row.call, row.error);
    double on_host = 1;
    comm->all_reduce(&on_host, 1, base::DType::f64, 0);
  });
  BOOST_TEST((outcomes[0].kind == row.kind));
  BOOST_TEST(contains(outcomes[0].text, row.part), outcomes[0].text);
}

BOOST_AUTO_TEST_CASE(wrong_number_of_processes) {
  const auto alone = join_alone();
  BOOST_CHECK_THROW(make_nccl_world({.dp = 2}, *alone, {}), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
