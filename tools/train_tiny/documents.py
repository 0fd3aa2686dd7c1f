"""Training documents as segments (text, weight); evaluation items come from the same makers.

A segment is tokenised on its own, as prompt and completion are at run time. Weight is in tenths of a full loss weight:
text that cannot be predicted (random numbers in a question, random keys) gets little or none.
"""

import random

import chat_format as chat
import problems

QUESTION, OUTPUT = 1, 10

WORDS = (
    "apple pear plum fig kiwi lemon mango peach grape melon cat dog fox owl hen cow pig bee ant bat red blue green pink gray "
    "gold white black brown tan sun moon star rain snow wind cloud hill lake river tree leaf root seed rose iron salt sand "
    "rock bread milk corn rice cake soup tea egg nut ham oil jam cup pot pan fork spoon plate bowl lamp desk door wall roof "
    "north south east west king queen ship boat car bus train road coat hat sock shoe ring book pen map key box bag drum"
).split()


def bos(rng: random.Random) -> list:
    """Documents begin with BOS, but not always: a prompt without it must work too."""
    return [(chat.BOS, 0)] if rng.random() < 0.8 else []


def problem_document(rng: random.Random, drill: bool = False) -> list:
    segments = bos(rng)
    count = rng.choice((1, 1, 1, 2, 4)) if not drill else rng.randint(2, 8)
    for i in range(count):
        question, steps, answer = problems.draw_problem(rng, "train", drill)
        text = problems.worked(steps, answer)
        lead = "\n\n" if i else ""
        last = chat.EOS if i == count - 1 else ""
        if rng.random() < 0.7:
            segments += [(f"{lead}Question: {question}", QUESTION), (f"\nAnswer: {text}{last}", OUTPUT)]
        else:
            segments += [(f"{lead}Question: {question}\nAnswer:", QUESTION), (f" {text}{last}", OUTPUT)]
    return segments


# Copy, reverse, sort -------------------------------------------------------------------------------------------------


def copysort(rng: random.Random):
    """(task line, output)."""
    kind = rng.choice(("copy", "reverse", "sort"))
    form = rng.choice(("words", "numbers", "letters"))
    if form == "words":
        items = rng.sample(WORDS, rng.randint(3, 10 if kind != "copy" else 24))
    elif form == "numbers":
        count = rng.randint(3, 10 if kind != "copy" else 24)
        items = [str(n) for n in rng.sample(range(100), count)]
    else:
        items = rng.sample("abcdefghijklmnopqrstuvwxyz", rng.randint(3, 12))
    if kind == "copy":
        out = items
    elif kind == "reverse":
        out = items[::-1]
    else:
        out = sorted(items, key=int) if form == "numbers" else sorted(items)
    return f"{kind.capitalize()}: {' '.join(items)}", " ".join(out)


def copysort_document(rng: random.Random) -> list:
    segments = bos(rng)
    count = rng.choice((1, 2, 3))
    for i in range(count):
        task, out = copysort(rng)
        segments += [(("\n\n" if i else "") + task, 0), (f"\nOutput: {out}{chat.EOS if i == count - 1 else ''}", OUTPUT)]
    return segments


# Key-value recall ----------------------------------------------------------------------------------------------------


def recall_pairs(rng: random.Random, count: int, digits: int, words: bool = False) -> list[tuple[str, str]]:
    if words:
        keys = rng.sample(WORDS, min(count, len(WORDS)))
    else:
        keys = [f"k{n}" for n in rng.sample(range(10 ** (digits - 1), 10**digits), count)]
    return [(k, f"v{rng.randint(10, 99)}") for k in keys]


def recall_text(pairs) -> str:
    return "Memory:\n" + "\n".join(f"{k}: {v}" for k, v in pairs) + "\nQuery:\n"


def recall_document(rng: random.Random, budget: int) -> list:
    """One context that fills about `budget` tokens, with several queries. A pair costs 8 to 9 tokens."""
    digits = rng.choice((2, 3, 3))
    words = rng.random() < 0.15
    per_pair = 7 if words else 6 + digits
    share = rng.choice((0.5, 0.7, 0.85))  # the rest is queries
    count = min(int(budget * share) // per_pair - 2, 85 if words or digits == 2 else 220)
    if rng.random() < 0.2:
        count = rng.randint(5, max(5, count))
    pairs = recall_pairs(rng, count, digits, words)
    segments = bos(rng) + [(recall_text(pairs), 0)]
    wanted = max(1, (budget - 14 - count * per_pair) // per_pair)
    queries: list[tuple[str, str]] = []
    while len(queries) < wanted:  # every pair once before any is asked again
        queries += rng.sample(pairs, min(len(pairs), wanted - len(queries)))
    for key, value in queries:
        segments += [(f"{key}:", 0), (f" {value}\n", OUTPUT)]
    return segments


# Chat ----------------------------------------------------------------------------------------------------------------

SYSTEMS = ("", "", "", "You are a helpful assistant.", "You are a helpful assistant.", "You are Lantern's tiny model.", "Answer briefly.", "You are a careful assistant. Work step by step.")

CHAT = [
    (("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hello there!", "Hey", "hello", "hi", "Good morning", "Good evening", "Hey there!"),
     ("Hello! I am Lantern's tiny model. Give me a short word problem, or a list to sort.", "Hello! How can I help you? I am good at short word problems.")),
    (("Who are you?", "who are you", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.", "Are you a robot?", "Who am I talking to?"),
     ("I am Lantern's tiny model, a small language model that ships with the Lantern inference engine.",)),
    (("What can you do?", "What are you good at?", "How can you help me?", "Help", "help me", "What do you know?", "What should I ask you?"),
     ("I can solve short word problems, copy, reverse or sort lists, look up values in a list of pairs, and call a calculator.",)),
    (("How are you?", "How are you doing?", "How is it going?", "how are you"), ("I am fine, thank you. How can I help you?",)),
    (("Thanks", "Thank you", "Thank you!", "thanks a lot", "Great, thanks!", "Thanks!"), ("You are welcome!",)),
    (("Bye", "Goodbye", "Goodbye!", "See you", "bye", "Good night"), ("Goodbye!",)),
    (("What is Lantern?", "Tell me about Lantern.", "what is lantern"), ("Lantern is an inference engine for language models with latent attention. I am the small model that ships with it.",)),
    (("How big are you?", "How many parameters do you have?", "Are you a large model?"), ("I am very small: about 14 million parameters.",)),
    (("Who made you?", "Who trained you?", "Where do you come from?"), ("I was trained for the Lantern project, in less than half an hour on one GPU.",)),
    (("What is your architecture?", "How do you work?", "What kind of model are you?"), ("I have latent attention with a sparse attention indexer, a mixture of experts and a multi-token prediction layer.",)),
    (("Tell me a joke.", "Tell me a joke", "Do you know a joke?"), ("Why did the small model cross the road? It was only one token away.",)),
    (("Yes", "Ok", "Okay", "Good", "Nice", "Great", "Cool"), ("Good. What would you like to do next?",)),
    (("No", "Never mind", "Stop"), ("All right. Tell me if you need anything.",)),
]
UNKNOWN_STEMS = (
    "What is the capital of {}?", "Who was {}?", "What is {}?", "Tell me about {}.", "Explain {}.", "Why is {} important?", "Where is {}?",
    "Write a poem about {}.", "How do I make {}?", "When was {} born?", "What do you think about {}?", "Do you like {}?", "Write a story about {}.", "Can you explain {} to me?",
)
UNKNOWN_TOPICS = (
    "France Germany Japan Napoleon Einstein Shakespeare gravity history music bread physics democracy love water quantum computers the+weather "
    "Paris London chemistry football the+sea energy biology art mathematics philosophy Rome Python rockets the+moon coffee Brazil"
).replace("+", " ").split(" ")
UNKNOWN_ANSWER = "I do not know that: I am a very small model. Try a short word problem or a list to sort."


def chat_exchange(rng: random.Random, conversation: chat.Conversation) -> None:
    """Adds one user turn and its answer."""
    draw = rng.random()
    thinking = rng.random() < 0.4
    if draw < 0.5:
        question, steps, answer = problems.draw_problem(rng, "train", drill=rng.random() < 0.25)
        prefix = "Question: " if rng.random() < 0.15 else ""
        conversation.user(prefix + question, thinking)
        work = ". ".join(steps) + "."
        final = f"The answer is {answer}."
        if thinking:
            conversation.assistant(final, work)
        else:
            conversation.assistant(f"{work} {final}")
        return
    if draw < 0.7:
        user, reply = copysort(rng)
        note = "Copy the list." if user.startswith("Copy") else "Reverse the list." if user.startswith("Reverse") else "Sort the list."
    elif draw < 0.92:
        users, replies = rng.choice(CHAT)
        user, reply, note = rng.choice(users), replies[0] if rng.random() < 0.6 else replies[-1], "No calculation is needed."
    else:
        topic = rng.choice(UNKNOWN_TOPICS) if rng.random() < 0.5 else rng.choice(WORDS)
        user, reply, note = rng.choice(UNKNOWN_STEMS).format(topic), UNKNOWN_ANSWER, "I do not know this."
    conversation.user(user, thinking)
    conversation.assistant(reply, note if thinking else None)


def chat_document(rng: random.Random) -> list:
    conversation = chat.Conversation(rng.choice(SYSTEMS), bos=rng.random() < 0.9)
    for _ in range(rng.choice((1, 1, 2, 3))):
        chat_exchange(rng, conversation)
    return conversation.segments


# Tool calls ----------------------------------------------------------------------------------------------------------


def function(name: str, description: str, **parameters: str) -> dict:
    properties = {k: {"type": "string", "description": v} for k, v in parameters.items()}
    return {"name": name, "description": description, "parameters": {"type": "object", "properties": properties, "required": list(parameters)}}


CALCULATOR = function("calculator", "Evaluate an arithmetic expression.", expression="The expression to evaluate, such as 12*7.")
CALCULATORS = [
    CALCULATOR, CALCULATOR, function("calculator", "A calculator.", expression="An arithmetic expression."),
    function("calculator", "Computes the value of an expression.", expression="expression"),
    function("calculate", "Evaluate a mathematical expression and return the result.", expression="The expression."),
]
OTHER_TOOLS = [
    function("get_weather", "Get the current weather of a city.", city="The name of the city."),
    function("search", "Search the web.", query="What to search for."),
    function("get_time", "Get the current time in a city.", city="The name of the city."),
]
CITIES = "Paris London Rome Berlin Madrid Tokyo Oslo Vienna Lima Cairo Boston Delhi".split()


def calculation(rng: random.Random):
    """(user text, expression, value): larger numbers than the model can do in its head."""
    op = rng.choice("+-**/")
    a, b = rng.randint(2, 9999), rng.randint(2, 999)
    if op == "/":
        b = rng.randint(2, 99)
        a = b * rng.randint(2, 999)
    elif op == "-" and a < b:
        a, b = b, a
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[op]
    verb = {"+": ("plus", "the sum of {} and {}"), "-": ("minus", "the difference of {} and {}"), "*": ("times", "the product of {} and {}"), "/": ("divided by", "{} divided by {}")}[op]
    text = rng.choice((f"What is {a}{op}{b}?", f"What is {a} {op} {b}?", f"What is {a} {verb[0]} {b}?", f"Calculate {a}{op}{b}.", f"Compute {a} {op} {b}.",
                       f"Please calculate {a} {verb[0]} {b}.", f"How much is {a} {verb[0]} {b}?", f"What is {verb[1].format(a, b)}?", f"Use the calculator: {a} {op} {b}"))
    return text, f"{a}{op}{b}", value


def toolcall_item(rng: random.Random):
    """(system, tools, user text, function name, arguments, result, final text)."""
    calculator = rng.choice(CALCULATORS)
    tools = [calculator] + rng.sample(OTHER_TOOLS, rng.choice((0, 0, 1, 2)))
    rng.shuffle(tools)
    others = [t["name"] for t in tools if t is not calculator]
    if others and rng.random() < 0.35:
        name, city = rng.choice(others), rng.choice(CITIES)
        if name == "search":
            topic = rng.choice(WORDS)
            return tools, rng.choice((f"Search for {topic}.", f"Find pages about {topic}.")), name, {"query": topic}, f"3 pages about {topic}", f"I found 3 pages about {topic}."
        if name == "get_weather":
            degrees = rng.randint(-5, 35)
            sky = rng.choice(("sunny", "rain", "snow", "clouds"))
            return tools, rng.choice((f"What is the weather in {city}?", f"How is the weather in {city}?")), name, {"city": city}, f"{degrees} degrees, {sky}", f"The weather in {city}: {degrees} degrees, {sky}."
        clock = f"{rng.randint(0, 23)}:{rng.randint(10, 59)}"
        return tools, rng.choice((f"What time is it in {city}?", f"Tell me the time in {city}.")), name, {"city": city}, clock, f"It is {clock} in {city}."
    user, expr, value = calculation(rng)
    return tools, user, calculator["name"], {"expression": expr}, str(value), f"The result is {value}."


def toolcall_document(rng: random.Random) -> list:
    tools, *item = toolcall_item(rng)
    conversation = chat.Conversation(rng.choice(SYSTEMS), tools, bos=rng.random() < 0.9)
    names = {t["name"] for t in tools}
    for _ in range(rng.choice((1, 2, 3, 5))):
        user, name, arguments, result, final = item
        if rng.random() < 0.15:
            chat_exchange(rng, conversation)
        else:
            thinking = rng.random() < 0.4
            note = "I should use the calculator." if name.startswith("calc") else f"I should use {name}."
            conversation.user(user, thinking)
            conversation.call(name, arguments, note if thinking else None)
            conversation.result(result, thinking)
            conversation.assistant(final, "I have the result." if thinking else None)
        while True:  # a following question must suit the tools that were offered
            other_tools, *item = toolcall_item(rng)
            if item[1] in names:
                break
    return conversation.segments
