// moetune init: a sweep file to start from.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "engine/spec/document.h"
#include "engine/spec/library.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/load.h"
#include "sweeps/starting_sweep.h"

namespace moetune::sweeps {
namespace {

/// The file that a path or a name of a shelf stands for, read.
spec::Document document_of(spec::Shelf shelf, const std::string& path_or_name, const char* option) {
  const std::string path = spec::find_file(shelf, path_or_name, ".");
  if (path.empty()) {
    throw base::UsageError(fmt::format("--{} is '{}', expected a file or a name; {}", option,
                                       path_or_name.substr(0, 200),
                                       spec::library_hint(shelf, path_or_name)));
  }
  return spec::read_document(read_spec_file(path), path);
}

spec::HardwareSpec hardware_of(const std::string& path_or_name, const char* option) {
  const spec::Document document = document_of(spec::Shelf::hardware, path_or_name, option);
  spec::HardwareSpec hardware = spec::hardware_from_json(document.json, document.source);
  spec::check_plausible(hardware, document.source);
  return hardware;
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
      "a Hugging Face config.json or the name of a shipped model, default quickstart-moe");
  options.add()("hardware", po::value<std::string>()->value_name("HARDWARE"),
                "a hardware file or the name of a shipped one, default emulated-2x4");
  options.add()("data", po::value<std::string>()->value_name("PATH"),
                "text to train on, default that of the quick start");
  options.add()("name", po::value<std::string>()->value_name("NAME"),
                "what reports call it, default the model's file");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write, default standard output; no file is overwritten");
  return options;
}

int run_init_command(const CommandOptions& options) {
  const auto option_or = [&](const char* option, const char* otherwise) {
    return options.has(option) ? options.text(option) : std::string(otherwise);
  };
  StartingPoint start;
  start.model_text = option_or("model", "quickstart-moe");
  start.hardware_text = option_or("hardware", "emulated-2x4");
  start.data_path = option_or("data", "quickstart");
  // Paths in a sweep file start from its folder.
  const auto from_out = [&](std::string& path) {
    std::error_code error;
    if (!options.has("out") || !std::filesystem::exists(path, error)) return;
    const auto folder = std::filesystem::absolute(options.text("out")).parent_path();
    path = std::filesystem::absolute(path).lexically_normal().lexically_proximate(folder);
  };
  const spec::Document model = document_of(spec::Shelf::model, start.model_text, "model");
  start.model = spec::model_from_json(model.json, model.source);
  start.hardware = hardware_of(start.hardware_text, "hardware");
  start.cpu = hardware_of("emulated-2x4", "hardware");
  start.name = options.has("name") ? options.text("name")
                                   : std::filesystem::path(start.model_text).stem().string();
  from_out(start.model_text);
  from_out(start.hardware_text);
  from_out(start.data_path);
  const std::string text = starting_sweep(start);
  if (!options.has("out")) {
    std::cout << text;
    return 0;
  }
  const std::string out = options.text("out");
  if (std::filesystem::exists(out)) {
    throw base::UsageError(fmt::format("--out: {} is there already", out));
  }
  std::ofstream file(out, std::ios::binary);
  file << text << std::flush;
  if (!file) throw base::Error(fmt::format("{}: cannot be written", out));
  return 0;
}

}  // namespace moetune::sweeps
