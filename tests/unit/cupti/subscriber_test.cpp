#include "cupti/observe/subscriber.h"

#include <cstdio>
#include <set>
#include <utility>

#include "cupti/driver/own_calls.h"
#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

/// A CUPTI that remembers what was asked of it.
struct FakeCupti {
  static inline CUptiResult subscribe_result = CUPTI_SUCCESS;
  static inline CUptiResult enable_result = CUPTI_SUCCESS;
  static inline CUpti_CallbackFunc callback = nullptr;
  static inline void* userdata = nullptr;
  static inline std::set<std::pair<int, CUpti_CallbackId>> enabled;
  static inline int subscriptions = 0;
  static inline CUpti_CallbackId newest = CUPTI_DRIVER_TRACE_CBID_SIZE - 1;  ///< that it knows

  static inline CUpti_CallbackId failing = 0;  ///< to be enabled: 0 none

  static CUptiResult subscribe_v2(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function,
                                  void* data, CUpti_SubscriberParams* params) {
    if (subscribe_result != CUPTI_SUCCESS) {
      snprintf(params->oldSubscriberName, params->oldSubscriberSize, "CUPTI for other");
      return subscribe_result;
    }
    return subscribe(handle, function, data);
  }
  static CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function,
                               void* data) {
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(uintptr_t{1});
    callback = function;
    userdata = data;
    ++subscriptions;
    return CUPTI_SUCCESS;
  }
  static CUptiResult unsubscribe(CUpti_SubscriberHandle) {
    --subscriptions;
    return CUPTI_SUCCESS;
  }
  static CUptiResult enable(uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                            CUpti_CallbackId cbid) {
    if (enable_result != CUPTI_SUCCESS) return enable_result;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid > newest) return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid == failing) return CUPTI_ERROR_UNKNOWN;
    if (on != 0) enabled.insert({domain, cbid});
    return CUPTI_SUCCESS;
  }

  static CuptiApi api(bool v2 = true) {
    subscribe_result = enable_result = CUPTI_SUCCESS;
    callback = nullptr;
    enabled.clear();
    subscriptions = 0;
    newest = CUPTI_DRIVER_TRACE_CBID_SIZE - 1;
    failing = 0;
    CuptiApi table;
    table.subscribe = subscribe;
    table.subscribe_v2 = v2 ? subscribe_v2 : nullptr;
    table.unsubscribe = unsubscribe;
    table.enable_callback = enable;
    return table;
  }
};

struct Receiver final : CallbackReceiver {
  void on_driver_call(const CallbackEntry& entry, const CUpti_CallbackData&) noexcept override {
    last = entry.cbid;
    ++calls;
  }
  void on_context_end(CUcontext) noexcept override { ++ended; }
  void on_cupti_failure(const CUpti_StateData&) noexcept override { ++failures; }
  CUpti_CallbackId last = 0;
  int calls = 0, ended = 0, failures = 0;
};

TEST_CASE("subscriber: every callback of the table is enabled by itself", "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  Receiver receiver;
  Subscriber subscriber;
  std::string holder;
  REQUIRE(subscriber.open(api, receiver, holder).ok());
  for (const CallbackEntry& entry : driver_callbacks())
    CHECK(FakeCupti::enabled.contains({CUPTI_CB_DOMAIN_DRIVER_API, entry.cbid}));
  CHECK(FakeCupti::enabled.contains(
      {CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING}));
  CHECK(FakeCupti::enabled.size() == driver_callbacks().size() + 2);
  CHECK(subscriber.sees_all());
  subscriber.close();
  CHECK(FakeCupti::subscriptions == 0);
}

TEST_CASE("subscriber: an older CUPTI is subscribed without a name", "[subscriber]") {
  const CuptiApi api = FakeCupti::api(false);
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  CHECK(subscriber.open(api, receiver, holder).ok());
  CHECK(FakeCupti::subscriptions == 1);
}

TEST_CASE("subscriber: whoever holds CUPTI is named", "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  FakeCupti::subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  const Status status = subscriber.open(api, receiver, holder);
  CHECK(status.code == StatusCode::kCuptiError);
  CHECK(status.detail == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(holder == "CUPTI for other");
  CHECK_FALSE(subscriber.close());
}

TEST_CASE("subscriber: a CUPTI of CUDA 12 is asked for what it does not know, and goes without",
          "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  FakeCupti::newest = 665;  // cuStreamWriteValue64_v2, CUDA 11.7
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  REQUIRE(subscriber.open(api, receiver, holder).ok());
  size_t known = 0;
  for (const CallbackEntry& entry : driver_callbacks()) known += entry.cbid <= FakeCupti::newest;
  CHECK(known > 100);
  CHECK(known < driver_callbacks().size());
  CHECK(FakeCupti::enabled.size() == known + 2);
  CHECK(subscriber.refused() == 0);
  CHECK_FALSE(subscriber.sees_all());
}

TEST_CASE(
    "subscriber: a CUPTI that knows another size of the parameters is subscribed without them",
    "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  FakeCupti::subscribe_result = CUPTI_ERROR_INVALID_PARAMETER;
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  CHECK(subscriber.open(api, receiver, holder).ok());
  CHECK(subscriber.close());
}

TEST_CASE("subscriber: one callback that fails does not cost the others, and is counted",
          "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  FakeCupti::failing = CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2;
  Receiver receiver;
  Subscriber subscriber;
  std::string holder;
  REQUIRE(subscriber.open(api, receiver, holder).ok());
  CHECK(subscriber.refused() == 1);
  CHECK_FALSE(subscriber.sees_all());
  CHECK(FakeCupti::subscriptions == 1);
  CHECK(FakeCupti::enabled.size() == driver_callbacks().size() + 1);
}

TEST_CASE("subscriber: an error of CUPTI ends the subscription", "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  FakeCupti::enable_result = CUPTI_ERROR_NOT_INITIALIZED;
  CHECK_FALSE(subscriber.open(api, receiver, holder).ok());
  CHECK_FALSE(subscriber.close());
  CHECK(FakeCupti::subscriptions == 0);
}

TEST_CASE("subscriber: a callback reaches the receiver with its entry, our own calls do not",
          "[subscriber]") {
  const CuptiApi api = FakeCupti::api();
  Receiver receiver;
  std::string holder;
  Subscriber subscriber;
  REQUIRE(subscriber.open(api, receiver, holder).ok());
  const auto deliver = [](CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
    FakeCupti::callback(FakeCupti::userdata, domain, cbid, data);
  };
  const CUpti_CallbackData call{};
  deliver(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &call);
  CHECK(receiver.calls == 1);
  CHECK(receiver.last == CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  deliver(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent, &call);
  deliver(CUPTI_CB_DOMAIN_NVTX, 1, &call);
  deliver(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, nullptr);
  CHECK(receiver.calls == 1);
  {
    const OwnCalls own;
    deliver(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &call);
  }
  CHECK(receiver.calls == 1);
  const CUpti_ResourceData resource{};
  deliver(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, &resource);
  CHECK(receiver.ended == 1);
  const CUpti_StateData state{};
  deliver(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &state);
  CHECK(receiver.failures == 1);
}

}  // namespace
}  // namespace convtrace::cupti
