// config.json of Hugging Face, which is also our own format.
#include "engine/spec/document.h"
#include "engine/spec/model_spec.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {

void fuzz_model_json(std::string_view input) {
  const spec::Document document = spec::read_document(input, "config.json");
  const spec::ModelSpec model = spec::model_from_json(document.json, document.source);
  static_cast<void>(model.num_parameters() + model.num_active_parameters());
  static_cast<void>(model.training_flops_per_token(4096));
  to_json(model).dump();
}

}  // namespace moetune::tests
