#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "format/file/record_codec.h"
#include "format/settings/settings.h"
#include "reader/snapshots.h"
#include "reader/step_sums.h"
#include "reader/trace_reader.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/trace/model/losses.h"

namespace convtrace::tools {
namespace {

/// The figures that one pass over a trace gives: counts, losses, sizes, and the cost of tracing.
struct Summary {
  static constexpr size_t kEventKinds = std::variant_size_v<format::Event>;

  std::array<uint64_t, kEventKinds> records{};
  diff::Losses lost;
  std::array<uint64_t, 4> findings{};  ///< by level, unsuppressed
  uint64_t suppressed = 0;             ///< number of findings that a rule suppresses
  std::optional<std::pair<uint32_t, uint32_t>> steps;
  uint64_t modules = 0;  ///< names of modules that were called
  struct LossValue {
    uint32_t step = 0;
    double value = 0;
  };
  std::optional<std::pair<LossValue, LossValue>> losses;  ///< the first and the last recorded

  /// Size of the records of a kind, as stored in the file.
  struct Size {
    uint64_t records = 0;
    uint64_t bytes = 0;      ///< with header and padding
    uint64_t raw_bytes = 0;  ///< size of the payloads before compression
  };
  Size meta, defs, events, values;
  uint64_t rest_bytes = 0;  ///< file header, index, footer, and damaged bytes

  /// Bytes of the tensors with statistics, in the step that has most of them.
  uint64_t value_bytes_a_step = 0;

  uint64_t event_count = 0;
  std::optional<std::pair<uint64_t, uint64_t>> times_ns;  ///< times of the first and the last event
  uint64_t cost_host_ns = 0, cost_device_ns = 0;          ///< as measured by convtrace

  /// @return seconds between the first and the last event; 0 without two of them.
  [[nodiscard]] double seconds() const {
    return times_ns ? static_cast<double>(times_ns->second - times_ns->first) * 1e-9 : 0;
  }
};

template <typename T>
void widen(std::optional<std::pair<T, T>>& range, T value) {
  if (!range) range = {value, value};
  range->first = std::min(range->first, value);
  range->second = std::max(range->second, value);
}

/// The step being read: the steps of a trace are consecutive.
struct StepBytes {
  uint32_t step = format::kNoStep;
  uint64_t bytes = 0;
};

void add(Summary& summary, StepBytes& now, const format::TensorStats& tensor) {
  if (tensor.capture == format::Capture::kHash) return;
  if (now.step != tensor.header.step) now = {.step = tensor.header.step};
  now.bytes += tensor.bytes;
  summary.value_bytes_a_step = std::max(summary.value_bytes_a_step, now.bytes);
}

void add_loss(Summary& summary, const format::TensorStats& tensor) {
  const bool is_number = tensor.stats.count == 1 && tensor.capture != format::Capture::kHash;
  if (tensor.place.phase != format::Phase::kLoss || !is_number) return;
  const Summary::LossValue now{tensor.header.step, tensor.stats.mean};
  if (!summary.losses) summary.losses = {now, now};
  summary.losses->second = now;
}

void add(Summary& summary, const format::Event& event) {
  ++summary.records[event.index()];
  ++summary.event_count;
  const format::EventHeader& header = format::header_of(event);
  widen(summary.times_ns, header.t_ns);
  if (header.step != format::kNoStep) widen(summary.steps, header.step);
  if (const auto* loss = std::get_if<format::Loss>(&event)) {
    summary.lost.take(*loss);
  } else if (const auto* cost = std::get_if<format::Cost>(&event)) {
    summary.cost_host_ns += cost->host_ns;
    summary.cost_device_ns += cost->device_ns;
  } else if (const auto* finding = std::get_if<format::Finding>(&event)) {
    ++(finding->suppressed ? summary.suppressed
                           : summary.findings[static_cast<size_t>(finding->level)]);
  }
}

void add_sizes(Summary& summary, const reader::TraceContainer& container) {
  summary.rest_bytes = container.source().size();
  for (const auto& [offset, header] : container.records()) {
    Summary::Size* size = header.kind == format::RecordKind::kMeta     ? &summary.meta
                          : header.kind == format::RecordKind::kDefs   ? &summary.defs
                          : header.kind == format::RecordKind::kEvents ? &summary.events
                          : header.kind == format::RecordKind::kBlob   ? &summary.values
                                                                       : nullptr;
    if (size == nullptr) continue;
    const uint64_t bytes =
        std::min(format::record_extent(header), container.source().size() - offset);
    ++size->records;
    size->bytes += bytes;
    size->raw_bytes += header.raw_size;
    summary.rest_bytes -= bytes;
  }
  if (summary.values.records == 0) return;
  summary.values.raw_bytes = reader::Snapshots(container.source(), container.records()).raw_bytes();
}

/// Reads all events of `trace`.
Summary summarize(reader::TraceReader& trace) {
  Summary summary;
  StepBytes now;
  std::unordered_set<uint32_t> modules;
  while (const format::Event* event = trace.next()) {
    add(summary, *event);
    if (const auto* tensor = std::get_if<format::TensorStats>(event)) {
      add(summary, now, *tensor);
      add_loss(summary, *tensor);
    } else if (const auto* scope = std::get_if<format::Scope>(event)) {
      if (scope->place.phase == format::Phase::kForward) modules.insert(scope->place.scope.value);
    }
  }
  summary.modules = modules.size();
  summary.lost.take({.header = {},
                     .reason = format::LossReason::kDamage,
                     .count = trace.counts().lost_records + trace.events_without_definition()});
  add_sizes(summary, trace.container());
  return summary;
}

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
  const auto sums_json = [](const format::StepSums& step) {
    return Json{{"step", step_json(step.step)},
                {"launches", step.launches},
                {"values", step.values},
                {"keys", hex_text(step.key_sum)},
                {"sum", hex_text(step.value_sum)}};
  };
  json["step_sums"] = json_list(reader::load_step_sums(trace.container()), sums_json);
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
  if (const auto each = ratio(static_cast<double>(trace.file_bytes()), events))
    rows.add("rate", number_text(*each, 3) + " bytes an event");
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
    if (value.empty() || !(all || is_told)) continue;
    rows.add(escape_text(name),
             name.starts_with("source.")
                 ? counted(static_cast<uint64_t>(std::ranges::count(value, '\n')), "line")
                 : escape_text(value));
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
  rows.add("command", shell_line(meta.command_line));
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
