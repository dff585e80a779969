#include "engine/spec/dialects/primus_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestChain = 8;
/// Files that one file names.
constexpr size_t kMostBases = 64;
/// Of all files with what they extend, which may be the same again and again.
constexpr size_t kMostNodes = 100'000;
/// That are gone through while files are merged: one may be merged into many.
constexpr size_t kMostMerged = 4 * kMostNodes;

/// Shipped files that hold the dialect's defaults, wherever they are not given.
constexpr std::array<std::string_view, 11> kDefaults = {"language_model.yaml",
                                                        "primus_megatron_model.yaml",
                                                        "pre_trainer.yaml",
                                                        "sft_trainer.yaml",
                                                        "trainer_base.yaml",
                                                        "module_base.yaml",
                                                        "primus_megatron_module.yaml",
                                                        "primus_turbo.yaml",
                                                        "torch_compile.yaml",
                                                        "zero_bubble.yaml",
                                                        "primus_pipeline.yaml"};

/// What shipped files say otherwise than the preset for training, whose figures are the defaults.
struct Shipped {
  std::string_view file;
  std::string_view key;
  std::string_view value;
};
constexpr std::array kShipped = {
    Shipped{"trainer_base.yaml", "global_batch_size", "128"},
    Shipped{"trainer_base.yaml", "seq_length", "4096"},
    Shipped{"trainer_base.yaml", "use_distributed_optimizer", "false"},
    Shipped{"sft_trainer.yaml", "global_batch_size", "128"},
    Shipped{"sft_trainer.yaml", "micro_batch_size", "1"},
    Shipped{"sft_trainer.yaml", "seq_length", "2048"},
};

/// How a file names others. Of what older releases have the first file counts, with whole keys.
struct Naming {
  std::string_view key;
  bool is_old = false;
};
constexpr std::array kNamings = {Naming{"extends"}, Naming{"includes", true},
                                 Naming{"bases", true}};

std::string substituted(std::string_view text, Reading& in) {
  std::string result;
  while (!text.empty()) {
    const size_t start = std::min(text.find("${"), text.size());
    result += text.substr(0, start);
    text.remove_prefix(start);
    if (text.empty()) break;
    const size_t end = text.find('}');
    if (end == std::string_view::npos) return result + std::string(text);
    const std::string_view inside = text.substr(2, end - 2);
    const size_t colon = inside.find(':');
    if (colon == std::string_view::npos) {
      in.note(fmt::format("the variable {} has no default and is not read", shown(inside)));
      result += text.substr(0, end + 1);
    } else {
      result += inside.substr(colon + 1);
    }
    text.remove_prefix(end + 1);
  }
  return result;
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_yaml_name(std::string_view name) {
  return name.ends_with(".yaml") || name.ends_with(".yml");
}

size_t num_nodes_in(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += num_nodes_in(item);
  for (const auto& [key, value] : node.fields) count += num_nodes_in(value);
  return count;
}

/// Where a name leads from a folder, both below the folder of all files; empty: out of that.
std::string place_from(std::string_view folder, std::string_view name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute()) return {};
  std::string place = (fs::path(folder) / path).lexically_normal().generic_string();
  const bool is_outside = place == ".." || place.starts_with("../");
  return is_outside ? std::string() : place;
}

void add_place(std::string place, std::vector<std::string>& places) {
  if (!place.empty()) places.push_back(std::move(place));
}

std::string_view folder_of(std::string_view place) {
  const size_t slash = place.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : place.substr(0, slash);
}

/// The names of the files that a map extends, in the order in which what they say is merged.
std::vector<std::string> bases_of(const Node& root, const Naming& naming) {
  std::vector<std::string> names;
  const Node* bases = root.find(naming.key);
  if (bases == nullptr) return names;
  if (bases->kind == Node::Kind::scalar && !bases->is_null()) names.push_back(bases->text);
  for (const Node& base : bases->items) names.push_back(base.text);
  // Another key of that name is a setting.
  if (naming.is_old && !std::ranges::all_of(names, is_yaml_name)) return {};
  if (naming.is_old) std::ranges::reverse(names);
  return names;
}

}  // namespace

Node empty_map() {
  Node node;
  node.kind = Node::Kind::map;
  return node;
}

void substitute(Node& node, Reading& in) {
  if (node.text.find("${") != std::string::npos) node.text = substituted(node.text, in);
  for (Node& item : node.items) substitute(item, in);
  for (auto& [key, value] : node.fields) substitute(value, in);
}

namespace {

/// `over` by its keys; of fields that both have `both` is asked.
template <class Both>
void merge_fields(Node& base, const Node& over, const Both& both) {
  // The names stay where they are while fields are added.
  base.fields.reserve(base.fields.size() + over.fields.size());
  std::unordered_map<std::string_view, size_t> index;
  for (size_t i = 0; i < base.fields.size(); ++i) index.emplace(base.fields[i].key, i);
  for (const Field& field : over.fields) {
    const auto at = index.find(field.key);
    if (at != index.end()) {
      both(base.fields[at->second].value, field.value);
      continue;
    }
    base.fields.push_back(field);
    index.emplace(base.fields.back().key, base.fields.size() - 1);
  }
}

}  // namespace

void merge(Node& base, const Node& over) {
  merge_fields(base, over, [](Node& value, const Node& other) {
    if (value.kind == Node::Kind::map && other.kind == Node::Kind::map) {
      merge(value, other);
    } else {
      value = other;
    }
  });
}

void override_settings(Node& base, const Node& over) {
  const auto replace = [&](std::string_view key, std::string_view spelling) {
    const auto is_said = [&](std::string_view name) {
      const Node* value = over.find(name);
      return value != nullptr && !value->is_null();
    };
    if (is_said(key) == is_said(spelling)) return;
    const std::string_view other = is_said(key) ? spelling : key;
    if (over.find(other) != nullptr) return;
    std::erase_if(base.fields, [&](const Field& field) { return field.key == other; });
  };
  for (const OtherKey& other : other_keys()) {
    if (other.dialect == Dialect::primus) {
      replace(key_of(row_of(other.row), Dialect::primus), other.key);
    }
  }
  for (const OldSetting& old : old_settings()) {
    const bool is_same = old.means[0].value.empty() && old.means[1].key.empty();
    if (old.dialect == Dialect::primus && is_same) replace(old.means[0].key, old.key);
  }
  merge(base, over);
}

void add_missing(Node& base, const Node& others) {
  merge_fields(base, others, [](Node&, const Node&) {});
}

Chains::Chains(Reading& in) : in_(in) {
  // The text itself is being read.
  if (in.options.named == nullptr) return;
  open_.insert(in.options.place);
  known_.emplace(in.options.place, empty_map());
}

Node Chains::with_bases(Node root, const std::string& place, int depth) {
  Node all = empty_map();
  for (const Naming& naming : kNamings) {
    const std::vector<std::string> names = bases_of(root, naming);
    if (names.empty() && naming.is_old) continue;
    if (names.size() > kMostBases) {
      throw base::UsageError(fmt::format("{}: '{}' names {} files, expected at most {}",
                                         place.empty() ? in_.source : shown(place), naming.key,
                                         names.size(), kMostBases));
    }
    for (const Named& name : named_once(names, place)) {
      const Node& base = read(name.places, name.name, depth);
      count_merged(num_nodes_in(all) + num_nodes_in(base));
      if (naming.is_old) {
        Node with_whole_keys = base;
        add_missing(with_whole_keys, all);
        all = std::move(with_whole_keys);
      } else {
        override_settings(all, base);
      }
    }
    std::erase_if(root.fields, [&](const auto& field) { return field.key == naming.key; });
  }
  override_settings(all, root);
  return all;
}

const Node& Chains::preset(std::string_view kind, std::string_view framework,
                           const std::string& name) {
  const std::string file = is_yaml_name(name) ? name : name + ".yaml";
  std::vector<std::string> places;
  // Where Primus looks comes first. A folder is a checkout of it, or lies in one.
  std::string_view folder = folder_of(in_.options.place);
  for (bool is_top = false; !is_top; folder = folder_of(folder)) {
    is_top = folder.empty();
    for (const std::string_view configs : {"primus/configs", "configs"}) {
      const std::string below = fmt::format("{}/{}/{}", configs, kind, framework);
      add_place(place_from(place_from(folder, below), file), places);
    }
  }
  add_place(place_from(folder_of(in_.options.place), file), places);
  return read(places, file, 0);
}

/// Of a file that is named twice, however it is spelled, what is merged last counts: it says all
/// again.
std::vector<Chains::Named> Chains::named_once(const std::vector<std::string>& names,
                                              const std::string& place) const {
  std::set<std::string> known;
  std::vector<Named> once;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    Named named{*name, {}};
    add_place(place_from(folder_of(place), *name), named.places);
    if (known.insert(find(named.places, *name).id).second) once.push_back(std::move(named));
  }
  std::ranges::reverse(once);
  return once;
}

void Chains::count_merged(size_t num_nodes) {
  num_merged_ += num_nodes;
  if (num_merged_ <= kMostMerged) return;
  throw base::UsageError(
      fmt::format("{}: more than {} settings are merged from the files that it names", in_.source,
                  kMostMerged));
}

Chains::Found Chains::find(const std::vector<std::string>& places, const std::string& name) const {
  if (in_.options.named != nullptr) {
    const NamedFileSource::File* file = in_.options.named->first_of(places);
    if (file != nullptr) return {file->place, file->text, true};
  } else if (const auto file = in_.options.files.find(file_name(name));
             file != in_.options.files.end()) {
    return {file->first, file->second, true};
  }
  // No place begins with it.
  return {"/" + name, {}, false};
}

const Node& Chains::read(const std::vector<std::string>& places, const std::string& name,
                         int depth) {
  const Found file = find(places, name);
  const auto [known, is_new] = known_.try_emplace(file.id, empty_map());
  Node& node = known->second;
  if (!is_new) {
    if (open_.contains(file.id)) {
      in_.problem(fmt::format("'{}' extends itself", shown(file.id)));
    }
    return node;
  }
  if (!file.is_there) return node = known_of_missing(file_name(name));
  open_.insert(file.id);
  node = read_anew(file, depth);
  open_.erase(file.id);
  num_nodes_ += num_nodes_in(node);
  if (num_nodes_ > kMostNodes) {
    throw base::UsageError(fmt::format(
        "{}: the files that it names say more than {} settings, each with what it extends",
        in_.source, kMostNodes));
  }
  return node;
}

Node Chains::read_anew(const Found& file, int depth) {
  if (depth > kDeepestChain) {
    in_.problem(
        fmt::format("'{}' extends more than {} files in a row", shown(file.id), kDeepestChain));
    return empty_map();
  }
  Node root =
      read_noted_yaml(file.text, fmt::format("{}: names {}", in_.source, shown(file.id)), in_);
  if (root.kind != Node::Kind::map) {
    if (!root.is_null()) in_.problem(fmt::format("'{}' is no map of settings", shown(file.id)));
    return empty_map();
  }
  substitute(root, in_);
  return with_bases(std::move(root), file.id, depth + 1);
}

Node Chains::known_of_missing(const std::string& name) {
  missing_.insert(name);
  Node known = empty_map();
  if (std::ranges::find(kDefaults, name) == kDefaults.end()) {
    in_.run.is_partial = true;
    ++num_unknown_;
    in_.note(fmt::format("{} has settings of its own and was not given", shown(name)));
    return known;
  }
  for (const Shipped& row : kShipped) {
    if (row.file != name) continue;
    known.fields.push_back({std::string(row.key), scalar_node(std::string(row.value))});
  }
  return known;
}

}  // namespace moetune::spec::dialects
