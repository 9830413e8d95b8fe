#include "tools/origin/judge/together.h"

#include <algorithm>

#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::origin {
namespace {

constexpr uint32_t kLeastApart = 2;  // steps
constexpr uint32_t kLeastData = 3;   // steps
constexpr size_t kMost = 1 << 12;    // buffers, classes

}  // namespace

void Together::begin_step(uint32_t step) {
  step_ = step;
  sharing_.clear();
  step_data_.clear();
}

void Together::take(uint32_t queue, const ParameterSeen& seen) {
  if (seen.moment == ParameterMoment::kWrapped) wrapped_.insert(queue);
  if (seen.moment == ParameterMoment::kShared) sharing_.insert(queue);
  if (seen.moment == ParameterMoment::kData)
    step_data_[queue] = diff::mix_all({step_data_[queue], seen.hash});
}

void Together::take_buffer(format::StringId scope, format::StringId name,
                           std::span<const Buffers::Seen> seen) {
  const bool equal = std::ranges::all_of(
      seen, [&](const Buffers::Seen& one) { return one.hash == seen.front().hash; });
  const std::pair id{scope.value, name.value};
  if (equal) {
    unlike_.erase(id);
  } else if (unlike_.size() < kMost || unlike_.contains(id)) {
    unlike_.try_emplace(id, Unlike{step_}).first->second.seen.assign(seen.begin(), seen.end());
  }
}

void Together::trained(const Class& of, const std::set<uint32_t>& scopes, bool whole) {
  const bool shares =
      std::ranges::any_of(of.queues, [this](uint32_t queue) { return sharing_.contains(queue); });
  for (const auto& [id, buffer] : unlike_) {
    if (!(whole || scopes.contains(id.first))) continue;
    std::vector<uint32_t> queues;
    std::set<uint64_t> hashes;
    for (const Buffers::Seen& one : buffer.seen) {
      if (!std::ranges::binary_search(of.queues, one.queue)) continue;
      queues.push_back(one.queue);
      hashes.insert(one.hash);
    }
    if (hashes.size() < 2 || (apart_.size() >= kMost && !apart_.contains(id))) continue;
    Apart& apart = apart_[id];
    if (apart.steps == 0) {
      apart.first_step = buffer.since;
      apart.queues = queues;
    }
    if (shares) continue;  // it may have been equal before this step's forward pass
    if (apart.steps == 0 || apart.last_step != step_) ++apart.steps;
    apart.last_step = step_;
  }
  if (whole) see_data(of);
}

void Together::see_data(const Class& of) {
  if (data_.size() >= kMost && !data_.contains(of.queues)) return;
  Data& data = data_[of.queues];
  data.mix.resize(of.queues.size());
  for (const uint32_t queue : of.queues)
    if (!step_data_.contains(queue)) return;
  ++data.steps;
  for (size_t i = 0; i < of.queues.size(); ++i)
    data.mix[i] = diff::mix_all({data.mix[i], step_data_[of.queues[i]]});
  if (data.batches.size() < kLeastData) data.batches.insert(step_data_[of.queues.front()]);
}

bool Together::is_wrapped(std::span<const uint32_t> queues) const {
  return std::ranges::all_of(queues, [this](uint32_t queue) { return wrapped_.contains(queue); });
}

void Together::suspect(Origin origin, const std::vector<uint32_t>& queues, uint32_t key) {
  if (std::ranges::find(suspects_, queues, &Suspect::queues) == suspects_.end())
    suspects_.push_back({std::move(origin), queues, key});
}

void Together::see_updates(uint32_t key, bool equal) {
  for (Suspect& suspect : suspects_) suspect.equal_again |= equal && suspect.key == key;
}

void Together::finish() {
  for (Suspect& suspect : suspects_)
    if (!suspect.equal_again) (void)told_.tell(std::move(suspect.origin), "ddp");
}

std::vector<std::string> Together::notes() const {
  std::vector<std::string> notes;
  for (const Suspect& suspect : suspects_)
    if (suspect.equal_again)
      notes.push_back(
          "parameters of " + ranks_named(job_.ranks_of(suspect.queues)) +
          ", which were to stay equal, part without a sum of gradients and are equal again "
          "later: taken for training of their own that is averaged");
  // One line for all buffers that part on the same ranks in the same step.
  std::map<std::pair<std::vector<uint32_t>, uint32_t>, std::vector<std::string>> by_ranks;
  for (const auto& [id, apart] : apart_) {
    if (apart.steps < kLeastApart) continue;
    const std::string scope = job_.text(format::StringId{id.first}),
                      name = job_.text(format::StringId{id.second});
    by_ranks[{apart.queues, apart.first_step}].push_back(scope.empty() ? name : scope + "." + name);
  }
  for (const auto& [where, names] : by_ranks)
    notes.push_back((names.size() == 1 ? "buffer " : "buffers ") + names.front() +
                    (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "") +
                    (names.size() == 1 ? " is" : " are") + " not the same on " +
                    ranks_named(job_.ranks_of(where.first)) + " from step " +
                    std::to_string(where.second) +
                    " on, though their parameters are, and no broadcast is seen in their forward "
                    "passes: buffers are not broadcast (broadcast_buffers=False, or a loop without "
                    "DDP)");
  for (std::string& note : notes_of_data()) notes.push_back(std::move(note));
  return notes;
}

std::vector<std::string> Together::notes_of_data() const {
  std::vector<std::string> notes;
  for (const auto& [queues, data] : data_) {
    if (data.steps < kLeastData || data.batches.size() < kLeastData) continue;
    std::map<uint64_t, std::vector<uint32_t>> alike;
    for (size_t i = 0; i < queues.size(); ++i) alike[data.mix[i]].push_back(queues[i]);
    for (const auto& [mix, same] : alike)
      if (same.size() > 1)
        notes.push_back(
            ranks_named(job_.ranks_of(same)) + " have equal parameters and equal data in all " +
            tools::counted(data.steps, "step") +
            ": a sampler that does not know its rank, or equal seeds, unless they share "
            "a batch on purpose");
  }
  return notes;
}

}  // namespace convtrace::origin
