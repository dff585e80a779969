// Names of a program's parts, and what follows from a verb or a bucket's part alone.
#include "engine/plan/program.h"

#include <array>

namespace moetune::plan {

const char* name_of(Verb verb) {
  static constexpr std::array kNames = {"op",   "comm",   "send",    "recv",    "alloc",
                                        "free", "record", "wait",    "upload",  "fetch",
                                        "copy", "host",   "acquire", "release", "mark"};
  static_assert(kNames.size() == static_cast<size_t>(Verb::mark) + 1);
  return kNames[static_cast<size_t>(verb)];
}

bool cuts_graph(Verb verb) {
  switch (verb) {
    case Verb::comm:
    case Verb::send:
    case Verb::recv:
    case Verb::record:
    case Verb::wait:
    case Verb::fetch:
    case Verb::upload:
    case Verb::copy:
      return true;
    default:
      return false;
  }
}

base::DType type_of(BucketPart part, const Precision& precision) {
  switch (part) {
    case BucketPart::weight:
    case BucketPart::gathered:
      return precision.element;
    case BucketPart::m:
      return precision.m;
    case BucketPart::v:
      return precision.v;
    default:
      return precision.stat;
  }
}

const char* name_of(BlockKind block) {
  static constexpr std::array kNames = {"embedding", "stage",     "gqa",    "mla",    "gdn",
                                        "mamba",     "dense_mlp", "moe",    "mtp",    "mtp_head",
                                        "head",      "update",    "shards", "offload"};
  static_assert(kNames.size() == static_cast<size_t>(BlockKind::count));
  return kNames[static_cast<size_t>(block)];
}

}  // namespace moetune::plan
