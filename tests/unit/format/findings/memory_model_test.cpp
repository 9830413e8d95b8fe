// Random histories of allocations, launches, frees and synchronisation, and what is wrong in them
// by a judge that is slow and simple: memory is an array of granules, and what comes before what is
// written down for every piece of work.

#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/unit/format/findings/judge_events.h"
#include "tests/unit/format/findings/simple_order.h"

using namespace convtrace;
using namespace convtrace::test;
using format::FindingKind;
using format::MemorySource;
using format::SampleOutcome;
using format::SyncKind;

namespace {

constexpr uint64_t kArena = 0x7000'0000'0000, kGranule = 256;
constexpr size_t kGranules = 24;
constexpr int kOperations = 48;
/// Legacy, two non-blocking, one blocking.
constexpr uint64_t kStreams[] = {0, 0x100, 0x200, 0x300};

struct Expected {
  FindingKind kind;
  uint64_t generation;
  uint64_t address;
  uint32_t kernel;
  bool operator==(const Expected&) const = default;
};

/// One life, as the model keeps it.
struct Range {
  uint64_t generation = 0;
  size_t first = 0, count = 0;  ///< granules
  MemorySource source = MemorySource::kFramework;
  size_t pool_stream = 0;
  std::vector<size_t> uses;
  bool fresh = true;  ///< its uses are of what was there before
  bool of_graphs = false;
  [[nodiscard]] uint64_t base() const { return kArena + first * kGranule; }
  [[nodiscard]] uint64_t end() const { return base() + count * kGranule; }
};

/// A history: told to a judge, and judged by the model.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    program_.sync(SyncKind::kStreamCreate, kStreams[1], 0, 1);
    program_.sync(SyncKind::kStreamCreate, kStreams[2], 0, 1);
    program_.sync(SyncKind::kStreamCreate, kStreams[3], 0, 0);
    for (size_t i = 0; i < kEvents; ++i) program_.sync(SyncKind::kEventCreate, 0, 0xE0 + i);
    new_driver_range();
    for (int i = 0; i < kOperations && order_.size() + 4 < kMostWork; ++i) operation();
  }

  [[nodiscard]] bool right() const {
    if (program_.findings.size() != expected_.size()) return false;
    for (size_t i = 0; i < expected_.size(); ++i) {
      const judge::MemoryFinding& found = program_.findings[i];
      if (Expected{found.kind, found.generation, found.address, found.kernel.value} !=
          expected_[i]) {
        return false;
      }
    }
    return true;
  }
  /// What was expected, what was found: for whoever has to look into it.
  [[nodiscard]] std::string difference() const {
    std::ostringstream text;
    for (const Expected& e : expected_)
      text << "\n  expected " << to_string(e.kind) << " generation " << e.generation << " at "
           << std::hex << e.address << std::dec << " in launch " << e.kernel;
    for (const judge::MemoryFinding& f : program_.findings)
      text << "\n  found " << to_string(f.kind) << " generation " << f.generation << " at "
           << std::hex << f.address << std::dec << " in launch " << f.kernel.value;
    return text.str();
  }
  [[nodiscard]] size_t count(FindingKind kind) const {
    return static_cast<size_t>(std::ranges::count(expected_, kind, &Expected::kind));
  }
  [[nodiscard]] size_t found() const { return program_.findings.size(); }

 private:
  struct Granule {
    Range* block = nullptr;
    Range* driver = nullptr;
    Range* freed_block = nullptr;
    Range* freed_driver = nullptr;
  };

  size_t below(size_t limit) { return random_() % limit; }

  void operation() {
    const size_t dice = below(100);
    if (dice < 4) return new_driver_range();
    if (dice < 5) return end_driver_range();
    if (dice < 30) return new_block();
    if (dice < 48) return end_block();
    if (dice < 83) return launch();
    if (dice < 84) return capture();
    synchronise();
  }

  Range* make(size_t first, size_t count, MemorySource source) {
    ranges_.push_back(std::make_unique<Range>());
    Range* const made = ranges_.back().get();
    made->first = first;
    made->count = count;
    made->source = source;
    return made;
  }

  void new_driver_range() {
    const size_t count = 4 + below(16);
    const size_t first = below(kGranules - count + 1);
    for (size_t i = first; i < first + count; ++i)
      if (granules_[i].driver != nullptr) return;
    const bool pool = below(3) == 0;
    Range* const made =
        make(first, count, pool ? MemorySource::kStreamOrdered : MemorySource::kDriver);
    made->pool_stream = below(kStreamCount);
    if (pool) inherit(*made, &Granule::freed_driver);
    for (size_t i = first; i < first + count; ++i) granules_[i] = {nullptr, made, nullptr, nullptr};
    made->generation =
        program_.alloc(made->base(), count * kGranule, made->source, kStreams[made->pool_stream]);
  }

  void end_driver_range() {
    Range* const range = granules_[below(kGranules)].driver;
    if (range == nullptr) return;
    const bool pool = range->source == MemorySource::kStreamOrdered;
    if (pool) {
      const size_t freeing = order_.work(range->pool_stream);
      std::erase_if(range->uses, [&](size_t use) { return order_.before(use, freeing); });
    } else {
      range->uses.clear();
    }
    for (size_t i = range->first; i < range->first + range->count; ++i)
      granules_[i] = {nullptr, nullptr, nullptr, range};
    program_.free(range->generation, kStreams[range->pool_stream]);
  }

  /// Blocks lie in one driver range that is no pool's.
  void new_block() {
    const size_t first = below(kGranules);
    Range* const driver = granules_[first].driver;
    if (driver == nullptr || driver->source != MemorySource::kDriver) return;
    const size_t count = 1 + below(4);
    if (first + count > driver->first + driver->count) return;
    for (size_t i = first; i < first + count; ++i)
      if (granules_[i].block != nullptr) return;
    driver->of_graphs = driver->of_graphs || capturing_;
    Range* const made = make(first, count, MemorySource::kFramework);
    if (!driver->of_graphs) inherit(*made, &Granule::freed_block);
    has_blocks_.insert(driver);
    for (size_t i = first; i < first + count; ++i) {
      granules_[i].block = made;
      granules_[i].freed_block = nullptr;
    }
    made->generation = program_.alloc(made->base(), count * kGranule);
  }

  void inherit(Range& range, Range* Granule::*freed) {
    for (size_t i = range.first; i < range.first + range.count; ++i) {
      const Range* const old = granules_[i].*freed;
      if (old == nullptr) continue;
      for (const size_t use : old->uses)
        if (!order_.done(use)) range.uses.push_back(use);
    }
  }

  void end_block() {
    Range* const block = granules_[below(kGranules)].block;
    if (block == nullptr) return;
    for (size_t i = block->first; i < block->first + block->count; ++i) {
      granules_[i].block = nullptr;
      granules_[i].freed_block = block;
    }
    program_.free(block->generation);
  }

  void launch() {
    const size_t stream = below(kStreamCount);
    const SampleOutcome how = capturing_               ? SampleOutcome::kCaptured
                              : below(4) == 0 && ever_ ? SampleOutcome::kInGraph
                                                       : SampleOutcome::kNotAsked;
    const size_t node = how == SampleOutcome::kCaptured ? 0 : order_.work(stream);
    std::vector<format::Operand> operands;
    const size_t count = 1 + below(3);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t address = some_address();
      const Granule& granule = at(address);
      const Range* const owner = granule.block    ? granule.block
                                 : granule.driver ? granule.driver
                                                  : granule.freed_driver;
      if (owner == nullptr) continue;
      format::Operand operand =
          Program::pointer(address, owner->generation, static_cast<uint16_t>(i));
      if (below(5) == 0) operand.confidence = format::Confidence::kWordInterior;
      operands.push_back(operand);
    }
    ++kernel_;
    for (const format::Operand& operand : operands)
      if (operand.confidence <= format::Confidence::kPointerInterior)
        expect(operand, operands, how, node, stream);
    program_.launch(operands, kStreams[stream], kernel_, how);
  }

  /// Mostly of a block that lives: programs are mostly right.
  uint64_t some_address() {
    size_t granule = below(kGranules);
    for (int i = 0; i < 6 && granules_[granule].block == nullptr; ++i) granule = below(kGranules);
    return kArena + granule * kGranule + (below(2) == 0 ? 0 : 40);
  }

  Granule& at(uint64_t address) { return granules_[(address - kArena) / kGranule]; }

  void expect(const format::Operand& operand, const std::vector<format::Operand>& operands,
              SampleOutcome how, size_t node, size_t stream) {
    Granule& granule = at(operand.address);
    if (granule.block != nullptr) {
      if (how != SampleOutcome::kCaptured) use(*granule.block, operand.address, node, stream);
    } else if (granule.driver != nullptr && !has_blocks_.contains(granule.driver)) {
      if (how != SampleOutcome::kCaptured) use(*granule.driver, operand.address, node, stream);
    } else {
      const Range* const freed =
          granule.driver != nullptr ? granule.freed_block : granule.freed_driver;
      if (freed == nullptr) return;
      if (granule.driver != nullptr && granule.driver->of_graphs) return;
      if (may_be_end(operand.address, operands, granule.driver != nullptr)) return;
      expected_.push_back(
          {FindingKind::kUseAfterFree, freed->generation, operand.address, kernel_});
    }
  }

  bool may_be_end(uint64_t address, const std::vector<format::Operand>& operands, bool block) {
    if (address == kArena) return false;
    const Granule& granule = at(address - 1);
    const Range* const front = block ? granule.block : granule.driver;
    if (front == nullptr || front->end() != address) return false;
    return std::ranges::any_of(operands, [front](const format::Operand& other) {
      return other.address >= front->base() && other.address < front->end();
    });
  }

  void use(Range& range, uint64_t address, size_t node, size_t stream) {
    if (range.fresh) {
      const bool unordered = std::ranges::any_of(range.uses, [&](size_t earlier) {
        return order_.stream_of(earlier) != stream && !order_.before(earlier, node);
      });
      if (unordered)
        expected_.push_back({FindingKind::kCrossStreamReuse, range.generation, address, kernel_});
      range.uses.clear();
      range.fresh = false;
    }
    range.uses.push_back(node);
  }

  void capture() {
    if (!capturing_ && order_.size() > 20) {
      program_.sync(SyncKind::kCaptureBegin, kStreams[1]);
      capturing_ = ever_ = true;
    } else if (capturing_) {
      program_.sync(SyncKind::kCaptureEnd, kStreams[1]);
      capturing_ = false;
    }
  }

  void synchronise() {
    const size_t stream = below(kStreamCount), event = below(kEvents);
    const uint64_t handle = 0xE0 + event;
    switch (below(10)) {
      case 0:
        order_.host_waits_for_stream(stream);
        return program_.sync(SyncKind::kStreamDone, kStreams[stream]);
      case 1:
        order_.host_waits_for_event(event);
        return program_.sync(SyncKind::kEventDone, 0, handle);
      case 2:
        if (below(4) != 0) return;
        order_.host_waits_for_all();
        return program_.sync(SyncKind::kContextDone, 0);
      case 3:
      case 4:
      case 5:
        order_.record(event, stream);
        return program_.sync(SyncKind::kEventRecord, kStreams[stream], handle);
      default:
        order_.wait(event, stream);
        return program_.sync(SyncKind::kStreamWait, kStreams[stream], handle);
    }
  }

  using Program = JudgedProgram;
  std::mt19937_64 random_;
  Program program_;
  SimpleOrder order_;
  std::array<Granule, kGranules> granules_{};
  std::vector<std::unique_ptr<Range>> ranges_;
  std::set<const Range*> has_blocks_;
  std::vector<Expected> expected_;
  uint32_t kernel_ = 0;  ///< each launch is of another: none is a repetition
  bool capturing_ = false, ever_ = false;
};

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace

TEST_CASE("memory_judge: random histories give the findings that a simple model gives") {
  const uint64_t seed = number_from("JUDGE_SEED", std::random_device()());
  const uint64_t histories = number_from("JUDGE_HISTORIES", 100'000);
  WARN("JUDGE_SEED=" << seed << ", " << histories << " histories");
  size_t dangling = 0, reused = 0, clean = 0;
  for (uint64_t i = 0; i < histories; ++i) {
    const History history(seed + i);
    if (!history.right())
      FAIL("JUDGE_SEED=" << seed + i << " JUDGE_HISTORIES=1" << history.difference());
    dangling += history.count(FindingKind::kUseAfterFree);
    reused += history.count(FindingKind::kCrossStreamReuse);
    clean += history.found() == 0 ? 1 : 0;
  }
  // Each kind, and its absence, was there to be found.
  if (histories >= 1000) {
    CHECK(dangling > histories / 10);
    CHECK(reused > histories / 50);
    CHECK(clean > histories / 50);
  }
}
