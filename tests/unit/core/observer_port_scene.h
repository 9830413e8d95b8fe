#pragma once
/// @file observer_port_scene.h
/// A port with what it works on, and a host that notes what it is asked for.

#include "format/base/log.h"
#include "interposer/core/observer/observer_port.h"
#include "tests/support/catch.h"
#include "tests/support/observer_messages.h"
#include "tests/unit/core/recording_sink.h"

namespace convtrace::engine {

using namespace convtrace::test;

class NoListener final : public MemoryListener {
  void on_allocated(const MemoryReport&, const cupti::MemoryRange&,
                    std::span<void* const>) override {}
  void on_freed(const MemoryReport&, const cupti::MemoryRange&, std::span<void* const>) override {}
  void on_reports_lost(uint64_t) noexcept override {}
};

class FakeHost final : public ObserverHost {
 public:
  format::SampleOutcome submit_to_device(std::span<cupti::DeviceRequest> batch, uint64_t stream,
                                         cupti::Results results) noexcept override {
    batches.push_back({stream, batch.size()});
    later = results == cupti::Results::kLater;
    for (const cupti::DeviceRequest& request : batch) {
      shapes.emplace_back(request.event.shape.begin(), request.event.shape.end());
      captures.push_back(request.event.capture);
    }
    return answer;
  }
  bool is_settled(const format::TensorStats&, uint64_t) noexcept override { return settled; }
  void describe_kernel(uint64_t function, cupti::KernelSignature signature) noexcept override {
    kernels.emplace_back(function, std::move(signature));
  }
  void fold_waiting() noexcept override { ++folds; }
  void on_custom_op() noexcept override { ++ops; }
  void on_fact(std::string_view name, std::string_view value) override {
    facts.emplace_back(name, value);
  }
  bool queue_value(const format::TensorStats& event,
                   const stats::Layout& elements) noexcept override {
    if (queues_values)
      queued.push_back({event, {event.shape.begin(), event.shape.end()}, elements});
    return queues_values;
  }
  void on_spent(uint64_t ns) noexcept override { spent_ns += ns; }
  [[nodiscard]] uint64_t spent_so_far() const noexcept override { return spent_ns; }

  format::SampleOutcome answer = format::SampleOutcome::kSampled;
  bool settled = true;
  struct Queued {
    format::TensorStats event;  ///< without what it borrows
    std::vector<uint64_t> shape;
    stats::Layout elements;
  };
  bool queues_values = false;
  std::vector<Queued> queued;
  std::vector<std::pair<uint64_t, size_t>> batches;
  std::vector<std::vector<uint64_t>> shapes;
  std::vector<format::Capture> captures;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<uint64_t, cupti::KernelSignature>> kernels;
  bool later = false;  ///< the results of the last batch may come later
  int folds = 0;
  int ops = 0;
  uint64_t spent_ns = 0;
};

struct PortScene {
  explicit PortScene(settings::Mode mode_in = settings::Mode::kStats, uint32_t samples_in = 8,
                     const char* steps_in = nullptr, bool poison_in = false)
      : mode(mode_in), samples(samples_in), wanted(step_set(steps_in)), poison(poison_in) {
    REQUIRE(state.begin_arming());
    state.activate();
  }

  static settings::StepSet step_set(const char* text) {
    return text != nullptr ? settings::StepSet::parse_steps(text).value() : settings::StepSet{};
  }
  uint32_t submit(const MessageBatch& batch) { return port.submit(batch.bytes()); }
  uint32_t id(std::string_view text) { return definitions.intern(text).value; }

  settings::Mode mode;
  uint32_t samples;
  settings::StepSet wanted;
  State state;
  RecordingSink sink;
  format::Definitions definitions;
  cupti::AddressMap addresses;
  NoListener listener;
  MemoryJournal journal{addresses, listener};
  FactTable facts;
  StackTexts stacks{definitions, facts};
  settings::RuleBook rules;
  OpRecorder ops{sink, addresses, journal, stacks};
  StepControl steps{mode, wanted};
  FakeHost host;
  NameFilter names{{}, settings::compile_patterns("secret.*").value(), definitions};
  CaptureRules captures{mode, rules, definitions, true, samples};
  Wakeup wakeup;
  ValueStore values{{.memory_bytes = 1 << 20, .threads = 1}, wakeup, sink};
  bool poison;
  ObserverPort port{{state, sink, definitions, addresses, journal, ops, steps, host, captures,
                     values, names, nullptr, poison}};
};

inline constexpr format::Device kCuda0{format::Device::Type::kCuda, 0};

}  // namespace convtrace::engine
