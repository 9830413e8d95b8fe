#include "cupti/kernels/function_table.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

/// A driver with two handles: 0x10 is a CUfunction, 0x20 a CUkernel. Each is asked by its own
/// queries only.
struct FakeDriver {
  static inline std::atomic<int> queries = 0;
  static inline int wrong_queries = 0;

  static CUresult func_name(const char** name, CUfunction f) {
    ++queries;
    if (f != function()) {
      ++wrong_queries;
      return CUDA_ERROR_INVALID_HANDLE;
    }
    *name = "_Z3addPfi";
    return CUDA_SUCCESS;
  }
  static CUresult kernel_name(const char** name, CUkernel k) {
    if (reinterpret_cast<CUfunction>(k) != kernel()) return CUDA_ERROR_INVALID_HANDLE;
    *name = "triton_poi_fused_add_3";
    return CUDA_SUCCESS;
  }
  static inline size_t param_count = 2;
  static CUresult func_params(CUfunction f, size_t index, size_t* offset, size_t* bytes) {
    if (f != function()) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= param_count) return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 8;
    *bytes = index == 0 ? 8 : 4;
    return CUDA_SUCCESS;
  }
  static CUresult kernel_params(CUkernel k, size_t index, size_t* offset, size_t* bytes) {
    if (reinterpret_cast<CUfunction>(k) != kernel()) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= 1) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *bytes = 8;
    return CUDA_SUCCESS;
  }
  static CUresult exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

  static CUfunction function() { return reinterpret_cast<CUfunction>(uintptr_t{0x10}); }
  static CUfunction kernel() { return reinterpret_cast<CUfunction>(uintptr_t{0x20}); }

  static DriverApi api() {
    queries = 0;
    wrong_queries = 0;
    param_count = 2;
    DriverApi table;
    table.func_get_name = func_name;
    table.kernel_get_name = kernel_name;
    table.func_get_param_info = func_params;
    table.kernel_get_param_info = kernel_params;
    table.thread_exchange_stream_capture_mode = exchange;
    return table;
  }
};

settings::Rule rule_for(const char* pattern) {
  settings::Rule rule;
  rule.kernel = settings::Pattern::compile(pattern).value();
  return rule;
}

struct FunctionScene {
  explicit FunctionScene(std::vector<settings::Rule> rules_in = {}) : rules(std::move(rules_in)) {
    table.follow_unloads(true);
  }

  void found(HandleKind kind, CUfunction handle, uintptr_t owner) {
    table.apply({kind, &handle, 1, reinterpret_cast<const void*>(owner)});
  }
  std::string name(CUfunction handle) {
    return std::string(definitions.text(definitions.kernel(table.resolve(handle).kernel).name));
  }

  DriverApi api = FakeDriver::api();
  format::Definitions definitions;
  settings::RuleBook rules;
  FunctionTable table{api, definitions, rules};
};

TEST_CASE("function_table: layout, name and family are asked once per handle", "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kFunction, FakeDriver::function(), 1);
  const FunctionInfo& info = scene.table.resolve(FakeDriver::function());
  REQUIRE(info.params.size() == 2);
  CHECK(info.params[1].offset == 8);
  CHECK(info.params[1].bytes == 4);
  const auto kernel = scene.definitions.kernel(info.kernel);
  CHECK(scene.definitions.text(kernel.name) == "_Z3addPfi");
  CHECK(scene.definitions.text(kernel.family) == "add(float*, int)");
  CHECK(&scene.table.resolve(FakeDriver::function()) == &info);
  CHECK(FakeDriver::queries == 1);
}

TEST_CASE("function_table: where unloads are not told of, a handle is asked at each launch",
          "[function_table]") {
  FunctionScene scene;
  FunctionTable& table = scene.table;
  table.follow_unloads(false);
  const FunctionInfo& first = table.resolve(FakeDriver::function());
  CHECK(&table.resolve(FakeDriver::function()) == &first);  // the same facts, kept once
  FakeDriver::param_count = 1;  // another kernel of that name came by the handle
  CHECK(table.resolve(FakeDriver::function()).params.size() == 1);
  CHECK(first.params.size() == 2);
}

TEST_CASE("function_table: a kernel handle is asked by the kernel queries", "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kKernel, FakeDriver::kernel(), 1);
  CHECK(scene.name(FakeDriver::kernel()) == "triton_poi_fused_add_3");
  CHECK(FakeDriver::wrong_queries == 0);
}

TEST_CASE(
    "function_table: a handle of unknown kind is a function if the driver knows no such kernel",
    "[function_table]") {
  FunctionScene scene;
  CHECK(scene.name(FakeDriver::kernel()) == "triton_poi_fused_add_3");
  CHECK(scene.table.resolve(FakeDriver::kernel()).params.size() == 1);
  CHECK(FakeDriver::queries == 0);  // none that would read it as a function
  CHECK(scene.name(FakeDriver::function()) == "_Z3addPfi");
}

TEST_CASE("function_table: rules match the demangled name, the mangled name and the family",
          "[function_table]") {
  FunctionScene scene({rule_for("add(*"), rule_for("_Z3add*"), rule_for("mul*")});
  const FunctionInfo& info = scene.table.resolve(FakeDriver::function());
  REQUIRE(info.rules.size() == 2);
  CHECK(info.rules[0] == scene.rules.rules()[0]);
  CHECK(info.rules[1] == scene.rules.rules()[1]);
}

TEST_CASE("function_table: an unloaded module's handles are asked anew, old facts stay readable",
          "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kFunction, FakeDriver::function(), 1);
  const FunctionInfo& before = scene.table.resolve(FakeDriver::function());
  scene.table.apply(
      {HandleKind::kFunction, nullptr, 0, reinterpret_cast<const void*>(uintptr_t{1})});
  const FunctionInfo& after = scene.table.resolve(FakeDriver::function());
  CHECK(FakeDriver::queries == 2);
  CHECK(before.params.size() == 2);
  CHECK(before.kernel == after.kernel);
}

TEST_CASE("function_table: a handle that another module got is asked anew", "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kFunction, FakeDriver::function(), 1);
  const FunctionInfo& first = scene.table.resolve(FakeDriver::function());
  CHECK(&scene.table.resolve(FakeDriver::function()) == &first);
  scene.found(HandleKind::kFunction, FakeDriver::function(), 2);
  const FunctionInfo& second = scene.table.resolve(FakeDriver::function());
  CHECK(&second != &first);
  CHECK(&scene.table.resolve(FakeDriver::function()) == &second);
  CHECK(FakeDriver::queries == 2);
}

TEST_CASE("function_table: threads launch while modules come and go", "[function_table][threads]") {
  FunctionScene scene;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        const FunctionInfo& info = scene.table.resolve(FakeDriver::function());
        if (info.handle != FakeDriver::function() || info.params.size() != 2) wrong.fetch_add(1);
      }
    });
  }
  for (uintptr_t owner = 1; owner < 300; ++owner) {
    scene.found(HandleKind::kFunction, FakeDriver::function(), owner);
    scene.table.apply({HandleKind::kFunction, nullptr, 0, reinterpret_cast<const void*>(owner)});
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("function_table: unloading a library forgets the functions made of its kernels",
          "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kKernel, FakeDriver::kernel(), 1);
  scene.found(HandleKind::kFunction, FakeDriver::function(), 0x20);  // owner: the kernel
  (void)scene.table.resolve(FakeDriver::function());
  scene.table.apply({HandleKind::kKernel, nullptr, 0, reinterpret_cast<const void*>(uintptr_t{1})});
  (void)scene.table.resolve(FakeDriver::function());
  CHECK(FakeDriver::queries == 2);
}

TEST_CASE("function_table: without the queries a launch still has a kernel", "[function_table]") {
  FunctionScene scene;
  scene.api.func_get_name = nullptr;
  scene.api.func_get_param_info = nullptr;
  scene.api.kernel_get_name = nullptr;
  scene.api.kernel_get_param_info = nullptr;
  CHECK(scene.name(FakeDriver::function()) == "(unnamed)");
  CHECK(scene.table.resolve(FakeDriver::function()).params.empty());
}

TEST_CASE("function_table: in a callback only what the driver told before is known",
          "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kFunction, FakeDriver::function(), 1);
  CHECK(scene.table.known(FakeDriver::function()) == nullptr);
  CHECK(scene.table.known(nullptr) == nullptr);
  CHECK(FakeDriver::queries == 0);
  const FunctionInfo& info = scene.table.resolve(FakeDriver::function());
  CHECK(scene.table.known(FakeDriver::function()) == &info);
}

TEST_CASE("function_table: an old driver's kernels have the names they were asked for by",
          "[function_table]") {
  FunctionScene scene;
  scene.api.func_get_param_info = nullptr;
  scene.api.kernel_get_param_info = nullptr;
  scene.api.func_get_name = nullptr;
  scene.api.kernel_get_name = nullptr;
  CUfunction kernel = FakeDriver::kernel();
  CUfunction function = FakeDriver::function();
  scene.table.apply({HandleKind::kKernel, &kernel, 1, &scene, "add"});
  scene.table.apply({HandleKind::kFunction, &function, 1, kernel});  // the function of that kernel
  CHECK(scene.name(kernel) == "add");
  CHECK(scene.name(function) == "add");
  CHECK(scene.table.resolve(function).params.empty());
}

TEST_CASE("function_table: the modules of a context that ended are asked anew, libraries are not",
          "[function_table]") {
  FunctionScene scene;
  scene.found(HandleKind::kFunction, FakeDriver::function(), 1);
  scene.found(HandleKind::kKernel, FakeDriver::kernel(), 2);
  const FunctionInfo* const function = &scene.table.resolve(FakeDriver::function());
  const FunctionInfo* const kernel = &scene.table.resolve(FakeDriver::kernel());
  scene.table.forget_modules();
  CHECK(&scene.table.resolve(FakeDriver::function()) != function);
  CHECK(&scene.table.resolve(FakeDriver::kernel()) == kernel);
}

std::shared_ptr<KernelSignature> signature_of(const char* kernel, size_t params) {
  KernelSignature made{kernel, {}};
  for (size_t i = 0; i < params; ++i)
    made.params.push_back({format::StringId{uint32_t(i + 1)}, i == 0, format::DType::kF32});
  return std::make_shared<KernelSignature>(std::move(made));
}

TEST_CASE("function_table: a signature counts if name and parameters of the kernel agree with it",
          "[function_table]") {
  FunctionScene scene;
  const CUfunction function = FakeDriver::function();
  scene.found(HandleKind::kFunction, function, 1);
  CHECK(scene.table.resolve(function).signature == nullptr);
  scene.table.describe(function, signature_of("_Z3addPfi", 2));
  REQUIRE(scene.table.resolve(function).signature != nullptr);
  CHECK(scene.table.resolve(function).signature->params.size() == 2);

  // One parameter was appended by the compiler; more than the kernel has, or another kernel.
  scene.table.describe(function, signature_of("_Z3addPfi", 1));
  CHECK(scene.table.resolve(function).signature != nullptr);
  scene.table.describe(function, signature_of("_Z3addPfi", 3));
  CHECK(scene.table.resolve(function).signature == nullptr);
  scene.table.describe(function, signature_of("sub", 2));
  CHECK(scene.table.resolve(function).signature == nullptr);

  // A parameter of 4 bytes is no pointer.
  auto wrong = signature_of("_Z3addPfi", 2);
  wrong->params[1].is_pointer = true;
  scene.table.describe(function, std::move(wrong));
  CHECK(scene.table.resolve(function).signature == nullptr);
}

TEST_CASE("function_table: a signature ends with the kernel's module", "[function_table]") {
  FunctionScene scene;
  const CUfunction function = FakeDriver::function();
  scene.found(HandleKind::kFunction, function, 1);
  scene.table.describe(function, signature_of("_Z3addPfi", 2));
  CHECK(scene.table.resolve(function).signature != nullptr);
  scene.found(HandleKind::kFunction, function, 2);  // the handle came again
  CHECK(scene.table.resolve(function).signature == nullptr);
}

TEST_CASE("function_table: the rule for typed kernels is for those alone, that for all for each",
          "[function_table]") {
  using enum settings::Rule::AllKernels;
  for (const auto which : {kTyped, kEach}) {
    FunctionScene scene({settings::rule_for_all_kernels(which, format::Capture::kStats)});
    const CUfunction function = FakeDriver::function();
    CHECK(scene.table.resolve(function).rules.size() == (which == kEach ? 1 : 0));
    scene.table.describe(function, signature_of("_Z3addPfi", 2));
    CHECK(scene.table.resolve(function).rules.size() == 1);
    CHECK(scene.table.resolve(FakeDriver::kernel()).rules.size() == (which == kEach ? 1 : 0));
  }
}

}  // namespace
}  // namespace convtrace::cupti
