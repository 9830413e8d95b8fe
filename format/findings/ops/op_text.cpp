#include "format/findings/ops/op_finding.h"

#include "format/findings/common/wording.h"
#include "format/model/op_names.h"

namespace convtrace::judge {
namespace {

std::string or_else(std::string_view text, const char* otherwise) {
  return text.empty() ? std::string(otherwise) : std::string(text);
}

/// "(0x7f30c0a41040, 98304 bytes)"
std::string extent(const OpFinding& finding) {
  return "(" + hex(finding.address) + ", " + std::to_string(finding.bytes) + " bytes)";
}

/// "op demo::gelu in module h.0.mlp (call 0 of step 3, forward)"
std::string where(const OpFinding& finding, const format::Definitions& definitions) {
  std::string text = "op " + or_else(definitions.text(finding.op), "(unnamed)");
  if (finding.place.scope) {
    const std::string_view scope = definitions.text(finding.place.scope);
    text += scope.empty() ? " in the root module" : " in module " + std::string(scope);
  }
  text += " (call " + std::to_string(finding.place.call);
  if (finding.header.step != format::kNoStep)
    text += " of step " + std::to_string(finding.header.step);
  return text + ", " + std::string(to_string(finding.place.phase)) + ")";
}

std::string repeated(const OpFinding& finding) {
  if (finding.occurrence == 1) return "";
  return " It is occurrence " + std::to_string(finding.occurrence) +
         " of the same in this scope; of further ones only every power of two is told.";
}

/// @return the sentence about the use of the freed memory since its free.
std::string overwriter(const OpFinding& finding, const std::string& output) {
  if (finding.given_to == 0)
    return "The next allocation can be given the same bytes and overwrite " + output;
  return "The allocator has given it out again, to an allocation of " +
         std::to_string(finding.given_to) + " bytes: what is written there overwrites " + output;
}

/// The text for memory whose owner is not among the op's inputs.
std::string freed_under_output(const OpFinding& finding, const std::string& output,
                               const std::string& at) {
  // For memory that is allocated again the time of its free is not known.
  return output + " of " + at + " lies over memory that it does not own " + extent(finding) +
         ", which was freed before the op returned or has been since, while " + output +
         " is still alive. " + overwriter(finding, output) +
         ": its values are then silently wrong, without any crash. Return a tensor that owns its "
         "memory (clone it before what it lies over is freed), or give it a deleter that keeps "
         "that memory alive." +
         repeated(finding);
}

std::string freed_under_output(const OpFinding& finding, const std::string& output,
                               const std::string& input, const std::string& at) {
  return output + " of " + at + " lies over the memory of " + input + " " + extent(finding) +
         ", and that memory has been freed while " + output + " is still alive. " +
         overwriter(finding, output) + ": its values are then silently wrong, without any crash. " +
         "Return a tensor that owns its memory (clone it, or allocate it in the op), or make " +
         output + " keep " + input +
         " alive; if the op means to return a view, return a real view of " + input +
         " and declare the alias in the op's schema." + repeated(finding);
}

std::string output_aliases_input(const OpFinding& finding, const std::string& output,
                                 const std::string& input, const std::string& at) {
  return output + " aliases " + input + " " + extent(finding) + ", declared: none; in " + at +
         ". Writing to one changes the other, and " + output +
         " is only valid as long as the memory of " + input +
         " is. Return a tensor that owns its memory, or declare the alias in the op's schema." +
         repeated(finding);
}

std::string input_mutated(const OpFinding& finding, std::string_view op, const std::string& input,
                          const std::string& at) {
  const bool backward = finding.place.phase == format::Phase::kBackward;
  return input + " of " + at + " was changed by the op " + extent(finding) + ": its hash is " +
         hex(finding.hash_before) + " in front of the op and " + hex(finding.hash_after) +
         " behind it, and nothing declares that the op writes there. Whoever reads that tensor "
         "afterwards, autograd's saved tensors included, gets the changed values. " +
         (finding.shared ? "Somebody else does: when the op began, others held that memory "
                           "(another branch of the graph, or what another op keeps for its "
                           "backward). "
                         : "") +
         (finding.hint ? "If the op keeps an average or other statistics there, nothing is wrong."
          : backward   ? "A backward may not write what it is given: work on a copy."
          : op.starts_with("aten::")
              ? "The schema of this op of PyTorch says that it only reads: look for a kernel that "
                "a "
                "library has registered for it, and let that work on a copy."
              : "Work on a copy, or declare it: mark_dirty in an autograd.Function, "
                "mutates_args or (a!) in a schema.") +
         repeated(finding);
}

/// @return the name of the result or the written operand that lies in memory still needed by others.
std::string writer(const OpFinding& finding, const format::Definitions& definitions) {
  const std::string operand = format::operand_before(definitions.text(finding.slot));
  if (!operand.empty()) return "What " + where(finding, definitions) + " left of its " + operand;
  return tensor_text(finding.slot, finding.op, finding.place, definitions);
}

bool is_in_call(const format::Place& one, const format::Place& other) {
  return one.scope == other.scope && one.call == other.call && one.phase == other.phase;
}

std::string overwritten(const OpFinding& finding, const format::Definitions& definitions) {
  const auto named = [&definitions](const Owner& owner) {
    return tensor_text(owner.slot, owner.op, owner.place, definitions);
  };
  const std::string hashes = " (Hash " + hex(finding.hash_before) + " there, now " +
                             hex(finding.hash_after) + ", " + std::to_string(finding.bytes) +
                             " bytes at " + hex(finding.address) + ".)";
  std::string text = named(finding.reader) + ", in step " + std::to_string(finding.reader.step) +
                     ", is not what it was as " + named(finding.made) +
                     ": its memory was written in between, which PyTorch does not know. ";
  const bool hooked = definitions.text(finding.reader.slot).starts_with("grad_output_hooked");
  if (finding.last.slot) text += named(finding.last) + ", behind that, still found it as it was. ";
  if (definitions.text(finding.reader.slot).starts_with("state")) {
    text +=
        finding.first.place.phase == format::Phase::kLoss
            ? "It was written behind the call, and before the backward pass began. "
            : "What lies there was first seen as " + named(finding.first) +
                  ": each call has its own, and the backward of this one gets that of another. ";
    text += "Keep what a backward needs on its ctx, or in memory of its own. ";
  } else if (hooked) {
    text +=
        "Only hooks of that tensor ran in between: one of them writes in place a gradient that "
        "autograd holds for another branch of the graph, too (a sum gives one to each operand). "
        "Let it return another tensor: clamp, not clamp_. ";
  } else if (finding.writer_known && !finding.op && is_in_call(finding.place, finding.made.place)) {
    text +=
        "It has the new bytes where the module's call ends, and only hooks of that module ran in "
        "between: one of them writes the output that it is given. Let it work on a copy, or return "
        "another tensor. ";
  } else if (finding.writer_known) {
    text += writer(finding, definitions) +
            " is what lies there now: it was written into memory that is still needed. Write into "
            "memory of its own, or work on a copy. ";
  } else if (finding.in_part) {
    text += "Behind that, " + named(finding.first) +
            " was put into memory that covers a part of it: look at the sizes and offsets of these "
            "blocks. ";
  } else if (named(finding.first) != named(finding.reader)) {
    text += "The bytes that are there now were first seen as " + named(finding.first) +
            ": a buffer that is used again too early. ";
  } else {
    text +=
        "No op that is recorded gave these bytes: look for a hook, a kernel, code of NumPy, or a "
        "write through .data between the two, as into a buffer that is used again too early. ";
  }
  if (hooked) {
    text += "If it is meant for all branches, nothing is wrong.";
  } else if (definitions.text(finding.reader.slot).starts_with("lent:")) {
    text += "If no layer needs that data for its gradient, nothing is wrong.";
  } else if (finding.hint && definitions.text(finding.reader.slot).starts_with("state:")) {
    text += "If the program sets it on purpose behind the forward pass, nothing is wrong.";
  } else if (finding.loosely && finding.reader.op &&
             finding.reader.place.phase == format::Phase::kBackward) {
    text +=
        "If the backward does not read it (a scratch buffer, running statistics), nothing is "
        "wrong.";
  } else if (finding.loosely) {
    text += "If that write is meant, nothing is wrong.";
  }
  return text + hashes + repeated(finding);
}

std::string autotune_mutation(const OpFinding& finding, const std::string& kernel,
                              const std::string& input, const std::string& at) {
  return "Kernel " + kernel + " was launched " + std::to_string(finding.count) +
         " times in several configurations, to find the fastest, within " + at +
         ", and later calls launch it once; it writes " + input + " " + extent(finding) +
         " in place, so that the first result has its work done " + std::to_string(finding.count) +
         " times over. Let the tuner restore what the kernel writes (restore_value or "
         "reset_to_zero in Triton), or tune it before training begins." +
         repeated(finding);
}

std::string owner_before(const OpFinding& finding, const format::Definitions& definitions) {
  const Owner& owner = finding.before;
  if (owner.generation == 0) return "the memory's owner before";
  std::string text = tensor_text(owner.slot, owner.op, owner.place, definitions);
  if (owner.step != format::kNoStep) text += " in step " + std::to_string(owner.step);
  return text + ", whose memory it was before,";
}

std::string never_written(const OpFinding& finding, const std::string& output,
                          const std::string& at, const format::Definitions& definitions) {
  return output + " of " + at + " was not written in " + std::to_string(finding.count) + " of " +
         std::to_string(finding.of) + " elements" + (finding.all ? "" : " that were looked at") +
         ": they still hold what CONVTRACE_POISON filled the memory with when it was "
         "given out " +
         extent(finding) + ", and no input held it. Without poison they would be what " +
         owner_before(finding, definitions) +
         " left there. Let the op write all of its output, or make the output with zeros." +
         repeated(finding);
}

}  // namespace

std::string describe(const OpFinding& finding, const format::Definitions& definitions) {
  using Kind = format::FindingKind;
  const bool mutation =
      finding.kind == Kind::kInputMutated || finding.kind == Kind::kAutotuneMutation;
  const std::string slot =
      or_else(definitions.text(finding.slot), mutation ? "an input" : "an output");
  const std::string at = where(finding, definitions);
  if (finding.kind == Kind::kOverwritten) return overwritten(finding, definitions);
  if (finding.kind == Kind::kInputMutated)
    return input_mutated(finding, definitions.text(finding.op), slot, at);
  if (finding.kind == Kind::kNeverWritten) return never_written(finding, slot, at, definitions);
  if (finding.kind == Kind::kAutotuneMutation) {
    const format::StringId family = definitions.kernel(finding.kernel).family;
    return autotune_mutation(finding, or_else(definitions.text(family), "(unnamed)"), slot, at);
  }
  if (finding.kind == Kind::kFreedUnderOutput && !finding.other)
    return freed_under_output(finding, slot, at);
  const std::string other = or_else(definitions.text(finding.other), "an input");
  return finding.kind == Kind::kFreedUnderOutput ? freed_under_output(finding, slot, other, at)
                                                 : output_aliases_input(finding, slot, other, at);
}

format::Finding record_of(const OpFinding& finding) {
  format::Finding event;
  event.header = finding.header;
  event.header.seq = 0;
  event.place = finding.place;
  event.kind = finding.kind;
  const bool certain = finding.kind == format::FindingKind::kFreedUnderOutput || finding.shared ||
                       (finding.kind == format::FindingKind::kOverwritten && !finding.loosely);
  event.level = finding.hint ? format::Level::kInfo
                : certain    ? format::Level::kError
                             : format::Level::kWarning;
  event.op = finding.op;
  event.kernel = finding.kernel;
  event.slot = finding.slot;
  event.other = finding.other;
  event.address = finding.address;
  event.bytes = finding.bytes;
  event.value = finding.value;
  event.alloc_stack = finding.alloc_stack;
  event.launch_stack = finding.launch_stack;
  event.free_stack = finding.free_stack;
  return event;
}

}  // namespace convtrace::judge
