// Files of Primus that name each other: where they lie, and in which order they are merged.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/parts.h"

namespace moetune::spec::dialects {

/// "${NAME:default}" as if the variable were not set, in all values.
void substitute(Node& node, Reading& in);
/// What `over` says wins; maps are merged.
void merge(Node& base, const Node& over);
/// The same of settings: one that `over` says in another spelling is not left beside it.
void override_settings(Node& base, const Node& over);
/// Keys that `base` has stay as they are, whole.
void add_missing(Node& base, const Node& others);
Node empty_map();

/// Files that name each other, each of which is read once, however many name it.
/// Modules of an experiment that train; of several the first counts.
inline constexpr std::array<std::string_view, 3> kTrainers = {"pre_trainer", "post_trainer",
                                                              "sft_trainer"};

class Chains {
 public:
  explicit Chains(Reading& in);

  /// What a text says, with all that it extends.
  Node with_bases(Node root, const std::string& place, int depth = 0);
  /// A file of Primus' configs/KIND/FRAMEWORK, or one beside the text, with all that it extends. A
  /// map without fields, or with what the shipped one is known to say, where it was not given.
  const Node& preset(std::string_view kind, std::string_view framework, const std::string& name);

  /// Whether a file of that name was asked for and not given.
  [[nodiscard]] bool misses(std::string_view name) const { return missing_.contains(name); }
  /// Files with settings of their own that were not given.
  [[nodiscard]] size_t num_unknown() const { return num_unknown_; }

 private:
  struct Found {
    std::string id;  ///< one for all names of a file
    std::string_view text;
    bool is_there = false;
  };
  struct Named {
    std::string name;
    std::vector<std::string> places;  ///< where it may lie
  };
  [[nodiscard]] std::vector<Named> named_once(const std::vector<std::string>& names,
                                              const std::string& place) const;
  /// Throws base::UsageError beyond what a person's files need.
  void count_merged(size_t num_nodes);
  [[nodiscard]] Found find(const std::vector<std::string>& places, const std::string& name) const;
  const Node& read(const std::vector<std::string>& places, const std::string& name, int depth);
  Node read_anew(const Found& file, int depth);
  Node known_of_missing(const std::string& name);

  Reading& in_;
  std::map<std::string, Node, std::less<>> known_;  ///< by their ids; empty while they are read
  std::set<std::string, std::less<>> open_;         ///< being read
  std::set<std::string, std::less<>> missing_;
  size_t num_unknown_ = 0;
  size_t num_nodes_ = 0;   ///< of all that is kept
  size_t num_merged_ = 0;  ///< gone through
};

}  // namespace moetune::spec::dialects
