// The parts of a log that several lines make: echoed configurations and Python's tracebacks.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "profiler/store/untrusted_json.h"
#include "sweeps/runs/failure_forms.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

using log_text::bare;

constexpr size_t kMostSettings = 4096;
constexpr size_t kMostValueBytes = 2048;
constexpr size_t kMostJsonBytes = size_t{1} << 20;
constexpr int kMostJsonDepth = 64;

bool is_identifier(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::ranges::all_of(text,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void add_setting(EchoedConfig& config, std::string key, std::string_view value) {
  if (config.settings.size() >= kMostSettings) return;
  config.settings.push_back({std::move(key), log_text::printable(value, kMostValueBytes)});
}

/// "  name ........ value": Megatron-LM's arguments. False for other lines.
bool take_argument(EchoedConfig& config, std::string_view line) {
  constexpr size_t kDotsUpTo = 48;  // longer names have none
  if (!line.starts_with("  ")) return false;
  const std::string_view name = log_text::up_to(bare(line), " ");
  if (!is_identifier(name)) return false;
  std::string_view rest = bare(line).substr(name.size());
  const size_t dots = std::min(rest.find_first_not_of(' '), rest.size());
  const bool has_dots = rest.substr(dots).starts_with('.');
  if (!has_dots && name.size() < kDotsUpTo) return false;
  if (has_dots) rest.remove_prefix(std::min(rest.find_first_not_of('.', dots), rest.size()));
  add_setting(config, std::string(name), bare(rest));
  return true;
}

/// "[model] Non-default values (vs Mcore ...):", "[train]:", "  field: repr  (Mcore default: ...)".
bool take_summary_line(EchoedConfig& config, std::string& section, std::string_view line) {
  if (line.starts_with('[')) {
    const size_t end = line.find(']');
    if (end == std::string_view::npos) return false;
    const std::string_view name = line.substr(1, end - 1);
    const std::string_view rest = line.substr(end + 1);
    if (!is_identifier(name) || !(rest == ":" || rest.starts_with(" Non-default values"))) {
      return false;
    }
    section = name;
    return true;
  }
  if (!line.starts_with("  ") || section.empty()) return false;
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || !is_identifier(bare(line.substr(0, colon)))) return false;
  std::string_view value = line.substr(colon + 2);
  value = value.substr(0, std::min(value.rfind("  (Mcore default: "), value.size()));
  add_setting(config, section + "." + std::string(bare(line.substr(0, colon))), bare(value));
  return true;
}

/// The scalars and lists of scalars of a tree, under dotted paths.
void flatten_json(const nlohmann::json& node, const std::string& path, EchoedConfig& config) {
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      flatten_json(value, path.empty() ? key : path + "." + key, config);
    }
  } else if (node.is_string()) {
    add_setting(config, path, node.get<std::string>());
  } else if (!node.is_null()) {
    add_setting(config, path, node.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

/// Whether a line may stand within an object that is printed with indents: lines of others do not.
bool is_json_line(std::string_view line) {
  if (line.empty() || std::string_view("\"{}]").find(line[0]) != std::string_view::npos)
    return true;
  if (line.back() == ',') line.remove_suffix(1);
  return line == "[" || line == "[]" || line == "true" || line == "false" || line == "null" ||
         line.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
}

bool is_shout(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return std::islower(c) != 0; });
}

size_t end_of_path(std::string_view text) {
  const auto is_other = [](unsigned char c) {
    return std::isalnum(c) == 0 && c != '_' && c != '.';
  };
  return static_cast<size_t>(std::ranges::find_if(text, is_other) - text.begin());
}

/// "torch.OutOfMemoryError: ...", "AssertionError", "ray.exceptions.RayTaskError(ValueError): ...".
/// `is_outside`: no deeper than the traceback.
bool is_exception_line(std::string_view text, bool is_outside) {
  const std::string_view path = text.substr(0, end_of_path(text));
  std::string_view rest = text.substr(path.size());
  // Ray puts the class that a task had raised behind its own.
  if (!path.empty() && rest.starts_with('(')) {
    const size_t length = end_of_path(rest.substr(1));
    if (length > 0 && rest.substr(1 + length).starts_with(')')) rest.remove_prefix(length + 2);
  }
  if (path.empty() || !(rest.empty() || rest.starts_with(':'))) return false;
  const size_t dot = path.rfind('.');
  std::string_view name = path.substr(dot + 1);
  // Those of C that Python has: "socket.gaierror", "struct.error", "socket.timeout".
  const bool is_of_module = is_outside && dot != std::string_view::npos && dot > 0;
  if (is_of_module && (name.ends_with("error") || name == "timeout")) return true;
  if (name.starts_with('_')) name.remove_prefix(1);  // "_ArrayMemoryError"
  if (name.empty() || std::isupper(static_cast<unsigned char>(name[0])) == 0) return false;
  for (const std::string_view ending :
       {"Error", "Exception", "Interrupt", "Exit", "Timeout", "StopIteration"}) {
    if (name.ends_with(ending)) return true;
  }
  if (is_shout(name)) return false;
  if (rest.empty()) return is_of_module;  // "queue.Empty"
  return is_outside && rest.starts_with(": ");
}

/// "ValueError: text", where no traceback says that it is one.
bool is_told_exception(std::string_view said) {
  if (!is_exception_line(said, false)) return false;
  const std::string_view path = log_text::up_to(said, ":");
  const std::string_view name = path.substr(path.rfind('.') + 1);
  const bool is_named = name.ends_with("Exception") || (name.ends_with("Error") && name != "Error");
  return is_named && said.substr(path.size()).starts_with(": ") && said.size() > path.size() + 2;
}

/// Whose code a frame of a traceback is: a run that fails at once prints little else. Others build
/// on Megatron, which counts least.
struct CodePath {
  std::string_view part;
  Framework framework;
  int weight;
};
constexpr CodePath kCodePaths[] = {
    {"/megatron/bridge/", Framework::megatron_bridge, 3},
    {"/primus/", Framework::primus, 3},
    {"/torchtitan/", Framework::torchtitan, 2},
    {"/nemo/", Framework::nemo, 2},
    {"/deepspeed/", Framework::deepspeed, 2},
    {"/megatron/", Framework::megatron_lm, 1},
};

/// Frames of what starts ranks and waits for them. The ranks themselves have none of these.
constexpr std::string_view kLauncherPaths[] = {
    "/bin/torchrun\"",   "/torch/distributed/run.py",    "/torch/distributed/launch.py",
    "/bin/accelerate\"", "/torch/distributed/launcher/", "/accelerate/commands/",
    "/bin/deepspeed\"",  "/deepspeed/launcher/",
};

/// `File "/a/b/model.py", line 12, in forward` as "model.py:12".
std::string frame_place(std::string_view frame) {
  const size_t first = frame.find('"');
  const size_t last = frame.find('"', first + 1);
  const auto line = log_text::integer_behind(frame, ", line ");
  if (last == std::string_view::npos || !line) return "";
  std::string_view path = frame.substr(first + 1, last - first - 1);
  path = path.substr(path.find_last_of("/\\") + 1);
  return log_text::printable(path, 80) + ":" + std::to_string(*line);
}

}  // namespace

bool LogCollector::take_config(Block& block) {
  constexpr int64_t kMostLines = 20'000;
  if (++block.num_lines > kMostLines) {
    end_config();
    return false;
  }
  switch (block.config.form) {
    case EchoedConfig::Form::argument_dump:
      return take_argument(block.config, text_);
    case EchoedConfig::Form::bridge_summary: {
      const bool is_ruler = text_.size() > 20 && text_.find_first_not_of('=') == text_.npos;
      if (is_ruler && !block.section.empty()) end_config();
      if (is_ruler) return true;
      return take_summary_line(block.config, block.section, text_);
    }
    case EchoedConfig::Form::titan_json:
      break;
    case EchoedConfig::Form::none:
      return false;
  }
  std::string_view part = text_;
  if (!block.json.empty() && !is_json_line(bare(part))) {
    close_block(&block);
    return false;
  }
  if (block.json.empty()) part = part.substr(std::min(part.find('{'), part.size()));
  for (size_t i = 0; i < part.size(); ++i) {
    const char c = part[i];
    if (block.is_in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      block.is_in_text = !block.is_in_text;
    } else if (!block.is_in_text && std::string_view("{}[]").find(c) != std::string_view::npos) {
      block.depth += c == '{' || c == '[' ? 1 : -1;
      if (block.depth == 0) part = part.substr(0, i + 1);
    }
    if (block.depth > kMostJsonDepth) {
      close_block(&block);
      return false;
    }
  }
  block.is_in_text = false;  // texts do not go over lines
  block.json.append(part);
  block.json += '\n';
  if (block.depth <= 0 || block.json.size() > kMostJsonBytes) {
    const auto tree = store::parse_untrusted(block.json);
    if (!tree.is_discarded()) flatten_json(tree, "", block.config);
    end_config();
  }
  return true;
}

bool LogCollector::is_bare_exception() const {
  const bool has_rank = line_origin_.rank >= 0 || line_origin_.local_rank >= 0;
  return has_rank && text_.find_first_not_of(' ') <= 1 && is_told_exception(bare(text_));
}

bool LogCollector::take_traceback(Block& block) {
  constexpr int64_t kMostLines = 500;
  const std::string_view said = bare(text_);
  if (++block.num_lines > kMostLines) {
    close_block(&block);
    return false;
  }
  if (said.empty() || said.starts_with("Traceback (most recent call last)")) return false;
  if (said.starts_with("File \"")) {
    block.where = frame_place(said);
    block.source.clear();
    block.behind.clear();
    block.last_line = line_.number;
    block.num_attempts = log_.num_attempts;
    block.num_advances = now().steps.num_advances();
    block.is_launcher |= std::ranges::any_of(kLauncherPaths, [&](std::string_view path) {
      return said.find(path) != std::string_view::npos;
    });
    for (const CodePath& path : kCodePaths) {
      if (said.find(path.part) == std::string_view::npos) continue;
      prove(path.framework, path.weight, path.part);
      break;
    }
    return true;
  }
  const size_t indent = text_.find_first_not_of(' ');
  const bool is_outside = indent <= block.indent;
  const bool is_exception = block.where.empty() ? is_outside && is_told_exception(said)
                                                : is_exception_line(said, is_outside);
  if (is_exception) {
    is_exception_ = block.of != TracebackOf::nothing;
    is_of_thread_ = block.of == TracebackOf::thread;
    exception_where_ = block.where;
    exception_source_ = block.where.empty() ? "" : block.source;
    exception_rank_ = block.box_rank;
    if (block.of == TracebackOf::nothing && block.where.empty()) heads_.erase(origin_.key());
    close_block(&block);
    return !is_exception_;
  }
  if (is_outside) {  // of somebody else, or an exception with an unusual name
    if (block.behind.empty()) block.behind = log_text::printable(said, 200);
    return false;
  }
  if (block.source.empty()) block.source = log_text::printable(said, 200);
  return true;
}

void LogCollector::add_open_tracebacks() {
  for (const auto& [key, block] : blocks_) {
    const bool is_last_word = block.kind == Block::Kind::traceback &&
                              block.of != TracebackOf::nothing && !block.where.empty() &&
                              block.num_attempts == log_.num_attempts &&
                              block.num_advances == now().steps.num_advances();
    if (!is_last_word) continue;
    line_.number = block.last_line;
    line_.text = {};
    is_time_known_ = true;  // the last that was known
    line_time_s_.reset();
    is_exception_ = true;
    is_unsure_ = true;
    // A launcher fails because a rank did; the end of what it says is cut off.
    const bool is_launcher = block.is_launcher && block.behind.empty();
    const FailureForm& form =
        is_launcher ? failure_form("launcher") : python_error(block.behind, now().steps.empty());
    const int rank = block.box_rank >= 0 ? block.box_rank : block.writer;
    if (failure_of_.contains(std::pair(form.name, rank))) continue;
    is_unsure_ = !is_launcher;
    exception_where_ = is_launcher ? "" : block.where;
    exception_rank_ = rank;
    const std::string_view said = block.behind.empty() ? block.source : block.behind;
    Failure* failure = add_failure(form, rank, is_launcher ? "" : said);
    if (failure != nullptr) failure->is_cut = block.behind.empty();
  }
}

}  // namespace moetune::sweeps
