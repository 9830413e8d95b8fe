#include "tools/cli/read/freed_source.h"

#include <algorithm>
#include <unordered_map>

#include "tools/cli/base/record_text.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

constexpr size_t kMostLive = 65536;

/// @return whether `event` is an input of the op or module that made `value`.
bool took(const format::TensorStats& event, const Seen& value, const format::Definitions& names) {
  const std::string_view slot = names.text(event.slot);
  const bool taken = slot.starts_with("input:") || slot.starts_with("grad_output:");
  return taken && (value.op ? event.op == value.op : event.place.scope == value.place.scope);
}

/// The innermost line of Python, with the program's own where that is one of torch; else the
/// innermost frame.
std::string place_of_free(const format::Free& freed, const reader::TraceReader& trace) {
  const std::vector<std::string> frames = stack_texts(trace.definitions(), freed.stack);
  const auto is_python = [](const std::string& frame) {
    return frame.ends_with(')') && frame.find(".py:") != std::string::npos;
  };
  const auto is_own = [&](const std::string& frame) {
    return is_python(frame) && frame.find("/torch/") == std::string::npos;
  };
  const auto line = std::ranges::find_if(frames, is_python),
             own = std::ranges::find_if(frames, is_own);
  if (line == frames.end()) return frames.empty() ? std::string() : frames.front();
  return own == line || own == frames.end() ? *line : *line + ", below " + *own;
}

}  // namespace

std::optional<FreedSource> find_freed_source(reader::TraceReader& trace, const Seen& value) {
  std::optional<FreedSource> found;
  std::unordered_map<uint64_t, Seen> live;  // by generation
  trace.rewind();
  while (const format::Event* event = trace.next()) {
    if (format::header_of(*event).seq >= value.seq) break;
    if (const auto* tensor = std::get_if<format::TensorStats>(event)) {
      const uint64_t generation = tensor->value.generation;
      if (generation == 0 ||
          (generation != value.generation && !took(*tensor, value, trace.definitions())))
        continue;
      if (live.size() == kMostLive) live.clear();
      live.insert_or_assign(generation, seen_of(*tensor, trace.definitions()));
    } else if (const auto* free = std::get_if<format::Free>(event)) {
      const auto freed = live.find(free->generation);
      if (freed == live.end()) continue;
      const bool own = free->generation == value.generation;
      if (own || !found || !found->own) found = FreedSource{freed->second, own, *free};
      live.erase(freed);
    }
  }
  return found;
}

std::string freed_text(const std::optional<FreedSource>& source, const reader::TraceReader& trace) {
  if (!source) return "Whose memory it was is not known.";
  const format::Definitions& names = trace.definitions();
  const format::EventHeader& header = source->freed.header;
  std::string text =
      source->own ? "It is its own memory, " : "Last freed of what was taken there before: ";
  text += name_text(names, source->value.slot) + " of step " + std::to_string(source->value.step) +
          ", freed in step " + std::to_string(header.step) + " at record " +
          std::to_string(header.seq);
  const std::string place = place_of_free(source->freed, trace);
  if (!place.empty()) return text + " by " + escape_text(place) + '.';
  const bool all = trace.meta().fact("setting.CONVTRACE_STACKS") == "all";
  return text + (all ? "." : "; CONVTRACE_STACKS=all tells by whom.");
}

}  // namespace convtrace::tools
