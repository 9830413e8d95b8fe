// The judge: rows alias.event and alias.bytes_per_generation, JSON on stdout.
//
// A step allocates 750 blocks and frees them, one of eight in another size than before, and makes
// 1500 launches of 4 pointers: two activations, and two of 2000 parameters that stay. Each 50th
// launch is on another stream, with an event before and behind it.
//
// usage: bench_alias [--quick]

#include <random>
#include <string_view>
#include <vector>

#include "format/findings/trace_judge.h"
#include "tests/bench/rows.h"

namespace {

using namespace convtrace;
using format::SyncKind;

constexpr uint64_t kSegment = 0x7f0000000000, kSegmentBytes = uint64_t{8} << 30;
constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
constexpr size_t kParameters = 2000, kBlocks = 750, kLaunches = 1500;
constexpr uint64_t kMain = 0x100, kSide = 0x200, kEvent = 0xE;

class Training {
 public:
  Training() {
    alloc(kSegment, kSegmentBytes, format::MemorySource::kDriver);
    sync(SyncKind::kStreamCreate, kMain, 0, 1);
    sync(SyncKind::kStreamCreate, kSide, 0, 1);
    sync(SyncKind::kEventCreate, 0, kEvent);
    for (size_t i = 0; i < kParameters; ++i) parameters_.push_back(block(kBlocks + i));
  }

  /// @return the events of a step, in their order.
  uint64_t step() {
    const uint64_t before = events_;
    std::vector<format::Operand> live;
    size_t first = 0;
    for (size_t i = 0; i < kLaunches; ++i) {
      if (i % 2 == 0) live.push_back(block(i / 2 * 7 % kBlocks));
      launch(live, i);
      // Activations live for some launches, as between forward and backward.
      if (live.size() - first > 200) free(live[first++].generation);
    }
    for (; first < live.size(); ++first) free(live[first].generation);
    return events_ - before;
  }

  [[nodiscard]] bool clean() const { return clean_; }

 private:
  void see(const format::Event& event) {
    clean_ = judge_.see(event).empty() && clean_;
    ++events_;
  }
  uint64_t alloc(uint64_t address, uint64_t bytes, format::MemorySource source) {
    format::Alloc event;
    event.address = address;
    event.bytes = bytes;
    event.generation = ++generation_;
    event.source = source;
    event.device = {format::Device::Type::kCuda, 0};
    see(event);
    return generation_;
  }
  format::Operand block(size_t place) {
    format::Operand operand;
    operand.address = kSegment + place * kBlockBytes;
    // Mostly what lay there before.
    const uint64_t unused = random_() % 8 == 0 ? 512 * (random_() % 64) : 0;
    operand.generation =
        alloc(operand.address, kBlockBytes - unused, format::MemorySource::kFramework);
    return operand;
  }
  void free(uint64_t generation) {
    format::Free event;
    event.generation = generation;
    see(event);
  }
  void sync(SyncKind kind, uint64_t stream, uint64_t event = 0, uint32_t flags = 0) {
    format::Sync call;
    call.kind = kind;
    call.stream = stream;
    call.event = event;
    call.flags = flags;
    see(call);
  }
  void launch(const std::vector<format::Operand>& live, size_t i) {
    const bool side = i % 50 == 49;
    if (side) order(kMain, kSide);
    const format::Operand operands[] = {live.back(), live[live.size() * 3 / 4],
                                        parameters_[i % kParameters],
                                        parameters_[(i + 7) % kParameters]};
    format::Launch event;
    event.kernel = format::KernelId{static_cast<uint32_t>(1 + i % 40)};
    event.stream = side ? kSide : kMain;
    event.operands = operands;
    see(event);
    if (side) order(kSide, kMain);
  }
  void order(uint64_t first, uint64_t second) {
    sync(SyncKind::kEventRecord, first, kEvent);
    sync(SyncKind::kStreamWait, second, kEvent);
  }

  format::Definitions definitions_;
  judge::TraceJudge judge_{definitions_};
  bool clean_ = true;
  std::mt19937_64 random_{1};
  std::vector<format::Operand> parameters_;
  uint64_t generation_ = 0, events_ = 0;
};

/// 1e5 that live and 1e5 freed, of which the table keeps 65536.
double bytes_per_generation() {
  judge::LifeTable lives;
  std::vector<judge::Life> before;
  std::mt19937_64 random(1);
  constexpr uint64_t kCount = 200'000;
  std::vector<uint64_t> order(kCount);
  for (uint64_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (uint64_t i = 0; i < kCount; ++i) {
    format::Alloc event;
    event.address = kSegment + order[i] * 4096;
    event.bytes = 4096;
    event.generation = i + 1;
    event.source = format::MemorySource::kFramework;
    lives.begin(event, before);
    if (i % 2 == 0) continue;
    format::Free freed;
    freed.generation = i + 1;
    lives.end(freed);
  }
  return static_cast<double>(lives.bytes()) / static_cast<double>(lives.size());
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  Training training;
  for (int i = 0; i < 5; ++i) training.step();
  std::vector<double> ns;
  for (int i = 0; i < (quick ? 51 : 501); ++i) {
    uint64_t events = 0;
    const double seconds = bench::seconds_of([&] { events = training.step(); });
    ns.push_back(seconds * 1e9 / static_cast<double>(events));
  }
  bench::Rows rows;
  rows.print({"alias.event", "ns", bench::Goal::kAtMost, 60,
              "absolute, without stacks: allocations, frees, launches of 4 pointers, two streams; "
              "making the event is in it"},
             ns);
  rows.print({"alias.bytes_per_generation", "B", bench::Goal::kAtMost, 64,
              "absolute, the judge's tables, 1e5 live and 65536 freed"},
             {bytes_per_generation()});
  return training.clean() ? 0 : 1;
}
