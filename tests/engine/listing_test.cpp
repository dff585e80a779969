// A listed program says of a step what the engine records of it: work, bytes and streams of every
// launch, whom it waited for, and all of the memory.
#include "engine/plan/listing.h"

#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "engine/plan/compile.h"
#include "profiler/memory_ledger.h"
#include "tests/engine/parity_fixture.h"
#include "tests/engine/recorded_routes.h"
#include "tuner/memory_model.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(listing)

namespace {

using plan::ListedInstr;
using plan::Verb;

const char* const kMoreLayouts[] = {
    R"({"recompute": "full"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "norm,experts"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
        "cuda_graph_modules": "attn,moe_router,moe_preprocess"})"};

bool is_recorded(const plan::Instr& instr) {
  return instr.op != plan::Op::count && !instr.device_only;
}

/// Follows a list beside the records of the same step.
class Comparison {
 public:
  explicit Comparison(const std::vector<profiler::TraceRecord>& records) : records_(records) {}

  void add(const ListedInstr& listed) {
    const plan::Instr& instr = *listed.instr;
    if (instr.verb == Verb::wait) {
      std::vector<int64_t>& waits = waits_[instr.stream];
      waits.insert(waits.end(), listed.waits_for.begin(), listed.waits_for.end());
    }
    const int64_t number = next_number_++;
    // Virtual time has no copies from the host: whoever waits for one waits for nothing.
    if (instr.verb == Verb::upload) uploads_.insert(number);
    if (!is_recorded(instr)) return;
    BOOST_TEST_REQUIRE(at_ < records_.size());
    const profiler::TraceRecord& record = records_[at_];
    of_number_[number] = at_++;
    BOOST_TEST_REQUIRE(record.name == plan::op_label(instr.op, instr.pass));
    BOOST_TEST(record.layer == listed.item->layer);
    BOOST_TEST(record.micro_batch == listed.item->micro_batch);
    BOOST_TEST(record.flops == listed.cost.flops);
    BOOST_TEST(record.bytes == listed.cost.bytes);
    if (instr.verb == Verb::fetch) {
      BOOST_TEST_REQUIRE(!listed.waits_for.empty());
      BOOST_TEST(record.producer_id == latest_of(listed.waits_for));
      return;
    }
    if (instr.verb == Verb::host) {
      BOOST_TEST(record.stream == profiler::kHostStream);
      BOOST_TEST(record.producer_id == profiler::kNoRecord);
      return;
    }
    BOOST_TEST(record.stream == static_cast<int>(instr.stream));
    BOOST_TEST(record.group == (instr.verb == Verb::op ? "" : plan::name_of(instr.group)));
    BOOST_TEST(record.producer_id == latest_of(waits_[instr.stream]));
    waits_[instr.stream].clear();
  }

  void finish() const { BOOST_TEST(at_ == records_.size()); }

 private:
  [[nodiscard]] const profiler::TraceRecord& record_of(int64_t number) const {
    return records_[of_number_.at(number)];
  }
  /// How long a record is waited for. Of a message that is sent: for its slot, where it had to wait
  /// for that itself.
  static int64_t awaited_ns(const profiler::TraceRecord& record) {
    if (record.stream != static_cast<int>(plan::Stream::pipeline_send)) return record.end_ns;
    const int64_t slot_ns = record.end_ns - record.transfer_ns;
    return slot_ns > record.start_ns ? slot_ns : 0;
  }
  /// The record that the stream waited for longest.
  [[nodiscard]] int64_t latest_of(const std::vector<int64_t>& numbers) const {
    int64_t end = 0;
    int64_t id = profiler::kNoRecord;
    for (const int64_t number : numbers) {
      if (uploads_.contains(number) || awaited_ns(record_of(number)) <= end) continue;
      end = awaited_ns(record_of(number));
      id = record_of(number).id;
    }
    return id;
  }

  const std::vector<profiler::TraceRecord>& records_;
  size_t at_ = 0;
  int64_t next_number_ = 0;
  std::map<int64_t, size_t> of_number_;
  std::map<plan::Stream, std::vector<int64_t>> waits_;
  std::set<int64_t> uploads_;  ///< by number
};

/// Highest sum of what is made and not yet ended.
int64_t peak_of(const std::vector<ListedInstr>& list) {
  int64_t peak = 0;
  int64_t in_use = 0;
  for (const ListedInstr& listed : list) {
    if (listed.instr->verb == Verb::alloc) in_use += listed.cost.bytes;
    if (listed.instr->verb == Verb::free) in_use -= listed.cost.bytes;
    peak = std::max(peak, in_use);
  }
  return peak;
}

BOOST_AUTO_TEST_CASE(a_list_says_what_the_engine_has_done) {
  std::vector<std::string> layouts(std::begin(kMoreLayouts), std::end(kMoreLayouts));
  layouts.insert(layouts.end(), std::begin(testing::kLayouts), std::end(testing::kLayouts));
  for (const std::string& layout : layouts) {
    const spec::TrialSpec trial =
        testing::tiny_trial(testing::mixed_model(), testing::knobs_of(layout));
    testing::RecordedRoutes routes;
    TrainerHooks hooks;
    hooks.observers.route = &routes;
    const testing::TrainingRun run = testing::train(trial, 1, hooks);
    for (size_t rank = 0; rank < run.traces.size(); ++rank) {
      BOOST_TEST_CONTEXT(layout << " rank " << rank) {
        const plan::StepProgram program = plan::compile(trial, static_cast<int>(rank));
        plan::check(program);
        const plan::Bindings& bindings = *routes.of(static_cast<int>(rank));
        const auto list = plan::list_instructions(program, bindings);
        Comparison comparison(run.traces[rank].records);
        for (const ListedInstr& listed : list) comparison.add(listed);
        comparison.finish();
        const profiler::MemoryLedger& ledger = run.ledgers[rank];
        BOOST_TEST(peak_of(list) == ledger.peak_bytes());
        const tuner::RankMemory memory = tuner::rank_memory(trial, program, bindings);
        BOOST_TEST(memory.peak_bytes == ledger.peak_bytes());
        BOOST_TEST(memory.group_bytes == ledger.peak_by_group(), boost::test_tools::per_element());
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
