// The settings of the commands that talk to a server.
#include "cli/bench_serve.h"
#include "cli/settings.h"
#include "cli/value_forms.h"
#include "server/http_client.h"

namespace lantern::cli {
namespace {

constexpr Setting kClientSettings[] = {
    {.name = "url",
     .value_name = "URL",
     .help = "Address of the server, as http://127.0.0.1:8000",
     .from_environment = true,
     .form = form_of<parse_http_url>},

    // bench serve
    {.name = "backend",
     .value_name = "NAME",
     .help = "openai asks /v1/completions, openai-chat /v1/chat/completions, which --dataset-name chat takes by itself",
     .choices = "openai|openai-chat"},
    {.name = "dataset-name",
     .value_name = "NAME",
     .default_value = "random",
     .help = "What to ask: random tokens, the same behind prefixes that several requests share, or chat: the questions "
             "of models/tiny/eval; a file is given by --prompts",
     .choices = "random|prefix-repetition|chat"},
    {.name = "range-ratio",
     .type = SettingType::kReal,
     .value_name = "R",
     .default_value = "0",
     .help = "Lengths of random prompts and answers lie evenly from 1-R to 1+R times the given ones",
     .limits = {.lowest = 0, .highest = 0.999},
     .aliases = "--random-range-ratio"},
    {.name = "prefix-len",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "256",
     .help = "Tokens that the prompts of prefix-repetition share, before --input-len of their own",
     .limits = {.lowest = 1, .highest = 1 << 24},
     .aliases = "--prefix-repetition-prefix-len"},
    {.name = "num-prefixes",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "10",
     .help = "Different prefixes of prefix-repetition",
     .limits = {.lowest = 1, .highest = 1e6},
     .aliases = "--prefix-repetition-num-prefixes"},
    {.name = "request-rate",
     .value_name = "R",
     .default_value = "inf",
     .help = "Requests per second, on average; inf sends all at once, or as --max-concurrency lets them",
     .form = form_of<parse_request_rate>},
    {.name = "burstiness",
     .type = SettingType::kReal,
     .value_name = "B",
     .default_value = "1",
     .help = "Shape of the gamma distribution of the time between requests: 1 is a Poisson process, less is burstier",
     .limits = {.lowest = 0, .highest = 1e6, .above_lowest = true}},
    {.name = "max-concurrency",
     .type = SettingType::kInteger,
     .value_name = "N",
     .help = "Requests under way at a time; later ones wait here (default: any number)",
     .limits = {.lowest = 1, .highest = 65536}},
    {.name = "num-warmups",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "1",
     .help = "Further requests that are sent before, and must succeed",
     .limits = {.lowest = 0, .highest = 65536}},
    {.name = "goodput",
     .value_name = "NAME:MS",
     .help = "Also count the requests within such limits, as ttft:500,tpot:50,e2el:3000; repeatable",
     .repeatable = true,
     .form = [](std::string_view value) -> Status {
       Result<Goodput> limits = parse_goodput({std::string(value)});
       return limits.ok() ? Status() : std::move(limits).error();
     }},
    {.name = "save-detailed",
     .type = SettingType::kSwitch,
     .help = "The JSON has lists of what each request took and brought"},
    {.name = "html",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "Also write one page with the results and plots",
     .form = check_is_file},

    // top
    {.name = "interval",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "1",
     .help = "Between two looks",
     .limits = {.lowest = 0.05, .highest = 3600}},
    {.name = "once",
     .type = SettingType::kSwitch,
     .help = "Look twice, print one view and end; shares and percentiles are of all that the server counted"},
};

}  // namespace

std::span<const Setting> client_settings() { return kClientSettings; }

}  // namespace lantern::cli
