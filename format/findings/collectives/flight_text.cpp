#include <string>

#include "format/findings/collectives/flight_finding.h"
#include "format/findings/common/wording.h"

namespace convtrace::judge {
namespace {

/// " at train (train.py:30)", or nothing.
std::string at_line(format::StackId stack, const format::Definitions& definitions) {
  const std::span<const format::StringId> frames = definitions.stack(stack);
  if (frames.empty()) return "";
  return " at " + std::string(definitions.text(frames.front()));
}

/// "received:0 of all_reduce, called at train (train.py:30) in step 3"
std::string called(const format::Op& call, const format::Definitions& definitions) {
  std::string text = std::string(definitions.text(call.slot)) + " of " +
                     std::string(definitions.text(call.op)) + ", called" +
                     at_line(call.stack, definitions);
  if (call.header.step != format::kNoStep) text += " in step " + std::to_string(call.header.step);
  return text;
}

std::string used(const FlightFinding& finding, const format::Definitions& definitions) {
  return called(finding.call, definitions) + ", was used as " +
         tensor_text(finding.slot, finding.user, finding.place, definitions) +
         " before the program had waited for that call. The collective may still be writing it, so "
         "that what is computed from it is old, new or half of each, from run to run. Call wait() "
         "on what the collective returned before the tensor is used.";
}

std::string copied(const FlightFinding& finding, const format::Definitions& definitions) {
  const bool one = finding.copied == 1;
  return called(finding.call, definitions) +
         ", may have been read before the program had waited for it: " +
         std::to_string(finding.copied) + (one ? " gradient" : " gradients") +
         " that the optimizer takes, " + (one ? "" : "from ") +
         tensor_text(finding.slot, {}, finding.place, definitions) + (one ? ", is" : " on, are") +
         " what this rank had sent there, divided by " + std::to_string(finding.ranks) +
         ", and not what it received, by the sums of all elements, of magnitudes and of squares "
         "and the largest magnitude. Unless the ranks are to train alone and average their "
         "weights, call wait() on what the collective returned before its tensor is read.";
}

std::string written(const FlightFinding& finding, const format::Definitions& definitions) {
  const std::string line = at_line(finding.until, definitions);
  std::string text = called(finding.call, definitions) + ", was written by the program ";
  text += line.empty() ? "although it never waited for that call"
                       : "before it waited for that call" + line;
  if (finding.slot)
    text += "; the first to see the change is " +
            tensor_text(finding.slot, {}, finding.place, definitions);
  return text +
         (finding.call.written
              ? ". What stands there then is the result, what the program wrote or half of each, "
              : ". What the other ranks get is then old, new or half of each, ") +
         "from run to run. Call wait() on what the collective returned before the tensor is "
         "written, or let it work on a copy.";
}

std::string received_over(const FlightFinding& finding, const format::Definitions& definitions) {
  return std::string(definitions.text(finding.call.slot)) + " of " +
         std::string(definitions.text(finding.call.op)) + " has overwritten " +
         std::to_string(finding.bytes) + " of the " + std::to_string(finding.whole) + " bytes of " +
         tensor_text(finding.slot, {}, finding.place, definitions) +
         " since the backward pass, and the optimizer takes it. " +
         (finding.reduced
              ? "Ranks had reduced that gradient before, and may no longer have the same one."
              : "The rest of that gradient was not received, so it is no exchange of gradients.") +
         " Receive into memory of its own.";
}

std::string overlapping(const FlightFinding& finding, const format::Definitions& definitions) {
  if (finding.whole != 0) return received_over(finding, definitions);
  if (finding.one_call)
    return std::string(definitions.text(finding.call.slot)) + " of " +
           std::string(definitions.text(finding.call.op)) + " has " +
           std::to_string(finding.bytes) + " bytes in common with " +
           std::string(definitions.text(finding.other.slot)) +
           " of the same call: what one rank sent lies over what another one sent. " +
           (finding.level == format::Level::kError
                ? "Compare the offsets of the parts with their sizes."
                : "Give each part a tensor of its own: [tensor] * ranks is one tensor.");
  return called(finding.call, definitions) + ", has " + std::to_string(finding.bytes) +
         " bytes in common with " + called(finding.other, definitions) +
         ", which the program had not waited for" +
         (finding.other.written ? ": both write there, and which one comes last is left to chance. "
                                : ": it may overwrite what is still being sent. ") +
         "Give each call a buffer of its own, or wait for the first before the second is made.";
}

}  // namespace

std::string describe(const FlightFinding& finding, const format::Definitions& definitions) {
  std::string text;
  if (finding.kind == format::FindingKind::kReceiveOverlaps) {
    text = overlapping(finding, definitions);
  } else {
    text = finding.copied != 0 ? copied(finding, definitions)
           : finding.written   ? written(finding, definitions)
                               : used(finding, definitions);
  }
  return text + repeated_text(finding.occurrence);
}

format::Finding record_of(const FlightFinding& finding) {
  format::Finding event;
  event.header = finding.header;
  event.header.seq = 0;
  event.place = finding.place;
  event.kind = finding.kind;
  event.level = finding.level;
  event.op = finding.call.op;
  event.slot = finding.slot ? finding.slot : finding.call.slot;
  if (finding.slot) event.other = finding.call.slot;
  event.address = finding.address;
  event.bytes = finding.bytes;
  event.value = finding.call.value;
  event.launch_stack = finding.call.stack;
  return event;
}

}  // namespace convtrace::judge
