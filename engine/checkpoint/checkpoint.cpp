// Finds the files of a checkpoint folder, with or without an index, and refuses one whose index
// names what is not there.
#include "engine/checkpoint/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using base::UsageError;
using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = 64 << 20;

/// The index may only name files beside itself.
void check_shard_name(const std::string& name, const std::string& source) {
  const bool is_plain = !name.empty() &&
                        name.find_first_of(std::string("/\\\0", 3)) == std::string::npos &&
                        name != "." && name != "..";
  if (is_plain && name.ends_with(".safetensors")) return;
  throw UsageError(fmt::format(
      "{}: weight_map names the shard {}, expected a plain file name that ends in .safetensors",
      source, quoted_name(name)));
}

}  // namespace

Checkpoint Checkpoint::open_file(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.files_.emplace_back(path);
  for (const auto& [name, tensor] : checkpoint.files_[0].tensors()) {
    checkpoint.file_of_.emplace(name, 0);
  }
  return checkpoint;
}

Checkpoint Checkpoint::open_folder(const std::string& folder) {
  std::error_code ignored;
  const std::string single = folder + "/model.safetensors";
  if (std::filesystem::exists(single, ignored)) return open_file(single);
  const std::string index = folder + "/model.safetensors.index.json";
  if (std::filesystem::exists(index, ignored)) return open_index(folder, index);
  throw UsageError(fmt::format(
      "{}: no weights, expected model.safetensors or model.safetensors.index.json", folder));
}

Checkpoint Checkpoint::open_index(const std::string& folder, const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  const json document = spec::parse_json(read_text(path, kMaxIndexBytes), path);
  spec::JsonReader reader(document, path);
  const json& map = reader.value("weight_map");
  if (!map.is_object()) reader.fail("weight_map", "an object of tensor names and shard names");
  std::map<std::string, size_t> number_of;
  for (const auto& [name, value] : map.items()) {
    if (!value.is_string()) {
      throw UsageError(fmt::format("{}: weight_map has {} for tensor {}, expected a file name",
                                   path, spec::describe(value), quoted_name(name)));
    }
    const std::string shard = value.get<std::string>();
    check_shard_name(shard, path);
    const auto [it, is_new] = number_of.emplace(shard, checkpoint.files_.size());
    if (is_new) checkpoint.files_.emplace_back(folder + "/" + shard);
    if (!checkpoint.files_[it->second].tensors().contains(name)) {
      throw UsageError(fmt::format("{}: weight_map says tensor {} is in {}, which does not have it",
                                   path, quoted_name(name), quoted_name(shard)));
    }
    checkpoint.file_of_.emplace(name, it->second);
  }
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < checkpoint.files_.size(); ++i) {
    for (const auto& [name, tensor] : checkpoint.files_[i].tensors()) {
      total_bytes += tensor.end - tensor.begin;
      const auto mapped = checkpoint.file_of_.find(name);
      if (mapped != checkpoint.file_of_.end() && mapped->second == i) continue;
      throw UsageError(fmt::format("{}: tensor {} is in {}, but weight_map {}", path,
                                   quoted_name(name), checkpoint.files_[i].path(),
                                   mapped == checkpoint.file_of_.end()
                                       ? "does not have it"
                                       : "says it is in another shard"));
    }
  }
  if (reader.has("metadata") && reader.object("metadata").has("total_size")) {
    const json& total = document["metadata"]["total_size"];
    if (!total.is_number() || total != total_bytes) {
      throw UsageError(fmt::format("{}: key 'metadata.total_size' is {}, the shards have {} bytes",
                                   path, spec::describe(total), total_bytes));
    }
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const TensorInfo* Checkpoint::find(const std::string& name) const {
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? nullptr : &files_[it->second].find(name);
}

void Checkpoint::read(const std::string& name, int64_t first, std::span<double> out) const {
  const SafetensorsFile& file = files_[file_of_.at(name)];
  file.read(file.find(name), first, out);
}

}  // namespace moetune::engine
