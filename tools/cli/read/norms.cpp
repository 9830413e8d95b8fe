#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"
#include "tools/report/text_layout.h"
#include "tools/trace/model/slot.h"
#include "tools/trace/read/open_steps.h"

namespace convtrace::tools {
namespace {

using diff::Role;
using format::TensorStats;

/// The numbers that people compare by hand when they match two training runs.
struct StepNorms {
  std::vector<double> losses;                 ///< several, if gradients are accumulated
  std::optional<double> loss_scale;           ///< the scale of a GradScaler
  std::map<std::string, double> local_norms;  ///< norm of each weight's gradient, by its name
  std::map<std::string, double>
      unclipped;                   ///< norms before clipping, of the gradients that were clipped
  std::vector<double> clip_norms;  ///< the norms that the clipping function returned to the program

  [[nodiscard]] double gradient_norm() const {
    double sum = 0;
    for (const auto& [name, norm] : local_norms) sum += norm * norm;
    return std::sqrt(sum);
  }
  /// @return none if nothing was clipped.
  [[nodiscard]] std::optional<double> unclipped_norm() const {
    if (unclipped.empty()) return std::nullopt;
    std::map<std::string, double> before = unclipped;
    before.insert(local_norms.begin(), local_norms.end());
    double sum = 0;
    for (const auto& [name, norm] : before) sum += norm * norm;
    return std::sqrt(sum);
  }
  /// @return the factor by which clipping changed the norm of all gradients.
  [[nodiscard]] std::optional<double> clip_factor() const {
    const std::optional<double> before = unclipped_norm();
    if (!before || local_norms.empty() || *before == 0) return std::nullopt;
    return gradient_norm() / *before;
  }
};

/// @return "h.0.mlp.weight", as named_parameters() gives it.
std::string weight_name(const format::Definitions& definitions, const TensorStats& e,
                        std::string_view parameter) {
  std::string name(definitions.text(e.place.scope));
  if (!name.empty()) name += '.';
  return escape_text(name.append(parameter));
}

bool is_told(const format::Definitions& definitions, const TensorStats& e) {
  const Role role = diff::role_of(definitions.text(e.slot));
  return role == Role::kLoss || role == Role::kLossScale || role == Role::kGradientNorm ||
         diff::is_parameter_gradient(role);
}

/// @param finite  a statistic of the finite elements.
/// @return the same statistic with the other elements included.
double with_others(double finite, const format::Stats& stats) {
  if (stats.nan != 0 || (stats.pos_inf != 0 && stats.neg_inf != 0)) return std::nan("");
  if (stats.pos_inf != 0) return HUGE_VAL;
  return stats.neg_inf != 0 ? -HUGE_VAL : finite;
}

void add(const format::Definitions& definitions, const TensorStats& e, StepNorms& step) {
  const std::string_view slot = definitions.text(e.slot);
  const Role role = diff::role_of(slot);
  if (role == Role::kLoss) {
    step.losses.push_back(with_others(e.stats.mean, e.stats));
  } else if (role == Role::kLossScale) {
    step.loss_scale = e.stats.mean;
  } else if (role == Role::kGradientNorm) {
    step.clip_norms.push_back(with_others(e.stats.mean, e.stats));
  } else {
    const bool infinite = e.stats.pos_inf != 0 || e.stats.neg_inf != 0;
    const double norm = e.stats.nan != 0 ? std::nan("") : infinite ? HUGE_VAL : e.stats.l2;
    const std::string name = weight_name(definitions, e, diff::name_of(slot));
    if (role == Role::kGradient) {
      step.local_norms[name] = norm;
    } else {
      step.unclipped.emplace(
          name, norm);  // if it is clipped again, the first norm is that of the backward pass
    }
  }
}

Json optional_number(const std::optional<double>& value) {
  return value ? json_number(*value) : Json();
}

std::string json_line(uint32_t number, const StepNorms& step) {
  Json json{{"step", number}, {"losses", json_list(step.losses, json_number)}};
  json["loss_scale"] = optional_number(step.loss_scale);
  json["gradient_norm"] = step.local_norms.empty() ? Json() : json_number(step.gradient_norm());
  json["unclipped_norm"] = optional_number(step.unclipped_norm());
  json["clip_factor"] = optional_number(step.clip_factor());
  json["clip_norms"] = json_list(step.clip_norms, json_number);
  json["local_norms"] = Json::object();
  for (const auto& [name, norm] : step.local_norms) json["local_norms"][name] = json_number(norm);
  return dump_json(json);
}

std::vector<std::string> table_row(uint32_t number, const StepNorms& step) {
  constexpr int kDigits = 6;
  std::string losses;
  for (const double loss : step.losses)
    losses += (losses.empty() ? "" : ", ") + number_text(loss, kDigits);
  const auto largest = std::ranges::max_element(step.local_norms, {}, [](const auto& entry) {
    return std::isnan(entry.second) ? HUGE_VAL : entry.second;
  });
  const bool none = step.local_norms.empty();
  const auto optional = [](const std::optional<double>& value) {
    return value ? number_text(*value, kDigits) : "-";
  };
  return {std::to_string(number),
          losses.empty() ? "-" : losses,
          optional(step.unclipped_norm()),
          optional(step.clip_factor()),
          none ? "-" : number_text(step.gradient_norm(), kDigits),
          optional(step.loss_scale),
          none ? "-" : number_text(largest->second, kDigits) + " " + largest->first};
}

}  // namespace

ExitCode show_norms(const ShowOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  Output output;
  std::vector<std::vector<std::string>> table{{"step", "loss", "norm before clipping", "factor",
                                               "gradient norm", "loss scale",
                                               "largest of one weight"}};
  diff::OpenSteps<StepNorms> open;
  uint64_t rows = 0;
  const auto finish_first = [&] {
    const auto& [number, step] = open.take_first();
    if (options.json) {
      output.line(json_line(number, step));
    } else {
      table.push_back(table_row(number, step));
    }
    ++rows;
  };
  const format::Event* event = nullptr;
  while (output.usable() && (event = trace->next()) != nullptr) {
    const auto* tensor = std::get_if<TensorStats>(event);
    if (tensor == nullptr || tensor->capture == format::Capture::kHash) continue;
    const uint32_t number = tensor->header.step;
    if (!options.steps.contains(number) || !is_told(trace->definitions(), *tensor)) continue;
    if (StepNorms* const step = open.at(number)) add(trace->definitions(), *tensor, *step);
    while (open.is_first_whole()) finish_first();
  }
  while (!open.empty()) finish_first();
  if (!options.json)
    for (const std::string& line : diff::table_lines(table)) output.line(line);
  if (rows == 0)
    complain(MessageId::kNothingRecorded, options.path,
             "no loss and no gradient with statistics was recorded");
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
