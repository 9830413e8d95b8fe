// A program that trains nothing but says so to the engine, as the observer does in a Python
// process. Run under the preload library; the first argument is what it does. Exit code 0 unless
// the engine harmed it.

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/observer_messages.h"

using namespace convtrace;
using namespace convtrace::test;

namespace {

template <typename Function>
Function symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(99);
  }
  return reinterpret_cast<Function>(found);
}

/// The engine, as the observer has it.
struct Engine {
  Engine() {
    const char* const path = getenv("CONVTRACE_CORE");
    library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) {
      fprintf(stderr, "engine: %s\n", path != nullptr ? dlerror() : "CONVTRACE_CORE is not set");
      exit(99);
    }
    start = symbol<decltype(start)>(library, "convtrace_start");
    intern_text = symbol<decltype(intern_text)>(library, "convtrace_intern");
    submit_bytes = symbol<decltype(submit_bytes)>(library, "convtrace_submit");
    report = symbol<decltype(report)>(RTLD_DEFAULT,
                                      "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  }
  uint32_t intern(const std::string& text) const {
    return intern_text(text.data(), static_cast<uint32_t>(text.size()));
  }
  uint32_t submit(const MessageBatch& batch) const {
    return submit_bytes(batch.bytes().data(), static_cast<uint32_t>(batch.bytes().size()));
  }

  void* library;
  uint32_t (*start)();
  uint32_t (*intern_text)(const char*, uint32_t);
  uint32_t (*submit_bytes)(const void*, uint32_t);
  void (*report)(void* pointer, int64_t bytes, uint64_t, uint64_t, uint64_t device);
};

/// One step: a module is entered, gives a tensor and is left.
uint32_t train_step(const Engine& engine, uint32_t index) {
  float values[256];
  for (size_t i = 0; i < 256; ++i) values[i] = static_cast<float>(rand()) / 1000.0F;
  const uint32_t scope = engine.intern("mlp");
  MessageBatch batch;
  batch.step(index).scope(scope, 0);
  batch.tensor(
      {.scope = scope, .slot = engine.intern("output:0"), .data = values, .shape = {16, 16}});
  batch.scope(scope, 0, false);
  return engine.submit(batch);
}

int train(const Engine& engine, uint32_t steps) {
  if (engine.start() == 0) return 0;  // switched off, or a setting is wrong
  for (uint32_t i = 0; i < steps; ++i) {
    if ((train_step(engine, i) & CONVTRACE_SUBMIT_OFF) != 0) break;
  }
  return 0;
}

void sleep_ms(long ms) {
  const timespec pause{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

/// Steps for some seconds, or until the engine says that tracing is over.
bool train_until_off(const Engine& engine) {
  for (uint32_t i = 0; i < 400; ++i) {
    for (int k = 0; k < 50; ++k) {
      if ((train_step(engine, i) & CONVTRACE_SUBMIT_OFF) != 0) return true;
    }
    sleep_ms(10);
  }
  return false;
}

/// Trains before its process group exists, as a program on a GPU may that no launcher started: its
/// rank comes with facts of the first module, and until then another one has its name.
int late_rank(const Engine& engine, uint32_t rank) {
  if (engine.start() == 0) return 1;
  train_step(engine, 0);
  sleep_ms(300);
  MessageBatch batch;
  batch.fact(engine.intern("distributed.rank"), engine.intern(std::to_string(rank)));
  batch.fact(engine.intern("distributed.world_size"), engine.intern("2"));
  engine.submit(batch);
  sleep_ms(300);
  train_step(engine, 1);
  return 0;
}

int late_ranks(const Engine& engine) {
  const pid_t child = fork();
  const int own = late_rank(engine, child == 0 ? 0 : 1);
  int status = 0;
  if (child == 0) return own;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? own
                                                                                              : 2;
}

/// A process that loads the engine and allocates, but neither launches nor trains.
int idle(const Engine& engine) {
  static char block[64];
  engine.start();
  for (int i = 0; i < 100; ++i) {
    engine.report(block, 64, 0, 0, 0);
    engine.report(block, -64, 0, 0, 0);
  }
  return 0;
}

int beyond_file_limit(const Engine& engine) {
  const rlimit limit{20'000, 20'000};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || engine.start() == 0) return 1;
  return train_until_off(engine) ? 0 : 2;
}

int until_off(const Engine& engine) {
  return engine.start() != 0 && train_until_off(engine) ? 0 : 2;
}

/// 100 steps, time for the writer to flush them, and a death that no handler sees.
int killed(const Engine& engine) {
  train(engine, 100);
  sleep_ms(1600);
  raise(SIGKILL);
  return 3;
}

int wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

/// The child of a traced process tries to train, and ends by exit(), handlers included.
int fork_after(const Engine& engine) {
  train(engine, 2);
  const pid_t child = fork();
  if (child == 0) {
    const bool off = engine.start() == 0 && engine.start() == 0 &&
                     (train_step(engine, 0) & CONVTRACE_SUBMIT_OFF) != 0;
    exit(off ? 0 : 5);
  }
  const int code = wait_for(child);
  train_step(engine, 2);
  return code;
}

/// Nothing has begun when the child is made: both train.
int fork_before(const Engine& engine) {
  static char block[64];
  engine.start();
  engine.report(block, 64, 0, 0, 0);
  const pid_t child = fork();
  if (child == 0) exit(train(engine, 3));
  const int code = wait_for(child);
  train(engine, 3);
  return code;
}

bool child_ends_well() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return wait_for(child) == 0;
}

/// As CPython 3.12 counts threads in the parent, behind a fork: field 20 of the file.
int threads_now() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text, '\0');
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  for (int field = 3; field < 20; ++field) fields >> text;
  int threads = 0;
  fields >> threads;
  return threads;
}

/// Half of the forks with a step in between.
int fork_storm(const Engine& engine) {
  if (engine.start() == 0) return 1;
  for (uint32_t i = 0; i < 300; ++i) {
    if (i % 2 == 0) train_step(engine, i);
    if (!child_ends_well()) return 8;
    if (threads_now() != 1) return 9;
  }
  return 0;
}

int fork_threads(const Engine& engine) {
  if (engine.start() == 0) return 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&engine] { train(engine, 200); });
  bool well = true;
  for (int i = 0; i < 100 && well; ++i) well = child_ends_well();
  for (std::thread& thread : threads) thread.join();
  return well && child_ends_well() ? 0 : 8;
}

void fork_in_handler() {
  if (!child_ends_well()) _exit(8);
}

/// Exit handlers run in reverse order: the first one behind that of tracing.
int fork_at_exit(const Engine& engine) {
  atexit(fork_in_handler);
  const int code = train(engine, 3);
  atexit(fork_in_handler);
  return code;
}

/// Both ways in, many times: one engine.
int both_entries(const Engine& engine) {
  const auto inject = symbol<int (*)()>(engine.library, "InitializeInjection");
  for (int i = 0; i < 3; ++i) {
    if (inject() != 1 || engine.start() != CONVTRACE_OBSERVER_ABI) return 6;
  }
  return train(engine, 3);
}

/// An op returns its input's memory as a tensor of its own; the input is freed and its block given
/// out again.
int alias(const Engine& engine) {
  static char block[4096];
  const uint64_t base = reinterpret_cast<uint64_t>(block);
  engine.start();
  const auto op = [&] {
    return engine.submit(MessageBatch().op(
        {.scope = engine.intern("mlp"),
         .op = engine.intern("demo::relu"),
         .operands = {operand(engine.intern("input:0"), false, 1, base, sizeof block),
                      operand(engine.intern("output:0"), true, 2, base, sizeof block)}}));
  };
  engine.submit(MessageBatch().op({.op = engine.intern("demo::first")}));  // from now on: stacks
  engine.report(block, sizeof block, 0, 0, 0);
  if ((op() & CONVTRACE_SUBMIT_WATCH) == 0) return 7;
  engine.submit(MessageBatch().op_stack({engine.intern("forward (train.py:7)")}));
  engine.submit(MessageBatch().storage_dead(1, {engine.intern("<module> (train.py:9)")}));
  engine.report(block, -static_cast<int64_t>(sizeof block), 0, 0, 0);
  engine.report(block, sizeof block, 0, 0, 0);
  return 0;
}

int exit_hard(const Engine& engine) {
  train(engine, 3);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<int(const Engine&)>> scenarios = {
      {"train", [](const Engine& engine) { return train(engine, 10); }},
      {"idle", idle},
      {"late-ranks", late_ranks},
      {"beyond-file-limit", beyond_file_limit},
      {"until-off", until_off},
      {"killed", killed},
      {"fork-after", fork_after},
      {"fork-before", fork_before},
      {"fork-storm", fork_storm},
      {"fork-threads", fork_threads},
      {"fork-at-exit", fork_at_exit},
      {"both-entries", both_entries},
      {"alias", alias},
      {"exit-hard", exit_hard}};
  const auto found = scenarios.find(argc > 1 ? argv[1] : "");
  if (found == scenarios.end()) return 98;
  const Engine engine;
  return found->second(engine);
}
