#include "interposer/core/engine.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cupti/driver/report.h"
#include "format/base/log.h"
#include "format/file/file_sink.h"
#include "interposer/core/control/empty_trace_reasons.h"
#include "interposer/core/control/process_facts.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/runtime/clock.h"
#include "interposer/core/runtime/guarded.h"
#include "interposer/core/signal_trigger.h"

namespace convtrace::engine {
namespace {

/// Compressing keeps up with a fast disk with so many.
constexpr uint32_t kMostZipThreads = 4;
/// At exit, for values that are still being compressed.
constexpr uint64_t kValuesAtExitNs = 1'000'000'000;
constexpr uint64_t kDefaultMaxBytes = uint64_t{20} << 30;

/// Whether an event is a reason for a trace to exist.
bool begins_a_trace(const format::Event& event) {
  if (const auto* scope = std::get_if<format::Scope>(&event)) return scope->enter;
  if (const auto* alloc = std::get_if<format::Alloc>(&event)) {
    return alloc->device.type == format::Device::Type::kCuda;
  }
  return std::holds_alternative<format::Step>(event) ||  // it may be none of those asked for
         std::holds_alternative<format::Launch>(event) ||
         std::holds_alternative<format::TensorStats>(event) ||
         std::holds_alternative<format::Finding>(event);
}

uint64_t byte_limit(uint64_t asked, const std::string& path) {
  if (asked != 0) return asked;
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) return kDefaultMaxBytes;
  return std::min(kDefaultMaxBytes, uint64_t{disk.f_bavail} * disk.f_frsize / 2);
}

/// Settings are checked before an engine exists.
std::vector<settings::Pattern> patterns(const std::string& list) {
  auto compiled = settings::compile_patterns(list);
  return compiled.ok() ? std::move(compiled).value() : std::vector<settings::Pattern>();
}

template <typename Event>
Event memory_event(const MemoryReport& report, const cupti::MemoryRange& range, uint32_t step) {
  Event event;
  event.header = {.seq = 0, .t_ns = report.t_ns, .step = step, .thread = report.thread};
  event.address = range.base;
  event.bytes = range.bytes;
  event.generation = range.generation;
  event.source = range.source;
  event.device = range.device;
  event.stream = range.stream;
  return event;
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      rules_(rules_of_rank(options_.rules, options_.rank)),
      writer_(process_state(), queue_, wakeup_, *this),
      judge_(definitions_, rules_),
      steps_(options_.settings.mode, options_.settings.steps),
      names_(patterns(options_.settings.include), patterns(options_.settings.exclude),
             definitions_),
      captures_(settings::mode_without_rule(options_.settings), rules_, definitions_,
                options_.settings.ring.steps == 0, options_.settings.samples),
      values_({.memory_bytes = options_.settings.snapshot_memory,
               .threads = std::clamp(spare_threads(), 1u, kMostZipThreads),
               .when_full = options_.settings.snapshot_full},
              wakeup_, *this),
      port_({process_state(), *this, definitions_, addresses_, journal_, ops_, steps_, *this,
             captures_, values_, names_, &helpers_, options_.settings.poison}),
      config_(options_.settings, std::move(options_.environment)),
      rank_(options_.rank) {
  if (options_.settings.stacks == settings::Stacks::kAll) {
    journal_.take_stacks();
    journal_.take_free_stacks();
  }
  tell_controls(options_.settings);
  (void)facts_.take_changed();  // the first META has them
}

void Engine::emit(const format::Event& event) noexcept {
  const EngineState state = process_state().get();
  if (state != EngineState::kActive && state != EngineState::kDraining) return;
  if (const auto* loss = std::get_if<format::Loss>(&event)) {
    return queue_.lose(loss->reason, loss->count);
  }
  if (is_wanted(event)) {
    if (!begun_.load(std::memory_order_acquire) && begins_a_trace(event)) begin_trace();
    queue_.push(event);
  }
}

bool Engine::is_wanted(const format::Event& event) noexcept {
  const auto* const launch = std::get_if<format::Launch>(&event);
  return launch == nullptr || wants(launch->kernel);
}

bool Engine::wants(format::KernelId kernel) noexcept {
  return !names_.active() || contained("names", true, [&] { return names_.wants(kernel); });
}

void Engine::begin_trace() noexcept {
  if (begun_.exchange(true)) return;
  mark_explained();
  if (!contained("rank", true, [this] { return check_rank(); })) return;
  if (!writer_.start()) {
    process_state().disable("no thread");
    log_line(format::Level::kError, "trace",
             "cannot start a thread; this process is not traced, the program continues");
  }
}

bool Engine::check_rank() {
  if (is_rank_wanted("CONVTRACE_RANKS", options_.settings.ranks, rank_.get())) return true;
  process_state().disable(kUnwantedRank);
  return false;
}

void Engine::report_memory(const void* pointer, int64_t bytes, uint64_t device) {
  journal_.report(pointer, bytes, device);
  // Before there is a writer thread somebody has to make room.
  if (MemoryJournal::crowded() && !begun_.load(std::memory_order_relaxed)) {
    (void)journal_.settle_if_free();
  }
}

cupti::Interceptor* Engine::interceptor() noexcept {
  cupti::Interceptor* known = interceptor_.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  return contained("cuda", known, [this] { return make_interceptor(); });
}

cupti::Interceptor* Engine::make_interceptor() {
  const std::lock_guard lock(interceptor_mutex_);
  cupti::Interceptor* known = interceptor_.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  cupti::InterceptorOptions options;
  options.sink = this;
  options.definitions = &definitions_;
  options.addresses = &addresses_;
  options.position = &current_position;
  options.settle_memory = &settle_reported_memory;
  options.wants_kernel = &is_kernel_wanted;
  options.note_context = &engine::note_context;
  options.rules = &rules_;
  options.cupti_path = options_.settings.cupti;
  options.record_launches = options_.settings.mode >= settings::Mode::kLaunches;
  options.compute_values = options_.settings.mode >= settings::Mode::kHash;
  options.samples = options_.settings.samples;
  const bool all_stacks = options_.settings.stacks == settings::Stacks::kAll;
  options.note_launch = all_stacks ? &engine::note_launch_stack : nullptr;
  options.poison = options_.settings.poison;
  options.quarantine = options_.settings.quarantine;
  const bool kernels_store = std::ranges::any_of(rules_.rules(), [](const settings::Rule* rule) {
    return rule->kernel && rule->capture == format::Capture::kSnapshot;
  });
  const bool stores = captures_.may_store() || (kernels_store && options_.settings.ring.steps == 0);
  options.values = stores ? &values_ : nullptr;
  options.value_bytes = options_.settings.snapshot_memory / 2;
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
  position.step = steps_.step();
  position.capture = steps_.capture();
  return position;
}

bool Engine::settle_memory(bool all) noexcept {
  return contained("memory", false, [&] {
    if (!all) return journal_.settle_if_free();
    journal_.settle();
    return true;
  });
}

void Engine::finish(uint64_t deadline_ns) {
  const uint64_t begin = now_ns();
  if (cupti::Interceptor* cuda = interceptor_.load()) cuda->stop(deadline_ns / 2);
  if (!writer_.started()) return;
  report_matches();
  journal_.settle();
  const uint64_t spent = now_ns() - begin;
  if (spent < deadline_ns && writer_.finish(deadline_ns - spent)) return;
  log_line(format::Level::kWarning, "trace",
           "the disk was too slow at exit; the end of the trace is missing");
}

void Engine::say_matches(uint32_t step, const std::vector<settings::MatchLine>& lines,
                         bool good_only) {
  for (const settings::MatchLine& line : lines) {
    if (!line.matched && good_only) continue;
    cupti::report(*this, step, line.matched ? format::Level::kInfo : format::Level::kWarning,
                  "settings", line.text.c_str());
  }
}

void Engine::report_matches() {
  say_matches(format::kNoStep, names_.report(), false);
  say_matches(format::kNoStep, rules_.report(), false);
  std::vector<std::string> reasons = empty_trace_reasons(steps_.seen(), has_context_.load());
  {
    const std::lock_guard lock(all_rules_mutex_);
    for (std::string& line : rules_of_no_rank(options_.rules, rank_.get()))
      reasons.push_back(std::move(line));
  }
  for (const std::string& reason : reasons)
    cupti::report(*this, format::kNoStep, format::Level::kWarning, "settings", reason.c_str());
}

OpenTrace Engine::open_trace() {
  const OutputFacts facts{.host = host_name(),
                          .pid = static_cast<uint32_t>(getpid()),
                          .rank = rank_.get().rank,
                          .start_folder = options_.start_folder};
  const std::string path = expand_output(options_.settings.output, facts);
  std::string why;
  Result<OutputFile> file = open_output(path, options_.settings.overwrite, facts, why);
  if (!file.ok()) {
    process_state().disable("no output file");
    log_line(format::Level::kError, "output",
             "%s; this process is not traced, the program continues", why.c_str());
    return {};
  }
  const OutputFile& output = file.value();
  if (!output.notice.empty()) {
    log_line(format::Level::kWarning, "output", "%s", output.notice.c_str());
  }
  auto writer = format::TraceWriter::create(std::make_unique<format::FileSink>(output.fd), meta(),
                                            definitions_);
  if (!writer.ok()) {
    process_state().disable("the trace cannot be written");
    log_line(format::Level::kError, "output",
             "%s cannot be written: %s; this process is not traced, the program continues",
             output.path.c_str(), to_string(writer.status().code));
    return {};
  }
  if (options_.announced) {
    announce("tracing to %s", output.path.c_str());
  } else {
    log_line(format::Level::kInfo, "output", "tracing to %s", output.path.c_str());
  }
  OpenTrace trace{
      .writer = std::move(writer).value(),
      .path = output.path,
      .max_bytes = byte_limit(options_.settings.max_bytes, output.path),
      .recorder = nullptr,
      .all_values = options_.settings.mode == settings::Mode::kSnapshot && options_.settings.all,
      .announced = options_.announced};
  if (const settings::Ring& ring = options_.settings.ring; ring.steps != 0) {
    trace.recorder =
        std::make_unique<FlightRecorder>(ring, FlightRecorder::kMaxBytes, options_.settings.spike);
    install_signal_triggers(writer_, ring);
  }
  return trace;
}

/// What was wanted decides what can be compared with another trace.
void Engine::tell_controls(const settings::Settings& wanted) {
  for (const settings::SettingSpec& spec : settings::setting_table())
    facts_.set("setting." + std::string(spec.name), spec.print(wanted));
  std::string rules;
  for (const settings::Rule* rule : rules_.rules())
    rules += (rules.empty() ? "" : "; ") + settings::print(*rule);
  if (!rules.empty() || reloads_ > 0) facts_.set("setting.rules", std::move(rules));
}

void Engine::follow_config() {
  std::optional<ConfigChange> change = config_.poll(now_ns());
  if (!change) return;
  say_matches(steps_.step(), change->lines, false);
  if (change->applies) apply(*std::move(change));
}

void Engine::apply(ConfigChange change) {
  const settings::Settings& wanted = change.settings;
  steps_.want(wanted.mode, wanted.steps);
  // Of the rules and patterns that go. What they did not match may have been yet to come.
  say_matches(steps_.step(), rules_.report(), true);
  say_matches(steps_.step(), names_.report(), true);
  names_.replace(patterns(wanted.include), patterns(wanted.exclude));
  captures_.set_mode(settings::mode_without_rule(wanted));
  {
    const std::lock_guard lock(all_rules_mutex_);
    options_.rules = std::move(change.rules);
  }
  take_rules_of_rank();
  tell_controls(wanted);
  facts_.set("setting.reloads", std::to_string(++reloads_));
}

void Engine::take_rules_of_rank() {
  const std::lock_guard lock(all_rules_mutex_);
  rules_.replace(rules_of_rank(options_.rules, rank_.get()));
  if (cupti::Interceptor* const cuda = interceptor_.load(std::memory_order_acquire))
    cuda->rules_changed();
}

void Engine::follow_rank() {
  speak_as(options_.settings, rank_.get());
  if (!check_rank()) return;
  const bool any_of_ranks = [this] {
    const std::lock_guard lock(all_rules_mutex_);
    return std::ranges::any_of(options_.rules, [](const settings::Rule& rule) {
      return rule.ranks.ranks_text() != settings::StepSet().ranks_text();
    });
  }();
  if (any_of_ranks) take_rules_of_rank();
}

bool Engine::before_drain() {
  follow_config();
  journal_.settle();
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
  while (!values_.settle(kTurnNs) && now_ns() - begin < kValuesAtExitNs) {
    CONVTRACE_TRY(values_.write(writer, max_bytes, kTurnNs));
  }
  CONVTRACE_TRY(values_.write(writer, max_bytes, kValuesAtExitNs));
  const bool full = writer.bytes_written() >= max_bytes;
  values_.close(full ? format::LossReason::kDiskBudget : format::LossReason::kExitDeadline);
  return kOkStatus;
}

std::optional<format::TraceMeta> Engine::changed_meta() {
  if (!facts_.take_changed()) return std::nullopt;
  return meta();
}

format::TraceMeta Engine::meta() {
  if (!process_meta_) {
    process_meta_ = process_meta(environ);
    const Rank rank = rank_.get();
    process_meta_->rank = rank.rank;
    process_meta_->world_size = rank.world_size;
  }
  format::TraceMeta meta = *process_meta_;
  for (auto& fact : facts_.all()) meta.facts.push_back(std::move(fact));
  std::sort(meta.facts.begin(), meta.facts.end());
  return meta;
}

format::NotSampled Engine::submit_to_device(std::span<cupti::DeviceRequest> batch,
                                            uint64_t stream) noexcept {
  cupti::Interceptor* const cuda = interceptor();
  return cuda != nullptr ? cuda->submit(batch, stream) : format::NotSampled::kGpuWorkOff;
}

bool Engine::is_settled(const format::TensorStats& event, uint64_t stream) noexcept {
  cupti::Interceptor* const cuda = interceptor_.load(std::memory_order_acquire);
  return cuda == nullptr || cuda->is_settled(event, stream);
}

void Engine::expect_custom_ops() noexcept {
  if (options_.settings.stacks != settings::Stacks::kNone) journal_.take_stacks();
}

void Engine::on_custom_op() noexcept {
  expect_custom_ops();
  if (!begun_.load(std::memory_order_acquire)) begin_trace();
}

void Engine::on_fact(std::string_view name, std::string_view value) {
  facts_.set(std::string(name), std::string(value));
  if (name == "custom_op_libraries") expect_custom_ops();
  if (rank_.learn(name, value)) follow_rank();
}

void Engine::on_allocated(const MemoryReport& report, const cupti::MemoryRange& range,
                          std::span<void* const> stack) {
  const bool begins = range.device.type == format::Device::Type::kCuda;
  if (!begins && !begun_.load(std::memory_order_acquire)) return;
  auto event = memory_event<format::Alloc>(report, range, steps_.step());
  if (options_.settings.stacks == settings::Stacks::kAll) event.stack = stacks_.intern(stack);
  emit(event);
}

void Engine::on_freed(const MemoryReport& report, const cupti::MemoryRange& range,
                      std::span<void* const> stack) {
  if (!begun_.load(std::memory_order_acquire)) return;
  auto event = memory_event<format::Free>(report, range, steps_.step());
  if (!stack.empty()) event.stack = stacks_.intern(stack);
  emit(event);
}

void Engine::note_launch_stack() noexcept {
  (void)contained("stack", false, [this] {
    ops_.note_launch(definitions_.intern("launch"), steps_.step());
    return true;
  });
}

void Engine::on_reports_lost(uint64_t count) noexcept {
  queue_.lose(format::LossReason::kQueueFull, count);
}

void Engine::begin_cpu_watch() noexcept {
  std::atomic<int>* const reports = cpu_reports();
  if (reports == nullptr) return end_cpu_watch("libconvtrace.so is not preloaded");
  if (options_.settings.cpu_alloc == settings::CpuAlloc::kOff) reports->store(0);
  if (reports->load() == 0) end_cpu_watch("CONVTRACE_CPU_ALLOC=off");
}

void Engine::note_context() noexcept {
  if (has_context_.exchange(true)) return;
  end_before_driver();
  say_uncovered_memory(options_.settings);
  std::atomic<int>* const reports = cpu_reports();
  if (reports == nullptr || options_.settings.cpu_alloc != settings::CpuAlloc::kAuto) return;
  reports->store(0);
  end_cpu_watch("a CUDA context was made; CONVTRACE_CPU_ALLOC=on watches it all the same");
}

void Engine::end_cpu_watch(const char* why) noexcept {
  journal_.stop_cpu();
  const bool poisoned = options_.settings.poison && has_context_.load();
  char message[160];
  snprintf(message, sizeof message, "memory of CPU tensors is not watched from here on: %s", why);
  cupti::report(*this, steps_.step(), poisoned ? format::Level::kWarning : format::Level::kInfo,
                format::kCpuMemorySite, message);
}

}  // namespace convtrace::engine
