#pragma once
/// @file output_name.h
/// Where the trace of this process goes, and what happens when that name is taken.
///
/// Threads:  plain functions; called once, by the writer thread.
/// Errors:   open_output gives a Status and a sentence for the user; no file of somebody else is
///           ever written to.

#include <cstdint>
#include <string>
#include <string_view>

#include "format/base/status.h"

namespace convtrace::engine {

/// What a process is called by its launcher.
struct Rank {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  bool counted = true;  ///< world_size is known; else it is the least there can be
  bool given = false;   ///< a launcher said it; else the program itself may
};

/// Reads RANK/WORLD_SIZE (torchrun), SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK, the first that
/// is a number.
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

/// A file that this process may write, empty and its own.
struct OutputFile {
  int fd = -1;  ///< owned by the caller; mode 0600, O_CLOEXEC, locked (shared) while open
  std::string path;
  std::string notice;  ///< one line for the user, or empty
};

/// Creates the file, and its folder if only that is missing. A name taken by a process that lives
/// (it holds the lock) gets a sibling name; an older file is refused unless `overwrite`.
/// @param[out] why on failure, a sentence: what, and what to do.
/// @return kAlreadyExists, kIoError (detail errno).
[[nodiscard]] Result<OutputFile> open_output(const std::string& path, bool overwrite,
                                             const OutputFacts& facts, std::string& why);

}  // namespace convtrace::engine
