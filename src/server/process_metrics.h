// What the system knows of this process, under the names that Prometheus' client libraries give it: dashboards of
// processes ask for these, whatever the process does.
#pragma once

#include "server/metrics_text.h"

namespace lantern {

// From /proc. What is not to be read there is left out.
void write_process_metrics(MetricsText& text);

}  // namespace lantern
