"""Plain text from Debian packages whose licences allow it (see models/tiny/README.md).

Needs: apt-get install bible-kjv bible-kjv-text sqlite3-doc dict-jargon wordnet-base postgresql-doc-15
Each function returns a list of documents (str).
"""

import glob
import gzip
import html.parser
import re
import subprocess

BLOCK_TAGS = {"p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "br", "table", "ul", "ol", "pre"}
SKIP_TAGS = {"script", "style", "head", "svg", "nav"}


class HtmlText(html.parser.HTMLParser):
    """Collects visible text; block elements end a line."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts, self.skip = [], 0

    def handle_starttag(self, tag, attrs):
        if tag in SKIP_TAGS:
            self.skip += 1
        elif tag in BLOCK_TAGS:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        if tag in SKIP_TAGS and self.skip:
            self.skip -= 1
        elif tag in BLOCK_TAGS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skip:
            self.parts.append(data.replace("\n", " "))


def html_paragraphs(path: str) -> str:
    parser = HtmlText()
    with open(path, encoding="utf-8", errors="replace") as f:
        parser.feed(f.read())
    lines = [re.sub(r"\s+", " ", line).strip() for line in "".join(parser.parts).split("\n")]
    # Prose only: lines that look like sentences.
    keep = [l for l in lines if len(l) > 60 and l[-1:] in ".:?!" and sum(c.isalpha() or c == " " for c in l) > 0.85 * len(l)]
    return "\n".join(keep)


def html_documents(pattern: str) -> list[str]:
    docs = [html_paragraphs(p) for p in sorted(glob.glob(pattern, recursive=True))]
    return [d for d in docs if len(d) > 200]


def bible() -> list[str]:
    out = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], capture_output=True, text=True, check=True).stdout
    chapters: dict[str, list[str]] = {}
    for line in out.splitlines():
        m = re.match(r"(\S+?):\d+ (.*)", line)
        if m:
            chapters.setdefault(m.group(1), []).append(m.group(2))
    return ["\n".join(v) for v in chapters.values()]


def jargon() -> list[str]:
    with gzip.open("/usr/share/dictd/jargon.dict.dz", "rt", encoding="utf-8", errors="replace") as f:
        text = f.read()
    entries = re.split(r"\n\n(?=\S)", text)
    return [re.sub(r"\s*\n\s+", " ", e).replace("{", "").replace("}", "").strip() for e in entries if len(e) > 120]


def wordnet() -> list[str]:
    """Glosses as sentences, twenty to a document."""
    sentences = []
    kind = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
    for name in ("noun", "verb", "adj", "adv"):
        with open(f"/usr/share/wordnet/data.{name}", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("  "):
                    continue
                fields, gloss = line.split(" | ", 1)
                fields = fields.split()
                word = fields[4].replace("_", " ").split("(")[0]
                sentences.append(f"{word} ({kind[fields[2]]}): {gloss.strip()}")
    # A fixed stride mixes the alphabet so that a document is not about one topic's files only.
    mixed = [sentences[(i * 7919) % len(sentences)] for i in range(len(sentences))]
    return ["\n".join(mixed[i : i + 20]) for i in range(0, len(mixed), 20)]


SOURCES = {
    "bible-kjv-text": bible,
    "sqlite3-doc": lambda: html_documents("/usr/share/doc/sqlite3/**/*.html") or html_documents("/usr/share/sqlite3-doc/**/*.html"),
    "dict-jargon": jargon,
    "wordnet-base": wordnet,
    "postgresql-doc-15": lambda: html_documents("/usr/share/doc/postgresql-doc-15/html/**/*.html"),
}


def load_all() -> dict[str, list[str]]:
    result = {}
    for name, make in SOURCES.items():
        docs = make()
        if not docs:
            raise SystemExit(f"no text found for Debian package {name}: apt-get install {name}")
        result[name] = docs
    return result


if __name__ == "__main__":
    for name, docs in load_all().items():
        print(f"{name}: {len(docs)} documents, {sum(map(len, docs)) / 1e6:.2f} MB")
