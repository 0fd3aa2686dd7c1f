#include "cli/kernel_cases.h"

#include <iterator>

namespace lantern::cli {

std::vector<KernelCase> kernel_cases(CaseSize size) {
  std::vector<KernelCase> all = product_kernel_cases(size);
  for (auto* part : {&attention_kernel_cases, &sampler_kernel_cases}) {
    std::vector<KernelCase> cases = part(size);
    all.insert(all.end(), std::make_move_iterator(cases.begin()), std::make_move_iterator(cases.end()));
  }
  return all;
}

}  // namespace lantern::cli
