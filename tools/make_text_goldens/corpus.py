"""The strings of the tokenizer goldens. src/text/golden_test.cc makes the same ones: string i depends on i alone.

Fragments (tests/text/fragments.json) are written here and read by both sides.
"""

NUM_STRINGS = 12000

RANGES = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF),
          (0xE00, 0xEFF), (0x1000, 0x10FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD), (0x10000, 0x1BFFF), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF),
          (0x20000, 0x323AF)]
RUNS = [0x20, 0x0A, 0x0D, 0x09, 0x61, 0x41, 0x3D, 0x2E, 0x30, 0x39, 0x4E00, 0x3042, 0xAC00, 0x1F600, 0x301, 0x200D, 0xA0,
        0x3000, 0x5F, 0x27, 0xE9, 0x430, 0xFFFD, 0x0, 0x85]
DIGIT_ZEROS = [0x30, 0x660, 0x966, 0xFF10, 0x1D7CE]
SPACES = [0x20, 0x20, 0x20, 0x0A, 0x0D, 0x09, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000, 0xFEFF]
MARKS = [0x300, 0x301, 0x308, 0x327, 0x5B0, 0x64B, 0x93C, 0x94D, 0xE38, 0x1AB0, 0x20D0, 0x20E3, 0x3099, 0xFE0F, 0x200C, 0x200D,
         0x1F3FB, 0xE0067, 0x16FF0]


class Random:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return (z ^ (z >> 31)) % n


def utf8(code_point):
    if 0xD800 <= code_point < 0xE000:
        code_point = 0xFFFD
    return chr(code_point).encode("utf-8")


def make_string(index, fragments):
    """Bytes; not always valid UTF-8."""
    if index < len(fragments):
        return fragments[index].encode("utf-8")
    rng = Random(index)
    out = b""
    for _ in range(1 + rng.below(6)):
        kind = rng.below(16)
        if kind <= 6:
            out += fragments[rng.below(len(fragments))].encode("utf-8")
        elif kind == 7:
            char = RUNS[rng.below(len(RUNS))]
            out += utf8(char) * (1 + rng.below(300 if rng.below(8) == 0 else 12))
        elif kind == 8:
            first, last = RANGES[rng.below(len(RANGES))]
            for _ in range(1 + rng.below(6)):
                out += utf8(first + rng.below(last - first + 1))
        elif kind == 9:
            for _ in range(1 + rng.below(4)):
                out += utf8(rng.below(0x110000))
        elif kind == 10:
            zero = DIGIT_ZEROS[0 if rng.below(2) == 0 else rng.below(len(DIGIT_ZEROS))]
            for _ in range(1 + rng.below(12)):
                out += utf8(zero + rng.below(10))
        elif kind == 11:
            for _ in range(1 + rng.below(5)):
                out += bytes([0x80 + rng.below(128)])
        elif kind == 12:
            for _ in range(1 + rng.below(6)):
                out += utf8(SPACES[rng.below(len(SPACES))])
        elif kind == 13:
            fragment = fragments[rng.below(len(fragments))].encode("utf-8")
            out += fragment[:rng.below(len(fragment) + 1)]
        elif kind == 14:
            for _ in range(1 + rng.below(10)):
                out += bytes([0x20 + rng.below(95)])
        else:
            for _ in range(1 + rng.below(4)):
                out += utf8(MARKS[rng.below(len(MARKS))])
    return out


SENTENCES = [
    "The quick brown fox jumps over the lazy dog.", " I'll say they've done what we'd expect; it's fine, isn't it?",
    "She SAID: \"DON'T PANIC\" -- and I'M not panicking!", "It'ſ an old ſpelling, 'Twas; WE'RE, YOU'LL, HE'D.",
    "Answer: 3*5=15. 12+15=27. #### 27", "Tom has 12 apples. He buys 3 bags with 5 apples each.",
    "naïve café, coöperate, façade, résumé, Ærøskøbing", "Der Fluß fließt über große Straßen; Äpfel, Öl und Übermut.",
    "¿Dónde está la biblioteca? ¡Mañana será otro día!", "L'été dernier, j'ai vu l'œuvre d'un garçon à Noël.",
    "Il treno è in ritardo perché c'è la neve.", "O coração não é só um músculo; é também emoção.",
    "Zażółć gęślą jaźń w Łodzi.", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Árvíztűrő tükörfúrógép",
    "Istanbul'da İyi bir gün, ılık ve güneşli.", "Việt Nam có nhiều món ăn ngon lắm.", "Þetta er íslensk setning.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "Київ — столиця України, її люблять.",
    "Добър ден, как сте днес?", "Καλημέρα κόσμε, τι κάνεις σήμερα;", "ὦ ἄνδρες Ἀθηναῖοι", "Բարեւ աշխարհ, ինչպե՞ս ես։",
    "გამარჯობა მსოფლიო", "שלום עולם, מה שלומך היום?", "בְּרֵאשִׁית בָּרָא", "مرحبا بالعالم، كيف حالك اليوم؟",
    "السَّلَامُ عَلَيْكُمْ ١٢٣٤٥", "سلام دنیا، امروز چطوری؟ ۱۲۳", "नमस्ते दुनिया, आप कैसे हैं? १२३४", "বাংলা ভাষা খুব সুন্দর।",
    "ਪੰਜਾਬੀ ਬੋਲੀ", "ગુજરાતી ભાષા", "வணக்கம் உலகம், எப்படி இருக்கிறீர்கள்?", "తెలుగు భాష చాలా తీయన", "ಕನ್ನಡ ನುಡಿ", "മലയാളം ഭാഷ",
    "สวัสดีชาวโลก วันนี้เป็นอย่างไรบ้าง", "ສະບາຍດີ ໂລກ", "မင်္ဂလာပါ ကမ္ဘာလောက", "សួស្តី ពិភពលោក", "བཀྲ་ཤིས་བདེ་ལེགས།",
    "ሰላም ልዑል ዓለም", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "ᐃᓄᒃᑎᑐᑦ", "你好，世界！今天天气怎么样？", "我们在北京大学学习人工智能和机器学习。", "臺灣的繁體中文字",
    "価格は１２，３４５円です。", "こんにちは世界。今日はとてもいい天気ですね！", "カタカナとひらがなと漢字が混ざった文章ー〜", "ﾊﾝｶｸ ｶﾀｶﾅ",
    "안녕하세요 세계, 오늘 날씨가 참 좋네요.", "ᄒᆞᆫ글", "〇々〆ヶ", "𠮷野家で𩸽を食べる", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ℵ₀ ≤ 2^ℵ₀ ⅷ ½ ¼ ² ³",
    "x² + y² = z²; ∀x∈ℝ: ∃y → ∑ᵢ αᵢ·βᵢ ≠ ∞", "€100, £20, ¥3000, ₹50, ₿0.001", "10:30 AM, 2024-02-29T23:59:59Z, +49-123-4567890",
    "3.14159265358979323846264338327950288", "1,234,567.89 0x1F 1e-9 007 42nd 1st v1.2.3-rc4",
    "def f(x):\n    return [y**2 for y in x if y % 2 == 0]\n\n\nclass A(B):\n\t\"\"\"Doc.\"\"\"\n\n\tpass\n",
    "#include <vector>\r\nint main() { std::vector<int> v{1,2,3}; return v[0]!=1 ? -1 : 0; }\r\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x <> 'it''s' GROUP BY 1;", "for (let i=0;i<10;i++){console.log(`${i}: \\n`);}",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": [1, 2.5, null, true]}}",
    "<html><body class=\"a b\">&nbsp;&lt;p&gt;</body></html>", "https://example.com/path?q=a+b&lang=de#frag",
    "user.name+tag@mail.example.org", "C:\\Users\\me\\file_name.txt", "/usr/local/lib/x86_64-linux-gnu/libfoo.so.1",
    "camelCaseAndPascalCase snake_case_name SCREAMING_SNAKE kebab-case-name HTTPServer2XML", "    indented\n        more\n\tTab\n",
    "\n\n\n", "\r\n\r\n", " \n \n", "  ", "   a", "a   ", " .", "...", "!!!???", "----====____****", "'s 't 're 've 'm 'll 'd 'S 'LL",
    "end of line \n", "\ttab", "a\u00a0b\u2003c\u3000d", "zero\u200bwidth\u200djoin\ufeffer\u00ad", "e\u0301 n\u0303 A\u030a\u0301 \u0301x",
    "👋🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 1️⃣ ❤️ ☺︎ 🫠", "😀😃😄 lol 😂😂😂", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a\u0000b\u0001\u001b[31mred\u001b[0m\u007f", "\ue000\uf8ff\U000f0000 private",
    "\u0378\u0379\U0001fbff unassigned \U0010ffff", "٠١٢ ०१२ ０１２ 𝟎𝟏𝟐 ௧௨௩ Ⅳ ⑤ 一二三", "µ ª º Ǆ ǅ ǆ ʰ ʕ Σ ς ß ẞ ı İ ﬁ ﬆ",
    "a\U00011de0\U00011de1b\U00016ec5 newer than Unicode 16", "‘quoted’ “text” «guillemets» ‹a› „b“ 、。「」【】", "–—―‖…·•", "☃☂★☆♠♥♦♣✓✗→←↑↓⇒", "$^+=<>|~` \u00a8\u00af\u00b4\u00b8", "a_b __init__ _x",
    "ÀÉÎÕÜ ÇÑØ àéîõü çñø", "MiXeD CaSe WoRdS ABCdef abcDEF AbC", "ΑΒΓαβγ ΔΕζη", "АБВабв ГДежз", "中a国b字C 日本go韓国", "Ａｂｃ１２３！",
    "안녕ABC あAいBb ㄱAʰB AʰbC كA אAa ǅa aǅ Aa\u0301B \u0301Ab", "it'ſx don'Temps we'LLx I'Mx 'ſT 'SAY o'DAY 'REx", "漢A々b〆C",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababababababababab", "the the the the the",
    "internationalization antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaftskapitän", "1234567890123456789012345678901234567890",
]

SPECIAL_STRINGS = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "｜DSML｜", "<｜DSML｜function_calls>", "<|User|>", "<|endoftext|>",
    "[gMASK]", "<sop>", "[gMASK]<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<tool_call>", "</tool_call>", "<arg_key>",
    "<|im_user|>", "<|im_middle|>", "<|im_end|>", "[BOS]", "[EOS]", "<|reserved_token_2300|>", "<think", "</think></think>", "<<think>>",
    "x<think> y </think>\n\n", "<mask>", " <mask> ", "a<mask>b", "  \n<mask>\t ", "[R]  [R] x", "[LR]", " \t[LR] \n[LR]", "word", "a word here",
    "words", "swords", "word.", "_word", "éword", "word\u0301", "<a>", "<a><b>", "<a><b", "<a><a><b>", "<b>", "x<a> x<a x<ab", "\u2460word", "\u24b6word", "word\u200d",
]

FRAGMENTS = SENTENCES + SPECIAL_STRINGS
