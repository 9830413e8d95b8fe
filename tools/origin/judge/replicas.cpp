/// @file replicas.cpp
/// not-reduced: a gradient that is not the same on replicas, while others of them are, or while all
/// were in earlier steps and the ranks call fewer sums now.
/// parted: a parameter of replicas that was equal and is not any more; buffers.h has buffers.
///
/// Why it is a fault: ranks that hold the same weights and add up their gradients hold the same
/// weights after every step.
/// Judged: each parameter among the ranks on which it was equal. Equal constants (a norm's weights
/// before the first update) may be parts of a sharded tensor and prove nothing; neither do equal
/// values that part in the first update on every rank, as local training does (a note), unless the
/// ranks add up gradients, or make unlike gradients of equal losses: then they train together.
/// A gradient that differs while the parameter stays equal was none yet (a sharded optimizer).

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tools/common/text.h"
#include "tools/origin/judge/buffers.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/judge/reductions.h"
#include "tools/origin/judge/replica_class.h"
#include "tools/origin/judge/together.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/model/writes.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::origin {
namespace {

using Moment = ParameterMoment;

constexpr size_t kMostCells = size_t{1} << 24;

/// @return whether all of `few` are in the set, and no other one of `all` is.
bool are_alone(const std::set<uint32_t>& set, std::span<const uint32_t> few,
               std::span<const uint32_t> all) {
  const auto is_in = [&set](uint32_t one) { return set.contains(one); };
  return !few.empty() && std::ranges::all_of(few, is_in) &&
         std::cmp_equal(std::ranges::count_if(all, is_in), few.size());
}

}  // namespace

struct Replicas::Impl {
  Impl(const Job& j, Told& t) : job(j), told(t), of_buffers(j, t), of_ranks(j, t) {}

  uint32_t key_of(const ParameterSeen& seen) {
    const uint64_t id = uint64_t{seen.scope.value} << 32 | seen.name.value;
    const auto [entry, is_new] = numbers.try_emplace(id, static_cast<uint32_t>(keys.size()));
    if (is_new) keys.push_back({.scope = seen.scope, .name = seen.name});
    return entry->second;
  }

  void see(uint32_t in_step, std::span<const std::vector<ParameterSeen>* const> seen) {
    step = in_step;
    entries.clear();
    reducing.clear();
    clipping.clear();
    losses.clear();
    reductions.begin_step();
    update_counts.clear();
    of_ranks.begin_step(step);
    for (uint32_t queue = 0; queue < seen.size(); ++queue) {
      if (seen[queue] == nullptr) continue;
      size_t order = 0;
      for (const ParameterSeen& one : *seen[queue]) {
        if (one.moment == Moment::kReduced) {
          reducing.insert(queue);
        } else if (one.moment == Moment::kSummed) {
          reductions.take_sum(queue);
        } else if (one.moment == Moment::kClipped) {
          clipping.insert(queue);
        } else if (one.moment == Moment::kLoss) {
          losses[queue] = one.hash;
        } else if (one.moment > Moment::kReduced) {
          of_ranks.take(queue, one);
        } else {
          entries.push_back({key_of(one), one.moment, queue, &one, order++});
        }
      }
    }
    clipped.insert(clipping.begin(), clipping.end());
    if (keys.size() * seen.size() > kMostCells) {
      too_many = true;
      return;
    }
    std::ranges::sort(entries, {},
                      [](const Entry& e) { return std::tuple(e.key, e.moment, e.queue, e.order); });
    for (size_t begin = 0; begin < entries.size();) {
      size_t end = begin;
      while (end < entries.size() && entries[end].key == entries[begin].key) ++end;
      see_key(entries[begin].key, std::span(entries).subspan(begin, end - begin));
      begin = end;
    }
    conclude();
  }

  /// The last value of each rank at a moment.
  static std::vector<Entry> at(std::span<const Entry> all, Moment moment) {
    std::vector<Entry> found;
    for (const Entry& one : all) {
      if (one.moment != moment) continue;
      if (!found.empty() && found.back().queue == one.queue) found.pop_back();
      found.push_back(one);
    }
    return found;
  }

  static bool all_equal(const std::vector<Entry>& values) {
    return std::ranges::all_of(
        values, [&](const Entry& one) { return one.seen->hash == values.front().seen->hash; });
  }

  void see_key(uint32_t number, std::span<const Entry> all) {
    Key& key = keys[number];
    const size_t ranks = job.queues.size();
    key.last.resize(ranks);
    key.first.resize(ranks);
    for (const Entry& one : all)
      if ((one.moment == Moment::kInitial || one.moment == Moment::kUpdate) &&
          key.first[one.queue] == 0)
        key.first[one.queue] = one.seen->hash;
    for (const Entry& one : at(all, Moment::kInitial))
      key.last[one.queue] = {one.seen->hash, true, one.seen->varied};
    const std::vector<Entry> gradients = at(all, Moment::kGradient);
    const std::vector<Entry> updates = at(all, Moment::kUpdate);
    if (!gradients.empty() || !updates.empty()) compare(number, gradients, updates);
    if (updates.size() > 1) of_ranks.see_updates(number, all_equal(updates));
    for (const Entry& one : updates) ++update_counts[one.queue];
    take_updates(key, updates);
    std::vector<Buffers::Seen> buffers;
    for (const Entry& one : at(all, Moment::kBuffer))
      buffers.push_back({one.queue, one.seen->hash});
    if (buffers.size() < 2) return;
    of_buffers.see(step, key.scope, key.name, buffers);
    of_ranks.take_buffer(key.scope, key.name, buffers);
  }

  void compare(uint32_t number, const std::vector<Entry>& gradients,
               const std::vector<Entry>& updates) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> by_hash;
    const std::vector<Last>& last = keys[number].last;
    for (uint32_t queue = 0; queue < last.size(); ++queue)
      if (last[queue].known && last[queue].trusted) by_hash[last[queue].hash].push_back(queue);
    for (auto& [hash, queues] : by_hash) {
      if (queues.size() < 2) continue;
      uint64_t id = 0;
      for (const uint32_t queue : queues) id = diff::mix_all({id, queue});
      Class& of = classes[id];
      if (of.queues.empty()) of.queues = queues;
      hold(number, of, gradients, of.gradients, of.equal_gradients, false);
      const size_t before = of.updates.size();
      if (hold(number, of, updates, of.updates, of.equal_updates, true)) of.updated.insert(number);
      if (of.updates.size() != before) of.parted.insert(number);
    }
  }

  /// @return whether at least two ranks of the class have a value.
  bool hold(uint32_t number, const Class& of, const std::vector<Entry>& values,
            std::vector<Apart>& apart, size_t& equal, bool of_updates) {
    std::vector<Entry> own;
    for (const Entry& one : values)
      if (std::ranges::binary_search(of.queues, one.queue) && !one.seen->bad) own.push_back(one);
    if (own.size() < 2) return false;
    if (all_equal(own)) {
      // A constant gradient, or a parameter that has not moved, is equal on ranks of any kind.
      const Last& before = keys[number].last[own.front().queue];
      const bool proves =
          of_updates ? before.hash != own.front().seen->hash : !own.front().seen->constant;
      if (proves) ++equal;
      if (proves && !of_updates) {
        keys[number].reduced = true;
        std::vector<Writes::Count> counts;
        for (const Entry& one : own) counts.push_back({one.queue, one.seen->writes});
        writes.take(number, counts);
      }
      return true;
    }
    std::map<uint64_t, std::vector<uint32_t>> by_hash;
    for (const Entry& one : own) by_hash[one.seen->hash].push_back(one.queue);
    Apart found{.key = number};
    for (const auto& [hash, queues] : by_hash) {
      if (2 * queues.size() <= own.size()) continue;
      for (const auto& [other, minority] : by_hash)
        if (other != hash)
          found.minority.insert(found.minority.end(), minority.begin(), minority.end());
    }
    std::ranges::sort(found.minority);
    const std::vector<Last>& last = keys[number].last;
    if (of_updates && by_hash.size() == 2) {
      for (const auto& [hash, queues] : by_hash) {
        const bool stale = last[queues.front()].hash == hash;
        if (!stale || (!found.minority.empty() && found.minority != queues)) continue;
        found.stale = true;
        found.minority = queues;
        break;
      }
    }
    apart.push_back(std::move(found));
    return true;
  }

  static void take_updates(Key& key, const std::vector<Entry>& updates) {
    std::unordered_map<uint64_t, uint32_t> ranks;
    for (const Entry& one : updates) ++ranks[one.seen->hash];
    for (const Entry& one : updates) {
      Last& last = key.last[one.queue];
      // An update that several ranks have alike, and that changed something, is no coincidence.
      const bool changed = last.known && last.hash != one.seen->hash;
      const bool shared = ranks[one.seen->hash] > 1 && changed;
      last = {one.seen->hash, true, one.seen->varied || shared};
    }
  }

  [[nodiscard]] std::string name_of(const Key& key) const {
    const std::string scope = job.text(key.scope), name = job.text(key.name);
    return scope.empty() ? name : scope + "." + name;
  }

  [[nodiscard]] Origin begin(Kind kind, uint32_t number, const char* slot,
                             format::Phase phase) const {
    const Key& key = keys[number];
    Origin origin{.kind = kind, .step = step, .phase = phase};
    if (key.scope) origin.scope = job.text(key.scope);
    origin.slot = slot + job.text(key.name);
    origin.order = UINT64_MAX / 2;  // after all collectives of its step
    return origin;
  }

  void set_ranks(Origin& origin, const std::vector<uint32_t>& minority, const Class& of) const {
    const std::vector<uint32_t> ranks = job.ranks_of(minority.empty() ? of.queues : minority);
    if (minority.size() == 1)
      origin.rank = ranks.front();
    else
      origin.suspects = ranks;
    if (minority.size() != 1) origin.ranks = ranks;
  }

  [[nodiscard]] std::string list(const std::vector<const Apart*>& all) const {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(all.size(), 3); ++i)
      text += (i == 0 ? "" : ", ") + name_of(keys[all[i]->key]);
    if (all.size() > 3) text += " and " + std::to_string(all.size() - 3) + " more";
    return text;
  }

  /// Those of a class that have one minority, by it.
  static std::map<std::vector<uint32_t>, std::vector<const Apart*>> by_minority(
      const std::vector<Apart>& all) {
    std::map<std::vector<uint32_t>, std::vector<const Apart*>> sorted;
    for (const Apart& one : all) sorted[one.minority].push_back(&one);
    return sorted;
  }

  void conclude() {
    std::vector<const Class*> ordered;
    for (const auto& [id, of] : classes) ordered.push_back(&of);
    std::ranges::sort(ordered, {}, [](const Class* of) { return of->queues; });
    for (const Class* of : ordered) {
      const std::set<uint32_t> unreduced = tell_gradients(*of);
      reductions.see(*of, step);
      tell_updates(*of, unreduced);
      if (of->equal_updates == 0) continue;
      equal_before.insert(of->queues);
      std::set<uint32_t> scopes;
      for (const uint32_t key : of->updated)
        if (!of->parted.contains(key)) scopes.insert(keys[key].scope.value);
      const bool whole =
          of->updates.empty() && std::ranges::all_of(of->queues, [&](uint32_t queue) {
            return update_counts[queue] == of->updated.size();
          });
      of_ranks.trained(*of, scopes, whole);
    }
    classes.clear();
    writes.end_step(step);
  }

  void tell_writes() {
    for (const auto& [key, more] : writes.found()) {
      if (of_ranks.is_wrapped(more.all)) continue;
      step = more.first;
      Origin origin = begin(Kind::kWritten, key, "grad:", format::Phase::kBackward);
      set_ranks(origin, more.queues, {});
      const std::string who = ranks_named(job.ranks_of(more.queues));
      const std::string name = name_of(keys[key]);
      origin.text =
          "The gradient of " + name + " was written to more often on " + who +
          " than on the others: it changed it, perhaps before it was reduced, and they did not.";
      origin.evidence = {
          "writes to it: " + std::to_string(more.writes) + " on " + who + ", " +
              std::to_string(more.others) + " on the others, as many as on all in earlier steps",
          "behind the reduction it is equal on " + ranks_named(job.ranks_of(more.all)),
          "written equally often in the same step: " + tools::counted(more.alike, "other gradient"),
          "so in " + tools::counted(more.steps, "step") + " to the end"};
      origin.next =
          "look for what is done to it on this rank alone between its backward pass and the "
          "reduction: a factor, a clipping, a mask";
      origin.ranks = job.ranks_of(more.all);
      origin.steps = more.steps;
      const uint64_t bit = told.tell(std::move(origin), name);
      for (const uint32_t queue : more.all) told.give(queue, bit, nullptr);
    }
  }

  /// @return keys of gradients that were reported.
  std::set<uint32_t> tell_gradients(const Class& of) {
    std::set<uint32_t> keys_told;
    if (of.equal_gradients == 0) return keys_told;
    std::vector<Apart> judged;
    for (const Apart& one : of.gradients)
      if (of.parted.contains(one.key) ||
          (!of.updated.contains(one.key) && of.equal_gradients >= of.gradients.size()))
        judged.push_back(one);
    for (const auto& [minority, all] : by_minority(judged)) {
      Origin origin = begin(Kind::kNotReduced, all.front()->key, "grad:", format::Phase::kBackward);
      set_ranks(origin, minority, of);
      const std::string name = name_of(keys[all.front()->key]);
      origin.text =
          "The gradient of " + name + " was not reduced: it is not the same on " +
          ranks_named(job.ranks_of(of.queues)) + ", which have equal parameters" +
          (origin.rank ? "; rank " + std::to_string(*origin.rank) + " has another one." : ".");
      origin.evidence = {
          "not equal: the gradients of " + list(all),
          "equal on the same ranks: " + tools::counted(of.equal_gradients, "other gradient")};
      if (keys[all.front()->key].reduced)
        origin.evidence.push_back("it was equal on them in an earlier step");
      const bool parted = of.parted.contains(all.front()->key);
      if (parted) origin.evidence.push_back("its parameter parts in the same step");
      origin.next =
          "look for what keeps it out of the reduction: no_sync, a hook, a call of DDP's .module "
          "in place of DDP, a parameter that was added later";
      const uint64_t bit = told.tell(std::move(origin), name);
      for (const uint32_t queue : minority.empty() ? of.queues : minority)
        told.give(queue, bit, nullptr);
      for (const Apart* one : all) keys_told.insert(one->key);
    }
    return keys_told;
  }

  void tell_updates(const Class& of, const std::set<uint32_t>& unreduced) {
    std::vector<Apart> judged;
    for (const Apart& one : of.updates)
      if (!unreduced.contains(one.key)) judged.push_back(one);
    for (const auto& [minority, all] : by_minority(judged)) {
      const bool all_part = minority.empty() && of.equal_updates < of.updates.size();
      const bool never = all_part && !equal_before.contains(of.queues);
      const std::string together = never ? why_together(of) : "";
      if (never && together.empty()) {
        if (of_ranks.is_wrapped(of.queues))
          suspect_ddp(of, all);
        else
          never_equal.insert(job.ranks_of(of.queues));
        continue;
      }
      if (all_part && reductions.have_ended(of)) {
        suspect_end(of, all);
        continue;
      }
      tell_parted(of, minority, all, together);
    }
  }

  /// Ranks that have reduced gradients, and do not any more. Local training that begins later, and
  /// is averaged now and then, looks the same, until parameters are equal again.
  void suspect_end(const Class& of, const std::vector<const Apart*>& all) {
    const uint32_t key = all.front()->key;
    Origin origin = begin(Kind::kNotReduced, key, "grad:", format::Phase::kBackward);
    set_ranks(origin, {}, of);
    reductions.describe_end(of, step, ranks_named(job.ranks_of(of.queues)), list(all), origin);
    of_ranks.suspect(std::move(origin), of.queues, key);
  }

  /// Ranks whose model DDP holds, and that have summed no gradient.
  void suspect_ddp(const Class& of, const std::vector<const Apart*>& all) {
    const uint32_t key = all.front()->key;
    const bool gradient = !of.gradients.empty();
    Origin origin = gradient ? begin(Kind::kNotReduced, key, "grad:", format::Phase::kBackward)
                             : begin(Kind::kParted, key, "param:", format::Phase::kOptimizer);
    set_ranks(origin, {}, of);
    origin.text =
        "No gradient was reduced: " + std::string(gradient ? "the gradients" : "the parameters") +
        " of " + ranks_named(job.ranks_of(of.queues)) +
        " are not the same, though DDP holds their model, and no backward pass of the "
        "step sums over ranks.";
    origin.evidence = {"not equal: " + list(all),
                       "equal before: the same parameters; they are not equal again later"};
    origin.next =
        "look for no_sync around every forward pass, calls of DDP's .module (what it holds) in "
        "place of DDP, or a parameter without a gradient that keeps a bucket waiting";
    of_ranks.suspect(std::move(origin), of.queues, key);
  }

  /// @return the evidence that ranks should be equal which no update found equal; "" if none.
  [[nodiscard]] std::string why_together(const Class& of) const {
    const auto all = [&of](auto has) { return std::ranges::all_of(of.queues, has); };
    if (all([this](uint32_t queue) { return reducing.contains(queue); }))
      return "the ranks add up gradients in their backward passes of this step";
    const auto first = losses.find(of.queues.front());
    const bool same_loss = first != losses.end() && all([&](uint32_t queue) {
                             const auto own = losses.find(queue);
                             return own != losses.end() && own->second == first->second;
                           });
    return same_loss && !of.gradients.empty() ? "the ranks have equal losses in this step" : "";
  }

  void tell_parted(const Class& of, const std::vector<uint32_t>& minority,
                   const std::vector<const Apart*>& all, const std::string& together) {
    const Apart& first = *all.front();
    Origin origin = begin(Kind::kParted, first.key, "param:", format::Phase::kOptimizer);
    set_ranks(origin, minority, of);
    const std::string name = name_of(keys[first.key]);
    const std::string class_ranks = ranks_named(job.ranks_of(of.queues));
    origin.text = "Parameter " + name + " parts: it was equal on " + class_ranks +
                  " and is not after step " + std::to_string(step) + ".";
    if (origin.rank)
      origin.text = "Parameter " + name + " of rank " + std::to_string(*origin.rank) +
                    " parts from that of the other ranks of " + class_ranks + ".";
    origin.evidence = {
        "not equal: " + list(all),
        "equal on the same ranks: " + tools::counted(of.equal_updates, "other parameter") +
            " after this step"};
    if (first.stale)
      origin.evidence.push_back(
          "stale: it is that of step " + std::to_string(step == 0 ? 0 : step - 1) +
          (step == 0 ? ", before its first update" : "") + ", the update was not made");
    const auto gradient = std::ranges::find(of.gradients, first.key, &Apart::key);
    origin.evidence.push_back(gradient != of.gradients.end()
                                  ? "the gradients of this step differ, too"
                              : of.equal_gradients != 0 ? "the gradients of this step are equal"
                                                        : "no gradient of this step is known");
    if (!together.empty()) origin.evidence.push_back(together);
    if (are_alone(clipping, minority, of.queues))
      origin.evidence.push_back("in this step gradients are clipped on " +
                                ranks_named(job.ranks_of(minority)) + ", and on no other");
    origin.next =
        "compare the two ranks: convtrace-diff TRACE OTHER; look at what is done on one "
        "rank alone around the update";
    const uint64_t bit = told.tell(std::move(origin), "");
    for (const uint32_t queue : minority.empty() ? of.queues : minority)
      told.give(queue, bit, nullptr);
  }

  const Job& job;
  Told& told;
  Buffers of_buffers;
  Together of_ranks;
  uint32_t step = 0;
  std::unordered_map<uint64_t, uint32_t> numbers;
  std::vector<Key> keys;
  std::vector<Entry> entries;
  std::map<uint64_t, Class> classes;  ///< the classes of the step
  std::set<std::vector<uint32_t>> equal_before, never_equal;
  std::set<uint32_t> clipping, clipped;           ///< queues that clip in this step, in any
  std::set<uint32_t> reducing;                    ///< queues whose backward pass sums over ranks
  std::unordered_map<uint32_t, uint64_t> losses;  ///< by queue, the last of the step
  Reductions reductions;
  Writes writes;
  std::unordered_map<uint32_t, size_t> update_counts;  ///< by queue, parameters of the step
  bool too_many = false;
};

Replicas::Replicas(const Job& job, Told& told) : impl_(std::make_unique<Impl>(job, told)) {}
Replicas::~Replicas() = default;

void Replicas::see(uint32_t step, std::span<const std::vector<ParameterSeen>* const> seen) {
  impl_->see(step, seen);
}

bool Replicas::are_replicas(std::span<const uint32_t> queue_numbers) const {
  size_t known = 0, equal = 0;
  for (const Key& key : impl_->keys) {
    const auto first_of = [&](uint32_t queue) {
      return queue < key.first.size() ? key.first[queue] : 0;
    };
    const uint64_t hash = first_of(queue_numbers.front());
    if (hash == 0) continue;
    ++known;
    equal += std::ranges::all_of(queue_numbers, [&](uint32_t q) { return first_of(q) == hash; });
  }
  return known != 0 && 2 * equal > known;
}

bool Replicas::clips_alone(uint32_t queue, std::span<const uint32_t> queues) const {
  return are_alone(impl_->clipped, {&queue, 1}, queues);
}

void Replicas::finish() {
  impl_->of_ranks.finish();
  impl_->tell_writes();
}

std::vector<std::string> Replicas::notes() const {
  std::vector<std::string> notes = impl_->of_ranks.notes();
  if (impl_->too_many)
    notes.emplace_back("there are too many parameters on too many ranks: not all were compared");
  for (const std::vector<uint32_t>& ranks : impl_->never_equal)
    notes.push_back("parameters of " + ranks_named(ranks) +
                    " were equal before the first update and on no two ranks after it: taken for "
                    "training of their own");
  return notes;
}

}  // namespace convtrace::origin
