#include "tools/cli/base/record_text.h"

#include <algorithm>
#include <cstdio>

#include "tools/common/element.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::Definitions;

std::string address_text(uint64_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string type_text(const format::TensorStats& e) {
  std::string text(to_string(e.dtype));
  if (!e.has_shape) return text + " x " + count_text(e.stats.count);
  text += '[';
  for (size_t i = 0; i < e.shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(e.shape[i]);
  return text + ']';
}

/// The fields that differ most often come first; `show --json` has the whole record.
std::string numbers_text(const format::TensorStats& e) {
  const format::Stats& s = e.stats;
  std::string text = "hash " + hex_text(s.hash);
  if (e.capture == format::Capture::kHash) return text;
  text += "  mean " + number_text(s.mean) + "  std " + number_text(s.std) + "  min " +
          number_text(extreme_as_double(e.dtype, s.min)) + "  max " +
          number_text(extreme_as_double(e.dtype, s.max));
  if (s.nan != 0) text += "  nan " + count_text(s.nan);
  if (s.pos_inf + s.neg_inf != 0) text += "  inf " + count_text(s.pos_inf + s.neg_inf);
  if (s.saturated != 0) text += "  saturated " + count_text(s.saturated);
  return text;
}

std::string dim3_text(const uint32_t (&axes)[3]) {
  return std::to_string(axes[0]) + ',' + std::to_string(axes[1]) + ',' + std::to_string(axes[2]);
}

/// @return whether such a record has a stream; in others 0 means none, not the default stream.
bool on_stream(format::SyncKind kind) {
  using Kind = format::SyncKind;
  return kind != Kind::kEventDone && kind != Kind::kContextDone && kind != Kind::kEventCreate &&
         kind != Kind::kEventDestroy;
}

/// Place and details of each kind of record.
class Describer {
 public:
  explicit Describer(const Definitions& definitions) : definitions_(definitions) {}

  std::string place, details;

  void operator()(const format::Launch& e) {
    place = place_text(definitions_, e.place);
    details = kernel_text(definitions_, e.kernel) + "  <<<" + dim3_text(e.grid) + "; " +
              dim3_text(e.block) + ">>>  stream " + address_text(e.stream) + "  " +
              counted(e.operands.size(), "operand");
    const bool is_asked_for = e.sampled != format::SampleOutcome::kNotAsked;
    if (is_asked_for && e.sampled != format::SampleOutcome::kSampled)
      details += "  not sampled: " + std::string(to_string(e.sampled));
  }

  void operator()(const format::TensorStats& e) {
    place = place_text(definitions_, e.place) + ' ' + name_text(definitions_, e.slot);
    if (e.op) details += name_text(definitions_, e.op) + "  ";
    if (e.kernel) details += kernel_text(definitions_, e.kernel) + "  ";
    details += type_text(e) + " on " + device_text(e.device) + "  " + numbers_text(e);
    if (e.looks != 0)
      details += "  changed in " + std::to_string(e.changes) + " of " + counted(e.looks, "look");
    if (e.poisoned != 0) details += "  " + std::to_string(e.poisoned) + " never written";
    if (e.collective != 0) details += "  of collective " + std::to_string(e.collective);
    if (e.padding != format::Padding::kNone && e.pad_count != format::kNotCounted)
      details += "  " + std::to_string(e.pad_count) + " are " + std::to_string(e.pad_index);
  }

  void operator()(const format::Alloc& e) { memory(e); }
  void operator()(const format::Free& e) { memory(e); }

  void operator()(const format::Copy& e) {
    using Kind = format::Copy::Kind;
    details = address_text(e.destination);
    if (e.kind == Kind::kDiscard) {
      details += " discarded";
    } else {
      details += (e.kind == Kind::kCopy ? " from " : " set to ") + address_text(e.source);
    }
    details += "  " + counted(e.bytes, "byte") + "  stream " + address_text(e.stream);
  }

  void operator()(const format::Scope& e) {
    place = place_text(definitions_, e.place);
    details = e.enter ? "enter" : "leave";
  }

  void operator()(const format::Step& e) { details = "step " + std::to_string(e.index); }

  void operator()(const format::Finding& e) {
    place = place_text(definitions_, e.place) + ' ' + name_text(definitions_, e.slot);
    details = std::string(to_string(e.level)) + ' ' + std::string(to_string(e.kind)) + ": " +
              escape_text(e.message);
    if (e.suppressed) details += " (suppressed)";
  }

  void operator()(const format::Diagnostic& e) {
    details =
        std::string(to_string(e.level)) + ' ' + escape_text(e.site) + ": " + escape_text(e.message);
  }

  void operator()(const format::Loss& e) {
    details = counted(e.count, "record") + ": " + std::string(to_string(e.reason));
  }

  void operator()(const format::Cost& e) {
    details = "host " + count_text(e.host_ns) + " ns  device " + count_text(e.device_ns) +
              " ns  file " + counted(e.bytes, "byte");
  }

  void operator()(const format::Sync& e) {
    details = to_string(e.kind);
    if (e.event != 0) details += "  event " + address_text(e.event);
    if (on_stream(e.kind)) details += "  stream " + address_text(e.stream);
    details += " on " + device_text({format::Device::Type::kCuda, e.device});
    if (e.flags != 0) details += "  flags " + address_text(e.flags);
  }

  void operator()(const format::Op& e) {
    using Moment = format::OpMoment;
    details = to_string(e.moment);
    if (e.moment == Moment::kStorageDeath) {
      details += "  storage " + std::to_string(e.value.storage);
      return;
    }
    place = place_text(definitions_, e.place);
    details += "  " + name_text(definitions_, e.op);
    if (e.moment != Moment::kInput && e.moment != Moment::kOutput) return;
    place += ' ' + name_text(definitions_, e.slot);
    details += "  " + address_text(e.address) + "  " + counted(e.bytes, "byte") + "  storage " +
               std::to_string(e.value.storage) + " on " + device_text(e.device);
    if (e.written) details += "  written";
  }

  void operator()(const format::Collective& e) {
    place = place_text(definitions_, e.place);
    details = name_text(definitions_, e.op);
    if (e.reduction) details += ' ' + name_text(definitions_, e.reduction);
    details += "  group " + name_text(definitions_, e.group) + " rank " +
               std::to_string(e.group_rank) + " of " + std::to_string(e.group_size) + "  number " +
               std::to_string(e.number);
    if (e.peer != format::kNoPeer) details += "  peer " + std::to_string(e.peer);
    if (e.tag != 0) details += "  tag " + std::to_string(e.tag - 1);
    details += "  " + std::string(to_string(e.dtype)) + "  sent " + count_text(e.sent) +
               "  received " + count_text(e.received) + " on " + device_text(e.device) + "  id " +
               std::to_string(e.id);
  }

  void operator()(const format::Fact& e) {
    const std::string scope = name_text(definitions_, e.scope);
    place = !e.scope ? "-" : scope.empty() ? "." : scope;
    details = name_text(definitions_, e.name) + ": " + escape_text(e.value);
  }

 private:
  void memory(const auto& e) {
    details = address_text(e.address) + "  " + counted(e.bytes, "byte") + "  generation " +
              std::to_string(e.generation) + "  " + std::string(to_string(e.source)) + " on " +
              device_text(e.device);
  }

  const Definitions& definitions_;
};

/// "_PyEval_Vector+0x5c (libpython3.11.so.1.0+0x250a40)", "python3.11+0x1234"
bool is_interpreter(std::string_view frame) {
  const std::string_view library =
      frame.substr(frame.rfind('(') + 1);  // the whole frame, if there is no parenthesis
  return library.starts_with("libpython") || library.starts_with("python3");
}

/// Joins the frames of the interpreter between two functions that a reader knows into one line.
void add_frames(std::string& text, const std::vector<std::string>& frames) {
  for (auto frame = frames.begin(); frame != frames.end();) {
    const auto end = std::find_if_not(frame, frames.end(), is_interpreter);
    if (end - frame > 2) {
      text += "\n    [" + counted(static_cast<uint64_t>(end - frame), "frame") +
              " of the Python interpreter]";
      frame = end;
    } else {
      text += "\n    " + escape_text(*frame++);
    }
  }
}

void add_stack(std::string& text, const char* title, const std::vector<std::string>& frames,
               bool expected, bool all_taken) {
  if (frames.empty() && !expected) return;
  text += std::string("\n  ") + title + ':';
  if (frames.empty()) {
    text += " no stack recorded";
    if (!all_taken) text += " (CONVTRACE_STACKS=all takes all there are)";
  }
  add_frames(text, frames);
}

}  // namespace

std::string name_text(const Definitions& definitions, format::StringId id) {
  return escape_text(definitions.text(id));
}

std::string kernel_text(const Definitions& definitions, format::KernelId id) {
  return escape_text(kernel_title(definitions.text(definitions.kernel(id).name)));
}

std::string place_text(const Definitions& definitions, const format::Place& place) {
  std::string text(to_string(place.phase));
  text += ' ';
  if (!place.scope) return text + '-';
  const std::string scope = name_text(definitions, place.scope);
  text += scope.empty() ? "." : scope;
  if (place.call != 0) text += '#' + std::to_string(place.call);
  return text;
}

std::string event_line_header() {
  return "     seq        ms  step  record      place                                     details";
}

std::string event_line(const format::Event& event, const Definitions& definitions,
                       uint64_t start_ns) {
  const format::EventHeader& header = format::header_of(event);
  Describer describer(definitions);
  std::visit(describer, event);
  const std::string step = header.step == format::kNoStep ? "-" : std::to_string(header.step);
  char head[96];
  std::snprintf(head, sizeof head, "%8llu %9.3f %5s  %-10s  ",
                static_cast<unsigned long long>(header.seq),
                static_cast<double>(static_cast<int64_t>(header.t_ns - start_ns)) / 1e6,
                step.c_str(), std::string(format::event_name(event.index())).c_str());
  constexpr size_t kPlaceColumns = 40;
  std::string line = head + describer.place;
  if (describer.place.size() < kPlaceColumns)
    line.append(kPlaceColumns - describer.place.size(), ' ');
  return line + "  " + describer.details;
}

std::string finding_paragraph(const format::Finding& finding, const Stacks& stacks,
                              const Definitions& definitions) {
  const std::string step =
      finding.header.step == format::kNoStep ? "?" : std::to_string(finding.header.step);
  std::string text = std::string(to_string(finding.level)) + ": " +
                     std::string(to_string(finding.kind)) +
                     (finding.suppressed ? " (suppressed)" : "") + " in step " + step + ", " +
                     place_text(definitions, finding.place);
  // The place of a stale read is that of the reader; its op is the one that made the expected
  // value.
  const bool reads = finding.kind == format::FindingKind::kStaleRead;
  if (finding.op)
    text += std::string(reads ? ", of what op " : ", op ") + name_text(definitions, finding.op) +
            (reads ? " made" : "");
  if (finding.kernel) text += ", kernel " + kernel_text(definitions, finding.kernel);
  text += "\n  " + escape_text(finding.message);
  if (finding.other && !reads) {
    text += "\n  " + name_text(definitions, finding.slot) + " and " +
            name_text(definitions, finding.other) + " share " + counted(finding.bytes, "byte") +
            " at " + address_text(finding.address);
  }
  // A warning, or a finding about a collective's tensor, concerns memory that is still valid, so no
  // stack of a free is expected.
  const bool of_collective = finding.kind == format::FindingKind::kUsedBeforeWait ||
                             finding.kind == format::FindingKind::kReceiveOverlaps;
  const bool error = finding.level == format::Level::kError && !of_collective;
  const char* const used = reads ? "read" : (finding.kernel ? "launched" : "called");
  add_stack(text, "allocated", stacks.alloc, error, stacks.all_taken);
  add_stack(text, used, stacks.launch, error, stacks.all_taken);
  add_stack(text, "freed", stacks.free, error, stacks.all_taken);
  return text;
}

}  // namespace convtrace::tools
