#include "interposer/core/nccl/communicators.h"

#include <cinttypes>
#include <cstdio>

#include "format/base/checksum.h"
#include "interposer/core/nccl/transfer.h"

namespace convtrace::engine {

void Communicators::add(const void* comm, const Communicator& communicator) {
  Entry entry;
  entry.communicator = communicator;
  const Lock lock(mutex_);
  entries_.insert_or_assign(comm, std::move(entry));
}

void Communicators::forget(const void* comm) {
  const Lock lock(mutex_);
  entries_.erase(comm);
}

std::optional<Communicator> Communicators::find(const void* comm) const {
  const Lock lock(mutex_);
  const auto found = entries_.find(comm);
  if (found == entries_.end()) return std::nullopt;
  return found->second.communicator;
}

void Communicators::set_rank(const void* comm, CommRank rank, format::StringId members) {
  const Lock lock(mutex_);
  const auto found = entries_.find(comm);
  if (found == entries_.end()) return;
  found->second.communicator.rank = rank;
  found->second.communicator.members = members;
}

uint64_t Communicators::count_part(const void* comm) {
  const Lock lock(mutex_);
  const auto found = entries_.find(comm);
  return found == entries_.end() ? 0 : found->second.parts++;
}

uint64_t Communicators::count_call(const void* comm, int kind, int peer) {
  const Lock lock(mutex_);
  const auto found = entries_.find(comm);
  if (found == entries_.end()) return 0;
  Entry& entry = found->second;
  return is_between_two(kind) ? entry.transfers[{kind, peer}]++ : entry.collectives++;
}

std::string name_of_id(const void* id, uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "nccl:%016" PRIx64,
           checksum64({static_cast<const std::byte*>(id), static_cast<size_t>(bytes)}));
  return text;
}

std::string name_of_part(const std::string& whole, uint64_t before, const std::string& what) {
  return whole + '/' + std::to_string(before) + '.' + what;
}

std::string members_text(CommRank rank, uint32_t job_rank, uint32_t job_size) {
  if (rank.size == 0 || rank.size != job_size || rank.rank != job_rank) return {};
  return rank.size == 1 ? "0" : "0-" + std::to_string(rank.size - 1);
}

}  // namespace convtrace::engine
