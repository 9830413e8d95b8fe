#pragma once
/// @file map_file.h
/// The file of `--map`: names of ranks and modules in the other run, and the reduction of several
/// ranks' values to one.
///
///     [ranks]
///     0 = 4                                 # rank of the baseline = rank of the candidate
///     [modules]
///     "encoder.layers" = "model.blocks"     # path in the baseline = path in the candidate; so
///     "h.*.mlp" = "layers.*.ffn"            # are all modules below it; `*` is any one name
///     [fused]                               # a module of one run = its counterparts in the other;
///     qkv = ["q", "k", "v"]                 # replaces a built-in entry of the same name
///     [reduction]                           # for full-size values that differ between ranks, by
///     "loss" = "sum"                        # module, op, kernel or slot: mean, sum, pieces; the
///                                           # last pattern that matches is used
///     [parameters]                          # a parameter that one run keeps elsewhere = its name
///     "h.*.fc.norm_weight" = "h.*.norm.weight"   # in a module of the same run, which computes
///                                           # nothing there
///     [dimensions]                          # of activations, by pattern as above: the order of
///     "*" = [1, 0]                          # the baseline's first dimensions in the candidate
///
/// `convtrace weights` takes [modules], [parameters] and [fused] of the same file.
/// Errors:   one line, with file and line number.

#include <string>

#include "tools/trace/names/rules.h"

namespace convtrace::diff {

/// @param error  one line, escaped. @return false if the file cannot be used.
[[nodiscard]] bool read_map(const std::string& path, DiffRules& rules, std::string& error);

}  // namespace convtrace::diff
