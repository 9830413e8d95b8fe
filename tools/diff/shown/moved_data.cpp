#include "tools/diff/shown/moved_data.h"

#include <algorithm>

#include "format/model/dtype.h"
#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {
namespace {

/// @return a key that all calls of a place share.
uint64_t place_of(const ValueRecord& record) {
  RecordKey key = record.key;
  key.call = key.occurrence = 0;
  return KeyHash{}(key);
}

}  // namespace

bool MovedData::is_taken(const ValueRecord& record) {
  return is_data(record) || (record.kind == Role::kInput && record.of_loss && !is_float(record));
}

void MovedData::take(const StepRecords& step, bool in_base) {
  OfRun& run = runs_[in_base ? 0 : 1];
  const uint64_t root = items_.empty() ? 0 : items_.front().place;
  for (const ValueRecord& record : step.values) {
    if (!is_taken(record)) continue;
    const uint64_t place = place_of(record);
    if (run.kept < kMost) {
      run.places[place].push_back({record.stats.hash, step.step, record.key.call});
      ++run.kept;
    }
    if (!open_ || place != root) continue;
    open_ &= record.capture != format::Capture::kHash;
    run.all.add(record);
    run.sums.push_back(run.all);
  }
  if (!in_base && open_) compare_sums(step.step);
}

void MovedData::compare_sums(uint32_t step) {
  std::vector<Sums>&base = runs_[0].sums, &cand = runs_[1].sums;
  const size_t both = std::min(base.size(), cand.size());
  for (size_t i = 0; i < both && open_; ++i) {
    const bool agree = base[i].agree(cand[i], static_cast<double>(++compared_));
    // Data rearranged in one call is rearranged in the next, too. A shift may leave one sum
    // unchanged.
    open_ = !agree || compared_ == 1;
    if (compared_ == 2 && agree && ordered_) break;
    ordered_ = agree ? std::optional(Ordered{compared_, step}) : std::nullopt;
  }
  for (std::vector<Sums>* sums : {&base, &cand})
    sums->erase(sums->begin(), sums->begin() + static_cast<ptrdiff_t>(both));
}

void MovedData::begin(const StepRecords& base, const StepRecords& cand,
                      std::span<const Match> matches, const Match& root, std::string what) {
  const ValueRecord& first = base.values[root.base];
  if (!is_taken(first)) return;
  const auto number = [&](const StepRecords& step, uint32_t at, size_t run) {
    const uint64_t place = place_of(step.values[at]);
    const auto known = runs_[run].places.find(place);
    size_t before = known == runs_[run].places.end() ? 0 : known->second.size();
    for (uint32_t i = 0; i < at; ++i)
      before += is_taken(step.values[i]) && place_of(step.values[i]) == place;
    return before;
  };
  const auto add = [&](const Match& match) {
    items_.push_back({place_of(base.values[match.base]),
                      {number(base, match.base, 0), number(cand, match.cand, 1)}});
  };
  add(root);
  bool is_behind_output = false;
  for (const Match& match : matches) {
    const ValueRecord &a = base.values[match.base], &b = cand.values[match.cand];
    is_behind_output |= a.kind == Role::kOutput;
    const bool is_made = is_data(a) && !is_given(a, is_behind_output);
    if (match.base != root.base && !is_made && is_taken(a) && is_taken(b) &&
        a.key.call == first.key.call && place_of(a) == place_of(b))
      add(match);
  }
  const auto rows = [](const StepRecords& step, uint32_t at) {
    const auto shape = step.shape_of(step.values[at]);
    return shape.empty() ? 0 : shape.front();
  };
  rows_ = {rows(base, root.base), rows(cand, root.cand)};
  what_ = std::move(what);
  root_step_ = base.step;
  open_ = true;
}

const MovedData::Seen* MovedData::seen(bool in_base, uint64_t place, ptrdiff_t at) const {
  const auto known = runs_[in_base ? 0 : 1].places.find(place);
  if (known == runs_[in_base ? 0 : 1].places.end() || at < 0 ||
      at >= static_cast<ptrdiff_t>(known->second.size()))
    return nullptr;
  return &known->second[static_cast<size_t>(at)];
}

/// @return whether one run's data, `later` calls after the root's, are the other's at that
/// distance.
bool MovedData::holds(bool in_base, ptrdiff_t distance, size_t later) const {
  return std::ranges::all_of(items_, [&](const Item& item) {
    const auto of = [&](bool base) {
      return static_cast<ptrdiff_t>(item.at[base ? 0 : 1] + later);
    };
    const Seen* own = seen(in_base, item.place, of(in_base));
    const Seen* other = seen(!in_base, item.place, of(!in_base) + distance);
    return own != nullptr && other != nullptr && own->hash == other->hash;
  });
}

/// @return whether one run repeats the data of a call within that distance: then the distance is
/// ambiguous.
bool MovedData::repeats(bool in_base, ptrdiff_t at, ptrdiff_t distance) const {
  const uint64_t place = items_.front().place;
  const Seen* const found = seen(in_base, place, at);
  for (ptrdiff_t far = 1; far <= distance; ++far) {
    for (const ptrdiff_t other : {at + far, at - far}) {
      const Seen* const again = seen(in_base, place, other);
      if (again != nullptr && again->hash == found->hash) return true;
    }
  }
  return false;
}

std::optional<MovedData::Found> MovedData::found() const {
  if (items_.empty()) return std::nullopt;
  const Item& root = items_.front();
  for (const bool in_base : {false, true}) {
    const auto at = static_cast<ptrdiff_t>(root.at[in_base ? 1 : 0]);  // in the other run
    const auto known = runs_[in_base ? 1 : 0].places.find(root.place);
    if (known == runs_[in_base ? 1 : 0].places.end()) continue;
    const auto calls = static_cast<ptrdiff_t>(known->second.size());
    for (ptrdiff_t far = 1; far < calls; ++far) {
      for (const ptrdiff_t distance : {far, -far}) {
        if (!holds(in_base, distance, 0)) continue;
        if (repeats(!in_base, at + distance, 2 * far)) return std::nullopt;
        size_t run = 1;
        while (holds(in_base, distance, run)) ++run;
        return Found{in_base, distance,
                     *seen(in_base, root.place, static_cast<ptrdiff_t>(root.at[in_base ? 0 : 1])),
                     *seen(!in_base, root.place, at + distance), run};
      }
    }
  }
  return std::nullopt;
}

std::optional<ShownCause> MovedData::cause() const {
  if (const auto moved = found()) {
    const auto place = [&](const Seen& one) {
      return (moved->own.step == moved->elsewhere.step
                  ? "call " + std::to_string(one.call) + " of step "
                  : std::string("step ")) +
             std::to_string(one.step);
    };
    std::vector<std::string> evidence = {"the hashes of " + tools::counted(items_.size(), "value") +
                                         " are equal"};
    if (moved->run > 1)
      evidence.push_back("so are those of the next " + tools::counted(moved->run - 1, "call"));
    const uint64_t own = rows_[moved->in_base ? 0 : 1], left_out = rows_[moved->in_base ? 1 : 0];
    if (moved->distance == 1 && left_out != 0 && left_out < own)
      evidence.push_back(std::string("the ") + run_name(moved->in_base) +
                         " leaves out one call's data of " + tools::count_text(left_out) +
                         " rows, fewer than the next call's " + tools::count_text(own) +
                         ": so does drop_last at the end of an epoch");
    return ShownCause{"other-data",
                      std::string("the ") + run_name(moved->in_base) + "'s data of " +
                          place(moved->own) + " are the " + run_name(!moved->in_base) + "'s of " +
                          place(moved->elsewhere),
                      std::move(evidence)};
  }
  if (!ordered_) return std::nullopt;
  const std::string order = what_ + " has the same numbers in another order";
  if (ordered_->calls == 1)
    return ShownCause{"order",
                      order,
                      {"sum, norm and extremes of the first value that differs are equal"},
                      false};
  return ShownCause{"order",
                    order + " in the " + tools::count_text(ordered_->calls) + " calls from step " +
                        std::to_string(root_step_) + " to step " + std::to_string(ordered_->step) +
                        ": shuffled otherwise",
                    {"their sums, norms and extremes together are equal"},
                    false};
}

}  // namespace convtrace::diff
