#include "cupti/observe/memory_recorder.h"

#include <bit>
#include <utility>

#include "cupti/calls/launch_decoder.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

uint64_t stream_number(CUstream stream, const MemoryRecorder::At& at) {
  return std::bit_cast<uint64_t>(effective_stream(stream, at.per_thread));
}

/// Pools belong to a device, mappings to the process, imported memory to its exporter.
bool belongs_to_context(const MemoryRange& range) {
  return range.source == MemorySource::kDriver || range.source == MemorySource::kHost;
}

}  // namespace

uint64_t MemoryRecorder::enter(const MemoryChange& change, const At& at) {
  switch (change.kind) {
    case Kind::kFree: return free(change, at);
    case Kind::kUnmap: return unmap(change, at);
    case Kind::kRelease:  // before the call: afterwards another thread may get the handle
      physical_.release(change.handle);
      return 0;
    default: return 0;
  }
}

void MemoryRecorder::leave(const MemoryChange& change, const At& at, bool succeeded,
                           uint64_t ended_generation) {
  switch (change.kind) {
    case Kind::kAlloc:
      if (succeeded) allocated(change, at);
      break;
    case Kind::kFree:
      if (!succeeded) {
        if (ended_generation != 0) undo_free(change, at, ended_generation);
      } else if (ended_generation == 0 && change.address != 0) {
        // It was allocated before tracing began, which generation 0 shows in the trace.
        MemoryRange unknown;
        unknown.base = change.address;
        unknown.source = change.memory;
        unknown.device = at.device;
        emit_free(unknown, at.step, stream_number(change.stream, at));
      }
      break;
    case Kind::kUnmap:
      if (ended_generation != 0) unmap_returned(ended_generation, at, succeeded);
      break;
    case Kind::kCreate:
      if (succeeded) physical_.create(change);
      break;
    case Kind::kRetain:
      if (succeeded) physical_.retain(change.handle);
      break;
    case Kind::kAlias:
      if (succeeded) alias(change, at);
      break;
    case Kind::kCopy:
    case Kind::kSet:
    case Kind::kDiscard:
      if (succeeded) emit_copy(change, at);
      break;
    case Kind::kRelease:
    case Kind::kNothing:
    case Kind::kToHost:
    case Kind::kWait: break;
  }
}

void MemoryRecorder::context_ended(CUcontext context, uint32_t step) {
  std::vector<uint64_t> bases;
  {
    const Lock lock(mutex_);
    for (auto it = owners_.begin(); it != owners_.end();) {
      if (it->second == context) bases.push_back(it->first);
      it = it->second == context ? owners_.erase(it) : std::next(it);
    }
    for (const uint64_t base : bases) aliases_.erase(base);
  }
  for (const uint64_t base : bases) {
    if (const auto range = addresses_.release(base, MemorySource::kDriver))
      emit_free(*range, step, range->stream);
  }
}

void MemoryRecorder::allocated(const MemoryChange& change, const At& at) {
  if (change.address == 0) return;  // cuMemAlloc of 0 bytes fails; the host may pass null
  MemoryRange range;
  range.base = change.address;
  range.bytes = change.bytes;
  range.source = change.memory;
  range.device = change.memory == MemorySource::kHost ? format::Device{} : at.device;
  range.stream = stream_number(change.stream, at);
  if (const auto physical = physical_.find(change.handle)) {
    range.source = physical->source;
    range.device = physical->device.value_or(at.device);
  }
  begin(range, at);
}

void MemoryRecorder::begin(const MemoryRange& range, const At& at) {
  if (belongs_to_context(range)) {
    const Lock lock(mutex_);
    owners_.insert_or_assign(range.base, at.context);
  }
  emit_alloc(addresses_.allocate(range), at);
}

uint64_t MemoryRecorder::free(const MemoryChange& change, const At& at) {
  if (change.address == 0) return 0;
  const auto range = addresses_.release(change.address, change.memory);
  if (!range) return 0;
  MemoryChange also = change;
  also.address = 0;
  if (belongs_to_context(*range)) {
    const Lock lock(mutex_);
    owners_.erase(range->base);
    if (const auto alias = aliases_.extract(range->base)) also.address = alias.mapped();
  }
  emit_free(*range, at.step, stream_number(change.stream, at));
  free(also, at);
  return range->generation;
}

/// With unified addressing the device uses the host's address. Memory that was registered where the
/// device cannot do that has two addresses, and two generations in the trace: kernels use one,
/// copies the other.
void MemoryRecorder::alias(const MemoryChange& change, const At& at) {
  if (change.address == change.source) return;
  auto range = addresses_.find(change.source);
  if (!range || range->freed || range->source != MemorySource::kHost) return;
  const uint64_t host = range->base;
  range->base = change.address - (change.source - host);
  {
    const Lock lock(mutex_);
    if (!aliases_.emplace(host, range->base).second) return;
  }
  begin(*range, at);
}

/// A range may contain several mappings, one after the other.
uint64_t MemoryRecorder::unmap(const MemoryChange& change, const At& at) {
  std::vector<MemoryRange> ended;
  for (uint64_t done = 0; done < change.bytes;) {
    const auto range = addresses_.release(change.address + done, change.memory);
    if (!range || range->bytes == 0) break;
    emit_free(*range, at.step, range->stream);
    done += range->bytes;
    ended.push_back(*range);
  }
  if (ended.empty()) return 0;
  const uint64_t generation = ended.front().generation;
  const Lock lock(mutex_);
  unmapping_.emplace(generation, std::move(ended));
  return generation;
}

void MemoryRecorder::unmap_returned(uint64_t first_generation, const At& at, bool succeeded) {
  std::vector<MemoryRange> ended;
  {
    const Lock lock(mutex_);
    const auto it = unmapping_.find(first_generation);
    if (it == unmapping_.end()) return;
    ended = std::move(it->second);
    unmapping_.erase(it);
  }
  if (succeeded) return;
  for (const MemoryRange& range : ended) begin(range, at);
}

void MemoryRecorder::undo_free(const MemoryChange& change, const At& at, uint64_t generation) {
  const auto range = addresses_.find(change.address);
  if (range && range->generation == generation) begin(*range, at);
}

void MemoryRecorder::emit_copy(const MemoryChange& change, const At& at) {
  format::Copy event;
  event.header.step = at.step;
  event.kind = change.kind == Kind::kCopy  ? format::Copy::Kind::kCopy
               : change.kind == Kind::kSet ? format::Copy::Kind::kSet
                                           : format::Copy::Kind::kDiscard;
  event.destination = change.address;
  event.source = change.source;
  event.bytes = change.bytes;
  event.stream = stream_number(change.stream, at);
  sink_.emit(event);
}

void MemoryRecorder::emit_alloc(const MemoryRange& range, const At& at) {
  sink_.emit(event_of<format::Alloc>(range, at.step));
}

void MemoryRecorder::emit_free(const MemoryRange& range, uint32_t step, uint64_t stream) {
  auto event = event_of<format::Free>(range, step);
  event.stream = stream;
  sink_.emit(event);
}

}  // namespace convtrace::cupti
