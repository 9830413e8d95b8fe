#include "cupti/memory_recorder.h"

#include <bit>

#include "cupti/launch_decoder.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

uint64_t stream_number(CUstream stream, const MemoryRecorder::At& at) {
  return std::bit_cast<uint64_t>(effective_stream(stream, at.per_thread));
}

/// Memory of one kind may be freed by the call of the other.
std::optional<MemoryRange> release(AddressMap& addresses, const MemoryChange& change) {
  if (auto range = addresses.release(change.address, change.memory)) return range;
  if (change.memory == MemorySource::kDriver)
    return addresses.release(change.address, MemorySource::kStreamOrdered);
  if (change.memory == MemorySource::kStreamOrdered)
    return addresses.release(change.address, MemorySource::kDriver);
  return std::nullopt;
}

}  // namespace

uint64_t MemoryRecorder::enter(const MemoryChange& change, const At& at) {
  if (change.kind != Kind::kFree || change.address == 0) return 0;
  const auto range = release(addresses_, change);
  if (!range) return 0;
  emit_free(*range, at, change.stream);
  return range->generation;
}

void MemoryRecorder::leave(const MemoryChange& change, const At& at, bool succeeded,
                           uint64_t ended_generation) {
  if (!succeeded) {
    if (ended_generation != 0) undo_free(change, at, ended_generation);
    return;
  }
  switch (change.kind) {
    case Kind::kAlloc:
      allocated(change, at);
      break;
    case Kind::kFree:
      // Allocated before we looked: the trace says so by generation 0.
      if (ended_generation == 0 && change.address != 0) {
        MemoryRange unknown;
        unknown.base = change.address;
        unknown.source = change.memory;
        unknown.device = at.device;
        emit_free(unknown, at, change.stream);
      }
      break;
    case Kind::kUnmap:
      unmapped(change, at);
      break;
    case Kind::kCopy:
    case Kind::kSet: {
      format::Copy event;
      event.header.step = at.step;
      event.kind =
          change.kind == Kind::kCopy ? format::Copy::Kind::kCopy : format::Copy::Kind::kSet;
      event.destination = change.address;
      event.source = change.source;
      event.bytes = change.bytes;
      event.stream = stream_number(change.stream, at);
      sink_.emit(event);
      break;
    }
  }
}

void MemoryRecorder::allocated(const MemoryChange& change, const At& at) {
  if (change.address == 0) return;  // cuMemAlloc of 0 bytes fails; the host calls may give null
  MemoryRange range;
  range.base = change.address;
  range.bytes = change.bytes;
  range.source = change.memory;
  range.device = change.memory == MemorySource::kHost ? format::Device{} : at.device;
  range.stream = stream_number(change.stream, at);
  emit_alloc(addresses_.allocate(range), at);
}

/// A range may hold several mappings, one after the other.
void MemoryRecorder::unmapped(const MemoryChange& change, const At& at) {
  for (uint64_t done = 0; done < change.bytes;) {
    const auto range = addresses_.release(change.address + done, change.memory);
    if (!range || range->bytes == 0) return;
    emit_free(*range, at, change.stream);
    done += range->bytes;
  }
}

void MemoryRecorder::undo_free(const MemoryChange& change, const At& at, uint64_t generation) {
  const auto range = addresses_.find(change.address);
  if (!range || range->generation != generation) return;
  emit_alloc(addresses_.allocate(*range), at);
}

void MemoryRecorder::emit_alloc(const MemoryRange& range, const At& at) {
  format::Alloc event;
  event.header.step = at.step;
  event.address = range.base;
  event.bytes = range.bytes;
  event.generation = range.generation;
  event.source = range.source;
  event.device = range.device;
  event.stream = range.stream;
  sink_.emit(event);
}

void MemoryRecorder::emit_free(const MemoryRange& range, const At& at, CUstream stream) {
  format::Free event;
  event.header.step = at.step;
  event.address = range.base;
  event.bytes = range.bytes;
  event.generation = range.generation;
  event.source = range.source;
  event.device = range.device;
  event.stream = stream_number(stream, at);
  sink_.emit(event);
}

}  // namespace convtrace::cupti
