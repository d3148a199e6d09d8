"""Words of opposite meaning; those with several common opposites are left out."""

from caploc.capabilities.word_pairs import word_pair_family

SHOTS = (("buy", "sell"), ("tall", "short"))

ANTONYMS = (
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("young", "old"), ("happy", "sad"),
    ("rich", "poor"), ("strong", "weak"), ("black", "white"), ("day", "night"), ("up", "down"),
    ("left", "right"), ("in", "out"), ("on", "off"), ("early", "late"), ("near", "far"), ("high", "low"),
    ("thick", "thin"), ("wet", "dry"), ("clean", "dirty"), ("good", "bad"), ("best", "worst"),
    ("better", "worse"), ("more", "less"), ("always", "never"), ("first", "last"), ("before", "after"),
    ("above", "below"), ("inside", "outside"), ("over", "under"), ("front", "back"), ("top", "bottom"),
    ("east", "west"), ("give", "take"), ("push", "pull"), ("love", "hate"), ("arrive", "depart"),
    ("enter", "exit"), ("rise", "fall"), ("increase", "decrease"), ("accept", "reject"), ("borrow", "lend"),
    ("build", "destroy"), ("success", "failure"), ("victory", "defeat"), ("friend", "enemy"),
    ("war", "peace"), ("heaven", "hell"), ("question", "answer"), ("male", "female"), ("summer", "winter"),
    ("past", "future"), ("birth", "death"), ("hope", "despair"), ("positive", "negative"),
    ("active", "passive"), ("public", "private"), ("major", "minor"), ("maximum", "minimum"),
    ("internal", "external"), ("import", "export"), ("optimist", "pessimist"), ("possible", "impossible"),
    ("visible", "invisible"), ("legal", "illegal"), ("regular", "irregular"), ("honest", "dishonest"),
    ("smooth", "rough"), ("deep", "shallow"), ("tight", "loose"), ("alive", "dead"), ("asleep", "awake"),
    ("absent", "present"), ("guilty", "innocent"), ("expensive", "cheap"), ("cheap", "expensive"),
    ("temporary", "permanent"), ("horizontal", "vertical"), ("singular", "plural"), ("beautiful", "ugly"),
    ("wise", "foolish"), ("superior", "inferior"), ("ascend", "descend"), ("forward", "backward"),
    ("odd", "even"), ("add", "subtract"), ("multiply", "divide"), ("remember", "forget"), ("cold", "hot"),
    ("slow", "fast"), ("sad", "happy"), ("poor", "rich"), ("weak", "strong"), ("dry", "wet"),
    ("dirty", "clean"), ("bad", "good"), ("low", "high"), ("last", "first"), ("below", "above"),
    ("failure", "success"), ("winter", "summer"), ("negative", "positive"), ("minimum", "maximum"),
    ("external", "internal"), ("north", "south"), ("win", "lose"), ("empty", "full"), ("true", "false"),
    ("wide", "narrow"),
)  # fmt: skip

FAMILY = word_pair_family(
    "antonyms",
    "the opposite of a word, after two examples",
    pattern="The opposite of {word} is {answer}.",
    shots=SHOTS,
    pairs=ANTONYMS,
)
