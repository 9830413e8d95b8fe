#pragma once
/// @file judges.h
/// What is judged at each collective. Each returns the bits of the origins that it told.
///
/// Rule:     where the traces do not tell, a judge is silent. Values are compared where all members
///           of a group were read, agree on the call, and have what is compared.
/// Threads:  one.

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/origin/judge/told.h"

namespace convtrace::origin {

/// mismatch: members that called something else at the same number.
class Alike {
 public:
  Alike(const Job& job, Told& told) : job_(job), told_(told) {}
  /// @return whether the members agree, so that their values can be compared.
  [[nodiscard]] bool judge(const Meeting& meeting);
  /// Whether a group's calls no longer belong together, since one member left one out.
  [[nodiscard]] bool is_shifted(uint32_t group) const {
    return group < shifted_.size() && shifted_[group];
  }

 private:
  /// @return whether the calls of one member are shifted against the others'.
  bool tell(const Meeting& meeting, const std::vector<size_t>& others);

  const Job& job_;
  Told& told_;
  std::vector<bool> shifted_;  ///< by group
};

/// unequal: results that should be the same on all members.
[[nodiscard]] uint64_t judge_equal(const Job& job, const Meeting& meeting, Told& told);
/// wrong-content: what was moved arrived otherwise than it was sent.
[[nodiscard]] uint64_t judge_content(const Job& job, const Meeting& meeting, Told& told);
/// wrong-sum: a result that is not that of its inputs.
[[nodiscard]] uint64_t judge_sum(const Job& job, const Meeting& meeting, Told& told);

/// scale: one member's gradients have another norm than before, against all others'.
class Scale {
 public:
  Scale(const Job& job, Told& told);
  ~Scale();
  void see(const Meeting& meeting);
  /// Tells what the steps so far show. Call after the last.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// not-reduced, parted: gradients and parameters of replicas.
class Replicas {
 public:
  Replicas(const Job& job, Told& told);
  ~Replicas();
  /// @param step  ascending. @param seen  by queue; null: the rank has nothing in this step.
  void see(uint32_t step, std::span<const std::vector<ParameterSeen>* const> seen);
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::origin
