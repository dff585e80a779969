// What the tests of the loop share: the stand-in engine, a small spec, a scripted search.
#pragma once

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "sweeps/processes/process.h"
#include "tests/profiler/temp_folder.h"
#include "tests/spec/spec_samples.h"
#include "tuner/strategy.h"

namespace moetune::tests {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string bin(const std::string& name) {
  return std::string(MOETUNE_BIN_DIR) + "/" + name;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Waits until a condition holds; gives up, and returns false, when it never does.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

/// An environment variable for the length of a test; children inherit it.
class ScopedEnvironment {
 public:
  ScopedEnvironment(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedEnvironment() { unsetenv(name_.c_str()); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::string name_;
};

/// What the stand-in engine was launched for, in order.
struct Launch {
  std::string hash;
  pid_t pid = 0;
};
inline std::vector<Launch> launches_in(const std::string& log) {
  std::vector<Launch> launches;
  std::ifstream file(log);
  for (Launch launch; file >> launch.hash >> launch.pid;) launches.push_back(launch);
  return launches;
}

/// A living process that is no zombie.
inline bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t at = line.rfind(") ");
  return at != std::string::npos && line[at + 2] != 'Z' && line[at + 2] != 'X';
}

inline spec::TrialSpec small_trial() {
  spec::TrialSpec spec = spec::samples::trial();
  spec.model.vocab_size = 256;  // text is read as bytes
  spec.num_warmup_steps = 1;
  spec.num_steps = 3;
  spec.num_traced_steps = 1;
  return spec;
}

inline tuner::TrialRequest request_of(spec::TrialSpec spec, const std::string& title) {
  tuner::TrialRequest request;
  request.hash = spec::spec_hash(spec);
  request.phase = tuner::Phase::scale;
  request.title = title;
  request.prediction.peak_bytes = 300'000;
  request.prediction.step_ns = 1'000'000;
  request.spec = std::move(spec);
  return request;
}

/// Asks for fixed requests in order and decides something about each; keeps what it was told.
class ScriptedStrategy : public tuner::Strategy {
 public:
  explicit ScriptedStrategy(std::vector<tuner::TrialRequest> requests)
      : requests_(std::move(requests)) {}

  std::optional<tuner::TrialRequest> ask() override {
    return told.size() < requests_.size() ? std::optional(requests_[told.size()]) : std::nullopt;
  }
  void tell(const tuner::TrialRequest& request, const tuner::TrialOutcome& outcome) override {
    told.push_back(outcome);
    tuner::Decision decision;
    decision.phase = request.phase;
    decision.kind = tuner::DecisionKind::tried;
    decision.trial_hash = request.hash;
    decision.text = request.title;
    decisions_.push_back(decision);
  }
  std::vector<tuner::Decision> take_decisions() override { return std::exchange(decisions_, {}); }
  [[nodiscard]] tuner::Progress progress() const override {
    return {tuner::Phase::scale, static_cast<int64_t>(told.size()) + 1,
            static_cast<int64_t>(requests_.size())};
  }
  [[nodiscard]] std::string best_hash() const override {
    return told.empty() ? "" : requests_.front().hash;
  }

  std::vector<tuner::TrialOutcome> told;

 private:
  std::vector<tuner::TrialRequest> requests_;
  std::vector<tuner::Decision> decisions_;
};

}  // namespace moetune::tests
