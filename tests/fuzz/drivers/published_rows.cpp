// Rows of measured runs.
#include "sweeps/planning/published_rows.h"

#include "engine/spec/document.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_published_rows(std::string_view input) {
  sweeps::published_rows_of(spec::parse_json(input, "rows.json"), "rows.json");
}

}  // namespace moetune::tests
