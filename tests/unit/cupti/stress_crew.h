#pragma once
/// @file stress_crew.h
/// 16 threads that do all that a program does with CUDA, and count it.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {

struct Done {
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> allocs{0};
  std::atomic<uint64_t> syncs{0};
  std::atomic<uint64_t> submitted{0};
  std::atomic<int> failures{0};
};

/// One thread's part: its modules, streams, graphs and blocks come and go.
class Worker {
 public:
  Worker(Interceptor& interceptor, CUcontext context, Done& done)
      : interceptor_(interceptor), done_(done) {
    expect(cuCtxSetCurrent(context));
    expect(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    expect(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    done_.syncs += 2;
  }
  ~Worker() {
    expect(cuEventDestroy(event_));
    expect(cuStreamDestroy(stream_));
    done_.syncs += 2;
  }

  void round(int launches) {
    CUmodule module = nullptr;
    expect(cuModuleLoadData(&module, &kImage));
    expect(cuModuleGetFunction(&fill_, module, "_Z4fillPffj"));
    expect(cuMemAlloc(&block_, 64));
    done_.allocs += 1;
    for (int i = 0; i < launches; ++i) launch();
    observe();
    replay();
    expect(cuEventRecord(event_, stream_));
    expect(cuStreamWaitEvent(nullptr, event_, 0));
    expect(cuEventSynchronize(event_));
    done_.syncs += 3;
    expect(cuMemFree(block_));
    expect(cuModuleUnload(module));
  }

 private:
  void expect(int result) {
    if (result != CUDA_SUCCESS) ++done_.failures;
  }

  void launch() {
    float value = 1;
    uint32_t count = 16;
    void* params[] = {&block_, &value, &count};
    expect(launch_one_thread(interceptor_, fill_, stream_, params));
    done_.launches += 1;
  }

  void observe() {
    DeviceRequest request;
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(block_), format::DType::kF32, 16);
    if (interceptor_.submit(std::span(&request, 1), reinterpret_cast<uint64_t>(stream_)) ==
        format::SampleOutcome::kSampled)
      done_.submitted += 1;
  }

  /// Two kernels captured, replayed once: five launches with those of the graph itself.
  void replay() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    expect(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch();
    launch();
    expect(cuStreamEndCapture(stream_, &graph));
    done_.syncs += 2;  // the capture begins, and ends
    expect(cuGraphInstantiateWithFlags(&exec, graph, 0));
    interceptor_.graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
    expect(launch_graph(interceptor_, exec, stream_));
    done_.launches += 3;
    interceptor_.graph_call(CONVTRACE_GRAPH_DESTROYED, exec, nullptr, nullptr);
    expect(cuGraphExecDestroy(exec));
    expect(cuGraphDestroy(graph));
  }

  Interceptor& interceptor_;
  Done& done_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUfunction fill_ = nullptr;
  CUdeviceptr block_ = 0;
};

inline void fork_child(Done& done) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++done.failures;
}

/// All of cupti/ over the fake driver, at work until the crew is through.
struct StressRun {
  static constexpr int kThreads = 16;
  static constexpr int kRound = 50;

  StressRun(format::EventSink& sink, format::Definitions& definitions) {
    const char* asked = getenv("STRESS_LAUNCHES");
    rounds = (asked == nullptr ? 100'000 : atoi(asked)) / kThreads / (kRound + 5);
    InterceptorOptions options;
    options.sink = &sink;
    options.definitions = &definitions;
    options.addresses = &addresses;
    options.rules = &rules;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    interceptor = std::make_unique<Interceptor>(options);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  }
  ~StressRun() { cuCtxDestroy(context); }

  /// @return when nothing is under way any more.
  void run() {
    prepare();
    std::atomic<bool> over{false};
    std::thread collector([&] {
      while (!over) interceptor->collect();
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        Worker worker(*interceptor, context, done);
        for (int i = 0; i < rounds; ++i) worker.round(kRound);
      });
    }
    for (int i = 0; i < 5; ++i) fork_child(done);
    for (auto& thread : threads) thread.join();
    over = true;
    collector.join();
    interceptor->stop(10'000'000'000);
  }

  /// The first value of the context: the crew may be through before another could be taken.
  void prepare() {
    CUdeviceptr block = 0;
    REQUIRE(cuMemAlloc(&block, 64) == CUDA_SUCCESS);
    done.allocs += 1;
    DeviceRequest request;
    request.view = stats::dense_view(reinterpret_cast<const void*>(block), format::DType::kF32, 16);
    REQUIRE(submit_when_ready(*interceptor, {&request, 1}) == format::SampleOutcome::kSampled);
    done.submitted += 1;
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
  }

  AddressMap addresses;
  settings::RuleBook rules;
  std::unique_ptr<Interceptor> interceptor;
  CUcontext context = nullptr;
  Done done;
  int rounds = 0;
};

}  // namespace convtrace::cupti
