// The send order of the chosen (token, slot) pairs: a stable counting sort by chunk and expert
// whose counts never leave the device. Four launches: count every tile of slots; add up the tiles
// before each; give every slot its place; invert. No working memory: until the last launch writes
// `order`, it holds the tiles' counts, each tile's in the tile's own part of it.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMinTileSlots = 1024;
constexpr int kMaxExperts = 4096;
constexpr int64_t kMaxTiles = kNumSms * 4;  // of all chunks; the scan over tiles stays short
constexpr int kScanThreads = 1024;
constexpr int kScanSegments = kScanThreads / kWarp;

struct Plan {
  const int32_t* indices;
  int32_t* order;
  int32_t* position;
  int32_t* counts;
  int32_t* offsets;  // or null
  int64_t counts_ld;
  int64_t num_tokens;
  int num_chunks;
  int num_experts;
  int topk;
  int tiles_per_chunk;
};

// Slots [begin, end).
struct Range {
  int64_t begin;
  int64_t end;
};

__device__ Range chunk_range(const Plan& plan, int64_t chunk) {
  return {chunk * plan.num_tokens / plan.num_chunks * plan.topk,
          (chunk + 1) * plan.num_tokens / plan.num_chunks * plan.topk};
}

// With more than one tile, no tile of a chunk has fewer slots than there are experts.
__device__ Range tile_range(const Plan& plan, const Range& chunk, int64_t tile) {
  const int64_t length = chunk.end - chunk.begin;
  return {chunk.begin + tile * length / plan.tiles_per_chunk,
          chunk.begin + (tile + 1) * length / plan.tiles_per_chunk};
}

// The counts of each tile; of a chunk that is one tile, those of the chunk.
__global__ void __launch_bounds__(kThreads) count_kernel(Plan plan) {
  int* counts = block_shared<int>();
  const int own = static_cast<int>(threadIdx.x);
  for (int e = own; e < plan.num_experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int64_t chunk = blockIdx.x / plan.tiles_per_chunk;
  const Range tile = tile_range(plan, chunk_range(plan, chunk), blockIdx.x % plan.tiles_per_chunk);
#pragma unroll 4
  for (int64_t slot = tile.begin + own; slot < tile.end; slot += kThreads) {
    check_row(plan.indices[slot], plan.num_experts);
    atomicAdd(counts + plan.indices[slot], 1);
  }
  __syncthreads();
  int32_t* to =
      plan.tiles_per_chunk == 1 ? plan.counts + chunk * plan.counts_ld : plan.order + tile.begin;
  for (int e = own; e < plan.num_experts; e += kThreads) to[e] = counts[e];
}

// Turns each tile's counts into the sums over the tiles before it. A block does 32 experts of a
// chunk; its warps do a segment of the tiles each.
__global__ void __launch_bounds__(kScanThreads) scan_tiles_kernel(Plan plan, int blocks_per_chunk) {
  int* totals = block_shared<int>();  // [kScanSegments, kWarp]
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int segment = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t chunk = blockIdx.x / blocks_per_chunk;
  const int expert = static_cast<int>(blockIdx.x) % blocks_per_chunk * kWarp + lane;
  const bool is_real = expert < plan.num_experts;
  const Range slots = chunk_range(plan, chunk);
  const int first = segment * plan.tiles_per_chunk / kScanSegments;
  const int last = (segment + 1) * plan.tiles_per_chunk / kScanSegments;
  int total = 0;
  if (is_real) {
#pragma unroll 8
    for (int tile = first; tile < last; ++tile) {
      total += plan.order[tile_range(plan, slots, tile).begin + expert];
    }
  }
  totals[threadIdx.x] = total;
  __syncthreads();
  if (!is_real) return;
  int before = 0;
  for (int i = 0; i < segment; ++i) before += totals[i * kWarp + lane];
  for (int tile = first; tile < last; ++tile) {
    int32_t* count = plan.order + tile_range(plan, slots, tile).begin + expert;
    const int own = *count;
    *count = before;
    before += own;
  }
  if (segment == kScanSegments - 1) plan.counts[chunk * plan.counts_ld + expert] = before;
}

// to[e] = sum of counts[0, e), by the whole block. `partial` holds kWarps numbers.
__device__ void exclusive_sums(const int32_t* counts, int num_experts, int* to, int* partial) {
  const int own = static_cast<int>(threadIdx.x);
  const int lane = own % kWarp;
  const int each = (num_experts + kThreads - 1) / kThreads;
  const int first = own * each;
  int total = 0;
  for (int e = first; e < first + each && e < num_experts; ++e) total += counts[e];
  const int up_to = sum_up_to_lane(total);
  if (lane == kWarp - 1) partial[own / kWarp] = up_to;
  __syncthreads();
  int before = up_to - total;
  for (int w = 0; w < own / kWarp; ++w) before += partial[w];
  for (int e = first; e < first + each && e < num_experts; ++e) {
    to[e] = before;
    before += counts[e];
  }
  __syncthreads();
}

// The place of every slot of a tile. Each warp has a run of the tile's slots and a counter per
// expert that begins behind all slots before the run; among 32 slots the votes give the order.
__global__ void __launch_bounds__(kThreads) place_kernel(Plan plan) {
  int* begins = block_shared<int>();  // of each expert's places of this tile
  int* partial = begins + plan.num_experts;
  int* next = partial + kWarps;  // [kWarps, experts]
  const int num_experts = plan.num_experts;
  const int own = static_cast<int>(threadIdx.x);
  const int lane = own % kWarp;
  const int64_t chunk = blockIdx.x / plan.tiles_per_chunk;
  const Range slots = chunk_range(plan, chunk);
  const Range tile = tile_range(plan, slots, blockIdx.x % plan.tiles_per_chunk);
  const int64_t run_length = ((tile.end - tile.begin) / kThreads + 1) * kWarp;
  const int64_t run_begin = tile.begin + own / kWarp * run_length;
  const int64_t run_end = run_begin + run_length < tile.end ? run_begin + run_length : tile.end;
  int* counters = next + own / kWarp * num_experts;

  for (int i = own; i < kWarps * num_experts; i += kThreads) next[i] = 0;
  exclusive_sums(plan.counts + chunk * plan.counts_ld, num_experts, begins, partial);
  if (plan.offsets != nullptr && blockIdx.x == 0) {
    for (int e = own; e < num_experts; e += kThreads) plan.offsets[e] = begins[e];
    if (own == 0) plan.offsets[num_experts] = static_cast<int32_t>(slots.end - slots.begin);
  }
#pragma unroll 4
  for (int64_t slot = run_begin + lane; slot < run_end; slot += kWarp) {
    atomicAdd(counters + plan.indices[slot], 1);
  }
  __syncthreads();
  for (int e = own; e < num_experts; e += kThreads) {
    // All slots of earlier chunks come first.
    int before = static_cast<int>(slots.begin) + begins[e];
    if (plan.tiles_per_chunk > 1) before += plan.order[tile.begin + e];
    for (int w = 0; w < kWarps; ++w) {
      const int count = next[w * num_experts + e];
      next[w * num_experts + e] = before;
      before += count;
    }
  }
  __syncthreads();
  for (int64_t first = run_begin; first < run_end; first += kWarp) {
    const int64_t slot = first + lane;
    const int expert = slot < run_end ? plan.indices[slot] : -1;
    const unsigned same = __match_any_sync(kAllLanes, expert);
    const int rank = __popc(same & ((1U << lane) - 1U));
    if (expert >= 0) plan.position[slot] = counters[expert] + rank;
    __syncwarp();
    if (expert >= 0 && rank == 0) counters[expert] += __popc(same);
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads)
    invert_kernel(const int32_t* position, int32_t* order, int64_t num_slots) {
  for (int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x; slot < num_slots;
       slot += int64_t{gridDim.x} * kThreads) {
    order[position[slot]] = static_cast<int32_t>(slot);
  }
}

}  // namespace

void route_plan(Stream stream, const RoutePlanArgs& args) {
  const int64_t num_tokens = args.indices.rows;
  const int64_t topk = args.indices.cols;
  const int64_t num_slots = num_tokens * topk;
  const int64_t num_experts = args.counts.cols;
  MOETUNE_CHECK(args.indices.is_contiguous() && num_slots <= INT32_MAX &&
                    args.order.numel() == num_slots && args.position.numel() == num_slots,
                "route_plan: indices [{},{}] with row distance {}, order {}, position {}",
                num_tokens, topk, args.indices.ld, args.order.numel(), args.position.numel());
  MOETUNE_CHECK(args.num_chunks > 0 && args.counts.rows == args.num_chunks && num_experts > 0 &&
                    num_experts <= kMaxExperts && (args.offsets.is_null() || args.num_chunks == 1),
                "route_plan: counts [{},{}], {} chunks, {} offsets", args.counts.rows, num_experts,
                args.num_chunks, args.offsets.rows);
  // The same number of tiles for each chunk: the shortest one decides.
  const int64_t shortest = num_tokens / args.num_chunks * topk;
  const int64_t tile_slots = num_experts > kMinTileSlots ? num_experts : kMinTileSlots;
  int64_t tiles = shortest / tile_slots;
  if (tiles > kMaxTiles / args.num_chunks) tiles = kMaxTiles / args.num_chunks;
  if (tiles < 1) tiles = 1;
  const Plan plan{static_cast<const int32_t*>(args.indices.data),
                  static_cast<int32_t*>(args.order.data),
                  static_cast<int32_t*>(args.position.data),
                  static_cast<int32_t*>(args.counts.data),
                  static_cast<int32_t*>(args.offsets.data),
                  args.counts.ld,
                  num_tokens,
                  static_cast<int>(args.num_chunks),
                  static_cast<int>(num_experts),
                  static_cast<int>(topk),
                  static_cast<int>(tiles)};
  const dim3 grid(static_cast<unsigned>(args.num_chunks * tiles));
  const size_t row_bytes = static_cast<size_t>(num_experts) * sizeof(int);
  launch(count_kernel, {grid, dim3(kThreads), row_bytes}, stream, plan);
  if (tiles > 1) {
    const int64_t blocks = ceil_div(num_experts, kWarp);
    launch(scan_tiles_kernel,
           {dim3(static_cast<unsigned>(args.num_chunks * blocks)), dim3(kScanThreads),
            kScanThreads * sizeof(int)},
           stream, plan, static_cast<int>(blocks));
  }
  launch(place_kernel, {grid, dim3(kThreads), (1 + kWarps) * row_bytes + kWarps * sizeof(int)},
         stream, plan);
  launch(invert_kernel, {grid_of(ceil_div(num_slots, kThreads)), dim3(kThreads)}, stream,
         plan.position, plan.order, num_slots);
}

}  // namespace moetune::kernels::cuda
