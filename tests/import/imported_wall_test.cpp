// The verdict on imported traces: the judged real ones, and small ones with one cause each.
#include "profiler/analysis/imported_wall.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "kernels/base/error.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/import/trace_files.h"
#include "tests/import/shared_traces.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(imported_walls)

namespace {

using nlohmann::json;
using tests::EventText;
using tests::Random;
using tests::says;

ImportedWall verdict_of(const EventText& events) {
  const ImportedTrace trace = events.read();
  return classify_imported(std::span(&trace, 1));
}
std::string label_of(const EventText& events) { return name_of(verdict_of(events).label); }

void check_judged(const std::string& folder, const json& expected, int& num_judged) {
  for (const auto& [name, entry] : expected.at("traces").items()) {
    const std::string format = entry.at("format");
    const auto is_format = [&](const TraceFileFormat& row) { return row.name == format; };
    if (std::ranges::none_of(trace_file_formats(), is_format)) continue;
    const std::vector<ImportedTrace> traces = read_trace_file(folder + "/" + name);
    const ImportedWall wall = classify_imported(traces);
    const std::string label = name_of(wall.label);
    const json& judgement = entry.at("judgement");
    const auto holds = [&](const char* key) {
      const std::set<std::string> labels = judgement.at(key);
      return labels.contains(label);
    };
    BOOST_TEST_CONTEXT(name << ": " << wall.summary) {
      BOOST_TEST(holds("accept"));
      BOOST_TEST(!holds("never"));
      double sum = 0;
      for (const double share : wall.shares) sum += share;
      BOOST_TEST(std::abs(sum - 1) < 1e-9);
    }
    ++num_judged;
  }
}

/// A step's worth of kernels one behind the other, enqueued long before they run.
EventText busy(int num_kernels, double kernel_us) {
  EventText events;
  for (int i = 0; i < num_kernels; ++i) {
    events.call(i, 1, i + 1).kernel(10'000 + i * (kernel_us + 1), kernel_us, i + 1);
  }
  return events;
}

}  // namespace

BOOST_AUTO_TEST_CASE(judged_traces_get_an_accepted_label) {
  int num_judged = 0;
  const std::string golden = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/traces";
  check_judged(golden, tests::expected_of(golden), num_judged);
  BOOST_TEST(num_judged == 2);
  const std::string shared = tests::shared_traces();
  if (shared.empty()) {
    BOOST_TEST_MESSAGE("skipped: there is no folder shared/traces beside the checkout");
    return;
  }
  check_judged(shared, tests::expected_of(shared), num_judged);
  BOOST_TEST(num_judged >= 11);
}

BOOST_AUTO_TEST_CASE(a_device_that_always_computes_is_compute) {
  BOOST_TEST(label_of(busy(50, 100)) == "compute");
}

BOOST_AUTO_TEST_CASE(work_that_is_launched_late_is_host) {
  EventText events;
  for (int i = 0; i < 50; ++i) events.call(100 * i, 10, i + 1).kernel(100 * i + 12, 30, i + 1);
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "host");
  BOOST_TEST(wall.sub_cause == "launch");
  // Of 100 us the kernel runs 30: what without the host would be left. In 2 the launch reaches the
  // device.
  BOOST_TEST(std::abs(wall.share_ratio - 0.70) < 0.01);
  const double host_ratio = wall.shares[static_cast<size_t>(Wall::host)];
  BOOST_TEST(std::abs(host_ratio - 0.70) < 0.01);
}

// A launch every 6 us, a kernel of 3 us, and 6.5 us until a launch has reached the device: when a
// launch returns, the kernel before it has not even begun.
BOOST_AUTO_TEST_CASE(launches_that_take_long_to_reach_the_device_are_host) {
  EventText slow;
  EventText full;
  for (int step = 0; step < 6; ++step) {
    const double start = 3000 * step;
    for (EventText* events : {&slow, &full}) {
      events->range(start, 2990, "ProfilerStep#" + std::to_string(step));
    }
    for (int i = 0; i < 300; ++i) {
      const int id = 1000 * step + i + 1;
      slow.call(start + 6 * i, 4, id).kernel(start + 6 * i + 10.5, 3, id);
      // Launched as fast, on a device that has work enqueued and takes 2 us from one to the next.
      full.call(start + 6 * i, 4, id).kernel(start + 10.5 + 9.5 * i, 7.5, id);
    }
  }
  const ImportedWall wall = verdict_of(slow);
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  BOOST_TEST(wall.sub_cause == "launch");
  // Of a step of 3 ms kernels take 0.9.
  BOOST_TEST(wall.share_ratio > 0.45, wall.summary);
  BOOST_TEST(wall.shares[static_cast<size_t>(Wall::compute)] < 0.4);
  const ImportedWall busy = verdict_of(full);
  BOOST_TEST(name_of(busy.label) == "compute", busy.summary);
}

// One step of 4 ms: the host prepares input for 2.2 ms, then launches far ahead of the device,
// which is idle meanwhile and for the last 115 us, too.
EventText late_first_launch() {
  EventText events;
  events.range(0, 4000, "ProfilerStep#6");
  for (int i = 0; i < 40; ++i) {
    events.call(2200 + 2 * i, 1, i + 1).kernel(2206 + 42 * i, 41, i + 1);
  }
  return events;
}

BOOST_AUTO_TEST_CASE(what_the_host_does_before_its_first_launch_counts) {
  const ImportedWall wall = verdict_of(late_first_launch());
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  // Until the first launch has reached the device 2,206 us, behind the last kernel 115.
  const double host_ratio = wall.shares[static_cast<size_t>(Wall::host)];
  BOOST_TEST(std::abs(host_ratio - 2321.0 / 4000) < 0.001);
  // 40 kernels of 41 us are left of the step.
  BOOST_TEST(std::abs(wall.share_ratio - 0.58) < 0.02);
}

BOOST_AUTO_TEST_CASE(what_the_late_host_did_is_the_sub_cause) {
  const auto sub_cause = [](const char* call, const char* range) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(100 * i, 10, i + 1).kernel(100 * i + 12, 30, i + 1);
      if (call != nullptr) events.call(100 * i + 45, 50, 0, call);
      if (range != nullptr) events.range(100 * i + 45, 50, range);
    }
    return verdict_of(events).sub_cause;
  };
  BOOST_TEST(sub_cause(nullptr, nullptr) == "launch");
  BOOST_TEST(sub_cause("cudaMalloc", nullptr) == "allocator");
  BOOST_TEST(sub_cause("cudaEventQuery", nullptr) == "launch");
  BOOST_TEST(sub_cause(nullptr, "enumerate(DataLoader)#_SingleProcess.__next__") == "loader");
}

// A long gap is a stall only where nothing shows that the host was in its program.
BOOST_AUTO_TEST_CASE(a_long_gap_in_a_range_of_the_program_is_launch) {
  const auto has = [](const ImportedWall& wall, const char* name) {
    return std::ranges::any_of(wall.evidence,
                               [&](const Evidence& one) { return one.name == name; });
  };
  const ImportedWall unseen = verdict_of(late_first_launch());
  BOOST_TEST(unseen.sub_cause == "loader", unseen.summary);
  BOOST_TEST(has(unseen, "host_stall_ratio"));
  // That it is loading is no more than the usual cause.
  const auto unrecorded =
      std::ranges::find(unseen.evidence, "unrecorded_stalls_ratio", &Evidence::name);
  BOOST_TEST_REQUIRE((unrecorded != unseen.evidence.end()));
  BOOST_TEST(unrecorded->value == 1.0);
  BOOST_TEST(unrecorded->text.ends_with(
                 "record with_stack=True, or a record_function range around each of these"),
             unrecorded->text);
  const ImportedWall seen = verdict_of(late_first_launch().range(10, 3900, "denoise"));
  BOOST_TEST(name_of(seen.label) == "host");
  BOOST_TEST(seen.sub_cause == "launch", seen.summary);
  BOOST_TEST(!has(seen, "host_stall_ratio"));
  const ImportedWall loads =
      verdict_of(late_first_launch().range(10, 2100, "enumerate(DataLoader)#_Iter.__next__"));
  BOOST_TEST(loads.sub_cause == "loader", loads.summary);
  BOOST_TEST(has(loads, "host_loader_ratio"));
  BOOST_TEST(!has(loads, "unrecorded_stalls_ratio"));
}

// The host waits for each kernel before it goes on: without that the device would never be idle.
BOOST_AUTO_TEST_CASE(waiting_for_the_device_in_each_step_is_sync) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(100 * i, 10, i + 1)
        .kernel(100 * i + 12, 70, i + 1)
        .call(100 * i + 11, 73, 0, "cudaStreamSynchronize");
  }
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "host");
  BOOST_TEST(wall.sub_cause == "sync");
  BOOST_TEST(std::abs(wall.share_ratio - 0.30) < 0.01);
}

BOOST_AUTO_TEST_CASE(a_collective_that_compute_waits_for_is_communication) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(10'060 + 100 * i, 39, 2 * i + 2, "ncclDevKernel_AllReduce(x)", 20);
  }
  const ImportedTrace trace = events.read(R"(, "distributedInfo": {"rank": 0, "world_size": 1})");
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "communication");
  BOOST_TEST(wall.sub_cause == "transfer");
  BOOST_TEST(std::abs(wall.share_ratio - 0.39) < 0.01);
  // Where nobody says how many ranks there are, the other ones may be what it waits for.
  const ImportedWall unsure = verdict_of(events);
  BOOST_TEST(name_of(unsure.label) == "communication");
  BOOST_TEST(unsure.sub_cause.empty());
  BOOST_TEST(unsure.summary.starts_with(
                 "communication (transfer, or waiting for a rank without a trace): without it"),
             unsure.summary);
  BOOST_TEST(std::ranges::count(unsure.evidence, "ranks_unknown", &Evidence::name) == 1);
  BOOST_TEST(std::abs(unsure.share_ratio - 0.39) < 0.01);
}

// Of a library that no table knows, or with a prefix in its name.
BOOST_AUTO_TEST_CASE(what_the_file_calls_a_collective_is_communication) {
  const auto label = [](const std::string& more) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
      events.call(i + 0.5, 0.2, 2 * i + 2)
          .kernel(10'060 + 100 * i, 39, 2 * i + 2, "mcclKernel_AllReduce_RING", 20, more);
    }
    return label_of(events);
  };
  BOOST_TEST(label("") == "compute");
  BOOST_TEST(label(R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float")") ==
             "communication");
}

// The compute beside a running collective starts as soon as it is launched: it did not wait.
BOOST_AUTO_TEST_CASE(launching_late_under_a_running_collective_is_host) {
  EventText late;
  EventText waiting;
  for (int i = 0; i < 50; ++i) {
    const double start = 1000 * i;
    for (EventText* events : {&late, &waiting}) {
      events->call(start, 5, 2 * i + 1)
          .kernel(start + 10, 800, 2 * i + 1, "ncclDevKernel_AllReduce(x)", 20);
    }
    late.call(start + 500, 5, 2 * i + 2).kernel(start + 507, 480, 2 * i + 2);
    // The same, but it starts when the collective ends, and the host waits for it.
    waiting.call(start + 500, 5, 2 * i + 2)
        .kernel(start + 812, 180, 2 * i + 2)
        .call(start + 506, 488, 0, "cudaDeviceSynchronize");
  }
  BOOST_TEST(label_of(late) == "host");
  BOOST_TEST(label_of(waiting) == "communication");
}

BOOST_AUTO_TEST_CASE(time_that_nothing_explains_is_unknown) {
  EventText events;
  // Enqueued long before, and started late.
  for (int i = 0; i < 50; ++i) events.call(i, 1, i + 1).kernel(10'000 + 1000 * i, 300, i + 1);
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "unknown");
  BOOST_TEST(wall.sub_cause == "unexplained");
  BOOST_TEST(wall.unknown_ratio > 0.6);
  BOOST_TEST(wall.summary.ends_with("no device work ran; no wall shows"), wall.summary);
  EventText without_calls;
  for (int i = 0; i < 50; ++i) without_calls.kernel(1000 * i, 300, 0);
  BOOST_TEST(label_of(without_calls) == "unknown");
}

BOOST_AUTO_TEST_CASE(work_before_its_launch_shows_that_clocks_differ) {
  EventText events;
  for (int i = 0; i < 50; ++i) events.call(1000 * i + 50, 1, i + 1).kernel(1000 * i, 900, i + 1);
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "unknown");
  BOOST_TEST(wall.sub_cause == "clocks");
  BOOST_TEST(wall.summary.find("50 of 50 operations") != std::string::npos, wall.summary);
}

BOOST_AUTO_TEST_CASE(without_a_verdict_it_is_told_what_to_record) {
  const auto advice = [](const EventText& events, const std::string& more) {
    const ImportedTrace trace = events.read(more);
    const ImportedWall wall = classify_imported(std::span(&trace, 1));
    for (const Evidence& one : wall.evidence) {
      if (one.name == "to_record") return one.text;
    }
    return std::string();
  };
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, i + 1).kernel(10'000 + 1000 * i, 300, i + 1, "gemm", 7 + i % 2);
  }
  const std::string all = advice(events, R"(, "distributedInfo": {"rank": 3, "world_size": 8})");
  BOOST_TEST(all.find("the other ranks, too (given are 1 of 8)") != std::string::npos, all);
  BOOST_TEST(all.find("enable_cuda_sync_events=True") != std::string::npos, all);
  BOOST_TEST(all.find("profiler.step()") != std::string::npos, all);
  BOOST_TEST(all.find("calls") == std::string::npos, all);
  EventText without_calls;
  for (int i = 0; i < 50; ++i) without_calls.kernel(1000 * i, 300, 0);
  const std::string calls = advice(without_calls, "");
  BOOST_TEST(calls.find("the host's calls") != std::string::npos, calls);
  BOOST_TEST(calls.find("other ranks") == std::string::npos, calls);
  BOOST_TEST(advice(busy(31, 1000), "").find("at least 32 operations") != std::string::npos);
  BOOST_TEST(advice(busy(50, 100), "").empty());
}

BOOST_AUTO_TEST_CASE(kernels_without_names_have_no_verdict) {
  const auto wall = [](int num_unnamed) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(i, 1, i + 1).kernel(10'000 + 101 * i, 100, i + 1, i < num_unnamed ? "" : "gemm");
    }
    return verdict_of(events);
  };
  BOOST_TEST(name_of(wall(4).label) == "compute");
  const ImportedWall unnamed = wall(6);
  BOOST_TEST(name_of(unnamed.label) == "unknown");
  BOOST_TEST(unnamed.summary ==
             "unknown: 12.0 % of the kernels' time is of kernels without a name");
  const auto share = [&](Wall label) { return unnamed.shares[static_cast<size_t>(label)]; };
  BOOST_CHECK_CLOSE(share(Wall::unknown), 600.0 / (49 * 101 + 100), 1e-6);
  BOOST_CHECK_CLOSE(share(Wall::compute), 1 - 600.0 / (49 * 101 + 100), 1e-6);
  BOOST_TEST(unnamed.evidence.back().text.find("the kernels' names") != std::string::npos,
             unnamed.evidence.back().text);
}

// Whatever they cost, it is not in the file: what is left looks like waiting for the host.
BOOST_AUTO_TEST_CASE(kernels_without_durations_have_no_verdict) {
  const auto wall = [](int num_bad, double duration_us) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(100 * i, 10, i + 1).kernel(100 * i + 12, i < num_bad ? duration_us : 30, i + 1);
    }
    return verdict_of(events);
  };
  BOOST_TEST(name_of(wall(4, 0).label) == "host");
  for (const double duration_us : {0.0, -30.0}) {
    const ImportedWall bad = wall(5, duration_us);
    BOOST_TEST(name_of(bad.label) == "unknown");
    BOOST_TEST(bad.sub_cause == "no durations");
    BOOST_TEST(bad.summary == "unknown: 5 of 50 kernels (10.0 %) have no positive duration");
    BOOST_TEST(bad.evidence.back().text.find("when each kernel ends") != std::string::npos,
               bad.evidence.back().text);
  }
  BOOST_TEST(name_of(wall(50, -1).label) == "unknown");
}

// One id for all kernels: of a call, of none, or of as many calls. Copies have their own.
BOOST_AUTO_TEST_CASE(ids_that_are_not_unique_have_no_verdict) {
  const auto wall = [](int kernel_id, int num_kernels_each) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      const int own = i / num_kernels_each * num_kernels_each + 1;
      events.call(100 * i, 5, i + 1).kernel(100 * i + 12, 30, kernel_id == 0 ? own : kernel_id);
      events.call(100 * i + 6, 3, 1000 + i, "cudaMemcpyAsync").copy(100 * i + 50, 20, 1000 + i);
    }
    return verdict_of(events);
  };
  BOOST_TEST(wall(0, 1).sub_cause != "ids");
  const ImportedWall of_one_call = wall(1, 1);
  BOOST_TEST(name_of(of_one_call.label) == "unknown");
  BOOST_TEST(of_one_call.sub_cause == "ids", of_one_call.summary);
  // All launches but one have launched nothing.
  BOOST_TEST(of_one_call.summary.ends_with("49 of 50 kernels are affected"), of_one_call.summary);
  const ImportedWall of_none = wall(777, 1);
  BOOST_TEST(of_none.sub_cause == "ids", of_none.summary);
  BOOST_TEST(of_none.summary.find("only copies") == std::string::npos, of_none.summary);
  const std::string& advice = of_none.evidence.back().text;
  BOOST_TEST(advice.find("one for each launch") != std::string::npos, advice);
  BOOST_TEST(wall(0, 2).sub_cause == "ids");
}

// A host that launches each kernel just before the device is ready for it takes as long as the
// device, which communicates for most of the time: only both together could be saved.
BOOST_AUTO_TEST_CASE(of_walls_that_hide_each_other_the_one_that_takes_time_is_named) {
  EventText events;
  double at = 1000;
  int id = 1;
  for (int i = 0; i < 200; ++i) {
    for (const auto& [name, duration, idle] :
         {std::tuple("ncclDevKernel_AllReduce(x)", 700.0, 10.0), std::tuple("gemm", 100.0, 50.0)}) {
      events.call(at - 60, 5, id).kernel(at, duration, id, name);
      ++id;
      at += duration + idle;
    }
  }
  const ImportedTrace trace = events.read(R"(, "distributedInfo": {"world_size": 1, "rank": 0})");
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "communication", wall.summary);
  BOOST_TEST(wall.sub_cause == "transfer", wall.summary);
  BOOST_TEST_REQUIRE(wall.joint_ratio.has_value());
  BOOST_TEST(std::abs(*wall.joint_ratio - 0.81) < 0.01);
  BOOST_TEST(wall.summary.find("only without both") != std::string::npos, wall.summary);
  const auto both = std::ranges::find(wall.evidence, "joint_ratio", &Evidence::name);
  BOOST_TEST((both != wall.evidence.end() && both->value == *wall.joint_ratio));
  // What to change is named: flags against one of them alone gain little.
  BOOST_TEST((wall.hidden_by == SubCause::launch));
  BOOST_TEST(both->text.find("against communication (transfer) and host (launch) together") !=
                 std::string::npos,
             both->text);
  BOOST_TEST(wall.summary.find("host (launch) at the same time") != std::string::npos,
             wall.summary);
  // Neither gains that alone.
  for (const Wall label : {Wall::communication, Wall::host}) {
    BOOST_TEST(wall.ceilings[static_cast<size_t>(label)] < 0.1);
  }
  BOOST_TEST(wall.share_ratio < 0.1);
  for (const double ratio : wall.sub_ceilings) BOOST_TEST(ratio < 0.1);
}

// The device is as busy as before, and when it was told to is not known of these.
BOOST_AUTO_TEST_CASE(lost_launches_make_no_work_of_the_device_idle) {
  const auto events_of = [](double gap_us, bool has_steps, int percent_lost) {
    Random random(7);
    EventText events;
    for (int step = 0; step < 6; ++step) {
      const double start = 20'000.0 * step;
      if (has_steps) events.range(start, 19'990, "ProfilerStep#" + std::to_string(step));
      for (int i = 0; i < 20; ++i) {
        const int id = 20 * step + i + 1;
        const double at = start + 10 + i * (900 + gap_us);
        // Behind a gap the launch was late.
        const double launch = gap_us > 0 ? at - 6 : start + 2 + i / 4.0;
        if (random.below(100) >= percent_lost) events.call(launch, 4, id);
        events.kernel(at, 900, id);
      }
    }
    return events;
  };
  for (const bool has_steps : {false, true}) {
    for (const int percent_lost : {0, 10, 30, 60}) {
      BOOST_TEST_CONTEXT(percent_lost << " % lost, steps " << has_steps) {
        for (const double gap_us : {0.0, 60.0}) {
          const ImportedWall wall = verdict_of(events_of(gap_us, has_steps, percent_lost));
          BOOST_TEST(name_of(wall.label) == "compute", wall.summary);
          const bool is_told = std::ranges::any_of(
              wall.evidence, [](const auto& fact) { return fact.name == "without_launch_ratio"; });
          BOOST_TEST(is_told == (percent_lost > 0));
        }
        // A host that is late all the time stays so, or is no longer known to be.
        const ImportedWall late = verdict_of(events_of(600, has_steps, percent_lost));
        const std::string label = name_of(late.label);
        BOOST_TEST((label == "host" || (label == "unknown" && percent_lost > 10)), label);
        // Gaps before work without a call may be the host's, too: the ceiling is a bound.
        if (label == "host" && has_steps && percent_lost > 0) {
          BOOST_TEST(late.summary.find("up to") != std::string::npos, late.summary);
        }
      }
    }
  }
}

// Launches of kernels are missing, those of copies are there.
BOOST_AUTO_TEST_CASE(kernels_without_launches_are_told_of) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.kernel(100 * i + 12, 30, i + 1);
    events.call(100 * i + 6, 3, 1000 + i, "cudaMemcpyAsync").copy(100 * i + 50, 20, 1000 + i);
  }
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(wall.sub_cause == "no kernels", wall.summary);
  BOOST_TEST(wall.summary.find("none of the 50 kernels has its launch") != std::string::npos,
             wall.summary);
}

BOOST_AUTO_TEST_CASE(copies_alone_have_no_verdict) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, i + 1, "cudaMemcpyAsync").copy(10'000 + 100 * i, 99, i + 1);
  }
  const ImportedWall wall = verdict_of(events);
  BOOST_TEST(name_of(wall.label) == "unknown");
  BOOST_TEST(wall.sub_cause == "no kernels");
  BOOST_TEST(
      wall.evidence.back().text.find("record next time: the device's kernels") != std::string::npos,
      wall.evidence.back().text);
}

BOOST_AUTO_TEST_CASE(too_little_is_no_sample_of_a_run) {
  BOOST_TEST(label_of(busy(31, 1000)) == "unknown");
  BOOST_TEST(label_of(busy(32, 1000)) == "compute");
  BOOST_TEST(label_of(busy(50, 5)) == "unknown");
}

// Sums of such times would not fit into 64 bits.
BOOST_AUTO_TEST_CASE(a_trace_of_decades_is_not_judged) {
  EventText decades = busy(50, 100);
  decades.call(2e15, 1, 999).kernel(2e15, 1e15, 999);
  BOOST_TEST(label_of(decades) == "unknown");
  std::vector<ImportedTrace> traces;
  traces.push_back(busy(50, 100).read(R"(, "distributedInfo": {"rank": 0, "world_size": 2})"));
  traces.push_back(decades.read(R"(, "distributedInfo": {"rank": 1, "world_size": 2})"));
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "compute");  // of the other one alone
  BOOST_TEST(wall.num_steps == 0);
}

BOOST_AUTO_TEST_CASE(copies_both_ways_are_memory_and_one_way_the_loader) {
  const auto wall = [](bool both) {
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
      events.call(i + 0.5, 0.2, 2 * i + 2, "cudaMemcpyAsync")
          .copy(10'060 + 100 * i, 39, 2 * i + 2,
                both && i % 2 == 0 ? "Memcpy DtoH (Device -> Pinned)"
                                   : "Memcpy HtoD (Pinned -> Device)");
    }
    return verdict_of(events);
  };
  BOOST_TEST(name_of(wall(true).label) == "memory");
  BOOST_TEST(name_of(wall(false).label) == "host");
}

/// Beside a rank whose times are broken no step is replayed.
ImportedWall without_replay(const EventText& events) {
  EventText decades = busy(50, 100);
  decades.call(2e15, 1, 999).kernel(2e15, 1e15, 999);
  std::vector<ImportedTrace> traces;
  traces.push_back(events.read(R"(, "distributedInfo": {"rank": 0, "world_size": 2})"));
  traces.push_back(decades.read(R"(, "distributedInfo": {"rank": 1, "world_size": 2})"));
  ImportedWall wall = classify_imported(traces);
  BOOST_TEST(wall.num_steps == 0);
  return wall;
}

// Of 4,920 us the device waits 49 times 80 us for the host, which allocates for 30 of these.
BOOST_AUTO_TEST_CASE(accounts_tell_causes_apart_where_nothing_is_replayed) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(100 * i, 10, i + 1).kernel(100 * i + 12, 20, i + 1);
    events.call(100 * i + 40, 30, 1000 + i, "cudaMalloc");
  }
  const ImportedWall host = without_replay(events);
  const auto ratio = [](const ImportedWall& wall, SubCause cause) {
    return wall.sub_ceilings[static_cast<size_t>(cause)];
  };
  BOOST_TEST(name_of(host.label) == "host");
  BOOST_TEST(host.sub_cause == "launch");
  BOOST_TEST(std::abs(ratio(host, SubCause::allocator) - 49 * 30 / 4920.0) < 1e-6);
  BOOST_TEST(std::abs(ratio(host, SubCause::launch) - 49 * 50 / 4920.0) < 1e-6);
  BOOST_TEST(ratio(host, SubCause::sync) == 0);

  EventText copies;
  for (int i = 0; i < 50; ++i) {
    copies.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
    copies.call(i + 0.5, 0.2, 2 * i + 2, "cudaMemcpyAsync")
        .copy(10'060 + 100 * i, 39, 2 * i + 2,
              i % 2 == 0 ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy HtoD (Pinned -> Device)");
  }
  const ImportedWall memory = without_replay(copies);
  BOOST_TEST(name_of(memory.label) == "memory");
  BOOST_TEST(memory.sub_cause == "offload", memory.summary);
  const double share = memory.shares[static_cast<size_t>(Wall::memory)];
  BOOST_TEST(share > 0.3);
  BOOST_TEST(ratio(memory, SubCause::offload) == share);
  BOOST_TEST(ratio(memory, SubCause::recompute) == 0);
}

// The classes of kernels of each rank are in the verdict, too.
BOOST_AUTO_TEST_CASE(a_verdict_knows_what_kernels_cost) {
  const ImportedWall wall = verdict_of(busy(50, 100));  // products: 5,000 of 5,049 us
  const auto at = static_cast<size_t>(KernelClass::gemm);
  BOOST_TEST(std::abs(wall.kernels.run[at] - 5000 / 5049.0) < 1e-6);
  BOOST_TEST(wall.kernels.launch[at] > 0);
}

// Two ranks: the one that comes late makes the other wait in a collective. Its doing counts.
BOOST_AUTO_TEST_CASE(waiting_is_booked_to_the_rank_that_came_late) {
  const auto ranks = [](bool is_host_late) {
    std::vector<ImportedTrace> traces;
    for (int rank = 0; rank < 2; ++rank) {
      EventText events;
      for (int i = 0; i < 50; ++i) {
        const double start = 10'000 + 1000 * i;
        const bool is_late = rank == 1;
        const double compute = is_late && !is_host_late ? 800 : 300;
        const double comes = is_late ? 810 : 310;
        events.call(is_late && is_host_late ? start - 6 : i, 1, 2 * i + 1)
            .kernel(start, compute, 2 * i + 1);
        events.call(is_late && is_host_late ? start + 800 : i + 0.5, 0.2, 2 * i + 2)
            .kernel(start + comes, 995 - comes, 2 * i + 2, "ncclDevKernel_AllReduce(x)", 20,
                    R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
                       "Process Group Name": "0", "Group size": 2)");
      }
      traces.push_back(events.read(R"(, "distributedInfo": {"world_size": 2, "rank": )" +
                                   std::to_string(rank) + "}"));
    }
    return traces;
  };
  const ImportedWall slow = classify_imported(ranks(false));
  BOOST_TEST(name_of(slow.label) == "imbalance");
  BOOST_TEST((slow.rank == 1));
  BOOST_TEST(slow.summary.find("rank 1's") != std::string::npos, slow.summary);
  // Rank 1 computes 800 us of a step of 1,000 where rank 0 needs 300.
  BOOST_TEST(std::abs(slow.share_ratio - 0.50) < 0.01);
  const ImportedWall host = classify_imported(ranks(true));
  BOOST_TEST(name_of(host.label) == "host");
  BOOST_TEST((host.rank == 1));
}

// A collective ends when its last rank has come, and that one may have no trace.
BOOST_AUTO_TEST_CASE(waiting_may_be_for_a_rank_without_a_trace) {
  const auto wall = [](int num_given, int group_size, int world_size) {
    std::vector<ImportedTrace> traces;
    for (int rank = 0; rank < num_given; ++rank) {
      EventText events;
      for (int i = 0; i < 50; ++i) {
        events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
        events.call(i + 0.5, 0.2, 2 * i + 2)
            .kernel(10'060 + 100 * i, 39, 2 * i + 2, "ncclDevKernel_AllReduce(x)", 20,
                    R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
                       "Process Group Name": "0", "Group size": )" +
                        std::to_string(group_size));
      }
      traces.push_back(events.read(R"(, "distributedInfo": {"rank": )" + std::to_string(rank) +
                                   R"(, "world_size": )" + std::to_string(world_size) + "}"));
    }
    return classify_imported(traces);
  };
  const auto missing = [](const ImportedWall& of) {
    const auto at = std::ranges::find(of.evidence, "ranks_missing", &Evidence::name);
    return at == of.evidence.end() ? 0.0 : at->value;
  };
  const auto begins = [](const ImportedWall& of, const std::string& text) {
    return name_of(of.label) == std::string("communication") &&
           of.sub_cause == (text == "transfer" ? "transfer" : "") &&
           of.summary.starts_with("communication (" + text + "): without it");
  };
  const ImportedWall half = wall(2, 4, 4);
  BOOST_TEST(begins(half, "transfer, or waiting for one of the 2 ranks without a trace"),
             half.summary);
  BOOST_TEST(missing(half) == 2);
  const ImportedWall alone = wall(1, 2, 2);
  BOOST_TEST(begins(alone, "transfer, or waiting for the one rank without a trace"), alone.summary);
  BOOST_TEST(missing(alone) == 1);
  // Nobody is missing, in the world or in the group.
  for (const ImportedWall& whole : {wall(2, 2, 2), wall(2, 2, 4)}) {
    BOOST_TEST(begins(whole, "transfer"), whole.summary);
    BOOST_TEST(missing(whole) == 0);
  }
}

// Of four ranks three end together and one is off by 8 us two times out of three.
BOOST_AUTO_TEST_CASE(how_well_ends_agree_is_told_of_the_worst_rank) {
  const auto wall = [](int rank_off) {
    std::vector<ImportedTrace> traces;
    for (int rank = 0; rank < 4; ++rank) {
      EventText events;
      for (int i = 0; i < 50; ++i) {
        const int off_us = rank == rank_off ? 8 * (i % 3 - 1) : 0;
        events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
        events.call(i + 0.5, 0.2, 2 * i + 2)
            .kernel(10'060 + 100 * i, 30 + off_us, 2 * i + 2, "ncclDevKernel_AllReduce(x)", 20,
                    R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
                       "Process Group Name": "0", "Group size": 4)");
      }
      traces.push_back(events.read(R"(, "distributedInfo": {"world_size": 4, "rank": )" +
                                   std::to_string(rank) + "}"));
    }
    return classify_imported(traces);
  };
  const auto text = [](const ImportedWall& of) {
    const auto at = std::ranges::find(of.evidence, "matched_ratio", &Evidence::name);
    return at == of.evidence.end() ? std::string() : at->text;
  };
  const ImportedWall one = wall(1);
  BOOST_TEST(one.matching.residual_ns == 8000);
  BOOST_TEST(text(one).ends_with("on rank 1, the worst"), text(one));
  // Ends are compared with those of the first rank: where that one is off, all are.
  const ImportedWall first = wall(0);
  BOOST_TEST(first.matching.residual_ns == 8000);
  BOOST_TEST(text(first).find("the worst") == std::string::npos, text(first));
  BOOST_TEST(text(wall(-1)).ends_with("agree to 0 ns"), text(wall(-1)));
}

// All ranks are there, and nothing says what their messages are: that is no transfer for certain.
BOOST_AUTO_TEST_CASE(communication_that_no_other_rank_has_is_no_verdict) {
  const auto wall = [](int num_of_second, int world_size) {
    std::vector<ImportedTrace> traces;
    for (int rank = 0; rank < 2; ++rank) {
      EventText events;
      for (int i = 0; i < (rank == 0 ? 50 : num_of_second); ++i) {
        events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
        events.call(i + 0.5, 0.2, 2 * i + 2)
            .kernel(10'060 + 100 * i, 39, 2 * i + 2, "ncclDevKernel_SendRecv(x)", 20);
      }
      traces.push_back(events.read(R"(, "distributedInfo": {"rank": )" + std::to_string(rank) +
                                   R"(, "world_size": )" + std::to_string(world_size) + "}"));
    }
    return classify_imported(traces);
  };
  const auto share = [](const ImportedWall& of, Wall label) {
    return of.shares[static_cast<size_t>(label)];
  };
  const ImportedWall loose = wall(49, 2);  // an order cannot match them
  BOOST_TEST(name_of(loose.label) == "unknown", loose.summary);
  BOOST_TEST(loose.sub_cause == "unmatched");
  BOOST_TEST(share(loose, Wall::communication) == 0);
  BOOST_TEST(std::abs(share(loose, Wall::unknown) - 0.39) < 0.01);
  BOOST_TEST(loose.unknown_ratio == loose.share_ratio);
  const std::string& advice = loose.evidence.back().text;
  BOOST_TEST(advice.find("which message or collective") != std::string::npos, advice);
  for (const Evidence& one : loose.evidence) {
    BOOST_TEST(one.text.find("traces of all ranks") == std::string::npos, one.text);
  }
  BOOST_TEST(name_of(wall(50, 2).label) == "communication");
  // Others have no trace: that they are waited for is said instead.
  BOOST_TEST(name_of(wall(49, 4).label) == "communication");
}

BOOST_AUTO_TEST_CASE(traces_of_different_runs_are_refused) {
  const auto trace = [](int rank, int world_size) {
    return busy(40, 100).read(R"(, "distributedInfo": {"rank": )" + std::to_string(rank) +
                              R"(, "world_size": )" + std::to_string(world_size) + "}");
  };
  std::vector<ImportedTrace> twice;
  twice.push_back(trace(1, 4));
  twice.push_back(trace(1, 4));
  BOOST_CHECK_EXCEPTION(classify_imported(twice), base::UsageError, says("both of rank 1"));
  std::vector<ImportedTrace> mixed;
  mixed.push_back(trace(0, 4));
  mixed.push_back(trace(1, 8));
  BOOST_CHECK_EXCEPTION(classify_imported(mixed), base::UsageError, says("a run of 8 ranks"));
  // The first trace does not say how many there are.
  mixed.insert(mixed.begin(), busy(40, 100).read(R"(, "distributedInfo": {"rank": 2})"));
  BOOST_CHECK_EXCEPTION(classify_imported(mixed), base::UsageError, says("a run of 8 ranks"));
}

BOOST_AUTO_TEST_CASE(traces_of_other_steps_or_devices_are_refused) {
  const auto trace = [](int rank, int64_t step, const char* device) {
    ImportedTrace made = busy(40, 100).read(R"(, "distributedInfo": {"rank": )" +
                                            std::to_string(rank) + R"(, "world_size": 2})");
    made.steps = {{step, 0, 100'000}};
    made.facts.device_names = {device};
    return made;
  };
  std::vector<ImportedTrace> traces;
  traces.push_back(trace(0, 5, "NVIDIA H100"));
  traces.push_back(trace(1, 20, "NVIDIA H100"));
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError, says("none is in both"));
  traces[1].steps[0].number = 5;
  BOOST_CHECK_NO_THROW(classify_imported(traces));
  traces[1].facts.device_names = {"NVIDIA A100"};
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError, says("NVIDIA A100"));
  // The first trace does not say on what it ran.
  traces.insert(traces.begin(), trace(2, 5, ""));
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError, says("NVIDIA A100"));
}

// No file says its rank: what it holds tells that it is there twice.
BOOST_AUTO_TEST_CASE(copies_and_other_recorders_are_no_further_ranks) {
  const auto trace = [](const char* file, double kernel_us) {
    ImportedTrace made = busy(40, kernel_us).read();
    made.facts.file = file;
    return made;
  };
  std::vector<ImportedTrace> traces;
  traces.push_back(trace("a.json", 100));
  traces.push_back(trace("b.json", 100));
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError,
                        says("a.json", "b.json", "same kernels at the same times"));
  // Names of files, or counting, may call them what they like.
  traces[0].facts.rank = 0;
  traces[1].facts.rank = 1;
  traces[1].facts.is_rank_guessed = true;
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError, says("a.json", "b.json"));
  traces[1].facts.is_rank_guessed = false;
  BOOST_CHECK_NO_THROW(classify_imported(traces));
  traces[1] = trace("b.json", 100.001);
  BOOST_CHECK_NO_THROW(classify_imported(traces));
  traces[1].facts.format = "nsys";
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError,
                        says("a.json", "kineto", "b.json", "nsys"));
}

BOOST_AUTO_TEST_CASE(a_run_has_no_more_ranks_than_it_says) {
  const auto trace = [](const char* file, double kernel_us, std::optional<int64_t> rank,
                        std::optional<int64_t> world_size) {
    ImportedTrace made = busy(40, kernel_us).read();
    made.facts.file = file;
    made.facts.rank = rank;
    made.facts.world_size = world_size;
    return made;
  };
  std::vector<ImportedTrace> traces;
  traces.push_back(trace("a.json", 100, 0, 2));
  traces.push_back(trace("b.json", 101, 3, std::nullopt));
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError,
                        says("a.json", "a run of 2 ranks", "b.json of rank 3"));
  traces[1].facts.rank = 1;
  BOOST_CHECK_NO_THROW(classify_imported(traces));
  traces.push_back(trace("c.json", 102, std::nullopt, std::nullopt));
  BOOST_CHECK_EXCEPTION(classify_imported(traces), base::UsageError,
                        says("a.json", "a trace each without c.json"));
}

// Whatever the trace: every moment has one cause.
BOOST_AUTO_TEST_CASE(causes_tile_the_window) {
  tests::Random random(11);
  for (int round = 0; round < 200; ++round) {
    EventText events;
    const int num_ops = 1 + random.below(30);
    for (int i = 0; i < num_ops; ++i) {
      const double start = random.below(200);
      const double length = random.below(30);
      if (random.below(4) != 0) events.call(random.below(200), random.below(20), i + 1);
      switch (random.below(3)) {
        case 0:
          events.kernel(start, length, i + 1);
          break;
        case 1:
          events.kernel(start, length, i + 1, "ncclKernel_X", 20);
          break;
        default:
          events.copy(start, length, i + 1);
      }
    }
    const ImportedTrace trace = events.read();
    const TraceWindows windows(trace);
    windows.for_each([&](const TraceWindow& window) {
      int64_t at = window.time.start_ns;
      int64_t compute_ns = 0;
      for (const CauseSegment& segment : explain_window(trace, window, windows.wide())) {
        BOOST_TEST(segment.start_ns == at);
        BOOST_TEST(segment.end_ns > at);
        at = segment.end_ns;
        if (segment.cause == IdleCause::compute) compute_ns += segment.end_ns - segment.start_ns;
      }
      BOOST_TEST(at == window.time.end_ns);
      BOOST_TEST(compute_ns == windows.measure(window).wide.compute_busy_ns);
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
