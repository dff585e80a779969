// Reading what a person wrote: trial and sweep files, and the text they train on.
#pragma once

#include <string>

#include "engine/spec/sweep_spec.h"

namespace moetune::sweeps {

/// Whole file; throws base::UsageError naming it when it cannot be read or is larger than any spec.
std::string read_spec_file(const std::string& path);

/// A sweep file, its training text read once for the digest. Throws base::UsageError.
spec::SweepSpec load_sweep(const std::string& path);

/// A trial file, or the base of a sweep file.
spec::TrialSpec load_trial(const std::string& path);

/// 16 hexadecimal digits (FNV-1a 64) of a text.
std::string digest_of(const std::string& text);

}  // namespace moetune::sweeps
