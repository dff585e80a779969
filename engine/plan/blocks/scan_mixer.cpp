// The two directions of a scan. Context parallelism gives each rank all tokens
// and a share of the heads for what goes along the sequence (DeepSpeed-Ulysses, Jacobs et al. 2023,
// arXiv 2309.14509): one exchange behind the input projection, one before the output projection.
#include "engine/plan/blocks/scan_mixer.h"

namespace moetune::plan {
namespace {

using spec::GraphScope;

/// Operands of one segment.
class Operands {
 public:
  Operands(const ScanMixer& mixer, const LayerDims& dims) : m_(mixer), d_(dims) {}

  [[nodiscard]] Ref conv_of(Buf proj) const { return part(proj, m_.conv_at(d_), scan::conv(d_)); }
  [[nodiscard]] Ref z_of(Buf proj) const { return part(proj, m_.z_at(d_), d_.scan_values); }
  [[nodiscard]] Ref gates_of(Buf proj) const {
    return part(proj, m_.gates_at(d_), m_.num_gates(d_));
  }
  [[nodiscard]] Ref values_of(Buf conv_out) const {
    return part(conv_out, m_.values_at(d_), d_.scan_values);
  }
  [[nodiscard]] Ref keys_of(Buf conv_out) const {
    return part(conv_out, m_.keys_at(d_), 2 * d_.scan_keys);
  }

 private:
  [[nodiscard]] Ref part(Buf buf, int64_t first, int64_t count) const {
    return cols(in(buf), d_.own_columns(first), d_.own_columns(count));
  }

  const ScanMixer& m_;
  const LayerDims& d_;
};

void append(Instr& instr, std::span<const ParamKind> kinds, Ref (*of)(ParamKind)) {
  for (const ParamKind kind : kinds) instr.refs.push_back(of(kind));
}

/// From what the scan gives to the output projection's input.
void gated_norm(SegmentWriter& w, const ScanMixer& m) {
  const LayerDims& d = w.dims();
  const bool is_shared = d.is_shared();
  w.op(m.op.norm, {in(m.buf.scan_out), weight(m.param.norm), Operands(m, d).z_of(m.buf.proj),
                   out(is_shared ? m.buf.norm_wire : m.buf.norm_out), out(m.buf.norm_rstd)});
  if (is_shared) {
    w.exchange(Op::head_exchange, d.scan_values, in(m.buf.norm_wire), in(m.buf.norm_out));
  }
}

}  // namespace

Segment scan_mixer_forward(const BlockContext& context, const ScanMixer& m) {
  SegmentWriter w(context, m.block, false);
  const LayerDims& d = w.dims();
  const Operands of(m, d);
  begin_layer(w);
  w.begin(Part::attn);
  w.begin(m.part);
  w.acquire();
  w.open(GraphScope::attn);
  mixer_norm(w);
  SegmentWriter::Gathered x = w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  w.linear(m.op.in_proj, w.arrived(x), m.param.in_proj,
           out(d.is_shared() ? m.buf.wire : m.buf.proj));
  if (d.is_shared()) {
    w.exchange(Op::head_exchange, m.proj_cols(d), in(m.buf.wire), in(m.buf.proj));
  }
  Instr& conv =
      w.op(m.op.conv, {of.conv_of(m.buf.proj), weight(m.param.conv), out(m.buf.conv_out)});
  append(conv, m.conv_bias, weight);
  w.op(m.op.gates,
       {of.gates_of(m.buf.proj), weight(m.param.decay), weight(m.param.dt_bias), out(m.buf.gates)});
  Instr& scan = w.op(m.op.scan, {of.values_of(m.buf.conv_out), of.keys_of(m.buf.conv_out),
                                 in(m.buf.gates), out(m.buf.states), out(m.buf.scan_out)});
  for (const Buf chunks : m.chunks) scan.refs.push_back(out(chunks));
  append(scan, m.skip, weight);
  gated_norm(w, m);
  w.row_parallel(m.op.out_proj, in(m.buf.norm_out), m.param.out_proj, in(Buf::attn_partial),
                 mixer_output(d), {Op::attn_residual, in(Buf::input)});
  w.close(GraphScope::attn);
  w.release();
  w.end(m.part);
  w.end(Part::attn);
  end_layer(w);
  return w.finish();
}

Segment scan_mixer_backward(const BlockContext& context, const ScanMixer& m) {
  SegmentWriter w(context, m.block, true);
  const LayerDims& d = w.dims();
  const Operands of(m, d);
  const bool is_shared = d.is_shared();
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::attn);
  w.begin(m.part);
  w.acquire();
  w.open(GraphScope::attn);
  w.remake({Buf::attn_norm_out});
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::attn_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  w.begin_remake(m.buf.norm_out);
  gated_norm(w, m);
  w.end_remake();
  w.row_parallel_backward(m.op.out_proj, m.op.out_proj, in(m.buf.norm_out), m.param.out_proj,
                          d_hidden, dy, out(m.buf.d_norm_out));
  const Ref d_norm = in(is_shared ? m.buf.norm_wire : m.buf.d_norm_out);
  if (is_shared) w.exchange(Op::head_exchange, d.scan_values, in(m.buf.d_norm_out), d_norm);
  w.op(m.op.norm,
       {in(m.buf.scan_out), weight(m.param.norm), of.z_of(m.buf.proj), in(m.buf.norm_rstd), d_norm,
        out(m.buf.d_scan_out), out(of.z_of(m.buf.d_proj)), grad(m.param.norm)});
  Instr& scan = w.op(
      m.op.scan, {in(m.buf.d_scan_out), of.values_of(m.buf.conv_out), of.keys_of(m.buf.conv_out),
                  in(m.buf.gates), out(m.buf.states), out(of.values_of(m.buf.d_conv_out)),
                  out(of.keys_of(m.buf.d_conv_out)), out(m.buf.d_gates)});
  for (const Buf chunks : m.chunks) scan.refs.push_back(in(chunks));
  append(scan, m.skip, grad);
  w.op(m.op.gates,
       {of.gates_of(m.buf.proj), weight(m.param.decay), weight(m.param.dt_bias), in(m.buf.d_gates),
        out(of.gates_of(m.buf.d_proj)), grad(m.param.decay), grad(m.param.dt_bias)});
  Instr& conv = w.op(m.op.conv, {in(m.buf.d_conv_out), of.conv_of(m.buf.proj), weight(m.param.conv),
                                 out(of.conv_of(m.buf.d_proj)), grad(m.param.conv)});
  append(conv, m.conv_bias, grad);
  if (is_shared) {
    w.exchange(Op::head_exchange, m.proj_cols(d), in(m.buf.d_proj), in(m.buf.wire));
  }
  w.column_parallel_backward(m.op.in_proj, m.op.in_proj, x, m.param.in_proj,
                             in(is_shared ? m.buf.wire : m.buf.d_proj), in(Buf::attn_partial),
                             out(Buf::d_attn_norm));
  mixer_norm_backward(w);
  w.close(GraphScope::attn);
  w.release();
  w.end(m.part);
  w.end(Part::attn);
  end_layer_backward(w);
  return w.finish();
}

}  // namespace moetune::plan
