// CUPTI's functions that the recorder calls, over the reports of the fake device.
#include "tests/fakes/simt_cupti/simt_cupti.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tests/fakes/simt_cupti/fake_session.h"

namespace moetune::simt_cupti {
namespace {

Session& session() { return Session::instance(); }

/// The frame of each function.
template <typename Body>
CUptiResult call(const char* function, const Body& body) {
  const std::scoped_lock lock(session().mutex);
  const CUptiResult wanted = session().wanted_failure(function);
  return wanted == CUPTI_SUCCESS ? body() : wanted;
}

CUpti_SubscriberHandle const kHandle = reinterpret_cast<CUpti_SubscriberHandle>(0x10);

}  // namespace

void set_behaviour(const Behaviour& behaviour) {
  const std::scoped_lock lock(session().mutex);
  session().behaviour = behaviour;
}

void reset() {
  const std::scoped_lock lock(session().mutex);
  const int64_t num_out = session().counts.num_buffers_out;
  session().behaviour = {};
  session().counts = {};
  session().counts.num_buffers_out = num_out;
  session().num_untold_drops = 0;
}

Counts counts() {
  const std::scoped_lock lock(session().mutex);
  return session().counts;
}

}  // namespace moetune::simt_cupti

using namespace moetune::simt_cupti;

extern "C" {

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                              void* data, CUpti_SubscriberParams*) {
  return call("cuptiSubscribe_v2", [&] {
    if (session().callback != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    session().callback = function;
    session().callback_data = data;
    *subscriber = kHandle;
    Session::prepare_names();
    moetune::simt::set_observer(&session());
    return CUPTI_SUCCESS;
  });
}

// The device keeps its observer: calls may be on their way, and tracing goes on without subscriber.
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  return call("cuptiUnsubscribe", [&] {
    if (subscriber != kHandle || session().callback == nullptr) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    session().callback = nullptr;
    session().resource_callbacks.clear();
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  return call("cuptiEnableCallback", [&] {
    if (subscriber != kHandle || session().callback == nullptr) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) return CUPTI_SUCCESS;
    if (enable != 0) {
      session().resource_callbacks.insert(id);
    } else {
      session().resource_callbacks.erase(id);
    }
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  return call("cuptiActivityRegisterTimestampCallback", [&] {
    session().clock = function;
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  return call("cuptiActivityRegisterCallbacks", [&] {
    if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    session().request = request;
    session().complete = complete;
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return call("cuptiActivityEnable", [&] {
    if (session().request == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
    session().enabled.insert(kind);
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return call("cuptiActivityDisable", [&] {
    session().enabled.erase(kind);
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
  return call("cuptiActivityEnableDriverApi", [&] {
    if (enable != 0) {
      session().disabled_driver_calls.erase(id);
    } else {
      session().disabled_driver_calls.insert(id);
    }
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
  return call("cuptiActivityEnableRuntimeApi", [&] {
    if (enable != 0) {
      session().disabled_runtime_calls.erase(id);
    } else {
      session().disabled_runtime_calls.insert(id);
    }
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return call("cuptiActivitySetAttribute", [] { return CUPTI_SUCCESS; });
}

// The fake keeps no buffers on its device, whose memory is accounted for to the byte.
CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute, size_t* size, void* value) {
  return call("cuptiActivityGetAttribute", [&] {
    std::memset(value, 0, *size);
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   uint64_t id) {
  return call("cuptiActivityPushExternalCorrelationId", [&] {
    Session::external_ids()[kind].push_back(id);
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t* last) {
  return call("cuptiActivityPopExternalCorrelationId", [&] {
    std::vector<uint64_t>& ids = Session::external_ids()[kind];
    if (ids.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    if (last != nullptr) *last = ids.back();
    ids.pop_back();
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityFlushAll(uint32_t) {
  return call("cuptiActivityFlushAll", [] {
    session().flush();
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  return call("cuptiActivityGetNumDroppedRecords", [&] {
    *dropped = std::exchange(session().num_untold_drops, 0);
    return CUPTI_SUCCESS;
  });
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  return call("cuptiGetGraphNodeId", [&] {
    *id = session().id_of(node);
    return *id == 0 ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
  });
}

}  // extern "C"
