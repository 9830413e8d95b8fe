#pragma once
/// @file output_name.h
/// The path of this process's trace, and the handling of a path that is taken.
///
/// Threads:  plain functions; called once, by the writer thread.
/// Errors:   open_output returns a Status and a text for the user; a file of another process is
///           never written to.

#include <cstdint>
#include <string>
#include <string_view>

#include "format/base/status.h"

namespace convtrace::engine {

/// Rank and size of the job, as the launcher gives them.
struct Rank {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  bool counted = true;  ///< world_size is known; false: it is a lower bound
  bool given = false;   ///< from a launcher; false: the program may report another one
};

/// Reads the rank from RANK/WORLD_SIZE (torchrun), SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK:
/// the first that is a number.
/// @param get_env as getenv; called during the call only.
[[nodiscard]] Rank rank_from_environment(const char* (*get_env)(const char* name));

struct OutputFacts {
  std::string host;
  uint32_t pid = 0;
  uint32_t rank = 0;
  std::string start_folder;  ///< absolute
};

/// Replaces %h, %p, %r and %%, and puts relative names into the start folder.
[[nodiscard]] std::string expand_output(const std::string& pattern, const OutputFacts& facts);

/// @return `path`; if it is relative, in `folder`.
[[nodiscard]] std::string below(const std::string& folder, std::string_view path);

/// "run.ctrace" -> "run.r<rank>.<pid>.ctrace"
[[nodiscard]] std::string name_for_sibling(const std::string& path, const OutputFacts& facts);

/// A new, empty file that belongs to this process.
struct OutputFile {
  int fd = -1;  ///< owned by the caller; mode 0600, O_CLOEXEC, locked (shared) while open
  std::string path;
  std::string notice;  ///< one line for the user, or empty
};

/// Creates the file, and its folder if the folder's parent exists. If a running process has the
/// name (it holds the lock), a sibling name is used; an older file is refused unless `overwrite`.
/// @param[out] why  on failure, a text with cause and remedy.
/// @return kAlreadyExists, kIoError (detail errno).
[[nodiscard]] Result<OutputFile> open_output(const std::string& path, bool overwrite,
                                             const OutputFacts& facts, std::string& why);

/// Renames an open file of this process to `path`, or to a sibling name of it; never onto another
/// file, unless that is an older one and `overwrite`.
/// @return the name that the file has then: `from`, if it could not be renamed.
[[nodiscard]] std::string rename_output(const std::string& from, const std::string& path,
                                        bool overwrite, const OutputFacts& facts);

}  // namespace convtrace::engine
