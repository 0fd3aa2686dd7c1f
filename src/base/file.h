// Whole files as text. One reader for everything that is small enough to be read at once; checkpoints are mapped
// instead (model/safetensors.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace lantern {

// All of a file; of pipes and devices too, until they end. Errors name the file and the reason: not_found, io (a
// folder, no permission, a read that fails), unsupported when it has more than `most_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, size_t most_bytes);
// The same of a descriptor that is open already, which stays open; `name` stands for it in errors.
Result<std::string> read_descriptor(int descriptor, const std::string& name, size_t most_bytes);

}  // namespace lantern
