#pragma once
/// @file rare_tables.h
/// Events too rare for columns: a FlatBuffers table each.
///
/// Place:    event_encoder.cpp.
/// Source:   format/FORMAT.md section 6.6.

#include <memory>
#include <vector>

#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct ChunkT;
struct CostT;
struct DiagnosticT;
struct FactT;
struct FindingT;
struct LossT;
}  // namespace wire

class RareTables {
 public:
  RareTables();
  ~RareTables();

  // Texts beyond kMaxStringBytes are cut.
  void put(const Finding& event);
  void put(const Diagnostic& event);
  void put(const Loss& event);
  void put(const Cost& event);
  void put(const Fact& event);

  /// @return about how many bytes the tables will take.
  [[nodiscard]] size_t packed_bytes() const { return bytes_; }
  void move_to(wire::ChunkT& chunk);
  void clear();

 private:
  std::vector<std::unique_ptr<wire::FindingT>> finding_;
  std::vector<std::unique_ptr<wire::DiagnosticT>> diagnostic_;
  std::vector<std::unique_ptr<wire::LossT>> loss_;
  std::vector<std::unique_ptr<wire::CostT>> cost_;
  std::vector<std::unique_ptr<wire::FactT>> fact_;
  size_t bytes_ = 0;
};

}  // namespace convtrace::format
