// moetune program: what it prints is the compiled program, field by field; and what it refuses.
#include <algorithm>
#include <array>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <map>
#include <sstream>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "sweeps/load.h"
#include "tests/sweeps/cli_fixture.h"
#include "tuner/memory_model.h"
#include "tuner/profile_bindings.h"

namespace moetune::sweeps {
namespace {

namespace data = boost::unit_test::data;
using nlohmann::json;
using plan::Verb;
using tests::Answer;

struct ProgramCli : tests::Cli {
  /// The spec as the program reads it, with the knobs.
  [[nodiscard]] spec::TrialSpec trial(const std::vector<std::string>& knobs = {}) const {
    spec::TrialSpec read = load_trial(spec).spec;
    for (const std::string& word : knobs) {
      const size_t equals = word.find('=');
      spec::set_knob(read.knobs, *spec::find_knob(word.substr(0, equals)), word.substr(equals + 1));
    }
    return read;
  }

  json program(const std::vector<std::string>& knobs, int rank,
               const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"program",  spec,  "--rank", std::to_string(rank),
                                      "--format", "json"};
    for (const std::string& knob : knobs) words.insert(words.end(), {"--set", knob});
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_INFO(answer.err);
    BOOST_TEST_REQUIRE(answer.code == 0);
    return json::parse(answer.out);
  }
};

/// What is expected of one rank's instructions, in order.
json expected_instructions(const plan::StepProgram& program, const plan::Bindings& bindings) {
  json list = json::array();
  std::array<std::vector<int64_t>, static_cast<size_t>(plan::Stream::count)> last{};
  std::vector<plan::Item> items = program.setup;
  items.insert(items.end(), program.items.begin(), program.items.end());
  for (const plan::Item& item : items) {
    const plan::Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    std::map<int32_t, std::vector<int64_t>> recorded;
    for (const plan::Instr& instr : segment.code) {
      const auto mark = static_cast<plan::Mark>(instr.what);
      const bool is_ordering = instr.verb == Verb::record || instr.verb == Verb::wait;
      if (is_ordering && instr.device_only) continue;
      if (instr.verb == Verb::mark && mark != plan::Mark::graph_open &&
          mark != plan::Mark::graph_close) {
        continue;
      }
      const bool is_upload_of_route = instr.verb == Verb::upload &&
                                      static_cast<plan::Upload>(instr.what) == plan::Upload::route;
      const plan::Route* route = instr.is_routed || is_upload_of_route
                                     ? &bindings.at(item.layer, item.micro_batch)
                                     : nullptr;
      const plan::OpCost cost =
          instr.is_routed ? plan::cost_at(instr, route->received(segment.is_backward, instr.chunk))
                          : instr.cost;
      const bool is_comm =
          instr.verb == Verb::comm || instr.verb == Verb::send || instr.verb == Verb::recv;
      int64_t bytes = 0;
      const bool is_work = instr.verb == Verb::op || instr.verb == Verb::host;
      if (is_work) bytes = cost.bytes;
      if (is_comm) bytes = plan::sent_bytes(program, segment, instr, route);
      if (instr.verb == Verb::alloc || instr.verb == Verb::free) {
        bytes = profiler::aligned_bytes(cost.bytes);
      }
      if (instr.verb == Verb::upload) {
        // Two lists of numbers: of the step's tokens, or of the rows and their experts.
        const plan::LayerDims& d = segment.dims;
        int64_t num_micro_batches = 0;
        for (const plan::Item& other : program.items) {
          num_micro_batches = std::max<int64_t>(num_micro_batches, other.micro_batch + 1);
        }
        const int64_t num_offsets =
            (1 + d.chunks_forward + d.chunks_backward) * (d.local_experts + 1);
        bytes = is_upload_of_route ? 4 * (4 * route->num_received + num_offsets)
                                   : 4 * 2 * d.block_tokens * num_micro_batches;
      }
      // What a stream waits for comes before whatever is recorded on it next.
      std::vector<int64_t>& stream = last[static_cast<size_t>(instr.stream)];
      std::vector<int64_t> waits;
      if (instr.verb == Verb::record) recorded[instr.event] = stream;
      if (instr.verb == Verb::fetch) waits = stream;
      if (instr.verb == Verb::wait) {
        waits = recorded.at(instr.event);
        for (const int64_t number : waits) {
          if (std::ranges::count(stream, number) == 0) stream.push_back(number);
        }
      }
      if (instr.verb == Verb::op || instr.verb == Verb::upload || is_comm) {
        stream = {static_cast<int64_t>(list.size())};
      }
      list.push_back(
          {{"verb", plan::name_of(instr.verb)},
           {"op", instr.op == plan::Op::count ? json() : json(plan::op_row(instr.op).name)},
           {"pass", plan::name_of(instr.pass)},
           {"layer", item.layer},
           {"micro_batch", item.micro_batch},
           {"chunk", instr.chunk},
           {"stream", plan::name_of(instr.stream)},
           {"group", is_comm ? json(plan::name_of(instr.group)) : json()},
           {"flops", is_work ? cost.flops : 0},
           {"bytes", bytes},
           {"waits", waits}});
    }
  }
  return list;
}

/// Highest sum of what is made and not yet ended.
int64_t peak_of(const json& instructions) {
  int64_t peak = 0;
  int64_t in_use = 0;
  for (const json& instr : instructions) {
    const int64_t bytes = instr.at("bytes");
    if (instr.at("verb") == "alloc") in_use += bytes;
    if (instr.at("verb") == "free") in_use -= bytes;
    peak = std::max(peak, in_use);
  }
  return peak;
}

void check_printed(const json& printed, const spec::TrialSpec& trial, int rank,
                   const plan::Bindings& bindings) {
  const plan::StepProgram program = plan::compile(trial, rank);
  BOOST_TEST(printed.size() == 4U);
  BOOST_TEST(printed.at("rank") == rank);
  BOOST_TEST(printed.at("world_size") == program.layout.world_size());
  const json& found = printed.at("instructions");
  const json expected = expected_instructions(program, bindings);
  BOOST_TEST_REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST_INFO("instruction " << i);
    BOOST_TEST_REQUIRE(found[i] == expected[i]);
  }
  BOOST_TEST(printed.at("peak_bytes") == tuner::rank_memory(trial, program, bindings).peak_bytes);
  if (trial.backend == spec::BackendKind::cpu)
    BOOST_TEST(printed.at("peak_bytes") == peak_of(found));
}

using Knobs = std::vector<std::string>;
const std::vector<Knobs> kLayouts = {
    {},
    {"recompute=full", "pipeline_model_parallel_size=1", "data_parallel_size=4"},
    {"ep_chunks_forward=2", "ep_chunks_backward=3", "cuda_graph_modules=attn,moe_router"},
    {"pipeline_model_parallel_size=4", "context_parallel_size=1", "expert_model_parallel_size=2",
     "recompute=norm,experts", "overlap_grad_reduce=true"},
    {"data_parallel_size=8", "context_parallel_size=1", "pipeline_model_parallel_size=1",
     "expert_model_parallel_size=1", "use_distributed_optimizer=false"},
    {"tensor_model_parallel_size=2", "data_parallel_size=2", "context_parallel_size=1",
     "pipeline_model_parallel_size=2", "expert_model_parallel_size=2"},
    {"expert_tensor_parallel_size=2", "data_parallel_size=4", "context_parallel_size=2",
     "pipeline_model_parallel_size=1", "expert_model_parallel_size=2", "cp_comm_type=p2p"},
    {"pipeline_model_parallel_size=2", "virtual_pipeline_model_parallel_size=2",
     "data_parallel_size=4", "context_parallel_size=1", "expert_model_parallel_size=2"},
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(program_command, ProgramCli)

BOOST_AUTO_TEST_CASE(the_compiled_program_is_printed) {
  for (const Knobs& knobs : kLayouts) {
    const spec::TrialSpec read = trial(knobs);
    for (const int rank : {0, 3, 7}) {
      BOOST_TEST_CONTEXT("layout " << (knobs.empty() ? "as it is" : knobs[0]) << " rank " << rank) {
        const plan::BalancedBindings bindings(read, rank);
        check_printed(program(knobs, rank), read, rank, bindings);
      }
    }
  }
  // Rank 0 is what is printed without one, and a sweep file stands for its base.
  BOOST_TEST(run({"program", spec}).out == run({"program", spec, "--rank", "0"}).out);
  write_sweep([](json&) {});
  BOOST_TEST(json::parse(run({"program", folder.file("sweep.json"), "--format", "json"}).out)
                 .at("peak_bytes") == program({}, 0).at("peak_bytes"));
}

BOOST_AUTO_TEST_CASE(the_peak_is_that_of_the_memory_model) {
  const auto check_peak = [&](int rank) {
    const int64_t expected =
        tuner::estimate_memory(trial(), {}).ranks[static_cast<size_t>(rank)].peak_bytes;
    const json printed = program({}, rank);
    BOOST_TEST(printed.at("peak_bytes") == expected);
    return expected - peak_of(printed.at("instructions"));
  };
  BOOST_TEST(check_peak(0) == 0);
  // On a real device with what its libraries take.
  write_spec([](json& document) {
    document["backend"] = "cuda";
    document["communicator"] = "nccl";
    document["dtype"] = "bf16";
    document["hardware"]["workspace_bytes"] = 4096;
    document["hardware"].update({{"num_nodes", 1}, {"devices_per_node", 8}});
    document.erase("clock");
  });
  BOOST_TEST(check_peak(0) > 4096);
  BOOST_TEST(check_peak(5) > 4096);
}

BOOST_AUTO_TEST_CASE(rows_are_those_that_a_run_has_recorded) {
  const tests::ScopedEnvironment real("MOETUNE_RANK", tests::bin("moetune-rank"));
  const auto with_vocabulary = [](json& document) { document["model"]["vocab_size"] = 256; };
  write_spec([&](json& document) {
    with_vocabulary(document);
    document["hardware"].update({{"num_nodes", 1}, {"devices_per_node", 1}, {"memory_bytes", 0}});
    document["knobs"] = json::object();
    document["records_routing"] = true;
    document["num_steps"] = 1;
  });
  const Answer recorded = run({"trial", spec, "--db", db, "--quiet"});
  BOOST_TEST_INFO(recorded.err);
  BOOST_TEST_REQUIRE(recorded.code == 0);
  std::string text;
  for (const store::NamedText& named : store::Store::open_read_only(db).read_texts(1)) {
    if (named.name == "routing_profile") text = named.value;
  }
  const spec::RoutingProfile profile = spec::routing_profile_from_json(json::parse(text));

  write_spec(with_vocabulary);
  const json balanced = program({}, 5);
  const std::vector<Knobs> layouts = {
      {}, {"ep_chunks_forward=3"}, {"expert_model_parallel_size=2"}};
  for (const Knobs& knobs : layouts) {
    const spec::TrialSpec read = trial(knobs);
    const tuner::ProfileBindings bindings(profile, read, 5);
    const json printed = program(knobs, 5, {"--routing", db});
    check_printed(printed, read, 5, bindings);
    BOOST_TEST(printed.at("instructions") != balanced.at("instructions"));
  }
  const Answer shown = run({"program", spec, "--routing", db});
  BOOST_TEST(shown.out.find("rows of experts: as in the first step of trial 1 of " + db) !=
             std::string::npos);

  // Of a model, batch or length of its own.
  const auto refused = [&](const std::function<void(json&)>& change, const std::string& part) {
    write_spec([&](json& document) {
      with_vocabulary(document);
      change(document);
    });
    check_refused({"program", spec, "--routing", db}, 2, {db, "trial 1", part});
  };
  refused([](json& document) { document["model"]["hidden_size"] = 64; }, "hidden_size 32, here 64");
  refused([](json& document) { document["training"]["global_batch_size"] = 16; },
          "global_batch_size 8, here 16");
  refused([](json& document) { document["training"]["seq_length"] = 64; },
          "seq_length 128, here 64");
  // The database may have been edited by anybody.
  write_spec(with_vocabulary);
  const auto with_text = [&](const std::string& value) {
    store::Store::open(db).database().execute("UPDATE trial_log SET value = '" + value +
                                              "' WHERE name = 'routing_profile'");
  };
  json edited = json::parse(text);
  edited["counts"][0] = edited["counts"][0].get<int64_t>() + 1;
  with_text(edited.dump());
  check_refused({"program", spec, "--routing", db}, 2, {db, "trial 1", "a routing profile has"});
  with_text("{\"a\": 1}");
  check_refused({"program", spec, "--routing", db}, 2, {db, "trial 1", "'num_steps'"});
  with_text("[[[");
  check_refused({"program", spec, "--routing", db}, 2, {db, "trial 1", "routing profile"});
  store::Store::open(db).database().execute("UPDATE trial SET spec_json = '{\"model\": 3}'");
  check_refused({"program", spec, "--routing", db}, 2, {db, "trial 1", "cannot be read"});
}

BOOST_AUTO_TEST_CASE(a_person_reads_items_with_aligned_columns) {
  const Knobs knobs = {"cuda_graph_modules=attn,moe_router", "micro_batch_size=1"};
  const auto text_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"program", spec, "--rank", "1"};
    for (const std::string& knob : knobs) words.insert(words.end(), {"--set", knob});
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0);
    std::vector<std::string> lines;
    std::istringstream stream(answer.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  const auto count = [](const std::vector<std::string>& lines, const std::string& part) {
    return std::ranges::count_if(
        lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  };
  const std::vector<std::string> folded = text_of({});
  const std::vector<std::string> whole = text_of({"--all"});
  const plan::StepProgram compiled = plan::compile(trial(knobs), 1);
  const json printed = program(knobs, 1);
  for (const std::vector<std::string>& lines : {folded, whole}) {
    BOOST_TEST(lines[0] ==
               "rank 1 of 8: dp_cp 1 of 4, cp 1 of 2, ep 1 of 4, pp 0 of 2, "
               "embedding 0 of 2, tp_cp 1 of 2, stage 1 of 4");
    BOOST_TEST(lines[1].starts_with("peak memory "));
    BOOST_TEST(count(lines, "KiB") > 20);
    BOOST_TEST(count(lines, "layer 0, micro-batch 0: moe forward (item 3)") == 1);
    BOOST_TEST(count(lines, "before the first step") == 1);
    BOOST_TEST(count(lines, "graph moe_router begins") >= 1);
    BOOST_TEST(count(lines, "all_to_all of 4") >= 1);
    BOOST_TEST(count(lines, "to rank 5") >= 1);
    BOOST_TEST(count(lines, "attn_norm, qkv, q_norm, k_norm, o_proj") >= 1);
    // Every line of an instruction has its verb below the title.
    const auto titles = std::ranges::find_if(
        lines, [](const std::string& line) { return line.starts_with("  number"); });
    BOOST_TEST_REQUIRE((titles != lines.end()));
    const size_t verb = titles->find("verb");
    for (auto line = titles + 1; line != lines.end(); ++line) {
      if (!line->starts_with("   ") || line->find(" x ") != std::string::npos) continue;
      BOOST_TEST_INFO(*line);
      BOOST_TEST_REQUIRE(line->size() > verb);
      BOOST_TEST((*line)[verb - 1] == ' ');
      BOOST_TEST((*line)[verb] != ' ');
    }
  }
  BOOST_TEST(count(folded, "repeat what is above:") >= 2);
  BOOST_TEST(count(folded, "1 x gqa forward, as item 2, layer 1, micro-batch 0") == 1);
  BOOST_TEST(count(folded, "layers 0 to 1, micro-batches ") >= 1);
  BOOST_TEST(count(folded, "--all lists each") == 1);
  BOOST_TEST(count(whole, "repeat") == 0);
  BOOST_TEST(count(whole, "(item ") == static_cast<int64_t>(compiled.items.size()));
  // An item's lines are counted on, also where items before it are folded.
  const auto number_of = [](const std::vector<std::string>& lines, const std::string& op) {
    for (const std::string& line : lines) {
      const bool is_instr = line.starts_with("  ");
      if (is_instr && line.find(" " + op + " ") != std::string::npos) return std::stoul(line);
    }
    return 0UL;
  };
  const size_t adamw = number_of(folded, "adamw");
  BOOST_TEST(adamw == number_of(whole, "adamw"));
  BOOST_TEST(printed.at("instructions").at(adamw).at("op") == "adamw");
}

// Each layer's buckets are segments of their own, which read alike.
BOOST_AUTO_TEST_CASE(a_deep_model_stays_readable) {
  write_spec([](json& document) {
    document["model"]["num_hidden_layers"] = 48;
    document["training"]["global_batch_size"] = 512;
  });
  const std::string text = run({"program", spec}).out;
  BOOST_TEST(std::ranges::count(text, '\n') < 400);
  BOOST_TEST(text.find("x update, param_gather, as item ") != std::string::npos);
  BOOST_TEST(text.find("layers 1 to 23\n") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_printed_is_refused_in_one_message) {
  check_refused({"program"}, 2, {"the trial file is missing"});
  check_refused({"program", folder.file("none.json")}, 2, {"none.json", "No such file"});
  check_refused({"program", folder.file("corpus")}, 2, {"corpus"});
  check_refused({"program", spec, "--rank", "8"}, 2, {"--rank is 8", "0 to 7", "8 ranks"});
  for (const char* rank : {"-1", "0.5", "1e3", "one", "", "99999999999999999999"}) {
    check_refused({"program", spec, std::string("--rank=") + rank}, 2, {"--rank"});
  }
  check_refused({"program", spec, "--rank", "1", "--rank", "2"}, 2, {"--rank"});
  check_refused({"program", spec, "--format", "xml"}, 2, {"--format", "xml"});
  check_refused({"program", spec, "--set", "recompte=full"}, 2, {"recompte", "recompute"});
  check_refused({"program", spec, "--set", "expert_model_parallel_size=3"}, 2,
                {spec, "knobs.expert_model_parallel_size", "breaks the rule ep_divides_plane"});
  write_spec([](json& document) { document["knobs"]["micro_batch_size"] = "many"; });
  check_refused({"program", spec}, 2, {"trial.json", "micro_batch_size", "many"});
}

BOOST_AUTO_TEST_CASE(a_database_without_a_routing_is_refused) {
  check_refused({"program", spec, "--routing", db}, 2, {db});
  BOOST_TEST(!std::filesystem::exists(db));
  check_refused({"program", spec, "--routing", ""}, 2, {"--routing"});
  check_refused({"program", spec, "--routing", folder.file("")}, 2, {"is a folder"});
  check_refused({"program", spec, "--routing", spec}, 2, {spec, "not a moetune database"});
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  check_refused({"program", spec, "--routing", db}, 2, {db, "no trial has recorded its routing"});
}

// As of any program that writes into `head`.
BOOST_AUTO_TEST_CASE(a_pipe_that_nobody_reads_ends_it_without_a_word) {
  for (const char* format : {"json", "text"}) {
    const std::string words =
        tests::bin("moetune") + " program " + spec + " --all --format " + format;
    SystemProcessRunner runner;
    const auto end =
        runner
            .start({{"/bin/sh", "-c",
                     "{ sleep 0.1; " + words + "; echo $? >" + folder.file("code") + "; } | true"},
                    {},
                    "/dev/null",
                    folder.file("err")})
            ->wait(std::chrono::seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_TEST(tests::read_text(folder.file("code")) == "141\n");  // 128 and SIGPIPE
    BOOST_TEST(tests::read_text(folder.file("err")) == "");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
