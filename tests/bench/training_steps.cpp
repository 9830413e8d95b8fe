#include "tests/bench/training_steps.h"

#include <algorithm>
#include <string>

namespace convtrace::bench {

using namespace format;

namespace {

constexpr size_t kKernels = 60, kScopes = 50, kParameters = 400, kActivations = 500;
constexpr size_t kForward = 500, kBackward = 750;  // launches; the others are the optimizer's

}  // namespace

TrainingSteps::TrainingSteps(Definitions& definitions, uint64_t seed) : random_(seed) {
  std::vector<KernelId> kernels;
  for (size_t i = 0; i < kKernels; ++i) {
    const StringId name = definitions.intern("_ZN2at6native6kernel" + std::to_string(i));
    kernels.push_back(definitions.intern_kernel({name, name}));
  }
  std::vector<StringId> scopes;
  for (size_t i = 0; i < kScopes; ++i)
    scopes.push_back(definitions.intern("transformer.h." + std::to_string(i) + ".mlp"));
  for (size_t i = 0; i < kParameters + kActivations; ++i)
    buffers_.push_back({new_address(), ++generation_, (1 + below(4096)) * 512, kLaunches, 0});
  operands_.reserve(5 * kLaunches);  // launches refer to it
  for (size_t i = 0; i < kLaunches; ++i) make_launch(i, kernels, scopes);
  born_.resize(kLaunches);
  dying_.resize(kLaunches);
  for (size_t i = kParameters; i < buffers_.size(); ++i) {
    if (buffers_[i].first_use == kLaunches) continue;  // used by none
    born_[buffers_[i].first_use].push_back(i);
    dying_[buffers_[i].last_use].push_back(i);
  }
}

void TrainingSteps::make_launch(size_t index, const std::vector<KernelId>& kernels,
                                const std::vector<StringId>& scopes) {
  Launch& launch = launches_.emplace_back();
  launch.kernel = kernels[below(kKernels)];
  launch.place.scope = scopes[index * kScopes / kLaunches];
  launch.place.phase = index < kForward               ? Phase::kForward
                       : index < kForward + kBackward ? Phase::kBackward
                                                      : Phase::kOptimizer;
  launch.grid[0] = static_cast<uint32_t>(1 + below(4096));
  launch.block[0] = 128u << below(3);
  launch.shared_bytes = below(4) == 0 ? 49152 : 0;
  launch.stream = 7;
  const size_t count = 3 + below(3);
  for (size_t i = 0; i < count; ++i) {
    // Activations are used near each other in time, parameters anywhere.
    const bool activation = below(2) == 0;
    const size_t near = index * kActivations / kLaunches + below(20);
    const size_t buffer =
        activation ? kParameters + std::min(near, kActivations - 1) : below(kParameters);
    buffers_[buffer].first_use = std::min(buffers_[buffer].first_use, index);
    buffers_[buffer].last_use = std::max(buffers_[buffer].last_use, index);
    operand_buffers_.push_back(static_cast<uint16_t>(buffer));
    Operand& operand = operands_.emplace_back();
    operand.param = static_cast<uint16_t>(i + below(2));
    const bool interior = below(8) == 0;
    if (interior) operand.offset = 256 * (1 + below(64));
    const bool word = below(4) == 0;
    if (word) operand.word = static_cast<uint16_t>(8 * below(8));
    operand.confidence = word
                             ? (interior ? Confidence::kWordInterior : Confidence::kWordBase)
                             : (interior ? Confidence::kPointerInterior : Confidence::kPointerBase);
  }
  launch.operands = std::span(operands_).last(count);
}

EventHeader TrainingSteps::header() {
  t_ns_ += below(200) == 0 ? 50'000 + below(1u << 17) : 2500 + below(1u << 11);
  return {.seq = 0, .t_ns = t_ns_, .step = step_ - 1, .thread = backward_ ? 4243u : 4242u};
}

template <typename Memory>
void TrainingSteps::put_memory(const Buffer& buffer) {
  Memory event;
  event.header = header();
  event.address = buffer.address;
  event.bytes = buffer.bytes;
  event.generation = buffer.generation;
  event.source = MemorySource::kFramework;
  event.device = {Device::Type::kCuda, 0};
  event.stream = 7;
  events_.emplace_back(event);
}

void TrainingSteps::put_launch(Launch& launch) {
  const auto first = static_cast<size_t>(launch.operands.data() - operands_.data());
  for (size_t k = first; k < first + launch.operands.size(); ++k) {
    const Buffer& buffer = buffers_[operand_buffers_[k]];
    operands_[k].generation = buffer.generation;
    operands_[k].address = buffer.address + operands_[k].offset;
  }
  launch.header = header();
  events_.emplace_back(launch);
}

const std::vector<Event>& TrainingSteps::next() {
  events_.clear();
  backward_ = launches_[next_].place.phase == Phase::kBackward;
  if (next_ == 0) {
    ++step_;
    events_.emplace_back(Step{.header = header(), .index = step_ - 1});
  }
  for (const size_t born : born_[next_]) {
    buffers_[born].generation = ++generation_;
    if (below(10) == 0) buffers_[born].address = new_address();
    put_memory<Alloc>(buffers_[born]);
  }
  put_launch(launches_[next_]);
  for (const size_t dying : dying_[next_]) put_memory<Free>(buffers_[dying]);
  next_ = (next_ + 1) % kLaunches;
  return events_;
}

}  // namespace convtrace::bench
