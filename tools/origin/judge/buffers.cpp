#include "tools/origin/judge/buffers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

constexpr uint32_t kLeastSteps = 2;
constexpr size_t kMostBuffers = 1 << 16;

}  // namespace

void Buffers::see(uint32_t step, format::StringId scope, format::StringId name,
                  std::span<const Seen> seen) {
  const uint64_t id = uint64_t{scope.value} << 32 | name.value;
  if (buffers_.size() >= kMostBuffers && !buffers_.contains(id)) return;
  Buffer& buffer = buffers_[id];
  const uint64_t hash = seen.front().hash;
  const bool equal = std::ranges::all_of(seen, [&](const Seen& one) { return one.hash == hash; });
  bool changed = false, were_equal = true;
  const auto before = buffer.last.find(seen.front().queue);
  for (const Seen& one : seen) {
    const auto last = buffer.last.find(one.queue);
    const bool known = last != buffer.last.end() && before != buffer.last.end();
    changed |= known && last->second != one.hash;
    were_equal &= known && last->second == before->second;
  }
  if (!equal && were_equal && buffer.equal_steps >= kLeastSteps && !buffer.parted)
    tell(step, scope, name, buffer, seen);
  buffer.parted |= !equal;
  if (equal && changed) ++buffer.equal_steps;
  for (const Seen& one : seen) buffer.last[one.queue] = one.hash;
}

void Buffers::tell(uint32_t step, format::StringId scope, format::StringId name,
                   const Buffer& buffer, std::span<const Seen> seen) {
  std::map<uint64_t, size_t> ranks_of_hash;
  for (const Seen& one : seen) ++ranks_of_hash[one.hash];
  const auto most =
      std::ranges::max_element(ranks_of_hash, {}, [](const auto& e) { return e.second; });
  const bool known = 2 * most->second > seen.size();
  std::vector<uint32_t> all, others;
  for (const Seen& one : seen) {
    all.push_back(one.queue);
    if (!known || one.hash != most->first) others.push_back(one.queue);
  }
  const std::vector<uint32_t> ranks = job_.ranks_of(others);
  Origin origin{.kind = Kind::kParted, .step = step, .phase = format::Phase::kForward};
  if (scope) origin.scope = job_.text(scope);
  origin.slot = "buffer:" + job_.text(name);
  origin.order = UINT64_MAX / 2;  // after all collectives of its step
  origin.blame(ranks);
  origin.ranks = origin.suspects;
  const std::string path =
      origin.scope.value_or("").empty() ? job_.text(name) : *origin.scope + "." + job_.text(name);
  origin.text = "Buffer " + path + " parts: it was equal on " + ranks_named(job_.ranks_of(all)) +
                " in " + tools::counted(buffer.equal_steps, "step") + " and is not in step " +
                std::to_string(step) + ".";
  origin.evidence = {"it has " + std::to_string(ranks_of_hash.size()) + " values on " +
                     tools::counted(seen.size(), "rank")};
  origin.next = "look at what writes the buffer on one rank alone";
  (void)told_.tell(std::move(origin), "buffer " + path);
}

}  // namespace convtrace::origin
