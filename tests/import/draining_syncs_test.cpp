// A host that waits for the device in each layer lets it run empty: the wait is the cause, not the
// launches behind it, as without the wait these would have come in time. In the forms of PyTorch's
// profiler and of Nsight Systems.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/import/trace_files.h"
#include "tests/import/nsys_export.h"
#include "tests/import/trace_texts.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(draining_syncs)

namespace {

using tests::EventText;
using tests::NsysExport;
using tests::TempFolder;

struct Work {
  int64_t call_us = 0;  ///< takes 5 us
  int64_t start_us = 0;
  int64_t end_us = 0;
};
struct Wait {
  int64_t start_us = 0;
  int64_t end_us = 0;
};
struct SyncedLayers {
  std::vector<Work> works;
  std::vector<Wait> waits;
};

/// 20 layers of eight kernels. The host launches one every `launch_us`. Behind the last it waits
/// until the device is done, and goes on `pause_us` later.
SyncedLayers synced_layers(int64_t kernel_us, int64_t launch_us, int64_t pause_us) {
  SyncedLayers layers;
  int64_t host = 0;
  int64_t device = 0;
  for (int layer = 0; layer < 20; ++layer) {
    for (int i = 0; i < 8; ++i) {
      const int64_t start = std::max(device, host + 8);
      device = start + kernel_us;
      layers.works.push_back({host, start, device});
      host += launch_us;
    }
    const int64_t begun = layers.works.back().call_us + 6;
    const int64_t returned = std::max(device, begun) + 2;
    layers.waits.push_back({begun, returned});
    host = returned + pause_us;
  }
  return layers;
}

ImportedTrace as_kineto(const SyncedLayers& layers, const char* call) {
  EventText events;
  events.range(0, static_cast<double>(layers.waits.back().end_us), "ProfilerStep#3");
  int id = 0;
  for (const Work& work : layers.works) {
    ++id;
    events.call(static_cast<double>(work.call_us), 5, id);
    events.kernel(static_cast<double>(work.start_us),
                  static_cast<double>(work.end_us - work.start_us), id);
  }
  for (const Wait& wait : layers.waits) {
    events.call(static_cast<double>(wait.start_us),
                static_cast<double>(wait.end_us - wait.start_us), 0, call);
  }
  return events.read();
}

/// `has_waits`: the device's side of the waits was recorded, too.
ImportedTrace as_nsys(const SyncedLayers& layers, const char* call, int64_t kind, bool has_waits) {
  constexpr int64_t kGemm = 10;
  constexpr int64_t kLaunch = 11;
  constexpr int64_t kSync = 12;
  constexpr int64_t kNone = 0xFFFFFFFF;
  const TempFolder folder;
  const std::string path = folder.file("a.sqlite");
  {
    NsysExport file(path);
    file.text(kGemm, "gemm").text(kLaunch, "cudaLaunchKernel_v7000").text(kSync, call);
    file.range(7, 70, 0, 1000 * layers.waits.back().end_us, "iteration 3");
    int64_t id = 0;
    for (const Work& work : layers.works) {
      ++id;
      file.call(7, 70, 1000 * work.call_us, 1000 * work.call_us + 5000, id, kLaunch);
      file.kernel(7, 0, 1000 * work.start_us, 1000 * work.end_us, 13, id, kGemm);
    }
    for (const Wait& wait : layers.waits) {
      ++id;
      file.call(7, 70, 1000 * wait.start_us, 1000 * wait.end_us, id, kSync);
      if (!has_waits) continue;
      file.wait(7, 1, 1000 * wait.start_us, 1000 * wait.end_us, 13, id, kind, kNone, kNone);
    }
  }
  return std::move(read_trace_file(path).at(0));
}

std::vector<ImportedTrace> in_all_forms(const SyncedLayers& layers) {
  std::vector<ImportedTrace> traces;
  for (const char* call : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "hipDeviceSynchronize",
                           "cudaEventSynchronize"}) {
    traces.push_back(as_kineto(layers, call));
  }
  for (const bool has_waits : {false, true}) {
    traces.push_back(as_nsys(layers, "cudaStreamSynchronize_v3020", 3, has_waits));
    traces.push_back(as_nsys(layers, "cudaDeviceSynchronize_v3020", 4, has_waits));
  }
  return traces;
}

}  // namespace

// Of a layer's 510 us the kernels take 400. Its launches take 64, so that the host would be far
// ahead. Without any of its time the device would still be idle for 5 us: the return and the start.
BOOST_AUTO_TEST_CASE(a_sync_that_empties_the_queue_is_sync) {
  for (const ImportedTrace& trace : in_all_forms(synced_layers(50, 8, 100))) {
    const ImportedWall wall = classify_imported(std::span(&trace, 1));
    BOOST_TEST_CONTEXT(trace.facts.format << ", " << wall.summary) {
      BOOST_TEST(name_of(wall.label) == "host");
      BOOST_TEST(wall.sub_cause == "sync");
      BOOST_TEST(std::abs(wall.share_ratio - 110.0 / 510) < 0.02);
    }
  }
}

// A launch every 60 us for kernels of 30: the device is idle with or without the waits.
BOOST_AUTO_TEST_CASE(a_sync_of_a_device_that_idles_anyway_is_launch) {
  for (const ImportedTrace& trace : in_all_forms(synced_layers(30, 60, 55))) {
    const ImportedWall wall = classify_imported(std::span(&trace, 1));
    BOOST_TEST_CONTEXT(trace.facts.format << ", " << wall.summary) {
      BOOST_TEST(name_of(wall.label) == "host");
      BOOST_TEST(wall.sub_cause == "launch");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
