#include "reader/file_identity.h"

#include <algorithm>

#include "format/file/record_codec.h"
#include "reader/record_scanner.h"

namespace convtrace::reader {

Status check_features(uint32_t required_features) {
  const uint32_t unknown = required_features & ~format::kKnownRequiredFeatures;
  if (unknown == 0) return kOkStatus;
  return Status::make(StatusCode::kUnsupportedFeature, "required_features",
                      std::countr_zero(unknown));
}

Result<FileIdentity> identify(const ByteSource& source) {
  format::Slot slot{};
  const size_t available = static_cast<size_t>(std::min<uint64_t>(source.size(), slot.size()));
  const std::span<std::byte> head = std::span(slot).first(available);
  CONVTRACE_TRY(source.read(0, head));
  if (available == 0) return Status::make(StatusCode::kEmpty, "FileHeader");
  if (available < slot.size()) {
    const StatusCode code =
        format::has_magic(head) ? StatusCode::kTruncated : StatusCode::kNotATrace;
    return Status::make(code, "FileHeader");
  }
  const Result<format::FileHeader> header = format::decode_file_header(slot);
  if (header.ok()) {
    CONVTRACE_TRY(check_features(header.value().required_features));
    return FileIdentity{header.value(), header.value().file_tag};
  }
  if (header.status().code == StatusCode::kUnsupportedVersion) return header.status();
  const std::optional<uint32_t> tag = majority_file_tag(source);
  if (!tag) return header.status();
  return FileIdentity{std::nullopt, *tag};
}

}  // namespace convtrace::reader
