// A record's kind decides first; the caller's rules tell kernels from each other.
#include "profiler/analysis/classify.h"

#include <algorithm>
#include <string_view>

namespace moetune::profiler {

const char* name_of(OpClass op_class) {
  switch (op_class) {
    case OpClass::compute:
      return "compute";
    case OpClass::dispatcher:
      return "dispatcher";
    case OpClass::communication:
      return "communication";
    case OpClass::memcpy:
      return "memcpy";
    case OpClass::host:
      return "host";
  }
  return "?";
}

OpClass classify(const TraceRecord& record, const ClassificationRules& rules) {
  switch (record.kind) {
    case RecordKind::host_sync:
    case RecordKind::host_work:
      return OpClass::host;
    case RecordKind::collective:
    case RecordKind::p2p:
      return OpClass::communication;
    case RecordKind::memcpy:
      return OpClass::memcpy;
    case RecordKind::kernel:
      break;
  }
  const std::string_view name = record.name;
  const std::string_view op = name.substr(0, name.find('.'));
  const bool is_dispatcher =
      std::any_of(rules.dispatcher_ops.begin(), rules.dispatcher_ops.end(),
                  [&](const std::string& known) { return known == name || known == op; });
  return is_dispatcher ? OpClass::dispatcher : OpClass::compute;
}

std::string group_of(const TraceRecord& record, OpClass op_class) {
  switch (op_class) {
    case OpClass::dispatcher:
      return kDispatcherGroup;
    case OpClass::memcpy:
      return kMemcpyGroup;
    case OpClass::communication:
      return record.group.empty() ? "unnamed" : record.group;
    case OpClass::compute:
    case OpClass::host:
      break;
  }
  return {};
}

bool is_pipeline_group(const std::string& group, const ClassificationRules& rules) {
  return std::find(rules.pipeline_groups.begin(), rules.pipeline_groups.end(), group) !=
         rules.pipeline_groups.end();
}

}  // namespace moetune::profiler
