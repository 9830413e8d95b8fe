#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::TensorStats;

/// An input as ONNX Runtime's inspector lists it.
struct Density {
  uint32_t step = 0;
  const char* type = "";
  std::string name;
  int64_t pad_index = 0;
  uint64_t total = 0;
  std::optional<uint64_t> valid;
  std::vector<uint64_t> valid_rows;  ///< for each part of a batch, or empty
};

/// @return the number of padded elements. If a device did not count them, they are found from its
/// statistics of zeros and negative elements, since indices and labels have no other values there.
std::optional<uint64_t> padding_of(const TensorStats& e) {
  if (e.pad_count != format::kNotCounted) return std::min(e.pad_count, e.stats.count);
  if (e.capture == format::Capture::kHash) return std::nullopt;
  if (e.pad_index == 0) return std::min(e.stats.pos_zero, e.stats.count);
  if (e.pad_index < 0) return std::min(e.stats.negative, e.stats.count);
  return std::nullopt;
}

bool is_root_input(const format::Definitions& definitions, const TensorStats& e) {
  return e.place.phase == format::Phase::kData ||
         (e.place.phase == format::Phase::kEvaluation && e.op.value == 0 &&
          definitions.text(e.place.scope).empty() &&
          definitions.text(e.slot).starts_with("input:"));
}

/// The slots of the root module's inputs in the current step: the names that the user gave.
class RootInputs {
 public:
  void add(const TensorStats& e) {
    if (e.header.step != step_) slots_.clear();
    step_ = e.header.step;
    slots_[e.value.storage] = e.slot;
  }
  /// @return none if the memory belongs to no input of the root module.
  [[nodiscard]] format::StringId find(uint64_t storage) const {
    const auto found = slots_.find(storage);
    return found == slots_.end() ? format::StringId{} : found->second;
  }

 private:
  uint32_t step_ = format::kNoStep;
  std::map<uint64_t, format::StringId> slots_;  ///< by storage
};

Density density_of(const TensorStats& e, const RootInputs& roots,
                   const format::Definitions& definitions) {
  Density density{.step = e.header.step,
                  .type = e.padding == format::Padding::kEmbedding ? "EMBED" : "LABEL",
                  .name = {},
                  .pad_index = e.pad_index,
                  .total = e.stats.count,
                  .valid = {},
                  .valid_rows = {}};
  if (const auto padding = padding_of(e)) density.valid = e.stats.count - *padding;
  const format::StringId root = roots.find(e.value.storage);
  density.name = root ? name_text(definitions, root)
                      : place_text(definitions, e.place) + ' ' + name_text(definitions, e.slot);
  for (const uint64_t padding : e.pad_rows) {
    const uint64_t width = e.stats.count / e.pad_rows.size();
    density.valid_rows.push_back(width - std::min(padding, width));
  }
  return density;
}

double percent(const Density& density) {
  if (density.total == 0) return 0;
  return 100 * static_cast<double>(*density.valid) / static_cast<double>(density.total);
}

std::string json_line(const Density& density) {
  Json json{{"step", density.step},
            {"input_type", density.type},
            {"input_name", density.name},
            {"pad_index", density.pad_index}};
  json["density"] = density.valid ? Json(percent(density)) : Json();
  json["valid_tokens"] = density.valid ? Json(*density.valid) : Json();
  json["total_tokens"] = density.total;
  json["valid_tokens_per_batch"] = density.valid_rows;
  return dump_json(json);
}

std::string text_line(const Density& density) {
  std::string rows;
  for (const uint64_t row : density.valid_rows)
    rows += (rows.empty() ? "" : ", ") + std::to_string(row);
  return std::to_string(density.step) + " | " + density.type + " | " + density.name + " | " +
         std::to_string(density.pad_index) + " | " +
         (density.valid ? number_text(percent(density), 4) + " %" : "?") + " | " +
         (density.valid ? std::to_string(*density.valid) : "?") + " | " +
         std::to_string(density.total) + " | " + (rows.empty() ? "N/A" : '[' + rows + ']');
}

}  // namespace

ExitCode show_density(const ShowOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  Output output;
  if (!options.json) {
    output.line(
        "STEP | INPUT TYPE | INPUT NAME | PAD IDX | DENSITY | VALID TOKENS | TOTAL TOKENS | "
        "VALID TOKENS/BATCH");
  }
  RootInputs roots;
  uint64_t rows = 0, uncounted = 0;
  const format::Event* event = nullptr;
  while (output.usable() && (event = trace->next()) != nullptr) {
    const auto* tensor = std::get_if<TensorStats>(event);
    if (tensor == nullptr) continue;
    if (is_root_input(trace->definitions(), *tensor)) roots.add(*tensor);
    if (tensor->padding == format::Padding::kNone) continue;
    if (!options.steps.contains(tensor->header.step)) continue;
    const Density density = density_of(*tensor, roots, trace->definitions());
    output.line(options.json ? json_line(density) : text_line(density));
    ++rows;
    uncounted += density.valid ? 0 : 1;
  }
  if (rows == 0) {
    complain(MessageId::kNothingRecorded, options.path,
             "no input of an embedding with a padding index or of a loss with an index that it "
             "ignores was recorded");
  }
  if (uncounted != 0) {
    complain(MessageId::kNotCounted, options.path,
             counted(uncounted, "input") +
                 " on a device: padding was not counted there, and an index above 0 "
                 "is not in the statistics");
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
