#include "tests/bench/event_tables.h"

#include <cstdlib>

#include "format/base/checksum.h"
#include "format/file/layout.h"

namespace convtrace::bench {

using namespace format;

flatbuffers::Offset<wire::Launch> EventTables::launch(const Launch& e) {
  operands_.clear();
  for (const Operand& o : e.operands) {
    operands_.push_back(wire::CreateOperand(builder_, o.param, o.word,
                                            static_cast<uint8_t>(o.confidence), o.address,
                                            o.generation, o.offset));
  }
  const auto operands = builder_.CreateVector(operands_);
  return wire::CreateLaunch(
      builder_, e.place.scope.value, e.place.call, static_cast<uint8_t>(e.place.phase),
      e.kernel.value, e.grid[0], e.grid[1], e.grid[2], e.block[0], e.block[1], e.block[2],
      e.shared_bytes, e.stream, e.device, static_cast<uint8_t>(e.sampled), operands);
}

void EventTables::append(const Event& event) {
  wire::Body type = wire::Body::NONE;
  flatbuffers::Offset<void> body;
  const auto put_memory = [&](const auto& e, bool freed) {
    type = wire::Body::Memory;
    body = wire::CreateMemory(builder_, freed, e.address, e.bytes, e.generation,
                              static_cast<uint8_t>(e.source), static_cast<uint8_t>(e.device.type),
                              e.device.index, e.stream, e.stack.value)
               .Union();
  };
  if (const auto* launched = std::get_if<Launch>(&event)) {
    type = wire::Body::Launch;
    body = launch(*launched).Union();
  } else if (const auto* alloc = std::get_if<Alloc>(&event)) {
    put_memory(*alloc, false);
  } else if (const auto* freed = std::get_if<Free>(&event)) {
    put_memory(*freed, true);
  } else if (const auto* step = std::get_if<Step>(&event)) {
    type = wire::Body::Step;
    body = wire::CreateStep(builder_, step->index).Union();
  } else {
    std::abort();  // training_steps.h makes no others
  }
  const EventHeader& h = header_of(event);
  events_.push_back(wire::CreateEvent(builder_, seq_++, h.t_ns, h.step, h.thread, type, body));
  if (builder_.GetSize() >= kChunkCloseBytes) flush();
}

void EventTables::flush() {
  if (events_.empty()) return;
  builder_.Finish(wire::CreateEvents(builder_, builder_.CreateVector(events_)));
  const Bytes raw = std::as_bytes(std::span(builder_.GetBufferPointer(), builder_.GetSize()));
  if (!compressor_.compress(raw, compressed_).ok()) std::abort();
  checksums_ ^= checksum32(compressed_);
  bytes_ += compressed_.size();
  builder_.Clear();
  events_.clear();
}

}  // namespace convtrace::bench
