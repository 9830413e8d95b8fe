#pragma once
/// @file job_run.h
/// A made-up job and all that its traces say of it.

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format/model/events.h"
#include "tests/simulate/job.h"
#include "tests/support/temp_dir.h"

namespace convtrace::test {

struct RecordedValue {
  uint64_t t_ns = 0;
  uint32_t step = 0, call = 0;
  format::Phase phase = format::Phase::kForward;
  std::string scope, slot, op;
  uint64_t collective = 0, storage = 0;
  format::DType dtype = format::DType::kUnknown;
  format::Stats stats;
  std::vector<float> whole;  ///< of small tensors
};

struct RecordedCall {
  format::Collective event;
  std::string scope, op, group, members, reduction;
  std::vector<RecordedValue> sent, received;
};

struct RecordedRank {
  bool is_closed = false;
  std::vector<RecordedValue> values;  ///< those of collectives, too
  std::vector<RecordedCall> calls;
  uint64_t last_step = 0;
};

struct RecordedJob {
  simulate::JobResult result;
  std::vector<RecordedRank> ranks;
  std::vector<std::string> files;  ///< their bytes, by rank
};

/// @param options  their output is not looked at.
RecordedJob job_of(simulate::Options options);

/// Calls that meet: of each rank in the group its call, by group and number; transfers by group,
/// number, source and destination.
using Meeting = std::map<uint32_t, const RecordedCall*>;
using MeetingKey = std::tuple<std::string, uint64_t, uint32_t, uint32_t>;
std::map<MeetingKey, Meeting> meetings_of(const RecordedJob& job);

/// @return the element of `bucket` as a number.
double bucket_of(const format::Stats& stats, size_t bucket);

}  // namespace convtrace::test
