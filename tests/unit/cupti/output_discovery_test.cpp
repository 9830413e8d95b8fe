// Which operands of a kernel are its outputs, found by rules with `outputs = "auto"`: over the fake
// driver, whose kernels are host functions.

#include <array>
#include <bit>
#include <map>
#include <set>

#include "tests/unit/cupti/graph_scene.h"

namespace convtrace::cupti {
namespace {

using format::SampleOutcome;
using format::TensorStats;

constexpr size_t kFloats = 16;
constexpr size_t kBytes = kFloats * sizeof(float);

/// What `mix` takes: pointers as parameters of their own, and two inside a structure.
struct Mixed {
  uint64_t in = 0, also_in = 0, out = 0, in_place = 0, sometimes = 0;
  struct {
    uint64_t read = 0, written = 0;
  } list;
  uint32_t launch = 0;
};
constexpr uint32_t kSometimes = 5;  ///< one in so many launches writes `sometimes`

float* floats_at(const fakecuda_launch* launch, uint64_t address) {
  return static_cast<float*>(launch->device(address, kBytes));
}

void run_mix(const fakecuda_launch* launch) {
  uint64_t pointers[5];
  for (unsigned i = 0; i < 5; ++i) pointers[i] = *static_cast<const uint64_t*>(launch->params[i]);
  const auto* list = static_cast<const uint64_t*>(launch->params[5]);
  const auto number = *static_cast<const uint32_t*>(launch->params[6]);
  const auto tick = static_cast<float>(number + 1);
  for (size_t i = 0; i < kFloats; ++i) {
    const float sum = floats_at(launch, pointers[0])[i] + floats_at(launch, pointers[1])[i];
    floats_at(launch, pointers[2])[i] = sum + tick;
    floats_at(launch, pointers[3])[i] += 1;
    if (number % kSometimes == 0) floats_at(launch, pointers[4])[i] = tick;
    floats_at(launch, list[1])[i] = floats_at(launch, list[0])[i] - tick;
  }
}

constexpr unsigned kMixParams[] = {8, 8, 8, 8, 8, 16, 4};
constexpr fakecuda_kernel kMix[] = {{"mix", run_mix, 7, kMixParams}};
constexpr fakecuda_image kMixImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kMix};

settings::Rule rule_that_finds(const char* pattern) {
  settings::Rule rule = rule_for(pattern);
  rule.outputs.clear();
  rule.outputs_auto = true;
  return rule;
}

struct MixScene : Scene {
  explicit MixScene(settings::Rule rule = rule_that_finds("mix"),
                    void (*change)(InterceptorOptions&) = nullptr)
      : Scene({std::move(rule)}, change) {
    REQUIRE(cuModuleLoadData(&mix_module, &kMixImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&mix, mix_module, "mix") == CUDA_SUCCESS);
    for (uint64_t* pointer : pointers()) *pointer = make_buffer();
    await_preparation();
    already = sink.all<TensorStats>().size();
  }
  ~MixScene() { cuModuleUnload(mix_module); }

  std::array<uint64_t*, 7> pointers() {
    return {&args.in,        &args.also_in,   &args.out,         &args.in_place,
            &args.sometimes, &args.list.read, &args.list.written};
  }
  uint64_t make_buffer() {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc(&address, kBytes) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD32(address, 0, kFloats) == CUDA_SUCCESS);
    return address;
  }
  /// One launch, whose verdicts are waited for. @return the slots whose values came.
  std::set<std::string> launch_mix(bool collects = true) {
    void* params[] = {&args.in,        &args.also_in, &args.out,   &args.in_place,
                      &args.sometimes, &args.list,    &args.launch};
    REQUIRE(launch_one_thread(*interceptor, mix, nullptr, params) == CUDA_SUCCESS);
    ++args.launch;
    if (collects) interceptor->collect();
    return take_slots();
  }
  /// The kernel alone in a graph, launched once. @return the slots whose values came.
  std::set<std::string> run_graph() {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    void* params[] = {&args.in,        &args.also_in, &args.out,   &args.in_place,
                      &args.sometimes, &args.list,    &args.launch};
    CUDA_KERNEL_NODE_PARAMS node_params{};
    node_params.func = mix;
    node_params.gridDimX = node_params.gridDimY = node_params.gridDimZ = 1;
    node_params.blockDimX = node_params.blockDimY = node_params.blockDimZ = 1;
    node_params.kernelParams = params;
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphAddKernelNode(&node, graph, nullptr, 0, &node_params) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
    interceptor->graph_call(CONVTRACE_GRAPH_INSTANTIATED, exec, graph, nullptr);
    REQUIRE(launch_graph(*interceptor, exec, stream) == CUDA_SUCCESS);
    interceptor->collect();
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    return take_slots();
  }
  std::set<std::string> take_slots() {
    std::set<std::string> slots;
    const auto values = sink.all<TensorStats>();
    for (; already < values.size(); ++already)
      slots.insert(std::string(definitions.text(values[already].slot)));
    return slots;
  }
  TensorStats last_of(const char* slot) {
    const auto values = sink.all<TensorStats>();
    for (size_t i = values.size(); i-- > 0;)
      if (definitions.text(values[i].slot) == slot) return values[i];
    FAIL("no value of " << slot);
    return {};
  }

  Mixed args;
  CUmodule mix_module = nullptr;
  CUfunction mix = nullptr;
  size_t already = 0;
};

using Slots = std::set<std::string>;
const Slots kAlways = {"arg:2", "arg:3", "arg:5+8"};

TEST_CASE("discovery: values come of what a launch changes, never of what it reads") {
  MixScene scene;
  Slots with_fourth = kAlways;
  with_fourth.insert("arg:4");
  // The first launch writes `sometimes`, so that it is an output from then on.
  for (int i = 0; i < 200; ++i) CHECK(scene.launch_mix() == with_fourth);
  const TensorStats out = scene.last_of("arg:2");
  CHECK(out.address == scene.args.out);
  CHECK(out.stats.mean == 200);
  CHECK(out.stats.count == kFloats);
  CHECK(scene.last_of("arg:3").stats.mean == 200);
  CHECK(scene.last_of("arg:5+8").address == scene.args.list.written);
  CHECK(scene.sink.all<format::Loss>().empty());
  for (const auto& launch : scene.sink.all<format::Launch>())
    CHECK(launch.sampled == SampleOutcome::kSampled);
}

TEST_CASE("discovery: an operand that few launches write is told when one does, then always") {
  MixScene scene;
  scene.args.launch = 1;
  for (int i = 1; i < 5; ++i) CHECK(scene.launch_mix() == kAlways);
  CHECK(scene.launch_mix().contains("arg:4"));
  CHECK(scene.last_of("arg:4").looks == 5);
  CHECK(scene.last_of("arg:4").changes == 1);
  CHECK(scene.launch_mix().contains("arg:4"));
}

TEST_CASE("discovery: how often a look found a change is in each value") {
  MixScene scene;
  scene.launch_mix();
  CHECK(scene.last_of("arg:2").looks == 1);
  CHECK(scene.last_of("arg:2").changes == 1);
  for (int i = 1; i < 100; ++i) scene.launch_mix();
  CHECK(scene.last_of("arg:2").looks == 8 + 1);  // the first ones, and number 64
  CHECK(scene.last_of("arg:2").changes == 8 + 1);
  CHECK(scene.last_of("arg:4").changes == 2);  // launches 0 and 5; 64 is no fifth one
}

TEST_CASE("discovery: verdicts that are late keep launches looked at, and no value is lost") {
  MixScene scene;
  for (int i = 0; i < 20; ++i) scene.launch_mix(false);
  while (scene.interceptor->collect()) continue;
  const auto values = scene.sink.all<TensorStats>();
  std::map<std::string, int> counts;
  for (size_t i = 1; i < values.size(); ++i)
    ++counts[std::string(scene.definitions.text(values[i].slot))];
  CHECK(counts ==
        std::map<std::string, int>{{"arg:2", 20}, {"arg:3", 20}, {"arg:4", 20}, {"arg:5+8", 20}});
}

TEST_CASE("discovery: operands in one block are judged each by its own part") {
  MixScene scene;
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, 2 * kBytes) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(block, 0, 2 * kFloats) == CUDA_SUCCESS);
  scene.args.in = block;
  scene.args.out = block + kBytes;
  const Slots slots = scene.launch_mix();
  CHECK_FALSE(slots.contains("arg:0"));
  CHECK(slots.contains("arg:2"));
  CHECK(scene.last_of("arg:2").bytes == kBytes);
}

TEST_CASE("discovery: a launch that writes what was there already has its values all the same") {
  Scene scene({rule_that_finds("fill*")});
  scene.await_preparation();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(scene.launch(scene.fill) == CUDA_SUCCESS);
    scene.interceptor->collect();
  }
  // The second one fills with the same number: known as an output by the first, it is told.
  const auto values = scene.sink.all<TensorStats>();
  REQUIRE(values.size() == 1 + 2);
  CHECK(values[1].changes == 1);
  CHECK(values[2].looks == 2);
  CHECK(values[2].changes == 1);
}

TEST_CASE("discovery: an operand that the rule declares is taken once, without a look") {
  settings::Rule rule = rule_that_finds("mix");
  rule.outputs = {0};
  MixScene scene(rule);
  for (int i = 0; i < 3; ++i) CHECK(scene.launch_mix().contains("arg:0"));
  CHECK(scene.last_of("arg:0").looks == 0);
  const auto values = scene.sink.all<TensorStats>();
  CHECK(std::ranges::count(values, scene.args.in, &TensorStats::address) == 3);
}

TEST_CASE("discovery: with no room for a look what is known is taken, the rest is counted") {
  MixScene scene;
  for (int i = 0; i < 8; ++i) scene.launch_mix();
  CUstream capturing = nullptr;
  REQUIRE(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_BEGUN, nullptr, capturing, nullptr);
  CHECK(scene.launch_mix().empty());  // nothing of ours while a stream captures
  CHECK(lost(scene, format::LossReason::kStreamUnsafe) == 4);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS);
  scene.interceptor->graph_call(CONVTRACE_CAPTURE_ENDED, nullptr, capturing, nullptr);
  CHECK(scene.launch_mix().size() == 4);
  cuGraphDestroy(graph);
}

TEST_CASE("discovery: of a kernel in a graph come the outputs that launches have shown") {
  MixScene scene;
  CHECK(scene.run_graph().size() == 7);  // nothing is known: every pointer, each says that
  CHECK(scene.last_of("arg:0").looks == 0);
  for (int i = 0; i < 8; ++i) scene.launch_mix();
  CHECK(scene.run_graph().size() == 4);
  CHECK(scene.last_of("arg:2").looks == 8);
}

TEST_CASE("discovery: values of a kernel with a known signature have its names and types") {
  MixScene scene(
      settings::rule_for_all_kernels(settings::Rule::AllKernels::kTyped, format::Capture::kStats));
  CHECK(scene.launch_mix().empty());  // nothing is known of it yet
  KernelSignature signature{"mix", {}};
  for (const char* slot : {"arg:in", "arg:also_in", "arg:out", "arg:in_place", "arg:sometimes"})
    signature.params.push_back(
        {scene.definitions.intern(slot), true,
         slot == std::string("arg:in_place") ? format::DType::kU8 : format::DType::kF32});
  // The structure is told as a number: its words are taken for no pointers.
  signature.params.push_back({scene.definitions.intern("arg:list"), false, format::DType::kI64});
  scene.interceptor->describe_kernel(std::bit_cast<uint64_t>(scene.mix), signature);

  scene.args.launch = 6;
  CHECK(scene.launch_mix() == std::set<std::string>{"arg:out", "arg:in_place"});
  const TensorStats out = scene.last_of("arg:out");
  CHECK(out.dtype == format::DType::kF32);
  CHECK(out.stats.count == kFloats);
  CHECK(out.stats.mean == 7);
  CHECK(scene.last_of("arg:in_place").dtype == format::DType::kU8);
  CHECK(scene.last_of("arg:in_place").stats.count == kBytes);
  CHECK(scene.run_graph() == std::set<std::string>{"arg:out", "arg:in_place"});
}

TEST_CASE("discovery: a type in a rule counts more than that of the signature") {
  settings::Rule rule = rule_that_finds("mix");
  rule.dtype = format::DType::kU32;
  MixScene scene(std::move(rule));
  KernelSignature signature{"mix", {}};
  for (int i = 0; i < 6; ++i)
    signature.params.push_back(
        {scene.definitions.intern("arg:p" + std::to_string(i)), i < 5, format::DType::kF32});
  scene.interceptor->describe_kernel(std::bit_cast<uint64_t>(scene.mix), signature);
  scene.launch_mix();
  CHECK(scene.last_of("arg:p2").dtype == format::DType::kU32);
}

}  // namespace
}  // namespace convtrace::cupti
