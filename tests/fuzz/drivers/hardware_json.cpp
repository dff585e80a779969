// Hardware files.
#include "engine/spec/document.h"
#include "engine/spec/hardware_spec.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_hardware_json(std::string_view input) {
  const spec::Document document = spec::read_document(input, "hardware.json");
  const spec::HardwareSpec hardware = spec::hardware_from_json(document.json, document.source);
  to_json(hardware).dump();
  check_plausible(hardware, document.source);
  with_devices(hardware, 16);
}

}  // namespace moetune::tests
