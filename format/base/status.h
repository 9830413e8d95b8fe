#pragma once
/// @file status.h
/// The error value of convtrace's own functions. They throw no exceptions.
///
/// Place:    returned everywhere; converted to text only for people.
/// Threads:  plain values.
/// Errors:   creating or copying a Status never allocates, so it is safe inside a host process.

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace convtrace {

/// Every error code, with its text for people.
#define CONVTRACE_STATUS_CODES(X)                               \
  X(kOk, "ok")                                                  \
  X(kIoError, "input/output error")                             \
  X(kNoSpace, "no space left (disk, quota or file size limit)") \
  X(kAlreadyExists, "already exists")                           \
  X(kCorrupt, "damaged data")                                   \
  X(kTruncated, "cut short")                                    \
  X(kEmpty, "empty: nothing was written to it")                 \
  X(kNotATrace, "not a convtrace trace")                        \
  X(kUnsupportedVersion, "format version not supported")        \
  X(kUnsupportedFeature, "needs a feature this version lacks")  \
  X(kLimitExceeded, "larger than a limit of the format")        \
  X(kInvalidArgument, "invalid argument")                       \
  X(kNotFound, "not found")                                     \
  X(kUnavailable, "not available here")                         \
  X(kCudaError, "CUDA driver error")                            \
  X(kCuptiError, "CUPTI error")                                 \
  X(kOutOfMemory, "out of memory")                              \
  X(kInternal, "internal error")

enum class StatusCode : uint8_t {
#define CONVTRACE_X(name, text) name,
  CONVTRACE_STATUS_CODES(CONVTRACE_X)
#undef CONVTRACE_X
};

/// @return the text for `code`, in static storage.
constexpr const char* to_string(StatusCode code) {
  switch (code) {
#define CONVTRACE_X(name, text) \
  case StatusCode::name: return text;
    CONVTRACE_STATUS_CODES(CONVTRACE_X)
#undef CONVTRACE_X
  }
  return "unknown status";
}

/// Outcome of an operation.
///
/// `site` names the failed operation ("open", "FileHeader"); static storage. `detail` is a number
/// whose meaning follows from the code: errno for kIoError and kNoSpace, a file offset for kCorrupt
/// and kTruncated, CUresult or CUptiResult for kCudaError and kCuptiError, else whatever the site
/// documents.
struct [[nodiscard]] Status {
  StatusCode code = StatusCode::kOk;
  const char* site = "";
  int64_t detail = 0;

  [[nodiscard]] constexpr bool ok() const { return code == StatusCode::kOk; }
  static constexpr Status make(StatusCode code, const char* site, int64_t detail = 0) {
    return Status{code, site, detail};
  }
};

inline constexpr Status kOkStatus{};

/// A value, or the Status that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<T, Status>);

 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(status) {}     // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  /// @pre ok()
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Returns the Status of `expr` from the enclosing function unless it is ok.
#define CONVTRACE_TRY(expr)                                                    \
  do {                                                                         \
    if (::convtrace::Status convtrace_status = (expr); !convtrace_status.ok()) \
      return convtrace_status;                                                 \
  } while (false)

}  // namespace convtrace
