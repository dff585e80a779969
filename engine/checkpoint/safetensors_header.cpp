// The parser itself: a cursor over the header's bytes that knows only the tokens which a header may
// have.
#include "engine/checkpoint/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using nlohmann::json;

// More than any tensor has; keeps hostile shapes short.
constexpr size_t kMaxDimensions = 16;

/// Token handler: a state per nesting level of the only shape a header may have.
class HeaderHandler final : public nlohmann::json_sax<json> {
 public:
  HeaderHandler(SafetensorsHeader& header, const std::string& source)
      : header_(header), source_(source) {}

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::start:
        place_ = Place::root;
        return true;
      case Place::tensor_value:
        place_ = is_metadata_ ? Place::metadata : Place::tensor;
        return true;
      default:
        wrong("an object");
    }
  }

  bool key(string_t& name) override {
    if (place_ == Place::root) {
      if (!names_.insert(name).second) {
        throw UsageError(fmt::format("{}: {} is there twice in the header, expected each name once",
                                     source_, quoted_name(name)));
      }
      name_ = name;
      is_metadata_ = name == "__metadata__";
      tensor_ = {};
      tensor_.name = name;
      has_dtype_ = has_shape_ = false;
      num_offsets_ = -1;
      place_ = Place::tensor_value;
      return true;
    }
    key_ = name;
    if (place_ == Place::metadata) {
      if (header_.metadata.contains(name)) twice();
      place_ = Place::metadata_value;
      return true;
    }
    if (name == "dtype") {
      if (has_dtype_) twice();
      place_ = Place::dtype;
    } else if (name == "shape") {
      if (has_shape_) twice();
      place_ = Place::shape_value;
    } else if (name == "data_offsets") {
      if (num_offsets_ >= 0) twice();
      place_ = Place::offsets_value;
    } else {
      throw UsageError(fmt::format(
          "{}: tensor {} has the unknown key {}, expected dtype, shape and data_offsets", source_,
          quoted_name(name_), quoted_name(name)));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape_value) {
      has_shape_ = true;
      place_ = Place::shape;
    } else if (place_ == Place::offsets_value) {
      num_offsets_ = 0;
      place_ = Place::offsets;
    } else {
      wrong("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && num_offsets_ != 2) {
      throw UsageError(fmt::format("{}: tensor {} has {} data_offsets, expected begin and end",
                                   source_, quoted_name(name_), num_offsets_));
    }
    place_ = Place::tensor;
    return true;
  }

  bool end_object() override {
    switch (place_) {
      case Place::tensor: {
        const char* missing = !has_dtype_         ? "dtype"
                              : !has_shape_       ? "shape"
                              : num_offsets_ != 2 ? "data_offsets"
                                                  : nullptr;
        if (missing != nullptr) {
          throw UsageError(
              fmt::format("{}: tensor {} has no {}, expected dtype, shape and "
                          "data_offsets",
                          source_, quoted_name(name_), missing));
        }
        header_.tensors.push_back(std::move(tensor_));
        place_ = Place::root;
        return true;
      }
      case Place::metadata:
        place_ = Place::root;
        return true;
      default:
        place_ = Place::end;
        return true;
    }
  }

  bool string(string_t& value) override {
    if (place_ == Place::dtype) {
      tensor_.dtype = value;
      has_dtype_ = true;
      place_ = Place::tensor;
      return true;
    }
    if (place_ == Place::metadata_value) {
      header_.metadata.emplace(key_, value);
      place_ = Place::metadata;
      return true;
    }
    wrong("a string");
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        wrong(std::to_string(value));
      }
      if (tensor_.shape.size() == kMaxDimensions) {
        throw UsageError(fmt::format("{}: tensor {} has more than {} dimensions", source_,
                                     quoted_name(name_), kMaxDimensions));
      }
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (num_offsets_ < 2) (num_offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      ++num_offsets_;
      return true;
    }
    wrong(std::to_string(value));
  }

  bool number_integer(number_integer_t value) override { wrong(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { wrong(text.substr(0, 40)); }
  bool null() override { wrong("null"); }
  bool boolean(bool value) override { wrong(value ? "true" : "false"); }
  bool binary(binary_t&) override { wrong("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw UsageError(
        fmt::format("{}: the header is not valid JSON at its byte {}", source_, position));
  }

 private:
  enum class Place : uint8_t {
    start,
    root,
    tensor_value,
    tensor,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata,
    metadata_value,
    end,
  };

  [[noreturn]] void twice() const {
    throw UsageError(fmt::format("{}: key {} is there twice in {}", source_, quoted_name(key_),
                                 quoted_name(name_)));
  }

  /// `found` is not what belongs here.
  [[noreturn]] void wrong(const std::string& found) const {
    const auto expected = [&]() -> std::string {
      switch (place_) {
        case Place::start:
          return "the header to be an object";
        case Place::tensor_value:
          return fmt::format("{} to be an object", quoted_name(name_));
        case Place::dtype:
          return fmt::format("dtype of tensor {} to be a string", quoted_name(name_));
        case Place::shape_value:
          return fmt::format("shape of tensor {} to be an array", quoted_name(name_));
        case Place::shape:
          return fmt::format("shape of tensor {} to hold integers from 0 to 2^63-1",
                             quoted_name(name_));
        case Place::offsets_value:
          return fmt::format("data_offsets of tensor {} to be an array", quoted_name(name_));
        case Place::offsets:
          return fmt::format("data_offsets of tensor {} to hold integers from 0 to 2^64-1",
                             quoted_name(name_));
        case Place::metadata_value:
          return fmt::format("value of {} in __metadata__ to be a string", quoted_name(key_));
        default:
          return "a tensor";
      }
    }();
    throw UsageError(fmt::format("{}: the header has {}, expected {}", source_, found, expected));
  }

  SafetensorsHeader& header_;
  const std::string& source_;
  Place place_ = Place::start;
  std::set<std::string> names_;
  std::string name_;
  std::string key_;
  TensorInfo tensor_;
  bool is_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  int num_offsets_ = -1;  ///< -1: the key has not come yet
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source) {
  if (text.empty() || text.front() != '{') {
    throw UsageError(
        fmt::format("{}: the header does not start with '{{', this is no safetensors "
                    "file",
                    source));
  }
  // The parser takes a NUL for the end of its input and would not look at what follows.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    throw UsageError(fmt::format("{}: the header is not valid JSON at its byte {}", source, nul));
  }
  SafetensorsHeader header;
  HeaderHandler handler(header, source);
  json::sax_parse(text.begin(), text.end(), &handler);
  return header;
}

}  // namespace moetune::engine
