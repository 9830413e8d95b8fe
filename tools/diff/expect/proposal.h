#pragma once
/// @file proposal.h
/// Proposes the contract that holds for two runs, as a start for a file written by hand.

#include <map>
#include <string>
#include <utility>

#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Collects how far each module's values agree.
class ProposalRows final : public RowSink {
 public:
  void row(const RecordReport& record, bool in_base, bool in_cand) override;

  /// @return the text of a file that read_contract() reads and that both runs keep.
  [[nodiscard]] std::string text(const DiffResult& result) const;

 private:
  /// What holds of the values of a module, or of a module and all below it.
  enum class Agreement : uint8_t { kNothing, kBits, kRounding, kNone };
  /// By phase, then by the module's path.
  using Modules = std::map<std::pair<format::Phase, std::string>, Agreement>;

  std::map<uint32_t, Agreement> steps_;
  Modules all_;
  Modules first_;  ///< in the first step in which values differ, and before it
  bool has_diverged_ = false;
  uint32_t diverged_in_ = 0;

  [[nodiscard]] static Agreement below(const Modules& modules, format::Phase phase,
                                       const std::string& path);
  void propose(const Modules& modules, format::Phase phase, const std::string& path,
               const std::string& steps, std::string& text) const;
};

}  // namespace convtrace::diff
