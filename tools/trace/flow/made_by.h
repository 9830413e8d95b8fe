#pragma once
/// @file made_by.h
/// Finds the call whose backward made a gradient. The gradient of a module's output is recorded at
/// the module, which only receives it: the backward of the output's consumer made it.
///
/// The result of an op's backward was made by that op, unless another op overwrote a tensor that it
/// had saved.
///
/// The evidence, best first: the backward of an op returned this very value; the backward of an op
/// wrote to the gradient that it was given, which other calls receive, too; a module or an op took
/// the output as an input (the same memory in the same state, else equal bytes); no recorded call
/// took it, so code between modules did, whose result the next call or the enclosing module has.
/// The last kind only makes the answer likely, and the report says so.
///
/// Place:    the root of the diff, the birth of a NaN in `convtrace check` and `show --nan`.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Verdict".

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/json.h"
#include "tools/trace/flow/passed.h"

namespace convtrace::diff {

enum class HowKnown : uint8_t {
  kReturned,   ///< a recorded backward of an op gave it
  kWrote,      ///< a recorded backward of an op wrote one of its terms
  kOverwrote,  ///< a recorded op overwrote a tensor saved for the backward
  kTaken,      ///< by the flow of values
  kOrder,      ///< by the order of execution: likely
  kBegin,      ///< nothing of the backward pass lies before it: likely the loss
};
[[nodiscard]] std::string_view to_string(HowKnown value);

/// A call whose backward made the gradient.
struct Maker {
  std::string scope;
  std::string op{};    ///< "": the module itself
  std::string slot{};  ///< the slot that its backward returned, "grad_input:0"; "": unknown
  uint32_t call = 0;
  bool in_no_module = false;
  bool own_code = false;  ///< code of the module that is in no other module

  bool operator==(const Maker&) const = default;
};

struct MadeBy {
  HowKnown how = HowKnown::kBegin;
  Maker receiver{};                   ///< the call that received it, in its `slot`
  std::vector<Maker> makers{};        ///< one of these; empty: the loss
  std::vector<std::string> around{};  ///< modules whose own code may have taken the value, too

  [[nodiscard]] bool is_likely() const { return how >= HowKnown::kOrder; }
  /// @return the maker; of several the module that contains all, without the receiver; nullopt:
  /// there is none.
  [[nodiscard]] std::optional<Maker> place() const;
};

/// A gradient is as it should be, or is not.
enum class Health : uint8_t { kNotKnown, kGood, kBad };
using HealthOf = std::function<Health(size_t)>;  ///< by index

/// @param step     the values of a step in execution order.
/// @param gradient index of an output's gradient, or of a result of an op's backward.
/// @return who made it; nullopt where the record itself says it, or where it is no such gradient.
[[nodiscard]] std::optional<MadeBy> made_by(std::span<const Passed> step, size_t gradient,
                                            const format::Definitions& names,
                                            const HealthOf& health);

/// @param result  index of a result of an op's backward.
/// @return the op that overwrote a tensor saved for that backward before it ran; nullopt: none.
[[nodiscard]] std::optional<MadeBy> overwritten_by(std::span<const Passed> step, size_t result,
                                                   const format::Definitions& names);

/// "module 2.fc2", "op bb::swish of module 2", "the code of module 2"
[[nodiscard]] std::string maker_text(const Maker& maker);
/// All makers: "the backward of module 2.fc2", "the backward of one of module q, module k".
[[nodiscard]] std::string makers_text(const MadeBy& made);
/// "made by the backward of ...", "likely made by the backward of ..."
[[nodiscard]] std::string made_text(const MadeBy& made);
/// The evidence for that, and other modules that may have had a part in it.
[[nodiscard]] std::string how_text(const MadeBy& made);
[[nodiscard]] tools::Json made_by_json(const MadeBy& made);

}  // namespace convtrace::diff
