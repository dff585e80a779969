// Who watches, and which of a thread's calls is the outermost.
#include "tests/fakes/simt/simt_observer.h"

#include <atomic>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

std::atomic<Observer*> the_observer{nullptr};
thread_local int call_depth = 0;
thread_local uint32_t call_number = 0;

}  // namespace

void set_observer(Observer* observer) { the_observer = observer; }
Observer* observer() { return the_observer; }
uint32_t current_call() { return call_number; }

// A function of the runtime that calls another is one call.
ObservedCall::ObservedCall(const char* function) : function_(function) {
  if (call_depth++ > 0) return;
  observer_ = observer();
  call_number = observer_ == nullptr ? 0 : observer_->begin_call(function);
}

ObservedCall::~ObservedCall() {
  --call_depth;
  if (observer_ != nullptr) observer_->end_call(function_, call_number, status_);
}

Operation placed(Operation what, const CUstream_st& stream) {
  what.device = stream.device;
  what.stream = stream.lane;
  what.call = current_call();
  return what;
}

}  // namespace moetune::simt
