#include "engine/exec/executor.h"

#include <cmath>

#include "engine/exec/binders.h"
#include "engine/exec/host_work.h"
#include "kernels/base/error.h"

namespace moetune::engine {

using plan::Instr;
using plan::Mark;
using plan::Ref;
using plan::RowsOf;
using plan::Space;
using plan::Verb;

namespace {

constexpr const char* kScalarsName = "step_sums";

}  // namespace

bool StepValues::is_skipped() const { return !std::isfinite(grad_norm); }

Executor::Executor(RankContext& rank, const plan::StepProgram& program, Parameters& params,
                   const Observers& observers)
    : rank_(rank), program_(program), params_(params), observers_(observers) {}

void check_runs(const plan::StepProgram& program) {
  for (const plan::ParamDesc& param : program.params.params) {
    MOETUNE_CHECK(param.kind <= plan::ParamKind::head, "nothing uses {}", param.name);
  }
  for (const plan::BucketDesc& bucket : program.params.buckets) {
    MOETUNE_CHECK(!bucket.is_sharded, "nothing gathers {}", bucket.name);
  }
  for (const auto& segment : program.segments) {
    MOETUNE_CHECK(segment->num_pieces == 1, "nothing runs {} in pieces",
                  plan::name_of(segment->block));
    for (const Instr& instr : segment->code) {
      MOETUNE_CHECK(instr.verb != Verb::copy, "nothing copies {}",
                    plan::op_label(instr.op, instr.pass));
      MOETUNE_CHECK(!plan::is_exchange_of_rows(instr) || instr.is_routed,
                    "nothing exchanges rows of experts but an all-to-all");
      MOETUNE_CHECK(instr.verb != Verb::op || binder_of(instr.op) != nullptr, "nothing runs {}",
                    plan::op_label(instr.op, instr.pass));
    }
  }
}

void Executor::set_up() {
  check_runs(program_);
  for (const plan::Item& item : program_.setup) run_item(item);
  for (const plan::TableRow& row : rank_tables(rank_)) {
    upload_table(rank_, row.id, tables_[static_cast<size_t>(row.id)]);
  }
}

void Executor::run_step(StepValues& values) {
  values_ = &values;
  for (const plan::Item& item : program_.items) {
    if (observers_.items != nullptr) {
      const auto segment = static_cast<size_t>(item.segment);
      observers_.items->before_item(rank_, item, *program_.segments[segment]);
    }
    run_item(item);
  }
  values_ = nullptr;
}

void Executor::run_item(const plan::Item& item) {
  item_ = item;
  segment_ = program_.segments[static_cast<size_t>(item.segment)].get();
  rank_.place = {item.layer, item.micro_batch};
  const auto frame = [&](int32_t number) {
    return number < 0 ? nullptr : &frames_[{number, item.micro_batch}];
  };
  own_ = frame(item.frame);
  next_ = frame(item.next);
  edge_ = frame(item.edge);
  events_.assign(static_cast<size_t>(segment_->num_events), {});
  for (size_t i = 0; i < segment_->code.size(); ++i) run(segment_->code[i], i);
  // A frame ends with its last buffer.
  for (const int32_t number : {item.frame, item.next, item.edge}) {
    const auto place = frames_.find({number, item.micro_batch});
    if (place != frames_.end() && place->second.num_live == 0) frames_.erase(place);
  }
  rank_.place = {};
}

void Executor::run(const Instr& instr, size_t index) {
  if (plan::cuts_graph(instr.verb)) leave_graph(rank_);
  switch (instr.verb) {
    case Verb::op:
      return run_launch(instr, plan::sharing_of(program_, item_, index));
    case Verb::comm:
    case Verb::send:
    case Verb::recv:
      return communicate(instr, plan::sharing_of(program_, item_, index));
    case Verb::alloc:
      return allocate(instr);
    case Verb::free:
      return release(instr);
    case Verb::record:
      events_[static_cast<size_t>(instr.event)] =
          instr.device_only   ? record_device_event(rank_, instr.stream)
          : instr.is_for_slot ? record_slot(rank_, instr.stream)
                              : record_event(rank_, instr.stream);
      return;
    case Verb::wait: {
      const Event& event = events_[static_cast<size_t>(instr.event)];
      if (instr.device_only) return wait_device_event(rank_, instr.stream, event);
      return wait_event(rank_, instr.stream, event);
    }
    case Verb::upload:
      return upload(instr);
    case Verb::fetch:
      return fetch(instr);
    case Verb::host:
      return work_on_host(instr);
    case Verb::mark:
      return mark(instr, index);
    case Verb::acquire:
    case Verb::release:
      return;  // all parameters of a rank stay where they are
    case Verb::copy:
      return;  // refused by check_runs
  }
}

BufferFrame& Executor::frame_of(Space space) {
  if (space == Space::scratch) return scratch_;
  BufferFrame* frame = space == Space::frame ? own_ : space == Space::next ? next_ : edge_;
  MOETUNE_CHECK(frame != nullptr, "an operand of a layer outside of layers");
  return *frame;
}

Tensor Executor::base_of(const Ref& ref) {
  switch (ref.space) {
    case Space::none:
      return {};
    case Space::weight:
      return params_.weight(static_cast<plan::ParamKind>(ref.id), item_.layer);
    case Space::grad:
      return params_.grad(static_cast<plan::ParamKind>(ref.id), item_.layer);
    case Space::bucket:
      return params_.bucket_part(static_cast<size_t>(ref.row),
                                 static_cast<plan::BucketPart>(ref.id));
    case Space::table:
      return tables_[ref.id];
    case Space::scalar:
      return rank_.scalars.columns(ref.id, 1);
    case Space::slots:
      return slots_.at({ref.row, ref.id});
    default:
      return frame_of(ref.space)[static_cast<plan::Buf>(ref.id)];
  }
}

Tensor Executor::resolve(const Ref& ref, const Instr& instr) {
  Tensor tensor = base_of(ref);
  if (ref.space == Space::none || ref.space == Space::slots) return tensor;
  if (ref.space == Space::bucket) {  // its row says which bucket
    return ref.num_cols > 0 ? tensor.columns(ref.col, ref.num_cols) : tensor;
  }
  const bool is_of_chunk = instr.chunk >= 0;
  if (ref.is_index_row) {
    // Row 0 is what holds for all chunks together.
    const int64_t row = !ref.is_per_chunk ? ref.row : is_of_chunk ? ref.row + instr.chunk : 0;
    tensor = tensor.row_range(row, 1).reshape(tensor.cols, 1);
  }
  switch (ref.rows) {
    case RowsOf::all:
    case RowsOf::by_token:
      break;
    case RowsOf::range:
      tensor = tensor.row_range(ref.row, ref.num_rows);
      break;
    case RowsOf::micro_batch:
      tensor =
          tensor.row_range(item_.micro_batch * segment_->dims.block_tokens + ref.row, ref.num_rows);
      break;
    case RowsOf::received:
    case RowsOf::sent:
      if (is_of_chunk) {
        const plan::ChunkRoute& chunk = own_->route.chunk(segment_->is_backward, instr.chunk);
        tensor = ref.rows == RowsOf::sent ? tensor.row_range(chunk.send_begin, chunk.num_sent)
                                          : tensor.row_range(chunk.recv_begin, chunk.num_received);
      }
      break;
  }
  return ref.num_cols > 0 ? tensor.columns(ref.col, ref.num_cols) : tensor;
}

std::vector<Tensor> Executor::resolve_all(const Instr& instr) {
  std::vector<Tensor> tensors;
  tensors.reserve(instr.refs.size());
  for (const Ref& ref : instr.refs) tensors.push_back(resolve(ref, instr));
  return tensors;
}

plan::OpCost Executor::cost_of(const Instr& instr) {
  if (!instr.is_routed) return instr.cost;
  return plan::cost_at(instr, own_->route.received(segment_->is_backward, instr.chunk));
}

void Executor::run_launch(const Instr& instr, const plan::Sharing& sharing) {
  const std::vector<Tensor> tensors = resolve_all(instr);
  run_op(rank_, instr.op, instr.pass, instr.stream, cost_of(instr), sharing, [&] {
    binder_of(instr.op)({*this, instr, tensors});
    if (instr.op == plan::Op::zero_grads && values_->on_zeroed) values_->on_zeroed();
  });
}

void Executor::communicate(const Instr& instr, const plan::Sharing& sharing) {
  const std::vector<Tensor> t = resolve_all(instr);
  Communicator& comm = rank_.comms.of(instr.group);
  run_comm(rank_, instr, [&](int64_t ready_ns) {
    const CommStart start(ready_ns, sharing.links);
    if (instr.verb == Verb::send) {
      return comm.send(instr.peer, plan::message_tag(instr, item_), t[0].data, t[0].bytes(),
                       {t[1].data, static_cast<int>(t[1].rows)}, start);
    }
    if (instr.verb == Verb::recv) {
      return comm.recv(instr.peer, plan::message_tag(instr, item_), t[0].data, t[0].bytes(), start);
    }
    const base::DType dtype = t[0].dtype;
    // One operand is sent from where the result goes: this rank's place in it.
    const bool is_in_place = t.size() == 1;
    const int64_t numel = instr.cost.bytes / base::size_of(dtype);
    switch (instr.kind) {
      case spec::CollectiveKind::all_gather: {
        const int64_t own = numel / comm.size();
        const void* from = is_in_place ? element(t[0], own * comm.rank()) : t[0].data;
        return comm.all_gather(from, t.back().data, own * base::size_of(dtype), start);
      }
      case spec::CollectiveKind::reduce_scatter: {
        const int64_t own = numel / comm.size();
        void* to = is_in_place ? element(t[0], own * comm.rank()) : t[1].data;
        return comm.reduce_scatter(t[0].data, to, own, dtype, start);
      }
      case spec::CollectiveKind::all_reduce:
        return comm.all_reduce(t[0].data, numel, dtype, start);
      case spec::CollectiveKind::ring_shift: {
        const auto size = static_cast<size_t>(comm.size());
        const auto own = static_cast<size_t>(comm.rank());
        std::vector<int64_t> send_rows(size, 0);
        std::vector<int64_t> recv_rows(size, 0);
        send_rows[(own + 1) % size] = recv_rows[(own + size - 1) % size] = t[0].rows;
        const AllToAllLane lane{t[0].data, t[1].data, t[0].cols * base::size_of(dtype)};
        return comm.all_to_all({&lane, 1}, send_rows, recv_rows, start);
      }
      case spec::CollectiveKind::all_to_all: {
        std::vector<AllToAllLane> lanes;
        for (size_t i = 0; i + 1 < t.size(); i += 2) {
          lanes.push_back({t[i].data, t[i + 1].data, t[i].cols * base::size_of(t[i].dtype)});
        }
        const plan::ChunkRoute& chunk = own_->route.chunk(segment_->is_backward, instr.chunk);
        const bool is_there = plan::is_to_experts(instr);
        return comm.all_to_all(lanes, is_there ? chunk.send_rows : chunk.recv_rows,
                               is_there ? chunk.recv_rows : chunk.send_rows, start);
      }
      default:
        throw base::Error("the engine cannot run a collective of this kind");
    }
  });
}

plan::LayerDims Executor::bound_dims() {
  plan::LayerDims dims = segment_->dims;
  if (dims.expert_ranks > 1 && own_ != nullptr) dims.received_rows = own_->route.num_received;
  return dims;
}

void Executor::allocate(const Instr& instr) {
  const Ref& ref = instr.refs.front();
  const auto group = static_cast<MemoryGroup>(instr.what);
  const int64_t bytes = cost_of(instr).bytes;
  const auto get = [&](const char* name) {
    return rank_.memory.allocate(name, group, bytes,
                                 instr.is_routed ? Sizing::routed : Sizing::fixed);
  };
  switch (ref.space) {
    case Space::scalar:
      rank_.scalars = Tensor::matrix(get(kScalarsName), base::DType::f64, 1,
                                     static_cast<int64_t>(plan::Scalar::count));
      return;
    case Space::bucket: {
      const auto index = static_cast<size_t>(ref.row);
      params_.place(index, static_cast<plan::BucketPart>(ref.id),
                    get(params_.buckets()[index].desc.name.c_str()), bytes);
      return;
    }
    case Space::slots: {
      const int num_slots = program_.num_message_slots;
      slots_[{ref.row, ref.id}] =
          Tensor::matrix(get("message_slots"), rank_.precision.element, num_slots,
                         bytes / num_slots / base::size_of(rank_.precision.element));
      return;
    }
    case Space::table: {
      const plan::TableRow row = rank_tables(rank_)[ref.id];
      tables_[ref.id] =
          Tensor::matrix(get(row.name), rank_.precision.of(row.content), row.rows, row.cols);
      return;
    }
    default: {
      const auto id = static_cast<plan::Buf>(ref.id);
      const plan::BufferRow& row = plan::buffer_row(id);
      const plan::LayerDims dims = bound_dims();
      BufferFrame& frame = frame_of(ref.space);
      MOETUNE_CHECK(frame[id].is_null(), "{} is made twice", row.name);
      frame[id] = Tensor::matrix(get(row.name), rank_.precision.of(row.content), row.rows(dims),
                                 row.cols(dims));
      ++frame.num_live;
    }
  }
}

void Executor::release(const Instr& instr) {
  const Ref& ref = instr.refs.front();
  BufferFrame& frame = frame_of(ref.space);
  Tensor& tensor = frame[static_cast<plan::Buf>(ref.id)];
  rank_.memory.release(static_cast<MemoryGroup>(instr.what), tensor.data, tensor.bytes());
  tensor = {};
  --frame.num_live;
}

void Executor::fetch(const Instr& instr) {
  const Tensor tensor = resolve(instr.refs.front(), instr);
  const auto read = [&](void* host, int64_t bytes) {
    engine::fetch(rank_, instr.stream, instr.pass, host, tensor.data, bytes);
  };
  switch (static_cast<plan::Fetch>(instr.what)) {
    case plan::Fetch::counts:
      own_->gathered_counts.resize(static_cast<size_t>(tensor.numel()));
      return read(own_->gathered_counts.data(), tensor.bytes());
    case plan::Fetch::norm: {
      double sum = 0;
      read(&sum, sizeof(sum));
      values_->grad_norm = std::sqrt(sum);
      if (values_->on_gradients) values_->on_gradients();
      return;
    }
    case plan::Fetch::losses:
      return read(values_->losses.data(), sizeof(values_->losses));
  }
}

void Executor::upload(const Instr& instr) {
  const std::vector<Tensor> t = resolve_all(instr);
  const auto to_device = [&](const Tensor& tensor, const std::vector<int32_t>& host) {
    MOETUNE_CHECK(static_cast<int64_t>(host.size()) == tensor.numel(),
                  "an upload of {} numbers where {} are expected", host.size(), tensor.numel());
    if (!host.empty()) rank_.backend.copy_to_device(tensor.data, host.data(), tensor.bytes());
  };
  upload_on(rank_, instr.stream, [&] {
    if (static_cast<plan::Upload>(instr.what) == plan::Upload::route) {
      to_device(t[0], own_->row_maps);
      to_device(t[1], own_->offsets);
      return;
    }
    to_device(t[0], values_->tokens->inputs);
    to_device(t[1], values_->tokens->targets);
    rank_.backend.fill_zero(rank_.scalars.data, rank_.scalars.bytes());
  });
}

void Executor::work_on_host(const Instr& instr) {
  run_on_host(rank_, instr.op, instr.pass, cost_of(instr), [&] {
    if (instr.op == plan::Op::finish_route) {
      own_->route = plan::make_route(segment_->dims, rank_.comms.of(plan::Group::ep).rank(),
                                     own_->gathered_counts);
    } else {
      write_route(segment_->dims, own_->route, own_->row_maps, own_->offsets);
    }
  });
  if (instr.op != plan::Op::finish_route || observers_.route == nullptr) return;
  observers_.route->on_route(rank_.rank, item_.layer, item_.micro_batch, own_->route);
}

void Executor::mark(const Instr& instr, size_t index) {
  switch (static_cast<Mark>(instr.what)) {
    case Mark::graph_open:
      return open_graph(instr, index);
    case Mark::graph_close:
      rank_.timeline.end_graph();
      leave_graph(rank_);
      return rank_.graphs.close(rank_.memory.trail());
    case Mark::observe_route: {
      if (observers_.routing == nullptr) return;
      const Tensor indices = resolve(instr.refs.front(), instr);
      std::vector<int32_t> host(static_cast<size_t>(indices.numel()));
      look_at(rank_,
              [&] { rank_.backend.copy_to_host(host.data(), indices.data, indices.bytes()); });
      return observers_.routing->on_routing(rank_.rank, item_.layer, item_.micro_batch, host.data(),
                                            indices.rows, indices.cols);
    }
    case Mark::observe_logits:
      if (observers_.logits == nullptr) return;
      return look_at_logits(resolve(instr.refs.front(), instr), instr.refs.back().row);
    default:
      throw base::Error("the program still holds a mark that a pass should have removed");
  }
}

void Executor::look_at_logits(const Tensor& logits, int64_t first_token) {
  const plan::LayerDims& d = segment_->dims;
  leave_graph(rank_);
  observers_.logits->on_logits(rank_.rank, item_.micro_batch, first_token, d.tp_rank * d.vocab,
                               logits, values_of(rank_.backend, logits));
}

// A captured graph is recognized by the addresses of its operands. Operands that are allocated
// inside of it have no address yet: the memory's trail stands for those.
void Executor::open_graph(const Instr& instr, size_t index) {
  rank_.timeline.begin_graph();
  if (!rank_.backend.has_graphs()) return;
  std::vector<const void*> addresses;
  for (size_t i = index + 1; i < segment_->code.size(); ++i) {
    const Instr& inside = segment_->code[i];
    if (inside.verb == Verb::mark && static_cast<Mark>(inside.what) == Mark::graph_close) break;
    if (inside.verb != Verb::op && inside.verb != Verb::comm) continue;
    for (const Ref& ref : inside.refs) addresses.push_back(base_of(ref).data);
  }
  rank_.memory.begin_trail();
  rank_.graphs.open({static_cast<int32_t>(instr.scope), item_.layer,
                     static_cast<int32_t>(instr.pass), 0, hash_addresses(addresses)});
}

}  // namespace moetune::engine
