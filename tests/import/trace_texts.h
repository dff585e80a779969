// Small traces as text, and gzip made by hand, for tests of what real files do not have.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/import/trace_files.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::tests {

/// The same numbers in every run.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  /// From 0 up to, but not including, `end`.
  int below(int end) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int>((state_ >> 33U) % static_cast<uint64_t>(end));
  }

 private:
  uint64_t state_;
};

inline uint32_t crc32_of(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

/// One member of gzip (RFC 1952) with stored blocks: nothing is packed.
inline std::string gzip_of(std::string_view text) {
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  const auto put = [&](uint32_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  };
  size_t at = 0;
  do {
    const size_t length = std::min<size_t>(text.size() - at, 60'000);
    out.push_back(at + length == text.size() ? '\1' : '\0');
    put(static_cast<uint32_t>(length), 2);
    put(~static_cast<uint32_t>(length), 2);
    out += text.substr(at, length);
    at += length;
  } while (at < text.size());
  put(crc32_of(text), 4);
  put(static_cast<uint32_t>(text.size()), 4);
  return out;
}

/// Writes events and reads them back as a trace.
class EventText {
 public:
  /// Microseconds. `more` goes into the arguments and begins with a comma.
  EventText& kernel(double start, double duration, int correlation,
                    const std::string& name = "gemm", int stream = 7,
                    const std::string& more = "") {
    return op("kernel", name, start, duration, correlation, stream, more);
  }
  EventText& copy(double start, double duration, int correlation,
                  const std::string& name = "Memcpy HtoD (Pinned -> Device)", int stream = 7,
                  int64_t bytes = 1'000'000) {
    return op("gpu_memcpy", name, start, duration, correlation, stream,
              R"(, "bytes": )" + std::to_string(bytes));
  }
  EventText& op(const std::string& category, const std::string& name, double start, double duration,
                int correlation, int stream, const std::string& more) {
    return add(R"({"ph": "X", "cat": ")" + category + R"(", "name": ")" + name +
               R"(", "pid": 0, "tid": )" + std::to_string(stream) + times(start, duration) +
               R"(, "args": {"device": 0, "stream": )" + std::to_string(stream) +
               R"(, "correlation": )" + std::to_string(correlation) + more + "}}");
  }
  EventText& call(double start, double duration, int correlation,
                  const std::string& name = "cudaLaunchKernel", int thread = 1) {
    return add(R"({"ph": "X", "cat": "cuda_runtime", "name": ")" + name +
               R"(", "pid": 1, "tid": )" + std::to_string(thread) + times(start, duration) +
               R"(, "args": {"correlation": )" + std::to_string(correlation) + "}}");
  }
  EventText& range(double start, double duration, const std::string& name) {
    return add(R"({"ph": "X", "cat": "user_annotation", "name": ")" + name +
               R"(", "pid": 1, "tid": 1)" + times(start, duration) + "}");
  }
  EventText& add(const std::string& event) {
    events_ += (events_.empty() ? "" : ",\n") + event;
    return *this;
  }
  [[nodiscard]] std::string json(const std::string& more = "") const {
    return "{\"schemaVersion\": 1, \"traceEvents\": [" + events_ + "]" + more + "}";
  }
  /// `more` goes behind the events and begins with a comma.
  [[nodiscard]] profiler::ImportedTrace read(const std::string& more = "") const {
    const TempFolder folder;
    const std::string path = folder.file("trace.json");
    write_text(path, json(more));
    return std::move(profiler::read_trace_file(path).at(0));
  }

 private:
  static std::string times(double start, double duration) {
    return ", \"ts\": " + std::to_string(start) + ", \"dur\": " + std::to_string(duration);
  }

  std::string events_;
};

}  // namespace moetune::tests
