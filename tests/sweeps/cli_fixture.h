// The moetune program as a person starts it: what it is given, and what it answers.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/sweeps/documented.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::tests {

/// What the program has left.
struct Answer {
  int code = -1;
  std::string out;
  std::string err;
};

/// The program in a folder of its own, with a trial file, a text and the stand-in engine.
struct Cli {
  TempFolder folder;
  ScopedEnvironment engine{"MOETUNE_RANK", bin("fake_rank")};
  std::string db = folder.file("runs.db");
  std::string spec = folder.file("trial.json");

  Cli() {
    write_text(folder.file("corpus"), std::string(5000, 'a') + "some text to train on");
    write_spec([](nlohmann::json&) {});
  }

  void write_spec(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json document = spec::to_json(small_trial());
    change(document);
    write_text(spec, document.dump());
  }

  /// A sweep over nothing from the small trial, in "sweep.json".
  void write_sweep(const std::function<void(nlohmann::json&)>& change) {
    const nlohmann::json trial = spec::to_json(small_trial());
    nlohmann::json document = {{"name", "test"}, {"data_path", folder.file("corpus")}};
    for (const char* key : {"model", "hardware", "training", "knobs"}) document[key] = trial[key];
    change(document);
    write_text(folder.file("sweep.json"), document.dump());
  }

  std::unique_ptr<sweeps::Process> start(const std::vector<std::string>& words) {
    sweeps::Command command{{bin("moetune")}, {}, folder.file("out"), folder.file("err")};
    command.arguments.insert(command.arguments.end(), words.begin(), words.end());
    std::filesystem::remove(command.stdout_path);
    std::filesystem::remove(command.stderr_path);
    sweeps::SystemProcessRunner runner;
    return runner.start(command);
  }
  Answer finish(sweeps::Process& process) {
    const auto end = process.wait(std::chrono::seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_TEST(!end->is_signal);
    return {end->code, read_text(folder.file("out")), read_text(folder.file("err"))};
  }
  /// What is printed as JSON is what docs/formats.md says.
  Answer run(const std::vector<std::string>& words) {
    Answer answer = finish(*start(words));
    const auto format = std::ranges::find(words, "--format");
    if (format != words.end() && format + 1 != words.end() && format[1] == "json") {
      check_documented(words.front(), answer.out);
    }
    return answer;
  }

  /// Fails with this code, says all of these on one message, and nothing else.
  void check_refused(const std::vector<std::string>& words, int code,
                     const std::vector<std::string>& parts) {
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == code);
      BOOST_TEST(answer.err.starts_with("moetune: "));
      BOOST_TEST(answer.out == "");
      for (const std::string& part : parts) {
        BOOST_TEST(answer.err.find(part) != std::string::npos, "the message says " << part);
      }
    }
  }
};

}  // namespace moetune::tests
