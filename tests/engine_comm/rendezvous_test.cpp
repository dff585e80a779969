// Ranks that find each other, over TCP and through a folder, as threads and as processes; ranks
// that do not come, come late, die, say nonsense or belong to another run.
#include "engine/comm/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "engine/comm/socket.h"
#include "kernels/base/error.h"
#include "tests/engine_comm/processes.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(rendezvous)

namespace {

using std::chrono::milliseconds;
using testing::contains;
using testing::run_processes;
using testing::run_threads;

/// One way for ranks to meet, the same for all of a test.
struct Place {
  explicit Place(bool uses_tcp_in)
      : uses_tcp(uses_tcp_in), port(uses_tcp ? testing::free_port() : 0) {}

  std::unique_ptr<Rendezvous> join(int rank, int size,
                                   const RendezvousOptions& options = {}) const {
    return uses_tcp ? join_by_tcp("127.0.0.1", port, rank, size, options)
                    : join_by_file(folder.file("shared"), rank, size, options);
  }

  bool uses_tcp;
  int port;
  tests::TempFolder folder;
};

RendezvousOptions impatient(milliseconds join = milliseconds(1000),
                            milliseconds meet = milliseconds(600)) {
  return {"run", join, meet};
}

// Connects to the port as soon as somebody listens, and sends `bytes`.
Socket send_raw(int port, const std::string& bytes) {
  const wire::Deadline deadline(std::chrono::seconds(20));
  while (!deadline.is_past()) {
    std::optional<Socket> socket = connect_to("127.0.0.1", port, deadline);
    if (socket) {
      (void)::send(socket->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return std::move(*socket);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return {};
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void meet_in_every_way(Rendezvous& world) {
  const int rank = world.rank();
  const int size = world.size();
  const std::string id(128, '\xA5');
  for (int64_t round = 0; round < 20; ++round) {
    if (world.broadcast(rank == 0 ? id : "ignored") != id) throw base::Error("broadcast");
    if (world.max(rank * 10 - round) != (size - 1) * 10 - round) throw base::Error("max");
    if (world.max(-7 - rank) != -7) throw base::Error("max of negative values");
    world.barrier();
    const std::string own(static_cast<size_t>(rank * 3), static_cast<char>('a' + rank));
    const std::vector<std::string> all = world.gather(own);
    if (all.size() != static_cast<size_t>(size)) throw base::Error("number of blobs");
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != std::string(i * 3, static_cast<char>('a' + i))) throw base::Error("blob");
    }
    world.check();
  }
}

const auto kWays = boost::unit_test::data::make({false, true});

BOOST_AUTO_TEST_CASE(alone) {
  const auto world = join_alone();
  meet_in_every_way(*world);
}

BOOST_DATA_TEST_CASE(threads_meet, kWays* boost::unit_test::data::make({2, 5, 9}), uses_tcp, size) {
  const Place place(uses_tcp);
  for (const std::string& error :
       run_threads(size, [&](int rank) { meet_in_every_way(*place.join(rank, size)); })) {
    BOOST_TEST(error == "");
  }
}

BOOST_DATA_TEST_CASE(processes_meet, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const std::vector<int> codes = run_processes(4, [&](int rank) {
    meet_in_every_way(*place.join(rank, 4));
    return rank;
  });
  BOOST_TEST(codes == std::vector<int>({0, 1, 2, 3}), boost::test_tools::per_element());
}

BOOST_DATA_TEST_CASE(late_ranks_are_waited_for, kWays, uses_tcp) {
  const Place place(uses_tcp);
  for (const int late : {0, 2}) {
    const auto errors = run_threads(3, [&](int rank) {
      if (rank == late) std::this_thread::sleep_for(milliseconds(300));
      const auto world = place.join(rank, 3);
      if (rank == late) std::this_thread::sleep_for(milliseconds(100));
      if (world->max(rank) != 2) throw base::Error("max");
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_DATA_TEST_CASE(missing_ranks_are_named, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const auto errors = run_threads(4, [&](int rank) {
    if (rank == 2) return;
    const auto world = place.join(rank, 4, impatient());
    world->barrier();
  });
  BOOST_TEST(contains(errors[0], "rank 2 of 4 did not come"));
  BOOST_TEST(contains(errors[1], "rank 2 of 4 did not come"));
  BOOST_TEST(contains(errors[3], "rank 2 of 4 did not come"));
}

BOOST_DATA_TEST_CASE(missing_rank_0_is_noticed, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const auto errors = run_threads(3, [&](int rank) {
    if (rank != 0) place.join(rank, 3, impatient());
  });
  BOOST_TEST(contains(errors[1], "rank 1 did not find rank 0"));
  BOOST_TEST(contains(errors[2], "rank 2 did not find rank 0"));
}

// A rank that is there and does not come to the meeting: all end, and say who.
BOOST_DATA_TEST_CASE(absence_ends_a_meeting, kWays* boost::unit_test::data::make({0, 1}), uses_tcp,
                     absent) {
  const Place place(uses_tcp);
  std::atomic<int> num_ended = 0;
  const auto errors = run_threads(3, [&](int rank) {
    const auto world = place.join(rank, 3, impatient(std::chrono::seconds(60)));
    if (rank != absent) {
      try {
        world->barrier();
      } catch (...) {
        ++num_ended;
        throw;
      }
    } else {
      while (num_ended < 2) std::this_thread::sleep_for(milliseconds(5));
      world->barrier();  // too late, and says so
    }
  });
  for (const std::string& error : errors) BOOST_TEST(error != "");
  BOOST_TEST(contains(errors[2], absent == 0 ? "rank 0" : "rank 1 of 3 did not come"));
}

BOOST_DATA_TEST_CASE(failure_reaches_everybody, kWays* boost::unit_test::data::make({0, 2}),
                     uses_tcp, failing) {
  const Place place(uses_tcp);
  std::atomic<int> num_released = 0;
  const auto errors = run_threads(4, [&](int rank) {
    const auto world = place.join(rank, 4);
    world->barrier();
    if (rank == failing) {
      world->fail("out of luck");
      while (num_released < 3) std::this_thread::sleep_for(milliseconds(5));
    }
    try {
      world->barrier();
    } catch (const base::PeerFailed& error) {
      ++num_released;
      // It stays like this.
      if (message_of([&] { world->max(1); }) != error.what()) throw base::Error("a new message");
      if (message_of([&] { world->check(); }) != error.what()) throw base::Error("no message");
      throw;
    }
  });
  for (const std::string& error : errors) BOOST_TEST(contains(error, "out of luck"));
}

// A rank that fails or leaves right after a meeting has not spoilt it for those who are still
// fetching its answer. Many rounds and ranks, as the moment is short.
BOOST_DATA_TEST_CASE(answered_meetings_count, kWays* boost::unit_test::data::make({false, true}),
                     uses_tcp, fails) {
  constexpr int kSize = 24;
  for (int round = 0; round < 60; ++round) {
    const Place place(uses_tcp);
    const std::vector<std::string> errors = run_threads(kSize, [&](int rank) {
      const auto world = place.join(rank, kSize);
      if (world->broadcast("word") != "word") throw base::Error("broadcast");
      if (fails && rank == 0) world->fail("on purpose");
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_DATA_TEST_CASE(check_finds_out_without_waiting, kWays, uses_tcp) {
  const Place place(uses_tcp);
  std::atomic<int> num_informed = 0;
  const auto errors = run_threads(3, [&](int rank) {
    const auto world = place.join(rank, 3);
    world->barrier();
    if (rank == 1) world->fail("no more");
    while (num_informed < 2) {
      if (rank == 1) continue;
      try {
        world->check();
      } catch (const base::PeerFailed&) {
        ++num_informed;
        while (num_informed < 2) std::this_thread::sleep_for(milliseconds(1));
        throw;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  BOOST_TEST(contains(errors[0], "rank 1 failed: no more"));
  BOOST_TEST(contains(errors[2], "rank 1 failed: no more"));
}

BOOST_AUTO_TEST_CASE(killed_process_is_noticed) {
  const Place place(true);
  for (const int victim : {0, 1}) {
    const std::vector<int> codes = run_processes(3, [&](int rank) {
      const auto world = place.join(rank, 3);
      world->barrier();
      if (rank == victim) raise(SIGKILL);
      try {
        world->barrier();
      } catch (const base::PeerFailed& error) {
        return contains(error.what(), "rank " + std::to_string(victim) + " is gone") ? 7 : 8;
      }
      return 1;
    });
    for (int rank = 0; rank < 3; ++rank) {
      BOOST_TEST(codes[static_cast<size_t>(rank)] == (rank == victim ? -SIGKILL : 7));
    }
  }
}

BOOST_DATA_TEST_CASE(ended_rank_is_not_waited_for, kWays* boost::unit_test::data::make({0, 1}),
                     uses_tcp, ended) {
  const Place place(uses_tcp);
  const auto errors = run_threads(2, [&](int rank) {
    const auto world = place.join(rank, 2);
    world->barrier();
    if (rank != ended) world->barrier();
  });
  BOOST_TEST(errors[static_cast<size_t>(ended)] == "");
  BOOST_TEST(contains(errors[static_cast<size_t>(1 - ended)],
                      "rank " + std::to_string(ended) + " has ended"));
}

BOOST_DATA_TEST_CASE(programs_that_differ_stop, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const auto errors = run_threads(2, [&](int rank) {
    const auto world = place.join(rank, 2);
    if (rank == 0) {
      world->barrier();
    } else {
      world->max(3);
    }
  });
  for (const std::string& error : errors) {
    BOOST_TEST(contains(error, "rank 1 has come to a maximum where rank 0 is at a barrier"));
  }
}

BOOST_DATA_TEST_CASE(other_runs_are_refused, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const auto errors = run_threads(2, [&](int rank) {
    RendezvousOptions options = impatient();
    options.run_id = rank == 0 ? "new" : "old";
    place.join(rank, 2, options);
  });
  BOOST_TEST(contains(errors[0], "rank 1 of 2 did not come"));
  BOOST_TEST(contains(errors[0], uses_tcp ? "another run ('old')" : "files of another run"));
  BOOST_TEST(contains(errors[1], uses_tcp ? "refused" : "did not find rank 0"));
}

BOOST_AUTO_TEST_CASE(other_sizes_and_doubles_are_refused) {
  const Place place(true);
  const auto errors = run_threads(4, [&](int rank) {
    if (rank == 3) std::this_thread::sleep_for(milliseconds(200));
    const int size = rank == 2 ? 5 : 3;
    place.join(rank == 3 ? 1 : rank, size, impatient());
  });
  BOOST_TEST(contains(errors[0], "rank 2 of 3 did not come"));
  BOOST_TEST(contains(errors[2], "expects 5 ranks where there are 3"));
  BOOST_TEST(contains(errors[3], "rank 1 has already come, from 127.0.0.1"));
}

// Files of a run that was killed do no harm, not even under the same run id.
BOOST_AUTO_TEST_CASE(stale_files_are_not_believed) {
  const Place place(false);
  const std::string shared = place.folder.file("shared");
  const auto codes = run_processes(3, [&](int rank) {
    if (rank == 2) return 0;
    place.join(rank, 3, impatient());  // ends without rank 2 and leaves its files
    return 1;
  });
  BOOST_TEST(codes[0] == 99);
  // Rank 1 of a run that was killed in the middle of joining.
  for (const char* name : {"hello.1", "welcome"}) {
    std::ofstream(shared + "/" + name) << "moetune rendezvous 1\n3\nruns-0\nstale\nwords\n";
  }
  std::filesystem::create_directories(shared + "/s-0");
  std::ofstream(shared + "/s-0/0.answer") << "moetune rendezvous 1\n3\nrun";
  const auto errors = run_threads(3, [&](int rank) {
    if (rank != 1) std::this_thread::sleep_for(milliseconds(100));
    meet_in_every_way(*place.join(rank, 3, {"run"}));
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
  BOOST_TEST(!std::filesystem::exists(shared + "/welcome"));
  BOOST_TEST(!std::filesystem::exists(shared + "/hello.1"));
}

BOOST_AUTO_TEST_CASE(nonsense_files_are_left_alone) {
  const Place place(false);
  const std::string shared = place.folder.file("shared");
  std::filesystem::create_directories(shared + "/hello.1");  // a folder where a file is expected
  std::ofstream(shared + "/welcome") << "garbage";
  const auto errors = run_threads(2, [&](int rank) { place.join(rank, 2, impatient()); });
  for (const std::string& error : errors) BOOST_TEST(error != "");
  BOOST_TEST(std::filesystem::exists(shared + "/welcome"));
  BOOST_CHECK_THROW(join_by_file("/dev/null/x", 0, 2, impatient()), base::UsageError);
}

// Whatever strangers send to the port, the ranks come together.
BOOST_AUTO_TEST_CASE(strangers_do_no_harm) {
  const Place place(true);
  std::string huge = "MTR1";
  for (const uint32_t word : {uint32_t{'H'}, uint32_t{0}, 0xFFFFFFFFU}) wire::put_u32(huge, word);
  std::string short_hello = "MTR1";
  for (const uint32_t word : {uint32_t{'H'}, 0U, 2U}) wire::put_u32(short_hello, word);
  short_hello += "ab";
  std::string meddler = "MTR1";
  for (const uint32_t word : {uint32_t{'F'}, 0U, 4U}) wire::put_u32(meddler, word);
  meddler += "stop";
  std::vector<Socket> strangers;
  std::thread root_thread;
  std::vector<std::string> errors(1);
  root_thread = std::thread([&] {
    errors = run_threads(1, [&](int) { meet_in_every_way(*place.join(0, 3, {"run"})); });
  });
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\0'), std::string("MT"), huge,
        short_hello, meddler, std::string(), std::string("MTR2aaaaaaaaaaaaaaaa")}) {
    strangers.push_back(send_raw(place.port, bytes));
    BOOST_TEST(strangers.back().is_open());
  }
  strangers[0].reset();
  strangers[2].reset();
  const auto others =
      run_threads(2, [&](int rank) { meet_in_every_way(*place.join(rank + 1, 3, {"run"})); });
  root_thread.join();
  BOOST_TEST(errors[0] == "");
  for (const std::string& error : others) BOOST_TEST(error == "");
}

// Another program has the port that the ranks look for rank 0 at.
BOOST_AUTO_TEST_CASE(somebody_else_at_the_port) {
  const int port = testing::free_port();
  const Socket listener = listen_on("127.0.0.1", port);
  BOOST_CHECK_EXCEPTION(join_by_tcp("127.0.0.1", port, 0, 2, impatient()), base::UsageError,
                        [&](const base::UsageError& error) {
                          return contains(error.what(), "port " + std::to_string(port)) &&
                                 contains(error.what(), "is in use; set MASTER_PORT");
                        });
  std::atomic<bool> is_over = false;
  std::vector<Socket> visitors;
  std::thread chatter([&] {
    while (!is_over) {
      if (std::optional<Socket> visitor = accept_from(listener)) {
        (void)::send(visitor->fd(), "220 hello\r\n", 11, MSG_NOSIGNAL);
        visitors.push_back(std::move(*visitor));
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  BOOST_CHECK_EXCEPTION(join_by_tcp("127.0.0.1", port, 1, 2, impatient()), base::Error,
                        [](const base::Error& error) {
                          return contains(error.what(), "no message of this protocol");
                        });
  is_over = true;
  chatter.join();
  // And one that says nothing at all.
  BOOST_CHECK_EXCEPTION(
      join_by_tcp("127.0.0.1", port, 1, 2, impatient()), base::Error,
      [](const base::Error& error) { return contains(error.what(), "answers nothing"); });
}

BOOST_AUTO_TEST_CASE(names_that_do_not_resolve) {
  BOOST_CHECK_EXCEPTION(
      join_by_tcp("no such host", 29500, 1, 2, impatient()), base::UsageError,
      [](const base::UsageError& error) { return contains(error.what(), "'no such host'"); });
}

BOOST_AUTO_TEST_CASE(any_name_of_this_machine) {
  for (const char* host : {"localhost", "127.0.0.1", "0.0.0.0"}) {
    const int port = testing::free_port();
    const auto errors = run_threads(
        2, [&](int rank) { meet_in_every_way(*join_by_tcp(host, port, rank, 2, {"run"})); });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_DATA_TEST_CASE(large_blobs_are_refused, kWays, uses_tcp) {
  const Place place(uses_tcp);
  const auto errors = run_threads(2, [&](int rank) {
    const auto world = place.join(rank, 2);
    const std::string most(Rendezvous::kMaxBlobBytes, 'x');
    for (const std::string& blob : world->gather(most)) {
      if (blob != most) throw base::Error("a large blob");
    }
    const std::string refusal = message_of([&] { world->gather(most + "y"); });
    if (!contains(refusal, "65537 bytes")) throw base::Error("not refused");
    world->barrier();
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(launchers_choose_the_way) {
  tests::TempFolder folder;
  LaunchEnv launch;
  BOOST_TEST(join_launch(launch, 1, folder.file("x"))->size() == 1);
  BOOST_CHECK_EXCEPTION(join_launch(launch, 4, folder.file("x")), base::UsageError,
                        [](const base::UsageError& error) {
                          return contains(error.what(),
                                          "1 processes were started (by none) where "
                                          "the layout needs 4");
                        });
  LaunchEnv outside;
  outside.launcher = Launcher::pmix;
  outside.world_size = 0;
  outside.rank = 4;
  BOOST_CHECK_THROW(join_launch(outside, 4, folder.file("x")), base::UsageError);
  for (const bool has_address : {false, true}) {
    const int port = testing::free_port();
    const auto errors = run_threads(2, [&](int rank) {
      LaunchEnv env;
      env.launcher = has_address ? Launcher::torchrun : Launcher::pmix;
      env.rank = rank;
      env.world_size = has_address ? 2 : 0;
      env.run_id = "r";
      if (has_address) env.master_addr = "127.0.0.1";
      env.master_port = port;
      meet_in_every_way(*join_launch(env, 2, folder.file("meet")));
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_AUTO_TEST_CASE(wire_lengths_are_checked) {
  std::string bytes;
  wire::put_u32(bytes, 7);
  wire::put_u64(bytes, 0x0123456789ABCDEFU);
  bytes += "rest";
  wire::Parser parser(bytes);
  BOOST_TEST(parser.u32() == 7U);
  BOOST_TEST(parser.u64() == 0x0123456789ABCDEFU);
  BOOST_CHECK_THROW(parser.finish(), base::Error);
  BOOST_CHECK_THROW(parser.bytes(5), base::Error);
  BOOST_CHECK_THROW(parser.u64(), base::Error);
  BOOST_TEST(parser.bytes(4) == "rest");
  parser.finish();
  BOOST_TEST(wire::list_of({3}) == "3");
  BOOST_TEST(wire::list_of({1, 2, 3}) == "1, 2 and 3");
  BOOST_TEST(wire::list_of(std::vector<int>(13, 5)) == "5, 5, 5, 5, 5, 5, 5, 5, 5, 5 and 3 more");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
