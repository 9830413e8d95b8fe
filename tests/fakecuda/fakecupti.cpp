/// @file fakecupti.cpp
/// libcupti.so.13 over the fake driver: one subscriber, callbacks enabled singly, the real
/// structures of cupti_callbacks.h.

#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/fakecuda/fakecupti.h"

struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback = nullptr;
  void* userdata = nullptr;
};

namespace {

using fakecuda::HookCall;

CUpti_Subscriber_st the_subscriber;
std::atomic<CUpti_CallbackFunc> the_callback{nullptr};
std::mutex the_mutex;
std::array<std::atomic<bool>, CUPTI_DRIVER_TRACE_CBID_SIZE> driver_enabled;
std::array<std::atomic<bool>, CUPTI_CBID_RESOURCE_SIZE> resource_enabled;

/// The newest callback that this CUPTI knows.
CUpti_CallbackId newest_cbid() {
  const char* newest = getenv("FAKECUDA_CUPTI_NEWEST_CBID");
  return newest == nullptr ? CUPTI_DRIVER_TRACE_CBID_SIZE - 1
                           : static_cast<CUpti_CallbackId>(atoi(newest));
}

/// @return a function of the fake libcuda, or null when the process has another one or none.
template <typename Function>
Function from_driver(const char* symbol) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, symbol));
}

uint64_t knob(const char* name) {
  const char* text = getenv(name);
  return text == nullptr ? 0 : strtoull(text, nullptr, 10);
}

/// @return whether CUPTI has ended, at the callback of that number. Another tool's cuptiFinalize is
/// silent, an error of CUPTI's own is told.
bool has_ended(CUpti_CallbackFunc callback) {
  static const uint64_t finalised_at = knob("FAKECUDA_CUPTI_FINALISED_AT");
  static const uint64_t fatal_at = knob("FAKECUDA_CUPTI_FATAL_AT");
  if (finalised_at == 0 && fatal_at == 0) return false;
  static std::atomic<uint64_t> callbacks{0};
  const uint64_t number = ++callbacks;
  if (number == fatal_at) {
    CUpti_StateData data{};
    data.notification.result = CUPTI_ERROR_UNKNOWN;
    data.notification.message = "knob";
    callback(the_subscriber.userdata, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &data);
  }
  return number >= (finalised_at != 0 ? finalised_at : fatal_at);
}

void deliver(const HookCall& call) {
  if (fakecuda::records_kernels()) fakecuda::record_kernel(call);
  const CUpti_CallbackFunc callback = the_callback.load(std::memory_order_acquire);
  if (callback == nullptr || has_ended(callback)) return;
  if (call.resource) {
    if (!resource_enabled[call.cbid].load()) return;
    CUpti_ResourceData data{};
    data.context = call.context;
    data.resourceDescriptor = call.descriptor;
    callback(the_subscriber.userdata, CUPTI_CB_DOMAIN_RESOURCE, call.cbid, &data);
    return;
  }
  if (!driver_enabled[call.cbid].load(std::memory_order_relaxed)) return;
  CUpti_CallbackData data{};
  data.callbackSite = static_cast<CUpti_ApiCallbackSite>(call.site);
  data.functionName = call.function;
  data.functionParams = call.params;
  data.functionReturnValue = call.site == CUPTI_API_EXIT ? call.result : nullptr;
  data.symbolName = call.symbol;
  data.context = call.context;
  data.contextUid = call.context_uid;
  data.correlationData = call.correlation;
  callback(the_subscriber.userdata, CUPTI_CB_DOMAIN_DRIVER_API, call.cbid, &data);
}

/// Nobody is subscribed any more.
void forget_subscriber() {
  the_callback.store(nullptr);
  for (auto& enabled : driver_enabled) enabled = false;
  for (auto& enabled : resource_enabled) enabled = false;
  fakecuda::follow_driver();
}

CUptiResult failure_knob() {
  const char* result = getenv("FAKECUDA_CUPTI_RESULT");
  return result == nullptr ? CUPTI_SUCCESS : static_cast<CUptiResult>(atoi(result));
}

}  // namespace

void fakecuda::follow_driver() {
  const bool wanted = the_callback.load() != nullptr || records_kernels();
  if (const auto set_hook = from_driver<SetHook>(kSetHookSymbol))
    set_hook(wanted ? &deliver : nullptr);
}

FAKECUPTI_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                               CUpti_CallbackFunc callback, void* userdata,
                                               CUpti_SubscriberParams* params) {
  if (params != nullptr && params->structSize != CUpti_SubscriberParams_STRUCT_SIZE)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (const CUptiResult fails = failure_knob(); fails != CUPTI_SUCCESS) return fails;
  const std::lock_guard lock(the_mutex);
  const char* holder = getenv("FAKECUDA_CUPTI_HOLDER");
  if (the_callback.load() != nullptr) holder = "CUPTI for another subscriber";
  if (holder != nullptr) {
    if (params != nullptr && params->oldSubscriberName != nullptr)
      snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", holder);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  if (from_driver<fakecuda::SetHook>(fakecuda::kSetHookSymbol) == nullptr)
    return CUPTI_ERROR_UNKNOWN;
  the_subscriber.userdata = userdata;
  the_callback.store(callback, std::memory_order_release);
  fakecuda::follow_driver();
  *subscriber = &the_subscriber;
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                                            CUpti_CallbackFunc callback, void* userdata) {
  return cuptiSubscribe_v2(subscriber, callback, userdata, nullptr);
}

FAKECUPTI_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(the_mutex);
  if (subscriber != &the_subscriber || the_callback.load() == nullptr)
    return CUPTI_ERROR_INVALID_PARAMETER;
  forget_subscriber();
  return CUPTI_SUCCESS;
}

/// All of CUPTI ends, whoever used it: "detaches the CUPTI from the running process". A subscriber
/// is not told.
FAKECUPTI_EXPORT CUptiResult cuptiFinalize() {
  const std::lock_guard lock(the_mutex);
  fakecuda::end_activity();
  forget_subscriber();
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                                 CUpti_CallbackDomain domain,
                                                 CUpti_CallbackId cbid) {
  if (subscriber != &the_subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid > 0 && cbid <= newest_cbid()) {
    driver_enabled[cbid] = enable != 0;
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid > 0 && cbid < resource_enabled.size()) {
    resource_enabled[cbid] = enable != 0;
  } else if (domain != CUPTI_CB_DOMAIN_STATE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* device) {
  const auto device_of = from_driver<fakecuda::DeviceOf>(fakecuda::kDeviceOfSymbol);
  const int found = device_of == nullptr ? -1 : device_of(context);
  if (found < 0) return CUPTI_ERROR_INVALID_CONTEXT;
  *device = static_cast<uint32_t>(found);
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  switch (result) {
    case CUPTI_SUCCESS: *text = "CUPTI_SUCCESS"; break;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      break;
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED";
      break;
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"; break;
    default: *text = "CUPTI_ERROR_UNKNOWN"; break;
  }
  return CUPTI_SUCCESS;
}
