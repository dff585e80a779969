// Buffers that dispatchers hold beside PyTorch's allocator, worked out by hand from their sources.
#include "tuner/planner/dispatcher_buffers.h"

#include <boost/test/unit_test.hpp>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;
using spec::Dispatcher;

namespace {

constexpr double kMiB = 1 << 20;
const auto exactly = boost::test_tools::tolerance(1e-12);

}  // namespace

BOOST_AUTO_TEST_SUITE(dispatcher_buffers)

BOOST_AUTO_TEST_CASE(others_have_none) {
  const spec::ModelSpec moe = moe_model();
  const spec::ModelSpec dense = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(moe, hardware);
  run.knobs.dp = run.knobs.ep = 8;
  for (const Dispatcher dispatcher : {Dispatcher::alltoall, Dispatcher::allgather}) {
    run.knobs.dispatcher = dispatcher;
    BOOST_TEST(dispatcher_buffer_bytes(run) == 0);
  }
  for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
    run.knobs.dispatcher = dispatcher;
    BOOST_TEST(dispatcher_buffer_bytes(run) > 0);
    PlanRun alone = run;
    alone.knobs.ep = 1;
    BOOST_TEST(dispatcher_buffer_bytes(alone) == 0);
    alone = run;
    alone.model = &dense;
    BOOST_TEST(dispatcher_buffer_bytes(alone) == 0);
  }
}

// Rows of 2048 bytes, and 2056 beside: 8 of their origin, 128 experts of 12, 128 scales of 4.
BOOST_AUTO_TEST_CASE(deepep_holds_chunks) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dispatcher = Dispatcher::deepep;
  run.knobs.dp = 16;
  run.knobs.ep = 8;
  const double in_node = 32 * kMiB + 10.0 * 8 * 256 * (2048 + 2056);
  BOOST_TEST(dispatcher_buffer_bytes(run) == in_node, exactly);
  // Tokens do not count, channels do: one for two multiprocessors.
  run.seq_length *= 4;
  BOOST_TEST(dispatcher_buffer_bytes(run) == in_node, exactly);
  run.knobs.moe_flex_dispatcher_num_sms = 40;
  BOOST_TEST(dispatcher_buffer_bytes(run) == 2 * in_node - 32 * kMiB, exactly);
  run.knobs.moe_flex_dispatcher_num_sms = 0;
  // Over the network NVSHMEM's heap comes in pieces of 512 MiB; 22 MiB are needed.
  run.knobs.ep = 16;
  const double near = 32 * kMiB + 10.0 * 8 * 288 * (2048 + 2056);
  BOOST_TEST(dispatcher_buffer_bytes(run) == near + 512 * kMiB, exactly);
}

// Rows of 2048 bytes, 8 scales of 4, and a probability of 4 for each of a domain's 16 experts.
BOOST_AUTO_TEST_CASE(hybridep_holds_all_tokens_of_its_group) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec near = machine(8);
  PlanRun run = run_of(model, near);
  run.knobs.dispatcher = Dispatcher::hybridep;
  run.knobs.dp = run.knobs.ep = 8;
  const double tokens = 4096;
  BOOST_TEST(dispatcher_buffer_bytes(run) == 8 * tokens * (2048 + 32 + 64), exactly);
  run.knobs.micro_batch_size = 2;
  BOOST_TEST(dispatcher_buffer_bytes(run) == 2 * 8 * tokens * (2048 + 32 + 64), exactly);
  run.knobs.micro_batch_size = 1;
  // Of two domains with 8 of the experts each: what goes to the other one, and three buffers of
  // what comes and goes.
  const spec::HardwareSpec far = machine(16);
  run.hardware = &far;
  run.knobs.dp = run.knobs.ep = 16;
  const double domain = 16 * tokens * (2048 + 32 + 32);
  const double sent = tokens * (2048 + 64 + 32);
  const double others = tokens * (3 * (2048 + 32) + 32);
  BOOST_TEST(dispatcher_buffer_bytes(run) == domain + sent + others, exactly);
}

// They are no memory of PyTorch's, but have to fit.
BOOST_AUTO_TEST_CASE(buffers_are_beside_what_is_allocated) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = run.knobs.ep = 8;
  run.knobs.dispatcher = Dispatcher::alltoall;
  const StageMemory plain = predict_memory(run).worst();
  run.knobs.dispatcher = Dispatcher::hybridep;
  const StageMemory hybrid = predict_memory(run).worst();
  const double buffers = dispatcher_buffer_bytes(run);
  BOOST_TEST(hybrid.peak.exchange_buffers == buffers, exactly);
  BOOST_TEST(hybrid.allocated() == plain.allocated(), exactly);
  BOOST_TEST(hybrid.peak.total() == plain.peak.total() + buffers, exactly);
  constexpr double kDevice = 80e9;
  BOOST_TEST(capacity_beside_buffers(hybrid, kDevice) == kDevice - buffers, exactly);
  BOOST_TEST(capacity_beside_buffers(hybrid, 0) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
