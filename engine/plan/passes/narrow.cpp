// The passes behind recipes of 8 or 4 bits. Products of the linear modules read narrow copies of
// their operands: activations and gradients are quantized where they are first needed, weights once
// a step. What they write stays in 16 bits, as do router, head and attention.
//   * `narrow` puts the quantizing in and has the products read what it writes. With one scale a
//     tensor from the tensor itself (fp8_current), and with 4 bits, its largest value is looked for
//     first; the other recipes find their scales while they quantize, or have them from steps
//     before.
//   * `narrow_lifetimes` makes and ends the copies. What only a gradient of a weight reads is kept
//     as its copy alone.
//   * `narrow_weights` holds the copies of the weights and fills them at the beginning of a step.
// A copy takes a byte an element. Its scales are left out, and that 4 bits are half of that.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

using spec::PrecisionRecipe;
using Key = std::tuple<uint8_t, int64_t, int64_t, int64_t, int64_t>;

bool is_narrow_product(const Instr& instr) {
  if (instr.verb != Verb::op || !is_of_recipe(instr.op)) return false;
  const Work work = op_row(instr.op).work;
  return work == Work::product || work == Work::grouped;
}

bool is_activation(const Ref& ref) {
  const bool is_buffer =
      ref.space == Space::frame || ref.space == Space::next || ref.space == Space::edge;
  return is_buffer && buffer_row(static_cast<Buf>(ref.id)).content == Content::element;
}

/// How many of a product's first operands are activations or gradients of them.
size_t num_activations(const Instr& product) { return product.pass == Pass::wgrad ? 2 : 1; }

Key key_of(const Ref& ref) {
  const bool is_range = ref.rows == RowsOf::range;
  return {ref.id, is_range ? ref.row : 0, is_range ? ref.num_rows : 0, ref.col, ref.num_cols};
}

Ref narrow_of(Ref ref) {
  ref.space = Space::narrow;
  ref.access = Access::read;
  return ref;
}

bool looks_for_largest(PrecisionRecipe recipe) {
  return recipe == PrecisionRecipe::fp8_current || recipe == PrecisionRecipe::nvfp4;
}

Instr quantizing(Op op, const Instr& product, std::vector<Ref> refs) {
  Instr instr;
  instr.op = op;
  instr.pass = product.pass == Pass::wgrad ? Pass::backward : product.pass;
  instr.is_routed = product.is_routed;
  instr.refs = std::move(refs);
  return instr;
}

bool is_written_in(const Segment& segment, uint8_t buffer) {
  return std::ranges::any_of(segment.code, [&](const Instr& instr) {
    return std::ranges::any_of(instr.refs, [&](const Ref& ref) {
      return ref.space == Space::frame && ref.id == buffer && ref.access != Access::read;
    });
  });
}

/// `fresh`: copies that are there already.
void quantize(Segment& segment, const NarrowTypes& types, std::set<Key> fresh) {
  std::vector<Instr> code;
  for (Instr& instr : segment.code) {
    if (is_narrow_product(instr)) {
      instr.cost.recipe = types.recipe;
      for (size_t i = 0; i < num_activations(instr); ++i) {
        Ref& ref = instr.refs[i];
        if (!is_activation(ref)) continue;
        const Ref copy = narrow_of(ref);
        if (fresh.insert(key_of(ref)).second) {
          if (looks_for_largest(types.recipe)) code.push_back(quantizing(Op::amax, instr, {ref}));
          code.push_back(quantizing(Op::quantize, instr, {ref, out(copy)}));
          if (types.has_transposes) code.back().refs.push_back(out(copy));
        }
        ref = copy;
      }
    }
    for (const Ref& ref : instr.refs) {
      if (ref.access == Access::read || !is_activation(ref)) continue;
      std::erase_if(fresh, [&](const Key& key) { return std::get<0>(key) == ref.id; });
    }
    code.push_back(std::move(instr));
  }
  segment.code = std::move(code);
}

bool uses(const Instr& instr, Space space, uint8_t buffer) {
  return std::ranges::any_of(
      instr.refs, [&](const Ref& ref) { return ref.space == space && ref.id == buffer; });
}
bool is_memory(const Instr& instr, Verb verb, Space space, uint8_t buffer) {
  return instr.verb == verb && uses(instr, space, buffer);
}

}  // namespace

NarrowTypes narrow_types(PrecisionRecipe recipe, const spec::HardwareSpec& hardware) {
  // Products of 8 bits want one layout of their operands; Blackwell's take either, but a scale for
  // each block belongs to one.
  const bool is_by_tensor =
      recipe == PrecisionRecipe::fp8_current || recipe == PrecisionRecipe::fp8_delayed;
  return {recipe, !is_by_tensor || hardware.fp4_flops_per_s <= 0};
}

KeptNarrow narrow(Segment& forward, Segment& backward, const NarrowTypes& types,
                  const spec::Knobs& knobs) {
  quantize(forward, types, {});
  KeptNarrow kept;
  std::set<Key> fresh;
  for (const Instr& instr : forward.code) {
    if (instr.op != Op::quantize || instr.refs.front().space != Space::frame) continue;
    const Ref& ref = instr.refs.front();
    const BufferRow& row = buffer_row(static_cast<Buf>(ref.id));
    const bool is_kept = row.keep == Keep::saved && !is_dropped(row, knobs) &&
                         is_written_in(forward, ref.id) && !is_written_in(backward, ref.id);
    const bool is_needed = std::ranges::any_of(backward.code, [&](const Instr& reader) {
      if (!is_narrow_product(reader)) return false;
      return std::any_of(reader.refs.begin(),
                         reader.refs.begin() + static_cast<std::ptrdiff_t>(num_activations(reader)),
                         [&](const Ref& each) { return key_of(each) == key_of(ref); });
    });
    if (!is_kept || !is_needed) continue;
    fresh.insert(key_of(ref));
    kept.copies.insert(ref.id);
  }
  quantize(backward, types, fresh);
  for (const uint8_t buffer : kept.copies) {
    const bool is_read = std::ranges::any_of(backward.code, [&](const Instr& instr) {
      return instr.verb != Verb::mark && uses(instr, Space::frame, buffer);
    });
    if (!is_read) kept.alone.insert(buffer);
  }
  return kept;
}

namespace {

/// Writes allocations and frees of the copies into one segment.
class CopyLifetimes {
 public:
  CopyLifetimes(Segment& segment, const KeptNarrow& kept) : segment_(segment), kept_(kept) {}

  void run() {
    std::set<uint8_t> copies;
    for (const Instr& instr : segment_.code) {
      for (const Ref& ref : instr.refs) {
        if (ref.space == Space::narrow) copies.insert(ref.id);
      }
    }
    for (const uint8_t buffer : copies) live(buffer);
    for (const uint8_t buffer : kept_.alone) end_wide(buffer);
  }

 private:
  using Code = std::vector<Instr>;

  /// Whether the buffer is there when the segment ends.
  [[nodiscard]] bool is_left(uint8_t buffer) const {
    return std::ranges::none_of(segment_.code, [&](const Instr& instr) {
      return is_memory(instr, Verb::free, Space::frame, buffer);
    });
  }

  [[nodiscard]] Instr memory(Verb verb, Space space, uint8_t buffer, MemoryGroup group) const {
    const BufferRow& row = buffer_row(static_cast<Buf>(buffer));
    Instr instr;
    instr.verb = verb;
    instr.what = static_cast<uint8_t>(group);
    instr.refs = {out(Ref{space, buffer})};
    const int64_t own_cols = space == Space::narrow ? cols_of(buffer) : 0;
    const auto bytes = [&](const LayerDims& dims) {
      return row.rows(dims) * (own_cols > 0 ? own_cols : row.cols(dims));
    };
    instr.cost.bytes = bytes(segment_.dims);
    if (row.part != Part::experts || segment_.dims.expert_ranks == 1) return instr;
    LayerDims some = segment_.dims;
    some.received_rows = 0;
    instr.cost.bytes = bytes(some);
    some.received_rows = 1;
    instr.cost_per_row.bytes = bytes(some) - instr.cost.bytes;
    instr.is_routed = true;
    return instr;
  }

  /// Of the columns that are copied; 0: all.
  [[nodiscard]] int64_t cols_of(uint8_t buffer) const {
    std::set<std::pair<int64_t, int64_t>> ranges;
    for (const Instr& instr : segment_.code) {
      for (const Ref& ref : instr.refs) {
        const bool is_copy = ref.space == Space::narrow && ref.id == buffer;
        if (is_copy && instr.verb == Verb::op) ranges.emplace(ref.col, ref.num_cols);
      }
    }
    return ranges.size() == 1 ? ranges.begin()->second : 0;
  }

  void insert(Code::iterator at, Instr instr, Pass pass) {
    instr.pass = pass;
    segment_.code.insert(at, std::move(instr));
  }

  void live(uint8_t buffer) {
    const bool is_kept = kept_.copies.contains(buffer);
    const bool is_left_behind = is_kept && !segment_.is_backward && is_left(buffer);
    const MemoryGroup group =
        is_left_behind || (is_kept && segment_.is_backward && !is_made(buffer))
            ? MemoryGroup::activations
            : MemoryGroup::workspace;
    if (!is_left_behind) {
      const auto last =
          std::find_if(segment_.code.rbegin(), segment_.code.rend(),
                       [&](const Instr& i) { return uses(i, Space::narrow, buffer); });
      const Pass pass = last->pass;
      insert(last.base(), memory(Verb::free, Space::narrow, buffer, group), pass);
    }
    if (!is_made(buffer)) return;
    const auto first = std::ranges::find_if(
        segment_.code, [&](const Instr& i) { return uses(i, Space::narrow, buffer); });
    const Pass pass = first->pass;
    insert(first, memory(Verb::alloc, Space::narrow, buffer, group), pass);
  }

  /// Whether this segment quantizes it.
  [[nodiscard]] bool is_made(uint8_t buffer) const {
    return std::ranges::any_of(segment_.code, [&](const Instr& instr) {
      return instr.op == Op::quantize && uses(instr, Space::narrow, buffer);
    });
  }

  /// The wide buffer ends with the forward pass.
  void end_wide(uint8_t buffer) {
    const auto is_free = [&](const Instr& instr) {
      return is_memory(instr, Verb::free, Space::frame, buffer);
    };
    if (segment_.is_backward) {
      std::erase_if(segment_.code, is_free);
      return;
    }
    if (!is_left(buffer)) return;
    const auto made = std::ranges::find_if(segment_.code, [&](const Instr& instr) {
      return is_memory(instr, Verb::alloc, Space::frame, buffer);
    });
    if (made == segment_.code.end()) return;
    made->what = static_cast<uint8_t>(MemoryGroup::workspace);
    Instr end = *made;
    end.verb = Verb::free;
    const auto last = std::find_if(segment_.code.rbegin(), segment_.code.rend(),
                                   [&](const Instr& i) { return uses(i, Space::frame, buffer); });
    // A transfer may still read it.
    const auto at = last->verb == Verb::comm ? segment_.code.end() : last.base();
    segment_.code.insert(at, std::move(end));
  }

  Segment& segment_;
  const KeptNarrow& kept_;
};

}  // namespace

void narrow_lifetimes(Segment& segment, const KeptNarrow& kept) {
  CopyLifetimes(segment, kept).run();
}

void narrow_weights(StepProgram& program, const BlockContext& context, const NarrowTypes& types) {
  std::set<std::pair<int32_t, uint8_t>> used;  // layer and kind
  for_each(program, [&](const Item& item, const Segment&, const Instr& instr) {
    if (!spec::is_product_narrow(instr.cost.recipe) || instr.pass == Pass::wgrad) return;
    used.emplace(item.layer, instr.refs[1].id);
  });
  std::vector<int64_t> elements(program.params.buckets.size());
  for (const ParamDesc& param : program.params.params) {
    const auto kind = static_cast<uint8_t>(param.kind);
    if (!used.contains({static_cast<int32_t>(param.layer), kind})) continue;
    elements[static_cast<size_t>(param.bucket)] += param.numel();
  }
  const int64_t copies = types.has_transposes ? 2 : 1;
  SegmentWriter w(context, BlockKind::update, false);
  w.set_pass(Pass::update);
  Item& first = program.setup.front();
  Segment setup = *program.segments[static_cast<size_t>(first.segment)];
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] == 0) continue;
    const Ref copy = bucket_part(i, BucketPart::narrow);
    const int64_t wide = elements[i] * base::size_of(program.precision.element);
    if (looks_for_largest(types.recipe)) {
      w.priced(Op::amax, {elements[i], wide}, {bucket_part(i, BucketPart::weight)});
    }
    w.priced(Op::quantize, {elements[i], wide + copies * elements[i]},
             {bucket_part(i, BucketPart::weight), out(copy)});
    Instr alloc;
    alloc.verb = Verb::alloc;
    alloc.pass = Pass::update;
    alloc.what = static_cast<uint8_t>(MemoryGroup::weights);
    alloc.cost.bytes = copies * elements[i];
    alloc.refs = {out(copy)};
    setup.code.push_back(std::move(alloc));
  }
  Segment made = w.finish();
  if (made.code.empty()) return;
  program.segments[static_cast<size_t>(first.segment)] =
      std::make_shared<const Segment>(std::move(setup));
  Item item;
  item.segment = static_cast<int32_t>(program.segments.size());
  program.segments.push_back(std::make_shared<const Segment>(std::move(made)));
  // Behind what begins the step.
  program.items.insert(program.items.begin() + 1, item);
}

}  // namespace moetune::plan
