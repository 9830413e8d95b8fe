// What a launch costs its program: rows event.push, launch.off, launch.record and launch.threads,
// JSON on stdout.
//
// The engine is the real one, linked in and writing a trace; the driver is the fake one, and the
// real launch function returns at once, so that what is measured is ours. Launches come in bursts
// with pauses between them, in which the writer thread empties the rings.
//
// usage: bench_launch [--quick]

#include <cuda.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cupti/hooks_v1.h"
#include "interposer/engine/arming.h"
#include "interposer/engine/engine.h"
#include "interposer/engine/event_pack.h"
#include "interposer/engine/event_queue.h"
#include "tests/fakecuda/fakecuda.h"

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

struct Row {
  double median, spread;
};

Row row_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  return {median, (values[values.size() * 3 / 4] - values[values.size() / 4]) / median};
}

void print(const char* name, Row row, const char* unit, double goal, const char* against) {
  static bool first = true;
  std::printf(
      "%s{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"%s\", \"goal\": \"<= %g\", "
      "\"against\": \"%s\", \"ok\": %s, \"spread\": %.3f}",
      first ? "[" : ",\n ", name, row.median, unit, goal, against,
      row.median <= goal ? "true" : "false", row.spread);
  first = false;
}

/// Pushes events of 128 bytes while a thread sleeps, wakes and drains as the writer's does.
bool bench_push(int repetitions) {
  Doorbell doorbell;
  EventQueue queue(doorbell);
  std::atomic<bool> stop{false};
  uint64_t drained = 0;
  std::thread drain([&] {
    while (!stop.load()) {
      doorbell.wait(1'000'000);
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
  doorbell.ring();
  drain.join();
  print("event.push", row_of(values), "ns", 25, "absolute, drain running, with its clock_gettime");
  return packed_bytes(pushed) == 128 && drained == static_cast<uint64_t>(repetitions) * kBurst;
}

void run_nothing(const fakecuda_launch*) {}
constexpr unsigned kParamBytes[] = {8, 8, 8, 8, 4, 4, 4, 8};
constexpr fakecuda_kernel kKernels[] = {{"_Z3benPfS_S_S_iifl", run_nothing, 8, kParamBytes}};
constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

/// Every 32nd goes on to the fake driver: CUPTI must be heard, or it is taken for gone. That is
/// part of the baseline, too.
__attribute__((noinline)) int real_launch(void* function, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                          void* stream, void** params, void** extra) {
  thread_local uint32_t calls = 0;
  if (++calls % 32 != 0) return 0;
  return cuLaunchKernel(static_cast<CUfunction>(function), gx, gy, gz, bx, by, bz, shared,
                        static_cast<CUstream>(stream), params, extra);
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
    return ns_each([&] { launch(function, params); });
  }

  CUcontext current = nullptr;
  bool ok = false;
};

double direct(Program& program) {
  const convtrace_cuLaunchKernel_fn volatile real = real_launch;
  return program.ns([&](void* function, void** params) {
    real(function, 96, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr);
  });
}

double gated(Program& program) {
  const auto* const hooks = convtrace_hooks_v1.load();
  return program.ns([&](void* function, void** params) {
    hooks->launch_kernel(real_launch, 0, function, 96, 1, 1, 256, 1, 1, 0, nullptr, params,
                         nullptr);
  });
}

Row bench_one(Program& program, int repetitions) {
  std::vector<double> values;
  for (int i = 0; i < repetitions; ++i) {
    const double with = gated(program);
    values.push_back(with - direct(program));
  }
  return row_of(values);
}

/// Thread CPU time of a launch with `count` threads at it over that with one.
Row bench_threads(Program& program, unsigned count, int repetitions) {
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
  return row_of(ratios);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int repetitions = quick ? 31 : 201;
  char folder[] = "/tmp/bench_launch.XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string path = std::string(folder) + "/t.ctrace";
  setenv("CONVTRACE_OUTPUT", path.c_str(), 1);
  setenv("CONVTRACE_LOG", "error", 1);

  if (!bench_push(repetitions)) return 1;
  publish_hooks();
  Program program;
  if (!program.ok || convtrace_hooks_v1.load() == nullptr) return 1;
  print("launch.off", bench_one(program, repetitions), "ns", 5,
        "direct call; without the preload library's wrapper");
  Engine* const engine = start_engine();
  if (engine == nullptr) return 1;
  // Told of the memory as CUPTI would: it was there before the engine.
  for (const CUdeviceptr pointer : program.memory) {
    engine->report_memory(reinterpret_cast<const void*>(pointer), 1 << 20, 1);
  }
  print("launch.record", bench_one(program, repetitions), "ns", 150,
        "direct call; 8 parameters, 4 pointers, writer running");
  const unsigned threads = std::min(4U, std::max(1U, std::thread::hardware_concurrency()));
  print("launch.threads", bench_threads(program, threads, repetitions / 2), "ratio", 1.3,
        "one thread");
  std::printf("]\n");
  std::fflush(stdout);
  engine->finish(2'000'000'000);
  unlink(path.c_str());
  rmdir(folder);
  return 0;
}
