#include "tests/simulate/faults.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/simulate/numbers.h"

namespace convtrace::simulate {
namespace {

bool is_any_of(Use use, std::initializer_list<Use> uses) {
  return std::find(uses.begin(), uses.end(), use) != uses.end();
}
bool is_parts(Use use) {
  return is_any_of(use, {Use::kForward, Use::kBackward, Use::kHeadBackward, Use::kBucket});
}

/// @return positions of what may be called one right after the other, and in the other order.
std::vector<std::pair<size_t, size_t>> swappable(const Program& program, const Model& model,
                                                 const Layout& layout, const Groups& groups,
                                                 uint32_t rank) {
  std::vector<std::pair<size_t, size_t>> found;
  const auto group_of = [&](size_t i) {
    return groups.of(info_of(program[i].use, model, layout).group, rank);
  };
  std::vector<size_t> calls;
  for (size_t i = 0; i < program.size(); ++i)
    if (program[i].what == Do::kCollective) calls.push_back(i);
  for (size_t i = 0; i + 1 < calls.size(); ++i) {
    const size_t one = calls[i], other = calls[i + 1];
    const Use first = program[one].use, second = program[other].use;
    // Of one group, independent of each other. What lies between two buckets is of other groups.
    const bool alike = first == second && is_any_of(first, {Use::kInitial, Use::kParameters});
    // Of two groups with more than one member in common: they wait for each other.
    const bool nested = is_any_of(second, {Use::kNorm, Use::kTimes, Use::kBarrier}) &&
                        (group_of(one) != group_of(other) || second == Use::kBarrier) &&
                        is_any_of(first, {Use::kBucket, Use::kMetric, Use::kTimes});
    if (alike || nested) found.emplace_back(one, other);
  }
  size_t last = program.size();
  for (const size_t call : calls) {
    if (program[call].use != Use::kBucket) continue;
    if (last < program.size()) found.emplace_back(last, call);
    last = call;
  }
  return found;
}

using Wanted = std::function<bool(const Instruction&)>;

/// Marks one that is wanted. @return it, or null.
Instruction* mark_one(Fault& fault, Program& program, Random& random, const Wanted& wanted) {
  std::vector<Instruction*> found;
  for (Instruction& instruction : program)
    if (wanted(instruction)) found.push_back(&instruction);
  if (found.empty()) return nullptr;
  Instruction* chosen = found[random.below(found.size())];
  chosen->fault = &fault;
  return chosen;
}

Use scaled_use(const Program& program) {
  for (const Use use : {Use::kBucket, Use::kForward, Use::kSendOn, Use::kSendBack})
    for (const Instruction& instruction : program)
      if (instruction.use == use) return use;
  return Use::kNone;
}

bool scale(Fault& fault, Program& program) {
  const Use use = scaled_use(program);
  for (Instruction& instruction : program)
    if (instruction.use == use && use != Use::kNone) instruction.fault = &fault;
  return use != Use::kNone;
}

bool swap_two(Fault& fault, Program& program, const Model& model, const Layout& layout,
              const Groups& groups, Random& random) {
  const auto pairs = swappable(program, model, layout, groups, fault.origin.rank);
  if (pairs.empty()) return false;
  const auto [first, second] = pairs[random.below(pairs.size())];
  program[second].fault = &fault;
  const Instruction late = program[first];
  program.insert(program.begin() + static_cast<ptrdiff_t>(second) + 1, late);
  program.erase(program.begin() + static_cast<ptrdiff_t>(first));
  return true;
}

bool flip(Fault& fault, Program& program, const Layout& layout, Random& random) {
  const bool of_parameter = layout.data > 1 && random.below(2) == 0;
  const auto updated = [](const Instruction& i) { return i.what == Do::kUpdate; };
  const auto received = [](const Instruction& i) {
    return is_any_of(i.use, {Use::kForward, Use::kBackward, Use::kHeadBackward, Use::kLogits,
                             Use::kReceiveOn, Use::kReceiveBack}) ||
           (i.use == Use::kBucket);
  };
  if (of_parameter) return mark_one(fault, program, random, updated) != nullptr;
  return mark_one(fault, program, random, received) != nullptr;
}

}  // namespace

bool plant(Fault& fault, Program& program, const Model& model, const Layout& layout,
           const Groups& groups, uint64_t seed) {
  const Origin& origin = fault.origin;
  Random random(seed_of({seed, origin.rank, origin.step, static_cast<uint64_t>(origin.kind)}));
  fault.element = random.next() >> 1;
  fault.bit = static_cast<uint32_t>(random.below(32));
  fault.factor = 2 + 3 * (random.unit() + 1);
  switch (origin.kind) {
    case FaultKind::kNan:
      return mark_one(fault, program, random, [](const Instruction& i) {
               return i.what == Do::kInput || i.what == Do::kPartial || i.what == Do::kBackward;
             }) != nullptr;
    case FaultKind::kScale: return scale(fault, program);
    case FaultKind::kLost:
      return mark_one(fault, program, random,
                      [](const Instruction& i) { return is_parts(i.use); }) != nullptr;
    case FaultKind::kFlip: return flip(fault, program, layout, random);
    case FaultKind::kSkip:
      return mark_one(fault, program, random, [](const Instruction& i) {
               return i.what == Do::kCollective && i.use != Use::kBarrier;
             }) != nullptr;
    case FaultKind::kSwap: return swap_two(fault, program, model, layout, groups, random);
    case FaultKind::kStale:
      return mark_one(fault, program, random,
                      [](const Instruction& i) { return i.what == Do::kUpdate; }) != nullptr;
  }
  return false;
}

void plant_again(Fault& fault, Program& program) { (void)scale(fault, program); }

}  // namespace convtrace::simulate
