#include "interposer/core/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cupti/driver/report.h"
#include "format/base/clock.h"
#include "format/base/log.h"
#include "interposer/core/control/empty_trace_reasons.h"
#include "interposer/core/control/process_facts.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/runtime/guarded.h"
#include "interposer/core/signal_trigger.h"
#include "interposer/core/writer/trace_opener.h"

namespace convtrace::engine {
namespace {

/// With this many, compression keeps up with a fast disk.
constexpr uint32_t kMostZipThreads = 4;
/// The longest wait at exit for values that are being compressed.
constexpr uint64_t kValuesAtExitNs = 1'000'000'000;

/// @return whether an event is a reason to create a trace.
bool begins_a_trace(const format::Event& event) {
  if (const auto* scope = std::get_if<format::Scope>(&event)) return scope->enter;
  if (const auto* alloc = std::get_if<format::Alloc>(&event))
    return alloc->device.type == format::Device::Type::kCuda;
  return std::holds_alternative<format::Step>(event) ||  // perhaps a step that was not asked for
         std::holds_alternative<format::Launch>(event) ||
         std::holds_alternative<format::TensorStats>(event) ||
         std::holds_alternative<format::Finding>(event);
}

/// Logs which memory poison and quarantine do not cover in a program that uses CUDA.
void say_uncovered_memory(const settings::Settings& settings) {
  if ((!settings.poison && !settings.quarantine) || settings.strict_alloc) return;
  log_line(messages::kCachedMemory,
           "CONVTRACE_POISON and CONVTRACE_QUARANTINE concern what the CUDA driver gives and "
           "takes. Blocks that a caching allocator cuts out of it are neither filled nor held: "
           "when it frees one, other streams may still read it. CONVTRACE_STRICT_ALLOC=1 runs "
           "frameworks without one");
}

template <typename Event>
Event memory_event(const MemoryReport& report, const cupti::MemoryRange& range, uint32_t step) {
  auto event = cupti::event_of<Event>(range, step);
  event.header.t_ns = report.t_ns;
  event.header.thread = report.thread;
  return event;
}

}  // namespace

Engine::Engine(EngineOptions options)
    : settings_(std::move(options.settings)),
      start_folder_(std::move(options.start_folder)),
      announced_(options.announced),
      cuda_callbacks_(std::move(options.cuda)),
      controls_(settings_, std::move(options.rules), options.rank, std::move(options.environment),
                definitions_, facts_),
      writer_(process_state(), queue_, wakeup_, *this),
      judge_(definitions_, controls_.rules()),
      values_({.memory_bytes = settings_.snapshot_memory,
               .threads = std::clamp(spare_threads(), 1u, kMostZipThreads),
               .when_full = settings_.snapshot_full},
              wakeup_, *this),
      port_({process_state(), *this, definitions_, addresses_, journal_, ops_, controls_.steps(),
             *this, controls_.captures(), values_, controls_.names(), &helpers_, settings_.poison}),
      nccl_({*this, definitions_, addresses_, journal_, controls_.captures(), controls_.names(),
             *this}) {
  if (settings_.stacks == settings::Stacks::kAll) journal_.take_all_stacks();
  (void)facts_.take_changed();  // they are part of the first META
}

void Engine::emit(const format::Event& event) noexcept {
  const EngineState state = process_state().get();
  if (state != EngineState::kActive && state != EngineState::kDraining) return;
  if (const auto* loss = std::get_if<format::Loss>(&event))
    return queue_.lose(loss->reason, loss->count);
  if (is_wanted(event)) {
    if (begins_a_trace(event)) begin_trace();
    writer_.resume();
    queue_.push(event);
  }
}

bool Engine::is_wanted(const format::Event& event) noexcept {
  const auto* const launch = std::get_if<format::Launch>(&event);
  return launch == nullptr || wants(launch->kernel);
}

bool Engine::wants(format::KernelId kernel) noexcept {
  return !controls_.names().active() ||
         contained("names", true, [&] { return controls_.names().wants(kernel); });
}

void Engine::report_memory(const void* pointer, int64_t bytes, uint64_t device) {
  const bool crowded = journal_.report(pointer, bytes, device);
  // Without a writer thread the calling thread makes room.
  if (crowded && (!begun_.load(std::memory_order_relaxed) || writer_.paused()))
    (void)journal_.apply_reports_if_free();
}

cupti::Interceptor* Engine::interceptor() noexcept {
  cupti::Interceptor* known = interceptor_.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  return contained("cuda", known, [this] { return make_interceptor(); });
}

cupti::Interceptor* Engine::make_interceptor() {
  const Lock lock(interceptor_mutex_);
  cupti::Interceptor* known = interceptor_.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  cupti::InterceptorOptions options = cuda_callbacks_;
  options.sink = this;
  options.definitions = &definitions_;
  options.addresses = &addresses_;
  options.rules = &controls_.rules();
  options.cupti_path = settings_.cupti;
  options.record_launches = settings_.mode >= settings::Mode::kLaunches;
  options.compute_values = settings_.mode >= settings::Mode::kHash;
  options.samples = settings_.samples;
  options.poison = settings_.poison;
  options.quarantine = settings_.quarantine;
  const bool kernels_store =
      std::ranges::any_of(controls_.rules().rules(), [](const settings::Rule* rule) {
        return rule->kernel && rule->capture == format::Capture::kSnapshot;
      });
  const bool stores =
      controls_.captures().may_store() || (kernels_store && settings_.ring.steps == 0);
  options.values = stores ? &values_ : nullptr;
  options.value_bytes = settings_.snapshot_memory / 2;
  known = new cupti::Interceptor(std::move(options));
  interceptor_.store(known, std::memory_order_release);
  return known;
}

cupti::Position Engine::position() const noexcept {
  cupti::Position position;
  if (const ThreadContext* context = this_thread()) {
    position.place = {format::StringId{context->scope.scope}, context->scope.call,
                      static_cast<format::Phase>(context->scope.phase)};
  }
  position.step = controls_.steps().step();
  position.capture = controls_.steps().capture();
  if (position.place.phase == format::Phase::kTuning) {  // belongs to no step
    position.step = format::kNoStep;
    position.capture = false;
  }
  return position;
}

bool Engine::apply_memory_reports(bool all) noexcept {
  return contained("memory", false, [&] {
    if (!all) return journal_.apply_reports_if_free();
    journal_.apply_reports();
    return true;
  });
}

/// Logs messages about patterns and rules, and records them.
void Engine::say(uint32_t step, const std::vector<Notice>& lines) {
  for (const Notice& line : lines) cupti::report(*this, step, line.message, line.text.c_str());
}

void Engine::report_matches() {
  say(format::kNoStep, controls_.report());
  for (const std::string& reason : controls_.reasons_for_nothing(has_context_.load()))
    cupti::report(*this, format::kNoStep, messages::kNothingToTrace, reason.c_str());
}

void Engine::follow_config() {
  const ControlChange change = controls_.poll(now_ns());
  say(controls_.steps().step(), change.lines);
  if (change.applied) rules_changed();
}

/// The program has reported its rank.
void Engine::follow_rank() {
  speak_as(settings_, controls_.rank());
  rank_told_.store(true);
  if (check_rank() && controls_.follow_rank()) rules_changed();
}

void Engine::rules_changed() noexcept {
  if (cupti::Interceptor* const cuda = interceptor_.load(std::memory_order_acquire))
    cuda->rules_changed();
}

OpenTrace Engine::open_trace() {
  auto file = std::make_shared<format::FileThread>(format::FileThread::Table::kPrivate);
  format::TraceMeta first;
  file->run([&] { first = meta(); });
  OpenTrace trace =
      create_trace(std::move(file), settings_, start_folder_, announced_, first, definitions_);
  if (trace.recorder != nullptr) install_signal_triggers(writer_, settings_.ring);
  return trace;
}

bool Engine::before_drain() {
  follow_config();
  journal_.apply_reports();
  cupti::Interceptor* const cuda = interceptor_.load(std::memory_order_acquire);
  if (cuda == nullptr) return false;
  const bool more = cuda->collect();
  for (auto& [name, value] : cuda->facts()) facts_.set(name, std::move(value));
  return more;
}

std::span<const format::Finding> Engine::judge(const format::Event& event) noexcept {
  return contained("judge", std::span<const format::Finding>(), [&] { return judge_.see(event); });
}

Status Engine::write_values(format::TraceWriter& writer, uint64_t max_bytes, bool last) {
  constexpr uint64_t kTurnNs = 5'000'000;
  if (!last) return values_.write(writer, max_bytes, kTurnNs);
  const uint64_t begin = now_ns();
  while (!values_.settle(kTurnNs) && now_ns() - begin < kValuesAtExitNs)
    CONVTRACE_TRY(values_.write(writer, max_bytes, kTurnNs));
  CONVTRACE_TRY(values_.write(writer, max_bytes, kValuesAtExitNs));
  const bool full = writer.bytes_written() >= max_bytes;
  values_.close(full ? format::LossReason::kDiskBudget : format::LossReason::kExitDeadline);
  return kOkStatus;
}

std::optional<format::TraceMeta> Engine::changed_meta(OpenTrace& trace) {
  bool changed = facts_.take_changed();
  if (rank_told_.exchange(false)) {
    const Rank rank = controls_.rank();
    process_meta_->rank = rank.rank;
    process_meta_->world_size = rank.world_size;
    named_ = false;
    changed = true;
  }
  // Tried again later if another rank still has the name, until it knows its own rank.
  if (!named_) named_ = rename_trace(trace, settings_, start_folder_, *process_meta_);
  if (!changed) return std::nullopt;
  return meta();
}

format::TraceMeta Engine::meta() {
  if (!process_meta_) {
    process_meta_ = process_meta(environ, settings_.environment);
    const Rank rank = controls_.rank();
    process_meta_->rank = rank.rank;
    process_meta_->world_size = rank.world_size;
  }
  format::TraceMeta meta = *process_meta_;
  for (auto& fact : facts_.all()) meta.facts.push_back(std::move(fact));
  std::sort(meta.facts.begin(), meta.facts.end());
  return meta;
}

format::SampleOutcome Engine::submit_to_device(std::span<cupti::DeviceRequest> batch,
                                               uint64_t stream, cupti::Results results) noexcept {
  cupti::Interceptor* const cuda = interceptor();
  if (cuda == nullptr) return format::SampleOutcome::kGpuWorkOff;
  return cuda->submit(batch, stream, cupti::Patience::kPreparation, results);
}

void Engine::fold_waiting() noexcept {
  if (cupti::Interceptor* const cuda = interceptor()) cuda->fold_waiting();
}

format::SampleOutcome Engine::submit_at_once(std::span<cupti::DeviceRequest> batch,
                                             uint64_t stream) noexcept {
  cupti::Interceptor* const cuda = interceptor();
  if (cuda == nullptr) return format::SampleOutcome::kGpuWorkOff;
  return cuda->submit(batch, stream, cupti::Patience::kNone);
}

void Engine::describe_kernel(uint64_t function, cupti::KernelSignature signature) noexcept {
  if (cupti::Interceptor* const cuda = interceptor())
    cuda->describe_kernel(function, std::move(signature));
}

std::optional<uint8_t> Engine::prepare_device(std::optional<uint8_t> device) noexcept {
  cupti::Interceptor* const cuda = interceptor();
  return cuda != nullptr ? cuda->prepare(controls_.steps().capture(), device) : std::nullopt;
}

CommRank Engine::job_rank() const noexcept {
  const Rank rank = controls_.rank();
  // A world size of 1 that no source has given means that it is unknown.
  const bool known = rank.counted && (rank.given || rank.world_size > 1);
  return {rank.rank, known ? rank.world_size : 0};
}

bool Engine::is_settled(const format::TensorStats& event, uint64_t stream) noexcept {
  cupti::Interceptor* const cuda = interceptor_.load(std::memory_order_acquire);
  return cuda == nullptr || cuda->is_settled(event, stream);
}

void Engine::expect_custom_ops() noexcept {
  if (settings_.stacks != settings::Stacks::kNone) ops_.expect();
}

void Engine::on_custom_op() noexcept {
  expect_custom_ops();
  begin_trace();
}

bool Engine::queue_value(const format::TensorStats& event, const stats::Layout& elements) noexcept {
  if (process_state().get() != EngineState::kActive) return false;
  begin_trace();
  writer_.resume();
  return queue_.push_value(event, elements);
}

void Engine::on_fact(std::string_view name, std::string_view value) {
  facts_.set(std::string(name), std::string(value));
  if (name == "custom_op_libraries") expect_custom_ops();
  if (controls_.learn_rank(name, value)) follow_rank();
}

void Engine::on_allocated(const MemoryReport& report, const cupti::MemoryRange& range,
                          std::span<void* const> stack) {
  const bool begins = range.device.type == format::Device::Type::kCuda;
  if (!begins && !begun_.load(std::memory_order_acquire)) return;
  auto event = memory_event<format::Alloc>(report, range, controls_.steps().step());
  if (settings_.stacks == settings::Stacks::kAll) event.stack = stacks_.intern(stack);
  emit(event);
}

void Engine::on_freed(const MemoryReport& report, const cupti::MemoryRange& range,
                      std::span<void* const> stack) {
  if (!begun_.load(std::memory_order_acquire)) return;
  auto event = memory_event<format::Free>(report, range, controls_.steps().step());
  if (!stack.empty()) event.stack = stacks_.intern(stack);
  emit(event);
}

void Engine::note_launch_stack() noexcept {
  (void)contained("stack", false, [this] {
    ops_.note_launch(definitions_.intern("launch"), controls_.steps().step());
    return true;
  });
}

void Engine::on_reports_lost(uint64_t count) noexcept {
  queue_.lose(format::LossReason::kQueueFull, count);
}

void Engine::begin_cpu_watch() noexcept {
  std::atomic<int>* const reports = cpu_reports();
  if (reports == nullptr) return end_cpu_watch("libconvtrace.so is not preloaded");
  if (settings_.cpu_alloc == settings::CpuAlloc::kOff) reports->store(0);
  if (reports->load() == 0) end_cpu_watch("CONVTRACE_CPU_ALLOC=off");
}

bool Engine::note_context() noexcept {
  if (has_context_.exchange(true)) return false;
  say_uncovered_memory(settings_);
  std::atomic<int>* const reports = cpu_reports();
  if (settings_.cpu_alloc == settings::CpuAlloc::kOn) journal_.show_cpu_blocks();
  if (reports == nullptr || settings_.cpu_alloc != settings::CpuAlloc::kAuto) return true;
  reports->store(0);
  end_cpu_watch("a CUDA context was made; CONVTRACE_CPU_ALLOC=on watches it all the same");
  return true;
}

void Engine::end_cpu_watch(const char* why) noexcept {
  journal_.stop_cpu();
  const bool poisoned = settings_.poison && has_context_.load();
  char text[160];
  snprintf(text, sizeof text, "memory of CPU tensors is not watched from here on: %s", why);
  cupti::report(*this, controls_.steps().step(),
                poisoned ? messages::kCpuUnpoisoned : messages::kCpuUnwatched, text);
}

}  // namespace convtrace::engine
