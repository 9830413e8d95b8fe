#include "tools/cli/read/memory_ledger.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace convtrace::tools {
namespace {

using format::MemorySource;

/// The trace is not trusted: no range may end beyond the last address.
uint64_t end_of(uint64_t address, uint64_t bytes) {
  return address + std::min(bytes, std::numeric_limits<uint64_t>::max() - address);
}

}  // namespace

template <typename Change>
void MemoryLedger::each_segment(const Block& block, const Change& change) {
  const uint64_t end = end_of(block.address, block.bytes);
  auto at = segments_.upper_bound(block.address);
  if (at != segments_.begin()) at = std::prev(at);
  for (; at != segments_.end() && at->first < end; ++at) {
    const uint64_t begin = std::max(block.address, at->first);
    const uint64_t last = std::min(end, end_of(at->first, at->second.bytes));
    if (begin >= last) continue;
    const uint64_t before = inactive_of(at->second);
    change(at->second, last - begin);
    inactive_.set(inactive_.now - before + inactive_of(at->second));
  }
}

void MemoryLedger::take(const Block& block) {
  allocated_.set(allocated_.now + block.bytes);
  each_segment(block, [this](Segment& segment, uint64_t bytes) {
    if (!segment.cached) cached_.set(cached_.now + segment.bytes);
    segment.cached = true;
    segment.used = std::min(segment.bytes, segment.used + bytes);
  });
}

void MemoryLedger::give_back(const Block& block) {
  allocated_.set(allocated_.now - block.bytes);
  each_segment(block, [](Segment& segment, uint64_t bytes) {
    segment.used -= std::min(segment.used, bytes);
  });
}

void MemoryLedger::add(const format::Alloc& event) {
  if (event.source != MemorySource::kFramework) {
    drop_segment(event.address);
    segments_[event.address] = {.bytes = event.bytes};
  } else if (const auto [at, fresh] =
                 blocks_.try_emplace(event.generation, Block{event.address, event.bytes});
             fresh) {
    take(at->second);
  }
}

void MemoryLedger::remove(const format::Free& event) {
  if (event.source == MemorySource::kFramework) {
    const auto block = blocks_.find(event.generation);
    if (block == blocks_.end()) return;  // allocated before the trace began
    give_back(block->second);
    blocks_.erase(block);
  } else {
    drop_segment(event.address);
  }
}

void MemoryLedger::drop_segment(uint64_t address) {
  const auto segment = segments_.find(address);
  if (segment == segments_.end()) return;
  if (segment->second.cached) cached_.set(cached_.now - segment->second.bytes);
  inactive_.set(inactive_.now - inactive_of(segment->second));
  segments_.erase(segment);
}

}  // namespace convtrace::tools
