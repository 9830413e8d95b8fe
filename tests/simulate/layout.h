#pragma once
/// @file layout.h
/// How the ranks of a made-up job are divided: tensor-parallel neighbours, data-parallel replicas
/// of these, stages of a pipeline.

#include <cstdint>
#include <string>
#include <vector>

namespace convtrace::simulate {

enum class GroupKind : uint8_t { kWorld, kTensor, kData, kPipeline };
inline constexpr size_t kGroupKinds = 4;
inline constexpr uint32_t kNoGroup = 0xFFFFFFFF;

struct Layout {
  uint32_t ranks = 1, data = 1, tensor = 1, stages = 1;

  /// @param data, tensor, stages  sizes, or 0: to be chosen. @return ranks 0 where they do not fit.
  static Layout choose(uint32_t ranks, uint32_t data, uint32_t tensor, uint32_t stages);

  [[nodiscard]] uint32_t tensor_of(uint32_t rank) const { return rank % tensor; }
  [[nodiscard]] uint32_t data_of(uint32_t rank) const { return rank / tensor % data; }
  [[nodiscard]] uint32_t stage_of(uint32_t rank) const { return rank / (tensor * data); }
};

struct Group {
  std::string name;               ///< "c10d:dp3"
  std::vector<uint32_t> members;  ///< ranks in the job by rank in the group
};

/// @return ranks as events have them: "0,4,8-10".
[[nodiscard]] std::string members_text(const std::vector<uint32_t>& ranks);

/// All groups of a job that have two members or more.
class Groups {
 public:
  explicit Groups(const Layout& layout);

  [[nodiscard]] const std::vector<Group>& all() const { return groups_; }
  /// @return the index of the group, or kNoGroup.
  [[nodiscard]] uint32_t of(GroupKind kind, uint32_t rank) const {
    return at_[rank * kGroupKinds + static_cast<size_t>(kind)].group;
  }
  /// @return the rank in that group.
  [[nodiscard]] uint32_t rank_in(GroupKind kind, uint32_t rank) const {
    return at_[rank * kGroupKinds + static_cast<size_t>(kind)].rank;
  }

 private:
  struct Membership {
    uint32_t group = kNoGroup, rank = 0;
  };
  void add(GroupKind kind, std::string name, std::vector<uint32_t> members);

  std::vector<Group> groups_;
  std::vector<Membership> at_;
};

}  // namespace convtrace::simulate
