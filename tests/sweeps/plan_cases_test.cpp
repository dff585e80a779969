// The script that plans the cases of docs/planner.md: it asks for all of them.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(plan_cases)

namespace {

const std::string kSource = MOETUNE_SOURCE_DIR;

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// The options below the titles of the cases.
std::vector<std::string> documented_options() {
  const std::string page = tests::read_text(kSource + "/docs/planner.md");
  const size_t start = page.find("\n## Cases\n");
  const std::string cases = page.substr(start, page.find("\n## ", start + 1) - start);
  std::vector<std::string> options;
  for (size_t at = cases.find("`--model"); at != std::string::npos;
       at = cases.find("`--model", at)) {
    const size_t end = cases.find('`', at + 1);
    options.push_back(on_one_line(cases.substr(at + 1, end - at - 1)));
    at = end;
  }
  return options;
}

/// The script with a program that writes down what it is asked for.
struct Planned : Cli {
  std::vector<std::vector<std::string>> asked;

  /// The exit code.
  int plan_cases(int code_of_program) {
    const std::string program = folder.file("planner");
    const std::string list = folder.file("asked");
    tests::write_text(program, "#!/bin/sh\nprintf '%s\\n' \"$@\" . >> " + list +
                                   "\necho planned\nfor page; do :; done\necho page > \"$page\"\n"
                                   "exit " +
                                   std::to_string(code_of_program) + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    Command command{{kSource + "/scripts/plan-cases.sh", folder.file("pages")},
                    {"MOETUNE=" + program},
                    folder.file("out"),
                    folder.file("err")};
    SystemProcessRunner runner;
    const auto end = runner.start(command)->wait(std::chrono::seconds(60));
    BOOST_REQUIRE(end.has_value());
    std::istringstream lines(tests::read_text(list));
    asked.assign(1, {});
    for (std::string line; std::getline(lines, line);) {
      if (line == ".") {
        asked.emplace_back();
      } else {
        asked.back().push_back(line);
      }
    }
    asked.pop_back();
    return end->code;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(every_documented_case_has_a_page, Planned) {
  BOOST_TEST_REQUIRE(plan_cases(0) == 0);
  const std::vector<std::string> cases = documented_options();
  BOOST_TEST(cases.size() >= 5U);
  std::string all;
  for (const std::vector<std::string>& words : asked) {
    all += "\n";
    for (const std::string& word : words) all += word + " ";
    BOOST_TEST(words.front() == "plan");
    BOOST_TEST(std::filesystem::exists(words.back()), words.back());
    std::string text = words.back();
    text.replace(text.rfind(".html"), 5, ".txt");
    BOOST_TEST(tests::read_text(text) == "planned\n");
  }
  for (const std::string& options : cases) {
    BOOST_TEST(all.find("\nplan " + options + " ") != std::string::npos, options);
  }
}

// A plan in which nothing fits is an answer; a refused one is not.
BOOST_FIXTURE_TEST_CASE(only_what_is_refused_ends_it, Planned) {
  BOOST_TEST(plan_cases(1) == 0);
  BOOST_TEST(asked.size() > 10U);
  std::filesystem::remove(folder.file("asked"));
  BOOST_TEST(plan_cases(2) != 0);
  BOOST_TEST(asked.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(the_published_command_is_understood, Planned) {
  BOOST_TEST_REQUIRE(plan_cases(0) == 0);
  int num_commands = 0;
  for (const std::vector<std::string>& words : asked) {
    const auto option = std::ranges::find(words, "--against");
    if (option == words.end()) continue;
    ++num_commands;
    const Answer answer =
        run({"estimate", "--model", "qwen3-235b-a22b", "--hardware", "gb200-nvl72", "--gpus", "128",
             "--run", option[1], "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const nlohmann::json row = nlohmann::json::parse(answer.out)["rows"][0];
    const nlohmann::json& knobs = row["knobs"];
    for (const auto& [name, size] :
         {std::pair{"tp", 4}, {"cp", 4}, {"ep", 32}, {"pp", 4}, {"vpp", 12}, {"dp", 2}}) {
      BOOST_TEST(knobs[name] == size, name);
    }
    BOOST_TEST(row["num_unknown_settings"] == 0, row["unknown_settings"].dump());
    BOOST_TEST(row["notes"].empty(), row["notes"].dump());
  }
  BOOST_TEST(num_commands == 2);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
