#include <string>
#include <vector>

#include "cli/command.h"

int main(int argc, char** argv) { return lantern::cli::run(std::vector<std::string>(argv + 1, argv + argc)); }
