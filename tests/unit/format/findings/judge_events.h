#pragma once
/// @file judge_events.h
/// Events as a program on a GPU makes them, in short words.

#include <vector>

#include "format/findings/memory/memory_judge.h"

namespace convtrace::test {

inline constexpr format::Device kGpu{format::Device::Type::kCuda, 0};
inline constexpr uint64_t kLegacyStream = 0;

/// A judge, and the calls of a program that it sees.
struct JudgedProgram {
  judge::MemoryJudge judge;
  judge::MemoryJudge::Findings findings;
  uint32_t thread = 11;
  format::Phase phase = format::Phase::kForward;  ///< of launches
  uint32_t step = 3;
  uint64_t last_generation = 0;

  void see(format::Event event) {
    format::EventHeader& header = format::header_of(event);
    header.thread = thread;
    header.step = step;
    judge.see(event, findings);
  }

  /// @return the generation.
  uint64_t alloc(uint64_t address, uint64_t bytes,
                 format::MemorySource source = format::MemorySource::kFramework,
                 uint64_t stream = 0) {
    format::Alloc event;
    event.address = address;
    event.bytes = bytes;
    event.generation = ++last_generation;
    event.source = source;
    event.device = kGpu;
    event.stream = stream;
    see(event);
    return last_generation;
  }
  uint64_t driver_alloc(uint64_t address, uint64_t bytes) {
    return alloc(address, bytes, format::MemorySource::kDriver);
  }
  void free(uint64_t generation, uint64_t stream = 0) {
    format::Free event;
    event.generation = generation;
    event.device = kGpu;
    event.stream = stream;
    see(event);
  }

  /// Where the thread's next launch, or its next tensors, are.
  void stack(uint32_t id, bool of_launch = true) {
    format::Op event;
    event.moment = format::OpMoment::kStack;
    event.slot = format::StringId{1};
    if (of_launch) event.device = kGpu;
    event.stack = format::StackId{id};
    see(event);
  }

  static format::Operand pointer(uint64_t address, uint64_t generation, uint16_t param = 0) {
    return {.param = param,
            .word = 0,
            .confidence = format::Confidence::kPointerBase,
            .address = address,
            .generation = generation,
            .offset = 0};
  }
  static format::Operand word(uint64_t address, uint64_t generation) {
    format::Operand operand = pointer(address, generation);
    operand.confidence = format::Confidence::kWordBase;
    return operand;
  }
  void launch(std::vector<format::Operand> operands, uint64_t stream = 0, uint32_t kernel = 1,
              format::SampleOutcome sampled = format::SampleOutcome::kNotAsked) {
    format::Launch event;
    event.kernel = format::KernelId{kernel};
    event.stream = stream;
    event.sampled = sampled;
    event.operands = operands;
    event.place.phase = phase;
    see(event);
  }
  void copy(uint64_t destination, uint64_t source, uint64_t stream) {
    format::Copy event;
    event.destination = destination;
    event.source = source;
    event.bytes = 1;
    event.stream = stream;
    see(event);
  }
  void sync(format::SyncKind kind, uint64_t stream, uint64_t event_handle = 0, uint32_t flags = 0) {
    format::Sync event;
    event.kind = kind;
    event.stream = stream;
    event.event = event_handle;
    event.flags = flags;
    see(event);
  }
  void lose(format::LossReason reason) {
    format::Loss event;
    event.reason = reason;
    event.count = 1;
    see(event);
  }
};

}  // namespace convtrace::test
