// Many threads in all of cupti/ at once. Its worth is in the sanitizers' builds.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "tests/unit/cupti/cuda_scene.h"

namespace convtrace::cupti {
namespace {

using format::NotSampled;

/// Counts, and keeps nothing.
class CountingSink final : public format::EventSink {
 public:
  void emit(const format::Event& event) noexcept override {
    counts_[event.index()].fetch_add(1, std::memory_order_relaxed);
    if (const auto* launch = std::get_if<format::Launch>(&event))
      operands_.fetch_add(launch->operands.size(), std::memory_order_relaxed);
  }
  template <typename Kind>
  [[nodiscard]] uint64_t count() const {
    return counts_[format::Event(Kind{}).index()].load();
  }
  [[nodiscard]] uint64_t operands() const { return operands_.load(); }

 private:
  std::array<std::atomic<uint64_t>, std::variant_size_v<format::Event>> counts_{};
  std::atomic<uint64_t> operands_{0};
};

struct Done {
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> allocs{0};
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
  }
  ~Worker() { expect(cuStreamDestroy(stream_)); }

  void round(int launches) {
    CUmodule module = nullptr;
    expect(cuModuleLoadData(&module, &kImage));
    expect(cuModuleGetFunction(&fill_, module, "_Z4fillPffj"));
    expect(cuMemAlloc(&block_, 64));
    done_.allocs += 1;
    for (int i = 0; i < launches; ++i) launch();
    observe();
    replay();
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
    expect(interceptor_.launch_kernel(real_launch, 0, fill_, 1, 1, 1, 1, 1, 1, 0, stream_, params,
                                      nullptr));
    done_.launches += 1;
  }

  void observe() {
    DeviceRequest request;
    request.view =
        stats::dense_view(reinterpret_cast<const void*>(block_), format::DType::kF32, 16);
    if (interceptor_.submit(std::span(&request, 1), reinterpret_cast<uint64_t>(stream_)) ==
        NotSampled::kSampled)
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
    expect(cuGraphInstantiateWithFlags(&exec, graph, 0));
    interceptor_.graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
    expect(interceptor_.graph_launch(real_graph_launch, 0, exec, stream_));
    done_.launches += 3;
    interceptor_.graph_call(CONVTRACE_GRAPH_DESTROYED, exec, nullptr, nullptr);
    expect(cuGraphExecDestroy(exec));
    expect(cuGraphDestroy(graph));
  }

  Interceptor& interceptor_;
  Done& done_;
  CUstream stream_ = nullptr;
  CUfunction fill_ = nullptr;
  CUdeviceptr block_ = 0;
};

void fork_child(Done& done) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++done.failures;
}

TEST_CASE("stress: nothing that 16 threads do is lost or counted twice") {
  constexpr int kThreads = 16;
  constexpr int kRound = 50;
  const char* asked = getenv("STRESS_LAUNCHES");
  const int rounds = (asked == nullptr ? 100'000 : atoi(asked)) / kThreads / (kRound + 5);

  CountingSink sink;
  format::Definitions definitions;
  AddressMap addresses;
  settings::RuleBook rules;
  InterceptorOptions options;
  options.sink = &sink;
  options.definitions = &definitions;
  options.addresses = &addresses;
  options.rules = &rules;
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  Interceptor interceptor(options);
  CUcontext context = nullptr;
  REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);

  Done done;
  std::atomic<bool> over{false};
  std::thread collector([&] {
    while (!over) interceptor.collect();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Worker worker(interceptor, context, done);
      for (int i = 0; i < rounds; ++i) worker.round(kRound);
    });
  }
  for (int i = 0; i < 5; ++i) fork_child(done);
  for (auto& thread : threads) thread.join();
  over = true;
  collector.join();
  interceptor.stop(10'000'000'000);

  CHECK(done.failures == 0);
  CHECK(sink.count<format::Launch>() == done.launches);
  CHECK(sink.operands() ==
        done.launches - static_cast<uint64_t>(kThreads * rounds));  // not of graphs
  CHECK(sink.count<format::Alloc>() == done.allocs);
  CHECK(sink.count<format::Free>() == done.allocs);
  CHECK(done.submitted > 0);
  CHECK(sink.count<format::TensorStats>() == done.submitted);
  CHECK(sink.count<format::Loss>() == 0);
  CHECK(sink.count<format::Diagnostic>() == 0);
  CHECK(addresses.live_count() == 0);
  cuCtxDestroy(context);
}

}  // namespace
}  // namespace convtrace::cupti
