// All that is wrong with a file, so that a person is told at once and not one after the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::spec {

/// Bad input in several places: what() tells all of them.
class UsageErrors : public base::UsageError {
 public:
  explicit UsageErrors(std::vector<std::string> messages);
  [[nodiscard]] const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

/// Collects the messages of what could not be read.
class Problems {
 public:
  /// Runs `read` and keeps what it complains about.
  template <class Read>
  void attempt(Read&& read) {
    try {
      std::forward<Read>(read)();
    } catch (const UsageErrors& errors) {
      for (const std::string& message : errors.messages()) add(message);
    } catch (const base::UsageError& error) {
      add(error.what());
    }
  }
  void add(std::string message);
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] const std::vector<std::string>& messages() const { return messages_; }
  /// Throws base::UsageError with the one message, or UsageErrors with all, those of one file in
  /// the order of its lines.
  void throw_if_any() const;

 private:
  std::vector<std::string> messages_;
};

}  // namespace moetune::spec
