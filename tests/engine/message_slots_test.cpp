// Messages between pipeline stages: as many as the schedule can use have memory, two to a peer and
// direction here; a third waits until one has been read.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/comm/thread_world.h"
#include "kernels/base/error.h"
#include "tests/engine/memory_fixture.h"
#include "tests/engine/played_fixture.h"
#include "tests/engine/recorded_layouts.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(message_slots)

namespace {

BOOST_AUTO_TEST_CASE(a_full_slot_makes_the_sender_wait) {
  spec::HardwareSpec hardware;
  hardware.devices_per_node = 2;
  hardware.intra_node = {10, 1e9};
  plan::Layout layout;
  layout.pp = 2;
  constexpr int kMessages = 4;
  constexpr int64_t kBytes = 90;  // 100 ns
  ThreadWorld world(hardware, layout, profiler::ClockMode::virtual_modelled, 2);
  const auto backend = kernels::make_cpu_backend();
  std::vector<CommTiming> sent;
  std::vector<CommTiming> read;
  std::vector<std::vector<char>> received;
  std::thread sender([&] {
    const auto comm = world.communicator(plan::Group::pp, 0, *backend);
    std::vector<char> slots(2 * kBytes);
    for (int i = 0; i < kMessages; ++i) {
      const std::vector<char> data(kBytes, static_cast<char>(i));
      sent.push_back(comm->send(1, 0, data.data(), kBytes, {slots.data(), 2}, int64_t{0}));
    }
    static_cast<void>(world.join_max(0));
  });
  const auto other = kernels::make_cpu_backend();
  const auto comm = world.communicator(plan::Group::pp, 1, *other);
  for (int i = 0; i < kMessages; ++i) {
    std::vector<char> data(kBytes);
    read.push_back(comm->recv(0, 0, data.data(), kBytes, 1000 * (i + 1)));
    received.push_back(data);
  }
  static_cast<void>(world.join_max(0));
  sender.join();
  for (int i = 0; i < kMessages; ++i) {
    BOOST_TEST(received[static_cast<size_t>(i)] == std::vector<char>(kBytes, static_cast<char>(i)),
               boost::test_tools::per_element());
    // The third begins when the first has been read, at 1000.
    BOOST_TEST(sent[static_cast<size_t>(i)].end_ns == (i < 2 ? 100 : 1000 * (i - 1) + 100));
    BOOST_TEST(read[static_cast<size_t>(i)].end_ns == 1000 * (i + 1));
  }
}

/// The first stage has only the embedding and runs ahead of the second, which reads a message when
/// its host has come to it: three layers later.
spec::TrialSpec hurried_trial() {
  const spec::ModelSpec model = testing::with_layers(testing::tiny_model(), 6);
  spec::TrialSpec trial =
      testing::tiny_trial(model, testing::knobs_of(R"({"pipeline_model_parallel_size": 5,
                                   "pipeline_model_parallel_layout": "E|ttt|t|t|tL"})"));
  trial.training.global_batch_size = 8;
  return trial;
}

BOOST_AUTO_TEST_CASE(compute_behind_a_message_without_a_slot_starts_late) {
  const testing::TrainingRun run = testing::train(hurried_trial(), 1);
  std::vector<profiler::TraceRecord> sends;
  std::vector<profiler::TraceRecord> embeds;
  for (const profiler::TraceRecord& record : run.traces.front().records) {
    if (record.name == std::string("pp_send.forward")) sends.push_back(record);
    if (record.name == std::string("embed.forward")) embeds.push_back(record);
  }
  BOOST_TEST_REQUIRE(embeds.size() == 8U);
  BOOST_TEST_REQUIRE(sends.size() == 8U);
  // Four warm-up forwards, and one more before the first backward. The first message is read at
  // once, the second when the first has been worked on.
  constexpr size_t kLate = 3;
  const profiler::TraceRecord& late = sends[kLate];
  const int64_t slot_ns = late.end_ns - late.transfer_ns;
  BOOST_TEST(slot_ns > late.start_ns + 10'000);
  BOOST_TEST(embeds[kLate + 1].start_ns == slot_ns);
  BOOST_TEST(embeds[kLate + 1].producer_id == late.id);
  // Where there are slots nothing waits.
  BOOST_TEST(sends[1].end_ns - sends[1].transfer_ns == sends[1].start_ns);
  BOOST_TEST(embeds[2].producer_id == profiler::kNoRecord);
}

BOOST_AUTO_TEST_CASE(played_senders_wait_as_those_of_the_engine) {
  testing::check_played(hurried_trial());
}

// A sender that ends early does not leave its receiver with memory that is gone.
BOOST_AUTO_TEST_CASE(a_failing_sender_takes_its_messages_along) {
  plan::Layout layout;
  layout.pp = 2;
  spec::HardwareSpec hardware;
  hardware.devices_per_node = 2;
  ThreadWorld world(hardware, layout, profiler::ClockMode::virtual_modelled, 2);
  const auto backend = kernels::make_cpu_backend();
  const auto receiver = world.communicator(plan::Group::pp, 1, *backend);
  {
    const auto comm = world.communicator(plan::Group::pp, 0, *backend);
    std::vector<char> slots(2);
    char byte = 1;
    comm->send(1, 0, &byte, 1, {slots.data(), 2}, int64_t{0});
  }
  world.abort("on purpose");
  char byte = 0;
  BOOST_CHECK_THROW(receiver->recv(0, 0, &byte, 1, int64_t{0}), base::PeerFailed);
}

BOOST_AUTO_TEST_CASE(slots_are_there_from_the_start) {
  const auto bytes_of = [](const char* knobs, size_t rank) {
    const auto trial = testing::tiny_trial(testing::tiny_model(), testing::knobs_of(knobs));
    return testing::train(trial, 1)
        .ledgers[rank]
        .peak_by_group()[static_cast<size_t>(profiler::MemoryGroup::communication)];
  };
  // 16 tokens of 16 floats, twice; to the next stage, and back.
  constexpr int64_t kMessage = 16 * 16 * 4;
  const int64_t without = bytes_of("{}", 0);
  const char* three = R"({"pipeline_model_parallel_size": 3})";
  BOOST_TEST(bytes_of(three, 0) == without + 2 * kMessage);
  BOOST_TEST(bytes_of(three, 1) == without + 4 * kMessage);
  BOOST_TEST(bytes_of(three, 2) == without + 2 * kMessage);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
