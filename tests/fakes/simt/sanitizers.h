// Tells the sanitizers, where the program runs under one, that the stack is about to change. Their
// functions are weak: in an ordinary build they are null and nothing happens.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/tsan_interface.h>

#include <cstddef>

extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) __attribute__((weak));
void __asan_poison_memory_region(void const volatile*, size_t) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile*, size_t) __attribute__((weak));
int __asan_address_is_poisoned(void const volatile*) __attribute__((weak));
void* __tsan_get_current_fiber(void) __attribute__((weak));
void* __tsan_create_fiber(unsigned) __attribute__((weak));
void __tsan_destroy_fiber(void*) __attribute__((weak));
void __tsan_switch_to_fiber(void*, unsigned) __attribute__((weak));
}

namespace moetune::simt {

/// What the sanitizers want to know of one stack. For a fiber, bottom and size are set by whoever
/// allocates it; for the stack of the host thread they come from the first switch away.
struct StackTag {
  const void* bottom = nullptr;
  size_t size = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

/// Right before the switch. Inlined, because a function that is entered on one stack and left on
/// another would confuse the thread sanitizer. `for_good`: `from` will not run again.
__attribute__((always_inline)) inline void leave_stack(StackTag& from, StackTag& to,
                                                       bool for_good = false) {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.bottom, to.size);
  }
  if (__tsan_switch_to_fiber != nullptr) {
    if (from.tsan_fiber == nullptr) from.tsan_fiber = __tsan_get_current_fiber();
    if (to.tsan_fiber == nullptr) to.tsan_fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to.tsan_fiber, 0);
  }
}

/// The first thing done on the stack arrived at.
__attribute__((always_inline)) inline void arrive_on_stack(StackTag& here, StackTag& from) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(here.fake_stack, &from.bottom, &from.size);
  }
}

/// After the fiber's last switch away.
inline void forget_stack(StackTag& tag) {
  if (__tsan_destroy_fiber != nullptr && tag.tsan_fiber != nullptr) {
    __tsan_destroy_fiber(tag.tsan_fiber);
  }
}

inline void poison(const void* begin, size_t bytes) {
  if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(begin, bytes);
}

inline void unpoison(const void* begin, size_t bytes) {
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(begin, bytes);
}

}  // namespace moetune::simt
