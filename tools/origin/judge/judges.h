#pragma once
/// @file judges.h
/// The judges of each collective. Each returns the bits of the origins that it reported.
///
/// Rule:     without evidence in the traces a judge is silent. Values are compared if all members
/// of a group were read, agree on the call, and have the values.
/// Threads:  one.

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/origin/judge/told.h"

namespace convtrace::origin {

/// mismatch: members that called something else at the same number.
class Alike {
 public:
  Alike(const Job& job, Told& told);
  ~Alike();
  /// @return whether the members agree, so that their values can be compared.
  [[nodiscard]] bool judge(const Meeting& meeting);
  /// Orders two calls that wait at the end by the job's order in the step before.
  /// @return below 0 if a came first, above 0 if b did, 0 if it is unknown.
  [[nodiscard]] int usual_order(const Call& a, const Call& b) const;
  /// @return whether a group's calls no longer belong together, since one member omitted one.
  [[nodiscard]] bool is_shifted(uint32_t group) const {
    return group < shifted_.size() && shifted_[group];
  }

 private:
  struct OfGroup;

  /// @return whether the calls of one member are shifted against the others'.
  bool tell(const Meeting& meeting, const std::vector<size_t>& order);
  /// Calls that are alike but stand at other places of the program: two in another order, or one
  /// omitted among equal ones.
  [[nodiscard]] bool judge_places(const Meeting& meeting);
  bool tell_places(const Meeting& meeting, size_t other, bool short_of);
  [[nodiscard]] uint64_t stamp_of(const Call& call) const;
  /// The group's place in its step. @return the number of collectives before in this step.
  size_t place_in_step(const Meeting& meeting);
  /// @return the members whose calls are those that the group made there in the step before, or
  /// that other groups of its size make; empty if neither is known.
  [[nodiscard]] std::vector<size_t> usual_members(const Meeting& meeting, size_t place) const;

  const Job& job_;
  Told& told_;
  std::vector<bool> shifted_;  ///< by group
  std::vector<OfGroup> groups_;
  size_t place_ = 0;
  uint64_t stamp_ = 0;
};

/// unequal: results that should be the same on all members.
[[nodiscard]] uint64_t judge_equal(const Job& job, const Meeting& meeting, Told& told);
/// wrong-content: a tensor arrived with other content than it was sent with.
[[nodiscard]] uint64_t judge_content(const Job& job, const Meeting& meeting, Told& told);
/// wrong-sum: a result that is not that of its inputs.
[[nodiscard]] uint64_t judge_sum(const Job& job, const Meeting& meeting, Told& told);

/// not-reduced, parted: gradients and parameters of replicas.
class Replicas {
 public:
  Replicas(const Job& job, Told& told);
  ~Replicas();
  /// @param step  ascending. @param seen  by queue; null: the rank has nothing in this step.
  void see(uint32_t step, std::span<const std::vector<ParameterSeen>* const> seen);
  /// @return whether most of the ranks' initial parameters are equal on all of them.
  [[nodiscard]] bool are_replicas(std::span<const uint32_t> queue_numbers) const;
  /// @return whether that rank clips gradients, and in no step another one of `queues` does.
  [[nodiscard]] bool clips_alone(uint32_t queue, std::span<const uint32_t> queues) const;
  /// Reports the origins that only the steps together show. Call it after the last step.
  void finish();
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// scale: one member's gradients have another norm than before, against all others'.
class Scale {
 public:
  Scale(const Job& job, Told& told);
  ~Scale();
  void see(const Meeting& meeting);
  /// Reports the origins that the steps show. Call it after the last step.
  void finish(const Replicas& replicas);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::origin
