#pragma once
/// @file trial.h
/// The court of the engine: lets every judge see each collective, and brings together what they
/// found.
///
/// Threads:  one.

#include <set>
#include <vector>

#include "tools/origin/join/engine.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/judge/not_finite.h"
#include "tools/origin/model/result.h"

namespace convtrace::origin {

class Trial : public Court {
 public:
  /// @param first_step  the smallest of all traces.
  Trial(const Job& job, uint32_t first_step);

  void local(uint32_t queue, const LocalBad& bad) override;
  void send(const Member& sender, const Meeting& meeting, uint64_t& carried) override;
  void meet(const Meeting& meeting, uint64_t carried) override;
  void passed(uint32_t queue, uint32_t step) override;
  void waits(const Waiting& waiting) override;

  /// Judges the parameters of the steps that all ranks have read.
  /// @param queues  give up what was judged. @param last  nothing more comes.
  void judge_parameters(std::span<RankQueue* const> queues, bool last);

  /// Brings the origins into their order, without those that another explains.
  void conclude(OriginResult& result);

 private:
  void tell_late(const Waiting& waiting);
  void tell_circle(const Waiting& waiting);
  void tell_elsewhere(const Waiting& waiting);
  [[nodiscard]] bool went_on(const Meeting& meeting) const;
  bool set_aside(std::span<const uint32_t> queues);
  void color(uint32_t queue, uint32_t step, CellState state);
  void add_notes(OriginResult& result) const;

  const Job& job_;
  Told told_;
  NotFinite not_finite_;
  Alike alike_;
  Scale scale_;
  Replicas replicas_;
  std::vector<std::vector<CellState>> cells_;  ///< by queue and step - first_step_
  uint32_t first_step_ = 0;
  uint64_t cell_count_ = 0;
  std::vector<std::string> stuck_;  ///< ranks that wait, and for which ranks, without an origin
  std::set<uint32_t> ended_early_;  ///< ranks whose traces end before they did
};

}  // namespace convtrace::origin
