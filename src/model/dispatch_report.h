// What a model's ops choose among their implementations on its device: what --explain-dispatch prints and
// --require-impl looks into. Made from the lists that launches choose by (device/dispatch.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/dispatch.h"
#include "model/model.h"

namespace lantern {

// What is chosen for an op on one weight or cache, for a run of row counts that are all treated alike.
struct DispatchChoice {
  std::string subject;                    // "q_a_proj, bf16 1536 x 7168"
  std::vector<int32_t> layers;            // ascending, the MTP layer's last; empty: of the model as a whole
  int64_t first_rows = 1, last_rows = 1;  // of a launch's pass
  std::vector<Considered> list;           // all of the op, in order

  std::string_view op() const;  // "linear"
  const Considered& chosen() const;
};

// Of the model's own device.
std::vector<DispatchChoice> report_dispatch(const Model& model);
// As if its weights and caches lay on a device of another kind or with other traits.
std::vector<DispatchChoice> report_dispatch(const Model& model, DeviceKind kind, const DeviceTraits& traits);

// Some lines for each op and subject.
std::string dispatch_text(const std::vector<DispatchChoice>& report);

// `patterns`: names of implementations with * and ?, separated by commas. Wherever an op has implementations that match
// one, it must have chosen such a one; what passes one over by choice (Refusal::by_choice) is no fault. Errors:
// unsupported, with op, subject, choice and the reason; not_found for a pattern that matches no implementation of the
// report.
Status require_implementations(const std::vector<DispatchChoice>& report, std::string_view patterns);

}  // namespace lantern
