/// @file conclude.cpp
/// The order of origins, and which of them another explains.

#include <algorithm>
#include <tuple>

#include "tools/common/escape.h"
#include "tools/origin/judge/trial.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

bool is_one_of(Kind kind, std::initializer_list<Kind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

bool blames(const Origin& origin, uint32_t rank) {
  return origin.rank ? *origin.rank == rank
                     : std::ranges::find(origin.suspects, rank) != origin.suspects.end();
}

bool share_a_rank(const Origin& a, const Origin& b) {
  if (a.rank) return blames(b, *a.rank);
  return std::ranges::any_of(a.suspects, [&](uint32_t rank) { return blames(b, rank); });
}

bool share_the_group(const Origin& a, const Origin& b) {
  return a.through && b.through && a.through->group == b.through->group;
}

bool touches(const Origin& cause, const Origin& effect) {
  return std::ranges::any_of(effect.suspects, [&](uint32_t rank) {
    return blames(cause, rank) || std::ranges::find(cause.ranks, rank) != cause.ranks.end();
  });
}

/// @return whether `cause` explains `effect`. @pre it is not later.
bool explains(const Origin& cause, const Origin& effect) {
  switch (effect.kind) {
    case Kind::kParted:
      return (is_one_of(cause.kind, {Kind::kUnequal, Kind::kWrongContent, Kind::kNotReduced,
                                     Kind::kMismatch, Kind::kParted}) &&
              share_a_rank(cause, effect)) ||
             // Some replicas of a parameter are in the group whose sum is wrong, others are not.
             (is_one_of(cause.kind, {Kind::kScale, Kind::kWrongSum, Kind::kNan}) &&
              cause.step == effect.step && !effect.rank && touches(cause, effect));
    case Kind::kNotReduced:
      return (is_one_of(cause.kind, {Kind::kUnequal, Kind::kWrongContent, Kind::kMismatch}) &&
              share_a_rank(cause, effect)) ||
             (is_one_of(cause.kind, {Kind::kScale, Kind::kWrongSum, Kind::kNan}) &&
              cause.step == effect.step && !effect.rank && touches(cause, effect));
    case Kind::kScale:
      return is_one_of(cause.kind, {Kind::kUnequal, Kind::kWrongContent, Kind::kNotReduced,
                                    Kind::kMismatch, Kind::kParted, Kind::kNan, Kind::kWritten}) &&
             share_a_rank(cause, effect);
    case Kind::kLate:
      return cause.kind == Kind::kMismatch &&
             (share_the_group(cause, effect) || share_a_rank(cause, effect));
    case Kind::kUnequal:
    case Kind::kWrongSum:
    case Kind::kWrongContent:
      return cause.kind == Kind::kMismatch && share_the_group(cause, effect);
    case Kind::kNan:
      // Memory that arrived wrong may hold anything.
      return is_one_of(cause.kind, {Kind::kUnequal, Kind::kWrongContent}) && cause.rank &&
             cause.rank == effect.rank && effect.step - cause.step <= 1;
    case Kind::kMismatch:
    case Kind::kWritten: return false;
  }
  return false;
}

std::string short_text(const Origin& origin) {
  std::string text(to_string(origin.kind));
  if (origin.rank) text += " of rank " + std::to_string(*origin.rank);
  text += " in step " + std::to_string(origin.step);
  if (origin.scope && !origin.slot.empty())
    text += ", " + (origin.scope->empty() ? origin.slot : *origin.scope + " " + origin.slot);
  return text;
}

std::string dormant_note(const Origin& origin) {
  return (origin.rank ? "rank " + std::to_string(*origin.rank) : "the sum of several ranks") +
         " has values that are not finite in step " + std::to_string(origin.step) + ", " +
         origin.slot + (origin.scope && !origin.scope->empty() ? " of " + *origin.scope : "") +
         (origin.times > 1 ? " (" + std::to_string(origin.times) + " times)" : "") +
         ", from which no other value that is not finite follows: they may be meant (what is "
         "missing in data, a GradScaler's search for its scale, padding)";
}

/// The command that shows where an origin is.
void complete(Origin& origin, const OriginResult& result) {
  const auto trace = [&](uint32_t rank) {
    const auto found = result.traces.find(rank);
    return found == result.traces.end() ? std::string("TRACE") : tools::quote_shell(found->second);
  };
  const std::vector<uint32_t>& ranks = origin.rank ? std::vector{*origin.rank} : origin.suspects;
  std::string shown = trace(ranks.empty() ? 0 : ranks.front());
  if (origin.next == "nan" && origin.rank) {
    origin.next = "convtrace show --nan --steps " + std::to_string(origin.step) + " " + shown;
    return;
  }
  const std::string command = "convtrace show --records stats,collective --steps " +
                              std::to_string(origin.step) + " " + shown;
  origin.next = origin.next == "nan" ? command : origin.next + "; " + command;
}

}  // namespace

void Trial::conclude(OriginResult& result) {
  scale_.finish(replicas_);
  replicas_.finish();
  std::vector<Origin> all = std::move(told_.origins());
  std::ranges::stable_sort(all, {}, [](const Origin& origin) {
    return std::tuple(origin.step, origin.order, origin.kind, origin.rank.value_or(UINT32_MAX));
  });
  for (Origin& origin : all) {
    if (origin.dormant) {
      result.notes.push_back(dormant_note(origin));
      continue;
    }
    const auto cause = std::ranges::find_if(
        result.origins, [&](const Origin& earlier) { return explains(earlier, origin); });
    if (cause != result.origins.end()) {
      if (cause->evidence.size() < 8) cause->evidence.push_back("then: " + short_text(origin));
      continue;
    }
    std::ranges::sort(origin.ranks);
    origin.ranks.erase(std::unique(origin.ranks.begin(), origin.ranks.end()), origin.ranks.end());
    if (origin.rank) std::erase(origin.ranks, *origin.rank);
    complete(origin, result);
    result.origins.push_back(std::move(origin));
  }
  for (uint32_t queue = 0; queue < job_.queues.size(); ++queue) {
    const uint32_t rank = job_.queues[queue]->rank;
    for (const Origin& origin : result.origins) {
      const bool began = blames(origin, rank);
      // One reduction gave it to all of them.
      const bool received =
          origin.kind == Kind::kWritten && std::ranges::binary_search(origin.ranks, rank);
      if (!began && !received) continue;
      const CellState state = began ? CellState::kOrigin : CellState::kReceived;
      for (uint32_t i = 0; i < origin.steps; ++i) color(queue, origin.step + i, state);
    }
  }
  result.first_step = first_step_;
  result.cells = std::move(cells_);
  result.origins_left_out = told_.left_out();
  add_notes(result);
}

}  // namespace convtrace::origin
