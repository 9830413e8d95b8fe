#include "tools/cli/read/summary.h"

#include <algorithm>
#include <unordered_set>

#include "format/file/record_codec.h"
#include "reader/snapshots.h"

namespace convtrace::tools {
namespace {

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

}  // namespace

double Summary::seconds() const {
  return times_ns ? static_cast<double>(times_ns->second - times_ns->first) * 1e-9 : 0;
}

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

}  // namespace convtrace::tools
