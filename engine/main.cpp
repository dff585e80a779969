// moetune-rank: one trial in one process. The parent reads the exit code, the last line of stderr
// and the shard file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "embedded/version.h"
#include "engine/plan/layout.h"
#include "engine/run_trial.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/knobs.h"
#include "engine/spec/problems.h"
#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "engine/verify.h"
#include "kernels/base/error.h"
#include "kernels/base/man_page.h"

namespace {

namespace po = boost::program_options;
namespace base = moetune::base;
namespace plan = moetune::plan;
namespace spec = moetune::spec;
using spec::ExitCode;

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw base::UsageError(fmt::format("'{}' cannot be read", path));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return spec::parse_json(text, path);
}

/// With the keys that parse_layout takes.
std::string layout_help() {
  std::vector<std::string> names;
  for (const spec::LayoutSize& size : spec::layout_sizes()) names.emplace_back(size.name);
  return fmt::format(
      "parallel layout for --verify, such as {{\"{}\":2}}: any of {}, and "
      "cp_comm_type",
      names.front(), fmt::join(names, ", "));
}

/// Collects into `problems` what is wrong with it.
void read_layout(const std::string& text, spec::Knobs& knobs, spec::Problems& problems) {
  const nlohmann::json json = spec::parse_json(text, "--layout");
  spec::JsonReader reader(json, "--layout");
  constexpr int64_t kMaxSize = 1024;
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    problems.attempt([&] { knobs.*size.member = reader.integer_or(size.name, 1, 1, kMaxSize); });
  }
  problems.attempt([&] {
    const std::string cp_comm_type =
        reader.text_or("cp_comm_type", std::string(spec::name_of(knobs.cp_comm_type)));
    const auto known = spec::find_by_name<spec::CpCommType>(cp_comm_type);
    if (!known) reader.fail("cp_comm_type", "all_gather or p2p");
    knobs.cp_comm_type = *known;
  });
  problems.attempt([&] { reader.refuse_unknown_keys(); });
}

/// Every message ends in a rule's name, as those of the constraints do.
spec::Knobs parse_layout(const std::string& text) {
  spec::Knobs knobs;
  spec::Problems found;
  found.attempt([&] { read_layout(text, knobs, found); });
  spec::Problems named;
  for (const std::string& message : found.messages()) named.add(message + " (layout_syntax)");
  named.throw_if_any();
  return knobs;
}

int run_verify(const po::variables_map& options) {
  const std::string format = options["format"].as<std::string>();
  if (format != "json" && format != "text") {
    throw base::UsageError(fmt::format("--format '{}' must be json or text", format));
  }
  const moetune::engine::VerifyResult result = moetune::engine::verify(
      options["verify"].as<std::string>(), parse_layout(options["layout"].as<std::string>()));
  const nlohmann::json json = moetune::engine::to_json(result);
  if (format == "json") {
    std::cout << json.dump() << "\n";
  } else {
    for (const auto& [key, value] : json.items()) std::cout << key << ": " << value << "\n";
  }
  // A verdict that nobody received is not a success.
  std::cout.flush();
  if (!std::cout) throw base::Error("standard output cannot be written");
  return static_cast<int>(result.ok ? ExitCode::ok : ExitCode::mismatch);
}

// "fake:64", "threads" or "nccl" into the spec, and which rank a fake world runs.
void apply_world(const po::variables_map& options, spec::TrialSpec& trial) {
  const auto& communicators = spec::NameTable<spec::CommunicatorKind>::kRows;
  const auto is_alone = [](const spec::CommunicatorRow& row) {
    return row.ranks == spec::RanksAre::alone;
  };
  const auto refuse = [&](const std::string& found) {
    std::vector<std::string> forms;
    for (const spec::CommunicatorRow& row : communicators) {
      forms.push_back(fmt::format("{}{}", row.name, is_alone(row) ? ":N with the layout's N" : ""));
    }
    forms.back() = "or " + forms.back();
    throw base::UsageError(
        fmt::format("--world '{}': it would be right: {}", found, fmt::join(forms, ", ")));
  };
  if (options.contains("world")) {
    const std::string text = options["world"].as<std::string>();
    const std::string kind = text.substr(0, text.find(':'));
    const auto found = spec::find_by_name<spec::CommunicatorKind>(kind);
    if (!found) refuse(text);
    const spec::CommunicatorRow& row = spec::row_of(*found);
    if (is_alone(row) != (text.size() > kind.size())) refuse(text);
    trial.communicator = row.value;
    const int size = plan::layout_of(trial.knobs).world_size();
    if (is_alone(row) && text != fmt::format("{}:{}", row.name, size)) {
      throw base::UsageError(
          fmt::format("--world '{}', but the spec's layout has {} ranks", text, size));
    }
    if (row.needs_device && !spec::is_on_device(trial)) {
      throw base::UsageError(
          fmt::format("--world {} needs the spec's backend to be cuda", row.name));
    }
  }
  if (!options.contains("rank")) return;
  if (spec::ranks_of(trial) != spec::RanksAre::alone)
    throw base::UsageError("--rank is for --world fake:N");
  trial.fake_rank = options["rank"].as<int64_t>();
}

po::options_description rank_options() {
  po::options_description description(
      "moetune-rank runs one trial, or compares the engine with a reference model");
  description.add_options()("help,h", "this text")("version,V", "the version")(
      "man", "the manual page as man(1) reads it")(
      "spec", po::value<std::string>()->value_name("FILE"), "trial specification (JSON)")(
      "out", po::value<std::string>()->value_name("FOLDER"),
      "folder for the shard file and the progress")(
      "verify", po::value<std::string>()->value_name("FOLDER"),
      "folder of a reference model with weights, tokens, logits, gradients and losses")(
      "layout", po::value<std::string>()->default_value("{}")->value_name("JSON"),
      layout_help().c_str())(
      "format", po::value<std::string>()->default_value("text")->value_name("text|json"),
      "text or json, for --verify")(
      "world", po::value<std::string>()->value_name("KIND"),
      "threads: all ranks in this process; nccl: this process is the rank that torchrun, srun or "
      "mpirun says; fake:N: one rank of N alone, its communication moves nothing")(
      "rank", po::value<int64_t>()->value_name("R"), "which rank of a fake world")(
      "step-timeout", po::value<double>()->default_value(900)->value_name("SECONDS"),
      "seconds that a step on a GPU may take before this process gives up (exit code 13)")(
      "saved-run", po::value<std::string>()->default_value("")->value_name("FOLDER"),
      "go on with the run of this spec that was saved here, and save it here now and then; for one "
      "rank");
  return description;
}

std::string manual_page(const po::options_description& description) {
  base::ManPage page("moetune-rank", "runs one trial of moetune", base::kVersion);
  page.section("SYNOPSIS");
  page.text("moetune-rank --spec FILE --out FOLDER [OPTIONS]\nmoetune-rank --verify FOLDER");
  page.section("DESCRIPTION");
  page.text("moetune starts it for every trial; a launcher of many processes starts it directly.");
  page.section("OPTIONS");
  for (const auto& option : description.options()) {
    const std::string letter =
        option->canonical_display_name(po::command_line_style::allow_dash_for_short);
    const bool is_flag = option->semantic()->max_tokens() == 0;
    page.option(
        fmt::format("--{}{}", option->long_name(), letter.starts_with('-') ? ", " + letter : ""),
        is_flag ? "" : option->semantic()->name(), option->description());
  }
  page.section("SEE ALSO");
  page.text("moetune(1)");
  return page.str();
}

int run(int argc, char** argv) {
  const po::options_description description = rank_options();
  po::variables_map options;
  try {
    po::store(po::parse_command_line(argc, argv, description), options);
  } catch (const po::error& error) {
    throw base::UsageError(error.what());
  }
  if (options.contains("help")) {
    std::cout << description;
    return 0;
  }
  if (options.contains("version")) {
    std::cout << "moetune-rank " << base::kVersion << "\n";
    return 0;
  }
  if (options.contains("man")) {
    std::cout << manual_page(description);
    return 0;
  }
  if (options.contains("verify")) return run_verify(options);
  if (!options.contains("spec") || !options.contains("out")) {
    throw base::UsageError("--spec FILE and --out FOLDER are needed, or --verify FOLDER");
  }
  const std::string path = options["spec"].as<std::string>();
  spec::TrialSpec trial = spec::trial_spec_from_json(read_json(path), path);
  apply_world(options, trial);
  const double seconds = options["step-timeout"].as<double>();
  if (!(seconds >= 1 && seconds <= 1e7)) {
    throw base::UsageError(fmt::format("--step-timeout {} must be from 1 to 1e7", seconds));
  }
  moetune::engine::RunOptions run_options;
  run_options.step_limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  run_options.saved_run = options["saved-run"].as<std::string>();
  run_options.on_summary = [](const std::string& line) { std::cout << line << std::endl; };
  return static_cast<int>(
      moetune::engine::run_trial(trial, options["out"].as<std::string>(), run_options));
}

}  // namespace

int main(int argc, char** argv) {
  // A parent that dies takes its trial along, also when it is killed.
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return static_cast<int>(ExitCode::interrupted);
  // By default a process has 8 queues to its GPU, and streams that share one wait for each other;
  // virtual ranks have several streams each. Read when the driver starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc& error) {
    std::cerr << "moetune-rank: this machine has no memory left\n";
    return static_cast<int>(moetune::engine::exit_code_of(error));
  } catch (const std::exception& error) {
    std::cerr << "moetune-rank: " << error.what() << "\n";
    return static_cast<int>(moetune::engine::exit_code_of(error));
  }
}
