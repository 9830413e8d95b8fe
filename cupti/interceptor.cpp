#include "cupti/interceptor.h"

#include <cupti.h>
#include <time.h>

#include <bit>
#include <new>
#include <set>

#include "cupti/driver/mutation.h"
#include "cupti/driver/own_calls.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/gate/gate.h"
#include "cupti/gate/graph_replay.h"
#include "cupti/gate/launch_capture.h"
#include "cupti/memory_gate.h"
#include "cupti/observe/callback_observer.h"
#include "cupti/observe/subscriber.h"
#include "format/base/clock.h"
#include "format/base/log.h"

namespace convtrace::cupti {
namespace {

constexpr uint64_t kPreparationNs = 1'000'000'000;

std::string version_text(int version, int per_major, int per_minor) {
  return std::to_string(version / per_major) + "." +
         std::to_string(version % per_major / per_minor);
}

/// From 13 on CUPTI's version is that of its toolkit, with 10000 for a major version; before it was
/// a number of its own.
std::string cupti_version_text(uint32_t version) {
  return version >= 100'000 ? version_text(static_cast<int>(version), 10'000, 100)
                            : "API " + std::to_string(version);
}

constexpr const char* kWithoutCupti = "; driver allocations are not recorded, launches still are";

/// @param found  see load_cupti_api.
std::string explain_missing_cupti(const Status& status, const std::string& found) {
  if (status.code == StatusCode::kUnavailable)
    return found + " is too old: set CONVTRACE_CUPTI to the path of a newer one";
  return found + " is not found or cannot be loaded: set CONVTRACE_CUPTI to the path of one";
}

/// The message for a failed subscription, with its meaning for the user.
Notice explain(const CuptiApi& cupti, const Status& status, const std::string& holder) {
  if (status.detail == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    return {messages::kCuptiTaken, "CUPTI is taken by " +
                                       (holder.empty() ? "another tool (not named)" : holder) +
                                       kWithoutCupti + "; end that tool to see both"};
  }
  const char* reason = nullptr;
  cupti.get_result_string(static_cast<CUptiResult>(status.detail), &reason);
  return {messages::kNoCupti, std::string("CUPTI refuses (") +
                                  (reason == nullptr ? "unknown reason" : reason) + ")" +
                                  kWithoutCupti};
}

/// @return the time for DeviceRequest::moment. Memory that the host or another process can write
/// has none. All callbacks are needed, among them those that report the end of a context.
uint64_t moment_of(const CudaState& state, const DeviceRequest& request) {
  using Source = format::MemorySource;
  if (!state.ends_are_told.load() || Gate::cupti_is_silent() || state.options.poison) return 0;
  const auto range = state.options.addresses->find(std::bit_cast<uint64_t>(request.view.data));
  if (!range || range->freed || range->device.type != format::Device::Type::kCuda) return 0;
  const bool shared = range->source == Source::kHost || range->source == Source::kForeign ||
                      range->source == Source::kMulticast;
  return shared ? 0 : state.work.now();
}

/// @param context is current.
format::SampleOutcome submit_in(CudaState& state, CUcontext context, std::span<DeviceRequest> batch,
                                CUstream stream, Patience patience, Results results) {
  const format::SampleOutcome outcome = can_launch(state, context, stream);
  if (outcome != format::SampleOutcome::kSampled && !MUTATION(observer_does_not_ask))
    return outcome;
  // A call of the observer is no launch of the program: waiting here once keeps step 0 complete.
  const OwnCalls own;
  for (DeviceRequest& request : batch) {
    request.moment = moment_of(state, request);
    request.read =
        state.uses.begin_read({std::bit_cast<uint64_t>(stream), request.event.device.index},
                              request.event.value.generation);
  }
  if (patience == Patience::kNone) state.stats.prepare(context);
  const uint64_t wait_ns = patience == Patience::kNone ? 0 : kPreparationNs;
  // Who looks for writes past an end may find the program's last ones. With several streams a launch
  // behind the values would order these, and other streams' results would wait with them.
  if (state.options.poison || state.uses.several()) results = Results::kSoon;
  const format::SampleOutcome done = state.stats.submit(context, batch, stream, wait_ns, results);
  for (const DeviceRequest& request : batch)
    if (done != format::SampleOutcome::kSampled) (void)state.uses.end_read(request.read);
  return done;
}

/// Folds the waiting values of the current context only: a launch in another context may wait for work
/// that this thread is to enqueue. Where no launch is allowed, the values continue to wait.
void fold_current(CudaState& state) noexcept {
  try {
    CUcontext const context = state.current_context().context;
    if (context == nullptr || !state.stats.has_waiting(context) ||
        can_launch(state, context, nullptr) != format::SampleOutcome::kSampled)
      return;
    const OwnCalls own;
    state.stats.fold_waiting(context);
  } catch (...) {  // no memory
  }
}

}  // namespace

struct Interceptor::Impl {
  Impl(const InterceptorOptions& options, const DriverApi& driver)
      : state(options, driver), gate(state), observer(state, gate, cupti) {}

  void subscribe();
  void learn_facts();
  void learn_device(uint8_t device);
  void report_launch_counts();

  CudaState state;
  Gate gate;
  CuptiApi cupti;
  CallbackObserver observer;
  Subscriber subscriber;

  mutable Mutex facts_mutex;
  std::vector<std::pair<std::string, std::string>> facts CONVTRACE_GUARDED_BY(facts_mutex);
  std::set<uint8_t> known_devices;
};

void Interceptor::Impl::subscribe() {
  int driver_version = 0;
  (void)state.driver.driver_get_version(&driver_version);
  std::string found;
  Status status = load_cupti_api(state.options.cupti_path, driver_version, cupti, found);
  if (!status.ok()) {
    state.cupti_trouble = {messages::kNoCupti,
                           explain_missing_cupti(status, found) + kWithoutCupti};
    return;
  }
  uint32_t version = 0;
  {
    const Lock lock(facts_mutex);
    if (cupti.get_version(&version) == CUPTI_SUCCESS)
      facts.emplace_back("version.cupti", cupti_version_text(version));
    facts.emplace_back("path.cupti", found);
  }
  std::string holder;
  status = subscriber.open(cupti, observer, holder);
  if (!status.ok()) {
    state.cupti_trouble = explain(cupti, status, holder);
    return;
  }
  gate.expect_callbacks(true);
  if (!subscriber.sees_all()) state.work.stop();  // a copy may be among what is not seen
  if (subscriber.refused() == 0) return;
  // A refused callback may be the one that reports a handle's reuse.
  state.functions.follow_unloads(false);
  state.follow_context_ends(false);
  char text[160];
  snprintf(text, sizeof text,
           "CUPTI refuses %u callbacks: allocations, copies, or launches outside the gate may be "
           "missing",
           subscriber.refused());
  report(state, messages::kCuptiRefuses, text);
}

/// Asks the driver about devices that were used for the first time. Runs on the writer thread, so
/// that no call of the program waits for it.
void Interceptor::Impl::learn_facts() {
  for (const uint8_t device : state.contexts.devices())
    if (known_devices.insert(device).second) learn_device(device);
}

void Interceptor::Impl::learn_device(uint8_t device) {
  const OwnCalls own;
  const DriverApi& driver = state.driver;
  const std::string prefix = "device." + std::to_string(device) + ".";
  int version = 0;
  char name[128] = {};
  int major = 0;
  int minor = 0;
  const bool has_version = driver.driver_get_version(&version) == CUDA_SUCCESS;
  const bool has_name = driver.device_get_name(name, sizeof name - 1, device) == CUDA_SUCCESS;
  const bool has_capability =
      driver.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ==
          CUDA_SUCCESS &&
      driver.device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) ==
          CUDA_SUCCESS;
  if (has_capability && state.options.compute_values && DeviceStats::compiles_for(major, minor)) {
    char text[160];
    snprintf(
        text, sizeof text,
        "there is no machine code for compute capability %d.%d: values on device %u begin when "
        "the driver has compiled the kernels, after about 20 s",
        major, minor, unsigned{device});
    report(state, messages::kCompiling, text);
  }
  const Lock lock(facts_mutex);
  if (has_version && known_devices.size() == 1)
    facts.emplace_back("version.driver", version_text(version, 1000, 10));
  if (has_name) facts.emplace_back(prefix + "name", name);
  if (has_capability)
    facts.emplace_back(prefix + "capability", std::to_string(major) + "." + std::to_string(minor));
}

/// Reports launches of which gate and CUPTI saw different ones.
void Interceptor::Impl::report_launch_counts() {
  const auto say = [this](uint64_t count, const char* what) {
    char text[160];
    snprintf(text, sizeof text, "%llu launches %s", static_cast<unsigned long long>(count), what);
    if (count > 0) report(state, messages::kLaunchesUnlike, text);
  };
  say(gate.disagreements(), "that passed the gate were not reported alike by CUPTI");
  say(observer.launches_outside_gate(), "were seen by CUPTI alone: they have no values");
}

Interceptor::Interceptor(InterceptorOptions options) {
  DriverApi driver;
  const Status status = load_driver_api(driver);
  if (status.code == StatusCode::kNotFound) return;  // a program without CUDA
  if (!status.ok()) {
    log_line(messages::kOldDriver,
             "the CUDA driver has no %s; GPU work is not traced; update the driver", status.site);
    return;
  }
  impl_ = std::make_unique<Impl>(options, driver);
  impl_->subscribe();
  if ((options.poison || options.quarantine) && !impl_->state.quarantine.possible())
    report(impl_->state, messages::kNoGpuQuarantine,
           "the CUDA driver lacks what CONVTRACE_POISON and CONVTRACE_QUARANTINE need: memory of "
           "GPUs is neither filled nor held");
}

Interceptor::~Interceptor() { stop(0); }

int Interceptor::launch(convtrace_launch_call call, bool per_thread, const void* params,
                        convtrace_launch_fn real) noexcept {
  const auto go = [&] { return real(params); };
  if (impl_ == nullptr) return go();
  switch (call) {
    case CONVTRACE_LAUNCH_KERNEL:
      return impl_->gate.around(decode_cuLaunchKernel(params), per_thread, go);
    case CONVTRACE_LAUNCH_KERNEL_EX:
      return impl_->gate.around(decode_cuLaunchKernelEx(params), per_thread, go);
    case CONVTRACE_LAUNCH_COOPERATIVE:
      return impl_->gate.around(decode_cuLaunchCooperativeKernel(params), per_thread, go);
    case CONVTRACE_LAUNCH_GRAPH:
      return impl_->gate.around(decode_cuGraphLaunch(params), per_thread, go);
    case CONVTRACE_LAUNCH_MULTI_DEVICE: break;
    default: return go();
  }
  const size_t count = count_cuLaunchCooperativeKernelMultiDevice(params);
  const std::unique_ptr<LaunchInfo[]> launches(new (std::nothrow) LaunchInfo[count]);
  if (launches == nullptr) return go();
  for (size_t i = 0; i < count; ++i)
    launches[i] = decode_cuLaunchCooperativeKernelMultiDevice(params, i);
  return impl_->gate.around_each({launches.get(), count}, go);
}

void Interceptor::graph_call(convtrace_graph_call call, void* exec, void* object,
                             const void* params) noexcept {
  if (impl_ == nullptr || !impl_->state.active.load(std::memory_order_acquire)) return;
  try {
    take_graph_call(impl_->state, call, static_cast<CUgraphExec>(exec), object, params);
  } catch (...) {  // no memory: the graph's kernels stay unknown
  }
}

int Interceptor::free_memory(convtrace_cuMemFree_fn real, uint64_t address) noexcept {
  if (impl_ == nullptr || address == 0) return real(address);
  return free_or_keep(impl_->state, impl_->observer, real, address);
}

int Interceptor::memory_call(convtrace_memory_call call, uint64_t address, uint64_t bytes,
                             void* stream) noexcept {
  if (impl_ == nullptr || !impl_->state.active.load(std::memory_order_acquire)) return 0;
  try {
    return keep(impl_->state, call, address, bytes, static_cast<CUstream>(stream));
  } catch (...) {  // no memory: unknown memory is left alone
    return 0;
  }
}

bool Interceptor::give_back() noexcept {
  return impl_ != nullptr && impl_->state.quarantine.give_back();
}

void Interceptor::give_cupti_away() noexcept {
  if (impl_ == nullptr || !impl_->subscriber.is_open()) return;
  impl_->gate.expect_callbacks(false);  // before calls are unseen
  if (!impl_->subscriber.close()) return;
  report(impl_->state, messages::kCuptiTaken,
         "another tool takes CUPTI (torch.profiler does), and gets it: allocations and launches "
         "outside the gate are no longer seen");
}

format::SampleOutcome Interceptor::submit(std::span<DeviceRequest> batch, uint64_t stream,
                                          Patience patience, Results results) noexcept {
  if (impl_ == nullptr || !impl_->state.active.load(std::memory_order_acquire))
    return format::SampleOutcome::kGpuWorkOff;
  CudaState& state = impl_->state;
  const auto on = std::bit_cast<CUstream>(stream);
  try {
    const CurrentContext current = state.current_context();
    const uint8_t device = batch.empty() ? current.device : batch.front().event.device.index;
    if (current.context != nullptr && current.device == device)
      return submit_in(state, current.context, batch, on, patience, results);
    // In a model over several devices the tensor's device need not be the current one, and "the
    // default stream" is another stream on each device.
    CUcontext const context = state.contexts.only_context_of(device);
    if (context == nullptr) return format::SampleOutcome::kWrongStream;
    if (MUTATION(context_not_current))
      return submit_in(state, context, batch, on, patience, results);
    const ContextScope scope(state.driver, context);
    if (scope.result() != CUDA_SUCCESS) return format::SampleOutcome::kWrongStream;
    return submit_in(state, context, batch, on, patience, results);
  } catch (...) {  // no memory to note a new context
    return format::SampleOutcome::kNotReady;
  }
}

void Interceptor::fold_waiting() noexcept {
  if (impl_ != nullptr && impl_->state.active.load(std::memory_order_acquire))
    fold_current(impl_->state);
}

std::optional<uint8_t> Interceptor::prepare(bool values, std::optional<uint8_t> device) noexcept {
  if (impl_ == nullptr || !impl_->state.active.load(std::memory_order_acquire)) return std::nullopt;
  CudaState& state = impl_->state;
  try {
    const CurrentContext current = state.current_context();
    CUcontext context = current.context;
    if (device && (context == nullptr || *device != current.device))
      context = state.contexts.only_context_of(*device);
    if (context == nullptr) return std::nullopt;
    if (values && state.options.compute_values) state.stats.prepare(context);
    return device.value_or(current.device);
  } catch (...) {  // no memory to note a new context
    return std::nullopt;
  }
}

bool Interceptor::is_settled(const format::TensorStats& event, uint64_t stream) noexcept {
  if (impl_ == nullptr) return true;
  try {
    StreamUses& uses = impl_->state.uses;
    if (event.device.type != format::Device::Type::kCuda)
      return uses.is_settled_on_host(event.value.generation);
    return uses.is_settled({stream, event.device.index}, event.value.generation);
  } catch (...) {  // no memory
    return false;
  }
}

bool Interceptor::collect() noexcept {
  if (impl_ == nullptr) return false;
  uint64_t room = kMaxCollected;
  try {
    const OwnCalls own;
    impl_->state.stats.collect(room);
    impl_->learn_facts();
  } catch (...) {  // no memory: results stay in the ring until the next call
  }
  return room == 0;
}

std::vector<std::pair<std::string, std::string>> Interceptor::facts() const {
  if (impl_ == nullptr) return {};
  const Lock lock(impl_->facts_mutex);
  return impl_->facts;
}

void Interceptor::describe_kernel(uint64_t function, KernelSignature signature) noexcept {
  try {
    if (impl_ != nullptr)
      impl_->state.functions.describe(std::bit_cast<CUfunction>(function),
                                      std::make_shared<KernelSignature>(std::move(signature)));
  } catch (const std::exception&) {  // no memory: its parameters have no names
  }
}

void Interceptor::rules_changed() noexcept {
  try {
    if (impl_ != nullptr) impl_->state.functions.match_again();
  } catch (const std::exception&) {  // no memory: old kernels keep the old rules
  }
}

void Interceptor::stop(uint64_t deadline_ns) noexcept {
  if (impl_ == nullptr || !impl_->state.active.exchange(false)) return;
  CudaState& state = impl_->state;
  impl_->subscriber.close();
  const uint64_t start = now_ns();
  fold_current(state);
  const OwnCalls own;
  state.stats.lose_waiting();
  state.stats.stop(deadline_ns);
  // The thread behind the sink needs time, too: at most 75 MB/s, which empties a full ring in 0.15
  // s.
  constexpr uint64_t kAtOnce = 32;
  constexpr timespec kPause{0, 1'000'000};
  uint64_t room = kAtOnce;
  uint64_t under_way = state.stats.collect(room);
  while (under_way > 0 && now_ns() - start < deadline_ns) {
    nanosleep(&kPause, nullptr);
    room = kAtOnce;
    under_way = state.stats.collect(room);
  }
  if (under_way > 0) {
    format::Loss loss;
    loss.reason = format::LossReason::kExitDeadline;
    loss.count = under_way;
    state.options.sink->emit(loss);
  }
  state.stats.let_go_of_borrowed();
  impl_->report_launch_counts();
}

}  // namespace convtrace::cupti
