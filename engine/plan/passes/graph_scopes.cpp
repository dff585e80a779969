// Which instructions are captured as graphs, and where communication cuts them.
#include <algorithm>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {

void graph_scopes(Segment& segment, const spec::Knobs& knobs) {
  std::erase_if(segment.code, [&](const Instr& instr) {
    if (instr.verb != Verb::mark) return false;
    const auto what = static_cast<Mark>(instr.what);
    const bool is_graph = what == Mark::graph_open || what == Mark::graph_close;
    return is_graph && !spec::has_graph(knobs, instr.scope);
  });
}

}  // namespace moetune::plan
