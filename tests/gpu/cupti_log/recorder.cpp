/// libconvtrace_cupti_log.so: writes down what CUPTI calls; README.md says what and how.
///
/// The driver loads it as CUDA_INJECTION64_PATH. It changes nothing: callbacks copy, and the file
/// is written by the thread that is called.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "cupti/driver/api.h"
#include "cupti/observe/subscriber.h"
#include "tests/gpu/cupti_log/shapes.h"

namespace convtrace::cupti_log {
namespace {

using Json = nlohmann::ordered_json;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string hex(const void* data, size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

std::string hex(const void* handle) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", handle);
  return handle == nullptr ? "0x0" : text;
}

size_t item_count(const Pointee& pointee, const char* params) {
  size_t count = 1;
  if (pointee.count_bytes == 0) return count;
  count = 0;
  std::memcpy(&count, params + pointee.count_at, pointee.count_bytes);
  return count;
}

class Recorder final : public cupti::CallbackReceiver {
 public:
  bool open(const std::string& path) {
    file_ = std::fopen(path.c_str(), "w");
    cupti::DriverApi driver;
    int version = 0;
    std::string found;
    if (file_ == nullptr || !load_driver_api(driver).ok()) return false;
    (void)driver.driver_get_version(&version);
    if (!load_cupti_api(setting("CUPTI_LOG_CUPTI"), version, api_, found).ok()) return false;
    uint32_t cupti_version = 0;
    (void)api_.get_version(&cupti_version);
    const std::lock_guard lock(mutex_);  // the first line comes first
    std::string holder;
    if (!subscriber_.open(api_, *this, holder).ok()) return false;
    put({{"log", "cupti"},
         {"version", 1},
         {"driver", version},
         {"cupti", cupti_version},
         {"refused", subscriber_.refused()}});
    return true;
  }

  void close() {
    subscriber_.close();
    const std::lock_guard lock(mutex_);
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }

  void on_driver_call(const cupti::CallbackEntry& entry,
                      const CUpti_CallbackData& call) noexcept override {
    const std::lock_guard lock(mutex_);
    const bool exit = call.callbackSite == CUPTI_API_EXIT;
    if (!exit && call.correlationData != nullptr) *call.correlationData = ++pairs_;
    const bool tells = exit && call.functionReturnValue != nullptr;
    const int result = tells ? *static_cast<const int*>(call.functionReturnValue) : -1;
    Json line{{"call", call.functionName == nullptr ? "" : call.functionName},
              {"id", entry.cbid},
              {"site", exit ? "exit" : "enter"},
              {"thread", thread_number()},
              {"pair", call.correlationData == nullptr ? 0 : *call.correlationData},
              {"correlation", call.correlationId},
              {"context", hex(call.context)},
              {"uid", call.contextUid},
              {"device", device_of(call.context)}};
    if (call.symbolName != nullptr) line["symbol"] = call.symbolName;
    if (tells) line["result"] = result;
    if (const Shape* shape = find_shape(entry); shape != nullptr && call.functionParams != nullptr)
      put_params(line, *shape, static_cast<const char*>(call.functionParams), result == 0);
    put(line);
  }

  void on_context_end(CUcontext context) noexcept override {
    const std::lock_guard lock(mutex_);
    devices_.erase(context);
    put({{"context_end", hex(context)}});
  }

  void on_cupti_failure(const CUpti_StateData& state) noexcept override {
    const std::lock_guard lock(mutex_);
    const char* message = state.notification.message;
    put({{"failure", message == nullptr ? "" : message}});
  }

 private:
  int thread_number() {
    thread_local const int number = threads_++;
    return number;
  }

  int device_of(CUcontext context) {
    if (context == nullptr || api_.get_device_id == nullptr) return -1;
    const auto it = devices_.find(context);
    if (it != devices_.end()) return it->second;
    uint32_t device = 0;
    if (api_.get_device_id(context, &device) != CUPTI_SUCCESS) return -1;
    return devices_[context] = static_cast<int>(device);
  }

  static void put_params(Json& line, const Shape& shape, const char* params, bool succeeded) {
    line["params"] = hex(params, shape.bytes);
    for (const Pointee& pointee : shape.pointees) {
      const char* target = nullptr;
      std::memcpy(&target, params + pointee.at, sizeof target);
      if (target == nullptr || (!pointee.input && !succeeded)) continue;
      const std::string at = std::to_string(pointee.at);
      if (pointee.bytes == 0) {
        line["texts"][at] = target;
      } else {
        line["memory"][at] = hex(target, pointee.bytes * item_count(pointee, params));
      }
    }
  }

  void put(const Json& line) {
    if (file_ == nullptr) return;
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), file_);
  }

  std::recursive_mutex mutex_;  ///< a call may be made inside another one's callback
  FILE* file_ = nullptr;
  cupti::CuptiApi api_;
  cupti::Subscriber subscriber_;
  std::map<CUcontext, int> devices_;
  uint64_t pairs_ = 0;
  int threads_ = 0;
};

Recorder& recorder() {
  static auto* const instance = new Recorder;  // callbacks may come after static destructors
  return *instance;
}

}  // namespace
}  // namespace convtrace::cupti_log

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace convtrace::cupti_log;
  const std::string path = setting("CUPTI_LOG_OUT");
  if (path.empty()) return 1;
  std::atexit([] { recorder().close(); });
  recorder().open(path);
  return 1;
}
