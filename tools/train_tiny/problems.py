"""Word problems with worked steps, generated from templates, names, objects and numbers.

Held out of training: number combinations by hash (10 %), two templates, five names. A problem is (question, steps,
answer); steps are strings such as "3*5=15".
"""

import random
import zlib

NAMES = {
    "he": "Tom Ben Sam Max Leo Jack Paul Mark Adam Luke Eric Omar Ivan Hugo Carl Noah Finn Alan Dean Ravi".split(),
    "she": "Anna Lisa Emma Mary Kate Rosa Nina Lucy Ella Jane Sara Mia Zoe Ida Clara Alice Helen Maria Diana Yuki".split(),
}
LEADS = (
    "Then ", "Then ", "Later ", "After that ", "Today ", "Yesterday ", "On Sunday ", "On Monday ", "On Tuesday ", "On Friday ", "The next day ",
    "In the morning ", "In the evening ", "At school ", "At home ", "In the garden ", "At the market ", "In the city ", "At lunch ", "In spring ", "One day ",
)
# Place, its parts, one part, what is on or in a part, preposition.
PLACES = (
    ("garden", "rows", "row", "trees", "in"), ("hall", "rows", "row", "chairs", "in"), ("school", "rooms", "room", "desks", "in"), ("park", "rows", "row", "plants", "in"),
    ("library", "shelves", "shelf", "books", "on"), ("train", "cars", "car", "seats", "in"), ("hotel", "floors", "floor", "rooms", "on"), ("farm", "fields", "field", "cows", "in"),
    ("kitchen", "trays", "tray", "cakes", "on"), ("street", "houses", "house", "windows", "in"), ("room", "tables", "table", "lamps", "on"), ("house", "walls", "wall", "pictures", "on"),
    ("store", "boxes", "box", "lamps", "in"), ("museum", "tables", "table", "stones", "on"), ("town", "streets", "street", "houses", "in"), ("office", "desks", "desk", "pens", "on"),
    ("bakery", "plates", "plate", "cookies", "on"), ("market", "stands", "stand", "melons", "on"), ("cellar", "shelves", "shelf", "jars", "on"), ("class", "groups", "group", "children", "in"),
)
HELD_OUT_NAMES = {"he": ["Oscar", "Peter", "Felix"], "she": ["Laura", "Greta"]}

OBJECTS = (
    "apples oranges pears plums lemons peaches cookies cakes candies eggs books pens pencils stamps coins marbles balls "
    "cards stickers toys shells stones flowers roses seeds nuts buttons beads keys cups plates tickets bottles boxes "
    "photos letters maps nails bricks socks"
).split()
BAGS = "bags boxes packs baskets jars crates bowls sacks".split()
SINGULAR = {"bags": "bag", "boxes": "box", "packs": "pack", "baskets": "basket", "jars": "jar", "crates": "crate", "bowls": "bowl", "sacks": "sack"}
POSSESSIVE = {"he": "his", "she": "her"}

MAX_VALUE = 999


class Draw:
    """Random choices for one problem."""

    def __init__(self, rng: random.Random, held_out_names: bool):
        self.rng = rng
        names = HELD_OUT_NAMES if held_out_names else NAMES
        self.he = rng.choice(("he", "she"))
        self.name = rng.choice(names[self.he])
        self.other = rng.choice([n for n in NAMES[rng.choice(("he", "she"))] if n != self.name])
        self.obj = rng.choice(OBJECTS)
        self.bag = rng.choice([b for b in BAGS if b != self.obj])
        self.He, self.his = self.he.capitalize(), POSSESSIVE[self.he]
        self.him = "him" if self.he == "he" else "her"

    def number(self, low: int, high: int) -> int:
        """Small numbers more often than large ones."""
        high = max(low, high)
        if self.rng.random() < 0.6:
            high = min(high, max(low, 30))
        elif self.rng.random() < 0.5:
            high = min(high, max(low, 100))
        return self.rng.randint(low, high)

    def pick(self, *variants: str) -> str:
        return self.rng.choice(variants)

    def say(self, sentence: str) -> str:
        """Sometimes leads a sentence in: "Later he ..."."""
        lead = self.rng.choice(LEADS) if self.rng.random() < 0.45 else ""
        if lead and sentence.startswith(self.He + " "):
            sentence = self.he + sentence[len(self.He) :]
        return lead + sentence

    def factors(self, limit: int = MAX_VALUE) -> tuple[int, int]:
        m = self.rng.randint(2, 12)
        k = self.number(2, max(2, min(99, limit // m)))
        return m, k


def gains(d: Draw, total: int, steps: list[str]) -> tuple[str, int]:
    k = d.number(1, MAX_VALUE - total)
    steps.append(f"{total}+{k}={total + k}")
    verb = d.pick("buys", "finds", "gets", "picks", "collects", "wins", "receives", "makes", "takes", "brings")
    what = d.pick(f"{k} more {d.obj}", f"{k} {d.obj}", f"{k} more", f"another {k} {d.obj}", f"{k} new {d.obj}")
    return d.say(d.pick(
        f"{d.He} {verb} {what}.", f"{d.He} {verb} {what}.", f"{d.He} gets {what} from {d.other}.", f"{d.other} gives {d.name} {what}.", f"{d.other} gives {d.him} {what}.",
        f"{d.other} brings {d.him} {what}.", f"{what} are added.", f"{d.name} {verb} {what}.")), total + k


def gain_packs(d: Draw, total: int, steps: list[str], found: bool = False) -> tuple[str, int]:
    m, k = d.factors(MAX_VALUE - total)
    steps += [f"{m}*{k}={m * k}", f"{total}+{m * k}={total + m * k}"]
    if found:
        return f"In the park {d.he} finds {m} {d.bag}, and in each of them there are {k} {d.obj}.", total + m * k
    verb = d.pick("buys", "buys", "gets", "finds", "opens", "receives", "brings", "fills", "takes")
    one = SINGULAR[d.bag]
    packs = d.pick(
        f"{m} {d.bag} with {k} {d.obj} each", f"{m} {d.bag} of {k} {d.obj} each", f"{m} {d.bag} of {k} {d.obj}", f"{m} more {d.bag} of {k} {d.obj}", f"{m} {d.bag} with {k} {d.obj} in each",
        f"{m} {d.bag} with {k} {d.obj} in each {one}", f"{m} {d.bag}, each with {k} {d.obj}", f"{m} {d.bag}. Each {one} holds {k} {d.obj}", f"{m} {d.bag}. Each {one} has {k} {d.obj}",
        f"{m} {d.bag}. There are {k} {d.obj} in each {one}", f"{m} {d.bag}. In each {one} there are {k} {d.obj}", f"{m} {d.bag}, and each {one} has {k} {d.obj}",
        f"{m} {d.bag} that hold {k} {d.obj} each", f"{m} {d.bag}, and every {one} holds {k} {d.obj}", f"{m} {d.bag}. Every one of them holds {k} {d.obj}", f"{m} {d.bag}, all with {k} {d.obj} in them")
    return d.say(d.pick(f"{d.He} {verb} {packs}.", f"{d.He} {verb} {packs}.", f"{d.name} {verb} {packs}.", f"{d.other} gives {d.name} {packs}.", f"{d.other} brings {d.him} {packs}.")), total + m * k


def loses(d: Draw, total: int, steps: list[str]) -> tuple[str, int]:
    k = d.number(1, total)
    steps.append(f"{total}-{k}={total - k}")
    verb = d.pick("loses", "sells", "uses", "gives away", "breaks", "drops", "throws away", "sends away", "hides")
    what = d.pick(f"{k} {d.obj}", f"{k} of them", f"{k} of the {d.obj}", f"{k} of {d.his} {d.obj}")
    return d.say(d.pick(
        f"{d.He} {verb} {what}.", f"{d.He} {verb} {what}.", f"{d.He} gives {what} to {d.other}.", f"{d.He} gives {d.other} {what}.", f"{d.other} takes {what}.", f"{d.name} {verb} {what}.",
        f"{what} are {d.pick('lost', 'sold', 'used', 'broken', 'taken', 'gone', 'given away')}.")), total - k


def gives_each(d: Draw, total: int, steps: list[str]) -> tuple[str, int]:
    m = d.rng.randint(2, min(12, max(2, total // 2)))
    k = d.number(1, max(1, min(99, total // m)))
    if m * k > total:
        return loses(d, total, steps)
    steps += [f"{m}*{k}={m * k}", f"{total}-{m * k}={total - m * k}"]
    verb = d.pick("sells", "loses", "gives away", "uses")
    return d.say(d.pick(
        f"{d.He} gives {k} {d.obj} to each of {d.his} {m} friends.", f"{d.He} gives {m} friends {k} {d.obj} each.", f"{d.He} gives each of {m} children {k} {d.obj}.",
        f"{d.He} {verb} {m} {d.bag} with {k} {d.obj} each.", f"{d.He} {verb} {m} {d.bag} of {k} {d.obj}.", f"{d.He} {verb} {m} {d.bag}. Each {SINGULAR[d.bag]} has {k} {d.obj}.",
        f"{m} friends take {k} {d.obj} each.")), total - m * k


def inventory(d: Draw, forced: str = "") -> tuple[str, list[str], int]:
    total = d.number(5, 400)
    text = [d.pick(f"{d.name} has {total} {d.obj}.", f"{d.name} has {total} {d.obj}.", f"At first {d.name} has {total} {d.obj}.",
                   f"{d.name} owns {total} {d.obj}.", f"There are {total} {d.obj} in {d.name}'s house.")]
    steps: list[str] = []
    events = 1 if forced else d.rng.choice((1, 1, 2, 2, 3))
    for _ in range(events):
        room = MAX_VALUE - total
        choices = [gains, gain_packs] if total < 5 else [loses, gives_each] if room < 30 else [gains, gain_packs, gain_packs, loses, gives_each]
        if forced:
            sentence, total = gain_packs(d, total, steps, found=True)
        else:
            if len(steps) >= 3:
                break
            event = d.rng.choice([c for c in choices if len(steps) < 2 or c in (gains, loses)])
            sentence, total = event(d, total, steps)
        text.append(sentence)
    if not forced and len(steps) < 3 and d.rng.random() < 0.15:
        divisors = [k for k in range(2, 13) if total and total % k == 0]
        if divisors:
            k = d.rng.choice(divisors)
            steps.append(f"{total}/{k}={total // k}")
            text.append(d.pick(f"Then {d.he} shares all of them equally among {k} friends. How many {d.obj} does each friend get?",
                               f"{d.He} puts them all into {k} {d.bag}, the same number in each. How many {d.obj} are in each {SINGULAR[d.bag]}?"))
            return " ".join(text), steps, total // k
    text.append(d.pick(f"How many {d.obj} does {d.he} have now?", f"How many {d.obj} does {d.name} have now?",
                       f"How many {d.obj} does {d.he} have in the end?", f"How many {d.obj} are there now?"))
    return " ".join(text), steps, total


def price(d: Draw):
    m, k = d.factors(900)
    cost = m * k
    item = d.obj
    if d.rng.random() < 0.4:
        return (d.pick(f"{d.name} buys {m} {item} for {k} dollars each. How many dollars does {d.he} pay?",
                       f"One of the {item} costs {k} dollars. {d.name} buys {m} {item}. How much does {d.he} pay?"), [f"{m}*{k}={cost}"], cost)
    money = d.rng.randint(cost, min(MAX_VALUE, cost + 100))
    return (d.pick(f"{d.name} has {money} dollars. {d.He} buys {m} {item} for {k} dollars each. How many dollars are left?",
                   f"{d.name} buys {m} {item}. Each costs {k} dollars. {d.He} pays with {money} dollars. How much money does {d.he} get back?"),
            [f"{m}*{k}={cost}", f"{money}-{cost}={money - cost}"], money - cost)


def together(d: Draw):
    a, b = d.number(2, 300), d.number(2, 150)
    if d.rng.random() < 0.3:
        return (f"{d.name} has {a} {d.obj} and {d.other} has {b} {d.obj}. How many {d.obj} do they have together?", [f"{a}+{b}={a + b}"], a + b)
    if d.rng.random() < 0.3:
        low, high = min(a, b), max(a, b)
        return (f"{d.name} has {high} {d.obj}. {d.other} has {low} {d.obj}. How many more {d.obj} does {d.name} have?", [f"{high}-{low}={high - low}"], high - low)
    if d.rng.random() < 0.5:
        m = d.rng.randint(2, 9)
        a = d.number(2, 90)
        return (f"{d.name} has {a} {d.obj}. {d.other} has {m} times as many. How many {d.obj} do they have together?",
                [f"{m}*{a}={m * a}", f"{a}+{m * a}={a + m * a}"], a + m * a)
    return (f"{d.name} has {a} {d.obj}. {d.other} has {b} more than {d.name}. How many {d.obj} do they have together?",
            [f"{a}+{b}={a + b}", f"{a}+{a + b}={2 * a + b}"], 2 * a + b)


def rows(d: Draw, sold: bool = False):
    m, k = d.factors(900)
    total = m * k
    if sold:
        c = d.rng.randint(1, total)
        return (f"In a shop there are {m} shelves with {k} {d.obj} on each. On Monday {c} {d.obj} are sold. How many {d.obj} are left?",
                [f"{m}*{k}={total}", f"{total}-{c}={total - c}"], total - c)
    place, parts, part, thing, at = d.rng.choice(PLACES)
    if d.rng.random() < 0.3:
        thing = d.obj
    each = d.pick(f"{at} each {part}", f"{at} each {part}", f"{at} every {part}", "each")
    text = d.pick(
        f"A {place} has {m} {parts} with {k} {thing} {each}.", f"In a {place} there are {m} {parts} with {k} {thing} {each}.", f"In a {place} there are {m} {parts} of {k} {thing}.",
        f"There are {m} {parts} in a {place}. Each {part} has {k} {thing}.", f"A {place} has {m} {parts}. There are {k} {thing} {at} each {part}.",
        f"There are {m} {parts} with {k} {thing} {each} in the {place}.", f"{d.name} sees {m} {parts} with {k} {thing} {each}.", f"The {place} has {m} {parts}, and {at} each {part} there are {k} {thing}.")
    steps = [f"{m}*{k}={total}"]
    if d.rng.random() < 0.65:
        c = d.rng.randint(1, total) if d.rng.random() < 0.5 else d.number(1, MAX_VALUE - total)
        what = d.pick(f"{c} {thing}", f"{c} of them", f"{c} of the {thing}")
        if c <= total and d.rng.random() < 0.65:
            event = d.say(f"{what} are {d.pick('taken away', 'taken', 'sold', 'broken', 'lost', 'removed', 'used')}.")
            return (f"{text} {event} How many {thing} are {d.pick('left', 'left', 'there now', 'still there')}?", steps + [f"{total}-{c}={total - c}"], total - c)
        if total + c <= MAX_VALUE:
            event = d.say(f"{c} more {d.pick(thing + ' ', '')}are {d.pick('added', 'brought', 'found', 'put there')}.")
            return (f"{text} {event} How many {thing} are there {d.pick('now', 'in all', 'in the end')}?", steps + [f"{total}+{c}={total + c}"], total + c)
    return (f"{text} How many {thing} are there{d.pick('', ' in all', ' in the ' + place)}?", steps, total)


def pages(d: Draw):
    m, k = d.factors(900)
    total = m * k
    what = d.pick("pages", "stories", "miles", "letters", "lines")
    verb = {"pages": "reads", "stories": "tells", "miles": "walks", "letters": "writes", "lines": "writes"}[what]
    unit = d.pick("day", "week", "hour")
    text = f"{d.name} {verb} {k} {what} each {unit} for {m} {unit}s."
    if d.rng.random() < 0.5:
        extra = d.number(1, MAX_VALUE - total)
        return (f"{text} Then {d.he} {verb} {extra} more {what}. How many {what} is that in all?",
                [f"{m}*{k}={total}", f"{total}+{extra}={total + extra}"], total + extra)
    return (f"{text} How many {what} is that in all?", [f"{m}*{k}={total}"], total)


def share(d: Draw):
    k, q = d.factors(900)
    total = k * q
    text = d.pick(f"{d.name} has {total} {d.obj} and puts them into {k} {d.bag}, the same number in each. How many {d.obj} are in each {SINGULAR[d.bag]}?",
                  f"{d.name} shares {total} {d.obj} equally among {k} friends. How many {d.obj} does each friend get?")
    if d.rng.random() < 0.4:
        a = d.rng.randint(1, total - 1)
        b = total - a
        return (f"{d.name} has {a} {d.obj} and gets {b} more. {d.He} shares all of them equally among {k} friends. How many {d.obj} does each friend get?",
                [f"{a}+{b}={total}", f"{total}/{k}={q}"], q)
    return text, [f"{total}/{k}={q}"], q


def expression(d: Draw):
    """A bare calculation: practice for the steps."""
    op = d.rng.choice("++--**/")
    if op == "+":
        a = d.number(0, 998)
        b = d.number(0, MAX_VALUE - a)
        value = a + b
    elif op == "-":
        a = d.number(1, 999)
        b = d.rng.randint(0, a)
        value = a - b
    else:
        a, b = d.factors()
        if d.rng.random() < 0.5:
            a, b = b, a
        value = a * b
        if op == "/":
            a, b, value = a * b, b, a
    text = d.pick(f"What is {a}{op}{b}?", f"What is {a} {op} {b}?", f"Calculate {a}{op}{b}.", f"Compute {a} {op} {b}.")
    return text, [f"{a}{op}{b}={value}"], value


TRAIN_KINDS = [inventory] * 9 + [price] * 3 + [together] * 3 + [rows] * 5 + [pages] * 2 + [share] * 2


def combination_is_held_out(steps: list[str]) -> bool:
    return zlib.crc32(";".join(steps).encode()) % 10 == 0


def draw_problem(rng: random.Random, split: str, drill: bool = False):
    """split: 'train', 'numbers' (held-out numbers), 'names' (and held-out names), 'templates' (held-out templates)."""
    while True:
        d = Draw(rng, held_out_names=split == "names")
        if split == "templates":
            question, steps, answer = inventory(d, forced="found") if rng.random() < 0.5 else rows(d, sold=True)
        else:
            question, steps, answer = (expression if drill else rng.choice(TRAIN_KINDS))(d)
        if 0 <= answer <= MAX_VALUE and 1 <= len(steps) <= 3 and combination_is_held_out(steps) == (split != "train"):
            return question, steps, answer


def worked(steps: list[str], answer: int) -> str:
    return ". ".join(steps) + f". #### {answer}"
