// The logs of tests/golden/logs and what has to be read from them.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "sweeps/runs/read_log.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

inline std::ostream& operator<<(std::ostream& out, ForeignStatus status) {
  return out << spec::name_of(status);
}

}  // namespace moetune::sweeps

namespace moetune::sweeps::golden_logs {

inline std::string folder() { return std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/"; }

inline std::string text_of(const std::string& name) {
  std::ifstream file(folder() + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    if (entry.path().extension() != ".log") continue;
    names.push_back(std::filesystem::relative(entry.path(), folder()).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline ForeignLog log_of(const std::string& text, const std::string& name = "run.log") {
  std::istringstream in(text);
  return read_log(in, name);
}
inline RunFacts facts_of(const std::string& text, const RunOptions& options = {}) {
  return facts_of_logs({log_of(text)}, options);
}

/// A line of Megatron-LM about step `step` of 100, a second after the one before.
inline std::string megatron_step(int step, double loss = 5.5, const std::string& more = "") {
  char line[512];
  std::snprintf(line, sizeof line,
                " [2026-03-04 05:06:%02d.000000] iteration %8d/%8d | consumed samples: %12d | "
                "elapsed time per iteration (ms): 1000.0 | global batch size:    64 | lm loss: "
                "%.6E |%s number of skipped iterations:   0 | number of nan iterations:   0 |\n",
                step % 60, step, 100, 64 * step, loss, more.c_str());
  return line;
}
inline std::string megatron_steps(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step) text += megatron_step(step);
  return text;
}

/// A traceback of Python, `rank` in front of each line.
inline std::string traceback(const std::string& rank, const std::string& error) {
  return rank + "Traceback (most recent call last):\n" + rank +
         "  File \"/opt/a/model.py\", line 7, in forward\n" + rank + "    y = f(x)\n" + rank +
         error + "\n";
}

}  // namespace moetune::sweeps::golden_logs
