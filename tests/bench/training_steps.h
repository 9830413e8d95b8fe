#pragma once
/// @file training_steps.h
/// The events of a training run as `mode=launches` records it, for benchmarks of the format: per
/// step 1500 launches with 3 to 5 operands each, and the allocations and frees of what they
/// produce.
///
/// Model:    kernels, scopes and shapes repeat from step to step. Parameters keep address and
///           generation. Activations are allocated anew in each step, so each has a new generation
///           every time; one in ten has also moved, which changes 5 % of all operand addresses.
///           Gaps between launches are noise of 11 bits, now and then a pause.

#include <cstdint>
#include <random>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::bench {

class TrainingSteps {
 public:
  static constexpr size_t kLaunches = 1500;

  /// Names are interned in `definitions`.
  TrainingSteps(format::Definitions& definitions, uint64_t seed);

  /// Makes the next launch with its allocations before it and its frees after it, and at the first
  /// launch of a step also the Step.
  /// @return events that are valid until the same launch of the next step.
  const std::vector<format::Event>& next();
  /// @return the number of steps that have begun.
  [[nodiscard]] uint32_t steps() const { return step_; }

 private:
  struct Buffer {
    uint64_t address = 0;
    uint64_t generation = 0;
    uint64_t bytes = 0;
    size_t first_use = 0, last_use = 0;  ///< index of a launch in the step; activations only
  };
  void make_launch(size_t index, const std::vector<format::KernelId>& kernels,
                   const std::vector<format::StringId>& scopes);
  [[nodiscard]] uint64_t below(uint64_t limit) { return random_() % limit; }
  [[nodiscard]] uint64_t new_address() { return 0x7f0000000000 + below(1u << 26) * 512; }
  template <typename Memory>
  void put_memory(const Buffer& buffer);
  void put_launch(format::Launch& launch);
  format::EventHeader header();

  std::mt19937_64 random_;
  std::vector<Buffer> buffers_;
  std::vector<format::Launch> launches_;           ///< of a step
  std::vector<format::Operand> operands_;          ///< of all of them
  std::vector<uint16_t> operand_buffers_;          ///< in buffers_
  std::vector<std::vector<size_t>> born_, dying_;  ///< buffers by launch
  std::vector<format::Event> events_;
  uint64_t generation_ = 0;
  uint64_t t_ns_ = 1'000'000'000;
  uint32_t step_ = 0;      ///< begun so far
  size_t next_ = 0;        ///< launch of the step
  bool backward_ = false;  ///< of that launch
};

}  // namespace convtrace::bench
