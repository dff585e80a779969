// JSON round trip, refusals and identity of trials.
#include "engine/spec/trial_spec.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::trial;
using samples::usage_error;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(trial_spec)

namespace {

std::string error_with(const std::string& pointer, const json& value) {
  json document = to_json(trial());
  document[json::json_pointer(pointer)] = value;
  return usage_error([&] { trial_spec_from_json(document, "trial.json"); });
}

struct Refusal {
  const char* pointer;
  json value;
  const char* expected;
};
std::ostream& operator<<(std::ostream& out, const Refusal& row) { return out << row.pointer; }

const Refusal kRefusals[] = {
    {"/num_stpes", 3, "unknown key 'num_stpes' with value 3; did you mean 'num_steps'?"},
    {"/training/learning_rate", 1e-3, "unknown key 'training.learning_rate'"},
    {"/knobs/tensor_parallel", 2, "trial.json: knobs: unknown key 'tensor_parallel'"},
    {"/hardware/gpus", 2, "trial.json: hardware: unknown key 'gpus'"},
    {"/fault/kind", "explode", "'fault.kind' is \"explode\", expected one of"},
    {"/fault/speed", 1, "unknown key 'fault.speed'"},
    {"/num_steps", 1e9, "'num_steps' is 1000000000.0, expected an integer from 0 to 1000000"},
    {"/training/global_batch_size", 0, "'training.global_batch_size' is 0"},
    {"/training/global_batch_size", 10'000'000, "from 1 to 1000000"},
    {"/training/seq_length", -128, "'training.seq_length' is -128"},
    {"/training/lr", "fast", "'training.lr' is \"fast\""},
    {"/training/lr", nullptr, "'training.lr' is null"},
    {"/training/beta2", 1.0, "'training.beta2' is 1.0"},
    {"/training/seed", -1, "'training.seed' is -1"},
    {"/training", 7, "'training' is 7"},
    {"/dtype", "bf16", "'dtype' is \"bf16\", expected one of \"f32\", \"f64\""},
    {"/clock", "sundial", "'clock' is \"sundial\""},
    {"/backend", "tpu", "'backend' is \"tpu\""},
    {"/trace", 1, "'trace' is 1"},
    {"/records_routing", "yes", "'records_routing' is \"yes\""},
    {"/reference_loss", {1.0, "x"}, "'reference_loss[1]' is \"x\""},
    {"/reference_tolerance", -0.1, "'reference_tolerance' is -0.1"},
    {"/data_path", 3, "'data_path' is 3"},
    {"/model/hidden_size", 0, "trial.json: model: key 'hidden_size' is 0"},
    {"/model", json::array(), "trial.json: model: found an array"},
    {"/hardware/num_nodes", 0, "trial.json: hardware: key 'num_nodes' is 0"},
};

}  // namespace

BOOST_AUTO_TEST_CASE(round_trip_keeps_every_field) {
  TrialSpec spec = trial();
  spec.training.seed = ~uint64_t{0};
  spec.training.lr = 0.1 + 0.2;
  spec.training.decays_all = true;
  spec.training.aux_loss_coeff = 1e-3;
  spec.training.z_loss_coeff = 1e-4;
  spec.dtype = DType::f64;
  spec.clock = ClockMode::wall;
  spec.trace = TraceLevel::all;
  spec.num_traced_steps = 0;
  spec.records_routing = true;
  spec.reference_loss = {5.5, 5.25};
  spec.fault = {FaultKind::hang, 2, 3};
  const std::string text = to_json(spec).dump();
  const TrialSpec copy = trial_spec_from_json(parse_json(text, "t"), "t");
  BOOST_TEST(to_json(copy).dump() == text);
  BOOST_TEST(copy.training.seed == ~uint64_t{0});
  BOOST_TEST(copy.training.lr == 0.1 + 0.2);
  BOOST_TEST((copy.knobs == spec.knobs));
  BOOST_TEST((copy.fault.kind == FaultKind::hang));
  BOOST_TEST(copy.reference_loss.size() == 2u);
  BOOST_TEST(spec_hash(copy) == spec_hash(spec));
}

BOOST_AUTO_TEST_CASE(defaults_fill_what_is_absent) {
  const json document = {{"model", samples::qwen3_moe()}, {"hardware", samples::cluster()}};
  const TrialSpec spec = trial_spec_from_json(document, "t");
  BOOST_TEST((spec.knobs == Knobs{}));
  BOOST_TEST(spec.training.global_batch_size == 8);
  BOOST_TEST(total_steps(spec) == 10);
  BOOST_TEST(contains(usage_error([] { trial_spec_from_json(json::object(), "t"); }),
                      "key 'model' is missing"));
}

BOOST_DATA_TEST_CASE(refusals_name_file_key_and_value, data::make(kRefusals)) {
  const std::string message = error_with(sample.pointer, sample.value);
  BOOST_TEST_INFO(message);
  BOOST_TEST(contains(message, "trial.json"));
  BOOST_TEST(contains(message, sample.expected));
}

BOOST_AUTO_TEST_CASE(the_reference_band_widens_with_the_steps) {
  TrialSpec spec;
  spec.reference_tolerance = 1e-4;
  BOOST_TEST(reference_tolerance_at(spec, 0) == 1e-4);
  BOOST_TEST(reference_tolerance_at(spec, 10) == 1e-4);
  BOOST_TEST(reference_tolerance_at(spec, 15) == 1e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(reference_tolerance_at(spec, 1000) == 0.1);
  spec.reference_tolerance = 0.5;  // wider than the band ever gets
  BOOST_TEST(reference_tolerance_at(spec, 0) == 0.5);
  BOOST_TEST(reference_tolerance_at(spec, 1000) == 0.5);
}

// Whether it can train is for the build that runs the trial to say.
BOOST_AUTO_TEST_CASE(every_backend_can_be_asked_for) {
  json document = to_json(trial());
  document["backend"] = "abacus";
  BOOST_TEST(contains(usage_error([&] { trial_spec_from_json(document, "t"); }),
                      "'backend' is \"abacus\", expected one of \"cpu\", \"cuda\""));
  document["backend"] = "cuda";
  document.erase("clock");
  const TrialSpec spec = trial_spec_from_json(document, "t");
  BOOST_TEST((spec.backend == BackendKind::cuda));
  BOOST_TEST((spec.clock == ClockMode::wall));
}

BOOST_AUTO_TEST_CASE(narrow_moments_stand_beside_f32) {
  for (const char* knob : {"exp_avg_dtype", "exp_avg_sq_dtype"}) {
    json document = to_json(trial());
    document["knobs"][knob] = "bf16";
    BOOST_TEST((trial_spec_from_json(document, "t").knobs != trial().knobs));
    document["dtype"] = "f64";
    BOOST_TEST(contains(usage_error([&] { trial_spec_from_json(document, "t"); }),
                        "'dtype' is \"f64\", expected f32 beside an exp_avg_dtype"));
  }
}

BOOST_AUTO_TEST_CASE(a_choice_of_the_backend_is_one_mistake) {
  BOOST_TEST(error_with("/dtype", "fp8") ==
             "trial.json: key 'dtype' is \"fp8\", expected one of \"f32\", \"f64\"");
  BOOST_TEST(error_with("/communicator", "thread") ==
             "trial.json: key 'communicator' is \"thread\", expected one of \"threads\", "
             "\"fake\"; did you mean 'threads'?");
  BOOST_TEST(error_with("/clock", "virtual_modeled").ends_with("did you mean 'virtual_modelled'?"));
  // A short name is near another one by chance.
  BOOST_TEST(error_with("/backend", "gpu").ends_with("expected one of \"cpu\", \"cuda\""));
}

// What each backend can do: pairs of a key and a value that only one of them takes.
BOOST_AUTO_TEST_CASE(choices_depend_on_the_backend) {
  const auto error_of = [](const char* backend, const char* key, const char* value) {
    json document = to_json(trial());
    document["backend"] = backend;
    if (std::string(backend) == "cuda") document["clock"] = "wall";
    document[key] = value;
    try {
      trial_spec_from_json(document, "t");
    } catch (const base::UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  BOOST_TEST(error_of("cuda", "dtype", "bf16").empty());
  BOOST_TEST(contains(error_of("cpu", "dtype", "bf16"), "'dtype' is \"bf16\""));
  BOOST_TEST(error_of("cpu", "dtype", "f64").empty());
  BOOST_TEST(contains(error_of("cuda", "dtype", "f64"), "'dtype' is \"f64\""));
  BOOST_TEST(contains(error_of("cuda", "clock", "virtual_modelled"), "expected one of \"wall\""));
  BOOST_TEST(error_of("cuda", "communicator", "nccl").empty());
  BOOST_TEST(contains(error_of("cpu", "communicator", "nccl"), "'communicator' is \"nccl\""));
  BOOST_TEST(error_of("cpu", "communicator", "fake").empty());
}

BOOST_AUTO_TEST_CASE(the_rank_of_a_fake_world_is_part_of_the_identity) {
  TrialSpec spec = trial();
  const std::string threads = spec_hash(spec);
  spec.fake_rank = 3;
  BOOST_TEST(spec_hash(spec) == threads);
  spec.communicator = CommunicatorKind::fake;
  const std::string fake = spec_hash(spec);
  BOOST_TEST(fake != threads);
  spec.fake_rank = 4;
  BOOST_TEST(spec_hash(spec) != fake);
  BOOST_TEST(trial_spec_from_json(to_json(spec), "t").fake_rank == 4);
}

BOOST_AUTO_TEST_CASE(a_trial_has_at_least_one_step) {
  json document = to_json(trial());
  document.update({{"num_warmup_steps", 0}, {"num_steps", 0}, {"num_traced_steps", 0}});
  BOOST_TEST(
      contains(usage_error([&] { trial_spec_from_json(document, "t"); }), "at least one step"));
}

BOOST_AUTO_TEST_CASE(hash_is_sixteen_digits_and_stable) {
  const std::string hash = spec_hash(trial());
  BOOST_TEST(hash.size() == 16u);
  BOOST_TEST(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  // A changed value here makes every stored trial unknown to a resumed sweep: change it on purpose
  // only.
  BOOST_TEST(hash == "6f95ad82296c73d7");
}

BOOST_AUTO_TEST_CASE(hash_ignores_where_the_data_lies_the_reference_and_what_people_read) {
  TrialSpec spec = trial();
  spec.data_path = "/elsewhere";
  spec.reference_loss = {1.0};
  spec.reference_tolerance = 0.5;
  spec.hardware.source = "a data sheet";
  spec.hardware.sources["memory_bytes"] = "seen on a card";
  spec.hardware.power_watts = 700;
  BOOST_TEST(spec_hash(spec) == spec_hash(trial()));
}

BOOST_AUTO_TEST_CASE(hash_depends_on_every_other_field) {
  std::set<std::string> hashes = {spec_hash(trial())};
  size_t num_changes = 0;
  const auto change = [&](const std::string& what, TrialSpec spec) {
    ++num_changes;
    BOOST_TEST(hashes.insert(spec_hash(spec)).second, what << " does not change the hash");
  };
  for (const KnobRow& row : knob_table()) {
    TrialSpec spec = trial();
    set_knob(spec.knobs, row, samples::other_value(spec.knobs, row));
    change(std::string(row.name), spec);
  }
  const std::pair<const char*, json> values[] = {
      {"/data_digest", "4567"},
      {"/dtype", "f64"},
      {"/clock", "wall"},
      {"/trace", "all"},
      {"/num_warmup_steps", 2},
      {"/num_steps", 9},
      {"/num_traced_steps", 0},
      {"/records_routing", true},
      {"/fault/kind", "nan"},
      {"/fault/step", 1},
      {"/fault/rank", 1},
      {"/model/hidden_size", 64},
      {"/hardware/launch_ns", 1},
      {"/training/seed", 2},
      {"/training/lr", 0.5},
      {"/training/min_lr", 0.0},
      {"/training/clip_grad", 2},
      {"/training/seq_length", 64},
      {"/model/rope_parameters/rope_theta", 7.0},
      {"/hardware/inter_node/latency_ns", 1},
      {"/training/aux_loss_coeff", 0.5},
  };
  for (const auto& [pointer, value] : values) {
    json document = to_json(trial());
    document[json::json_pointer(pointer)] = value;
    change(pointer, trial_spec_from_json(document, "t"));
  }
  BOOST_TEST(hashes.size() == num_changes + 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
