// The engine and the recorder together, on the fake device and the fake CUPTI that watches it:
// every piece of work has the label of its op, whether it was launched or replayed, and what
// tracing lacks is said.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/plan/layout.h"
#include "engine/plan/ops.h"
#include "engine/run_trial.h"
#include "profiler/record.h"
#include "profiler/store/store.h"
#include "sweeps/analyse.h"
#include "tests/engine/parity_fixture.h"
#include "tests/fakes/simt/simt_device.h"
#include "tests/fakes/simt_cupti/simt_cupti.h"

namespace moetune::engine {
namespace {

namespace fs = std::filesystem;
using profiler::RecordKind;
using profiler::TraceRecord;
using testing::knobs_of;

/// An op of a trace: its label, where in the model, and which micro-batch.
using OpKey = std::tuple<int32_t, std::string, int32_t, int32_t>;  // rank, label, layer, mb

struct Work {
  int64_t count = 0;  ///< launches, as far as a trace tells
  int64_t flops = 0;
  auto operator<=>(const Work&) const = default;
};
using OpWork = std::map<OpKey, Work>;
/// By record kind, too.
using PieceKey = std::tuple<int32_t, std::string, int32_t, int32_t, RecordKind>;
using Pieces = std::map<PieceKey, int64_t>;

std::string text_of(const OpKey& key) {
  const auto& [rank, name, layer, micro_batch] = key;
  return fmt::format("rank {}: {} of layer {}, micro-batch {}", rank, name, layer, micro_batch);
}
std::string text_of(const PieceKey& key) {
  const auto& [rank, name, layer, micro_batch, kind] = key;
  return fmt::format("{} ({})", text_of(OpKey{rank, name, layer, micro_batch}),
                     profiler::name_of(kind));
}
std::string text_of(const Work& work) {
  return fmt::format("{} times, {} flops", work.count, work.flops);
}
std::string text_of(int64_t count) { return fmt::format("{} times", count); }

/// The same keys with the same values; what differs is an error each.
template <typename Map>
void check_same(const Map& found, const Map& expected) {
  BOOST_TEST(!expected.empty());
  for (const auto& [key, value] : expected) {
    const auto own = found.find(key);
    if (own == found.end()) {
      BOOST_ERROR(text_of(key) << ": missing, expected " << text_of(value));
    } else if (own->second != value) {
      BOOST_ERROR(text_of(key) << ": " << text_of(own->second) << ", expected " << text_of(value));
    }
  }
  for (const auto& [key, value] : found) {
    if (!expected.contains(key)) BOOST_ERROR(text_of(key) << ": not expected");
  }
}

struct TracedFixture {
  TracedFixture()
      : folder(fs::temp_directory_path() / fmt::format("moetune_simt_traced_test-{}", getpid())) {
    fs::remove_all(folder);
    simt_cupti::reset();
  }
  ~TracedFixture() {
    simt_cupti::reset();
    simt::reset();
    fs::remove_all(folder);
  }
  TracedFixture(const TracedFixture&) = delete;
  TracedFixture& operator=(const TracedFixture&) = delete;

  static spec::TrialSpec trial(const std::string& knobs) {
    spec::ModelSpec model = testing::mixed_model();
    model.vocab_size = 256;
    spec::TrialSpec made = testing::tiny_trial(model, knobs_of(knobs));
    made.backend = spec::BackendKind::cuda;
    made.clock = spec::ClockMode::wall;
    made.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
    made.num_warmup_steps = 3;
    made.num_steps = 2;
    made.num_traced_steps = 1;
    return made;
  }

  store::ShardContents run(const spec::TrialSpec& spec) const {
    fs::remove_all(folder);
    testing::check_constraints_hold(spec);
    BOOST_TEST_REQUIRE((run_trial(spec, folder.string()) == spec::ExitCode::ok));
    store::ShardContents shard = store::read_shard((folder / "shard-0.db").string());
    BOOST_TEST_REQUIRE(shard.traces.size() == local_ranks(spec).size());
    return shard;
  }

  fs::path folder;
};

/// Ops with the number of their launches and their FLOPs. Of an op's work on a device one piece has
/// the FLOPs and the bytes; ops without either are counted as one.
OpWork ops_of(const store::ShardContents& shard) {
  OpWork ops;
  for (const auto& trace : shard.traces) {
    for (const TraceRecord& record : trace.records) {
      // A device knows nothing of the work of the host.
      if (record.kind == RecordKind::host_sync || record.kind == RecordKind::host_work ||
          record.kind == RecordKind::memcpy) {
        continue;
      }
      Work& work = ops[{record.rank, record.name, record.layer, record.micro_batch}];
      if (record.flops > 0 || record.bytes > 0) ++work.count;
      work.flops += record.flops;
    }
  }
  return ops;
}

Pieces pieces_of(const store::ShardContents& shard) {
  Pieces pieces;
  for (const auto& trace : shard.traces) {
    for (const TraceRecord& record : trace.records) {
      if (record.kind == RecordKind::host_sync) continue;
      ++pieces[{record.rank, record.name, record.layer, record.micro_batch, record.kind}];
    }
  }
  return pieces;
}

void check_labels(const store::ShardContents& shard) {
  BOOST_TEST(shard.text("trace_note") == "");
  for (const auto& trace : shard.traces) {
    BOOST_TEST(!trace.records.empty());
    for (const TraceRecord& record : trace.records) {
      const bool is_known = plan::find_op_label(record.name) != nullptr ||
                            record.name == "upload" || record.kind == RecordKind::host_sync;
      if (!is_known) {
        BOOST_ERROR("rank " << record.rank << ": work of no op: " << record.name << " ("
                            << profiler::name_of(record.kind) << ")");
      }
      BOOST_TEST(record.start_ns <= record.end_ns);
      BOOST_TEST(record.launch_end_ns <= record.start_ns);
      BOOST_TEST(record.start_ns >= trace.start_ns);
      BOOST_TEST(record.end_ns <= trace.end_ns);
    }
  }
}

/// What comes after communication waits for it, and the host for what it reads.
void check_waits(const store::ShardContents& shard) {
  for (const auto& trace : shard.traces) {
    int64_t num_for_communication = 0;
    int64_t num_of_host = 0;
    for (const TraceRecord& record : trace.records) {
      if (record.producer_id < 0) continue;
      BOOST_TEST_REQUIRE(record.producer_id < record.id);
      const TraceRecord& producer = trace.records.at(static_cast<size_t>(record.producer_id));
      if (record.kind == RecordKind::host_sync) {
        ++num_of_host;
        BOOST_TEST(producer.end_ns <= record.end_ns);
      } else {
        BOOST_TEST(producer.end_ns <= record.start_ns);
        const bool is_message =
            producer.kind == RecordKind::collective || producer.kind == RecordKind::p2p;
        if (is_message && record.kind == RecordKind::kernel) ++num_for_communication;
      }
    }
    BOOST_TEST(num_for_communication > 0);
    BOOST_TEST(num_of_host > 0);
  }
}

/// Who launched it, on which device, as what, and with whom it communicates.
void check_facts(const store::ShardContents& shard, const spec::TrialSpec& spec) {
  const auto communicators = plan::group_instances(plan::layout_of(spec.knobs));
  int64_t num_kernels = 0;
  int64_t num_messages = 0;
  for (const auto& trace : shard.traces) {
    for (const TraceRecord& record : trace.records) {
      const bool is_on_device = record.stream != profiler::kHostStream;
      BOOST_TEST((record.device >= 0) == is_on_device);
      if (is_on_device) BOOST_TEST(record.thread >= 0);
      if (!record.kernel.empty()) ++num_kernels;
      if (!record.kernel.empty()) BOOST_TEST(record.grid[0] > 0);
      const bool is_message = record.kind == RecordKind::p2p;
      if (is_message) ++num_messages;
      BOOST_TEST((record.peer >= 0) == is_message);
      BOOST_TEST(record.peer != record.rank);
      if (!is_message && record.kind != RecordKind::collective) {
        BOOST_TEST(record.communicator == -1);
      } else {
        BOOST_TEST(record.communicator == communicators.at({record.rank, record.group.text()}));
      }
    }
    for (const profiler::FurtherWait& wait : trace.further_waits) {
      BOOST_TEST(wait.producer_id < wait.record_id);
      BOOST_TEST(wait.producer_id >= 0);
    }
  }
  BOOST_TEST(num_kernels > 0);
  BOOST_TEST(num_messages > 0);
}

constexpr const char* kMixedLayout = R"("pipeline_model_parallel_size": 2,
    "context_parallel_size": 2, "expert_model_parallel_size": 2)";
/// Where nothing depends on the routing's numbers, which a whole iteration's graph asks for.
constexpr const char* kStaticLayout = R"("pipeline_model_parallel_size": 2,
    "context_parallel_size": 2)";

std::string knobs_with(const char* layout, const char* graphs) {
  return fmt::format(R"({{{}, "cuda_graph_modules": "{}"}})", layout, graphs);
}

BOOST_FIXTURE_TEST_SUITE(traced_trials, TracedFixture)

BOOST_AUTO_TEST_CASE(each_piece_of_work_has_the_label_of_its_op) {
  const spec::TrialSpec spec = trial(knobs_with(kMixedLayout, "none"));
  spec::TrialSpec on_cpu = spec;
  on_cpu.backend = spec::BackendKind::cpu;
  on_cpu.clock = spec::ClockMode::virtual_modelled;
  const OpWork expected = ops_of(run(on_cpu));
  for (const bool is_deferred : {false, true}) {
    BOOST_TEST_CONTEXT((is_deferred ? "adversarial" : "in order")) {
      simt::set_schedule(is_deferred ? simt::adversarial(1) : simt::in_order());
      const store::ShardContents shard = run(spec);
      check_labels(shard);
      check_same(ops_of(shard), expected);
      check_waits(shard);
      check_facts(shard, spec);
    }
  }
  BOOST_TEST(simt_cupti::counts().num_buffers_out == 0);
  BOOST_TEST(simt_cupti::counts().num_dropped == 0);
}

BOOST_AUTO_TEST_CASE(replayed_work_keeps_the_op_it_was_captured_with) {
  const std::pair<const char*, const char*> cases[] = {
      {kMixedLayout, "attn,moe_router,moe_preprocess"},
      {kStaticLayout, "full_iteration"},
      {R"("micro_batch_size": 2)", "full_iteration"},
  };
  for (const bool is_deferred : {false, true}) {
    simt::set_schedule(is_deferred ? simt::adversarial(2) : simt::in_order());
    for (const auto& [layout, graphs] : cases) {
      BOOST_TEST_CONTEXT((is_deferred ? "adversarial, " : "in order, ") << layout << graphs) {
        const store::ShardContents plain = run(trial(knobs_with(layout, "none")));
        simt_cupti::reset();
        const store::ShardContents shard = run(trial(knobs_with(layout, graphs)));
        check_labels(shard);
        check_same(pieces_of(shard), pieces_of(plain));
        BOOST_TEST(simt_cupti::counts().num_graph_work > 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(instances_that_are_told_of_twice_keep_their_labels) {
  simt_cupti::Behaviour behaviour;
  behaviour.tells_of_clones_twice = true;
  simt_cupti::set_behaviour(behaviour);
  const store::ShardContents shard =
      run(trial(R"({"cuda_graph_modules": "attn,moe_router,moe_preprocess"})"));
  check_labels(shard);
  check_same(pieces_of(shard), pieces_of(run(trial("{}"))));
}

BOOST_AUTO_TEST_CASE(records_in_many_buffers_are_the_same_records) {
  const spec::TrialSpec spec =
      trial(R"({"expert_model_parallel_size": 2, "data_parallel_size": 2})");
  const store::ShardContents expected = run(spec);
  const int64_t num_buffers = simt_cupti::counts().num_buffers;
  simt_cupti::reset();
  simt_cupti::Behaviour behaviour;
  behaviour.buffer_bytes = 32 << 10;
  simt_cupti::set_behaviour(behaviour);
  const store::ShardContents shard = run(spec);
  BOOST_TEST(simt_cupti::counts().num_buffers > num_buffers);
  check_labels(shard);
  check_same(pieces_of(shard), pieces_of(expected));
}

// --- what is missing is said, and the trial goes on ---------------------------------------------

BOOST_AUTO_TEST_CASE(records_that_found_no_buffer_are_counted_in_the_note) {
  const spec::TrialSpec spec =
      trial(R"({"expert_model_parallel_size": 2, "data_parallel_size": 2})");
  const store::ShardContents expected = run(spec);
  simt_cupti::Behaviour behaviour;
  behaviour.buffer_bytes = 512;  // a few records each: the recorder's buffers do not suffice
  simt_cupti::set_behaviour(behaviour);
  const store::ShardContents shard = run(spec);
  const int64_t num_dropped = simt_cupti::counts().num_dropped;
  BOOST_TEST(num_dropped > 0);
  const std::string note = shard.text("trace_note");
  BOOST_TEST_INFO(note);
  BOOST_TEST(note.starts_with("the device trace is incomplete: records dropped for lack of "));
  BOOST_TEST(shard.steps.size() == expected.steps.size());
  BOOST_TEST(shard.steps.back().loss == expected.steps.back().loss);
  BOOST_TEST(simt_cupti::counts().num_buffers_out == 0);
}

BOOST_AUTO_TEST_CASE(what_cupti_refuses_is_in_the_note) {
  const struct {
    const char* function;
    CUptiResult result;
    const char* note;
  } cases[] = {
      {"cuptiSubscribe_v2", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
       "another tool is attached"},
      {"cuptiSubscribe_v2", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "CAP_PERFMON"},
      {"cuptiActivityEnable", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "CAP_PERFMON"},
      {"cuptiActivityRegisterCallbacks", CUPTI_ERROR_UNKNOWN, "setting up failed"},
  };
  for (const auto& c : cases) {
    BOOST_TEST_CONTEXT(c.function << ": " << c.note) {
      simt_cupti::Behaviour behaviour;
      behaviour.failures[c.function] = c.result;
      simt_cupti::set_behaviour(behaviour);
      const store::ShardContents shard = run(trial(R"({"data_parallel_size": 2})"));
      BOOST_TEST(shard.text("trace_note").starts_with("GPU activity is not traced: "));
      BOOST_TEST(shard.text("trace_note").find(c.note) != std::string::npos);
      for (const auto& trace : shard.traces) BOOST_TEST(trace.records.empty());
    }
  }
  // The next one has everything again.
  simt_cupti::reset();
  check_labels(run(trial(R"({"data_parallel_size": 2})")));
}

// Without links there are no labels, and the note counts what belongs to nobody.
BOOST_AUTO_TEST_CASE(work_of_no_op_is_in_the_note) {
  simt_cupti::Behaviour behaviour;
  behaviour.failures["cuptiActivityPushExternalCorrelationId"] = CUPTI_ERROR_UNKNOWN;
  simt_cupti::set_behaviour(behaviour);
  const store::ShardContents shard = run(trial("{}"));
  BOOST_TEST(shard.text("trace_note").find("device work of no op: ") != std::string::npos);
  BOOST_TEST(!shard.traces.front().records.empty());
}

// --- walls --------------------------------------------------------------------------------------

constexpr uint64_t kLong = 400'000;  // far above what the fake device takes by itself

std::string wall_of(const spec::TrialSpec& spec, const store::ShardContents& shard) {
  store::TrialResult result;
  result.status = "ok";
  sweeps::analyse_shard(spec, shard, 0, result);
  for (const auto& text : result.texts) BOOST_TEST_MESSAGE(text.value);
  return result.wall;
}

BOOST_AUTO_TEST_CASE(slow_calls_are_the_wall_of_the_host) {
  simt_cupti::Behaviour behaviour;
  behaviour.call_ns = [](const char* function) {
    return std::string(function) == "cudaLaunchKernelEx" ? 10 * kLong : 0;
  };
  simt_cupti::set_behaviour(behaviour);
  const spec::TrialSpec spec = trial("{}");
  BOOST_TEST(wall_of(spec, run(spec)) == "host");
}

BOOST_AUTO_TEST_CASE(slow_kernels_are_compute_and_recomputed_ones_memory) {
  simt_cupti::Behaviour behaviour;
  behaviour.work_ns = [](const simt::Operation& operation) {
    if (operation.kind != simt::WorkKind::kernel) return uint64_t{0};
    const std::string name = simt_cupti::name_of_function(operation.kernel);
    return name.find("gemm") != std::string::npos ? 10 * kLong : 0;
  };
  simt_cupti::set_behaviour(behaviour);
  simt::set_schedule(simt::adversarial(3));  // the host runs ahead
  const spec::TrialSpec spec = trial("{}");
  BOOST_TEST(wall_of(spec, run(spec)) == "compute");
  spec::TrialSpec recomputing = trial(R"({"recompute": "full"})");
  store::ShardContents shard = run(recomputing);
  BOOST_TEST(wall_of(recomputing, shard) == "compute");
  // Memory that was short is what it was done for.
  for (store::ShardMemory& memory : shard.memory) memory.capacity_bytes = memory.peak_bytes + 1;
  BOOST_TEST(wall_of(recomputing, shard) == "memory");
}

// Of one rank: the fake device runs one operation at a time, so that the messages of one rank would
// hold up the kernels of another. Of tensor parallelism: the host enqueues its messages long before
// they run, where it waits for those of expert parallelism in the middle of the layer.
BOOST_AUTO_TEST_CASE(slow_messages_are_communication) {
  simt_cupti::Behaviour behaviour;
  behaviour.work_ns = [](const simt::Operation& operation) {
    return operation.direction == cudaMemcpyDeviceToDevice ? 10 * kLong : 0;
  };
  simt_cupti::set_behaviour(behaviour);
  simt::set_schedule(simt::adversarial(3));
  spec::TrialSpec spec = trial(R"({"tensor_model_parallel_size": 2})");
  spec.communicator = spec::CommunicatorKind::fake;
  spec.fake_rank = 1;
  BOOST_TEST(wall_of(spec, run(spec)) == "communication");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
