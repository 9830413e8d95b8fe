#pragma once
/// @file collective.h
/// The event of one rank's call of a collective operation, or of a transfer between two ranks.
///
/// Place:     a kind of events.h. `convtrace origin` joins the ranks of a job by group, op and
///            number.
/// Source:    format/FORMAT.md 6.5 "collective".

#include <cstdint>
#include <string_view>

#include "format/model/dtype.h"
#include "format/model/event_parts.h"

namespace convtrace::format {

/// The peer of a collective without a root, and of a transfer whose source is not known.
inline constexpr uint32_t kNoPeer = 0xFFFFFFFF;

/// Recorded when it is called, before it has run; a reception from any source when it is complete,
/// since its source is not known before. Its tensors are TensorStats events that carry its
/// `id`: slots "sent:I" follow it at once, "received:I" when it is complete.
struct Collective {
  EventHeader header;
  Place place;         ///< module and phase of the call
  StringId op;         ///< "all_reduce", "send", ...
  StringId group;      ///< equal on all members, no other group of the job has it
  StringId members;    ///< their ranks in the job by rank in the group, "0-3,8"; none: not known
  StringId reduction;  ///< "sum", "avg", ...; none: it does not reduce
  uint32_t group_rank = 0;
  uint32_t group_size = 0;
  uint32_t peer = kNoPeer;  ///< rank in the group of the root, the destination or the source
  DType dtype = DType::kUnknown;
  Device device;
  uint64_t stream = 0;    ///< driver handle; 0 the default stream, or none
  uint64_t sent = 0;      ///< elements of this rank's tensors
  uint64_t received = 0;  ///< elements of this rank's tensors
  /// How many calls came before in this group on this rank; for send and recv, between these two
  /// ranks in this direction with this tag.
  uint64_t number = 0;
  uint64_t id = 0;   ///< unique in the trace, not 0
  uint64_t tag = 0;  ///< 1 + the tag of a send or recv; 0: it has none, or it is not recorded
  static constexpr std::string_view kName = "collective";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "place", e.place);
    visit(kFixed<4>, "op", e.op);
    visit(kFixed<5>, "group", e.group);
    visit(kFixed<6>, "members", e.members);
    visit(kFixed<7>, "reduction", e.reduction);
    visit(kFixed<8>, "group_rank", e.group_rank);
    visit(kFixed<9>, "group_size", e.group_size);
    visit(kFixed<10>, "peer", e.peer);
    visit(kFixed<11>, "dtype", e.dtype);
    visit(kFixed<12>, "device", e.device);
    visit(kFixed<14>, "stream", e.stream);
    visit(kFixed<15>, "sent", e.sent);
    visit(kFixed<16>, "received", e.received);
    visit(kVarying<17>, "number", e.number);
    visit(kCounting<18>, "id", e.id);
    visit(kVarying<19>, "tag", e.tag);
  }
};

}  // namespace convtrace::format
