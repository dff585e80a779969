// What a device, its communicators and its memory were asked for, in order. The recording fakes
// write it; nothing on it comes from who asked, so it can judge what the engine says about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace moetune::recording {

/// A matrix that a call was given. Null ones are left out.
struct Operand {
  std::string_view role;  ///< the member of the call's arguments; static text
  const void* data = nullptr;
  std::optional<base::DType> dtype;  ///< none: elements are bytes
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  std::vector<int32_t> values = {};  ///< of positions: what the host has written there

  [[nodiscard]] int64_t element_bytes() const { return dtype ? base::size_of(*dtype) : 1; }
  [[nodiscard]] int64_t numel() const { return rows * cols; }
  [[nodiscard]] int64_t bytes() const { return numel() * element_bytes(); }
  /// The same place and shape; the stride counts where there are several rows.
  [[nodiscard]] bool is_at(const Operand& other) const;
};

Operand operand(std::string_view role, const kernels::Tensor& tensor);
Operand bytes_at(std::string_view role, const void* data, int64_t bytes);
/// Flat memory of `numel` elements.
Operand flat(std::string_view role, const void* data, base::DType dtype, int64_t numel);

/// What a call was told besides its operands; static text.
struct Number {
  std::string_view name;
  int64_t value = 0;

  bool operator==(const Number&) const = default;
};

/// One call. Names are those of the virtual functions; an allocation is `allocate` or `release`
/// with its `block`, an event or a graph is a number.
struct Entry {
  std::string_view name;
  int stream = -1;  ///< the device's current one; -1: of no stream
  std::vector<Operand> operands;
  std::vector<Number> numbers;

  [[nodiscard]] const Operand* find(std::string_view role) const;
  [[nodiscard]] std::optional<int64_t> number(std::string_view name_of_number) const;
  [[nodiscard]] bool is_memory() const { return name == "allocate" || name == "release"; }
};

std::string text_of(const Operand& operand);
std::string text_of(const Entry& entry);

/// How `found` differs from what was expected, numbers and operands in any order; empty when it
/// does not.
std::vector<std::string> differences(const Entry& expected, const Entry& found);

using Tape = std::vector<Entry>;

/// A call as the device runs it: replays of a graph are the calls that it was captured from.
struct Played {
  const Entry* entry = nullptr;
  size_t at = 0;             ///< place on the tape: of the call, or of what launched its graph
  int64_t launch = -1;       ///< which launch of a graph it is part of; -1: of none
  bool is_replayed = false;  ///< the graph had been captured before
};

/// Entries [begin, end) of the tape without those of memory and without the words around graphs. A
/// captured call stands where it was captured. Throws base::Error where a capture is not followed
/// by its launch.
std::vector<Played> played(const Tape& tape, size_t begin, size_t end);

}  // namespace moetune::recording
