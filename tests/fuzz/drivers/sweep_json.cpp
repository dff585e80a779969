// Sweep and trial files with all that stands in them, and the trial that a rank is given.
#include "engine/spec/document.h"
#include "engine/spec/problems.h"
#include "engine/spec/spec_files.h"
#include "engine/spec/sweep_spec.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_sweep_json(std::string_view input) {
  const spec::Document document = spec::read_document(input, "sweep.json");
  const auto attempt = [](const auto& read) {
    try {
      read();
    } catch (const base::Error&) {
      // The others may still read it.
    }
  };
  attempt([&] { spec::sweep_from_json(document.json, document.source, "/nonexistent"); });
  attempt([&] { spec::trial_from_json(document.json, document.source, "/nonexistent"); });
  attempt([&] { spec::trial_spec_from_json(document.json, document.source); });
}

}  // namespace moetune::tests
