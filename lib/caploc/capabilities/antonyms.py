"""Words of opposite meaning."""

from caploc.capabilities.word_pairs import word_pair_family

SHOTS = (("true", "false"), ("north", "south"), ("empty", "full"), ("win", "lose"))

ANTONYMS = (
    ("hot", "cold"), ("big", "small"), ("tall", "short"), ("fast", "slow"), ("young", "old"),
    ("happy", "sad"), ("rich", "poor"), ("strong", "weak"), ("light", "dark"), ("black", "white"),
    ("day", "night"), ("up", "down"), ("left", "right"), ("in", "out"), ("on", "off"), ("open", "closed"),
    ("early", "late"), ("near", "far"), ("high", "low"), ("wide", "narrow"), ("thick", "thin"),
    ("hard", "soft"), ("wet", "dry"), ("clean", "dirty"), ("good", "bad"), ("best", "worst"),
    ("better", "worse"), ("more", "less"), ("most", "least"), ("many", "few"), ("always", "never"),
    ("first", "last"), ("before", "after"), ("above", "below"), ("inside", "outside"), ("over", "under"),
    ("front", "back"), ("top", "bottom"), ("east", "west"), ("begin", "end"), ("start", "stop"),
    ("buy", "sell"), ("give", "take"), ("push", "pull"), ("love", "hate"), ("laugh", "cry"),
    ("live", "die"), ("arrive", "depart"), ("enter", "exit"), ("rise", "fall"), ("increase", "decrease"),
    ("accept", "reject"), ("attack", "defend"), ("borrow", "lend"), ("build", "destroy"),
    ("success", "failure"), ("victory", "defeat"), ("friend", "enemy"), ("war", "peace"),
    ("heaven", "hell"), ("question", "answer"), ("problem", "solution"), ("cause", "effect"),
    ("husband", "wife"), ("brother", "sister"), ("king", "queen"), ("male", "female"), ("man", "woman"),
    ("boy", "girl"), ("summer", "winter"), ("morning", "evening"), ("past", "future"), ("birth", "death"),
    ("gain", "loss"), ("profit", "debt"), ("hope", "despair"), ("courage", "fear"), ("truth", "lie"),
    ("positive", "negative"), ("active", "passive"), ("public", "private"), ("major", "minor"),
    ("maximum", "minimum"), ("internal", "external"), ("import", "export"), ("include", "exclude"),
    ("optimist", "pessimist"), ("simple", "complex"), ("easy", "difficult"), ("possible", "impossible"),
    ("visible", "invisible"), ("legal", "illegal"), ("regular", "irregular"), ("honest", "dishonest"),
    ("polite", "rude"), ("brave", "cowardly"), ("generous", "selfish"), ("modern", "ancient"),
    ("loud", "quiet"), ("sharp", "dull"), ("smooth", "rough"), ("deep", "shallow"), ("heavy", "light"),
    ("bright", "dim"), ("sweet", "sour"), ("fresh", "stale"), ("raw", "cooked"), ("tight", "loose"),
    ("safe", "dangerous"), ("alive", "dead"), ("asleep", "awake"), ("absent", "present"),
    ("guilty", "innocent"), ("expensive", "cheap"), ("cheap", "expensive"), ("artificial", "natural"),
    ("temporary", "permanent"), ("horizontal", "vertical"), ("domestic", "foreign"),
    ("singular", "plural"), ("beautiful", "ugly"), ("wise", "foolish"), ("superior", "inferior"),
    ("offense", "defense"), ("ascend", "descend"), ("expand", "contract"), ("forward", "backward"),
    ("odd", "even"), ("add", "subtract"), ("multiply", "divide"), ("remember", "forget"),
    ("teacher", "student"), ("cold", "hot"), ("small", "big"), ("slow", "fast"), ("sad", "happy"),
    ("poor", "rich"), ("weak", "strong"), ("dry", "wet"), ("dirty", "clean"), ("bad", "good"),
    ("low", "high"), ("last", "first"), ("below", "above"), ("outside", "inside"), ("sell", "buy"),
    ("failure", "success"), ("peace", "war"), ("winter", "summer"), ("negative", "positive"),
    ("minimum", "maximum"), ("external", "internal"),
)  # fmt: skip

FAMILY = word_pair_family(
    "antonyms",
    "the opposite of a word, after four examples",
    pattern="{word} - {answer}",
    shots=SHOTS,
    pairs=ANTONYMS,
)
