#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/read/freed_source.h"
#include "tools/cli/read/nan_origin.h"
#include "tools/cli/read/nan_search.h"
#include "tools/cli/read/nan_steps.h"
#include "tools/common/element.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::Definitions;
using format::Phase;

constexpr size_t kWarningsShown = 10;

/// The owner of a value's memory before the value's own allocation.
struct FormerOwner {
  std::optional<format::Alloc> alloc;
  std::optional<format::Free> free;
  std::optional<Seen> value;  ///< the last value that was recorded there
  std::string freed;          ///< the owner of the freed memory that a value was read from
};

bool overlaps(const Seen& birth, uint64_t address, uint64_t bytes) {
  return address < birth.address + birth.bytes && birth.address < address + bytes;
}

/// Reads the trace again, up to the first bad value.
FormerOwner former_owner(reader::TraceReader& trace, const Seen& birth) {
  FormerOwner owner;
  trace.rewind();
  while (const format::Event* event = trace.next()) {
    if (format::header_of(*event).seq >= birth.seq) break;
    if (const auto* alloc = std::get_if<format::Alloc>(event)) {
      if (alloc->source == format::MemorySource::kFramework &&
          alloc->generation != birth.generation && overlaps(birth, alloc->address, alloc->bytes)) {
        owner = {.alloc = *alloc, .free = {}, .value = {}, .freed = {}};
      }
    } else if (const auto* free = std::get_if<format::Free>(event)) {
      if (owner.alloc && owner.alloc->generation == free->generation) owner.free = *free;
    } else if (const auto* tensor = std::get_if<format::TensorStats>(event)) {
      if (owner.alloc && tensor->value.generation == owner.alloc->generation)
        owner.value = seen_of(*tensor, trace.definitions());
    }
  }
  return owner;
}

std::string place_of(const Seen& seen, const Definitions& definitions) {
  return place_text(definitions, seen.place) +
         (seen.op ? " op " + name_text(definitions, seen.op) : "") + ' ' +
         name_text(definitions, seen.slot);
}

/// @return log2 of the largest over the smallest nonzero magnitude; 0 if all elements are 0.
double dynamic_range(const Seen& seen) {
  const double least = magnitude_as_double(seen.dtype, seen.stats.amin_nonzero);
  const double most = magnitude_as_double(seen.dtype, seen.stats.amax);
  return least > 0 ? std::log2(most) - std::log2(least) : 0;
}

/// @return a sentence about the call that made a gradient.
std::string gradient_verdict(const NanSearch& search, const NanFound& found,
                             const Definitions& definitions) {
  const Seen& birth = *search.birth();
  if (found.made_by)
    return "It was " + diff::made_text(*found.made_by) + ", received by " +
           diff::maker_text(found.made_by->receiver) + " as " + found.made_by->receiver.slot +
           ": " + diff::how_text(*found.made_by) + '.';
  for (const Ingredient& one : search.ingredients()) {
    const bool is_given = one.value && definitions.text(one.slot).starts_with("grad_output:");
    if (is_given && one.value->finite())
      return "It was made by op " + std::string(definitions.text(birth.op)) +
             ": what it was given is finite.";
  }
  const bool is_behind = std::ranges::any_of(search.frames(), [&](const Seen& seen) {
    return seen.step == birth.step && seen.place.phase == Phase::kBackward;
  });
  return "It was made by op " + std::string(definitions.text(birth.op)) +
         (is_behind ? ", or by what gave it its gradient, of which the hash alone was recorded."
                    : ", with which the backward pass begins.");
}

std::string made_of_verdict(const NanSearch& search, const Definitions& definitions) {
  for (const Ingredient& one : search.ingredients()) {
    if (!one.value)
      return "It was born here, or between the modules: where its " +
             std::string(definitions.text(one.slot)) + " comes from was not recorded.";
  }
  for (const Ingredient& one : search.ingredients()) {
    if (!one.value->finite())
      return "It was born here: what it was made of is as it should be, but " +
             std::string(definitions.text(one.slot)) + " is not all finite.";
  }
  return "It was born here: all that it was made of is finite.";
}

/// One sentence about the origin of the birth, as far as the records show it; not escaped.
std::string verdict(const NanSearch& search, const NanFound& found,
                    const Definitions& definitions) {
  const Seen& birth = *search.birth();
  const std::string_view slot = definitions.text(birth.slot);
  if (birth.poisoned != 0)
    return "It was never written: " + counted(birth.poisoned, "element") +
           " hold what CONVTRACE_POISON fills new memory with.";
  // In evaluation, only an input of the root module has statistics.
  const bool evaluated = birth.place.phase == Phase::kEvaluation;
  if (birth.place.phase == Phase::kData || (evaluated && slot.starts_with("input")))
    return "It came with the data: it is an input of the root module.";
  if (found.made_by || slot.starts_with("grad_input"))
    return gradient_verdict(search, found, definitions);
  if (const auto before = search.before_gap();
      before && (birth.place.phase == Phase::kForward || evaluated)) {
    return "Its step is the first with values since step " + std::to_string(*before) +
           ": it was born here, or in a step between, which left it in the parameters.";
  }
  if (!search.ingredients().empty()) return made_of_verdict(search, definitions);
  return "What it was made of was not recorded; every value before it is finite.";
}

/// @return a sentence about the consequence of the value.
std::string consequence(const NanSearch& search, const NanFound& found,
                        const Definitions& definitions) {
  using Kind = diff::NanStory::Kind;
  switch (found.kind) {
    case Kind::kScaled: return "It has no consequence: a GradScaler passes over such a step.";
    case Kind::kEnds:
    case Kind::kMissing:
      return "It goes no further: no loss, gradient, parameter or output of a root module has one.";
    case Kind::kBorn:
    case Kind::kFromData: break;
  }
  if (!found.reached || found.reached->seq == search.birth()->seq) return "";
  return "It reaches " + place_of(*found.reached, definitions) + ", record " +
         std::to_string(found.reached->seq) + '.';
}

/// Describes the numbers of an ingredient. NaN in it have no consequence, and negative infinities
/// are masks.
std::string numbers_of(const Seen& seen) {
  if (seen.stats.nan != 0 || seen.stats.pos_inf != 0)
    return count_text(seen.stats.nan) + " NaN and " + count_text(seen.stats.pos_inf) +
           " infinite, which go no further";
  if (seen.stats.finite == 0) return "negative infinities alone";
  const std::string largest = number_text(magnitude_as_double(seen.dtype, seen.stats.amax));
  return seen.stats.neg_inf == 0
             ? "finite, up to " + largest
             : count_text(seen.stats.neg_inf) +
                   " negative infinities (a mask?), else finite, up to " + largest;
}

std::string warning_text(Warning what, const Seen& seen) {
  switch (what) {
    case Warning::kSaturated:
      return counted(seen.stats.saturated, "element") + " at the largest value of " +
             std::string(to_string(seen.dtype));
    case Warning::kSubnormal:
      return counted(seen.stats.subnormal, "element") + " of " + count_text(seen.stats.count) +
             " subnormal";
    case Warning::kNearLimit: break;
  }
  return "up to " + number_text(seen.stats.amax.as_f64()) + ", near the largest value of " +
         std::string(to_string(seen.dtype));
}

Json seen_json(const Seen& seen, const Definitions& definitions) {
  Json json{{"seq", seen.seq},
            {"step", seen.step},
            {"phase", to_string(seen.place.phase)},
            {"scope", seen.place.scope ? Json(definitions.text(seen.place.scope)) : Json()},
            {"call", seen.place.call},
            {"slot", definitions.text(seen.slot)},
            {"op", seen.op ? Json(definitions.text(seen.op)) : Json()},
            {"kernel",
             seen.kernel ? Json(definitions.text(definitions.kernel(seen.kernel).name)) : Json()},
            {"dtype", to_string(seen.dtype)},
            {"dynamic_range", json_number(dynamic_range(seen))}};
  json.update(stats_json(seen.stats, seen.dtype, format::Capture::kStats));
  return json;
}

Json report_json(const NanSearch& search, const std::optional<NanFound>& found,
                 const FormerOwner& owner, const Definitions& definitions) {
  const auto seen_or_null = [&](const std::optional<Seen>& seen) {
    return seen ? seen_json(*seen, definitions) : Json();
  };
  Json json{{"searched", search.searched()}};
  json["birth"] = seen_or_null(search.birth());
  json["made_by"] = found && found->made_by ? diff::made_by_json(*found->made_by) : Json();
  json["reaches"] = seen_or_null(found ? found->reached : std::nullopt);
  json["harmless"] = seen_or_null(found ? found->harmless : std::nullopt);
  json["values_missing_since_step"] = search.before_gap() ? Json(*search.before_gap()) : Json();
  json["verdict"] = !search.birth()        ? Json()
                    : !owner.freed.empty() ? Json(owner.freed)
                                           : Json(verdict(search, *found, definitions));
  const auto json_of = [&](const Seen& seen) { return seen_json(seen, definitions); };
  json["made_of"] = json_list(search.ingredients(), [&](const Ingredient& one) {
    return Json{{"slot", definitions.text(one.slot)},
                {"value", one.value ? seen_json(*one.value, definitions) : Json()}};
  });
  json["before"] = json_list(search.frames(), json_of);
  json["warnings"] = json_list(search.warnings(), [&](const auto& one) {
    return Json{{"text", warning_text(one.first, one.second)}, {"value", json_of(one.second)}};
  });
  Json& former = json["former_owner"];
  if (owner.alloc) {
    former = {{"address", owner.alloc->address},
              {"bytes", owner.alloc->bytes},
              {"generation", owner.alloc->generation},
              {"allocated_seq", owner.alloc->header.seq},
              {"freed_seq", owner.free ? Json(owner.free->header.seq) : Json()},
              {"value", owner.value ? seen_json(*owner.value, definitions) : Json()}};
  }
  return json;
}

void print_frames(Output& output, const NanSearch& search, const Definitions& definitions) {
  output.line("");
  output.line("The " + counted(search.frames().size(), "value") +
              " before it, oldest first (smallest and largest magnitude, binades between them):");
  for (const Seen& seen : search.frames()) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "  step %-5u %10s %10s %6.1f  %-5s ", seen.step,
                  number_text(magnitude_as_double(seen.dtype, seen.stats.amin_nonzero), 3).c_str(),
                  number_text(magnitude_as_double(seen.dtype, seen.stats.amax), 3).c_str(),
                  dynamic_range(seen), std::string(to_string(seen.dtype)).c_str());
    output.line(numbers + place_of(seen, definitions));
  }
}

void print_warnings(Output& output, const NanSearch& search, const Definitions& definitions) {
  if (search.warnings().empty()) return;
  output.line("");
  output.line("Early signs:");
  const auto& warnings = search.warnings();
  for (size_t i = 0; i < std::min(warnings.size(), kWarningsShown); ++i) {
    const auto& [what, seen] = warnings[i];
    output.line("  step " + std::to_string(seen.step) + ' ' + place_of(seen, definitions) + ": " +
                warning_text(what, seen));
  }
  if (warnings.size() > kWarningsShown)
    output.line("  and " + counted(warnings.size() - kWarningsShown, "further one"));
}

/// A gradient is named by who made it, then by who received it.
std::string title_of(const Seen& birth, const NanFound& found, const Definitions& definitions) {
  std::string line = "First NaN or infinity: step " + std::to_string(birth.step) + ' ';
  if (found.made_by)
    line += "backward, " + escape_text(diff::made_text(*found.made_by)) + ", received by ";
  line += place_of(birth, definitions);
  if (birth.kernel) line += ' ' + name_text(definitions, definitions.kernel(birth.kernel).name);
  return line + ": " + count_text(birth.stats.nan) + " NaN, " +
         count_text(birth.stats.pos_inf + birth.stats.neg_inf) + " infinite of " +
         counted(birth.stats.count, "element") + " (" + std::string(to_string(birth.dtype)) +
         "), record " + std::to_string(birth.seq);
}

void print_owner(Output& output, const FormerOwner& owner, const Definitions& definitions) {
  if (!owner.alloc) return;
  output.line("");
  output.line("Its memory belonged to " +
              (owner.value ? "step " + std::to_string(owner.value->step) + ' ' +
                                 place_of(*owner.value, definitions)
                           : std::string("a tensor of which no value was recorded")) +
              " before: allocated at record " + std::to_string(owner.alloc->header.seq) +
              (owner.free ? ", freed at record " + std::to_string(owner.free->header.seq)
                          : ", never seen freed"));
}

void print_report(Output& output, const NanSearch& search, const std::optional<NanFound>& found,
                  const FormerOwner& owner, const NanOrigin& origin,
                  const Definitions& definitions) {
  if (!search.birth()) {
    output.line("No NaN, and no infinity that is not a mask, among " +
                counted(search.searched(), "value") + " with statistics.");
    return print_warnings(output, search, definitions);
  }
  output.line(title_of(*search.birth(), *found, definitions));
  if (!origin.code.empty()) output.line(origin.code);
  if (found->harmless)
    output.line("That of step " + std::to_string(found->harmless->step) + ' ' +
                place_of(*found->harmless, definitions) + " before it goes no further.");
  output.line(!owner.freed.empty() ? owner.freed
              : found->made_by
                  ? escape_text("Known by this: " + diff::how_text(*found->made_by) + '.')
                  : escape_text(verdict(search, *found, definitions)));
  const std::string becomes = consequence(search, *found, definitions);
  if (!becomes.empty()) output.line(becomes);
  for (const Ingredient& one : search.ingredients()) {
    output.line("  " + name_text(definitions, one.slot) + ": " +
                (one.value ? numbers_of(*one.value) + " (" + place_of(*one.value, definitions) + ')'
                           : "not known"));
  }
  print_frames(output, search, definitions);
  print_warnings(output, search, definitions);
  print_owner(output, owner, definitions);
  output.line("");
  output.line("next: " + origin.next);
}

/// Gives values to `take` until it says that these are enough.
void read_values(reader::TraceReader& trace, const ShowOptions& options, const auto& take) {
  while (const format::Event* event = trace.next()) {
    const auto* tensor = std::get_if<format::TensorStats>(event);
    if (tensor != nullptr && options.steps.contains(tensor->header.step) && take(*tensor)) return;
  }
}

}  // namespace

ExitCode show_nan(const ShowOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  std::optional<NanSearch> search(std::in_place, trace->definitions(), std::nullopt);
  NanSteps steps(trace->definitions());
  read_values(*trace, options, [&](const format::TensorStats& event) {
    search->add(event);
    return steps.add(event);
  });
  const std::optional<NanFound> found = steps.find();
  FormerOwner owner;
  if (found) {
    search.emplace(trace->definitions(), found->seq);
    trace->rewind();
    read_values(*trace, options, [&](const auto& event) { return search->add(event); });
    const Seen& birth = *search->birth();
    owner = former_owner(*trace, birth);
    if (birth.freed)
      owner.freed =
          "It was read after it was freed: elements hold what CONVTRACE_POISON fills "
          "freed memory with. " +
          freed_text(find_freed_source(*trace, birth), *trace);
  }
  const NanOrigin origin =
      found ? origin_of(*trace, *search->birth(), *found, options.path) : NanOrigin();
  Output output;
  if (options.json) {
    Json json = report_json(*search, found, owner, trace->definitions());
    json["code"] = text_or_null(origin.code);
    json["next"] = text_or_null(origin.next);
    output.line(dump_json(json));
  } else {
    print_report(output, *search, found, owner, origin, trace->definitions());
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
