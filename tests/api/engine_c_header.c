/* include/lantern/engine_c.h is C, and may stand beside plan.h. */
#include "lantern/engine_c.h"
#include "lantern/plan.h"

uint32_t lantern_engine_header_is_c(void);

uint32_t lantern_engine_header_is_c(void) {
  lantern_request request = {0};
  request.struct_size = sizeof(request);
  return request.struct_size == sizeof(lantern_request) ? LANTERN_ENGINE_ABI_VERSION : 0;
}
