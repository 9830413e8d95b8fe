#include "format/findings/memory/memory_judge.h"

#include "format/findings/common/wording.h"

namespace convtrace::judge {
namespace {

using Taker = MemoryFinding::Taker;

/// The user of the pointer, in words.
std::string taker(const MemoryFinding& finding, const format::Definitions& definitions) {
  if (finding.taker == Taker::kCopyDestination) return "The destination of a copy";
  if (finding.taker == Taker::kCopySource) return "The source of a copy";
  const std::string_view family = definitions.text(definitions.kernel(finding.kernel).family);
  return "Parameter " + std::to_string(finding.param) + " of kernel " +
         (family.empty() ? "(unnamed)" : std::string(family));
}

/// "launched in module h.0.mlp (call 0 of step 3, forward) on stream 0x5581"
std::string where(const MemoryFinding& finding, const format::Definitions& definitions) {
  std::string text = finding.in_graph ? "run by a graph" : "launched";
  if (finding.taker != Taker::kKernel) text = "made";
  if (finding.place.scope) {
    const std::string_view scope = definitions.text(finding.place.scope);
    text += scope.empty() ? " in the root module" : " in module " + std::string(scope);
    text += " (call " + std::to_string(finding.place.call) + ", " +
            std::string(to_string(finding.place.phase)) + ")";
  }
  if (finding.header.step != format::kNoStep)
    text += " in step " + std::to_string(finding.header.step);
  return text + " on stream " + hex(finding.stream);
}

std::string memory(const MemoryFinding& finding) {
  return std::string(finding.block ? "a block" : "an allocation") + " of " +
         std::to_string(finding.bytes) + " bytes (generation " +
         std::to_string(finding.generation) + ")";
}

std::string pointer(const MemoryFinding& finding) {
  return hex(finding.address) + (finding.offset == 0
                                     ? ", the begin of "
                                     : ", " + std::to_string(finding.offset) + " bytes into ");
}

std::string freed(const MemoryFinding& finding) {
  if (finding.freed_in_step == format::kNoStep) return "freed before";
  return "freed in step " + std::to_string(finding.freed_in_step);
}

std::string use_after_free(const MemoryFinding& finding, const format::Definitions& definitions) {
  std::string text = taker(finding, definitions) + ", " + where(finding, definitions) +
                     ", points to " + pointer(finding) + memory(finding) + " that was " +
                     freed(finding) +
                     " and that nobody owns now. What the kernel reads there means nothing any "
                     "more, and what it writes damages whatever is given the memory next. ";
  if (finding.in_graph) {
    text +=
        "The graph still holds the address from when it was captured: keep that memory as long as "
        "the graph, or capture again after it has moved.";
  } else {
    text +=
        "Keep the tensor alive until the launch is made; an op that stores an address has to keep "
        "the tensor too.";
  }
  return text;
}

std::string cross_stream(const MemoryFinding& finding, const format::Definitions& definitions) {
  return taker(finding, definitions) + ", " + where(finding, definitions) + ", points to " +
         pointer(finding) + memory(finding) + " whose memory was last used on stream " +
         hex(finding.other_stream) + ", " + freed(finding) +
         " and given out again, and nothing (no event, no synchronisation) makes this stream wait "
         "for that use. The two may run at once: the older work then reads or overwrites the "
         "newer values. Call record_stream on a tensor that another stream uses, or wait for "
         "that stream before the tensor is freed.";
}

/// @return the sentence part about the memory's fate since its free.
std::string since(const MemoryFinding& finding) {
  const std::string was = std::to_string(finding.made.id.generation);
  if (finding.generation == 0) return " (generation " + was + "), and nobody owns it now";
  return ", given out again (generation " + was + ", now " + std::to_string(finding.generation) +
         ") and rewritten";
}

std::string stale_read(const MemoryFinding& finding, const format::Definitions& definitions) {
  const std::string read = tensor_text(finding.slot, {}, finding.place, definitions);
  const std::string made =
      tensor_text(finding.made.slot, finding.made.op, finding.made.place, definitions);
  return read + " in step " + std::to_string(finding.header.step) + " is not what " + made +
         " made in step " + std::to_string(finding.made.step) + ": the memory (" +
         hex(finding.address) + ", " + std::to_string(finding.bytes) +
         " bytes) was freed in between" + since(finding) + " (hash " + hex(finding.made.hash) +
         ", now " + hex(finding.hash) +
         "). All that is computed from it is wrong. Whoever made it has to return a tensor that "
         "owns its memory, or keeps the owner alive.";
}

}  // namespace

std::string slot_text(const MemoryFinding& finding) {
  if (finding.taker == Taker::kCopyDestination) return "destination";
  if (finding.taker == Taker::kCopySource) return "source";
  if (finding.taker == Taker::kTensor) return "";
  return "arg:" + std::to_string(finding.param);
}

std::string describe(const MemoryFinding& finding, const format::Definitions& definitions) {
  std::string text;
  if (finding.kind == format::FindingKind::kCrossStreamReuse) {
    text = cross_stream(finding, definitions);
  } else if (finding.kind == format::FindingKind::kStaleRead) {
    text = stale_read(finding, definitions);
  } else {
    text = use_after_free(finding, definitions);
  }
  return text + repeated_text(finding.occurrence);
}

format::Finding record_of(const MemoryFinding& finding) {
  format::Finding event;
  event.header = finding.header;
  event.header.seq = 0;
  event.place = finding.place;
  event.kind = finding.kind;
  event.level = format::Level::kError;
  event.kernel = finding.kernel;
  event.address = finding.address;
  event.bytes = finding.bytes - finding.offset;
  event.alloc_stack = finding.alloc_stack;
  event.free_stack = finding.free_stack;
  event.launch_stack = finding.launch_stack;
  event.value.offset = finding.offset;
  event.value.generation = finding.generation;
  if (finding.kind == format::FindingKind::kStaleRead) {
    event.op = finding.made.op;
    event.slot = finding.slot;
    event.other = finding.made.slot;
    event.value = finding.made.id;
  }
  return event;
}

}  // namespace convtrace::judge
