// The knob table: rows, text and JSON both ways, messages, and the committed page.
#include "engine/spec/knobs.h"

#include <fmt/format.h>

#include <bit>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/spec/other_knobs.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(knobs)

namespace {

Knobs set(const char* name, std::string_view text) {
  Knobs knobs;
  set_knob(knobs, *find_knob(name), text);
  return knobs;
}

std::string set_error(const char* name, std::string_view text) {
  return usage_error([&] { set(name, text); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_complete_and_name_their_own_member) {
  std::set<std::string_view> names;
  for (const KnobRow& row : knob_table()) {
    BOOST_TEST_CONTEXT(row.name) {
      BOOST_TEST(names.insert(row.name).second);
      BOOST_TEST(!row.group.empty());
      BOOST_TEST(!row.values.empty());
      BOOST_TEST(!row.megatron_flag.empty());
      BOOST_TEST(!row.help.empty());
      BOOST_TEST(find_knob(row.name) == &row);
      // Setting one row changes exactly one value of the JSON, its own.
      Knobs changed;
      const Knobs defaults;
      set_knob(changed, row, samples::other_value(defaults, row));
      BOOST_TEST(!(changed == defaults));
      json difference = to_json(changed);
      const json default_values = to_json(defaults);
      for (const auto& [key, value] : default_values.items()) {
        if (difference[key] == value) difference.erase(key);
      }
      BOOST_TEST(difference.size() == 1u);
      BOOST_TEST(difference.contains(std::string(row.name)));
    }
  }
  BOOST_TEST(find_knob("no_such_knob") == nullptr);
}

BOOST_AUTO_TEST_CASE(text_round_trip) {
  Knobs knobs = set("recompute", "moe_act,norm");
  set_knob(knobs, *find_knob("ep_chunks_forward"), "4");
  set_knob(knobs, *find_knob("overlap_grad_reduce"), "true");
  Knobs copy;
  for (const KnobRow& row : knob_table()) set_knob(copy, row, get_knob(knobs, row));
  BOOST_TEST((copy == knobs));
  BOOST_TEST((knobs_from_json(to_json(knobs), "k") == knobs));
  BOOST_TEST(get_knob(knobs, *find_knob("overlap_grad_reduce")) == "true");
}

BOOST_AUTO_TEST_CASE(sets_come_into_table_order_without_duplicates) {
  BOOST_TEST(set("recompute", "experts, norm,moe_act,norm").recompute.text() ==
             "norm,moe_act,experts");
  BOOST_TEST(set("recompute", "full").recompute.text() == "full");
  BOOST_TEST(set("cuda_graph_modules", "moe_preprocess,attn").cuda_graph_modules.text() ==
             "attn,moe_preprocess");
  BOOST_TEST(set("cuda_graph_modules", "none").cuda_graph_modules.text() == "none");
  for (const char* text : {"", "full,norm", "none,norm", "norm,", "mlp", "Norm", "norm;moe_act",
                           "set of norm, core_attn, moe_act, experts"}) {
    BOOST_TEST(contains(set_error("recompute", text),
                        "expected none | full | set of norm, core_attn, moe_act, experts"));
  }
  BOOST_TEST(contains(set_error("cuda_graph_modules", "full"), "'full'"));
  BOOST_TEST((set("exp_avg_dtype", "bf16").exp_avg_dtype == MomentType::bf16));
  for (const char* text : {"", "fp16", "bf16,fp32"}) {
    BOOST_TEST(contains(set_error("exp_avg_sq_dtype", text), "expected fp32 | bf16"));
  }
}

// Every value of a set knob by its text, and that the table's words are those that parse.
BOOST_AUTO_TEST_CASE(all_sets_go_through_their_text) {
  const auto check = []<class E>(const NamedSet<E>&, const KnobRow& row) {
    const std::vector<E> members = all_values<E>();
    for (uint32_t bits = 0; bits < uint32_t{1} << members.size(); ++bits) {
      NamedSet<E> made;
      for (size_t i = 0; i < members.size(); ++i) {
        if ((bits >> i & 1U) != 0) made.add(members[i]);
      }
      BOOST_TEST(made.size() == std::popcount(bits));
      BOOST_TEST(made.empty() == (bits == 0));
      const std::optional<NamedSet<E>> parsed = NamedSet<E>::parse(made.text());
      // Only what stands alone is refused, and only beside others.
      const bool is_mixed =
          made.size() > 1 && NameTable<E>::kRows.back().stands_alone && made.has(members.back());
      BOOST_TEST(parsed.has_value() == !is_mixed, made.text());
      if (parsed) BOOST_TEST((*parsed == made), made.text());
    }
    for (const auto& member : NameTable<E>::kRows) {
      BOOST_TEST(contains(std::string(row.values), std::string(member.name)));
    }
  };
  check(Knobs{}.recompute, *find_knob("recompute"));
  check(Knobs{}.cuda_graph_modules, *find_knob("cuda_graph_modules"));
  BOOST_TEST(contains(usage_error([] { static_cast<void>(RecomputeSet("mlp")); }), "'mlp'"));
}

BOOST_AUTO_TEST_CASE(bad_text_names_knob_and_value) {
  for (const char* text : {"0", "-1", "", "x", "1x", "1.5", " 1", "99999999999999999999"}) {
    const std::string message = set_error("micro_batch_size", text);
    BOOST_TEST(contains(message, "knob 'micro_batch_size'"));
    BOOST_TEST(contains(message, text));
  }
  BOOST_TEST(contains(set_error("micro_batch_size", "2000000"), "from 1 to 1048576"));
  for (const char* text : {"1", "yes", "True", ""}) {
    BOOST_TEST(contains(set_error("overlap_grad_reduce", text), "expected true | false"));
  }
}

BOOST_AUTO_TEST_CASE(bad_json_names_source_key_and_value) {
  const std::pair<json, const char*> rows[] = {
      {json::array(), "sweep.json: found an array"},
      {{{"micro_batch_size", "2"}}, "key 'micro_batch_size' is \"2\""},
      {{{"micro_batch_size", 0}}, "expected an integer from 1 to"},
      {{{"micro_batch_size", 1e30}}, "expected an integer from 1 to"},
      {{{"micro_batch_size", nullptr}}, "key 'micro_batch_size' is null"},
      {{{"overlap_grad_reduce", 1}}, "expected true or false"},
      {{{"recompute", "mlp"}}, "key 'recompute' is \"mlp\", expected none | full"},
      {{{"recompute", {"norm"}}}, "key 'recompute' is an array"},
      {{{"cp_comm_type", "a2a"}}, "key 'cp_comm_type' is \"a2a\", expected all_gather | p2p"},
      {{{"micro_batchsize", 2}}, "did you mean 'micro_batch_size'?"},
  };
  for (const auto& [document, expected] : rows) {
    Knobs knobs = set("ep_chunks_forward", "3");
    const Knobs before = knobs;
    const std::string message = usage_error([&] { update_knobs(knobs, document, "sweep.json"); });
    BOOST_TEST_INFO(message);
    BOOST_TEST(contains(message, "sweep.json"));
    BOOST_TEST(contains(message, expected));
    BOOST_TEST((knobs == before));
  }
}

// What plans know and the engine does not run yet is no misspelt knob.
BOOST_AUTO_TEST_CASE(knobs_and_values_of_plans_are_told_apart_from_misspelt_ones) {
  const auto gap = [](const std::string& what) {
    return "the engine does not run '" + what +
           "' yet (rule engine_runs_knob), 'moetune plan' knows it";
  };
  const auto told = [](const json& document) {
    return usage_error([&] { knobs_from_json(document, "sweep.json"); });
  };
  BOOST_TEST(told({{"offload", "moe_act"}}) ==
             "sweep.json: key 'offload' is \"moe_act\": " + gap("offload"));
  BOOST_TEST(contains(told({{"fsdp", true}}), gap("fsdp")));
  // By Megatron-LM's name, too.
  BOOST_TEST(
      contains(told({{"moe_token_dispatcher_type", "flex"}}), gap("moe_token_dispatcher_type")));
  BOOST_TEST(told({{"cp_comm_type", "a2a"}}) ==
             "sweep.json: key 'cp_comm_type' is \"a2a\", expected all_gather | p2p; " + gap("a2a"));
  BOOST_TEST(contains(told({{"recompute", "norm, mlp"}}), "experts; " + gap("mlp")));
  BOOST_TEST(set_error("recompute", "mlp").ends_with("experts; " + gap("mlp")));
  BOOST_TEST(set_error("exp_avg_dtype", "fp8").ends_with("; " + gap("fp8")));
  BOOST_TEST(set_error("cuda_graph_modules", "mamba").ends_with("; " + gap("mamba")));
  // What the engine has by another name.
  const std::pair<const char*, const char*> names[] = {
      {"dp", "data_parallel_size"},
      {"exp_avg", "exp_avg_dtype"},
      {"cuda_graphs", "cuda_graph_modules"},
      {"distributed_optimizer", "use_distributed_optimizer"},
      {"first_stage_layers", "decoder_first_pipeline_num_layers"},
      {"recompute_modules", "recompute"},
      {"recompute_method", "recompute"},
      {"num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"}};
  for (const auto& [name, meant] : names) {
    BOOST_TEST(contains(told({{name, 2}}), fmt::format("did you mean '{}'?", meant)), name);
    BOOST_TEST(engine_knob_gap(name) == "", name);
  }
  BOOST_TEST(set_error("recompute", "layernorm,moe_act").ends_with("; did you mean 'norm'?"));
  BOOST_TEST(set_error("cp_comm_type", "allgather").ends_with("; did you mean 'all_gather'?"));
  // And what nobody knows.
  BOOST_TEST(contains(told({{"ofload", 1}}), "unknown key 'ofload' with value 1; known keys: "));
  BOOST_TEST(set_error("recompute", "mlpp").ends_with("experts"));
  BOOST_TEST(set_error("cp_comm_type", "").ends_with("p2p"));
}

BOOST_AUTO_TEST_CASE(update_leaves_other_knobs_alone) {
  Knobs knobs = set("ep_chunks_forward", "3");
  update_knobs(knobs, {{"recompute", "norm"}}, "k");
  BOOST_TEST(knobs.ep_chunks_forward == 3);
  BOOST_TEST(knobs.recompute.text() == "norm");
}

BOOST_AUTO_TEST_CASE(questions_about_sets) {
  const Knobs some = set("recompute", "core_attn,experts");
  BOOST_TEST(!recomputes(some, RecomputeModule::norm));
  BOOST_TEST(recomputes(some, RecomputeModule::core_attn));
  BOOST_TEST(!recomputes(some, RecomputeModule::moe_act));
  BOOST_TEST(recomputes(some, RecomputeModule::experts));
  const Knobs full = set("recompute", "full");
  BOOST_TEST(is_full_recompute(full));
  BOOST_TEST(!recomputes(full, RecomputeModule::norm));
  BOOST_TEST(!is_full_recompute(some));
  const Knobs graphs = set("cuda_graph_modules", "attn,moe_router");
  BOOST_TEST(has_graph(graphs, GraphScope::attn));
  BOOST_TEST(has_graph(graphs, GraphScope::moe_router));
  BOOST_TEST(!has_graph(graphs, GraphScope::moe_preprocess));
  BOOST_TEST(!has_graph(graphs, GraphScope::none));
  BOOST_TEST(!has_graph(Knobs{}, GraphScope::none));
  BOOST_TEST(!has_graph(Knobs{}, GraphScope::attn));
}

BOOST_AUTO_TEST_CASE(the_committed_page_is_the_table) {
  BOOST_TEST_INFO("docs/knobs.md differs from knobs_markdown(); write it again");
  BOOST_TEST(samples::read_file("docs/knobs.md") == knobs_markdown());
  for (const KnobRow& row : knob_table()) {
    BOOST_TEST(contains(knobs_markdown(), "| `" + std::string(row.name) + "` |"));
  }
  // The only way to a knob on the command line; no knob is an option of its own.
  BOOST_TEST(contains(knobs_markdown(), "`--set NAME=VALUE`"));
  BOOST_TEST(!contains(knobs_markdown(), "`--` and the name"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
