// Stacks that the threads of a block run on, and the switch from one to another. A stack is not a
// thread's: it goes on with the next thread when one returns, so that threads which never wait need
// one stack together and no switch between them.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fakes/simt/sanitizers.h"

namespace moetune::simt {

/// One stack and where it stopped.
struct Fiber {
  boost::context::fiber context;
  boost::context::stack_context stack;
  StackTag tag;
};

/// The stacks of one host thread, made as they are first needed and kept.
class Fibers {
 public:
  /// `live` is what a new fiber does; it must return when is_closing().
  explicit Fibers(std::function<void(Fiber&)> live) : live_(std::move(live)) {}
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  ~Fibers() {
    is_closing_ = true;
    for (const auto& fiber : all_) {
      switch_to(*fiber);
      forget_stack(fiber->tag);
      // Whoever gets these addresses next, from mmap, should not inherit what the sanitizer knows.
      unpoison(fiber->tag.bottom, fiber->tag.size);
      boost::context::protected_fixedsize_stack(kStackBytes).deallocate(fiber->stack);
    }
  }

  [[nodiscard]] bool is_closing() const { return is_closing_; }

  /// The host thread's own stack.
  Fiber& host() { return host_; }
  /// The one that runs now.
  Fiber& running() { return *running_; }

  /// One that no thread is on.
  Fiber& idle() {
    if (idle_.empty()) return make();
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  void put_back(Fiber& fiber) { idle_.push_back(&fiber); }

  /// Returns when somebody switches to the fiber that called.
  void switch_to(Fiber& to) {
    Fiber& here = *running_;
    left_ = &here;
    running_ = &to;
    leave_stack(here.tag, to.tag);
    boost::context::fiber from = std::move(to.context).resume();
    arrive(here, std::move(from));
  }

 private:
  static constexpr size_t kStackBytes = 128 * 1024;
  /// Tops of stacks that all lie a power of two apart would fight for the same lines of the cache.
  static constexpr size_t kNumColours = 61;
  static constexpr size_t kColourBytes = 320;

  /// Stacks belong to their Fiber, not to the context that runs on them.
  struct KeepStack {
    static boost::context::stack_context allocate() { return {}; }
    static void deallocate(boost::context::stack_context&) {}
  };

  Fiber& make() {
    Fiber& fiber = *all_.emplace_back(std::make_unique<Fiber>());
    idle_.reserve(all_.size());
    fiber.stack = boost::context::protected_fixedsize_stack(kStackBytes).allocate();
    fiber.tag.bottom = static_cast<const char*>(fiber.stack.sp) - fiber.stack.size;
    fiber.tag.size = fiber.stack.size;
    const size_t colour = (all_.size() - 1) % kNumColours * kColourBytes;
    fiber.context = boost::context::fiber(
        std::allocator_arg,
        boost::context::preallocated(static_cast<char*>(fiber.stack.sp) - colour,
                                     fiber.stack.size - colour, fiber.stack),
        KeepStack{}, [this, &fiber](boost::context::fiber&& from) {
          arrive(fiber, std::move(from));
          live_(fiber);
          left_ = &fiber;
          running_ = &host_;
          leave_stack(fiber.tag, host_.tag, true);
          return std::move(host_.context);
        });
    return fiber;
  }

  void arrive(Fiber& here, boost::context::fiber&& from) {
    arrive_on_stack(here.tag, left_->tag);
    left_->context = std::move(from);
  }

  std::function<void(Fiber&)> live_;
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_;
  Fiber host_;
  Fiber* running_ = &host_;
  Fiber* left_ = nullptr;  ///< where the switch that is under way came from
  bool is_closing_ = false;
};

}  // namespace moetune::simt
