// Copies that the host waits for: values that a program reads, input that is late, and offloading.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
using tests::EventText;

BOOST_AUTO_TEST_SUITE(copy_waits)

namespace {

ImportedWall verdict_of(const EventText& events) {
  const ImportedTrace trace = events.read();
  return classify_imported(std::span(&trace, 1));
}

/// A step of 12 layers, four kernels of 250 us each. Behind the kernels of a layer something is
/// copied that the host waits for, and then it works for 400 us: the device has run empty.
ImportedWall of_fetching(const char* name, double copy_us, int64_t bytes, int64_t other_bytes) {
  EventText events;
  int id = 0;
  double host_us = 0;
  double device_us = 0;
  const auto copy = [&](const char* what, double length_us, int64_t size) {
    ++id;
    device_us = std::max(device_us, host_us + 7);
    events.call(host_us, 6, id, "cudaMemcpyAsync").copy(device_us, length_us, id, what, 7, size);
    device_us += length_us;
    host_us += 6;
  };
  if (other_bytes > 0) copy("Memcpy HtoD (Pinned -> Device)", 8, other_bytes);
  for (int layer = 0; layer < 12; ++layer) {
    for (int i = 0; i < 4; ++i) {
      ++id;
      device_us = std::max(device_us, host_us + 6);
      events.call(host_us, 5, id).kernel(device_us, 250, id);
      device_us += 250;
      host_us += 10;
    }
    copy(name, copy_us, bytes);
    events.call(host_us, device_us + 5 - host_us, ++id, "cudaStreamSynchronize");
    host_us = device_us + 5 + 400;
  }
  events.range(0, host_us, "ProfilerStep#1");
  return verdict_of(events);
}

/// 12 layers of eight kernels, launched every `launch_us`. Behind the last one the host reads a
/// number by a call that returns with the copy, and goes on 100 us later.
ImportedWall of_reading_numbers(const char* call, double kernel_us, double launch_us) {
  EventText events;
  int id = 0;
  double host_us = 0;
  double device_us = 0;
  for (int layer = 0; layer < 12; ++layer) {
    for (int i = 0; i < 8; ++i) {
      ++id;
      device_us = std::max(device_us, host_us + 6);
      events.call(host_us, 5, id).kernel(device_us, kernel_us, id);
      device_us += kernel_us;
      host_us += launch_us;
    }
    ++id;
    const double begun_us = std::max(device_us + 2, host_us + 7);
    device_us = begun_us + 2;
    events.copy(begun_us, 2, id, "Memcpy DtoH (Device -> Pageable)", 7, 8);
    events.call(host_us, device_us + 3 - host_us, id, call);
    host_us = device_us + 4;
    events.call(host_us, 20, ++id, "cudaStreamSynchronize");
    host_us += 120;
  }
  events.range(0, host_us, "ProfilerStep#1");
  return verdict_of(events);
}

}  // namespace

// Of a tensor's number, as .item() reads it, the wait is in the call that copies, however it is
// called, and next to nothing is left for the synchronisation behind it.
BOOST_AUTO_TEST_CASE(a_call_that_returns_with_its_copy_is_a_synchronisation) {
  for (const char* call : {"cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyWithStream", "hipMemcpy"}) {
    const ImportedWall wall = of_reading_numbers(call, 50, 8);
    BOOST_TEST_CONTEXT(call << ": " << wall.summary) {
      BOOST_TEST(name_of(wall.label) == "host");
      BOOST_TEST(wall.sub_cause == "sync");
      // Of 532 us of each layer 400 are kernels'.
      BOOST_TEST(std::abs(wall.sub_ceilings[static_cast<size_t>(SubCause::sync)] - 0.24) < 0.03);
    }
    // A launch every 60 us for kernels of 30: the device is idle with or without the copies.
    const ImportedWall idle = of_reading_numbers(call, 30, 60);
    BOOST_TEST_CONTEXT(call << ": " << idle.summary) {
      BOOST_TEST(name_of(idle.label) == "host");
      BOOST_TEST(idle.sub_cause == "launch");
    }
  }
}

// A copy of a large file that is not in memory yet: the call reads it first, and the device waits
// for that. This is the host's own time.
BOOST_AUTO_TEST_CASE(a_call_that_is_long_before_its_copy_on_an_idle_device_is_no_synchronisation) {
  EventText events;
  double host_us = 0;
  int id = 0;
  for (int batch = 0; batch < 40; ++batch) {
    ++id;
    events.call(host_us, 800, id, "cudaMemcpyAsync")
        .copy(host_us + 750, 50, id, "Memcpy HtoD (Pageable -> Device)", 7, 1 << 20);
    ++id;
    events.call(host_us + 805, 5, id).kernel(host_us + 811, 1000, id);
    events.call(host_us + 812, 1001, ++id, "cudaDeviceSynchronize");
    host_us += 1815;
  }
  events.range(0, host_us, "ProfilerStep#1");
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  BOOST_TEST(wall.unknown_ratio < 0.05, wall.summary);
  BOOST_TEST(wall.sub_ceilings[static_cast<size_t>(SubCause::launch)] > 0.3, wall.summary);
}

// What a program reads to go on, as MoE's splits are, is no offloading, whatever else is copied,
// and numbers that it writes are no late input.
BOOST_AUTO_TEST_CASE(small_copies_that_are_waited_for_are_synchronisations) {
  for (const int64_t tokens : {0, 131072}) {
    const ImportedWall read = of_fetching("Memcpy DtoH (Device -> Pageable)", 2, 1024, tokens);
    BOOST_TEST(name_of(read.label) == "host", read.summary);
    BOOST_TEST(read.sub_cause == "sync", read.summary);
    BOOST_TEST(read.sub_ceilings[static_cast<size_t>(SubCause::offload)] == 0);
  }
  const ImportedWall written = of_fetching("Memcpy HtoD (Pageable -> Device)", 2, 1024, 0);
  BOOST_TEST(written.sub_cause == "sync", written.summary);
  // A large one that took little of the wait: that was for the kernels before it.
  const ImportedWall input = of_fetching("Memcpy HtoD (Pinned -> Device)", 20, 1 << 20, 0);
  BOOST_TEST(input.sub_cause == "sync", input.summary);
}

// Tensors that go to the host and come back are offloaded: without that nobody waits for them.
BOOST_AUTO_TEST_CASE(large_copies_that_are_waited_for_are_offloading) {
  EventText events;
  int id = 0;
  double at_us = 0;
  for (int layer = 0; layer < 20; ++layer) {
    const bool is_forward = layer < 10;
    ++id;
    events.call(at_us, 5, id).kernel(at_us + 6, 100, id);
    ++id;
    events.call(at_us + 5, 5, id, "cudaMemcpyAsync")
        .copy(at_us + 106, 200, id,
              is_forward ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy HtoD (Pinned -> Device)", 7,
              10 << 20);
    events.call(at_us + 10, 300, ++id, "cudaStreamSynchronize");
    at_us += 330;
  }
  events.range(0, at_us, "ProfilerStep#1");
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "memory", wall.summary);
  BOOST_TEST(wall.sub_cause == "offload", wall.summary);
  // Copies of 200 us of each 330, and waits that keep the host from launching ahead.
  BOOST_TEST(wall.sub_ceilings[static_cast<size_t>(SubCause::offload)] > 0.6);
}

// A tensor that goes to the host is never input, and a number that the program reads is neither.
// What comes from the host is still input, whatever goes there.
BOOST_AUTO_TEST_CASE(tensors_that_only_go_to_the_host_are_offloading_and_no_input) {
  const auto of_layers = [](double out_us, double in_us, int64_t bytes) {
    EventText events;
    int id = 0;
    double host_us = 0;
    double device_us = 8;
    const auto copy = [&](const char* what, double length_us) {
      ++id;
      events.call(host_us, 3, id, "cudaMemcpyAsync").copy(device_us, length_us, id, what, 7, bytes);
      host_us += 5;
      device_us += length_us;
    };
    for (int layer = 0; layer < 30; ++layer) {
      ++id;
      events.call(host_us, 3, id).kernel(device_us, 100, id);
      host_us += 5;
      device_us += 100;
      copy("Memcpy DtoH (Device -> Pinned)", out_us);
      if (in_us > 0) copy("Memcpy HtoD (Pinned -> Device)", in_us);
    }
    events.range(0, device_us, "ProfilerStep#1");
    return verdict_of(events);
  };
  const auto ceiling = [](const ImportedWall& wall, SubCause cause) {
    return wall.sub_ceilings[static_cast<size_t>(cause)];
  };
  const auto is_told = [](const ImportedWall& wall) {
    return std::ranges::any_of(
        wall.evidence, [](const Evidence& evidence) { return evidence.name == "offload_one_way"; });
  };
  const ImportedWall out = of_layers(100, 0, 10 << 20);
  BOOST_TEST(name_of(out.label) == "memory", out.summary);
  BOOST_TEST(out.sub_cause == "offload", out.summary);
  BOOST_TEST(out.shares[static_cast<size_t>(Wall::memory)] > 0.45);
  BOOST_TEST(ceiling(out, SubCause::offload) > 0.45);
  BOOST_TEST(ceiling(out, SubCause::loader) == 0);
  BOOST_TEST(out.is_offload_one_way);
  BOOST_TEST(is_told(out));

  const ImportedWall with_input = of_layers(100, 20, 10 << 20);
  BOOST_TEST(with_input.sub_cause == "offload", with_input.summary);
  BOOST_TEST(std::abs(ceiling(with_input, SubCause::loader) - 20.0 / 220) < 0.02);

  const ImportedWall both = of_layers(60, 50, 10 << 20);
  BOOST_TEST(both.sub_cause == "offload", both.summary);
  BOOST_TEST(!both.is_offload_one_way);
  BOOST_TEST(!is_told(both));

  const ImportedWall numbers = of_layers(100, 0, 8);
  BOOST_TEST(ceiling(numbers, SubCause::offload) == 0, numbers.summary);
  BOOST_TEST(ceiling(numbers, SubCause::loader) == 0, numbers.summary);
  BOOST_TEST(numbers.sub_cause == "sync", numbers.summary);
}

// A checkpoint goes to the host in few steps, and the host waits for it. Offloading is of each
// step.
BOOST_AUTO_TEST_CASE(what_goes_to_the_host_now_and_then_is_no_offloading) {
  const auto of_steps = [](int every) {
    EventText events;
    int id = 0;
    double at_us = 0;
    for (int step = 0; step < 6; ++step) {
      const double begun_us = at_us;
      for (int layer = 0; layer < 8; ++layer) {
        ++id;
        events.call(at_us, 5, id).kernel(at_us + 6, 100, id);
        at_us += 104;
      }
      if (step % every == 0) {
        ++id;
        events.call(at_us, 1500, id, "cudaMemcpyAsync")
            .copy(at_us + 10, 1480, id, "Memcpy DtoH (Device -> Pageable)", 7, 40 << 20);
        at_us += 1500;
      }
      events.range(begun_us, at_us - begun_us, "ProfilerStep#" + std::to_string(step));
    }
    return verdict_of(events);
  };
  const auto share = [](const ImportedWall& wall, Wall label) {
    return wall.shares[static_cast<size_t>(label)];
  };
  const ImportedWall steady = of_steps(1);
  BOOST_TEST(steady.sub_cause == "offload", steady.summary);
  const ImportedWall rare = of_steps(3);
  BOOST_TEST(rare.sub_cause != "offload", rare.summary);
  BOOST_TEST(rare.sub_ceilings[static_cast<size_t>(SubCause::offload)] == 0, rare.summary);
  BOOST_TEST(share(rare, Wall::memory) == 0);
  BOOST_TEST(share(rare, Wall::host) > 0.3);
}

// A rank that sends tensors to its host keeps the others waiting: that is memory on all of them.
BOOST_AUTO_TEST_CASE(a_rank_that_waits_for_one_that_offloads_waits_for_memory) {
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    EventText events;
    int id = 0;
    double host_us = 0;
    double device_us = 8;
    for (int layer = 0; layer < 20; ++layer) {
      ++id;
      events.call(host_us, 3, id).kernel(device_us, 200, id);
      const double other_us = device_us + 200;
      device_us += 200;
      ++id;
      if (rank == 1) {
        events.call(host_us + 5, 3, id, "cudaMemcpyAsync")
            .copy(device_us, 200, id, "Memcpy DtoH (Device -> Pinned)", 7, 10 << 20);
      }
      device_us += 200;
      ++id;
      const double came_us = rank == 1 ? device_us : other_us;
      events.call(host_us + 10, 3, id)
          .kernel(came_us, device_us + 20 - came_us, id,
                  "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 7);
      host_us += 15;
      device_us += 20;
    }
    events.range(0, device_us, "ProfilerStep#1");
    traces.push_back(events.read(R"(, "distributedInfo": {"world_size": 2, "rank": )" +
                                 std::to_string(rank) + "}"));
  }
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "memory", wall.summary);
  BOOST_TEST(wall.sub_cause == "offload", wall.summary);
  // 200 of 420 us on either rank.
  BOOST_TEST(std::abs(wall.shares[static_cast<size_t>(Wall::memory)] - 200.0 / 420) < 0.03);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
