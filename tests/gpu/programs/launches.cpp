/// A program for the CUDA driver that counts what it does, checks its results and times its
/// launches.
///
/// usage: gpu_launches [--threads T] [--launches N] [--way linked|dlsym|proc-address] [--churn]
/// [--empty | --wide] [--capture] [--contexts] [--pause MS] [--fault]
///
/// Every thread has its own stream and makes N launches (rounded up to bursts of 500, with a wait
/// between them that is not timed: the driver's queue holds about a thousand). --churn: it also
/// allocates and frees a block before each burst. --empty: the kernel without parameters instead of
/// the one with eight; --wide: one with 32 KB of them. --capture: first captures launches for half
/// a second, in the mode in which any thread's unsafe call breaks the capture, and replays them.
/// --contexts: makes and destroys a second context before. --pause: waits before the first launch.
/// --fault: at last a kernel writes where nothing is, and the program ends with the error. Prints
/// one JSON object: device, counts of launches, allocations and frees, ns_per_launch (median over
/// bursts, worst thread), times of cuInit and of the context (CLOCK_MONOTONIC). Exit code 77: no
/// device.

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/programs/device.h"
#include "tests/gpu/programs/image.h"

namespace {

using convtrace::gpu::check;

constexpr unsigned kBurst = 500;
constexpr unsigned kCount = 4096;

struct Options {
  unsigned threads = 1;
  unsigned launches = 20'000;
  std::string way = "linked";
  bool churn = false;
  bool empty = false;
  bool wide = false;
  bool capture = false;
  bool contexts = false;
  bool fault = false;
  unsigned pause_ms = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* next = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--churn") {
      options.churn = true;
    } else if (name == "--empty") {
      options.empty = true;
    } else if (name == "--wide") {
      options.wide = true;
    } else if (name == "--capture") {
      options.capture = true;
    } else if (name == "--contexts") {
      options.contexts = true;
    } else if (name == "--fault") {
      options.fault = true;
    } else if (name == "--threads") {
      options.threads = static_cast<unsigned>(std::atoi(next)), ++i;
    } else if (name == "--launches") {
      options.launches = static_cast<unsigned>(std::atoi(next)), ++i;
    } else if (name == "--pause") {
      options.pause_ms = static_cast<unsigned>(std::atoi(next)), ++i;
    } else if (name == "--way") {
      options.way = next, ++i;
    } else {
      std::fprintf(stderr, "gpu_launches: what is %s?\n", argv[i]);
      std::exit(2);
    }
  }
  return options;
}

using LaunchKernel = decltype(&cuLaunchKernel);

/// How a program gets hold of the launch function decides what an interposer sees of it.
LaunchKernel find_launch(const std::string& way) {
  if (way == "linked") return &cuLaunchKernel;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* found = nullptr;
  if (way == "dlsym") {
    found = dlsym(library, "cuLaunchKernel");
  } else {
    using GetProcAddress = decltype(&cuGetProcAddress);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    check(get("cuLaunchKernel", &found, 12000, 0, nullptr), "cuGetProcAddress");
  }
  return reinterpret_cast<LaunchKernel>(found);
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct Counts {
  std::atomic<uint64_t> launches{0}, allocations{0}, frees{0};
};

class Worker {
 public:
  Worker(const Options& options, LaunchKernel launch, CUmodule module, Counts& counts)
      : options_(options), launch_(launch), counts_(counts) {
    const char* name = options.empty  ? "gpu_check_empty"
                       : options.wide ? "gpu_check_wide"
                                      : "gpu_check_mix";
    check(cuModuleGetFunction(&function_, module, name), "cuModuleGetFunction");
  }

  void run(CUcontext context) {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUdeviceptr& buffer : buffers_) buffer = allocate();
    for (size_t i = 0; i < 3; ++i) fill(buffers_[i], static_cast<float>(i + 1));
    const unsigned bursts = (options_.launches + kBurst - 1) / kBurst;
    if (options_.capture) replay_captured();
    for (unsigned i = 0; i < bursts; ++i) burst();
    if (!options_.empty && !options_.wide) check_result();
    if (options_.fault) fault();
    for (CUdeviceptr buffer : buffers_) release(buffer);
    check(cuStreamDestroy(stream_), "cuStreamDestroy");
  }

  [[nodiscard]] double ns_per_launch() {
    std::ranges::sort(times_);
    return times_[times_.size() / 2];
  }

 private:
  CUdeviceptr allocate() {
    CUdeviceptr address = 0;
    check(cuMemAlloc(&address, kCount * sizeof(float)), "cuMemAlloc");
    ++counts_.allocations;
    return address;
  }
  void release(CUdeviceptr address) {
    check(cuMemFree(address), "cuMemFree");
    ++counts_.frees;
  }
  static void fill(CUdeviceptr address, float value) {
    const std::vector<float> host(kCount, value);
    check(cuMemcpyHtoD(address, host.data(), kCount * sizeof(float)), "cuMemcpyHtoD");
  }

  void run_kernel(CUdeviceptr out) {
    float x = 1, y = 2, z = 3;
    unsigned count = kCount;
    void* mix[] = {&buffers_[0], &buffers_[1], &buffers_[2], &out, &x, &y, &z, &count};
    void* wide[] = {wide_.data(), &out};
    check(launch_(function_, kCount / 256, 1, 1, 256, 1, 1, 0, stream_, options_.wide ? wide : mix,
                  nullptr),
          "launch");
    ++counts_.launches;
  }

  void burst() {
    if (options_.churn) {
      release(buffers_[3]);
      buffers_[3] = allocate();
    }
    const int64_t start = now_ns();
    for (unsigned i = 0; i < kBurst; ++i) run_kernel(buffers_[3]);
    times_.push_back(static_cast<double>(now_ns() - start) / kBurst);
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  /// While the capture lasts, others prepare what statistics need: that must not break it.
  void replay_captured() {
    check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    for (int i = 0; i < 100; ++i) {
      run_kernel(buffers_[3]);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    check(cuGraphLaunch(exec, stream_), "cuGraphLaunch");
    check(cuStreamSynchronize(stream_), "the graph");
    check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
  }

  void fault() {
    run_kernel(16);
    check(cuStreamSynchronize(stream_), "the kernel that writes where nothing is");
  }

  void check_result() const {
    std::vector<float> host(kCount);
    check(cuMemcpyDtoH(host.data(), buffers_[3], kCount * sizeof(float)), "cuMemcpyDtoH");
    if (std::ranges::all_of(host, [](float v) { return v == 1 * 1 + 2 * 2 + 3 * 3; })) return;
    std::fprintf(stderr, "wrong result\n");
    std::exit(1);
  }

  const Options& options_;
  LaunchKernel launch_;
  Counts& counts_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr buffers_[4] = {};
  std::vector<char> wide_ = std::vector<char>(32000);
  std::vector<double> times_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const LaunchKernel launch = find_launch(options.way);
  const int64_t before_init = now_ns();
  convtrace::gpu::start_driver();
  const int64_t after_init = now_ns();
  if (options.contexts) {
    CUcontext other = nullptr;
    check(cuCtxCreate(&other, nullptr, 0, 0), "cuCtxCreate");
    check(cuCtxDestroy(other), "cuCtxDestroy");
  }
  const convtrace::gpu::Device device;
  const int64_t after_context = now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  CUmodule module = nullptr;
  check(cuModuleLoadData(&module, convtrace::gpu::kernel_image(device.name)), "cuModuleLoadData");

  Counts counts;
  std::vector<Worker> workers;
  for (unsigned i = 0; i < options.threads; ++i)
    workers.emplace_back(options, launch, module, counts);
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&] { worker.run(device.context); });
  for (std::thread& thread : threads) thread.join();
  check(cuCtxSynchronize(), "cuCtxSynchronize");

  double worst = 0;
  for (Worker& worker : workers) worst = std::max(worst, worker.ns_per_launch());
  std::printf(
      "{\"device\": \"%s\", \"launches\": %lu, \"allocations\": %lu, \"frees\": %lu, "
      "\"ns_per_launch\": %.1f, \"before_init_ns\": %ld, \"after_init_ns\": %ld, "
      "\"after_context_ns\": %ld}\n",
      device.name, counts.launches.load(), counts.allocations.load(), counts.frees.load(), worst,
      before_init, after_init, after_context);
  return 0;
}
