// Which host kernel multiplies: the ordered list of linear.cc, as a product sees it.
#pragma once

#include <vector>

#include "device/dispatch.h"
#include "ops/linear.h"

namespace lantern {

// All entries in order; the first that does not refuse is the one that linear() takes on the host.
std::vector<Considered> consider_linear_host(const QuantizedMatrix& weight, LinearInput input);

}  // namespace lantern
