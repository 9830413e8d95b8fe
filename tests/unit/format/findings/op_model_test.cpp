// Random histories of ops, of what they do to values and of the lives of their memory. What is
// wrong with each is known because it was made so, not because it was found.

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "format/findings/trace_judge.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;
using format::FindingKind;
using format::OpMoment;

namespace {

constexpr uint64_t kBytes = 256;
constexpr uint32_t kThreads = 2;

/// Kind and op: every call that does something wrong is of an op of its own.
using Wrong = std::multiset<std::pair<FindingKind, std::string>>;

/// A program of a few threads, the trace it leaves, and what is wrong with it.
class OpHistory {
 public:
  OpHistory(uint64_t seed, format::Definitions& definitions)
      : random_(seed), definitions_(definitions), judge_(definitions) {
    make_tuned_ops();
    const uint64_t actions = 6 + below(18);
    for (uint64_t i = 0; i < actions; ++i) act();
    for (uint32_t thread = 0; thread < kThreads; ++thread) allocate(thread);
  }

  [[nodiscard]] bool right() const { return expected_ == found_; }
  [[nodiscard]] size_t count(FindingKind kind) const {
    size_t n = 0;
    for (const auto& [found, op] : found_) n += found == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] bool clean() const { return found_.empty(); }
  [[nodiscard]] std::string difference() const {
    std::string text;
    for (const auto& [kind, op] : expected_)
      text += "\nmade  " + std::string(to_string(kind)) + " " + op;
    for (const auto& [kind, op] : found_)
      text += "\nfound " + std::string(to_string(kind)) + " " + op;
    return text;
  }

 private:
  /// Memory of the allocator.
  struct Block {
    uint64_t address = 0, generation = 0;
    bool freed = false;
    bool foreign = false;  ///< of somebody who reports nothing
    uint32_t freed_by = 0;
    bool overwritable = false;  ///< who freed it has done something since
  };
  struct Storage {
    uint64_t id = 0;
    size_t block = 0;
    bool owns = false;
    bool dead = false;
    std::string op{};  ///< that handed it out over memory of another; "" an owner
  };
  /// An op in place or not, tuned at its first call or working in several passes.
  struct TunedOp {
    std::string name;
    bool in_place = false, tuned = false;
    uint64_t launches = 0;
    uint32_t calls = 0;
    bool declared = false;
    bool said = false;
  };

  uint64_t below(uint64_t end) { return random_() % end; }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }

  void see(format::Event event, uint32_t thread) {
    format::EventHeader& header = format::header_of(event);
    header.thread = 100 + thread;
    header.t_ns = ++now_;
    for (const Verdict& verdict : judge_.see(event))
      found_.emplace(verdict.record.kind, std::string(definitions_.text(verdict.record.op)));
  }
  format::Op named(OpMoment moment, const std::string& op) {
    format::Op event;
    event.moment = moment;
    event.op = definitions_.intern(op);
    event.place.scope = definitions_.intern("m");
    return event;
  }
  format::Op tensor(OpMoment moment, const std::string& op, const char* slot,
                    const Storage& storage) {
    const Block& block = blocks_[storage.block];
    format::Op event = named(moment, op);
    event.slot = definitions_.intern(slot);
    event.address = block.address;
    event.bytes = event.storage_bytes = kBytes;
    event.value = {.storage = storage.id, .generation = block.foreign ? 0 : block.generation};
    event.frees_reported = true;
    event.borrows = moment == OpMoment::kOutput && !storage.owns;
    return event;
  }
  void value(const std::string& op, const char* slot, const Storage& storage, uint64_t hash,
             uint64_t poisoned, uint32_t thread) {
    format::TensorStats event;
    event.op = definitions_.intern(op);
    event.place.scope = definitions_.intern("m");
    event.slot = definitions_.intern(slot);
    event.value.storage = storage.id;
    event.address = blocks_[storage.block].address;
    event.bytes = kBytes;
    event.stats.hash = hash;
    event.stats.count = kBytes / 4;
    event.poisoned = poisoned;
    see(event, thread);
  }

  /// Memory that the thread let go of may be overwritten from now on.
  void acted(uint32_t thread) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      if (!block.freed || block.overwritable || block.freed_by != thread) continue;
      block.overwritable = true;
      for (const Storage& storage : storages_) {
        if (storage.block == i && !storage.dead && !storage.op.empty())
          expected_.emplace(FindingKind::kFreedUnderOutput, storage.op);
      }
    }
  }
  void allocate(uint32_t thread) {
    acted(thread);
    format::Alloc event;
    event.source = format::MemorySource::kFramework;
    see(event, thread);
  }

  Storage& owner() {
    const bool foreign = chance(6);
    blocks_.push_back({.address = 0x10000 + 0x1000 * blocks_.size(),
                       .generation = blocks_.size() + 1,
                       .foreign = foreign});
    return storages_.emplace_back(
        Storage{.id = ++last_storage_, .block = blocks_.size() - 1, .owns = true});
  }
  /// @return a living storage whose memory is its own to use.
  size_t input(uint32_t thread) {
    std::vector<size_t> usable;
    for (size_t i = 0; i < storages_.size(); ++i) {
      if (!storages_[i].dead && !blocks_[storages_[i].block].freed) usable.push_back(i);
    }
    if (!usable.empty() && !chance(3)) return usable[below(usable.size())];
    allocate(thread);
    owner();
    return storages_.size() - 1;
  }

  void act() {
    const auto thread = static_cast<uint32_t>(below(kThreads));
    switch (below(9)) {
      case 0: return allocate(thread);
      case 8: return foreign_memory_changes_hands(thread);
      case 1:
      case 2: return let_go(thread);
      case 3: return call_tuned(thread);
      default: return call(thread);
    }
  }

  /// A storage dies. An owner's memory is freed with it, unless somebody keeps it until later.
  void let_go(uint32_t thread) {
    if (storages_.empty()) return;
    Storage& storage = storages_[below(storages_.size())];
    if (storage.dead) return;
    storage.dead = true;
    format::Op death;
    death.moment = OpMoment::kStorageDeath;
    death.value.storage = storage.id;
    see(death, thread);
    Block& block = blocks_[storage.block];
    if (!storage.owns || block.foreign || chance(5)) return;
    block.freed = true;
    block.freed_by = thread;
    format::Free free;
    free.source = format::MemorySource::kFramework;
    free.generation = block.generation;
    see(free, thread);
  }

  /// Whoever it was of frees it, and the allocator that reports gives it out.
  void foreign_memory_changes_hands(uint32_t thread) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      const bool kept = std::ranges::any_of(storages_, [i](const Storage& storage) {
        return storage.block == i && storage.owns && !storage.dead;
      });
      if (!block.foreign || block.freed || kept) continue;
      block.freed = block.overwritable = true;
      acted(thread);
      for (const Storage& storage : storages_) {
        if (storage.block == i && !storage.dead)
          expected_.emplace(FindingKind::kFreedUnderOutput, storage.op);
      }
      format::Alloc event;
      event.source = format::MemorySource::kFramework;
      event.address = block.address - 64;
      event.bytes = 128;
      return see(event, thread);
    }
  }

  void call(uint32_t thread) {
    const std::string op = "op" + std::to_string(++last_op_);
    const size_t taken = input(thread);
    acted(thread);
    see(named(OpMoment::kBegin, op), thread);
    const uint64_t hash = random_();
    const bool poison_in = chance(4), poison_out = chance(4);
    const bool written = chance(4), changed = chance(4);
    value(op, "input:0", storages_[taken], hash, poison_in ? 3 : 0, thread);
    if (chance(4)) nested(thread);
    if (!written)
      value(op, "input_after:0", storages_[taken], changed ? hash + 1 : hash, 0, thread);
    if (!written && changed) expected_.emplace(FindingKind::kInputMutated, op);

    const size_t given = output(op, taken);
    value(op, "output:0", storages_[given], random_(), poison_out ? 5 : 0, thread);
    if (poison_out && !poison_in) expected_.emplace(FindingKind::kNeverWritten, op);
    const bool declares = chance(4), schema = chance(2);
    if (!declares && (given != taken ? storages_[given].block == storages_[taken].block : schema))
      expected_.emplace(FindingKind::kOutputAliasesInput, op);
    format::Op in = tensor(OpMoment::kInput, op, "input:0", storages_[taken]);
    in.written = written;
    see(in, thread);
    see(tensor(OpMoment::kOutput, op, "output:0", storages_[given]), thread);
    format::Op end = named(OpMoment::kEnd, op);
    end.declares_alias = declares;
    end.has_schema = schema;
    see(end, thread);
    if (!chance(3)) see(named(OpMoment::kStack, op), thread);
  }
  /// Memory of its own, of its input or of something else without owning it, or its input itself.
  size_t output(const std::string& op, size_t taken) {
    switch (below(4)) {
      case 3: {
        const size_t block = below(blocks_.size());
        if (blocks_[block].freed) return taken;
        storages_.push_back({.id = ++last_storage_, .block = block, .op = op});
        return storages_.size() - 1;
      }
      case 0: owner(); return storages_.size() - 1;
      case 1: {
        const size_t block = storages_[taken].block;
        // Of memory that is somebody else's nobody knows when it is freed.
        storages_.push_back({.id = ++last_storage_, .block = block, .op = op});
        return storages_.size() - 1;
      }
      default: return taken;
    }
  }
  /// An op within an op, which may raise an exception.
  void nested(uint32_t thread) {
    see(named(OpMoment::kBegin, "inner"), thread);
    if (!chance(3)) see(named(OpMoment::kEnd, "inner"), thread);
  }

  void make_tuned_ops() {
    for (size_t i = 0; i < 2; ++i) {
      tuned_ops_.push_back({.name = "tuned" + std::to_string(i),
                            .in_place = chance(2),
                            .tuned = chance(2),
                            .launches = 2 + below(8),
                            .declared = chance(2)});
    }
  }
  void call_tuned(uint32_t thread) {
    TunedOp& op = tuned_ops_[below(tuned_ops_.size())];
    acted(thread);
    const Storage work{.id = 900 + op.calls, .block = 0};
    if (blocks_.empty()) owner();
    const uint64_t hash = random_();
    see(named(OpMoment::kBegin, op.name), thread);
    const bool first = op.calls++ == 0;
    const uint64_t launches = op.tuned && !first ? 1 : op.launches;
    for (uint64_t i = 0; i < launches; ++i) launch(op, i, thread);
    format::Op in = tensor(OpMoment::kInput, op.name, "input:0", work);
    in.written = op.in_place && op.declared;
    see(in, thread);
    see(named(OpMoment::kEnd, op.name), thread);
    // Values of a device come later.
    value(op.name, "input:0", work, hash, 0, thread);
    if (!in.written) value(op.name, "input_after:0", work, hash + (op.in_place ? 1 : 0), 0, thread);
    if (op.in_place && !op.declared && says_again(op))
      expected_.emplace(FindingKind::kInputMutated, op.name);
    if (op.tuned && op.in_place && op.launches >= 4 && !first && !op.said) {
      op.said = true;
      expected_.emplace(FindingKind::kAutotuneMutation, op.name);
    }
  }
  /// Of repetitions only some are said.
  static bool says_again(const TunedOp& op) {
    return op.calls <= 4 || (op.calls & (op.calls - 1)) == 0;
  }
  void launch(const TunedOp& op, uint64_t number, uint32_t thread) {
    const format::StringId name = definitions_.intern("kernel of " + op.name);
    format::Launch event;
    event.kernel = definitions_.intern_kernel({.name = name, .family = name});
    event.grid[0] = 1 + static_cast<uint32_t>(number % 2);
    const format::Operand operand{.address = blocks_[0].address, .generation = 0};
    event.operands = {&operand, 1};
    acted(thread);
    see(event, thread);
  }

  std::mt19937_64 random_;
  format::Definitions& definitions_;
  TraceJudge judge_;
  std::vector<Block> blocks_;
  std::vector<Storage> storages_;
  std::vector<TunedOp> tuned_ops_;
  uint64_t now_ = 0, last_storage_ = 0, last_op_ = 0;
  Wrong expected_, found_;
};

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace

TEST_CASE("trace_judge: random histories of ops give the findings that they were made with",
          "[judge][model]") {
  const uint64_t seed = number_from("JUDGE_SEED", std::random_device()());
  const uint64_t histories = number_from("JUDGE_HISTORIES", 100'000);
  WARN("JUDGE_SEED=" << seed << ", " << histories << " histories");
  format::Definitions definitions;
  std::map<FindingKind, size_t> counts;
  size_t clean = 0;
  constexpr FindingKind kKinds[] = {FindingKind::kFreedUnderOutput,
                                    FindingKind::kOutputAliasesInput, FindingKind::kInputMutated,
                                    FindingKind::kNeverWritten, FindingKind::kAutotuneMutation};
  for (uint64_t i = 0; i < histories; ++i) {
    const OpHistory history(seed + i, definitions);
    if (!history.right())
      FAIL("JUDGE_SEED=" << seed + i << " JUDGE_HISTORIES=1" << history.difference());
    for (const FindingKind kind : kKinds) counts[kind] += history.count(kind);
    clean += history.clean() ? 1 : 0;
  }
  if (histories < 1000) return;
  // Each kind, and its absence, was there to be found.
  for (const FindingKind kind : kKinds) {
    INFO(to_string(kind));
    CHECK(counts[kind] > histories / 50);
  }
  CHECK(clean > histories / 200);
}
