#include "engine/token_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace lantern {
namespace {

Error failed(std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("what says which tokens are allowed has failed: {}", why)};
}

}  // namespace

// The hook is the caller's own code, and may throw.
Status ask_constraint(TokenConstraint& constraint, int32_t choice, std::span<const int32_t> output,
                      std::span<uint32_t> mask) {
  std::ranges::fill(mask, 0u);
  Status asked;
  try {
    asked = constraint.allow(choice, output, mask);
    if (!asked.ok()) asked = failed(asked.error().message());
  } catch (const std::exception& exception) {
    asked = failed(exception.what());
  } catch (...) {
    asked = failed("it threw something that is no exception");
  }
  if (!asked.ok()) std::ranges::fill(mask, 0u);
  return asked;
}

}  // namespace lantern
