// A checkpoint folder: one safetensors file, or several with an index that says which tensor lies
// where.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"

namespace moetune::engine {

class Checkpoint {
 public:
  /// Opens model.safetensors, or model.safetensors.index.json and its shards. Throws
  /// base::UsageError when neither is there, when a shard is malformed, or when index and shards
  /// contradict each other.
  static Checkpoint open_folder(const std::string& folder);
  /// One file.
  static Checkpoint open_file(const std::string& path);

  /// The file, or the index, for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> names() const;
  /// Null when there is none of that name.
  [[nodiscard]] const TensorInfo* find(const std::string& name) const;
  /// Elements [first, first + out.size()) of a floating-point tensor that is there.
  void read(const std::string& name, int64_t first, std::span<double> out) const;

 private:
  static Checkpoint open_index(const std::string& folder, const std::string& path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace moetune::engine
