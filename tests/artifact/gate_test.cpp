#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "tests/support/catch.h"

// Runs under LD_PRELOAD=libconvtrace.so (set by ctest), one process per case.
extern "C" {
int cuLaunchKernel() __attribute__((weak));
int cuGetProcAddress(const char*, void**, int, uint64_t) __attribute__((weak));
int cuptiSubscribe(void**, void (*)(), void*) __attribute__((weak));
}

namespace {

using Launch = int (*)();
using GetProcAddress = int (*)(const char*, void**, int, uint64_t);
using GetProcAddressV2 = int (*)(const char*, void**, int, uint64_t, int*);

void* open_driver() {
  void* driver = dlopen(PROGRAMS "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(driver != nullptr);
  return driver;
}

template <typename Function>
Function symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

bool is_in_preload(void* function) {
  Dl_info info{};
  REQUIRE(dladdr(function, &info) != 0);
  return std::string(info.dli_fname).ends_with("/libconvtrace.so");
}

int g_per_thread = -1;

int launch_hook(int, int per_thread, const void* params, convtrace_launch_fn real) {
  g_per_thread = per_thread;
  return 1000 + real(params);
}

convtrace_hooks_v1 table_with_launch() {
  convtrace_hooks_v1 table{};
  table.bytes = sizeof table;
  table.launch = launch_hook;
  return table;
}

void publish(const convtrace_hooks_v1& hooks) {
  auto* slot = symbol<std::atomic<const convtrace_hooks_v1*>*>(RTLD_DEFAULT, "convtrace_hooks_v1");
  REQUIRE(slot != nullptr);
  slot->store(&hooks);
}

constexpr const char* kLaunchNames[] = {
    "cuLaunchKernel",        "cuLaunchKernel_ptsz",       "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz",
    "cuGraphLaunch",         "cuGraphLaunch_ptsz"};

}  // namespace

TEST_CASE("gate: dlsym on the driver gives wrappers that reach the driver's functions",
          "[artifact]") {
  void* driver = open_driver();
  int answer = 11;
  for (const char* name : kLaunchNames) {
    CAPTURE(name);
    const auto launch = symbol<Launch>(driver, name);
    CHECK(is_in_preload(reinterpret_cast<void*>(launch)));
    CHECK(launch() == answer++);
  }
}

TEST_CASE("gate: other driver functions come untouched", "[artifact]") {
  const auto init = symbol<Launch>(open_driver(), "cuInit");
  CHECK_FALSE(is_in_preload(reinterpret_cast<void*>(init)));
  CHECK(init() == 19);
}

TEST_CASE("gate: cuGetProcAddress gives wrappers, itself included", "[artifact]") {
  void* driver = open_driver();
  const auto get = symbol<GetProcAddress>(driver, "cuGetProcAddress");
  const auto get_v2 = symbol<GetProcAddressV2>(driver, "cuGetProcAddress_v2");
  CHECK(is_in_preload(reinterpret_cast<void*>(get)));
  CHECK(is_in_preload(reinterpret_cast<void*>(get_v2)));

  void* found = nullptr;
  CHECK(get("cuGetProcAddress", &found, 11030, 0) == 0);
  CHECK(found == reinterpret_cast<void*>(get));
  CHECK(get_v2("cuGetProcAddress", &found, 12000, 0, nullptr) == 0);
  CHECK(found == reinterpret_cast<void*>(get_v2));

  CHECK(get_v2("cuLaunchKernel", &found, 13000, 0, nullptr) == 0);
  CHECK(found == dlsym(driver, "cuLaunchKernel"));
  CHECK(reinterpret_cast<Launch>(found)() == 11);
  CHECK(get_v2("cuLaunchKernel", &found, 13000, 2, nullptr) == 0);
  CHECK(found == dlsym(driver, "cuLaunchKernel_ptsz"));
  CHECK(reinterpret_cast<Launch>(found)() == 12);

  CHECK(get_v2("cuInit", &found, 13000, 0, nullptr) == 0);
  CHECK_FALSE(is_in_preload(found));
  int status = 0;
  CHECK(get_v2("cuNothing", &found, 13000, 0, &status) == 0);
  CHECK(found == nullptr);
  CHECK(status == 1);
}

// Twice: once with CONVTRACE_POISON.
TEST_CASE("gate: a request gives the wrapper of the very function that the driver answers with",
          "[artifact]") {
  void* driver = open_driver();
  const auto get = symbol<GetProcAddressV2>(driver, "cuGetProcAddress_v2");
  struct Request {
    const char* name;
    int version;
    const char* function;
    int answer;
    bool memory = false;
  };
  const Request requests[] = {
      {"cuGraphInstantiate", 10000, "cuGraphInstantiate", 20},
      {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2", 21},
      {"cuGraphInstantiate", 12000, "cuGraphInstantiate_v2", 21},
      {"cuGraphInstantiate", 14000, "cuGraphInstantiate_v2", 21},
      {"cuGraphInstantiateWithFlags", 11040, "cuGraphInstantiateWithFlags", 22},
      {"cuMemAlloc", 3020, "cuMemAlloc_v2", 25, true},
      {"cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset", 26, true},
      {"cuDevicePrimaryCtxReset", 13000, "cuDevicePrimaryCtxReset_v2", 27, true},
  };
  for (const Request& request : requests) {
    CAPTURE(request.name, request.version);
    void* found = nullptr;
    REQUIRE(get(request.name, &found, request.version, 0, nullptr) == 0);
    CHECK(reinterpret_cast<Launch>(found)() == request.answer);
    CHECK(is_in_preload(found) == (!request.memory || getenv("CONVTRACE_POISON") != nullptr));
    Dl_info info{};
    REQUIRE(dladdr(found, &info) != 0);
    CHECK(std::string(info.dli_sname) == request.function);
  }
  void* found = nullptr;
  CHECK(get("cuMemAlloc", &found, 2000, 0, nullptr) == 0);  // 32-bit addresses: nobody's
  CHECK(reinterpret_cast<Launch>(found)() == 24);
  CHECK_FALSE(is_in_preload(found));
}

TEST_CASE("gate: changes of graphs are told after the driver's call, the end before it",
          "[artifact]") {
  void* driver = open_driver();
  static std::vector<int> told;
  static const convtrace_hooks_v1 hooks = [] {
    convtrace_hooks_v1 table{};
    table.bytes = sizeof table;
    table.graph_call = [](int call, void*, void*, const void*) { told.push_back(call); };
    return table;
  }();
  publish(hooks);
  CHECK(symbol<int (*)(void*)>(driver, "cuGraphExecDestroy")(nullptr) == 23);
  CHECK(told == std::vector<int>{CONVTRACE_GRAPH_DESTROYED});
  const auto instantiate =
      symbol<int (*)(void*, void*, unsigned long long)>(driver, "cuGraphInstantiateWithFlags");
  CHECK(instantiate(nullptr, nullptr, 0) == 22);  // failed: there is nothing to tell
  CHECK(told.size() == 1);
}

TEST_CASE("gate: a published table is called with the real function", "[artifact]") {
  void* driver = open_driver();
  static const convtrace_hooks_v1 hooks = table_with_launch();
  publish(hooks);
  int answer = 1011;
  for (const char* name : kLaunchNames) {
    CAPTURE(name);
    CHECK(symbol<Launch>(driver, name)() == answer++);
    CHECK(g_per_thread == static_cast<int>(std::string(name).ends_with("_ptsz")));
  }
}

TEST_CASE("gate: a hook gets the parameters in order, as CUPTI's structs have them", "[artifact]") {
  void* driver = open_driver();
  struct Grid {
    void* function;
    unsigned sizes[7];
    void *stream, *params, *extra;
  };
  int words[5];
  using Kernel = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void*, void*, void*);
  static Grid grid;
  static void* pointers[4];
  const auto seen = [](int call, int, const void* params, convtrace_launch_fn) {
    const bool is_grid = call == CONVTRACE_LAUNCH_KERNEL || call == CONVTRACE_LAUNCH_COOPERATIVE;
    const size_t bytes = call == CONVTRACE_LAUNCH_KERNEL        ? sizeof(Grid)
                         : call == CONVTRACE_LAUNCH_COOPERATIVE ? offsetof(Grid, extra)
                         : call == CONVTRACE_LAUNCH_GRAPH       ? 2 * sizeof(void*)
                                                                : 4 * sizeof(void*);
    std::memcpy(is_grid ? static_cast<void*>(&grid) : pointers, params, bytes);
    return call;
  };
  static convtrace_hooks_v1 copying = table_with_launch();
  copying.launch = seen;
  publish(copying);
  for (const char* name : {"cuLaunchKernel", "cuLaunchCooperativeKernel"}) {
    CAPTURE(name);
    grid = {};
    const bool is_kernel = std::string(name) == "cuLaunchKernel";
    CHECK(symbol<Kernel>(driver, name)(&words[0], 1, 2, 3, 4, 5, 6, 7, &words[1], &words[2],
                                       &words[3]) ==
          (is_kernel ? CONVTRACE_LAUNCH_KERNEL : CONVTRACE_LAUNCH_COOPERATIVE));
    CHECK(grid.function == &words[0]);
    for (unsigned i = 0; i < 7; ++i) CHECK(grid.sizes[i] == i + 1);
    CHECK(grid.stream == &words[1]);
    CHECK(grid.params == &words[2]);
    CHECK(grid.extra == (is_kernel ? &words[3] : nullptr));
  }
  using Four = int (*)(void*, void*, void*, void*);
  CHECK(symbol<Four>(driver, "cuLaunchKernelEx")(&words[0], &words[1], &words[2], &words[3]) ==
        CONVTRACE_LAUNCH_KERNEL_EX);
  for (int i = 0; i < 4; ++i) CHECK(pointers[i] == &words[i]);
  using Two = int (*)(void*, void*);
  CHECK(symbol<Two>(driver, "cuGraphLaunch")(&words[3], &words[4]) == CONVTRACE_LAUNCH_GRAPH);
  CHECK(pointers[0] == &words[3]);
  CHECK(pointers[1] == &words[4]);
}

TEST_CASE("gate: an older engine's shorter table is not read past its end", "[artifact]") {
  void* driver = open_driver();
  static convtrace_hooks_v1 hooks = table_with_launch();
  hooks.bytes = offsetof(convtrace_hooks_v1, launch);
  publish(hooks);
  CHECK(symbol<Launch>(driver, "cuLaunchKernel")() == 11);
}

TEST_CASE("gate: without a driver the names are not found", "[artifact]") {
  for (const char* name : kLaunchNames) {
    CAPTURE(name);
    dlerror();
    CHECK(dlsym(RTLD_DEFAULT, name) == nullptr);
    const char* error = dlerror();
    REQUIRE(error != nullptr);
    CHECK(std::string(error).find("no CUDA driver is loaded") != std::string::npos);
  }
}

TEST_CASE("gate: a wrapper called without a driver says not found", "[artifact]") {
  REQUIRE(&cuLaunchKernel != nullptr);  // bound as in a program linked with the driver
  CHECK(cuLaunchKernel() == 500);
  void* function = &function;
  CHECK(cuGetProcAddress("cuInit", &function, 12000, 0) == 500);
}

TEST_CASE("gate: without CUPTI nobody finds a way to subscribe", "[artifact]") {
  for (const char* name : {"cuptiSubscribe", "cuptiSubscribe_v2"}) {
    dlerror();
    CHECK(dlsym(RTLD_DEFAULT, name) == nullptr);
    const char* error = dlerror();
    REQUIRE(error != nullptr);
    CHECK(std::string(error).find("no CUPTI is loaded") != std::string::npos);
  }
  REQUIRE(&cuptiSubscribe != nullptr);
  CHECK(cuptiSubscribe(nullptr, nullptr, nullptr) == 15);
}

TEST_CASE("gate: a driver that is closed and opened again is still reached", "[artifact]") {
  void* driver = open_driver();
  const auto launch = symbol<Launch>(driver, "cuLaunchKernel");
  CHECK(launch() == 11);
  CHECK(dlclose(driver) == 0);
  CHECK(launch() == 11);
  CHECK(symbol<Launch>(open_driver(), "cuLaunchKernel")() == 11);
}
