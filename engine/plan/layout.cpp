// Process grid arithmetic: groups, pipeline stages, and which tokens a rank holds.
#include "engine/plan/layout.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace moetune::plan {

const char* name_of(Group group) {
  switch (group) {
    case Group::world:
      return "world";
    case Group::dp_cp:
      return "dp_cp";
    case Group::cp:
      return "cp";
    case Group::ep:
      return "ep";
    case Group::edp:
      return "edp";
    case Group::pp:
      return "pp";
    case Group::embedding:
      return "embedding";
    case Group::count:
      break;
  }
  return "?";
}

std::vector<int> Layout::group_ranks(Group group, int rank) const {
  MOETUNE_CHECK(rank >= 0 && rank < world_size(), "rank {} is not in a world of {}", rank,
                world_size());
  const int plane_size = dp * cp;
  const int stage_first = pp_rank(rank) * plane_size;
  const int plane = rank % plane_size;
  const auto ranks = [](int first, int count, int stride) {
    std::vector<int> result;
    result.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) result.push_back(first + i * stride);
    return result;
  };
  switch (group) {
    case Group::world:
      return ranks(0, world_size(), 1);
    case Group::dp_cp:
      return ranks(stage_first, plane_size, 1);
    case Group::cp:
      return ranks(rank - cp_rank(rank), cp, 1);
    case Group::ep:
      return ranks(rank - ep_rank(rank), ep, 1);
    case Group::edp:
      return ranks(stage_first + ep_rank(rank), edp(), ep);
    case Group::pp:
      return ranks(plane, pp, plane_size);
    case Group::embedding:
      return pp == 1 ? ranks(plane, 1, 1) : ranks(plane, 2, (pp - 1) * plane_size);
    case Group::count:
      break;
  }
  return {};
}

int64_t Layout::group_size(Group group) const {
  return static_cast<int64_t>(group_ranks(group, 0).size());
}

int Layout::rank_in(Group group, int rank) const {
  const std::vector<int> ranks = group_ranks(group, rank);
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

Layout layout_of(const Knobs& knobs) {
  return {static_cast<int>(knobs.data_parallel_size), static_cast<int>(knobs.context_parallel_size),
          static_cast<int>(knobs.expert_model_parallel_size),
          static_cast<int>(knobs.pipeline_model_parallel_size)};
}

std::vector<StageLayers> split_layers(const ModelSpec& model, const Knobs& knobs) {
  const int64_t pp = knobs.pipeline_model_parallel_size;
  const int64_t first = pp > 1 ? knobs.decoder_first_pipeline_num_layers : 0;
  const int64_t last = pp > 1 ? knobs.decoder_last_pipeline_num_layers : 0;
  MOETUNE_CHECK(pp >= 1, "pipeline_model_parallel_size is {}", pp);
  // Stages without a count of their own share what is left.
  const int64_t num_free = pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const int64_t rest = model.num_layers - first - last;
  MOETUNE_CHECK(rest >= 0 && (num_free > 0 || rest == 0),
                "{} layers do not split into {} stages with {} in the first and {} in the last",
                model.num_layers, pp, first, last);
  std::vector<StageLayers> stages;
  stages.reserve(static_cast<size_t>(pp));
  int64_t next_layer = 0;
  int64_t next_free = 0;
  for (int64_t stage = 0; stage < pp; ++stage) {
    int64_t count = 0;
    if (stage == 0 && first > 0) {
      count = first;
    } else if (stage == pp - 1 && last > 0) {
      count = last;
    } else {
      count = rest / num_free + (next_free < rest % num_free ? 1 : 0);
      ++next_free;
    }
    stages.push_back({next_layer, count});
    next_layer += count;
  }
  return stages;
}

int64_t sequence_index(const Layout& layout, const Knobs& knobs, int64_t micro_batch, int dp_rank,
                       int64_t slot) {
  return (micro_batch * layout.dp + dp_rank) * knobs.micro_batch_size + slot;
}

int64_t num_micro_batches(const Layout& layout, const Knobs& knobs, int64_t global_batch_size) {
  return global_batch_size / (knobs.micro_batch_size * layout.dp);
}

std::vector<int32_t> local_positions(const Layout& layout, int cp_rank, int64_t seq_length) {
  const int cp = layout.cp;
  MOETUNE_CHECK(cp_rank >= 0 && cp_rank < cp, "context-parallel rank {} of {}", cp_rank, cp);
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(seq_length / cp));
  const auto append = [&positions](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) positions.push_back(static_cast<int32_t>(p));
  };
  if (cp == 1) {
    append(0, seq_length);
    return positions;
  }
  MOETUNE_CHECK(seq_length % (2 * cp) == 0, "sequence of {} does not split into {} chunks",
                seq_length, 2 * cp);
  const int64_t chunk = seq_length / (2 * cp);
  for (const int64_t index : {cp_rank, 2 * cp - 1 - cp_rank}) {
    append(index * chunk, (index + 1) * chunk);
  }
  return positions;
}

std::map<std::pair<int32_t, std::string>, int64_t> group_instances(const Layout& layout) {
  std::map<std::pair<int32_t, std::string>, int64_t> instances;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    for (const Group group : {Group::world, Group::dp_cp, Group::cp, Group::ep, Group::edp,
                              Group::pp, Group::embedding}) {
      instances[{rank, name_of(group)}] = layout.group_ranks(group, rank).front();
    }
  }
  return instances;
}

}  // namespace moetune::plan
