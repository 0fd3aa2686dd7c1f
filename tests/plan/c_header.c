/* include/lantern/plan.h is C. */
#include "lantern/plan.h"

uint32_t lantern_plan_header_is_c(void);

uint32_t lantern_plan_header_is_c(void) {
  lantern_plan_config config = {0};
  config.struct_size = sizeof(config);
  return config.struct_size == sizeof(lantern_plan_config) ? LANTERN_PLAN_ABI_VERSION : 0;
}
