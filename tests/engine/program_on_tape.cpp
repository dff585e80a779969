// Walks a program beside the recorded calls, and says where the two part: the comparison that keeps
// the engine from doing anything that the program does not say.
#include "tests/engine/program_on_tape.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/player.h"
#include "tests/engine/op_calls.h"
#include "tests/fakes/recording/recording_world.h"

namespace moetune::engine::testing {
namespace {

using plan::Instr;
using plan::Pass;
using plan::Verb;
using recording::Entry;
using recording::Played;

/// The references of an instruction as text. What a recomputation makes for nobody is what the
/// forward pass made for the next layer.
std::string text_of_refs(const Instr& instr) {
  std::string text;
  for (const plan::Ref& ref : instr.refs) {
    // Which losses it counts: none when it runs again for its gradient.
    if (instr.op == plan::Op::aux_loss && &ref != &instr.refs.front()) break;
    // Which rows a chunk has is not what is computed.
    if (ref.space == plan::Space::none || ref.is_chunk_list) continue;
    const plan::Space space = ref.space == plan::Space::scratch ? plan::Space::next : ref.space;
    text += fmt::format("{}.{}.{}.{} ", static_cast<int>(space), ref.id, ref.row, ref.col);
  }
  return text;
}

/// What a ring sends from one member to the next: the parts of all others once, for a sum that all
/// get twice (Patarasuk and Yuan 2009).
int64_t sent_bytes(const Entry& call, int64_t num_members) {
  const int64_t others = num_members - 1;
  if (call.name == "all_gather") return call.find("send")->bytes() * others;
  if (call.name == "reduce_scatter") return call.find("recv")->bytes() * others;
  // Of a ring: all that is given goes to one other.
  if (call.name == "all_to_all") return call.find(recording::lane_role(true, 0))->bytes();
  return 2 * call.find("data")->bytes() * others / num_members;
}

Entry call_on(const Instr& instr, std::string_view name) {
  Entry entry;
  entry.name = name;
  entry.stream = static_cast<int>(instr.stream);
  return entry;
}

/// A gradient is gathered where the forward pass has scattered sums, and sums of gradients begin
/// with zeros: under other ops' names.
bool is_gradient_only(const plan::Instr& instr) {
  if (instr.op == plan::Op::zero_sums) return true;
  const plan::Ref& first = instr.refs.front();
  return instr.op == plan::Op::tp_gather && first.space == plan::Space::edge &&
         static_cast<plan::Buf>(first.id) == plan::Buf::d_hidden;
}

}  // namespace

std::string ProgramOnTape::where() const {
  std::string text = fmt::format("rank {}, item {}", program_.rank, item_index_);
  if (instr_ == nullptr) return text;
  const plan::Item& item = places_.item();
  text += fmt::format(" ({}, layer {}, micro-batch {}), instruction {}: {}",
                      plan::name_of(places_.segment().block), item.layer, item.micro_batch,
                      instr_index_, plan::name_of(instr_->verb));
  if (instr_->op != plan::Op::count) {
    text += fmt::format(" {}", plan::op_label(instr_->op, instr_->pass));
  }
  if (instr_->chunk >= 0) text += fmt::format(" of chunk {}", instr_->chunk);
  return text;
}

void ProgramOnTape::differ(const std::string& text) {
  if (!is_lost()) differences_.push_back(fmt::format("{}: {}", where(), text));
}

void ProgramOnTape::lose(const std::string& text) {
  differ(text);
  is_lost_ = true;
}

void ProgramOnTape::follow_setup(size_t begin, size_t end) {
  memory_.clear();
  next_memory_ = 0;
  calls_.clear();
  next_call_ = 0;
  for (size_t i = begin; i < end; ++i) {
    if (tape_[i].is_memory()) memory_.push_back(i);
  }
  follow(program_.setup);
  instr_ = nullptr;
  if (next_memory_ < memory_.size()) {
    lose(fmt::format("not in the program: {}", recording::text_of(tape_[memory_[next_memory_]])));
  }
}

void ProgramOnTape::follow_step(size_t begin, size_t end, bool is_replayed) {
  is_replayed_ = is_replayed;
  memory_.clear();
  next_memory_ = 0;
  for (size_t i = begin; i < end; ++i) {
    if (tape_[i].is_memory()) memory_.push_back(i);
  }
  calls_ = recording::played(tape_, begin, end);
  next_call_ = 0;
  num_fetched_ = 0;
  seen_.clear();
  seen_forward_.clear();
  follow(program_.items);
  instr_ = nullptr;
  if (is_lost()) return;
  // Whoever runs a step waits for its end.
  if (next_call_ + 1 == calls_.size() && calls_.back().entry->name == "synchronize") ++next_call_;
  if (next_call_ < calls_.size()) {
    lose(fmt::format("not in the program: {}", recording::text_of(*calls_[next_call_].entry)));
  }
  if (next_memory_ < memory_.size()) {
    lose(fmt::format("not in the program: {}", recording::text_of(tape_[memory_[next_memory_]])));
  }
  if (num_fetched_ != counts_.size()) {
    lose(fmt::format("{} fetches of counts, found {}", num_fetched_, counts_.size()));
  }
  if (is_in_scope_) lose("a scope of a graph does not end");
  if (places_.has_buffers()) lose("a buffer is left at the end of the step");
}

void ProgramOnTape::follow(const std::vector<plan::Item>& items) {
  for (item_index_ = 0; item_index_ < items.size(); ++item_index_) {
    places_.enter(items[item_index_]);
    events_.clear();
    const std::vector<Instr>& code = places_.segment().code;
    for (instr_index_ = 0; instr_index_ < code.size(); ++instr_index_) {
      if (is_lost()) return;
      instr_ = &code[instr_index_];
      try {
        follow(*instr_);
      } catch (const Unplaced& unplaced) {
        lose(unplaced.why);
      }
    }
  }
}

void ProgramOnTape::follow(const Instr& instr) {
  switch (instr.verb) {
    case Verb::op:
      return op(instr);
    case Verb::comm:
    case Verb::send:
    case Verb::recv:
      return communicate(instr);
    case Verb::alloc:
      return allocate(instr);
    case Verb::free:
      return release(instr);
    case Verb::record:
      return record(instr);
    case Verb::wait:
      return wait(instr);
    case Verb::fetch:
      return fetch(instr);
    case Verb::upload:
      return upload(instr);
    case Verb::mark:
      return mark(instr);
    case Verb::copy:
      return differ("the engine copies nothing");
    case Verb::host:
    case Verb::acquire:
    case Verb::release:
      return;  // nothing that a device sees
  }
}

/// The pass: what runs for the first time is forward, what has run before is recomputed; backward
/// functions tell themselves where they are not the forward ones.
void ProgramOnTape::check_label(const Instr& instr) {
  const plan::Item& item = places_.item();
  if ((instr.pass == Pass::update) != (item.micro_batch < 0)) {
    differ("the update is what belongs to no micro-batch");
  }
  if (instr.pass == Pass::update) return;
  const auto op = static_cast<int>(instr.op);
  const std::tuple place(op, item.edge, item.layer, item.micro_batch);
  // What is recomputed in one piece may have run in chunks.
  std::map<int, size_t>& chunks = seen_[std::tuple_cat(place, std::tuple(text_of_refs(instr)))];
  const bool is_new = instr.chunk < 0 ? chunks.empty() : !chunks.contains(instr.chunk);
  if (instr.pass == Pass::forward) {
    // The steps of a ring do the same again.
    if (!is_new && chunks.begin()->second != item_index_) {
      differ("what has run before is not forward");
    }
    chunks.try_emplace(instr.chunk, item_index_);
    seen_forward_.insert(place);
  } else if (instr.pass == Pass::recompute) {
    if (is_new) differ("what has not run before is not recomputed");
  } else if (instr.verb == Verb::op || instr.verb == Verb::comm) {
    if (has_forward(instr.op) && !is_gradient_only(instr) && !seen_forward_.contains(place))
      differ("backward before forward");
  }
}

void ProgramOnTape::op(const Instr& instr) {
  check_label(instr);
  PricedOp priced{instr.op, instr.pass, instr.cost, {}, where()};
  if (instr.is_routed) priced.told = plan::cost_at(instr, places_.received(instr));
  std::map<const void*, Touch> touched;
  for (const Entry& expected : calls_of_op(places_, instr)) {
    const Entry* found = take_call(expected, true);
    if (found == nullptr) return;
    // What an op reads of its own, from one call to the next, is nothing that it was given.
    const std::map<const void*, Touch> before = touched;
    for (const auto& [operand, access] : recording::accesses_of(*found)) {
      const auto earlier = before.find(operand->data);
      const bool is_own = earlier != before.end() && earlier->second.is_written;
      touched[operand->data].add(access != recording::Access::write && !is_own,
                                 access != recording::Access::read);
    }
    const recording::Work work = recording::work_of(*found);
    priced.counted.flops = work.flops < 0 ? -1 : priced.counted.flops + work.flops;
    priced.counted.bytes += work.bytes;
    priced.counted.elements = std::max(priced.counted.elements, work.elements);
  }
  priced_.push_back(std::move(priced));
  if (!touched.empty()) check_accesses(instr, touched);
}

/// Operands at one place together, as a gradient that is read and written under two names.
void ProgramOnTape::check_accesses(const Instr& instr,
                                   const std::map<const void*, Touch>& touched) {
  std::map<const void*, Touch> told;
  for (const plan::Ref& ref : instr.refs) {
    const Operand operand = places_.find(ref, instr);
    if (operand.data == nullptr || operand.numel() == 0) continue;
    // Here as there: what an op reads of its own is nothing that it was given.
    const bool is_own = told[operand.data].is_written;
    told[operand.data].add(ref.access != plan::Access::write && !is_own,
                           ref.access != plan::Access::read);
  }
  for (const auto& [data, touch] : told) {
    const auto found = touched.find(data);
    if (found != touched.end() && found->second == touch) continue;
    differ(fmt::format("what is at {} is {} and not {} as the program says", data,
                       found != touched.end() ? found->second.text() : "not touched",
                       touch.text()));
  }
}

void ProgramOnTape::communicate(const Instr& instr) {
  end_part();
  check_label(instr);
  // The trace names the layer of a bucket, and the bucket is what is sent.
  const plan::Ref& first = instr.refs.front();
  if (first.space == plan::Space::bucket &&
      program_.params.buckets[static_cast<size_t>(first.row)].layer != places_.item().layer) {
    differ("the layer of the item is not the bucket's");
  }
  const Entry* found = take_call(call_of_communication(places_, instr));
  if (found == nullptr || instr.verb != Verb::comm || instr.is_routed) return;
  const int64_t size = program_.layout.group_size(instr.group);
  const int64_t told = plan::sent_bytes(instr.kind, instr.cost.bytes, size);
  const int64_t counted = sent_bytes(*found, size);
  if (told != counted) differ(fmt::format("{} bytes are sent, found {}", told, counted));
}

void ProgramOnTape::book(const Instr& instr, int64_t bytes, bool is_allocation) {
  int64_t& group = booked_.by_group[instr.what];
  const int64_t booked = profiler::aligned_bytes(bytes) * (is_allocation ? 1 : -1);
  booked_.in_use_bytes += booked;
  group += booked;
  if (is_allocation) ++booked_.num_allocations;
  if (booked_.in_use_bytes <= booked_.peak_bytes) return;
  booked_.peak_bytes = booked_.in_use_bytes;
  booked_.peak_by_group = booked_.by_group;
}

void ProgramOnTape::allocate(const Instr& instr) {
  const plan::Ref& ref = instr.refs.front();
  const int64_t bytes =
      instr.is_routed ? plan::cost_at(instr, places_.received(instr)).bytes : instr.cost.bytes;
  if (bytes != places_.bytes_of(ref)) {
    differ(fmt::format("an allocation of {} bytes, by the tables it has {}", bytes,
                       places_.bytes_of(ref)));
  }
  if (bytes == 0) return places_.place(ref, nullptr);
  if (ref.space == plan::Space::scalar && ref.id != 0) differ("the sums begin with the first");
  Entry expected{"allocate", -1, {}, {{"group", instr.what}, {"is_routed", instr.is_routed}}};
  expected.operands = {recording::bytes_at("block", nullptr, bytes)};
  const Entry* found = take_memory(expected);
  if (found == nullptr) return;
  book(instr, bytes, true);
  places_.place(ref, found->operands.front().data);
}

void ProgramOnTape::release(const Instr& instr) {
  const Operand ended = places_.take(instr.refs.front());
  if (ended.data == nullptr) return;
  Entry expected{"release", -1, {}, {{"group", instr.what}}};
  expected.operands = {recording::bytes_at("block", ended.data, ended.bytes())};
  if (take_memory(expected) != nullptr) book(instr, ended.bytes(), false);
}

void ProgramOnTape::record(const Instr& instr) {
  end_part();
  Entry expected = call_on(instr, "record_event");
  // The device numbers its events; which one it is now is what the slot holds.
  if (next_call_ < calls_.size()) expected.numbers = calls_[next_call_].entry->numbers;
  const Entry* found = take_call(expected);
  if (found != nullptr) events_[instr.event] = found->number("event").value();
}

void ProgramOnTape::wait(const Instr& instr) {
  end_part();
  const auto event = events_.find(instr.event);
  if (event == events_.end()) return lose("waits for what nothing has recorded");
  Entry expected = call_on(instr, "wait_event");
  expected.numbers = {{"event", event->second}};
  take_call(expected);
}

void ProgramOnTape::fetch(const Instr& instr) {
  end_part();
  constexpr int64_t kNumLosses = 3;
  const Operand from = places_.find(instr.refs.front(), instr);
  const auto what = static_cast<plan::Fetch>(instr.what);
  Entry expected = call_on(instr, "copy_to_host");
  const int64_t bytes = what == plan::Fetch::losses ? kNumLosses * from.bytes() : from.bytes();
  expected.operands = {recording::bytes_at("from", from.data, bytes)};
  take_call(expected);
  if (what != plan::Fetch::counts) return;
  if (num_fetched_ == counts_.size()) return lose("counts are fetched that nobody has answered");
  const plan::LayerDims& dims = places_.segment().dims;
  places_.bind(routed_rows(dims, program_.layout.rank_in(plan::Group::ep, program_.rank),
                           counts_[num_fetched_++]));
}

void ProgramOnTape::upload(const Instr& instr) {
  for (const plan::Ref& ref : instr.refs) {
    const Operand to = places_.find(ref, instr);
    if (to.data == nullptr) continue;
    // Sums begin with zero, all of them; the rest comes from the host.
    const bool is_sums = ref.space == plan::Space::scalar;
    Entry expected = call_on(instr, is_sums ? "fill_zero" : "copy_to_device");
    const int64_t count = is_sums ? static_cast<int64_t>(plan::Scalar::count) : 1;
    expected.operands = {recording::bytes_at("to", to.data, count * to.bytes())};
    take_call(expected);
  }
}

void ProgramOnTape::mark(const Instr& instr) {
  const auto what = static_cast<plan::Mark>(instr.what);
  if (what != plan::Mark::graph_open && what != plan::Mark::graph_close) return;
  end_part();
  const bool is_open = what == plan::Mark::graph_open;
  if (is_open == is_in_scope_) differ("scopes of graphs neither nest nor overlap");
  is_in_scope_ = is_open;
}

/// Ops of a scope between two cuts are one launch of a graph, or none is; other calls never are.
void ProgramOnTape::check_graph(const Played& call, bool is_op) {
  if (!is_op || !is_in_scope_) {
    if (call.launch >= 0) differ("it is part of a graph, which the program does not say");
    return;
  }
  if (is_replayed_ && !call.is_replayed) differ("it is not replayed");
  if (is_in_part_ && call.launch != part_launch_) {
    differ("it is not in the same launch of a graph as the op before it");
  }
  if (!is_in_part_ && call.launch >= 0 && call.launch == part_launch_) {
    differ("a graph goes on behind what cuts it");
  }
  is_in_part_ = true;
  part_launch_ = call.launch;
}

void ProgramOnTape::end_part() { is_in_part_ = false; }

const Entry* ProgramOnTape::take_call(const Entry& expected, bool is_op) {
  if (is_lost()) return nullptr;
  if (next_call_ >= calls_.size()) {
    lose(fmt::format("{} is expected, found the end", recording::text_of(expected)));
    return nullptr;
  }
  const Played& call = calls_[next_call_++];
  // What was allocated or ended before the call in the program was so on the tape. A replayed call
  // stands where the graph was launched.
  if (next_memory_ < memory_.size() && memory_[next_memory_] < call.at && !call.is_replayed) {
    lose(fmt::format("before {}: {} is not in the program", recording::text_of(*call.entry),
                     recording::text_of(tape_[memory_[next_memory_]])));
    return nullptr;
  }
  const std::vector<std::string> list = recording::differences(expected, *call.entry);
  for (const std::string& text : list) differ(text);
  if (expected.name != call.entry->name) {
    is_lost_ = true;
    return nullptr;
  }
  check_graph(call, is_op);
  return call.entry;
}

const Entry* ProgramOnTape::take_memory(const Entry& expected) {
  if (is_lost()) return nullptr;
  if (next_memory_ >= memory_.size()) {
    lose(fmt::format("{} is expected, found the end", recording::text_of(expected)));
    return nullptr;
  }
  const size_t at = memory_[next_memory_++];
  const Entry& found = tape_[at];
  // The calls before it in the program are before it on the tape, those after it after it.
  const bool is_early =
      next_call_ > 0 && at < calls_[next_call_ - 1].at && !calls_[next_call_ - 1].is_replayed;
  const bool is_late = next_call_ < calls_.size() && calls_[next_call_].at < at;
  if (is_early || is_late) {
    lose(fmt::format("{} is {} than the program says", recording::text_of(found),
                     is_early ? "earlier" : "later"));
    return nullptr;
  }
  Entry wanted = expected;
  // An allocation's address is what the test learns from the tape.
  if (found.name == "allocate" && wanted.name == "allocate") {
    wanted.operands.front().data = found.operands.front().data;
  }
  for (const std::string& text : recording::differences(wanted, found)) differ(text);
  if (wanted.name == found.name) return &found;
  is_lost_ = true;
  return nullptr;
}

}  // namespace moetune::engine::testing
