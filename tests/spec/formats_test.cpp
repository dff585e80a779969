// Schemas and the page of formats against the files they describe.
#include "engine/spec/formats.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "engine/spec/document.h"
#include "engine/spec/sweep_spec.h"
#include "kernels/base/error.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;

BOOST_AUTO_TEST_SUITE(formats)

namespace {

const std::filesystem::path kRoot = MOETUNE_SOURCE_DIR;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  BOOST_REQUIRE_MESSAGE(file.good(), path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool has_type(const json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

/// The part of JSON Schema that ours use; empty where `value` is valid, else what is not.
std::string invalid(const json& schema, const json& value, const std::string& path) {
  if (schema.contains("anyOf")) {
    for (const json& choice : schema["anyOf"]) {
      if (invalid(choice, value, path).empty()) return {};
    }
    return path + ": none of anyOf";
  }
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return path + ": not in enum";
  }
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    bool fits = false;
    for (const json& type : types) fits |= has_type(value, type);
    if (!fits) return path + ": wrong type";
  }
  if (value.is_number() && (value < schema.value("minimum", json(value)) ||
                            value > schema.value("maximum", json(value)))) {
    return path + ": out of range";
  }
  if (value.is_string() && schema.contains("pattern") &&
      !std::regex_match(value.get<std::string>(),
                        std::regex(schema["pattern"].get<std::string>()))) {
    return path + ": does not match";
  }
  if (value.is_array() && schema.contains("items")) {
    for (const json& item : value) {
      if (std::string found = invalid(schema["items"], item, path + "[]"); !found.empty()) {
        return found;
      }
    }
  }
  if (!value.is_object() || !schema.contains("properties")) return {};
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return path + "." + key.get<std::string>();
  }
  for (const auto& [key, item] : value.items()) {
    if (!schema["properties"].contains(key)) {
      if (schema.contains("additionalProperties")) return path + "." + key + ": unknown";
      continue;
    }
    if (std::string found = invalid(schema["properties"][key], item, path + "." + key);
        !found.empty()) {
      return found;
    }
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(shipped_files_are_plain_json_and_fit_their_schemas) {
  const std::pair<const char*, FileKind> folders[] = {{"sweeps/configs", FileKind::sweep},
                                                      {"sweeps/hardware", FileKind::hardware},
                                                      {"engine/models", FileKind::model}};
  for (const auto& [folder, kind] : folders) {
    const json schema = json_schema(kind);
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / folder)) {
      // Without comments: what other programs read, too.
      const json document = json::parse(text_of(entry.path()));
      const std::string found = invalid(schema, document, entry.path().filename());
      BOOST_TEST(found.empty(), found);
    }
  }
}

BOOST_AUTO_TEST_CASE(schemas_refuse_what_the_program_refuses) {
  const json schema = json_schema(FileKind::hardware);
  json document = samples::cluster();
  BOOST_TEST(invalid(schema, document, "h").empty());
  document["memory_bytes"] = "80GB";
  BOOST_TEST(invalid(schema, document, "h").empty());
  document["memory_bytes"] = "80 apples";
  BOOST_TEST(!invalid(schema, document, "h").empty());
  document = samples::cluster();
  document["latency_us"] = 1;
  BOOST_TEST(contains(invalid(schema, document, "h"), "latency_us: unknown"));
  document = samples::cluster();
  document.erase("name");
  BOOST_TEST(!invalid(schema, document, "h").empty());
  document = samples::cluster();
  document["num_nodes"] = 0;
  BOOST_TEST(!invalid(schema, document, "h").empty());
}

BOOST_AUTO_TEST_CASE(a_sweep_of_another_engine_has_a_schema_of_its_own) {
  const json schema = json_schema(FileKind::engine_sweep);
  json document = {{"name", "ours"},
                   {"engine", {{"dialect", "megatron-lm"}, {"run", "sbatch -W job.sh {flags}"}}},
                   {"space", {{"tp", {1, 2}}, {"--lr", {"1e-4", "2e-4"}}}},
                   {"hardware", "h100-8x8"},
                   {"num_steps", 6}};
  BOOST_TEST(invalid(schema, document, "s") == "");
  // What the schema says of defaults and ranges is what the reader does.
  const auto read = [&] { return sweep_from_json(document, Source("s"), "."); };
  document.erase("num_steps");
  document.erase("hardware");
  const SweepSpec sweep = read();
  BOOST_TEST(schema["properties"]["num_steps"]["default"] == sweep.base.num_steps);
  BOOST_TEST(schema["properties"]["num_warmup_steps"]["default"] == sweep.base.num_warmup_steps);
  BOOST_TEST(schema["properties"]["budget"]["properties"]["trial_timeout_s"]["default"] ==
             sweep.budget.trial_timeout_s);
  document["num_steps"] = 5;
  BOOST_TEST(!invalid(schema, document, "s").empty());
  BOOST_CHECK_THROW(read(), base::UsageError);
  document.erase("num_steps");
  document["knobs"] = json::object();  // our own engine's
  BOOST_TEST(contains(invalid(schema, document, "s"), "knobs: unknown"));
  BOOST_CHECK_THROW(read(), base::UsageError);
  document.erase("knobs");
  document.erase("space");
  BOOST_TEST(contains(invalid(schema, document, "s"), "space"));
  BOOST_CHECK_THROW(read(), base::UsageError);
}

BOOST_AUTO_TEST_CASE(a_sweep_schema_knows_knobs_and_recipe) {
  const json properties = json_schema(FileKind::sweep)["properties"];
  BOOST_TEST(properties["space"]["properties"].contains("tensor_model_parallel_size"));
  BOOST_TEST(properties["knobs"]["properties"]["cp_comm_type"]["enum"] ==
             json({"all_gather", "p2p"}));
  BOOST_TEST(properties["training"]["properties"]["seq_length"]["default"] == 128);
  BOOST_TEST(!properties.contains("reference_loss"));
  BOOST_TEST(json_schema(FileKind::trial)["properties"].contains("reference_loss"));
}

BOOST_AUTO_TEST_CASE(the_page_is_that_of_the_tables) {
  const std::string page = text_of(kRoot / "docs/formats.md");
  BOOST_TEST(contains(page, formats_markdown()),
             "docs/formats.md is not what 'moetune schema --markdown' prints");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
