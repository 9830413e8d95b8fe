/// Hands a log of CUPTI's calls to subscriber, decoders and recorder, and prints the events that
/// come out.
///
/// usage: cupti_replay LOG [EVENTS]
///
/// With EVENTS: prints nothing if they are those of that file, else the first that differs. Exit
/// code: 0 done, 1 the events differ, 2 no log, or a damaged one.

#include <cupti.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cupti/observe/callback_observer.h"
#include "cupti/observe/subscriber.h"
#include "tests/gpu/cupti_log/shapes.h"
#include "tools/cli/base/record_json.h"

namespace convtrace::cupti_log {
namespace {

using Json = nlohmann::json;

/// The events of a log as lines, without what is the moment's.
class Lines final : public format::EventSink {
 public:
  explicit Lines(const format::Definitions& definitions) : definitions_(definitions) {}
  void emit(const format::Event& event) noexcept override {
    auto json = tools::event_json(event, definitions_, 0);
    for (const char* key : {"seq", "t_ns", "rank", "step", "thread"}) json.erase(key);
    lines.push_back(json.dump());
  }
  std::vector<std::string> lines;

 private:
  const format::Definitions& definitions_;
};

/// A CUPTI that calls what is in a log.
struct LoggedCupti {
  static inline CUpti_CallbackFunc callback = nullptr;
  static inline void* userdata = nullptr;
  static inline std::map<CUcontext, uint32_t> devices;

  static CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function,
                               void* data) {
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(uintptr_t{1});
    callback = function;
    userdata = data;
    return CUPTI_SUCCESS;
  }
  static CUptiResult unsubscribe(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }
  static CUptiResult enable(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                            CUpti_CallbackId) {
    return CUPTI_SUCCESS;
  }
  static CUptiResult device_of(CUcontext context, uint32_t* device) {
    const auto it = devices.find(context);
    if (it == devices.end()) return CUPTI_ERROR_INVALID_CONTEXT;
    *device = it->second;
    return CUPTI_SUCCESS;
  }
  static cupti::CuptiApi api() {
    cupti::CuptiApi table;
    table.subscribe = subscribe;
    table.unsubscribe = unsubscribe;
    table.enable_callback = enable;
    table.get_device_id = device_of;
    return table;
  }
};

/// Nobody asks it: what it is there for is that the driver counts as one of CUDA 12.4.
CUresult no_param_info(CUfunction, size_t, size_t*, size_t*) { return CUDA_ERROR_NOT_SUPPORTED; }

void* handle(const std::string& text) {
  return reinterpret_cast<void*>(std::stoull(text, nullptr, 16));
}

/// The parameters of a call and what they point to, for as long as its callback takes.
class Params {
 public:
  Params(const Json& line, const Shape& shape) {
    place_(line.value("params", ""), shape.bytes);
    if (line.contains("memory"))
      for (const auto& [at, bytes] : line.at("memory").items()) point(at, place_(bytes, 0));
    if (!line.contains("texts")) return;
    for (const auto& [at, text] : line.at("texts").items()) {
      texts_.push_back(std::make_unique<std::string>(text));
      point(at, texts_.back()->data());
    }
  }
  [[nodiscard]] const void* data() const { return blocks_.front().get(); }

 private:
  struct alignas(64) Block {
    char bytes[64];
  };

  /// Zeroes behind what is there, so that a structure that was shorter then is whole.
  void* place_(const std::string& hex, size_t least) {
    const size_t bytes = std::max(hex.size() / 2, least);
    blocks_.push_back(std::make_unique<Block[]>(bytes / sizeof(Block) + 1));
    auto* out = reinterpret_cast<char*>(blocks_.back().get());
    for (size_t i = 0; i < hex.size() / 2; ++i)
      out[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    if (blocks_.size() == 1) params_bytes_ = bytes;
    return out;
  }

  void point(const std::string& at, const void* target) {
    const size_t offset = std::stoull(at);
    if (offset + sizeof target > params_bytes_) throw std::runtime_error("a pointer outside");
    std::memcpy(reinterpret_cast<char*>(blocks_.front().get()) + offset, &target, sizeof target);
  }

  std::vector<std::unique_ptr<Block[]>> blocks_;
  std::vector<std::unique_ptr<std::string>> texts_;
  size_t params_bytes_ = 0;
};

class Replay {
 public:
  void line(const Json& line) {
    if (line.contains("call")) {
      call(line);
    } else if (line.contains("context_end")) {
      CUpti_ResourceData data{};
      data.context = static_cast<CUcontext>(handle(line.at("context_end")));
      deliver(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, &data);
    } else if (line.contains("failure")) {
      const std::string message = line.at("failure");
      CUpti_StateData data{};
      data.notification.message = message.c_str();
      deliver(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &data);
    } else {
      throw std::runtime_error("a line of no kind");
    }
  }

 private:
  static void deliver(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    LoggedCupti::callback(LoggedCupti::userdata, domain, id, data);
  }

  void call(const Json& line) {
    const CUpti_CallbackId id = line.at("id");
    const cupti::CallbackEntry* const entry = cupti::find_driver_callback(id);
    if (entry == nullptr) return;  // of a time when it was listened to
    const Shape* const shape = find_shape(*entry);
    if (shape == nullptr) throw std::runtime_error("a callback without a shape");
    const Params params(line, *shape);
    const std::string name = line.at("call"), symbol = line.value("symbol", "");
    int result = line.value("result", 0);
    const bool exit = line.at("site") == "exit";
    const uint64_t pair = line.at("pair");
    CUpti_CallbackData data{};
    data.callbackSite = exit ? CUPTI_API_EXIT : CUPTI_API_ENTER;
    data.functionName = name.c_str();
    data.functionParams = params.data();
    data.functionReturnValue = line.contains("result") ? &result : nullptr;
    data.symbolName = line.contains("symbol") ? symbol.c_str() : nullptr;
    data.context = static_cast<CUcontext>(handle(line.at("context")));
    data.contextUid = line.at("uid");
    data.correlationId = line.at("correlation");
    data.correlationData = pair == 0 ? nullptr : &kept_[pair];
    if (line.at("device") >= 0) LoggedCupti::devices[data.context] = line.at("device");
    deliver(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    if (exit) kept_.erase(pair);
  }

  std::map<uint64_t, uint64_t> kept_;  ///< what a subscriber keeps between the ends of a call
};

std::vector<std::string> replay(std::istream& log) {
  format::Definitions definitions;
  cupti::AddressMap addresses;
  settings::RuleBook rules(std::vector<settings::Rule>{});
  Lines sink(definitions);
  cupti::InterceptorOptions options;
  options.sink = &sink;
  options.definitions = &definitions;
  options.addresses = &addresses;
  options.rules = &rules;
  options.compute_values = false;
  cupti::DriverApi driver;
  driver.func_get_param_info = no_param_info;
  cupti::CudaState state(options, driver);
  cupti::Gate gate(state);
  const cupti::CuptiApi api = LoggedCupti::api();
  cupti::CallbackObserver observer(state, gate, api);
  cupti::Subscriber subscriber;
  std::string holder, text;
  if (!subscriber.open(api, observer, holder).ok()) throw std::runtime_error("no subscription");
  if (!std::getline(log, text) || Json::parse(text).value("log", "") != "cupti")
    throw std::runtime_error("no log");
  Replay replay;
  while (std::getline(log, text)) replay.line(Json::parse(text));
  subscriber.close();
  return sink.lines;
}

/// @return whether they are equal; prints the first that is not.
bool compare(const std::vector<std::string>& events, std::istream& expected) {
  std::string text;
  size_t i = 0;
  for (; std::getline(expected, text) && i < events.size(); ++i)
    if (events[i] != text) break;
  if (i == events.size() && !expected) return true;
  std::cout << "event " << i + 1 << ": expected " << (expected ? text : "no more") << "\n  got "
            << (i < events.size() ? events[i] : "no more") << '\n';
  return false;
}

}  // namespace
}  // namespace convtrace::cupti_log

int main(int argc, char** argv) try {
  using namespace convtrace::cupti_log;
  if (argc != 2 && argc != 3) throw std::runtime_error("usage: cupti_replay LOG [EVENTS]");
  std::ifstream log(argv[1]);
  const std::vector<std::string> events = replay(log);
  if (argc == 3) {
    std::ifstream expected(argv[2]);
    if (!expected) throw std::runtime_error("no events");
    return compare(events, expected) ? 0 : 1;
  }
  for (const std::string& event : events) std::cout << event << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "cupti_replay: " << error.what() << '\n';
  return 2;
}
