#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "format/settings/settings.h"
#include "reader/step_sums.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/read/summary.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

/// @return `part` / `whole`; nothing if `whole` is 0.
std::optional<double> ratio(double part, double whole) {
  if (whole <= 0) return std::nullopt;
  return part / whole;
}

Json ratio_json(double part, double whole) {
  const auto value = ratio(part, whole);
  return value ? json_number(*value) : Json();
}

Json size_json(const Summary::Size& size) {
  return {{"records", size.records}, {"bytes", size.bytes}, {"raw_bytes", size.raw_bytes}};
}

/// Adds the size of the trace and the cost of tracing.
void add_costs(Json& json, const reader::TraceReader& trace, const Summary& summary) {
  const auto events = static_cast<double>(summary.event_count);
  const auto bytes = static_cast<double>(trace.file_bytes());
  const double host_s = static_cast<double>(summary.cost_host_ns) * 1e-9;
  json["sizes"] = {{"meta", size_json(summary.meta)},
                   {"defs", size_json(summary.defs)},
                   {"events", size_json(summary.events)},
                   {"values", size_json(summary.values)},
                   {"rest", {{"bytes", summary.rest_bytes}}}};
  json["value_bytes_a_step"] = summary.value_bytes_a_step;
  json["seconds"] = json_number(summary.seconds());
  json["events_per_s"] = ratio_json(events, summary.seconds());
  json["bytes_per_s"] = ratio_json(bytes, summary.seconds());
  json["bytes_per_event"] = ratio_json(bytes, events);
  json["cost"] = {{"host_ns", summary.cost_host_ns},
                  {"device_ns", summary.cost_device_ns},
                  {"host_fraction", ratio_json(host_s, summary.seconds())},
                  {"overhead", ratio_json(host_s, summary.seconds() - host_s)}};
}

Json info_json(const reader::TraceReader& trace, const Summary& summary) {
  Json json;
  json["state"] = to_string(trace.state());
  json["bytes"] = trace.file_bytes();
  json["steps"] =
      summary.steps ? Json::array({summary.steps->first, summary.steps->second}) : Json();
  Json& records = json["records"] = Json::object();
  for (size_t i = 0; i < Summary::kEventKinds; ++i)
    records[format::event_name(i)] = summary.records[i];
  Json& lost = json["lost"] = Json::object();
  diff::visit_losses(summary.lost, [&](format::LossReason reason, uint64_t count) {
    lost[to_string(reason)] = count;
  });
  Json& findings = json["findings"] = Json::object();
  for (size_t i = 0; i < summary.findings.size(); ++i) {
    if (summary.findings[i] == 0) continue;
    findings[to_string(static_cast<format::Level>(i))] = summary.findings[i];
  }
  json["findings_suppressed"] = summary.suppressed;
  json["step_sums"] = Json::array();
  for (const auto& step : reader::load_step_sums(trace.container())) {
    json["step_sums"].push_back({{"step", step.step == format::kNoStep ? Json() : Json(step.step)},
                                 {"launches", step.launches},
                                 {"values", step.values},
                                 {"keys", hex_text(step.key_sum)},
                                 {"sum", hex_text(step.value_sum)}});
  }
  add_costs(json, trace, summary);
  json["problems"] = problems_json(trace.problems());
  json["meta"] = meta_json(trace.meta());
  return json;
}

/// Rows of name and text, in two columns.
class Rows {
 public:
  void add(std::string name, std::string text) {
    rows_.emplace_back(std::move(name), std::move(text));
  }

  void print(Output& output) {
    size_t width = 0;
    for (const auto& [name, text] : rows_) width = std::max(width, name.size());
    for (auto& [name, text] : rows_) {
      name.resize(width + 2, ' ');
      output.line(name + text);
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quote_shell(word);
  return text;
}

void add_cost(Rows& rows, const Summary& summary) {
  if (summary.cost_host_ns == 0) return;
  const double host_s = static_cast<double>(summary.cost_host_ns) * 1e-9;
  std::string text = number_text(host_s, 3) + " s of " + number_text(summary.seconds(), 3) +
                     " s in the observer's hooks";
  if (const auto added = ratio(host_s, summary.seconds() - host_s))
    text += ": about " + percent_text(*added) + " more than untraced";
  if (summary.cost_device_ns > 0) {
    const double device_s = static_cast<double>(summary.cost_device_ns) * 1e-9;
    text += ", " + number_text(device_s, 3) + " s on devices";
  }
  rows.add("cost", text);
}

void add_sizes(Rows& rows, const reader::TraceReader& trace, const Summary& summary, bool all) {
  const auto size = [&rows](const Summary::Size& of, const char* what) {
    if (of.records == 0) return;
    rows.add("stored", counted(of.bytes, "byte") + " of " + what + " in " +
                           counted(of.records, "record") + ", " + count_text(of.raw_bytes) +
                           " before compression");
  };
  size(summary.values, "tensors");
  if (!all) return;
  size(summary.events, "events");
  size(summary.defs, "names and stacks");
  size(summary.meta, "facts about the process");
  rows.add("stored", counted(summary.rest_bytes, "byte") + " of headers and index");
  if (summary.value_bytes_a_step > 0)
    rows.add("values", counted(summary.value_bytes_a_step, "byte") +
                           " in the largest step: what snapshots of them would hold");
  const auto events = static_cast<double>(summary.event_count);
  if (const auto each = ratio(static_cast<double>(trace.file_bytes()), events)) {
    rows.add("rate", number_text(*each, 3) + " bytes an event");
  }
  if (const auto rate = ratio(events, summary.seconds())) {
    rows.add("rate", count_text(static_cast<uint64_t>(*rate)) + " events a second over " +
                         number_text(summary.seconds(), 3) + " s");
  }
}

/// Settings that are not as they are by themselves, and versions; or all facts.
void add_facts(Rows& rows, const format::TraceMeta& meta, bool all) {
  rows.add("convtrace", escape_text(meta.tool_version));
  const settings::Settings usual;
  for (const auto& [name, value] : meta.facts) {
    constexpr std::string_view kPrefix = "setting.";
    const settings::SettingSpec* const spec =
        name.starts_with(kPrefix) ? settings::find_setting(name.substr(kPrefix.size())) : nullptr;
    const bool is_told = spec != nullptr ? value != spec->print(usual)
                                         : name.starts_with("version.") ||
                                               name == "package.torch" || name == "overhead";
    if (!value.empty() && (all || is_told)) rows.add(escape_text(name), escape_text(value));
  }
}

std::string loss_text(const Summary& summary) {
  const auto& [first, last] = *summary.losses;
  return number_text(first.value, 6) + " in step " + std::to_string(first.step) + ", " +
         number_text(last.value, 6) + " in step " + std::to_string(last.step);
}

/// @return how many records of each kind there are, the most first.
std::string records_text(const Summary& summary) {
  std::vector<size_t> kinds(Summary::kEventKinds);
  std::iota(kinds.begin(), kinds.end(), 0);
  std::ranges::stable_sort(kinds, std::greater(),
                           [&](size_t kind) { return summary.records[kind]; });
  std::string text;
  for (const size_t kind : kinds) {
    if (summary.records[kind] == 0) break;
    text += (text.empty() ? "" : ", ") + count_text(summary.records[kind]) + ' ' +
            std::string(format::event_name(kind));
  }
  return text;
}

void print_info(Output& output, const reader::TraceReader& trace, const Summary& summary,
                const std::string& path, bool all) {
  const format::TraceMeta& meta = trace.meta();
  Rows rows;
  rows.add("state", to_string(trace.state()));
  rows.add("size", counted(trace.file_bytes(), "byte"));
  rows.add("command", command_text(meta.command_line));
  rows.add("process", "pid " + std::to_string(meta.pid) + " on " + escape_text(meta.host) +
                          ", rank " + std::to_string(meta.rank) + " of " +
                          std::to_string(meta.world_size));
  rows.add("steps", summary.steps ? std::to_string(summary.steps->first) + " to " +
                                        std::to_string(summary.steps->second)
                                  : "none");
  if (summary.losses) rows.add("loss", loss_text(summary));
  if (summary.modules > 0) rows.add("modules", count_text(summary.modules));
  if (summary.event_count > 0) rows.add("records", records_text(summary));
  for (size_t i = 0; i < summary.findings.size(); ++i) {
    if (summary.findings[i] == 0) continue;
    rows.add("findings", counted(summary.findings[i], to_string(static_cast<format::Level>(i))) +
                             ": convtrace findings " + quote_shell(path));
  }
  if (summary.suppressed != 0)
    rows.add("findings", count_text(summary.suppressed) + " suppressed by a rule");
  diff::visit_losses(summary.lost, [&](format::LossReason reason, uint64_t count) {
    rows.add("lost", count_text(count) + ": " + std::string(to_string(reason)));
  });
  add_sizes(rows, trace, summary, all);
  add_cost(rows, summary);
  add_facts(rows, meta, all);
  rows.print(output);
  if (!all) output.line("(--all: every fact)");
}

struct InfoOptions : TraceOptions {
  bool all = false;
};

ExitCode show_info(const InfoOptions& options) {
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  const Summary summary = summarize(*trace);
  Output output;
  if (options.json) {
    output.line(dump_json(info_json(*trace, summary)));
  } else {
    print_info(output, *trace, summary, options.path, options.all);
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace

void add_info(Commands& commands) {
  auto [command, options] = commands.add<InfoOptions>(
      "info", "What a trace holds, in which state it is, and what it cost", show_info);
  add_trace_options(command, options, "One JSON object");
  command.add_flag("--all", options.all, "Every fact, also settings that have their defaults");
}

}  // namespace convtrace::tools
