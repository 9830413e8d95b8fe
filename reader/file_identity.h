#pragma once
/// @file file_identity.h
/// Whether a file is a trace that can be read, and by which tag its records are known.
///
/// Place:    trace_container.cpp and trace_check.cpp begin with it.
/// Source:   format/FORMAT.md section 2.

#include <optional>

#include "format/file/layout.h"
#include "reader/byte_source.h"

namespace convtrace::reader {

struct FileIdentity {
  std::optional<format::FileHeader> header;  ///< nothing: it is damaged
  uint32_t file_tag = 0;
};

/// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
/// kIoError, kTruncated (shorter than a file header).
[[nodiscard]] Result<FileIdentity> identify(const ByteSource& source);

/// @return kUnsupportedFeature (detail: bit) if this version lacks one.
[[nodiscard]] Status check_features(uint32_t required_features);

}  // namespace convtrace::reader
