// Sorts records into lanes, and merges neighbours until a lane fits.
#include "reports/timeline_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace moetune::reports {
namespace {

using nlohmann::json;
using profiler::RecordKind;
using profiler::TraceRecord;

constexpr std::array kClassNames = {"forward",       "backward", "recompute", "update",
                                    "communication", "copy",     "host sync", "launch"};

SliceClass class_of(const TraceRecord& record) {
  const std::string& name = record.name;
  switch (record.kind) {
    case RecordKind::collective:
    case RecordKind::p2p:
      return SliceClass::communication;
    case RecordKind::memcpy:
      return SliceClass::copy;
    case RecordKind::host_sync:
    case RecordKind::host_work:
      return SliceClass::host_sync;
    default:
      break;
  }
  // Kernels are named op.pass.
  if (record.is_recompute || name.ends_with(".recompute")) {
    return SliceClass::recompute;
  }
  if (name.ends_with(".backward") || name.ends_with(".wgrad")) {
    return SliceClass::backward;
  }
  return name.ends_with(".update") ? SliceClass::update : SliceClass::forward;
}

auto lane_order(const Slice& slice) {
  return std::tuple(slice.rank, slice.stream, slice.start_ns, slice.end_ns);
}

bool may_merge(const Slice& a, const Slice& b, int64_t bin_ns) {
  return a.rank == b.rank && a.stream == b.stream && a.slice_class == b.slice_class &&
         a.group == b.group && b.end_ns - b.start_ns < bin_ns && a.end_ns - a.start_ns < bin_ns &&
         b.start_ns - a.end_ns < bin_ns;
}

// Interned texts: the page holds each once.
class Names {
 public:
  int64_t id(const std::string& name) {
    const auto [found, is_new] = ids_.try_emplace(name, static_cast<int64_t>(ids_.size()));
    if (is_new) {
      names_.push_back(name);
    }
    return found->second;
  }
  [[nodiscard]] const std::vector<std::string>& all() const { return names_; }

 private:
  std::map<std::string, int64_t> ids_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<Slice> collect_slices(const Rows& rows) {
  std::vector<TraceRecord> records(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    TraceRecord& record = records[i];
    // The values of column "kind" (profiler/store/schema.sql) are those of RecordKind.
    const int64_t kind = rows.integer(i, "kind").value_or(0);
    const bool is_known = kind >= 0 && kind <= static_cast<int64_t>(RecordKind::host_work);
    record.kind = is_known ? static_cast<RecordKind>(kind) : RecordKind::kernel;
    record.rank = static_cast<int32_t>(rows.integer(i, "rank").value_or(0));
    record.stream = static_cast<int32_t>(rows.integer(i, "stream").value_or(0));
    record.name = rows.text(i, "name");
    record.group = rows.text(i, "comm_group");
    record.layer = static_cast<int32_t>(rows.integer(i, "layer").value_or(-1));
    record.micro_batch = static_cast<int32_t>(rows.integer(i, "micro_batch").value_or(-1));
    record.start_ns = rows.integer(i, "start").value_or(0);
    record.end_ns = rows.integer(i, "end").value_or(0);
    record.bytes = rows.integer(i, "bytes").value_or(0);
    record.transfer_ns = rows.integer(i, "transfer_ns").value_or(0);
    record.launch_start_ns = rows.integer(i, "launch_start").value_or(0);
    record.launch_end_ns = rows.integer(i, "launch_end").value_or(0);
    record.graph_id = static_cast<int32_t>(rows.integer(i, "graph").value_or(0));
    record.is_recompute = rows.integer(i, "is_recompute").value_or(0) != 0;
  }
  return collect_slices(records);
}

std::vector<Slice> collect_slices(std::span<const TraceRecord> records) {
  std::vector<Slice> slices;
  slices.reserve(2 * records.size());
  // Records that one call launched (a graph replay) share the call's times.
  std::set<std::tuple<int64_t, int64_t, int64_t>> launches;
  for (const TraceRecord& record : records) {
    Slice slice;
    slice.rank = record.rank;
    slice.stream = record.stream;
    slice.name = record.name;
    slice.group = record.group;
    slice.layer = record.layer;
    slice.micro_batch = record.micro_batch;
    slice.start_ns = record.start_ns;
    slice.end_ns = std::max(slice.start_ns, record.end_ns);
    slice.bytes = record.bytes;
    slice.slice_class = class_of(record);
    if (slice.slice_class == SliceClass::communication) {
      slice.wait_ns = std::clamp(slice.end_ns - slice.start_ns - record.transfer_ns, int64_t{0},
                                 slice.end_ns - slice.start_ns);
    }
    if (record.kind != RecordKind::host_sync && record.launch_end_ns > record.launch_start_ns &&
        launches.emplace(slice.rank, record.launch_start_ns, record.launch_end_ns).second) {
      Slice launch;
      launch.rank = slice.rank;
      launch.stream = -1;
      launch.slice_class = SliceClass::launch;
      launch.name = record.graph_id != 0 ? fmt::format("graph {}", record.graph_id) : slice.name;
      launch.layer = slice.layer;
      launch.micro_batch = slice.micro_batch;
      launch.start_ns = record.launch_start_ns;
      launch.end_ns = record.launch_end_ns;
      slices.push_back(std::move(launch));
    }
    slices.push_back(std::move(slice));
  }
  std::ranges::stable_sort(slices, {}, lane_order);
  return slices;
}

std::vector<Slice> downsample(std::vector<Slice> slices, size_t max_slices, int64_t step_ns) {
  for (int64_t bin_ns = std::max<int64_t>(1, step_ns / 20'000);
       slices.size() > max_slices && bin_ns <= step_ns; bin_ns *= 2) {
    std::vector<Slice> merged;
    merged.reserve(slices.size());
    for (Slice& slice : slices) {
      if (merged.empty() || !may_merge(merged.back(), slice, bin_ns)) {
        merged.push_back(std::move(slice));
        continue;
      }
      Slice& last = merged.back();
      last.end_ns = std::max(last.end_ns, slice.end_ns);
      last.wait_ns = 0;
      last.bytes += slice.bytes;
      last.count += slice.count;
      last.layer = last.layer == slice.layer ? last.layer : -1;
      last.micro_batch = last.micro_batch == slice.micro_batch ? last.micro_batch : -1;
    }
    slices = std::move(merged);
  }
  return slices;
}

std::string lane_label(int64_t stream, const std::vector<const Slice*>& slices) {
  if (stream < 0) {
    return "host";
  }
  std::map<std::string, int64_t> ns_by_group;
  for (const Slice* slice : slices) {
    ns_by_group[slice->slice_class == SliceClass::communication ? slice->group
                : slice->slice_class == SliceClass::copy        ? "copy"
                                                                : "compute"] +=
        slice->end_ns - slice->start_ns;
  }
  std::string label;
  int64_t most = -1;
  for (const auto& [group, ns] : ns_by_group) {
    if (ns > most) {
      most = ns;
      label = group;
    }
  }
  return fmt::format("{} · {}", stream, label);
}

namespace {

// A column that is the same from end to end, as that one value: most are.
json once(const json& column) {
  const bool is_same = std::ranges::all_of(column, [&](const json& v) { return v == column[0]; });
  return column.empty() || !is_same ? column : column[0];
}

}  // namespace

json timeline_json(const std::vector<Slice>& slices, int64_t step_ns, std::string_view unit) {
  Names names;
  Names groups;
  std::map<std::pair<int64_t, int64_t>, std::vector<const Slice*>> lanes;
  for (const Slice& slice : slices) {
    lanes[{slice.rank, slice.stream}].push_back(&slice);
  }
  json lanes_json = json::array();
  for (const auto& [key, lane] : lanes) {
    // Columns; starts as differences, so that the numbers stay short.
    json start = json::array(), length = json::array(), kind = json::array(), name = json::array(),
         group = json::array(), layer = json::array(), micro_batch = json::array(),
         wait = json::array(), bytes = json::array(), count = json::array();
    int64_t last_start = 0;
    for (const Slice* slice : lane) {
      start.push_back(slice->start_ns - last_start);
      last_start = slice->start_ns;
      length.push_back(slice->end_ns - slice->start_ns);
      kind.push_back(static_cast<int>(slice->slice_class));
      name.push_back(names.id(slice->name));
      group.push_back(groups.id(slice->group));
      layer.push_back(slice->layer);
      micro_batch.push_back(slice->micro_batch);
      wait.push_back(slice->wait_ns);
      bytes.push_back(slice->bytes);
      count.push_back(slice->count);
    }
    lanes_json.push_back({{"rank", key.first},
                          {"stream", key.second},
                          {"label", lane_label(key.second, lane)},
                          {"start", start},
                          {"length", length},
                          {"class", kind},
                          {"name", name},
                          {"group", once(group)},
                          {"layer", once(layer)},
                          {"micro_batch", once(micro_batch)},
                          {"wait", once(wait)},
                          {"bytes", once(bytes)},
                          {"count", once(count)}});
  }
  return {{"classes", kClassNames}, {"names", names.all()}, {"groups", groups.all()},
          {"step", step_ns},        {"unit", unit},         {"lanes", lanes_json}};
}

}  // namespace moetune::reports
