// How a run of another framework ended, by its log: one table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/spec/names.h"
#include "engine/spec/trial_status.h"

namespace moetune::sweeps {

enum class ForeignStatus : uint8_t {
  ok,
  oom,
  wrong,
  failed,
  crashed,
  hung,
  interrupted,
  truncated,
  unknown,
};

struct ForeignStatusRow {
  ForeignStatus value;
  std::string_view name;
  spec::TrialStatus trial;  ///< what a trial is called that ended so
  std::string_view help;
};

}  // namespace moetune::sweeps

namespace moetune::spec {
template <>
struct NameTable<sweeps::ForeignStatus> {
  using Row = sweeps::ForeignStatusRow;
  static constexpr std::array kRows = {
      Row{sweeps::ForeignStatus::ok, "ok", TrialStatus::ok, "it reached its end"},
      Row{sweeps::ForeignStatus::oom, "oom", TrialStatus::oom,
          "a device or the host had no memory"},
      Row{sweeps::ForeignStatus::wrong, "wrong", TrialStatus::wrong, "NaN or infinity"},
      Row{sweeps::ForeignStatus::failed, "failed", TrialStatus::failed, "an error with a message"},
      Row{sweeps::ForeignStatus::crashed, "crashed", TrialStatus::crashed,
          "ended by a signal or an error of the device"},
      Row{sweeps::ForeignStatus::hung, "hung", TrialStatus::hung, "no progress, or ranks waited"},
      Row{sweeps::ForeignStatus::interrupted, "interrupted", TrialStatus::interrupted,
          "ended from outside"},
      Row{sweeps::ForeignStatus::truncated, "truncated", TrialStatus::interrupted,
          "the log stops without an end or a failure"},
      Row{sweeps::ForeignStatus::unknown, "unknown", TrialStatus::interrupted,
          "the log shows neither a step nor a failure"}};
};
}  // namespace moetune::spec
