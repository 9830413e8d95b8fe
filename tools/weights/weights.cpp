#include "tools/weights/weights.h"

#include <algorithm>
#include <set>

#include "format/model/meta.h"
#include "reader/trace_reader.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/trace/model/pieces.h"
#include "tools/trace/model/slot.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::weights {
namespace {

Whole one_of(const Value& value) {
  return {.known = true,
          .exact = true,
          .piece_count = value.stats.count,
          .dtype = value.dtype,
          .measured = value.capture != format::Capture::kHash,
          .stats = value.stats};
}

void take(const format::TensorStats& event, const format::Definitions& names, uint32_t rank,
          Weights& weights) {
  const std::string_view slot = names.text(event.slot);
  if (diff::role_of(slot) != diff::Role::kParameter) return;
  std::string name(names.text(event.place.scope));
  if (!name.empty()) name += '.';
  name += diff::name_of(slot);
  const Version version{.step = event.header.step,
                        .updated = event.place.phase == format::Phase::kOptimizer};
  std::vector<Value>& values = weights.parameters[name][version];
  // The last of several updates in one step counts.
  if (!values.empty() && values.back().rank == rank) values.pop_back();
  values.push_back(
      {.rank = rank, .dtype = event.dtype, .capture = event.capture, .stats = event.stats});
}

}  // namespace

Whole fused(const std::vector<Whole>& parts) {
  if (parts.empty()) return {};
  Whole whole = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const Whole& part = parts[i];
    whole.known =
        whole.known && part.known && part.dtype == whole.dtype && whole.measured && part.measured;
    whole.exact = false;
    whole.pieces += part.pieces;
    if (part.piece_count != whole.piece_count) whole.piece_count = 0;
    if (whole.known) diff::add_piece(whole.dtype, whole.stats, part.stats);
  }
  return whole;
}

Whole joined(const std::vector<Value>& values) {
  std::vector<Whole> unlike;
  for (const Value& value : values) {
    const bool is_copy = std::ranges::any_of(unlike, [&value](const Whole& other) {
      return other.stats.hash == value.stats.hash && other.stats.count == value.stats.count &&
             other.dtype == value.dtype;
    });
    if (!is_copy) unlike.push_back(one_of(value));
  }
  return fused(unlike);
}

bool read_weights(const std::string& path, Weights& weights, std::string& error) {
  diff::TraceSet set;
  if (!diff::open_trace_set(path, set, error)) return false;
  weights.path = path;
  weights.incomplete = set.unreadable;
  size_t world = 0;
  for (const diff::TraceFile& file : set.files) {
    world = std::max<size_t>(world, file.meta.world_size);
    auto opened = reader::TraceReader::open(file.path);
    if (!opened.ok()) {
      error = diff::unreadable(file.path, tools::status_text(opened.status()));
      return false;
    }
    reader::TraceReader& trace = *opened.value();
    trace.select([](const format::RecordHeader&) { return reader::kKindSet<format::TensorStats>; });
    while (const format::Event* event = trace.next())
      take(std::get<format::TensorStats>(*event), trace.definitions(), trace.meta().rank, weights);
    weights.ranks.push_back(trace.meta().rank);
    weights.hashed_anew = weights.hashed_anew && format::hashes_anew(trace.meta());
    if (trace.state() != reader::TraceState::kComplete)
      weights.incomplete.push_back(diff::not_whole(file.path));
  }
  const std::set<uint32_t> unlike(weights.ranks.begin(), weights.ranks.end());
  weights.lacks_ranks = unlike.size() < world;
  if (weights.lacks_ranks && set.is_folder)
    weights.incomplete.push_back(tools::escape_text(path) + " has traces of " +
                                 tools::counted(unlike.size(), "rank") + " of " +
                                 tools::count_text(world));
  return true;
}

}  // namespace convtrace::weights
