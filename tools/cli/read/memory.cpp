#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include "format/model/events.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::MemorySource;
using format::Phase;

/// A number of bytes, and its maximum so far.
struct Level {
  uint64_t now = 0;
  uint64_t peak = 0;
  void set(uint64_t bytes) {
    now = bytes;
    if (bytes > peak) peak = bytes;
  }
};

/// The figures of torch.cuda.memory_stats() of one device: the memory that a framework's allocator
/// has given out, and the memory that it holds.
class MemoryLedger {
 public:
  void add(const format::Alloc& event);
  void remove(const format::Free& event);

  [[nodiscard]] const Level& allocated() const { return allocated_; }
  /// Bytes of segments in which blocks were allocated.
  [[nodiscard]] const Level& cached() const { return cached_; }
  /// Bytes of free parts in segments that also have a used part.
  [[nodiscard]] const Level& inactive() const { return inactive_; }

 private:
  struct Segment {
    uint64_t bytes = 0;
    uint64_t used = 0;
    bool cached = false;  ///< a block was allocated in it
  };
  struct Block {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  static uint64_t inactive_of(const Segment& segment) {
    return segment.used == 0 ? 0 : segment.bytes - segment.used;
  }
  /// Calls change(segment, bytes) for each segment that the block overlaps.
  template <typename Change>
  void each_segment(const Block& block, const Change& change);
  void take(const Block& block);
  void give_back(const Block& block);
  void drop_segment(uint64_t address);

  std::map<uint64_t, Block> blocks_;      ///< by generation
  std::map<uint64_t, Segment> segments_;  ///< by address
  Level allocated_, cached_, inactive_;
};

/// The trace is not trusted: no range may end beyond the last address.
uint64_t end_of(uint64_t address, uint64_t bytes) {
  return address + std::min(bytes, std::numeric_limits<uint64_t>::max() - address);
}

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

/// The moments of ONNX Runtime's inspector, in the order of a step.
constexpr std::array kMoments = {"pre_forward", "post_forward", "pre_backward", "post_backward"};

using DeviceKey = std::pair<format::Device::Type, uint8_t>;

struct Figures {
  Level allocated, cached, inactive;
};

/// Reads the whole trace, since memory that a step uses may have been allocated before it.
class MemoryFigures {
 public:
  MemoryFigures(Output& output, const ShowOptions& options, const format::TraceMeta& meta)
      : output_(output), options_(options), meta_(meta) {}

  void operator()(const format::Alloc& e) { ledger(e.device).add(e); }
  void operator()(const format::Free& e) { ledger(e.device).remove(e); }
  void operator()(const format::Step& e) {
    print_step();
    step_ = e.index;
  }
  void operator()(const format::Scope& e) {
    if (e.place.phase == Phase::kBackward) {
      if (e.enter) keep_first(2);
      if (!e.enter) keep(3);
    } else if (e.place.phase == Phase::kForward) {
      uint32_t& depth = depths_[e.header.thread];
      if (e.enter && depth++ == 0) keep_first(0);
      if (!e.enter && depth > 0 && --depth == 0 && !moments_[2]) keep(1);
    }
  }
  void operator()(const auto&) {}

  void print_step() {
    for (size_t i = 0; i < moments_.size(); ++i) {
      if (moments_[i] && options_.steps.contains(step_)) {
        for (const auto& [device, figures] : *moments_[i]) print(kMoments[i], device, figures);
      }
      moments_[i].reset();
    }
  }

  [[nodiscard]] bool has_reports() const { return !ledgers_.empty(); }

 private:
  using Snapshot = std::map<DeviceKey, Figures>;

  MemoryLedger& ledger(format::Device device) { return ledgers_[{device.type, device.index}]; }
  void keep_first(size_t moment) {
    if (!moments_[moment]) keep(moment);
  }
  void keep(size_t moment) {
    Snapshot& kept = moments_[moment].emplace();
    for (const auto& [device, ledger] : ledgers_) {
      if (ledger.allocated().peak == 0)
        continue;  // memory that only the driver allocated is not the framework's
      kept[device] = {ledger.allocated(), ledger.cached(), ledger.inactive()};
    }
  }
  void print(const char* moment, DeviceKey device, const Figures& figures);

  Output& output_;
  const ShowOptions& options_;
  const format::TraceMeta& meta_;
  std::map<DeviceKey, MemoryLedger> ledgers_;
  std::map<uint32_t, uint32_t> depths_;  ///< modules that each thread is in
  std::array<std::optional<Snapshot>, kMoments.size()> moments_;
  uint32_t step_ = 0;
};

constexpr double kMiB = 1024.0 * 1024.0;

void MemoryFigures::print(const char* moment, DeviceKey device, const Figures& figures) {
  // The CPU's allocator caches nothing.
  const bool caches = device.first != format::Device::Type::kCpu;
  const auto [allocated, cached, inactive] = figures;
  const std::pair<const char*, std::optional<uint64_t>> columns[] = {
      {"allocated", allocated.now},
      {"max allocated", allocated.peak},
      {"cached", caches ? std::optional(cached.now) : std::nullopt},
      {"max cached", caches ? std::optional(cached.peak) : std::nullopt},
      {"inactive", caches ? std::optional(inactive.now) : std::nullopt},
      {"max inactive", caches ? std::optional(inactive.peak) : std::nullopt}};
  const std::string device_name = device_text({device.first, device.second});
  Json json{{"rank", meta_.rank},
            {"world_size", meta_.world_size},
            {"step", step_},
            {"phase", moment},
            {"device", device_name}};
  std::string text = '[' + std::to_string(meta_.rank) + '/' + std::to_string(meta_.world_size) +
                     "] step " + std::to_string(step_) + " memory (MiB) | phase: " + moment;
  for (const auto& [name, bytes] : columns) {
    const double mib = static_cast<double>(bytes.value_or(0)) / kMiB;
    text += std::string(" | ") + name + ": " + (bytes ? number_text(mib) : "-");
    std::string key = std::string(name) + "_mib";
    std::replace(key.begin(), key.end(), ' ', '_');
    json[key] = bytes ? Json(mib) : Json();
  }
  output_.line(options_.json ? dump_json(json) : text + " | device: " + device_name);
}

}  // namespace

ExitCode show_memory(const ShowOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  Output output;
  MemoryFigures figures(output, options, trace->meta());
  const format::Event* event = nullptr;
  while (output.usable() && (event = trace->next()) != nullptr)
    format::visit_event(figures, *event);
  figures.print_step();
  if (!figures.has_reports()) {
    complain(MessageId::kNothingRecorded, options.path,
             "no reports of the framework's allocator; those of CPU tensors come with "
             "CONVTRACE_CPU_ALLOC=on");
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
