#pragma once
/// @file memory_sink.h
/// A Sink that writes to memory of the test, with faults on request.

#include <errno.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "format/base/bytes.h"
#include "format/file/sink.h"

namespace convtrace::test {

/// The bytes written; outlive the sink, which a TraceWriter owns.
using SharedBytes = std::shared_ptr<std::vector<std::byte>>;

class MemorySink final : public format::Sink {
 public:
  /// @param capacity  an append that would exceed it fails as on a full disk and writes nothing.
  explicit MemorySink(SharedBytes bytes, uint64_t capacity = UINT64_MAX)
      : bytes_(std::move(bytes)), capacity_(capacity) {}

  [[nodiscard]] Status append(Bytes a, Bytes b) noexcept override {
    if (bytes_->size() + a.size() + b.size() > capacity_)
      return Status::make(StatusCode::kNoSpace, "append", ENOSPC);
    bytes_->insert(bytes_->end(), a.begin(), a.end());
    bytes_->insert(bytes_->end(), b.begin(), b.end());
    return kOkStatus;
  }
  [[nodiscard]] uint64_t size() const noexcept override { return bytes_->size(); }

 private:
  SharedBytes bytes_;
  uint64_t capacity_;
};

}  // namespace convtrace::test
