#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/read/nan_search.h"
#include "tools/common/element.h"
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
        owner = {.alloc = *alloc, .free = {}, .value = {}};
      }
    } else if (const auto* free = std::get_if<format::Free>(event)) {
      if (owner.alloc && owner.alloc->generation == free->generation) owner.free = *free;
    } else if (const auto* tensor = std::get_if<format::TensorStats>(event)) {
      if (owner.alloc && tensor->value.generation == owner.alloc->generation) {
        owner.value = seen_of(*tensor);
      }
    }
  }
  return owner;
}

std::string place_of(const Seen& seen, const Definitions& definitions) {
  return place_text(definitions, seen.place) + ' ' + name_text(definitions, seen.slot);
}

/// @return log2 of the largest over the smallest magnitude; 0 where there is none.
double dynamic_range(const Seen& seen) {
  const double least = magnitude_as_double(seen.dtype, seen.stats.amin_nonzero);
  const double most = magnitude_as_double(seen.dtype, seen.stats.amax);
  return least > 0 ? std::log2(most) - std::log2(least) : 0;
}

/// One sentence about the origin of the first bad value, as far as the records show it.
std::string verdict(const NanSearch& search, const Definitions& definitions) {
  const Seen& birth = *search.birth();
  const std::string_view slot = definitions.text(birth.slot);
  if (birth.poisoned != 0)
    return "It was never written: " + counted(birth.poisoned, "element") +
           " hold what CONVTRACE_POISON fills new memory with.";
  // In evaluation, only an input of the root module has statistics.
  const bool evaluated = birth.place.phase == Phase::kEvaluation;
  if (birth.place.phase == Phase::kData || (evaluated && slot.starts_with("input"))) {
    return "It came with the data: it is an input of the root module.";
  }
  if (slot.starts_with("grad_output") || slot.starts_with("grad_input")) {
    for (auto before = search.frames().rbegin(); before != search.frames().rend(); ++before) {
      if (before->place.phase != Phase::kBackward || before->step != birth.step) continue;
      return "It was born in the backward pass, behind " + place_of(*before, definitions) +
             ", which is finite.";
    }
    return "It was born where the backward pass begins: no gradient before it was recorded.";
  }
  if (const auto before = search.before_gap();
      before && (birth.place.phase == Phase::kForward || evaluated)) {
    return "Its step is the first with values since step " + std::to_string(*before) +
           ": it was born here, or in a step between, which left it in the parameters.";
  }
  const auto& made_of = search.ingredients();
  for (const Ingredient& one : made_of) {
    if (one.value) continue;
    return "It was born here, or between the modules: where its " +
           name_text(definitions, one.slot) + " comes from was not recorded.";
  }
  if (!made_of.empty()) return "It was born here: all that it was made of is finite.";
  return "What it was made of was not recorded; every value before it is finite.";
}

/// What is known of an ingredient, which has no NaN and no infinity but those of masks.
std::string numbers_of(const Seen& seen) {
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
    case Warning::kNearLimit:
      break;
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

Json report_json(const NanSearch& search, const FormerOwner& owner,
                 const Definitions& definitions) {
  Json json{{"searched", search.searched()}};
  json["birth"] = search.birth() ? seen_json(*search.birth(), definitions) : Json();
  json["values_missing_since_step"] = search.before_gap() ? Json(*search.before_gap()) : Json();
  json["verdict"] = search.birth() ? Json(verdict(search, definitions)) : Json();
  Json& made_of = json["made_of"] = Json::array();
  for (const Ingredient& one : search.ingredients()) {
    made_of.push_back({{"slot", definitions.text(one.slot)},
                       {"value", one.value ? seen_json(*one.value, definitions) : Json()}});
  }
  Json& before = json["before"] = Json::array();
  for (const Seen& seen : search.frames()) before.push_back(seen_json(seen, definitions));
  Json& warnings = json["warnings"] = Json::array();
  for (const auto& [what, seen] : search.warnings()) {
    warnings.push_back(
        {{"text", warning_text(what, seen)}, {"value", seen_json(seen, definitions)}});
  }
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
  if (warnings.size() > kWarningsShown) {
    output.line("  and " + counted(warnings.size() - kWarningsShown, "further one"));
  }
}

void print_report(Output& output, const NanSearch& search, const FormerOwner& owner,
                  const Definitions& definitions) {
  if (!search.birth()) {
    output.line("No NaN and no positive infinity among " + counted(search.searched(), "value") +
                " with statistics.");
    return print_warnings(output, search, definitions);
  }
  const Seen& birth = *search.birth();
  std::string line = "First NaN or infinity: step " + std::to_string(birth.step) + ' ' +
                     place_of(birth, definitions);
  if (birth.kernel) {
    line += ' ' + name_text(definitions, definitions.kernel(birth.kernel).name);
  }
  output.line(line + ": " + count_text(birth.stats.nan) + " NaN, " +
              count_text(birth.stats.pos_inf + birth.stats.neg_inf) + " infinite of " +
              counted(birth.stats.count, "element") + " (" + std::string(to_string(birth.dtype)) +
              "), record " + std::to_string(birth.seq));
  output.line(verdict(search, definitions));
  for (const Ingredient& one : search.ingredients()) {
    output.line("  " + name_text(definitions, one.slot) + ": " +
                (one.value ? numbers_of(*one.value) + " (" + place_of(*one.value, definitions) + ')'
                           : "not known"));
  }
  print_frames(output, search, definitions);
  print_warnings(output, search, definitions);
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

}  // namespace

ExitCode show_nan(const ShowOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  NanSearch search(trace->definitions());
  bool found = false;
  while (!found) {
    const format::Event* event = trace->next();
    if (event == nullptr) break;
    const auto* tensor = std::get_if<format::TensorStats>(event);
    found = tensor != nullptr && options.steps.contains(tensor->header.step) && search.add(*tensor);
  }
  Output output;
  const FormerOwner owner = found ? former_owner(*trace, *search.birth()) : FormerOwner{};
  if (options.json) {
    output.line(dump_json(report_json(search, owner, trace->definitions())));
  } else {
    print_report(output, search, owner, trace->definitions());
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
