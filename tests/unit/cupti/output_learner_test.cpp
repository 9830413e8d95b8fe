#include "cupti/kernels/output_learner.h"

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using Wish = OutputLearner::Wish;
constexpr uint32_t kFirst = OutputLearner::kFirstProbes;

/// Launches of a kernel that has one pointer; `changes(n)` says whether launch n writes it.
/// @return how often it was looked at.
template <typename Changes>
uint32_t run(OutputLearner& learner, uint32_t launches, Changes changes) {
  uint32_t probes = 0;
  for (uint32_t n = 0; n < launches; ++n) {
    if (learner.wish(0, learner.begin_launch()) != Wish::kProbe) continue;
    learner.add(0, changes(n));
    ++probes;
  }
  return probes;
}

TEST_CASE("outputs: the first launches are probed, and one of many later ones") {
  OutputLearner learner(1);
  CHECK(run(learner, kFirst, [](uint32_t) { return true; }) == kFirst);
  const uint32_t later = 10 * OutputLearner::kProbeAgain;
  CHECK(run(learner, later, [](uint32_t) { return true; }) == 10);
  CHECK(learner.evidence(0).probes == kFirst + 10);
}

TEST_CASE("outputs: what changes is taken between looks, what does not is left alone") {
  const bool changes = GENERATE(false, true);
  OutputLearner learner(1);
  run(learner, kFirst, [&](uint32_t) { return changes; });
  CHECK(learner.wish(0, false) == (changes ? Wish::kTake : Wish::kNothing));
  CHECK(learner.wish(0, true) == Wish::kProbe);
  CHECK(learner.evidence(0).is_output() == changes);
}

TEST_CASE("outputs: looks go on while their verdicts are not there") {
  OutputLearner learner(1);
  for (uint32_t n = 0; n < 3 * kFirst; ++n)
    CHECK(learner.wish(0, learner.begin_launch()) == Wish::kProbe);
  for (uint32_t n = 0; n < kFirst; ++n) learner.add(0, false);
  CHECK(learner.wish(0, learner.begin_launch()) == Wish::kNothing);
}

TEST_CASE("outputs: a word that is a pointer in later launches alone gets its looks then") {
  OutputLearner learner(2);
  run(learner, 1000, [](uint32_t) { return true; });
  CHECK(learner.wish(1, false) == Wish::kProbe);
  CHECK(learner.wish(0, false) == Wish::kTake);
}

TEST_CASE("outputs: one written in some launches is found by a later look, and stays one") {
  OutputLearner learner(1);
  run(learner, kFirst, [](uint32_t) { return false; });
  CHECK_FALSE(learner.evidence(0).is_output());
  learner.add(0, true);
  CHECK(learner.evidence(0).is_output());
  run(learner, 4 * OutputLearner::kProbeAgain, [](uint32_t) { return false; });
  CHECK(learner.evidence(0).is_output());
}

TEST_CASE("outputs: a change by somebody else is forgotten when it does not come again") {
  OutputLearner learner(1);
  learner.add(0, true);
  for (uint32_t n = 1; n < OutputLearner::kRarest; ++n) learner.add(0, false);
  CHECK(learner.evidence(0).is_output());
  const OutputLearner::Evidence known = learner.add(0, false);
  CHECK(known.probes == OutputLearner::kRarest + 1);
  CHECK(known.changes == 1);
  CHECK_FALSE(known.is_output());
  CHECK(learner.wish(0, false) == Wish::kNothing);
}

}  // namespace
}  // namespace convtrace::cupti
