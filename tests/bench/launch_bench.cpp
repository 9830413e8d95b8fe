// What a launch costs its program: rows event.push, launch.off, launch.record, launch.rules and
// launch.threads, JSON on stdout.
//
// The engine is the real one, linked in and writing a trace; the driver is the fake one, and the
// real launch function returns at once, so that what is measured is ours. Launches come in bursts
// with pauses between them, in which the writer thread empties the rings.
//
// usage: bench_launch [--quick]
//        bench_launch --record     prints ns of a recorded launch, under CONVTRACE_CONFIG
//        bench_launch --gated N    makes N bursts of recorded launches, for bench_instructions.py

#include <cuda.h>
#include <cupti.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "interposer/core/engine.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/queue/event_pack.h"
#include "interposer/core/queue/event_queue.h"
#include "tests/bench/rows.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/support/temp_dir.h"

/// As in the preload library; the engine publishes its table here.
extern "C" __attribute__((visibility("default"))) std::atomic<const struct convtrace_hooks_v1*>
    convtrace_hooks_v1;
std::atomic<const struct convtrace_hooks_v1*> convtrace_hooks_v1{nullptr};

namespace {

using namespace convtrace;
using namespace convtrace::engine;

constexpr size_t kBurst = 1000;  // events that a ring of a thread has room for
constexpr timespec kPause{0, 4'000'000};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// @return CPU time of the calling thread for one call of `body`, in ns.
template <typename Body>
double ns_each(Body&& body) {
  const double start = now(CLOCK_THREAD_CPUTIME_ID);
  for (size_t i = 0; i < kBurst; ++i) body();
  const double taken = now(CLOCK_THREAD_CPUTIME_ID) - start;
  nanosleep(&kPause, nullptr);
  return taken / kBurst;
}

/// Pushes events of 128 bytes while a thread sleeps, wakes and drains as the writer's does.
bool bench_push(bench::Rows& rows, int repetitions) {
  Wakeup wakeup;
  EventQueue queue(wakeup);
  std::atomic<bool> stop{false};
  uint64_t drained = 0;
  std::thread drain([&] {
    while (!stop.load()) {
      wakeup.wait(1'000'000);
      drained += queue.drain(~uint64_t{0}, [](const format::Event&) { return true; });
    }
  });
  format::Diagnostic event;
  event.header.thread = 1;
  const std::string text(128 - packed_bytes(event), 'x');
  event.message = text;
  const format::Event pushed = event;
  std::vector<double> values;
  for (int i = 0; i < repetitions; ++i) values.push_back(ns_each([&] { queue.push(pushed); }));
  stop = true;
  wakeup.wake();
  drain.join();
  rows.print({"event.push", "ns", bench::Goal::kAtMost, 25,
              "absolute, drain running, with its clock_gettime"},
             values);
  return packed_bytes(pushed) == 128 && drained == static_cast<uint64_t>(repetitions) * kBurst;
}

void run_nothing(const fakecuda_launch*) {}
constexpr unsigned kParamBytes[] = {8, 8, 8, 8, 4, 4, 4, 8};
constexpr fakecuda_kernel kKernels[] = {{"_Z3benPfS_S_S_iifl", run_nothing, 8, kParamBytes}};
constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

/// Every 32nd goes on to the fake driver: CUPTI must be heard, or it is taken for gone. That is
/// part of the baseline, too.
__attribute__((noinline)) int real_launch(const void* given) {
  thread_local uint32_t calls = 0;
  if (++calls % 32 != 0) return 0;
  const auto& p = *static_cast<const cuLaunchKernel_params*>(given);
  return cuLaunchKernel(p.f, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                        p.blockDimZ, p.sharedMemBytes, p.hStream, p.kernelParams, p.extra);
}

/// One program's launch: 8 parameters, 4 of them pointers.
struct Program {
  CUfunction function = nullptr;
  std::array<CUdeviceptr, 4> memory{};

  Program() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    ok = cuInit(0) == CUDA_SUCCESS && cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS &&
         cuModuleLoadData(&module, &kImage) == CUDA_SUCCESS &&
         cuModuleGetFunction(&function, module, kKernels[0].name) == CUDA_SUCCESS;
    for (auto& pointer : memory) ok = ok && cuMemAlloc(&pointer, 1 << 20) == CUDA_SUCCESS;
    cuCtxGetCurrent(&current);
  }

  template <typename Launch>
  double ns(Launch&& launch) {
    cuCtxSetCurrent(current);
    int rows = 1024, columns = 768;
    float scale = 0.5F;
    int64_t count = 1024 * 768;
    void* params[] = {&memory[0], &memory[1], &memory[2], &memory[3],
                      &rows,      &columns,   &scale,     &count};
    const cuLaunchKernel_params call{function, 96, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr};
    return ns_each([&] { launch(&call); });
  }

  CUcontext current = nullptr;
  bool ok = false;
};

double direct(Program& program) {
  const convtrace_launch_fn volatile real = real_launch;
  return program.ns([&](const void* params) { real(params); });
}

double gated(Program& program) {
  const auto* const hooks = convtrace_hooks_v1.load();
  return program.ns(
      [&](const void* params) { hooks->launch(CONVTRACE_LAUNCH_KERNEL, 0, params, real_launch); });
}

std::vector<double> bench_one(Program& program, int repetitions) {
  std::vector<double> values;
  for (int i = 0; i < repetitions; ++i) {
    const double with = gated(program);
    values.push_back(with - direct(program));
  }
  return values;
}

/// Thread CPU time of a launch with `count` threads at it over that with one.
std::vector<double> bench_threads(Program& program, unsigned count, int repetitions) {
  std::vector<double> ratios;
  for (int i = 0; i < repetitions; ++i) {
    std::atomic<unsigned> ready{0};
    std::vector<double> taken(count);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        (void)gated(program);  // its ring is mapped and known
        ready.fetch_add(1);
        while (ready.load() < count) sched_yield();
        taken[t] = gated(program);
      });
    }
    for (auto& thread : threads) thread.join();
    double all = 0;
    for (const double one : taken) all += one / count;
    ratios.push_back(all / gated(program));
  }
  return ratios;
}

/// Starts the engine. It is told of the program's memory as CUPTI would: it was there before.
Engine* record(const Program& program) {
  Engine* const engine = start_engine();
  if (engine == nullptr) return nullptr;
  for (const CUdeviceptr pointer : program.memory)
    engine->report_memory(reinterpret_cast<const void*>(pointer), 1 << 20, 1);
  return engine;
}

/// The rest of this program, in a process of its own. @return what it printed.
std::optional<double> recorded_ns(const char* self, const std::string& config) {
  setenv("CONVTRACE_CONFIG", config.c_str(), 1);
  FILE* const child = popen((std::string(self) + " --record").c_str(), "r");
  double ns = 0;
  const bool read = child != nullptr && std::fscanf(child, "%lf", &ns) == 1;
  unsetenv("CONVTRACE_CONFIG");
  return child != nullptr && pclose(child) == 0 && read ? std::optional(ns) : std::nullopt;
}

/// A recorded launch of a kernel that none of 100 rules mean over one without rules.
bool bench_rules(bench::Rows& rows, const char* self, const test::TempDir& folder) {
  std::ofstream(folder / "none.toml") << "";
  {
    std::ofstream file(folder / "rules.toml");
    for (int i = 0; i < 100; ++i)
      file << "[[rule]]\nkernel = '*gemm_" << i << "_*'\noutputs = [0]\n";
  }
  std::vector<double> ratios;
  for (int i = 0; i < 16; ++i) {
    const bool first = i % 2 == 0;
    const auto a = recorded_ns(self, folder / (first ? "none.toml" : "rules.toml"));
    const auto b = recorded_ns(self, folder / (first ? "rules.toml" : "none.toml"));
    if (!a || !b) return false;
    ratios.push_back(first ? *b / *a : *a / *b);
  }
  rows.print({"launch.rules", "ratio", bench::Goal::kAtMost, 1.03,
              "launch.record without rules; 100 rules that mean other kernels"},
             ratios);
  return true;
}

template <typename Body>
int while_recording(Body&& body) {
  publish_hooks();
  Program program;
  if (!program.ok) return 1;
  Engine* const engine = record(program);
  if (engine == nullptr) return 1;
  body(program);
  engine->finish(2'000'000'000);
  return 0;
}

int print_recorded() {
  return while_recording([](Program& program) {
    std::printf("%f\n", bench::median_of(bench_one(program, 31)));
    std::fflush(stdout);
  });
}

int make_bursts(int count) {
  return while_recording([count](Program& program) {
    for (int i = 0; i < count; ++i) (void)gated(program);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  const test::TempDir folder;
  setenv("CONVTRACE_OUTPUT", std::string(folder / "%p.ctrace").c_str(), 1);
  setenv("CONVTRACE_LOG", "error", 1);
  if (option == "--record") return print_recorded();
  if (option == "--gated" && argc > 2) return make_bursts(std::atoi(argv[2]));

  using bench::Goal;
  bench::Rows rows;
  const int repetitions = option == "--quick" ? 31 : 201;
  if (!bench_push(rows, repetitions) || !bench_rules(rows, argv[0], folder)) return 1;
  publish_hooks();
  Program program;
  if (!program.ok || convtrace_hooks_v1.load() == nullptr) return 1;
  rows.print(
      {"launch.off", "ns", Goal::kAtMost, 5, "direct call; without the preload library's wrapper"},
      bench_one(program, repetitions));
  Engine* const engine = record(program);
  if (engine == nullptr) return 1;
  rows.print({"launch.record", "ns", Goal::kAtMost, 150,
              "direct call; 8 parameters, 4 pointers, writer running"},
             bench_one(program, repetitions));
  const unsigned threads = std::min(4U, std::max(1U, std::thread::hardware_concurrency()));
  rows.print({"launch.threads", "ratio", Goal::kAtMost, 1.3, "one thread"},
             bench_threads(program, threads, repetitions / 2));
  engine->finish(2'000'000'000);
  return 0;
}
