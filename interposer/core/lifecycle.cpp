#include "interposer/core/lifecycle.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <string_view>

#include "cupti/abi/hooks_v1.h"
#include "format/base/log.h"
#include "format/base/mutex.h"
#include "format/settings/controls.h"
#include "interposer/core/control/empty_trace_reasons.h"
#include "interposer/core/engine.h"
#include "interposer/core/runtime/guarded.h"

namespace convtrace::engine {
namespace {

constexpr uint64_t kExitDeadlineNs = 2'000'000'000;
constexpr const char* kForked = "forked from a traced process";

std::atomic<Engine*> g_engine{nullptr};
std::atomic<pid_t> g_pid{0};
constinit Mutex g_arming;
bool g_handlers_installed = false;
/// Shared with all processes that are forked below this one, so that one of them says it for all.
/// Null, without memory for it: nothing is said.
std::atomic<bool>* g_fork_said = nullptr;
std::atomic<bool> g_ended{false};

/// False in a child made by clone() or vfork(), which run no fork handler.
bool is_our_process() noexcept { return g_pid.load() == getpid(); }

/// The child has one thread, no writer, and locks in unknown states, so it leaks everything it
/// inherited.
void after_fork_in_child() {
  new (&g_arming) Mutex;
  const Engine* const inherited = g_engine.exchange(nullptr);
  if (process_state().get() != EngineState::kActive) return;
  if (inherited != nullptr && inherited->bound_to_process()) {
    process_state().disable(kForked);
    return;
  }
  reset_threads_after_fork();
  new (&process_state()) State;
}

void share_fork_flag() noexcept {
  if (g_fork_said != nullptr) return;  // a child that is traced on its own: that of its parent
  void* const page = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) g_fork_said = new (page) std::atomic<bool>(false);
}

/// The longest that a fork waits for the writer thread.
constexpr uint64_t kForkWaitNs = 100'000'000;

/// Runs on the thread that forks.
void before_fork() noexcept {
  if (!is_our_process()) return;
  const RecursionGuard guard;
  Engine* const engine = g_engine.load();
  if (guard && engine != nullptr) engine->pause_threads(kForkWaitNs);
}

/// @param status  exit status of the program, if known.
void end(std::optional<int> status) noexcept {
  if (!is_our_process() || g_ended.load()) return;
  const RecursionGuard guard;
  Engine* const engine = g_engine.load();
  if (engine == nullptr) return;
  // Also if tracing is over already: the writer thread may still be logging or closing the trace.
  process_state().begin_draining();
  contained("exit", false, [=] {
    engine->finish(kExitDeadlineNs, status);
    return true;
  });
  process_state().disable("the process has ended");
  g_ended.store(true);
}

void end_with_status(int status, void*) noexcept { end(status); }

/// quick_exit() passes no status to its handlers.
void install_exit_handlers() noexcept {
  on_exit(end_with_status, nullptr);
  at_quick_exit(end_tracing);
}

void install_handlers() noexcept {
  if (g_handlers_installed) return;
  g_handlers_installed = true;
  pthread_atfork(before_fork, nullptr, after_fork_in_child);
  install_exit_handlers();
}

/// @return null if the file cannot be written. Never destroyed: lines may come after all else.
GuardedFile* open_log(std::string path) {
  // A pipe without a reader is refused, and a full one loses the line.
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  return fd >= 0 ? new GuardedFile(fd, std::move(path), false) : nullptr;
}

/// @param folder  for a relative file name.
void set_up_log(const settings::Settings& settings, const Rank& rank, const std::string& folder) {
  const bool asked = !settings.log_file.empty();
  GuardedFile* const file = asked ? open_log(below(folder, settings.log_file)) : nullptr;
  configure_log(settings.log, rank.rank, file);
  speak_as(settings, rank);
  if (asked && file == nullptr) {
    log_line(messages::kNoLogFile, "CONVTRACE_LOG_FILE %s cannot be written",
             settings.log_file.c_str());
  }
}

/// Logs problems of the settings. @return whether there were any; then the host runs untraced.
bool say_problems(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems)
    log_line(messages::kBadSetting, "%s", problem.c_str());
  if (!problems.empty())
    log_line(messages::kNotTraced, "this process is not traced, the program continues");
  return !problems.empty();
}

/// Reports a setting of a settings file that came too late, because the preload library had decided
/// it at process start from the environment. @return whether it came too late.
bool comes_too_late(const char* variable, const char* key) {
  const char* const asked = getenv(variable);
  if (asked != nullptr && std::string_view(asked) == "1") return false;
  log_line(messages::kTooLate,
           "%s of a settings file comes too late: start with `convtrace run`, or set %s=1 in the "
           "environment",
           key, variable);
  return true;
}

bool is_set(const char* symbol) {
  const auto* const flag = static_cast<const int*>(dlsym(RTLD_DEFAULT, symbol));
  return flag != nullptr && *flag != 0;
}

/// Logs settings that cannot be followed. For GPUs that happens when there is a driver.
void say_refusals(const settings::Settings& settings) {
  if (settings.poison && !comes_too_late("CONVTRACE_POISON", "poison") &&
      (settings.cpu_alloc == settings::CpuAlloc::kOff || cpu_reports() == nullptr)) {
    log_line(messages::kNoPoison,
             "CONVTRACE_POISON does not fill memory of CPU tensors here: their allocator is not "
             "observed (CONVTRACE_CPU_ALLOC=on does that)");
  }
  if (settings.quarantine && !comes_too_late("CONVTRACE_QUARANTINE", "quarantine") &&
      !is_set(CONVTRACE_QUARANTINE_SYMBOL)) {
    log_line(messages::kNoQuarantine,
             "CONVTRACE_QUARANTINE does not hold memory of CPU tensors here: this process's memory "
             "is limited (ulimit, vm.overcommit_memory), so that an allocation could fail for it");
  }
  if (settings.strict_alloc && getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr)
    (void)comes_too_late("CONVTRACE_STRICT_ALLOC", "strict_alloc");
}

/// The folder in which the program was started; it may have changed its folder before importing
/// torch.
std::string start_folder() {
  const auto* const noted =
      static_cast<const char*>(dlsym(RTLD_DEFAULT, CONVTRACE_START_FOLDER_SYMBOL));
  if (noted != nullptr && *noted != '\0') return noted;
  char folder[4096];
  return getcwd(folder, sizeof folder) != nullptr ? folder : ".";
}

/// Copied at the start: reading the real environment later would race with the program's setenv.
std::vector<std::string> settings_of_environment(const std::string& folder) {
  constexpr std::string_view kConfig = "CONVTRACE_CONFIG=";
  std::vector<std::string> entries;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kConfig) && text.size() > kConfig.size()) {
      entries.push_back(std::string(kConfig) + below(folder, text.substr(kConfig.size())));
    } else if (text.starts_with("CONVTRACE")) {
      entries.emplace_back(text);
    }
  }
  return entries;
}

settings::LoadedControls load_controls(const std::vector<std::string>& environment) {
  std::vector<const char*> entries;
  for (const std::string& entry : environment) entries.push_back(entry.c_str());
  entries.push_back(nullptr);
  return settings::load_controls(entries.data());
}

const char* get_env(const char* name) { return getenv(name); }

/// Called when the program has created its first context. Registers the exit handlers again, so that
/// tracing ends before the driver does: exit handlers run in reverse order of registration, and the
/// driver registers its own in cuInit.
void note_context() noexcept {
  Engine* const engine = running_engine();
  if (engine == nullptr || !engine->note_context()) return;
  install_exit_handlers();
}

/// The calls of cupti/ find the engine here, since a fork child must not reach its parent's.
void set_callbacks(cupti::InterceptorOptions& options, const settings::Settings& settings) {
  options.position = []() noexcept {
    const Engine* const engine = running_engine();
    return engine != nullptr ? engine->position() : cupti::Position{};
  };
  options.apply_memory_reports = [](bool all) noexcept {
    Engine* const engine = running_engine();
    return engine != nullptr && engine->apply_memory_reports(all);
  };
  options.wants_kernel = [](format::KernelId kernel) noexcept {
    Engine* const engine = running_engine();
    return engine == nullptr || engine->wants(kernel);
  };
  options.note_context = &note_context;
  if (settings.stacks != settings::Stacks::kAll) return;
  options.note_launch = []() noexcept {
    if (Engine* const engine = running_engine()) engine->note_launch_stack();
  };
}

/// @return why this process is not traced, or null when it is.
const char* arm() {
  const std::string folder = start_folder();
  std::vector<std::string> environment = settings_of_environment(folder);
  settings::LoadedControls loaded = load_controls(environment);
  EngineOptions options{.settings = std::move(loaded.settings),
                        .rules = std::move(loaded.rules),
                        .rank = rank_from_environment(get_env),
                        .start_folder = folder,
                        .environment = std::move(environment),
                        .announced = getenv(settings::kAnnounceName.data()) != nullptr};
  const settings::Settings& settings = options.settings;
  set_up_log(settings, options.rank, folder);
  if (!settings.enabled || settings.mode == settings::Mode::kOff) return "switched off";
  if (say_problems(loaded.problems)) return "a setting is wrong";
  // A rank that no launcher gave may come from the program later: Engine::begin_trace().
  const Rank& rank = options.rank;
  if (rank.given && !is_rank_wanted("CONVTRACE_RANKS", settings.ranks, rank)) return kUnwantedRank;
  for (const std::string& warning : loaded.warnings)
    log_line(messages::kIdleSetting, "%s", warning.c_str());
  say_refusals(settings);
  set_callbacks(options.cuda, settings);
  share_fork_flag();
  g_pid.store(getpid());
  g_engine.store(new Engine(std::move(options)));
  install_handlers();
  return publish_hooks() ? nullptr : "another copy of the engine is loaded";
}

/// Logs, once for a program, why a fork child that would be traced on its own is not.
void say_forked() {
  if (process_state().reason() != kForked) return;
  if (g_fork_said == nullptr || g_fork_said->exchange(true)) return;
  log_line(
      messages::kForked,
      "this process was forked from one that is being traced; it is not traced itself, nor are "
      "others like it. Start training processes with spawn, or fork before the first "
      "forward");
}

}  // namespace

void end_tracing() noexcept { end(std::nullopt); }

Engine* start_engine() noexcept {
  const auto always = [](const State&) { return true; };
  return guarded_if("start", static_cast<Engine*>(nullptr), always, [] {
    const Lock lock(g_arming);
    State& state = process_state();
    if (state.begin_arming()) {
      const char* const why_not = arm();
      if (why_not == nullptr) {
        state.activate();
        g_engine.load()->begin_cpu_watch();
      } else {
        state.disable(why_not);
        mark_explained();
      }
    }
    say_forked();
    return state.active() ? g_engine.load() : nullptr;
  });
}

Engine* running_engine() noexcept { return g_engine.load(std::memory_order_acquire); }

}  // namespace convtrace::engine
