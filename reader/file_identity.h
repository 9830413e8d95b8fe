#pragma once
/// @file file_identity.h
/// Decides whether a file is a readable trace, and reads the tag of its records.
///
/// Place:    the first step of trace_container.cpp and trace_check.cpp.
/// Source:   format/FORMAT.md section 2.

#include <optional>

#include "format/file/layout.h"
#include "reader/byte_source.h"

namespace convtrace::reader {

struct FileIdentity {
  std::optional<format::FileHeader> header;  ///< nullopt: it is damaged
  uint32_t file_tag = 0;
};

/// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
/// kIoError, kEmpty, kTruncated (shorter than a file header).
[[nodiscard]] Result<FileIdentity> identify(const ByteSource& source);

/// @return kUnsupportedFeature (detail: bit) if a feature is not known here.
[[nodiscard]] Status check_features(uint32_t required_features);

}  // namespace convtrace::reader
