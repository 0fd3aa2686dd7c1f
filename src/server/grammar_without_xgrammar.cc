#include "server/grammar_backend.h"

namespace lantern {
namespace {

class NoBackend final : public GrammarBackend {
 public:
  Result<std::shared_ptr<const Grammar>> compile(const OutputForm& /*form*/) override {
    return Error(ErrorCode::kUnsupported,
                 "this build has no structured output; build Lantern where xgrammar's source can be fetched");
  }
};

}  // namespace

bool have_grammars() { return false; }

std::unique_ptr<GrammarBackend> make_grammar_backend(GrammarVocabulary /*vocabulary*/,
                                                     const GrammarLimits& /*limits*/) {
  return std::make_unique<NoBackend>();
}

}  // namespace lantern
