// moetune init: a sweep file to start from.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "engine/spec/document.h"
#include "engine/spec/library.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/load.h"
#include "sweeps/starting_sweep.h"

namespace moetune::sweeps {
namespace {

constexpr const char* kCpu = "emulated-2x4";
constexpr const char* kLargeCluster = "h100-8x8";

enum class NamedBy : uint8_t { user, init };

/// The file that a path or a name of a shelf stands for, read.
spec::Document document_of(spec::Shelf shelf, const std::string& path_or_name, const char* option,
                           NamedBy named_by) {
  const auto checked = [&](spec::Document document) {
    refuse_other_kind_of_file(document, option);
    return document;
  };
  if (path_or_name == "-") {
    return checked(spec::read_document(read_standard_input(), kStandardInput));
  }
  const std::string path = spec::find_file(shelf, path_or_name, ".");
  if (path.empty() && named_by == NamedBy::init) {
    throw base::UsageError(fmt::format("init needs the shipped {} '{}'; {}", option, path_or_name,
                                       spec::library_hint(shelf, path_or_name)));
  }
  if (path.empty()) {
    throw base::UsageError(fmt::format("--{} is '{}', expected a file or a name; {}", option,
                                       path_or_name.substr(0, 200),
                                       spec::library_hint(shelf, path_or_name)));
  }
  return checked(spec::read_document(read_spec_file(path), path));
}

spec::HardwareSpec hardware_of(const spec::Document& document) {
  spec::HardwareSpec hardware = spec::hardware_from_json(document.json, document.source);
  spec::check_plausible(hardware, document.source);
  return hardware;
}

/// What reports call the sweep when nobody says.
std::string name_for(const std::string& model_text, const spec::ModelSpec& model) {
  if (model_text == "-") return model.family;
  const std::filesystem::path path(model_text);
  // Every model's file has this name; its folder tells which one it is.
  if (path.filename() == "config.json") {
    const std::string folder =
        std::filesystem::absolute(path).lexically_normal().parent_path().filename();
    if (!folder.empty()) return folder;
  }
  return path.stem();
}

}  // namespace

CommandOptions init_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "init [--model MODEL] [--hardware HARDWARE] [--data PATH] [--name NAME] [--out FILE]",
      "Writes a sweep file to start from, with comments, for a Hugging Face config.json and a "
      "cluster of yours. A model that a CPU cannot train is replaced by a miniature of it, on an "
      "emulated cluster with the proportions of yours.");
  options.add()(
      "model", po::value<std::string>()->value_name("MODEL"),
      "a Hugging Face config.json, the name of a shipped model, or - for standard input; default "
      "quickstart-moe");
  options.add()("hardware", po::value<std::string>()->value_name("HARDWARE"),
                "a hardware file, the name of a shipped one, or - for standard input; default "
                "emulated-2x4, for a model that a CPU cannot train h100-8x8");
  options.add()("data", po::value<std::string>()->value_name("PATH"),
                "text to train on, default that of the quick start");
  options.add()("name", po::value<std::string>()->value_name("NAME"),
                "what reports call it, default the model's file, of a config.json its folder");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write, default standard output; no file is overwritten");
  return options;
}

int run_init_command(const CommandOptions& options) {
  const auto option_or = [&](const char* option, const char* otherwise) {
    return options.has(option) ? options.text(option) : std::string(otherwise);
  };
  check_output(options.text("out"), OutputKind::fresh, "--out", {});
  StartingPoint start;
  start.model_text = option_or("model", "quickstart-moe");
  if (start.model_text == "-" && options.text("hardware") == "-") {
    throw base::UsageError("--model and --hardware are both -, expected a file or a name for one");
  }
  const auto named_by = [&](const char* option) {
    return options.has(option) ? NamedBy::user : NamedBy::init;
  };
  const spec::Document model =
      document_of(spec::Shelf::model, start.model_text, "model", named_by("model"));
  start.model = spec::model_from_json(model.json, model.source);
  spec::refuse_engine_gap(start.model, model.source);
  start.cpu = hardware_of(document_of(spec::Shelf::hardware, kCpu, "hardware", NamedBy::init));
  // Devices whose memory cannot hold the model leave its miniature's none.
  start.is_default_hardware = !options.has("hardware");
  start.hardware_text =
      option_or("hardware", needs_miniature(start.model, start.cpu) ? kLargeCluster : kCpu);
  const spec::Document hardware =
      document_of(spec::Shelf::hardware, start.hardware_text, "hardware", named_by("hardware"));
  start.hardware = hardware_of(hardware);
  start.hardware_source = start.hardware_text == "-" ? kStandardInput : start.hardware_text;
  if (needs_miniature(start.model, start.hardware)) {
    start.missing_times = missing_host_times(hardware.json);
  }
  if (!start.missing_times.empty()) {
    start.typical =
        hardware_of(document_of(spec::Shelf::hardware, kLargeCluster, "hardware", NamedBy::init));
  }
  start.data_path = option_or("data", "quickstart");
  if (options.has("name") && options.text("name").empty()) {
    throw base::UsageError("--name is empty, expected what reports call the sweep");
  }
  start.name = options.has("name") ? options.text("name") : name_for(start.model_text, start.model);
  // Paths in a sweep file start from its folder.
  const auto from_out = [&](std::string& path) {
    std::error_code error;
    if (!options.has("out") || !std::filesystem::exists(path, error)) return;
    const auto folder = std::filesystem::absolute(options.text("out")).parent_path();
    path = std::filesystem::absolute(path).lexically_normal().lexically_proximate(folder);
  };
  // What was read from standard input is written itself.
  for (std::string* text : {&start.model_text, &start.hardware_text}) {
    if (*text == "-") text->clear();
  }
  from_out(start.model_text);
  from_out(start.hardware_text);
  from_out(start.data_path);
  const std::string text = starting_sweep(start);
  namespace fs = std::filesystem;
  check_sweep_text(
      text, "the sweep for " + model.source.name(),
      options.has("out") ? fs::absolute(options.text("out")).parent_path() : fs::current_path());
  const auto note = [&] {
    const std::string missing = missing_times_text(start);
    if (missing.empty()) return;
    std::cerr << "moetune: note: " << start.hardware_source << ": " << missing << "\n";
  };
  if (!options.has("out")) {
    std::cout << text;
    note();
    return 0;
  }
  const std::string out = options.text("out");
  std::ofstream file(out, std::ios::binary);
  file << text << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written", out));
  note();
  return 0;
}

}  // namespace moetune::sweeps
