// Commands and configurations of other frameworks; what is understood is written in all dialects.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/names.h"
#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {
namespace {

/// Behind lines of "===" an input has files that its first part names: any name gives one of them.
class Parts final : public spec::dialects::NamedFileSource {
 public:
  explicit Parts(std::string_view input) {
    constexpr std::string_view kBetween = "\n===\n";
    while (!input.empty()) {
      const size_t end = std::min(input.find(kBetween), input.size());
      files_.push_back({"part" + std::to_string(files_.size()), std::string(input.substr(0, end))});
      input.remove_prefix(std::min(end + kBetween.size(), input.size()));
    }
    if (files_.empty()) files_.push_back({"part0", ""});
  }
  [[nodiscard]] const std::string& first() const { return files_.front().text; }
  const File* first_of(const std::vector<std::string>& places) override {
    if (files_.size() < 2 || places.empty()) return nullptr;
    const std::string& name = places.back();
    const size_t sum = std::accumulate(name.begin(), name.end(), size_t{0});
    return &files_[1 + sum % (files_.size() - 1)];
  }

 private:
  std::vector<File> files_;
};

}  // namespace

void fuzz_dialects(std::string_view input) {
  using namespace spec::dialects;
  const auto parts = std::make_shared<Parts>(input);
  const std::string_view text = parts->first();
  const std::optional<Dialect> found = detect_dialect(text);
  // Also as what it was not taken for: the user may say so.
  const Dialect dialect = found.value_or(static_cast<Dialect>(text.size() % kNumDialects));
  ImportOptions how;
  how.source = "run";
  how.named = parts;
  how.place = "run.yaml";
  const RunConfig run = import_run(text, dialect, how);
  for (size_t i = 0; i < kNumDialects; ++i) export_run(run, static_cast<Dialect>(i));
}

}  // namespace moetune::tests
