// How each line of a memory breakdown is known: no line without a row, no row without a line, and
// one place for both figures and words.
#include "tuner/planner/memory_evidence.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/tuner/planner_samples.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;
using spec::PlanRecompute;
using spec::PrecisionRecipe;

namespace {

/// A run with the model and the machine that it refers to.
struct Sample {
  spec::ModelSpec model;
  spec::HardwareSpec hardware = machine(8);
  PlanRun run;

  explicit Sample(spec::ModelSpec of) : model(std::move(of)) {
    run = run_of(model, hardware);
    run.knobs.dp = 8;
  }
};

using Change = void (*)(Sample&);

void take_stages(Sample& s) {
  s.run.knobs.pp = 2;
  s.run.knobs.dp = 4;
}
void take_torchtitan(Sample& s) {
  s.run.is_of_megatron = false;
  s.run.knobs.fsdp = spec::Fsdp::torch;
}
void take_ddp(Sample& s) {
  s.run.is_of_megatron = false;
  s.run.knobs.fsdp = spec::Fsdp::none;
  s.run.knobs.main_params = spec::StateType::fp32;
}
template <PrecisionRecipe kRecipe>
void compute_in(Sample& s) {
  s.run.knobs.precision = kRecipe;
}

const Change kDense[] = {
    [](Sample&) {},
    take_stages,
    [](Sample& s) {
      take_stages(s);
      s.model.ties_embeddings = true;
    },
    [](Sample& s) {
      take_stages(s);
      s.run.knobs.vpp = 2;
    },
    [](Sample& s) {
      take_stages(s);
      s.run.holds_all_micro_batches = true;
    },
    [](Sample& s) { s.run.knobs.task = spec::TrainingTask::lora; },
    [](Sample& s) { s.run.knobs.optimizer_offload_ratio = 0.5; },
    [](Sample& s) { s.run.knobs.precision_aware_optimizer = true; },
    [](Sample& s) { s.run.knobs.fsdp = spec::Fsdp::megatron; },
    [](Sample& s) {
      s.run.knobs.fsdp = spec::Fsdp::megatron;
      s.run.knobs.recompute.add(PlanRecompute::full);
      s.model.vocab_size = 1000;
    },
    [](Sample& s) {
      take_stages(s);
      s.run.knobs.vpp = 2;
      s.run.knobs.offload.add(spec::Offload::core_attn);
    },
    [](Sample& s) {
      s.run.knobs.recompute.add(PlanRecompute::full);
      s.model.vocab_size = 1000;  // so that the loss is not the peak
    },
    [](Sample& s) { s.run.knobs.offload.add(spec::Offload::attn_norm); },
    [](Sample& s) { s.model.hidden_dropout = 0.1; },
    [](Sample& s) {
      s.run.knobs.tp = 2;
      s.run.knobs.dp = 4;
      s.run.knobs.sequence_parallel = true;
    },
    [](Sample& s) { s.run.knobs.cross_entropy = spec::CrossEntropy::native; },
    [](Sample& s) { s.run.knobs.cross_entropy = spec::CrossEntropy::te; },
    [](Sample& s) {
      s.run.knobs.cross_entropy = spec::CrossEntropy::te;
      s.run.knobs.gradient_accumulation_fusion = false;
    },
    [](Sample& s) {
      s.run.seq_length = 1;  // little is saved, so that the update is the peak
      s.run.knobs.main_grads = spec::StateType::bf16;
    },
    [](Sample& s) {
      s.run.knobs.cuda_graphs.add(spec::PlanGraph::attn);
      s.run.knobs.cuda_graph_warmup_steps = 0;
    },
    compute_in<PrecisionRecipe::fp8_current>,
    [](Sample& s) {
      s.hardware.fp4_flops_per_s = 4e15;
      s.run.knobs.precision = PrecisionRecipe::fp8_current;
    },
    compute_in<PrecisionRecipe::fp8_blockwise>,
    compute_in<PrecisionRecipe::mxfp8>,
    compute_in<PrecisionRecipe::nvfp4>,
    take_torchtitan,
    [](Sample& s) {
      take_torchtitan(s);
      take_stages(s);
    },
    [](Sample& s) {
      take_torchtitan(s);
      s.run.knobs.recompute.add(PlanRecompute::mlp);
    },
    take_ddp,
};
template <spec::Dispatcher kDispatcher>
void send_by(Sample& s) {
  s.hardware = machine(16);
  s.run.knobs.dp = s.run.knobs.ep = 16;
  s.run.knobs.dispatcher = kDispatcher;
}

const Change kMoe[] = {
    [](Sample& s) { s.run.knobs.ep = 4; },
    [](Sample& s) {
      s.run.knobs.ep = 8;
      s.model.moe_ffn_size = 2816;  // 11 MiB of state
    },
    take_stages,
    send_by<spec::Dispatcher::deepep>,
    send_by<spec::Dispatcher::hybridep>,
    [](Sample& s) {
      s.run.knobs.ep = 4;
      s.run.knobs.dispatcher = spec::Dispatcher::allgather;
    },
    [](Sample& s) {
      take_stages(s);
      s.run.knobs.ep = 4;
      s.run.knobs.overlap_moe_expert_parallel_comm = true;
    },
    [](Sample& s) {
      s.model.mtp.depth = 1;
      s.model.mtp.layers = {s.model.kind_of(0)};
    },
};

template <class Use>
void for_each_breakdown(const Use& use) {
  const auto each = [&](spec::ModelSpec (*model)(), std::span<const Change> changes) {
    for (const Change change : changes) {
      Sample sample(model());
      change(sample);
      for (const StageMemory& stage : predict_memory(sample.run).stages) {
        use(sample.run, stage,
            memory_breakdown(sample.run, stage, static_cast<double>(sample.hardware.memory_bytes)));
      }
    }
  };
  each(dense_model, kDense);
  each(moe_model, kMoe);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_evidence)

BOOST_AUTO_TEST_CASE(each_line_has_evidence_and_each_row_a_line) {
  std::set<MemoryRule> seen;
  std::set<MemoryLine> lines_seen;
  for_each_breakdown(
      [&](const PlanRun&, const StageMemory& stage, const std::vector<LineBytes>& lines) {
        for (const LineBytes& line : lines) {
          lines_seen.insert(line.line);
          BOOST_TEST(!line.rows.empty(),
                     row_of(line.line).key << " has no row in the " << stage.moment);
          for (const MemoryRow* row : line.rows) {
            BOOST_TEST((row->line == line.line));
            BOOST_TEST(!row->basis.empty(), row->name);
            seen.insert(row->rule);
          }
        }
      });
  for (const MemoryRow& row : memory_rows()) {
    BOOST_TEST(seen.contains(row.rule), row.name << " is in no breakdown");
  }
  for (const MemoryLineRow& row : memory_lines()) {
    BOOST_TEST(lines_seen.contains(row.line), row.key);
  }
}

BOOST_AUTO_TEST_CASE(names_of_terms_are_told_apart) {
  std::set<std::string_view> names;
  for (const MemoryRow& row : memory_rows()) BOOST_TEST(names.insert(row.name).second, row.name);
  for (const SavedTerm& term : saved_terms()) BOOST_TEST(names.insert(term.name).second, term.name);
}

// The lines are the prediction: its peak, the margin of what fits, and what is reserved.
BOOST_AUTO_TEST_CASE(lines_add_up) {
  const auto near = boost::test_tools::tolerance(1e-9);
  for_each_breakdown([&](const PlanRun& run, const StageMemory& stage,
                         const std::vector<LineBytes>& lines) {
    const auto of = [&](MemoryLine wanted) {
      double bytes = 0;
      for (const LineBytes& line : lines) bytes += line.line == wanted ? line.bytes : 0;
      return bytes;
    };
    double peak = 0;
    for (const MemoryLineRow& part : memory_parts()) peak += of(part.line);
    BOOST_TEST(peak == stage.peak.total(), near);
    BOOST_TEST(of(MemoryLine::graph_pool) == stage.in_graphs, near);
    BOOST_TEST(
        peak + of(MemoryLine::fragments) + of(MemoryLine::beside_pytorch) == device_bytes(peak),
        near);
    const auto device = static_cast<double>(run.hardware->memory_bytes);
    const double reserved =
        reserved_bytes(stage.allocated(), stage.in_graphs, capacity_beside_buffers(stage, device));
    BOOST_TEST(stage.allocated() + of(MemoryLine::graph_pool) + of(MemoryLine::cached) == reserved,
               near);
  });
}

// What a run has tells which rows it has.
BOOST_AUTO_TEST_CASE(rows_are_those_of_the_run) {
  const auto names_of = [](const PlanRun& run, MemoryLine wanted) {
    std::set<MemoryRule> rules;
    const MemoryPrediction memory = predict_memory(run);
    for (const LineBytes& line : memory_breakdown(run, memory.worst(), 0)) {
      if (line.line != wanted) continue;
      for (const MemoryRow* row : line.rows) rules.insert(row->rule);
    }
    return rules;
  };
  Sample sample(dense_model());
  const auto plain = names_of(sample.run, MemoryLine::optimizer);
  BOOST_TEST(plain.contains(MemoryRule::master));
  BOOST_TEST(!plain.contains(MemoryRule::master_remainder));
  sample.run.knobs.precision_aware_optimizer = true;
  const auto aware = names_of(sample.run, MemoryLine::optimizer);
  BOOST_TEST(!aware.contains(MemoryRule::master));
  BOOST_TEST(aware.contains(MemoryRule::master_remainder));
  BOOST_TEST(names_of(sample.run, MemoryLine::narrow_weights).empty());
  // Three handles of 32 MiB: the words and the figures of one row.
  const MemoryParts parts = predict_memory(sample.run).worst().peak;
  const auto row = std::ranges::find(memory_rows(), MemoryRule::workspace, &MemoryRow::rule);
  BOOST_TEST(formula_text(*row) == "32.0 MiB for each handle");
  BOOST_TEST(parts.workspaces == 3 * row->figure);
}

BOOST_AUTO_TEST_CASE(the_page_has_the_rows) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/docs/memory.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  BOOST_TEST(page.find(memory_rows_markdown()) != std::string::npos,
             "docs/memory.md has not the tables of memory_rows_markdown():\n"
                 << memory_rows_markdown());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
