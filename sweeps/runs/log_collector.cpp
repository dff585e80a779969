#include "sweeps/runs/log_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sweeps/runs/failure_forms.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMostAttempts = 64;
constexpr size_t kMostWriters = 65'536;
constexpr size_t kMostFailures = 2048;
constexpr size_t kMostBlocks = 1024;
constexpr int64_t kMostSize = 1'000'000'000;
/// A log that shows no time in so many lines and characters of each is taken for one without.
constexpr int64_t kClockLines = 4096;
constexpr size_t kClockBytes = 400;
/// Of torch.distributed.checkpoint.
constexpr std::string_view kOfRanks = "CheckpointException ranks:";

/// Whether it is new; of very many steps not all are kept.
bool insert_step(int64_t step, std::set<int64_t>& steps) {
  constexpr size_t kMostSteps = 4096;
  if (step < 0 || step > kMostSize || steps.size() >= kMostSteps) return false;
  return steps.insert(step).second;
}

}  // namespace

LogCollector::LogCollector(std::string file, int path_rank) : path_rank_(path_rank) {
  log_.files.push_back(std::move(file));
  log_.attempts.emplace_back();
}

void LogCollector::begin_line(const LogLine& line, const LineOrigin& origin,
                              std::string_view text) {
  line_ = line;
  origin_ = origin;
  line_origin_ = origin;
  text_ = text;
  is_exception_ = false;
  is_unsure_ = false;
  is_of_thread_ = false;
  has_failure_ = false;
  is_time_known_ = false;
  ++log_.num_lines;
  if (!log_.first_time_s && log_.num_lines <= kClockLines) {
    log_.first_time_s = log_text::first_time(line.text.substr(0, kClockBytes));
  }
  if (origin.is_primus) {
    prove(Framework::primus, 4, "[rank-N/M] in front of lines");
    if (origin.world_size > 0) set_size(&NamedSizes::world_size, origin.world_size);
  }
}

LogPlace LogCollector::place() const { return {log_.files.front(), line_.number}; }

int LogCollector::rank() const {
  if (is_exception_ && exception_rank_ >= 0) return exception_rank_;
  const int rank = origin_.likely_rank();
  return rank >= 0 ? rank : path_rank_;
}

void LogCollector::prove(Framework framework, int weight, std::string_view words) {
  if (weight <= log_.framework_weight) return;
  log_.framework = framework;
  log_.framework_weight = weight;
  log_.known_by = words;
  log_.known_at = place();
}

std::optional<double> LogCollector::time() {
  if (!is_time_known_) {
    is_time_known_ = true;
    line_time_s_ = log_text::first_time(line_.text);
    auto& last = now().last_time_s;
    // glog leaves the year out: that of the lines before it.
    if (!line_time_s_ && last) line_time_s_ = log_text::glog_time(text_, *last);
    if (line_time_s_) last = line_time_s_;
  }
  return line_time_s_ ? line_time_s_ : now().last_time_s;
}

void LogCollector::banner(std::string_view kind) {
  const Attempt& attempt = now();
  const bool has_begun =
      !attempt.steps.empty() || !attempt.failures.empty() || attempt.end.has_value();
  const auto mark = std::pair(std::string(kind), origin_.key());
  if (has_begun && banners_.contains(mark)) begin_attempt();
  if (banners_.size() < kMostWriters) banners_.insert(mark);
}

void LogCollector::begin_attempt() {
  close_attempt();
  banners_.clear();
  step_of_writer_.clear();
  failure_of_.clear();
  wants_detail_.clear();
  is_step_ended = false;
  is_allocation_given_back = false;
  ++log_.num_attempts;
  if (log_.attempts.size() == kMostAttempts) log_.attempts.erase(log_.attempts.begin());
  const auto last_time = now().last_time_s;
  log_.attempts.emplace_back();
  now().first_line = line_.number;
  now().last_time_s = last_time;
}

/// What turned out to be survived.
void LogCollector::close_attempt() {
  constexpr int64_t kEnough = 2;  // one line more may be one that was printed late
  Attempt& attempt = now();
  for (Failure& failure : attempt.failures) {
    const bool goes_on = attempt.steps.num_advances() >= failure.num_advances + kEnough;
    const bool ends_well = attempt.end && attempt.end->place.line > failure.place.line;
    failure.is_survived = goes_on || ends_well;
  }
}

void LogCollector::add_step(StepLine line) {
  if (line.step < 0 || line.step > kMostSize || line.total < 0 || line.total > kMostSize) return;
  line.line = line_.number;
  if (!line.time_s) line.time_s = log_text::first_time(line_.text);
  const auto writer = step_of_writer_.find(origin_.key());
  // The same writer goes back: another start, from a checkpoint or from the beginning.
  if (writer != step_of_writer_.end() && line.step < writer->second) begin_attempt();
  if (step_of_writer_.size() < kMostWriters) step_of_writer_[origin_.key()] = line.step;
  Attempt& attempt = now();
  if (line.time_s) {
    attempt.last_step_time_s = line.time_s;
    attempt.last_time_s = line.time_s;
  }
  attempt.steps.add(line);
}

void LogCollector::add_torn_step(int64_t step) {
  if (insert_step(step, now().torn_steps)) last_torn_ = {line_.number, step};
}

void LogCollector::add_cut_loss(int64_t step) {
  if (insert_step(step, now().cut_losses)) last_cut_ = {line_.number, step};
}

void LogCollector::add_absurd_time(int64_t step) { insert_step(step, now().absurd_times); }

void LogCollector::add_memory(int rank, MemoryKind kind, bool is_peak, double bytes, int64_t step) {
  constexpr double kMostBytes = 1e16;
  if (!(bytes >= 0) || bytes > kMostBytes || rank < -1) return;
  auto& memory = now().memory;
  const auto key = std::tuple(rank, kind, is_peak);
  const auto found = memory.find(key);
  if (found == memory.end() && memory.size() >= kMostWriters) return;
  if (step < 0 && !now().steps.empty()) step = now().steps.last().step;
  const MemoryReading reading{rank, kind, is_peak, std::llround(bytes), step, place()};
  if (found == memory.end()) {
    memory.emplace(key, reading);
  } else if (reading.bytes >= found->second.bytes) {
    found->second = reading;
  }
}

void LogCollector::set_size(NamedSize member, std::optional<int64_t> value) {
  if (value && *value > 0 && *value <= kMostSize) now().sizes.*member = *value;
}

void LogCollector::mark_end(std::string_view text) {
  now().end = EndMark{log_text::printable(log_text::bare(text)), place()};
}

Failure* LogCollector::add_failure(const FailureForm& form, int rank, std::string_view detail) {
  has_failure_ = true;
  ++log_.num_facts;
  if (rank < 0) rank = this->rank();
  std::string said = log_text::printable(log_text::bare(detail));
  if (is_exception_ && !exception_where_.empty()) said += " (" + exception_where_ + ")";
  auto& failures = now().failures;
  const auto key = std::pair(form.name, rank);
  if (const auto found = failure_of_.find(key); found != failure_of_.end()) {
    Failure& known = failures[found->second];
    if (known.place == place()) return nullptr;  // two rows for one line
    ++known.times;
    // What was survived once and comes again may be what ended it.
    const bool is_again = now().steps.num_advances() > known.num_advances;
    const bool is_surer = known.is_unsure && !is_unsure_;
    if (!is_again && !is_surer) return nullptr;
    known.is_unsure = is_unsure_;
    known.num_advances = now().steps.num_advances();
    known.after_step = now().steps.furthest();
    known.place = place();
    known.time_s = time();
    known.detail = std::move(said);
    return &known;
  }
  if (failures.size() >= kMostFailures) return nullptr;
  failure_of_[key] = failures.size();
  Failure failure;
  failure.form = &form;
  failure.rank = rank;
  failure.detail = std::move(said);
  failure.after_step = now().steps.furthest();
  failure.num_advances = now().steps.num_advances();
  failure.time_s = time();
  failure.place = place();
  failure.is_unsure = is_unsure_;
  failures.push_back(std::move(failure));
  return &failures.back();
}

Failure* LogCollector::failure_without_memory(const FailureForm& form, std::string_view detail) {
  const auto found = failure_of_.find(std::pair(form.name, rank()));
  if (found == failure_of_.end()) return nullptr;
  Failure& failure = now().failures[found->second];
  if (failure.memory) return nullptr;
  failure.form = &form;
  failure.detail = log_text::printable(detail);
  return &failure;
}

void LogCollector::expect_detail(std::string_view name) {
  const auto found = failure_of_.find(std::pair(name, rank()));
  // Of several ranks that write as one the first is the nearest to the root.
  const bool is_new = found != failure_of_.end() && now().failures[found->second].times == 1;
  if (is_new && wants_detail_.size() < kMostWriters) {
    wants_detail_[line_origin_.key()] = {
        .failure = found->second, .front = "", .where = "", .line = line_.number};
  }
}

void LogCollector::take_detail() {
  const auto wanted = wants_detail_.find(line_origin_.key());
  if (wanted == wants_detail_.end() || wanted->second.line == line_.number) return;
  const std::string_view said = log_text::bare(text_.substr(0, next_glued_prefix(text_, 0).at));
  // Where nothing is known of it, what comes next is of somebody else.
  const bool is_other = said.empty() || said.starts_with('[') || said.starts_with("Traceback");
  const auto [index, front, where, line] = wanted->second;
  if (!is_other)
    now().failures[index].detail = log_text::printable(front + std::string(said)) + where;
  wants_detail_.erase(wanted);
}

CollectiveTimeout& LogCollector::timeout_of(int rank) {
  static constexpr int kOverflow = -2;
  auto& timeouts = now().timeouts;
  const bool has_room = timeouts.size() < kMostWriters || timeouts.contains(rank);
  return timeouts[has_room ? rank : kOverflow];
}

LogCollector::Block* LogCollector::open_block() {
  if (blocks_.empty()) return nullptr;
  if (const auto found = blocks_.find(origin_.key()); found != blocks_.end()) {
    return &found->second;
  }
  // Loggers put their prefix in front of the first line only.
  const bool has_prefix = origin_.key() != LineOrigin{}.key();
  return has_prefix || blocks_.size() != 1 ? nullptr : &blocks_.begin()->second;
}

void LogCollector::close_block(const Block* block) {
  std::erase_if(blocks_, [&](const auto& entry) { return &entry.second == block; });
}

void LogCollector::begin_config(EchoedConfig::Form form) {
  if (blocks_.size() >= kMostBlocks) return;
  Block& block = blocks_[origin_.key()];
  block = {};
  block.config.form = form;
  block.config.place = place();
}

void LogCollector::end_config() {
  if (Block* block = open_block(); block != nullptr && block->kind == Block::Kind::config) {
    // Of several writers that echo the same the first counts.
    if (now().config.settings.empty()) now().config = std::move(block->config);
    close_block(block);
  }
}

LogCollector::Block& LogCollector::new_traceback(TracebackOf of) {
  Block& block = blocks_[origin_.key()];
  block = {};
  block.kind = Block::Kind::traceback;
  block.of = of;
  block.indent = std::min(text_.find_first_not_of(' '), text_.size());
  block.writer = rank();
  return block;
}

void LogCollector::expect_traceback(TracebackOf of) {
  if (blocks_.size() >= kMostBlocks || heads_.size() >= kMostBlocks) return;
  // Several ranks may write side by side.
  TracebackHead& head = heads_[origin_.key()];
  head = {of, line_.number, head.of == of ? head.num_open + 1 : 1};
  // The exception may come without a traceback, as of C.
  if (of == TracebackOf::nothing && !blocks_.contains(origin_.key())) new_traceback(of);
}

void LogCollector::expect_more_traceback() {
  const auto head = heads_.find(origin_.key());
  if (head != heads_.end() && head->second.num_open == 0) {
    head->second = {head->second.of, line_.number, 1};
  }
}

void LogCollector::begin_traceback() {
  constexpr int64_t kFarthest = 32;  // others may write in between
  if (blocks_.size() >= kMostBlocks) return;
  TracebackOf of = TracebackOf::program;
  if (const auto head = heads_.find(origin_.key()); head != heads_.end()) {
    const bool is_next = head->second.num_open > 0 && line_.number - head->second.line <= kFarthest;
    if (is_next) {
      of = head->second.of;
      --head->second.num_open;
    } else {
      heads_.erase(head);
    }
  }
  Block& block = new_traceback(of);
  // "  traceback : Traceback (most recent call last):"
  if (log_text::bare(text_).starts_with("traceback : ")) block.box_rank = box_rank;
  // "Traceback (most recent call last): (RANK 3)" of torch.distributed.checkpoint.
  if (const auto rank = log_text::integer_behind(text_, "): (RANK ")) {
    block.box_rank = log_text::rank_of(rank);
  }
}

bool LogCollector::take_by_block(size_t length) {
  Block* block = open_block();
  if (block == nullptr) return false;
  const std::string_view whole = std::exchange(text_, text_.substr(0, length));
  const bool is_taken =
      block->kind == Block::Kind::config ? take_config(*block) : take_traceback(*block);
  text_ = whole;
  return is_taken;
}

void LogCollector::end_line() {
  if (!wants_detail_.empty()) take_detail();
  if (has_failure_) return;
  // That of another rank follows, with its traceback: "(RANK 3)".
  const bool is_wrapper = text_.find(kOfRanks) != std::string_view::npos;
  is_unsure_ =
      is_exception_ ? is_wrapper || exception_where_.empty() || is_of_thread_ : is_bare_exception();
  if (!is_exception_ && !is_unsure_) return;
  // What others wrote behind it is not of the exception.
  origin_ = line_origin_;
  const std::string_view said = log_text::bare(text_.substr(0, next_glued_prefix(text_, 0).at));
  // A bare assertion says nothing; the line that asserts does.
  const bool is_silent = is_exception_ && said.find(": ") == std::string_view::npos;
  const FailureForm& form = python_error(said, now().steps.empty());
  const bool is_rule = form.name == "assertion";
  std::string detail(is_rule && !is_silent ? said.substr(said.find(": ") + 2) : said);
  if (is_silent && !exception_source_.empty()) {
    detail = is_rule ? exception_source_ : detail + ": " + exception_source_;
  }
  const bool is_new = add_failure(form, detail) != nullptr;
  // "Error(s) in loading state_dict for GPTModel:", "backend='inductor' raised:".
  if (is_new && is_exception_ && said.ends_with(':') && wants_detail_.size() < kMostWriters) {
    std::string where = exception_where_.empty() ? "" : " (" + exception_where_ + ")";
    wants_detail_[line_origin_.key()] = {failure_of_[std::pair(form.name, rank())], detail + " ",
                                         std::move(where), line_.number};
  }
}

ForeignLog LogCollector::finish(int64_t num_bytes, int64_t num_cut_lines) {
  add_open_tracebacks();
  // A configuration that the end has cut is used as far as it goes.
  for (auto& [key, block] : blocks_) {
    if (block.kind == Block::Kind::config && now().config.settings.empty()) {
      now().config = std::move(block.config);
    }
  }
  // The end of the log has cut its last line.
  if (last_torn_ && last_torn_->first == line_.number) now().torn_steps.erase(last_torn_->second);
  if (last_cut_ && last_cut_->first == line_.number) now().cut_losses.erase(last_cut_->second);
  close_attempt();
  log_.num_bytes = num_bytes;
  if (num_cut_lines > 0) {
    log_.notes.push_back(fmt::format(
        "{}: {} {} longer than {} KiB: cut into pieces", log_.files.front(), num_cut_lines,
        num_cut_lines == 1 ? "line is" : "lines are", LogLines::kMostLineBytes >> 10));
  }
  return std::move(log_);
}

}  // namespace moetune::sweeps
