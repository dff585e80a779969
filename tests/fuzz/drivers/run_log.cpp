// Logs of runs of other frameworks, from their lines to the facts as JSON.
#include <sstream>

#include "sweeps/runs/read_log.h"
#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/run_folder.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_run_log(std::string_view input) {
  std::istringstream in{std::string(input)};
  const sweeps::ForeignLog log = sweeps::read_log(in, "run.log");
  sweeps::kind_of_file(input.substr(0, input.size() / 2), input.substr(input.size() / 2));
  sweeps::RunOptions options;
  if (input.size() % 2 == 1) options.now_s = options.written_s = 1.7e9;
  const auto facts = sweeps::facts_of_logs({log, log}, options);
  // Whatever the log holds, what is told of it is UTF-8: dump throws for other bytes.
  to_json(facts).dump();
}

}  // namespace moetune::tests
