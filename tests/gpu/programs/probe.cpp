/// libconvtrace_gpu_probe.so: what the driver and CUPTI do, recorded without the rest of convtrace.
///
/// CUDA_INJECTION64_PATH names it; the driver loads it and calls InitializeInjection. Settings:
///   GPU_PROBE_OUT    file for one JSON object, written at exit
///   GPU_PROBE_CUPTI  path of the libcupti to use
///   GPU_PROBE_SET    which callbacks: none (no subscription), subscribed (no callback), launch
///   (cuLaunchKernel alone), list (as many as convtrace enables),
///                    driver (the whole driver domain), all (runtime too)
///   GPU_PROBE_RETURNS  what InitializeInjection returns, 1 if not set
/// The object: times of InitializeInjection (CLOCK_MONOTONIC), whether the driver loaded this
/// library so that all see its symbols, result of the subscription, callbacks by domain and name;
/// with `all` also the launches by the kernel name that CUPTI gives, and `nested`: the driver's
/// calls that came inside each call of the runtime.

#include <cupti.h>
#include <dlfcn.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Cupti {
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiEnableCallback) enable = nullptr;
  decltype(&cuptiGetCallbackName) name = nullptr;

  bool load() {
    std::string path = setting("GPU_PROBE_CUPTI");
    void* library = nullptr;
    for (const char* candidate : {path.c_str(), "libcupti.so.13", "libcupti.so.12"})
      if (library == nullptr && *candidate != 0) library = dlopen(candidate, RTLD_NOW);
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    };
    find(subscribe, "cuptiSubscribe");
    find(enable, "cuptiEnableCallback");
    find(name, "cuptiGetCallbackName");
    return subscribe != nullptr && enable != nullptr;
  }
};

constexpr size_t kMaxCbid = 2048;
enum Side : size_t { kDriver, kRuntime, kSideCount };

struct Probe {
  std::mutex mutex;  // guards the vectors and maps; the counters are free of it
  std::vector<int64_t> initialized_at;
  int subscribe_result = -1;
  Cupti cupti;
  std::array<std::array<std::atomic<uint64_t>, kMaxCbid>, kSideCount> counts{};
  std::map<std::string, uint64_t> kernels;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> nested;  // (runtime's, driver's) -> calls
  bool with_names = false;                                   // set before the first callback
  void write();

 private:
  [[nodiscard]] std::string name_of(CUpti_CallbackDomain domain, uint32_t cbid) const {
    const char* name = nullptr;
    if (cupti.name != nullptr) cupti.name(domain, cbid, &name);
    return std::to_string(cbid) + " " + (name == nullptr ? "" : name);
  }
};

Probe& probe() {
  static Probe* const instance = new Probe;  // callbacks may come after static destructors
  return *instance;
}

void note_kernel(const CUpti_CallbackData& data) {
  const std::lock_guard lock(probe().mutex);
  ++probe().kernels[data.symbolName == nullptr ? "(none)" : data.symbolName];
}

thread_local uint32_t in_runtime = 0;  ///< the runtime's call that this thread is in

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                          const void* raw) {
  const auto* data = static_cast<const CUpti_CallbackData*>(raw);
  const Side side = domain == CUPTI_CB_DOMAIN_DRIVER_API ? kDriver : kRuntime;
  if (side == kRuntime) in_runtime = data->callbackSite == CUPTI_API_ENTER ? cbid : 0;
  if (data->callbackSite != CUPTI_API_ENTER || cbid >= kMaxCbid) return;
  probe().counts[side][cbid].fetch_add(1, std::memory_order_relaxed);
  if (probe().with_names && side == kDriver && in_runtime != 0) {
    const std::lock_guard lock(probe().mutex);
    ++probe().nested[{in_runtime, cbid}];
  }
  if (probe().with_names && side == kDriver && cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel)
    note_kernel(*data);
}

void subscribe(const std::string& set) {
  Probe& p = probe();
  if (set == "none" || !p.cupti.load()) return;
  CUpti_SubscriberHandle handle = nullptr;
  p.subscribe_result = p.cupti.subscribe(&handle, on_callback, nullptr);
  if (p.subscribe_result != CUPTI_SUCCESS) return;
  const auto enable = [&](CUpti_CallbackDomain domain, uint32_t first, uint32_t end) {
    // One by one: an id that this library does not know is refused, and that is fine.
    for (uint32_t cbid = first; cbid < end; ++cbid) (void)p.cupti.enable(1, handle, domain, cbid);
  };
  constexpr uint32_t kLaunch = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
  if (set == "launch") enable(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch, kLaunch + 1);
  // The calls of a range of ids that hold most of what convtrace listens to.
  if (set == "list") {
    enable(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch, kLaunch + 1);
    enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync,
           CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync + 60);
  }
  if (set == "driver" || set == "all")
    enable(CUPTI_CB_DOMAIN_DRIVER_API, 1, CUPTI_DRIVER_TRACE_CBID_SIZE);
  p.with_names = set == "all";
  if (set == "all") enable(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_RUNTIME_TRACE_CBID_SIZE);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= ' ') result += c;
  }
  return result + "\"";
}

void write_map(FILE* file, const char* name, const std::map<std::string, uint64_t>& map) {
  std::fprintf(file, ", \"%s\": {", name);
  const char* comma = "";
  for (const auto& [key, count] : map) {
    std::fprintf(file, "%s%s: %lu", comma, quoted(key).c_str(), count);
    comma = ", ";
  }
  std::fprintf(file, "}");
}

void Probe::write() {
  const std::lock_guard lock(mutex);
  FILE* file = std::fopen(setting("GPU_PROBE_OUT").c_str(), "w");
  if (file == nullptr) return;
  // Not RTLD_DEFAULT: that begins with what this library itself sees.
  const bool global = dlsym(dlopen(nullptr, RTLD_NOW), "InitializeInjection") != nullptr;
  std::fprintf(file, "{\"subscribe_result\": %d, \"global\": %s, \"initialized_at_ns\": [",
               subscribe_result, global ? "true" : "false");
  for (size_t i = 0; i < initialized_at.size(); ++i)
    std::fprintf(file, "%s%ld", i == 0 ? "" : ", ", initialized_at[i]);
  std::fprintf(file, "]");
  constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API,
                                               CUPTI_CB_DOMAIN_RUNTIME_API};
  constexpr const char* kNames[] = {"driver", "runtime"};
  for (size_t side = 0; side < kSideCount; ++side) {
    std::map<std::string, uint64_t> named;
    for (size_t cbid = 0; cbid < kMaxCbid; ++cbid) {
      const uint64_t count = counts[side][cbid];
      if (count == 0) continue;
      named[name_of(kDomains[side], static_cast<uint32_t>(cbid))] = count;
    }
    write_map(file, kNames[side], named);
  }
  write_map(file, "kernels", kernels);
  std::map<std::string, uint64_t> named;
  for (const auto& [pair, count] : nested)
    named[name_of(CUPTI_CB_DOMAIN_RUNTIME_API, pair.first) + " > " +
          name_of(CUPTI_CB_DOMAIN_DRIVER_API, pair.second)] = count;
  write_map(file, "nested", named);
  std::fprintf(file, "}\n");
  std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  Probe& p = probe();
  bool first = false;
  {
    const std::lock_guard lock(p.mutex);
    first = p.initialized_at.empty();
    p.initialized_at.push_back(now_ns());
  }
  if (first) {
    std::atexit([] { probe().write(); });
    subscribe(setting("GPU_PROBE_SET"));
  }
  const std::string returns = setting("GPU_PROBE_RETURNS");
  return returns.empty() ? 1 : std::atoi(returns.c_str());
}
