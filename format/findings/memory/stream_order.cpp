#include "format/findings/memory/stream_order.h"

#include <algorithm>

namespace convtrace::judge {
namespace {

constexpr uint64_t kLegacyHandle = 1, kPerThreadHandle = 2;
constexpr uint32_t kNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
constexpr uint32_t kInterprocess = 4;  // CU_EVENT_INTERPROCESS

}  // namespace

StreamOrder::StreamOrder(Doubt doubt) : doubt_(doubt) { forget(); }

void StreamOrder::forget() {
  streams_.clear();
  slots_.clear();
  last_ = {};
  events_.clear();
  host_.clear();
  host_version_ = 0;
  ++epoch_;
  add({0, 0}, true, true);
}

uint16_t StreamOrder::add(const Key& key, bool known, bool blocking) {
  if (streams_.size() >= kMaxStreams) forget();
  const auto slot = static_cast<uint16_t>(streams_.size());
  Stream& made = streams_.emplace_back();
  made.handle = key.first;
  made.known = known;
  made.blocking = blocking;
  slots_.insert_or_assign(key, slot);
  last_ = {};
  return slot;
}

uint16_t StreamOrder::look_up(uint64_t stream, uint32_t thread) {
  if (stream == 0 || stream == kLegacyHandle) return kLegacy;
  const bool per_thread = stream == kPerThreadHandle;
  const Key key{stream, per_thread ? thread : 0};
  const auto found = slots_.find(key);
  const uint16_t slot = found != slots_.end()
                            ? found->second
                            : add(key, per_thread, per_thread || doubt_ == Doubt::kOrdered);
  last_ = {stream, thread, slot};
  return slot;
}

void StreamOrder::join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void StreamOrder::reach(Clock& into, uint16_t slot, uint32_t position) {
  if (into.size() <= slot) into.resize(size_t{slot} + 1);
  into[slot] = std::max(into[slot], position);
}

void StreamOrder::catch_up(uint16_t slot) {
  Stream& stream = streams_[slot];
  if (stream.host_seen != host_version_) {
    join(stream.clock, host_);
    stream.host_seen = host_version_;
  }
  if (!stream.blocking) return;
  // The legacy stream and all blocking streams wait for each other.
  if (slot != kLegacy) return follow(slot, kLegacy);
  for (size_t other = 1; other < streams_.size(); ++other) {
    if (streams_[other].blocking) follow(slot, static_cast<uint16_t>(other));
  }
}

void StreamOrder::follow(uint16_t slot, uint16_t other) {
  if (slot == other) return;
  Clock& clock = streams_[slot].clock;
  const Stream& from = streams_[other];
  // Every change of a stream's clock counts as work of the stream.
  if (from.count == 0 || (other < clock.size() && clock[other] == from.count)) return;
  join(clock, from.clock);
}

Use StreamOrder::work_behind_others(uint16_t slot) {
  if (streams_[slot].count == kMostWork) {
    const Key key{streams_[slot].handle, 0};
    forget();
    slot = slot == kLegacy ? kLegacy : add(key, false, true);
  }
  catch_up(slot);
  Stream& stream = streams_[slot];
  reach(stream.clock, slot, ++stream.count);
  return {slot, stream.count};
}

bool StreamOrder::ordered(Use use, uint16_t slot) const {
  if (use.position == 0 || use.stream == slot || use.stream >= streams_.size()) return true;
  const Stream& stream = streams_[slot];
  const bool known = stream.known && streams_[use.stream].known;
  if (!known && doubt_ == Doubt::kOrdered) return true;
  return use.stream < stream.clock.size() && stream.clock[use.stream] >= use.position;
}

bool StreamOrder::done(Use use) const {
  return use.position == 0 || (use.stream < host_.size() && host_[use.stream] >= use.position);
}

void StreamOrder::join_all(Clock& into) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    reach(into, static_cast<uint16_t>(i), streams_[i].count);
  }
}

void StreamOrder::host_learns(const Clock& clock) {
  join(host_, clock);
  ++host_version_;
}

void StreamOrder::wait(uint16_t slot, uint64_t event) {
  const auto found = events_.find(event);
  catch_up(slot);
  Stream& stream = streams_[slot];
  if (found != events_.end()) {
    join(stream.clock, found->second);
  } else if (doubt_ == Doubt::kOrdered) {
    join_all(stream.clock);
  }
  reach(stream.clock, slot, ++stream.count);
}

/// The host has waited for all work of a stream.
void StreamOrder::finished(uint16_t slot) {
  catch_up(slot);
  host_learns(streams_[slot].clock);
}

void StreamOrder::sync(const format::Sync& event) {
  using Kind = format::SyncKind;
  switch (event.kind) {
    case Kind::kEventCreate:
      // Records of such an event in another process are not seen.
      if ((event.flags & kInterprocess) != 0) {
        events_.erase(event.event);
      } else {
        events_.insert_or_assign(event.event, Clock());
      }
      break;
    case Kind::kEventDestroy: events_.erase(event.event); break;
    case Kind::kEventRecord: {
      if (events_.size() >= kMaxEvents) forget();
      const uint16_t slot = slot_of(event.stream, event.header.thread);
      (void)work(slot);
      events_[event.event] = streams_[slot].clock;
      break;
    }
    case Kind::kStreamWait: wait(slot_of(event.stream, event.header.thread), event.event); break;
    case Kind::kEventDone:
      if (event.event == 0) {  // a host function, which may have run by now
        finished(slot_of(event.stream, event.header.thread));
      } else if (const auto found = events_.find(event.event); found != events_.end()) {
        host_learns(found->second);
      } else if (doubt_ == Doubt::kOrdered) {
        join_all(host_);
        ++host_version_;
      }
      break;
    case Kind::kStreamDone: finished(slot_of(event.stream, event.header.thread)); break;
    case Kind::kContextDone:
      join_all(host_);
      ++host_version_;
      break;
    case Kind::kStreamCreate:
      add({event.stream, 0}, true, (event.flags & kNonBlocking) == 0);
      break;
    case Kind::kStreamDestroy:
      slots_.erase({event.stream, 0});
      last_ = {};
      break;
    case Kind::kCaptureBegin:
    case Kind::kCaptureEnd: break;
  }
}

}  // namespace convtrace::judge
