// Commands and configurations of other frameworks; what is understood is written in all dialects.
#include "engine/spec/dialects/run_config.h"
#include "engine/spec/names.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_dialects(std::string_view input) {
  using namespace spec::dialects;
  const std::optional<Dialect> found = detect_dialect(input);
  // Also as what it was not taken for: the user may say so.
  const Dialect dialect = found.value_or(static_cast<Dialect>(input.size() % kNumDialects));
  const RunConfig run = import_run(input, dialect, {.source = "run"});
  for (size_t i = 0; i < kNumDialects; ++i) export_run(run, static_cast<Dialect>(i));
}

}  // namespace moetune::tests
