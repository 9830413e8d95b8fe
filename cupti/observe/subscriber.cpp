#include "cupti/observe/subscriber.h"

#include "cupti/driver/own_calls.h"

namespace convtrace::cupti {
void Subscriber::callback(void* receiver, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                          const void* data) noexcept {
  if (OwnCalls::active() || receiver == nullptr || data == nullptr) return;
  auto& to = *static_cast<CallbackReceiver*>(receiver);
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      if (const CallbackEntry* entry = find_driver_callback(cbid))
        to.on_driver_call(*entry, *static_cast<const CUpti_CallbackData*>(data));
      break;
    case CUPTI_CB_DOMAIN_RESOURCE:
      if (cbid == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING)
        to.on_context_end(static_cast<const CUpti_ResourceData*>(data)->context);
      break;
    case CUPTI_CB_DOMAIN_STATE:
      if (cbid == CUPTI_CBID_STATE_FATAL_ERROR)
        to.on_cupti_failure(*static_cast<const CUpti_StateData*>(data));
      break;
    default: break;
  }
}

CUptiResult Subscriber::subscribe(CUpti_SubscriberHandle& handle, CallbackReceiver& receiver,
                                  std::string& holder) const {
  if (api_->subscribe_v2 == nullptr) return api_->subscribe(&handle, &callback, &receiver);
  char old_name[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "convtrace";
  params.oldSubscriberName = old_name;
  params.oldSubscriberSize = sizeof old_name;
  CUptiResult result = api_->subscribe_v2(&handle, &callback, &receiver, &params);
  // This CUPTI has another size of the structure. Only the name of the holder is lost by that.
  if (result == CUPTI_ERROR_INVALID_PARAMETER)
    result = api_->subscribe(&handle, &callback, &receiver);
  old_name[sizeof old_name - 1] = 0;
  holder = old_name;
  return result;
}

Status Subscriber::enable_all(CUpti_SubscriberHandle handle) {
  CUptiResult last = CUPTI_SUCCESS;
  uint32_t enabled = 0;
  refused_ = 0;
  sees_all_ = true;
  const auto enable = [&](CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
    const CUptiResult result = api_->enable_callback(1, handle, domain, cbid);
    if (result == CUPTI_SUCCESS) {
      ++enabled;
      return;
    }
    sees_all_ = false;
    if (result == CUPTI_ERROR_INVALID_PARAMETER) return;  // older than the function
    ++refused_;
    last = result;
  };
  for (const CallbackEntry& entry : driver_callbacks())
    enable(CUPTI_CB_DOMAIN_DRIVER_API, entry.cbid);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  // Only reports that CUPTI has failed; does not exist before CUPTI 12.
  (void)api_->enable_callback(1, handle, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  if (enabled > 0) return kOkStatus;
  return Status::make(StatusCode::kCuptiError, "cuptiEnableCallback", last);
}

Status Subscriber::open(const CuptiApi& api, CallbackReceiver& receiver, std::string& holder) {
  api_ = &api;
  CUpti_SubscriberHandle handle = nullptr;
  const CUptiResult result = subscribe(handle, receiver, holder);
  if (result != CUPTI_SUCCESS)
    return Status::make(StatusCode::kCuptiError, "cuptiSubscribe", result);
  handle_.store(handle);
  const Status enabled = enable_all(handle);
  if (!enabled.ok()) close();
  return enabled;
}

bool Subscriber::close() noexcept {
  CUpti_SubscriberHandle const handle = handle_.exchange(nullptr);
  if (handle != nullptr) (void)api_->unsubscribe(handle);
  return handle != nullptr;
}

}  // namespace convtrace::cupti
