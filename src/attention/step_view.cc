#include "attention/step_view.h"

#include <algorithm>

#include "base/check.h"

namespace lantern {
namespace {

// A part of fixed memory is fixed memory.
DevPtr<const int32_t> part(const DevPtr<const int32_t>& all, int32_t begin, int32_t count) {
  if (!all) return {};
  return borrow_fixed(all.get() + begin, int64_t{count});
}

}  // namespace

StepView StepView::slice(int32_t begin, int32_t end) const {
  CHECK(0 <= begin && begin <= end && end <= tokens, "tokens [{}, {}) of a step of {}", begin, end, tokens);
  StepView view = *this;
  view.tokens = end - begin;
  view.real_tokens = real_tokens.from(begin);
  view.decode_tokens = std::clamp(decode_tokens - begin, 0, view.tokens);
  view.token_request = part(token_request, begin, view.tokens);
  view.token_context_len = part(token_context_len, begin, view.tokens);
  view.slot_mapping = part(slot_mapping, begin, view.tokens);
  return view;
}

}  // namespace lantern
